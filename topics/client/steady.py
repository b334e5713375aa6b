"""How long something was left alone, the time in which the machine was suspended included.

A server closes an idle connection by its own clock, which goes on while this machine sleeps.
"""

import time
from contextlib import suppress


def steady_s() -> float:
    """Seconds from an arbitrary point; `time.monotonic` stands still while Linux is suspended."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    if clock is not None:
        with suppress(OSError):  # a sandbox may forbid it
            return time.clock_gettime(clock)
    return time.monotonic()
