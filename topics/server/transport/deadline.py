"""One timer of a connection.

Owns a time that moves often and is seldom reached: putting it off costs an assignment, and the
loop's timer is moved only when it rings too early or is needed sooner.  Knows nothing of what is
due.

A timer that rings much too late shows that this process did not run (SIGSTOP, a suspended machine).
What the client sent meanwhile, or took, is known to the kernel and not here, so the loop looks at its
sockets before a client is said to be late.
"""

import asyncio
from collections.abc import Callable
from typing import Final

LATE_S: Final = 1.0
"""A loop that is busy rings a tenth of this late."""
GRACE_S: Final = 1.0
"""For what is in the sockets to be read, and what waits to be sent."""


class Deadline:
    """Calls `on_due` once the time that was set last has come; nothing while none is set."""

    __slots__ = ("_at_s", "_is_put_off", "_loop", "_on_due", "_timer", "_timer_s")

    def __init__(self, loop: asyncio.AbstractEventLoop, on_due: Callable[[], None]) -> None:
        self._loop = loop
        self._on_due = on_due
        self._at_s: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = 0.0
        self._is_put_off = False
        """It has waited `GRACE_S` for the sockets already."""

    def set(self, at_s: float) -> None:
        """Ring at `at_s` of the loop's time, and not before."""
        self._at_s = at_s
        self._is_put_off = False
        if self._timer is None or at_s < self._timer_s:
            self._arm(at_s)

    def clear(self) -> None:
        """Do not ring.  The loop's timer stays where it is and is most often set again."""
        self._at_s = None

    def close(self) -> None:
        """Do not ring any more, and keep nothing alive."""
        self._at_s = None
        self._on_due = _nothing
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, at_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_s = at_s
        self._timer = self._loop.call_at(at_s, self._ring)

    def _ring(self) -> None:
        self._timer = None
        at_s = self._at_s
        if at_s is None:
            return
        # Compared with what the timer was set to: a loop's clock may ring some microseconds early.
        if at_s > self._timer_s:
            self._arm(at_s)
            return
        now_s = self._loop.time()
        if now_s - self._timer_s > LATE_S and not self._is_put_off:
            self._is_put_off = True
            self._at_s = now_s + GRACE_S
            self._arm(self._at_s)
            return
        self._at_s = None
        self._on_due()


def _nothing() -> None:
    """What is due when a connection is over."""
