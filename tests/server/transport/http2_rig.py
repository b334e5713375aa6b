"""An HTTP/2 connection without a socket: bytes made by h2 as a client, a clock that the test moves.

`Rig` is a client, the real `Connection` and `Http2`, and between them a transport that is a list of
bytes.  Nothing sleeps; the loop has the time that the test gives it.
"""

import heapq
import itertools
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.settings

from topics.protocol.model.errors import ErrorCode
from topics.protocol.model.records import Buffer
from topics.server.http.interface import Answer, Head, Streaming
from topics.server.http.refusals import refusal
from topics.server.transport.connection import Connection
from topics.server.transport.http2 import Http2
from topics.server.transport.http2.frames import PREFACE
from topics.server.transport.limits import Timeouts, TransportLimits
from topics.server.transport.shared import Shared

Fields = list[tuple[bytes, bytes]]

SOUND: Fields = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":authority", b"a"),
    (b":path", b"/echo"),
]


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    size = len(payload).to_bytes(3, "big")
    return size + bytes([kind, flags]) + struct.pack(">I", stream_id) + payload


# ---------------------------------------------------------------------- the loop and the socket


@dataclass(order=True)
class Timer:
    at_s: float
    order: int
    call: Callable[[], None] = field(compare=False)
    is_cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        self.is_cancelled = True


class Loop:
    """What of an event loop a connection uses."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self._soon: deque[Callable[[], None]] = deque()
        self._timers: list[Timer] = []
        self._order = itertools.count()

    def time(self) -> float:
        return self.now_s

    def call_soon(self, call: Callable[..., None], *args: Any) -> None:
        self._soon.append(lambda: call(*args))

    def call_at(self, at_s: float, call: Callable[..., None], *args: Any) -> Timer:
        timer = Timer(at_s, next(self._order), lambda: call(*args))
        heapq.heappush(self._timers, timer)
        return timer

    def call_later(self, after_s: float, call: Callable[..., None], *args: Any) -> Timer:
        return self.call_at(self.now_s + after_s, call, *args)

    def turn(self) -> bool:
        """Run what is due now, once; False where there was nothing."""
        for _ in range(ready := len(self._soon)):
            self._soon.popleft()()
        return ready > 0

    def rest(self) -> None:
        while self.turn():
            pass

    def advance(self, seconds: float) -> None:
        """Let time pass, timer by timer."""
        until_s = self.now_s + seconds
        self.rest()
        while self._timers and self._timers[0].at_s <= until_s:
            timer = heapq.heappop(self._timers)
            self.now_s = max(self.now_s, timer.at_s)
            if not timer.is_cancelled:
                timer.call()
            self.rest()
        self.now_s = until_s


class Transport:
    """What of a transport a connection uses; `full` makes it one whose client does not read."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.has_eof = False
        self.is_closed = False
        self.is_aborted = False

    def get_extra_info(self, name: str) -> Any:
        return ("192.0.2.7", 4321) if name == "peername" else None

    def set_write_buffer_limits(self, high: int, low: int) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: Buffer) -> None:
        assert not self.has_eof
        self.written += data

    def write_eof(self) -> None:
        self.has_eof = True

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_aborted = True

    def is_closing(self) -> bool:
        return self.is_closed or self.is_aborted

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


# ---------------------------------------------------------------------- the exchange


def ok(*body: Buffer) -> Answer:
    size = sum(map(len, body))
    return Answer(200, [(b"content-length", b"%d" % size)], body)


@dataclass
class Waiting:
    """An answer that the test gives."""

    deliver: Callable[[Answer | Streaming], None] | None = None
    is_cancelled: bool = False
    waits_for_news: bool = False
    is_apart: bool = False

    def then(self, deliver: Callable[[Answer | Streaming], None]) -> None:
        self.deliver = deliver

    def cancel(self) -> None:
        self.is_cancelled = True


class News:
    """A feed, or a WebSocket's far side, whose pieces the test puts."""

    is_binary = False

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._ends = False
        self._wake: Callable[[], None] = lambda: None
        self.push: Callable[[bytes], bool]
        self.is_closed = False
        self.is_busy = False
        self.heard: list[bytes] = []

    def put(self, *pieces: bytes, ends: bool = False) -> None:
        self._pieces.extend(pieces)
        self._ends = ends
        self._wake()

    @property
    def left(self) -> int:
        return len(self._pieces)

    @property
    def is_over(self) -> bool:
        return self._ends and not self._pieces

    @property
    def is_drained(self) -> bool:
        return not self._pieces and not self._ends

    def listen(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def push_by(self, push: Callable[[bytes], bool], gather: object = None) -> None:
        self.push = push

    def take(self) -> bytes | None:
        return self._pieces.popleft() if self._pieces else None

    def hear(self, text: bytes) -> None:
        assert not self.is_busy
        self.heard.append(text)

    def hear_unexpected(self) -> None:
        self.heard.append(b"binary")

    def free(self) -> None:
        """Its command is done."""
        self.is_busy = False
        self._wake()

    def close(self) -> None:
        self.is_closed = True

    async def next(self) -> Any:
        raise AssertionError

    async def command(self, text: str) -> None:
        raise AssertionError

    async def refuse_binary(self) -> None:
        raise AssertionError


@dataclass
class Admitted:
    exchange: "Exchange"
    head: Head
    max_body_bytes: int
    closed: int = 0

    def finish(self, pieces: list[bytes]) -> Answer | Waiting | Streaming:
        body = b"".join(pieces)
        self.exchange.bodies.append(body)
        match self.head.path:
            case b"/big":
                return ok(*self.exchange.big)
            case b"/wait" | b"/page":
                self.exchange.waits.append(Waiting(is_apart=self.head.path == b"/page"))
                return self.exchange.waits[-1]
            case b"/feed":
                kind = [(b"content-type", b"text/event-stream")]
                if self.head.method == "HEAD":
                    return Streaming(200, kind, None)
                self.exchange.feeds.append(News())
                return Streaming(200, kind, self.exchange.feeds[-1])
        return ok() if self.head.method == "HEAD" else ok(body)

    def too_large(self) -> Answer:
        return refusal(ErrorCode.PAYLOAD_TOO_LARGE, "too large")

    def too_slow(self) -> Answer:
        return refusal(ErrorCode.INVALID_REQUEST, "too slow", {"reason": "body_timeout"})

    def close(self) -> None:
        self.closed += 1


@dataclass
class Exchange:
    """`/echo` answers its body, `/big` answers `big`, `/wait` and `/page` (which a
    thread makes) when the test says so, `/feed` is a
    stream, `/refuse` is refused by its head, `/socket` is a WebSocket, `/later` one whose handshake is
    judged when the test says so."""

    max_body_bytes: int = 1 << 20
    big: list[Buffer] = field(default_factory=lambda: [b"x" * 100_000] * 20)
    heads: list[Head] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    waits: list[Waiting] = field(default_factory=list)
    feeds: list[News] = field(default_factory=list)
    admitted: list[Admitted] = field(default_factory=list)
    more: list[Any] = field(default_factory=list)

    def carried_by(self, shared: Any) -> None:
        """It asks nothing of what carries it."""

    def begin(self, head: Head) -> Answer | Admitted:
        self.heads.append(head)
        if head.path == b"/refuse":
            return refusal(ErrorCode.NOT_FOUND, "no such route")
        self.admitted.append(Admitted(self, head, self.max_body_bytes))
        return self.admitted[-1]

    def connect(self, head: Head) -> "Answer | News | Waiting":
        self.heads.append(head)
        if head.path == b"/later":
            self.waits.append(Waiting())
            return self.waits[-1]
        if head.path != b"/socket":
            return refusal(ErrorCode.NOT_FOUND, "no WebSocket here")
        self.feeds.append(News())
        return self.feeds[-1]

    def drain(self) -> None:
        """The server stops."""

    @property
    def open(self) -> int:
        """Requests that were admitted and not closed."""
        assert all(each.closed <= 1 for each in self.admitted)
        return sum(not each.closed for each in self.admitted)


# ---------------------------------------------------------------------- the client


class Rig:
    """One connection, its server's end and its client's."""

    def __init__(
        self,
        *,
        limits: TransportLimits | None = None,
        timeouts: Timeouts | None = None,
        window: int | None = None,
        shared: Shared | None = None,
        greets: bool = True,
    ) -> None:
        if shared is None:
            loop: Any = Loop()
            made = Shared(Exchange(), limits=limits, timeouts=timeouts, loop=loop, clock=loop.time)  # type: ignore[arg-type]
        else:
            made = shared
        self.shared = made
        self.loop: Any = made.loop
        self.exchange: Any = made.exchange
        self.transport = Transport()
        self.connection = Connection(made, Http2, Http2)
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]
        self.events: list[h2.events.Event] = []
        self.h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(
                client_side=True,
                header_encoding=None,
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
                validate_inbound_headers=False,
            )
        )
        if window is not None:
            size = {h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window}
            self.h2.local_settings = h2.settings.Settings(client=True, initial_values=size)
        if greets:
            self.h2.initiate_connection()
            self.exchanged()
            self.events.clear()

    # What the client does.

    def send(self, data: bytes) -> None:
        """Bytes as they are, behind what h2 has made."""
        made = self.h2.data_to_send() + data
        if made:
            self.connection.data_received(made)
        self.loop.rest()

    def exchanged(self) -> "Rig":
        """Carry bytes both ways until nobody has more."""
        while True:
            self.send(b"")
            received = bytes(self.transport.written)
            self.transport.written.clear()
            if not received:
                return self
            self.events += self.h2.receive_data(received)

    def ask(
        self,
        path: bytes = b"/echo",
        *more: tuple[bytes, bytes],
        method: bytes = b"POST",
        end: bool = True,
        body: bytes = b"",
    ) -> int:
        """A sound request; the bytes are not carried yet."""
        fields = [(b":method", method), *SOUND[1:3], (b":path", path), *more]
        stream = self.h2.get_next_available_stream_id()
        self.h2.send_headers(stream, fields, end_stream=end and not body)
        if body:
            self.h2.send_data(stream, body, end_stream=end)
        return stream

    def ask_raw(self, fields: Fields, *, end: bool = True) -> int:
        """A head that h2 would not send, on a stream that h2 knows."""
        stream, encoder = self.h2.get_next_available_stream_id(), self.h2.encoder
        block = encoder.encode(fields)
        replaced: Any = SimpleNamespace(encode=lambda _: block)
        self.h2.encoder = replaced
        self.h2.send_headers(stream, SOUND, end_stream=end)
        self.h2.encoder = encoder
        return stream

    def leave(self) -> None:
        self.connection.connection_lost(None)
        self.loop.rest()

    def advance(self, seconds: float) -> None:
        self.loop.advance(seconds)
        self.exchanged()

    # What the client has got.

    def frames(self) -> list[tuple[int, int, int, bytes]]:
        """The frames that were written since the last look: kind, flags, stream, payload.  h2 hears
        nothing of them."""
        written, self.transport.written = self.transport.written, bytearray()
        out = []
        while written:
            size = int.from_bytes(written[:3], "big")
            stream = int.from_bytes(written[5:9], "big")
            out.append((written[3], written[4], stream, bytes(written[9 : 9 + size])))
            del written[: 9 + size]
        return out

    def of(self, stream: int, kind: type[Any]) -> list[Any]:
        return [
            each
            for each in self.events
            if isinstance(each, kind) and getattr(each, "stream_id", None) == stream
        ]

    def status(self, stream: int) -> int:
        (response,) = self.of(stream, h2.events.ResponseReceived)
        return int(dict(response.headers)[b":status"])

    def body(self, stream: int) -> bytes:
        return b"".join(each.data for each in self.of(stream, h2.events.DataReceived))

    def has_ended(self, stream: int) -> bool:
        return bool(self.of(stream, h2.events.StreamEnded))

    def reset_by(self, stream: int) -> int | None:
        """The code of its RST_STREAM; None where there was none."""
        codes = [each.error_code for each in self.of(stream, h2.events.StreamReset)]
        return int(codes[0]) if codes else None

    def goaway(self) -> int | None:
        """The code of the last GOAWAY; None where there was none."""
        kind = h2.events.ConnectionTerminated
        codes = [each.error_code for each in self.events if isinstance(each, kind)]
        return int(codes[-1]) if codes else None


__all__ = ["PREFACE", "SOUND", "Exchange", "News", "Rig", "frame", "ok"]
