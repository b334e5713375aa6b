"""Connections of a `Client`: HTTP/1.1 over blocking sockets, kept between requests.

Owns at most `CONNECTIONS_MAX` sockets.  Each carries one exchange at a time, for one thread.
Invariant: a socket is used again only where its last answer was read to the end.  A request that
timed out, was interrupted, or was answered by something that is not HTTP closes its socket, so that
no request can read the answer of another.

It is not generated from `aiopool`: threads wait on sockets, where asyncio calls back, and need
locks; and a process may fork.
"""

import os
import select
import socket
import sys
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from topics.client.answer import AnswerHead, GatheredAnswer
from topics.client.call import Call
from topics.client.faults import (
    Broken,
    Fault,
    NotConnected,
    NotConnectedInTime,
    OutOfTime,
    Unwritten,
)
from topics.client.http1 import ResponseParser, check_size
from topics.client.steady import steady_s
from topics.client.target import PreparedRequest, Target

if TYPE_CHECKING:
    import ssl

CONNECTIONS_MAX: Final = 100
"""Of one client, streams included, as httpx has it; a request that finds all in use waits for
one."""
IDLE_S: Final = 5.0
"""How long an unused connection is kept.  The server closes it after 15 s, so that this client is
the first to let go, and a request rarely meets a connection that is just being closed."""
RECV_BYTES: Final = 64 << 10
CLOSED: Final = "Cannot send a request, as the client has been closed."
"""As httpx words it, so that both kinds of connections say the same."""

_POOLS: Final = weakref.WeakSet["Pool"]()
"""Pools whose connections a forked child must not use."""


class Connection:
    """One socket, and the answers read from it."""

    def __init__(self, sock: socket.socket) -> None:
        self.parser = ResponseParser()
        self.idle_since_s = 0.0
        self._is_sent = True
        self._sock = sock
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)

    def get_extra_info(self, name: str) -> Any:
        """The "socket", as a network stream of httpx gives it."""
        return self._sock if name == "socket" else None

    @property
    def is_fresh(self) -> bool:
        """Whether a request may be sent: the server has neither closed the connection nor sent
        anything."""
        is_idle_too_long = steady_s() - self.idle_since_s > IDLE_S
        return not is_idle_too_long and not self._poll.poll(0)

    def ask(self, request: bytes, *, write_s: float, read_timeout_s: float) -> None:
        """Send a request, and read the head of its answer.

        Raises:
            Fault: The connection broke, or took too long.
        """
        self.parser.expect()
        # A server that refuses a body may answer before it has all of it, and close: the answer is
        # read all the same (RFC 9112 §9.5).
        with suppress(Unwritten):
            self._send(request, write_s)
        self._sock.settimeout(read_timeout_s)
        while not self.parser.has_head:
            self.more()

    def _send(self, request: bytes, write_s: float) -> None:
        self._is_sent = False
        self._sock.settimeout(write_s)
        unsent = memoryview(request)
        try:
            while unsent:
                unsent = unsent[self._sock.send(unsent) :]
        except TimeoutError:
            raise OutOfTime("the server takes nothing more of the request") from None
        except OSError as error:
            raise Unwritten(os_error_text(error)) from error
        self._is_sent = True

    def more(self) -> None:
        """Wait for at least a byte, or the end, and parse it."""
        try:
            data = self._received()
        except TimeoutError:
            raise OutOfTime("no answer in time") from None
        except OSError as error:
            raise Broken(os_error_text(error)) from error
        if data:
            self.parser.feed(data)
        else:
            self.parser.end()

    def _received(self) -> bytes:
        """What comes.  Where this process was stopped while it waited, the time is over as soon as it
        goes on, and what came meanwhile is there all the same."""
        try:
            return self._sock.recv(RECV_BYTES)
        except TimeoutError:
            if not self._poll.poll(0):
                raise
            return self._sock.recv(RECV_BYTES)

    def body(self) -> bytes:
        """The whole body of an answer."""
        while not self.parser.is_complete:
            self.more()
            check_size(self.parser.buffered_bytes)
        return b"".join(self.parser.take())

    @property
    def is_reusable(self) -> bool:
        """Whether the connection may carry another request."""
        return self.parser.is_reusable and self._is_sent

    def close(self) -> None:
        self._sock.close()


class StreamingAnswer(AnswerHead):
    """An answer whose body is read as it comes, once.

    Attributes:
        content: The body, after `read`.
        extensions: As httpx has them: "network_stream" is the connection.
    """

    def __init__(self, connection: Connection, target: Target) -> None:
        super().__init__(connection.parser.status, connection.parser.headers)
        self.content = b""
        self.extensions = {"network_stream": connection}
        self._connection, self._target = connection, target

    def read(self) -> bytes:
        """The rest of the body."""
        self.content = b"".join(self.iter_bytes())
        return self.content

    def iter_bytes(self) -> Iterator[bytes]:
        """The pieces of the body, unpacked.

        Raises:
            Fault: The connection broke, or nothing came in time.
        """
        parser, unpacker = self._connection.parser, self.unpacker()
        try:
            while True:
                for piece in parser.take():
                    yield piece if unpacker is None else unpacker.unpack(piece)
                if parser.is_complete:
                    return
                self._connection.more()
        except Fault as fault:
            fault.origin = self._target.origin
            raise


class Pool:
    """Carries the calls of a `Client`, for any number of threads."""

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
        """In the order of their last use, the latest at the end."""
        self._used: set[Connection] = set()

    def forked(self) -> None:
        """Drop all connections, in a child process: they are its parent's.

        Closing the descriptor sends nothing, as long as the parent has the socket open.
        """
        lost = [*self._idle, *self._used]
        self._begin()
        for connection in lost:
            connection.close()

    def close(self) -> None:
        """Close all connections; exchanges under way fail."""
        with self._lock:
            self.is_closed = True
            connections = [*self._idle, *self._used]
            self._idle.clear()
        for connection in connections:
            connection.close()

    def request(self, call: Call[Any], prepared: PreparedRequest) -> GatheredAnswer:
        """One exchange.

        Raises:
            Fault: The answer did not come, or not to its end.
        """
        with self._exchange(call, prepared) as connection:
            body = connection.body()
            parser = connection.parser
        return GatheredAnswer(parser.status, parser.headers, body)

    @contextmanager
    def stream(self, call: Call[Any], prepared: PreparedRequest) -> Iterator[StreamingAnswer]:
        """An exchange whose answer is read as it comes; leaving the context closes its
        connection."""
        with self._exchange(call, prepared) as connection:
            yield StreamingAnswer(connection, self._target)

    @contextmanager
    def _exchange(self, call: Call[Any], prepared: PreparedRequest) -> Iterator[Connection]:
        if self.is_closed:
            raise RuntimeError(CLOSED)
        target = self._target
        try:
            request = target.encode(call, prepared)
            connection = self._take()
            try:
                connection.ask(
                    request, write_s=target.timeout_s, read_timeout_s=prepared.read_timeout_s
                )
                yield connection
            finally:
                self._put(connection)
        except Fault as fault:
            fault.origin = target.origin
            raise

    def _take(self) -> Connection:
        """A connection to send a request on.  The server may still close it in the same moment."""
        if not self._slots.acquire(timeout=self._target.timeout_s):
            raise NotConnectedInTime(f"all {CONNECTIONS_MAX} connections are in use")
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
        """Keep a connection that may carry another request, and close any other."""
        slots = self._slots
        with self._lock:
            if connection not in self._used:
                # It belongs to the process that this one was forked from.
                return
            self._used.discard(connection)
            now_s = connection.idle_since_s = steady_s()
            dropped = []
            if connection.is_reusable and not self.is_closed:
                self._idle.append(connection)
            else:
                dropped.append(connection)
            while self._idle and now_s - self._idle[0].idle_since_s > IDLE_S:
                dropped.append(self._idle.popleft())
        for old in dropped:
            old.close()
        slots.release()

    def _connect(self) -> Connection:
        target = self._target
        host: Any = target.host.encode("ascii")  # a str would load IDNA, whose tables are large
        try:
            sock = socket.create_connection((host, target.port), target.timeout_s)
            try:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if target.is_tls:
                    sock = self._tls_context().wrap_socket(sock, server_hostname=target.host)
            except BaseException:
                sock.close()
                raise
        except TimeoutError:
            raise NotConnectedInTime("no connection in time") from None
        except OSError as error:
            raise NotConnected(os_error_text(error)) from error
        return Connection(sock)

    def _tls_context(self) -> "ssl.SSLContext":
        with self._lock:
            if self._tls is None:
                self._tls = tls_context()
            return self._tls


def tls_context() -> "ssl.SSLContext":
    """A context with the certificates that httpx would trust: those of `SSL_CERT_FILE` or
    `SSL_CERT_DIR`, else certifi's."""
    import ssl

    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if file:
        context = ssl.create_default_context(cafile=file)
    elif folder:
        context = ssl.create_default_context(capath=folder)
    else:
        import certifi

        context = ssl.create_default_context(cafile=certifi.where())
    context.set_alpn_protocols(["http/1.1"])
    return context


def os_error_text(error: OSError) -> str:
    """The system's text without the address, because the message has the URL already."""
    # An SSLError has a number of its own in `errno`; without the module there is no such error.
    tls = sys.modules.get("ssl")
    is_system = not isinstance(error, socket.gaierror) and not (
        tls is not None and isinstance(error, tls.SSLError)
    )
    if error.errno is not None and is_system:
        return os.strerror(error.errno)
    return error.strerror or str(error) or type(error).__name__


def _forked() -> None:
    for pool in list(_POOLS):
        pool.forked()


os.register_at_fork(after_in_child=_forked)
