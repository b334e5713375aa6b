"""Turns of fanouts: slices, place in line, and what they are charged."""

from collections.abc import Callable

import pytest

from topics.protocol.state.fanout import Fanout
from topics.server.transport.budget import Stopwatch
from topics.server.transport.turns import Turns
from topics.server.transport.walks import Walks

TURN_S = 0.25


class Walking(Fanout):
    """A fanout of so many streams, each of which takes `each_s`."""

    def __init__(self, machine: "Machine", size: int, each_s: float) -> None:
        self.size = size
        self.left = size
        self.name: str | None = None
        self._machine = machine
        self._each_s = each_s

    def walk(self, clock: Callable[[], float], until_s: float) -> bool:
        while self.left:
            self.left -= 1
            self._machine.now_s += self._each_s
            self._machine.done.append(self.name or self.left)
            if clock() >= until_s:
                break
        return self.left > 0


class Machine:
    """A loop and a clock by hand."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.done: list[object] = []
        self.due: list[Callable[[], None]] = []
        self.turns = Turns(self.due.append, self.clock, TURN_S)
        self.walks = Walks(
            self.turns, Stopwatch(self.clock, self.clock), self.clock, self.clock, TURN_S
        )

    def clock(self) -> float:
        return self.now_s

    def iterate(self) -> None:
        due, self.due = list(self.due), self.due
        self.due.clear()
        for call in due:
            call()


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_a_walk_is_a_turn(machine: Machine) -> None:
    """To ask runs nothing; a walk that is over has no other turn."""
    fanout = Walking(machine, 2, 0.01)
    machine.walks.gather(fanout)()
    assert machine.done == []
    machine.iterate()
    assert machine.done == [1, 0]
    assert machine.due == []


def test_a_long_walk_has_several(machine: Machine) -> None:
    """The loop looks at its sockets between them."""
    fanout = Walking(machine, 5, 0.1)
    machine.walks.gather(fanout)()
    counts = []
    while machine.due:
        machine.iterate()
        counts.append(fanout.left)
    assert counts == [2, 0]


def test_a_walk_is_charged_as_one_of_its_streams(machine: Machine) -> None:
    """What a stream is charged does not depend on who else watches: two walks took as long, and the
    one of many streams goes first, since each of them had little."""
    few, many = Walking(machine, 1, 0.2), Walking(machine, 400, 0.0005)
    asks = [machine.walks.gather(many), machine.walks.gather(few)]
    machine.now_s += 1.0  # whoever is new is heavy for a moment
    for ask in asks:
        ask()
        machine.iterate()
    few.left = many.left = 1
    machine.done.clear()

    for ask in reversed(asks):
        ask()
    few.name, many.name = "few", "many"
    while machine.due:
        machine.iterate()

    assert machine.done == ["many", "few"]
