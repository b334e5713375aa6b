"""`topics serve` on a disk that has no space for what was let in, as a file system with copies on write or
a quota: writes, syncs and allocations end with an error of the system, as long as a file says which.

Usage: full_disk.py FILE ARGUMENTS…; the file holds the number of the error, negative where
files without their final name can be written.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from topics.cli import main
from topics.store import files

SAYS = Path(sys.argv.pop(1))


def _or_fails(call: Callable[..., Any]) -> Callable[..., Any]:
    def made(self: files.OsFile, *given: Any) -> Any:
        try:
            number = int(SAYS.read_text() or 0)
        except FileNotFoundError:
            number = 0
        # A note in the lock's file is left out where it cannot be written.
        if ".wal" in self.name and (number > 0 or (number < 0 and self.name.endswith(".wal"))):
            raise OSError(abs(number), os.strerror(abs(number)), self.name)
        return call(self, *given)

    return made


for name in ("write", "write_vector", "sync", "sync_data", "allocate"):
    setattr(files.OsFile, name, _or_fails(getattr(files.OsFile, name)))

main()
