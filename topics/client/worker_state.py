"""`WorkerState`: what a worker claims next, and how its jobs are settled.

Owns the delay of a job that failed, its result, and whether there is anything more to claim; the jobs
in hand are those of its `LeaseState`.  It sends nothing, waits for nothing and knows no thread: a `Work`
calls it under a lock, an `AsyncWork` from its event loop.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

import msgspec

from topics.client import endpoints
from topics.client.call import Call
from topics.client.encoding import encode
from topics.client.endpoints import WAIT_MS_MAX
from topics.client.errors import InvalidRequest, TopicFull, TopicsError
from topics.client.handlers import job_type_of
from topics.client.held_job import BaseHeldJob, reason_of
from topics.client.job_stream import JobStream
from topics.client.lease_state import KeeperPolicy, LeaseState
from topics.client.models import Claimed, Job, TopicState
from topics.client.retry import Backoff, Clock, Retry

D = TypeVar("D")

WAIT_MS: Final = 5000
"""How long a claim waits for a job.  A blocking worker cannot be stopped meanwhile."""
FIRST_DELAY_MS: Final = 1000
LONGEST_DELAY_MS: Final = 300_000
PACED: Final = ("rate", "in_flight")
"""What a claim waits for that ends by itself, so that a queue is not drained by it.  Jobs behind others of their group
are no reason: who has those does these, too."""
RESULT_REFUSED: Final = (InvalidRequest, TopicFull)
"""Refusals of an ack that may be of its result: too large, or no room for it."""
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
        send its call, give the answer to `claimed`, let the keeper hold the jobs, pause, hand out each
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
        self.leases: LeaseState[D] = LeaseState(node, lease_ms)
        self.job_type = job_type
        """What jobs are decoded into."""
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
        if self.job_type is Job:
            self.job_type = job_type_of(handler)

    # ------------------------------------------------------------------ claiming

    def lease_call(self) -> Call[TopicState] | None:
        """The call that asks for the queue's `lease_ms` and `backoff`; None where the program said both.

        An extension must name the first (§10.6); the second is why a nack names no delay.
        """
        if self.leases.lease_ms and self._has_delays:
            return None
        return endpoints.topic(self.queue, touch=False)

    def lease_answered(self, state: TopicState) -> None:
        self.leases.lease_ms = self.leases.lease_ms or state.config.lease_ms
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
        wait_ms = self._wait_ms or None if waits else None
        call = self.leases.claim(self.queue, self.job_type, max=max, wait_ms=wait_ms)
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

    # ------------------------------------------------------------------ jobs that are pushed

    def job_stream(self) -> JobStream[D]:
        """A stream for one hand."""
        call = endpoints.open_work(
            self.queue, node=self.leases.node, max=self._max, lease_ms=self.leases.lease_ms
        )
        call = replace(call, outlives_faults=True)
        return JobStream(call, self.job_type, self._retry, self._clock)

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

    # ------------------------------------------------------------------ settling

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

    @property
    def policy(self) -> KeeperPolicy[D]:
        """Of the keeper of the worker's jobs: that a job is lost is told when its handler ends (`on_error`)."""
        return KeeperPolicy(
            on_lost=lambda _jobs: None,
            on_error=lambda _error, _jobs: None,
            delay_ms=self.delay_ms,
        )

    def delay_ms(self, deliveries: int) -> int | None:
        """The delay before a job that failed at its n-th delivery is handed out again; None: the queue has
        its own."""
        if self._queue_decides:
            return None
        doublings = min(deliveries - 1, DOUBLINGS_MAX)
        return min(self._first_delay_ms << doublings, self._longest_delay_ms)
