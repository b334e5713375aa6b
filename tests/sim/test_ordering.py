"""Jobs with options over kills and power losses: given in the order that a naive queue has; and bugs that these worlds find (130-134)."""

import pytest

from topics.protocol.state import backlog

from .lives import cut_everywhere, found_by, lived
from .ordering import BUGS, World

SAMPLE, FULL = 40, 1500
"""Worlds of the default run, and of `pytest -m long tests/sim`."""
STRIDE = 13
"""Of the calls of a life, one in so many is the last in a default run."""


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("harsh", [False, True])
def test_jobs_are_given_in_their_order(harsh: bool, is_full: bool) -> None:
    """No two of a group beyond its bound, no job before its time, none lost, none twice at a time."""
    for seed in range(FULL if is_full else SAMPLE):
        lived(World(seed, harsh=harsh))


@pytest.mark.parametrize("harsh", [False, True])
def test_groups_are_forgotten_all_the_time(harsh: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue that begins anew before it takes in more has the same order, whatever its jobs are at. (131, 133)"""
    monkeypatch.setattr(backlog, "IDLE_GROUPS", -(1 << 40))
    for seed in range(10):
        lived(World(seed, harsh=harsh))


@pytest.mark.parametrize("harsh", [False, True])
def test_a_cut_at_any_call(harsh: bool) -> None:
    for seed in (2, 3):
        cut_everywhere(lambda seed=seed: World(seed, harsh=harsh), stride=STRIDE)  # type: ignore[misc]


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bug = BUGS[name]
    bug.sow(monkeypatch)
    found_by(bug, World)
