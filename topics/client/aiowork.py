"""`AsyncWork`: a worker for asyncio, that claims, keeps and settles jobs of a queue."""

import asyncio
import weakref
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeAlias, TypeVar

import httpx

from topics.client.calls import Outcome
from topics.client.errors import Conflict, NotFound, TopicsError
from topics.client.models import Claimed, Job
from topics.client.pushing import SILENCE_S
from topics.client.working import (
    Asked,
    Fate,
    Held,
    OnError,
    Worker,
    chunks,
    lease_lost,
    log_error,
)

if TYPE_CHECKING:
    from topics.client.aio import AsyncClient

D = TypeVar("D")
_Found: TypeAlias = "tuple[deque[AsyncHeldJob[D]], float | None]"
"""Jobs, and the pause before the next claim; None where the queue is drained."""

LAST_CLAIM_S: Final = 0.5
"""How long a claim under way may still bring jobs when the work is stopped.  One that waits for a
job is cut off then, and the server forgets it; one that is being answered has arrived by then."""


class AsyncHeldJob(Held[D]):
    """A job in hand: `HeldJob` for asyncio.

        async for job in client.work("jobs"):
            async with job:
                await resize(job.data)

    A task that is cancelled gives its job back at once.
    """

    def __init__(self, work: "AsyncWork[D]", job: Job[D]) -> None:
        super().__init__(work.queue, job)
        self._work = work

    async def ack(self) -> bool:
        """As `HeldJob.ack`."""
        await self._work._settle([self], None)
        return self._fate is Fate.ACKED

    async def nack(self, *, delay_ms: int | None = None) -> bool:
        """As `HeldJob.nack`."""
        if delay_ms is None:
            delay_ms = self._work._worker.delay_ms(self.deliveries)
        await self._work._settle([self], delay_ms)
        return self._fate is Fate.NACKED

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            await self.ack()
        else:
            with suppress(TopicsError):
                await self.nack(delay_ms=None if isinstance(error, Exception) else 0)


class AsyncWork(Generic[D]):
    """What `AsyncClient.work` gives: `Work` for asyncio.

    Several tasks may iterate at once: each claims for itself.
    """

    def __init__(self, client: "AsyncClient", worker: Worker[D]) -> None:
        self._client = client
        self._worker = worker
        self._stopping = asyncio.Event()
        self._turn = asyncio.Lock()
        """To wait for a job."""
        self._keeper: asyncio.Task[None] | None = None

    @property
    def queue(self) -> str:
        return self._worker.queue

    @property
    def node(self) -> str:
        """Who works."""
        return self._worker.node

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    def stop(self) -> None:
        """Claim no more; what is in hand is finished.  For this event loop's own signal handlers
        and tasks."""
        self._stopping.set()

    async def aclose(self) -> None:
        """As `Work.close`."""
        self.stop()
        await self._give_back(list(self._worker.held.values()))
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])

    async def __aiter__(self) -> AsyncGenerator[AsyncHeldJob[D], None]:
        await self._open()
        jobs = self._pushed() if self._worker.pushes else self._claimed()
        try:
            async for job in jobs:
                yield job
        finally:
            await jobs.aclose()

    async def _claimed(self) -> AsyncGenerator[AsyncHeldJob[D], None]:
        while (found := await self._find()) is not None:
            jobs, pause_s = found
            try:
                while jobs and not self._stopping.is_set():
                    yield jobs.popleft()
            finally:
                await self._give_back(jobs)
            if pause_s is None:
                return
            if pause_s and not self._stopping.is_set():
                await self._client._sleep(pause_s)

    async def _pushed(self) -> AsyncGenerator[AsyncHeldJob[D], None]:
        stream = self._worker.pushing()
        while not (self._stopping.is_set() or self._worker.is_through):
            try:
                async with self._client._open(stream.call, SILENCE_S) as response:
                    outcome: Outcome = response
                    if stream.opens(response):
                        pieces = response.aiter_bytes()
                        while (piece := await self._piece(pieces)) is not None:
                            for job in self._held(stream.take(piece)):
                                # What comes after the last one goes back with the connection.
                                if not self._is_wanted():
                                    return
                                yield job
                            if not stream.is_listening:
                                break
                    else:
                        await response.aread()
            except httpx.RequestError as error:
                outcome = error
            if not self._stopping.is_set():
                await self._client._sleep(stream.ended(outcome))

    def _is_wanted(self) -> bool:
        """As `Work._is_wanted`."""
        is_wanted = not self._stopping.is_set() and self._worker.counts_one()
        if self._worker.is_through:
            self.stop()
        return is_wanted

    async def _piece(self, pieces: AsyncIterator[bytes]) -> bytes | None:
        """The next piece of a stream; None at its end, and when the work is stopped."""
        reading = asyncio.ensure_future(_next(pieces))
        await self._unless_stopped(reading)
        return None if reading.cancelled() else reading.result()

    async def run(
        self,
        handler: Callable[[AsyncHeldJob[D]], Awaitable[object]],
        *,
        concurrency: int = 1,
        on_error: OnError[AsyncHeldJob[D]] = log_error,
    ) -> int:
        """As `Work.run`, in so many tasks.  Cancelled, it cancels them, and gives back their jobs."""
        runs = [asyncio.create_task(self._run(handler, on_error)) for _ in range(concurrency)]
        try:
            await asyncio.wait(runs)
        finally:
            for run in runs:
                run.cancel()
            await asyncio.gather(*runs, return_exceptions=True)
        return sum(run.result() for run in runs)

    async def _run_all(
        self,
        handler: Callable[[AsyncHeldJob[D]], Awaitable[object]],
        concurrency: int,
        on_error: OnError[AsyncHeldJob[D]],
    ) -> int:
        async with self:
            return await self.run(handler, concurrency=concurrency, on_error=on_error)

    async def _run(
        self,
        handler: Callable[[AsyncHeldJob[D]], Awaitable[object]],
        on_error: OnError[AsyncHeldJob[D]],
    ) -> int:
        done = 0
        jobs = aiter(self)
        try:
            async for job in jobs:
                done += await self._handle(job, handler, on_error)
        except Exception:
            self.stop()
            raise
        finally:
            await jobs.aclose()
        return done

    async def _handle(
        self,
        job: AsyncHeldJob[D],
        handler: Callable[[AsyncHeldJob[D]], Awaitable[object]],
        on_error: OnError[AsyncHeldJob[D]],
    ) -> bool:
        try:
            await handler(job)
        except Exception as error:
            await job.nack()
            on_error(job, error)
        except BaseException:
            with suppress(TopicsError):
                await job.nack(delay_ms=0)
            raise
        else:
            await job.ack()
        if job.is_lost:
            on_error(job, lease_lost(job))
        return job._fate is Fate.ACKED

    # ------------------------------------------------------------------ claiming

    async def _open(self) -> None:
        call = self._worker.opening()
        if call is not None:
            opening = asyncio.ensure_future(self._client._do(call))
            await self._unless_stopped(opening)
            if not opening.cancelled():
                self._worker.opened(opening.result())

    async def _find(self) -> "_Found[D] | None":
        """As `Work._find`."""
        if self._worker.drains or self._turn.locked():
            found = await self._claim(waits=False)
            if self._worker.drains or found is None or found[0]:
                return found
        async with self._turn:
            return await self._claim(waits=True)

    async def _claim(self, *, waits: bool) -> "_Found[D] | None":
        asked = None if self._stopping.is_set() else self._worker.claim(waits=waits)
        return None if asked is None else await self._ask(asked)

    async def _ask(self, asked: Asked[D]) -> "_Found[D]":
        claim = asyncio.ensure_future(self._client._do(asked.call))
        try:
            await self._unless_stopped(claim)
        except asyncio.CancelledError:
            if not claim.cancelled() and claim.exception() is None:
                jobs, _ = self._took(asked, claim.result())
                await self._give_back(jobs)
            raise
        if claim.cancelled() or claim.exception() is not None:
            self._worker.unanswered(asked)
        return (deque(), 0.0) if claim.cancelled() else self._took(asked, claim.result())

    async def _unless_stopped(self, asking: "asyncio.Future[Any]") -> None:
        """Wait for an answer, or for `stop` and a moment; `asking` is done then, or cancelled."""
        stopped = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait([asking, stopped], return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                await asyncio.wait([asking], timeout=LAST_CLAIM_S)
        finally:
            stopped.cancel()
            asking.cancel()
            if not asking.done():
                # So that its connection is let go before anything else happens.
                await asyncio.wait([asking])

    def _took(self, asked: Asked[D], answer: Claimed[Job[D]]) -> "_Found[D]":
        pause_s = self._worker.claimed(asked, answer)
        return deque(self._held(answer.jobs)), pause_s

    def _held(self, jobs: Iterable[Job[D]]) -> list[AsyncHeldJob[D]]:
        """Jobs in hand from now on, and kept."""
        held = self._worker.hold(AsyncHeldJob(self, job) for job in jobs)
        if held and self._keeper is None:
            every_s = self._worker.extend_every_s
            # It holds no reference to us: a worker that was dropped lets its leases run out.
            self._keeper = asyncio.create_task(_keep(weakref.ref(self), every_s))
        return held

    async def _give_back(self, jobs: Iterable[Held[D]]) -> None:
        with suppress(TopicsError):
            await self._settle(list(jobs), 0)

    async def _settle(self, jobs: Iterable[Held[D]], delay_ms: int | None) -> None:
        """Ack jobs, or nack them with a delay, unless something was said about them already."""
        worker = self._worker
        for some in chunks(list(jobs)):
            ours = worker.settling(some)
            if not ours:
                continue
            call: Any = worker.ack(ours) if delay_ms is None else worker.nack(ours, delay_ms)
            answer = None
            try:
                answer = await self._client._do(call)
            finally:
                worker.settled(ours, answer)

    # ------------------------------------------------------------------ leases

    async def _extend(self) -> float:
        """Extend what is in hand, each in one attempt; seconds until the next time."""
        pause_s = self._worker.extend_every_s
        for call, jobs in self._worker.extensions():
            try:
                answer = call.result(await self._client._send(call))
            except (NotFound, Conflict):
                # The queue is gone, and its leases with it.
                self._worker.lost(jobs)
            except TopicsError:
                pause_s = self._worker.extend_again_s
            else:
                self._worker.extended(jobs, answer)
        return pause_s


async def _next(pieces: AsyncIterator[bytes]) -> bytes | None:
    return await anext(pieces, None)


async def _keep(found: "weakref.ref[AsyncWork[Any]]", pause_s: float) -> None:
    while True:
        await asyncio.sleep(pause_s)
        work = found()
        if work is None or work._client.is_closed:
            return
        pause_s = await work._extend()
        del work
