"""What becomes of jobs over kills and power losses: all of it, or nothing of what was cut off; and bugs that these worlds
find (§10.1, §10.4-§10.6, §10.9)."""

import pytest

from .ending import BUGS, World
from .lives import cut_everywhere, found_by, lived

SAMPLE, FULL = 12, 400
"""Worlds of the default run, and of `pytest -m long tests/sim`."""
STRIDE = 11
"""Of the calls of a life, one in so many is the last in a default run."""


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("harsh", [False, True])
def test_what_was_answered_is_there(harsh: bool, is_full: bool) -> None:
    for seed in range(FULL if is_full else SAMPLE):
        lived(World(seed, harsh=harsh))


@pytest.mark.parametrize("harsh", [False, True])
def test_a_cut_at_any_call(harsh: bool) -> None:
    """A request is done, or it is not."""
    cut_everywhere(lambda: World(1, harsh=harsh), stride=STRIDE)


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bug = BUGS[name]
    bug.sow(monkeypatch)
    found_by(bug, World)
