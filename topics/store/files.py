"""The store's interface to the file system, and its implementation on the operating system.

Owns every system call of the store, and its clock and entropy, so that a simulation can lose, tear,
reorder and refuse writes.  Knows nothing of what the bytes mean.  Invariants: no symbolic link is
followed, no file is world-readable, and no byte is written through a memory map.
"""

import errno
import fcntl
import mmap
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

from topics.protocol.model.records import Buffer
from topics.store.layout import LOCK_NAME, PAGE

VECTOR_MAX: Final = 1024
"""Buffers that one `pwritev` takes (IOV_MAX of Linux)."""

REFUSED: Final = frozenset({errno.ENOSYS, errno.EPERM, errno.EACCES})
"""What a sandbox answers to a call that it does not allow (seccomp, gVisor, an old kernel)."""
ABSENT: Final = REFUSED | {errno.EOPNOTSUPP, errno.EINVAL}
"""The same, or what a file system says that lacks the call."""
CURE: Final = (
    "the permissions of the data directory or a sandbox forbid it; topics needs this call, which the "
    "default profiles of Docker, Kubernetes and systemd (@system-service) allow"
)
PLENTY_BYTES: Final = 1 << 60
"""The free space where nothing tells it: an allocation tells then."""


class File(Protocol):
    """An open file.  All offsets are absolute; there is no position."""

    name: str

    def size(self) -> int: ...

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Read at most `len(buffer)` bytes; 0 at the end of the file.  Raises OSError."""

    def read_nowait(self, buffer: memoryview, offset: int) -> bool:
        """Fill the whole buffer from the page cache; False where the disk would have to be read."""

    def write(self, data: Buffer, offset: int) -> int:
        """Write a prefix of `data`; returns its length, which may be short.  Raises OSError."""

    def write_vector(self, parts: Sequence[Buffer], offset: int) -> int:
        """As `write`, for the concatenation of all parts, without copying them."""

    def sync_data(self) -> None:
        """Make the bytes of a file whose size does not change durable."""

    def sync(self) -> None:
        """Make bytes and size durable."""

    def truncate(self, size: int) -> None: ...

    def allocate(self, size: int) -> None:
        """Make sure that writes to [0, size) find space; the file grows with zeros.

        Raises:
            OSError: ENOSPC; the file may have grown part of the way.
        """

    def forget_cache(self) -> None:
        """Evict clean pages from the page cache, so that the next read goes to the device."""

    def map_readonly(self, size: int) -> memoryview:
        """The bytes [0, size) as read-only memory; valid as long as it is referenced.

        Nothing is read.  A caller reads each byte range from the file before it touches it in the
        map: there a failing disk is an error and not a signal, and the wait releases the
        interpreter lock.
        """

    def close(self) -> None: ...


class Files(Protocol):
    """One flat directory."""

    path: str

    def prepare(self, *, create: bool) -> None:
        """Open the directory, made with its parents where `create`.  Raises OSError."""

    def names(self) -> list[str]:
        """All entries, sorted."""

    def lock(self) -> bool:
        """Lock the directory for this process until `close`; False where another process has it."""

    def create(self, name: str) -> File:
        """A new, empty file.  Raises FileExistsError."""

    def open(self, name: str, *, write: bool = False) -> File:
        """An existing file.  Raises FileNotFoundError."""

    def rename(self, source: str, target: str) -> None:
        """Atomic; replaces `target`."""

    def unlink(self, name: str) -> None: ...

    def sync_dir(self) -> None:
        """Make creations, renames and unlinks durable."""

    def free_bytes(self) -> int: ...

    def modified_s(self, name: str) -> int:
        """When a file was last written, in seconds of the wall clock since the epoch.

        Raises:
            FileNotFoundError: It is not there.
        """

    def now_s(self) -> int:
        """The wall clock, in seconds since the epoch, as `modified_s` uses it."""

    def boot_id(self) -> bytes:
        """16 bytes that change when the kernel starts."""

    def entropy(self, size: int) -> bytes: ...

    def monotonic_us(self) -> int: ...

    def give_way(self) -> None:
        """Let other threads have the core and the interpreter, between two steps of a long work."""

    def close(self) -> None:
        """Release the directory and the lock."""


def write_all(file: File, data: Buffer, offset: int) -> None:
    """Write every byte; a short write is continued."""
    written = file.write(data, offset)
    if written == len(data):
        return
    view = memoryview(data)
    while written < len(view):
        step = file.write(view[written:], offset + written)
        if step == 0:
            raise OSError(errno.EIO, "a write took no byte", file.name)
        written += step


def write_parts(file: File, parts: Sequence[Buffer], offset: int) -> None:
    """Write every byte of the concatenation of all parts."""
    for at in range(0, len(parts), VECTOR_MAX):
        some = parts[at : at + VECTOR_MAX]
        size = sum(map(len, some))
        written = file.write_vector(some, offset)
        if written < size:
            write_all(file, memoryview(b"".join(some))[written:], offset + written)
        offset += size


def read_at_most(file: File, size: int, offset: int) -> memoryview:
    """Up to `size` bytes; fewer only where the file ends."""
    buffer = memoryview(bytearray(size))
    filled = 0
    while filled < size:
        step = file.read_into(buffer[filled:], offset + filled)
        if step == 0:
            break
        filled += step
    return buffer[:filled]


def read_whole(files: Files, name: str) -> memoryview:
    """All bytes of a file, checked against nothing.  Raises OSError."""
    file = files.open(name)
    try:
        return read_at_most(file, file.size(), 0)
    finally:
        file.close()


def publish(files: Files, name: str, data: Buffer) -> None:
    """Replace `name` by a file with `data`, atomically and durably.  Raises as `publish_with`."""
    publish_with(files, name, lambda file: write_all(file, data, 0))


def publish_with(files: Files, name: str, write: Callable[[File], None]) -> None:
    """Replace `name` by what `write` puts into an empty file, atomically and durably.

    The bytes are durable before the name refers to them, and the name is durable before this
    returns (temporary file, fsync, rename, fsync of the directory).

    Raises:
        OSError: `name` is unchanged; the temporary file is removed if the disk allows it.
    """
    temp = name + ".tmp"
    discard(files, temp)
    try:
        file = files.create(temp)
        try:
            write(file)
            file.sync()
        finally:
            file.close()
        files.rename(temp, name)
    except OSError:
        discard(files, temp)
        raise
    files.sync_dir()


def discard(files: Files, name: str) -> None:
    """Unlink a file that may be absent and that nothing relies on."""
    try:
        files.unlink(name)
    except OSError:
        return


class OsFile:
    """A file of the operating system."""

    __slots__ = ("_fd", "_files", "name")

    def __init__(self, files: "OsFiles", name: str, fd: int) -> None:
        self.name = name
        self._files = files
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def read_into(self, buffer: memoryview, offset: int) -> int:
        try:
            return os.preadv(self._fd, [buffer], offset)
        except OSError as error:
            if error.errno not in REFUSED:
                raise
        with named("pread64", self.name):
            data = os.pread(self._fd, len(buffer), offset)
        buffer[: len(data)] = data
        return len(data)

    def read_nowait(self, buffer: memoryview, offset: int) -> bool:
        if not self._files.nowait:
            return False
        try:
            return os.preadv(self._fd, [buffer], offset, os.RWF_NOWAIT) == len(buffer)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in ABSENT:
                raise
            # tmpfs and some other file systems lack the flag, and sandboxes the call: all reads use a
            # thread.
            self._files.nowait = False
            return False

    def write(self, data: Buffer, offset: int) -> int:
        try:
            return os.pwrite(self._fd, data, offset)
        except OSError as error:
            refuse("pwrite64", error, self.name)
            raise

    def write_vector(self, parts: Sequence[Buffer], offset: int) -> int:
        try:
            return os.pwritev(self._fd, parts, offset)
        except OSError as error:
            if error.errno not in REFUSED:
                raise
        return self.write(b"".join(parts), offset)

    def sync_data(self) -> None:
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            if error.errno not in REFUSED:
                raise
            with named("fsync", self.name):
                os.fsync(self._fd)

    def sync(self) -> None:
        sync(self._fd, self.name)

    def truncate(self, size: int) -> None:
        with named("ftruncate", self.name):
            os.ftruncate(self._fd, size)

    def allocate(self, size: int) -> None:
        try:
            os.posix_fallocate(self._fd, 0, size)
        except OSError as error:
            if error.errno not in ABSENT:
                raise
            # What is written has its space, and is as durable.
            for offset in range(self.size(), size, len(_ZEROS)):
                write_all(self, memoryview(_ZEROS)[: size - offset], offset)

    def forget_cache(self) -> None:
        try:
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)
        except OSError as error:
            # The cache stays: what only it shows is then known by the mark of a failure alone.
            if error.errno not in ABSENT:
                raise

    def map_readonly(self, size: int) -> memoryview:
        try:
            mapped = mmap.mmap(self._fd, size, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
        except OSError as error:
            # No copy does: delete flags change in place, by other processes, too.
            refuse("mmap", error, self.name, also=errno.ENODEV)
            raise
        return memoryview(mapped)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        # The readers of a dropped segment are its only owners: the last one closes the file.
        self.close()


def refuse(call: str, error: OSError, name: str, *, also: int = 0) -> None:
    """Raise the error anew, with the name of the call and the cure, where the system refuses the call.

    Args:
        also: Another errno that says so.
    """
    if error.errno in REFUSED or error.errno == (also or None):
        raise OSError(error.errno, f"{call}: {error.strerror}: {CURE}", name) from error


@contextmanager
def named(call: str, name: str) -> Iterator[None]:
    """Have `refuse` look at what a call raises."""
    try:
        yield
    except OSError as error:
        refuse(call, error, name)
        raise


def sync(descriptor: int, name: str) -> None:
    """`fsync`, or `fdatasync`, which makes the size durable as well."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in REFUSED:
            raise
        with named("fdatasync", name):
            os.fdatasync(descriptor)


_ZEROS: Final = bytes(1 << 20)
TRIAL: Final = "a file without a name"
GIVE_WAY_S: Final = 10e-6
"""Any sleep will do.  A thread that goes on without one keeps its core for a whole slice of the
scheduler, 1.4 to 3 ms, and whoever was woken on that core waits for it."""
FLAGS: Final = os.O_CLOEXEC | os.O_NOFOLLOW
BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"


class OsFiles:
    """A directory of the operating system: 0700, its files 0600."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.path = os.fspath(root)
        self.nowait = hasattr(os, "RWF_NOWAIT")
        self._root = -1
        self._lock = -1

    def prepare(self, *, create: bool) -> None:
        if create and not os.path.isdir(self.path):
            try:
                os.makedirs(self.path, mode=0o700, exist_ok=True)
            except FileExistsError:
                # `exist_ok` accepts directories alone: the path names a file of another kind.
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", self.path) from None
            self._sync_path(os.path.dirname(os.path.abspath(self.path)))
        if self._root < 0:
            self._root = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def _sync_path(self, path: str) -> None:
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sync(directory, path)
        finally:
            os.close(directory)

    def names(self) -> list[str]:
        return sorted(os.listdir(self._root))

    def lock(self) -> bool:
        if self._lock >= 0:
            return True
        lock = os.open(LOCK_NAME, os.O_RDWR | os.O_CREAT | FLAGS, 0o600, dir_fd=self._root)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return False
        except OSError as error:
            os.close(lock)
            refuse("flock", error, LOCK_NAME)
            raise
        self._lock = lock
        self._try_calls()
        return True

    def _try_calls(self) -> None:
        """Make the calls that a store would make much later, on a file that has no name and leaves
        nothing: one that is refused, and that nothing can replace, keeps a server from starting.

        Raises:
            OSError: It names the call and the cure.
        """
        try:
            fd = os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600, dir_fd=self._root)
        except (OSError, AttributeError):
            return  # not every file system has such files: then they are met later
        file = OsFile(self, TRIAL, fd)
        try:
            file.write_vector([_ZEROS[:PAGE]], 0)
            file.write(_ZEROS[:PAGE], PAGE)
            file.truncate(PAGE)
            file.map_readonly(PAGE)
            file.read_into(memoryview(bytearray(PAGE)), 0)
        except OSError as error:
            # A full disk, or one that fails, is met where that has its own answer.
            if error.errno in REFUSED or error.errno == errno.ENODEV:
                raise
        finally:
            file.close()

    def create(self, name: str) -> File:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | FLAGS
        return OsFile(self, name, os.open(name, flags, 0o600, dir_fd=self._root))

    def open(self, name: str, *, write: bool = False) -> File:
        flags = (os.O_RDWR if write else os.O_RDONLY) | FLAGS
        return OsFile(self, name, os.open(name, flags, dir_fd=self._root))

    def rename(self, source: str, target: str) -> None:
        with named("renameat", source):
            os.rename(source, target, src_dir_fd=self._root, dst_dir_fd=self._root)

    def unlink(self, name: str) -> None:
        with named("unlinkat", name):
            os.unlink(name, dir_fd=self._root)

    def sync_dir(self) -> None:
        sync(self._root, self.path)

    def free_bytes(self) -> int:
        try:
            found = os.fstatvfs(self._root)
        except OSError as error:
            if error.errno not in REFUSED:
                raise
            return PLENTY_BYTES
        return found.f_bavail * found.f_frsize

    def modified_s(self, name: str) -> int:
        return int(os.stat(name, dir_fd=self._root, follow_symlinks=False).st_mtime)

    def now_s(self) -> int:
        return int(time.time())

    def boot_id(self) -> bytes:
        try:
            with open(BOOT_ID, encoding="ascii") as file:
                found = bytes.fromhex(file.read().strip().replace("-", ""))
        except (OSError, ValueError):
            found = b""
        # A sandbox may hide the file, or show an empty one.
        if len(found) != 16:
            # Without a boot id every restart must count as a reboot, which trusts no page cache.
            return os.urandom(16)
        return found

    def entropy(self, size: int) -> bytes:
        return os.urandom(size)

    def monotonic_us(self) -> int:
        return time.monotonic_ns() // 1000

    def give_way(self) -> None:
        time.sleep(GIVE_WAY_S)

    def close(self) -> None:
        if self._lock >= 0:
            # A process that is being started has a copy of it until it runs its program, and the lock with it.
            fcntl.flock(self._lock, fcntl.LOCK_UN)
        for descriptor in (self._lock, self._root):
            if descriptor >= 0:
                os.close(descriptor)
        self._lock = self._root = -1
