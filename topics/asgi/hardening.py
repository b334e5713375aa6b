"""Corrections to hypercorn 0.18.0, and the proof that it is the one they were written for.

Owns the HTTP/1.1 side of a connection as this server wants it (`Http1`), the configuration that
goes with it, and the stand-ins for the pieces of hypercorn's worker that are not needed here.
Refuses to run beside another version: the corrections rely on what the corrected code does, so its
files are compared with known digests at import.  hypercorn itself is left as it is; everything
here is a subclass or a replacement that the door hands in.

Invariant: whatever a client sends, the answer that hypercorn makes by itself has the envelope of
§0.5, a WebSocket that breaks the protocol is told so in a Close frame, and no extension of WebSocket
is agreed on.
"""

import asyncio
import hashlib
import logging
import re
from base64 import b64decode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import Any, Final, Protocol
from wsgiref.handlers import format_date_time

import h11
import hypercorn.protocol.events as stream_events
from hypercorn.config import Config
from hypercorn.events import Closed
from hypercorn.protocol import h11 as stock_h11
from hypercorn.protocol import http_stream as stock_http
from hypercorn.protocol import ws_stream as stock_ws
from hypercorn.protocol.h11 import H11Protocol, H11WSConnection
from hypercorn.protocol.http_stream import HTTPStream
from hypercorn.protocol.ws_stream import ASGIWebsocketState, FrameTooLargeError, WSStream
from wsproto.connection import ConnectionState
from wsproto.events import CloseConnection, Message, Ping
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import LocalProtocolError

from topics.asgi.streaming import OUTLET, TAKE_S, Outlet
from topics.protocol.model.errors import ErrorCode
from topics.server.exchange.refusals import refusal

Headers = list[tuple[bytes, bytes]]

log = logging.getLogger("topics.http")

DIGESTS: Final = {
    stock_h11: "5d2cfe635578adc65941fd5dc7b35ad1d89a61a9beff3e97742dd94f359ee9e0",
    stock_http: "b28bb59de67f2f2813642846cc089fc52bf771f2270f813d039456ba4fe34f7f",
    stock_ws: "5eb34e4ac40b06f546154181246bc3d3fe10ab906f3eb7afa06c61167e281e68",
}
"""SHA-256 of the source files whose behaviour the corrections rely on (hypercorn 0.18.0)."""


class Unfit(RuntimeError):
    """The installed hypercorn is not the one that was corrected; one line, says which file."""


def check_stock() -> None:
    """Refuse to run beside a hypercorn that nobody has read.

    Raises:
        Unfit: A file differs from the one of hypercorn 0.18.0.
    """
    for module, digest in DIGESTS.items():
        assert module.__file__ is not None
        found = hashlib.sha256(Path(module.__file__).read_bytes()).hexdigest()
        if found != digest:
            raise Unfit(
                f"{module.__file__} is not the one of hypercorn 0.18.0 (sha256 {found[:16]}...); "
                "install hypercorn==0.18.0"
            )


check_stock()


@dataclass(frozen=True, slots=True)
class Guard:
    """What one connection may do.

    Attributes:
        idle_s: Seconds without a request after which a connection is closed; a head must be
            complete within them too.
        take_s: Seconds without a byte taken after which a stream of events is told (§7.6).
        write_s: Seconds for which a client may leave what was written for it untaken; counted anew
            from the last word of a stream.
        linger_s: Seconds for which the last bytes of a closed connection are given to arrive.
        linger_bytes: Bytes that are still read and forgotten meanwhile.
        reap_s: Seconds after the end of a connection in which its requests must end by themselves.
        frames: HTTP/2 frames that cost us work and the client nothing (RST_STREAM, PING, SETTINGS,
            PRIORITY, empty DATA) in one `frames_s`; more end the connection.  Clients in good
            faith send a handful.
    """

    idle_s: float = 15
    take_s: float = TAKE_S
    write_s: float = 35
    linger_s: float = 2
    linger_bytes: int = 256 << 10
    reap_s: float = 5
    frames: int = 200
    frames_s: float = 10


class _Log:
    """hypercorn's logger, onto ours; no access log, as stock's copies the environment into it."""

    def __init__(self, config: Config) -> None:
        del config

    async def access(self, *ignored: Any) -> None:
        return

    async def exception(self, message: str, *args: Any) -> None:
        log.exception(message, *args)


class _Config(Config):
    """`response_headers` once a second instead of once an answer."""

    _headers: Headers = []  # noqa: RUF012  replaced, never changed
    _headers_s = 0

    def response_headers(self, protocol: str) -> Headers:
        now_s = int(time())
        if now_s != self._headers_s:
            self._headers_s = now_s
            self._headers = [(b"date", format_date_time(now_s).encode("ascii"))]
        return self._headers


def configuration(*, max_message_bytes: int) -> Config:
    """hypercorn's configuration of this server.

    Args:
        max_message_bytes: Of one WebSocket message; at most 8 MiB are allowed.
    """
    config: Any = _Config()
    config.accesslog = None
    config.errorlog = None
    config.logger_class = _Log
    config.include_server_header = False
    config.h11_max_incomplete_size = 32 << 10
    config.h2_max_concurrent_streams = 100
    config.h2_max_header_list_size = 32 << 10
    # On HTTP/2 stock ends a connection after so many requests, streams in flight included.
    config.keep_alive_max_requests = 10**9
    config.max_app_queue_size = 10
    config.read_timeout = None
    config.websocket_max_message_size = min(max_message_bytes, 8 << 20)
    config.websocket_ping_interval = 20
    made: Config = config
    return made


class Context:
    """What hypercorn's protocols ask of their worker."""

    class event_class:
        def __init__(self) -> None:
            self._event = asyncio.Event()

        async def clear(self) -> None:
            self._event.clear()

        async def wait(self) -> None:
            await self._event.wait()

        async def set(self) -> None:
            self._event.set()

        def is_set(self) -> bool:
            return self._event.is_set()

    def __init__(self) -> None:
        self.terminated = self.event_class()
        self.terminate = self.event_class()

    async def mark_request(self) -> None:
        return

    sleep = staticmethod(asyncio.sleep)


AsgiApp = Callable[..., Awaitable[None]]


class Wire(Protocol):
    """The connection under what speaks HTTP on it."""

    is_paused: bool

    def write(self, data: bytes) -> None: ...

    def end(self) -> None:
        """Close once what was written is taken."""

    def finish(self, data: bytes) -> None:
        """Write, and end; a client that takes nothing now has `write_s` for it."""

    def set_idle(self, is_idle: bool) -> None: ...


class Tasks:
    """The requests of one connection, each a task; hypercorn's `TaskGroup` without the group."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    async def spawn_app(
        self, app: AsgiApp, config: Config, scope: Any, send: Callable[[Any], Awaitable[None]]
    ) -> Callable[[Any], Awaitable[None]]:
        queue: asyncio.Queue[Any] = asyncio.Queue(config.max_app_queue_size)
        self.spawn(_request, app, scope, queue.get, send)
        return queue.put

    def spawn(self, func: Callable[..., Awaitable[None]], *args: Any) -> None:
        task = asyncio.ensure_future(func(*args))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish(self, within_s: float) -> None:
        """Wait for the requests to end by themselves, then end them."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=within_s)
        self.cancel()

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()


class Writing:
    """A connection's tasks, whose requests may write without one (`streaming.Outlet`)."""

    def __init__(self, tasks: Tasks, outlet: Outlet) -> None:
        self._tasks = tasks
        self._outlet = outlet

    async def spawn_app(
        self, app: AsgiApp, config: Config, scope: Any, send: Callable[[Any], Awaitable[None]]
    ) -> Callable[[Any], Awaitable[None]]:
        scope["extensions"][OUTLET] = self._outlet
        return await self._tasks.spawn_app(app, config, scope, send)


async def _request(app: AsgiApp, scope: Any, receive: Any, send: Any) -> None:
    try:
        await app(scope, receive, send)
    except Exception:
        log.exception("the application failed")
    finally:
        await send(None)


def own_answer(status: int, why: str | None = None) -> tuple[Headers, bytes]:
    """Headers and body of an answer that no application gave; `why` says more than its status."""
    message = why or {
        400: "the request is not valid HTTP",
        413: "the body is too large",
        431: "the head is larger than 32768 bytes",
    }.get(status, "the request cannot be served")
    code = ErrorCode.INTERNAL if status == 500 else ErrorCode.INVALID_REQUEST
    answer = refusal(code, message, {"limit": "headers"} if status == 431 else None)
    return [*answer.headers], bytes(answer.body[0])


def without_extensions(headers: Headers) -> Headers:
    """Headers of a WebSocket handshake that asks for no extension.

    Stock always agrees to permessage-deflate and inflates without a bound: 67 KB from the wire made
    226 MB of memory, and the limit of a message's size was checked only afterwards.
    """
    return [header for header in headers if header[0].lower() != b"sec-websocket-extensions"]


FAREWELL_S: Final = 5.0
"""What a client gets to take a Close frame, and what was sent before it."""

EARLY: Final = "frames came before the handshake was answered"


class SocketStream(WSStream):
    """A WebSocket, from its handshake to its last frame.

    Stock refuses without a body, forgets the application of a handshake that it refused, and ends a
    socket whose client breaks the protocol without a word.
    """

    _is_refused = False
    """A refusal of the handshake is on its way; there is one."""

    @property
    def is_open(self) -> bool:
        return self.handshake.accepted

    async def handle(self, event: stream_events.Event) -> None:
        is_data = isinstance(event, stream_events.Body | stream_events.Data)
        if self.closed or not is_data or self.is_open:
            await super().handle(event)
        elif not self._is_refused and self.state is ASGIWebsocketState.HANDSHAKE:
            # A client must wait for the answer (RFC 6455 §4.1); a proxy that has not seen one may
            # take these bytes for another request.
            self.closed = True
            await self._send_error_response(400, EARLY)
            await self._tell_gone()

    async def _send_rejection(self, message: Any) -> None:
        self._is_refused = True
        await super()._send_rejection(message)

    async def _send_error_response(self, status_code: int, why: str | None = None) -> None:
        self._is_refused = True
        headers, body = own_answer(status_code, why)
        headers.append((b"connection", b"close"))
        stream_id = self.stream_id
        await self.send(stream_events.Response(stream_id, headers=headers, status_code=status_code))
        await self.send(stream_events.Body(stream_id, data=body))
        await self.send(stream_events.EndBody(stream_id))

    async def _handle_events(self) -> None:
        for event in self.connection.events():
            if isinstance(event, Message):
                try:
                    self.buffer.extend(event)
                except FrameTooLargeError:
                    await self._end(CloseConnection(code=CloseReason.MESSAGE_TOO_BIG))
                    return
                if event.message_finished:
                    assert self.app_put is not None
                    await self.app_put(self.buffer.to_message())
                    self.buffer.clear()
            elif isinstance(event, Ping):
                await self._send_wsproto_event(event.response())
            elif isinstance(event, CloseConnection):
                # Of the client, or of wsproto, which says so what the client did wrong.
                is_answer = self.connection.state is ConnectionState.REMOTE_CLOSING
                await self._end(event.response() if is_answer else event)
                return

    async def _end(self, last: CloseConnection) -> None:
        """Say the last word, if it was not said.  Whoever reads the wire does not wait until it is
        taken: over HTTP/2 others read there, too."""
        self.closed = True
        try:
            data = self.connection.send(last)
        except LocalProtocolError:
            data = b""
        self.task_group.spawn(self._say_farewell, data)
        await self._tell_gone()

    async def _say_farewell(self, data: bytes) -> None:
        try:
            async with asyncio.timeout(FAREWELL_S):
                if data:
                    await self.send(stream_events.Data(self.stream_id, data=data))
                await self.send(stream_events.EndData(self.stream_id))
        except TimeoutError:
            pass
        await self.send(stream_events.StreamClosed(self.stream_id))

    async def _tell_gone(self) -> None:
        if self.app_put is not None:
            code = CloseReason.ABNORMAL_CLOSURE.value
            await self.app_put({"type": "websocket.disconnect", "code": code})


class _Parser(h11.Connection):
    """h11, which forgets what it could not read: whether that was a HEAD decides on the answer."""

    is_head = False
    """Of the request that came last, readable or not."""

    def next_event(self) -> Any:
        if self.their_state is h11.IDLE:
            self.is_head = self.trailing_data[0][:5].upper() == b"HEAD "
        return super().next_event()


class Http1(H11Protocol):
    """HTTP/1.1 on one connection."""

    def __init__(self, *args: Any, wire: Wire) -> None:
        super().__init__(*args)
        self._wire = wire
        self._is_chunked = False
        """The answer that goes on has no length, and its client knows chunks."""
        self._parser = _Parser(
            h11.SERVER, max_incomplete_event_size=self.config.h11_max_incomplete_size
        )
        self.connection = self._parser
        tasks: Any = self.task_group  # stock's annotation names its own
        self._writing = Writing(tasks, self)
        self._when_stalled: Callable[[], None] | None = None

    def let_go(self) -> None:
        """The connection is over, and no request will come: what refers back here goes."""
        del self._writing

    def write(self, piece: bytes) -> bool:
        """Write a piece of the answer that goes on, as `stream_send` does with a `Body`."""
        assert piece
        if self._wire.is_paused or self.stream is None:
            return False
        if self.connection.our_state is not h11.SEND_BODY:
            return False
        # A chunk is all that h11 would make of it, for a tenth of the time.
        framed = b"%x\r\n%b\r\n" % (len(piece), piece)
        self._wire.write(framed if self._is_chunked else self._parser.send(h11.Data(data=piece)))
        return True

    def when_stalled(self, call: Callable[[], None]) -> None:
        self._when_stalled = call

    def stalled(self) -> bool:
        """The client takes nothing; whether somebody was told."""
        call, self._when_stalled = self._when_stalled, None
        if call is None:
            return False
        call()
        return True

    async def finish(self, piece: bytes) -> None:
        if self.stream is None or self.connection.our_state is not h11.SEND_BODY:
            return
        last = self._parser.send(h11.Data(data=piece)) + self._parser.send(h11.EndOfMessage())
        self._wire.finish(last)

    async def _close_stream(self) -> None:
        self._when_stalled = None
        await super()._close_stream()

    async def stream_send(self, event: stream_events.Event) -> None:
        if isinstance(event, stream_events.Response) and self.context.terminated.is_set():
            # Draining: this connection ends after this answer, and the client should know.
            event.headers[:] = [each for each in event.headers if each[0] != b"connection"]
            event.headers.append((b"connection", b"close"))
        await super().stream_send(event)
        if isinstance(event, stream_events.Response):
            version = self._parser.their_http_version or b"1.0"
            has_length = any(name == b"content-length" for name, _ in event.headers)
            self._is_chunked = version >= b"1.1" and not has_length
        if isinstance(event, stream_events.EndBody) and isinstance(self.stream, WSStream):
            # A handshake that was refused.  Where frames came with it, stock tells nobody.
            await self.send(Closed())

    async def _check_protocol(self, event: h11.Request) -> None:
        """Stay with HTTP/1.1.

        HTTP/2 is told by its preface before this class is chosen.  `Upgrade: h2c` is ignored, as a
        server may: behind a proxy it would smuggle requests past whatever the proxy checks.
        """

    async def _create_stream(self, request: h11.Request) -> None:
        if request.http_version not in (b"1.1", b"1.0"):
            await self._send_error_response(505)
            await self.send(Closed())
            return
        method = request.method.decode("ascii").upper()
        headers = list(request.headers)
        target = request.target
        if (absolute := _ABSOLUTE.fullmatch(target)) is not None:
            host, target = absolute[1], absolute[2]
            if not host or b"@" in host:
                await self._send_error_response(400, "the request's target names no host")
                await self.send(Closed())
                return
            headers = _addressed_to(host, headers)
            target = target if target.startswith(b"/") else b"/" + target
        kind: type[HTTPStream | WSStream] = HTTPStream
        tasks: Any = self._writing
        if request.http_version == b"1.1" and _opens_websocket(method, headers):
            kind, tasks = SocketStream, self.task_group
            headers = without_extensions(headers)
            assert isinstance(self.connection, h11.Connection)
            self.connection = H11WSConnection(self.connection)
        self.stream = kind(
            self.app,
            self.config,
            self.context,
            tasks,
            self.ssl,
            self.client,
            self.server,
            self.stream_send,
            stock_h11.STREAM_ID,
        )
        self.keep_alive_requests += 1
        await self.stream.handle(
            stream_events.Request(
                stream_id=stock_h11.STREAM_ID,
                headers=headers,
                http_version=request.http_version.decode("ascii"),
                method=method,
                raw_path=target,
                state=self.connection_state,
            )
        )

    async def _send_error_response(self, status_code: int, why: str | None = None) -> None:
        """An answer of hypercorn's own, in the envelope; stock sends it without a body.

        A client that breaks HTTP has a 400, whatever finer word there is for it: of the 5xx, only
        500 and 503 are said here, and they are about the server.
        """
        status_code = 400 if status_code in (501, 505) else status_code
        headers, body = own_answer(status_code, why)
        headers.append((b"connection", b"close"))
        headers.extend(self.config.response_headers("h11"))
        await self._send_h11_event(h11.Response(status_code=status_code, headers=headers))
        if not self._parser.is_head:
            await self._send_h11_event(h11.Data(data=body))
        await self._send_h11_event(h11.EndOfMessage())


_ABSOLUTE: Final = re.compile(rb"(?i:https?)://([^/?#]*)(.*)", re.DOTALL)
"""A target in absolute form, which any server must take (RFC 9112 §3.2.2): host, path and query."""


def _addressed_to(host: bytes, headers: Headers) -> Headers:
    """The headers of a request whose target names the host: `Host` does not count beside it."""
    return [(b"host", host), *(header for header in headers if header[0] != b"host")]


def _is_handshake(key: bytes, version: bytes) -> bool:
    """Whether the rest of a handshake is sound (RFC 6455 §4.2.1); any other `Upgrade` is ignored,
    as a server may (and must in HTTP/1.0), and the request is answered as what it is without it."""
    try:
        return version.strip() == b"13" and len(b64decode(key.strip(), validate=True)) == 16
    except ValueError:
        return False


def _opens_websocket(method: str, headers: Headers) -> bool:
    if method != "GET":
        return False
    upgrade = connection = key = version = b""
    for name, value in headers:
        if name == b"upgrade":
            upgrade = value
        elif name == b"connection":
            connection = value
        elif name == b"sec-websocket-key":
            key = value
        elif name == b"sec-websocket-version":
            version = value
    if upgrade.strip().lower() != b"websocket" or not _is_handshake(key, version):
        return False
    return any(token.strip() == b"upgrade" for token in connection.lower().split(b","))
