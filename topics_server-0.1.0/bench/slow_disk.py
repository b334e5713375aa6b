"""`topics serve` on a slow disk: `python -m bench.slow_disk BYTES_PER_S SYNC_MS [OPTION ...]`.

Owns the disk, which is as a kernel shows a slow one: a write goes to the page cache, and waits where
that holds too much which the disk lacks; a sync waits for all of it.  Writes of up to 64 KiB, which the
event loop makes itself, never wait, as they do not in a kernel that is not out of memory.  Everything
else is the server as it is.
"""

import sys
import threading
import time
from collections.abc import Sequence
from typing import Final

from topics.cli import main
from topics.protocol.driver.group_commit import INLINE_BYTES
from topics.protocol.model.records import Buffer
from topics.store.files import OsFile

DIRTY_BYTES_MAX: Final = 16 << 20
"""What the page cache holds before a writer waits for the disk."""


class Disk:
    """Writes `bytes_per_s`, one thing after the other."""

    def __init__(self, bytes_per_s: float, sync_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._sync_s = sync_s
        self._free_at_s = 0.0
        """When it has written all that it was given."""
        self._lock = threading.Lock()

    def take(self, size: int) -> None:
        with self._lock:
            now_s = time.monotonic()
            self._free_at_s = max(self._free_at_s, now_s) + size / self._bytes_per_s
            wait_s = self._free_at_s - now_s - DIRTY_BYTES_MAX / self._bytes_per_s
        if wait_s > 0 and size > INLINE_BYTES:
            time.sleep(wait_s)

    def sync(self) -> None:
        with self._lock:
            wait_s = self._free_at_s - time.monotonic()
        time.sleep(max(wait_s, 0.0) + self._sync_s)


def slow_down(disk: Disk) -> None:
    write, write_vector = OsFile.write, OsFile.write_vector
    sync, sync_data = OsFile.sync, OsFile.sync_data

    def slow_write(self: OsFile, data: Buffer, offset: int) -> int:
        disk.take(len(data))
        return write(self, data, offset)

    def slow_vector(self: OsFile, parts: Sequence[Buffer], offset: int) -> int:
        disk.take(sum(map(len, parts)))
        return write_vector(self, parts, offset)

    def slow_sync(self: OsFile) -> None:
        disk.sync()
        sync(self)

    def slow_sync_data(self: OsFile) -> None:
        disk.sync()
        sync_data(self)

    OsFile.write, OsFile.write_vector = slow_write, slow_vector  # type: ignore[method-assign]
    OsFile.sync, OsFile.sync_data = slow_sync, slow_sync_data  # type: ignore[method-assign]


if __name__ == "__main__":
    slow_down(Disk(float(sys.argv[1]), float(sys.argv[2]) / 1000))
    main(["serve", *sys.argv[3:]], prog_name="topics")
