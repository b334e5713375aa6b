"""A directory on a disk that loses unsynced writes: `topics.store.files.Files` for simulations.

Owns what a power loss may take: each sector written and not synced persists or not by itself, a
size apart from its bytes, names as a prefix of what was done to them (or, harshly, any subset).  A
disk with sectors of 4,096 bytes takes more of a log file: a page of it that was being written may be
gone as a whole, what had been synced in it too.  Every call that changes something is counted, so
that a test can cut, kill or fail at each one.
"""

import errno
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from topics.protocol.model.records import Buffer
from topics.store.files import File
from topics.store.layout import LOCK_NAME, PAGE, SECTOR


class Cut(BaseException):
    """The machine stopped: no call returns after this."""


@dataclass
class Fault:
    """What the n-th counted call does instead: fail with `error`, or write only a part.

    Attributes:
        error: An errno; 0 for a short write.
        cleans: A failing sync marks the pages clean all the same, as Linux does.
        kind: What is raised; what is no OSError is no disk's doing, like want of memory.
    """

    error: int = errno.EIO
    cleans: bool = True
    kind: type[Exception] = OSError

    def raised(self, what: str) -> Exception:
        if self.kind is OSError:
            return OSError(self.error, "injected", what)
        return self.kind(f"injected into {what}")


@dataclass
class Inode:
    """`cache` is what reads return, `durable` what the device holds, `dirty` the sectors that
    differ; `modified_s` is the time of the last write, `errors` how many syncs have failed."""

    cache: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    dirty: set[int] = field(default_factory=set)
    modified_s: int = 0
    errors: int = 0

    def write(self, data: Buffer, offset: int) -> None:
        end = offset + len(data)
        if end > len(self.cache):
            self.cache.extend(bytes(end - len(self.cache)))
        self.cache[offset:end] = data
        self.dirty.update(range(offset // SECTOR, -(-end // SECTOR)))

    def sync(self) -> None:
        if len(self.durable) != len(self.cache):
            del self.durable[len(self.cache) :]
            self.durable.extend(bytes(len(self.cache) - len(self.durable)))
        for sector in self.dirty:
            at = sector * SECTOR
            piece = self.cache[at : at + SECTOR]
            self.durable[at : at + len(piece)] = piece
        self.dirty.clear()

    def forget(self) -> None:
        """Read clean sectors from the device again."""
        fresh = bytearray(self.durable[: len(self.cache)])
        fresh.extend(bytes(len(self.cache) - len(fresh)))
        for sector in self.dirty:
            at = sector * SECTOR
            piece = self.cache[at : at + SECTOR]
            fresh[at : at + len(piece)] = piece
        self.cache[:] = fresh

    def cut(self, rng: random.Random, *, harsh: bool) -> bytearray:
        """What the device holds after a power loss."""
        chance = rng.choice((0.0, 0.2, 0.5, 0.8, 1.0))
        size = len(self.cache) if rng.random() < chance else len(self.durable)
        found = bytearray(self.durable[:size])
        found.extend(bytes(size - len(found)))
        for sector in sorted(self.dirty):
            at = sector * SECTOR
            room = min(SECTOR, size - at)
            if room <= 0:
                continue
            if rng.random() < chance:
                piece = self.cache[at : at + room]
                found[at : at + len(piece)] = piece
            elif harsh and at >= len(self.durable) and rng.random() < 0.3:
                found[at : at + room] = rng.randbytes(room)
        return found

    def tear(self, found: bytearray, rng: random.Random) -> None:
        """Remove whole pages, of those that were being written, from what the device holds."""
        for page in sorted({sector * SECTOR // PAGE for sector in self.dirty}):
            if rng.random() < 0.3:
                at = page * PAGE
                lost = min(PAGE, len(found) - at)
                if lost > 0:
                    found[at : at + lost] = bytes(lost)

    def truncate(self, size: int) -> None:
        """The rest of the last page is zeroed, so that page is written again."""
        last = min(size & -PAGE, len(self.cache)) if size < len(self.cache) else size
        del self.cache[size:]
        self.dirty = {sector for sector in self.dirty if sector * SECTOR < size}
        self.dirty.update(range(last // SECTOR, -(-len(self.cache) // SECTOR)))


class SimFile:
    """Implements `files.File`."""

    def __init__(self, files: "SimFiles", name: str, inode: Inode, *, write: bool) -> None:
        self.name = name
        self._files = files
        self._inode = inode
        self._may_write = write
        self._errors_seen = inode.errors

    def fileno(self) -> int:
        raise AssertionError("no process has it")

    def size(self) -> int:
        return len(self._inode.cache)

    def read_into(self, buffer: memoryview, offset: int) -> int:
        self._files.reads(self.name)
        piece = self._files.spoiled(self.name, self._inode.cache[offset : offset + len(buffer)])
        buffer[: len(piece)] = piece
        return len(piece)

    def read_nowait(self, buffer: memoryview, offset: int) -> bool:
        return not self._files.cold and self.read_into(buffer, offset) == len(buffer)

    def write(self, data: Buffer, offset: int) -> int:
        assert self._may_write, f"{self.name} was opened for reading"
        view = memoryview(data)
        fault = self._files.counted_write(self.name)
        if fault is not None and fault.error:
            self._inode.write(view[: len(view) // 2], offset)
            raise fault.raised(self.name)
        if fault is not None:
            view = view[: max(1, len(view) // 2)]
        self._files.take(offset + len(view) - len(self._inode.cache))
        self._inode.write(view, offset)
        self._inode.modified_s = self._files.wall_s
        return len(view)

    def write_vector(self, parts: Sequence[Buffer], offset: int) -> int:
        return self.write(b"".join(parts), offset)

    def sync_data(self) -> None:
        self.sync()

    def sync(self) -> None:
        """An error is told once to each open file, as Linux does (errseq_t)."""
        fault = self._files.counted(f"sync {self.name}")
        if fault is not None and fault.error:
            if fault.cleans:
                self._inode.dirty.clear()
            if fault.kind is OSError:
                self._inode.errors += 1
                self._errors_seen = self._inode.errors
            raise fault.raised(self.name)
        if self._errors_seen < self._inode.errors:
            self._errors_seen = self._inode.errors
            raise OSError(errno.EIO, "told to another file before", self.name)
        if not self._files.lies:
            self._inode.sync()

    def truncate(self, size: int) -> None:
        assert self._may_write, f"{self.name} was opened for reading"
        self._files.failing(f"truncate {self.name}")
        self._inode.truncate(size)

    def allocate(self, size: int) -> None:
        self._files.failing(f"allocate {self.name}")
        grown = max(0, size - len(self._inode.cache))
        self._files.take(grown)
        self._inode.cache.extend(bytes(grown))

    def forget_cache(self) -> None:
        self._inode.forget()

    def map_readonly(self, size: int) -> memoryview:
        assert size <= len(self._inode.cache)
        return memoryview(self._inode.cache).toreadonly()[:size]

    def close(self) -> None:
        return


class SimFiles:
    """Implements `files.Files`.

    Attributes:
        calls: Counted calls so far: those that change something or make it durable.
        log: What they were.
        faults: Call number -> what it does instead.
        stuck: Calls that fail from now on, each as `stuck_fault` says, whenever they come.
        cut_at: The call that never returns.
        capacity_bytes: Space on the disk.
        page_bytes: What the disk writes as a whole, 512 or 4,096.
        cold: No read finds its bytes in memory.
        lies: A sync returns, and nothing is durable.
        unreadable: Names whose reads fail.
        spoil: How reads of segments fail now: `error`, `short` or `bit`; None: they do not.
        spoiled_reads: Those that did.
        note_fault: What each write into the lock file does instead.
        wall_s: The wall clock, which only a test moves.
    """

    def __init__(self, seed: int = 0) -> None:
        self.path = "sim"
        self.page_bytes = random.Random(seed).choice((SECTOR, PAGE))
        self.calls = 0
        self.log: list[str] = []
        self.faults: dict[int, Fault] = {}
        self.stuck: re.Pattern[str] | None = None
        self.stuck_fault = Fault()
        self.cut_at: int | None = None
        self.capacity_bytes = 1 << 40
        self.cold = self.lies = False
        self.unreadable: set[str] = set()
        self.spoil: str | None = None
        self.spoiled_reads = 0
        self.note_fault: Fault | None = None
        self.wall_s = 1_750_000_000
        self.seed = seed
        self.inodes: dict[str, Inode] = {}
        self.durable_names: dict[str, Inode] = {}
        self.pending: list[list[tuple[str, Inode | None]]] = []
        self._boot = 1
        self._clock_us = 0
        self._locked_by: list[SimFiles] = []

    # -- the test's side -----------------------------------------------------------------------

    def cut(self, rng: random.Random, *, harsh: bool = False) -> "SimFiles":
        """The directory as found after a power loss; this one stays as it is."""
        found = self._successor(boot=self._boot + 1)
        names = dict(self.durable_names)
        kept = rng.randint(0, len(self.pending))
        for index, operations in enumerate(self.pending):
            if (rng.random() < 0.5) if harsh else index < kept:
                _apply(names, operations)
        again: dict[int, Inode] = {}
        for name, inode in sorted(names.items()):
            if id(inode) not in again:
                if name == LOCK_NAME:
                    data = inode.cut(_aside(rng), harsh=harsh)
                    Inode().cut(rng, harsh=harsh)  # as many draws as without a note
                else:
                    data = inode.cut(rng, harsh=harsh)
                if self.page_bytes == PAGE and name.endswith(".wal"):
                    inode.tear(data, _aside(rng))
                again[id(inode)] = Inode(bytearray(data), data, modified_s=inode.modified_s)
            found.inodes[name] = again[id(inode)]
        found.durable_names = dict(found.inodes)
        return found

    def kill(self) -> "SimFiles":
        """The directory as the next process finds it when only this process died."""
        found = self._successor(boot=self._boot)
        copies = {id(i): _copy(i) for i in self._all_inodes()}
        found.inodes = {name: copies[id(i)] for name, i in self.inodes.items()}
        found.durable_names = {name: copies[id(i)] for name, i in self.durable_names.items()}
        found.pending = [
            [(name, None if i is None else copies[id(i)]) for name, i in operations]
            for operations in self.pending
        ]
        return found

    def drop_caches(self) -> None:
        """The kernel drops clean pages: they are read from the device again."""
        for inode in self._all_inodes():
            inode.forget()

    def settle(self) -> None:
        """Everything that is still to be written is on the disk, and reads return nothing else."""
        for inode in self._all_inodes():
            inode.sync()
            inode.forget()

    def other(self) -> "SimFiles":
        """The same directory in another process."""
        other = SimFiles(self.seed)
        other.__dict__.update(self.__dict__)
        return other

    def tree(self) -> dict[str, bytes]:
        return {name: bytes(inode.cache) for name, inode in sorted(self.inodes.items())}

    def put(self, name: str, data: bytes) -> None:
        """Give a file these bytes, durably, without the store."""
        self.inodes[name] = Inode(bytearray(data), bytearray(data), modified_s=self.wall_s)
        self.durable_names[name] = self.inodes[name]

    def remove(self, name: str) -> None:
        del self.inodes[name]
        self.durable_names.pop(name, None)

    def _successor(self, *, boot: int) -> "SimFiles":
        found = SimFiles(self.seed + 1)
        found._boot = boot
        found.capacity_bytes = self.capacity_bytes
        found.wall_s = self.wall_s
        found.page_bytes = self.page_bytes
        return found

    @property
    def dirty_logs(self) -> list[str]:
        """Files of the log with bytes that a power loss may take."""
        return [n for n, inode in self.inodes.items() if n.endswith(".wal") and inode.dirty]

    @property
    def is_stuck(self) -> bool:
        """Whether some calls fail whenever they come, or no segment can be read."""
        return self.stuck is not None or self.spoil is not None

    def _all_inodes(self) -> list[Inode]:
        pending = [i for operations in self.pending for _, i in operations if i is not None]
        return [*self.inodes.values(), *self.durable_names.values(), *pending]

    # -- for SimFile ---------------------------------------------------------------------------

    def counted(self, what: str) -> Fault | None:
        if self.cut_at is not None and self.calls >= self.cut_at:
            raise Cut(what)
        self.calls += 1
        self.log.append(what)
        if self.stuck is not None and self.stuck.fullmatch(what):
            return self.stuck_fault
        return self.faults.get(self.calls)

    def counted_write(self, name: str) -> Fault | None:
        """As `counted`, but for the note in the lock file: it is no step of a story, since a cut in
        front of it is one right behind the sync that it tells of."""
        if name != LOCK_NAME:
            return self.counted(f"write {name}")
        if self.cut_at is not None and self.calls >= self.cut_at:
            raise Cut(name)
        return self.note_fault

    def failing(self, what: str) -> None:
        fault = self.counted(what)
        if fault is not None and fault.error:
            raise fault.raised(what)

    def take(self, size: int) -> None:
        if size > 0 and size > self.free_bytes():
            raise OSError(errno.ENOSPC, "no space left")

    def spoiled(self, name: str, piece: bytearray) -> bytearray:
        """What a read of a segment brings: less than it should, or with another bit."""
        if self.spoil is None or not name.endswith(".seg") or not piece:
            return piece
        self.spoiled_reads += 1
        if self.spoil == "error":
            raise OSError(errno.EIO, "unreadable", name)
        if self.spoil == "short":
            return piece[: len(piece) // 2]
        piece[len(piece) // 2] ^= 1
        return piece

    def reads(self, name: str) -> None:
        if name in self.unreadable:
            raise OSError(errno.EIO, "unreadable", name)

    # -- Files ---------------------------------------------------------------------------------

    def prepare(self, *, create: bool) -> None:
        return

    def names(self) -> list[str]:
        return sorted(self.inodes)

    def lock(self) -> bool:
        if LOCK_NAME not in self.inodes:
            self._change([(LOCK_NAME, Inode())])
        if self._locked_by and self._locked_by[0] is not self:
            return False
        self._locked_by[:] = [self]
        return True

    def create(self, name: str) -> File:
        if name in self.inodes:
            raise FileExistsError(errno.EEXIST, "exists", name)
        self.failing(f"create {name}")
        inode = Inode()
        self._change([(name, inode)])
        return SimFile(self, name, inode, write=True)

    def open(self, name: str, *, write: bool = False) -> File:
        if name not in self.inodes:
            raise FileNotFoundError(errno.ENOENT, "missing", name)
        return SimFile(self, name, self.inodes[name], write=write)

    def rename(self, source: str, target: str) -> None:
        if source not in self.inodes:
            raise FileNotFoundError(errno.ENOENT, "missing", source)
        self.failing(f"rename {source} {target}")
        self._change([(target, self.inodes[source]), (source, None)])

    def unlink(self, name: str) -> None:
        if name not in self.inodes:
            raise FileNotFoundError(errno.ENOENT, "missing", name)
        self.failing(f"unlink {name}")
        self._change([(name, None)])

    def _change(self, operations: list[tuple[str, Inode | None]]) -> None:
        _apply(self.inodes, operations)
        self.pending.append(operations)

    def sync_dir(self) -> None:
        self.failing("sync_dir")
        if self.lies:
            return
        for operations in self.pending:
            _apply(self.durable_names, operations)
        self.pending.clear()

    def free_bytes(self) -> int:
        used = sum(len(inode.cache) for inode in self.inodes.values())
        return max(0, self.capacity_bytes - used)

    def modified_s(self, name: str) -> int:
        if name not in self.inodes:
            raise FileNotFoundError(errno.ENOENT, "missing", name)
        return self.inodes[name].modified_s

    def now_s(self) -> int:
        return self.wall_s

    def boot_id(self) -> bytes:
        return self._boot.to_bytes(16, "little")

    def entropy(self, size: int) -> bytes:
        return random.Random(self.seed).randbytes(size)

    def monotonic_us(self) -> int:
        self._clock_us += 1
        return self._clock_us

    def give_way(self) -> None:
        return

    def close(self) -> None:
        if self._locked_by and self._locked_by[0] is self:
            self._locked_by.clear()


def _aside(rng: random.Random) -> random.Random:
    """Random draws that do not change the ones that follow."""
    again = random.Random()
    again.setstate(rng.getstate())
    return again


def _apply(names: dict[str, Inode], operations: list[tuple[str, Inode | None]]) -> None:
    for name, inode in operations:
        if inode is None:
            names.pop(name, None)
        else:
            names[name] = inode


def _copy(inode: Inode) -> Inode:
    cache, durable = bytearray(inode.cache), bytearray(inode.durable)
    return Inode(cache, durable, set(inode.dirty), inode.modified_s)
