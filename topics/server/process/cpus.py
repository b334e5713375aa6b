"""How much of the machine's CPUs this process may use, and what it may do with that."""

import os
from pathlib import Path
from typing import Final

CGROUPS: Final = Path("/sys/fs/cgroup")
OWN: Final = Path("/proc/self/cgroup")


def usable_cpus(cgroups: Path = CGROUPS, own: Path = OWN) -> float:
    """The CPUs that the scheduler may give this process, or the quota of its control group and of
    those above it (`cpu.max` of version 2), whichever is less.

    A container with half a CPU sees all those of its host.
    """
    try:
        count = float(len(os.sched_getaffinity(0)))
    except (AttributeError, OSError):  # not Linux, or a sandbox forbids it
        count = float(os.cpu_count() or 1)
    return min([count, *_quotas(cgroups, own)])


def _quotas(cgroups: Path, own: Path) -> list[float]:
    try:
        [name] = [
            line.removeprefix("0::/") for line in own.read_text().splitlines() if line[:4] == "0::/"
        ]
    except (OSError, ValueError):
        return []
    group = cgroups / name
    quotas = []
    for place in (group, *group.parents):
        if not place.is_relative_to(cgroups):
            break
        try:
            quota, period = (place / "cpu.max").read_text().split()
            quotas.append(int(quota) / int(period))
        except (OSError, ValueError, ZeroDivisionError):
            continue  # "max", or the root, which has none
    return quotas


def busy_poll_s(asked_us: int, processes: int) -> float:
    """The window of `transport.busy_poll`: 0 where one of so many processes, each of which may
    poll, would take the CPU that a client needs for its next request."""
    return asked_us / 1e6 if usable_cpus() >= processes + 1 else 0.0
