"""Frames of HTTP/2 as bytes, for clients that cost little or mean harm."""

import struct
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    size = len(payload).to_bytes(3, "big")
    return size + bytes([kind, flags]) + struct.pack(">I", stream_id) + payload


def setting(name: int, value: int) -> bytes:
    return struct.pack(">HI", name, value)


def literal(name: bytes, value: bytes, first: bytes = b"\0") -> bytes:
    """A field as text; with `first` 0x40 both sides remember it."""
    return first + _length(len(name)) + name + _length(len(value)) + value


def _length(size: int) -> bytes:
    """An integer of HPACK with a prefix of seven bits (RFC 7541, 5.1)."""
    if size < 127:
        return bytes([size])
    size -= 127
    out = b"\x7f"
    while size >= 128:
        out += bytes([size % 128 + 128])
        size //= 128
    return out + bytes([size])


def head(method: bytes, path: bytes, *more: tuple[bytes, bytes]) -> bytes:
    """A header block that needs no table, so that it is the same for every stream."""
    fields = [(b":method", method), (b":scheme", b"http")]
    fields += [(b":authority", b"127.0.0.1"), (b":path", path), *more]
    return b"".join(literal(*each) for each in fields)
