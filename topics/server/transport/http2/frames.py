"""Frames as they come off the wire, before h2 sees them.

Owns the cutting of bytes into whole frames and whole header blocks, and what can be judged by the 9
bytes of a frame's header: its size, its place, its kind.  So a size is checked before any content
is looked at, and each frame can be counted, corrected or dropped before it costs more.  Knows
nothing of streams and what a frame means.

Invariant: at most one header block of `BLOCK_BYTES_MAX`, one frame of `FRAME_BYTES_MAX` and what one
call of `feed` added are in memory.
"""

import struct
from enum import IntEnum
from typing import Final

import msgspec
from h2.errors import ErrorCodes

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADER_BYTES: Final = 9
FRAME_BYTES_MAX: Final = 16 << 10
"""The smallest SETTINGS_MAX_FRAME_SIZE there is, which is announced (RFC 9113, 6.5.2)."""
BLOCK_BYTES_MAX: Final = 40 << 10
"""Of one header block as encoded, with its padding; a larger one is not decoded, and the connection
ends, as the next block could not be read without it."""
CONTINUATIONS_MAX: Final = 8
"""Of one header block.  A block of `BLOCK_BYTES_MAX` in full frames has two."""
ENTRIES_MAX: Final = 32
"""Of one SETTINGS frame, as nghttp2 has it; there are eight settings."""
TABLE_BYTES_MAX: Final = 4 << 10
"""Of the table that our encoder keeps, whatever the client offers."""

END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
PRIORITY: Final = 0x20


class FrameType(IntEnum):
    """The type of a frame (RFC 9113, 6); others are unknown, and ignored."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


# Paths of requests read these: Python 3.11 finds a member of an Enum through its metaclass, slowly.
CONTINUATION: Final = FrameType.CONTINUATION
DATA: Final = FrameType.DATA
HEADERS: Final = FrameType.HEADERS
SETTINGS: Final = FrameType.SETTINGS
WINDOW_UPDATE: Final = FrameType.WINDOW_UPDATE


class Broken(Exception):
    """The connection cannot go on (RFC 9113, 5.4.1); `code` is for the GOAWAY, None where that is
    made already."""

    def __init__(self, code: ErrorCodes | None, why: str) -> None:
        super().__init__(why)
        self.code = code


class Frame(msgspec.Struct, frozen=True):
    """One frame, or a HEADERS frame with its CONTINUATION frames.

    Attributes:
        kind: A `FrameType`, or another number.
        size: Of the payload in bytes; of a header block with several frames, of all payloads.
        raw: The frames as they came.
        frames: How many there are.
    """

    kind: int
    flags: int
    stream_id: int
    size: int
    raw: bytes
    frames: int = 1

    @property
    def ends_stream(self) -> bool:
        return bool(self.flags & END_STREAM)

    def number(self) -> int:
        """The payload's first four bytes without the reserved bit: a window's increment, the stream
        that this one depends on."""
        made: int = struct.unpack_from(">I", self.raw, HEADER_BYTES)[0]
        return made & 0x7FFF_FFFF


class Splitter:
    """Cuts what the client sends into frames."""

    __slots__ = ("_at", "_block", "_block_bytes", "_data", "_is_begun", "_preface")

    def __init__(self) -> None:
        self._preface = PREFACE
        self._data = b""
        self._at = 0
        self._is_begun = False
        self._block: list[Frame] = []
        self._block_bytes = 0

    def feed(self, data: bytes) -> None:
        """Add what came.

        Raises:
            Broken: It does not begin with the preface.
        """
        if self._preface:
            size = min(len(self._preface), len(data))
            if self._preface[:size] != data[:size]:
                raise Broken(ErrorCodes.PROTOCOL_ERROR, "no HTTP/2 preface")
            self._preface, data = self._preface[size:], data[size:]
        rest = self._data[self._at :]
        self._data = rest + data if rest else data
        self._at = 0

    @property
    def is_empty(self) -> bool:
        """Nothing is left of what came."""
        return self._at == len(self._data)

    @property
    def is_within_head(self) -> bool:
        """A header block has begun and not ended, or a frame that is not DATA; or the connection has
        not begun, which it does with the preface and SETTINGS."""
        if self._block or not self._is_begun:
            return True
        left = len(self._data) - self._at
        return left > 0 and (left < 4 or self._data[self._at + 3] != DATA)

    def next(self) -> Frame | None:
        """The next frame, or header block, if it is whole.

        Raises:
            Broken: Too large, or not allowed where it is.
        """
        while (frame := self._cut()) is not None:
            if not self._is_begun:
                if frame.kind != SETTINGS or frame.flags & ACK:
                    raise Broken(ErrorCodes.PROTOCOL_ERROR, "SETTINGS must come first")
                self._is_begun = True
            if self._block:
                whole = self._continue(frame)
                if whole is not None:
                    return whole
            elif frame.kind == CONTINUATION:
                raise Broken(ErrorCodes.PROTOCOL_ERROR, "CONTINUATION of nothing")
            elif frame.kind == HEADERS and not frame.flags & END_HEADERS:
                self._block.append(frame)
                self._block_bytes = frame.size
            else:
                return frame
        return None

    def _cut(self) -> Frame | None:
        data, at = self._data, self._at
        left = len(data) - at
        if left < HEADER_BYTES:
            return None
        size = data[at] << 16 | data[at + 1] << 8 | data[at + 2]
        if size > FRAME_BYTES_MAX:
            raise Broken(ErrorCodes.FRAME_SIZE_ERROR, f"a frame of {size} bytes")
        end = at + HEADER_BYTES + size
        if len(data) < end:
            return None
        stream_id = int.from_bytes(data[at + 5 : at + 9], "big") & 0x7FFF_FFFF
        self._at = end
        return Frame(data[at + 3], data[at + 4], stream_id, size, data[at:end])

    def _continue(self, frame: Frame) -> Frame | None:
        """Add a frame to the header block that has begun; returns the block once it is whole."""
        first = self._block[0]
        if frame.kind != CONTINUATION or frame.stream_id != first.stream_id:
            raise Broken(ErrorCodes.PROTOCOL_ERROR, "a header block is interrupted")
        self._block.append(frame)
        self._block_bytes += frame.size
        if self._block_bytes > BLOCK_BYTES_MAX or len(self._block) > CONTINUATIONS_MAX + 1:
            raise Broken(ErrorCodes.ENHANCE_YOUR_CALM, "a header block without bounds")
        if not frame.flags & END_HEADERS:
            return None
        block, self._block = self._block, []
        raw = b"".join([each.raw for each in block])
        return Frame(first.kind, first.flags, first.stream_id, self._block_bytes, raw, len(block))


def ended(frame: Frame) -> Frame:
    """The frame with END_STREAM."""
    flags = frame.flags | END_STREAM
    raw = b"".join((frame.raw[:4], bytes([flags]), frame.raw[5:]))
    return Frame(frame.kind, flags, frame.stream_id, frame.size, raw, frame.frames)


def without_priority(frame: Frame) -> tuple[Frame, int | None]:
    """A HEADERS frame without the priority that RFC 9113 took back, and the stream that it depended
    on; the frame as it is where it has none, or no room for one."""
    if not frame.flags & PRIORITY:
        return frame, None
    raw = frame.raw
    at = HEADER_BYTES + bool(frame.flags & PADDED)
    size = raw[0] << 16 | raw[1] << 8 | raw[2]
    if size < at - HEADER_BYTES + 5:
        return frame, None
    depends_on = int.from_bytes(raw[at : at + 4], "big") & 0x7FFF_FFFF
    flags = frame.flags & ~PRIORITY
    raw = b"".join(
        ((size - 5).to_bytes(3, "big"), raw[3:4], bytes([flags]), raw[5:at], raw[at + 5 :])
    )
    return Frame(frame.kind, flags, frame.stream_id, frame.size - 5, raw, frame.frames), depends_on


def block_of(frame: Frame) -> bytes:
    """The header block of a HEADERS frame without priority; empty where its padding is not sound,
    which h2 finds."""
    raw, parts, at = frame.raw, [], 0
    while at < len(raw):
        size = int.from_bytes(raw[at : at + 3])
        begin, at = at + HEADER_BYTES, at + HEADER_BYTES + size
        parts.append(raw[begin:at])
    if frame.flags & PADDED:
        first = parts[0]
        if not first or first[0] >= len(first):
            return b""
        parts[0] = first[1 : len(first) - first[0]]
    return b"".join(parts)


_KEPT: Final = frozenset((1, 2, 3, 4, 5))
"""The settings that h2 uses; it would remember any of the 65,536."""
_TABLE_SIZE: Final = 1


def tamed(frame: Frame) -> Frame:
    """A SETTINGS frame, reduced to the settings that are used.

    Raises:
        Broken: A part of an entry, or more entries than `ENTRIES_MAX`.
    """
    if frame.size % 6 or (frame.size and frame.flags & ACK):
        raise Broken(ErrorCodes.FRAME_SIZE_ERROR, f"SETTINGS of {frame.size} bytes")
    if frame.size > 6 * ENTRIES_MAX:
        raise Broken(ErrorCodes.ENHANCE_YOUR_CALM, "SETTINGS without bounds")
    payload = b""
    for name, value in struct.iter_unpack(">HI", frame.raw[HEADER_BYTES:]):
        if name == _TABLE_SIZE:
            value = min(value, TABLE_BYTES_MAX)
        if name in _KEPT:
            payload += struct.pack(">HI", name, value)
    raw = len(payload).to_bytes(3, "big") + frame.raw[3:HEADER_BYTES] + payload
    return Frame(frame.kind, frame.flags, frame.stream_id, len(payload), raw)
