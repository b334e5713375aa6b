"""HTTP/1.1 and WebSocket clients that mean harm: what each costs a neighbour that asks for
`/v0/health`.

Run `python -m bench.hostile_http1 [ATTACK ...] [--clients N] [--other CHECKOUT]`.  Each attack runs
for a few seconds from N connections that send a megabyte a second each and come back when they are
cut; a client in good faith asks on a connection of its own every two milliseconds.  Printed are its
p99 without an attack, beside the same attack against a process that throws everything away, and
beside the attack; the ratio of the last to the first, and to the worse of the others; the growth of
the server's peak RSS; and the p99 of what the server computed while the client waited, without and
with the attack: unlike the time, that says the same on a machine with other work.  Every attack gets
a server of its own.
"""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import cycle, repeat
from typing import Final

from bench.hostile_h2 import PAGE_BYTES, TICK_BYTES, TICK_S, fill
from bench.neighbour import Ask, table
from bench.serving import Serving

GET: Final = b"GET /v0/health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
POST: Final = b"POST /v0/topics/t HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
UPGRADE: Final = (
    b"GET /v0/ws HTTP/1.1\r\nhost: 127.0.0.1\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)

Attack = Callable[[], Iterator[bytes]]
"""What one connection sends: pieces, for ever or to an end."""


def frame(first: int, payload: bytes = b"") -> bytes:
    """A masked frame of WebSocket; the key is zeros."""
    return bytes([first, 0x80 | len(payload)]) + bytes(4) + payload


def diff(*, zipped: bool = False) -> bytes:
    body = b'{"from_seq":0,"limit":10000,"max_batch_bytes":%d}' % PAGE_BYTES
    head = b"POST /v0/topics/page/diff HTTP/1.1\r\nhost: 127.0.0.1\r\n"
    head += b"accept-encoding: gzip\r\n" if zipped else b""
    head += b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    return head + body


def again(piece: bytes, first: bytes = b"") -> Attack:
    def attack() -> Iterator[bytes]:
        yield first
        yield from cycle([piece])

    return attack


def one_by_one(piece: bytes) -> Attack:
    """Nothing more before the connection is cut, or the answer is read."""

    def attack() -> Iterator[bytes]:
        yield piece
        yield from repeat(b"")

    return attack


FLOODS: Final[dict[str, tuple[bool, Attack]]] = {
    # Whether it is a WebSocket, and what it sends.
    "pipelined requests": (False, again(GET * 16)),
    "empty lines": (False, again(b"\r\n" * 512)),
    "heads that are not HTTP": (False, again(b"nonsense\r\n\r\n")),
    "header names": (False, again(b"a: b\r\n" * 64, b"GET / HTTP/1.1\r\n")),
    "a long header": (False, again(b"x" * 1024, b"GET / HTTP/1.1\r\nx: ")),
    "1-byte chunks": (
        False,
        again(b"1\r\nx\r\n" * 64, POST + b"transfer-encoding: chunked\r\n\r\n"),
    ),
    "chunk extensions": (
        False,
        again(b"1;" + b"x" * 1000 + b"\r\nx\r\n", POST + b"transfer-encoding: chunked\r\n\r\n"),
    ),
    "blank lines in chunks": (
        False,
        again(b"400\r\n" + b"\r\n" * 512 + b"\r\n", POST + b"transfer-encoding: chunked\r\n\r\n"),
    ),
    "trailers": (
        False,
        again(b"a: b\r\n" * 64, POST + b"transfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n"),
    ),
    "refused bodies": (False, again(b"x" * 1024, POST + b"content-length: 999999999999\r\n\r\n")),
    "broken handshakes": (False, one_by_one(UPGRADE.replace(b"AAAA", b"\xff", 1))),
    "handshakes": (False, one_by_one(UPGRADE + b"x")),
    "gzipped pages": (False, again(diff(zipped=True))),
    "pings": (True, again(frame(0x89) * 64)),
    "pongs": (True, again(frame(0x8A) * 64)),
    "pings of 125 bytes": (True, again(frame(0x89, b"x" * 125) * 8)),
    "empty fragments": (True, again(frame(0x00) * 64, frame(0x01, b"{"))),
    "1-byte fragments": (True, again(frame(0x00, b"x") * 64, frame(0x01, b"{"))),
    "empty messages": (True, again(frame(0x81) * 64)),
    "binary messages": (True, again(frame(0x82, b"x" * 20) * 64)),
    "messages that are not JSON": (True, again(frame(0x81, b"x" * 20) * 64)),
    "ping commands": (True, again(frame(0x81, b'{"op":"ping","request_id":1}') * 64)),
}


class Attacker:
    """One connection, which is opened again when it is cut."""

    def __init__(self, port: int, attack: Attack, *, is_websocket: bool) -> None:
        self._port = port
        self._attack = attack
        self._is_websocket = is_websocket
        self._connection: socket.socket | None = None
        self._pieces: Iterator[bytes] = iter(())
        self._left = b""

    def tick(self) -> None:
        """Send what a hundredth of a second allows, and forget what came."""
        connection = self._connection or self._opened()
        budget = TICK_BYTES
        try:
            while budget > 0:
                while len(self._left) < budget and (piece := next(self._pieces)):
                    self._left += piece
                if not self._left:
                    break
                sent = connection.send(self._left[:budget])
                self._left = self._left[sent:]
                budget -= sent
        except (BlockingIOError, StopIteration):
            pass
        except OSError:
            return self._leave()
        try:
            while connection.recv(1 << 18):
                pass
            self._leave()
        except BlockingIOError:
            pass
        except OSError:
            self._leave()
        return None

    def _opened(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self._port))
        if self._is_websocket:
            connection.sendall(UPGRADE)
            connection.settimeout(10)
            with suppress(OSError):
                connection.recv(4096)
        connection.setblocking(False)
        self._connection = connection
        self._pieces, self._left = self._attack(), b""
        return connection

    def _leave(self) -> None:
        assert self._connection is not None
        self._connection.close()
        self._connection = None


def flood(port: int, name: str, clients: int) -> None:
    is_websocket, attack = FLOODS[name]
    attackers = [Attacker(port, attack, is_websocket=is_websocket) for _ in range(clients)]
    while True:
        begun_s = time.perf_counter()
        for attacker in attackers:
            attacker.tick()
        time.sleep(max(TICK_S - (time.perf_counter() - begun_s), 0.001))


def hold(port: int, name: str, clients: int) -> None:
    """Ask for pages of 8 MiB from 50 connections each, and take none of them."""
    held = []
    for _ in range(50 * clients):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.sendall(diff() * 4)
        held.append(connection)
    time.sleep(3600)


def connections(port: int, name: str, clients: int) -> None:
    """Connect and leave at once, with a reset."""
    while True:
        for _ in range(10 * clients):
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        time.sleep(TICK_S)


OTHERS: Final = {"clients that do not read": hold, "resets after connecting": connections}


@contextmanager
def setup(serving: Serving, name: str) -> Iterator[Ask]:
    """A client in good faith, on one connection that was there before the attack."""
    del name
    fill(serving)
    with serving.connect() as connection:
        connection.settimeout(60)

        def ask() -> bool:
            connection.sendall(GET)
            received = b""
            while not received.rstrip().endswith(b"}"):
                more = connection.recv(65_536)
                if not more:
                    raise RuntimeError("the neighbour was cut")
                received += more
            return False

        yield ask


def attack(port: int, name: str, clients: int) -> None:
    OTHERS.get(name, flood)(port, name, clients)


main = table([*FLOODS, *OTHERS], setup, attack)


if __name__ == "__main__":
    main()
