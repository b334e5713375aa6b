"""A deadline on what this process waits for from another part of itself, on the event loop.

Counts the time in which the loop runs (`driver.loop_time`): a process that was stopped for an hour has
waited for no more than a tick, and hears what was reported meanwhile first.
"""

import asyncio
from collections.abc import Callable

from topics.protocol.driver.loop_time import LoopTime, tick_ms


class Patience:
    """Calls `over` once the loop has run for so long; `cancel` it before.

    Args:
        seconds: How long, at least.
    """

    __slots__ = ("_left_ms", "_loop", "_over", "_tick_s", "_time", "_timer")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, seconds: float, over: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._over = over
        self._left_ms = int(seconds * 1000)
        tick = tick_ms(self._left_ms)
        self._tick_s = tick / 1000
        self._time = LoopTime(tick)
        self._look()
        self._timer = loop.call_later(self._tick_s, self._ring)

    def _look(self) -> int:
        return self._time.look(int(self._loop.time() * 1000))

    def _ring(self) -> None:
        before_ms = self._time.ms
        self._left_ms -= self._look() - before_ms
        if self._left_ms <= 0 and not self._time.was_still:
            self._over()
        else:
            self._timer = self._loop.call_later(self._tick_s, self._ring)

    def cancel(self) -> None:
        self._timer.cancel()
