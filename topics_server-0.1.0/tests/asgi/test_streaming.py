"""The drivers of streams and WebSockets, and the feeds behind them (§7.3-§7.7)."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from topics.asgi import streaming
from topics.asgi.streaming import MESSAGE_BYTES_MAX, SLOW, converse, stream
from topics.protocol.driver.group_commit import Reply, Ticket
from topics.protocol.model.commands import Command
from topics.protocol.model.errors import Corrupt
from topics.server.exchange.interface import Streaming
from topics.server.exchange.shell import Phase
from topics.server.exchange.socket_feed import REPLIES_BYTES_MAX, SocketFeed
from topics.server.exchange.watch_feed import WatchFeed
from topics.testing import MemoryTopics

T = TypeVar("T")
SHORT_S = 0.01
"""A deadline that is meant to pass."""
DEADLINE_S = 100.0


def run(made: Coroutine[Any, Any, T]) -> T:
    """Run a test's story; one that never ends fails instead."""

    async def bounded() -> T:
        async with asyncio.timeout(DEADLINE_S):
            return await made

    return asyncio.run(bounded())


async def never(*ignored: Any) -> Any:
    await asyncio.Event().wait()


# ---------------------------------------------------------------------- the driver of streams


@dataclass
class FakeFeed:
    """Yields its pieces, and then ends or yields nothing more."""

    pieces: list[bytes]
    ends: bool = True
    closed: int = 0
    pulled: int = 0

    async def next(self) -> bytes | None:
        if self.pulled == len(self.pieces):
            return None if self.ends else await never()
        self.pulled += 1
        return self.pieces[self.pulled - 1]

    def close(self) -> None:
        self.closed += 1


@dataclass
class Client:
    """Keeps what was sent; it takes `takes` messages and then no more."""

    takes: int = 1_000_000
    sent: list[Any] = field(default_factory=list)

    async def send(self, message: Any) -> None:
        if len(self.sent) >= self.takes:
            await never()
        self.sent.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(m.get("body", b"") for m in self.sent)


HEADERS = ((b"content-type", b"text/event-stream"),)


def test_a_feed_that_ends_ends_the_answer() -> None:
    """Head, a message for each piece, and an empty last one; the feed is closed once. (§7.3)"""
    feed, client = FakeFeed([b"one", b"two"]), Client()
    run(stream(Streaming(200, HEADERS, feed), client.send, never()))

    assert client.sent[0] == {
        "type": "http.response.start",
        "status": 200,
        "headers": list(HEADERS),
    }
    assert [(m["body"], m["more_body"]) for m in client.sent[1:]] == [
        (b"one", True), (b"two", True), (b"", False),
    ]  # fmt: skip
    assert feed.closed == 1


def test_head_sends_the_head_only() -> None:
    """HEAD opens no feed. (§0.6, §7.3)"""
    client = Client()
    run(stream(Streaming(200, HEADERS, None), client.send, never()))
    assert [m["type"] for m in client.sent] == ["http.response.start", "http.response.body"]
    assert (client.body, client.sent[-1]["more_body"]) == (b"", False)


def test_a_client_that_takes_nothing_is_cut() -> None:
    """After its deadline, without an end, which makes the server end the connection. (§7.6)"""
    feed, client = FakeFeed([b"one", b"two", b"three"]), Client(takes=2)
    run(stream(Streaming(200, HEADERS, feed), client.send, never(), take_s=SHORT_S))
    assert client.body == b"one"
    assert all(m.get("more_body", True) for m in client.sent)
    assert (feed.pulled, feed.closed) == (2, 1)


def test_a_client_that_reads_again_gets_the_last_word() -> None:
    """Under any server: after the piece that it had not taken, the error and the end. (§7.6)"""
    taken: list[Any] = []

    async def send(message: Any) -> None:
        if message.get("body") == b"one":
            await never()
        taken.append(message)

    feed = FakeFeed([b"one"])
    run(stream(Streaming(200, HEADERS, feed), send, never(), take_s=SHORT_S))
    assert taken[-1] == {"type": "http.response.body", "body": SLOW, "more_body": False}
    assert json.loads(SLOW.partition(b"data: ")[2])["code"] == 408
    assert feed.closed == 1


def test_the_deadline_is_for_one_piece() -> None:
    """A stream with nothing to say is not a slow client. (§7.6)"""

    async def story() -> None:
        gone = asyncio.Event()
        feed, client = FakeFeed([b"one"], ends=False), Client()
        driving = asyncio.create_task(
            stream(Streaming(200, HEADERS, feed), client.send, gone.wait(), take_s=SHORT_S)
        )
        await asyncio.wait({driving}, timeout=5 * SHORT_S)
        assert not driving.done()
        gone.set()
        await driving
        assert feed.closed == 1

    run(story())


def test_a_client_that_leaves_closes_the_feed() -> None:
    """After a disconnect nothing more is sent. (§7.3)"""

    async def story() -> None:
        gone = asyncio.Event()
        feed, client = FakeFeed([b"one"], ends=False), Client()
        driving = asyncio.create_task(
            stream(Streaming(200, HEADERS, feed), client.send, gone.wait())
        )
        while feed.pulled == 0:
            await asyncio.sleep(0)
        gone.set()
        await driving
        assert feed.closed == 1
        assert client.body in (b"", b"one")

    run(story())


@pytest.mark.parametrize("cause", ["feed", "send", "cancelled"])
def test_whatever_goes_wrong_the_feed_is_closed(cause: str) -> None:
    """A bug is raised to the caller, which logs it; a cancelled handler leaves nothing behind.
    (§11)"""

    class Broken(FakeFeed):
        async def next(self) -> bytes | None:
            if cause == "feed":
                raise ValueError("a bug")
            return b"piece" if cause == "send" else await never()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            raise ValueError("a bug")

    feed = Broken([])

    async def story() -> None:
        driving = asyncio.create_task(stream(Streaming(200, HEADERS, feed), send, never()))
        if cause == "cancelled":
            await asyncio.sleep(0)
            driving.cancel()
        await driving

    with pytest.raises(asyncio.CancelledError if cause == "cancelled" else ValueError):
        run(story())
    assert feed.closed == 1


def test_others_get_a_turn_between_two_pieces() -> None:
    """A client that takes everything at once does not block the loop. (§7.6)"""

    async def story() -> None:
        feed, client = FakeFeed([b"x"] * 1000), Client()
        driving = asyncio.create_task(stream(Streaming(200, HEADERS, feed), client.send, never()))
        turns = 0
        while not driving.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns >= 1000

    run(story())


# ---------------------------------------------------------------------- the driver of sockets


@dataclass
class FakeSocket:
    """Answers each command with a copy of it."""

    ends: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)
    replies: list[str] = field(default_factory=list)
    closed: int = 0
    binaries: int = 0

    async def command(self, text: str) -> None:
        await asyncio.sleep(0)
        self.replies.append(text)
        self.news.set()

    async def refuse_binary(self) -> None:
        self.binaries += 1

    async def next(self) -> str | None:
        while not self.replies:
            if self.ends:
                return None
            self.news.clear()
            await self.news.wait()
        return self.replies.pop(0)

    def close(self) -> None:
        self.closed += 1


class Lines:
    """A WebSocket's client that a test drives message by message."""

    def __init__(self, *messages: Any) -> None:
        self.queue: asyncio.Queue[Any] = asyncio.Queue()
        for message in messages:
            self.queue.put_nowait(message)

    async def receive(self) -> Any:
        return await self.queue.get()


def text(value: str) -> Any:
    return {"type": "websocket.receive", "text": value}


GONE = {"type": "websocket.disconnect", "code": 1006}


def test_commands_are_carried_out_in_order() -> None:
    """And a client that closes gets no Close frame in addition. (§7.7)"""

    async def story() -> tuple[FakeSocket, Client]:
        socket, client = FakeSocket(), Client()
        lines = Lines(*[text(str(i)) for i in range(5)])
        talking = asyncio.create_task(converse(socket, client.send, lines.receive))
        while len(client.sent) < 6:
            await asyncio.sleep(0)
        lines.queue.put_nowait(GONE)
        await talking
        return socket, client

    socket, client = run(story())
    assert client.sent[0] == {"type": "websocket.accept"}
    assert [m["text"] for m in client.sent[1:]] == ["0", "1", "2", "3", "4"]
    assert socket.closed == 1


def test_a_binary_message_is_refused_and_the_socket_stays() -> None:
    """With or without a `text` of None. (§7.7)"""

    async def story() -> FakeSocket:
        socket = FakeSocket()
        messages = [
            {"type": "websocket.receive", "bytes": b"x"},
            {"type": "websocket.receive", "bytes": b"x", "text": None},
            GONE,
        ]
        await converse(socket, Client().send, Lines(*messages).receive)
        return socket

    assert run(story()).binaries == 2


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("x" * MESSAGE_BYTES_MAX, None),
        ("x" * (MESSAGE_BYTES_MAX + 1), 1009),
        ("€" * (MESSAGE_BYTES_MAX // 3), None),
        ("€" * (MESSAGE_BYTES_MAX // 3 + 1), 1009),
    ],
    ids=["ascii", "ascii+1", "wide", "wide+1"],
)
def test_a_message_is_at_most_8_mib(message: str, code: int | None) -> None:
    """8 MiB of UTF-8; a longer one ends the socket with 1009. (§7.7)"""
    client = Client()
    run(converse(FakeSocket(), client.send, Lines(text(message), GONE).receive))
    closes = [m["code"] for m in client.sent if m["type"] == "websocket.close"]
    assert closes == ([] if code is None else [code])


def test_a_socket_that_the_server_ends_is_closed() -> None:
    """1001, going away. (§7.7)"""
    socket, client = FakeSocket(ends=True), Client()
    run(converse(socket, client.send, never))
    assert client.sent[-1] == {"type": "websocket.close", "code": 1001}
    assert socket.closed == 1


@pytest.mark.parametrize("takes", [1, 2])
def test_a_client_that_takes_no_message_is_cut(takes: int) -> None:
    """Without a Close frame, which it would not take either. (§7.6, §7.7)"""
    socket, client = FakeSocket(replies=["a", "b", "c"]), Client(takes=takes)
    run(converse(socket, client.send, never, take_s=SHORT_S))
    assert len(client.sent) == takes
    assert socket.closed == 1


def test_a_close_that_nobody_takes_is_not_waited_for() -> None:
    """The deadline holds for the Close frame, too. (§7.6)"""
    socket, client = FakeSocket(ends=True), Client(takes=1)
    run(converse(socket, client.send, never, take_s=SHORT_S))
    assert socket.closed == 1


def test_a_bug_behind_a_socket_is_told_to_the_caller() -> None:
    """It is raised to the caller, and the socket is closed. (§7.7)"""

    class Broken(FakeSocket):
        async def next(self) -> str | None:
            raise ValueError("a bug")

    socket = Broken()
    with pytest.raises(ValueError, match="a bug"):
        run(converse(socket, Client().send, never))
    assert socket.closed == 1


# ---------------------------------------------------------------------- a session's feed


class Watched(MemoryTopics):
    """An engine with a session over `t`, and its feeds opened by the test."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.shell: Any = self._shell
        self.client.append("t", 1)
        self.wid = self.post(**options)["wid"]

    def post(self, **options: Any) -> Any:
        answer: list[Any] = []

        async def send(message: Any) -> None:
            answer.append(message)

        body = json.dumps({"topics": {"t": {}}, **options}).encode()
        asyncio.run(self.app(*post("/v0/watch", body), send))
        return json.loads(answer[1]["body"])

    def feed(self, last_id: str | None = None) -> WatchFeed:
        return WatchFeed(self.shell, self.wid, last_id)


def post(path: str, body: bytes) -> tuple[Any, Callable[[], Awaitable[Any]]]:
    scope = {
        "type": "http",
        "method": "POST",
        "http_version": "1.1",
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
    }

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    return scope, receive


async def kinds(feed: WatchFeed, count: int) -> list[str]:
    """What the next pieces are: the names of their events, or `beat`."""
    found = []
    for _ in range(count):
        piece = await feed.next()
        assert piece is not None
        lines = bytes(piece).decode().split("\n")
        events = [line[7:] for line in lines if line.startswith("event: ")]
        found.append(events[0] if events else "beat")
    return found


def test_a_feed_beats_when_nothing_was_sent() -> None:
    """Records first; then heartbeats, one for each interval. (§7.6)"""
    with Watched() as topics:

        async def story() -> list[str]:
            feed = topics.feed()
            feed._beat_s = SHORT_S
            return await kinds(feed, 5)

        assert run(story()) == ["beat", "record", "caught-up", "beat", "beat"]


def test_a_look_that_only_skips_still_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client whose feed skips its own records for long still gets heartbeats. (§3.2, §7.6)"""
    monkeypatch.setattr("topics.protocol.state.selection.SCAN_ROWS_MAX", 1)
    with Watched(node="me") as topics:
        for _ in range(50):
            topics.client.append("t", 1, node="me")

        async def story() -> list[str]:
            feed = topics.feed()
            first = await kinds(feed, 2)
            feed._beat_s = 0
            return first + await kinds(feed, 1)

        assert run(story()) == ["beat", "record", "beat"]


def test_news_wake_a_feed() -> None:
    """Another client's write is pushed without a heartbeat in between. (§7.3)"""
    with Watched() as topics:

        async def story() -> bytes | None:
            feed = topics.feed()
            await kinds(feed, 3)
            waiting = asyncio.ensure_future(feed.next())
            await asyncio.sleep(0)
            topics.client.append("t", "news")
            piece = await waiting
            feed.close()
            assert await feed.next() is None
            return bytes(piece or b"")

        assert b'"data":"news"' in (run(story()) or b"")
        assert topics.shell.engine.watches.streams == set()


def test_a_stop_ends_a_feed_with_an_error() -> None:
    """503, and nothing after it. (§7.5)"""
    with Watched() as topics:

        async def story() -> list[Any]:
            feed = topics.feed()
            await kinds(feed, 3)
            waiting = asyncio.ensure_future(feed.next())
            await asyncio.sleep(0)
            topics.shell.phase = Phase.DRAINING
            for each in topics.shell.engine.watches.streams:
                each.wake()
            return [await waiting, await feed.next()]

        last, end = run(story())
        assert b"event: error" in last
        assert b'"code":503' in last
        assert end is None


def test_a_takeover_ends_the_older_feed_with_an_error() -> None:
    """409, and the newer one continues at the session's position. (§7.3)"""
    with Watched() as topics:

        async def story() -> None:
            old = topics.feed()
            await kinds(old, 3)
            new = topics.feed()
            assert b'"code":409' in (await old.next() or b"")
            assert await old.next() is None
            old.close()
            topics.client.append("t", 2)
            assert await kinds(new, 3) == ["beat", "record", "caught-up"]

        run(story())


def test_damage_ends_one_topic_of_a_feed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error has the topic and the place of the damage; heartbeats and other topics continue.
    (§7.5)"""

    def damaged(records: Any, *, blocking: bool) -> Any:
        raise Corrupt("segment", 7, "a bad block")

    with Watched() as topics:
        monkeypatch.setattr("topics.server.exchange.payload._texts", damaged)

        async def story() -> list[bytes]:
            feed = topics.feed()
            feed._beat_s = SHORT_S
            pieces = [bytes(await feed.next() or b"") for _ in range(3)]
            feed.close()
            return pieces

        _, error, beat = run(story())
        told = json.loads(error.split(b"data: ")[1])
        assert (told["code"], told["topics"]) == (500, ["t"])
        assert told["detail"] == {"reason": "corrupt", "first_seq": 1, "last_seq": 1}
        assert beat.startswith(b": hb ")
        assert topics.shell.engine.watches.sessions[topics.wid].watched["t"].cursor == 0


async def ask(feed: SocketFeed, **message: Any) -> Any:
    await feed.command(json.dumps(message))
    return await hear(feed)


async def hear(feed: SocketFeed) -> Any:
    return json.loads(await feed.next() or "null")


def test_a_socket_is_answered_in_order() -> None:
    """Replies under their ids, frames of what is subscribed, errors for what is wrong. (§7.7)"""
    with MemoryTopics() as topics:

        async def story() -> None:
            feed = SocketFeed(topics._shell)
            assert (await ask(feed, op="ping", request_id=1))["op"] == "pong"
            ack = await ask(feed, op="publish", topic="t", records=[{"data": 1}], request_id="p")
            assert (ack["op"], ack["request_id"], ack["seqs"]) == ("ack", "p", [1])
            assert set(ack["performance"]) == {"wal_append_ms", "fsync_ms", "throttle_wait_ms"}
            subscribed = await ask(feed, op="subscribe", topic="t", request_id="s")
            assert subscribed["topics"]["t"]["from_seq"] == 0
            assert [(await hear(feed))["op"] for _ in range(2)] == ["record", "caught_up"]
            nobody = await ask(feed, op="subscribe", topic="nobody", request_id="n")
            assert (nobody["code"], nobody["request_id"]) == ("topic_not_found", "n")
            await feed.refuse_binary()
            assert (await hear(feed))["code"] == "invalid_request"
            await feed.command("nonsense")
            assert (await hear(feed))["code"] == "invalid_json"
            gone = await ask(feed, op="unsubscribe", topic="t")
            assert gone == {"op": "unsubscribed", "topic": "t", "subscribed": True}
            feed.close()
            assert await feed.next() is None
            assert topics._shell.engine.watches.streams == set()

        run(story())


def test_who_does_not_take_replies_is_not_heard() -> None:
    """The next command is not read until the client has taken enough replies; all of them arrive.
    (§7.6)"""
    with MemoryTopics() as topics:

        async def story() -> None:
            feed = SocketFeed(topics._shell)
            long = "x" * (REPLIES_BYTES_MAX // 2)

            async def flood() -> None:
                for i in range(20):
                    await feed.command(json.dumps({"op": "ping", "request_id": f"{i}{long}"}))
                for _ in range(2000):
                    await feed.refuse_binary()

            flooding = asyncio.ensure_future(flood())
            heard = 0
            while not (flooding.done() and not feed._replies):
                assert feed._replies_bytes <= 2 * REPLIES_BYTES_MAX
                assert (await hear(feed))["op"] in ("pong", "error")
                heard += 1
                await asyncio.sleep(0)
            await flooding
            assert heard == 2020
            assert feed._replies_bytes == 0

        run(story())


def test_a_socket_that_ends_lets_go_of_who_waits() -> None:
    """Neither the reading nor the writing task is left waiting. (§7.7)"""
    with MemoryTopics() as topics:

        async def story() -> None:
            feed = SocketFeed(topics._shell)
            long = json.dumps({"op": "ping", "request_id": "x" * (REPLIES_BYTES_MAX + 1)})
            flooding = asyncio.ensure_future(feed.command(long))
            other = SocketFeed(topics._shell)
            waiting = asyncio.ensure_future(other.next())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            feed.close()
            other.close()
            await flooding
            assert await waiting is None

        run(story())


class Slow:
    """A shell whose writes are acknowledged when the test lets them."""

    def __init__(self, topics: MemoryTopics) -> None:
        self._topics: Any = topics._shell
        self.owed: list[Callable[[Reply], None]] = []
        self.phase = Phase.READY

    def __getattr__(self, name: str) -> Any:
        return getattr(self._topics, name)

    def submit(self, command: Command, deliver: Callable[[Reply], None]) -> Reply | Ticket:
        told = self._topics.submit(command, deliver)
        self.owed.append(lambda _: deliver(told))
        return Ticket(lambda: None)


def test_an_ack_that_is_owed_is_told_before_the_end() -> None:
    """A stop waits for the write in progress, then sends that the server stops. (§7.7)"""
    with MemoryTopics() as topics:
        shell: Any = Slow(topics)

        async def story() -> list[Any]:
            feed = SocketFeed(shell)
            message = json.dumps({"op": "publish", "topic": "t", "records": [{"data": 1}]})
            writing = asyncio.ensure_future(feed.command(message))
            hearing = asyncio.ensure_future(hear(feed))
            while not shell.owed:
                await asyncio.sleep(0)
            shell.phase = Phase.DRAINING
            shell.engine.watches.streams.copy().pop().wake()
            await asyncio.sleep(0)
            assert not hearing.done()
            shell.owed[0](Reply(ValueError()))
            await writing
            heard = [await hearing, await hear(feed)]
            assert await feed.next() is None
            feed.close()
            return heard

        ack, last = run(story())
        assert (ack["op"], ack["seqs"]) == ("ack", [1])
        assert (last["op"], last["code"]) == ("error", "shutting_down")


def test_a_write_whose_client_has_gone_is_told_to_nobody() -> None:
    """It stays written, and the end of the turn raises no error. (§2, §7.7)"""
    with MemoryTopics() as topics:
        shell: Any = Slow(topics)

        async def story() -> None:
            feed = SocketFeed(shell)
            message = json.dumps({"op": "publish", "topic": "t", "records": [{"data": 1}]})
            writing = asyncio.ensure_future(feed.command(message))
            while not shell.owed:
                await asyncio.sleep(0)
            writing.cancel()
            await asyncio.wait({writing})
            feed.close()
            shell.owed[0](Reply(ValueError()))

        run(story())
        assert topics.client.topic("t").count == 1


def test_damage_unsubscribes_one_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """The socket stays, and the error names the topic. (§7.7)"""

    def damaged(records: Any, *, blocking: bool) -> Any:
        raise Corrupt("segment", 7, "a bad block")

    with MemoryTopics() as topics:
        topics.client.append("t", 1)
        monkeypatch.setattr("topics.server.exchange.payload._texts", damaged)

        async def story() -> None:
            feed = SocketFeed(topics._shell)
            await ask(feed, op="subscribe", topic="t")
            error = await hear(feed)
            assert (error["code"], error["detail"]["topic"]) == ("internal", "t")
            assert (await ask(feed, op="ping"))["op"] == "pong"
            gone = await ask(feed, op="unsubscribe", topic="t")
            assert gone["subscribed"] is False

        run(story())


def test_the_deadline_of_clients_is_as_documented() -> None:
    """30 seconds for one piece. (§7.6)"""
    assert streaming.TAKE_S == 30.0
