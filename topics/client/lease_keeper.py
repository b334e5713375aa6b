"""`LeaseKeeper`: the jobs that a process has in hand, for threads; extends their leases and settles them.

`LeaseState` decides; this module does the I/O, in the threads of the program and one of its own.  It is not
generated from `aiolease_keeper`: threads need locks, and a process may fork.
"""

import os
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

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
from topics.client.models import Acked, Job, Nacked
from topics.client.session import Session
from topics.client.tracing import mark_failed

D = TypeVar("D")


class HeldJob(BaseHeldJob[D]):
    """A job in hand.  As a context it is acked at the end, and nacked where the block raises.

        for job in client.work("jobs"):
            with job:
                resize(job.data)

    The exception goes on out of the context.  The job is handed out again after a delay that grows
    with `deliveries`; or at once, where it was not the job's fault (`KeyboardInterrupt`).

    Where a call of it raises a `TopicsError`, the server refused the call or did not answer: the job stays in hand, and
    the call may be repeated.

    Attributes:
        keeper: Keeps its lease.
    """

    def __init__(self, keeper: "LeaseKeeper[D]", queue: str, job: Job[D]) -> None:
        super().__init__(queue, job)
        self.keeper = keeper

    def ack(self, *, result: Any = None) -> bool:
        """Say that the job is done, which deletes it.  False where its lease had ended (`is_lost`).

        Args:
            result: What came of it, as JSON (`Client.ack`).
        """
        self.keeper.ack([self], result=result)
        return self.state is JobState.ACKED

    def nack(
        self, *, delay_ms: int | None = None, reason: Reason = None, dead: bool = False
    ) -> bool:
        """Give the job back undone, to be handed out again after `delay_ms`; by default as the
        queue's `backoff` says, or, from a `Work`, after a delay that grows with `deliveries`.  False where its lease
        had ended.

        Args:
            reason: Why, or the exception that says so; it stays with the job.
            dead: It goes to the dead letters at once.
        """
        if delay_ms is None:
            delay_ms = 0 if dead else self.keeper.delay_ms(self.deliveries)
        self.keeper.nack([self], delay_ms=delay_ms, reason=reason, dead=dead)
        return self.state is JobState.NACKED

    def reject(self, reason: Reason = None) -> None:
        """Make the job a dead letter; in a queue that has none it is deleted."""
        self.keeper.reject([self], reason)

    def __enter__(self) -> Self:
        try:
            self.require_fit()
        except BadAnswer as error:
            with suppress(TopicsError):
                self.nack(reason=error)
            raise
        self._begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._entered:
            mark_failed(self._span, error)
            leaving = self.keeper.leaving([self])
            if error is None:
                with leaving:
                    self.ack()
                return
            # The exception of the block goes on, and one of the nack would hide it.
            with suppress(TopicsError), leaving:
                if isinstance(error, Exception):
                    self.nack(reason=error)
                else:
                    self.nack(delay_ms=0)


class LeaseKeeper(Generic[D]):
    """The jobs that this process has in hand, of any number of queues: what `Client.lease_keeper` returns.

        with client.lease_keeper(capacity=100) as keeper:
            jobs = keeper.claim("mails", max=20, wait_ms=5000)
            ...
            keeper.ack(jobs)

    A thread extends the leases of all jobs in hand, three times in each lease.  It holds no reference to the
    keeper: when a program drops a job, or the keeper, the leases run out.  Any number of threads may use a keeper.
    A process that was forked leaves the jobs of its parent alone.

    Attributes:
        node: The name under which jobs are claimed.
        changed: Notified when there is more room; its lock is held around each use of the state.
    """

    def __init__(
        self,
        session: Session,
        leases: LeaseState[D],
        kind: type[Job[D]],
        policy: KeeperPolicy[D],
    ) -> None:
        self.changed = threading.Condition(threading.RLock())
        self._session = session
        self._leases = leases
        self._kind = kind
        self._policy = policy
        self._capacity = policy.capacity
        self._is_background = policy.background
        self._reserved = 0
        self._pending: list[tuple[Ending, BaseHeldJob[D]]] = []
        """Jobs whose ack or nack the thread is to send."""
        self._is_closing = False
        self._is_away = False
        """The last extension brought no answer."""
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._due_s = 0.0
        self._pid = os.getpid()

    def __del__(self) -> None:
        self._wake.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

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
        with self.changed:
            return list(self._leases.held.values())

    @property
    def capacity(self) -> int | None:
        """Most jobs in hand, as far as `claim` can help it; None is no limit."""
        return self._capacity

    @capacity.setter
    def capacity(self, capacity: int | None) -> None:
        with self.changed:
            self._capacity = capacity
            self.changed.notify_all()

    @property
    def room(self) -> int:
        """How many jobs more there may be in hand, those that are being claimed left out."""
        with self.changed:
            if self._capacity is None:
                return CLAIM_MAX
            return self._capacity - len(self._leases.held) - self._reserved

    def wait_for_room(self, timeout_s: float | None = None) -> int:
        """The room, once there is any; 0 where there is none within the timeout."""
        with self.changed:
            self.changed.wait_for(lambda: self.room > 0, timeout_s)
            return max(self.room, 0)

    # ------------------------------------------------------------------ claims

    def claim(self, queue: str, *, max: int = 1, wait_ms: int = 0) -> list[HeldJob[D]]:
        """Claim jobs of a queue: `max` at most, and no more than there is room for.

        No more are claimed than fit, because a job that goes back counts as delivered: with `max_deliveries` it could
        become a dead letter that nobody has seen.

        Args:
            wait_ms: Wait for a first job, at most 30,000.

        Raises:
            TopicNotFound: The queue does not exist.
            Conflict: The topic is not a queue.
        """
        count = self.reserve(max)
        return self.claim_reserved(queue, count, wait_ms) if count else []

    def reserve(self, max: int) -> int:
        """Keep room for a claim of up to `max` jobs, which `claim_reserved` is to make; for how many there is."""
        with self.changed:
            count = min(max, self.room, CLAIM_MAX)
            self._reserved += count if count > 0 else 0
        return count if count > 0 else 0

    def claim_reserved(self, queue: str, count: int, wait_ms: int) -> list[HeldJob[D]]:
        """As `claim`, for so many jobs as room was kept for."""
        call = self._leases.claim(queue, self._kind, max=count, wait_ms=wait_ms or None)
        try:
            return self.hold(queue, self._session.do(call).jobs)
        finally:
            with self.changed:
                self._reserved -= count
                self.changed.notify_all()

    def hold(self, queue: str, jobs: Iterable[Job[D]]) -> list[HeldJob[D]]:
        """Take jobs in hand that were claimed as `node`; from now on their leases are extended."""
        with self.changed:
            held = self._leases.hold(HeldJob(self, queue, job) for job in jobs)
            if held and self._thread is None and not self._is_closing:
                self._start(f"keep-{queue}")
        return held

    # ------------------------------------------------------------------ settling

    def ack(
        self, jobs: Iterable[BaseHeldJob[D]], *, result: Any = None
    ) -> Sequence[BaseHeldJob[D]]:
        """Say that jobs are done; those that are settled already are left out.

        Args:
            result: What came of each, as JSON.

        Returns:
            Jobs whose leases had ended, which is known at once unless the keeper settles in the background.

        Raises:
            TopicsError: The server refused the call or did not answer; the jobs stay in hand.
        """
        return self._settle(jobs, ACK if result is None else Ending(is_ack=True, result=result))

    def nack(
        self,
        jobs: Iterable[BaseHeldJob[D]],
        *,
        delay_ms: int | None = None,
        reason: Reason = None,
        dead: bool = False,
    ) -> Sequence[BaseHeldJob[D]]:
        """Give jobs back undone, as `Client.nack`; the rest as `ack`."""
        ending = Ending(is_ack=False, delay_ms=delay_ms, reason=reason_text(reason), dead=dead)
        return self._settle(jobs, ending)

    def reject(
        self, jobs: Iterable[BaseHeldJob[D]], reason: Reason = None
    ) -> Sequence[BaseHeldJob[D]]:
        """Make jobs dead letters; in a queue that has none they are deleted.  The rest as `ack`."""
        return self._settle(jobs, rejected(reason))

    def give_back(self, jobs: Iterable[BaseHeldJob[D]]) -> None:
        """Let other workers have jobs at once; where the server does not answer, the leases run out."""
        jobs = list(jobs)
        with suppress(TopicsError), self.leaving(jobs):
            self._settle(jobs, RETURN)

    @contextmanager
    def leaving(self, jobs: Iterable[BaseHeldJob[D]]) -> Iterator[None]:
        """A context that a `TopicsError` ends: the leases of those jobs that are still held run out then."""
        try:
            yield
        except TopicsError:
            self._lose(jobs)
            raise

    def _lose(self, jobs: Iterable[BaseHeldJob[D]]) -> list[BaseHeldJob[D]]:
        with self.changed:
            self.changed.notify_all()
            return self._leases.lost(jobs)

    def delay_ms(self, deliveries: int) -> int | None:
        """How long a job rests that failed at its n-th delivery; None: as its queue says."""
        return self._policy.delay_ms(deliveries)

    def close(self, timeout_s: float | None = None) -> None:
        """Send what is to be sent in the background, give back all jobs in hand, and extend no more.

        Args:
            timeout_s: For what is sent in the background; what does not arrive by then is handed out again when its
                lease ends.
        """
        if os.getpid() != self._pid:
            return
        with self.changed:
            self._is_closing = True
            held = list(self._leases.held.values())
        self.give_back(held)
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _settle(self, jobs: Iterable[BaseHeldJob[D]], ending: Ending) -> Sequence[BaseHeldJob[D]]:
        if self._note(jobs, ending):
            return ()
        lost: list[BaseHeldJob[D]] = []
        for some in chunks(jobs):
            with self.changed:
                settling = self._leases.settling(some)
            if settling:
                lost += self._send(settling, ending)
        return lost

    def _note(self, jobs: Iterable[BaseHeldJob[D]], ending: Ending) -> bool:
        """Leave jobs to the thread, if it settles any and has not ended; nor is it there after a fork."""
        with self.changed:
            if not self._is_background or self._thread is None or not self._thread.is_alive():
                return False
            settling = self._leases.settling(jobs)
            self._leases.drop(settling)
            self._pending += ((ending, job) for job in settling)
            self.changed.notify_all()
        self._wake.set()
        return True

    def _send(self, jobs: Sequence[BaseHeldJob[D]], ending: Ending) -> Sequence[BaseHeldJob[D]]:
        """Settle jobs of one queue; returns those that are lost."""
        leases, lost, attempt = self._leases, jobs, ending
        try:
            while True:
                try:
                    answer: Acked | Nacked = self._session.do(leases.call(jobs, attempt))
                except TopicsError as error:
                    with self.changed:
                        instead = leases.refused(jobs, attempt, error)
                    if instead is None:
                        break
                    attempt = instead
                else:
                    with self.changed:
                        lost = leases.settled(jobs, answer)
                    break
        finally:
            with self.changed:
                leases.unsettled(jobs)
                self.changed.notify_all()
        self._tell(lost)
        return lost

    def _tell(self, lost: Sequence[BaseHeldJob[D]]) -> None:
        if lost:
            tell(self._policy.on_lost, lost)

    # ------------------------------------------------------------------ in the background

    def _start(self, name: str) -> None:
        pause_s = self._leases.extend_every_s
        self._due_s = time.monotonic() + pause_s
        args = (weakref.ref(self), self._wake, pause_s)
        self._thread = threading.Thread(target=_keep_leases, args=args, name=name, daemon=True)
        self._thread.start()

    def turn(self) -> float | None:
        """Send what is pending, and extend where it is time; seconds until the next turn, None after the last."""
        if self.is_orphaned:
            return None
        self._wake.clear()
        with self.changed:
            pending, self._pending = self._pending, []
            if self._is_closing and not pending:
                self._is_background = False
                return None
        for ending, jobs in grouped(pending):
            self._send_later(jobs, ending)
        if time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + self.extend()
        return 0.0 if self._is_closing else max(0.0, self._due_s - time.monotonic())

    def _send_later(self, jobs: Sequence[BaseHeldJob[D]], ending: Ending) -> None:
        try:
            self._send(jobs, ending)
        except TopicsError as error:
            tell(self._policy.on_error, error, self._lose(jobs))

    def extend(self) -> float:
        """Extend the leases of all jobs in hand, in one attempt; seconds until the next time."""
        pause_s = self._leases.extend_every_s
        with self.changed:
            extensions = self._leases.extensions(job for _, job in self._pending)
        failure: TopicsError | None = None
        for call, jobs in extensions:
            lost: Sequence[BaseHeldJob[D]] = ()
            try:
                answer = call.result(self._session.send(call))
            except (NotFound, Conflict):
                # The queue was deleted, and its leases with it.
                lost = self._lose(jobs)
            except TopicsError as error:
                pause_s, failure = self._leases.extend_again_s, error
                if not self._is_away:
                    tell(self._policy.on_error, error, jobs)
            else:
                with self.changed:
                    lost = self._leases.extended(jobs, answer)
                    self.changed.notify_all()
            self._tell(lost)
        self._is_away = failure is not None
        return pause_s


def _keep_leases(
    found: "weakref.ref[LeaseKeeper[Any]]", wake: threading.Event, pause_s: float | None
) -> None:
    while pause_s is not None:
        wake.wait(pause_s)
        keeper = found()
        if keeper is None:
            return
        try:
            pause_s = keeper.turn()
        except Exception:
            # The client may have been closed meanwhile, and its sockets with it.
            if not keeper.is_orphaned:
                raise
            return
        del keeper
