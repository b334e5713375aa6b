"""A server of bare sockets, that does to each connection what a test says.

A `Peer` accepts connections and plays one after the other of its scenes on them, each a function of
a `Line`; the last scene is played on all that follow.  What went wrong in a scene fails the test.
"""

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

ANSWER = b'{"topic":"jobs","first_seq":%d,"last_seq":%d,"head_seq":%d}'
WAIT_S = 60.0
"""Bounds a hang; nothing that goes well waits so long."""


def answer(first_seq: int, *headers: bytes, last_seq: int | None = None) -> bytes:
    """What an append is answered with, by default of one record."""
    last_seq = last_seq or first_seq
    body = ANSWER % (first_seq, last_seq, last_seq)
    lines = [b"HTTP/1.1 200 OK", b"content-length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


class Line:
    """One connection, as the server has it."""

    def __init__(self, sock: socket.socket, peer: "Peer") -> None:
        self.sock, self.peer = sock, peer
        self._bytes = b""

    def request(self) -> Any:
        """The body of the next request, decoded; None where the client has hung up."""
        while b"\r\n\r\n" not in self._bytes:
            if not self._more():
                return None
        head, _, self._bytes = self._bytes.partition(b"\r\n\r\n")
        self.peer.heads.append(head.decode())
        size = 0
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                size = int(line.partition(b":")[2])
        while len(self._bytes) < size:
            if not self._more():
                return None
        body, self._bytes = self._bytes[:size], self._bytes[size:]
        found = json.loads(body) if body else {}
        self.peer.requests.append(found)
        return found

    def _more(self) -> bytes:
        try:
            data = self.sock.recv(65536)
        except ConnectionError:
            data = b""
        self._bytes += data
        return data

    def say(self, data: bytes) -> None:
        with contextlib.suppress(ConnectionError):
            self.sock.sendall(data)

    def serve(self) -> None:
        """Answer whatever comes, with the number of the request as its seq."""
        while self.request() is not None:
            self.say(answer(len(self.peer.requests)))


Scene = Callable[[Line], None]


class Peer:
    """Listens on the loopback interface as long as its context lasts.

    Attributes:
        connections: How many were accepted.
        requests: Bodies that came, on all of them.
        heads: Their request lines and headers.
    """

    def __init__(self, *scenes: Scene, tls: ssl.SSLContext | None = None) -> None:
        self.connections = 0
        self.requests: list[Any] = []
        self.heads: list[str] = []
        self._scenes = list(scenes) or [Line.serve]
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads: list[threading.Thread] = []
        self._open: list[socket.socket] = []
        self._faults: list[BaseException] = []
        self._is_over = False
        self._changed = threading.Condition()

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over = True
        # Accepting ends with a last connection: closing a listener wakes nobody.
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
            pass
        for sock in list(self._open):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(WAIT_S)
            assert not thread.is_alive()
        self._listener.close()
        if self._faults and error is None:
            raise self._faults[0]

    def wait(self, is_so: Callable[[], bool]) -> None:
        """Until something is so that a connection changes."""
        with self._changed:
            assert self._changed.wait_for(is_so, WAIT_S)

    def tell(self) -> None:
        """Something changed."""
        with self._changed:
            self._changed.notify_all()

    def _start(self, call: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=call, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            sock, _ = self._listener.accept()
            if self._is_over:
                sock.close()
                return
            self._open.append(sock)
            scene = self._scenes[min(self.connections, len(self._scenes) - 1)]
            self.connections += 1
            self._start(self._play, scene, sock)

    def _play(self, scene: Scene, sock: socket.socket) -> None:
        try:
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_side=True)
                self._open.append(sock)
            scene(Line(sock, self))
        except ssl.SSLError:
            # The client hung up; what it made of us is its own to tell.
            pass
        except BaseException as fault:
            self._faults.append(fault)
        finally:
            sock.close()
            self.tell()


class Gate:
    """Opened by one thread, waited for by another."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def open(self) -> None:
        self._event.set()

    def wait(self) -> None:
        assert self._event.wait(WAIT_S)
