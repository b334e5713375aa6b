"""Gzipped request bodies.

Owns what counts as one: a single whole gzip member, with nothing behind it, of bounded size.
Starts no thread: `at_once` is for the event loop and gives up early, `inflate` runs to the end and
is for a thread.

Invariants: at most the limit and one piece are in memory, whatever a body declares, and one piece
alone where it declares more; and no step of `inflate` holds the interpreter or a core for more than a
piece.
"""

import time
import zlib
from typing import Final

from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.records import Buffer

AT_ONCE_BYTES: Final = 64 << 10
"""A larger body on the wire is inflated on a thread: 64 MiB take a tenth of a second."""

INPUT_BYTES: Final = 64 << 10
OUTPUT_BYTES: Final = 256 << 10
"""zlib copies the input that it did not consume, so input and output go in pieces."""

RATIO_MAX: Final = 1032
"""Deflate makes of no byte more than so many (zlib.net/zlib_tech.html)."""
GIVE_WAY_S: Final = 10e-6
"""Between two pieces the thread sleeps for a moment.  One that goes on keeps its core for 1.4 to 3 ms,
and the event loop, woken there, waits for it; a piece takes 0.1 to 0.5 ms."""

_GZIP: Final = 31


def let_go(pieces: list[bytes]) -> None:
    """Free pieces one by one, on a thread: the list frees all of them in one step, which takes 6 ms for
    64 MiB, and the event loop waits for the interpreter meanwhile."""
    while pieces:
        pieces.pop()


def too_large(limit: int) -> Rejection:
    return Rejection(
        ErrorCode.PAYLOAD_TOO_LARGE, f"the body exceeds {limit} bytes", {"limit": limit}
    )


def at_once(body: Buffer, limit: int) -> bytes | None:
    """The plain body, where that is a matter of microseconds; None where `inflate` is needed.

    Raises:
        Rejection: As `inflate`.
    """
    if len(body) > AT_ONCE_BYTES:
        return None
    inflater = zlib.decompressobj(_GZIP)
    plain = _piece(inflater, body, min(OUTPUT_BYTES, limit) + 1)
    if len(plain) > limit:
        raise too_large(limit)
    if len(plain) > OUTPUT_BYTES:
        return None
    _require_whole(inflater)
    return plain


def inflate(body: Buffer, limit: int) -> bytes:
    """The plain body.

    Nothing is kept of what says by itself that it is beyond the limit, and what is more than it says is
    not unpacked to its end: neither can become a body.

    Raises:
        Rejection: 400 where it is no gzip, or not a whole one; 413 beyond `limit` bytes.
    """
    inflater = zlib.decompressobj(_GZIP)
    view = memoryview(body)
    declared = _declared_bytes(view)
    pieces: list[bytes] = []
    size = at = 0
    try:
        while not inflater.eof and at < len(view):
            given: Buffer = view[at : at + INPUT_BYTES]
            at += INPUT_BYTES
            while not inflater.eof:
                piece = _piece(inflater, given, OUTPUT_BYTES)
                given = inflater.unconsumed_tail
                size += len(piece)
                if size > limit:
                    raise too_large(limit)
                if declared is not None and size > declared:
                    raise _not_whole()
                if declared is None or declared <= limit:
                    pieces.append(piece)
                time.sleep(GIVE_WAY_S)
                if not given and len(piece) < OUTPUT_BYTES:
                    # A full piece may leave output inside zlib although all input is consumed.
                    break
        _require_whole(inflater, unseen=len(view) > at)
        # Joining, unlike one large output, lets other threads run while it copies.
        return b"".join(pieces)
    finally:
        let_go(pieces)


def _declared_bytes(body: memoryview) -> int | None:
    """The size that the end of a gzip member says it has unpacked (RFC 1952 §2.3.1); None where it may
    be larger, because only its last 32 bits are told."""
    declared = int.from_bytes(body[-4:], "little")
    return declared if declared + (1 << 32) > len(body) * RATIO_MAX else None


def _piece(inflater: "zlib._Decompress", given: Buffer, size: int) -> bytes:
    try:
        return inflater.decompress(given, size)
    except zlib.error:
        raise Rejection(ErrorCode.INVALID_REQUEST, "the body is not gzip") from None


def _require_whole(inflater: "zlib._Decompress", *, unseen: bool = False) -> None:
    if not inflater.eof or inflater.unused_data or unseen:
        raise _not_whole()


def _not_whole() -> Rejection:
    return Rejection(ErrorCode.INVALID_REQUEST, "the gzipped body is not whole")
