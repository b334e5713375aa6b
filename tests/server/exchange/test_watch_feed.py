"""The stream of a watch session and its driver (§7.3-§7.6); the transcripts `watch_*` have its
frames."""

import asyncio
from typing import Any

import orjson
import pytest

from server.runtime.test_runtime import LIMITS, WatchedStore, append, play, told
from topics.protocol.http import bodies
from topics.protocol.model.commands import DeleteTopic
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.server.exchange.watch_feed import WatchFeed
from topics.server.runtime.runtime import Runtime


async def opened(runtime: Runtime, **asked: Any) -> WatchFeed:
    """The stream of a new session on `jobs` from its tail, after its opening and `caught-up`."""
    await told(runtime, append("jobs", 0))
    body = orjson.dumps({"topics": {"jobs": {"tail": True}}, **asked})
    await told(runtime, bodies.parse_watch(body, LIMITS, wid="w", lenient=False))
    feed = WatchFeed(runtime, "w", None)
    assert (await feed.next() or b"").startswith(b"retry: 2000\nid: ")
    assert b"event: caught-up" in (await feed.next() or b"")
    return feed


async def waiting(feed: WatchFeed) -> "asyncio.Task[Any]":
    """The driver waits for the next piece."""
    task: asyncio.Task[Any] = asyncio.ensure_future(feed.next())  # type: ignore[arg-type]
    await settled()
    assert not task.done()
    return task


async def settled() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


def test_a_piece_comes_when_there_is_news() -> None:
    """A publication wakes the driver that waits in `next`. (§7.5)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        feed = await opened(runtime)
        task = await waiting(feed)

        await told(runtime, append("jobs", 1))

        assert b'"data":1' in await task
        feed.close()

    play(story)


def test_a_driver_that_can_write_gets_the_frame_at_once() -> None:
    """A driver that can write gets the frame in the turn that published it. (§7.3)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        feed = await opened(runtime)
        written: list[bytes] = []
        feed.write_by(lambda piece: not written.append(piece))  # type: ignore[func-returns-value]
        task = await waiting(feed)

        await told(runtime, append("jobs", 1))
        await told(runtime, append("jobs", 2))
        await settled()

        assert [b'"data":1' in written[0], b'"data":2' in written[1]] == [True, True]
        assert not task.done()
        task.cancel()
        feed.close()

    play(story)


def test_a_frame_that_cannot_be_written_comes_from_next() -> None:
    """A frame that the driver cannot write comes from `next`, once. (§7.6)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        feed = await opened(runtime)
        offered: list[bytes] = []
        feed.write_by(lambda piece: bool(offered.append(piece)))  # type: ignore[func-returns-value]
        task = await waiting(feed)

        await told(runtime, append("jobs", 1))
        piece = await task
        await told(runtime, append("jobs", 2))

        assert offered == [piece]
        assert b'"data":1' in piece
        assert b'"data":2' in (await feed.next() or b"")
        feed.close()

    play(story)


def test_a_write_that_fails_ends_the_stream() -> None:
    """The session may be ahead of the client, so the client has to reconnect with its id. (§7.4)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        feed = await opened(runtime)

        def fail(piece: bytes) -> bool:
            raise ValueError("a bug of a driver")

        feed.write_by(fail)
        task = await waiting(feed)
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)

        await told(runtime, append("jobs", 1))

        assert await task is None
        feed.close()

    play(story)


def test_a_stream_that_was_closed_gives_nothing_more() -> None:
    """`close` ends a pending `next`; the session stays for a reconnect. (§7.4)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        feed = await opened(runtime)
        task = await waiting(feed)

        feed.close()

        assert await task is None
        assert not list(runtime.engine.watches.streams)
        await told(runtime, append("jobs", 1))
        again = WatchFeed(runtime, "w", None)
        await again.next()
        assert b'"data":1' in (await again.next() or b"")
        again.close()

    play(story)


def test_an_unknown_session_has_no_stream() -> None:
    """An unknown session is 404 before a stream is opened. (§7.6)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        with pytest.raises(Rejection) as refused:
            WatchFeed(runtime, "wid_nobody", None)

        assert refused.value.code is ErrorCode.NOT_FOUND

    play(story)


def test_a_stop_says_a_last_word_to_who_waits() -> None:
    """A stopping server sends an error frame with code 503 and ends the stream. (§7.5)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        feed = await opened(runtime)
        task = await waiting(feed)

        runtime.drain()

        assert b'event: error\ndata: {"code":503' in await task
        assert await feed.next() is None
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
