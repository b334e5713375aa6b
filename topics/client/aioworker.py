"""`AsyncWork`: a worker for asyncio, which claims jobs of a queue, keeps their leases and settles
them.

`Work` for one event loop.  What is claimed next, and what is a job's result, is decided by `WorkerState`;
jobs in hand are an `AsyncLeaseKeeper`'s; this module claims, runs handlers, and gives jobs back where a
task is cancelled.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeAlias, TypeVar

from topics.client import termination
from topics.client.aiolease_keeper import AsyncHeldJob, AsyncLeaseKeeper
from topics.client.aiosession import AsyncSession
from topics.client.call import Outcome
from topics.client.faults import Fault
from topics.client.handlers import awaitable_of, require_awaited
from topics.client.held_job import (
    JobState,
    OnError,
    is_failure,
    lease_lost,
    log_error,
    time_limit_exceeded,
)
from topics.client.hooks import require_hook
from topics.client.job_stream import READ_TIMEOUT_S
from topics.client.models import Claimed, Job
from topics.client.tracing import mark_failed, process_span
from topics.client.worker_state import RESULT_REFUSED, Claim, WorkerState
from topics.visible import visible

D = TypeVar("D")
_Found: TypeAlias = "tuple[deque[AsyncHeldJob[D]], float | None]"
"""Jobs, and the pause before the next claim; None where the queue is drained."""

LAST_CLAIM_S: Final = 0.5
"""How long a claim under way may still bring jobs when the work is stopped.  A claim that waits for
a job is cut off then, and the server forgets it; the answer to any other has arrived by then."""


class AsyncWork(Generic[D]):
    """What `AsyncClient.work` returns: `Work` for asyncio.

    Several tasks may iterate at once; each of them claims for itself.
    """

    def __init__(self, session: AsyncSession, state: WorkerState[D]) -> None:
        self._session = session
        self._state = state
        self._keeper = AsyncLeaseKeeper(session, state.leases, state.job_type, state.policy)
        self._stopping = asyncio.Event()
        self._waiter = asyncio.Lock()
        """Held by the one task that waits at the server for a job."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.queue} by {visible(self.node)}>"

    @property
    def queue(self) -> str:
        return self._state.queue

    @property
    def node(self) -> str:
        """The name under which jobs are claimed."""
        return self._state.leases.node

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
        """Claim no more; jobs in hand are finished.  For tasks and signal handlers of this event
        loop."""
        self._stopping.set()

    async def aclose(self) -> None:
        """As `Work.close`."""
        self.stop()
        await self._keeper.aclose()

    async def __aiter__(self) -> AsyncGenerator[AsyncHeldJob[D], None]:
        with termination.heard_by_task():
            await self._open()
            jobs = self._pushed() if self._state.pushes else self._claimed()
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
                if jobs:
                    await self._give_back(jobs)
            if pause_s is None:
                return
            if pause_s and not self._stopping.is_set():
                await self._session.sleep(pause_s)

    async def _pushed(self) -> AsyncGenerator[AsyncHeldJob[D], None]:
        stream = self._state.job_stream()
        while not (self._stopping.is_set() or self._state.is_through):
            try:
                async with self._session.open(stream.call, READ_TIMEOUT_S) as response:
                    outcome: Outcome = response
                    if stream.opens(response):
                        pieces = response.aiter_bytes()
                        while (piece := await self._piece(pieces)) is not None:
                            for job in self._keeper.hold(self.queue, stream.take(piece)):
                                # The jobs after the last one go back when the connection closes.
                                if not self._is_wanted():
                                    return
                                yield job
                            if not stream.is_listening:
                                break
                    else:
                        await response.aread()
            except Fault as error:
                outcome = error
            if not self._stopping.is_set():
                await self._session.sleep(stream.ended(outcome))

    def _is_wanted(self) -> bool:
        """Whether a pushed job is to be worked on; with the last one, the other tasks stop."""
        is_wanted = not self._stopping.is_set() and self._state.count_pushed()
        if self._state.is_through:
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
        time_limit_s: float | None = None,
    ) -> int:
        """As `Work.run`, in `concurrency` tasks.  When it is cancelled, it cancels them, and gives
        back their jobs.

        Args:
            time_limit_s: A handler that takes longer is cancelled; its job is nacked with that as the
                reason, and `on_error` is given `TimeLimitExceeded`.
        """
        require_awaited(handler)
        require_hook("on_error", on_error)
        self._state.take_type_of(handler)

        async def handle(job: AsyncHeldJob[D]) -> object:
            return await _within(time_limit_s, awaitable_of(handler, job), job)

        with termination.heard_by_task():
            runs = [asyncio.create_task(self._run(handle, on_error)) for _ in range(concurrency)]
            try:
                await asyncio.wait(runs)
            finally:
                for run in runs:
                    run.cancel()
                await asyncio.gather(*runs, return_exceptions=True)
        return sum(run.result() for run in runs)

    async def _run(
        self,
        handler: Callable[[AsyncHeldJob[D]], Awaitable[object]],
        on_error: OnError[AsyncHeldJob[D]],
    ) -> int:
        done = 0
        jobs = aiter(self)
        try:
            async for job in jobs:
                async with self._keeper.leaving([job]):
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
        with process_span(self.queue, job) as span:
            return await self._process(job, handler, on_error, span)

    async def _process(
        self,
        job: AsyncHeldJob[D],
        handler: Callable[[AsyncHeldJob[D]], Awaitable[object]],
        on_error: OnError[AsyncHeldJob[D]],
        span: Any,
    ) -> bool:
        try:
            job.require_fit()
            returned = await handler(job)
        except BaseException as raised:
            error = _failure(raised)
            mark_failed(span, error)
            if error is None:
                self.stop()
                await self._give_back([job])
                raise
            await job.nack(reason=error)
            on_error(job, error)
        else:
            await self._done(job, returned)
        if job.is_lost:
            on_error(job, lease_lost(job))
        return job.state is JobState.ACKED

    async def _done(self, job: AsyncHeldJob[D], returned: Any) -> None:
        """As `Work._done`."""
        result = self._state.result_of(returned)
        try:
            await self._keeper.ack([job], result=result)
        except RESULT_REFUSED as error:
            if result is None:
                raise
            self._state.result_refused([job], error)
            await self._keeper.ack([job])

    async def _give_back(self, jobs: Iterable[AsyncHeldJob[D]]) -> None:
        """Give back jobs of a hand that ends; where the work does, once no other hand waits at the server
        for one: else that may lease them to a claim which is being cut off."""
        if not self._stopping.is_set():
            await self._keeper.give_back(jobs)
            return
        async with self._waiter:
            await self._keeper.give_back(jobs)

    # ------------------------------------------------------------------ claiming

    async def _open(self) -> None:
        call = self._state.lease_call()
        if call is not None:
            opening = asyncio.ensure_future(self._session.do(call))
            await self._unless_stopped(opening)
            if not opening.cancelled():
                self._state.lease_answered(opening.result())

    async def _find(self) -> "_Found[D] | None":
        """As `Work._find`."""
        if self._state.drains or self._waiter.locked():
            found = await self._claim(waits=False)
            if self._state.drains or found is None or found[0]:
                return found
        async with self._waiter:
            return await self._claim(waits=True)

    async def _claim(self, *, waits: bool) -> "_Found[D] | None":
        claim = None if self._stopping.is_set() else self._state.claim(waits=waits)
        return None if claim is None else await self._ask(claim)

    async def _ask(self, claim: Claim[D]) -> "_Found[D]":
        asking = asyncio.ensure_future(self._session.do(claim.call))
        try:
            await self._unless_stopped(asking)
        except asyncio.CancelledError:
            if not asking.cancelled() and asking.exception() is None:
                # The jobs arrived in the moment of the cancellation.
                jobs, _ = self._take(claim, asking.result())
                await self._keeper.give_back(jobs)
            raise
        if asking.cancelled() or asking.exception() is not None:
            self._state.unanswered(claim)
        return (deque(), 0.0) if asking.cancelled() else self._take(claim, asking.result())

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
                # Wait until its connection is closed: what follows may close the client.
                await asyncio.wait([asking])

    def _take(self, claim: Claim[D], answer: Claimed[Job[D]]) -> "_Found[D]":
        pause_s = self._state.claimed(claim, answer)
        return deque(self._keeper.hold(self.queue, answer.jobs)), pause_s


def _failure(raised: BaseException) -> Exception | None:
    """What a job failed by; None where the worker ends."""
    if is_failure(raised):
        return raised
    task = asyncio.current_task()
    if isinstance(raised, asyncio.CancelledError) and task is not None and not task.cancelling():
        # Nobody cancelled the worker: the handler waited for a task that was.
        failure = RuntimeError("the handler awaited a task that was cancelled")
        failure.__cause__ = raised
        return failure
    return None


async def _next(pieces: AsyncIterator[bytes]) -> bytes | None:
    return await anext(pieces, None)


async def _within(
    limit_s: float | None, handling: Awaitable[object], job: AsyncHeldJob[Any]
) -> object:
    """What a handler returns, if it does so in time.

    Raises:
        TimeLimitExceeded: It was cancelled, whatever it made of that.
    """
    if limit_s is None:
        return await handling
    limit = asyncio.timeout(limit_s)
    try:
        async with limit:
            returned = await handling
    except Exception as error:
        if not limit.expired():
            raise
        raise time_limit_exceeded(job, limit_s) from error
    if limit.expired():
        raise time_limit_exceeded(job, limit_s)
    return returned
