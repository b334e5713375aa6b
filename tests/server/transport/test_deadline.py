"""One timer of a connection, on a loop whose clock the test moves."""

from typing import Any

from topics.server.transport.deadline import Deadline

from .http2_rig import Loop


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


def test_putting_it_off_leaves_the_loop_s_timer_alone() -> None:
    """A deadline moves with every byte, so that costs an assignment and no timer."""
    loop, deadline, rung = timer()
    made: list[float] = []
    call_at = loop.call_at
    loop.call_at = lambda at_s, *more: (made.append(at_s), call_at(at_s, *more))[1]  # type: ignore
    start_s = loop.now_s
    for i in range(1000):
        deadline.set(start_s + 10 + i / 1000)
    assert made == [start_s + 10]
    loop.advance(20)
    assert rung == made[1:] == [start_s + 10.999]


def test_a_clock_that_is_early_does_not_put_it_off() -> None:
    """A loop may ring some microseconds before the time that it was asked for."""
    loop, deadline, rung = timer()
    at_s = loop.now_s + 10
    calls: list[Any] = []
    loop.call_at = lambda _at_s, call: calls.append(call)  # type: ignore
    deadline.set(at_s)
    loop.now_s = at_s - 1e-6
    calls.pop()()
    assert rung == [at_s - 1e-6]
    assert calls == []


def test_it_rings_once_and_may_be_set_from_within() -> None:
    """What is due may set the next deadline."""
    loop: Any = Loop()
    rung: list[float] = []

    def on_due() -> None:
        rung.append(loop.now_s)
        if len(rung) < 3:
            deadline.set(loop.now_s + 5)

    deadline = Deadline(loop, on_due)
    start_s = loop.now_s
    deadline.set(start_s + 5)
    loop.advance(100)
    assert rung == [start_s + 5, start_s + 10, start_s + 15]


def test_a_deadline_that_is_closed_keeps_nothing_alive() -> None:
    """Neither a timer in the loop nor the connection that it would call."""
    loop, deadline, rung = timer()
    deadline.set(loop.now_s + 10)
    (armed,) = loop._timers
    deadline.close()
    assert armed.is_cancelled
    deadline.set(loop.now_s + 1)
    loop.advance(20)
    assert rung == []


def test_a_process_that_was_stopped_reads_before_it_calls_a_client_late() -> None:
    """The timer rings long after its time: what the client sent meanwhile has yet to be read, and puts
    the deadline off; a client that sent nothing is late a second after."""
    loop, deadline, rung = timer()
    start_s = loop.now_s
    deadline.set(start_s + 10)
    loop.now_s += 3600
    loop.advance(0.5)
    assert rung == []
    deadline.set(loop.now_s + 10)
    loop.advance(9)
    assert rung == []
    loop.now_s += 3600
    loop.advance(2)
    assert rung == [start_s + 3600 + 9.5 + 3600 + 1]


def test_a_loop_that_is_always_late_ends_its_connections_all_the_same() -> None:
    """It is put off once."""
    loop, deadline, rung = timer()
    deadline.set(loop.now_s + 10)
    for _ in range(2):
        loop.now_s += 3600
        loop.advance(0)
    assert len(rung) == 1
