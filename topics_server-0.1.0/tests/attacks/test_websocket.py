"""WebSockets from clients that mean harm (RFC 6455; §11)."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from socket import socket

import pytest
from contract.server import Server

from .attacker import UPGRADE, asked, connected, rest, send


def frame(first: int, payload: bytes = b"") -> bytes:
    """A masked frame of up to 125 bytes; the key is zeros."""
    return bytes([first, 0x80 | len(payload)]) + bytes(4) + payload


@contextmanager
def opened(server: Server) -> Iterator[socket]:
    with connected(server) as connection:
        connection.sendall(UPGRADE)
        received = b""
        while b"\r\n\r\n" not in received:
            received += connection.recv(4096)
        assert received.startswith(b"HTTP/1.1 101 ")
        yield connection


FLOODS = {
    "pings": (b"", frame(0x89)),
    "pings of 125 bytes": (b"", frame(0x89, b"x" * 125)),
    "pongs": (b"", frame(0x8A)),
    "empty fragments": (frame(0x01, b"{"), frame(0x00)),
    "empty messages": (b"", frame(0x81)),
    "binary messages": (b"", frame(0x82, b"x")),
    "messages that are no JSON": (b"", frame(0x81, b"x" * 20)),
}


@pytest.mark.parametrize("flood", FLOODS)
def test_frames_that_say_nothing_are_counted(server: Server, flood: str) -> None:
    """A socket that sends them has to rest, and others are answered; who goes on is met by the bound."""
    first, piece = FLOODS[flood]
    with opened(server) as connection:
        connection.sendall(first)
        connection.setblocking(False)
        for _ in range(200):
            try:
                connection.send(piece * 1000)
            except BlockingIOError:
                assert asked(server)[0] == 200
            except OSError:
                break
        assert asked(server)[0] == 200


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (struct.pack(">BBQ4x", 0x81, 0xFF, 1 << 40), 1009),
        (struct.pack(">BBQ4x", 0x81, 0xFF, 1 << 63), 1009),
        (b"\x81\x05hello", 1002),
        (bytes([0x89, 0xFE]) + struct.pack(">H4x", 200) + bytes(200), 1002),
        (frame(0xC1, b"x"), 1002),
        (frame(0x00, b"x"), 1002),
        (frame(0x81, b"\xff"), 1007),
    ],
    ids=["huge", "beyond", "unmasked", "a large ping", "reserved", "no message", "no UTF-8"],
)
def test_a_broken_frame_is_told_by_its_code(server: Server, sent: bytes, code: int) -> None:
    """A frame of a terabyte is refused by its head."""
    with opened(server) as connection:
        send(connection, sent)
        received = rest(connection)
    at = received.rindex(b"\x88")
    assert int.from_bytes(received[at + 2 : at + 4], "big") == code
