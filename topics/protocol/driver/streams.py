"""The streams of one engine, for whoever carries them: what is opened, pulled and closed.

Owns the way between an open connection and what the engine knows of it: a watch session's stream, a
WebSocket's subscriptions, a worker's push stream.  A carrier has one of these objects for each
connection, is woken when there may be something, and takes it when its client has room.  Knows
nothing of bytes and of connections.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from topics.protocol.decide.push_streams import PushStream
from topics.protocol.driver.client_states import ClientState, state_of
from topics.protocol.engine import Engine
from topics.protocol.model.access import ANYONE, Caller
from topics.protocol.model.commands import Begin, Claim, View
from topics.protocol.model.cursor import composite
from topics.protocol.model.errors import Rejection
from topics.protocol.model.holder import NOBODY, Holder
from topics.protocol.model.moment import Moment
from topics.protocol.model.names import public_name
from topics.protocol.model.outcomes import Gate, Grant, Granted, Jobs, WatchPosition
from topics.protocol.state.fanout import Fanout, Gather
from topics.protocol.state.frames import (
    CaughtUpFrame,
    DamagedFrame,
    DeletedFrame,
    Frame,
    Pulled,
    RecordFrame,
    TombstoneFrame,
)
from topics.protocol.state.lent_sessions import (
    LentSession,
    SessionTopic,
    borrow,
    give_back,
    go_on,
    image_of,
    lend,
    standing_of,
    take_back,
)
from topics.protocol.state.topic import Tombstone, Topic
from topics.protocol.state.watched import Copies, Stream, StreamEnd, WatchPlace
from topics.protocol.state.watches import Session, Watches

__all__ = [
    "CaughtUpFrame",
    "DamagedFrame",
    "DeletedFrame",
    "Fanout",
    "Frame",
    "Gather",
    "JobStream",
    "LentSession",
    "Loan",
    "Pulled",
    "RecordFrame",
    "SessionStream",
    "SessionTopic",
    "SocketStream",
    "StreamEnd",
    "Streams",
    "Tombstone",
    "TombstoneFrame",
]


class SessionStream:
    """The stream of a watch session (§7.3).

    Attributes:
        heartbeat_ms: After so long without a frame the client is told that the server lives.
    """

    def __init__(
        self,
        engine: Engine,
        wid: str,
        rewind: str | None,
        wake: Callable[[], None],
        now_ms: int,
        caller: Caller,
    ) -> None:
        self._commands, self._watches = engine.watch_commands, engine.watches
        self._advance = engine.advance
        self._session, self._stream = self._commands.open_stream(wid, rewind, wake, now_ms, caller)
        self._watched = self._session.watched
        self._only = next(iter(self._watched.values())) if len(self._watched) == 1 else None
        """The one topic of the session, which may get more partitions."""
        self.heartbeat_ms = self._session.heartbeat_ms

    @property
    def id(self) -> bytes:
        """Where it stands, as a frame's id."""
        return composite(self._session.watched.values())

    @property
    def is_shared(self) -> bool:
        """Whether what it gets is what every stream at the same place of its one topic gets, ids
        included."""
        only = self._only
        return only is not None and not only.is_heir and len(self._watched) == 1

    @property
    def is_drained(self) -> bool:
        """Whether there is no frame before `wake` is called."""
        return self._stream.is_drained

    @property
    def ended_by(self) -> StreamEnd | None:
        """Why the server ends it; None while it does not."""
        return self._stream.ended_by

    def wake_by(self, wake: Callable[[], None]) -> None:
        """Have another `wake` called from now on."""
        self._stream.wake = wake

    def push_by(self, push: Callable[[RecordFrame], bool] | None) -> None:
        """Have frames of the one topic given to `push` as they come, as long as it is one; see
        `watched.Stream.push`."""
        self._stream.push = push if len(self._watched) == 1 else None

    def gather_by(self, gather: Gather, now_ms: Callable[[], int]) -> bool:
        """Have the streams of the one topic walked over by `gather`; False where it has several."""
        if self._only is None:
            return False
        self._watches.fanouts.gather_by(gather, lambda: self._advance(now_ms()))
        return True

    def next_frame(self, now_ms: int) -> Pulled | None:
        """The next frame; None where there is none before `wake` is called."""
        return self._commands.next_frame(self._stream, now_ms)

    def newest_frame(self, made: str) -> RecordFrame | None:
        """The frame that all live streams of the one topic get, where another stream has made this
        text of it."""
        if not self.is_shared or self._stream.ended_by is not None:
            return None
        return self._watches.newest_frame(self._stream, made=made)

    def unreadable(self, frame: RecordFrame | DamagedFrame) -> None:
        """The frame's records cannot be read: its topic ends in this stream."""
        self._watches.on_unreadable(self._stream, frame)

    def state(self) -> ClientState:
        """Where it stands in each partition."""
        return state_of(self._watched.values())

    def close(self, now_ms: int) -> None:
        self._watches.close_session_stream(self._session, self._stream, now_ms)


class SocketStream:
    """What a WebSocket is subscribed to (§7.7)."""

    def __init__(
        self, engine: Engine, wake: Callable[[], None], caller: Caller, holder: Holder
    ) -> None:
        self._commands, self._watches = engine.watch_commands, engine.watches
        self._stream = self._commands.open_socket(wake, caller, holder)

    @property
    def names(self) -> Collection[str]:
        """Of the topics that it is subscribed to."""
        return set(map(public_name, self._stream.watched))

    @property
    def count(self) -> int:
        """How many partitions it is subscribed to."""
        return len(self._stream.watched)

    @property
    def ended_by(self) -> StreamEnd | None:
        return self._stream.ended_by

    def end(self, why: StreamEnd) -> None:
        self._stream.end(why)

    def wake_by(self, wake: Callable[[], None]) -> None:
        """Have another `wake` called from now on."""
        self._stream.wake = wake

    def add(self, topics: Mapping[str, Begin], view: View, now_ms: int) -> dict[str, WatchPosition]:
        """Add topics, all or none; where it stands in each partition, by the engine's name of it.  Raises
        Rejection."""
        added = self._commands.subscribe(self._stream, topics, view, now_ms)
        return {watched.name: self._commands.position(watched) for watched in added}

    def remove(self, name: str) -> bool:
        """Whether it was subscribed."""
        return self._watches.unsubscribe(self._stream, name)

    def next_frame(self, now_ms: int) -> Pulled | None:
        return self._commands.next_frame(self._stream, now_ms)

    def unreadable(self, frame: RecordFrame | DamagedFrame) -> None:
        """The frame's records cannot be read: its topic is subscribed no more; of several partitions, no more of
        this one comes."""
        if frame.partition is None:
            self.remove(frame.topic)
        else:
            self._watches.on_unreadable(self._stream, frame)

    def adopt(self, standing: SessionTopic) -> None:
        """Watch a topic from where another process's half of the socket stood in it."""
        go_on(self._watches, self._stream, standing)

    def standings(self) -> Iterable[tuple[str, SessionTopic]]:
        """Where it stands in each topic that another process may go on with: in all of its partitions, the first one
        behind the others, so that the other process does not begin in these anew."""
        for name, watched in reversed(self._stream.watched.items()):
            if watched.place is not WatchPlace.GONE or watched.partition is not None:
                yield name, standing_of(watched)

    def state(self) -> ClientState:
        """Where it stands in each partition."""
        return state_of(self._stream.watched.values())

    def close(self) -> None:
        self._watches.close_socket(self._stream)


class JobStream:
    """A worker's push stream (§10.8).

    Attributes:
        name: Of the queue.
    """

    def __init__(
        self,
        engine: Engine,
        asked: Claim,
        wake: Callable[[], None],
        now_ms: int,
        caller: Caller,
        holder: Holder,
    ) -> None:
        self._commands = engine.queue_commands
        topic = self._commands.require_queue(asked.topic, now_ms)
        self.name = topic.name
        self._stream = PushStream(
            topic.topic_id,
            topic.name,
            asked.node,
            asked.limit,
            asked.lease_ms,
            wake,
            owner=caller,
            holder=holder,
        )
        engine.open_push_stream(self._stream)

    @property
    def ended_by(self) -> Rejection | None:
        return self._stream.ended_by

    @property
    def gate(self) -> Gate:
        """When what was taken may be sent."""
        return self._commands.gate(self._stream)

    def wake_by(self, wake: Callable[[], None]) -> None:
        """Have another `wake` called from now on."""
        self._stream.wake = wake

    def take(self, moment: Moment) -> list[Jobs]:
        """The jobs that it is given now; `wake` is called when there may be more."""
        return self._commands.take(self._stream, moment)

    def state(self) -> ClientState:
        """How many jobs the worker holds."""
        return ClientState({self.name: None}, in_flight=len(self._stream.held))

    def close(self, moment: Moment) -> None:
        """The connection is gone: what it holds may be claimed at once."""
        self._commands.close(self._stream, moment)


class Streams:
    """Opens the streams of one engine, and answers for all of them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def session(
        self,
        wid: str,
        rewind: str | None,
        wake: Callable[[], None],
        now_ms: int,
        caller: Caller = ANYONE,
    ) -> SessionStream:
        """Open the stream of a session; `rewind` is a composite id that the client kept.

        Raises:
            Rejection: 404 for an unknown or expired `wid`, 401 for another key than the session's,
                429 for too many connections.
        """
        return SessionStream(self._engine, wid, rewind, wake, now_ms, caller)

    def require_session(self, wid: str, now_ms: int, caller: Caller = ANYONE) -> None:
        """Raises Rejection: as `session`, which this does not open."""
        self._engine.watch_commands.require_session(wid, now_ms, caller)

    def topics_of(self, wid: str) -> Collection[str] | None:
        """What a session watches; None where there is none."""
        session = self._engine.watches.sessions.get(wid)
        return None if session is None else session.watched.keys()

    def owner_of(self, wid: str) -> Caller | None:
        """Whose session it is; None where there is none."""
        session = self._engine.watches.sessions.get(wid)
        return None if session is None else session.owner

    def is_open(self, wid: str) -> bool:
        """Whether a session has a stream here."""
        session = self._engine.watches.sessions.get(wid)
        return session is not None and session.stream is not None

    def forget(self, wid: str, now_ms: int, caller: Caller = ANYONE) -> None:
        """Let go of a session.  Raises Rejection: as `session`."""
        session = self._engine.watch_commands.require_session(wid, now_ms, caller)
        watches = self._engine.watches
        if session.stream is not None:
            watches.close(session.stream)
        watches.forget(session)

    def socket(
        self, wake: Callable[[], None], caller: Caller = ANYONE, holder: Holder = NOBODY
    ) -> SocketStream:
        """Open a WebSocket, which watches nothing yet.  Raises Rejection: 429."""
        return SocketStream(self._engine, wake, caller, holder)

    def jobs(
        self,
        asked: Claim,
        wake: Callable[[], None],
        now_ms: int,
        caller: Caller = ANYONE,
        holder: Holder = NOBODY,
    ) -> JobStream:
        """Open a push stream.  Raises Rejection: no such queue, 429 for too many connections."""
        return JobStream(self._engine, asked, wake, now_ms, caller, holder)

    def require_queue(self, name: str, now_ms: int) -> None:
        """Raises Rejection: 404, 409."""
        self._engine.queue_commands.require_queue(name, now_ms)

    def set_aside(
        self,
        grant: Grant,
        damaged: Mapping[int, Exception],
        surplus: Collection[int],
        moment: Moment,
    ) -> Granted | None:
        """Take back jobs that were leased and are not handed out; see `QueueCommands.set_aside`."""
        return self._engine.queue_commands.set_aside(grant, damaged, surplus, moment)

    @property
    def has_open(self) -> bool:
        """Whether any session or socket has a stream."""
        return bool(self._engine.watches.streams)

    def wake_all(self) -> None:
        """Have every session's and socket's stream looked at."""
        for stream in list(self._engine.watches.streams):
            stream.wake()

    def end_of_topic(self, name: str, why: StreamEnd) -> None:
        """End the streams that watch a topic of this name, perhaps as an earlier one."""
        for stream in list(self._engine.watches.streams):
            if name in stream.watched:
                stream.end(why)

    def forget_frames(self) -> None:
        """Hold no frame for streams that have yet to take it; it is made again."""
        self._engine.watches.forget_frames()

    # ------------------------------------------------------------------ between two processes

    def loan(self, wid: str, may_go: Callable[[str], bool]) -> "Loan | None":
        """A session that another process may carry; None where there is none, or that process cannot
        serve all of it, or this one has to refuse it.

        Args:
            may_go: Whether that process may serve a topic of this name.
        """
        engine = self._engine
        session = engine.watches.sessions.get(wid)
        if session is None:
            return None
        try:
            engine.watches.connection_shares.require(session.holder)
        except Rejection:
            return None
        for watched in session.watched.values():
            topic = engine.state.topics.get(watched.name)
            if topic is None or topic.topic_id != watched.topic_id or watched.view.strong:
                return None
            if not may_go(watched.name):
                return None
        return Loan(engine.watches, session)

    def borrow(self, image: LentSession, now_ms: int, owner: Caller) -> None:
        """Have a session of another process here, so that its stream can be opened."""
        self.give_back(image.wid)  # of a loan that is over
        borrow(self._engine.watches, image, now_ms, owner)

    def give_back(self, wid: str, why: StreamEnd | None = None) -> LentSession | None:
        """A borrowed session is the other process's again: forget it here.

        Args:
            why: Its stream here ends, for this reason.

        Returns:
            It, with the positions that its stream has reached; None where there is none any more.
        """
        watches = self._engine.watches
        session = watches.sessions.get(wid)
        if session is None:
            return None
        if why is not None and session.stream is not None:
            session.stream.end(why)
        return give_back(watches, session)

    def wait_for(self, copies_before: Callable[[Topic], Copies | None]) -> None:
        """What a stream of a destination waits for before it has caught up; see
        `Watches.copies_before`."""
        self._engine.watches.copies_before = copies_before

    def on_rest(self) -> None:
        """Have the streams look again that wait for copies."""
        self._engine.watches.on_rest()


class Loan:
    """A session that another process carries, and what stands in its place here.

    Attributes:
        wid, owner: Of the session.
    """

    def __init__(self, watches: Watches, session: Session) -> None:
        self._watches = watches
        self._session = session
        self._stand_in: Stream | None = None
        self.wid, self.owner = session.wid, session.owner

    @property
    def image(self) -> LentSession:
        """What goes to the other process, as it stands."""
        return image_of(self._session)

    @property
    def ended_by(self) -> StreamEnd | None:
        """Why the stream in the other process is to end."""
        return None if self._stand_in is None else self._stand_in.ended_by

    def begin(self, ended: Callable[[], None]) -> None:
        """The session leaves; `ended` is called where its stream is to end: another took over here,
        or its key was removed."""
        self._stand_in = lend(self._watches, self._session, ended)

    def forget_place(self) -> None:
        """Of what the other process has sent only the client knows: what that remembers counts."""
        self._session.is_behind = True

    def take_back(self, now_ms: int, image: LentSession | None) -> None:
        """The session is here again; without an image it stands where it was lent."""
        assert self._stand_in is not None
        take_back(self._watches, self._session, self._stand_in, now_ms, image)
