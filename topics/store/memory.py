"""A store in memory: its contents end with the process.

Owns a directory in memory, so that sealed runs are the same files, read by the same code, as on a
disk.  There is no log, because no restart can replay it.
"""

from collections.abc import Sequence
from typing import Any

from topics.protocol.model.codec import Frames
from topics.protocol.model.events import Image, RunRef
from topics.protocol.model.ports import Contents, Recovery, RecoverySink, SealEntry, StoreStats
from topics.protocol.model.records import Buffer
from topics.store.files import File
from topics.store.runs import SealedRun
from topics.store.segments import Segments

ROOM_BYTES = 1 << 30


class MemoryFile:
    """A file that is an array of bytes."""

    __slots__ = ("_data", "name")

    def __init__(self, name: str, data: bytearray) -> None:
        self.name = name
        self._data = data

    def size(self) -> int:
        return len(self._data)

    def read_into(self, buffer: memoryview, offset: int) -> int:
        piece = memoryview(self._data)[offset : offset + len(buffer)]
        buffer[: len(piece)] = piece
        return len(piece)

    def read_nowait(self, buffer: memoryview, offset: int) -> bool:
        return self.read_into(buffer, offset) == len(buffer)

    def write(self, data: Buffer, offset: int) -> int:
        if offset + len(data) > len(self._data):
            self.allocate(offset + len(data))
        self._data[offset : offset + len(data)] = data
        return len(data)

    def write_vector(self, parts: Sequence[Buffer], offset: int) -> int:
        return self.write(b"".join(parts), offset)

    def sync_data(self) -> None:
        return

    def sync(self) -> None:
        return

    def truncate(self, size: int) -> None:
        del self._data[size:]

    def allocate(self, size: int) -> None:
        self._data.extend(bytes(max(0, size - len(self._data))))

    def forget_cache(self) -> None:
        return

    def map_readonly(self, size: int) -> memoryview:
        return memoryview(self._data).toreadonly()[:size]

    def close(self) -> None:
        return


class MemoryFiles:
    """Implements `files.Files` over a dict."""

    def __init__(self) -> None:
        self.path = "memory:"
        self._files: dict[str, bytearray] = {}
        self._clock_us = 0

    def prepare(self, *, create: bool) -> None:
        return

    def names(self) -> list[str]:
        return sorted(self._files)

    def lock(self) -> bool:
        return True

    def create(self, name: str) -> File:
        if name in self._files:
            raise FileExistsError(name)
        data = self._files[name] = bytearray()
        return MemoryFile(name, data)

    def open(self, name: str, *, write: bool = False) -> File:
        if name not in self._files:
            raise FileNotFoundError(name)
        return MemoryFile(name, self._files[name])

    def rename(self, source: str, target: str) -> None:
        self._files[target] = self._files.pop(source)

    def unlink(self, name: str) -> None:
        if name not in self._files:
            raise FileNotFoundError(name)
        del self._files[name]

    def sync_dir(self) -> None:
        return

    def free_bytes(self) -> int:
        return 1 << 40

    def modified_s(self, name: str) -> int:
        if name not in self._files:
            raise FileNotFoundError(name)
        return 0

    def now_s(self) -> int:
        return 0

    def boot_id(self) -> bytes:
        return bytes(16)

    def entropy(self, size: int) -> bytes:
        return bytes(size)

    def monotonic_us(self) -> int:
        self._clock_us += 1
        return self._clock_us

    def give_way(self) -> None:
        return

    def close(self) -> None:
        return


class MemoryStore:
    """Implements `ports.Store`; a write counts as synced at once."""

    def __init__(self, *, instance_id: str = "0" * 16) -> None:
        self.instance_id = instance_id
        self.stats = StoreStats()
        self.read_only = False
        self.lacks_space = False
        self.written_lsn = 0
        self.progress = 0.0
        self.log_bytes = 0
        instance = bytes.fromhex(instance_id)
        self._segments = Segments(MemoryFiles(), instance=instance, stats=self.stats)

    @property
    def synced_lsn(self) -> int:
        return self.written_lsn

    def recover(self, sink: RecoverySink) -> Recovery:
        self.progress = 1.0
        self._segments.next_lsn = 1
        return Recovery(clean=True, same_boot=True, fresh=True, events=0)

    def room(self, *, reserve: bool) -> int:
        return ROOM_BYTES

    def ask_room(self, need_bytes: int) -> bool:
        return False

    def find_room(self, need_bytes: int = 0) -> None:
        return

    def has_space(self) -> bool:
        return True

    def fits(self, size_bytes: int) -> bool:
        return True

    def fail(self, error: Exception) -> None:
        self.read_only = True

    def leave_failure_mark(self) -> str:
        return ""

    def write(self, frames: Frames) -> int:
        self.stats.frames_total += frames.count
        self.stats.batches_total += 1
        self.written_lsn += 1
        self._segments.next_lsn = self.written_lsn + 1
        return self.written_lsn

    def begin_sync(self) -> None:
        return

    def end_sync(self, begun: Any, took_us: int = 0, error: Exception | None = None) -> int:
        return self.written_lsn

    def finish_sync(self, begun: Any) -> int:
        return self.written_lsn

    def sync(self) -> int:
        return self.written_lsn

    def idle(self) -> None:
        return

    def seal(self, entries: Sequence[SealEntry]) -> list[RunRef]:
        return self._segments.seal(entries, 0)

    def open_run(self, ref: RunRef, topic_id: int) -> SealedRun:
        return self._segments.run(ref, topic_id)

    def flip(self) -> int:
        return self._segments.flip(self.written_lsn)

    def drop(self, segment: int) -> None:
        self._segments.drop(segment)

    def contents(self, segment: int) -> Contents:
        return self._segments.contents(segment)

    def clear(self, *, wholly: bool = False) -> None:
        return

    def prepare_rotation(self, *, fresh: bool = False) -> None:
        return

    def rotate(self, *, fresh: bool = False, stay: bool = False) -> int:
        return 0

    def checkpoint(self, image: Image, boundary: int) -> None:
        return

    def close_unsealed(self) -> None:
        self.close(None)

    def close(self, image: Image | None) -> None:
        self._segments.close()
