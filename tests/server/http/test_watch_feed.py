"""The stream of a watch session and its driver (§7.3-§7.6); the transcripts `watch_*` have its
frames."""

import asyncio
from typing import Any

import orjson
import pytest

from server.http.feeds import watch_feed
from server.runtime.test_runtime import LIMITS, WatchedStore, append, play, told
from topics.protocol.faces.http.watch import parse_watch
from topics.protocol.model.commands import DeleteTopic
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.state.fanout import Fanout
from topics.server.http.awaited import Awaited
from topics.server.http.watch_feed import WatchFeed
from topics.server.runtime.runtime import Runtime


async def opened(runtime: Runtime, **asked: Any) -> WatchFeed:
    """The stream of a new session on `jobs` from its tail, after its opening and `caught-up`."""
    await told(runtime, append("jobs", 0))
    body = orjson.dumps({"topics": {"jobs": {"tail": True}}, **asked})
    await told(runtime, parse_watch(body, LIMITS, wid="w", lenient=False))
    feed = watch_feed(runtime, "w")
    assert (feed.take() or b"").startswith(b"retry: 2000\nid: ")
    assert b"event: caught-up" in (feed.take() or b"")
    assert feed.take() is None
    return feed


async def waiting(feed: WatchFeed) -> "asyncio.Task[Any]":
    """A task waits for the next piece."""
    task: asyncio.Task[Any] = asyncio.ensure_future(Awaited(feed).next())  # type: ignore[arg-type]
    await settled()
    assert not task.done()
    return task


async def settled() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


def test_a_piece_comes_when_there_is_news() -> None:
    """A publication wakes the task that waits for it. (§7.5)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        feed = await opened(runtime)
        task = await waiting(feed)

        await told(runtime, append("jobs", 1))

        assert b'"data":1' in await task
        feed.close()

    play(story)


class Driver:
    """Takes all there is when it is woken."""

    def __init__(self, feed: WatchFeed) -> None:
        self.feed = feed
        self.taken: list[bytes] = []
        self.has_room = True
        feed.listen(self.wake)

    def wake(self) -> None:
        asyncio.get_running_loop().call_soon(self.take)

    def take(self) -> None:
        while self.has_room and (piece := self.feed.take()) is not None:
            self.taken.append(piece)


async def driven(runtime: Runtime, **asked: Any) -> Driver:
    """A driver that has taken all there was."""
    driver = Driver(await opened(runtime, **asked))
    await settled()
    assert driver.taken == []
    return driver


def test_a_driver_takes_each_frame_once() -> None:
    """In the turn behind the one that published it. (§7.3)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        driver = await driven(runtime)

        await told(runtime, append("jobs", 1))
        await settled()
        await told(runtime, append("jobs", 2))
        await settled()

        assert [b'"data":1' in driver.taken[0], b'"data":2' in driver.taken[1]] == [True, True]
        assert len(driver.taken) == 2
        driver.feed.close()

    play(story)


def test_news_wait_as_a_cursor_for_a_driver_without_room() -> None:
    """What is not taken is not made; then it comes as one frame. (§7.6)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        driver = await driven(runtime)
        driver.has_room = False
        for data in (1, 2, 3):
            await told(runtime, append("jobs", data))
        await settled()
        assert runtime.engine.watches.sessions["w"].watched["jobs"].cursor == 1

        driver.has_room = True
        driver.take()

        (piece,) = driver.taken
        assert b'"data":1' in piece
        assert b'"data":3' in piece
        driver.feed.close()

    play(story)


def test_cold_records_are_read_by_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """`take` gives nothing meanwhile, and wakes its driver when they are there. (§7.3)"""
    from topics.server.service import frames

    reads: list[bool] = []
    read = frames.read

    def cold(records: Any, *, blocking: bool) -> Any:
        reads.append(blocking)
        return read(records, blocking=blocking) if blocking else None

    monkeypatch.setattr(frames, "read", cold)

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        driver = await driven(runtime)
        await told(runtime, append("jobs", 1))
        while not driver.taken:
            await asyncio.sleep(0.001)
        assert b'"data":1' in driver.taken[0]
        assert reads == [False, True]
        driver.feed.close()

    play(story)


def test_a_driver_is_woken_for_a_beat() -> None:
    """When nothing was taken for a while, and counted from what was taken last. (§7.5)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        driver = await driven(runtime)
        feed = driver.feed
        feed._sent_s -= feed._beat_s
        feed._on_beat(now_s())
        await settled()
        (beat,) = driver.taken
        assert beat.startswith(b": hb ")
        feed._on_beat(now_s())
        await settled()
        assert len(driver.taken) == 1
        feed.close()

    play(story)


def test_a_beat_is_pushed_where_nothing_else_is_to_be_sent() -> None:
    """To a driver that writes it without a turn; and it counts as sent. (§7.6)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        driver = await driven(runtime)
        feed, pushed = driver.feed, Pushed()
        feed.push_by(pushed)
        feed._sent_s -= feed._beat_s
        feed._on_beat(now_s())
        feed._on_beat(now_s())

        assert [piece[:5] for piece in pushed.pieces] == [b": hb "]
        assert driver.taken == []
        feed.close()

    play(story)


def test_a_beat_that_cannot_be_pushed_is_taken() -> None:
    """The client does not read, or the server stops: then a turn has it, behind what comes first."""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        driver = await driven(runtime)
        feed, pushed = driver.feed, Pushed(is_taken=False)
        feed.push_by(pushed)
        feed._sent_s -= feed._beat_s
        feed._on_beat(now_s())
        await settled()
        (beat,) = driver.taken
        assert beat.startswith(b": hb ")
        pushed.pieces.clear()

        runtime.drain()
        feed._sent_s -= feed._beat_s
        feed._on_beat(now_s())

        assert pushed.pieces == []
        feed.close()

    play(story)


def test_frames_are_pushed_where_streams_have_the_same_news() -> None:
    """The bytes that a turn would take, to the driver that has no turn for them; a session with an id
    of its own, and one that reads nothing, find them by themselves. (§7.4)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        for name in ("jobs", "news"):
            await told(runtime, append(name, 0))
        only, slow, both = await watching(runtime, ["jobs"], ["jobs"], ["jobs", "news"])
        pushed, refused, never = Pushed(), Pushed(is_taken=False), Pushed()
        fanouts: list[Fanout] = []
        for feed, push in ((only, pushed), (slow, refused), (both, never)):
            feed.push_by(push, lambda fanout: lambda: fanouts.append(fanout))
        await told(runtime, append("jobs", 1))
        (fanout,) = fanouts
        assert not fanout.walk(now_s, now_s() + 60)

        assert only.take() is None
        assert [slow.take()] == refused.pieces == pushed.pieces
        assert pushed.pieces[0].startswith(b"id: " + only._stream.id)
        assert never.pieces == []
        assert (both.take() or b"").startswith(b"id: " + both._stream.id)
        for feed in (only, slow, both):
            feed.close()

    play(story)


def test_no_frame_is_pushed_past_one_that_a_thread_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records come in order, whichever way each goes. (§7.5)"""
    from topics.server.service import frames

    read, cold = frames.read, [True]

    def first_cold(records: Any, *, blocking: bool) -> Any:
        return read(records, blocking=blocking) if blocking or not cold else None

    monkeypatch.setattr(frames, "read", first_cold)

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        driver = await driven(runtime)
        pushed = Pushed()
        fanouts: list[Fanout] = []
        driver.feed.push_by(pushed, lambda fanout: lambda: fanouts.append(fanout))
        await told(runtime, append("jobs", 1))
        fanouts[0].walk(now_s, now_s() + 60)
        driver.take()  # the thread has it to read
        cold.clear()
        await told(runtime, append("jobs", 2))
        fanouts[0].walk(now_s, now_s() + 60)
        while len(driver.taken) < 2:
            await asyncio.sleep(0.001)
        assert pushed.pieces == []

        await told(runtime, append("jobs", 3))
        fanouts[0].walk(now_s, now_s() + 60)

        got = [*driver.taken, *pushed.pieces]
        assert [b'"data":%d' % n in piece for n, piece in enumerate(got, 1)] == [True] * 3
        assert len(pushed.pieces) == 1
        driver.feed.close()

    play(story)


def test_no_frame_is_pushed_behind_a_last_word() -> None:
    """A stream that ends says so in its turn. (§7.6)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        await told(runtime, append("jobs", 0))
        one, two = await watching(runtime, ["jobs"], ["jobs"])
        pushed = Pushed()
        fanouts: list[Fanout] = []
        for feed in (one, two):
            feed.push_by(pushed, lambda fanout: lambda: fanouts.append(fanout))
        await told(runtime, append("jobs", 1))
        again = watch_feed(runtime, "w0")
        two.close()
        fanouts[0].walk(now_s, now_s() + 60)
        assert pushed.pieces == []
        assert b"event: error" in (one.take() or b"")
        one.close()
        again.close()

    play(story)


class Pushed:
    """A driver's way to write at once; `is_taken` is whether the client reads."""

    def __init__(self, *, is_taken: bool = True) -> None:
        self.pieces: list[bytes] = []
        self._is_taken = is_taken

    def __call__(self, piece: bytes) -> bool:
        self.pieces.append(piece)
        return self._is_taken


def now_s() -> float:
    return asyncio.get_running_loop().time()


def test_a_stream_that_is_over_says_so_to_its_driver() -> None:
    """The topic's end is told, the server's is the last word; nothing comes behind it. (§7.5)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        driver = await driven(runtime)
        assert not driver.feed.is_over
        runtime.drain()
        await settled()
        (last,) = driver.taken
        assert b"event: error" in last
        assert b"503" in last
        assert driver.feed.is_over
        assert driver.feed.take() is None
        driver.feed.close()

    play(story)


def test_a_stream_that_was_closed_gives_nothing_more() -> None:
    """And the session stays for a reconnect. (§7.4)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        feed = await opened(runtime)
        task = await waiting(feed)

        feed.close()
        task.cancel()

        assert feed.take() is None
        assert feed.is_over
        assert not list(runtime.engine.watches.streams)
        await told(runtime, append("jobs", 1))
        again = watch_feed(runtime, "w")
        again.take()
        assert b'"data":1' in (again.take() or b"")
        again.close()

    play(story)


def test_an_unknown_session_has_no_stream() -> None:
    """An unknown session is 404 before a stream is opened. (§7.6)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        with pytest.raises(Rejection) as refused:
            watch_feed(runtime, "wid_nobody")

        assert refused.value.code is ErrorCode.NOT_FOUND

    play(story)


def test_a_stop_says_a_last_word_to_who_waits() -> None:
    """A stopping server sends an error frame with code 503 and ends the stream. (§7.5)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        feed = await opened(runtime)
        task = await waiting(feed)

        runtime.drain()

        assert b'event: error\ndata: {"code":503' in await task
        assert feed.take() is None
        feed.close()

    play(story)


def test_a_topic_that_goes_wakes_its_watcher() -> None:
    """When a topic is deleted the watcher gets a frame at once, and the stream continues. (§7.5)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        feed = await opened(runtime)
        task = await waiting(feed)

        await told(runtime, DeleteTopic("jobs"))

        assert b"event: topic-deleted" in await task
        task = await waiting(feed)
        task.cancel()
        feed.close()

    play(story)


async def watching(runtime: Runtime, *sessions: list[str]) -> list[WatchFeed]:
    """A stream of each session on its topics from their tails, after all that came first."""
    feeds = []
    for i, topics in enumerate(sessions):
        asked = orjson.dumps({"topics": {name: {"tail": True} for name in topics}})
        await told(runtime, parse_watch(asked, LIMITS, wid=f"w{i}", lenient=False))
        feed = watch_feed(runtime, f"w{i}")
        feed.listen(lambda: None)
        while feed.take() is not None:
            pass
        feeds.append(feed)
    return feeds


@pytest.mark.parametrize(("size", "is_same"), [(10, True), (5000, False)])
def test_streams_of_one_topic_at_one_place_send_the_same_bytes(size: int, is_same: bool) -> None:
    """The event is made once for all of them, while it is small; what it says is what each would have
    made of it. (§7.5)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        await told(runtime, append("jobs", 0))
        one, two = await watching(runtime, ["jobs"], ["jobs"])
        await told(runtime, append("jobs", "x" * size))
        first, second = one.take(), two.take()

        assert first is not None
        assert first == second
        assert (first is second) is is_same
        assert first.startswith(b"id: " + one._stream.id)
        one.close()
        two.close()

    play(story)


@pytest.mark.parametrize("begins", ["alone", "both"])
def test_an_id_tells_every_topic_of_its_session(begins: str) -> None:
    """A session that watches another topic, too, has an id of its own for the same frame, whichever of
    the two is served first. (§7.4)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        for name in ("jobs", "news"):
            await told(runtime, append(name, 0))
        alone, both = await watching(runtime, ["jobs"], ["jobs", "news"])
        await told(runtime, append("jobs", 1))
        feeds = (alone, both) if begins == "alone" else (both, alone)
        events = {feed: feed.take() or b"" for feed in feeds}

        assert events[alone].startswith(b"id: " + alone._stream.id)
        assert events[both].startswith(b"id: " + both._stream.id)
        assert events[alone].partition(b"\n")[2] == events[both].partition(b"\n")[2]
        assert alone._stream.id != both._stream.id
        alone.close()
        both.close()

    play(story)


def test_an_heir_of_a_deleted_topic_has_an_id_of_its_own() -> None:
    """It says which instance the position is in: a session that began in this one need not. (§7.4)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        await told(runtime, append("jobs", 0))
        (heir,) = await watching(runtime, ["jobs"])
        heir.close()
        await told(runtime, DeleteTopic("jobs", if_empty=False))
        await told(runtime, append("jobs", 1))
        heir = watch_feed(runtime, "w0")
        heir.listen(lambda: None)
        while heir.take() is not None:
            pass
        asked = orjson.dumps({"topics": {"jobs": {"tail": True}}})
        await told(runtime, parse_watch(asked, LIMITS, wid="new", lenient=False))
        new = watch_feed(runtime, "new")
        new.listen(lambda: None)
        while new.take() is not None:
            pass
        await told(runtime, append("jobs", 2))
        first, second = new.take() or b"", heir.take() or b""

        assert first.startswith(b"id: " + new._stream.id)
        assert second.startswith(b"id: " + heir._stream.id)
        assert new._stream.id != heir._stream.id
        assert first.partition(b"\n")[2] == second.partition(b"\n")[2]
        heir.close()
        new.close()

    play(story)
