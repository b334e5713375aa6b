"""Worlds in which the machine stops, again and again, and what each start may show.

A failure is one line with the seed, and the command that lives it again.
"""

import pytest

from .stories import CRASHES, story
from .sweep import MODES, STOPS, STORIES, SWEEPS, calls_of, swept


@pytest.mark.parametrize("how", STOPS)
@pytest.mark.parametrize("script", [story.__name__ for story in STORIES])
def test_a_stop_at_some_calls_of_a_script(script: str, how: str) -> None:
    """Whichever call is the last, the next start shows the state after some write that this kind of
    stop permits, and so does the one after it; `make sim` tries every call. (§0.10, §3.3, §5)"""
    assert swept(f"{script}/{how}", first=len(script) % 11, stride=11) > 1


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode not in STOPS])
@pytest.mark.parametrize("script", [story.__name__ for story in STORIES])
def test_a_failure_at_some_calls_of_a_script(script: str, mode: str) -> None:
    """Whichever call fails, once or from then on, fully or in part: clients get answers that hold,
    and the next start shows what it may. (§0.6, §0.10)"""
    assert swept(f"{script}/{mode}", first=len(script + mode) % 13, stride=29) > 0


@pytest.mark.parametrize("mode", MODES)
def test_a_disturbed_recovery(mode: str) -> None:
    """A recovery that is cut off, or whose call fails, changes nothing for the next. (§0.10)"""
    assert swept(f"recovery/{mode}", first=len(mode) % 2, stride=2) > 5


def test_the_sweep_has_every_kind_of_call() -> None:
    """Every script makes calls enough to be swept, and every script has every kind of failure."""
    assert len(SWEEPS) == (len(STORIES) + 1) * len(MODES)
    assert all(calls_of(script) > 20 for script in STORIES)


@pytest.mark.parametrize("seed", range(12))
def test_a_life_of_stops(seed: int) -> None:
    """Cut and killed again and again, at any call, also during its recovery, with failing calls in
    some worlds, a server keeps what it acknowledged. (§0.10)"""
    assert story(f"life:{seed}").crashes >= CRASHES


@pytest.mark.parametrize("seed", range(10))
def test_a_life_of_work(seed: int) -> None:
    """Jobs that were acked stay deleted, a job is either in its queue or in the dead-letter topic,
    durable leases and delivery counts are kept, and others are lost together. (§10.1, §10.4,
    §10.6)"""
    assert story(f"work:{seed}").crashes >= CRASHES


@pytest.mark.parametrize("seed", range(6))
def test_a_life_of_many_topics(seed: int) -> None:
    """The same, where twelve topics share turns, segments and checkpoints. (§0.10)"""
    assert story(f"wide:{seed}").crashes >= CRASHES
