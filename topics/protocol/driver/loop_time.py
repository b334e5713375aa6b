"""The time in which the host's loop ran, by which a deadline on the host's own work is counted.

A process may be stopped (SIGSTOP, `docker pause`, a laptop or a virtual machine that is suspended),
and no clock of the system says so.  What the process was waiting for could not be reported meanwhile.
So time is counted from one look to the next, and of each interval at most a tick: an interval that is
longer was not waited through.  Knows no clock; whoever looks brings the time.
"""

from typing import Final

TICKS: Final = 8
"""Looks in one deadline, at least."""
TICK_MS_MAX: Final = 1000


def tick_ms(deadline_ms: int) -> int:
    """How often to look, where something may take `deadline_ms`."""
    return max(min(deadline_ms // TICKS, TICK_MS_MAX), 1)


class LoopTime:
    """Time that a running loop saw.

    Args:
        tick_ms: The most that counts of an interval between two looks.

    Attributes:
        ms: Milliseconds, from an arbitrary point.
        was_still: The loop did not run for a part of the last interval, and did in the one before: what
            was reported in that time is heard before the next look.
    """

    __slots__ = ("_seen_ms", "_tick_ms", "ms", "was_still")

    def __init__(self, tick_ms: int) -> None:
        self.ms = 0
        self.was_still = False
        self._tick_ms = tick_ms
        self._seen_ms = 0

    def look(self, now_ms: int) -> int:
        """Count up to now; returns `ms`.

        Args:
            now_ms: A clock that never falls.
        """
        passed_ms = now_ms - self._seen_ms
        # An alarm rings late on a busy machine, where reports are heard between two looks all the same.
        self.was_still = passed_ms > 2 * self._tick_ms and not self.was_still
        self.ms += passed_ms if passed_ms < self._tick_ms else self._tick_ms
        self._seen_ms = now_ms
        return self.ms

    @property
    def next_ms(self) -> int:
        """When to look again, by the clock of `look`."""
        return self._seen_ms + self._tick_ms
