"""An exchange as a plain ASGI 3 application.

Owns the life of one request under an ASGI server: the head as the exchange wants it, the body with
its deadlines and its share of memory, the wait for an answer, and the writing of it.  Knows nothing
of what a request means, and which server calls.

Invariant: while a request is open the application awaits `receive()`, or only the disconnect is
still to come.  A server that queues messages for an application which does not receive them
waits for ever, and with it every other request of the same HTTP/2 connection.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterator, MutableMapping, Sequence
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote

from msgspec.structs import replace

from topics.asgi.limits import HEAD_BYTES_MAX, HEADERS_MAX, HostLimits, Timeouts
from topics.asgi.streaming import Gone, converse, guarded, stream
from topics.protocol.model.errors import ErrorCode
from topics.protocol.model.records import Buffer
from topics.server.http.interface import (
    Admission,
    Answer,
    Exchange,
    Head,
    Headers,
    Opening,
    Pending,
    Streaming,
)
from topics.server.http.refusals import refusal

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

KEEP_ALIVE: Final = (b"connection", b"keep-alive")
"""Among the headers of a stream (§7.3); HTTP/2 has no such header, and HTTP/1.0 no such stream."""
PIECE_BYTES: Final = 256 << 10
"""An answer is written in pieces of this size, each under its own deadline: a client that takes
less than 7 KiB/s counts as one that does not read."""

log = logging.getLogger("topics.http")


class _Call:
    """The two channels of one request, and how far each has come."""

    __slots__ = ("_receive", "ended", "gone", "held", "is_http1", "send", "started")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._receive = receive
        self.send = guarded(send)
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

    def __init__(
        self, exchange: Exchange, timeouts: Timeouts | None = None, limits: HostLimits | None = None
    ) -> None:
        self._exchange = exchange
        self._timeouts = timeouts or Timeouts()
        self._limits = limits or HostLimits()
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
        except Gone:
            return
        except Exception:
            log.exception("a request failed")
            if not call.started:
                with suppress(Gone):
                    await self._refuse(call, refusal(ErrorCode.INTERNAL, "internal error"), 0)
        finally:
            self._held_bytes -= call.held

    async def _http(self, call: _Call, scope: Scope) -> None:
        declared = _declared_bytes(scope)
        if isinstance(declared, Answer):
            return await self._refuse(call, declared, 0, may_drain=False)
        verdict = self._exchange.begin(_head(scope, scope["method"]))
        if isinstance(verdict, Answer):
            return await self._refuse(call, verdict, declared)
        try:
            await self._admitted(call, scope, verdict, declared)
        finally:
            verdict.close()
        return None

    async def _admitted(
        self, call: _Call, scope: Scope, admission: Admission, declared: int
    ) -> None:
        body = await self._body(call, admission, declared)
        if isinstance(body, Answer):
            return await self._refuse(call, body, declared, may_drain=False)
        if body is None:
            # The client is gone; to the exchange this is a body that did not come in time.
            admission.too_slow()
            return None
        answer = admission.finish(body)
        del body
        if not isinstance(answer, Answer | Streaming):
            settled = await self._settled(call, answer)
            if settled is None:
                return None
            answer = settled
        if isinstance(answer, Streaming):
            call.started = True
            if scope["http_version"] == "1.1":
                answer = replace(answer, headers=(*answer.headers, KEEP_ALIVE))
            return await stream(answer, call.send, _gone(call), take_s=self._timeouts.take_s)
        await self._write(call, answer, close=answer.close)
        return None

    async def _body(
        self, call: _Call, admission: Admission, declared: int
    ) -> list[bytes] | Answer | None:
        """The whole body in pieces, a refusal of it, or None where the client went away."""
        if declared > admission.max_body_bytes:
            return admission.too_large()
        try:
            async with asyncio.timeout(self._timeouts.first_s) as deadline:
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
        """Read what follows the first piece; the deadline moves as long as enough comes in time."""
        window_s = self._timeouts.window_s
        now_s = asyncio.get_running_loop().time
        last_s = now_s() + self._timeouts.body_s
        deadline.reschedule(min(now_s() + window_s, last_s))
        window_bytes = 0
        while not call.ended:
            piece = await call.next()
            pieces.append(piece)
            refused = self._count(call, admission, len(piece))
            if refused is not None:
                return refused
            window_bytes += len(piece)
            if window_bytes >= self._limits.window_bytes:
                window_bytes = 0
                deadline.reschedule(min(now_s() + window_s, last_s))
        return None

    def _count(self, call: _Call, admission: Admission, size: int) -> Answer | None:
        call.held += size
        self._held_bytes += size
        if call.held > admission.max_body_bytes:
            return admission.too_large()
        is_small = call.held <= self._limits.body_free_bytes
        if self._held_bytes > self._limits.bodies_bytes and not is_small:
            limit = {"limit": "max_body_memory", "max": self._limits.bodies_bytes}
            return refusal(ErrorCode.THROTTLED, "too many bytes of bodies are in flight", limit)
        return None

    async def _settled(self, call: _Call, pending: Pending) -> Answer | Streaming | None:
        """The answer of a wait, or None where the client went away first."""
        loop = asyncio.get_running_loop()
        settled: asyncio.Future[Answer | Streaming | None] = loop.create_future()

        def deliver(answer: Answer | Streaming | None) -> None:
            if not settled.done():
                settled.set_result(answer)
            elif isinstance(answer, Streaming) and answer.feed is not None:
                answer.feed.close()

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
        if may_drain and not call.ended and declared <= self._limits.drain_bytes:
            # Small bodies mostly came with the head; once read, the connection can go on.
            await self._drain(call, self._timeouts.grace_s)
        if call.gone:
            return
        if call.ended:
            await self._write(call, answer, close=answer.close)
            return
        await self._refuse_unread(call, answer)

    async def _drain(self, call: _Call, within_s: float) -> None:
        """Read and drop the rest of a body, as far as the limits allow."""
        left = self._limits.drain_bytes
        try:
            async with asyncio.timeout(within_s):
                while left > 0 and not call.ended:
                    left -= len(await call.next())
        except TimeoutError:
            return

    async def _refuse_unread(self, call: _Call, answer: Answer) -> None:
        """Answer while the body still comes.

        On HTTP/1.1 the connection has to end.  If it ends with unread bytes, the kernel sends a
        reset, which overtakes the answer: so the last message waits a moment for the client.  On
        HTTP/2 the stream ends at once and the server resets what is left of it.
        """
        enough = asyncio.Event()

        async def swallow() -> None:
            left = self._limits.drain_bytes
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
                    async with asyncio.timeout(self._timeouts.drain_s):
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
            False where the client did not read it in time.  The rest of it must not follow: the
            server sees an unfinished answer, and ends the connection or resets the stream.
        """
        headers: Headers = answer.headers
        if close and call.is_http1:
            headers = [*headers, (b"connection", b"close")]
        call.started = True
        try:
            async with asyncio.timeout(self._timeouts.write_s) as deadline:
                await call.send(
                    {"type": "http.response.start", "status": answer.status, "headers": headers}
                )
                pieces = _pieces(answer.body)
                piece: bytes | None = next(pieces)
                while piece is not None:
                    after = next(pieces, None)
                    is_last = after is None and not more
                    await call.send(
                        {"type": "http.response.body", "body": piece, "more_body": not is_last}
                    )
                    self._postpone(deadline)
                    piece = after
        except TimeoutError:
            return False
        return True

    async def _last(self, call: _Call) -> None:
        try:
            async with asyncio.timeout(self._timeouts.write_s):
                await call.send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            return

    def _postpone(self, deadline: asyncio.Timeout) -> None:
        deadline.reschedule(asyncio.get_running_loop().time() + self._timeouts.write_s)

    async def _connect(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A WebSocket, or the refusal that the same path over HTTP would get."""
        send = guarded(send)
        verdict = self._exchange.connect(_head(scope, "GET"))
        await receive()
        with suppress(Gone):
            if isinstance(verdict, Answer):
                await _deny(verdict, scope, send)
            else:
                assert not isinstance(verdict, Opening)
                await converse(
                    verdict,
                    send,
                    receive,
                    take_s=self._timeouts.take_s,
                    message_bytes=self._limits.message_bytes,
                )


async def _deny(answer: Answer, scope: Scope, send: Send) -> None:
    """Refuse a WebSocket with the answer that its path has over HTTP, where the server can send
    that; otherwise the server makes this close a 403 without a body."""
    if "websocket.http.response" not in (scope.get("extensions") or {}):
        await send({"type": "websocket.close", "code": 1008})
        return
    await send(
        {
            "type": "websocket.http.response.start",
            "status": answer.status,
            "headers": list(answer.headers),
        }
    )
    await send({"type": "websocket.http.response.body", "body": b"".join(answer.body)})


async def _gone(call: _Call) -> None:
    """Returns when the client is gone; what it still sends is read and dropped."""
    while not call.gone:
        await call.next()


async def _live(receive: Receive, send: Send) -> None:
    """Lifespan: there is nothing to start or to stop here."""
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.complete"})


ABSOLUTE: Final = re.compile(rb"(?i:https?)://([^/?#]*)(.*)", re.DOTALL)
"""A target in absolute form, which any server must take (RFC 9112 §3.2.2): host and path."""


def _head(scope: Scope, method: str) -> Head:
    path = _raw_path(scope)
    headers: Headers = scope["headers"]
    absolute = None if path.startswith(b"/") else ABSOLUTE.fullmatch(path)
    if absolute is not None:
        # Stock hypercorn hands it on as it came; `Host` does not count beside the target's.
        host, path = absolute.groups()
        headers = [(b"host", host), *(header for header in headers if header[0] != b"host")]
    root = scope.get("root_path", "").encode()
    if root and path.startswith(root + b"/"):
        path = path.removeprefix(root)
    client = scope.get("client")
    address = str(client[0]) if client else ""
    return Head(method, path or b"/", scope["query_string"], headers, address)


def _raw_path(scope: Scope) -> bytes:
    """The path as it came; a server need not pass it on, and then the decoded path is escaped
    again."""
    raw: bytes | None = scope.get("raw_path")
    return quote(scope["path"], safe="/:@!$&'()*+,;=~").encode() if raw is None else raw


def _declared_bytes(scope: Scope) -> int | Answer:
    """The Content-Length, 0 where there is none; or the refusal of a head that is not sound."""
    headers: Headers = scope["headers"]
    lengths: list[bytes] = []
    is_coded = False
    size = len(_raw_path(scope)) + len(scope["query_string"])
    for name, value in headers:
        size += len(name) + len(value)
        if name == b"content-length":
            lengths.append(value)
        elif name == b"transfer-encoding":
            is_coded = True
    if size > HEAD_BYTES_MAX or len(headers) > HEADERS_MAX:
        return _bad("the head is larger than 32768 bytes or 100 headers", {"limit": "headers"})
    if not lengths:
        return 0
    if is_coded:
        # Two servers that each trust a different one of the two see different requests (smuggling).
        return _bad("Content-Length and Transfer-Encoding exclude each other")
    if len(lengths) > 1 or not (lengths[0].isdigit() and len(lengths[0]) < 20):
        return _bad("Content-Length must be one number")
    return int(lengths[0])


def _bad(message: str, detail: dict[str, Any] | None = None) -> Answer:
    return refusal(ErrorCode.INVALID_REQUEST, message, detail, close=True)


def _pieces(body: Sequence[Buffer]) -> Iterator[bytes]:
    """The body as few messages: small buffers joined, large ones cut; at least one piece."""
    small: list[Buffer] = []
    small_bytes = 0
    for buffer in body:
        if type(buffer) is bytes and len(buffer) <= PIECE_BYTES - small_bytes:
            small.append(buffer)
            small_bytes += len(buffer)
            continue
        view = memoryview(buffer)
        for at in range(0, len(view), PIECE_BYTES):
            part = view[at : at + PIECE_BYTES]
            if small_bytes + len(part) > PIECE_BYTES:
                yield b"".join(small)
                small, small_bytes = [], 0
            small.append(part)
            small_bytes += len(part)
    yield b"".join(small)
