"""Which partition a key belongs to: murmur2, as Java's clients of Kafka place what they write.

Records that are written over either face with one key are in one partition, as long as their topic has as many.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF
TOGETHER: Final = 24
"""Keys of one length from which on numpy hashes them side by side."""
LONG_BYTES: Final = 256
"""A key from which on numpy mixes its words."""


def partition_of_key(key: bytes, partitions: int) -> int:
    """The partition of one key."""
    return hash_of(key) % partitions


def hash_of(key: bytes) -> int:
    """The hash of a key, 0 or more: the remainder by the number of partitions is its partition."""
    size = len(key)
    h = _SEED ^ size
    for k in _mixed(key):
        h = (h * _M & _MASK) ^ k
    rest = size & 3
    if rest:
        h = (h ^ int.from_bytes(key[size - rest :], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return (h ^ h >> 15) & _POSITIVE


def _mixed(key: bytes) -> Iterable[int]:
    """The words of a key, each mixed by itself."""
    words = len(key) >> 2
    if len(key) >= LONG_BYTES:
        k = np.frombuffer(key, "<u4", words) * np.uint32(_M)
        found: list[int] = ((k ^ k >> np.uint32(24)) * np.uint32(_M)).tolist()
        return found
    mixed = []
    for at in range(0, words << 2, 4):
        one = int.from_bytes(key[at : at + 4], "little") * _M & _MASK
        mixed.append((one ^ one >> 24) * _M & _MASK)
    return mixed


def hashes_of(keys: Sequence[bytes | None]) -> list[int | None]:
    """The hash of each key; None where there is none."""
    found: list[int | None] = [None] * len(keys)
    by_size: dict[int, list[int]] = {}
    for at, key in enumerate(keys):
        if key is not None:
            by_size.setdefault(len(key), []).append(at)
    for size, places in by_size.items():
        alike = [key for at in places if (key := keys[at]) is not None]
        hashes = _together(alike, size).tolist() if len(alike) >= TOGETHER else map(hash_of, alike)
        for at, each in zip(places, hashes, strict=True):
            found[at] = each
    return found


def _together(keys: Sequence[bytes], size: int) -> NDArray[np.uint32]:
    """The hashes of keys of one length."""
    rows = np.frombuffer(b"".join(keys), np.uint8).reshape(len(keys), size)
    h = np.full(len(keys), _SEED ^ size, np.uint32)
    words = size >> 2
    if words:
        k = np.ascontiguousarray(rows[:, : words << 2]).view("<u4") * np.uint32(_M)
        k = (k ^ k >> np.uint32(24)) * np.uint32(_M)
        for at in range(words):
            h = h * np.uint32(_M) ^ k[:, at]
    rest = size & 3
    if rest:
        for nth in range(rest):
            h = h ^ rows[:, (words << 2) + nth].astype(np.uint32) << np.uint32(8 * nth)
        h = h * np.uint32(_M)
    h = (h ^ h >> np.uint32(13)) * np.uint32(_M)
    return (h ^ h >> np.uint32(15)) & np.uint32(_POSITIVE)
