"""Watch commands: sessions, streams and sockets, as far as the state of topics decides (§7).

The joint between watches (positions and lifecycles, `state/watches.py`) and topics: which there are,
which comes first in a stream, and how much of it one holder may have.
"""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import UNSET

from topics.protocol.commit.unit_of_work import (
    UnitOfWork,
    no_such_partition,
    no_such_topic,
    partition_required,
)
from topics.protocol.decide.partial_scans import Openings
from topics.protocol.decide.topics import effective_priority, note_read
from topics.protocol.model.access import ANYONE, Caller, unknown_key
from topics.protocol.model.commands import Begin, CreateWatch, View
from topics.protocol.model.cursor import NO_CURSOR, Remembered, composite, parse_composite
from topics.protocol.model.errors import DamagedRun, ErrorCode, Rejection
from topics.protocol.model.holder import NOBODY, Holder, holder_of
from topics.protocol.model.limits import Limits
from topics.protocol.model.moment import Moment
from topics.protocol.model.names import PARTITION_MARK, partition_name
from topics.protocol.model.outcomes import Outcome, WatchCreated, WatchPosition
from topics.protocol.state.frames import Pulled
from topics.protocol.state.topic import Topic
from topics.protocol.state.watched import WATCHED_BYTES, Copies, Stream, Watched
from topics.protocol.state.watches import (
    SESSION_TTL_MS,
    Session,
    Watches,
    begin_at,
    begin_in,
    own_view,
    subscribed,
)


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
            size_bytes = self._count(command.topics) * WATCHED_BYTES
            self.watches.byte_shares.require(holder, size_bytes)
        cursors = self._cursors(command)
        if cursors is None:
            # To begin elsewhere than the client believes would be a silent gap.
            raise Rejection(ErrorCode.INVALID_REQUEST, f"{NO_CURSOR} - at `$.cursor`")
        begun = self._begun(
            command.topics, cursors, command.view, moment.now_ms, lenient=command.lenient
        )
        self._require_few(len(begun), "a session")
        watched: dict[str, Watched] = {}
        positions: dict[str, WatchPosition] = {}
        for topic, each in begun:
            note_read(topic, moment.now_ms)
            watched[each.name] = each
            positions[each.name] = _position(topic, each.cursor)
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

    # ------------------------------------------------------------------ where it begins

    def _begun(
        self,
        topics: Mapping[str, Begin],
        cursors: Mapping[str, int],
        view: View,
        now_ms: int,
        *,
        lenient: bool = False,
    ) -> list[tuple[Topic, Watched]]:
        """What is to be watched of each topic, from where it begins: in the order of an id, which has the first
        partition of each topic in the order of `topics`, and the other ones behind them in the order in which
        there were such.  So an id from before a topic got more is a beginning of the id after.

        Args:
            cursors: By the engine's names of partitions; where there is one of a topic, its other partitions begin
                with their first records.

        Raises:
            Rejection: 404; 400 where `from_seq` is of a topic of which several partitions are watched.
        """
        firsts: list[tuple[Topic, Watched]] = []
        others: list[tuple[Topic, Watched]] = []
        for name, begin in topics.items():
            own = own_view(view, begin)
            parts = self._parts(name, begin, now_ms, lenient=lenient)
            is_known = any(part.engine_name in cursors for part in parts)
            into = firsts
            for part in parts:
                if is_known:
                    cursor = cursors.get(part.engine_name, 0)
                else:
                    if begin.from_seq and not begin.tail and len(parts) > 1:
                        raise partition_required(part.first)
                    cursor = begin_at(part, begin)
                takes_more = begin.partitions is None and not part.partition
                into.append((part, begin_in(part, cursor, own, takes_more=takes_more)))
                into = others
        others.sort(key=_topic_id)
        return firsts + others

    def _parts(self, name: str, begin: Begin, now_ms: int, *, lenient: bool) -> list[Topic]:
        """The partitions of a topic that are to be watched; leniently those that are there."""
        topic = self._found(name)
        if topic is None:
            if lenient:
                return []
            raise no_such_topic(name)
        parts = topic.partitions
        if begin.partitions is not None:
            there = [number for number in begin.partitions if number < len(parts)]
            if not lenient and len(there) < len(begin.partitions):
                raise no_such_partition(name, begin.partitions[len(there)])
            parts = [parts[number] for number in there]
        for part in parts:
            self._unit.expire(part, now_ms)
        return parts

    def _found(self, name: str) -> Topic | None:
        """A topic, by the name that a client knows."""
        return None if PARTITION_MARK in name else self._unit.state.topics.get(name)

    def _count(self, topics: Mapping[str, Begin]) -> int:
        """How many partitions are to be watched, about."""
        count = 0
        for name, begin in topics.items():
            if begin.partitions is not None:
                count += len(begin.partitions)
            elif (topic := self._found(name)) is not None:
                count += 1 + len(topic.others)
            else:
                count += 1
        return count

    def _require_few(self, count: int, what: str) -> None:
        limit = self._limits.max_watch_topics
        if count > limit:
            each = "topics, each partition counted as one"
            raise Rejection(ErrorCode.INVALID_REQUEST, f"{what} watches at most {limit} {each}")

    def _cursors(self, command: CreateWatch) -> Mapping[str, int] | None:
        """The positions that a client kept, by name; None where they are a list of something else."""
        if command.listed is None:
            return command.cursors
        firsts, others = [], []
        for name, begin in command.topics.items():
            topic = self._found(name)
            numbers = begin.partitions or (0,)
            firsts.append(partition_name(name, numbers[0]))
            if topic is None:
                continue
            parts = topic.partitions
            chosen = (
                parts if begin.partitions is None else [parts[n] for n in numbers if n < len(parts)]
            )
            others += chosen[1:]
        others.sort(key=lambda topic: topic.topic_id)
        found = command.listed.over([*firsts, *(each.engine_name for each in others)])
        return found if found is not None and len(found) >= len(firsts) else None

    def is_beyond(self, command: CreateWatch) -> bool:
        """Whether a session would begin in a topic, or at a place, that is not known here."""
        cursors = self._cursors(command)
        return cursors is None or self.begins_beyond(command.topics, cursors)

    def begins_beyond(
        self, topics: Mapping[str, Begin], cursors: Mapping[str, int] | None = None
    ) -> bool:
        """The same of a subscription; `cursors` are positions of its partitions, by name, where it has none itself."""
        seqs = {
            partition_name(name, number): begin.from_seq
            for name, begin in topics.items()
            for number in begin.partitions or (0,)
        }
        for name, seq in (cursors_of(topics) if cursors is None else cursors).items():
            seqs[name] = max(seq, seqs.get(name, 0))
        shown = self._unit.state.topics
        return not all(
            (topic := shown.get(name)) is not None and topic.published_seq >= seq
            for name, seq in seqs.items()
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
        self.watches.complete(session)  # as the client may have been told already
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
        replaced = [
            stream.watched[name] for topic in topics for name in subscribed(stream.watched, topic)
        ]
        kept = len(stream.watched) - len(replaced)
        self._require_few(kept + self._count(topics), "a socket")
        try:
            begun = self._begun(topics, cursors_of(topics), view, now_ms)
        except DamagedRun as damage:
            raise damage.refusal() from damage
        added = [watched for _, watched in begun]
        self.watches.byte_shares.require(
            stream.holder,
            sum(watched.memory_bytes for watched in added),
            freed=sum(watched.memory_bytes for watched in replaced),
        )
        for name in topics:
            self.watches.unsubscribe(stream, name)
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


def cursors_of(topics: Mapping[str, Begin]) -> dict[str, int]:
    """The positions that a subscription begins at, by the engine's names of partitions."""
    return {
        partition_name(name, number): seq
        for name, begin in topics.items()
        for number, seq in begin.at.items()
    }


def _topic_id(begun: tuple[Topic, Watched]) -> int:
    return begun[0].topic_id


def _position(topic: Topic, cursor: int) -> WatchPosition:
    number = UNSET if topic.number is None else topic.number
    return WatchPosition(cursor, topic.published_seq, topic.earliest_seq, topic.epoch, number)
