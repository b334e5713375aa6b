"""Five nodes over one log, whatever goes wrong: a seed decides everything."""

from collections import Counter

import pytest

from .style import KINDS
from .world import told_world

SAMPLE, FULL = 60, 1200
"""Worlds of the default run, and of `pytest -m long tests/cluster`."""


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_no_world_breaks_an_invariant(kind: str, is_full: bool) -> None:
    """What was acknowledged is in every replica, all replicas agree on every index, no seq and no lease
    is given twice, a read and a refusal are true, and a loss is told.  Where this fails, the message
    names the seed: `told_world(SEED)` lives that world again."""
    count, at = Counter[str](), list(KINDS).index(kind)
    for seed in range(at, FULL if is_full else SAMPLE, len(KINDS)):
        world = told_world(seed)
        assert world.kind == kind
        count["acknowledged"] += len(world.acknowledged)
        count["cuts"] += len(world.log.cuts)
        count["trimmed"] += world.log.start > 0

    # A world in which nothing happens breaks nothing.
    assert count["acknowledged"] > 20
    assert (count["cuts"] > 0) is (kind == "cuts")
    assert count["trimmed"] > 0 or kind != "trims"


def test_a_seed_decides_everything() -> None:
    """The same world is lived twice, step by step."""
    assert told_world(2).notes == told_world(2).notes
