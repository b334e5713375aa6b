"""Appends of jobs that have options (§10, 130-132): which are new, which are there already, and which make way."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from topics.protocol.commit.admission import FRAME_BYTES
from topics.protocol.commit.unit_of_work import UnitOfWork
from topics.protocol.decide.placement import part_of
from topics.protocol.model.commands import Append
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.events import (
    SPAN_BYTES,
    AppendRemembered,
    Fired,
    RecordsAppended,
    TopicCreated,
)
from topics.protocol.model.job_options import DELAY_MS_MAX, JobRequest, resolved_options
from topics.protocol.model.moment import Moment
from topics.protocol.model.outcomes import SYNCED, WRITTEN, Appended, Gate
from topics.protocol.model.placed import PartitionSpan, Placed, decode_placed, encode_placed
from topics.protocol.state.idempotency import PlacedBatch
from topics.protocol.state.job import LEASED
from topics.protocol.state.queue import Queue
from topics.protocol.state.topic import Topic

HIT: Final = 1
"""What stands for the partition of a record that made no job, where a key remembers an append to a queue: a queue has
one partition, which is number 0."""
_encode: Final = msgspec.msgpack.Encoder().encode


class _Found(NamedTuple):
    """What the records of an append mean.

    Attributes:
        new: Which of them become jobs, ascending.
        hits: The seq that another record is answered with, by its row; a negative one is that of a record of the same
            append: −1 − its place in `new`.
        replaced: Seqs of jobs that make way.
    """

    new: list[int]
    hits: dict[int, int]
    replaced: list[int]


class JobAppends:
    """Appends with options to the queues of one engine."""

    def __init__(self, unit: UnitOfWork) -> None:
        self._unit = unit
        self._state = unit.state

    def append(
        self,
        topic: Topic,
        command: Append,
        created: TopicCreated | None,
        moment: Moment,
        fired: Fired | None = None,
    ) -> Appended:
        """All records or none.

        Args:
            topic: Where `created` is given, it is not there yet.
            fired: As `RecordCommands.append` has it.

        Raises:
            Rejection: 400 where an option is not for this topic; as any append.
        """
        assert command.jobs is not None
        unit, now_ms = self._unit, moment.now_ms
        require_queue(topic, command.jobs)
        _require_in_time(topic, command.jobs, now_ms)
        queue = self._state.queues.get(topic.topic_id)
        if queue is not None:
            queue.settle(now_ms)
        found = self._found(topic, queue, command.jobs, now_ms)
        key = unit.admit_key(topic, command, now_ms) if command.key else b""
        if not found.new:
            return self._all_there(topic, command, found, key, moment)
        some = [command.jobs[at] for at in found.new]
        options = resolved_options(some, now_ms)
        volatile = not topic.durability.is_logged
        cause = None if volatile else fired
        event, log_bytes = unit.admit_append(
            topic, part_of(command, found.new), now_ms, cause=cause, leaving=found.replaced
        )
        placed = self._placed(found, event.first_seq)
        if found.hits:
            event = replace(event, key=key, placed=encode_placed(placed) if key else b"")
        elif key:
            event = replace(event, key=key)
        if options is not None:
            event = replace(event, jobs=_encode(options))
        log_bytes += len(event.jobs) + len(event.placed)
        spare = FRAME_BYTES if volatile and fired is not None else 0
        return self._write(topic, command, created, moment, event, log_bytes, found, placed, spare)

    def _write(
        self,
        topic: Topic,
        command: Append,
        created: TopicCreated | None,
        moment: Moment,
        event: RecordsAppended,
        log_bytes: int,
        found: _Found,
        placed: Placed,
        spare_bytes: int,
    ) -> Appended:
        unit = self._unit
        volatile = not topic.durability.is_logged
        need = spare_bytes + (FRAME_BYTES if volatile else log_bytes)
        need += FRAME_BYTES * (created is not None)
        if found.replaced:
            need += FRAME_BYTES + len(found.replaced) * SPAN_BYTES
        unit.require_writable(moment, need)
        if created is not None:
            topic = unit.create(created)
        unit.log_append(topic, event, log_bytes, volatile=volatile)
        replaced = topic.live_among(found.replaced)
        if replaced:
            unit.remove(topic, replaced, moment)
        unit.evict_for_memory(moment.now_ms)
        synced = unit.publication.plan(topic)
        seqs = placed.seqs()
        return Appended(
            topic.name,
            event.first_seq,
            len(event.batch),
            topic.head_seq,
            command.return_seqs,
            created=created is not None,
            gate=SYNCED if synced else WRITTEN,
            is_logged=True,
            is_fsync=topic.durability.waits_for_sync,
            seqs=seqs if found.hits else None,
            unique=[seqs[at] for at in sorted(found.hits)],
            replaced=found.replaced,
        )

    def _all_there(
        self, topic: Topic, command: Append, found: _Found, key: bytes, moment: Moment
    ) -> Appended:
        """No record makes a job."""
        placed = self._placed(found, 0)
        if key:
            text = encode_placed(placed)
            size_bytes = FRAME_BYTES + len(text)
            self._unit.require_writable(moment, size_bytes)
            event = AppendRemembered(moment.now_ms, topic.topic_id, key, text)
            logged = topic.durability.is_logged
            self._unit.emit(event, logged=logged, log_bytes=size_bytes)
        # What is told of was written; for a job that is on its way to the log the answer waits.
        gate = SYNCED if topic.durability.waits_for_sync else WRITTEN
        return hits_only(topic, placed, command, gate)

    def _found(
        self,
        topic: Topic,
        queue: Queue | None,
        requests: Sequence[JobRequest | None],
        now_ms: int,
    ) -> _Found:
        unique = None if queue is None else queue.unique
        new: list[int] = []
        hits: dict[int, int] = {}
        replaced: list[int] = []
        own: dict[bytes, int] = {}
        if unique is not None:
            unique.forget(now_ms)
        for at, request in enumerate(requests):
            asked = None if request is None else request.unique
            if asked is not None:
                if asked.digest in own:
                    hits[at] = -1 - own[asked.digest]
                    continue
                seq = None if unique is None else unique.find(asked.digest, now_ms)
                if seq is not None:
                    if not asked.replaces:
                        hits[at] = seq
                        continue
                    assert queue is not None
                    if _waits(topic, queue, seq):
                        replaced.append(seq)
                own[asked.digest] = len(new)
            new.append(at)
        return _Found(new, hits, sorted(replaced))

    @staticmethod
    def _placed(found: _Found, first_seq: int) -> Placed:
        """The seq of each record, as a key remembers it."""
        spans, rows = [], []
        if found.new:
            spans.append(PartitionSpan(0, first_seq, len(found.new)))
            rows.append(found.new)
        for at, seq in found.hits.items():
            spans.append(PartitionSpan(HIT, seq if seq > 0 else first_seq - 1 - seq, 1))
            rows.append([at])
        return Placed.of(spans, rows)


def hits_only(topic: Topic, placed: Placed, command: Append, gate: Gate) -> Appended:
    """The answer to an append that made no job."""
    seqs = placed.seqs()
    return Appended(
        topic.name,
        min(seqs),
        0,
        topic.head_seq,
        command.return_seqs,
        seqs=seqs,
        unique=seqs,
        greatest_hit=max(seqs),
        is_logged=True,
        is_fsync=topic.durability.waits_for_sync,
        gate=gate,
    )


def remembered(topic: Topic, entry: PlacedBatch, command: Append) -> Appended:
    """The answer to an append with unique jobs that came before under the same key."""
    placed = decode_placed(entry.placed)
    seqs = placed.seqs()
    appended = [span for span in placed.spans if span.partition != HIT]
    first, count, greatest = min(seqs), 0, max(seqs)
    if appended:
        first, count, greatest = appended[0].first_seq, appended[0].count, 0
    return Appended(
        topic.name,
        first,
        count,
        max(topic.published_seq, *seqs),
        command.return_seqs,
        deduped=True,
        gate=Gate.NOW if max(seqs) <= topic.published_seq else SYNCED,
        seqs=seqs,
        greatest_hit=greatest,
        unique=[span.first_seq for span in placed.spans if span.partition == HIT],
    )


def require_queue(topic: Topic, requests: Sequence[JobRequest | None]) -> None:
    """Raises Rejection: 400 where records of a log have what only jobs have (115)."""
    if topic.config.type == "queue":
        return
    at = next(at for at, request in enumerate(requests) if request is not None)
    raise Rejection(
        ErrorCode.INVALID_REQUEST,
        f'topic "{topic.name}" is a log: its records have no options of jobs - at `$.records[{at}]`',
    )


def _require_in_time(topic: Topic, requests: Sequence[JobRequest | None], now_ms: int) -> None:
    """Raises Rejection: 400 where a job waits longer than any may, or would be gone before it may be claimed (132)."""
    ttl_ms = topic.config.ttl_ms
    for at, request in enumerate(requests):
        if request is None:
            continue
        delay_ms = request.delay_ms or request.not_before - now_ms
        if delay_ms > DELAY_MS_MAX:
            what = f"`not_before` is {DELAY_MS_MAX} ms from now at most - at `$.records[{at}]`"
            raise Rejection(ErrorCode.INVALID_REQUEST, what)
        if ttl_ms and delay_ms > ttl_ms:
            what = f"the job would be gone before: `ttl_ms` is {ttl_ms} - at `$.records[{at}]`"
            raise Rejection(ErrorCode.INVALID_REQUEST, what)


def _waits(topic: Topic, queue: Queue, seq: int) -> bool:
    """Whether a job is there, and no worker has it."""
    job = queue.jobs.get(seq)
    if job is None:
        return topic.is_live(seq)
    return job.place is not LEASED
