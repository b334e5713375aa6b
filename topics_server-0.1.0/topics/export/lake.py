"""The export's interface to the file system, and its implementation on the operating system.

Owns every system call that writes an export, so that a test can end the process, or the power, at
each of them.  Paths are relative to the export, with `/`.  Knows nothing of what the bytes mean.
"""

import fcntl
import os
from collections.abc import Callable
from typing import Any, Protocol

from topics.export.planning import LOCK


class Sink(Protocol):
    """A new file that is being written."""

    def write(self, data: Any) -> None:
        """Write every byte.  Raises OSError."""

    def sync(self) -> None:
        """Make the bytes durable."""

    def close(self) -> None: ...


class Lake(Protocol):
    """One directory with all that is in it."""

    path: str

    def lock(self) -> bool:
        """Keep other processes from writing until `close`; False where one does."""

    def files(self) -> list[str]:
        """Paths of all regular files, sorted; symbolic links are not followed."""

    def make_directory(self, path: str) -> None:
        """Make a directory and its parents, durably; it may be there."""

    def create(self, path: str) -> Sink:
        """A new, empty file in a directory that is there.  Raises FileExistsError."""

    def append(self, path: str, data: bytes) -> None:
        """Add to the end of a file, durably; a file that is not there begins empty."""

    def truncate(self, path: str, size: int) -> None:
        """Cut a file, durably."""

    def read(self, path: str) -> bytes:
        """All bytes of a file.  Raises FileNotFoundError."""

    def open(self, path: str) -> Any:
        """A file for reading at any place, with the methods of a binary file of Python; pyarrow
        takes it.  Raises FileNotFoundError."""

    def size(self, path: str) -> int:
        """Raises FileNotFoundError."""

    def rename(self, source: str, target: str) -> None:
        """Atomic; the directory of `target` is there."""

    def unlink(self, path: str) -> None:
        """Raises FileNotFoundError."""

    def sync_directory(self, path: str) -> None:
        """Make creations, renames and unlinks in a directory durable."""

    def close(self) -> None:
        """Release the lock."""


def directory(path: str) -> str:
    """The directory of a path; empty: the export's own."""
    return path.rpartition("/")[0]


class OsSink:
    """A new file of the operating system."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def write(self, data: Any) -> None:
        view = memoryview(data).cast("B")
        while len(view):
            view = view[os.write(self._fd, view) :]

    def sync(self) -> None:
        os.fsync(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class OsLake:
    """A directory of the operating system.  Files get the rights that the umask leaves, as they are
    there for other programs to read."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._lock = -1

    def _full(self, path: str) -> str:
        return os.path.join(self.path, path)

    def lock(self) -> bool:
        if self._lock >= 0:
            return True
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        lock = os.open(self._full(LOCK), flags, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return False
        self._lock = lock
        return True

    def files(self) -> list[str]:
        found = []
        for parent, _, names in os.walk(self.path, onerror=_raise):
            inside = os.path.relpath(parent, self.path)
            found += [os.path.normpath(os.path.join(inside, name)) for name in names]
        return sorted(found)

    def make_directory(self, path: str) -> None:
        full = os.path.abspath(self._full(path))
        missing = []
        while not os.path.isdir(full):
            missing.append(full)
            full = os.path.dirname(full)
        for each in reversed(missing):
            os.mkdir(each)
            self._sync(os.path.dirname(each))

    def create(self, path: str) -> Sink:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        return OsSink(os.open(self._full(path), flags, 0o666))

    def append(self, path: str, data: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        sink = OsSink(os.open(self._full(path), flags, 0o666))
        try:
            sink.write(data)
            sink.sync()
        finally:
            sink.close()

    def truncate(self, path: str, size: int) -> None:
        fd = os.open(self._full(path), os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.ftruncate(fd, size)
            os.fsync(fd)
        finally:
            os.close(fd)

    def read(self, path: str) -> bytes:
        with open(self._full(path), "rb") as file:
            return file.read()

    def open(self, path: str) -> Any:
        return open(self._full(path), "rb")

    def size(self, path: str) -> int:
        return os.stat(self._full(path)).st_size

    def rename(self, source: str, target: str) -> None:
        os.rename(self._full(source), self._full(target))

    def unlink(self, path: str) -> None:
        os.unlink(self._full(path))

    def sync_directory(self, path: str) -> None:
        self._sync(self._full(path))

    def _sync(self, full: str) -> None:
        fd = os.open(full, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _raise(error: OSError) -> None:
    raise error


def sync_directories_of(lake: Lake, paths: list[str]) -> None:
    """Make what happened to the names of these files durable."""
    for each in sorted({directory(path) for path in paths}):
        lake.sync_directory(each)


def quietly(act: Callable[[], None]) -> None:
    """Do what nothing relies on: the next run does it again."""
    try:
        act()
    except OSError:
        return
