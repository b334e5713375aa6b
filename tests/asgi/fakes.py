"""An exchange without an engine, for the tests of the ASGI application.

The exchange's paths:
    /echo      answers the body it got
    /empty     answers 200 without a body
    /big       answers BIG_BYTES bytes in many buffers
    /wait      answers when the test says so (`FakeExchange.waits`)
    /feed      is a stream whose pieces the test gives (`FakeExchange.feeds`)
    /refuse    is refused by its head
    /crash     raises
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from topics.protocol.model.errors import ErrorCode
from topics.protocol.model.records import Buffer
from topics.server.http.interface import Admission, Answer, Head, Pending, Socket, Streaming
from topics.server.http.refusals import refusal

BIG_BYTES = 64 << 20
DEADLINE_S = 100.0


def ok(*body: Buffer) -> Answer:
    size = sum(map(len, body))
    return Answer(200, [(b"content-length", b"%d" % size)], body)


@dataclass
class FakePending:
    deliver: Callable[[Answer | Streaming], None] | None = None
    cancelled: bool = False
    then_called: bool = False
    waits_for_news: bool = False
    is_apart: bool = False

    def then(self, deliver: Callable[[Answer | Streaming], None]) -> None:
        self.deliver = deliver

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class FakeFeed:
    """Implements `interface.Source`: what the test puts is taken; None is the end."""

    pieces: deque[bytes | None] = field(default_factory=deque)
    closed: bool = False
    is_over: bool = False
    is_drained: bool = False
    wake: Callable[[], None] = lambda: None

    def put(self, piece: bytes | None) -> None:
        self.pieces.append(piece)
        self.wake()

    def listen(self, wake: Callable[[], None]) -> None:
        self.wake = wake

    def take(self) -> bytes | None:
        piece = self.pieces.popleft() if self.pieces else b""
        self.is_over = self.is_over or piece is None
        return piece or None

    def close(self) -> None:
        self.closed = True


@dataclass
class FakeAdmission:
    exchange: "FakeExchange"
    head: Head
    max_body_bytes: int

    def finish(self, pieces: list[bytes]) -> Answer | Pending | Streaming:
        body = b"".join(pieces)
        self.exchange.bodies.append(body)
        match self.head.path:
            case b"/echo":
                return ok(body)
            case b"/big":
                return ok(*[b"x" * (1 << 20)] * (BIG_BYTES >> 20))
            case b"/wait":
                pending = FakePending()
                self.exchange.waits.append(pending)
                return pending
            case b"/feed":
                feed = FakeFeed()
                self.exchange.feeds.append(feed)
                return Streaming(200, [(b"content-type", b"text/event-stream")], feed)
            case b"/crash":
                raise ValueError("a bug")
        return ok()

    def too_large(self) -> Answer:
        return refusal(ErrorCode.PAYLOAD_TOO_LARGE, "too large")

    def too_slow(self) -> Answer:
        self.exchange.slow += 1
        return refusal(ErrorCode.INVALID_REQUEST, "too slow", {"reason": "body_timeout"})

    def close(self) -> None:
        self.exchange.closed += 1


@dataclass
class FakeExchange:
    max_body_bytes: int = 8 << 20
    heads: list[Head] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    waits: list[FakePending] = field(default_factory=list)
    feeds: list[FakeFeed] = field(default_factory=list)
    slow: int = 0
    closed: int = 0
    has_keys_file: bool = False
    reloads: int = 0

    async def reload(self) -> None:
        self.reloads += 1

    def begin(self, head: Head) -> Answer | Admission:
        self.heads.append(head)
        if head.path == b"/refuse":
            return refusal(ErrorCode.NOT_FOUND, "no such route")
        return FakeAdmission(self, head, self.max_body_bytes)

    def connect(self, head: Head) -> Answer | Socket:
        verdict = self.begin(head)
        if isinstance(verdict, Answer):
            return verdict
        return refusal(ErrorCode.NOT_FOUND, "no WebSocket here")
