"""The server's side of a WebSocket and its driver (§7.7); the transcripts `socket*` have the
messages."""

import asyncio
from typing import Any

import orjson

from server.runtime.test_runtime import WatchedStore, append, play, put, told
from topics.server.exchange.socket_feed import REPLIES_BYTES_MAX, SocketFeed
from topics.server.runtime.runtime import Runtime


def message(op: str, **fields: Any) -> str:
    return orjson.dumps({"op": op, **fields}).decode()


async def heard(feed: SocketFeed) -> Any:
    """The next message from the server."""
    return orjson.loads(await feed.next() or "null")


async def settled() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


def test_a_reply_comes_before_what_is_watched() -> None:
    """Replies come before frames. (§7.7)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        await told(runtime, append("jobs", 1))
        feed = SocketFeed(runtime)
        await feed.command(message("subscribe", topic="jobs"))
        await feed.command(message("ping", request_id=7))

        ops = [(await heard(feed))["op"] for _ in range(4)]

        assert ops == ["subscribed", "pong", "record", "caught_up"]
        feed.close()

    play(story)


def test_a_client_that_reads_no_replies_has_to_wait() -> None:
    """Pending replies are bounded: a command waits until the client has read earlier replies. (§7.7)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        feed = SocketFeed(runtime)
        request_id = "r" * 1000
        given = 0

        async def client() -> None:
            nonlocal given
            while True:
                await feed.command(message("ping", request_id=request_id))
                given += 1

        sending = asyncio.ensure_future(client())
        await settled()
        before = given
        while not sending.done() and before != given:
            before = given
            await settled()
        assert REPLIES_BYTES_MAX // 1100 < given < REPLIES_BYTES_MAX // 1000 + 2

        for _ in range(10):
            assert (await heard(feed))["op"] == "pong"
        await settled()

        assert given > before
        sending.cancel()
        feed.close()

    play(story)


def test_a_binary_message_is_answered_with_an_error() -> None:
    """The socket stays open. (§7.7)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        feed = SocketFeed(runtime)
        await feed.refuse_binary()
        await feed.command(message("ping"))

        assert (await heard(feed))["code"] == "invalid_request"
        assert (await heard(feed))["op"] == "pong"
        feed.close()

    play(story)


def test_a_publish_in_class_fsync_is_acknowledged_when_it_is_durable() -> None:
    """The reply waits for the sync, as an HTTP answer does. (§7.7, §2)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        await told(runtime, put("jobs", durability="fsync"))
        feed = SocketFeed(runtime)
        store.may_sync.clear()
        publishing = asyncio.ensure_future(
            feed.command(message("publish", topic="jobs", records=[{"data": 1}]))
        )
        hearing = asyncio.ensure_future(heard(feed))
        await settled()
        assert not hearing.done()

        store.may_sync.set()

        assert (await hearing)["op"] == "ack"
        await publishing
        feed.close()

    play(story)


def test_a_write_of_a_client_that_has_gone_stays_written() -> None:
    """A publish that was begun is completed after the client has disconnected. (§7.7)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        await told(runtime, put("jobs", durability="fsync"))
        feed = SocketFeed(runtime)
        store.may_sync.clear()
        publishing = asyncio.ensure_future(
            feed.command(message("publish", topic="jobs", records=[{"data": 1}]))
        )
        await settled()

        publishing.cancel()
        await asyncio.gather(publishing, return_exceptions=True)
        feed.close()
        store.may_sync.set()

        await told(runtime, append("jobs", 2))
        assert runtime.engine.state.topics["jobs"].head_seq == 2
        assert not list(runtime.engine.watches.streams)

    play(story)


def test_a_stop_sends_the_pending_reply_first() -> None:
    """A pending reply is sent before the final error. (§7.7)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        await told(runtime, put("jobs", durability="fsync"))
        feed = SocketFeed(runtime)
        store.may_sync.clear()
        publishing = asyncio.ensure_future(
            feed.command(message("publish", topic="jobs", records=[{"data": 1}]))
        )
        await settled()

        runtime.drain()
        store.may_sync.set()

        assert (await heard(feed))["op"] == "ack"
        assert (await heard(feed))["code"] == "shutting_down"
        assert await feed.next() is None
        await publishing
        feed.close()

    play(story)


def test_a_command_during_a_stop_is_refused() -> None:
    """A command during the stop is refused with `shutting_down`. (§8.2)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        feed = SocketFeed(runtime)
        runtime.drain()
        await feed.command(message("ping", request_id=1))

        refused = await heard(feed)

        assert (refused["request_id"], refused["code"]) == (1, "shutting_down")
        feed.close()

    play(story)
