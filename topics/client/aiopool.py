"""Connections of an `AsyncClient`: HTTP/1.1 over asyncio's transports, kept between requests.

Owns at most `CONNECTIONS_MAX` connections.  Each carries one exchange at a time.  Invariant: a
connection is used again only where its last answer was read to the end.  A request that timed out
or was cancelled closes its connection, so that no request can read the answer of another.
"""

import asyncio
import ipaddress
import select
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, cast

from topics.client.answer import AnswerHead, GatheredAnswer
from topics.client.call import Call
from topics.client.faults import Broken, Fault, NotConnected, NotConnectedInTime, OutOfTime
from topics.client.http1 import ResponseParser, check_size
from topics.client.pool import CLOSED, CONNECTIONS_MAX, IDLE_S, os_error_text, tls_context
from topics.client.steady import steady_s
from topics.client.target import PreparedRequest, Target

if TYPE_CHECKING:
    import ssl

BUFFERED_BYTES_MAX: Final = 256 << 10
"""What is buffered of a stream whose reader is slower than its server; above it, nothing is read
from the connection until the reader has taken it."""
EYEBALLS_S: Final = 0.25
"""The pause before the next address of a host is tried in parallel (RFC 8305 §8)."""

LATE_S: Final = 1.0
"""A timer that rings later than that shows that this process did not run; and how much longer it waits
then."""


class Connection(asyncio.Protocol):
    """One connection, and the answers read from it."""

    def __init__(self) -> None:
        self.parser = ResponseParser()
        self.idle_since_s = 0.0
        self._loop = asyncio.get_running_loop()
        self._fault: Fault | None = None
        self._arrival: asyncio.Future[None] | None = None
        """Done when bytes or the end arrive; None while no request waits for them."""
        self._read_timeout_s = self._due_s = 0.0
        self._timer: asyncio.TimerHandle
        self._unsent_bytes = 0
        self._is_paused = False

    # ------------------------------------------------------------------ asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport has the methods, but not the base class.
        self._transport = cast(asyncio.Transport, transport)
        self._poll = select.poll()
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        try:
            self.parser.feed(data)
        except Fault as error:
            self._break(error)
            return
        if self.parser.buffered_bytes > BUFFERED_BYTES_MAX and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        try:
            self.parser.end()
        except Fault as error:
            self._break(error)
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        if error is None:
            self.eof_received()
        else:
            what = os_error_text(error) if isinstance(error, OSError) else str(error)
            self._break(Broken(what or type(error).__name__))

    # ------------------------------------------------------------------ one exchange

    @property
    def is_fresh(self) -> bool:
        """Whether a request may be sent: the server has neither closed the connection nor sent
        anything."""
        if not self.parser.is_reusable or steady_s() - self.idle_since_s > IDLE_S:
            return False
        # What the kernel knows, the loop may not have read yet.
        return not self._poll.poll(0)

    async def ask(self, request: bytes, read_timeout_s: float) -> None:
        """Send a request, and read the head of its answer.

        Raises:
            Fault: The connection broke, or nothing came in time.
        """
        self.parser.expect()
        self._read_timeout_s = read_timeout_s
        self._transport.write(request)
        while not self.parser.has_head:
            await self._more()

    async def body(self) -> bytes:
        """The whole body of an answer."""
        parser = self.parser
        pieces = parser.take()
        size_bytes = sum(map(len, pieces))
        while not parser.is_complete:
            await self._more()
            some = parser.take()
            size_bytes += sum(map(len, some))
            pieces += some
            check_size(size_bytes)
        return b"".join(pieces)

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body of an answer, as it comes."""
        parser = self.parser
        while True:
            for piece in parser.take():
                yield piece
            if parser.is_complete and not parser.buffered_bytes:
                return
            if not parser.buffered_bytes:
                await self._more()

    async def _more(self) -> None:
        """Wait for at least a byte, or the end."""
        if self._fault is not None:
            raise self._fault
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
        self._arrival = self._loop.create_future()
        self._unsent_bytes = self._transport.get_write_buffer_size()
        self._wait(self._read_timeout_s)
        try:
            await self._arrival
        finally:
            self._timer.cancel()
            self._arrival = None
        if self._fault is not None:
            raise self._fault

    def _wait(self, seconds: float) -> None:
        self._due_s = self._loop.time() + seconds
        self._timer = self._loop.call_later(seconds, self._timed_out)

    def _timed_out(self) -> None:
        if self._loop.time() - self._due_s > LATE_S:
            # This process was stopped: what came meanwhile is read first.
            self._wait(LATE_S)
            return
        unsent_bytes = self._transport.get_write_buffer_size()
        if unsent_bytes < self._unsent_bytes:
            # The server still reads the request: a large body over a slow link takes its time.
            self._unsent_bytes = unsent_bytes
            self._wait(self._read_timeout_s)
        elif unsent_bytes:
            self._break(OutOfTime("the server takes nothing more of the request"))
        else:
            self._break(OutOfTime("no answer in time"))

    def _break(self, error: Fault) -> None:
        self.parser.is_reusable = False
        if self._fault is None and not self.parser.is_complete:
            self._fault = error
        self._wake()

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    # ------------------------------------------------------------------ its end

    @property
    def is_reusable(self) -> bool:
        """Whether the connection may carry another request; all of the last one must have been
        sent."""
        is_sent = not self._transport.get_write_buffer_size()
        return self.parser.is_reusable and is_sent and not self._is_paused

    def close(self) -> None:
        self._transport.abort()


class StreamingAnswer(AnswerHead):
    """An answer whose body is read as it comes, once.

    Attributes:
        content: The body, after `aread`.
    """

    def __init__(self, connection: Connection, target: Target) -> None:
        super().__init__(connection.parser.status, connection.parser.headers)
        self.content = b""
        self._connection, self._target = connection, target

    async def aread(self) -> bytes:
        """The rest of the body."""
        self.content = b"".join([piece async for piece in self.aiter_bytes()])
        return self.content

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
        """The pieces of the body, unpacked.

        Raises:
            Fault: The connection broke, or nothing came in time.
        """
        unpacker = self.unpacker()
        try:
            async for piece in self._connection.pieces():
                yield piece if unpacker is None else unpacker.unpack(piece)
        except Fault as fault:
            fault.origin = self._target.origin
            raise


class AsyncPool:
    """Carries the calls of an `AsyncClient`.

    Connections belong to the event loop that they were made in; in another loop, new ones are made.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self.is_closed = False
        self._tls: ssl.SSLContext | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._slots = asyncio.Semaphore(CONNECTIONS_MAX)
        self._idle: deque[Connection] = deque()
        """In the order of their last use, the latest at the end."""
        self._used: set[Connection] = set()

    async def aclose(self) -> None:
        """Close all connections; exchanges under way fail."""
        self.is_closed = True
        connections = [*self._idle, *self._used]
        self._idle.clear()
        if self._loop is not asyncio.get_running_loop():
            return
        for connection in connections:
            connection.close()
        if connections:
            # The transport closes its socket in the next turn of the loop, which may be the last.
            await asyncio.sleep(0)

    # `request` and `stream` repeat these lines: an asynchronous context manager for them would add
    # to the cost of every request.

    async def request(self, call: Call[Any], prepared: PreparedRequest) -> GatheredAnswer:
        """One exchange.

        Raises:
            Fault: The answer did not come, or not to its end.
        """
        connection = None
        try:
            request = self._target.encode(call, prepared)
            connection = await self._take()
            await connection.ask(request, prepared.read_timeout_s)
            body = await connection.body()
            parser = connection.parser
            return GatheredAnswer(parser.status, parser.headers, body)
        except Fault as fault:
            fault.origin = self._target.origin
            raise
        finally:
            if connection is not None:
                self._put(connection)

    @asynccontextmanager
    async def stream(
        self, call: Call[Any], prepared: PreparedRequest
    ) -> AsyncIterator[StreamingAnswer]:
        """An exchange whose answer is read as it comes; leaving the context closes its
        connection."""
        connection = None
        try:
            request = self._target.encode(call, prepared)
            connection = await self._take()
            await connection.ask(request, prepared.read_timeout_s)
            yield StreamingAnswer(connection, self._target)
        except Fault as fault:
            fault.origin = self._target.origin
            raise
        finally:
            if connection is not None:
                self._put(connection)

    async def _take(self) -> Connection:
        """A connection to send a request on.  The server may still close it in the same moment."""
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
        """Forget the connections of a loop that has ended: they cannot be closed there any more."""
        self._loop = loop
        self._slots = asyncio.Semaphore(CONNECTIONS_MAX)
        self._idle.clear()
        self._used.clear()

    async def _wait(self, slots: asyncio.Semaphore) -> None:
        try:
            async with asyncio.timeout(self._target.timeout_s):
                await slots.acquire()
        except TimeoutError:
            raise NotConnectedInTime(f"all {CONNECTIONS_MAX} connections are in use") from None

    def _fresh(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_fresh:
                return connection
            connection.close()
        return None

    def _put(self, connection: Connection) -> None:
        """Keep a connection that may carry another request, and close any other."""
        if connection not in self._used:
            # It belongs to a loop that has ended.
            return
        self._used.discard(connection)
        now_s = connection.idle_since_s = steady_s()
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
            raise NotConnectedInTime("no connection in time") from None
        except OSError as error:
            raise NotConnected(os_error_text(error)) from error
        return connection


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
