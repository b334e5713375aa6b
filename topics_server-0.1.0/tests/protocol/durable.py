"""An engine over a log and segments whose files outlive it, so that a test can start it again.

The files are in memory and as durable as they will ever be; what a torn disk does to a store is the
crash simulation's to show.
"""

from topics.store.memory import MemoryFiles
from topics.store.store import DiskStore

from .harness import START_MS, Harness

FILE_BYTES = 1 << 20


class Durable(Harness):
    """A harness that begins with what a data directory holds."""

    def __init__(
        self, files: MemoryFiles | None = None, now_ms: int = START_MS, **limits: int
    ) -> None:
        self.files = files or MemoryFiles()
        self._given = limits
        disk = DiskStore(self.files, wal_file_bytes=FILE_BYTES, reserve_bytes=FILE_BYTES)
        super().__init__(store=disk, now_ms=now_ms, **limits)
        self.sync()

    def stop(self) -> "Durable":
        """A clean stop, and the engine that starts after it."""
        self.drive(self.schedule.last())
        return self._again()

    def kill(self) -> "Durable":
        """The process is killed, and started again."""
        self.store.close(None)
        return self._again()

    def _again(self) -> "Durable":
        return Durable(self.files, self.now_ms, **self._given)
