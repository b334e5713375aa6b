"""The engine's clock: steady through jumps, corrected late and once."""

import time

import pytest

from topics.server.runtime.clock import JUMP_MS, LASTING_MS, SLOWER_BY, Clock, steady_clock


class Hands:
    """Two clocks that a test moves, milliseconds."""

    def __init__(self) -> None:
        self.wall = 1_000_000
        self.boot = 5_000

    def clock(self) -> Clock:
        return Clock(lambda: self.wall, lambda: self.boot)

    def pass_ms(self, ms: int) -> None:
        self.wall += ms
        self.boot += ms


def test_time_runs_with_the_steady_clock() -> None:
    """Between corrections only time that really passed counts. (§0.10, `ttl_ms`)"""
    hands = Hands()
    clock = hands.clock()

    hands.pass_ms(250)

    assert clock.now_ms() == 1_000_250


def test_a_jump_of_the_wall_clock_expires_nothing_at_once() -> None:
    """A clock set a day ahead is not followed until it has lasted a minute."""
    hands = Hands()
    clock = hands.clock()

    hands.wall += 86_400_000
    clock.check()
    hands.pass_ms(LASTING_MS - 1)
    clock.check()

    assert clock.now_ms() == 1_000_000 + LASTING_MS - 1


def test_a_lasting_difference_is_taken_over_once() -> None:
    """After a minute the clock follows the wall clock."""
    hands = Hands()
    clock = hands.clock()

    hands.wall += 86_400_000
    clock.check()
    hands.pass_ms(LASTING_MS)
    clock.check()

    assert clock.now_ms() == hands.wall
    clock.check()
    assert clock.now_ms() == hands.wall


def test_a_jump_that_is_taken_back_is_forgotten() -> None:
    """Two short jumps do not add up to a lasting one."""
    hands = Hands()
    clock = hands.clock()

    hands.wall += 10_000
    clock.check()
    hands.wall -= 10_000
    clock.check()
    hands.wall += 10_000
    hands.pass_ms(LASTING_MS)
    clock.check()

    assert clock.now_ms() == hands.wall - 10_000


def test_a_small_difference_is_left_alone() -> None:
    """Differences below a second are left to the operating system."""
    hands = Hands()
    clock = hands.clock()

    hands.wall += JUMP_MS
    clock.check()
    hands.pass_ms(10 * LASTING_MS)
    clock.check()

    assert clock.now_ms() == hands.wall - JUMP_MS


DAY_MS = 86_400_000


def test_a_clock_that_was_set_back_goes_on_slower() -> None:
    """It neither goes back nor stands still: a lease of 30 s would last a day longer. (§10.2)"""
    hands = Hands()
    clock = hands.clock()
    hands.wall -= DAY_MS
    clock.check()
    hands.pass_ms(LASTING_MS)
    before = clock.now_ms()

    clock.check()

    assert clock.now_ms() == before == hands.wall + DAY_MS
    hands.pass_ms(30_000)
    assert clock.now_ms() == before + 30_000 - 30_000 // SLOWER_BY
    hands.pass_ms(DAY_MS * SLOWER_BY - 30_001)
    clock.check()
    assert clock.now_ms() == hands.wall + 1
    hands.pass_ms(1)
    assert clock.now_ms() == hands.wall
    hands.pass_ms(DAY_MS)
    clock.check()
    assert clock.now_ms() == hands.wall


def test_a_clock_that_is_put_right_again_was_never_wrong() -> None:
    """Set back and then forward, each for long: time advanced throughout."""
    hands = Hands()
    clock = hands.clock()
    seen = [clock.now_ms()]

    def check() -> None:
        seen.append(clock.now_ms())
        clock.check()
        seen.append(clock.now_ms())

    for by in (-DAY_MS, DAY_MS, -DAY_MS // 2, DAY_MS // 2 + 5000):
        hands.wall += by
        for _ in range(3):
            check()
            hands.pass_ms(LASTING_MS)
    check()

    assert seen == sorted(seen)
    assert clock.now_ms() == hands.wall


def test_a_start_goes_on_from_the_newest_time_in_the_log() -> None:
    """The wall clock was set back while the server was down. (§0.10, `ttl_ms`; §10.2)"""
    hands = Hands()
    clock = hands.clock()

    clock.not_before(hands.wall + 100_000)

    assert clock.now_ms() == hands.wall + 100_000
    hands.pass_ms(1000)
    assert clock.now_ms() == hands.wall + 100_000 - 1000 // SLOWER_BY
    hands.pass_ms(100_000 * SLOWER_BY)
    assert clock.now_ms() == hands.wall


def test_a_start_behind_the_log_is_nothing_special() -> None:
    """A log whose newest time is in the past changes nothing."""
    hands = Hands()
    clock = hands.clock()

    clock.not_before(hands.wall - 5)

    assert clock.now_ms() == hands.wall


def test_a_clock_that_takes_the_course_of_another_reads_the_same() -> None:
    """So that records expire in every process at once; also while the clock runs slower."""
    hands = Hands()
    clock = hands.clock()
    clock.not_before(clock.now_ms() + 60_000)
    hands.wall -= 5_000
    other = hands.clock()
    assert other.now_ms() != clock.now_ms()

    other.take_course(clock.course)

    for ms in (0, 250, 40_000, 4_000_000):
        hands.pass_ms(ms)
        assert other.now_ms() == clock.now_ms()


def test_a_system_without_the_clock_has_the_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sandbox may forbid `CLOCK_BOOTTIME`, and other systems lack it."""
    assert steady_clock() == time.CLOCK_BOOTTIME

    def refuses(_: int) -> int:
        raise PermissionError

    with monkeypatch.context() as patch:
        patch.setattr(time, "clock_gettime_ns", refuses)
        assert steady_clock() == time.CLOCK_MONOTONIC
    monkeypatch.delattr(time, "CLOCK_BOOTTIME")
    assert steady_clock() == time.CLOCK_MONOTONIC
