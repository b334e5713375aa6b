"""Connections of an `AsyncClient`: HTTP/1.1 over asyncio's transports, kept between requests.

Owns at most `CONNECTIONS_MAX` of them.  Each carries one exchange at a time, and is kept only where
that exchange came to its end: a request that timed out or was cancelled takes its connection with it,
so that nobody reads another's answer.
"""

import asyncio
import ipaddress
import select
import ssl
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any, Final, cast

import httpx

from topics.client.calls import Call
from topics.client.http1 import Reading, check_size
from topics.client.pool import CLOSED, CONNECTIONS_MAX, IDLE_S, tls_context, told
from topics.client.wire import Sending, Target

BUFFERED_BYTES_MAX: Final = 256 << 10
"""Of a stream whose reader is slower than its server; the connection is not read on meanwhile."""
EYEBALLS_S: Final = 0.25
"""Before the next of a host's addresses is tried beside the first (RFC 8305 §8)."""


class Connection(asyncio.Protocol):
    """One connection, and what is read from it."""

    def __init__(self) -> None:
        self.reading = Reading()
        self.idle_since_s = 0.0
        self._loop = asyncio.get_running_loop()
        self._fault: httpx.RequestError | None = None
        self._sign: asyncio.Future[None] | None = None
        """Of life; where somebody waits for it."""
        self._silence_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._unsent_bytes = 0
        self._is_paused = False

    # ------------------------------------------------------------------ asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's is one by its methods only.
        self._transport = cast(asyncio.Transport, transport)
        self._poll = select.poll()
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        try:
            self.reading.feed(data)
        except httpx.RequestError as error:
            self._break(error)
            return
        if self.reading.buffered_bytes > BUFFERED_BYTES_MAX and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        try:
            self.reading.end()
        except httpx.RequestError as error:
            self._break(error)
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        if error is None:
            self.eof_received()
        else:
            what = told(error) if isinstance(error, OSError) else str(error)
            self._break(httpx.ReadError(what))

    # ------------------------------------------------------------------ one exchange

    @property
    def is_fresh(self) -> bool:
        """Whether a request may be sent: the server has neither closed it nor said anything."""
        if not self.reading.is_reusable or monotonic() - self.idle_since_s > IDLE_S:
            return False
        # The loop may not have got to what the kernel knows.
        return not self._poll.poll(0)

    async def ask(self, request: bytes, silence_s: float) -> None:
        """Send a request, and read the head of its answer.

        Raises:
            httpx.TransportError: The connection broke, or was silent for too long.
        """
        self.reading.expect()
        self._silence_s = silence_s
        self._transport.write(request)
        while not self.reading.has_head:
            await self._more()

    async def body(self) -> bytes:
        """The rest of an answer, whole."""
        reading = self.reading
        pieces = reading.take()
        size_bytes = sum(map(len, pieces))
        while not reading.is_complete:
            await self._more()
            some = reading.take()
            size_bytes += sum(map(len, some))
            pieces += some
            check_size(size_bytes)
        return b"".join(pieces)

    async def pieces(self) -> AsyncIterator[bytes]:
        """The rest of an answer, as it comes."""
        reading = self.reading
        while True:
            for piece in reading.take():
                yield piece
            if reading.is_complete and not reading.buffered_bytes:
                return
            if not reading.buffered_bytes:
                await self._more()

    async def _more(self) -> None:
        """Wait for a sign of life: at least a byte, or the end."""
        if self._fault is not None:
            raise self._fault
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
        self._sign = self._loop.create_future()
        self._unsent_bytes = self._transport.get_write_buffer_size()
        self._timer = self._loop.call_later(self._silence_s, self._silent)
        try:
            await self._sign
        finally:
            self._timer.cancel()
            self._sign = None
        if self._fault is not None:
            raise self._fault

    def _silent(self) -> None:
        unsent_bytes = self._transport.get_write_buffer_size()
        if unsent_bytes < self._unsent_bytes:
            # It still takes what is sent; a large body over a slow link is no silence.
            self._unsent_bytes = unsent_bytes
            self._timer = self._loop.call_later(self._silence_s, self._silent)
        elif unsent_bytes:
            self._break(httpx.WriteTimeout("the server takes nothing more of the request"))
        else:
            self._break(httpx.ReadTimeout("no answer in time"))

    def _break(self, error: httpx.RequestError) -> None:
        self.reading.is_reusable = False
        if self._fault is None and not self.reading.is_complete:
            self._fault = error
        self._wake()

    def _wake(self) -> None:
        if self._sign is not None and not self._sign.done():
            self._sign.set_result(None)

    # ------------------------------------------------------------------ its end

    @property
    def is_reusable(self) -> bool:
        """Whether another request may follow: also, all of the last one was taken."""
        is_sent = not self._transport.get_write_buffer_size()
        return self.reading.is_reusable and is_sent and not self._is_paused

    def close(self) -> None:
        self._transport.abort()


class _Body(httpx.AsyncByteStream):
    """The body of a stream, as it comes."""

    def __init__(self, connection: Connection, target: Target, call: Call[Any]) -> None:
        self._connection, self._target, self._call = connection, target, call

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._connection.pieces():
                yield piece
        except httpx.RequestError as error:
            self._target.blame(error, self._call)
            raise


class AsyncPool:
    """Carries the calls of an `AsyncClient`.

    Connections belong to the event loop that they were made in: in another one, new ones are made.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self.is_closed = False
        self._tls: ssl.SSLContext | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._slots = asyncio.Semaphore(CONNECTIONS_MAX)
        self._idle: deque[Connection] = deque()
        """The one that was used last is the last."""
        self._used: set[Connection] = set()

    async def aclose(self) -> None:
        """Let all connections go; those under way break."""
        self.is_closed = True
        connections = [*self._idle, *self._used]
        self._idle.clear()
        if self._loop is not asyncio.get_running_loop():
            return
        for connection in connections:
            connection.close()
        if connections:
            # So that the loop may end next: it closes a socket one turn later.
            await asyncio.sleep(0)

    async def request(self, call: Call[Any], sending: Sending) -> httpx.Response:
        """One exchange.

        Raises:
            httpx.RequestError: It did not come to its end.
        """
        connection = None
        try:
            request = self._target.bytes_of(call, sending.headers, sending.body)
            connection = await self._take()
            await connection.ask(request, sending.silence_s)
            body = await connection.body()
            reading = connection.reading
            return httpx.Response(reading.status, headers=reading.headers, content=body)
        except httpx.RequestError as error:
            self._target.blame(error, call)
            raise
        finally:
            if connection is not None:
                self._put(connection)

    @asynccontextmanager
    async def stream(self, call: Call[Any], sending: Sending) -> AsyncIterator[httpx.Response]:
        """An exchange whose answer is read as it comes; leaving the context ends it."""
        connection = None
        try:
            request = self._target.bytes_of(call, sending.headers, sending.body)
            connection = await self._take()
            await connection.ask(request, sending.silence_s)
            yield httpx.Response(
                connection.reading.status,
                headers=connection.reading.headers,
                stream=_Body(connection, self._target, call),
            )
        except httpx.RequestError as error:
            self._target.blame(error, call)
            raise
        finally:
            if connection is not None:
                self._put(connection)

    async def _take(self) -> Connection:
        """A connection to send a request on; the server may close it all the same."""
        if self.is_closed:
            raise RuntimeError(CLOSED)
        if self._loop is not (loop := asyncio.get_running_loop()):
            self._begin(loop)
        slots = self._slots
        if slots.locked():
            await self._wait(slots)
        else:
            await slots.acquire()
        try:
            connection = self._fresh()
            if connection is None:
                connection = await self._connect(loop)
        except BaseException:
            slots.release()
            raise
        self._used.add(connection)
        return connection

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Connections of a loop that has ended can only be forgotten."""
        self._loop = loop
        self._slots = asyncio.Semaphore(CONNECTIONS_MAX)
        self._idle.clear()
        self._used.clear()

    async def _wait(self, slots: asyncio.Semaphore) -> None:
        try:
            async with asyncio.timeout(self._target.timeout_s):
                await slots.acquire()
        except TimeoutError:
            raise httpx.PoolTimeout(f"all {CONNECTIONS_MAX} connections are in use") from None

    def _fresh(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_fresh:
                return connection
            connection.close()
        return None

    def _put(self, connection: Connection) -> None:
        """Keep a connection that another request may follow on, and let any other go."""
        if connection not in self._used:
            # Of a loop that has ended.
            return
        self._used.discard(connection)
        now_s = connection.idle_since_s = monotonic()
        if connection.is_reusable and not self.is_closed:
            self._idle.append(connection)
        else:
            connection.close()
        while self._idle and now_s - self._idle[0].idle_since_s > IDLE_S:
            self._idle.popleft().close()
        self._slots.release()

    async def _connect(self, loop: asyncio.AbstractEventLoop) -> Connection:
        target = self._target
        options: dict[str, Any] = {}
        if target.is_tls:
            if self._tls is None:
                self._tls = await loop.run_in_executor(None, tls_context)
            options |= {"ssl": self._tls, "server_hostname": target.host}
        if isinstance(loop, asyncio.BaseEventLoop) and not _is_address(target.host):
            options["happy_eyeballs_delay"] = EYEBALLS_S
        try:
            async with asyncio.timeout(target.timeout_s):
                _, connection = await loop.create_connection(
                    Connection, target.host, target.port, **options
                )
        except TimeoutError:
            raise httpx.ConnectTimeout("no connection in time") from None
        except OSError as error:
            raise httpx.ConnectError(told(error)) from error
        return connection


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
