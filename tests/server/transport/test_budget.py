"""What clients may use up: shares of a budget, charges in windows, CPU time that leaks away."""

import time

import pytest

from topics.server.transport.budget import Budget, Charges, Meter, Share, Stopwatch, cpu_clock


def test_a_thread_s_time_is_real_time_where_it_may_not_be_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sandbox that forbids the clock."""
    assert cpu_clock() is time.thread_time

    def refuses() -> float:
        raise PermissionError

    monkeypatch.setattr(time, "thread_time", refuses)
    assert cpu_clock() is time.perf_counter


def test_a_meter_forgets_at_its_share() -> None:
    """A tenth of a CPU may be used for ever."""
    meter = Meter(now_s=0.0, most_s=0.002, share=0.1)
    assert meter.is_heavy(0.0), "a new connection has to prove that it is light"
    assert not meter.is_heavy(0.021)

    meter.use(1.0, 0.003)
    assert meter.is_heavy(1.0)
    assert not meter.is_heavy(1.011)
    for i in range(1000):
        meter.use(2 + i / 1000, 0.0001)
    assert not meter.is_heavy(3.0)
    for i in range(1000):
        meter.use(3 + i / 1000, 0.0002)
    assert meter.is_heavy(4.0)


def test_charges_count_in_windows() -> None:
    """So many in a window, which begins with the first."""
    charges = Charges(2, 10)
    assert [charges.charge(now_s) for now_s in (100, 101, 109)] == [True, True, False]
    assert [charges.charge(now_s) for now_s in (110, 111, 112)] == [True, True, False]


def test_a_share_is_bounded_by_itself_and_by_the_others() -> None:
    """What one may hold, and what all may."""
    budget = Budget(100)
    first, second = Share(budget, 60), Share(budget)
    assert first.take(60)
    assert not first.take(1)
    assert second.take(40)
    assert not second.take(1)
    first.give_back(10)
    assert second.take(10)
    first.close()
    second.close()
    assert budget.held_bytes == 0


def test_a_share_cannot_give_back_what_it_does_not_hold() -> None:
    """A budget that is too large by mistake is none."""
    with pytest.raises(AssertionError):
        Share(Budget(100)).give_back(1)


def test_what_is_refused_is_not_held() -> None:
    """A refusal changes neither the share nor the budget, whichever of the two bounds it met."""
    budget = Budget(100)
    bounded, free = Share(budget, 10), Share(budget)
    assert free.take(95)
    assert not bounded.take(11), "more than its own bound"
    assert not bounded.take(6), "more than the others leave"
    assert (bounded.held_bytes, free.held_bytes, budget.held_bytes) == (0, 95, 95)
    assert bounded.take(5)


def test_a_share_that_is_closed_gives_back_what_is_left() -> None:
    """Once: closing it again gives back nothing, and the others keep what they hold."""
    budget = Budget(100)
    first, second = Share(budget), Share(budget)
    assert first.take(70)
    assert second.take(30)
    first.give_back(20)
    first.close()
    first.close()
    assert (first.held_bytes, budget.held_bytes) == (0, 30)
    assert second.take(70)


def test_a_charge_may_count_for_several() -> None:
    """The bound itself is allowed, and one more is not; a window ends at its length exactly."""
    charges = Charges(10, 5)
    assert charges.charge(100, 10)
    assert not charges.charge(104.9)
    assert charges.charge(105, 10)
    assert charges.count == 10


def test_what_leaked_away_is_no_credit() -> None:
    """A connection that rested for an hour is heavy as soon as one that rested for a second."""
    rested, idle = Meter(0.0), Meter(0.0)
    rested.use(1.0, 0.003)
    idle.use(3600.0, 0.003)
    assert rested.used_s == idle.used_s == 0.003
    assert rested.is_heavy(1.0)
    assert idle.is_heavy(3600.0)


def test_what_was_used_at_once_is_forgotten_soon() -> None:
    """A step of a second, in which the process may have been stopped, is no debt for a minute."""
    meter = Meter(0.0, most_s=0.002, share=0.1)
    meter.use(1.0, 60.0)
    assert meter.is_heavy(1.17)
    assert not meter.is_heavy(1.19)


class Clocks:
    """A clock, and one of CPU time that counts how often it is read."""

    def __init__(self) -> None:
        self.now_s = self.cpu_s = 5.0
        self.reads = 0
        self.watch = Stopwatch(lambda: self.now_s, self.read)
        self.reads = 0

    def read(self) -> float:
        self.reads += 1
        return self.cpu_s

    def turn(self, took_s: float, cpu_s: float, *, pause_s: float = 0.0) -> float:
        """A turn behind a pause; what it is charged."""
        self.now_s += pause_s
        begun_s = self.watch.begin()
        self.now_s += took_s
        self.cpu_s += cpu_s
        return self.watch.end(begun_s)


def test_a_short_turn_counts_as_it_took() -> None:
    """Turns of one slice ask the clock of CPU time once."""
    clocks = Clocks()

    took = [clocks.turn(50e-6, 40e-6, pause_s=5e-6) for _ in range(10)]

    assert took == pytest.approx([50e-6] * 10)
    assert clocks.reads == 0


def test_a_turn_that_waited_for_a_cpu_counts_less() -> None:
    """It is charged what the thread used, and at most what it used in the millisecond before with it;
    a turn that worked is charged all of its time."""
    clocks = Clocks()

    assert clocks.turn(20e-3, 60e-6, pause_s=1.0) == pytest.approx(60e-6)
    assert clocks.turn(20e-3, 20e-3, pause_s=1.0) == pytest.approx(20e-3)
    clocks.turn(90e-6, 80e-6, pause_s=1.0)
    assert clocks.turn(20e-3, 60e-6, pause_s=10e-6) == pytest.approx(140e-6)
    assert clocks.reads == 6
