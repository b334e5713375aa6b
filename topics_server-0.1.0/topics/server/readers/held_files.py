"""Which files of a directory this process still holds although they were unlinked.

Owns the look at `/proc`, which names every descriptor and every map of the process; a count of its
own would miss those of threads that read.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_GONE: Final = " (deleted)"


def holds_unlinked(directory: Path) -> bool:
    """*Reads `/proc`.* Whether an unlinked file of the directory is open or mapped here."""
    prefix = f"{directory.resolve()}/"
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if _is_gone(os.readlink(f"/proc/self/fd/{name}"), prefix):
                return True
    with open("/proc/self/maps") as maps:
        return any(_is_gone(line.rstrip("\n")[73:].lstrip(), prefix) for line in maps)


def _is_gone(path: str, prefix: str) -> bool:
    return path.startswith(prefix) and path.endswith(_GONE)
