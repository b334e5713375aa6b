"""Load: when writes give way because the server is behind, and whose writes give way first (§0.6).

Two things are measured.  The lag of the event loop: how long a turn waits for the loop, which is what
CPU pressure costs every client.  And the queue before the log: the writes that wait to be decided,
and their bytes.  Each is a part of its bound, and the load is the larger part.

A write waits longer the higher the load is above the rung of its topic's priority, and is refused
where it would wait too long, so that low priorities give way before high ones.  At the bound all are
refused but those that asked for no backpressure; those wait.

Sans-IO: what was measured, and when, are arguments.
"""

from math import exp
from typing import Final

from topics.protocol.driver.throttle import WAIT_MS_MAX

LAG_MS_MAX: Final = 500.0
"""The lag at which the load is 1; half of it for a second is when the lowest priorities wait."""
LAG_WINDOW_MS: Final = 1000.0
"""Time constant of the mean: a single slow turn is no pressure, and what is over is forgotten."""
QUEUED_MAX: Final = 4096
QUEUED_BYTES_MAX: Final = 64 << 20
"""Writes that wait to be decided, and their bytes, at which the load is 1."""

RUNGS: Final = ((750, 0.875), (250, 0.75), (0, 0.625))
"""(least priority, load above which such writes wait); lower priorities wait above `RUNG_LOWEST`."""
RUNG_LOWEST: Final = 0.5
SLOPE_MS: Final = 8.0 * WAIT_MS_MAX
"""Wait for a load of 1 above the rung: an eighth above it is the longest wait, which is where the
next rung begins."""


class Load:
    """The load of one driver.  Time is the steady clock's.

    Attributes:
        lag_ms: The mean lag, as of the last measurement.
    """

    def __init__(self) -> None:
        self.lag_ms = 0.0
        self._seen_ms = 0

    def lagged(self, lag_ms: float, now_ms: int) -> None:
        """A turn waited so long for the loop."""
        if lag_ms < 1.0 and self.lag_ms < 1.0:
            self._seen_ms = now_ms  # the usual turn: nothing to forget, and nothing to note
            return
        lag_ms = min(lag_ms, LAG_MS_MAX)
        self._forget(now_ms)
        # It stands for the time that it took.
        mean_ms = self.lag_ms + lag_ms * (1.0 - exp(-lag_ms / LAG_WINDOW_MS))
        self.lag_ms = min(mean_ms, LAG_MS_MAX)

    def _forget(self, now_ms: int) -> None:
        self.lag_ms *= exp(min(self._seen_ms - now_ms, 0) / LAG_WINDOW_MS)
        self._seen_ms = now_ms

    def level(self, now_ms: int, queued: int, queued_bytes: int) -> float:
        """The load; 1.0 at the bound of lag or queue.

        Args:
            queued: Writes that wait to be decided.
            queued_bytes: Their bytes.
        """
        lag_ms = self.lag_ms
        if lag_ms >= 1.0:
            self._forget(now_ms)
            lag_ms = self.lag_ms
        return max(lag_ms / LAG_MS_MAX, queued / QUEUED_MAX, queued_bytes / QUEUED_BYTES_MAX)


def wait_ms(level: float, priority: int) -> float:
    """How long a write to a topic of this priority gives way; over `WAIT_MS_MAX`: it is refused."""
    if level <= RUNG_LOWEST:
        return 0.0
    if level >= 1.0:
        return WAIT_MS_MAX + 1.0
    rung = next((rung for least, rung in RUNGS if priority >= least), RUNG_LOWEST)
    return min(max(level - rung, 0.0) * SLOPE_MS, WAIT_MS_MAX + 1.0)
