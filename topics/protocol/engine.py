"""The engine: commands in, outcomes out; the only place where two rules meet.

For each command: let pass what time took, decide (which reads and may refuse), apply the events,
say what to answer and when.  The shell then owes the engine four reports: `on_written` after the
turn's one write, `on_synced` after a sync, `on_failed` after either failed, and `timeout` for a
parked command.  In return it gets `take_events` (what to write) and `take_wakes` (whom to answer).

What readers see is `published_seq`, which moves with the write, or with the sync where the
topic's class or an unreserved seq asks for it.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from topics.protocol.admission import FRAME_BYTES, Admission
from topics.protocol.commands import (
    Append,
    Begin,
    Command,
    CreateWatch,
    DeleteRecords,
    DeleteTopic,
    Diff,
    GetTopic,
    ListTopics,
    Purge,
    PutTopic,
    View,
)
from topics.protocol.effects import Gate, Outcome, Parked, Wake
from topics.protocol.errors import ErrorCode, Rejection
from topics.protocol.events import (
    Event,
    FloorsRaised,
    RecordsAppended,
    RecordsDeleted,
    SeqsReserved,
    TailLost,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
)
from topics.protocol.limits import Limits, throttled
from topics.protocol.models import TopicConfig
from topics.protocol.ports import Recovery, RunSource
from topics.protocol.replies import (
    append_head,
    delete_outcome,
    diff_outcome,
    effective_priority,
    list_cursor,
    open_object,
    put_outcome,
    summary,
)
from topics.protocol.sse import composite, parse_composite
from topics.protocol.state import State, floors_with
from topics.protocol.topic import (
    NOTHING_REMOVED,
    Reading,
    Selection,
    Tombstone,
    Topic,
    seq_spans,
)
from topics.protocol.watch import (
    SESSION_TTL_MS,
    Frame,
    Remembered,
    Session,
    Stream,
    Watched,
    Watches,
    begin_at,
    own_view,
)


@dataclass(slots=True)
class _Waiting:
    """A parked long poll and the cursor that it has reached meanwhile."""

    command: Diff
    token: object
    reading: Reading


@dataclass(slots=True)
class _Owed:
    """What this turn's appends to a topic have still to show: the head that the write is enough
    for, and the head that a sync must cover; None where there is none.  Fixed when each append is
    decided, so that a change of the class in the same turn changes no earlier promise."""

    topic: Topic
    written: int | None = None
    synced: int | None = None


class Engine:
    """One engine over one store.

    Args:
        limits: Every bound in force.
        store: Whose sealed runs are opened and whose instance id is part of every epoch; the
            engine asks nothing else of it.
    """

    def __init__(self, limits: Limits, store: RunSource) -> None:
        self.limits = limits
        self.state = State(limits, store)
        self._admission = Admission(limits, self.state)
        self.read_only = False
        self._events: list[Event] = []
        self._log_bytes_planned = 0
        self._owed: dict[int, _Owed] = {}
        self._expired: set[int] = set()
        self._reserved: list[tuple[Topic, int]] = []
        self._reservations: deque[tuple[int, Topic, int]] = deque()
        self._unsynced: dict[int, tuple[Topic, deque[tuple[int, int]]]] = {}
        self._parked: dict[int, dict[object, _Waiting]] = {}
        self._wakes: list[Wake] = []
        self._written: deque[tuple[int, Topic, int]] = deque()
        self.watches = Watches(self._shown)
        self._decide: dict[type, Callable[[Any, int, Callable[[bool], int]], Outcome]] = {
            PutTopic: self._put_topic,
            GetTopic: self._get_topic,
            ListTopics: self._list_topics,
            DeleteTopic: self._delete_topic,
            Append: self._append,
            CreateWatch: self._create_watch,
            DeleteRecords: self._delete_records,
            Purge: self._purge,
        }

    # ------------------------------------------------------------------ the shell's side

    def submit(
        self, command: Command, *, token: object, now_ms: int, room: Callable[[bool], int]
    ) -> Outcome | Parked:
        """Decide a command and make what it decides true.

        Args:
            token: Comes back with the wake of a command that parks.
            now_ms: Wall clock; never taken to run backwards.
            room: Bytes of frames that the log is sure to take, given whether the reserve counts.

        Raises:
            Rejection: Nothing has changed, but for what time took.
        """
        now_ms = self.advance(now_ms)
        if isinstance(command, Diff):
            return self._diff(command, token, now_ms)
        planned = self._log_bytes_planned
        return self._decide[type(command)](command, now_ms, lambda r: room(r) - planned)

    def advance(self, now_ms: int) -> int:
        """Engine time: the wall clock, unless that has fallen below what was seen before."""
        self.state.now_ms = max(self.state.now_ms, now_ms)
        return self.state.now_ms

    def take_events(self) -> list[Event]:
        """The events of this turn, for one write; `on_written` or `on_failed` must follow."""
        events, self._events = self._events, []
        self._log_bytes_planned = 0
        return events

    @property
    def has_events(self) -> bool:
        return bool(self._events)

    def on_written(self, lsn: int) -> None:
        """The turn's events are in the log: publish what that is enough for."""
        for topic, through in self._reserved:
            self._reservations.append((lsn, topic, through))
        self._reserved.clear()
        for owed in self._owed.values():
            if owed.written is not None:
                if owed.topic.config.durability == "disk":
                    self._written.append((lsn, owed.topic, owed.written))
                else:
                    owed.topic.synced_seq = owed.written
                self._publish(owed.topic, owed.written)
            if owed.synced is not None:
                waits = self._unsynced.setdefault(owed.topic.topic_id, (owed.topic, deque()))[1]
                waits.append((lsn, owed.synced))
        self._owed.clear()

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
            self.watches.on_published(topic.topic_id)

    def on_failed(self) -> None:
        """A write or sync failed: nothing more is written or published; reads go on."""
        self.read_only = True
        self._events.clear()
        self._owed.clear()
        self._unsynced.clear()
        self._written.clear()

    def take_wakes(self) -> list[Wake]:
        wakes, self._wakes = self._wakes, []
        return wakes

    def timeout(self, topic_name: str, token: object) -> None:
        """A parked command's time is over: it is answered with what there is, which is nothing."""
        topic = self.state.topics.get(topic_name)
        waiting = self._unpark(topic, token)
        if topic is not None and waiting is not None:
            self._wake_with_page(topic, waiting)

    def forget(self, topic_name: str, token: object) -> None:
        """The client of a parked command is gone."""
        self._unpark(self.state.topics.get(topic_name), token)

    def release_all(self) -> None:
        """Answer every parked command: the server is stopping."""
        for topic_id, waiting in list(self._parked.items()):
            topic = self.state.by_id.get(topic_id)
            for one in waiting.values():
                if topic is not None:
                    self._wake_with_page(topic, one)
        self._parked.clear()

    def finish_recovery(self, recovery: Recovery, now_ms: int) -> None:
        """After replay: say what a crash may have taken, and show the rest (loss is explicit).

        After a power loss, a topic whose acknowledged tail may be gone goes on behind its
        reservation; what an `ephemeral` topic held is gone after any end but its head is kept.
        """
        now_ms = self.advance(now_ms)
        for topic in self.state.by_id.values():
            durability = topic.config.durability
            first, last = topic.head_seq + 1, topic.reserved_through
            uncertain = durability == "ephemeral" or not (
                recovery.same_boot or durability == "fsync"
            )
            if recovery.clean or not uncertain or not self._was_used(topic):
                last = topic.head_seq
            if topic.topic_id in self.state.lossy or first <= last:
                count, size_bytes = self.state.recount(topic)
                lost = TailLost(now_ms, topic.topic_id, first, last, "crash", count, size_bytes)
                self.emit(lost)
            topic.published_seq = topic.synced_seq = topic.head_seq
            topic.reserved_durably = topic.reserved_through
        self._owed.clear()

    @staticmethod
    def _was_used(topic: Topic) -> bool:
        return topic.reserved_through > topic.head_seq

    # ------------------------------------------------------------------ publishing and waiting

    def _needs_sync(self, topic: Topic) -> bool:
        return topic.config.durability == "fsync" or topic.head_seq > topic.reserved_durably

    def _owe(self, topic: Topic) -> bool:
        """Whether a sync has to cover the topic's new head, or an earlier one, before it is shown."""
        owed = self._owed.setdefault(topic.topic_id, _Owed(topic))
        waits = owed.synced is not None or topic.topic_id in self._unsynced
        if waits or self._needs_sync(topic):
            owed.synced = topic.head_seq
            return True
        owed.written = topic.head_seq
        return False

    def _publish(self, topic: Topic, head_seq: int) -> None:
        topic.published_seq = head_seq
        self.watches.on_published(topic.topic_id)
        parked = self._parked.get(topic.topic_id)
        if parked:
            for waiting in list(parked.values()):
                self._look_again(topic, waiting)

    def _look_again(self, topic: Topic, waiting: _Waiting) -> None:
        page = topic.select(waiting.reading)
        if not _is_idle(topic, page):
            self._unpark(topic, waiting.token)
            outcome = diff_outcome(topic, page, waiting.command)
            self._wakes.append(Wake(waiting.token, outcome))
        else:
            waiting.reading = _moved(waiting.reading, page.next_seq)

    def _wake_with_page(self, topic: Topic, waiting: _Waiting) -> None:
        page = topic.select(waiting.reading)
        self._wakes.append(Wake(waiting.token, diff_outcome(topic, page, waiting.command)))

    def _unpark(self, topic: Topic | None, token: object) -> _Waiting | None:
        parked = self._parked.get(topic.topic_id) if topic is not None else None
        if topic is None or parked is None:
            return None
        waiting = parked.pop(token, None)
        if not parked:
            del self._parked[topic.topic_id]
        return waiting

    def emit(self, event: Event, *, logged: bool = True, log_bytes: int = FRAME_BYTES) -> None:
        """Make an event true, and have it written with this turn unless it is not `logged`."""
        self.state.apply(event)
        if logged:
            if isinstance(event, RecordsAppended | TopicConfigured | FloorsRaised | TopicDeleted):
                self._expired.discard(event.topic_id)
            self._events.append(event)
            self._log_bytes_planned += log_bytes

    # ------------------------------------------------------------------ topics

    def _topic(self, name: str, now_ms: int) -> Topic:
        """A topic that exists, with what time took from it gone."""
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

    def log_expiry(self, topic: Topic, now_ms: int) -> None:
        """Expiry is no event, since time tells it again; but before an event that goes by what it
        left, it has to be told, or a replay would let the same records expire twice."""
        if topic.topic_id in self._expired:
            self.emit(
                FloorsRaised(now_ms, topic.topic_id, topic.floors, topic.count, topic.size_bytes)
            )

    def _require_writable(self, room: int, need: int = FRAME_BYTES) -> None:
        if self.read_only:
            raise Rejection(
                ErrorCode.NOT_READY,
                "the log is read-only after a failed write; nothing was applied",
                {"reason": "read_only"},
            )
        if room < need:
            raise Rejection(
                ErrorCode.THROTTLED,
                f"the disk is full: a write of up to {need} bytes does not fit",
                {"limit": "disk", "max": max(room, 0)},
                retry_after_s=5,
            )

    def _put_topic(self, command: PutTopic, now_ms: int, room: Callable[[bool], int]) -> Outcome:
        """§1.1: create, or replace the config; an identical one changes nothing."""
        topic = self.state.topics.get(command.topic)
        config = command.config
        if topic is None:
            self._require_writable(room(False))
            self._create(self._admission.creation(command.topic, config, now_ms))
            return put_outcome(command.topic, config, created=True)
        if not command.type_given:
            config = _with_type(config, topic.config.type)
        if config.type != topic.config.type:
            raise Rejection(
                ErrorCode.TOPIC_EXISTS_INCOMPATIBLE,
                f'topic "{topic.name}" is a {topic.config.type}; its type cannot change',
                {"topic": topic.name, "type": topic.config.type},
            )
        if config == topic.config:
            return put_outcome(topic.name, config, created=False)
        self._require_writable(room(False))
        self.expire(topic, now_ms)
        promised = topic.config.durability == "fsync"
        self.emit(self._configured(topic, config, now_ms))
        if promised:
            # Until the new class is durable a power loss may bring the old one back, under which
            # no seq is skipped: what is shown meanwhile must be as durable as it promises.
            self._owed.setdefault(topic.topic_id, _Owed(topic)).synced = topic.head_seq
        self.expire(topic, now_ms)
        return put_outcome(topic.name, config, created=False)

    def _configured(self, topic: Topic, config: TopicConfig, now_ms: int) -> TopicConfigured:
        """Tightened caps evict at once; the newest record stays."""
        evicted = None
        if config.discard == "old":
            evicted = topic.eviction(
                topic.count - config.cap_records if config.cap_records else 0,
                topic.size_bytes - config.cap_bytes if config.cap_bytes else 0,
                before_seq=topic.head_seq,
            )
        gone = evicted or NOTHING_REMOVED
        return TopicConfigured(
            now_ms,
            topic.topic_id,
            config,
            topic.head_seq,
            floors_with(topic.floors, cap_through=gone.through),
            topic.count - gone.records,
            topic.size_bytes - gone.size_bytes,
        )

    def _get_topic(self, command: GetTopic, now_ms: int, _: object) -> Outcome:
        """§1.2."""
        topic = self._topic(command.topic, now_ms)
        count, size_bytes = topic.shown()
        state: dict[str, object] = {
            "topic": topic.name,
            "type": topic.config.type,
            "epoch": topic.epoch,
            "head_seq": topic.published_seq,
            "earliest_seq": topic.earliest_seq,
            "next_seq": topic.published_seq + 1,
            "count": count,
            "bytes": size_bytes,
            "config": topic.config,
            "effective_priority": effective_priority(topic, now_ms),
            "last_write_ts": topic.last_write_ms,
            "last_read_ts": topic.last_read_ms,
        }
        if topic.config.type == "queue":
            state["queue"] = {"ready": count, "in_flight": 0, "dead_lettered": 0}
        if command.touch:
            topic.last_read_ms = now_ms
        return Outcome([open_object(state)])

    def _list_topics(self, command: ListTopics, now_ms: int, _: object) -> Outcome:
        """§1.3: by name, so that a page goes on rightly whatever came and went between."""
        names = self.state.names
        start = bisect_left(names, max(command.prefix, command.after))
        if start < len(names) and names[start] == command.after:
            start += 1
        page = names[start : start + command.page_size + 1]
        page = [name for name in page if name.startswith(command.prefix)]
        topics = [self._topic(name, now_ms) for name in page[: command.page_size]]
        answer: dict[str, object] = {"topics": [summary(t, now_ms) for t in topics]}
        if command.touch:
            for topic in topics:
                topic.last_read_ms = now_ms
        if len(page) > command.page_size:
            answer["next_cursor"] = list_cursor(page[command.page_size - 1])
        return Outcome([open_object(answer)])

    def _delete_topic(
        self, command: DeleteTopic, now_ms: int, room: Callable[[bool], int]
    ) -> Outcome:
        """§1.4."""
        topic = self.state.topics.get(command.topic)
        answer = {"topic": command.topic, "deleted": topic is not None, "routers_removed": []}
        if topic is None:
            # What this repeats may still be on its way to the disk.
            return Outcome([open_object(answer)], gate=Gate.SYNCED)
        self.expire(topic, now_ms)
        if command.if_empty and topic.count:
            raise Rejection(
                ErrorCode.TOPIC_NOT_EMPTY,
                f'topic "{topic.name}" holds {topic.count} records',
                {"topic": topic.name, "count": topic.count},
            )
        self._require_writable(room(True))
        head_seq = topic.published_seq
        self.emit(TopicDeleted(now_ms, topic.topic_id))
        self._owed.pop(topic.topic_id, None)
        self._unsynced.pop(topic.topic_id, None)
        self.watches.on_deleted(topic.topic_id, head_seq)
        for waiting in self._parked.pop(topic.topic_id, {}).values():
            self._wakes.append(Wake(waiting.token, no_such_topic(topic.name)))
        return Outcome([open_object(answer)], gate=Gate.SYNCED, logs=True)

    # ------------------------------------------------------------------ append

    def _append(self, command: Append, now_ms: int, room: Callable[[bool], int]) -> Outcome:
        """§2: all records or none, with contiguous seqs."""
        topic = self.state.topics.get(command.topic)
        created: TopicCreated | None = None
        if topic is None:
            create = command.config.auto_create if command.create is None else command.create
            if not create:
                raise no_such_topic(command.topic)
            created = self._admission.creation(command.topic, command.config, now_ms)
            topic = Topic(created.topic_id, created.name, created.config, "")
        else:
            self.expire(topic, now_ms)
            known = self._remembered(topic, command, now_ms)
            if known is not None:
                return known
        event, log_bytes = self._admission.appended(topic, command, now_ms)
        volatile = topic.config.durability == "ephemeral"
        need = FRAME_BYTES if volatile else log_bytes
        self._require_writable(room(False), need + (FRAME_BYTES if created else 0))
        if created is not None:
            topic = self._create(created)
        self._log_append(topic, event, log_bytes, volatile=volatile)
        synced = self._owe(topic)
        return Outcome(
            [append_head(topic.name, event.first_seq, len(event.batch), command.return_seqs),
             b'"head_seq":%d,"count":%d,"created":%b,"deduped":false'
             % (topic.head_seq, len(event.batch), b"true" if created else b"false")],
            status=201 if created else 200,
            gate=Gate.SYNCED if synced else Gate.WRITTEN,
            logs=True,
            is_fsync=topic.config.durability == "fsync",
        )  # fmt: skip

    def _create(self, created: TopicCreated) -> Topic:
        """Its first seqs are reserved with it, so that the first write needs no sync for that."""
        self.emit(created)
        topic = self.state.by_id[created.topic_id]
        self._reserved.append((topic, topic.reserved_through))
        return topic

    def _remembered(self, topic: Topic, command: Append, now_ms: int) -> Outcome | None:
        """The answer of a batch that came before under the same key (§0.8)."""
        window_ms = topic.config.idempotency_window_ms
        if not command.key or not window_ms:
            return None
        keys = self.state.keys[topic.topic_id]
        entry = keys.find(command.key, now_ms=now_ms, window_ms=window_ms)
        if entry is None:
            return None
        last_seq = entry.first_seq + entry.records - 1
        head_seq = max(topic.published_seq, last_seq)
        return Outcome(
            [append_head(topic.name, entry.first_seq, entry.records, command.return_seqs),
             b'"head_seq":%d,"count":%d,"created":false,"deduped":true'
             % (head_seq, entry.records)],
            gate=Gate.NOW if last_seq <= topic.published_seq else Gate.SYNCED,
        )  # fmt: skip

    def _log_append(
        self, topic: Topic, event: RecordsAppended, log_bytes: int, *, volatile: bool
    ) -> None:
        reserved, floors = topic.reserved_through, topic.floors
        self.emit(event, logged=not volatile, log_bytes=log_bytes)
        if topic.reserved_through > reserved:
            self._reserved.append((topic, topic.reserved_through))
            if volatile:
                self.emit(SeqsReserved(event.now_ms, topic.topic_id, topic.reserved_through))
        if volatile and event.floors != floors and _holds_logged(topic):
            self.emit(
                FloorsRaised(
                    event.now_ms, topic.topic_id, event.floors, event.count, event.size_bytes
                )
            )

    # ------------------------------------------------------------------ read

    def _diff(self, command: Diff, token: object, now_ms: int) -> Outcome | Parked:
        """§3."""
        topic = self._topic(command.topic, now_ms)
        topic.last_read_ms = now_ms
        reading, recreated = _reading(topic, command)
        page = topic.select(reading)
        if recreated is not None:
            page.tombstone = recreated
        if not command.wait_ms or not _is_idle(topic, page):
            return diff_outcome(topic, page, command)
        waiting = _Waiting(command, token, _moved(reading, page.next_seq))
        self._parked.setdefault(topic.topic_id, {})[token] = waiting
        return Parked(command.wait_ms)

    # ------------------------------------------------------------------ watch

    def _create_watch(self, command: CreateWatch, now_ms: int, _: object) -> Outcome:
        """§7.2: a session with a position in each topic; no stream is open yet."""
        self.watches.forget_idle(now_ms)
        limit = self.limits.max_watch_sessions
        if limit and len(self.watches.sessions) >= limit:
            raise throttled("max_watch_sessions", limit)
        watched: dict[str, Watched] = {}
        for name, begin in command.topics.items():
            if command.lenient and name not in self.state.topics:
                continue
            topic = self._topic(name, now_ms)
            topic.last_read_ms = now_ms
            view = own_view(command.view, begin)
            cursor = command.cursors.get(name, begin_at(topic, begin))
            watched[name] = Watched(name, topic.topic_id, cursor, view)
        session = Session(command.wid, watched, command.heartbeat_ms, now_ms)
        self.watches.add_session(session)
        return Outcome([open_object(self._watch_answer(session))])

    def _watch_answer(self, session: Session) -> dict[str, object]:
        return {
            "wid": session.wid,
            "stream_url": f"/v0/watch/{session.wid}",
            "session_ttl_ms": SESSION_TTL_MS,
            "heartbeat_ms": session.heartbeat_ms,
            "cursor": composite(session.watched.values()).decode(),
            "topics": {w.name: self.position(w) for w in session.watched.values()},
        }

    def position(self, watched: Watched) -> dict[str, object]:
        """Where a reader stands in a topic, as `POST /v0/watch` and `subscribed` tell it."""
        topic = self.state.by_id[watched.topic_id]
        return {
            "from_seq": watched.cursor,
            "head_seq": topic.published_seq,
            "earliest_seq": topic.earliest_seq,
            "epoch": topic.epoch,
        }

    def open_stream(
        self, wid: str, rewind: str | None, wake: Callable[[], None], now_ms: int
    ) -> tuple[Session, Stream]:
        """Open the stream of a session (§7.3); `rewind` is a composite id that the client kept.

        Raises:
            Rejection: 404 for an unknown or expired `wid`, 429 for too many connections.
        """
        now_ms = self.advance(now_ms)
        self.watches.forget_idle(now_ms)
        session = self.require_session(wid)
        self._require_connection_slot(taken_over=session.stream is not None)
        known = Remembered()
        if rewind is not None:
            known = parse_composite(rewind, list(session.watched)) or known
        return session, self.watches.open(session, wake, known, now_ms)

    def require_session(self, wid: str) -> Session:
        """The session of a `wid`, which is not touched; 404 where there is none."""
        session = self.watches.sessions.get(wid)
        if session is None:
            raise Rejection(ErrorCode.NOT_FOUND, "no such watch session; post a new one")
        return session

    def open_socket(self, wake: Callable[[], None]) -> Stream:
        """A WebSocket's stream, with nothing subscribed yet (§7.7)."""
        self._require_connection_slot(taken_over=False)
        return self.watches.open_socket(wake)

    def subscribe(
        self, stream: Stream, topics: Mapping[str, Begin], view: View, now_ms: int
    ) -> list[Watched]:
        """Add topics to a socket, all or none."""
        now_ms = self.advance(now_ms)
        limit = self.limits.max_watch_topics
        if len(stream.watched.keys() | topics.keys()) > limit:
            raise Rejection(ErrorCode.INVALID_REQUEST, f"a socket watches at most {limit} topics")
        added = []
        for name, begin in topics.items():
            topic = self._topic(name, now_ms)
            own = own_view(view, begin)
            added.append(Watched(name, topic.topic_id, begin_at(topic, begin), own))
        for watched in added:
            self.watches.subscribe(stream, watched)
        return added

    def next_frame(self, stream: Stream, now_ms: int) -> Frame | None:
        """What a stream that can take a frame gets; None where it has to wait for `wake`."""
        self.advance(now_ms)
        return self.watches.next_frame(stream, self._priority)

    def _shown(self, name: str) -> Topic | None:
        """A topic as a stream is to see it now."""
        topic = self.state.topics.get(name)
        if topic is not None:
            self.expire(topic, self.state.now_ms)
        return topic

    def _priority(self, name: str) -> int:
        topic = self.state.topics.get(name)
        return 0 if topic is None else effective_priority(topic, self.state.now_ms)

    def _require_connection_slot(self, *, taken_over: bool) -> None:
        limit = self.limits.max_sse_connections
        if limit and len(self.watches.streams) - taken_over >= limit:
            raise throttled("max_sse_connections", limit)

    # ------------------------------------------------------------------ delete

    def _delete_records(
        self, command: DeleteRecords, now_ms: int, room: Callable[[bool], int]
    ) -> Outcome:
        """§5: point-in-time, silent, idempotent."""
        topic = self._topic(command.topic, now_ms)
        before_seq = topic.head_seq + 1
        if command.before_seq is not None:
            before_seq = min(command.before_seq, before_seq)
        if command.match is None:
            seqs = list(topic.live_seqs(before_seq=before_seq))
        else:
            seqs = list(topic.matching(command.match, before_seq=before_seq))
        deleted, gate = self._remove(topic, _joined(seqs), now_ms, room)
        outcome = delete_outcome(topic, b'"deleted":%d' % deleted, gate)
        if command.erase:
            outcome.gate, outcome.erases = Gate.SYNCED, topic.topic_id
        return outcome

    def _purge(self, command: Purge, now_ms: int, room: Callable[[bool], int]) -> Outcome:
        """A delete in NATS's words (ADR-10)."""
        topic = self._topic(command.topic, now_ms)
        before_seq = topic.head_seq + 1
        if command.seq is not None:
            before_seq = min(command.seq, before_seq)
        if command.match is None:
            seqs = _joined(list(topic.live_seqs(before_seq=before_seq)))
        else:
            seqs = _joined(list(topic.matching(command.match, before_seq=before_seq)))
        if command.keep is not None:
            seqs = seqs[: max(len(seqs) - command.keep, 0)]
        purged, gate = self._remove(topic, seqs, now_ms, room)
        return delete_outcome(topic, b'"success":true,"purged":%d' % purged, gate)

    def _remove(
        self, topic: Topic, seqs: NDArray[np.uint64], now_ms: int, room: Callable[[bool], int]
    ) -> tuple[int, Gate]:
        """Delete live records by seq; returns how many, and when to say so."""
        if not len(seqs):
            return 0, self._settled(topic)
        spans = seq_spans(seqs)
        self._require_writable(room(True), spans.nbytes + FRAME_BYTES)
        logged = topic.config.durability != "ephemeral" or _holds_logged(topic)
        if logged:
            self.log_expiry(topic, now_ms)
        size_bytes = 0
        for run, rows in topic.rows_of(spans):
            size_bytes += int(run.columns.size[rows].sum(dtype=np.int64))
        event = RecordsDeleted(
            now_ms,
            topic.topic_id,
            spans.astype("<u8").tobytes(),
            topic.count - len(seqs),
            topic.size_bytes - size_bytes,
        )
        self.emit(event, logged=logged, log_bytes=len(event.spans) + FRAME_BYTES)
        self.watches.on_removed(topic.topic_id)
        return len(seqs), Gate.SYNCED if topic.config.durability == "fsync" else Gate.WRITTEN

    def _settled(self, topic: Topic) -> Gate:
        """A delete that finds nothing may repeat one that is still on its way to the disk."""
        return Gate.SYNCED if topic.config.durability == "fsync" else Gate.WRITTEN


def no_such_topic(name: str) -> Rejection:
    return Rejection(ErrorCode.TOPIC_NOT_FOUND, f'topic "{name}" does not exist', {"topic": name})


def _with_type(config: TopicConfig, kind: Any) -> TopicConfig:
    return msgspec.structs.replace(config, type=kind)


def _holds_logged(topic: Topic) -> bool:
    """Whether a restart would bring back any of the topic's runs."""
    return any(not getattr(run, "volatile", False) for run in topic.runs)


def _joined(seqs: list[NDArray[np.uint64]]) -> NDArray[np.uint64]:
    return np.concatenate(seqs) if seqs else np.empty(0, np.uint64)


def _reading(topic: Topic, command: Diff) -> tuple[Reading, Tombstone | None]:
    """The cursor a reader stands at, and the tombstone of one that is from another instance."""
    from_seq, recreated = command.from_seq, None
    if command.from_ts is not None:
        from_seq = topic.seek(command.from_ts)
    elif from_seq > topic.published_seq or (
        command.epoch is not None and command.epoch != topic.epoch
    ):
        recreated = Tombstone(1, topic.published_seq, "recreated")
        from_seq = topic.earliest_seq - 1
    skip = command.nodes if topic.config.dedupe_node else ()
    return (
        Reading(from_seq, command.limit, command.budget_bytes, skip, command.match),
        recreated,
    )


def _is_idle(topic: Topic, page: Selection) -> bool:
    """Whether a long poll has to wait: nothing to tell, and nothing more to look at.  A page that
    only skipped, and ended before the head, is told, so that the reader asks on (§3.2)."""
    return not page.count and page.tombstone is None and page.next_seq >= topic.published_seq


def _moved(reading: Reading, from_seq: int) -> Reading:
    return Reading(from_seq, reading.limit, reading.budget_bytes, reading.skip_nodes, reading.match)
