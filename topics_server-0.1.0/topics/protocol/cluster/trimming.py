"""How much of the log may go.

Owns one number, and the invariant behind it: what the log does not have any more is durable on as many
nodes as `copies`, and the record at which a node stands is still there, because it is by this record
that the node knows the log as its own (`replica.is_history`).
"""

from collections.abc import Iterable
from typing import Final

COPIES: Final = 2
"""Nodes that have to hold what the log lets go of.  With one, the data would end with that machine."""


def trim_before(durable: Iterable[int], *, copies: int = COPIES) -> int | None:
    """The offset before which the log may go; None: nothing may.

    Args:
        durable: For each node that counts (that was heard of within the retention), the offset of the
            mark (`replica.Mark`) which is synced there, -1 where there is none.  What a node has accepted and not
            synced it loses with the power.
    """
    assert copies >= 1
    offsets = sorted(durable)
    if len(offsets) < copies or offsets[0] < 0:
        return None
    return offsets[0]
