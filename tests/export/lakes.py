"""A lake in memory that forgets what was not synced, and that ends at any call.

What a power cut leaves of a file is its synced bytes; of a directory, its synced names.  That is the
worst that POSIX allows but for torn writes, which `tear` adds to appends.
"""

import errno
import io
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
        self.durable_names: dict[str, _File] = {}
        self.directories = {""}
        self.durable_directories = {""}
        self.is_locked = False
        self.calls = 0
        self.cut_at: int | None = None
        self.error: type[BaseException] = Cut
        self.log: list[str] = []

    def _step(self, what: str) -> None:
        self.calls += 1
        self.log.append(what)
        if self.cut_at is not None and self.calls >= self.cut_at:
            raise self.error

    def power_cut(self, *, tear: bool = False) -> "MemoryLake":
        """What is there when the power is back."""
        after = MemoryLake()
        after.directories = set(self.durable_directories)
        after.durable_directories = set(self.durable_directories)
        for path, file in self.durable_names.items():
            if directory(path) not in after.directories:
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
        after.durable_directories = set(self.directories)
        for path, file in self.names.items():
            kept = _File()
            kept.data, kept.durable = bytearray(file.data), bytes(file.data)
            after.names[path] = after.durable_names[path] = kept
        return after

    # ------------------------------------------------------------------ the port

    def lock(self) -> bool:
        self._step("lock")
        if self.is_locked:
            return False
        self.is_locked = True
        return True

    def files(self) -> list[str]:
        return sorted(self.names)

    def make_directory(self, path: str) -> None:
        self._step(f"mkdir {path}")
        parts = path.split("/")
        for end in range(1, len(parts) + 1):
            self.directories.add("/".join(parts[:end]))
            self.durable_directories.add("/".join(parts[:end]))

    def create(self, path: str) -> "MemorySink":
        self._step("create")
        assert directory(path) in self.directories, path
        if path in self.names:
            raise FileExistsError(path)
        self.names[path] = file = _File()
        return MemorySink(self, file)

    def append(self, path: str, data: bytes) -> None:
        assert directory(path) in self.directories, path
        file = self.names.setdefault(path, _File())
        for part in (data[: len(data) // 2], data[len(data) // 2 :]):
            self._step(f"append {path}")
            file.data += part
        self._step(f"sync {path}")
        file.durable = bytes(file.data)

    def truncate(self, path: str, size: int) -> None:
        self._step(f"truncate {path}")
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
        self._step("rename")
        assert directory(target) in self.directories, target
        self.names[target] = self.names.pop(source)

    def unlink(self, path: str) -> None:
        self._step("unlink")
        self._found(path)
        del self.names[path]

    def sync_directory(self, path: str) -> None:
        self._step(f"sync {path}")
        for name in [name for name in self.durable_names if directory(name) == path]:
            if name not in self.names:
                del self.durable_names[name]
        for name, file in self.names.items():
            if directory(name) == path:
                self.durable_names[name] = file

    def close(self) -> None:
        self.is_locked = False


class MemorySink:
    def __init__(self, lake: MemoryLake, file: _File) -> None:
        self._lake = lake
        self._file = file

    def write(self, data: Any) -> None:
        self._lake._step("write")
        self._file.data += bytes(data)

    def sync(self) -> None:
        self._lake._step("sync a file")
        self._file.durable = bytes(self._file.data)

    def close(self) -> None:
        pass
