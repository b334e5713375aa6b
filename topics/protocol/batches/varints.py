"""Varints, as Kafka and protobuf write numbers: seven bits a byte, the lowest first."""

from collections.abc import Sequence
from typing import Final


def varint_of(number: int) -> bytes:
    """A number that is not negative."""
    if number < len(_SMALL):
        return _SMALL[number]
    return _made(number)


def zigzag_of(number: int) -> bytes:
    """A signed number of up to 64 bits: 0, −1, 1, −2 are 0, 1, 2, 3."""
    return varint_of((number << 1) ^ (number >> 63))


def sizes_of(numbers: Sequence[int]) -> list[bytes]:
    """Signed numbers that are not negative, as sizes are."""
    try:
        return [_SIZES[number] for number in numbers]
    except IndexError:
        return [varint_of(number << 1) for number in numbers]


def _made(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


_SMALL: Final = tuple(map(_made, range(1 << 14)))
"""Varints of one byte and of two: nearly all lengths and differences."""
_SIZES: Final = _SMALL[::2]
