"""The command of each program: enqueue so many jobs, with a pause between two."""

import sys
import time
from collections.abc import Callable


def produce(enqueue: Callable[[int], object]) -> None:
    """Call `enqueue` with the time, nanoseconds since the epoch, as the arguments of the command say."""
    jobs, pause_ms = int(sys.argv[1]), int(sys.argv[2])
    for _ in range(jobs):
        enqueue(time.time_ns())
        if pause_ms:
            time.sleep(pause_ms / 1000)
