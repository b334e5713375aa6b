"""Compacted topics over kills and power losses: the newest record of each key is there, always; and bugs that these worlds find (127)."""

import pytest

from topics.protocol.maintenance import key_compaction

from .compacting import BUGS, World
from .lives import cut_everywhere, found_by, lived

SAMPLE, FULL = 8, 300
"""Worlds of the default run, and of `pytest -m long tests/sim`."""
STRIDE = 13
"""Of the calls of a life, one in so many is the last in a default run."""


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("harsh", [False, True])
@pytest.mark.parametrize("keys_max", [2, key_compaction.KEYS_MAX])
def test_the_newest_record_of_each_key_is_there(
    keys_max: int, harsh: bool, is_full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a pass was doing; also where there are more keys than are remembered at a time."""
    monkeypatch.setattr(key_compaction, "KEYS_MAX", keys_max)
    for seed in range(FULL if is_full else SAMPLE):
        lived(World(seed, harsh=harsh))


@pytest.mark.parametrize("harsh", [False, True])
def test_a_cut_at_any_call(harsh: bool) -> None:
    """A pass that was cut off is begun anew, and finds what was left."""
    cut_everywhere(lambda: World(1, harsh=harsh), stride=STRIDE)


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bug = BUGS[name]
    bug.sow(monkeypatch)
    found_by(bug, World)
