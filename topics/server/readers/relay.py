"""The requests that a reader relays to the engine's process, in the reader.

Owns each of them from its head to its end: what of its body is to go, what of its answer has come, and
what that holds of the memory for answers.  Implements the exchange's side of a request, so the
transport carries it as any other.  Knows nothing of which requests are relayed.

Invariant: a request's end is said once, whatever came before; what comes for it later is dropped.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from topics.protocol.http import routes
from topics.protocol.model.errors import Rejection
from topics.protocol.model.limits import Limits
from topics.protocol.model.records import Buffer
from topics.server.http.exchange import TopicsExchange
from topics.server.http.interface import Admission, Answer, Exchange, Head, Streaming
from topics.server.http.refusals import no_room_for_answer
from topics.server.readers.outlet import Flow, Outlet, Wire
from topics.server.readers.relay_messages import (
    SMALL_BYTES,
    STREAM,
    WINDOW_BYTES,
    Ask,
    Borrow,
    Lent,
    Over,
    Part,
    Room,
    Told,
    Unsent,
    decode_from_engine,
    encode,
)
from topics.server.readers.relayed_socket import RelayedSocket
from topics.server.transport.budget import Share
from topics.server.transport.shared import Shared

ROOM_BYTES: Final = WINDOW_BYTES // 2
"""Taken, at which the engine's process is told of it."""


class Relay:
    """The requests that are relayed.

    Args:
        local: This process's exchange, which spells the refusals of bodies.
    """

    def __init__(self, shared: Shared, wire: Wire, local: TopicsExchange, limits: Limits) -> None:
        self.shared = shared
        self.wire = wire
        self.local = local
        self.limits = limits
        self.outlet = Outlet(wire)
        self.relayed_total = 0
        self._numbers = 0
        self._requests: dict[int, Request | RelayedSocket] = {}
        self._borrows: dict[int, Callable[[bytes], None]] = {}

    def number(self) -> int:
        """A number that nothing else has: of a request, or of a connection."""
        self._numbers += 1
        return self._numbers

    def ask(self, head: Head, lane: int) -> "Request":
        """Relay a request, whose body is still to come.

        Args:
            lane: The number of its connection.
        """
        self.relayed_total += 1
        request = Request(self, self.number(), head, lane)
        self._requests[request.number] = request
        return request

    def connect(self, head: Head, lane: int) -> RelayedSocket:
        """Relay the handshake of a WebSocket, and then the WebSocket."""
        self.relayed_total += 1
        number = self.number()
        socket = RelayedSocket(self.wire, self.outlet, number, head, lane, self.forget)
        self._requests[number] = socket
        return socket

    def borrow(self, wid: str, caller: str, deliver: Callable[[bytes], None]) -> None:
        """Ask for a watch session; `deliver` gets its image, or nothing where it does not come.

        Args:
            caller: The name of the key that asks.
        """
        number = self.number()
        self._borrows[number] = deliver
        self.wire.relay(encode(Borrow(number, wid, caller)))

    def received(self, data: bytes) -> None:
        """A message of the engine's process came."""
        message = decode_from_engine(data)
        if isinstance(message, Lent):
            self._borrows.pop(message.number)(message.image)
            return
        request = self._requests.get(message.number)
        if request is None:
            return  # it is over already
        if isinstance(message, Told):
            request.on_told(message)
        elif isinstance(message, Part):
            request.on_part(message)
        elif isinstance(message, Room):
            request.on_room(message.size)
        else:
            assert isinstance(request, RelayedSocket)
            request.on_opened(message)

    def forget(self, number: int) -> None:
        del self._requests[number]


class Request:
    """Implements `interface.Admission`, and `Pending` for its answer."""

    __slots__ = (
        *("_body", "_deliver", "_feed", "_flow", "_head", "_is_asked", "_is_over", "_is_there"),
        *("_lane", "_parts", "_relay", "_soon", "_taken_bytes", "_told"),
        *("answer", "max_body_bytes", "number"),
    )

    def __init__(self, relay: Relay, number: int, head: Head, lane: int) -> None:
        self._relay = relay
        self._lane = lane
        self.number = number
        self._head = head
        self.max_body_bytes = body_bytes_max(head, relay.limits)
        self._is_asked = self._is_there = False
        # A small body most often comes with its head: then both are one message.
        self._soon: asyncio.Handle | None = relay.shared.loop.call_soon(self._ask_soon)
        self._body = _Body()
        self._flow: Flow | None = None
        self.answer: Answer | Streaming | None = None
        self._deliver: Callable[[Answer | Streaming], None] | None = None
        self._told: Told | None = None
        """An answer whose body is still to come."""
        self._parts = _Parts(relay.shared)
        self._feed: _Feed | None = None
        self._taken_bytes = 0
        self._is_over = False

    # ------------------------------------------------------------------ the request

    def finish(self, pieces: list[bytes]) -> "Answer | Streaming | Request":
        if self.answer is not None:
            return self.answer  # refused by its head
        size = sum(map(len, pieces))
        if not self._is_asked and size <= SMALL_BYTES:
            self._ask(b"".join(pieces), is_whole=True)
            return self
        if not self._is_asked:
            self._ask(b"", is_whole=False)
        self._body.add(pieces)
        self._flow = Flow(self.number, self._body, self._body.clear)
        self._relay.outlet.add(self._flow)
        return self

    def _ask_soon(self) -> None:
        self._soon = None
        self._ask(b"", is_whole=False)

    def _ask(self, body: bytes, *, is_whole: bool) -> None:
        self._is_asked = self._is_there = True
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        head = self._head
        fields = self._lane, head.client, head.method, head.path, head.query, list(head.headers)
        self._relay.wire.relay(encode(Ask(self.number, *fields, body, is_whole)))

    def on_room(self, size: int) -> None:
        """The engine's process has taken so many bytes of the body."""
        if self._flow is not None:
            self._relay.outlet.room(self._flow, size)

    def too_large(self) -> Answer:
        """The engine's refusal, where there is one already; else the one that it would give."""
        if isinstance(self.answer, Answer):
            return self.answer
        return refusal_of(self._relay.local, self._head, lambda admission: admission.too_large())

    def too_slow(self) -> Answer:
        return refusal_of(self._relay.local, self._head, lambda admission: admission.too_slow())

    # ------------------------------------------------------------------ the answer

    def then(self, deliver: Callable[[Answer | Streaming], None]) -> None:
        if self.answer is None:
            self._deliver = deliver
        else:
            deliver(self.answer)

    @property
    def waits_for_news(self) -> bool:
        return False

    @property
    def is_apart(self) -> bool:
        return False

    def on_told(self, told: Told) -> None:
        self._stop_body()
        self._is_there = not told.is_over
        if told.size == STREAM:
            self._feed = _Feed(self._on_taken)
            self._done(Streaming(told.status, told.headers, self._feed))
        elif told.size == len(told.body):
            body = [told.body] if told.body else []
            self._done(Answer(told.status, told.headers, body, unsent=self._unsent))
        elif self._parts.begin(told.size):
            self._told = told
        else:
            self._unsent()
            self._done(no_room_for_answer(self._relay.shared.limits.answers_bytes))

    def on_part(self, part: Part) -> None:
        if self._feed is not None:
            self._feed.put(part.data, is_last=part.is_last)
        elif self._told is not None:
            self._parts.put(part.data)
            self._on_taken(len(part.data))
            if part.is_last:
                told, self._told = self._told, None
                body = self._parts.end()
                self._done(Answer(told.status, told.headers, body, unsent=self._unsent))

    def _on_taken(self, size: int) -> None:
        """So many bytes of the answer make room for others."""
        self._taken_bytes += size
        if self._taken_bytes >= ROOM_BYTES and not self._is_over:
            self._relay.wire.relay(encode(Room(self.number, self._taken_bytes)))
            self._taken_bytes = 0

    def _unsent(self) -> None:
        """There is no room for the answer here."""
        if self._is_there and not self._is_over:
            self._relay.wire.relay(encode(Unsent(self.number)))

    def _done(self, answer: Answer | Streaming) -> None:
        self.answer = answer
        # So a body that is still coming is refused with it.
        self.max_body_bytes = -1
        deliver, self._deliver = self._deliver, None
        if deliver is not None:
            deliver(answer)

    # ------------------------------------------------------------------ the end

    def _stop_body(self) -> None:
        self._body.clear()
        if self._flow is not None:
            self._flow.close()
            self._flow = None

    def cancel(self) -> None:
        """The client is gone: what was committed stays committed."""
        self._deliver = None
        self.close()

    def close(self) -> None:
        """The request is over; may be called again."""
        if self._is_over:
            return
        self._is_over = True
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        self._stop_body()
        self._parts.close()
        self._relay.forget(self.number)
        if self._is_there:
            self._relay.wire.relay(encode(Over(self.number)))


def refusal_of(local: Exchange, head: Head, refuse: Callable[[Admission], Answer]) -> Answer:
    """The refusal of a body by this process, which is the engine's word for word."""
    verdict = local.begin(head)
    if isinstance(verdict, Answer):
        return verdict
    answer = refuse(verdict)
    verdict.close()
    return answer


def body_bytes_max(head: Head, limits: Limits) -> int:
    """What the route of a request allows; where there is none, the engine's process says so."""
    try:
        return routes.find_route(head.method, head.path)[0].max_body_bytes(limits)
    except Rejection:
        return limits.max_body_bytes


class _Body:
    """A body that goes in parts.  Implements `outlet.Supply`."""

    def __init__(self) -> None:
        self._pieces: deque[memoryview] = deque()

    def add(self, pieces: list[bytes]) -> None:
        self._pieces.extend(memoryview(piece) for piece in pieces if piece)

    @property
    def is_over(self) -> bool:
        return not self._pieces

    def take(self, most: int) -> Buffer:
        if not self._pieces:
            return b""
        first = self._pieces.popleft()
        if len(first) > most:
            self._pieces.appendleft(first[most:])
        return first[:most]

    def clear(self) -> None:
        self._pieces.clear()


class _Parts:
    """An answer that comes in parts, as far as it is here."""

    def __init__(self, shared: Shared) -> None:
        self._share = Share(shared.answers)
        self._parts: list[bytes] = []

    def begin(self, size: int) -> bool:
        """Hold so many bytes; False where there is no room for them."""
        return self._share.take(size)

    def put(self, data: bytes) -> None:
        self._parts.append(data)

    def end(self) -> list[bytes]:
        """All of it.  From now on it counts as the transport has it."""
        self._share.close()
        parts, self._parts = self._parts, []
        return parts

    def close(self) -> None:
        self._share.close()
        self._parts.clear()


class _Feed:
    """A stream of the engine's.  Implements `interface.Source`.

    Args:
        taken: Called with the size of what the client has room for.
    """

    def __init__(self, taken: Callable[[int], None]) -> None:
        self._taken = taken
        self._pieces: deque[bytes] = deque()
        self._has_ended = False
        self._wake: Callable[[], None] = _nothing

    @property
    def is_over(self) -> bool:
        return self._has_ended and not self._pieces

    @property
    def is_drained(self) -> bool:
        return not self._pieces and not self._has_ended

    def listen(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        if self._pieces or self._has_ended:
            wake()

    def put(self, data: bytes, *, is_last: bool) -> None:
        """The next bytes of the stream."""
        if data:
            self._pieces.append(data)
        self._has_ended = is_last
        self._wake()

    def take(self) -> Buffer | None:
        if not self._pieces:
            return None
        piece = self._pieces.popleft()
        self._taken(len(piece))
        return piece

    def close(self) -> None:
        self._has_ended = True
        self._pieces.clear()
        self._wake = _nothing


def _nothing() -> None:
    return
