"""What the process takes of the machine, in the names that Prometheus' own clients use.

Read when somebody scrapes, and never otherwise.  A figure that the system does not tell is left
out: without `/proc` only the CPU time is known, and a sandbox may hide that.
"""

import os
import resource
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from topics.server.observing.metrics import Family, Kind, Sample

PROC: Final = Path("/proc/self")
_STARTED_S: Final = time.time()


def families(proc: Path = PROC) -> Iterator[Family]:
    """CPU, memory, descriptors, and the time of the start."""
    used_s = cpu_s()
    if used_s is not None:
        yield _one("process_cpu_seconds_total", "counter", "CPU time, user and system.", used_s)
    yield _one("process_start_time_seconds", "gauge", "When it began, Unix time.", _STARTED_S)
    memory = _memory(proc)
    if memory is not None:
        virtual, resident = memory
        text = "Resident memory, mapped files included."
        yield _one("process_resident_memory_bytes", "gauge", text, resident)
        yield _one("process_virtual_memory_bytes", "gauge", "Virtual memory.", virtual)
    descriptors = _descriptors(proc)
    if descriptors is not None:
        yield _one("process_open_fds", "gauge", "Open file descriptors.", descriptors)
    with suppress(OSError):
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY:
            yield _one("process_max_fds", "gauge", "Bound of open file descriptors.", soft)


def cpu_s() -> float | None:
    """Seconds of CPU that this process has used, user and system; None where that is not told."""
    try:
        used = resource.getrusage(resource.RUSAGE_SELF)
    except OSError:
        return None
    return used.ru_utime + used.ru_stime


def resident_bytes(proc: Path = PROC) -> int:
    """Resident memory, mapped files included; 0 where the system does not tell."""
    memory = _memory(proc)
    return 0 if memory is None else memory[1]


def _one(name: str, kind: Kind, text: str, value: float) -> Family:
    return Family(name, kind, text, [Sample(value, {})])


def _memory(proc: Path) -> tuple[int, int] | None:
    """(virtual, resident), bytes (proc(5), statm)."""
    try:
        with open(proc / "statm", "rb", buffering=0) as file:
            pages = file.read().split()
        return int(pages[0]) * resource.getpagesize(), int(pages[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return None


def _descriptors(proc: Path) -> int | None:
    try:
        return len(os.listdir(proc / "fd"))
    except OSError:
        return None
