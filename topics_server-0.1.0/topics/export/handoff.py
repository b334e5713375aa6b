"""How far a topic may be deleted once it is exported.  Pure.

Deleting is silent and for good, for every reader of the topic (§5), so all conditions must hold:
the records are in the export and verified, every reader that was named has dealt with them, and they
are old enough.
"""

from collections.abc import Mapping
from dataclasses import dataclass


class NotSafe(Exception):
    """No bound can be given; says why."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Records with a seq below `before_seq` may be deleted.

    Attributes:
        limit: What keeps the bound from lying higher.
        limits: Each condition, and the last seq that it allows.
    """

    before_seq: int
    limit: str
    limits: dict[str, int]


def bound(
    *,
    earliest_seq: int,
    exported_first: int,
    verified_to: int,
    aged_to: int,
    readers: Mapping[str, int | None],
) -> Bound:
    """The bound below which a topic may be deleted.

    Args:
        earliest_seq: The first live record of the topic.
        exported_first: The first seq of the export.
        verified_to: The last seq of the export.
        aged_to: The last seq that is old enough.
        readers: The position of each reader that must have come by; None: it published none.

    Raises:
        NotSafe: A reader is not known, or the topic begins before the export.
    """
    unknown = sorted(name for name, position in readers.items() if position is None)
    if unknown:
        raise NotSafe(f'reader "{unknown[0]}" has published no position for this topic')
    if earliest_seq < exported_first:
        raise NotSafe(
            f"the export begins with seq {exported_first}, and records from {earliest_seq} on, "
            "which it lacks, would be deleted"
        )
    limits = {"exported and verified": verified_to, "age": aged_to}
    limits |= {f'reader "{name}"': position or 0 for name, position in readers.items()}
    limit = min(limits, key=lambda name: limits[name])
    return Bound(limits[limit] + 1, limit, limits)
