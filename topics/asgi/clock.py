"""The engine's wall clock: steady between jumps of the system's, and corrected late and once.

Time is anchored at start and runs on with `CLOCK_BOOTTIME`, so a wall clock that is set while the
server runs expires nothing at once.  A difference of over a second that lasts a minute is taken
over.
"""

import logging
import time
from collections.abc import Callable

JUMP_MS = 1000
LASTING_MS = 60_000

log = logging.getLogger("topics.clock")


def _boot_ms() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


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
        self._differs_since_ms: int | None = None

    def now_ms(self) -> int:
        return self._boot_ms() + self._offset_ms

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
            self._differs_since_ms = None
