"""An HTTP/1.1 connection without a socket: the test is the client, and moves the clock."""

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from topics.protocol.model.records import Buffer
from topics.server.transport.connection import Connection
from topics.server.transport.http1 import Http1
from topics.server.transport.http1_heads import Heads, RequestHead
from topics.server.transport.http1_parser import Malformed, Parser
from topics.server.transport.http2 import Http2
from topics.server.transport.limits import Timeouts, TransportLimits
from topics.server.transport.shared import Shared

from .http2_rig import Exchange, Loop, Transport

GET = b"GET /echo HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST /echo HTTP/1.1\r\nHost: a\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


def get(path: bytes, method: bytes = b"GET") -> bytes:
    return GET.replace(b"/echo", path).replace(b"GET", method)


def post(body: bytes, path: bytes = b"/echo") -> bytes:
    head = POST.replace(b"/echo", path) + b"Content-Length: %d\r\n\r\n" % len(body)
    return head + body


class Full(Transport):
    """A transport whose client takes `room` bytes and then none, until the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.room: int | None = None
        self.writes = 0
        self.protocol: Any = None
        self.is_reading = True

    def write(self, data: Buffer) -> None:
        super().write(data)
        self.writes += 1
        if self.room is not None and len(self.written) > self.room and not self.protocol.is_paused:
            self.protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        return 0 if self.room is None else max(len(self.written) - self.room, 0)

    def take_all(self) -> None:
        self.room = None
        self.protocol.resume_writing()

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True


class KnownHeads(Heads):
    """Heads that all came before: one that would be kept is found when it comes first."""

    def find(self, data: bytes, at: int) -> RequestHead | None:
        found = super().find(data, at)
        if found is None:
            before = Heads()
            parser = Parser(TransportLimits().feed_bytes, before)
            with suppress(Malformed):
                parser.feed(data, at)
            parser.close()
            found = before.find(data, at)
        return found


class Rig:
    """One connection: what the client sends, and what it has got."""

    heads: Callable[[], Heads] = Heads

    def __init__(
        self,
        *,
        limits: TransportLimits | None = None,
        timeouts: Timeouts | None = None,
        shared: Shared | None = None,
        exchange: Exchange | None = None,
    ) -> None:
        if shared is None:
            loop: Any = Loop()
            made: Any = exchange or Exchange()
            shared = Shared(made, limits=limits, timeouts=timeouts, loop=loop, clock=lambda: 0.0)
            shared.heads = Rig.heads()
        self.shared = shared
        self.loop: Loop = shared.loop  # type: ignore[assignment]
        self.exchange: Exchange = shared.exchange  # type: ignore[assignment]
        self.transport = Full()
        self.connection = Connection(shared, Http1, Http2)
        self.transport.protocol = self.connection
        given: Any = self.transport
        self.connection.connection_made(given)

    def send(self, *pieces: bytes) -> "Rig":
        for piece in pieces:
            self.connection.data_received(piece)
            self.loop.rest()
        return self

    def end_half(self) -> None:
        self.connection.eof_received()
        self.loop.rest()

    def lose(self) -> None:
        self.connection.connection_lost(None)
        self.loop.rest()

    def got(self) -> bytes:
        """All that came since the last call."""
        data = bytes(self.transport.written)
        self.transport.written.clear()
        return data

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        """The first answer of those that came: its status, its headers, its body by its length."""
        head, _, rest = bytes(self.transport.written).partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        size = int(headers.get("content-length", "0"))
        assert len(rest) >= size
        del self.transport.written[: len(head) + 4 + size]
        return int(first.split()[1]), headers, rest[:size]

    def code(self) -> tuple[int, str]:
        """Of a refusal: its status, its code in the envelope."""
        status, headers, body = self.answer()
        assert headers["content-type"] == "application/json"
        return status, json.loads(body)["error"]["code"]

    @property
    def is_finished(self) -> bool:
        """The server has ended its half, or all."""
        return self.transport.has_eof or self.transport.is_closing()
