"""The way of a link: its handshake, whole messages, and a node that falls silent."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve

from topics.server.cluster import link_wire as module
from topics.server.cluster.link_wire import LinkBroken, LinkWire, connect, peer_at
from topics.server.cluster.tokens import token_of

from .pair import SECRET, run, until

Play = Callable[[ServerConnection], Awaitable[None]]
TOKEN = token_of(SECRET)


class Heard:
    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.ends: list[str] = []

    def connect(self, port: int, host: str = "127.0.0.1") -> Awaitable[LinkWire]:
        peer = peer_at(f"http://{host}:{port}")
        return connect(peer, TOKEN, self.messages.append, self.ends.append)


@asynccontextmanager
async def a_node(play: Play, **options: Any) -> Any:
    async with serve(play, "127.0.0.1", 0, compression=None, **options) as server:
        yield next(iter(server.sockets)).getsockname()[1]


async def raw(play: Callable[[Any, Any], Awaitable[None]]) -> tuple[asyncio.Server, int]:
    server = await asyncio.start_server(play, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


@pytest.mark.parametrize(
    ("url", "host", "port", "link"),
    [
        ("http://n1:4000", "n1", 4000, "ws://n1:4000/v0/cluster/link"),
        ("https://n1.example", "n1.example", 443, "wss://n1.example/v0/cluster/link"),
        ("http://[fd00::1]:80", "fd00::1", 80, "ws://[fd00::1]:80/v0/cluster/link"),
    ],
)
def test_a_link_is_on_the_port_that_clients_use(url: str, host: str, port: int, link: str) -> None:
    peer = peer_at(url)
    assert (peer.host, peer.port, peer.url) == (host, port, link)
    assert peer.is_tls is url.startswith("https")


def test_messages_go_both_ways_whole() -> None:
    """In frames as they come; the handshake says who asks, and in which version."""
    asked: list[Any] = []

    async def play(link: ServerConnection) -> None:
        asked.append(link.request)
        async for message in link:
            await link.send(message)
            half = len(message) // 2
            await link.send([message[:half], message[half:]])

    async def story() -> None:
        heard = Heard()
        async with a_node(play) as port:
            wire = await heard.connect(port)
            assert (wire.is_open, wire.is_clear) == (True, True)
            sizes = [1, 200, 70_000]
            for size in sizes:
                wire.relay(b"x" * size)
            await until(lambda: len(heard.messages) == 6)
            assert [len(each) for each in heard.messages] == [1, 1, 200, 200, 70_000, 70_000]
            [request] = asked
            assert request.path == "/v0/cluster/link"
            assert request.headers["x-topics-forwarded"] == TOKEN.decode()
            assert request.headers["x-topics-link"] == "1"
            wire.close()
            wire.relay(b"to nobody")
            assert heard.ends == []

    run(story())


@pytest.mark.parametrize(
    ("status", "why"),
    [(404, "it is of an older version"), (503, "status 503"), (301, "status 301")],
)
def test_a_node_may_refuse(status: int, why: str) -> None:
    async def never(link: ServerConnection) -> None:
        raise AssertionError

    async def story() -> None:
        heard = Heard()
        answer: Any = lambda link, _: link.respond(status, "no\n")  # noqa: E731
        async with a_node(never, process_request=answer) as port:
            with pytest.raises(LinkBroken, match=why):
                await heard.connect(port)
        assert heard.ends == []

    run(story())


def test_what_is_no_node_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody there, something that is no HTTP, and something that says nothing."""
    monkeypatch.setattr(module, "CONNECT_S", 0.05)

    async def garbage(reader: Any, writer: Any) -> None:
        writer.write(b"\x16\x03\x01 not HTTP\r\n\r\n")
        await reader.read()
        writer.close()

    async def silence(reader: Any, writer: Any) -> None:
        await reader.read()
        writer.close()

    async def story() -> None:
        heard = Heard()
        for play in (garbage, silence):
            server, port = await raw(play)
            with pytest.raises(LinkBroken):
                await heard.connect(port)
            server.close()
        with pytest.raises(LinkBroken, match="no connection"):
            await heard.connect(port)
        with pytest.raises(LinkBroken, match="no connection"):
            await heard.connect(port, "no-such-host.invalid")
        assert heard.ends == []

    run(story())


@pytest.mark.parametrize("how", ["close", "abort", "not a frame", "text"])
def test_an_end_is_told_once(how: str) -> None:
    async def play(link: ServerConnection) -> None:
        await link.recv()
        if how == "close":
            await link.close()
        elif how == "abort":
            link.transport.abort()
        elif how == "text":
            await link.send("text")
            await link.wait_closed()
        else:
            link.transport.write(b"\xff" * 20)
            await link.wait_closed()

    async def story() -> None:
        heard = Heard()
        async with a_node(play) as port:
            wire = await heard.connect(port)
            wire.relay(b"go")
            await until(lambda: heard.ends)
            assert not wire.is_open
            wire.close()
        assert len(heard.ends) == 1

    run(story())


def test_a_node_that_says_nothing_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even a pong: its machine has no power, and no packet says so. (§2 of the cluster)"""
    monkeypatch.setattr(module, "PING_S", 0.001)
    monkeypatch.setattr(module, "SILENCE_S", 0.03)
    go_on = asyncio.Event()

    async def play(link: ServerConnection) -> None:
        link.transport.pause_reading()
        await go_on.wait()

    async def story() -> None:
        heard = Heard()
        async with a_node(play) as port:
            await heard.connect(port)
            await until(lambda: heard.ends)
            go_on.set()
        assert heard.ends == ["the other node is silent"]

    run(story())


def test_a_node_that_answers_pings_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long there is nothing to say."""
    monkeypatch.setattr(module, "PING_S", 0.001)
    pongs = itertools.count()
    seen = [0]

    async def play(link: ServerConnection) -> None:
        await link.wait_closed()

    class Counted(LinkWire):
        def data_received(self, data: bytes) -> None:
            seen[0] = next(pongs)
            super().data_received(data)

    monkeypatch.setattr(module, "LinkWire", Counted)

    async def story() -> None:
        heard = Heard()
        async with a_node(play) as port:
            wire = await heard.connect(port)
            await until(lambda: seen[0] > 20)
            assert (wire.is_open, heard.ends) == (True, [])
            wire.close()

    run(story())


def test_a_node_that_does_not_read_is_sent_no_more_than_fits() -> None:
    """What may wait waits, and goes on when there is room (`outlet`)."""
    read_on = asyncio.Event()

    async def play(link: ServerConnection) -> None:
        link.transport.pause_reading()
        await read_on.wait()
        link.transport.resume_reading()
        async for _ in link:
            pass

    async def story() -> None:
        heard = Heard()
        async with a_node(play) as port:
            wire = await heard.connect(port)
            lows: list[bool] = []
            wire.when_low = lambda: lows.append(wire.is_low)
            sent = 0
            while wire.is_low:
                wire.relay(b"x" * (64 << 10))
                sent += 64 << 10
                assert sent < 64 << 20
                await asyncio.sleep(0)
            assert (wire.is_clear, lows) == (False, [])
            read_on.set()
            await until(lambda: lows)
            assert lows == [True]
            wire.close()

    run(story())
