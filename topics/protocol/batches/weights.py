"""What the records of a batch count for: all that live of it, for their share of its bytes, rounded down (§1.2).

So what one counts for depends on how many are left, and it is asked for those that go.
"""

import numpy as np
from numpy.typing import NDArray

from topics.protocol.model.records import LIVE


def packed_weights(
    rows: NDArray[np.int64],
    gone: int,
    flags: NDArray[np.uint8],
    firsts: NDArray[np.int64],
    sizes: NDArray[np.int64],
) -> NDArray[np.int64]:
    """What live rows of a packed run count for, if they go in their order.

    Args:
        rows: Live rows, ascending, at least `gone`.
        gone: Rows below this are gone, whatever their flags.
        flags: Of all rows.
        firsts: First row of each batch; `sizes` its bytes.
    """
    if not len(rows):
        return np.empty(0, np.int64)
    ends = np.append(firsts[1:], len(flags))
    alive = np.concatenate([[0], np.cumsum((flags == LIVE) & (np.arange(len(flags)) >= gone))])
    batch = np.searchsorted(firsts, rows, "right") - 1
    begins = np.flatnonzero(np.diff(batch, prepend=-1))
    before = np.arange(len(rows)) - np.repeat(begins, np.diff(begins, append=len(rows)))
    left = (alive[ends] - alive[firsts])[batch] - before
    size, records = sizes[batch], (ends - firsts)[batch]
    shares: NDArray[np.int64] = size * left // records - size * (left - 1) // records
    return shares
