"""When the loop stays awake for the next request, with a clock of the test's."""

from collections import deque
from collections.abc import Callable

import pytest

from topics.server.transport.busy_poll import BusyPoll

WINDOW_S = 0.2


class Machine:
    """A loop that sleeps where nothing is due, and clients that take as long as the test says."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self.now_s = 10.0
        self.soon: deque[Callable[[], None]] = deque()
        self.poll = BusyPoll(self.soon.append, lambda: self.now_s, window_s)
        self.polled_s = 0.0

    def wait(self, seconds: float) -> bool:
        """Whether the loop was awake all the time; a pass takes a hundredth of a second."""
        until_s = self.now_s + seconds
        while self.soon and self.now_s < until_s - 1e-9:
            for _ in range(len(self.soon)):
                self.soon.popleft()()
            self.now_s += 0.01
            self.polled_s += 0.01
        was_awake = bool(self.soon)
        self.now_s = until_s
        return was_awake

    def request(self, who: object, *, after_s: float, takes_s: float = 0.05) -> bool:
        """A request and its answer; whether the loop was awake when it came."""
        was_awake = self.wait(after_s)
        self.poll.asked(who)
        self.wait(takes_s)
        self.poll.answered(who)
        return was_awake


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_a_client_that_asks_again_at_once_finds_the_loop_awake(machine: Machine) -> None:
    """From its third request on: the second showed that it is prompt."""
    found = [machine.request("a", after_s=0.1) for _ in range(5)]
    assert found == [False, False, True, True, True]


def test_a_client_that_takes_its_time_is_not_waited_for(machine: Machine) -> None:
    """An idle server sleeps, and so does one that is asked now and then."""
    assert not any(machine.request("a", after_s=0.3) for _ in range(5))
    assert machine.polled_s == 0


def test_a_wrong_guess_costs_one_window(machine: Machine) -> None:
    """After it the loop sleeps again, until the client was prompt again."""
    for _ in range(3):
        machine.request("a", after_s=0.1)
    machine.polled_s = 0.0
    assert not machine.request("a", after_s=60)
    assert machine.polled_s == pytest.approx(WINDOW_S, abs=0.03)
    assert not machine.request("a", after_s=60)
    assert machine.polled_s == pytest.approx(WINDOW_S, abs=0.03)
    assert [machine.request("a", after_s=0.1) for _ in range(2)] == [False, True]


def test_two_clients_are_a_crowd(machine: Machine) -> None:
    """Where several ask in turn, the next request is somebody's work already."""
    found = [machine.request(who, after_s=0.05) for who in "ababab"]
    assert not any(found)


def test_a_request_of_another_ends_the_waiting(machine: Machine) -> None:
    for _ in range(3):
        machine.request("a", after_s=0.1)
    machine.poll.asked("b")
    machine.wait(0.01)
    assert not machine.wait(0.05)


def test_an_answer_that_waits_is_waited_for_asleep(machine: Machine) -> None:
    """A long poll, a claim in its window or a sync may take long: the loop polls behind the answer, not
    before it."""
    for _ in range(3):
        machine.request("a", after_s=0.1)
    machine.wait(0.1)
    machine.poll.asked("a")
    machine.wait(0.01)
    assert not machine.wait(0.05)
    machine.poll.answered("a")
    assert machine.wait(0.1)


def test_threads_have_the_interpreter(machine: Machine) -> None:
    """Each pass of the loop takes the interpreter from a thread that syncs or reads."""
    for _ in range(3):
        machine.request("a", after_s=0.1)
    machine.poll.may_poll = lambda: False
    machine.wait(0.01)
    assert not machine.wait(0.05)
    assert not machine.request("a", after_s=0.05)
    machine.poll.may_poll = lambda: True
    machine.request("a", after_s=0.1)
    assert machine.request("a", after_s=0.1)


def test_nobody_waits_for_a_connection_that_has_ended(machine: Machine) -> None:
    for _ in range(3):
        machine.request("a", after_s=0.1)
    machine.poll.gone("b")
    assert machine.wait(0.05)
    machine.poll.gone("a")
    machine.wait(0.01)
    assert not machine.wait(0.05)


def test_a_stream_of_another_that_ends_changes_nothing(machine: Machine) -> None:
    """The end of a request that began before those of the lone client."""
    machine.poll.asked("stream")
    found = [machine.request("a", after_s=0.1) for _ in range(2)]
    machine.poll.answered("stream")
    assert [*found, machine.request("a", after_s=0.1)] == [False, False, True]


def test_without_a_window_the_loop_always_sleeps() -> None:
    machine = Machine(window_s=0.0)
    assert not any(machine.request("a", after_s=0.0) for _ in range(5))
    assert machine.polled_s == 0
