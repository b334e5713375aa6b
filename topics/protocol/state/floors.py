"""Arithmetic of floors (§3.3): they rise by loss, and no event makes one fall."""

from topics.protocol.model.events import Floors


def risen(floors: Floors, other: Floors) -> Floors:
    """Each cause's floor, as high as either says.

    An event holds the floors of the process that made it.  At a replay they may be behind: what
    lived in that process's memory only is lost by then, and its events could not say so.
    """
    if floors == other:
        return floors
    return Floors(
        max(floors.cap_through, other.cap_through),
        max(floors.ttl_through, other.ttl_through),
        max(floors.crash_through, other.crash_through),
        max(floors.trim_through, other.trim_through),
    )


def floors_with(floors: Floors, *, cap_through: int = 0, ttl_through: int = 0) -> Floors:
    """Floors that have risen to these seqs, where they were lower."""
    if cap_through <= floors.cap_through and ttl_through <= floors.ttl_through:
        return floors
    return Floors(
        max(floors.cap_through, cap_through),
        max(floors.ttl_through, ttl_through),
        floors.crash_through,
        floors.trim_through,
    )
