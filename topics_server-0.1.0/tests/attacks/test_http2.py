"""HTTP/2 from clients that mean harm (RFC 9113, 10.5; §11)."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from socket import socket

import pytest
from contract.server import DEADLINE_S, Server

from bench.frames import PREFACE, frame, head, literal, setting

from .attacker import asked, connected, hits, rest, send

HELLO = PREFACE + frame(4, 0, 0)
HEALTH = head(b"GET", b"/v0/health")
DIFF = head(b"POST", b"/v0/topics/page/diff", (b"content-type", b"application/json"))
POST = head(b"POST", b"/v0/topics/t", (b"content-type", b"application/json"))
PAGE = b'{"from_seq":0,"limit":1000,"max_batch_bytes":8388608}'
GOAWAY, RST_STREAM = 7, 3
CALM = struct.pack(">I", 11)
ONE = struct.pack(">I", 1)


def frames(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Type, stream and payload of each whole frame."""
    at = 0
    while at + 9 <= len(data):
        size = int.from_bytes(data[at : at + 3], "big")
        yield (
            data[at + 3],
            int.from_bytes(data[at + 5 : at + 9], "big"),
            data[at + 9 : at + 9 + size],
        )
        at += 9 + size


@contextmanager
def greeted(server: Server, hello: bytes = HELLO) -> Iterator[socket]:
    with connected(server) as connection:
        connection.sendall(hello)
        yield connection


def resets() -> Iterator[bytes]:
    for i in range(1, 20_000, 2):
        yield frame(1, 5, i, HEALTH) + frame(3, 0, i, struct.pack(">I", 8))


def malformed() -> Iterator[bytes]:
    for i in range(1, 100_000, 2):
        yield frame(1, 5, i, HEALTH + literal(b"connection", b"close"))


def same(piece: bytes, first: bytes = b"") -> Iterator[bytes]:
    yield first
    for _ in range(2000):
        yield piece * 100


ENDLESS = {
    "CONTINUATION": lambda: same(frame(9, 0, 1, literal(b"x", b"y")), frame(1, 1, 1, HEALTH)),
    "empty CONTINUATION": lambda: same(frame(9, 0, 1), frame(1, 1, 1, HEALTH)),
    "PING": lambda: same(frame(6, 0, 0, b"12345678")),
    "SETTINGS": lambda: same(frame(4, 0, 0, setting(4, 65_535))),
    "SETTINGS without an entry": lambda: same(frame(4, 0, 0)),
    "SETTINGS ACK": lambda: same(frame(4, 1, 0)),
    "PING ACK": lambda: same(frame(6, 1, 0, b"12345678")),
    "PRIORITY": lambda: same(frame(2, 0, 101, struct.pack(">IB", 0, 15))),
    "unknown frames": lambda: same(frame(0xBE, 0, 0, b"x")),
    "WINDOW_UPDATE": lambda: same(frame(8, 0, 0, ONE)),
    "WINDOW_UPDATE of a stream": lambda: same(frame(8, 0, 1, ONE), frame(1, 4, 1, POST)),
    "WINDOW_UPDATE, closed": lambda: same(frame(8, 0, 1, ONE), frame(1, 5, 1, HEALTH)),
    "RST_STREAM, closed": lambda: same(frame(3, 0, 1, ONE), frame(1, 5, 1, HEALTH)),
    "DATA, closed": lambda: same(frame(0, 0, 1, b"x"), frame(1, 5, 1, HEALTH)),
    "empty DATA": lambda: same(frame(0, 0, 1), frame(1, 4, 1, POST)),
    "padding": lambda: same(frame(0, 8, 1, b"\x05" + bytes(5)), frame(1, 4, 1, POST)),
    "1-byte DATA": lambda: same(frame(0, 0, 1, b" "), frame(1, 4, 1, POST)),
    "malformed heads": malformed,
}


ANSWERED = "malformed heads"
"""Each is answered with 400, as any request is answered: it has the connection's share of the CPU."""


@pytest.mark.parametrize("flood", ENDLESS)
def test_a_flood_has_an_end_or_rests(server: Server, flood: str) -> None:
    """Frames that ask for nothing are counted.  While a connection sends them it has to rest, and goes
    on no longer than its client waits; others are answered."""
    with greeted(server) as connection:
        connection.setblocking(False)
        pieces, sent = ENDLESS[flood](), 0
        for _ in range(200):
            try:
                for piece in pieces:
                    sent += connection.send(piece)
            except BlockingIOError:
                assert asked(server)[0] == 200
            except OSError:
                break
        assert asked(server)[0] == 200


@pytest.mark.parametrize("flood", [*(each for each in ENDLESS if each != ANSWERED), "rapid reset"])
def test_a_flood_that_is_read_ends_with_goaway(server: Server, flood: str) -> None:
    """A client that reads what it is sent is told why its connection ends: ENHANCE_YOUR_CALM, once,
    within 200 frames that ask for nothing, or eight times as many with a byte in each."""
    received = b""
    with greeted(server) as connection:
        for piece in ENDLESS[flood]() if flood in ENDLESS else resets():
            if not send(connection, piece):
                break
            received += arrived(connection)
            if GOAWAY in [kind for kind, _, _ in frames(received)]:
                break
        received += rest(connection)

    assert [text[4:8] for kind, _, text in frames(received) if kind == GOAWAY] == [CALM]


def arrived(connection: socket) -> bytes:
    """What has come by now."""
    connection.setblocking(False)
    try:
        return connection.recv(1 << 20)
    except OSError:  # nothing has, or the connection is gone
        return b""
    finally:
        connection.settimeout(DEADLINE_S)


def test_a_rapid_reset_costs_no_more_than_its_requests(server: Server) -> None:
    """CVE-2023-44487: ten thousand streams that are reset behind their heads leave nothing, and where
    the connection is ended, it is told so."""
    before = hits(server, "http2_flood")
    with greeted(server) as connection:
        is_let_in = all(send(connection, piece) for piece in resets())
        assert asked(server)[0] == 200
    assert is_let_in or hits(server, "http2_flood") > before


def test_a_refusal_is_told_by_goaway(server: Server) -> None:
    with greeted(server) as connection:
        send(connection, frame(6, 0, 0, b"short"))
        found = [kind for kind, _, _ in frames(rest(connection))]
    assert found[-1] == GOAWAY


@pytest.mark.parametrize("window", [0, 1])
def test_windows_that_let_nothing_out(server: Server, window: int) -> None:
    """A hundred streams with a window of nothing, or of a byte, each with a page of 8 MiB: what waits
    is bounded for all clients, others are answered, and all is gone with the connections."""
    hello = PREFACE + frame(4, 0, 0, setting(4, window))
    asks = b"".join(frame(1, 4, 2 * i + 1, DIFF) + frame(0, 1, 2 * i + 1, PAGE) for i in range(100))
    held = [greeted(server, hello + asks) for _ in range(4)]
    for each in held:
        each.__enter__()
    assert asked(server)[0] == 200
    for each in held:
        each.__exit__(None, None, None)


def test_a_hundred_streams_and_no_more(server: Server) -> None:
    """The one beyond is refused with a reset of its own (RFC 9113, 5.1.2)."""
    with greeted(server) as connection:
        for i in range(101):
            connection.sendall(frame(1, 4, 2 * i + 1, POST))
        received = b""
        while (RST_STREAM, 201, struct.pack(">I", 7)) not in frames(received):
            received += connection.recv(1 << 16)
