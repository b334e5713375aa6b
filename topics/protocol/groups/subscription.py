"""What a consumer's metadata says: the topics that it subscribes to."""

from struct import Struct, error
from typing import Final

_HEAD: Final = Struct(">hi")
_SIZE: Final = Struct(">h")
CONSUMER: Final = "consumer"
"""The protocol type of groups whose members have such metadata."""


def topics_of(metadata: bytes) -> frozenset[str]:
    """The topics of a subscription; none of bytes that are no subscription."""
    try:
        _, count = _HEAD.unpack_from(metadata)
        at, found = _HEAD.size, set[str]()
        for _ in range(count):
            (size,) = _SIZE.unpack_from(metadata, at)
            at += _SIZE.size
            if size < 0 or at + size > len(metadata):
                return frozenset()
            found.add(metadata[at : at + size].decode())
            at += size
    except (error, UnicodeDecodeError):
        return frozenset()
    return frozenset(found)
