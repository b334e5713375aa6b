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


def known(machine: Machine) -> Meter:
    """The meter of a connection that had a turn before."""
    meter = Meter(0.0)
    machine.turns.add(One(machine, "known"), meter)
    machine.pass_once()
    return meter


def test_the_one_that_was_served_least_is_first() -> None:
    """A connection that is just so heavy does not wait behind all that are much heavier."""
    machine = Machine()
    meters = {name: known(machine) for name in ("much", "little")}
    meters["much"].use(1.0, 0.009)
    meters["little"].use(1.0, 0.001)
    for name, meter in meters.items():
        machine.turns.add(One(machine, name), meter)

    assert [machine.pass_once() for _ in range(2)] == [["little"], ["much"]]


class Busy:
    """A connection that always has more to do, for `took_s` at a time."""

    def __init__(self, machine: Machine, name: str, took_s: float) -> None:
        self._machine = machine
        self._name = name
        self._took_s = took_s
        self.meter = Meter(machine.now_s)
        self.is_over = False
        machine.turns.add(self, self.meter)

    def take_turn(self) -> None:
        self._machine.now_s += self._took_s
        self._machine.done.append(self._name)
        self.meter.use(self._machine.now_s, self._took_s)
        if not self.is_over:
            self._machine.turns.add(self, self.meter)


def test_whoever_takes_longer_has_fewer_turns() -> None:
    """CPU time is shared evenly, not turns."""
    machine = Machine(slice_s=0.0)
    Busy(machine, "short", 0.001)
    Busy(machine, "long", 0.003)

    turns = [name for _ in range(400) for name in machine.pass_once()]

    assert turns.count("short") == pytest.approx(300, abs=5)


def test_a_client_that_uses_its_part_waits_for_a_turn_or_two() -> None:
    """It used more CPU than all others did, for hours; others connect and connect again.  As long as
    it asks for less than an even part, only those that came in the same moment are before it."""
    machine = Machine(slice_s=0.0)
    steady = Meter(0.0)
    steady.use(0.0, 3600)
    attackers = [Busy(machine, "attacker", 0.001) for _ in range(4)]

    for i in range(200):
        for attacker in attackers[:1]:
            attacker.is_over = True
            attackers = [*attackers[1:], Busy(machine, "attacker", 0.001)]
        machine.turns.add(One(machine, "steady"), steady)
        seen = 0
        while "steady" not in machine.pass_once():
            seen += 1
        steady.use(machine.now_s, 0.001)
        # What it used before the others came is forgotten after the first turns.
        assert seen <= 2 or i < 20
        for _ in range(8):
            machine.pass_once()


def test_nothing_is_saved_up() -> None:
    """A connection that did nothing for long has no claim to all of the CPU now."""
    machine = Machine(slice_s=0.0)
    Busy(machine, "busy", 0.001)
    for _ in range(1000):
        machine.pass_once()
    Busy(machine, "late", 0.001)

    turns = [name for _ in range(100) for name in machine.pass_once()]

    assert turns.count("late") == pytest.approx(50, abs=2)


@pytest.mark.parametrize("is_light", [False, True])
def test_a_crowd_of_new_connections_stands_behind_those_that_were_there(is_light: bool) -> None:
    """However many they are, and however many were served; a new one does not wait for ever."""
    machine = Machine(slice_s=0.0)
    steady = known(machine)
    for _ in range(50):
        machine.turns.add(One(machine, "new"), Meter(0.0), is_light=is_light)
    for _ in range(10):
        machine.turns.add(One(machine, "steady"), steady, is_light=is_light)
        assert machine.pass_once() == ["steady"]
        steady.use(0.0, 0.0002)
        assert machine.pass_once() == ["new"]


def test_what_was_used_while_none_waited_is_forgotten() -> None:
    """Nobody was kept waiting by it: others that come later are not before the one that used it."""
    machine = Machine(slice_s=10)
    first, later = Meter(0.0), Meter(0.0)
    for _ in range(5):
        machine.turns.add(One(machine, "first"), first)
        first.use(0.0, 0.001)
        machine.pass_once()
    machine.turns.add(One(machine, "first"), first)
    machine.turns.add(One(machine, "later"), later)

    assert machine.pass_once() == ["first", "later"]


def test_what_was_used_without_a_turn_counts() -> None:
    """A client that was served at once stands behind those that waited meanwhile."""
    machine = Machine(slice_s=0.0)
    direct, waiting = known(machine), known(machine)
    direct.use(0.0, 0.005)
    machine.turns.skipped(0.005, direct)
    machine.turns.add(One(machine, "direct"), direct)
    machine.turns.add(One(machine, "waiting"), waiting)

    machine.pass_once()  # what was written leaves first
    assert machine.pass_once() + machine.pass_once() == ["waiting", "direct"]


class One:
    """Has one thing to do."""

    def __init__(self, machine: Machine, name: str) -> None:
        self._machine = machine
        self._name = name

    def take_turn(self) -> None:
        self._machine.now_s += 1
        self._machine.done.append(self._name)


@pytest.mark.parametrize("is_light", [False, True], ids=["heavy", "light"])
def test_who_was_served_without_a_turn_gets_its_answer_first(*, is_light: bool) -> None:
    """What was written leaves at the end of a pass: those with much to do let one go by, and so does a
    light one that sends much at once."""
    machine = Machine()
    machine.turns.add(One(machine, "much"), is_light=is_light, is_long=True)
    machine.turns.skipped(0.1)
    assert machine.pass_once() == []
    assert machine.pass_once() == ["much"]


def test_those_with_little_to_do_go_on_at_once() -> None:
    """A crowd with small requests costs no pass over the sockets more, once those with much to do
    have left the line."""
    machine = Machine(slice_s=10)
    machine.turns.add(One(machine, "much"), is_light=True, is_long=True)
    assert machine.pass_once() == ["much"]

    machine.turns.add(One(machine, "little"), is_light=True)
    machine.turns.skipped(0.1)
    assert machine.pass_once() == ["little"]


def test_answers_that_leave_first_do_not_hold_up_the_line() -> None:
    """Answers that are served in the passes between use up a slice, and then wait in line as well."""
    machine = Machine(slice_s=0.25)
    machine.turns.add(One(machine, "much"), is_light=True, is_long=True)
    passes = []
    while not machine.done:
        if machine.turns.may_skip:
            machine.turns.skipped(0.1)
        passes.append(machine.pass_once())
    assert passes == [[], [], [], ["much"]]


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
