"""Topics of several partitions over kills and power losses: a key has one partition, an append is whole; and bugs that these worlds find (§4, 122)."""

import pytest

from .lives import cut_everywhere, found_by, lived
from .partitioning import BUGS, World, murmur2

SAMPLE, FULL = 12, 400
"""Worlds of the default run, and of `pytest -m long tests/sim`."""
STRIDE = 11
"""Of the calls of a life, one in so many is the last in a default run."""


def test_hashes_are_those_of_clients_in_java() -> None:
    """As Kafka's own tests have them, without their sign."""
    known = {
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        b"abc": 479470107,
    }
    assert {key: murmur2(key) for key in known} == {k: h & 0x7FFFFFFF for k, h in known.items()}


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("harsh", [False, True])
def test_each_record_is_in_its_partition(harsh: bool, is_full: bool) -> None:
    for seed in range(FULL if is_full else SAMPLE):
        lived(World(seed, harsh=harsh))


@pytest.mark.parametrize("harsh", [False, True])
def test_a_cut_at_any_call(harsh: bool) -> None:
    """An append is in all of its partitions, or in none."""
    cut_everywhere(lambda: World(1, harsh=harsh), stride=STRIDE)


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bug = BUGS[name]
    bug.sow(monkeypatch)
    found_by(bug, World)
