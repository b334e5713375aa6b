"""Working: what is claimed next, what is in hand, what becomes of it.

Owns a worker's books: the jobs in hand with their leases, how long one rests that failed, whether
there is anything more to claim.  It sends nothing, waits for nothing and knows no thread: a face
carries its calls and locks its doors.  Invariant: a job leaves the hand once, and every word about
it carries the lease id it was claimed under, so that a worker that comes too late changes nothing.
"""

import logging
import os
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final, Generic, TypeVar
from weakref import WeakValueDictionary

from topics.client import calls
from topics.client.calls import WAIT_MS_MAX, Call
from topics.client.errors import LeaseLost
from topics.client.models import Acked, Claimed, Extended, Job, Nacked, TopicState
from topics.client.pushing import Pushed
from topics.client.retry import Clock, Retry

D = TypeVar("D")
H = TypeVar("H", bound="Held[Any]")

MAX_NAMED: Final = 100
"""Jobs that one call about leases names; a server takes 1000 by default."""
EXTENSIONS_PER_LEASE: Final = 3
"""Two of them may fail before a lease runs out."""
EXTEND_AGAIN_S: Final = 1.0
"""The longest pause after an extension that failed."""

_LOG: Final = logging.getLogger("topics.client")


class Fate(Enum):
    """What became of a job that was handed out.

    | from     | by                                              | to              |
    |----------|-------------------------------------------------|-----------------|
    | HELD     | `ack`, `nack`, the end of the work              | SETTLING        |
    | HELD     | an extension that the server skipped            | LOST            |
    | SETTLING | the server's answer                             | ACKED or NACKED |
    | SETTLING | an answer that skips it, or no answer at all    | LOST            |
    """

    HELD = "held"
    SETTLING = "settling"
    ACKED = "acked"
    NACKED = "nacked"
    LOST = "lost"


class Held(Generic[D]):
    """A job in hand: what was claimed, and what became of it."""

    def __init__(self, queue: str, job: Job[D]) -> None:
        self.queue = queue
        self.deadline_ms = job.deadline_ms
        self._job = job
        self._fate = Fate.HELD

    def __repr__(self) -> str:
        return f"<job {self.seq} of {self.queue}, {self._fate.value}>"

    @property
    def seq(self) -> int:
        return self._job.seq

    @property
    def ts_ms(self) -> int:
        """When it was appended, milliseconds since the epoch."""
        return self._job.ts_ms

    @property
    def node(self) -> str | None:
        """Who wrote it."""
        return self._job.node

    @property
    def tag(self) -> str | None:
        return self._job.tag

    @property
    def data(self) -> D:
        return self._job.data

    @property
    def meta(self) -> dict[str, Any] | None:
        return self._job.meta

    @property
    def lease_id(self) -> str:
        """Of this delivery alone."""
        return self._job.lease_id

    @property
    def deliveries(self) -> int:
        """How often it was handed out, this time included."""
        return self._job.deliveries

    @property
    def is_lost(self) -> bool:
        """Another has it, or may have it: nothing that is done with it now will count."""
        return self._fate is Fate.LOST

    @property
    def is_settled(self) -> bool:
        """It was acked, given back, or lost."""
        return self._fate not in (Fate.HELD, Fate.SETTLING)


@dataclass(frozen=True, slots=True)
class Asked(Generic[D]):
    """A claim that is to be sent: its answer belongs to `Worker.claimed`."""

    call: Call[Claimed[Job[D]]]
    max: int
    waits: bool
    at_s: float


class Worker(Generic[D]):
    """One worker, to be carried by a face:

    if call := opening(): send it, give `opened` the answer
    while asked := claim(waits=...):
        send it, give `claimed` the answer, `hold` the jobs, pause
        hand each out; `settling` before an ack or a nack, `acked` or `nacked` after it
    meanwhile, every `extend_every_s`: send `extensions()`, give `extended` each answer
    """

    def __init__(
        self,
        queue: str,
        job_type: type[Job[D]],
        *,
        retry: Retry,
        clock: Clock,
        node: str | None = None,
        max: int = 1,
        lease_ms: int | None = None,
        wait_ms: int = 5000,
        first_delay_ms: int = 1000,
        longest_delay_ms: int = 300_000,
        push: bool = False,
        drain: bool = False,
        limit: int | None = None,
    ) -> None:
        if max < 1:
            raise ValueError("a worker claims at least one job")
        if push and drain:
            raise ValueError("a stream does not tell when there is no more: push, or drain")
        self.queue = queue
        self.node = node or own_node()
        self.lease_ms = lease_ms
        self.held: WeakValueDictionary[str, Held[D]] = WeakValueDictionary()
        """The jobs in hand, by lease id.  One that nobody refers to any more is in nobody's hand: it
        is not extended, and comes again."""
        self._job_type = job_type
        self._retry = retry
        self._clock = clock
        self._max = max
        self._wait_ms = min(wait_ms, WAIT_MS_MAX)
        self._first_delay_ms = first_delay_ms
        self._longest_delay_ms = longest_delay_ms
        self.drains = drain
        self.pushes = push
        self._left = limit
        self._idle_pause_s = retry.first_pause_s

    # ------------------------------------------------------------------ claiming

    def opening(self) -> Call[TopicState] | None:
        """How long the queue's leases are, where nobody has said it: an extension must say it."""
        return None if self.lease_ms else calls.topic(self.queue, touch=False)

    def opened(self, state: TopicState) -> None:
        self.lease_ms = state.config.lease_ms

    def claim(self, *, waits: bool) -> Asked[D] | None:
        """The next claim; None where there is nothing more to do.

        Of several hands one waits for a job, and the others for their turn: more would tie up a
        connection each, and gain nothing.
        """
        if self._left == 0:
            return None
        max = self._max if self._left is None else min(self._max, self._left)
        if self._left is not None:
            self._left -= max
        call = calls.claim(
            self.queue,
            self._job_type,
            node=self.node,
            max=max,
            lease_ms=self.lease_ms,
            wait_ms=self._wait_ms or None if waits else None,
        )
        call = replace(call, outlives_faults=True)
        return Asked(call, max, waits, self._clock.now_s())

    def unanswered(self, asked: Asked[D]) -> None:
        """A claim came to nothing."""
        if self._left is not None:
            self._left += asked.max

    def claimed(self, asked: Asked[D], answer: Claimed[Job[D]]) -> float | None:
        """What a claim brought; seconds to wait before the next one, None where the queue is drained.

        That ends the hand that asked, and no other: one that has a job may yet give it back.
        """
        if self._left is not None:
            self._left += max(asked.max - len(answer.jobs), 0)
        if self.drains and not answer.jobs:
            return None
        waited_s = self._clock.now_s() - asked.at_s
        if answer.jobs or not asked.waits or 0 < self._wait_ms / 2000 <= waited_s:
            self._idle_pause_s = self._retry.first_pause_s
            return 0.0
        # The server did not wait: it knows no long poll, or another claimer was faster.
        pause_s = self._idle_pause_s * (0.5 + 0.5 * self._clock.jitter())
        self._idle_pause_s = min(2 * self._idle_pause_s, self._retry.longest_pause_s)
        return pause_s

    def hold(self, jobs: Iterable[H]) -> list[H]:
        """Take jobs in hand, before the first of them is handed out."""
        held = list(jobs)
        self.held.update((job.lease_id, job) for job in held)
        return held

    # ------------------------------------------------------------------ jobs that are pushed

    def pushing(self) -> Pushed[D]:
        """A stream for one hand."""
        call = calls.open_work(self.queue, node=self.node, max=self._max, lease_ms=self.lease_ms)
        call = replace(call, outlives_faults=True)
        return Pushed(call, self._job_type, self._retry, self._clock)

    def counts_one(self) -> bool:
        """Count a job that was pushed; False where that is one too many."""
        if self.is_through:
            return False
        if self._left is not None:
            self._left -= 1
        return True

    @property
    def is_through(self) -> bool:
        """So many jobs were handed out as were wanted."""
        return self._left == 0

    # ------------------------------------------------------------------ leases

    @property
    def extend_every_s(self) -> float:
        assert self.lease_ms is not None
        return self.lease_ms / 1000 / EXTENSIONS_PER_LEASE

    @property
    def extend_again_s(self) -> float:
        """The pause after an extension that failed."""
        return min(self.extend_every_s, EXTEND_AGAIN_S)

    def extensions(self) -> list[tuple[Call[Extended], list[Held[D]]]]:
        """Calls that keep all that is in hand, each with the jobs that it names."""
        assert self.lease_ms is not None
        lease_ms = self.lease_ms
        return [
            (
                calls.extend(self.queue, jobs, node=self.node, lease_ms=lease_ms, lease_ids=None),
                jobs,
            )
            for jobs in chunks(list(self.held.values()))
        ]

    def extended(self, jobs: Sequence[Held[D]], answer: Extended) -> list[Held[D]]:
        """Note the new deadlines; the jobs that were found to be lost."""
        for job in jobs:
            job.deadline_ms = answer.deadlines_ms.get(job.seq, job.deadline_ms)
        skipped = frozenset(answer.skipped)
        return self.lost([job for job in jobs if job.seq in skipped])

    def lost(self, jobs: Iterable[Held[D]]) -> list[Held[D]]:
        """Note that jobs are ours no more, those that are; one that is being acked at this moment
        is what the answer to its ack says."""
        gone = [job for job in jobs if job._fate is Fate.HELD]
        for job in gone:
            self._leave(job, Fate.LOST)
        return gone

    # ------------------------------------------------------------------ settling

    def settling(self, jobs: Iterable[Held[D]]) -> list[Held[D]]:
        """Those of the jobs about which nothing was said yet; from now on something is."""
        open_jobs = [job for job in jobs if job._fate is Fate.HELD]
        for job in open_jobs:
            job._fate = Fate.SETTLING
        return open_jobs

    def ack(self, jobs: list[Held[D]]) -> Call[Acked]:
        call = calls.ack(self.queue, jobs, node=self.node, lease_ids=None)
        return replace(call, outlives_faults=True)

    def nack(self, jobs: list[Held[D]], delay_ms: int) -> Call[Nacked]:
        call = calls.nack(self.queue, jobs, node=self.node, delay_ms=delay_ms, lease_ids=None)
        return replace(call, outlives_faults=True)

    def settled(self, jobs: Iterable[Held[D]], answer: Acked | Nacked | None) -> None:
        """What came of an ack or a nack; None where no answer came, and nobody knows."""
        skipped = frozenset(answer.skipped) if answer is not None else None
        fate = Fate.ACKED if isinstance(answer, Acked) else Fate.NACKED
        for job in jobs:
            assert job._fate is Fate.SETTLING
            is_lost = skipped is None or job.seq in skipped
            self._leave(job, Fate.LOST if is_lost else fate)

    def delay_ms(self, deliveries: int) -> int:
        """How long a job rests that failed at its n-th delivery."""
        doublings = min(deliveries - 1, 40)
        return min(self._first_delay_ms << doublings, self._longest_delay_ms)

    def _leave(self, job: Held[D], fate: Fate) -> None:
        job._fate = fate
        self.held.pop(job.lease_id, None)


OnError = Callable[[H, Exception], None]
"""Told of each job whose handler raised, with what it raised; and with `LeaseLost`, of each that
was another's when it was done."""


def log_error(job: Held[Any], error: Exception) -> None:
    """What becomes of a failure that nobody asked to be told of: a line in the log."""
    if isinstance(error, LeaseLost):
        _LOG.warning("%s", error.message)
    else:
        what = "job %d of %s failed at delivery %d"
        _LOG.warning(what, job.seq, job.queue, job.deliveries, exc_info=error)


def lease_lost(job: Held[Any]) -> LeaseLost:
    message = f"the lease of job {job.seq} of {job.queue} ran out: another has it, or had it"
    return LeaseLost("lease_lost", 0, message, {"seq": job.seq, "lease_id": job.lease_id})


def own_node() -> str:
    """This machine and process."""
    return f"{socket.gethostname()}:{os.getpid()}"


def chunks(jobs: list[Held[D]]) -> list[list[Held[D]]]:
    return [jobs[first : first + MAX_NAMED] for first in range(0, len(jobs), MAX_NAMED)]
