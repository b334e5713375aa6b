"""Record commands that write: append, delete, purge (§2, §5)."""

from collections.abc import Callable, Generator, Sequence
from typing import Final, TypeVar

import numpy as np
from msgspec.structs import replace

from topics.protocol.commit.admission import FRAME_BYTES
from topics.protocol.commit.unit_of_work import UnitOfWork, logs_deletes, no_such_topic
from topics.protocol.decide.partial_scans import Finding, PartialScans, told
from topics.protocol.model.access import Scope
from topics.protocol.model.commands import Append, DeleteRecords, DeleteSeqs, Purge
from topics.protocol.model.events import FloorsRaised, Marks, TopicCreated
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
from topics.protocol.model.ports import Run
from topics.protocol.model.records import LIVE
from topics.protocol.state.run_list import seq_spans
from topics.protocol.state.topic import Topic

Kind = TypeVar("Kind", Deleted, Purged)
CONFIGURES: Final[frozenset[Scope]] = frozenset({"admin"})
"""What a write needs besides, where its `config` would be applied (§0.2)."""


class RecordCommands:
    """Records of the topics of one engine."""

    def __init__(self, unit: UnitOfWork, scans: PartialScans) -> None:
        self._unit = unit
        self._state = unit.state
        self._scans = scans

    # ------------------------------------------------------------------ append

    def append(self, command: Append, moment: Moment) -> Appended:
        """§2: all records or none, with contiguous seqs."""
        topic, now_ms = self._state.topics.get(command.topic), moment.now_ms
        created: TopicCreated | None = None
        if topic is None:
            create = command.config.auto_create if command.create is None else command.create
            if not create:
                raise no_such_topic(command.topic)
            if command.is_configuring:
                command.caller.require_scopes(CONFIGURES)
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
        event, log_bytes = self._unit.admit_append(topic, command, now_ms)
        volatile = not topic.durability.is_logged
        need = FRAME_BYTES if volatile else log_bytes
        self._unit.require_writable(moment, need + (FRAME_BYTES if created else 0))
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

    def _remembered(self, topic: Topic, command: Append, now_ms: int) -> Appended | None:
        """The outcome of a batch that came before under the same key (§0.8)."""
        if not topic.config.idempotency_window_ms:
            return None
        entry = self._state.keys.find(topic.topic_id, command.key, now_ms)
        if entry is None:
            return None
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

    # ------------------------------------------------------------------ delete

    def delete(self, command: DeleteRecords, token: object, moment: Moment) -> Outcome | Parked:
        """§5: point-in-time, silent, idempotent."""
        topic = self._unit.topic(command.topic, moment.now_ms)

        def outcome(deleted: int, gate: Gate) -> Deleted:
            if command.trims and command.before_seq is not None:
                self._trim(topic, command.before_seq - 1)
            if command.erase:
                return _gone(Deleted, topic, deleted, gate, erases=topic.topic_id)
            return _gone(Deleted, topic, deleted, gate)

        finding = Finding(topic, command.match, command.before_seq)
        return self._remove(finding, 0, outcome, token, moment)

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
        topic = self._unit.topic(command.topic, moment.now_ms)

        def outcome(purged: int, gate: Gate) -> Purged:
            return _gone(Purged, topic, purged, gate)

        finding = Finding(topic, command.match, command.seq)
        return self._remove(finding, command.keep or 0, outcome, token, moment)

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
            return _gone(Deleted, topic, 0, self._unit.repeated(topic))
        gate = self._unit.remove_spans(topic, spans, records, size_bytes, moment, marks)
        return _gone(Deleted, topic, records, gate)

    def _remove(
        self,
        finding: Finding,
        keep: int,
        outcome: Callable[[int, Gate], Outcome],
        token: object,
        moment: Moment,
    ) -> Outcome | Parked:
        """Find what is to go, in as many turns as that takes, and delete it in one of them."""

        def scan() -> Generator[Sequence[Run], Moment, Outcome]:
            now = moment
            for runs in finding.search():
                now = yield runs
            finding.keep(keep)
            return outcome(*finding.remove(self._unit, now))

        found = self._scans.begin(finding.topic, token, scan())
        return Parked(None) if found is None else found


def _gone(
    kind: type[Kind], topic: Topic, removed: int, gate: Gate, *, erases: int | None = None
) -> Kind:
    """Records were deleted, and this is what the topic shows then.

    Args:
        gate: As the topic's class asks; bytes are erased behind a sync in every class.
    """
    count, size_bytes = topic.shown()
    return kind(
        topic.name,
        removed,
        topic.earliest_seq,
        topic.published_seq,
        count,
        size_bytes,
        gate=gate if erases is None else SYNCED,
        is_logged=True,
        is_fsync=gate is SYNCED,
        erases=erases,
    )
