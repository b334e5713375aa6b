"""Connections of a `Client`: HTTP/1.1 over blocking sockets, kept between requests.

Owns at most `CONNECTIONS_MAX` sockets.  Each carries one exchange at a time, for one thread, and is
kept only where that exchange came to its end: a request that timed out, was interrupted or met a
server that speaks no HTTP takes its connection with it, so that nobody reads another's answer.
"""

import os
import select
import socket
import ssl
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any, Final

import httpx

from topics.client.calls import Call
from topics.client.http1 import Reading, check_size
from topics.client.wire import Sending, Target

CONNECTIONS_MAX: Final = 100
"""Of one client, streams included; who needs one more waits."""
IDLE_S: Final = 5.0
"""How long a connection is kept that nobody uses; a server keeps it three times as long."""
RECV_BYTES: Final = 64 << 10
CLOSED: Final = "Cannot send a request, as the client has been closed."

_POOLS: Final = weakref.WeakSet["Pool"]()


class Connection:
    """One socket, and what is read from it."""

    def __init__(self, sock: socket.socket) -> None:
        self.reading = Reading()
        self.idle_since_s = 0.0
        self._is_sent = True
        self._sock = sock
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)

    def get_extra_info(self, name: str) -> Any:
        """As of a network stream of httpx, which tells its "socket"."""
        return self._sock if name == "socket" else None

    @property
    def is_fresh(self) -> bool:
        """Whether a request may be sent: the server has neither closed it nor said anything."""
        is_idle_too_long = monotonic() - self.idle_since_s > IDLE_S
        return not is_idle_too_long and not self._poll.poll(0)

    def ask(self, request: bytes, *, write_s: float, silence_s: float) -> None:
        """Send a request, and read the head of its answer.

        Raises:
            httpx.TransportError: The connection broke, or took too long.
        """
        self.reading.expect()
        # A server that refuses a body may answer before it has all of it, and hang up.
        with suppress(httpx.WriteError):
            self._send(request, write_s)
        self._sock.settimeout(silence_s)
        while not self.reading.has_head:
            self.more()

    def _send(self, request: bytes, write_s: float) -> None:
        self._is_sent = False
        self._sock.settimeout(write_s)
        unsent = memoryview(request)
        try:
            while unsent:
                unsent = unsent[self._sock.send(unsent) :]
        except TimeoutError:
            raise httpx.WriteTimeout("the server takes nothing more of the request") from None
        except OSError as error:
            raise httpx.WriteError(told(error)) from error
        self._is_sent = True

    def more(self) -> None:
        """Read on: at least a byte, or the end."""
        try:
            data = self._sock.recv(RECV_BYTES)
        except TimeoutError:
            raise httpx.ReadTimeout("no answer in time") from None
        except OSError as error:
            raise httpx.ReadError(told(error)) from error
        if data:
            self.reading.feed(data)
        else:
            self.reading.end()

    def body(self) -> bytes:
        """The rest of an answer, whole."""
        while not self.reading.is_complete:
            self.more()
            check_size(self.reading.buffered_bytes)
        return b"".join(self.reading.take())

    @property
    def is_reusable(self) -> bool:
        """Whether another request may follow on it."""
        return self.reading.is_reusable and self._is_sent

    def close(self) -> None:
        self._sock.close()


class _Body(httpx.SyncByteStream):
    """The body of a stream, as it comes."""

    def __init__(self, connection: Connection, target: Target, call: Call[Any]) -> None:
        self._connection, self._target, self._call = connection, target, call

    def __iter__(self) -> Iterator[bytes]:
        reading = self._connection.reading
        try:
            while True:
                yield from reading.take()
                if reading.is_complete:
                    return
                self._connection.more()
        except httpx.RequestError as error:
            self._target.blame(error, self._call)
            raise


class Pool:
    """Carries the calls of a `Client`.  For any number of threads."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.is_closed = False
        self._tls: ssl.SSLContext | None = None
        self._begin()
        _POOLS.add(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(CONNECTIONS_MAX)
        self._idle: deque[Connection] = deque()
        """The one that was used last is the last."""
        self._used: set[Connection] = set()

    def forked(self) -> None:
        """This process is a child now: the connections are its parent's, and are let go unsaid."""
        lost = [*self._idle, *self._used]
        self._begin()
        for connection in lost:
            connection.close()

    def close(self) -> None:
        """Let all connections go; those under way break."""
        with self._lock:
            self.is_closed = True
            connections = [*self._idle, *self._used]
            self._idle.clear()
        for connection in connections:
            connection.close()

    def request(self, call: Call[Any], sending: Sending) -> httpx.Response:
        """One exchange.

        Raises:
            httpx.RequestError: It did not come to its end.
        """
        with self._exchange(call, sending) as connection:
            body = connection.body()
            reading = connection.reading
        return httpx.Response(reading.status, headers=reading.headers, content=body)

    @contextmanager
    def stream(self, call: Call[Any], sending: Sending) -> Iterator[httpx.Response]:
        """An exchange whose answer is read as it comes; leaving the context ends it."""
        with self._exchange(call, sending) as connection:
            yield httpx.Response(
                connection.reading.status,
                headers=connection.reading.headers,
                stream=_Body(connection, self._target, call),
                extensions={"network_stream": connection},
            )

    @contextmanager
    def _exchange(self, call: Call[Any], sending: Sending) -> Iterator[Connection]:
        if self.is_closed:
            raise RuntimeError(CLOSED)
        target = self._target
        try:
            request = target.bytes_of(call, sending.headers, sending.body)
            connection = self._take()
            try:
                connection.ask(request, write_s=target.timeout_s, silence_s=sending.silence_s)
                yield connection
            finally:
                self._put(connection)
        except httpx.RequestError as error:
            target.blame(error, call)
            raise

    def _take(self) -> Connection:
        """A connection to send a request on; the server may close it all the same."""
        if not self._slots.acquire(timeout=self._target.timeout_s):
            raise httpx.PoolTimeout(f"all {CONNECTIONS_MAX} connections are in use")
        try:
            connection = self._fresh() or self._connect()
            with self._lock:
                self._used.add(connection)
        except BaseException:
            self._slots.release()
            raise
        return connection

    def _fresh(self) -> Connection | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if connection.is_fresh:
                return connection
            connection.close()

    def _put(self, connection: Connection) -> None:
        """Keep a connection that another request may follow on, and let any other go."""
        slots = self._slots
        with self._lock:
            if connection not in self._used:
                # Of the process that this one was forked from.
                return
            self._used.discard(connection)
            now_s = connection.idle_since_s = monotonic()
            gone = []
            if connection.is_reusable and not self.is_closed:
                self._idle.append(connection)
            else:
                gone.append(connection)
            while self._idle and now_s - self._idle[0].idle_since_s > IDLE_S:
                gone.append(self._idle.popleft())
        for old in gone:
            old.close()
        slots.release()

    def _connect(self) -> Connection:
        target = self._target
        try:
            sock = socket.create_connection((target.host, target.port), target.timeout_s)
            try:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if target.is_tls:
                    sock = self._tls_context().wrap_socket(sock, server_hostname=target.host)
            except BaseException:
                sock.close()
                raise
        except TimeoutError:
            raise httpx.ConnectTimeout("no connection in time") from None
        except OSError as error:
            raise httpx.ConnectError(told(error)) from error
        return Connection(sock)

    def _tls_context(self) -> ssl.SSLContext:
        with self._lock:
            if self._tls is None:
                self._tls = tls_context()
            return self._tls


def tls_context() -> ssl.SSLContext:
    """The machine's certificates, as httpx finds them."""
    context = httpx.create_ssl_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def told(error: OSError) -> str:
    """What the system says, without the address: the message has the URL already."""
    if error.errno is not None and not isinstance(error, ssl.SSLError | socket.gaierror):
        return os.strerror(error.errno)
    return error.strerror or str(error) or type(error).__name__


def _forked() -> None:
    for pool in list(_POOLS):
        pool.forked()


os.register_at_fork(after_in_child=_forked)
