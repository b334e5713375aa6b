"""A random model checker over HTTP: topics of every class with caps and times to live, deletes, erasures,
purges, filters, nodes, keys, queues with dead letters, routers, watches that are cut, topics that are made
anew, kills in the middle of requests, and clean stops; without readers and with two.

Some seconds by default, a minute in CI, and as long as one likes:

    TOPICS_TESTS_LIVES_S=3600 .venv/bin/python -m pytest -s -m long tests/everything

Each life prints its seed; `TOPICS_TESTS_LIVES_SEED=17` lives that one again.  What is asked for is the same
then; when a process is killed, and what it had done, is not.
"""

import os
import random
import time
from pathlib import Path
from typing import Final

import pytest

from .life import Life

SECONDS: Final = float(os.environ.get("TOPICS_TESTS_LIVES_S", "0"))
SEED: Final = os.environ.get("TOPICS_TESTS_LIVES_SEED")
STEPS: Final = int(os.environ.get("TOPICS_TESTS_LIVES_STEPS", "600"))
"""Of one life where time bounds them all; then another begins."""
FEW: Final = 60


def lived(home: Path, seed: int, steps: int, end: float | None = None) -> Life:
    """A life of so many steps, or until a time."""
    life, left = Life(home, seed), iter(range(steps))
    print(f"TOPICS_TESTS_LIVES_SEED={seed} ({life.readers} readers)", flush=True)
    life.live(lambda: next(left, None) is None or (end is not None and time.monotonic() > end))
    return life


@pytest.mark.parametrize("nth", range(2))
def test_a_short_life(tmp_path: Path, nth: int) -> None:
    """Each answer is one that the contract allows, and after each end all is there that may not be
    gone. (§0.10, §2 to §7, §10)"""
    life = lived(tmp_path, int(SEED or random.randrange(1 << 32)) + nth, FEW)
    assert len(life.trail) > FEW // 2


@pytest.mark.long
@pytest.mark.timeout(0)
def test_lives(tmp_path: Path, is_full: bool) -> None:
    """One after the other, for as long as is asked for; a minute where nothing is. (§0.10, §2 to §7,
    §10)"""
    if not (is_full or SECONDS):
        pytest.skip("the short lives are its sample")
    end = time.monotonic() + (SECONDS or 60)
    seeds, lives, kills = random.Random(time.time_ns()), 0, 0
    while time.monotonic() < end:
        seed = int(SEED) if SEED and not lives else seeds.randrange(1 << 32)
        life = lived(tmp_path / str(lives), seed, STEPS, end)
        lives, kills = lives + 1, kills + life.kills
    print(f"{lives} lives, {kills} kills")
    assert lives
