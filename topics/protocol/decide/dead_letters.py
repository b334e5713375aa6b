"""Dead letters: jobs that were delivered too often move to another topic (§10.6).

The joint between queues and copies.  A job leaves its queue and arrives in the dead-letter topic in
one entry of the log, so that a crash neither loses it nor leaves it in both; a job that is refused
there stays, and is tried again after a pause.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import numpy as np
import orjson
from numpy.typing import NDArray

from topics.protocol.commit.admission import FRAME_BYTES, unkeyed_of
from topics.protocol.commit.copies import Copies, gather
from topics.protocol.commit.unit_of_work import UnitOfWork, logs_deletes, no_such_topic
from topics.protocol.decide.ended_jobs import EndedJobs
from topics.protocol.model.backoff import backoff_ms
from topics.protocol.model.config import TopicConfig
from topics.protocol.model.ended_jobs import Letter, stamps_of
from topics.protocol.model.errors import Corrupt, DamagedRun, ErrorCode, Rejection
from topics.protocol.model.events import DeadLettered, RecordsDeleted, TopicCreated
from topics.protocol.model.moment import Moment
from topics.protocol.model.outcomes import GATES, Fetch, Gate
from topics.protocol.model.ports import Extent
from topics.protocol.model.records import Buffer
from topics.protocol.state.job import Job, JobPlace
from topics.protocol.state.queue import Queue
from topics.protocol.state.routers import HOPS_MAX
from topics.protocol.state.run_list import seq_spans
from topics.protocol.state.topic import Topic

MOVED_MAX: Final = 1000
"""Jobs that one claim, or one turn, moves to the dead-letter topic at most; the next moves more."""
DAMAGED_REST_MS: Final = 600_000
"""After this, a job that could not be read is tried again: the disk may have recovered, or the file
be back."""


class DeadLetters:
    """Exhausted jobs of the queues of one engine, on their way to dead-letter topics.

    Args:
        ended: Keeps where the letters are.
        moved: Called for a queue whose exhausted jobs were moved, or refused, later than asked.
        report: Called with a sentence about damage that an operator should hear of.
    """

    def __init__(
        self,
        unit: UnitOfWork,
        ended: EndedJobs,
        moved: Callable[[Topic, Queue], None],
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._unit = unit
        self._ended = ended
        self._report = report
        self._state = unit.state
        self._moved = moved

    def move(self, topic: Topic, queue: Queue, jobs: list[Job], moment: Moment) -> Gate:
        """Jobs that may be claimed, and were delivered too often, move as soon as their text is
        here; no claim gets them meanwhile.

        That they are exhausted is no event: after a crash the next claim finds it out again.

        Returns:
            What must have happened before the dead letters that moved at once are shown.
        """
        for job in jobs:
            queue.exhaust(job)
        return self._read(topic, queue, jobs, moment)

    def _read(self, topic: Topic, queue: Queue, jobs: list[Job], moment: Moment) -> Gate:
        jobs = sorted(jobs, key=lambda job: job.seq)
        extents = topic.runs.extents(seq_spans(np.array([job.seq for job in jobs], np.uint64)))
        texts: list[list[Buffer]] = []
        for run, spans in extents:
            try:
                found = run.read(spans)
            except (Corrupt, OSError) as error:
                return self._unreadable(topic, queue, jobs, error, moment)
            if found is None:
                done = partial(self._fetched, topic, jobs, extents, moment)
                self._unit.fetches.append(Fetch(extents, done))
                return Gate.NOW
            texts.append(found)
        return self._copy(topic, queue, jobs, extents, texts, moment)

    def _read_halves(self, topic: Topic, queue: Queue, jobs: list[Job], moment: Moment) -> Gate:
        """Some of the jobs cannot be read, or are refused: find out which, half by half."""
        half = len(jobs) // 2
        first = self._read(topic, queue, jobs[:half], moment)
        return _later(first, self._read(topic, queue, jobs[half:], moment))

    def _fetched(
        self,
        topic: Topic,
        jobs: list[Job],
        extents: list[Extent],
        asked_at: Moment,
        texts: list[list[Buffer]] | Exception,
    ) -> None:
        """The text of exhausted jobs has come; some of them may have gone meanwhile."""
        queue = self._state.queues.get(topic.topic_id)
        if queue is None or self._unit.read_only:
            return
        moment = Moment(self._state.now_ms, asked_at.room)
        self._unit.expire(topic, moment.now_ms)
        left = [job for job in jobs if job.place is JobPlace.DYING]
        if isinstance(texts, Exception):
            self._unreadable(topic, queue, left, texts, moment)
        elif len(left) == len(jobs):
            self._copy(topic, queue, jobs, extents, texts, moment)
        elif left:
            self._read(topic, queue, left, moment)
        self._moved(topic, queue)

    def _unreadable(
        self,
        topic: Topic,
        queue: Queue,
        jobs: list[Job],
        error: Exception,
        moment: Moment,
    ) -> Gate:
        """The text of some of these cannot be read: they are passed over, and the others move, once
        it is known which."""
        spoiled = jobs if len(jobs) <= 1 else []
        if isinstance(error, DamagedRun):
            spoiled = [job for job in jobs if error.first_seq <= job.seq <= error.last_seq]
        if spoiled:
            self.spoil(topic, queue, [(job, error) for job in spoiled], moment.now_ms)
            left = [job for job in jobs if job.place is JobPlace.DYING]
            return self._read(topic, queue, left, moment) if left else Gate.NOW
        return self._read_halves(topic, queue, jobs, moment)

    def spoil(
        self, topic: Topic, queue: Queue, jobs: Sequence[tuple[Job, Exception]], now_ms: int
    ) -> None:
        """Pass over jobs that cannot be read, for a while; an operator hears of each once."""
        news: dict[str, list[int]] = {}
        for job, error in jobs:
            if queue.spoil(job, now_ms + DAMAGED_REST_MS):
                news.setdefault(str(error), []).append(job.seq)
        self._state.queues.note_ends(topic.topic_id)
        for what, seqs in news.items():
            named = f"job {seqs[0]}" if len(seqs) == 1 else f"jobs {', '.join(map(str, seqs))}"
            self._report(f'{named} of queue "{topic.name}" cannot be read: {what}')

    def _copy(
        self,
        topic: Topic,
        queue: Queue,
        jobs: list[Job],
        extents: list[Extent],
        texts: list[list[Buffer]],
        moment: Moment,
    ) -> Gate:
        """The jobs leave the queue and stand in the dead-letter topic, in one entry of the log; a
        job that is refused there stays, and is tried again later.

        Text is cut by the runs that it was read from: they may have been sealed or merged since.
        """
        spans = seq_spans(np.array([job.seq for job in jobs], np.uint64))
        known = {job.seq: job for job in jobs}
        name, backlog = orjson.dumps(topic.name), queue.backlog

        def stamp(seq: int) -> dict[str, bytes]:
            said = {
                "$dead_letter_from": name,
                "$dead_letter_deliveries": b"%d" % known[seq].deliveries,
                "$dead_letter_src_seq": b"%d" % seq,
                **stamps_of(known[seq].notes),
            }
            if known[seq].is_expired:
                said["$dead_letter_reason"] = b'"expired"'
            if backlog is not None and (group := backlog.group_of(seq)) is not None:
                said["$group"] = orjson.dumps(group)
            return said

        is_logged = logs_deletes(topic)
        if is_logged:
            self._unit.log_expiry(topic, moment.now_ms)
        size_bytes = _size_of(topic, spans)
        raw, left = spans.astype("<u8").tobytes(), topic.count - len(jobs)
        left_bytes = topic.size_bytes - size_bytes
        spans_known = raw if is_logged else b""
        cause = DeadLettered(topic.topic_id, spans_known, len(jobs), left, left_bytes)
        copies = gather(extents, texts, stamp=stamp, hop=self._unit.admission.is_in_ring(topic))
        if refused := self._refused(topic, copies):
            self._refuse(topic, [jobs[at] for at in refused], moment)
            others = [job for at, job in enumerate(jobs) if at not in refused]
            return self._read(topic, queue, others, moment) if others else Gate.NOW
        try:
            dest = self._dest(topic, copies, moment)
            letter, kept = Letter(dest.name, dest.head_seq + 1), self._ended.known_of(topic, jobs)
            gate = self._unit.copy_into(dest, copies, cause, moment, freed_bytes=size_bytes)
            if not is_logged:
                gone = RecordsDeleted(moment.now_ms, topic.topic_id, raw, left, left_bytes)
                self._unit.emit(gone, logged=False)
            ended = self._ended.of_letters(topic, jobs, kept, letter)
            if self._ended.try_to_keep(topic, ended, moment):
                gate = Gate.SYNCED
            return gate
        except Rejection:
            if len(jobs) > 1 and self._takes_any(topic, jobs, copies, moment):
                return self._read_halves(topic, queue, jobs, moment)
            return self._refuse(topic, jobs, moment)

    def _refused(self, topic: Topic, copies: Copies) -> set[int]:
        """Which of the copies the dead-letter topic never takes: those without a key where it is compacted (§2); and in
        a ring that an older version let in, those that end where a ring of routers does."""
        refused = set(np.flatnonzero(copies.hops > HOPS_MAX).tolist())
        dest = self._state.topics.get(topic.config.dead_letter or "")
        if dest is not None and dest.config.is_compacted:
            refused.update(unkeyed_of(copies.tags, copies.form, len(copies)))
        return refused

    def _refuse(self, topic: Topic, jobs: list[Job], moment: Moment) -> Gate:
        """They stay, and are tried again after a pause."""
        for job in jobs:
            until_ms = moment.now_ms + backoff_ms(job.refusals)
            self._state.queues.postpone(topic.topic_id, job, until_ms)
        return Gate.NOW

    def _takes_any(self, topic: Topic, jobs: list[Job], copies: Copies, moment: Moment) -> bool:
        """Whether any of the jobs is taken alone: none is where the smallest is not."""
        least = min(range(len(copies)), key=copies.tail_bytes)
        one = copies.only(least)
        size_bytes = _size_of(topic, seq_spans(np.array([jobs[least].seq], np.uint64)))
        try:
            dest = self._known_dest(topic, moment.now_ms)
            if dest is None:
                self._creation(topic, one, moment)
            else:
                self._unit.admit(dest, one, None, moment, freed_bytes=size_bytes)
        except Rejection:
            return False
        return True

    def _dest(self, topic: Topic, copies: Copies, moment: Moment) -> Topic:
        """The dead-letter topic, made where there is none and the queue's `auto_create` lets it."""
        dest = self._known_dest(topic, moment.now_ms)
        if dest is None:
            dest = self._unit.create(self._creation(topic, copies, moment))
        return dest

    def _known_dest(self, topic: Topic, now_ms: int) -> Topic | None:
        """The dead-letter topic; None where it is to be made."""
        name = topic.config.dead_letter
        if name is None:
            raise Rejection(ErrorCode.TOPIC_NOT_FOUND, "no dead-letter topic")
        dest = self._state.topics.get(name)
        if dest is not None:
            self._unit.expire(dest, now_ms)
        elif not topic.config.auto_create:
            raise no_such_topic(name)
        return dest

    def _creation(self, topic: Topic, copies: Copies, moment: Moment) -> TopicCreated:
        """What is refused makes no topic."""
        name, config = topic.config.dead_letter or "", TopicConfig()
        created = self._unit.admission.creation(name, config, moment.now_ms)
        absent = Topic(created.topic_id, name, config, "")
        _, log_bytes = self._unit.admission.copied(absent, copies, moment.now_ms, cause=None)
        self._unit.require_writable(moment, log_bytes + 2 * FRAME_BYTES)
        return created


def _size_of(topic: Topic, spans: NDArray[np.uint64]) -> int:
    """Bytes of the text of records."""
    return sum(topic.weight(run, rows) for run, rows in topic.runs.rows_of(spans))


def _later(one: Gate, other: Gate) -> Gate:
    return max(one, other, key=GATES.index)
