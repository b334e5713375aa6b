"""The transport over real sockets: what a fake one cannot show."""

import asyncio
import gc
import socket
import struct
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvloop

from topics.server.transport.connection import Connection
from topics.server.transport.http1 import Http1
from topics.server.transport.http2 import Http2
from topics.server.transport.limits import Timeouts
from topics.server.transport.listener import accept, listen
from topics.server.transport.shared import Shared

from .http1_rig import GET, POST, get
from .http2_rig import Exchange

DEADLINE_S = 100.0
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\4" + bytes(5)


class Serving:
    """A server on a thread of its own; the test is its client."""

    def __init__(
        self, timeouts: Timeouts, new_loop: Callable[[], asyncio.AbstractEventLoop]
    ) -> None:
        self.exchange = Exchange(big=[b"x" * 1_000_000] * 16)
        self.timeouts = timeouts
        self.loop = new_loop()
        self._listener = listen("127.0.0.1", 0)
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.shared: Shared

    def call(self, what: Callable[[], Any]) -> Any:
        """What it returns, on the server's loop."""

        async def called() -> Any:
            return what()

        return asyncio.run_coroutine_threadsafe(called(), self.loop).result(DEADLINE_S)

    def until(self, is_so: Callable[[], bool]) -> None:
        async def poll() -> None:
            async with asyncio.timeout(DEADLINE_S):
                while not is_so():
                    await asyncio.sleep(0.002)

        asyncio.run_coroutine_threadsafe(poll(), self.loop).result(DEADLINE_S)

    def start(self) -> None:
        async def begin() -> asyncio.AbstractServer:
            exchange: Any = self.exchange
            self.shared = Shared(exchange, timeouts=self.timeouts)
            return await accept(self._listener, lambda: Connection(self.shared, Http1, Http2))

        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(begin(), self.loop).result(DEADLINE_S)

    def stop(self) -> None:
        def close() -> None:
            self._server.close()
            for connection in list(self.shared.connections):
                connection.abort()

        self.call(close)
        self.until(lambda: not self.shared.connections)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(DEADLINE_S)
        self.loop.close()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), DEADLINE_S)


@contextmanager
def serving(
    timeouts: Timeouts | None = None,
    new_loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop,
) -> Iterator[Serving]:
    made = Serving(timeouts or Timeouts(), new_loop)
    made.start()
    try:
        yield made
    finally:
        made.stop()


def until(client: socket.socket, end: bytes) -> bytes:
    got = b""
    while end not in got:
        more = client.recv(65_536)
        assert more, got
        got += more
    return got


def until_end(client: socket.socket) -> bytes:
    got = b""
    try:
        while more := client.recv(1 << 20):
            got += more
    except ConnectionError:
        pass
    return got


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_both_protocols_are_spoken_on_one_port(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """Told apart by the first bytes, which may come one by one; on either loop. (§0.1)"""
    with serving(new_loop=new_loop) as server, server.connect() as one, server.connect() as two:
        two.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in PREFACE:
            two.sendall(bytes([byte]))
        one.sendall(GET)
        assert until(one, b"\r\n\r\n").startswith(b"HTTP/1.1 200 OK")
        assert two.recv(9)[3] == 4, "the server's SETTINGS"


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_large_answer_comes_whole(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """16 MB through a small window."""
    with serving(new_loop=new_loop) as server, server.connect() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        client.sendall(get(b"/big")[:-2] + b"Connection: close\r\n\r\n")
        assert len(until_end(client).partition(b"\r\n\r\n")[2]) == 16_000_000


def test_an_answer_reaches_a_client_that_still_sends() -> None:
    """A socket that is closed with unread bytes in it takes back its answer; this one is not."""
    with serving(Timeouts(linger_s=20)) as server, server.connect() as client:
        client.sendall(POST.replace(b"/echo", b"/refuse") + b"Content-Length: 1000000\r\n\r\n")
        server.until(lambda: bool(server.exchange.heads))
        client.sendall(b"x" * 200_000)
        client.shutdown(socket.SHUT_WR)
        assert until_end(client).startswith(b"HTTP/1.1 404 ")


@pytest.mark.parametrize("path", [b"/echo", b"/wait", b"/feed", b"/big"])
def test_a_client_that_resets_leaves_nothing(path: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Right after it connected, or in the middle of anything; and nothing in the log."""
    with serving() as server:
        for sent in (b"", get(path), get(path)[:20]):
            client = server.connect()
            client.sendall(sent)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
        server.until(lambda: not server.shared.connections)
        server.until(lambda: server.exchange.open == 0)
        assert server.call(lambda: server.shared.answers.held_bytes) == 0
        assert server.call(lambda: len(asyncio.all_tasks())) == 1
    assert caplog.records == []


def test_a_client_that_takes_nothing_is_cut() -> None:
    """And what waits for it is let go."""
    with serving(Timeouts(take_s=0.1, write_s=0.2)) as server, server.connect() as client:
        client.sendall(get(b"/big"))
        server.until(lambda: bool(server.exchange.heads))
        server.until(lambda: not server.shared.connections)
        assert server.call(lambda: server.shared.answers.held_bytes) == 0
        assert len(until_end(client)) < 16_000_000


def test_the_kernel_gives_as_long_as_we_do() -> None:
    """A stream that was told to come again has `write_s` to read that, from TCP as well. (§7.6)"""
    with serving(Timeouts(take_s=0.1, write_s=50)) as server, server.connect() as client:
        client.sendall(get(b"/feed"))
        until(client, b"\r\n\r\n")
        (connection,) = server.shared.connections
        server.call(lambda: server.exchange.feeds[0].put(*[b"x" * 100_000] * 100))
        server.until(lambda: server.exchange.feeds[0].is_closed)
        accepted = connection._transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) >= 50_000
        assert b"event: error" in until_end(client)


@pytest.mark.parametrize("sent", [GET, get(b"/feed"), PREFACE, b"nonsense\r\n\r\n"])
def test_a_connection_that_ended_leaves_nothing_to_the_collector(sent: bytes) -> None:
    """What it holds, bytes of a client among it, goes with the last reference: the collector of
    circles comes seldom."""
    with serving() as server:
        client = server.connect()
        client.sendall(sent)
        client.recv(10)
        connections = server.call(lambda: [weakref.ref(c) for c in server.shared.connections])
        speakers = server.call(
            lambda: [weakref.ref(c._speaker) for c in server.shared.connections if c._speaker]
        )
        server.call(gc.collect)
        server.call(gc.disable)
        try:
            client.close()
            server.until(lambda: not server.shared.connections)
            server.call(server.exchange.feeds.clear)
            server.call(server.exchange.admitted.clear)
            server.until(lambda: all(ref() is None for ref in connections + speakers))
        finally:
            server.call(gc.enable)
