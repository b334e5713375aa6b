"""Gzipped request bodies.

Owns what counts as one: whole gzip members one behind the other (RFC 1952 §2.2), with nothing but
zeros behind each, as gzip itself takes them; of bounded size and number together.
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

GIVE_WAY_S: Final = 10e-6
"""Between two pieces the thread sleeps for a moment.  One that goes on keeps its core for 1.4 to 3 ms,
and the event loop, woken there, waits for it; a piece takes 0.1 to 0.5 ms."""

MEMBERS_MAX: Final = 16_384
"""An empty member has 20 bytes and costs some microseconds; what bgzip makes of 64 MiB has 1,029."""
MEMBERS_AT_ONCE: Final = 16

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
    members = _Members()
    most = min(OUTPUT_BYTES, limit)
    plain, given = b"", body
    while given or not plain:
        piece, given = members.piece(given, most + 1 - len(plain))
        plain = plain + piece if plain else piece
        if len(plain) > limit:
            raise too_large(limit)
        if len(plain) > OUTPUT_BYTES or members.count > MEMBERS_AT_ONCE:
            return None
        if not given:
            break
    members.require_whole()
    return plain


def inflate(body: Buffer, limit: int) -> bytes:
    """The plain body.

    Nothing is kept of what says by itself that it is beyond the limit: it cannot become a body.

    Raises:
        Rejection: 400 where it is no gzip, or not a whole one; 413 beyond `limit` bytes.
    """
    members = _Members()
    view = memoryview(body)
    keeps = _declared_bytes(view) <= limit
    pieces: list[bytes] = []
    size = at = 0
    try:
        while at < len(view):
            given: Buffer = view[at : at + INPUT_BYTES]
            at += INPUT_BYTES
            while True:
                piece, given = members.piece(given, OUTPUT_BYTES)
                size += len(piece)
                if size > limit:
                    raise too_large(limit)
                if keeps:
                    pieces.append(piece)
                if members.count == 1 or not members.count % MEMBERS_AT_ONCE:
                    time.sleep(GIVE_WAY_S)
                if not given and len(piece) < OUTPUT_BYTES:
                    # A full piece may leave output inside zlib although all input is consumed.
                    break
        members.require_whole()
        # Joining, unlike one large output, lets other threads run while it copies.
        return b"".join(pieces)
    finally:
        let_go(pieces)


def _declared_bytes(body: memoryview) -> int:
    """What the end of the last member says that the member has unpacked (RFC 1952 §2.3.1): of the size,
    its last 32 bits.  The whole is no smaller; where the body ends in zeros, nothing is said."""
    return int.from_bytes(body[-4:], "little")


class _Members:
    """The members of a body, unpacked a piece at a time.

    Attributes:
        count: Of the members that were begun.
    """

    def __init__(self) -> None:
        self.count = 1
        self._inflater = zlib.decompressobj(_GZIP)
        self._is_between = False

    def piece(self, given: Buffer, size: int) -> tuple[bytes, Buffer]:
        """At most `size` bytes of the input, and what is left of the input.

        Raises:
            Rejection: 400, it is no gzip, or has very many members.
        """
        if self._is_between:
            given = bytes(given).lstrip(b"\0")
            if not given:
                return b"", b""
            self.count += 1
            if self.count > MEMBERS_MAX:
                what = f"the gzipped body has more than {MEMBERS_MAX} members"
                raise Rejection(ErrorCode.INVALID_REQUEST, what)
            self._inflater = zlib.decompressobj(_GZIP)
            self._is_between = False
        try:
            plain = self._inflater.decompress(given, size)
        except zlib.error:
            what = "not gzip" if self.count == 1 else "not whole"
            raise Rejection(ErrorCode.INVALID_REQUEST, f"the body is {what}") from None
        if not self._inflater.eof:
            return plain, self._inflater.unconsumed_tail
        self._is_between = True
        return plain, self._inflater.unused_data

    def require_whole(self) -> None:
        if not self._is_between:
            raise Rejection(ErrorCode.INVALID_REQUEST, "the gzipped body is not whole")
