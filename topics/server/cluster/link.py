"""One connection to another node: a request out, its answer in, with back pressure both ways.

Owns a transport.  Reading pauses while `BUFFERED_BYTES` of an answer are not taken, and a body is
written as the other node reads it.  Knows nothing of which requests are worth sending.

The parser is httptools, on a protocol of asyncio, because the server speaks HTTP/1.1 with it already:
httpx has a task and some 200 µs of CPU for each request, h11 a state machine in Python, and neither is
among the packages that a server needs.
"""

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Final, cast
from urllib.parse import urlsplit

import msgspec

from topics.server.cluster.parser import AnswerParser, BadAnswer

BUFFERED_BYTES: Final = 64 << 10
"""Of an answer that is not taken, at which reading pauses.  Thousands of clients that do not read their
streams make the node hold as much for each."""
WRITE_BYTES: Final = 256 << 10
"""Of a request that the transport holds, at which writing pauses."""
CONNECT_S: Final = 2.0
"""A connection inside one network takes a millisecond; SYN is repeated after one second."""
DEAD_MS: Final = 10_000
"""What is sent to a machine that is gone is given up after this (TCP_USER_TIMEOUT)."""


class Broken(Exception):
    """The connection ended, or what came on it is no answer; one line."""


class Peer(msgspec.Struct, frozen=True):
    """Where a node is reached."""

    host: str
    port: int
    is_tls: bool
    authority: bytes
    """As the `Host` header has it."""


@lru_cache(64)
def peer_at(url: str) -> Peer:
    """The node at a URL, which the settings have checked (`settings`)."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    is_tls = parts.scheme == "https"
    port = parts.port or (443 if is_tls else 80)
    return Peer(parts.hostname, port, is_tls, parts.netloc.encode("ascii"))


class Link(asyncio.Protocol):
    """One connection.  It carries one request at a time."""

    def __init__(self) -> None:
        self.parser = AnswerParser()
        self.idle_since_s = 0.0
        self._transport: asyncio.Transport
        self._failure: str | None = None
        self._is_lost = False
        self._is_reading = True
        self._can_write = True
        self._moved: asyncio.Future[None] | None = None
        """Of whoever waits for the connection to move: there is one at a time for each direction."""
        self._drained: asyncio.Future[None] | None = None
        self._news: Callable[[], None] | None = None

    # ------------------------------------------------------------------ one exchange

    @property
    def is_fresh(self) -> bool:
        """Whether a request may be sent."""
        return self.parser.is_complete and self.parser.is_reusable and not self._is_lost

    async def ask(self, head: bytes, body: deque[bytes], *, is_head: bool) -> None:
        """Send a request, and read the head of its answer.

        A node that refuses a body answers before it has all of it: then the rest is not sent.

        Args:
            head: Request line and headers, with the blank line.
            body: Its pieces; each is dropped when it is handed over.
            is_head: The method is HEAD.

        Raises:
            Broken: No answer came.
        """
        self.parser.expect(bodiless=is_head)
        self._transport.write(head)
        while body and not self.parser.has_head and self._failure is None:
            if self._can_write:
                self._transport.write(body.popleft())
            else:
                self._drained = asyncio.get_running_loop().create_future()
                await self._drained
        if body:
            self.parser.is_reusable = False
            body.clear()
        while not self.parser.has_head:
            await self._move()

    async def read(self) -> bytes | None:
        """The next piece of the answer's body; None at its end.

        Raises:
            Broken: The answer broke off.
        """
        while True:
            piece = self.take()
            if piece is not None:
                return piece
            if self.parser.is_complete:
                return None
            await self._move()

    def take(self) -> bytes | None:
        """The next piece of the answer's body, where it is here."""
        piece = self.parser.take()
        if not self._is_reading and self.parser.buffered_bytes < BUFFERED_BYTES // 2:
            self._is_reading = True
            self._transport.resume_reading()
        return piece

    @property
    def failure(self) -> str | None:
        """Why the answer broke off, where it did."""
        return self._failure

    @property
    def is_over(self) -> bool:
        """Nothing more can be taken."""
        has_ended = self.parser.is_complete or self._failure is not None
        return has_ended and not self.parser.buffered_bytes

    def listen(self, wake: Callable[[], None] | None) -> None:
        """Have `wake` called when there may be more to take, or the end has come."""
        self._news = wake

    async def _move(self) -> None:
        if self._failure is not None:
            raise Broken(self._failure)
        self._moved = asyncio.get_running_loop().create_future()
        await self._moved

    def give_up(self, why: str) -> None:
        """End now; what waits for the answer raises `Broken`."""
        self._fail(why)
        self.abort()

    def abort(self) -> None:
        """End now: the other node drops what it is asked."""
        self._is_lost = True
        self._transport.abort()

    # ------------------------------------------------------------------ called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are of no such type
        self._transport.set_write_buffer_limits(high=WRITE_BYTES)
        _set_options(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        try:
            self.parser.feed(data)
        except BadAnswer as error:
            self._fail(str(error))
            self._transport.abort()
            return
        if self.parser.is_complete and not self.parser.is_reusable:
            self._transport.close()
        elif self._is_reading and self.parser.buffered_bytes > BUFFERED_BYTES:
            self._is_reading = False
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self._end(None if exc is None else str(exc))

    def pause_writing(self) -> None:
        self._can_write = False

    def resume_writing(self) -> None:
        self._can_write = True
        self._wake_writer()

    # ------------------------------------------------------------------

    def _end(self, why: str | None = None) -> None:
        try:
            self.parser.end()
        except BadAnswer as error:
            self._fail(why or str(error))

    def _fail(self, why: str) -> None:
        self._failure = self._failure or why
        self.parser.is_reusable = False
        self._wake()

    def _wake(self) -> None:
        moved, self._moved = self._moved, None
        if moved is not None and not moved.done():
            moved.set_result(None)
        if self._news is not None:
            self._news()
        if self.parser.has_head or self._failure is not None:
            self._wake_writer()

    def _wake_writer(self) -> None:
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)


async def connect(peer: Peer, make: Callable[[], Link] = Link) -> Link:
    """A connection to a node.

    Raises:
        Broken: There is none, within `CONNECT_S`.
    """
    loop = asyncio.get_running_loop()
    tls = _tls() if peer.is_tls else None
    try:
        async with asyncio.timeout(CONNECT_S):
            _, link = await loop.create_connection(make, peer.host, peer.port, ssl=tls)
    except TimeoutError:
        raise Broken("no connection in time") from None
    except OSError as error:
        raise Broken(f"no connection: {error.strerror or error}") from None
    return link


@lru_cache(1)
def _tls() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _set_options(sock: socket.socket | None) -> None:
    """Notice a machine that is gone within some ten seconds, and not in a quarter of an hour."""
    if sock is None:
        return
    with suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (
            ("TCP_USER_TIMEOUT", DEAD_MS),
            ("TCP_KEEPIDLE", 4),
            ("TCP_KEEPINTVL", 2),
            ("TCP_KEEPCNT", 3),
        ):
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
