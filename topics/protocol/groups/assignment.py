"""What the leader of a group assigned to a consumer, as Kafka's clients write it (`ConsumerProtocolAssignment`)."""

from collections.abc import Mapping, Sequence
from struct import Struct, error, unpack_from
from typing import Final

_HEAD: Final = Struct(">hi")
_TEXT: Final = Struct(">h")
_COUNT: Final = Struct(">i")


def partitions_of(assignment: bytes) -> Mapping[str, Sequence[int]] | None:
    """Partitions by topic; None of bytes that say none."""
    found: dict[str, Sequence[int]] = {}
    try:
        _, topics = _HEAD.unpack_from(assignment)
        at = _HEAD.size
        for _ in range(topics):
            (size,) = _TEXT.unpack_from(assignment, at)
            at += _TEXT.size
            if size < 0:
                return None
            name = assignment[at : at + size].decode()
            at += size
            (count,) = _COUNT.unpack_from(assignment, at)
            at += _COUNT.size
            if not 0 <= count <= (len(assignment) - at) // 4:
                return None
            found[name] = unpack_from(f">{count}i", assignment, at)
            at += 4 * count
    except (error, UnicodeDecodeError):
        return None
    return found
