"""An engine over a log and segments whose files outlive it, so that a test can start it again.

The files are in memory and as durable as they will ever be; what a torn disk does to a store is the
crash simulation's to show.
"""

from topics.protocol.chores import Chores
from topics.protocol.engine import Engine
from topics.protocol.limits import Limits
from topics.protocol.upkeep import Upkeep
from topics.store.memory import MemoryFiles
from topics.store.store import DiskStore

from .harness import START_MS, Harness

FILE_BYTES = 1 << 20


class Durable(Harness):
    """A harness that begins with what a data directory holds."""

    def __init__(
        self, files: MemoryFiles | None = None, now_ms: int = START_MS, **limits: int
    ) -> None:
        super().__init__(**limits)
        self.files = files or MemoryFiles()
        self._given = limits
        self.now_ms = now_ms
        self.limits = Limits(**limits)
        disk = DiskStore(self.files, wal_file_bytes=FILE_BYTES, reserve_bytes=FILE_BYTES)
        self.store = disk  # type: ignore[assignment]
        self.engine = Engine(self.limits, disk)
        self.upkeep = Upkeep(self.engine)
        self.chores = Chores(self.limits, self.upkeep, disk, self)
        self.engine.finish_recovery(disk.recover(self.engine.state), now_ms)
        self.sync()

    def stop(self) -> "Durable":
        """A clean stop, and the engine that starts after it."""
        self.drive(self.chores.last())
        return self._again()

    def kill(self) -> "Durable":
        """The process is killed, and started again."""
        self.store.close(None)
        return self._again()

    def _again(self) -> "Durable":
        return Durable(self.files, self.now_ms, **self._given)

    def sync(self) -> None:
        self.write()
        self.store.sync()
        self.engine.on_synced(self.store.synced_lsn)
