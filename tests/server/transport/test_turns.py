"""Whose turn it is: turns, meters, budgets and the timer, with a clock of the test's."""

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from topics.server.transport.budget import Budget, Charges, Meter, Share
from topics.server.transport.deadline import Deadline
from topics.server.transport.turns import Turns

from .http2_rig import Loop


class Machine:
    """A loop, and a CPU that only does what the test says."""

    def __init__(self, slice_s: float = 1.0) -> None:
        self.now_s = 0.0
        self.soon: deque[Callable[[], None]] = deque()
        self.turns = Turns(self.soon.append, lambda: self.now_s, slice_s)
        self.done: list[str] = []

    def pass_once(self) -> list[str]:
        """What was done in one pass of the loop."""
        self.done = []
        for _ in range(len(self.soon)):
            self.soon.popleft()()
        return self.done


class Client:
    """Has so much to do, and does one second's worth in a turn."""

    def __init__(self, machine: Machine, name: str, left: int, *, is_light: bool = False) -> None:
        self._machine = machine
        self._name = name
        self._left = left
        machine.turns.add(self, is_light=is_light)

    def take_turn(self) -> None:
        self._machine.now_s += 1
        self._machine.done.append(self._name)
        self._left -= 1
        if self._left:
            self._machine.turns.add(self)


def test_turns_are_given_one_after_the_other() -> None:
    """However much one has to do, the next is the others', and the loop's."""
    machine = Machine()
    Client(machine, "a", 3)
    Client(machine, "b", 1)
    passes = [machine.pass_once() for _ in range(5)]
    assert passes == [["a"], ["b"], ["a"], ["a"], []]


def test_a_slice_holds_many_short_turns() -> None:
    """The loop looks at its sockets after each slice, not after each turn."""
    machine = Machine(slice_s=2.5)
    for name in "abcd":
        Client(machine, name, 1)
    assert machine.pass_once() == ["a", "b", "c"]
    assert machine.pass_once() == ["d"]


def test_light_clients_are_before_heavy_ones() -> None:
    """And one heavy one has a turn in each pass, so that none waits for ever."""
    machine = Machine()
    Client(machine, "heavy", 2)
    for name in ("light 1", "light 2"):
        Client(machine, name, 1, is_light=True)
    assert machine.pass_once() == ["light 1", "heavy"]
    assert machine.pass_once() == ["light 2", "heavy"]


def test_the_lighter_of_two_heavy_ones_is_first() -> None:
    """One that is just so heavy does not wait behind all that are much heavier; who waits is not
    passed for ever, as what was used leaks away meanwhile."""
    machine = Machine()
    meters = {name: Meter(0.0) for name in ("much", "little", "later")}
    meters["much"].use(1.0, 0.5)
    meters["little"].use(1.0, 0.1)
    meters["later"].use(9.0, 0.1)
    assert all(each.is_heavy(1.0) for each in meters.values())
    for name, meter in meters.items():
        machine.turns.add(One(machine, name), debt_s=meter.debt_s)

    assert [machine.pass_once() for _ in range(3)] == [["little"], ["much"], ["later"]]


class One:
    """Has one thing to do."""

    def __init__(self, machine: Machine, name: str) -> None:
        self._machine = machine
        self._name = name

    def take_turn(self) -> None:
        self._machine.now_s += 1
        self._machine.done.append(self._name)


def test_who_was_served_without_a_turn_gets_its_answer_first() -> None:
    """What was written leaves at the end of a pass: the heavy ones let one go by."""
    machine = Machine()
    Client(machine, "heavy", 1)
    machine.turns.skipped(0.1)
    assert machine.pass_once() == []
    assert machine.pass_once() == ["heavy"]


def test_a_crowd_of_light_clients_waits_in_line() -> None:
    """Together they may use one slice without a turn; a pass later, again."""
    machine = Machine()
    assert machine.turns.may_skip
    machine.turns.skipped(1.1)
    assert not machine.turns.may_skip
    Client(machine, "light", 1, is_light=True)
    machine.pass_once()
    assert machine.turns.may_skip


def test_a_turn_that_fails_costs_the_others_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """It is in the log."""
    machine = Machine(slice_s=10)

    class Broken:
        def take_turn(self) -> None:
            raise ValueError("a bug")

    machine.turns.add(Broken())
    Client(machine, "a", 1)
    assert machine.pass_once() == ["a"]
    assert "a turn failed" in caplog.text


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


def timer() -> tuple[Loop, Deadline, list[float]]:
    loop: Any = Loop()
    rung: list[float] = []
    return loop, Deadline(loop, lambda: rung.append(loop.now_s)), rung


def test_a_deadline_may_be_put_off_and_brought_forward() -> None:
    """It rings once, at the time that was set last."""
    loop, deadline, rung = timer()
    start_s = loop.now_s
    deadline.set(start_s + 10)
    loop.advance(9)
    deadline.set(start_s + 30)
    loop.advance(20)
    assert rung == []
    deadline.set(start_s + 29.5)
    loop.advance(10)
    assert rung == [start_s + 29.5]


def test_a_deadline_that_is_cleared_does_not_ring() -> None:
    """And may be set again."""
    loop, deadline, rung = timer()
    deadline.set(loop.now_s + 10)
    deadline.clear()
    loop.advance(20)
    assert rung == []
    deadline.set(loop.now_s + 1)
    deadline.close()
    loop.advance(20)
    assert rung == []
