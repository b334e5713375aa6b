"""Watch commands: sessions, streams and sockets, as far as the state of topics decides (§7).

The joint between watches (positions and lifecycles, `state/watches.py`) and topics: which there are,
which comes first in a stream, and how much of it one holder may have.
"""

from collections.abc import Callable, Mapping
from typing import Any

from topics.protocol.commit.unit_of_work import UnitOfWork
from topics.protocol.decide.partial_scans import Openings
from topics.protocol.decide.topics import effective_priority, note_read
from topics.protocol.model.access import ANYONE, Caller, unknown_key
from topics.protocol.model.commands import Begin, CreateWatch, View
from topics.protocol.model.cursor import Remembered, composite, parse_composite
from topics.protocol.model.errors import DamagedRun, ErrorCode, Rejection
from topics.protocol.model.holder import NOBODY, Holder, holder_of
from topics.protocol.model.limits import Limits
from topics.protocol.model.moment import Moment
from topics.protocol.model.outcomes import Outcome, WatchCreated, WatchPosition
from topics.protocol.state.frames import Pulled
from topics.protocol.state.topic import Topic
from topics.protocol.state.watched import WATCHED_BYTES, Copies, Stream, Watched
from topics.protocol.state.watches import SESSION_TTL_MS, Session, Watches, begin_at, own_view


class WatchCommands:
    """Sessions and streams over the topics of one engine."""

    def __init__(
        self,
        limits: Limits,
        unit: UnitOfWork,
        copies_before: Callable[[Topic], Copies | None] = lambda _: None,
        gate: Callable[[Stream], bool] | None = None,
    ) -> None:
        self._limits = limits
        self._unit = unit
        self._gate = gate
        openings = Openings(unit, lambda topic_id: self.watches.on_published(topic_id))
        self.watches = Watches(self._shown, limits, copies_before, openings.awaits)
        self.commands: dict[type, Callable[[Any, Moment], Outcome]] = {
            CreateWatch: self._create_watch
        }

    def _create_watch(self, command: CreateWatch, moment: Moment) -> Outcome:
        """§7.2: a session with a position in each topic; no stream is open yet."""
        self.watches.forget_idle(moment.now_ms)
        owner, holder = command.caller, holder_of(command.caller, command.holder)
        self.watches.session_shares.require(holder)
        if not command.lenient:
            # What the topics take without their filters is known without a look at them: where that is
            # too much already, a flood of sessions is refused in microseconds.
            self.watches.byte_shares.require(holder, len(command.topics) * WATCHED_BYTES)
        watched: dict[str, Watched] = {}
        positions: dict[str, WatchPosition] = {}
        for name, begin in command.topics.items():
            if command.lenient and name not in self._unit.state.topics:
                continue
            topic = self._unit.partition(name, None, moment.now_ms)
            note_read(topic, moment.now_ms)
            view = own_view(command.view, begin)
            cursor = command.cursors.get(name, begin_at(topic, begin))
            watched[name] = Watched(name, topic.topic_id, cursor, view)
            positions[name] = _position(topic, cursor)
        session = Session(
            command.wid, watched, command.heartbeat_ms, moment.now_ms, holder=holder, owner=owner
        )
        self.watches.byte_shares.require(holder, session.memory_bytes)
        self.watches.add_session(session)
        return WatchCreated(
            session.wid,
            SESSION_TTL_MS,
            session.heartbeat_ms,
            composite(session.watched.values()).decode(),
            positions,
        )

    def position(self, watched: Watched) -> WatchPosition:
        """Where a reader stands in a topic."""
        topic = self._unit.state.by_id[watched.topic_id]
        return _position(topic, watched.cursor)

    def open_stream(
        self,
        wid: str,
        rewind: str | None,
        wake: Callable[[], None],
        now_ms: int,
        caller: Caller = ANYONE,
    ) -> tuple[Session, Stream]:
        """Open the stream of a session (§7.3); `rewind` is a composite id that the client kept.

        Raises:
            Rejection: 404 for an unknown or expired `wid`, 401 for another key than the session's,
                429 for too many connections.
        """
        now_ms = self._unit.advance(now_ms)
        session = self.require_session(wid, now_ms, caller)
        self.watches.connection_shares.require(
            session.holder, freed=int(session.stream is not None)
        )
        known = Remembered()
        if rewind is not None:
            known = parse_composite(rewind, list(session.watched)) or known
        return session, self.watches.open(session, wake, known, now_ms)

    def require_session(self, wid: str, now_ms: int, caller: Caller = ANYONE) -> Session:
        """The session of a `wid`, which is not touched; 404 where there is none any more, and 401
        where it is another key's, in the words for a key that is unknown (§7.1)."""
        self.watches.forget_idle(self._unit.advance(now_ms))
        session = self.watches.sessions.get(wid)
        if session is None:
            raise Rejection(ErrorCode.NOT_FOUND, "no such watch session; post a new one")
        if session.owner is not caller:
            raise unknown_key()
        return session

    def open_socket(
        self, wake: Callable[[], None], caller: Caller = ANYONE, holder: Holder = NOBODY
    ) -> Stream:
        """A WebSocket's stream, with nothing subscribed yet (§7.7).  Raises Rejection: 429."""
        holder = holder_of(caller, holder)
        self.watches.connection_shares.require(holder)
        return self.watches.open_socket(wake, caller, holder)

    def subscribe(
        self, stream: Stream, topics: Mapping[str, Begin], view: View, now_ms: int
    ) -> list[Watched]:
        """Add topics to a socket, all or none."""
        now_ms = self._unit.advance(now_ms)
        limit = self._limits.max_watch_topics
        if len(stream.watched.keys() | topics.keys()) > limit:
            raise Rejection(ErrorCode.INVALID_REQUEST, f"a socket watches at most {limit} topics")
        added = []
        for name, begin in topics.items():
            topic = self._unit.partition(name, None, now_ms)
            own = own_view(view, begin)
            try:
                cursor = begin_at(topic, begin)
            except DamagedRun as damage:
                raise damage.refusal() from damage
            added.append(Watched(name, topic.topic_id, cursor, own))
        replaced = [w for name in topics if (w := stream.watched.get(name)) is not None]
        self.watches.byte_shares.require(
            stream.holder,
            sum(watched.memory_bytes for watched in added),
            freed=sum(watched.memory_bytes for watched in replaced),
        )
        for watched in added:
            self.watches.subscribe(stream, watched)
        return added

    def next_frame(self, stream: Stream, now_ms: int) -> Pulled | None:
        """What a stream that can take a frame gets; None where it has to wait for `wake`."""
        if self._gate is not None and not self._gate(stream):
            return None
        self._unit.advance(now_ms)
        return self.watches.next_frame(stream, self._priority)

    def _shown(self, name: str) -> Topic | None:
        """A topic as a stream is to see it now."""
        topic = self._unit.state.topics.get(name)
        if topic is not None:
            self._unit.expire(topic, self._unit.state.now_ms)
        return topic

    def _priority(self, name: str) -> int:
        topic = self._unit.state.topics.get(name)
        return 0 if topic is None else effective_priority(topic, self._unit.state.now_ms)


def _position(topic: Topic, cursor: int) -> WatchPosition:
    return WatchPosition(cursor, topic.published_seq, topic.earliest_seq, topic.epoch)
