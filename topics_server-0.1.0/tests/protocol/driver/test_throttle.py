"""The throttle: the pace at which writes are let in, from what sealing was measured to write (§0.6)."""

import pytest

from topics.protocol.driver.throttle import SOFT, Throttle

MB = 1_000_000


def test_nothing_waits_below_half_of_the_bound() -> None:
    throttle = Throttle()
    assert [throttle.wait_ms(100 * MB, 0, SOFT - 0.01) for _ in range(3)] == [0, 0, 0]


def test_writers_are_let_in_at_the_pace_at_which_sealing_takes_away() -> None:
    """At three quarters of the bound as much comes in as goes out; nearer to it less, so that the
    log comes to rest below it."""
    throttle = Throttle()
    for _ in range(60):
        throttle.drained(20 * MB, 1000)  # 20,000 bytes a millisecond

    waits = [throttle.wait_ms(2 * MB, 0, 0.75) for _ in range(3)]
    assert waits == pytest.approx([0, 100, 200], rel=0.01)
    nearer = Throttle()
    for _ in range(60):
        nearer.drained(20 * MB, 1000)
    assert [nearer.wait_ms(2 * MB, 0, 0.95) for _ in range(2)][1] > 400


def test_a_small_seal_says_little_about_the_pace() -> None:
    """What a file costs is not what its bytes cost."""
    throttle = Throttle()
    for _ in range(20):
        throttle.drained(1000, 50)
    throttle.wait_ms(MB, 0, 0.75)
    assert throttle.wait_ms(MB, 0, 0.75) < 25


def test_the_line_is_forgotten_when_pressure_is_gone() -> None:
    throttle = Throttle()
    throttle.wait_ms(30 * MB, 0, 0.75)
    assert throttle.foresee_ms(0, 0.75) > 0
    assert throttle.wait_ms(MB, 0, 0.1) == 0
    assert throttle.foresee_ms(0, 0.75) == 0
