"""`WorkerState`: what a worker claims next, which jobs it has in hand, and what becomes of them.

Owns the jobs in hand with their leases, the delay of a job that failed, and whether there is
anything more to claim.  It sends nothing, waits for nothing and knows no thread: a `Work` calls it
under a lock, an `AsyncWork` from its event loop.  Invariant: every ack, nack and extension carries
the lease id that the job was claimed under, so that a worker that comes too late changes nothing
(§10.4).
"""

import os
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar
from weakref import WeakValueDictionary

import msgspec

from topics.client import endpoints, unfit
from topics.client.call import Call
from topics.client.encoding import encode
from topics.client.endpoints import WAIT_MS_MAX
from topics.client.errors import TopicsError
from topics.client.handlers import job_type_of
from topics.client.held_job import BaseHeldJob, H, JobState, reason_of
from topics.client.job_stream import JobStream
from topics.client.models import Acked, Claimed, Extended, Job, Nacked, TopicState
from topics.client.retry import Backoff, Clock, Retry

D = TypeVar("D")

WAIT_MS: Final = 5000
"""How long a claim waits for a job.  A blocking worker cannot be stopped meanwhile."""
FIRST_DELAY_MS: Final = 1000
LONGEST_DELAY_MS: Final = 300_000
MAX_NAMED: Final = 100
"""Jobs in one ack, nack or extension; a server takes 1000 by default (§10.4)."""
EXTENSIONS_PER_LEASE: Final = 3
"""Two of them may fail before a lease runs out."""
EXTEND_AGAIN_S: Final = 1.0
"""The longest pause after an extension that failed."""
PACED: Final = ("rate", "in_flight")
"""What a claim waits for that ends by itself, so that a queue is not drained by it.  Jobs behind others of their group
are no reason: who has those does these, too."""
DOUBLINGS_MAX: Final = 40
"""Bounds the shift in `delay_ms`; the longest delay is reached long before."""


@dataclass(frozen=True, slots=True)
class Claim(Generic[D]):
    """A claim that is to be sent; its answer goes to `WorkerState.claimed`.

    Attributes:
        waits: The server may hold the answer back until a job is ready.
        at_s: When it was made.
    """

    call: Call[Claimed[Job[D]]]
    max: int
    waits: bool
    at_s: float


class WorkerState(Generic[D]):
    """One worker, for a loop that does its I/O:

    if call := lease_call():    send it, give the answer to `lease_answered`
    while found := claim(waits=...):
        send its call, give the answer to `claimed`, `hold` the jobs, pause
        hand out each; `settling` before its ack or nack, `settled` after it
    meanwhile, every `extend_every_s`: send `extensions()`, give each answer to `extended`
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
        wait_ms: int = WAIT_MS,
        first_delay_ms: int | None = None,
        longest_delay_ms: int | None = None,
        push: bool = False,
        drain: bool = False,
        limit: int | None = None,
        keep_results: bool = True,
    ) -> None:
        if max < 1:
            raise ValueError("a worker claims at least one job")
        if push and drain:
            raise ValueError(
                "push and drain exclude each other: a stream does not say when a queue is empty"
            )
        self.queue = queue
        self.node = node or own_node()
        self.lease_ms = lease_ms
        self.held: WeakValueDictionary[str, BaseHeldJob[D]] = WeakValueDictionary()
        """The jobs in hand, by lease id.  A job that the program dropped leaves them: its lease is
        not extended, and the server hands it out again."""
        self._job_type = job_type
        self._retry = retry
        self._clock = clock
        self._max = max
        self._wait_ms = min(wait_ms, WAIT_MS_MAX)
        self._has_delays = first_delay_ms is not None or longest_delay_ms is not None
        self._first_delay_ms = FIRST_DELAY_MS if first_delay_ms is None else first_delay_ms
        self._longest_delay_ms = LONGEST_DELAY_MS if longest_delay_ms is None else longest_delay_ms
        self._queue_decides = False
        """The queue has a `backoff`, and the program gave no delays."""
        self.drains = drain
        self.pushes = push
        self.keeps_results = keep_results
        self._has_told = False
        self._left = limit
        self._idle_backoff = Backoff(retry, clock)

    def take_type_of(self, handler: Callable[..., Any]) -> None:
        """Decode data as the annotation of a handler says, unless the program has named a type.

        Raises:
            TypeError: The annotation cannot be read.
        """
        if self._job_type is Job:
            self._job_type = job_type_of(handler)

    # ------------------------------------------------------------------ claiming

    def lease_call(self) -> Call[TopicState] | None:
        """The call that asks for the queue's `lease_ms` and `backoff`; None where the program said both.

        An extension must name the first (§10.6); the second is why a nack names no delay.
        """
        if self.lease_ms and self._has_delays:
            return None
        return endpoints.topic(self.queue, touch=False)

    def lease_answered(self, state: TopicState) -> None:
        self.lease_ms = self.lease_ms or state.config.lease_ms
        self._queue_decides = state.config.backoff is not None and not self._has_delays

    def claim(self, *, waits: bool) -> Claim[D] | None:
        """The next claim; None where there is nothing more to do.

        Of several hands one waits at the server for a job, and the others for their turn: more
        waiting claims would each hold a connection, and bring no job sooner.

        Args:
            waits: Whether this claim may wait at the server.
        """
        if self._left == 0:
            return None
        max = self._max if self._left is None else min(self._max, self._left)
        if self._left is not None:
            self._left -= max
        call = endpoints.claim(
            self.queue,
            self._job_type,
            node=self.node,
            max=max,
            lease_ms=self.lease_ms,
            wait_ms=self._wait_ms or None if waits else None,
        )
        decode = unfit.claimed(self._job_type, f"{call.method} {call.path}")
        call = replace(call, outlives_faults=True, decode=decode)
        return Claim(call, max, waits, self._clock.now_s())

    def unanswered(self, claim: Claim[D]) -> None:
        """A claim brought no answer: its jobs still count as left."""
        if self._left is not None:
            self._left += claim.max

    def claimed(self, claim: Claim[D], answer: Claimed[Job[D]]) -> float | None:
        """Take the answer of a claim.

        Returns:
            Seconds to wait before the next one; None where the queue is drained, which ends the
            hand that claimed and no other: one that has a job may yet give it back.
        """
        if self._left is not None:
            self._left += max(claim.max - len(answer.jobs), 0)
        if self.drains and not answer.jobs and answer.waits not in PACED:
            return None
        waited_s = self._clock.now_s() - claim.at_s
        waits_next = not claim.waits and not self.drains
        if answer.jobs or waits_next or 0 < self._wait_ms / 2000 <= waited_s:
            self._idle_backoff.reset()
            return 0.0
        # The server did not hold the answer back for half of the wait: it knows no long poll, or
        # another claimer was faster; or a queue is drained at its own pace, which no claim waits for.
        # Without a pause this would be a busy loop.
        return self._idle_backoff.next_s()

    def hold(self, jobs: Iterable[H]) -> list[H]:
        """Take claimed jobs in hand; before the first of them is handed out."""
        held = list(jobs)
        self.held.update((job.lease_id, job) for job in held)
        return held

    # ------------------------------------------------------------------ jobs that are pushed

    def job_stream(self) -> JobStream[D]:
        """A stream for one hand."""
        call = endpoints.open_work(
            self.queue, node=self.node, max=self._max, lease_ms=self.lease_ms
        )
        call = replace(call, outlives_faults=True)
        return JobStream(call, self._job_type, self._retry, self._clock)

    def count_pushed(self) -> bool:
        """Count a job that was pushed; False where `limit` jobs were handed out before."""
        if self.is_through:
            return False
        if self._left is not None:
            self._left -= 1
        return True

    @property
    def is_through(self) -> bool:
        """`limit` jobs were handed out, or are being claimed."""
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

    def extensions(self) -> list[tuple[Call[Extended], list[BaseHeldJob[D]]]]:
        """Calls that extend the leases of all jobs in hand, each with the jobs that it names."""
        assert self.lease_ms is not None
        lease_ms = self.lease_ms
        return [
            (
                endpoints.extend(
                    self.queue, jobs, node=self.node, lease_ms=lease_ms, lease_ids=None
                ),
                jobs,
            )
            for jobs in chunks(list(self.held.values()))
        ]

    def extended(self, jobs: Sequence[BaseHeldJob[D]], answer: Extended) -> list[BaseHeldJob[D]]:
        """Note the new deadlines; returns the jobs that turned out to be lost."""
        for job in jobs:
            job.deadline_ms = answer.deadlines_ms.get(job.seq, job.deadline_ms)
        skipped = frozenset(answer.skipped)
        return self.lost([job for job in jobs if job.seq in skipped])

    def lost(self, jobs: Iterable[BaseHeldJob[D]]) -> list[BaseHeldJob[D]]:
        """Note that the leases of jobs ended.

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

    def ack(self, jobs: list[BaseHeldJob[D]], result: Any = None) -> Call[Acked]:
        call = endpoints.ack(self.queue, jobs, node=self.node, lease_ids=None, result=result)
        return replace(call, outlives_faults=True)

    def nack(
        self,
        jobs: list[BaseHeldJob[D]],
        delay_ms: int | None,
        reason: str | None = None,
        *,
        dead: bool = False,
    ) -> Call[Nacked]:
        """With None the queue's `backoff` says how long the jobs rest."""
        call = endpoints.nack(
            self.queue,
            jobs,
            node=self.node,
            delay_ms=delay_ms,
            lease_ids=None,
            reason=reason,
            dead=dead,
        )
        return replace(call, outlives_faults=True)

    def result_of(self, returned: Any) -> Any:
        """The result of a job whose handler returned that, as JSON; None where it is not kept.

        What JSON has no form for is not kept: the job is done all the same, and were it given back it
        would be done again for ever.
        """
        if not self.keeps_results or returned is None:
            return None
        try:
            return msgspec.Raw(encode(returned, "result"))
        except (TypeError, ValueError) as error:
            self._no_result(str(error))
        except Exception as error:  # of the value's own code, as of a list that loads its items
            self._no_result(reason_of(error))
        return None

    def result_refused(self, jobs: Sequence[BaseHeldJob[D]], error: TopicsError) -> None:
        """The server does not take the result of jobs, which are acked without it."""
        self._no_result(f"of job {jobs[0].seq}: {error}")

    def _no_result(self, why: str) -> None:
        """Told once: it is most likely the same for every job."""
        if self._has_told:
            return
        self._has_told = True
        import logging

        told = "%s: a job was done, and its result is not kept (said once): %s"
        logging.getLogger("topics.client").warning(told, self.queue, why)

    def settled(self, jobs: Iterable[BaseHeldJob[D]], answer: Acked | Nacked | None) -> None:
        """Take the answer of an ack or a nack; None where none came, and its effect is unknown."""
        skipped = frozenset(answer.skipped) if answer is not None else None
        end = JobState.ACKED if isinstance(answer, Acked) else JobState.NACKED
        for job in jobs:
            assert job.state is JobState.SETTLING
            is_lost = skipped is None or job.seq in skipped
            self._leave(job, JobState.LOST if is_lost else end)

    def delay_ms(self, deliveries: int) -> int | None:
        """The delay before a job that failed at its n-th delivery is handed out again; None: the queue has
        its own."""
        if self._queue_decides:
            return None
        doublings = min(deliveries - 1, DOUBLINGS_MAX)
        return min(self._first_delay_ms << doublings, self._longest_delay_ms)

    def _leave(self, job: BaseHeldJob[D], end: JobState) -> None:
        job.state = end
        self.held.pop(job.lease_id, None)


def own_node() -> str:
    """The name of a worker that was given none: this machine and process."""
    # A name may have bytes that are no text.
    host = socket.gethostname().encode("utf-8", "replace").decode()
    return f"{host}:{os.getpid()}"


def chunks(jobs: list[BaseHeldJob[D]]) -> list[list[BaseHeldJob[D]]]:
    return [jobs[first : first + MAX_NAMED] for first in range(0, len(jobs), MAX_NAMED)]
