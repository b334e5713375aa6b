"""The engine's wall clock: steady between jumps of the system's, corrected late and once, and never
turned back.

Time is anchored at start and runs on with `CLOCK_BOOTTIME`, so a wall clock that is set while the
server runs expires nothing at once.  A difference of over a second that lasts a minute is taken
over: forwards at once; backwards by running slower until the wall clock has caught up.  Time never
falls in the engine: if the clock were turned back, the engine's time and every lease would
stand still for as long.
"""

import logging
import time
from collections.abc import Callable
from typing import Final

JUMP_MS = 1000
LASTING_MS = 60_000
SLOWER_BY = 20
"""A clock that is ahead loses one millisecond in so many: a lease of 30 s takes 31.5 s then."""

log = logging.getLogger("topics.clock")


def steady_clock() -> int:
    """The number of `CLOCK_BOOTTIME`, or of `CLOCK_MONOTONIC` where the system has no such clock, or does
    not let this process read it: a suspended machine's time is then known when the wall clock is
    compared."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    try:
        time.clock_gettime_ns(clock)
    except OSError:
        return time.CLOCK_MONOTONIC
    return clock


_STEADY: Final = steady_clock()


def _boot_ms() -> int:
    return time.clock_gettime_ns(_STEADY) // 1_000_000


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class Clock:
    """Milliseconds since the epoch.

    Args:
        wall_ms: The system's wall clock.
        boot_ms: A clock that runs steadily, suspended time included.
    """

    def __init__(
        self, wall_ms: Callable[[], int] = _wall_ms, boot_ms: Callable[[], int] = _boot_ms
    ) -> None:
        self._wall_ms = wall_ms
        self._boot_ms = boot_ms
        self._offset_ms = wall_ms() - boot_ms()
        self._lead_ms = 0
        self._led_since_ms = 0
        self._differs_since_ms: int | None = None

    def now_ms(self) -> int:
        now = self._boot_ms() + self._offset_ms
        return now + self._lead() if self._lead_ms else now

    @property
    def steady_ms(self) -> int:
        """Milliseconds since some point in the past; setting the wall clock does not change it."""
        return self._boot_ms()

    @property
    def course(self) -> tuple[int, int, int]:
        """What makes this clock read what it reads: its offset, its lead, and since when it leads.
        Another clock of this machine that takes it reads the same."""
        return self._offset_ms, self._lead_ms, self._led_since_ms

    def take_course(self, course: tuple[int, int, int]) -> None:
        self._offset_ms, self._lead_ms, self._led_since_ms = course

    def not_before(self, seen_ms: int) -> None:
        """Go on from the latest time in the log, where the wall clock is behind it."""
        behind = seen_ms - self.now_ms()
        if behind > JUMP_MS:
            log.warning(
                "the wall clock is %d ms behind the log; time runs slower meanwhile", behind
            )
        if behind > 0:
            self._set_lead(self._lead() + behind)

    def check(self) -> None:
        """Compare with the wall clock; call it every few seconds."""
        steady = self._boot_ms()
        difference = self._wall_ms() - (steady + self._offset_ms)
        if abs(difference) <= JUMP_MS:
            self._differs_since_ms = None
        elif self._differs_since_ms is None:
            self._differs_since_ms = steady
        elif steady - self._differs_since_ms >= LASTING_MS:
            log.warning("the wall clock was set by %d ms; taken over", difference)
            self._offset_ms += difference
            self._set_lead(max(self._lead() - difference, 0))
            self._differs_since_ms = None

    def _lead(self) -> int:
        """How far this clock is still ahead of the wall clock."""
        return max(self._lead_ms - (self._boot_ms() - self._led_since_ms) // SLOWER_BY, 0)

    def _set_lead(self, lead_ms: int) -> None:
        self._lead_ms = lead_ms
        self._led_since_ms = self._boot_ms()
