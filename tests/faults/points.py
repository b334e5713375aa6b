"""How many points of a sweep are tried."""

import os
import random
from collections.abc import Sequence
from typing import Final, TypeVar

POINTS: Final = int(os.environ.get("TOPICS_TESTS_POINTS", "150"))
"""Points of one sweep in a run that does not try them all; CI asks for 2,000 a sweep."""

T = TypeVar("T")


def sample(points: Sequence[T], *, is_full: bool, share: int = 1) -> list[T]:
    """All points, or so many that a run may take, others each time; the choice is printed.

    Args:
        share: One in so many of a sweep's points.
    """
    size = POINTS // share
    if is_full or len(points) <= size:
        return list(points)
    seed = random.randrange(1 << 32)
    print(f"{size} of {len(points)} points, seed {seed}")
    return random.Random(seed).sample(points, size)
