"""Load: what is measured, and whose writes give way first (§0.6)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.protocol.driver.load import LAG_MS_MAX, QUEUED_BYTES_MAX, QUEUED_MAX, Load, wait_ms
from topics.protocol.driver.throttle import WAIT_MS_MAX

PRIORITIES = (-1000, -1, 0, 249, 250, 749, 750, 1000)


def lagging(lag_ms: float, for_ms: int, *, load: Load | None = None, at_ms: int = 0) -> Load:
    """A load in which each turn waited so long, one after the other."""
    made = load or Load()
    now_ms = float(at_ms)
    while now_ms < at_ms + for_ms:
        now_ms += lag_ms
        made.lagged(lag_ms, int(now_ms))
    return made


def test_one_slow_turn_is_no_pressure() -> None:
    """A lag of 250 ms counts once it has lasted about a second."""
    assert lagging(260, 1).level(260, 0, 0) < 0.3
    assert lagging(260, 3000).level(3120, 0, 0) > 0.48


def test_turns_as_usual_are_no_load() -> None:
    """Some hundred microseconds, for however long."""
    load = Load()
    for now_ms in range(10_000):
        load.lagged(0.3, now_ms)
    assert load.level(10_000, 0, 0) == 0.0


def test_a_lag_that_is_over_is_forgotten() -> None:
    """By time alone: writes that were refused do not keep it up, nor does a pause before it."""
    load = lagging(600, 5000)
    assert load.level(5400, 0, 0) > 0.6
    assert load.level(8400, 0, 0) < 0.1
    again = Load()
    again.lagged(5.0, 0)
    again.lagged(300.0, 3_600_000)
    assert again.level(3_600_000, 0, 0) < 0.3


def test_the_queue_counts_by_number_and_by_bytes() -> None:
    """The larger part of its bound."""
    load = Load()
    assert load.level(0, QUEUED_MAX, 0) == 1.0
    assert load.level(0, 0, QUEUED_BYTES_MAX // 2) == 0.5
    assert load.level(0, QUEUED_MAX // 4, QUEUED_BYTES_MAX // 2) == 0.5


LADDER = [
    # load, and how many of PRIORITIES give way, and how many of those are refused
    (0.0, 0, 0),
    (0.5, 0, 0),
    (0.6, 2, 0),
    (0.65, 4, 2),
    (0.75, 4, 2),
    (0.8, 6, 4),
    (0.9, 8, 6),
    (0.999, 8, 6),
    (1.0, 8, 8),
    (7.0, 8, 8),
]


@pytest.mark.parametrize(("level", "waiting", "refused"), LADDER)
def test_low_priorities_give_way_first(level: float, waiting: int, refused: int) -> None:
    """Rung by rung, and at the bound all. (§0.6, §0.10)"""
    waits = [wait_ms(level, priority) for priority in PRIORITIES]
    assert waits == sorted(waits, reverse=True)
    assert sum(wait > 0 for wait in waits) == waiting
    assert sum(wait > WAIT_MS_MAX for wait in waits) == refused


@given(st.floats(0, 3), st.floats(0, 3), st.integers(-1000, 1000))
def test_a_higher_load_never_waits_less(one: float, other: float, priority: int) -> None:
    """And no wait lies between the longest one and a refusal."""
    low, high = sorted((one, other))
    assert wait_ms(low, priority) <= wait_ms(high, priority)


@given(st.lists(st.tuples(st.floats(0, 5000), st.integers(0, 5000)), max_size=50))
def test_the_mean_lag_is_bounded(turns: list[tuple[float, int]]) -> None:
    """However long a turn waited: the server is never shut for longer than it takes to forget."""
    load, now_ms = Load(), 0
    for lag_ms, passed_ms in turns:
        now_ms += passed_ms
        load.lagged(lag_ms, now_ms)
        assert 0 <= load.lag_ms <= LAG_MS_MAX
