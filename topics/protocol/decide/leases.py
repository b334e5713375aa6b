"""Leases: what claims, acks, nacks, extends and push streams ask of a queue alike (§10).

A lease is an event, logged where the queue's config has them outlive the process
(`leases_durable`).  Each rule of §10 that more than one command goes by is here once.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from msgspec import UNSET

from topics.protocol.commit.admission import FRAME_BYTES
from topics.protocol.commit.unit_of_work import UnitOfWork, gate_of, logs_deletes
from topics.protocol.decide.topics import note_read
from topics.protocol.model.commands import Held
from topics.protocol.model.config import Rate
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.events import JobsLeased, JobsReleased
from topics.protocol.model.moment import Moment
from topics.protocol.model.outcomes import NOW, Gate, Grant, Jobs
from topics.protocol.model.ports import Extent
from topics.protocol.state.job import Job
from topics.protocol.state.queue import Queue
from topics.protocol.state.topic import Topic

LEASE_BYTES: Final = 64
"""Room that one lease may take in a frame."""


class Claimant(Protocol):
    """Who is given jobs: a claim, or a waiter."""

    @property
    def node(self) -> str: ...

    @property
    def lease_ms(self) -> int | None:
        """None: as the topic has it."""


class Leases:
    """Leases over the queues of one engine."""

    def __init__(self, unit: UnitOfWork) -> None:
        self._unit = unit
        self._state = unit.state

    def queue(self, name: str, now_ms: int) -> tuple[Topic, Queue]:
        """The queue of a name, as it is now.  Raises Rejection: 404, 409."""
        topic = self._unit.topic(name, now_ms)
        queue = self._state.queues.by_id.get(topic.topic_id)
        if queue is None:
            raise Rejection(
                ErrorCode.NOT_A_QUEUE, f'topic "{name}" is a log', {"topic": name, "type": "log"}
            )
        note_read(topic, now_ms)
        return topic, self.settled(topic, now_ms)

    def settled(self, topic: Topic, now_ms: int) -> Queue:
        """The queue beside a topic, with what time took from leases and delays gone."""
        queue = self._state.queues.by_id[topic.topic_id]
        queue.settle(now_ms)
        # It may have begun to look at all records anew, with nothing shown since.
        self._state.queues.note_lag(topic.topic_id)
        return queue

    @staticmethod
    def ready(topic: Topic, queue: Queue) -> int:
        """Jobs that may be claimed (§10.7)."""
        return topic.shown()[0] - queue.in_flight - queue.delayed

    # ------------------------------------------------------------------ pace

    @staticmethod
    def allowed(topic: Topic, queue: Queue, now_ms: int) -> tuple[int, str]:
        """How many jobs may be started now, and what limits that (133)."""
        config = topic.config
        most, why = 1 << 31, ""
        if isinstance(config.max_in_flight, int) and config.max_in_flight:
            most, why = max(config.max_in_flight - queue.in_flight, 0), "in_flight"
        if (
            isinstance(config.rate, Rate)
            and (left := queue.starts.left(now_ms, config.rate)) < most
        ):
            most, why = left, "rate"
        return most, why

    @staticmethod
    def pace_ms(topic: Topic, queue: Queue, now_ms: int) -> int | None:
        """When more may be started by the rate, where that is what allows none."""
        rate = topic.config.rate
        if isinstance(rate, Rate) and not queue.starts.left(now_ms, rate):
            return max(queue.starts.next_ms(rate), now_ms + 1)
        return None

    # ------------------------------------------------------------------ the log

    def require_writable(
        self, topic: Topic, n: int, moment: Moment, *, lasting: bool = False
    ) -> None:
        """Leases may use what is kept back for deletes: without them nothing could be acked.  `lasting` as in
        `release`."""
        is_logged = self._unit.logs_leases(topic) or (lasting and logs_deletes(topic))
        need = FRAME_BYTES + LEASE_BYTES * n if is_logged else 0
        self._unit.require_writable(moment, need, reserve=True)

    def has_room(self, n: int, moment: Moment, *, frames: int = 1) -> bool:
        """Whether the log takes so many lasting leases, in so many events."""
        need = frames * FRAME_BYTES + LEASE_BYTES * n
        return self._unit.room(moment, reserve=True) >= need

    def gate(self, topic: Topic) -> Gate:
        """Lasting leases are as durable as they promise to be before a worker sees them."""
        if not self._unit.logs_leases(topic):
            return NOW
        return gate_of(topic)

    # ------------------------------------------------------------------ changes

    def grant(
        self, topic: Topic, queue: Queue, claimant: Claimant, seqs: list[int], now_ms: int
    ) -> Grant:
        """Lease jobs that may be claimed, in the order of the answer; each delivery gets a number of its own."""
        lease_ms = topic.config.lease_ms if claimant.lease_ms is None else claimant.lease_ms
        first = self._state.queues.next_lease
        leases = list(range(first, first + len(seqs)))
        jobs = queue.jobs
        is_plain = queue.backlog is None and seqs[0] >= queue.fresh_from
        if is_plain or jobs.keys().isdisjoint(seqs):
            deliveries = [1] * len(seqs)
        else:
            deliveries = [jobs[seq].deliveries + 1 if seq in jobs else 1 for seq in seqs]
        until_ms, node = now_ms + lease_ms, claimant.node
        options = () if queue.backlog is None else queue.backlog.options_of_taken(seqs)
        grant = Grant(topic.topic_id, node, seqs, leases, deliveries, until_ms, options)
        if queue.backlog is not None and seqs != sorted(seqs):
            rows = sorted(zip(seqs, leases, deliveries, strict=True))
            seqs, leases, deliveries = (list(column) for column in zip(*rows, strict=True))
        self._lease(
            topic, JobsLeased(now_ms, topic.topic_id, node, until_ms, seqs, leases, deliveries)
        )
        if topic.config.rate is not UNSET:
            queue.starts.note(now_ms, len(seqs), topic.config)
        return grant

    def extend(
        self, topic: Topic, node: str, jobs: Sequence[Job], until_ms: int, now_ms: int
    ) -> None:
        """The deadline is set, not added to (§10.6)."""
        self._lease(
            topic,
            JobsLeased(
                now_ms,
                topic.topic_id,
                node,
                until_ms,
                [job.seq for job in jobs],
                [job.lease for job in jobs],
                [job.deliveries for job in jobs],
            ),
        )

    def _lease(self, topic: Topic, event: JobsLeased) -> None:
        self._unit.emit(
            event,
            logged=self._unit.logs_leases(topic),
            log_bytes=FRAME_BYTES + LEASE_BYTES * len(event.seqs),
        )

    def release(
        self,
        topic: Topic,
        jobs: Sequence[Job],
        ready_ms: int,
        now_ms: int,
        deliveries: Sequence[int] | None = None,
        *,
        logged: bool = True,
        lasting: bool = False,
    ) -> None:
        """Give leases up; the jobs may be claimed from `ready_ms` on, 0: at once.

        Args:
            deliveries: What each counts from now on; None: as before.
            lasting: It is logged as the queue's acks are, whatever becomes of leases.
        """
        counts = [job.deliveries for job in jobs] if deliveries is None else list(deliveries)
        seqs = [job.seq for job in jobs]
        event = JobsReleased(now_ms, topic.topic_id, ready_ms, seqs, counts)
        self._unit.emit(
            event,
            logged=logged and (self._unit.logs_leases(topic) or (lasting and logs_deletes(topic))),
            log_bytes=FRAME_BYTES + LEASE_BYTES * len(jobs),
        )


def held_jobs(queue: Queue, command: Held) -> tuple[list[Job], list[int]]:
    """(jobs that the node holds, ascending; the seqs that it does not, as they came)."""
    return queue.held(command.seqs, command.node, command.leases)


def jobs_of(topic: Topic, grant: Grant) -> Jobs:
    """The jobs of a grant, and where their text lies."""
    seqs = grant.seqs
    if seqs != sorted(seqs):
        return Jobs(grant, topic.runs.extents_in_order(seqs))
    return Jobs(grant, topic.runs.extents_of(seqs))


def each_alone(jobs: Jobs) -> Jobs:
    """A span for each job, so that each text is one buffer."""
    extents = [
        Extent(run, [(row, row + 1) for span in spans for row in range(*span)])
        for run, spans in jobs.extents
    ]
    return Jobs(jobs.grant, extents)
