"""Heartbeats of many streams, by one timer.

Owns the times at which streams are due, rounded down to ticks of `TICK_S`, and the one timer of the
loop that rings at the next of them.  Streams that are due in one tick are called together: a timer each
would wake the loop for each, which costs more than the heartbeat.  Knows nothing of what is due.

Invariant: a call comes at most `TICK_S` before its time, and never after it but for the loop's delay.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, TypeAlias

log = logging.getLogger("topics.http")

TICK_S: Final = 0.25

Call: TypeAlias = Callable[[float], None]
"""Gets the loop's time."""


class Beats:
    """Calls that are due at a time of the running loop."""

    def __init__(self) -> None:
        self._ticks: dict[int, dict[Call, None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._next = 0
        """The tick that the timer rings at."""

    def set(self, at_s: float, call: Call) -> int:
        """Call at `at_s` of the loop's time, or up to a tick before; returns the tick."""
        tick = int(at_s / TICK_S)
        due = self._ticks.get(tick)
        if due is None:
            due = self._ticks[tick] = {}
            if self._timer is None or tick < self._next:
                self._arm(tick)
        due[call] = None
        return tick

    def forget(self, tick: int, call: Call) -> None:
        """Do not call; nothing where it was called already."""
        due = self._ticks.get(tick)
        if due is not None:
            due.pop(call, None)
            if not due:
                # The timer rings for nothing, once, and then at the next tick that has any.
                del self._ticks[tick]

    def _arm(self, tick: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next = tick
        self._timer = asyncio.get_running_loop().call_at(tick * TICK_S, self._ring)

    def _ring(self) -> None:
        self._timer = None
        now_s = asyncio.get_running_loop().time()
        now = int(now_s / TICK_S)
        # A loop's clock may ring some microseconds early.
        due_ticks = [tick for tick in self._ticks if tick <= max(now, self._next)]
        for tick in sorted(due_ticks):
            for call in self._ticks.pop(tick):
                try:
                    call(now_s)
                except Exception:
                    log.exception("a heartbeat failed")
        if self._ticks:
            first = min(self._ticks)
            if self._timer is None or first < self._next:
                self._arm(first)
