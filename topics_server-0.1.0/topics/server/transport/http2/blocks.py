"""Header blocks before they are decoded (RFC 7541).

Owns what is found out about a block before the decoder sees it: how many fields there are, since a
byte may stand for a field of 4 KB, and the text of its long strings, since Huffman's code takes a
fifth of a microsecond a byte and the decoder does all of it at once.  What is malformed is left for
the decoder to find, but for the code.
"""

from collections.abc import Generator, Iterator
from typing import Final

from hpack.huffman_table import (
    HUFFMAN_COMPLETE,
    HUFFMAN_EMIT_SYMBOL,
    HUFFMAN_FAIL,
    HUFFMAN_TABLE,
)

LONG_BYTES: Final = 256
"""Of a string in Huffman's code: shorter ones are left to the decoder."""
STEP_BYTES: Final = 1 << 10
"""Of such a string, decoded in one step: a fifth of a millisecond."""


class BadCode(Exception):
    """A string is not in Huffman's code (RFC 7541, 5.2)."""


def count_fields(block: bytes, limit: int) -> int:
    """Count the fields of a header block, up to one more than `limit`, or up to the first field
    that cannot be read."""
    count = at = 0
    try:
        while at < len(block) and count <= limit:
            first = block[at]
            if first & 0x80:  # a field of a table
                at = _behind_integer(block, at, 0x7F)
            elif first & 0xE0 == 0x20:  # the size of the table: no field
                at = _behind_integer(block, at, 0x1F)
                continue
            else:
                prefix = 0x3F if first & 0x40 else 0x0F
                if first & prefix:  # a name of a table
                    at = _behind_integer(block, at, prefix)
                else:
                    at = _behind_string(block, at + 1)
                at = _behind_string(block, at)
            count += 1
    except IndexError:
        return count
    return count


def plain(block: bytes) -> Generator[None, None, bytes]:
    """The same block with its long strings as text, made in steps.

    Yields between two steps; the returned block is as the decoder would have it from other clients.

    Raises:
        BadCode: The decoder would refuse it.
    """
    parts: list[bytes] = []
    done = 0
    for at, begin, end in _long_codes(block):
        text = bytearray()
        state, flags = 0, HUFFMAN_COMPLETE
        for first in range(begin, end, STEP_BYTES):
            state, flags = _decode(block[first : min(first + STEP_BYTES, end)], state, text)
            yield
        if not flags & HUFFMAN_COMPLETE:
            raise BadCode("a string ends within a code")
        parts += (block[done:at], _length(len(text)), bytes(text))
        done = end
    return b"".join((*parts, block[done:]))


def _decode(code: bytes, state: int, text: bytearray) -> tuple[int, int]:
    """Decode a part of a string, as `hpack.huffman_table` does it for a whole one; `state` and the
    flags go from part to part."""
    flags = 0
    for byte in code:
        for nibble in (byte >> 4, byte & 0x0F):
            state, flags, symbol = HUFFMAN_TABLE[state * 16 + nibble]
            if flags & HUFFMAN_EMIT_SYMBOL:
                text.append(symbol)
            elif flags & HUFFMAN_FAIL:
                raise BadCode("no code begins like that")
    return state, flags


def _long_codes(block: bytes) -> Iterator[tuple[int, int, int]]:
    """Where each long string in Huffman's code begins, its first byte of code, and its end; none
    behind what cannot be read."""
    at = 0
    try:
        while at < len(block):
            first = block[at]
            if first & 0x80:
                at = _behind_integer(block, at, 0x7F)
                continue
            if first & 0xE0 == 0x20:
                at = _behind_integer(block, at, 0x1F)
                continue
            prefix = 0x3F if first & 0x40 else 0x0F
            strings = 1 if first & prefix else 2
            at = _behind_integer(block, at, prefix) if first & prefix else at + 1
            for _ in range(strings):
                begin, end = _string(block, at)
                if block[at] & 0x80 and end - begin > LONG_BYTES and end <= len(block):
                    yield at, begin, end
                at = end
    except IndexError:
        return


def _length(size: int) -> bytes:
    """The beginning of a string of so many bytes of text."""
    if size < 0x7F:
        return bytes([size])
    out = bytearray(b"\x7f")
    size -= 0x7F
    while size >= 0x80:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    out.append(size)
    return bytes(out)


def _behind_integer(block: bytes, at: int, prefix: int) -> int:
    if block[at] & prefix == prefix:
        at += 1
        while block[at] & 0x80:
            at += 1
    return at + 1


def _behind_string(block: bytes, at: int) -> int:
    return _string(block, at)[1]


def _string(block: bytes, at: int) -> tuple[int, int]:
    """The first byte of a string, and its end."""
    size = block[at] & 0x7F
    if size == 0x7F:
        shift = 0
        while True:
            at += 1
            size += (block[at] & 0x7F) << shift
            shift += 7
            if not block[at] & 0x80:
                break
    return at + 1, at + 1 + size
