"""Whose turn it is, with a clock of the test's."""

from collections import deque
from collections.abc import Callable

import pytest

from topics.server.transport.budget import Meter
from topics.server.transport.turns import Turns


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


def test_what_turns_ask_for_is_done_behind_the_last_of_them() -> None:
    """Once for all turns of a slice, before the loop looks at its sockets again."""
    machine = Machine(slice_s=10)

    class Asking(Client):
        def take_turn(self) -> None:
            super().take_turn()
            machine.turns.when_given(lambda: machine.done.append(f"after {self._name}"))

    Asking(machine, "a", 1)
    Asking(machine, "b", 1)
    assert machine.pass_once() == ["a", "b", "after a", "after b"]
    assert machine.pass_once() == []


def test_outside_of_turns_it_is_done_soon() -> None:
    """Never before the caller returns."""
    machine = Machine()
    machine.turns.when_given(lambda: machine.done.append("soon"))
    assert machine.done == []
    assert machine.pass_once() == ["soon"]


def test_a_failure_behind_the_turns_keeps_nobody_from_the_next(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What is left of the line has its slice, and so has whatever else was asked for."""
    machine = Machine(slice_s=0.5)

    def broken() -> None:
        raise ValueError("a bug")

    class Asking(Client):
        def take_turn(self) -> None:
            super().take_turn()
            machine.turns.when_given(broken)
            machine.turns.when_given(lambda: machine.done.append("after"))

    Asking(machine, "a", 1)
    Client(machine, "b", 1)
    assert [machine.pass_once() for _ in range(3)] == [["a", "after"], ["b"], []]
    assert "a turn failed" in caplog.text
