"""HTTP/2 on one connection: h2 for the frames, hypercorn's streams for the requests.

Owns what hypercorn 0.18.0's own driver of h2 gets wrong: answers wait for the client's window and
not in our memory, a frame for a stream that is gone is no failure, streams that end early are
reset, a malformed request has an answer and costs its stream alone, and frames that cost the client
nothing are counted.  Refuses to know the socket, which it sees as a `Wire`, and priorities, which RFC 9113
took back: streams with something to send take turns, a frame each.

Invariant: no stream holds more of its answer than the pieces its request handed over before it was
made to wait, `HIGH_BYTES` and one piece; and all frames of one turn of the loop are one write.
"""

import asyncio
import re
from collections.abc import Callable, Iterable
from typing import Any, Final

import h2.config
import h2.connection
import h2.events
import h2.settings
import hypercorn.protocol.events as stream_events
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError
from hpack import Decoder, HeaderTuple
from hypercorn.config import Config
from hypercorn.protocol.http_stream import HTTPStream
from hypercorn.typing import ConnectionState
from hypercorn.utils import filter_pseudo_headers

from topics.asgi.fields import content_length, fault_of_head, fault_of_trailers, size_bytes
from topics.asgi.hardening import (
    EARLY,
    AsgiApp,
    Context,
    Guard,
    SocketStream,
    Tasks,
    Wire,
    Writing,
    own_answer,
    without_extensions,
)

HIGH_BYTES: Final = 32 << 10
"""Bytes waiting for a stream's window at which its request is made to wait."""

READ_BYTES: Final = 16 << 10
"""Bytes handed to h2 at a time: it works through all it gets before it tells, and the budget can
only be kept in between."""

WRITE_BYTES: Final = 128 << 10
"""Bytes made into frames before the wire is asked whether it takes more."""

HEAD_BYTES_MAX: Final = 256 << 10
"""A header list that is too large is decoded up to here, as the next one can only be read after it,
and refused; beyond it the connection ends."""

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

_ANSWER: Final = (stream_events.Response, stream_events.Body, stream_events.Data)

_UNSAFE: Final = re.compile(rb"[^\x21-\x7e]")


class _Outbound:
    """What of one stream's answer is not yet in a frame."""

    __slots__ = ("_moved", "data", "is_begun", "is_closed", "is_done", "is_ended")

    def __init__(self) -> None:
        self.data = bytearray()
        self.is_begun = False
        """Its head was sent."""
        self.is_ended = False
        """Nothing will be added."""
        self.is_done = False
        """Its last frame is made."""
        self.is_closed = False
        """The client wants no more of it."""
        self._moved: asyncio.Future[None] | None = None

    def moved(self) -> None:
        if self._moved is not None and not self._moved.done():
            self._moved.set_result(None)

    def close(self) -> None:
        self.is_closed = True
        self.data.clear()
        self.moved()

    async def below(self, size: int) -> None:
        while len(self.data) >= size and not self.is_closed:
            await self._wait()

    async def done(self) -> None:
        while not (self.is_done or self.is_closed):
            await self._wait()

    async def _wait(self) -> None:
        if self._moved is None or self._moved.done():
            self._moved = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._moved)


class Http2:
    """The server's side of one HTTP/2 connection."""

    def __init__(
        self,
        app: AsgiApp,
        config: Config,
        context: Context,
        tasks: Tasks,
        wire: Wire,
        guard: Guard,
        *,
        client: tuple[str, int] | None,
        server: tuple[str, int] | None,
    ) -> None:
        self._app = app
        self._config = config
        self._context = context
        self._tasks = tasks
        self._wire = wire
        self._guard = guard
        self._client = client
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._turn: asyncio.Handle | None = None
        self._streams: dict[int, HTTPStream | SocketStream] = {}
        self._inbound: dict[int, int | None] = {}
        """Streams whose client has not ended its half: bytes still to come, where it said."""
        self._outbound: dict[int, _Outbound] = {}
        self._when_stalled: dict[int, Callable[[], None]] = {}
        self._frames = 0
        self._frames_until_s = 0.0
        self._h2 = _connection(config)

    def initiate(self) -> None:
        self._h2.initiate_connection()
        self._soon()

    async def receive(self, data: bytes) -> None:
        """Take bytes from the client; waits while a request does not take its body."""
        for at in range(0, len(data), READ_BYTES):
            if self._is_closed:
                return
            try:
                events = self._h2.receive_data(data[at : at + READ_BYTES])
            except ProtocolError:
                # h2 has made the GOAWAY already.
                self._hang_up()
                return
            for event in events:
                handle = _HANDLERS.get(type(event))
                if handle is not None and not self._is_closed:
                    await handle(self, event)
            self._soon()

    async def closed(self) -> None:
        """The connection is over: every request hears it."""
        self._is_closed = True
        for outbound in self._outbound.values():
            outbound.close()
        for stream_id in list(self._streams):
            await self._forget(stream_id)

    def say_goodbye(self) -> None:
        """GOAWAY, at once: what the client sends from here on was certainly not looked at."""
        if not self._is_closed:
            self._h2.close_connection()
            self._flush()

    def writable(self) -> None:
        """The wire takes bytes again."""
        self._soon()

    # What the client does.

    async def _on_request(self, event: h2.events.RequestReceived) -> None:
        stream_id, fields = event.stream_id, _fields(event)
        has_ended = event.stream_ended is not None
        pseudo = {name: value for name, value in fields if name.startswith(b":")}
        method, path = pseudo.get(b":method", b""), pseudo.get(b":path", b"")
        is_large = size_bytes(fields) > self._config.h2_max_header_list_size
        fault = fault_of_head(fields)
        if is_large or fault is not None:
            status = 431 if is_large else 400
            self._refuse(stream_id, status, fault, has_ended=has_ended, is_head=method == b"HEAD")
            return
        if not self._streams:
            self._wire.set_idle(False)
        headers = filter_pseudo_headers(fields)
        kind: Any = HTTPStream  # its annotations name stock's own worker
        tasks: Any = Writing(self._tasks, _Outlet(self, stream_id))
        if method == b"CONNECT":
            kind, tasks, headers = SocketStream, self._tasks, without_extensions(headers)
        stream = kind(
            self._app,
            self._config,
            self._context,
            tasks,
            False,
            self._client,
            self._server,
            self._stream_send,
            stream_id,
        )
        self._streams[stream_id] = stream
        self._outbound[stream_id] = _Outbound()
        self._inbound[stream_id] = content_length(fields)
        await stream.handle(
            stream_events.Request(
                stream_id=stream_id,
                headers=headers,
                http_version="2",
                method=method.decode("ascii").upper(),
                raw_path=_UNSAFE.sub(_escaped, path),
                state=ConnectionState({}),
            )
        )

    async def _on_data(self, event: h2.events.DataReceived) -> None:
        if not event.data and event.stream_ended is None:
            self._charge()
        stream = self._streams.get(event.stream_id)
        if stream is not None and event.data:
            if self._is_too_long(event.stream_id, len(event.data)):
                await self._spoil(event.stream_id, "the body is longer than its Content-Length")
            elif isinstance(stream, SocketStream) and not stream.is_open:
                # Answered here: the stream itself would wait for the client's window, and who waits
                # here reads nothing for the others.
                outbound = self._outbound.get(event.stream_id)
                if outbound is not None and not outbound.is_begun:
                    await self._spoil(event.stream_id, EARLY)
            else:
                await stream.handle(stream_events.Body(event.stream_id, event.data))
        if event.flow_controlled_length and not self._is_closed:
            self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)

    def _is_too_long(self, stream_id: int, size: int) -> bool:
        left = self._inbound.get(stream_id)
        if left is None:
            return False
        self._inbound[stream_id] = left - size
        return left < size

    async def _on_end(self, event: h2.events.StreamEnded) -> None:
        stream_id = event.stream_id
        stream = self._streams.get(stream_id)
        left = self._inbound.pop(stream_id, None)
        if stream is not None and left:
            await self._spoil(stream_id, "the body is shorter than its Content-Length")
        elif stream is not None:
            await stream.handle(stream_events.EndBody(stream_id=stream_id))

    async def _on_trailers(self, event: h2.events.TrailersReceived) -> None:
        fault = fault_of_trailers(_fields(event))
        if fault is not None and event.stream_id in self._streams:
            # h2 takes no trailers but those that end their stream.
            self._inbound.pop(event.stream_id, None)
            await self._spoil(event.stream_id, fault)

    async def _on_reset(self, event: h2.events.StreamReset) -> None:
        self._charge()
        self._inbound.pop(event.stream_id, None)
        outbound = self._outbound.pop(event.stream_id, None)
        if outbound is not None:
            outbound.close()
        await self._forget(event.stream_id)

    async def _on_window(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.RemoteSettingsChanged):
            self._charge()

    async def _on_chore(self, event: h2.events.Event) -> None:
        del event
        self._charge()

    async def _on_goaway(self, event: h2.events.ConnectionTerminated) -> None:
        del event
        self._is_closed = True
        self._wire.end()

    def _charge(self) -> None:
        """Count a frame that is work for us and none for the client."""
        now_s = self._loop.time()
        if now_s >= self._frames_until_s:
            self._frames, self._frames_until_s = 0, now_s + self._guard.frames_s
        self._frames += 1
        if self._frames > self._guard.frames and not self._is_closed:
            self._h2.close_connection(ErrorCodes.ENHANCE_YOUR_CALM)
            self._hang_up()

    def _hang_up(self) -> None:
        self._flush()
        self._is_closed = True
        self._wire.end()

    # What of it is malformed (RFC 9113, 8.1.1).

    def _refuse(
        self, stream_id: int, status: int, why: str | None, *, has_ended: bool, is_head: bool
    ) -> None:
        """Answer a request that no application may see, and have done with its stream."""
        if status != 400:
            why = None
        headers, body = own_answer(status, why and f"the request is not valid HTTP: {why}")
        head = [(b":status", b"%d" % status), *headers, *self._config.response_headers("h2")]
        try:
            if self._h2.local_flow_control_window(stream_id) < len(body) and not is_head:
                # Nothing is kept for it until the client takes more.
                self._h2.reset_stream(stream_id, ErrorCodes.PROTOCOL_ERROR)
            else:
                self._h2.send_headers(stream_id, head, end_stream=is_head)
                if not is_head:
                    self._h2.send_data(stream_id, body, end_stream=True)
                if not has_ended:
                    # With any other code clients may throw the answer away (RFC 9113, 8.1).
                    self._h2.reset_stream(stream_id, ErrorCodes.NO_ERROR)
        except ProtocolError:
            return
        self._soon()

    async def _spoil(self, stream_id: int, why: str) -> None:
        """A request turned out malformed after its head: its application hears that it is gone."""
        stream, outbound = self._streams[stream_id], self._outbound.pop(stream_id, None)
        has_ended = stream_id not in self._inbound
        if outbound is None or outbound.is_begun:
            self._reset(stream_id, ErrorCodes.PROTOCOL_ERROR)
        else:
            is_head = isinstance(stream, HTTPStream) and stream.scope["method"] == "HEAD"
            self._refuse(stream_id, 400, why, has_ended=has_ended, is_head=is_head)
        if outbound is not None:
            outbound.close()
        await self._forget(stream_id)

    # What the application does.

    def _write(self, stream_id: int, piece: bytes) -> bool:
        """Add a piece to an answer that goes on, as `_stream_send` does with a `Body`."""
        outbound = self._outbound.get(stream_id)
        if outbound is None or outbound.data or outbound.is_closed or self._wire.is_paused:
            return False
        outbound.data += piece
        self._soon()
        return True

    async def _finish(self, stream_id: int, piece: bytes) -> None:
        """End an answer that goes on behind what is not taken of it, which has its time."""
        outbound = self._outbound.get(stream_id)
        if outbound is None or outbound.is_closed or outbound.is_ended:
            return
        outbound.data += piece
        outbound.is_ended = True
        self._soon()
        try:
            async with asyncio.timeout(self._guard.write_s):
                await outbound.done()
        except TimeoutError:
            return

    def stalled(self) -> bool:
        """The client takes nothing of any stream; whether somebody was told."""
        calls = [*self._when_stalled.values()]
        self._when_stalled.clear()
        for call in calls:
            call()
        return bool(calls)

    async def _stream_send(self, event: stream_events.Event) -> None:
        stream_id = event.stream_id
        outbound = self._outbound.get(stream_id)
        if self._is_closed or outbound is None:
            return
        if outbound.is_ended and isinstance(event, _ANSWER):
            # hypercorn and the application may both refuse a WebSocket; the first one counts.
            return
        if isinstance(event, stream_events.Response):
            outbound.is_begun = True
            self._headers(stream_id, event)
        elif isinstance(event, stream_events.Body | stream_events.Data):
            await outbound.below(HIGH_BYTES)
            if outbound.is_closed:
                return
            outbound.data += event.data
            self._soon()
            await outbound.below(HIGH_BYTES)
        elif isinstance(event, stream_events.EndBody | stream_events.EndData):
            outbound.is_ended = True
            self._soon()
            await outbound.done()
            if isinstance(event, stream_events.EndBody) and isinstance(
                self._streams.get(stream_id), SocketStream
            ):
                # A handshake that was refused.  Where frames came with it, stock tells nobody.
                await self._over(stream_id, outbound)
        elif isinstance(event, stream_events.StreamClosed):
            await self._over(stream_id, outbound)

    def _headers(self, stream_id: int, event: stream_events.Response) -> None:
        # `connection` is of HTTP/1.1 alone; hypercorn's own refusals carry it regardless.
        headers = [(b":status", b"%d" % event.status_code)]
        headers += [header for header in event.headers if header[0] != b"connection"]
        headers += self._config.response_headers("h2")
        try:
            self._h2.send_headers(stream_id, headers)
        except ProtocolError:
            return
        self._soon()

    async def _over(self, stream_id: int, outbound: _Outbound) -> None:
        """The application is done with a stream."""
        self._outbound.pop(stream_id, None)
        if not outbound.is_done:
            # It failed or gave up half way: the client must not wait for the rest.
            outbound.close()
            self._reset(stream_id, ErrorCodes.INTERNAL_ERROR)
        elif stream_id in self._inbound:
            # The answer is whole and the body was not wanted (RFC 9113, 8.1).
            self._reset(stream_id, ErrorCodes.NO_ERROR)
        await self._forget(stream_id)

    async def _forget(self, stream_id: int) -> None:
        self._inbound.pop(stream_id, None)
        self._when_stalled.pop(stream_id, None)
        stream = self._streams.pop(stream_id, None)
        if stream is not None:
            await stream.handle(stream_events.StreamClosed(stream_id=stream_id))
            if not self._streams:
                self._wire.set_idle(True)

    def _reset(self, stream_id: int, code: ErrorCodes) -> None:
        try:
            self._h2.reset_stream(stream_id, code)
        except ProtocolError:
            return
        self._soon()

    # Frames.

    def _soon(self) -> None:
        if self._turn is None:
            self._turn = self._loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._turn = None
        if self._is_closed:
            return
        left = WRITE_BYTES
        progress = True
        while progress and left > 0 and not self._wire.is_paused:
            progress = False
            for stream_id, outbound in list(self._outbound.items()):
                sent = self._frame(stream_id, outbound)
                progress |= sent > 0
                left -= sent
            if left <= 0:
                self._flush()
                left = WRITE_BYTES
        self._flush()

    def _frame(self, stream_id: int, outbound: _Outbound) -> int:
        """Make one DATA frame of a stream, if it has something to say and the window is open.

        Returns:
            Its size with its header of 9 bytes; 0 where there was none.
        """
        if outbound.is_done or not (outbound.data or outbound.is_ended):
            return 0
        try:
            window = self._h2.local_flow_control_window(stream_id)
            size = min(len(outbound.data), window, self._h2.max_outbound_frame_size)
            is_last = outbound.is_ended and size == len(outbound.data)
            if size <= 0 and not is_last:
                return 0
            self._h2.send_data(stream_id, bytes(outbound.data[:size]), end_stream=is_last)
        except ProtocolError:
            outbound.close()
            return 0
        del outbound.data[:size]
        outbound.is_done = is_last
        outbound.moved()
        return size + 9

    def _flush(self) -> None:
        data = self._h2.data_to_send()
        if data:
            self._wire.write(data)


class _Outlet:
    """Implements `streaming.Outlet` for one stream."""

    __slots__ = ("_server", "_stream_id")

    def __init__(self, server: Http2, stream_id: int) -> None:
        self._server = server
        self._stream_id = stream_id

    def write(self, piece: bytes) -> bool:
        return self._server._write(self._stream_id, piece)

    def when_stalled(self, call: Callable[[], None]) -> None:
        self._server._when_stalled[self._stream_id] = call

    async def finish(self, piece: bytes) -> None:
        await self._server._finish(self._stream_id, piece)


_HANDLERS: Final[dict[type, Callable[[Http2, Any], Any]]] = {
    h2.events.RequestReceived: Http2._on_request,
    h2.events.DataReceived: Http2._on_data,
    h2.events.StreamEnded: Http2._on_end,
    h2.events.TrailersReceived: Http2._on_trailers,
    h2.events.StreamReset: Http2._on_reset,
    h2.events.WindowUpdated: Http2._on_window,
    h2.events.RemoteSettingsChanged: Http2._on_window,
    h2.events.PingReceived: Http2._on_chore,
    h2.events.PriorityUpdated: Http2._on_chore,
    h2.events.ConnectionTerminated: Http2._on_goaway,
}


def _connection(config: Config) -> h2.connection.H2Connection:
    # Names are in lower case as the exchange makes them, and stock's refusals are seen to in
    # `_headers`; checking each answer's again costs a third of sending it.
    made = h2.connection.H2Connection(
        h2.config.H2Configuration(
            client_side=False,
            header_encoding=None,
            validate_inbound_headers=False,
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
        )
    )
    code = h2.settings.SettingCodes
    made.local_settings = h2.settings.Settings(
        client=False,
        initial_values={
            code.MAX_CONCURRENT_STREAMS: config.h2_max_concurrent_streams,
            code.MAX_HEADER_LIST_SIZE: config.h2_max_header_list_size,
            code.ENABLE_CONNECT_PROTOCOL: 1,
        },
    )
    # Announcing a bound does not hold anybody to it: the decoder does, and `_on_request`.
    made.decoder = _Decoder()
    made.decoder.max_header_list_size = HEAD_BYTES_MAX
    return made


class _Block(HeaderTuple):
    """A whole header list in the place of a header."""

    fields: list[tuple[bytes, bytes]]


class _Decoder(Decoder):
    """Shows h2 no headers.

    h2 answers a malformed request with the end of the connection, and told not to validate it still
    does so for a Content-Length that is none, or not kept, and for a `:status`.
    """

    def decode(self, data: bytes, raw: bool = False) -> Iterable[HeaderTuple]:
        del raw
        block = _Block(b"", b"")
        block.fields = list(super().decode(data, raw=True))
        return [block]


def _fields(event: Any) -> list[tuple[bytes, bytes]]:
    (block,) = event.headers
    assert isinstance(block, _Block)
    return block.fields


def _escaped(found: re.Match[bytes]) -> bytes:
    return b"%%%02X" % ord(found[0])
