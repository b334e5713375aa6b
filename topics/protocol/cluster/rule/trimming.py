"""How much of the log may go.

Owns one decision, and the invariant behind it: what the log does not have any more is durable on as many
nodes as `copies`, and the record at which a node stands is still there, because it is by this record
that the node knows the log as its own (`replica.is_history`).

Whoever decides it may be deposed, and what it decides may take effect long after.  That is harmless: the
bound is made of places that nodes have on their disks, and those only rise.  A node that came meanwhile
and has not read so far takes another's snapshot; the copies that were counted have all that it needs.

A node counts as a copy only where the log has the record at which it stands, of the epoch in which it
read it: offset and epoch name all that is before (`ports`), and whoever has read that has the same state.
An offset alone would not do: a node on a lost history has records at the same offsets, and they are not
those of the log.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import msgspec

COPIES: Final = 2
"""Nodes that have to hold what the log lets go of.  With one, the data would end with that machine."""


class NodeNeeds(msgspec.Struct, frozen=True, kw_only=True):
    """Where the log has to begin for one process of a node that counts.

    Attributes:
        node: Its id.
        offset: Of the record that it needs first: that of its mark (`replica.Mark`), as far as it is
            synced there.  -1: all.  What a node has accepted and not synced it loses with the power.
        is_copy: It has what the log had before, on its disk.
        mark: Offset and epoch of the record by which it is known whether its data are of this log.
    """

    node: str
    offset: int
    is_copy: bool
    mark: tuple[int, int] = (-1, -1)


class Wait(StrEnum):
    """Why no more may go."""

    RETENTION = "retention"
    """It is too young."""
    NODE = "node"
    """A node needs it."""
    COPIES = "copies"
    """Too few nodes have it."""


class Bound(msgspec.Struct, frozen=True):
    """The records before `before` may go, none where that is 0; why it is no more, and which node it
    waits for where it is one."""

    before: int
    waits_for: Wait
    node: str | None = None


def bound_of(
    positions: Iterable[NodeNeeds], *, aged: int | None = None, copies: int = COPIES
) -> Bound:
    """How much of the log may go.

    Args:
        positions: Of all that count: those heard of within the retention which read on in the log,
            and what is being given away as a snapshot.
        aged: The records before this offset are old enough; None: all are.
    """
    assert copies >= 1
    known = sorted(positions, key=lambda each: (each.offset, each.node))
    if known and known[0].offset < 0:
        return Bound(0, Wait.NODE, known[0].node)
    if len({each.node for each in known if each.is_copy}) < copies:
        return Bound(0, Wait.COPIES)
    least = known[0]
    if aged is not None and aged < least.offset:
        return Bound(max(aged, 0), Wait.RETENTION)
    return Bound(least.offset, Wait.NODE, least.node)
