"""What the records of a batch count for, as they go."""

from typing import Any

import numpy as np

from topics.protocol.batches.weights import packed_weights
from topics.protocol.model.records import DELETED


def test_weights_are_asked_for_by_rows() -> None:
    """Of batches of 10 and 7 bytes, two records each."""
    flags = np.zeros(4, np.uint8)
    firsts, sizes = np.array([0, 2]), np.array([10, 7])

    def weights(rows: list[int], gone: int = 0) -> Any:
        return packed_weights(np.array(rows), gone, flags, firsts, sizes).tolist()

    assert weights([0, 1, 2, 3]) == [5, 5, 4, 3]
    assert weights([3]) == [4]
    assert weights([1, 3], gone=1) == [5, 4]
    flags[2] = DELETED
    assert weights([3]) == [3]
