"""Groups of consumers over kills and power losses: nothing that a member was told is lost; and bugs that these worlds find (§5, 126)."""

import pytest

from .grouping import BUGS, World
from .lives import cut_everywhere, found_by, lived

SAMPLE, FULL = 60, 1000
"""Worlds of the default run, and of `pytest -m long tests/sim`."""
STRIDE = 5
"""Of the calls of a life, one in so many is the last in a default run."""


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("harsh", [False, True])
def test_members_and_commits_are_what_they_were_told(harsh: bool, is_full: bool) -> None:
    """Members go on in their generation, no generation is used twice, and no commit is lost or goes back."""
    for seed in range(FULL if is_full else SAMPLE):
        lived(World(seed, harsh=harsh))


@pytest.mark.parametrize("harsh", [False, True])
def test_a_cut_at_any_call(harsh: bool) -> None:
    cut_everywhere(lambda: World(1, harsh=harsh), stride=STRIDE, steps=60)


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bug = BUGS[name]
    bug.sow(monkeypatch)
    found_by(bug, World)
