"""A lake in memory that forgets what was not synced, and that ends at any call.

What a power cut leaves of a file is its synced bytes, and of a directory its synced names; `tear` adds
a part of what was appended, and `chance` any of the changes of names that were not synced, in any
choice, as a file system may write them in another order than they were made.
"""

import errno
import io
import random
from typing import Any

from topics.export.lake import directory


class Cut(BaseException):
    """The process, or the power, ends here."""


class Full(OSError):
    """The disk is full."""

    def __init__(self) -> None:
        super().__init__(errno.ENOSPC, "No space left on device")


class _File:
    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = b""


class MemoryLake:
    """Implements `lake.Lake`.

    Attributes:
        calls: How many calls changed something, or tried to.
        cut_at: The call at which it ends; None: none.
        error: Raised there and ever after in place of `Cut`.
    """

    def __init__(self) -> None:
        self.path = "lake"
        self.names: dict[str, _File] = {}
        self.durable_names: dict[str, _File | None] = {}
        self.directories = {""}
        self.is_locked = False
        self.calls = 0
        self.cut_at: int | None = None
        self.error: type[BaseException] = Cut
        self.pending: list[dict[str, _File | None]] = []
        """Changes of names that no sync has covered, each atomic."""

    def _step(self) -> None:
        self.calls += 1
        if self.cut_at is not None and self.calls >= self.cut_at:
            raise self.error

    def power_cut(self, *, tear: bool = False, chance: random.Random | None = None) -> "MemoryLake":
        """What is there when the power is back."""
        after = MemoryLake()
        after.directories = set(self.directories)
        names = dict(self.durable_names)
        for change in self.pending:
            if chance is not None and chance.random() < 0.5:
                names.update(change)
        for path, file in names.items():
            if file is None:
                continue
            kept = _File()
            kept.durable = file.durable
            if tear and len(file.data) > len(file.durable):
                kept.durable = bytes(file.data[: (len(file.durable) + len(file.data)) // 2])
            kept.data = bytearray(kept.durable)
            after.names[path] = after.durable_names[path] = kept
        return after

    def killed(self) -> "MemoryLake":
        """What is there when only the process ended."""
        after = MemoryLake()
        after.directories = set(self.directories)
        for path, file in self.names.items():
            kept = _File()
            kept.data, kept.durable = bytearray(file.data), bytes(file.data)
            after.names[path] = after.durable_names[path] = kept
        return after

    # ------------------------------------------------------------------ the port

    def lock(self) -> bool:
        self._step()
        if self.is_locked:
            return False
        self.is_locked = True
        return True

    def files(self) -> list[str]:
        return sorted(self.names)

    def make_directory(self, path: str) -> None:
        self._step()
        parts = path.split("/")
        for end in range(1, len(parts) + 1):
            self.directories.add("/".join(parts[:end]))

    def create(self, path: str) -> "MemorySink":
        self._step()
        assert directory(path) in self.directories, path
        if path in self.names:
            raise FileExistsError(path)
        file = _File()
        self._change({path: file})
        return MemorySink(self, file)

    def append(self, path: str, data: bytes) -> None:
        assert directory(path) in self.directories, path
        if path not in self.names:
            self._change({path: _File()})
        file = self.names[path]
        for part in (data[: len(data) // 2], data[len(data) // 2 :]):
            self._step()
            file.data += part
        self._step()
        file.durable = bytes(file.data)

    def truncate(self, path: str, size: int) -> None:
        self._step()
        file = self.names[path]
        del file.data[size:]
        file.durable = bytes(file.data)

    def read(self, path: str) -> bytes:
        return bytes(self._found(path).data)

    def open(self, path: str) -> Any:
        return io.BytesIO(self._found(path).data)

    def size(self, path: str) -> int:
        return len(self._found(path).data)

    def _found(self, path: str) -> _File:
        if path not in self.names:
            raise FileNotFoundError(path)
        return self.names[path]

    def rename(self, source: str, target: str) -> None:
        self._step()
        assert directory(target) in self.directories, target
        self._change({source: None, target: self.names[source]})

    def unlink(self, path: str) -> None:
        self._step()
        self._found(path)
        self._change({path: None})

    def _change(self, names: dict[str, _File | None]) -> None:
        self.pending.append(names)
        for path, file in names.items():
            if file is None:
                del self.names[path]
            else:
                self.names[path] = file

    def sync_directory(self, path: str) -> None:
        self._step()
        kept = []
        for change in self.pending:
            if any(directory(name) == path for name in change):
                self.durable_names.update(change)
            else:
                kept.append(change)
        self.pending = kept

    def close(self) -> None:
        self.is_locked = False


class MemorySink:
    def __init__(self, lake: MemoryLake, file: _File) -> None:
        self._lake = lake
        self._file = file

    def write(self, data: Any) -> None:
        self._lake._step()
        self._file.data += bytes(data)

    def sync(self) -> None:
        self._lake._step()
        self._file.durable = bytes(self._file.data)

    def close(self) -> None:
        pass
