"""`LeaseState`: the jobs that one process has in hand, of any queues, and what becomes of their leases.

Makes the calls that extend leases and settle jobs, and takes their answers.  It sends nothing, waits for
nothing and knows no thread: a `LeaseKeeper` calls it under a lock, an `AsyncLeaseKeeper` from its event loop.
Invariant: every ack, nack and extension carries the lease id that the job was claimed under, so that a worker
that comes too late changes nothing (§10.4).
"""

import os
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar
from weakref import WeakValueDictionary

from topics.client import endpoints, unfit
from topics.client.call import Call
from topics.client.errors import Conflict, NotFound, TopicsError
from topics.client.held_job import BaseHeldJob, H, JobState, Reason, lease_lost, reason_text
from topics.client.models import Acked, Claimed, Extended, Job, Nacked

D = TypeVar("D")

MAX_NAMED: Final = 100
"""Jobs in one ack, nack or extension; a server takes 1000 by default (§10.4)."""
CLAIM_MAX: Final = 1000
"""Jobs of one claim: the most that a server grants by default (§10.2)."""
LEASE_MS: Final = 30_000
"""How long leases of a keeper are that was not told another length."""
LEASE_MS_MIN: Final = 100
LEASE_MS_MAX: Final = 86_400_000
"""The shortest and the longest lease that a server grants; it bounds others without a word (§10.2)."""
EXTENSIONS_PER_LEASE: Final = 3
"""Two of them may fail before a lease runs out."""
EXTEND_AGAIN_S: Final = 1.0
"""The longest pause after an extension that failed."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How jobs leave the hand: by an ack with a result, or by a nack with all the rest.

    Attributes:
        delay_ms: How long they rest; None as their queue's `backoff` says.
        dead: They become dead letters.
        may_drop: In a queue that has no dead letters they are deleted instead.
    """

    is_ack: bool
    result: Any = None
    delay_ms: int | None = None
    reason: str | None = None
    dead: bool = False
    may_drop: bool = False


ACK: Final = Ending(is_ack=True)
RETURN: Final = Ending(is_ack=False, delay_ms=0)
"""Other workers may have the jobs at once."""


def rejected(reason: Reason) -> Ending:
    """Jobs become dead letters; in a queue that has none they are deleted."""
    reason = reason_text(reason)
    return Ending(is_ack=False, delay_ms=0, reason=reason, dead=True, may_drop=True)


class LeaseState(Generic[D]):
    """Jobs in hand.

    Attributes:
        node: The name under which they were claimed.
        lease_ms: How long a lease is after an extension; None as long as no job is held.
        held: The jobs, by lease id.  A job that the program dropped leaves them: its lease is not extended,
            and the server hands it out again.
    """

    def __init__(self, node: str | None, lease_ms: int | None) -> None:
        self.node = node or own_node()
        self.lease_ms = lease_ms
        self.held: WeakValueDictionary[str, BaseHeldJob[D]] = WeakValueDictionary()

    def claim(
        self, queue: str, kind: type[Job[D]], *, max: int, wait_ms: int | None
    ) -> Call[Claimed[Job[D]]]:
        """The call that claims jobs of a queue; one that does not fit the type says so when it is read."""
        call = endpoints.claim(
            queue, kind, node=self.node, max=max, lease_ms=self.lease_ms, wait_ms=wait_ms
        )
        decode = unfit.claimed(kind, f"{call.method} {call.path}")
        return replace(call, outlives_faults=True, decode=decode)

    def hold(self, jobs: Iterable[H]) -> list[H]:
        """Take claimed jobs in hand; before the first of them is handed out."""
        held = list(jobs)
        self.held.update((job.lease_id, job) for job in held)
        return held

    # ------------------------------------------------------------------ leases

    @property
    def extend_every_s(self) -> float:
        assert self.lease_ms is not None
        granted_ms = min(max(self.lease_ms, LEASE_MS_MIN), LEASE_MS_MAX)
        return granted_ms / 1000 / EXTENSIONS_PER_LEASE

    @property
    def extend_again_s(self) -> float:
        """The pause after an extension that failed."""
        return min(self.extend_every_s, EXTEND_AGAIN_S)

    def extensions(
        self, more: Iterable[BaseHeldJob[D]] = ()
    ) -> list[tuple[Call[Extended], list[BaseHeldJob[D]]]]:
        """Calls that extend the leases of all jobs in hand, each with the jobs that it names.

        Args:
            more: Jobs that are not held any more, and whose ack is not sent yet.
        """
        assert self.lease_ms is not None
        return [
            (
                endpoints.extend(
                    some[0].queue, some, node=self.node, lease_ms=self.lease_ms, lease_ids=None
                ),
                some,
            )
            for some in chunks([*self.held.values(), *more])
        ]

    def extended(self, jobs: Sequence[BaseHeldJob[D]], answer: Extended) -> list[BaseHeldJob[D]]:
        """Note the new deadlines; returns the jobs that turned out to be lost."""
        for job in jobs:
            job.deadline_ms = answer.deadlines_ms.get(job.seq, job.deadline_ms)
        skipped = frozenset(answer.skipped)
        return self.lost([job for job in jobs if job.seq in skipped])

    def lost(self, jobs: Iterable[BaseHeldJob[D]]) -> list[BaseHeldJob[D]]:
        """Note that the leases of jobs ended, or are left to end.

        A job that is being settled is left out: the answer to its ack says what became of it.

        Returns:
            The jobs that are lost by that.
        """
        lost = [job for job in jobs if job.state is JobState.HELD]
        for job in lost:
            self._leave(job, JobState.LOST)
        return lost

    # ------------------------------------------------------------------ settling

    def settling(self, jobs: Iterable[BaseHeldJob[D]]) -> list[BaseHeldJob[D]]:
        """The jobs that are still held; from now on they are being settled."""
        open_jobs = [job for job in jobs if job.state is JobState.HELD]
        for job in open_jobs:
            job.state = JobState.SETTLING
        return open_jobs

    def call(self, jobs: Sequence[BaseHeldJob[D]], ending: Ending) -> Call[Any]:
        """The call that settles jobs of one queue; its value is `Acked` or `Nacked`."""
        queue, node, found = jobs[0].queue, self.node, ending
        call: Call[Any]
        if found.is_ack:
            call = endpoints.ack(queue, jobs, node=node, lease_ids=None, result=found.result)
        else:
            call = endpoints.nack(
                queue,
                jobs,
                node=node,
                delay_ms=found.delay_ms,
                lease_ids=None,
                reason=found.reason,
                dead=found.dead,
            )
        return replace(call, outlives_faults=True)

    def settled(
        self, jobs: Iterable[BaseHeldJob[D]], answer: Acked | Nacked
    ) -> list[BaseHeldJob[D]]:
        """Take the answer of an ack or a nack; returns the jobs that it skipped, which are lost."""
        end = JobState.ACKED if isinstance(answer, Acked) else JobState.NACKED
        skipped = frozenset(answer.skipped)
        lost = []
        for job in jobs:
            assert job.state is JobState.SETTLING
            self._leave(job, JobState.LOST if job.seq in skipped else end)
            if job.is_lost:
                lost.append(job)
        return lost

    def unsettled(self, jobs: Iterable[BaseHeldJob[D]]) -> None:
        """Nothing came of a call: those of its jobs that are still being settled are held as before."""
        for job in jobs:
            if job.state is JobState.SETTLING:
                job.state = JobState.HELD
                self.held[job.lease_id] = job

    def refused(
        self, jobs: Sequence[BaseHeldJob[D]], ending: Ending, error: TopicsError
    ) -> Ending | None:
        """What the failure of a call means for its jobs.

        Returns:
            How to settle them instead; None where the queue was deleted, and its leases with it.

        Raises:
            TopicsError: The error, which does not say what became of the jobs.
        """
        if error.code == "no_dead_letter" and ending.may_drop:
            what = "%s has no dead letters: job %d is deleted: %s"
            for job in jobs:
                _log().info(what, job.queue, job.seq, ending.reason)
            return ACK
        if error.code == "no_dead_letter" or not isinstance(error, NotFound | Conflict):
            raise error
        for job in jobs:
            self._leave(job, JobState.LOST)
        return None

    def drop(self, jobs: Iterable[BaseHeldJob[D]]) -> None:
        """Jobs that are settled in the background: they take no room any more."""
        for job in jobs:
            self.held.pop(job.lease_id, None)

    def _leave(self, job: BaseHeldJob[D], end: JobState) -> None:
        job.state = end
        self.held.pop(job.lease_id, None)


def log_lost(jobs: Sequence[BaseHeldJob[Any]]) -> None:
    """The `on_lost` of a keeper that was given none: a line in the log for each job."""
    for job in jobs:
        _log().warning("%s", lease_lost(job).message)


def log_background_error(error: TopicsError, jobs: Sequence[BaseHeldJob[Any]]) -> None:
    """The `on_error` of a keeper that was given none: a line in the log."""
    what = "settled" if any(job.is_lost for job in jobs) else "extended"
    _log().warning("leases of %d jobs of %s were not %s: %s", len(jobs), jobs[0].queue, what, error)


def tell(function: Callable[..., object], *given: object) -> None:
    """Call a function of the program.  Where it raises, the log has it: the leases of all jobs in hand depend on the
    thread, or the task, that calls it."""
    try:
        function(*given)
    except Exception:
        _log().exception("a function that a keeper of leases was given has failed")


def _log() -> Any:
    # A command of the command line does without logging.
    import logging

    return logging.getLogger("topics.client")


@dataclass(frozen=True, slots=True)
class KeeperPolicy(Generic[D]):
    """What a keeper does beside extending leases: `KeeperOptions`, and how long jobs rest.

    Attributes:
        delay_ms: How long a job rests that failed at its n-th delivery; None: as its queue says.
    """

    capacity: int | None = None
    background: bool = False
    on_lost: Callable[[Sequence[BaseHeldJob[D]]], object] = log_lost
    on_error: Callable[[TopicsError, Sequence[BaseHeldJob[D]]], object] = log_background_error
    delay_ms: Callable[[int], int | None] = lambda _deliveries: None


def own_node() -> str:
    """The name of a worker that was given none: this machine and process."""
    # A name may have bytes that are no text.
    host = socket.gethostname().encode("utf-8", "replace").decode()
    return f"{host}:{os.getpid()}"


def chunks(jobs: Iterable[H]) -> list[list[H]]:
    """Jobs of one queue each, as many as one call names."""
    by_queue: dict[str, list[H]] = {}
    for job in jobs:
        by_queue.setdefault(job.queue, []).append(job)
    return [
        some[first : first + MAX_NAMED]
        for some in by_queue.values()
        for first in range(0, len(some), MAX_NAMED)
    ]


def grouped(
    pending: Iterable[tuple[Ending, H]],
) -> list[tuple[Ending, list[H]]]:
    """Jobs that leave the hand in the same way, of one queue each, as many as one call names."""
    alike: dict[Any, tuple[Ending, list[H]]] = {}
    for ending, job in pending:
        # A result is of one job alone, and may have no hash.
        key = ending if ending.result is None else job
        alike.setdefault(key, (ending, []))[1].append(job)
    return [(ending, some) for ending, jobs in alike.values() for some in chunks(jobs)]
