"""The turn: what is about to be written, and what may be shown once it is.

Every change of state goes through `emit`, which encodes the event, makes it true, and has it written
with the turn's one write.  While a turn's frames are on their way to the log the next turn begins;
at most one is on its way.  The shell then reports `on_written`, `on_synced` or `on_failed`, and what
readers see moves: `published_seq`, with the write, or with the sync where the topic's class or an
unreserved seq asks for it.  Who commands what is not known here.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from topics.protocol.commit.admission import DUE_MAX, FRAME_BYTES, Admission
from topics.protocol.commit.copies import Copies
from topics.protocol.commit.memory_eviction import Relief
from topics.protocol.model.codec import Frames, encode
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.events import (
    MARKS_BYTES,
    Cause,
    CursorsMoved,
    DeadLettered,
    Event,
    FloorsRaised,
    Forwarded,
    Loss,
    Marks,
    RecordsAppended,
    RecordsDeleted,
    ScatteredDeleted,
    SeqsReserved,
    SeqsSkipped,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
)
from topics.protocol.model.limits import Limits
from topics.protocol.model.moment import Moment
from topics.protocol.model.outcomes import Fetch, Gate, Wake
from topics.protocol.state.hot_run import hot_bytes_of
from topics.protocol.state.state import State
from topics.protocol.state.topic import Topic, seq_spans

EXPIRE_MAX: Final = 8192
"""Topics from which one go lets expire what is due; more would hold up the loop."""


@dataclass(slots=True)
class _Owed:
    """What this turn's appends to a topic have still to show: the head that the write is enough
    for, and the head that a sync must cover; None where there is none.  Fixed when each append is
    decided, so that a change of the class in the same turn changes no earlier promise."""

    topic: Topic
    written: int | None = None
    synced: int | None = None


@dataclass(slots=True)
class _Unit:
    """What one turn made true: the frames of its events, the room that was planned for them, and
    what is reserved and shown once they are written."""

    frames: Frames = field(default_factory=Frames)
    planned_bytes: int = 0
    owed: dict[int, _Owed] = field(default_factory=dict)
    reserved: list[tuple[Topic, int]] = field(default_factory=list)


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
        broken: Called where an event became true in part; a server's process ends there.
    """

    def __init__(
        self,
        limits: Limits,
        state: State,
        *,
        published: Callable[[Topic], None],
        settled: Callable[[Topic], None],
        removed: Callable[[Topic], None],
        broken: Callable[[StateUnknown], None],
    ) -> None:
        self.state = state
        self.admission = Admission(limits, state, expire_due=self.expire_due)
        self._max_hot_bytes = limits.max_hot_bytes
        self._came_in = 0
        self._relief = Relief(limits, state, self.admission.first_held, self._evict)
        self.read_only = False
        self.wakes: list[Wake] = []
        self.fetches: list[Fetch] = []
        self._published = published
        self._settled = settled
        self._removed = removed
        self._broken = broken
        self._unit = _Unit()
        self._on_its_way: _Unit | None = None
        self._expired: set[int] = set()
        self._reservations: deque[tuple[int, Topic, int]] = deque()
        self._unsynced: dict[int, tuple[Topic, deque[tuple[int, int]]]] = {}
        self._written: deque[tuple[int, Topic, int]] = deque()

    def advance(self, now_ms: int) -> int:
        """Engine time: the wall clock, unless that has fallen below what was seen before."""
        self.state.now_ms = max(self.state.now_ms, now_ms)
        return self.state.now_ms

    def in_engine_time(self, moment: Moment) -> Moment:
        """The moment with a time that does not run backwards."""
        now_ms = self.advance(moment.now_ms)
        return moment if now_ms == moment.now_ms else Moment(now_ms, moment.room)

    def room(self, moment: Moment, *, reserve: bool = False) -> int:
        """Bytes that the log takes beside what is planned already, in this turn or on its way."""
        return moment.room(reserve) - self.planned_bytes

    @property
    def planned_bytes(self) -> int:
        """Room in the log that is planned for and not written yet; at least the frames' bytes."""
        on_its_way = self._on_its_way
        return self._unit.planned_bytes + (on_its_way.planned_bytes if on_its_way else 0)

    # ------------------------------------------------------------------ the shell's reports

    def take_frames(self) -> Frames:
        """End the turn: its events, for one write; `on_written` or `on_failed` must follow before
        the next is taken."""
        assert self._on_its_way is None
        unit, self._unit = self._unit, _Unit()
        self._on_its_way = unit
        return unit.frames

    @property
    def has_events(self) -> bool:
        """Whether something was made true since the last turn ended that the log must hold."""
        return self._unit.frames.count > 0

    def on_written(self, lsn: int) -> None:
        """The events that were taken last are in the log: publish what that is enough for."""
        unit, self._on_its_way = self._on_its_way, None
        assert unit is not None
        for topic, through in unit.reserved:
            self._reservations.append((lsn, topic, through))
        for owed in unit.owed.values():
            if owed.written is not None:
                if owed.topic.config.durability == "disk":
                    self._written.append((lsn, owed.topic, owed.written))
                else:
                    owed.topic.synced_seq = owed.written
                self._publish(owed.topic, owed.written)
            if owed.synced is not None:
                waits = self._unsynced.setdefault(owed.topic.topic_id, (owed.topic, deque()))[1]
                waits.append((lsn, owed.synced))

    def on_synced(self, lsn: int) -> None:
        """The log is durable up to `lsn`."""
        while self._reservations and self._reservations[0][0] <= lsn:
            _, topic, through = self._reservations.popleft()
            topic.reserved_durably = max(topic.reserved_durably, through)
        for topic_id, (topic, waits) in list(self._unsynced.items()):
            head_seq = 0
            while waits and waits[0][0] <= lsn:
                head_seq = waits.popleft()[1]
            if not waits:
                del self._unsynced[topic_id]
            if head_seq:
                topic.synced_seq = head_seq
                self._publish(topic, head_seq)
        while self._written and self._written[0][0] <= lsn:
            _, topic, head_seq = self._written.popleft()
            topic.synced_seq = max(topic.synced_seq, head_seq)
            self._settled(topic)

    def on_failed(self) -> None:
        """A write or sync failed: nothing more is written or published; reads go on."""
        self.read_only = True
        self._unit = _Unit()
        self._on_its_way = None
        self._unsynced.clear()
        self._written.clear()

    def _needs_sync(self, topic: Topic) -> bool:
        return topic.config.durability == "fsync" or topic.head_seq > topic.reserved_durably

    def owe(self, topic: Topic) -> bool:
        """Whether a sync has to cover the topic's new head, or an earlier one, before it is shown."""
        owed = self._unit.owed.setdefault(topic.topic_id, _Owed(topic))
        waits = owed.synced is not None or topic.topic_id in self._unsynced
        if waits or self._will_wait(topic) or self._needs_sync(topic):
            owed.synced = topic.head_seq
            return True
        owed.written = topic.head_seq
        return False

    def _will_wait(self, topic: Topic) -> bool:
        """Whether what is on its way will have to be synced before it is shown."""
        unit = self._on_its_way
        owed = unit.owed.get(topic.topic_id) if unit is not None else None
        return owed is not None and owed.synced is not None

    def _publish(self, topic: Topic, head_seq: int) -> None:
        topic.published_seq = head_seq
        self._published(topic)

    def show_all(self, topic: Topic) -> None:
        """After recovery: what was found is there, durable and shown."""
        topic.published_seq = topic.synced_seq = topic.head_seq
        topic.reserved_durably = topic.reserved_through
        self._unit.owed.pop(topic.topic_id, None)

    def hold_back(self, topic: Topic) -> None:
        """What is shown from now on waits for a sync that covers the present head."""
        self._unit.owed.setdefault(topic.topic_id, _Owed(topic)).synced = topic.head_seq

    def drop(self, topic: Topic) -> None:
        """The topic was deleted: nobody is shown any more of it."""
        for unit in (self._unit, self._on_its_way):
            if unit is not None:
                unit.owed.pop(topic.topic_id, None)
        self._unsynced.pop(topic.topic_id, None)

    # ------------------------------------------------------------------ changes

    def emit(self, event: Event, *, logged: bool = True, log_bytes: int = FRAME_BYTES) -> None:
        """Make an event true, and have it written with this turn unless it is not `logged`.

        Its frame is there before it is true: after that no memory is needed to write it.

        Raises:
            StateUnknown: It is true in part.  The process must end.
        """
        if logged:
            unit = self._unit
            unit.frames.add(encode(event))
            unit.planned_bytes += log_bytes
        try:
            self.state.apply(event)
        except BaseException as error:
            broken = StateUnknown(f"{type(event).__name__} could not be applied: {error!r}")
            broken.__cause__ = error
            self._broken(broken)
            raise broken from error
        if logged and isinstance(
            event, RecordsAppended | TopicConfigured | FloorsRaised | TopicDeleted
        ):
            self._expired.discard(event.topic_id)

    def topic(self, name: str, now_ms: int) -> Topic:
        """A topic that exists, with what time took from it gone.  Raises Rejection: 404."""
        topic = self.state.topics.get(name)
        if topic is None:
            raise no_such_topic(name)
        self.expire(topic, now_ms)
        return topic

    def expire(self, topic: Topic, now_ms: int) -> None:
        expiry = topic.expiry(now_ms)
        if expiry is not None:
            self.state.apply_expiry(topic, expiry)
            self._expired.add(topic.topic_id)

    def expire_due(self, now_ms: int, limit: int = EXPIRE_MAX) -> bool:
        """Let pass what time took of any topic, of so many of them that have waited longest;
        whether there was one."""
        for looks in range(limit):
            topic = self.state.take_due(now_ms)
            if topic is None:
                return looks > 0
            self.expire(topic, now_ms)
            self.state.time_again(topic)
        return limit > 0

    def relieve(self, now_ms: int) -> None:
        """Where what was let in is more than memory may hold, let records go that are in it only."""
        state = self.state
        if state.logged_bytes + state.volatile_bytes > self._max_hot_bytes and not self.read_only:
            self.expire_due(now_ms, DUE_MAX)
            self._relief.relieve(self._came_in)
        self._came_in = 0

    def _evict(self, topic: Topic, event: FloorsRaised) -> None:
        self.emit(event, logged=holds_logged(topic))

    def log_expiry(self, topic: Topic, now_ms: int) -> None:
        """Expiry is no event, since time tells it again; but before an event that goes by what it
        left, it has to be told, or a replay would let the same records expire twice."""
        if topic.topic_id in self._expired:
            self.emit(
                FloorsRaised(now_ms, topic.topic_id, topic.floors, topic.count, topic.size_bytes)
            )

    def require_writable(
        self, moment: Moment, need: int = FRAME_BYTES, *, reserve: bool = False
    ) -> None:
        """Raises Rejection: 503 where nothing is written any more, 429 where so many bytes do not
        fit into the log; what needs none of them is not logged."""
        if self.read_only:
            raise Rejection(
                ErrorCode.NOT_READY,
                "the log is read-only after a failed write; nothing was applied",
                {"reason": "read_only"},
            )
        if need and (room := self.room(moment, reserve=reserve)) < need:
            raise Rejection(
                ErrorCode.THROTTLED,
                f"the disk is full: a write of up to {need} bytes does not fit",
                {"limit": "disk", "max": max(room, 0)},
                retry_after_s=5,
                need_bytes=need,
            )

    def create(self, created: TopicCreated) -> Topic:
        """Its first seqs are reserved with it, so that the first write needs no sync for that."""
        self.emit(created)
        topic = self.state.by_id[created.topic_id]
        self._unit.reserved.append((topic, topic.reserved_through))
        return topic

    def log_append(
        self, topic: Topic, event: RecordsAppended, log_bytes: int, *, volatile: bool
    ) -> None:
        reserved, floors = topic.reserved_through, topic.floors
        self.emit(event, logged=not volatile, log_bytes=log_bytes)
        if volatile:
            self._came_in += hot_bytes_of(event.batch)
        if topic.reserved_through > reserved:
            self._unit.reserved.append((topic, topic.reserved_through))
            if volatile:
                self.emit(SeqsReserved(event.now_ms, topic.topic_id, topic.reserved_through))
        if volatile and event.floors != floors and holds_logged(topic):
            self.emit(
                FloorsRaised(
                    event.now_ms, topic.topic_id, event.floors, event.count, event.size_bytes
                )
            )

    def copy_into(
        self,
        dest: Topic,
        copies: Copies,
        cause: Cause,
        moment: Moment,
        *,
        freed_bytes: int = 0,
    ) -> Gate:
        """Append copies to a topic, and make their cause true, in one entry of the log.

        Where the destination's records are in no log (`ephemeral`), what they cause is logged alone.

        Returns:
            What must have happened before the copies are shown.

        Raises:
            Rejection: The destination does not take them, or the log does not; nothing changed.
        """
        event, log_bytes = self.admit(dest, copies, cause, moment, freed_bytes=freed_bytes)
        volatile = dest.config.durability == "ephemeral"
        self.log_append(dest, event, log_bytes, volatile=volatile)
        if volatile:
            match cause:
                case Forwarded(router_id, cursor):
                    self.emit(CursorsMoved(moment.now_ms, [(router_id, cursor, len(copies))]))
                case DeadLettered():
                    self._delete_buried(cause, moment.now_ms)
        return Gate.SYNCED if self.owe(dest) else Gate.WRITTEN

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
        volatile = dest.config.durability == "ephemeral"
        event, log_bytes = self.admission.copied(
            dest, copies, moment.now_ms, cause=None if volatile else cause, freed_bytes=freed_bytes
        )
        if volatile:
            log_bytes = 2 * FRAME_BYTES
        if isinstance(cause, DeadLettered):
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
            self._unit.reserved.append((dest, dest.reserved_through))
        self.owe(dest)

    def _delete_buried(self, cause: DeadLettered, now_ms: int) -> None:
        queue = self.state.by_id[cause.queue_id]
        event = RecordsDeleted(
            now_ms, queue.topic_id, cause.spans, cause.count, cause.size_bytes, cause.jobs
        )
        logged = queue.config.durability != "ephemeral" or holds_logged(queue)
        self.emit(event, logged=logged, log_bytes=FRAME_BYTES + len(event.spans))

    def remove(self, topic: Topic, seqs: NDArray[np.uint64], moment: Moment) -> tuple[int, Gate]:
        """Delete live records by seq; returns how many, and when to say so."""
        if not len(seqs):
            return 0, self.repeated(topic)
        spans = seq_spans(seqs)
        size_bytes = 0
        for run, rows in topic.rows_of(spans):
            size_bytes += int(topic.sizes(run)[rows].sum(dtype=np.int64))
        raw = spans.astype("<u8", copy=False).tobytes()
        return len(seqs), self.remove_spans(topic, raw, len(seqs), size_bytes, moment)

    def remove_spans(
        self,
        topic: Topic,
        spans: bytes,
        records: int,
        size_bytes: int,
        moment: Moment,
        marks: Sequence[Marks] = (),
    ) -> Gate:
        """Delete live records by spans and marks of seqs, as `RecordsDeleted` and `ScatteredDeleted`
        have them, of which it is known how many records and bytes of text they hold; returns when to
        say so."""
        log_bytes = len(spans) + sum(MARKS_BYTES + len(m.bits) for m in marks) + FRAME_BYTES
        self.require_writable(moment, log_bytes, reserve=True)
        logged = topic.config.durability != "ephemeral" or holds_logged(topic)
        if logged:
            self.log_expiry(topic, moment.now_ms)
        count, size_bytes = topic.count - records, topic.size_bytes - size_bytes
        event: Event
        if marks:
            event = ScatteredDeleted(moment.now_ms, topic.topic_id, spans, marks, count, size_bytes)
        else:
            event = RecordsDeleted(moment.now_ms, topic.topic_id, spans, count, size_bytes)
        self.emit(event, logged=logged, log_bytes=log_bytes)
        self._removed(topic)
        return self.repeated(topic)

    def repeated(self, topic: Topic) -> Gate:
        """A delete that finds nothing may repeat one that is still on its way to the disk."""
        return Gate.SYNCED if topic.config.durability == "fsync" else Gate.WRITTEN


def holds_logged(topic: Topic) -> bool:
    """Whether a restart would bring back any of the topic's runs."""
    return len(topic.runs) > topic.volatile_runs


def no_such_topic(name: str) -> Rejection:
    return Rejection(ErrorCode.TOPIC_NOT_FOUND, f'topic "{name}" does not exist', {"topic": name})
