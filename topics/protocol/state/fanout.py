"""A fan-out: the watchers of one topic, which a publication has the same news for (§7.4).

Most streams of a topic are live: they stand at its head and want the same frame.  A fan-out walks over
them and gives it to one after the other, where each stream takes it at once; so a delivery is a
comparison and a write, and not a turn of its own.  A stream that does not take it, because its client
does not read, or that stands elsewhere, is woken, and finds by itself what it has to send.

Owns how far the walk is.  It knows no clock: the driver gives it slices of time, so that many watchers
hold up nobody else.  What is published during a walk begins another one behind it, and streams that
the walk comes to later get both at once.

Invariant: when no walk is due, each open stream of the topic has its news or was woken for it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

import msgspec

from topics.protocol.model.commands import View
from topics.protocol.state.frames import RecordFrame
from topics.protocol.state.watched import Stream, Watched, WatchPlace

LIVE: Final = WatchPlace.LIVE


class News(msgspec.Struct, eq=False):
    """What takes a live stream that stands at `cursor` to the head: the frame, None where there is
    nothing, or nothing that passes the view."""

    frame: RecordFrame | None
    cursor: int
    to_seq: int
    view: View


class Fanout:
    """The walk over the watchers of one topic.

    Attributes:
        ask: Have `walk` called soon; set by the driver.
        size: Watchers in this walk, or in the last.
    """

    def __init__(self, fanouts: "Fanouts", topic_id: int) -> None:
        self.ask: Callable[[], None]
        self.size = 0
        self._fanouts = fanouts
        self._topic_id = topic_id
        self._members: Sequence[Watched] = ()
        self._at = 0
        self._is_due = False
        self._has_news = False
        self._news: News | None = None
        """Of the stream before."""

    def on_news(self) -> None:
        """The topic shows more: a walk is due, behind the one that is under way."""
        self._has_news = True
        if not self._is_due:
            self._is_due = True
            self.ask()

    def walk(self, clock: Callable[[], float], until_s: float) -> bool:
        """Give streams their news until it is `until_s` by `clock`, one at least; returns whether
        there is more to do."""
        fanouts = self._fanouts
        fanouts.advance()
        if self._at == len(self._members):
            self._members, self._at = list(fanouts.listed(self._topic_id)), 0
            self.size = len(self._members)
            self._has_news = False
        members, size = self._members, self.size
        at = self._at
        while at < size:
            watched = members[at]
            at = self._at = at + 1
            stream = watched.stream
            if stream is None or watched.is_queued:
                pass  # no stream, or one that will look for itself
            elif not self._gave(watched, stream):
                stream.queue(watched)
                stream.wake()
            if clock() >= until_s:
                break
        self._news = None  # it may not be true in the next slice, and keeps a file open
        if at < size:
            return True
        self._members, self._at = (), 0
        self._is_due = self._has_news
        return self._is_due

    def _gave(self, watched: Watched, stream: Stream) -> bool:
        """Whether a stream took its news."""
        push = stream.push
        if push is None or watched.place is not LIVE or stream.pending:
            return False
        cursor = watched.cursor
        try:
            news = self._news
            if news is None or news.cursor != cursor or news.view is not watched.view:
                news = self._news_for(watched, news)
                if news is None:
                    return False
            watched.cursor = news.to_seq  # before the frame is written out: it is the frame's id
            if news.frame is None or push(news.frame):
                return True
        except Exception:
            # The turn that the stream gets meets the error again, and ends the stream.
            pass
        watched.cursor = cursor
        return False

    def _news_for(self, watched: Watched, last: News | None) -> News | None:
        """The news of the stream before, where this one stands at the same place; or its own."""
        if last is not None and last.cursor == watched.cursor and last.view == watched.view:
            watched.view = last.view  # the next comparison is one of identity
        else:
            last = self._news = self._fanouts.news_for(watched)
        return last


Gather: TypeAlias = Callable[[Fanout], Callable[[], None]]
"""Takes a fanout, and returns how to ask that its `walk` is called soon."""


class Fanouts:
    """The fanout of each topic that is watched and has shown more; none where no driver walks.

    Args:
        listed: All that watch the topic of an id, with a stream or without.
        news_for: What takes a live stream to the head in one frame; None where it has to be pulled.

    Attributes:
        advance: Lets the engine's time go on to what it is now.
    """

    def __init__(
        self,
        listed: Callable[[int], Iterable[Watched]],
        news_for: Callable[[Watched], News | None],
    ) -> None:
        self.listed = listed
        self.news_for = news_for
        self.advance: Callable[[], object] = lambda: None
        self._gather: Gather | None = None
        self._by_topic: dict[int, Fanout] = {}

    def gather_by(self, gather: Gather, advance: Callable[[], object]) -> None:
        """There is a driver that walks: no stream is woken but by a walk."""
        self._gather, self.advance = gather, advance

    def on_news(self, topic_id: int) -> bool:
        """A topic that is watched shows more; False where no driver walks."""
        if self._gather is None:
            return False
        fanout = self._by_topic.get(topic_id)
        if fanout is None:
            fanout = self._by_topic[topic_id] = Fanout(self, topic_id)
            fanout.ask = self._gather(fanout)
        fanout.on_news()
        return True

    def forget(self, topic_id: int) -> None:
        """Nothing watches the topic any more."""
        self._by_topic.pop(topic_id, None)
