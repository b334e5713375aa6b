"""The time in which a loop ran: what of an interval counts for a deadline on the host's own work."""

import pytest

from topics.protocol.driver.loop_time import LoopTime, tick_ms


@pytest.mark.parametrize(("deadline_ms", "tick"), [(30_000, 1000), (1000, 125), (4, 1), (0, 1)])
def test_a_deadline_is_looked_at_several_times(deadline_ms: int, tick: int) -> None:
    """One long interval in which nothing ran is at most an eighth of it, and at most a second."""
    assert tick_ms(deadline_ms) == tick


def test_time_between_two_looks_counts_up_to_a_tick() -> None:
    time = LoopTime(100)
    begun_ms = time.look(5_000)

    assert time.next_ms == 5_100
    assert time.look(5_060) - begun_ms == 60
    assert time.look(5_160) - begun_ms == 160
    assert time.look(99_000) - begun_ms == 260


def test_a_loop_that_did_not_run_says_so_once() -> None:
    """A loop that is late every time does hear its reports in between."""
    time = LoopTime(100)
    time.look(0)

    stills = []
    for now_ms in (150, 1_000, 2_000, 3_000, 3_100):
        time.look(now_ms)
        stills.append(time.was_still)

    assert stills == [False, True, False, True, False]
