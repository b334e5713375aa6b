"""Record commands that write: append, delete, purge (§2, §5)."""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import numpy as np
from msgspec.structs import replace

from topics.protocol.commit.admission import (
    FRAME_BYTES,
    creation_bytes,
    require_keys,
    unkeyed_of,
)
from topics.protocol.commit.unit_of_work import (
    UnitOfWork,
    logs_deletes,
    no_such_partition,
    no_such_topic,
)
from topics.protocol.decide.ended_erasure import EndedErasure
from topics.protocol.decide.job_appends import JobAppends, remembered
from topics.protocol.decide.partial_scans import (
    Finding,
    Looks,
    PartialScans,
    Scan,
    search_all,
    told,
)
from topics.protocol.decide.placement import part_of, placement_of
from topics.protocol.model.access import Scope
from topics.protocol.model.commands import Append, DeleteRecords, DeleteSeqs, Purge
from topics.protocol.model.events import (
    Fired,
    FloorsRaised,
    Marks,
    RecordsAppended,
    TopicCreated,
)
from topics.protocol.model.marks import forms_of
from topics.protocol.model.moment import Moment
from topics.protocol.model.outcomes import (
    SYNCED,
    WRITTEN,
    Appended,
    Deleted,
    Gate,
    Outcome,
    Parked,
    Purged,
)
from topics.protocol.model.placed import PartitionSpan, Placed, decode_placed, encode_placed
from topics.protocol.model.records import LIVE
from topics.protocol.state.idempotency import PlacedBatch
from topics.protocol.state.run_list import seq_spans
from topics.protocol.state.topic import Topic

Kind = TypeVar("Kind", Deleted, Purged)
CONFIGURES: Final[frozenset[Scope]] = frozenset({"admin"})
"""What a write needs besides, where its `config` would be applied (§0.2)."""


class RecordCommands:
    """Records of the topics of one engine."""

    def __init__(self, unit: UnitOfWork, scans: PartialScans, ended: EndedErasure) -> None:
        self._unit = unit
        self._state = unit.state
        self._scans = scans
        self._ended = ended
        self._jobs = JobAppends(unit)

    # ------------------------------------------------------------------ append

    def append(self, command: Append, moment: Moment, fired: Fired | None = None) -> Appended:
        """§2: all records or none, with contiguous seqs.

        Args:
            fired: The tick whose one record it is, which becomes true with it; where the topic's records are in no
                log, there is room for an event of its own, which is the caller's to emit.  So it is where the record
                makes no job, and then nothing has changed.
        """
        topic, now_ms = self._state.topics.get(command.topic), moment.now_ms
        created: TopicCreated | None = None
        if topic is None:
            create = command.config.auto_create if command.create is None else command.create
            if not create:
                raise no_such_topic(command.topic)
            if command.is_configuring:
                command.caller.require_scopes(CONFIGURES)
            self._unit.admission.require_no_ring(command.topic, command.config, command.caller)
            # Whether its first batch is let in is decided on a topic that is not there yet: what is
            # refused makes no topic.
            created = self._unit.admission.creation(command.topic, command.config, now_ms)
            topic = Topic(created.topic_id, created.name, created.config, "")
        else:
            if topic.config.ttl_ms:
                self._unit.expire(topic, now_ms)
            known = self._remembered(topic, command, now_ms) if command.key else None
            if known is not None:
                return known
        is_whole = topic.config.partition_count == 1
        if is_whole and command.partitions is not None:
            _require_first(topic, command.partitions)
        if command.jobs is not None:
            return self._jobs.append(topic, command, created, moment, fired)
        if not is_whole:
            return self._append_to_several(topic, command, created, moment, fired)
        volatile = not topic.durability.is_logged
        cause = None if volatile else fired
        event, log_bytes = self._unit.admit_append(topic, command, now_ms, cause=cause)
        need = _volatile_bytes(fired) if volatile else log_bytes
        self._unit.require_writable(moment, need + _creation_bytes(created))
        if created is not None:
            topic = self._unit.create(created)
        self._unit.log_append(topic, event, log_bytes, volatile=volatile)
        self._unit.evict_for_memory(now_ms)
        synced = self._unit.publication.plan(topic)
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
        )

    def _append_to_several(
        self,
        topic: Topic,
        command: Append,
        created: TopicCreated | None,
        moment: Moment,
        fired: Fired | None,
    ) -> Appended:
        """The same in a topic of several partitions: in all of them in one turn, or in none.

        Args:
            topic: The first of them; where `created` is given, none is there yet.
        """
        unit, now_ms, config = self._unit, moment.now_ms, topic.config
        if config.is_compacted:
            # Before they are placed: a refusal says which records of the write it means.
            form = None if command.marks is None else forms_of(command.marks)
            require_keys(topic, unkeyed_of(command.tags, form, len(command.datas)))
        rows, takes_turns = placement_of(
            command, topic.name, config.partition_count, topic.next_partition
        )
        key = unit.admit_key(topic, command, now_ms) if command.key else b""
        events: list[RecordsAppended] = []
        log_bytes: list[int] = []
        targets = [_absent(topic, n) if created else topic.partitions[n] for n in rows]
        volatile = not topic.durability.is_logged
        cause = None if volatile else fired
        for target in targets:
            unit.expire(target, now_ms)
        for target, some in zip(targets, rows.values(), strict=True):
            part = part_of(command, some)
            event, size_bytes = unit.admit_append(target, part, now_ms, events, cause)
            events.append(event)
            log_bytes.append(size_bytes)
        spans = [
            PartitionSpan(n, event.first_seq, len(event.batch))
            for n, event in zip(rows, events, strict=True)
        ]
        placed = Placed.of(spans, [*rows.values()])
        if key:
            text = encode_placed(placed)
            events[0] = replace(events[0], key=key, placed=text)
            log_bytes[0] += len(text)
        need = len(events) * _volatile_bytes(fired) if volatile else sum(log_bytes)
        unit.require_writable(moment, need + _creation_bytes(created))
        if created is not None:
            topic = unit.create(created)
        if takes_turns:
            topic.next_partition = (topic.next_partition + 1) % config.partition_count
        targets = [self._state.by_id[event.topic_id] for event in events]
        for target, event, size_bytes in zip(targets, events, log_bytes, strict=True):
            unit.log_append(target, event, size_bytes, volatile=volatile)
        unit.evict_for_memory(now_ms)
        waits = [unit.publication.plan(target) for target in targets]
        return self._appended(
            topic,
            placed,
            command,
            created=created is not None,
            gate=SYNCED if any(waits) else WRITTEN,
            is_logged=True,
            is_fsync=topic.durability.waits_for_sync,
        )

    def _appended(self, topic: Topic, placed: Placed, command: Append, **more: Any) -> Appended:
        first = placed.spans[0]
        head_seq = max(topic.partitions[first.partition].published_seq, first.last_seq)
        return Appended(
            topic.name,
            first.first_seq,
            sum(span.count for span in placed.spans),
            head_seq,
            command.return_seqs,
            placed=placed,
            **more,
        )

    def _remembered(self, topic: Topic, command: Append, now_ms: int) -> Appended | None:
        """The outcome of a batch that came before under the same key (§0.8)."""
        if not topic.config.idempotency_window_ms:
            return None
        entry = self._state.keys.find(topic.topic_id, command.key, now_ms)
        if entry is None:
            return None
        if isinstance(entry, PlacedBatch) and topic.config.type == "queue":
            return remembered(topic, entry, command)
        if isinstance(entry, PlacedBatch):
            placed = decode_placed(entry.placed)
            return self._repeated(topic, placed, command)
        if topic.others:
            span = PartitionSpan(0, entry.first_seq, entry.records)
            return self._repeated(topic, Placed([span]), command)
        last_seq = entry.first_seq + entry.records - 1
        return Appended(
            topic.name,
            entry.first_seq,
            entry.records,
            max(topic.published_seq, last_seq),
            command.return_seqs,
            deduped=True,
            gate=Gate.NOW if last_seq <= topic.published_seq else SYNCED,
        )

    def _repeated(self, topic: Topic, placed: Placed, command: Append) -> Appended:
        partitions = topic.partitions
        is_shown = all(
            each.last_seq <= partitions[each.partition].published_seq for each in placed.spans
        )
        gate = Gate.NOW if is_shown else SYNCED
        return self._appended(topic, placed, command, deduped=True, gate=gate)

    # ------------------------------------------------------------------ delete

    def delete(self, command: DeleteRecords, token: object, moment: Moment) -> Outcome | Parked:
        """§5: point-in-time, silent, idempotent."""
        partitions = self._partitions(command, moment, needs_one=command.before_seq is not None)

        def outcome(deleted: int, gate: Gate) -> Outcome | None:
            if command.trims and command.before_seq is not None:
                self._trim(partitions[0], command.before_seq - 1)
            answer = _gone(Deleted, partitions, deleted, gate, erases=command.erase)
            if not command.erase:
                return answer
            return self._ended.begin(partitions[0], command, answer, token, moment)

        looks = Looks()
        found = [
            Finding(each, command.match, command.before_seq, looks=looks) for each in partitions
        ]
        return self._remove(found, 0, outcome, token, moment)

    def _partitions(
        self, command: DeleteRecords | Purge, moment: Moment, *, needs_one: bool
    ) -> list[Topic]:
        """The partitions that a command is for.

        Raises:
            Rejection: 404; 400 where it is for one, and names none of several.
        """
        if needs_one:
            return [self._unit.partition(command.topic, command.partition, moment.now_ms)]
        topic = self._unit.topic(command.topic, moment.now_ms)
        if command.partition is not None:
            return [topic]
        for each in topic.others:
            self._unit.expire(each, moment.now_ms)
        return topic.partitions

    def _trim(self, topic: Topic, through: int) -> None:
        """Raise the floor of readers of Kafka, in the turn in which what is below was deleted."""
        through = min(through, topic.head_seq)
        if through > topic.floors.trim_through:
            floors = replace(topic.floors, trim_through=through)
            event = FloorsRaised(
                self._state.now_ms, topic.topic_id, floors, topic.count, topic.size_bytes
            )
            self._unit.emit(event, logged=logs_deletes(topic))

    def purge(self, command: Purge, token: object, moment: Moment) -> Outcome | Parked:
        """A delete in NATS's words (ADR-10)."""
        needs_one = command.seq is not None or command.keep is not None
        partitions = self._partitions(command, moment, needs_one=needs_one)

        def outcome(purged: int, gate: Gate) -> Purged:
            return _gone(Purged, partitions, purged, gate)

        looks = Looks()
        found = [Finding(each, command.match, command.seq, looks=looks) for each in partitions]
        return self._remove(found, command.keep or 0, outcome, token, moment)

    def delete_seqs(self, command: DeleteSeqs, moment: Moment) -> Deleted:
        """Of some records those that are still there, but never the last: a record that others are compared with."""
        topic = self._unit.topic(command.topic, moment.now_ms)
        seqs = np.frombuffer(command.seqs, "<u8")
        if topic.epoch != command.epoch:
            seqs = seqs[:0]
        wanted = seqs[(seqs > topic.gone_through()) & (seqs < topic.head_seq)]
        spans, marks = b"", list[Marks]()
        records = size_bytes = 0
        for run, rows in topic.runs.rows_of(seq_spans(wanted)) if len(wanted) else ():
            live = rows[run.flags[rows] == LIVE]
            own, bits = told(run, live)
            spans += own
            if bits:
                marks.append(Marks(run.first_seq, run.count, bits))
            records += len(live)
            size_bytes += topic.weight(run, live)
        if not records:
            return _gone(Deleted, [topic], 0, self._unit.repeated(topic))
        gate = self._unit.remove_spans(topic, spans, records, size_bytes, moment, marks)
        return _gone(Deleted, [topic], records, gate)

    def _remove(
        self,
        findings: Sequence[Finding],
        keep: int,
        outcome: Callable[[int, Gate], Outcome | None],
        token: object,
        moment: Moment,
    ) -> Outcome | Parked:
        """Find what is to go, in as many turns as that takes, and delete it in one of them."""

        def scan() -> Scan:
            now = moment
            for runs in search_all(findings, self._unit):
                now = yield runs
            for finding in findings:
                finding.keep(keep)
            if len(findings) > 1:
                # Of all partitions, or of none.
                need = sum(finding.log_bytes for finding in findings)
                self._unit.require_writable(now, max(need, FRAME_BYTES), reserve=True)
            deleted, gate = 0, Gate.WRITTEN
            for finding in findings:
                records, gate = finding.remove(self._unit, now)
                deleted += records
            return outcome(deleted, gate)

        found = self._scans.begin(findings[0].topic, token, scan())
        return Parked(None) if found is None else found


def _creation_bytes(created: TopicCreated | None) -> int:
    return 0 if created is None else creation_bytes(created.config)


def _volatile_bytes(fired: Fired | None) -> int:
    """Room for what the log has of an append whose records are in none."""
    return FRAME_BYTES if fired is None else 2 * FRAME_BYTES


def _absent(base: Topic, partition: int) -> Topic:
    """A partition of a topic that is not there yet, with the id that it will get."""
    topic_id = base.topic_id + partition
    return Topic(topic_id, base.name, base.config, "", partition=partition)


def _require_first(topic: Topic, partitions: Sequence[int | None]) -> None:
    """Raises Rejection: 404 where a record names a partition of a topic that has one."""
    for partition in partitions:
        if partition:
            raise no_such_partition(topic.name, partition)


def _gone(
    kind: type[Kind],
    partitions: Sequence[Topic],
    removed: int,
    gate: Gate,
    *,
    erases: bool = False,
) -> Kind:
    """Records were deleted, and this is what the topic, or its partition, shows then.

    Args:
        gate: As the topic's class asks; bytes are erased behind a sync in every class.
    """
    topic = partitions[0]
    shown = [each.shown() for each in partitions]
    return kind(
        topic.name,
        removed,
        topic.earliest_seq,
        topic.published_seq,
        sum(count for count, _ in shown),
        sum(size_bytes for _, size_bytes in shown),
        gate=SYNCED if erases else gate,
        is_logged=True,
        is_fsync=gate is SYNCED,
        erases=tuple(each.topic_id for each in partitions) if erases else (),
    )
