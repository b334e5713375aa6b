"""How a thread that computes for long gives way.

Such a thread does its work in steps and calls a `GivingWay` between two of them: now and then it sleeps
for a moment, so that the event loop gets the interpreter, and a core.  Knows nothing of the work.
"""

import time
from typing import Final

STEP_S: Final = 0.0005
"""Worked between two moments of sleep: the scheduler of the kernel leaves a core to a thread that goes on
for 1.4 to 3 ms."""
SLEEP_S: Final = 10e-6


class GivingWay:
    """Of one piece of work, on its thread."""

    __slots__ = ("_until_s",)

    def __init__(self) -> None:
        self._until_s = time.perf_counter() + STEP_S

    def __call__(self) -> None:
        if time.perf_counter() >= self._until_s:
            time.sleep(SLEEP_S)
            self._until_s = time.perf_counter() + STEP_S
