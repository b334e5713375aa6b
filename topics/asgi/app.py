"""An exchange as a plain ASGI 3 application.

Owns the life of one request under an ASGI server: the head as the exchange wants it, the body with
its deadlines and its share of memory, the wait for an answer, and the writing of it.  Refuses to
know what a request means, and which server calls.

Invariant: while a request is open somebody consumes `receive()`, or nothing but the disconnect is
left to come.  A server that queues messages for an application which stopped listening waits for
it for ever, and with it every other request of the same HTTP/2 connection.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from topics.asgi.streaming import OUTLET, TAKE_S, Outlet, converse, stream
from topics.protocol.model.errors import ErrorCode
from topics.protocol.model.records import Buffer
from topics.server.exchange.interface import (
    Admission,
    Answer,
    Exchange,
    Head,
    Headers,
    Pending,
    Streaming,
)
from topics.server.exchange.refusals import refusal

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

HEADERS_MAX: Final = 100
HEADER_BYTES_MAX: Final = 32 << 10
KEEP_ALIVE: Final = (b"connection", b"keep-alive")
"""Among the headers of a stream (§7.3); HTTP/2 has no such header, and HTTP/1.0 no such stream."""
PIECE_BYTES: Final = 256 << 10
"""An answer is written in pieces of this size, each under its own deadline: a client that takes
less than 7 KiB/s counts as one that does not read."""

log = logging.getLogger("topics.http")


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a client may take, and how much memory all of them may.

    Attributes:
        first_s: Seconds from the head to the first byte of the body.
        window_s: Seconds in which the next `window_bytes` of a body must come: 1 KiB/s on average.
        body_s: Seconds for a body in total.
        write_s: Seconds in which a client must take one piece of its answer.
        take_s: Seconds in which a client must take one piece of a stream (§7.6).
        drain_s: Seconds for which a refused body is still read, so that the client sees the answer
            before its connection ends.
        grace_s: Seconds in which a small refused body may come to its end before the answer: it is
            worth a connection (a reset, on HTTP/2), but nobody waits long for a refusal.
        drain_bytes: Bytes of a refused body that are read and thrown away.
        bodies_bytes: Bytes of all bodies in memory at once; beyond it a body is refused with 429.
    """

    first_s: float = 10
    window_s: float = 10
    window_bytes: int = 10 << 10
    body_s: float = 120
    write_s: float = 35
    take_s: float = TAKE_S
    drain_s: float = 2
    grace_s: float = 0.03
    drain_bytes: int = 256 << 10
    bodies_bytes: int = 256 << 20


class _Call:
    """One request's two ends, and how far each has come."""

    __slots__ = ("_receive", "ended", "gone", "held", "is_http1", "outlet", "send", "started")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._receive = receive
        self.send = send
        self.outlet: Outlet | None = scope.get("extensions", {}).get(OUTLET)
        self.is_http1 = scope["http_version"] < "2"
        self.ended = False
        """The last byte of the body came, or none will."""
        self.gone = False
        """The client is gone."""
        self.started = False
        """A first byte of the answer was sent."""
        self.held = 0
        """Bytes of its body that count against the common budget."""

    async def next(self) -> bytes:
        """The next piece of the body, perhaps empty."""
        message = await self._receive()
        if message["type"] != "http.request":
            self.gone = self.ended = True
            return b""
        self.ended = not message.get("more_body", False)
        piece: bytes = message.get("body", b"")
        return piece


class App:
    """The ASGI application over an exchange."""

    def __init__(self, exchange: Exchange, pace: Pace | None = None) -> None:
        self._exchange = exchange
        self._pace = pace or Pace()
        self._held_bytes = 0

    @property
    def held_bytes(self) -> int:
        """Bytes of request bodies in memory now."""
        return self._held_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "http":
            await self._guarded(_Call(scope, receive, send), scope)
        elif kind == "websocket":
            await self._connect(scope, receive, send)
        else:
            assert kind == "lifespan", kind
            await _live(receive, send)

    async def _guarded(self, call: _Call, scope: Scope) -> None:
        try:
            await self._http(call, scope)
        except Exception:
            log.exception("a request failed")
            if not call.started:
                await self._refuse(call, refusal(ErrorCode.INTERNAL, "internal error"), 0)
        finally:
            self._held_bytes -= call.held

    async def _http(self, call: _Call, scope: Scope) -> None:
        headers = scope["headers"]
        declared = _declared_bytes(scope, headers)
        if isinstance(declared, Answer):
            return await self._refuse(call, declared, 0, may_drain=False)
        verdict = self._exchange.begin(_head(scope, scope["method"], headers))
        if isinstance(verdict, Answer):
            return await self._refuse(call, verdict, declared)
        body = await self._body(call, verdict, declared)
        if isinstance(body, Answer):
            return await self._refuse(call, body, declared, may_drain=False)
        if body is None:
            # Nobody waits for this; it tells the exchange that no body will come.
            verdict.too_slow()
            return None
        answer = verdict.finish(body)
        del body
        if isinstance(answer, Streaming):
            call.started = True
            if scope["http_version"] == "1.1":
                answer = replace(answer, headers=(*answer.headers, KEEP_ALIVE))
            return await stream(
                answer, call.send, _gone(call), outlet=call.outlet, take_s=self._pace.take_s
            )
        if not isinstance(answer, Answer):
            settled = await self._settled(call, answer)
            if settled is None:
                return None
            answer = settled
        await self._write(call, answer, close=answer.close)
        return None

    async def _body(
        self, call: _Call, admission: Admission, declared: int
    ) -> list[bytes] | Answer | None:
        """The whole body in pieces, a refusal of it, or None where the client went away."""
        if declared > admission.max_body_bytes:
            return admission.too_large()
        try:
            async with asyncio.timeout(self._pace.first_s) as deadline:
                first = await call.next()
                if call.ended and not first:
                    return None if call.gone else []
                pieces = [first]
                refused = self._count(call, admission, len(first))
                if refused is None and not call.ended:
                    refused = await self._rest(call, admission, pieces, deadline)
        except TimeoutError:
            return admission.too_slow()
        if refused is not None:
            return refused
        return None if call.gone else pieces

    async def _rest(
        self, call: _Call, admission: Admission, pieces: list[bytes], deadline: asyncio.Timeout
    ) -> Answer | None:
        """Read what follows the first piece; the deadline moves as long as the pace is kept."""
        pace = self._pace
        now_s = asyncio.get_running_loop().time
        last_s = now_s() + pace.body_s
        deadline.reschedule(min(now_s() + pace.window_s, last_s))
        window_bytes = 0
        while not call.ended:
            piece = await call.next()
            pieces.append(piece)
            refused = self._count(call, admission, len(piece))
            if refused is not None:
                return refused
            window_bytes += len(piece)
            if window_bytes >= pace.window_bytes:
                window_bytes = 0
                deadline.reschedule(min(now_s() + pace.window_s, last_s))
        return None

    def _count(self, call: _Call, admission: Admission, size: int) -> Answer | None:
        call.held += size
        self._held_bytes += size
        if call.held > admission.max_body_bytes:
            return admission.too_large()
        if self._held_bytes > self._pace.bodies_bytes:
            limit = {"limit": "max_body_memory", "max": self._pace.bodies_bytes}
            return refusal(ErrorCode.THROTTLED, "too many bytes of bodies are in flight", limit)
        return None

    async def _settled(self, call: _Call, pending: Pending) -> Answer | None:
        """The answer of a wait, or None where the client went away first."""
        loop = asyncio.get_running_loop()
        settled: asyncio.Future[Answer | None] = loop.create_future()

        def deliver(answer: Answer | None) -> None:
            if not settled.done():
                settled.set_result(answer)

        async def watch() -> None:
            while not call.gone:
                await call.next()
            deliver(None)

        answer = None
        pending.then(deliver)
        watching = None if settled.done() else loop.create_task(watch())
        try:
            answer = await settled
            return answer
        finally:
            if answer is None:
                pending.cancel()
            if watching is not None:
                watching.cancel()

    async def _refuse(
        self, call: _Call, answer: Answer, declared: int, *, may_drain: bool = True
    ) -> None:
        """Write an answer to a request whose body was not read, or not to its end."""
        if may_drain and not call.ended and declared <= self._pace.drain_bytes:
            # Small bodies mostly came with the head; once read, the connection can go on.
            await self._drain(call, self._pace.grace_s)
        if call.gone:
            return
        if call.ended:
            await self._write(call, answer, close=answer.close)
            return
        await self._refuse_unread(call, answer)

    async def _drain(self, call: _Call, within_s: float) -> None:
        """Read and forget what comes, as far as the pace allows."""
        left = self._pace.drain_bytes
        try:
            async with asyncio.timeout(within_s):
                while left > 0 and not call.ended:
                    left -= len(await call.next())
        except TimeoutError:
            return

    async def _refuse_unread(self, call: _Call, answer: Answer) -> None:
        """Answer while the body still comes.

        On HTTP/1.1 the connection has to end, and ending it with unread bytes would make the kernel
        take the answer back: so the last message waits for the client a moment.  On HTTP/2 the
        stream ends at once and the server resets what is left of it.
        """
        enough = asyncio.Event()

        async def swallow() -> None:
            left = self._pace.drain_bytes
            while not call.gone:
                left -= len(await call.next())
                if call.ended or left <= 0:
                    enough.set()

        swallowing = asyncio.create_task(swallow())
        try:
            if not call.is_http1:
                await self._write(call, answer)
            elif await self._write(call, answer, close=True, more=True):
                try:
                    async with asyncio.timeout(self._pace.drain_s):
                        await enough.wait()
                except TimeoutError:
                    pass
                await self._last(call)
        finally:
            swallowing.cancel()

    async def _write(
        self, call: _Call, answer: Answer, *, close: bool = False, more: bool = False
    ) -> bool:
        """Send an answer; `more` leaves its end to `_last`.

        Returns:
            False where the client did not take it in time: what is left of it must not follow, and
            the server, seeing it unfinished, ends the connection or resets the stream.
        """
        headers: Headers = answer.headers
        if close and call.is_http1:
            headers = [*headers, (b"connection", b"close")]
        pieces = _pieces(answer.body)
        last = len(pieces) - 1
        call.started = True
        try:
            async with asyncio.timeout(self._pace.write_s) as deadline:
                await call.send(
                    {"type": "http.response.start", "status": answer.status, "headers": headers}
                )
                for i, piece in enumerate(pieces):
                    if i:
                        self._postpone(deadline)
                    await call.send(
                        {
                            "type": "http.response.body",
                            "body": piece,
                            "more_body": more or i < last,
                        }
                    )
        except TimeoutError:
            return False
        return True

    async def _last(self, call: _Call) -> None:
        try:
            async with asyncio.timeout(self._pace.write_s):
                await call.send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            return

    def _postpone(self, deadline: asyncio.Timeout) -> None:
        deadline.reschedule(asyncio.get_running_loop().time() + self._pace.write_s)

    async def _connect(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A WebSocket, or the refusal that the same path over HTTP would get."""
        verdict = self._exchange.connect(_head(scope, "GET", scope["headers"]))
        await receive()
        if not isinstance(verdict, Answer):
            await converse(verdict, send, receive, take_s=self._pace.take_s)
            return
        if "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": 1008})
            return
        await send(
            {
                "type": "websocket.http.response.start",
                "status": verdict.status,
                "headers": verdict.headers,
            }
        )
        await send({"type": "websocket.http.response.body", "body": b"".join(verdict.body)})


async def _gone(call: _Call) -> None:
    """Returns when the client has left; what it still sends is read and forgotten."""
    while not call.gone:
        await call.next()


async def _live(receive: Receive, send: Send) -> None:
    """Lifespan: there is nothing to start or to stop here."""
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.complete"})


def _head(scope: Scope, method: str, headers: Headers) -> Head:
    return Head(method, scope["raw_path"], scope["query_string"], headers)


def _declared_bytes(scope: Scope, headers: Headers) -> int | Answer:
    """The Content-Length, 0 where there is none; or the refusal of a head that is not sound."""
    lengths: list[bytes] = []
    is_coded = False
    size = len(scope["raw_path"]) + len(scope["query_string"])
    for name, value in headers:
        size += len(name) + len(value)
        if name == b"content-length":
            lengths.append(value)
        elif name == b"transfer-encoding":
            is_coded = True
    if size > HEADER_BYTES_MAX or len(headers) > HEADERS_MAX:
        return _bad("the head is larger than 32768 bytes or 100 headers", {"limit": "headers"})
    if not lengths:
        return 0
    if is_coded:
        # Two servers that each believe another of the two see different requests (smuggling).
        return _bad("Content-Length and Transfer-Encoding exclude each other")
    if len(lengths) > 1 or not (lengths[0].isdigit() and len(lengths[0]) < 20):
        return _bad("Content-Length must be one number")
    return int(lengths[0])


def _bad(message: str, detail: dict[str, Any] | None = None) -> Answer:
    return refusal(ErrorCode.INVALID_REQUEST, message, detail, close=True)


def _pieces(body: Sequence[Buffer]) -> list[bytes]:
    """The body as few messages: small buffers joined, large ones cut; at least one piece."""
    if len(body) == 1:
        only = body[0]
        if type(only) is bytes and len(only) <= PIECE_BYTES:
            return [only]
    elif sum(map(len, body)) <= PIECE_BYTES:
        return [b"".join(body)]
    pieces: list[bytes] = []
    small: list[Buffer] = []
    small_bytes = 0
    for buffer in body:
        view = memoryview(buffer)
        for at in range(0, len(view), PIECE_BYTES):
            part = view[at : at + PIECE_BYTES]
            if small_bytes + len(part) > PIECE_BYTES:
                pieces.append(b"".join(small))
                small, small_bytes = [], 0
            small.append(part)
            small_bytes += len(part)
    return [*pieces, b"".join(small)]
