"""A server over files in memory, whose rounds of maintenance a test begins and listens to."""

from collections.abc import Callable
from typing import Any

from topics.protocol.driver.reply import Reply
from topics.protocol.faces.http.records import parse_delete
from topics.protocol.faces.http.topics import parse_put
from topics.protocol.model.limits import Limits
from topics.store.memory import MemoryFiles
from topics.store.store import DiskStore

from .driver.test_group_commit import START_MS, InlineHost, append

LOG_BYTES = 64 << 10


class Disk(InlineHost):
    """A server over files in memory, with a log file small enough to be full.

    Attributes:
        calls: What maintenance had done where it may wait, by the store's name for it.
        fails: The names of those that raise instead.
    """

    def __init__(
        self, files: MemoryFiles | None = None, now_ms: int = START_MS, **limits: int
    ) -> None:
        self.calls: list[str] = []
        self.fails: dict[str, Exception] = {}
        self.files = files or MemoryFiles()
        self._given = limits
        bounds = Limits(wal_file_bytes=LOG_BYTES, segment_max_records=50, **limits)
        disk = DiskStore(self.files, wal_file_bytes=LOG_BYTES, reserve_bytes=LOG_BYTES)
        for name in ("seal", "clear", "flip", "checkpoint", "rotate", "contents", "find_room"):
            self._listen(disk, name)
        super().__init__(bounds, disk, now_ms)
        self.driver.recover()
        self.driver.start()
        self.driver.maintenance.calm()

    def _listen(self, disk: DiskStore, name: str) -> None:
        call: Callable[..., Any] = getattr(disk, name)

        def heard(*given: Any, **named: Any) -> Any:
            self.calls.append(f"{name} {named}" if named else name)
            if name in self.fails:
                raise self.fails[name]
            return call(*given, **named)

        setattr(disk, name, heard)

    def stop(self) -> "Disk":
        """A clean stop, and the server that starts after it."""
        ended: list[Exception | None] = []
        self.driver.drain()
        self.driver.stop(ended.append)
        assert ended == [None]
        return Disk(self.files, self.now_ms, **self._given)

    def kill(self) -> "Disk":
        """The process is killed, and started again."""
        self.store.close(None)
        return Disk(self.files, self.now_ms, **self._given)

    def put(self, name: str, raw: bytes) -> None:
        self.driver.submit(parse_put(name, raw), nobody)
        self.settle()

    def erase(self, name: str, before_seq: int = 2) -> list[Reply]:
        """Ask for an erasure; the list gets the answer."""
        answers: list[Reply] = []
        raw = b'{"before_seq": %d, "erase": true}' % before_seq
        self.driver.submit(parse_delete(name, raw), answers.append)
        self.settle()
        return answers

    def write(self, name: str, records: int) -> None:
        for first in range(0, records, 10):
            self.driver.submit(append(name, *["x" * 900] * min(10, records - first)), nobody)
            self.settle()

    def delete(self, name: str) -> None:
        raw = b'{"before_seq": 1000000}'
        self.driver.submit(parse_delete(name, raw), nobody)
        self.settle()

    def round(self, **asked: bool) -> list[str]:
        """What one round did; raises why it broke off."""
        self.calls.clear()
        ended: list[Exception | None] = []
        self.driver.maintenance.round(ended.append, **asked)
        if ended[0] is not None:
            raise ended[0]
        return list(self.calls)


def nobody(reply: object) -> None:
    return
