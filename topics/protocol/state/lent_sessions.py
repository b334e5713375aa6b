"""Watch sessions that another process carries for a while: what of them goes there, and comes back;
and the topics of a WebSocket of which another process has the other half.

A session belongs to the engine's process, and its stream may be another's: the session is lent with
its positions, and comes back with those that the stream has reached.  Meanwhile a stream without
topics stands in its place, so that it counts in its holder's share, is not forgotten, and ends with
its key.  Knows nothing of processes.
"""

from collections.abc import Callable

import msgspec

from topics.protocol.model.access import ANYONE, Caller
from topics.protocol.model.commands import View
from topics.protocol.model.holder import Holder
from topics.protocol.state.watched import Stream, Watched, WatchPlace
from topics.protocol.state.watches import Session, Watches


class SessionTopic(msgspec.Struct, frozen=True):
    """A topic of a session, or a partition, and where the stream stands in it; as `Watched`."""

    name: str
    topic_id: int
    cursor: int
    view: View
    place: WatchPlace
    last_head_seq: int
    is_heir: bool
    is_stale: bool
    partition: int | None = None
    takes_more: bool = True


class LentSession(msgspec.Struct, frozen=True):
    """A session on its way; its owner goes apart, since a caller is an object of its process.

    Attributes:
        is_behind: The client may have had more than these positions say.
    """

    wid: str
    heartbeat_ms: int
    holder: Holder
    topics: tuple[SessionTopic, ...]
    is_behind: bool = False


def standing_of(watched: Watched) -> SessionTopic:
    return SessionTopic(
        watched.name,
        watched.topic_id,
        watched.cursor,
        watched.view,
        watched.place,
        watched.last_head_seq,
        watched.is_heir,
        watched.is_stale,
        watched.partition,
        watched.takes_more,
    )


def _watched_of(standing: SessionTopic) -> Watched:
    return Watched(
        standing.name,
        standing.topic_id,
        standing.cursor,
        standing.view,
        standing.place,
        standing.last_head_seq,
        is_heir=standing.is_heir,
        is_stale=standing.is_stale,
        partition=standing.partition,
        takes_more=standing.takes_more,
    )


def image_of(session: Session) -> LentSession:
    """What goes to another process, and comes back from it."""
    topics = tuple(standing_of(each) for each in session.watched.values())
    return LentSession(session.wid, session.heartbeat_ms, session.holder, topics, session.is_behind)


def lend(watches: Watches, session: Session, ended: Callable[[], None]) -> Stream:
    """Another process has the session's stream; returns what stands in its place.

    Args:
        ended: Called where the stream is to end: another took over here, or its key was removed.
    """
    assert session.stream is None

    def wake() -> None:
        if stand_in.ended_by is not None:
            ended()

    stand_in = watches.open_socket(wake, session.owner, session.holder)
    watches.occupy(session, stand_in)
    return stand_in


def take_back(
    watches: Watches, session: Session, stand_in: Stream, now_ms: int, image: LentSession | None
) -> None:
    """The session is this process's again; without an image it stands where it was lent."""
    if session.wid not in watches.sessions:
        return  # it was forgotten with its key, and its stand-in closed
    if session.stream is not stand_in:
        return  # another stream has taken over meanwhile
    if image is not None:
        for each in image.topics:
            watched = session.watched.get(each.name)
            if watched is None:  # its topic got the partition meanwhile
                watched = _watched_of(each)
                watches.add_to_session(session, watched)
                head_seq = watches.last_head_of(each.topic_id)
            else:
                head_seq = watched.last_head_seq
            if watched.topic_id != each.topic_id:
                watches.move_to(watched, each.topic_id)
                watched.partition = each.partition
                head_seq = watches.last_head_of(each.topic_id)
            watched.cursor, watched.place = each.cursor, each.place
            # The topic may have been deleted, with its last head, before the other process knew.
            watched.last_head_seq = max(head_seq, each.last_head_seq)
            watched.is_heir, watched.is_stale = each.is_heir, each.is_stale
        # Ids are in the order in which the other process met them.
        named = {each.name: session.watched[each.name] for each in image.topics}
        session.watched = {**named, **session.watched}
    session.is_behind = image is None or image.is_behind
    watches.close_session_stream(session, stand_in, now_ms)


def borrow(watches: Watches, image: LentSession, now_ms: int, owner: Caller = ANYONE) -> Session:
    """Have the session here, so that its stream can be opened."""
    watched = {each.name: _watched_of(each) for each in image.topics}
    session = Session(
        image.wid, watched, image.heartbeat_ms, now_ms, owner=owner, holder=image.holder
    )
    session.is_behind = image.is_behind
    watches.add_session(session)
    return session


def give_back(watches: Watches, session: Session) -> LentSession:
    """The session is another process's again: forget it here."""
    if session.stream is not None:
        watches.close(session.stream)
        session.stream = None
    image = image_of(session)
    watches.forget(session)
    return image


def go_on(watches: Watches, stream: Stream, standing: SessionTopic) -> None:
    """A socket watches here, from where it stands, what it watched in another process; where that topic
    is gone meanwhile, whatever has its name now, its client is told so."""
    watched = _watched_of(standing)
    watched.last_head_seq = max(watched.last_head_seq, watches.last_head_of(watched.topic_id))
    watches.subscribe(stream, watched)
    watched.is_first_look = False
    if standing.place is WatchPlace.GONE:
        watches.put_aside(stream, watched)
    stream.lacks |= watched.takes_more
