"""Heartbeats by one timer: due in time, together, and forgotten when their stream ends (§7.6)."""

import asyncio
import heapq
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest

from topics.server.http import beats
from topics.server.http.beats import TICK_S, Beats


class Handle:
    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Loop:
    """A loop whose time a test moves.

    Attributes:
        timers: How many were made.
    """

    def __init__(self) -> None:
        self.now_s = 100.0
        self.timers = 0
        self._order = count()
        self._due: list[tuple[float, int, Callable[[], None], Handle]] = []

    def time(self) -> float:
        return self.now_s

    def call_at(self, at_s: float, call: Callable[[], None]) -> Handle:
        self.timers += 1
        handle = Handle()
        heapq.heappush(self._due, (at_s, next(self._order), call, handle))
        return handle

    @property
    def waiting(self) -> int:
        return sum(not handle.is_cancelled for *_, handle in self._due)

    def pass_to(self, now_s: float) -> None:
        while self._due and self._due[0][0] <= now_s:
            at_s, _, call, handle = heapq.heappop(self._due)
            self.now_s = max(self.now_s, at_s)
            if not handle.is_cancelled:
                call()
        self.now_s = now_s


class Desk:
    """A wheel on a loop, and who was called when."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.beats = Beats()
        self.rung: list[tuple[str, float]] = []
        self._calls: dict[str, Any] = {}

    def set(self, name: str, at_s: float) -> int:
        call = self._calls.setdefault(name, lambda now_s: self.rung.append((name, now_s)))
        return self.beats.set(at_s, call)

    def forget(self, name: str, tick: int) -> None:
        self.beats.forget(tick, self._calls[name])


@contextmanager
def patched(loop: Loop) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beats.asyncio, "get_running_loop", lambda: loop)
        yield


@pytest.fixture
def desk() -> Iterator[Desk]:
    loop = Loop()
    with patched(loop):
        yield Desk(loop)


def test_a_beat_comes_within_a_tick_before_its_time(desk: Desk) -> None:
    """Never after it: a client may count on the interval that it asked for."""
    for n in range(40):
        desk.set(f"s{n}", 101 + n * 0.09)

    desk.loop.pass_to(110)

    asked = {f"s{n}": 101 + n * 0.09 for n in range(40)}
    assert {name for name, _ in desk.rung} == asked.keys()
    for name, at_s in desk.rung:
        assert asked[name] - TICK_S < at_s <= asked[name]


def test_those_of_a_tick_share_a_timer(desk: Desk) -> None:
    """A thousand streams that are due together wake the loop once."""
    for n in range(1000):
        desk.set(f"s{n}", 101.1)

    desk.loop.pass_to(102)

    assert len(desk.rung) == 1000
    assert desk.loop.timers == 1


def test_an_earlier_beat_moves_the_timer(desk: Desk) -> None:
    """And there is never more than one."""
    desk.set("late", 120)
    desk.set("early", 101)
    assert desk.loop.waiting == 1

    desk.loop.pass_to(102)
    assert [name for name, _ in desk.rung] == ["early"]
    assert desk.loop.waiting == 1
    desk.loop.pass_to(121)

    assert [name for name, _ in desk.rung] == ["early", "late"]
    assert desk.loop.waiting == 0


def test_a_beat_that_is_forgotten_does_not_come(desk: Desk) -> None:
    """Nor one that is forgotten twice, or after it came; others of its tick do."""
    tick, other = desk.set("gone", 101), desk.set("there", 101)
    assert tick == other
    desk.forget("gone", tick)
    desk.forget("gone", tick)

    desk.loop.pass_to(102)
    desk.forget("there", other)

    assert [name for name, _ in desk.rung] == ["there"]


def test_a_beat_may_ask_for_the_next(desk: Desk) -> None:
    """From within its call, as streams do."""

    def again(now_s: float) -> None:
        desk.rung.append(("again", now_s))
        desk.beats.set(now_s + 1, again)

    desk.beats.set(101, again)
    desk.loop.pass_to(105.1)

    assert [at_s for _, at_s in desk.rung] == [101, 102, 103, 104, 105]


def test_a_beat_that_fails_costs_no_other(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, and the wheel turns on."""

    def fails(now_s: float) -> None:
        raise ZeroDivisionError

    desk.beats.set(101, fails)
    desk.set("next", 101)
    desk.set("later", 102)

    desk.loop.pass_to(103)

    assert [name for name, _ in desk.rung] == ["next", "later"]
    assert "a heartbeat failed" in caplog.text


def test_it_runs_on_a_loop() -> None:
    """The real one, whose clock may ring early."""

    async def story() -> list[float]:
        wheel, loop = Beats(), asyncio.get_running_loop()
        rung = loop.create_future()
        at_s = loop.time() + 2 * TICK_S
        wheel.set(at_s, rung.set_result)
        return [at_s, await rung]

    at_s, rung_s = asyncio.run(story())
    assert rung_s > at_s - TICK_S - 0.001
