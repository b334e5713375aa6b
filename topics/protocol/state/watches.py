"""Watches: the positions of streams in their topics, and the frame that each gets next (§7).

A stream is pulled: it has one frame of credit, so records that its client cannot take wait as the
distance of a cursor and never as queued bytes.  A publication only marks streams; their frames are
chosen when they are pulled.  Frames are neutral; SSE and WebSocket are two encodings of them.  A frame
that many streams want is one object, so it is read and encoded once.

This module holds positions and lifecycles; it does not know sockets, keys or encodings.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from topics.protocol.model.access import ANYONE, Caller
from topics.protocol.model.commands import Begin, View
from topics.protocol.model.cursor import Remembered
from topics.protocol.model.errors import DamagedRun
from topics.protocol.model.holder import NOBODY, Holder
from topics.protocol.model.limits import FRAME_TEXT_BYTES, Limits
from topics.protocol.model.names import public_name
from topics.protocol.model.outcomes import Records
from topics.protocol.model.ports import Extent
from topics.protocol.model.shares import Shares
from topics.protocol.state.fanout import Fanouts, News
from topics.protocol.state.frames import (
    CaughtUpFrame,
    DamagedFrame,
    DeletedFrame,
    Frame,
    NewestFrame,
    Pulled,
    RecordFrame,
    SharedFrames,
    TombstoneFrame,
    engine_name,
)
from topics.protocol.state.selection import ReadQuery, seek, select
from topics.protocol.state.topic import Tombstone, Topic
from topics.protocol.state.watched import (
    Copies,
    Stream,
    StreamEnd,
    Watched,
    WatchPlace,
    WatchStep,
    memory_bytes_of,
)

LAST_HEADS: Final = 1024
"""Of so many topics that were deleted last, the last head is kept."""
SESSION_TTL_MS: Final = 300_000


class Session(msgspec.Struct, eq=False):
    """A subscription that outlives its connections, and belongs to who made it (§7.1)."""

    wid: str
    watched: dict[str, Watched]
    heartbeat_ms: int
    last_access_ms: int
    stream: Stream | None = None
    owner: Caller = ANYONE
    holder: Holder = NOBODY
    is_behind: bool = False
    """The process that carried its stream ended: the client may be further than its positions."""

    @property
    def memory_bytes(self) -> int:
        """What it holds of `max_watch_bytes`."""
        return memory_bytes_of(self.watched.values())


class Watches:
    """Every session and stream, and the watched topics by topic id.

    Attributes:
        session_shares: Sessions, by the holder that made them.
        connection_shares: Open streams and WebSockets, push streams of queues included (§11).
        byte_shares: What sessions and subscriptions hold in memory.
        ended_by: Why all streams ended, where they did.
        fanouts: What walks over the watchers of a topic that shows more.
    """

    def __init__(
        self,
        find: Callable[[str], Topic | None],
        limits: Limits,
        copies_before: Callable[[Topic], Copies | None] = lambda _: None,
        awaits_opening: Callable[[Topic, int], bool] = lambda _, __: False,
    ) -> None:
        """
        Args:
            find: Gives the present instance of a name, without its expired records.
            copies_before: The copies that a topic is still to get before a stream that was sent all of
                it is at its end; None where there are none.
            awaits_opening: Whether the run behind a cursor is being opened: `on_published` follows.
        """
        self.session_shares = Shares(
            "max_watch_sessions", limits.max_watch_sessions, per_ip=limits.max_watch_sessions_per_ip
        )
        self.connection_shares = Shares(
            "max_sse_connections",
            limits.max_sse_connections,
            per_key=limits.max_sse_connections_per_key,
            per_ip=limits.max_sse_connections_per_ip,
        )
        self.byte_shares = Shares("max_watch_bytes", limits.max_watch_bytes)
        self.sessions: dict[str, Session] = {}
        self._idle: OrderedDict[str, Session] = OrderedDict()
        """Sessions without a stream, the oldest access first."""
        self.streams: set[Stream] = set()
        self.ended_by: StreamEnd | None = None
        self._by_topic: dict[int, dict[Watched, None]] = {}
        self._find = find
        self._shared = SharedFrames()
        self._held: set[int] = set()
        self._last_heads: OrderedDict[int, int] = OrderedDict()
        """Of topics that were deleted lately, for watchers that come from another process."""
        self.fanouts = Fanouts(lambda topic_id: self._by_topic.get(topic_id, ()), self._news_for)
        self.copies_before = copies_before
        self._awaits_opening = awaits_opening

    # ------------------------------------------------------------------ sessions

    def add_session(self, session: Session) -> None:
        self.sessions[session.wid] = self._idle[session.wid] = session
        self.session_shares.take(session.holder)
        self.byte_shares.take(session.holder, session.memory_bytes)
        for watched in session.watched.values():
            self._list(watched)

    def add_to_session(self, session: Session, watched: Watched) -> None:
        """A session that has no stream gets a partition that its topic got, however many it has then: to refuse that
        would lose records."""
        self._let_in(session.watched, session.holder, watched)

    def forget_idle(self, now_ms: int) -> None:
        """Let go of sessions without a stream whose time is over; oldest access first."""
        while self._idle:
            oldest = next(iter(self._idle.values()))
            if now_ms - oldest.last_access_ms <= SESSION_TTL_MS:
                break
            self.forget(oldest)

    def forget(self, session: Session) -> None:
        """The session is gone."""
        del self.sessions[session.wid]
        self._idle.pop(session.wid, None)
        self.session_shares.give_back(session.holder)
        self.byte_shares.give_back(session.holder, session.memory_bytes)
        for watched in session.watched.values():
            self._unlist(watched)

    def revoke(self, owner: Caller) -> None:
        """A key was removed: its streams and sockets end, and its sessions are forgotten."""
        for stream in [stream for stream in self.streams if stream.owner is owner]:
            stream.end(StreamEnd.KEY_REMOVED)
        for session in [each for each in self.sessions.values() if each.owner is owner]:
            if session.stream is not None:
                self.close(session.stream)
            self.forget(session)

    def open(
        self, session: Session, wake: Callable[[], None], known: Remembered, now_ms: int
    ) -> Stream:
        """Open a stream on a session; one that is open already is ended with 409.

        Args:
            known: What the client remembers; it only ever moves a position back.
        """
        if session.stream is not None:
            session.stream.end(StreamEnd.TAKEN_OVER)
            self.close(session.stream)
        made = Stream(wake, session.watched, owner=session.owner, holder=session.holder)
        stream = self._add(made)
        self.occupy(session, stream)
        session.last_access_ms = now_ms
        for watched in session.watched.values():
            _rewind(watched, known, is_behind=session.is_behind)
            self._attach(stream, watched)
        session.is_behind = False
        return stream

    def close_session_stream(self, session: Session, stream: Stream, now_ms: int) -> None:
        """The session's stream has ended; one that took over stays."""
        self.close(stream)
        if session.stream is stream:
            session.stream = None
            session.last_access_ms = now_ms
            if session.wid in self.sessions:
                self._idle[session.wid] = session

    def occupy(self, session: Session, stream: Stream) -> None:
        """The session has this stream, and no time ends it meanwhile."""
        session.stream = stream
        self._idle.pop(session.wid, None)

    # ------------------------------------------------------------------ streams

    def open_socket(
        self, wake: Callable[[], None], owner: Caller = ANYONE, holder: Holder = NOBODY
    ) -> Stream:
        """A stream that begins with no topic (§7.7)."""
        return self._add(Stream(wake, owner=owner, holder=holder))

    def end_all(self, why: StreamEnd) -> None:
        """All streams end, and so does each that is opened from now on."""
        self.ended_by = why
        for stream in list(self.streams):
            stream.end(why)

    def _add(self, stream: Stream) -> Stream:
        stream.ended_by = self.ended_by
        self.streams.add(stream)
        stream.owner.streams += 1
        self.connection_shares.take(stream.holder)
        return stream

    def _discard(self, stream: Stream) -> None:
        """The stream is closed; it may have been closed before."""
        if stream in self.streams:
            self.streams.discard(stream)
            stream.owner.streams -= 1
            self.connection_shares.give_back(stream.holder)

    def subscribe(self, stream: Stream, watched: Watched) -> None:
        """Add a topic, or a partition, to a socket; a second subscription of it replaces the first."""
        self._take_out(stream, watched.name)
        self._let_in(stream.watched, stream.holder, watched)
        self._attach(stream, watched)

    def unsubscribe(self, stream: Stream, name: str) -> bool:
        """Take a topic from a socket, with all of its partitions; whether it was there."""
        names = subscribed(stream.watched, name)
        for each in names:
            self._take_out(stream, each)
        return bool(names)

    def _take_out(self, stream: Stream, name: str) -> None:
        watched = stream.watched.pop(name, None)
        if watched is None:
            return
        self.byte_shares.give_back(stream.holder, watched.memory_bytes)
        self._detach(stream, watched)
        self._unlist(watched)
        stream.pending = deque(each for each in stream.pending if engine_name(each) != name)

    def close_socket(self, stream: Stream) -> None:
        for name in list(stream.watched):
            self._take_out(stream, name)
        self._discard(stream)

    def close(self, stream: Stream) -> None:
        for watched in stream.watched.values():
            if watched.stream is stream:
                self._detach(stream, watched)
        self._discard(stream)

    def _attach(self, stream: Stream, watched: Watched) -> None:
        watched.stream = stream
        watched.is_queued = False
        watched.is_first_look = True
        watched.copies = None
        watched.step(WatchStep.OPENED)
        stream.queue(watched)

    @staticmethod
    def _detach(stream: Stream, watched: Watched) -> None:
        watched.stream = None
        if watched in stream.waiting:
            stream.waiting.remove(watched)
        if watched in stream.passing:
            stream.passing.remove(watched)
        watched.is_queued = False
        watched.copies = None

    def _let_in(self, by_name: dict[str, Watched], holder: Holder, watched: Watched) -> None:
        by_name[watched.name] = watched
        self.byte_shares.take(holder, watched.memory_bytes)
        self._list(watched)

    def _list(self, watched: Watched) -> None:
        self._by_topic.setdefault(watched.topic_id, {})[watched] = None

    def _unlist(self, watched: Watched) -> None:
        listed = self._by_topic[watched.topic_id]
        del listed[watched]
        if not listed:
            del self._by_topic[watched.topic_id]
            self.fanouts.forget(watched.topic_id)

    # ------------------------------------------------------------------ more partitions

    def on_grown(self, topic_id: int) -> None:
        """A topic has more partitions.  A stream that watches all of it gets them when it is pulled, so that the many
        watchers of a topic hold up nobody; a session without a stream when one is opened (`complete`)."""
        self._shared.forget(topic_id)  # which say no partition
        for watched in self._by_topic.get(topic_id, ()):
            watched.partition = 0
            stream = watched.stream
            if stream is not None and watched.takes_more:
                stream.lacks = True
                stream.push = None
                stream.wake()

    def complete(self, session: Session) -> None:
        """Have a session watch the partitions that its topics got while it had no stream."""
        for watched in self._lacked(session.watched):
            self.add_to_session(session, watched)

    def _grow(self, stream: Stream) -> None:
        stream.lacks = False
        for watched in self._lacked(stream.watched, of_instance=True):
            self._let_in(stream.watched, stream.holder, watched)
            self._attach(stream, watched)

    def _lacked(
        self, by_name: Mapping[str, Watched], *, of_instance: bool = False
    ) -> list[Watched]:
        """Partitions that are to be watched, and are not: from their first records, in the order in which there
        were such.

        Args:
            of_instance: Only of topics of which the stream is not still to hear that they were made again.
        """
        found: list[Watched] = []
        for first in by_name.values():
            topic = self._find(first.name) if first.takes_more else None
            if topic is None or not topic.others:
                continue
            if topic.topic_id == first.topic_id:
                first.partition = 0
            elif of_instance:
                continue
            view = first.view
            found += [
                begin_in(each, 0, view) for each in topic.others if each.engine_name not in by_name
            ]
        return sorted(found, key=lambda watched: watched.topic_id)

    # ------------------------------------------------------------------ changes of topics

    def on_published(self, topic_id: int) -> None:
        """A topic shows more: mark and wake the streams that watch it."""
        self._shared.forget(topic_id)
        listed = self._by_topic.get(topic_id)
        if listed is None:
            return
        if self.fanouts.on_news(topic_id):
            return
        for watched in listed:
            stream = watched.stream
            if stream is not None and not watched.is_queued:
                stream.queue(watched)
                stream.wake()

    def on_rest(self) -> None:
        """Routers may have copied all: streams whose `caught-up` waited for them are pulled again."""
        held, self._held = self._held, set()
        for topic_id in held:
            self.on_published(topic_id)

    def on_deleted(self, topic: Topic) -> None:
        """A topic was deleted: its watchers get its last head, with an open stream or later.  Seqs
        that were given out and not shown yet count: their appends are acknowledged all the same."""
        self._shared.forget(topic.topic_id)
        self._last_heads[topic.topic_id] = topic.head_seq
        if len(self._last_heads) > LAST_HEADS:
            self._last_heads.popitem(last=False)
        for watched in self._by_topic.get(topic.topic_id, ()):
            watched.last_head_seq = topic.head_seq
            if watched.stream is not None:
                watched.stream.queue(watched)
                watched.stream.wake()

    def last_head_of(self, topic_id: int) -> int:
        """The last head of a topic that was deleted lately; 0 of any other."""
        return self._last_heads.get(topic_id, 0)

    def on_removed(self, topic_id: int) -> None:
        """Records of a topic were deleted: no stream gets a frame that was made before."""
        self._shared.forget(topic_id)

    def forget_frames(self) -> None:
        """Keep no frame for streams to come, of any topic: they keep files open."""
        self._shared.forget_all()

    def on_moved(self, topic_id: int) -> None:
        """Another node alone has a topic's records from now on: streams that watch it end, and their
        clients begin anew there, where they are."""
        for watched in self._by_topic.get(topic_id, ()):
            if watched.stream is not None:
                watched.stream.end(StreamEnd.MOVED)

    def on_unreadable(self, stream: Stream, frame: RecordFrame | DamagedFrame) -> None:
        """A frame's records could not be read: the topic stands before them again, and nothing
        more of it comes on this stream."""
        name = engine_name(frame)
        watched = stream.watched.get(name)
        if watched is not None and watched.stream is stream:
            self._shared.forget(watched.topic_id)
            watched.cursor = min(watched.cursor, frame.from_seq)
            stream.pending = deque(one for one in stream.pending if engine_name(one) != name)
            self.put_aside(stream, watched)

    def put_aside(self, stream: Stream, watched: Watched) -> None:
        """Nothing more of a topic, or of a partition, comes on this stream."""
        self._detach(stream, watched)
        watched.stream = stream
        if watched.place is not WatchPlace.GONE:
            watched.step(WatchStep.UNREADABLE)

    # ------------------------------------------------------------------ pulling

    def newest_frame(self, stream: Stream, made: str | None = None) -> RecordFrame | None:
        """What `next_frame` gives a stream that is live and has one topic to look at, where another
        stream had the same before it; None where that has to be looked for.

        Args:
            made: Only where the frame has this text already.
        """
        if len(stream.waiting) != 1 or stream.passing or stream.pending or stream.lacks:
            return None
        watched = stream.waiting[0]
        newest = self._shared.newest.get(watched.topic_id)
        if (
            newest is None
            or watched.place is not WatchPlace.LIVE
            or watched.is_stale
            or not newest.fits(watched.cursor, watched.view)
            or (made is not None and made not in newest.frame.texts)
        ):
            return None
        watched.view = newest.view  # the next comparison is one of identity
        watched.cursor = newest.frame.to_seq
        watched.is_queued = False
        stream.waiting.clear()
        return newest.frame

    def next_frame(self, stream: Stream, priority: Callable[[str], int]) -> Pulled | None:
        """The next frame of a stream; None where there is none, until `wake` is called.

        One frame a topic and pass; within a pass, topics of higher priority come first (§0.10).
        """
        newest = self.newest_frame(stream)
        if newest is not None:
            return newest
        if stream.lacks:
            self._grow(stream)
        while True:
            if stream.pending:
                return stream.pending.popleft()
            if not stream.passing:
                if not stream.waiting:
                    return None
                if len(stream.waiting) > 1:
                    stream.waiting.sort(key=lambda w: -priority(w.name))
                stream.passing.extend(stream.waiting)
                stream.waiting.clear()
            watched = stream.passing.popleft()
            watched.is_queued = False
            frame = self._look(stream, watched)
            if frame is not None:
                return frame
            if watched.is_queued:
                # It has walked as many rows as one pull may and kept none: other streams come first.
                stream.wake()
                return None

    def _look(self, stream: Stream, watched: Watched) -> Pulled | None:
        topic = self._find(watched.name)
        if topic is None or topic.topic_id != watched.topic_id:
            if topic is None or not watched.is_first_look:
                watched.step(WatchStep.DELETED)
                name = public_name(watched.name)
                return DeletedFrame(name, watched.last_head_seq, watched.partition)
            return self._begin_again(stream, watched, topic)
        if watched.is_stale or (watched.is_first_look and watched.cursor > topic.head_seq):
            return self._begin_again(stream, watched, topic)
        stone = topic.tombstone(watched.cursor)
        if stone is not None and watched.is_first_look:
            stone = stone._replace(reason="from_seq_too_old")
        if stone is None and (hole := topic.hole_at(watched.cursor + 1)) is not None:
            stone = Tombstone(watched.cursor + 1, hole.last_seq, hole.reason)
        watched.is_first_look = False
        if stone is not None:
            watched.cursor = stone.gap_to
            stream.queue(watched)
            return _tombstone_frame(topic, stone)
        try:
            return self._records(stream, watched, topic)
        except DamagedRun as damage:
            return DamagedFrame(topic.name, watched.cursor, damage, topic.number)

    def _begin_again(self, stream: Stream, watched: Watched, topic: Topic) -> Frame:
        """The name has another instance: `recreated`, and then its records from the first."""
        self.move_to(watched, topic.topic_id)
        watched.partition = topic.number
        stream.lacks |= watched.takes_more and bool(topic.others)
        watched.cursor = topic.earliest_seq - 1
        watched.is_first_look = False
        watched.is_heir, watched.is_stale = True, False
        stream.queue(watched)
        return _tombstone_frame(topic, Tombstone(1, topic.published_seq, "recreated"))

    def move_to(self, watched: Watched, topic_id: int) -> None:
        """The position is in another instance of the name."""
        self._unlist(watched)
        watched.topic_id, watched.copies = topic_id, None
        self._list(watched)

    def _records(self, stream: Stream, watched: Watched, topic: Topic) -> Frame | None:
        through = topic.synced_seq if watched.view.strong else topic.published_seq
        cursor = watched.cursor
        found = self._page(topic, cursor, watched.view, through)
        if found is None:
            return None
        frame, to_seq = found
        watched.cursor = to_seq
        if to_seq < through:
            watched.step(WatchStep.CUT_SHORT)
            stream.queue(watched)
            return frame
        owes_caught_up = watched.place is not WatchPlace.LIVE
        if owes_caught_up and self._awaits_copies(watched, topic):
            self._held.add(topic.topic_id)
            return frame
        watched.step(WatchStep.DRAINED)
        if not owes_caught_up:
            if frame is not None and not topic.config.ttl_ms:
                self._shared.newest[topic.topic_id] = NewestFrame(
                    frame, cursor, watched.view, topic, topic.count, topic.floors, topic.config
                )
            return frame
        caught_up = CaughtUpFrame(topic.name, to_seq, topic.number)
        if frame is None:
            return caught_up
        stream.pending.append(caught_up)
        return frame

    def _awaits_copies(self, watched: Watched, topic: Topic) -> bool:
        if watched.copies is None:
            watched.copies = self.copies_before(topic)
        if watched.copies is None:
            return False
        if not watched.copies.is_passed:
            return True
        watched.copies = None
        return False

    def _news_for(self, watched: Watched) -> News | None:
        """What takes a live stream to the head in one frame; None where it has to be pulled.  Raises
        DamagedRun, which the pull that follows meets again."""
        topic = self._find(watched.name)
        if (
            topic is None
            or topic.topic_id != watched.topic_id
            or watched.is_stale
            or topic.tombstone(watched.cursor) is not None
            or topic.hole_at(watched.cursor + 1) is not None
        ):
            return None
        through = topic.synced_seq if watched.view.strong else topic.published_seq
        found = self._page(topic, watched.cursor, watched.view, through)
        if found is None or found[1] != through:
            return None
        return News(found[0], watched.cursor, through, watched.view)

    def _page(
        self, topic: Topic, cursor: int, view: View, through: int
    ) -> tuple[RecordFrame | None, int] | None:
        """The frame from a cursor, and the cursor behind it; one for all streams with the same view.  None where
        what follows is being opened: its streams are woken then."""
        # With the head given, every removal and every expiry shows in the count.
        state = topic.head_seq, topic.published_seq, topic.count, topic.config.dedupe_node
        key = cursor, through, state, view
        known = self._shared.find(topic.topic_id, key)
        if known is not None:
            return known
        skip = view.nodes if topic.config.dedupe_node else ()
        budget_bytes = min(view.budget_bytes, FRAME_TEXT_BYTES)
        query = ReadQuery(cursor, view.limit, budget_bytes, skip, view.match, through, opens=False)
        page = select(topic, query)
        if page.is_partial and page.next_seq <= cursor:
            if self._awaits_opening(topic, cursor):
                return None
            page = select(topic, msgspec.structs.replace(query, opens=True))
        assert page.tombstone is None
        frame = None
        if page.count:
            records = Records(page.extents, tags=view.tags, meta=view.meta, data=view.data)
            frame = RecordFrame(
                topic.name,
                records,
                cursor,
                page.next_seq,
                topic.published_seq,
                partition=topic.number,
            )
        size_bytes = _text_bytes(page.extents)
        self._shared.keep(topic.topic_id, key, frame, page.next_seq, size_bytes)
        return frame, page.next_seq


def _rewind(watched: Watched, known: Remembered, *, is_behind: bool) -> None:
    """Move a position back to where the client is; forwards, too, where it `is_behind`.

    A position in an earlier instance is none in this one: `recreated` is sent again, and until then
    ids repeat what the client sent.
    """
    position = known.positions.get(watched.name)
    if position is None:
        if not watched.partition or public_name(watched.name) not in known.positions:
            return
        position = 0  # the topic got the partition later, and nothing of it has arrived
    if watched.is_heir and known.instances.get(watched.name) != watched.topic_id:
        watched.is_heir, watched.is_stale = False, True
        watched.cursor = position
    else:
        watched.cursor = position if is_behind else min(watched.cursor, position)


def _text_bytes(extents: Sequence[Extent]) -> int:
    size_bytes = 0
    for run, spans in extents:
        offset, size = run.columns.offset, run.columns.size
        for lo, hi in spans:
            size_bytes += int(offset[hi - 1]) + int(size[hi - 1]) - int(offset[lo])
    return size_bytes


def _tombstone_frame(topic: Topic, stone: Tombstone) -> TombstoneFrame:
    return TombstoneFrame(topic.name, stone, topic.earliest_seq, topic.published_seq, topic.number)


def begin_at(topic: Topic, begin: Begin) -> int:
    """The cursor that a reader begins with; `tail` wins over the rest (§7.2)."""
    if begin.tail:
        return topic.published_seq
    return begin.from_seq if begin.from_ts is None else seek(topic, begin.from_ts)


def begin_in(topic: Topic, cursor: int, view: View, *, takes_more: bool = False) -> Watched:
    """A partition as it begins to be watched."""
    return Watched(
        topic.engine_name,
        topic.topic_id,
        cursor,
        view,
        partition=topic.number,
        takes_more=takes_more,
    )


def subscribed(by_name: Mapping[str, Watched], topic: str) -> list[str]:
    """Of what a socket watches, the names of a topic and its partitions."""
    first = by_name.get(topic)
    if first is not None and first.partition is None:
        return [topic]
    return [name for name in by_name if public_name(name) == topic]


def own_view(view: View, begin: Begin) -> View:
    """The view, with a topic's own filters where it has any."""
    if begin.match is not None:
        view = msgspec.structs.replace(view, match=begin.match)
    if begin.nodes is not None:
        view = msgspec.structs.replace(view, nodes=begin.nodes)
    return view
