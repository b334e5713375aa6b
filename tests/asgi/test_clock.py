"""The engine's clock: steady through jumps, corrected late and once."""

from topics.asgi.clock import JUMP_MS, LASTING_MS, Clock


class Hands:
    """Two clocks that a test moves by hand, milliseconds."""

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
    """A clock set a day ahead is not believed until it has lasted a minute."""
    hands = Hands()
    clock = hands.clock()

    hands.wall += 86_400_000
    clock.check()
    hands.pass_ms(LASTING_MS - 1)
    clock.check()

    assert clock.now_ms() == 1_000_000 + LASTING_MS - 1


def test_a_lasting_difference_is_taken_over_once() -> None:
    """After a minute the wall clock is right."""
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
    """Slewing by less than a second is the system's business."""
    hands = Hands()
    clock = hands.clock()

    hands.wall += JUMP_MS
    clock.check()
    hands.pass_ms(10 * LASTING_MS)
    clock.check()

    assert clock.now_ms() == hands.wall - JUMP_MS
