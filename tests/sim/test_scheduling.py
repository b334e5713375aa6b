"""Schedules over kills, power losses, restores and clocks that jump: each tick once, or counted; and bugs that these worlds
find. (§14)"""

import pytest

from .lives import cut_everywhere, found_by, lived
from .scheduling import BUGS, World

FIRST, SAMPLE, FULL = 12, 40, 150
"""Worlds of which each is judged, of the default run, and of `pytest -m long tests/sim`."""
CALLS = 5
"""Of a life, the calls at which a default run cuts: one in so many."""


@pytest.mark.parametrize("harsh", [False, True])
def test_each_tick_happens_once_or_is_counted(harsh: bool) -> None:
    worlds = [lived(World(seed, harsh=harsh)) for seed in range(FIRST)]
    assert sum(len(world.seen) for world in worlds) > FIRST


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("harsh", [False, True])
def test_many_worlds(harsh: bool, is_full: bool) -> None:
    for seed in range(FIRST, FULL if is_full else SAMPLE):
        lived(World(seed, harsh=harsh))


@pytest.mark.parametrize("harsh", [False, True])
def test_a_cut_at_every_call(harsh: bool) -> None:
    """One life, cut at each of its calls in turn; the next one makes up for it."""
    cut_everywhere(lambda: World(1, harsh=harsh), stride=CALLS)


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bug = BUGS[name]
    bug.sow(monkeypatch)
    found_by(bug, World)
