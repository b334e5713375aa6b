"""The server's side of a WebSocket and its driver (§7.7); the transcripts `socket*` have the
messages."""

import asyncio
from typing import Any

import orjson

from server.http.feeds import socket_feed
from server.runtime.test_runtime import WatchedStore, append, diff, play, put, told
from topics.server.http.awaited import AwaitedSocket
from topics.server.http.socket_feed import REPLIES_BYTES_MAX
from topics.server.runtime.runtime import Runtime


def message(op: str, **fields: Any) -> bytes:
    return orjson.dumps({"op": op, **fields})


def opened(runtime: Runtime) -> AwaitedSocket:
    return AwaitedSocket(socket_feed(runtime))


async def heard(feed: AwaitedSocket) -> Any:
    """The next message from the server."""
    return orjson.loads(await feed.next() or "null")


async def settled() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


def test_a_reply_comes_before_what_is_watched() -> None:
    """Replies come before frames. (§7.7)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        await told(runtime, append("jobs", 1))
        feed = opened(runtime)
        await feed.hear(message("subscribe", topic="jobs"))
        await feed.hear(message("ping", request_id=7))

        ops = [(await heard(feed))["op"] for _ in range(4)]

        assert ops == ["subscribed", "pong", "record", "caught_up"]
        feed.close()

    play(story)


def test_a_client_that_reads_no_replies_has_to_wait() -> None:
    """Pending replies are bounded: a command waits until the client has read earlier replies. (§7.7)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        feed = opened(runtime)
        request_id = "r" * 1000
        given = 0

        async def client() -> None:
            nonlocal given
            while True:
                await feed.hear(message("ping", request_id=request_id))
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
        feed = opened(runtime)
        await feed.hear_unexpected()
        await feed.hear(message("ping"))

        assert (await heard(feed))["code"] == "invalid_request"
        assert (await heard(feed))["op"] == "pong"
        feed.close()

    play(story)


def test_a_publish_in_class_fsync_is_acknowledged_when_it_is_durable() -> None:
    """The reply waits for the sync, as an HTTP answer does. (§7.7, §2)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        await told(runtime, put("jobs", durability="fsync"))
        feed = opened(runtime)
        store.may_sync.clear()
        publishing = asyncio.ensure_future(
            feed.hear(message("publish", topic="jobs", records=[{"data": 1}]))
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
        feed = opened(runtime)
        store.may_sync.clear()
        publishing = asyncio.ensure_future(
            feed.hear(message("publish", topic="jobs", records=[{"data": 1}]))
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
        feed = opened(runtime)
        store.may_sync.clear()
        publishing = asyncio.ensure_future(
            feed.hear(message("publish", topic="jobs", records=[{"data": 1}]))
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
        feed = opened(runtime)
        runtime.drain()
        await feed.hear(message("ping", request_id=1))

        refused = await heard(feed)

        assert (refused["request_id"], refused["code"]) == (1, "shutting_down")
        feed.close()

    play(story)


class Driver:
    """Takes all there is when it is woken; `says` gives a command."""

    def __init__(self, runtime: Runtime) -> None:
        self.feed = socket_feed(runtime)
        self.taken: list[Any] = []
        self.has_room = True
        self.feed.listen(lambda: asyncio.get_running_loop().call_soon(self.take) and None)

    def take(self) -> None:
        while self.has_room and (message := self.feed.take()) is not None:
            self.taken.append(orjson.loads(message))

    def says(self, **command: Any) -> None:
        assert not self.feed.is_busy
        self.feed.hear(orjson.dumps(command))

    async def until(self, count: int) -> None:
        while len(self.taken) < count:
            await asyncio.sleep(0.001)

    @property
    def ops(self) -> list[str]:
        return [message["op"] for message in self.taken]


def test_a_driver_gives_a_command_at_a_time() -> None:
    """A publish keeps the socket busy until it is acknowledged; its record comes to the subscriber."""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        await told(runtime, append("jobs", 0))
        driver = Driver(runtime)
        driver.says(op="subscribe", topic="jobs", tail=True, request_id=1)
        await driver.until(2)
        driver.says(op="publish", topic="jobs", records=[{"data": "new"}], request_id=2)
        assert driver.feed.is_busy
        await driver.until(4)
        assert not driver.feed.is_busy
        driver.says(op="ping", request_id=3)
        driver.feed.hear(b"no json")
        driver.feed.hear_unexpected()
        await driver.until(7)

        assert driver.ops[:2] == ["subscribed", "caught_up"]
        assert sorted(driver.ops[2:4]) == ["ack", "record"]
        assert driver.ops[4:] == ["pong", "error", "error"]
        driver.feed.close()

    play(story)


def test_a_large_message_is_parsed_on_a_thread() -> None:
    """Meanwhile the socket is busy, and others are served; then it is carried out as any other. (§7.7)"""
    records = [{"data": "x" * 1000}] * 300

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        driver = Driver(runtime)
        driver.says(op="publish", topic="jobs", records=records, request_id=1)
        assert driver.feed.is_busy
        await driver.until(1)
        driver.says(op="publish", topic="jobs", records=[*records, {}], request_id=2)
        await driver.until(2)
        driver.feed.hear(b'{"records":[' + b'{"data":1},' * 30_000)
        await driver.until(3)
        driver.says(op="ping", request_id=3, ignored="x" * 300_000)
        await driver.until(4)

        assert driver.ops == ["ack", "error", "error", "pong"]
        assert (await told(runtime, diff("jobs"))).result.head_seq == 300
        driver.feed.close()

    play(story)


def test_a_large_message_of_a_client_that_is_gone() -> None:
    """What it wrote stays written; what else it asked for is of no use to it. (§7.7)"""
    records = [{"data": "x" * 1000}] * 300

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        await told(runtime, append("jobs", 0))
        for fields in ({"op": "publish", "topic": "jobs"}, {"op": "unsubscribe", "topic": "jobs"}):
            driver = Driver(runtime)
            driver.says(**fields, records=records)
            driver.feed.close()
        while (await told(runtime, diff("jobs"))).result.head_seq < 301:
            await asyncio.sleep(0)  # a thread decodes it

        assert driver.ops == []

    play(story)


def test_a_driver_whose_client_takes_no_replies_is_kept_busy() -> None:
    """What waits for a client is bounded; once it is taken the driver is woken."""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        driver = Driver(runtime)
        driver.has_room = False
        count = 0
        while not driver.feed.is_busy:
            driver.says(op="ping", request_id="x" * 1000)
            count += 1
        assert count * 1000 <= REPLIES_BYTES_MAX + 2000

        driver.has_room = True
        driver.take()

        assert driver.ops == ["pong"] * count
        assert not driver.feed.is_busy
        driver.feed.close()

    play(story)


def test_a_driver_gets_the_last_word() -> None:
    """Behind the acknowledgement that is still owed. (§0.10)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        driver = Driver(runtime)
        driver.says(op="publish", topic="jobs", records=[{"data": 1}], request_id=1)
        runtime.drain()
        await driver.until(2)

        assert driver.ops == ["ack", "error"]
        assert driver.taken[1]["code"] == "shutting_down"
        assert driver.feed.is_over
        assert driver.feed.take() is None
        driver.feed.close()

    play(story)


def test_a_reply_for_a_closed_socket_is_dropped() -> None:
    """Its acknowledgement goes to nobody."""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        driver = Driver(runtime)
        driver.says(op="publish", topic="jobs", records=[{"data": 1}], request_id=1)
        driver.feed.close()
        while "jobs" not in runtime.engine.state.topics:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0)
        assert driver.taken == []

    play(story)
