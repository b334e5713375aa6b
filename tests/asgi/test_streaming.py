"""The drivers of streams and WebSockets, and the feeds behind them (§7.3-§7.7)."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from topics.asgi import streaming
from topics.asgi.streaming import MESSAGE_BYTES_MAX, SLOW, converse, stream
from topics.server.http.interface import Streaming

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
    """Gives its pieces, and then ends or gives nothing more."""

    pieces: list[bytes]
    ends: bool = True
    closed: int = 0
    pulled: int = 0
    is_drained: bool = False
    is_binary: bool = False

    @property
    def is_over(self) -> bool:
        return self.ends and self.pulled == len(self.pieces)

    def listen(self, wake: Callable[[], None]) -> None:
        wake()

    def take(self) -> bytes | None:
        if self.pulled == len(self.pieces):
            return None
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
        def take(self) -> bytes | None:
            if cause == "feed":
                raise ValueError("a bug")
            return b"piece" if cause == "send" else None

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            raise ValueError("a bug")

    feed = Broken([], ends=False)

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
    """Answers each command with a copy of it, when others had a turn."""

    ends: bool = False
    replies: list[bytes] = field(default_factory=list)
    closed: int = 0
    binaries: int = 0
    is_busy: bool = False
    is_drained: bool = False
    is_binary: bool = False

    @property
    def is_over(self) -> bool:
        return self.ends and not self.replies

    def listen(self, wake: Callable[[], None]) -> None:
        self.wake = wake
        wake()

    def hear(self, text: bytes) -> None:
        assert not self.is_busy
        self.is_busy = True
        asyncio.get_running_loop().call_soon(self._reply, text)

    def _reply(self, text: bytes) -> None:
        self.replies.append(text)
        self.is_busy = False
        self.wake()

    def hear_unexpected(self) -> None:
        self.binaries += 1

    def take(self) -> bytes | None:
        return self.replies.pop(0) if self.replies else None

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
    socket, client = FakeSocket(replies=[b"a", b"b", b"c"]), Client(takes=takes)
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
        def take(self) -> bytes | None:
            raise ValueError("a bug")

    socket = Broken()
    with pytest.raises(ValueError, match="a bug"):
        run(converse(socket, Client().send, never))
    assert socket.closed == 1


def test_the_deadline_of_clients_is_as_documented() -> None:
    """30 seconds for one piece. (§7.6)"""
    assert streaming.TAKE_S == 30.0
