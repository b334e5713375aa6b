"""What became of jobs: records of a queue's internal topic `q#done`, made in the entry of the log that ends
the job (§10.9).

The topic is made with its first record, has a config that follows from the queue's, and goes with the queue.
A record that does not fit is left out where nobody gave a result: a job must end whatever its trace costs.
"""

from collections.abc import Sequence
from typing import NamedTuple

from topics.protocol.commit.admission import FRAME_BYTES
from topics.protocol.commit.unit_of_work import UnitOfWork
from topics.protocol.decide.job_groups import known_of
from topics.protocol.model.ended_jobs import (
    Known,
    Letter,
    encode_ended,
    ended_config,
    keeps_ended,
)
from topics.protocol.model.errors import Rejection
from topics.protocol.model.events import RecordsAppended, TopicConfigured, TopicCreated
from topics.protocol.model.moment import Moment
from topics.protocol.model.names import DONE, partition_name
from topics.protocol.model.render import render_batch
from topics.protocol.state.floors import floors_with
from topics.protocol.state.job import Job
from topics.protocol.state.topic import NOTHING_REMOVED, RESERVE_FIRST, Topic


class Ended(NamedTuple):
    """A job that ends.

    Attributes:
        node: Who was last; empty where that is not known.
        data: Of the record that is kept of it.
    """

    seq: int
    node: str
    data: bytes


class Admitted(NamedTuple):
    """Records that are taken, and not there yet."""

    event: RecordsAppended
    log_bytes: int
    created: TopicCreated | None


class EndedJobs:
    """The internal topics of one engine."""

    def __init__(self, unit: UnitOfWork) -> None:
        self._unit = unit
        self._state = unit.state

    # ------------------------------------------------------------------ what is kept

    def of_ack(
        self,
        topic: Topic,
        jobs: Sequence[Job],
        result: bytes,
        results: Sequence[tuple[int, bytes]],
    ) -> list[Ended]:
        """What is kept of jobs that are done, ascending by seq."""
        own, keeps = dict(results), keeps_ended(topic.config)
        if not (result or own or keeps) or topic.config.keep_done == 0:
            return []
        told = [(job, own.get(job.seq, result)) for job in jobs]
        told = [(job, said) for job, said in told if said or keeps]
        known = self._known(topic, [job for job, _ in told])
        return [
            Ended(
                job.seq,
                _last_node(job),
                encode_ended(
                    job.seq, "done", job.deliveries, job.notes, known[job.seq], result=said
                ),
            )
            for job, said in told
        ]

    def known_of(self, topic: Topic, jobs: Sequence[Job]) -> dict[int, Known]:
        """What is kept of jobs when they have become dead letters, ascending by seq; asked while they are there."""
        return self._known(topic, jobs) if keeps_ended(topic.config) else {}

    def _known(self, topic: Topic, jobs: Sequence[Job]) -> dict[int, Known]:
        queue = self._state.queues[topic.topic_id]
        return known_of(topic, queue, [job.seq for job in jobs])

    @staticmethod
    def of_letters(
        topic: Topic, jobs: Sequence[Job], known: dict[int, Known], letter: Letter
    ) -> list[Ended]:
        """What is kept of jobs that are dead letters, of which `letter` is the first; ascending by seq."""
        if not keeps_ended(topic.config):
            return []
        return [
            Ended(
                job.seq,
                _last_node(job),
                encode_ended(
                    job.seq,
                    "dead",
                    job.deliveries,
                    job.notes,
                    known[job.seq],
                    letter=Letter(letter.topic, letter.seq + nth),
                ),
            )
            for nth, job in enumerate(jobs)
        ]

    # ------------------------------------------------------------------ keeping it

    def admit(self, topic: Topic, ended: Sequence[Ended], moment: Moment) -> Admitted | None:
        """The event of records that are taken; None of none.  Nothing changes.

        Raises:
            Rejection: A quota or a limit refuses them.
        """
        if not ended:
            return None
        done, created = self._state.done.get(topic.topic_id), None
        if done is None:
            name, config = partition_name(topic.name, DONE), ended_config(topic.config)
            topic_id = self._state.next_topic_id
            created = TopicCreated(moment.now_ms, topic_id, name, config, RESERVE_FIRST)
            done = Topic(topic_id, topic.name, config, "", partition=DONE)
        else:
            self._unit.expire(done, moment.now_ms)
        nodes = [each.node or None for each in ended]
        batch = render_batch(
            [each.data for each in ended],
            first_seq=done.head_seq + 1,
            ts_ms=max(moment.now_ms, done.last_ts_ms),
            nodes=nodes,
            tags=[str(each.seq) for each in ended],
            metas=None,
        )
        event, log_bytes = self._unit.admit_batch(done, batch, moment.now_ms)
        return Admitted(event, log_bytes, created)

    @staticmethod
    def log_bytes(admitted: Admitted | None) -> int:
        """Room that it may need in the log."""
        if admitted is None:
            return 0
        return admitted.log_bytes + FRAME_BYTES * (1 if admitted.created is None else 2)

    def keep(self, admitted: Admitted | None, now_ms: int) -> bool:
        """Make it true, in the turn in which it was admitted; whether it is shown with a sync only."""
        if admitted is None:
            return False
        event, log_bytes, created = admitted
        if created is not None:
            self._unit.create(created)
        done = self._state.by_id[event.topic_id]
        volatile = not done.durability.is_logged
        self._unit.log_append(done, event, log_bytes, volatile=volatile)
        self._unit.evict_for_memory(now_ms)
        return self._unit.publication.plan(done)

    def try_to_keep(self, topic: Topic, ended: Sequence[Ended], moment: Moment) -> bool:
        """Keep it, or do without where it is refused."""
        try:
            admitted = self.admit(topic, ended, moment)
            self._unit.require_writable(moment, self.log_bytes(admitted))
        except Rejection:
            return False
        return self.keep(admitted, moment.now_ms)


def _last_node(job: Job) -> str:
    """Who was the last to hold a job; empty where it was given back without a reason, which nobody noted."""
    if job.node or job.notes is None or not job.notes.reasons:
        return job.node
    return job.notes.reasons[-1].node


def reconfigured(done: Topic, config: TopicConfigured, now_ms: int) -> TopicConfigured | None:
    """The event by which an internal topic follows its queue's new config; None where nothing changes there."""
    wanted = ended_config(config.config)
    most = 0 if config.config.keep_done == 0 else wanted.cap_records
    if wanted == done.config and done.count <= most:
        return None
    gone = (
        done.eviction(done.count - most, 0, before_seq=done.head_seq + (not most))
        or NOTHING_REMOVED
    )
    return TopicConfigured(
        now_ms,
        done.topic_id,
        wanted,
        done.head_seq,
        floors_with(done.floors, cap_through=gone.through),
        done.count - gone.records,
        done.size_bytes - gone.size_bytes,
    )
