"""`AsyncLeaseKeeper`: the jobs that a process has in hand, for asyncio; extends their leases and settles them.

`LeaseKeeper` for one event loop: `LeaseState` decides, this module does the I/O.
"""

import asyncio
import time
import weakref
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from topics.client.aiosession import AsyncSession
from topics.client.call import Call
from topics.client.errors import BadAnswer, Conflict, NotFound, TopicsError
from topics.client.held_job import BaseHeldJob, JobState, Reason, reason_text
from topics.client.lease_state import (
    ACK,
    CLAIM_MAX,
    RETURN,
    Ending,
    KeeperPolicy,
    LeaseState,
    chunks,
    grouped,
    rejected,
    tell,
)
from topics.client.models import Acked, Claimed, Job, Nacked
from topics.client.tracing import mark_failed

D = TypeVar("D")


class AsyncHeldJob(BaseHeldJob[D]):
    """A job in hand: `HeldJob` for asyncio.

        async for job in client.work("jobs"):
            async with job:
                await resize(job.data)

    A task that is cancelled gives its job back at once.
    """

    def __init__(self, keeper: "AsyncLeaseKeeper[D]", queue: str, job: Job[D]) -> None:
        super().__init__(queue, job)
        self.keeper = keeper

    async def ack(self, *, result: Any = None) -> bool:
        """As `HeldJob.ack`."""
        await self.keeper.ack([self], result=result)
        return self.state is JobState.ACKED

    async def nack(
        self, *, delay_ms: int | None = None, reason: Reason = None, dead: bool = False
    ) -> bool:
        """As `HeldJob.nack`."""
        if delay_ms is None:
            delay_ms = 0 if dead else self.keeper.delay_ms(self.deliveries)
        await self.keeper.nack([self], delay_ms=delay_ms, reason=reason, dead=dead)
        return self.state is JobState.NACKED

    async def reject(self, reason: Reason = None) -> None:
        """As `HeldJob.reject`."""
        await self.keeper.reject([self], reason)

    async def __aenter__(self) -> Self:
        try:
            self.require_fit()
        except BadAnswer as error:
            with suppress(TopicsError):
                await self.nack(reason=error)
            raise
        self._begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._entered:
            mark_failed(self._span, error)
            leaving = self.keeper.leaving([self])
            if error is None:
                async with leaving:
                    await self.ack()
                return
            # As in `HeldJob.__exit__`.
            with suppress(TopicsError):
                async with leaving:
                    if isinstance(error, Exception):
                        await self.nack(reason=error)
                    else:
                        await self.nack(delay_ms=0)


class AsyncLeaseKeeper(Generic[D]):
    """The jobs that this process has in hand: `LeaseKeeper` for asyncio, what `AsyncClient.lease_keeper` returns.

        async with client.lease_keeper(capacity=100) as keeper:
            jobs = await keeper.claim("mails", max=20, wait_ms=5000)
            ...
            await keeper.ack(jobs)

    A task extends the leases.  It holds no reference to the keeper: when a program drops a job, or the keeper, the
    leases run out.

    Attributes:
        node: The name under which jobs are claimed.
        capacity: Most jobs in hand, as far as `claim` can help it; None is no limit.
    """

    def __init__(
        self,
        session: AsyncSession,
        leases: LeaseState[D],
        kind: type[Job[D]],
        policy: KeeperPolicy[D],
    ) -> None:
        self.capacity = policy.capacity
        self._session = session
        self._leases = leases
        self._kind = kind
        self._policy = policy
        self._is_background = policy.background
        self._reserved = 0
        self._pending: list[tuple[Ending, BaseHeldJob[D]]] = []
        """Jobs whose ack or nack the task is to send."""
        self._is_closing = False
        self._is_away = False
        """The last extension brought no answer."""
        self._wake = asyncio.Event()
        self._freed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._due_s = 0.0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    @property
    def node(self) -> str:
        return self._leases.node

    @property
    def is_orphaned(self) -> bool:
        """The client was closed: no lease can be extended any more."""
        return self._session.is_closed

    @property
    def held(self) -> list[BaseHeldJob[D]]:
        """The jobs in hand that are not settled."""
        return list(self._leases.held.values())

    @property
    def room(self) -> int:
        """How many jobs more there may be in hand, those that are being claimed left out."""
        if self.capacity is None:
            return CLAIM_MAX
        return self.capacity - len(self._leases.held) - self._reserved

    async def wait_for_room(self, timeout_s: float | None = None) -> int:
        """The room, once there is any; 0 where there is none within the timeout."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self.room <= 0:
                    self._freed.clear()
                    await self._freed.wait()
        return max(self.room, 0)

    # ------------------------------------------------------------------ claims

    async def claim(self, queue: str, *, max: int = 1, wait_ms: int = 0) -> list[AsyncHeldJob[D]]:
        """As `LeaseKeeper.claim`.  Where the task is cancelled, jobs that had arrived go back."""
        count = min(max, self.room, CLAIM_MAX)
        if count <= 0:
            return []
        call = self._leases.claim(queue, self._kind, max=count, wait_ms=wait_ms or None)
        self._reserved += count
        try:
            return self.hold(queue, (await self._asked(queue, call)).jobs)
        finally:
            self._reserved -= count
            self._freed.set()

    async def _asked(self, queue: str, call: Call[Claimed[Job[D]]]) -> Claimed[Job[D]]:
        asking = asyncio.ensure_future(self._session.do(call))
        try:
            await asyncio.wait([asking])
        except asyncio.CancelledError:
            asking.cancel()
            await asyncio.wait([asking])
            if not asking.cancelled() and asking.exception() is None:
                await self.give_back(self.hold(queue, asking.result().jobs))
            raise
        return asking.result()

    def hold(self, queue: str, jobs: Iterable[Job[D]]) -> list[AsyncHeldJob[D]]:
        """Take jobs in hand that were claimed as `node`; from now on their leases are extended."""
        held = self._leases.hold(AsyncHeldJob(self, queue, job) for job in jobs)
        if held and self._task is None and not self._is_closing:
            pause_s = self._leases.extend_every_s
            self._due_s = time.monotonic() + pause_s
            keeping = _keep_leases(weakref.ref(self), self._wake, pause_s)
            self._task = asyncio.create_task(keeping, name=f"keep-{queue}")
        return held

    # ------------------------------------------------------------------ settling

    async def ack(
        self, jobs: Iterable[BaseHeldJob[D]], *, result: Any = None
    ) -> Sequence[BaseHeldJob[D]]:
        """As `LeaseKeeper.ack`."""
        ending = ACK if result is None else Ending(is_ack=True, result=result)
        return await self._settle(jobs, ending)

    async def nack(
        self,
        jobs: Iterable[BaseHeldJob[D]],
        *,
        delay_ms: int | None = None,
        reason: Reason = None,
        dead: bool = False,
    ) -> Sequence[BaseHeldJob[D]]:
        """As `LeaseKeeper.nack`."""
        ending = Ending(is_ack=False, delay_ms=delay_ms, reason=reason_text(reason), dead=dead)
        return await self._settle(jobs, ending)

    async def reject(
        self, jobs: Iterable[BaseHeldJob[D]], reason: Reason = None
    ) -> Sequence[BaseHeldJob[D]]:
        """As `LeaseKeeper.reject`."""
        return await self._settle(jobs, rejected(reason))

    async def give_back(self, jobs: Iterable[BaseHeldJob[D]]) -> None:
        """Let other workers have jobs at once; where the server does not answer, the leases run out."""
        jobs = list(jobs)
        with suppress(TopicsError):
            async with self.leaving(jobs):
                await self._settle(jobs, RETURN)

    @asynccontextmanager
    async def leaving(self, jobs: Iterable[BaseHeldJob[D]]) -> AsyncIterator[None]:
        """A context that a `TopicsError` ends: the leases of those jobs that are still held run out then."""
        try:
            yield
        except TopicsError:
            self._lose(jobs)
            raise

    def _lose(self, jobs: Iterable[BaseHeldJob[D]]) -> list[BaseHeldJob[D]]:
        self._freed.set()
        return self._leases.lost(jobs)

    def delay_ms(self, deliveries: int) -> int | None:
        """How long a job rests that failed at its n-th delivery; None: as its queue says."""
        return self._policy.delay_ms(deliveries)

    async def aclose(self) -> None:
        """Send what is to be sent in the background, give back all jobs in hand, and extend no more."""
        self._is_closing = True
        await self.give_back(self.held)
        self._wake.set()
        if self._task is not None and self._task is not asyncio.current_task():
            if not self._is_background:
                self._task.cancel()
            await asyncio.wait([self._task])

    async def _settle(
        self, jobs: Iterable[BaseHeldJob[D]], ending: Ending
    ) -> Sequence[BaseHeldJob[D]]:
        if self._is_background and self._task is not None and not self._task.done():
            self._note(jobs, ending)
            return ()
        lost: list[BaseHeldJob[D]] = []
        for some in chunks(jobs):
            if settling := self._leases.settling(some):
                lost += await self._send(settling, ending)
        return lost

    def _note(self, jobs: Iterable[BaseHeldJob[D]], ending: Ending) -> None:
        settling = self._leases.settling(jobs)
        self._leases.drop(settling)
        self._pending += ((ending, job) for job in settling)
        self._freed.set()
        self._wake.set()

    async def _send(
        self, jobs: Sequence[BaseHeldJob[D]], ending: Ending
    ) -> Sequence[BaseHeldJob[D]]:
        """Settle jobs of one queue; returns those that are lost."""
        leases, lost, attempt = self._leases, jobs, ending
        try:
            while True:
                try:
                    answer: Acked | Nacked = await self._session.do(leases.call(jobs, attempt))
                except TopicsError as error:
                    instead = leases.refused(jobs, attempt, error)
                    if instead is None:
                        break
                    attempt = instead
                else:
                    lost = leases.settled(jobs, answer)
                    break
        finally:
            leases.unsettled(jobs)
            self._freed.set()
        self._tell(lost)
        return lost

    def _tell(self, lost: Sequence[BaseHeldJob[D]]) -> None:
        if lost:
            tell(self._policy.on_lost, lost)

    # ------------------------------------------------------------------ in the background

    async def turn(self) -> float | None:
        """Send what is pending, and extend where it is time; seconds until the next turn, None after the last."""
        if self.is_orphaned:
            return None
        self._wake.clear()
        pending, self._pending = self._pending, []
        if self._is_closing and not pending:
            self._is_background = False
            return None
        for ending, jobs in grouped(pending):
            await self._send_later(jobs, ending)
        if time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + await self.extend()
        return 0.0 if self._is_closing else max(0.0, self._due_s - time.monotonic())

    async def _send_later(self, jobs: Sequence[BaseHeldJob[D]], ending: Ending) -> None:
        try:
            await self._send(jobs, ending)
        except TopicsError as error:
            tell(self._policy.on_error, error, self._lose(jobs))

    async def extend(self) -> float:
        """Extend the leases of all jobs in hand, in one attempt; seconds until the next time."""
        pause_s = self._leases.extend_every_s
        failure: TopicsError | None = None
        for call, jobs in self._leases.extensions(job for _, job in self._pending):
            lost: Sequence[BaseHeldJob[D]] = ()
            try:
                answer = call.result(await self._session.send(call))
            except (NotFound, Conflict):
                # The queue was deleted, and its leases with it.
                lost = self._lose(jobs)
            except TopicsError as error:
                pause_s, failure = self._leases.extend_again_s, error
                if not self._is_away:
                    tell(self._policy.on_error, error, jobs)
            else:
                lost = self._leases.extended(jobs, answer)
                self._freed.set()
            self._tell(lost)
        self._is_away = failure is not None
        return pause_s


async def _keep_leases(
    found: "weakref.ref[AsyncLeaseKeeper[Any]]", wake: asyncio.Event, pause_s: float | None
) -> None:
    while pause_s is not None:
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await wake.wait()
        keeper = found()
        if keeper is None:
            return
        pause_s = await keeper.turn()
        del keeper
