"""The unit of work: what is about to be written, and the ways to add to it.

Every change of state by a command goes through `emit`, which encodes the event, applies it, and has
it written with the unit's one write.  While a unit's frames are on their way to the log the next unit
begins; the driver says how many may be.  It reports `on_written` of each, in their order, `on_synced` or
`on_failed`, and what readers see moves (`commit.publication`).  Which command asked is not known here.

Time passes before a decision and never within one: `expire`, `expire_due` and `let_leases_end` take
what the clock has taken, and are not part of what a command changes.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from topics.protocol.commit.admission import FRAME_BYTES, Admission, creation_bytes
from topics.protocol.commit.copies import Copies
from topics.protocol.commit.memory_eviction import MemoryEviction
from topics.protocol.commit.publication import Publication
from topics.protocol.model.codec import Frames, encode
from topics.protocol.model.commands import Append
from topics.protocol.model.errors import Corrupt, ErrorCode, Rejection
from topics.protocol.model.events import (
    MARKS_BYTES,
    Cause,
    CopyCause,
    CursorsMoved,
    DeadLettered,
    Event,
    FloorsRaised,
    Forwarded,
    JobsExpired,
    Loss,
    Marks,
    PartitionsAdded,
    RecordsAppended,
    RecordsDeleted,
    Redriven,
    ScatteredDeleted,
    SeqsReserved,
    SeqsSkipped,
    TailLost,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
)
from topics.protocol.model.limits import Limits
from topics.protocol.model.moment import Moment, Room
from topics.protocol.model.names import partition_of
from topics.protocol.model.outcomes import SYNCED, WRITTEN, Fetch, Gate, Wake
from topics.protocol.model.records import Batch, PackedBatch
from topics.protocol.state.hot_memory import hot_bytes_of
from topics.protocol.state.run_list import packed_spans
from topics.protocol.state.state import State
from topics.protocol.state.topic import RESERVE_FIRST, Topic

EXPIRE_MAX: Final = 8192
"""Topics whose records one call expires at most; more would hold up the loop."""
DUE_MAX: Final = 1024
"""Topics whose records one write expires before it is refused for want of room: some ten
milliseconds.  Those that have waited longest come first."""
UNREAD_MS: Final = 10_000
"""After this, a topic whose records cannot expire because they cannot be read is looked at again."""
_OF_FLOORS: Final = (RecordsAppended, TopicConfigured, FloorsRaised, TopicDeleted)
"""Events that carry their topic's floors, expiry included."""


class _Unit(msgspec.Struct, eq=False):
    """What is written together: the frames of its events, and the room that was planned for them.

    Attributes:
        room_bytes: What the log was sure to take when `room_of` was last asked for it.
    """

    frames: Frames = msgspec.field(default_factory=Frames)
    planned_bytes: int = 0
    room_bytes: int = 0
    room_of: Room | None = None


class StateUnknown(BaseException):
    """Applying an event failed halfway: what is in memory is no state that any log leads to.

    The process has to end; its log does not hold the event, so that the next one is sound.
    """


class UnitOfWork:
    """The write side of one engine.

    Args:
        published: Called for a topic that shows more than before.
        settled: Called for a topic of which more is durable, shown or not.
        removed: Called for a topic from which records were removed on request.
        grown: Called for a topic that has more partitions than before.
        broken: Called where an event became true in part; a server's process ends there.
        ask_room: Has the store make room for so many bytes with its next sync; False where the disk has
            none.
        observer: Called with each event that is decided here, before it is applied.
    """

    def __init__(
        self,
        limits: Limits,
        state: State,
        *,
        published: Callable[[Topic], None],
        settled: Callable[[Topic], None],
        removed: Callable[[Topic], None],
        grown: Callable[[Topic], None],
        broken: Callable[[StateUnknown], None],
        ask_room: Callable[[int], bool] | None = None,
        observer: Callable[[Event], None] | None = None,
    ) -> None:
        self.state = state
        self.admission = Admission(limits, state)
        self.publication = Publication(published, settled)
        self._max_hot_bytes = limits.max_hot_bytes
        self._came_in = 0
        self._memory_eviction = MemoryEviction(limits, state, self._first_held, self._evict)
        self.read_only = False
        self.lacks_space = False
        """It is read-only for want of space on the disk, and is opened anew when there is some."""
        self.ask_room = ask_room or _no_room
        self._observer = observer
        self.wants_sync = False
        """Something was refused for want of room that is being made: the driver takes it from here."""
        self.logs_all_leases = False
        """Whether claims are logged in every queue, as in a cluster, and not where its config says so."""
        self.is_replicated = False
        """Whether other nodes apply the log, who have nothing of what it does not hold."""
        self.wakes: list[Wake] = []
        self.fetches: list[Fetch] = []
        self._removed = removed
        self._grown = grown
        self._broken = broken
        self._unit = _Unit()
        self.has_events = False
        """Whether an event was applied since the last unit was taken that the log must hold."""
        self._taken_bytes = 0
        """What was planned for the units that were taken."""
        self._on_their_way: deque[_Unit] = deque()
        self._expired: set[int] = set()
        """Topics whose records expired since the log last had their floors."""

    def advance(self, now_ms: int) -> int:
        """Engine time: the wall clock, unless that has fallen below what was seen before."""
        return self.state.advance(now_ms)

    def in_engine_time(self, moment: Moment) -> Moment:
        """The moment with a time that does not run backwards."""
        state = self.state
        if moment.now_ms >= state.now_ms:
            state.now_ms = moment.now_ms
            return moment
        return Moment(state.now_ms, moment.room)

    def room(self, moment: Moment, *, reserve: bool = False) -> int:
        """Bytes that the log takes beside what this unit and those on their way hold."""
        return moment.room(reserve) - self.framed_bytes()

    def framed_bytes(self) -> int:
        """Bytes of frames that are not written yet."""
        size_bytes = self._unit.frames.size_bytes
        for unit in self._on_their_way:
            size_bytes += unit.frames.size_bytes
        return size_bytes

    def planned_bytes(self) -> int:
        """What the events that are not written yet were expected to take in the log; at least the
        frames' bytes.  The pace of writes and copies goes by it."""
        planned_bytes = self._unit.planned_bytes
        for unit in self._on_their_way:
            planned_bytes += unit.planned_bytes
        return planned_bytes

    @property
    def ever_planned_bytes(self) -> int:
        """What was ever planned for the log, written or not."""
        return self._taken_bytes + self._unit.planned_bytes

    # ------------------------------------------------------------------ the driver's reports

    def take_frames(self) -> Frames:
        """End the unit: its events, for one write; `on_written`, once for each unit that was taken,
        or `on_failed` must follow."""
        unit, self._unit, self.has_events = self._unit, _Unit(), False
        self._taken_bytes += unit.planned_bytes
        self._on_their_way.append(unit)
        self.publication.on_taken()
        return unit.frames

    @property
    def is_on_its_way(self) -> bool:
        """Whether a unit was taken, and it is not known whether the log has it."""
        return bool(self._on_their_way)

    def on_written(self, lsn: int) -> None:
        """The oldest events that were taken are in the log: publish what that is enough for."""
        self._on_their_way.popleft()
        self.publication.on_written(lsn)

    def on_synced(self, lsn: int) -> None:
        """The log is durable up to `lsn`."""
        self.publication.on_synced(lsn)

    def on_failed(self, *, lacks_space: bool) -> None:
        """A write or sync failed: nothing more is written or published; reads go on."""
        self.read_only, self.lacks_space = True, lacks_space
        self._unit, self.has_events = _Unit(), False
        self._on_their_way.clear()
        self.publication.on_failed()

    # ------------------------------------------------------------------ changes

    def emit(self, event: Event, *, logged: bool = True, log_bytes: int = FRAME_BYTES) -> None:
        """Apply an event, and have it written with this unit unless it is not `logged`.

        It is encoded first: whatever can fail of that fails before the state has changed, and no
        memory is needed to write the frame afterwards (§0.5).

        Raises:
            MemoryError: It could not be encoded; nothing has changed.
            StateUnknown: It was applied in part.  The process must end.
        """
        if self._observer is not None:
            self._observer(event)
        if logged:
            unit = self._unit
            unit.frames.add(encode(event))
            unit.planned_bytes += log_bytes
            self.has_events = True
        try:
            self.state.apply(event)
        except BaseException as error:
            broken = StateUnknown(f"{type(event).__name__} could not be applied: {error!r}")
            broken.__cause__ = error
            self._broken(broken)
            raise broken from error
        if logged and self._expired and isinstance(event, _OF_FLOORS):
            self._expired.discard(event.topic_id)

    def adopt(self, events: Sequence[Event], body: bytes) -> None:
        """Apply what another engine decided; `body` is the frames of these events, which are written
        with this unit.

        Raises:
            StateUnknown: One of them could not be applied.  The process must end.
        """
        frames = self._unit.frames
        frames.parts.append(body)
        frames.size_bytes += len(body)
        frames.count += len(events)
        self.has_events = frames.count > 0
        for event in events:
            try:
                self.state.apply(event)
            except BaseException as error:
                broken = StateUnknown(f"{type(event).__name__} could not be applied: {error!r}")
                broken.__cause__ = error
                self._broken(broken)
                raise broken from error

    def logs_leases(self, topic: Topic) -> bool:
        """Whether claims of the queue's jobs are events of the log."""
        return self.logs_all_leases or topic.config.leases_durable

    def topic(self, name: str, now_ms: int) -> Topic:
        """A topic, or a partition, that exists, without its expired records.  Raises Rejection: 404."""
        topic = self.state.topics.get(name)
        if topic is None:
            raise self.missing(name)
        if topic.config.ttl_ms:
            self.expire(topic, now_ms)
        return topic

    def partition(self, name: str, partition: int | None, now_ms: int) -> Topic:
        """A partition, by the engine's name of it, that a client asks for by its number, or by none.

        Raises:
            Rejection: 404; 400 where it names none and there are several.
        """
        topic = self.topic(name, now_ms)
        if partition is None and topic.others:
            raise partition_required(topic)
        return topic

    def missing(self, name: str) -> Rejection:
        """404: there is no such topic, or no such partition of it."""
        topic, partition = partition_of(name)
        if topic not in self.state.topics:
            return no_such_topic(topic)
        return no_such_partition(topic, partition)

    # ------------------------------------------------------------------ time

    def expire(self, topic: Topic, now_ms: int) -> None:
        """Let go of the topic's records past their `ttl_ms`."""
        if not topic.config.ttl_ms:
            return
        expired = topic.expired(now_ms)
        if expired is not None:
            self.state.apply_expiry(topic, expired)
            self._expired.add(topic.topic_id)

    def let_leases_end(self, topic: Topic) -> None:
        """Where the topic is a queue: leases past their deadline hold their jobs no longer."""
        queue = self.state.queues.get(topic.topic_id)
        if queue is not None:
            queue.settle(self.state.now_ms)

    def expire_due(self, now_ms: int, limit: int = EXPIRE_MAX) -> bool:
        """Expire records of topics that no command names, of so many of them that have waited
        longest; whether there was one."""
        for looks in range(limit):
            topic = self.state.take_due(now_ms)
            if topic is None:
                return looks > 0
            try:
                self.expire(topic, now_ms)
                self.state.time_again(topic)
            except (Corrupt, OSError):
                # Its delete flags cannot be read, and a command that names the topic says so.
                self.state.expiry.set(topic.topic_id, now_ms + UNREAD_MS)
        return limit > 0

    def log_expiry(self, topic: Topic, now_ms: int) -> None:
        """Log the floors of a topic whose records expired, before an event that depends on them.

        Expiry itself is no event, because a replay finds it again by the clock.  An event behind it
        holds counters without those records, so a replay would count them out twice.
        """
        if topic.topic_id in self._expired:
            self.emit(
                FloorsRaised(now_ms, topic.topic_id, topic.floors, topic.count, topic.size_bytes)
            )

    # ------------------------------------------------------------------ memory

    def evict_for_memory(self, now_ms: int) -> None:
        """Where the unit's appends are more than memory may hold: evict records that are in memory
        only."""
        memory = self.state.memory
        if memory.logged_bytes + memory.volatile_bytes > self._max_hot_bytes and not self.read_only:
            self.expire_due(now_ms, DUE_MAX)
            self._memory_eviction.evict(self._came_in)
        self._came_in = 0

    def _first_held(self, topic: Topic) -> int | None:
        self.let_leases_end(topic)
        return self.admission.first_held(topic)

    def _evict(self, topic: Topic, event: FloorsRaised) -> None:
        self.emit(event, logged=holds_logged(topic))

    # ------------------------------------------------------------------ appends and deletes

    def require_writable(
        self, moment: Moment, need: int = FRAME_BYTES, *, reserve: bool = False
    ) -> None:
        """Raises Rejection: 503 where nothing is written any more, 429 where so many bytes do not
        fit into the log; what needs none of them is not logged."""
        if self.read_only:
            raise read_only(lacks_space=self.lacks_space)
        if not need:
            return
        unit, framed_bytes = self._unit, self.framed_bytes()
        if not reserve:
            # What was promised to an earlier event of the unit, the log still has.
            if unit.room_of is moment.room and unit.room_bytes - framed_bytes >= need:
                return
            unit.room_bytes, unit.room_of = moment.room(False), moment.room
        room = (moment.room(True) if reserve else unit.room_bytes) - framed_bytes
        if room < need:
            if self.ask_room(need + framed_bytes):
                self.wants_sync = True
                raise not_ready_yet(need)
            raise Rejection(
                ErrorCode.THROTTLED,
                f"the disk is full: a write of up to {need} bytes does not fit",
                {"limit": "disk", "max": max(room, 0)},
                retry_after_s=5,
                need_bytes=need,
            )

    def create(self, created: TopicCreated) -> Topic:
        """Create a topic, with its partitions.  Its first seqs are reserved by the same event, so that its first
        write needs no sync for them."""
        self.emit(created, log_bytes=creation_bytes(created.config))
        topic = self.state.by_id[created.topic_id]
        self.publication.reserved(topic)
        self.add_partitions(topic, created.now_ms)
        return topic

    def add_partitions(self, topic: Topic, now_ms: int) -> None:
        """Make those partitions that a topic lacks by its config."""
        more = topic.config.partition_count - len(topic.partitions)
        if more > 0:
            first_id = self.state.next_topic_id
            topic_ids = range(first_id, first_id + more)
            self.emit(PartitionsAdded(now_ms, topic.topic_id, list(topic_ids), RESERVE_FIRST))
            for added in topic.others[-more:]:
                self.publication.reserved(added)
            self._grown(topic)

    def admit_append(
        self,
        topic: Topic,
        command: Append,
        now_ms: int,
        beside: Sequence[RecordsAppended] = (),
        cause: Cause | None = None,
        leaving: Sequence[int] = (),
    ) -> tuple[RecordsAppended, int]:
        """The event of a batch that is taken, and the room it may need in the log; nothing changes
        but by time.

        Where a limit refuses it, time passes for other topics too, and it is decided again: what
        has expired there must not refuse a write (§11).

        Raises:
            Rejection: A cap, a quota or a limit refuses it.
        """
        self.let_leases_end(topic)
        try:
            return self.admission.appended(topic, command, now_ms, beside, cause, leaving)
        except Rejection as refusal:
            if not self._may_free(refusal, now_ms):
                raise
            return self.admission.appended(topic, command, now_ms, beside, cause, leaving)

    def admit_key(self, topic: Topic, command: Append, now_ms: int) -> bytes:
        """The digest of its key that is remembered; as `admit_append`."""
        try:
            return self.admission.admitted_key(topic, command)
        except Rejection as refusal:
            if not self._may_free(refusal, now_ms):
                raise
            return self.admission.admitted_key(topic, command)

    def admit_batch(
        self, topic: Topic, batch: Batch | PackedBatch, now_ms: int
    ) -> tuple[RecordsAppended, int]:
        """The same of a batch that is the topic's next records already."""
        self.let_leases_end(topic)
        try:
            return self.admission.batched(topic, batch, now_ms)
        except Rejection as refusal:
            if not self._may_free(refusal, now_ms):
                raise
            return self.admission.batched(topic, batch, now_ms)

    def _may_free(self, refusal: Rejection, now_ms: int) -> bool:
        return refusal.code is ErrorCode.THROTTLED and self._free(refusal, now_ms)

    def _free(self, refusal: Rejection, now_ms: int) -> bool:
        """Let time pass for what a limit counts; whether that freed anything."""
        if (refusal.detail or {}).get("limit") == "max_idempotency_keys":
            return self.state.keys.forget_old(now_ms) > 0
        return self.expire_due(now_ms, DUE_MAX)

    def log_append(
        self, topic: Topic, event: RecordsAppended, log_bytes: int, *, volatile: bool
    ) -> None:
        """Apply the append, with what the log has to know of it where the records are in none."""
        reserved, floors = topic.reserved_through, topic.floors
        self.emit(event, logged=not volatile, log_bytes=log_bytes)
        if volatile:
            self._came_in += hot_bytes_of(event.batch)
        if topic.reserved_through > reserved:
            self.publication.reserved(topic)
            if volatile:
                # No append of the topic is in the log to carry its reservation; without one, a
                # restart would give the same seqs to other records (§0.10).
                self.emit(SeqsReserved(event.now_ms, topic.topic_id, topic.reserved_through))
        if volatile and event.floors != floors and holds_logged(topic):
            # The append is in no log, but it evicted records that are: a restart would bring them
            # back.
            self.emit(
                FloorsRaised(
                    event.now_ms, topic.topic_id, event.floors, event.count, event.size_bytes
                )
            )

    def copy_into(
        self,
        dest: Topic,
        copies: Copies,
        cause: CopyCause,
        moment: Moment,
        *,
        freed_bytes: int = 0,
        jobs: bytes = b"",
    ) -> Gate:
        """Append copies to a topic, and make their cause true, in one entry of the log.

        Where the destination's records are in no log (`ephemeral`), their cause is logged alone.

        Args:
            jobs: Options of the copies, as `RecordsAppended` has them.

        Returns:
            What the copies wait for before they are shown.

        Raises:
            Rejection: The destination does not take them, or the log does not; nothing changed.
        """
        event, log_bytes = self.admit(dest, copies, cause, moment, freed_bytes=freed_bytes)
        if jobs:
            event = msgspec.structs.replace(event, jobs=jobs)
        volatile = not dest.durability.is_logged
        self.log_append(dest, event, log_bytes, volatile=volatile)
        if volatile:
            match cause:
                case Forwarded(router_id, cursor):
                    self.emit(CursorsMoved(moment.now_ms, [(router_id, cursor, len(copies))]))
                case DeadLettered(queue_id):
                    self._delete_left(queue_id, cause, moment.now_ms, cause.jobs)
                case Redriven(source_id):  # pragma: no branch - a cause is of no other kind
                    self._delete_left(source_id, cause, moment.now_ms)
        return SYNCED if self.publication.plan(dest) else WRITTEN

    def admit(
        self,
        dest: Topic,
        copies: Copies,
        cause: Cause | None,
        moment: Moment,
        *,
        freed_bytes: int = 0,
    ) -> tuple[RecordsAppended, int]:
        """The event of copies that are taken, and the room it may need in the log; nothing changes.
        Raises Rejection."""
        volatile = not dest.durability.is_logged
        self.let_leases_end(dest)
        event, log_bytes = self.admission.copied(
            dest, copies, moment.now_ms, cause=None if volatile else cause, freed_bytes=freed_bytes
        )
        if volatile:
            log_bytes = 2 * FRAME_BYTES
        if isinstance(cause, DeadLettered | Redriven):
            log_bytes += len(cause.spans)
        self.require_writable(moment, log_bytes)
        return event, log_bytes

    def skip(
        self,
        dest: Topic,
        router_id: int,
        loss: Loss,
        moment: Moment,
        *,
        hops: int = 0,
    ) -> None:
        """Leave a hole in a topic, as large as what a router lost in its source.

        Raises:
            Rejection: The log does not take it; nothing changed.
        """
        self.require_writable(moment)
        first_seq, reserved = dest.head_seq + 1, dest.reserved_through
        last_seq = first_seq + loss.gap_to - loss.gap_from
        self.emit(
            SeqsSkipped(moment.now_ms, dest.topic_id, first_seq, last_seq, router_id, loss, hops)
        )
        if dest.reserved_through > reserved:
            self.publication.reserved(dest)
        self.publication.plan(dest)

    def _delete_left(
        self, topic_id: int, cause: DeadLettered | Redriven, now_ms: int, buried: int = 0
    ) -> None:
        """Records left a topic for one whose records are in no log."""
        event = RecordsDeleted(now_ms, topic_id, cause.spans, cause.count, cause.size_bytes, buried)
        logged = logs_deletes(self.state.by_id[topic_id])
        self.emit(event, logged=logged, log_bytes=FRAME_BYTES + len(event.spans))

    def removed(self, topic: Topic) -> None:
        """Records left a topic on request, by an event that is none of `remove_spans`."""
        self._removed(topic)

    def remove(
        self, topic: Topic, seqs: Sequence[int], moment: Moment, *, have_expired: bool = False
    ) -> tuple[int, Gate]:
        """Delete live records by seq, ascending; returns how many, and what the answer waits for.

        Args:
            have_expired: They are jobs that were not started in time.
        """
        if not seqs:
            return 0, self.repeated(topic)
        size_bytes = topic.text_of(seqs)
        raw = packed_spans(seqs)
        gate = self.remove_spans(
            topic, raw, len(seqs), size_bytes, moment, have_expired=have_expired
        )
        return len(seqs), gate

    def remove_spans(
        self,
        topic: Topic,
        spans: bytes,
        records: int,
        size_bytes: int,
        moment: Moment,
        marks: Sequence[Marks] = (),
        *,
        have_expired: bool = False,
    ) -> Gate:
        """Delete live records by spans and marks of seqs, as `RecordsDeleted` and `ScatteredDeleted`
        have them, of which it is known how many records and bytes of text they hold.

        Returns:
            What the answer waits for.
        """
        log_bytes = len(spans) + sum(MARKS_BYTES + len(m.bits) for m in marks) + FRAME_BYTES
        self.require_writable(moment, log_bytes, reserve=True)
        logged = logs_deletes(topic)
        if logged:
            self.log_expiry(topic, moment.now_ms)
        now_ms, topic_id = moment.now_ms, topic.topic_id
        count, size_bytes = topic.count - records, topic.size_bytes - size_bytes
        event: Event
        if marks:
            event = ScatteredDeleted(now_ms, topic_id, spans, marks, count, size_bytes)
        elif have_expired:
            event = JobsExpired(now_ms, topic_id, spans, count, size_bytes, records)
        else:
            event = RecordsDeleted(now_ms, topic_id, spans, count, size_bytes)
        self.emit(event, logged=logged, log_bytes=log_bytes)
        self._removed(topic)
        return self.repeated(topic)

    def leave_memory(self, topic: Topic, now_ms: int) -> None:
        """A topic ceases to be `ephemeral`.  What it has in memory only stays there on one node, until
        a restart; where others apply the log, all of them lose it now, for the next leader would."""
        if not self.is_replicated or topic.durability.is_logged or not topic.volatile_from:
            return
        first_seq, last_seq = topic.volatile_from, topic.head_seq
        count, size_bytes = topic.live_between(first_seq, last_seq)
        count, size_bytes = topic.count - count, topic.size_bytes - size_bytes
        self.emit(TailLost(now_ms, topic.topic_id, first_seq, last_seq, "crash", count, size_bytes))
        self._removed(topic)

    def repeated(self, topic: Topic) -> Gate:
        """What the answer to a delete waits for, also where it deletes nothing: it may repeat a delete
        that is still on its way to the disk."""
        return gate_of(topic)


def gate_of(topic: Topic) -> Gate:
    """What an answer about the topic waits for in its durability class (§0.10)."""
    return Gate.SYNCED if topic.durability.waits_for_sync else Gate.WRITTEN


def logs_deletes(topic: Topic) -> bool:
    """Whether a delete of the topic's records is an event of the log: a restart would bring the
    records back without it."""
    return topic.durability.is_logged or holds_logged(topic)


def holds_logged(topic: Topic) -> bool:
    """Whether a restart would bring back any of the topic's runs."""
    return len(topic.runs) > topic.volatile_runs


def no_such_topic(name: str) -> Rejection:
    return Rejection(ErrorCode.TOPIC_NOT_FOUND, f'topic "{name}" does not exist', {"topic": name})


def partition_required(topic: Topic) -> Rejection:
    count = len(topic.partitions)
    return Rejection(
        ErrorCode.PARTITION_REQUIRED,
        f'topic "{topic.name}" has {count} partitions: name one',
        {"topic": topic.name, "partitions": count},
    )


def no_such_partition(topic: str, partition: int) -> Rejection:
    return Rejection(
        ErrorCode.PARTITION_NOT_FOUND,
        f'topic "{topic}" has no partition {partition}',
        {"topic": topic, "partition": partition},
    )


def not_ready_yet(need_bytes: int) -> Rejection:
    """429: the log has no room for so much before its next file is ready, in some milliseconds."""
    return Rejection(
        ErrorCode.THROTTLED,
        f"the log's next file is not ready: a write of up to {need_bytes} bytes has to wait for it",
        {"retry_after_ms": 100},
        retry_after_s=1,
        need_bytes=need_bytes,
    )


def waits_for_room(refusal: Rejection) -> bool:
    """Whether it is one of `not_ready_yet`: it passes without anybody's doing."""
    return bool(refusal.need_bytes) and "limit" not in (refusal.detail or {})


def _no_room(_: int) -> bool:
    return False


def read_only(*, lacks_space: bool) -> Rejection:
    """503: nothing is written any more after a failed write or sync (§0.5)."""
    if lacks_space:
        return Rejection(
            ErrorCode.NOT_READY,
            "the disk had no space for a write that was let in: the log is read-only until there is some, "
            "and then opened anew; nothing was applied",
            {"reason": "read_only", "limit": "disk"},
        )
    return Rejection(
        ErrorCode.NOT_READY,
        "the log is read-only after a failed write; nothing was applied",
        {"reason": "read_only"},
    )
