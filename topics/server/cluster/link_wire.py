"""The way of a link to another node: a WebSocket on the port that the node's clients use.

Owns the connection, from its handshake to its end, and knows a node that is gone by its silence.  So a
link passes whatever proxies and TLS the nodes' clients pass.  Knows nothing of what is said on it.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Final, cast
from urllib.parse import urlsplit

import msgspec
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.uri import parse_uri

LINK_PATH: Final = "/v0/cluster/link"
VERSION: Final = b"1"
"""Of what is said on a link; a node answers one that it does not know with 400."""
VERSION_FIELD: Final = b"x-topics-link"
CONNECT_S: Final = 2.0
"""A connection inside one network takes a millisecond; SYN is repeated after one second."""
PING_S: Final = 2.0
SILENCE_S: Final = 10.0
"""A node that says nothing for so long, its pongs included, is gone."""
DEAD_MS: Final = 10_000
"""What is sent to a machine that is gone is given up after this (TCP_USER_TIMEOUT)."""
WRITE_BYTES: Final = 256 << 10
"""That the transport holds, at which no more of what may wait is sent."""
MESSAGE_BYTES_MAX: Final = 16 << 20

_quiet = logging.getLogger("topics.links.websocket")
_quiet.setLevel(logging.ERROR)


class LinkBroken(Exception):
    """There is no link, or it has ended; one line."""


class LinkAddress(msgspec.Struct, frozen=True):
    """Where a node is reached."""

    host: str
    port: int
    is_tls: bool
    url: str
    """Of its link, as a WebSocket's."""


@lru_cache(64)
def peer_at(url: str) -> LinkAddress:
    """The node at a URL, which the settings have checked (`settings`)."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    is_tls = parts.scheme == "https"
    port = parts.port or (443 if is_tls else 80)
    scheme = "wss" if is_tls else "ws"
    return LinkAddress(parts.hostname, port, is_tls, f"{scheme}://{parts.netloc}{LINK_PATH}")


class LinkWire(asyncio.Protocol):
    """One connection.  Implements `outlet.Wire`.

    Args:
        token: By which the other node knows this one.
        on_message: Called with each message, in order.
        on_end: Called once, with the reason, when the connection that was open has ended.
    """

    def __init__(
        self,
        peer: LinkAddress,
        token: bytes,
        on_message: Callable[[bytes], None],
        on_end: Callable[[str], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_message, self._on_end = on_message, on_end
        self._protocol = ClientProtocol(
            parse_uri(peer.url), max_size=MESSAGE_BYTES_MAX, logger=_quiet
        )
        self._token = token
        self._transport: asyncio.Transport | None = None
        self._message = bytearray()
        self._heard_s = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._has_ended = False
        self.when_low: Callable[[], None] | None = None
        self.is_open = False
        self.is_low = True

    @property
    def is_clear(self) -> bool:
        return self.is_open and self.is_low

    async def opened(self) -> None:
        """Wait until it is open.  Raises Broken."""
        await self._ready

    # ------------------------------------------------------------------ sending

    def relay(self, data: bytes) -> None:
        """Send a message; one to an end that is gone is dropped."""
        if self.is_open:
            self._protocol.send_binary(data)
            self._flush()

    def _flush(self) -> None:
        assert self._transport is not None
        for piece in self._protocol.data_to_send():
            if piece:
                self._transport.write(piece)

    def close(self) -> None:
        """End it; nothing is reported."""
        self._has_ended = True
        self._end("closed")
        if self._transport is not None:
            self._transport.abort()

    # ------------------------------------------------------------------ called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are of no such type
        self._transport.set_write_buffer_limits(high=WRITE_BYTES)
        _set_options(transport.get_extra_info("socket"))
        request = self._protocol.connect()
        request.headers["X-Topics-Forwarded"] = self._token.decode()
        request.headers[VERSION_FIELD.decode()] = VERSION.decode()
        self._protocol.send_request(request)
        self._flush()

    def data_received(self, data: bytes) -> None:
        self._heard_s = self._loop.time()
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            if isinstance(event, Response):
                self._on_response(event)
            elif isinstance(event, Frame):
                self._on_frame(event)
        if self._transport is not None and not self._has_ended:
            self._flush()
        if self._protocol.parser_exc is not None or self._protocol.close_expected():
            self._fail("the other node has ended the link")

    def eof_received(self) -> None:
        self._fail("the connection was closed")

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail("the connection was lost" if exc is None else str(exc))

    def pause_writing(self) -> None:
        self.is_low = False

    def resume_writing(self) -> None:
        self.is_low = True
        if self.when_low is not None:
            self.when_low()

    # ------------------------------------------------------------------

    def _on_response(self, response: Response) -> None:
        if self._protocol.handshake_exc is None:
            self.is_open = True
            self._timer = self._loop.call_later(PING_S, self._ping)
            if not self._ready.done():
                self._ready.set_result(None)
            return
        status = response.status_code
        why = "it has no link: it is of an older version" if status == 404 else f"status {status}"
        self._fail(why)

    def _on_frame(self, frame: Frame) -> None:
        if frame.opcode is Opcode.TEXT:
            self._fail("the other node says text")
        if self._has_ended or frame.opcode not in (Opcode.BINARY, Opcode.CONT):
            return
        if frame.fin and not self._message:
            self._on_message(bytes(frame.data))
            return
        self._message += frame.data
        if frame.fin:
            message = bytes(self._message)
            self._message.clear()
            self._on_message(message)

    def _ping(self) -> None:
        if self._loop.time() - self._heard_s > SILENCE_S:
            self._fail("the other node is silent")
            return
        self._protocol.send_ping(b"")
        self._flush()
        self._timer = self._loop.call_later(PING_S, self._ping)

    def _fail(self, why: str) -> None:
        was_open, has_ended, self._has_ended = self.is_open, self._has_ended, True
        self._end(why)
        if self._transport is not None:
            self._transport.abort()
        if was_open and not has_ended:
            self._on_end(why)

    def _end(self, why: str) -> None:
        self.is_open = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._ready.done():
            self._ready.set_exception(LinkBroken(why))
            self._ready.exception()  # it may be that nobody waits


async def connect(
    peer: LinkAddress,
    token: bytes,
    on_message: Callable[[bytes], None],
    on_end: Callable[[str], None],
) -> LinkWire:
    """An open link to a node.

    Raises:
        Broken: There is none, within `CONNECT_S`.
    """
    loop = asyncio.get_running_loop()
    wire = LinkWire(peer, token, on_message, on_end)
    tls = _tls() if peer.is_tls else None
    try:
        async with asyncio.timeout(CONNECT_S):
            await loop.create_connection(lambda: wire, peer.host, peer.port, ssl=tls)
            await wire.opened()
    except TimeoutError:
        wire.close()
        raise LinkBroken("no connection in time") from None
    except OSError as error:
        raise LinkBroken(f"no connection: {error.strerror or error}") from None
    except InvalidHandshake as error:
        raise LinkBroken(str(error)) from None
    return wire


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
