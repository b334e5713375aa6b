"""The log that is being written: one for all topics, in numbered files that are filled and left.

Owns the current file, the spare that is prepared before it is needed, and the reserve kept back for
deletes on a full disk.  Refuses to know what an event means, and never reads.  Invariants: every
batch is one write of whole sectors that nothing else shares; a file is filled before the next one
is begun, and the one after that is begun only once the first is durable; space is found before a
batch is written, never while.
"""

import errno
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from topics.protocol.errors import WriteFailed
from topics.protocol.events import Event
from topics.protocol.ports import StoreStats
from topics.protocol.records import Buffer
from topics.store import frames
from topics.store.files import File, Files, discard, write_all
from topics.store.layout import (
    BATCH_HEADER,
    BATCH_MAGIC,
    EVENTS,
    FORMAT_VERSION,
    IDLE,
    LOG_HEADER,
    LOG_MAGIC,
    RESERVE_NAME,
    ROTATE,
    SECTOR,
    aligned,
    digest,
    log_name,
    seal_header,
)

FIRST_FILE_BYTES: Final = 1 << 20
"""The first file of a process is small, so that a fresh server starts at once; later ones double."""

FSYNC_US_BOUNDS: Final = (
    *(50, 100, 250, 500, 1000, 2500, 5000, 10_000, 25_000, 50_000),
    *(100_000, 250_000, 1_000_000),
)

MARGIN: Final = 4 * SECTOR
"""What a file holds besides one batch's frames: its header, the batch's, the mark that ends it."""

PROMISE_BYTES_MAX: Final = 1 << 30
FILL_BYTES: Final = 1 << 20
SMALL_BATCH_BYTES: Final = 16 << 10

_ZEROS: Final = bytes(FILL_BYTES)


@dataclass(frozen=True, slots=True)
class Position:
    """Between two batches: file and offset of the next one, number and digest of the last."""

    file_number: int
    offset: int
    batch: int
    digest: int


@dataclass(slots=True)
class LogFile:
    """A log file in this process's hands; `last_batch` is the newest written into it."""

    file: File
    size: int
    offset: int = 0
    filled: int = 0
    last_batch: int = 0
    batches: int = 0
    is_reserve: bool = False

    @property
    def room(self) -> int:
        return max(0, self.size - self.offset - MARGIN)


class Log:
    """Writes batches; `write`, `mark` and `room` on one thread, `sync` on another."""

    def __init__(
        self,
        files: Files,
        *,
        instance: bytes,
        incarnation: int,
        position: Position,
        stats: StoreStats,
        file_bytes: int,
        reserve_bytes: int,
    ) -> None:
        """`position.file_number` is the number of the file to begin next; its offset is unused."""
        self.synced_lsn = 0
        self.written_lsn = 0
        self.written_bytes = 0
        self.failed: WriteFailed | None = None
        self._files = files
        self._instance = instance
        self._incarnation = incarnation
        self._boot_id = files.boot_id()
        self._stats = stats
        self._file_bytes = aligned(max(file_bytes, 64 << 10), SECTOR)
        self._reserve_bytes = aligned(max(reserve_bytes, 64 << 10), SECTOR)
        self._next_size = min(FIRST_FILE_BYTES, self._file_bytes)
        stats.fsync_us_buckets.update(dict.fromkeys(FSYNC_US_BOUNDS, 0))
        self._next_number = position.file_number
        self._batch = position.batch
        self._digest = position.digest
        self._synced_batch = position.batch
        self._vouched = position.batch
        self._last_batch = position.batch
        self._dirty = 0
        self._clean = 0
        self._free_bytes = 0
        self._current: LogFile | None = None
        self._spare: LogFile | None = None
        self._reserve: LogFile | None = None
        self._unsynced: list[LogFile] = []
        self._space = threading.RLock()
        self._syncing = threading.RLock()
        self._state = threading.Lock()

    # -- life ----------------------------------------------------------------------------------

    def begin(self) -> None:
        """Prepare reserve and first file.  On a full disk there may be neither: `room` says so."""
        self._free_bytes = self._files.free_bytes()
        with self._space:
            self._adopt_reserve()
            self._replenish()
            if self._spare is not None:
                self._fill_spare()
                self._start(self._take_spare())

    def _adopt_reserve(self) -> None:
        if RESERVE_NAME in self._files.names():
            file = self._files.open(RESERVE_NAME, write=True)
            self._reserve = LogFile(file, file.size() & -SECTOR, is_reserve=True)

    def close(self) -> None:
        """Let go of every file; nothing is written."""
        for held in (self._spare, self._reserve, *self._unsynced, self._current):
            if held is not None:
                held.file.close()

    @property
    def has_file(self) -> bool:
        return self._current is not None

    @property
    def position(self) -> Position:
        """Where the next batch will stand."""
        current = self._current
        number, offset = self._next_number, SECTOR
        if current is not None:
            number, offset = self._next_number - 1, current.offset
        return Position(number, offset, self._batch, self._digest)

    # -- space ---------------------------------------------------------------------------------

    def room(self, *, reserve: bool) -> int:
        """Bytes of frames that one `write` is sure to find space for."""
        if self.failed is not None:
            return 0
        current, spare = self._current, self._spare
        room = 0 if current is None or current.is_reserve else current.room
        if spare is not None:
            room = max(room, spare.size - MARGIN)
        promise = self._free_bytes // 4
        if self._reserve is not None and promise > 2 * (self._file_bytes + self._reserve_bytes):
            # Plenty: a larger file is made when it is needed, and the reserve stands behind the
            # promise should somebody else take the space in between.
            return max(room, min(promise, PROMISE_BYTES_MAX))
        if spare is None or self._reserve is None:
            room = max(room, self._room_made())
        if reserve:
            room = max(room, self._reserved_room())
        return room

    def _room_made(self) -> int:
        self._free_bytes = self._files.free_bytes()
        with self._space:
            self._replenish()
            return self._spare.size - MARGIN if self._spare is not None else 0

    def _reserved_room(self) -> int:
        current, reserve = self._current, self._reserve
        room = current.room if current is not None else 0
        return max(room, reserve.size - MARGIN) if reserve is not None else room

    def _replenish(self) -> None:
        """Make what is missing of reserve and spare; the reserve first, it is what frees space."""
        if self._reserve is None:
            size = min(self._reserve_bytes, FIRST_FILE_BYTES)
            self._reserve = self._prepare(RESERVE_NAME, size)
            if self._reserve is not None:
                self._reserve.is_reserve = True
        if self._reserve is not None and self._spare is None:
            name = log_name(self._next_number)
            self._spare = self._prepare(name, self._next_size)
            if self._spare is None and self._next_size > FIRST_FILE_BYTES:
                self._spare = self._prepare(name, FIRST_FILE_BYTES)

    def _prepare(self, name: str, size: int) -> LogFile | None:
        """A new file with its space, entry and size durable; None where there is no space.

        It gets its name only then, so that a name of ours is never a file without its space.
        """
        if self._files.free_bytes() < size:
            return None
        temp = name + ".tmp"
        discard(self._files, temp)
        file = None
        try:
            file = self._files.create(temp)
            file.allocate(size)
            file.sync()
            self._files.rename(temp, name)
            self._files.sync_dir()
        except OSError:
            if file is not None:
                file.close()
            discard(self._files, temp)
            discard(self._files, name)
            return None
        file.name = name
        return LogFile(file, size)

    def _take_spare(self) -> LogFile:
        assert self._spare is not None
        spare, self._spare = self._spare, None
        return spare

    def _file_for(self, size: int) -> LogFile:
        """A file not yet begun with `size` bytes to write.  Raises OSError: there is no space."""
        need = aligned(size + MARGIN, SECTOR)
        if self._spare is not None and self._spare.size >= need:
            return self._take_spare()
        if self._spare is not None:
            self._drop_spare()
        self._next_size = max(self._next_size, need)
        self._spare = self._prepare(log_name(self._next_number), self._next_size)
        self._next_size = min(self._next_size, self._file_bytes)
        if self._spare is not None:
            return self._take_spare()
        return self._taken_reserve(need)

    def _drop_spare(self) -> None:
        spare = self._take_spare()
        spare.file.close()
        self._files.unlink(spare.file.name)

    def _taken_reserve(self, need: int) -> LogFile:
        reserve = self._reserve
        if reserve is None or reserve.size < need:
            raise OSError(errno.ENOSPC, f"no space for {need} bytes of log", self._files.path)
        self._files.rename(RESERVE_NAME, log_name(self._next_number))
        self._files.sync_dir()
        reserve.file.name = log_name(self._next_number)
        self._reserve = None
        return reserve

    def maintain(self) -> None:
        """*Blocking*, on the thread that syncs: prepare the next file before it is needed."""
        self._free_bytes = self._files.free_bytes()
        current = self._current
        with self._space:
            if self._reserve is None or (current is not None and current.offset * 2 > current.size):
                self._replenish()
            self._grow_reserve()
        if current is not None and current.offset < current.batches * SMALL_BATCH_BYTES:
            self._fill_spare()

    def _grow_reserve(self) -> None:
        reserve, current = self._reserve, self._current
        wanted = min(self._reserve_bytes, current.size if current is not None else 0)
        if reserve is None or reserve.size >= wanted or self._free_bytes < 4 * wanted:
            return
        try:
            reserve.file.allocate(wanted)
            reserve.file.sync()
            reserve.size = wanted
        except OSError:
            return

    def _fill_spare(self) -> None:
        """Write zeros into a step of the spare, so that a sync of it need not touch metadata.

        Pays for a log of small batches, each of which somebody waits for; a log of large ones
        would only be written twice.
        """
        with self._space:
            spare = self._spare
            if spare is None or spare.filled >= spare.size:
                return
            step = min(FILL_BYTES, spare.size - spare.filled)
            write_all(spare.file, memoryview(_ZEROS)[:step], spare.filled)
            spare.filled += step
            # Under the lock: nobody may begin this file between the zeros and their sync.
            spare.file.sync_data()

    # -- writing -------------------------------------------------------------------------------

    def write(self, events: Sequence[Event]) -> int:
        """Append one batch; returns its lsn.  Raises WriteFailed."""
        self.refuse_if_failed()
        parts: list[Buffer] = [b""]
        size = frames.encode_all(events, parts)
        self._append(EVENTS, parts, size, len(events))
        self._stats.frames_total += len(events)
        with self._state:
            self.written_lsn += 1
            return self.written_lsn

    def idle(self) -> None:
        """Vouch for all batches so far, where they are durable and nothing does yet."""
        current = self._current
        if current is None or self.failed is not None or current.room == 0:
            return
        if self._vouched < self._last_batch <= self._synced_batch and self._dirty == self._clean:
            self._append(IDLE, [b""], 0, 0)

    def mark(self, kind: int) -> None:
        """A mark that must be durable before anything relies on it."""
        self.refuse_if_failed()
        self._append(kind, [b""], 0, 0)

    def rotate(self) -> Position:
        """Begin a new file, where there is space for one; returns where the log goes on.

        On a full disk the log goes on in its current file: a checkpoint can begin anywhere.

        Raises:
            WriteFailed: as `write`.
            OSError: There is no current file either.
        """
        self.refuse_if_failed()
        current = self._current
        if current is None:
            raise OSError(errno.ENOSPC, "no space for a log file", self._files.path)
        if current.batches and self._spare_made():
            try:
                self._leave(0)
            except OSError as error:
                raise self.fail(error) from error
        return self.position

    def _spare_made(self) -> bool:
        with self._space:
            self._replenish()
            return self._spare is not None

    def _append(self, kind: int, parts: list[Buffer], size: int, events: int) -> None:
        current = self._current
        try:
            if current is None or current.offset + BATCH_HEADER.size + size + SECTOR > current.size:
                current = self._leave(size)
            self._put(current, kind, parts, size, events)
        except OSError as error:
            raise self.fail(error) from error

    def _put(
        self, current: LogFile, kind: int, parts: list[Buffer], size: int, events: int
    ) -> None:
        number = self._batch + 1
        parts[0] = bytes(BATCH_HEADER.size)
        block = bytearray().join(parts)
        assert len(block) == BATCH_HEADER.size + size
        header = seal_header(
            BATCH_HEADER,
            BATCH_MAGIC,
            FORMAT_VERSION,
            kind,
            self._incarnation,
            self._instance,
            self._next_number - 1,
            number,
            events,
            0,
            size,
            self._digest,
            self._synced_batch,
            digest(memoryview(block)[BATCH_HEADER.size :]),
        )
        block[: BATCH_HEADER.size] = header
        write_all(current.file, block, current.offset)
        current.offset = aligned(current.offset + len(block), SECTOR)
        current.batches += 1
        self._digest = int.from_bytes(header[-8:], "little")
        self._vouched = self._synced_batch
        with self._state:
            self._batch = current.last_batch = number
            if kind != IDLE:
                self._last_batch = number
                self._dirty += 1
        self._stats.batches_total += 1
        self._stats.bytes_written_total += len(block)
        self.written_bytes += len(block)

    def _leave(self, size: int) -> LogFile:
        """End the current file and begin one with space for `size` bytes of frames."""
        if len(self._unsynced) > 1:
            # Two files back there must be nothing that a power loss can still take away.
            self.sync()
        with self._space:
            # From taking the spare to numbering the next one nobody may prepare: it would get the
            # name of the file that is just being begun.
            following = self._file_for(size)
            current = self._current
            if current is not None:
                self._put(current, ROTATE, [b""], 0, 0)
                self._stats.rotations_total += 1
            return self._start(following)

    def _start(self, following: LogFile) -> LogFile:
        header = seal_header(
            LOG_HEADER,
            LOG_MAGIC,
            FORMAT_VERSION,
            0,
            self._incarnation,
            self._instance,
            self._next_number,
            self._batch,
            self._digest,
            self._synced_batch,
            self._boot_id,
        )
        write_all(following.file, header, 0)
        following.offset = SECTOR
        self._vouched = self._synced_batch
        with self._state:
            self._current = following
            self._unsynced.append(following)
            self._dirty += 1
        self._next_number += 1
        self._next_size = min(max(self._next_size, following.size) * 2, self._file_bytes)
        return following

    # -- durability ----------------------------------------------------------------------------

    def sync(self) -> int:
        """*Blocking.* Make what was written so far durable, oldest file first; returns its lsn."""
        with self._syncing:
            self.refuse_if_failed()
            with self._state:
                lsn, batch, dirty = self.written_lsn, self._batch, self._dirty
                held = tuple(self._unsynced)
            if dirty > self._clean:
                try:
                    for each in held:
                        self._timed_sync(each.file)
                except OSError as error:
                    raise self.fail(error) from error
                self._settle(lsn, batch, dirty)
            return self.synced_lsn

    def _timed_sync(self, file: File) -> None:
        began_us = self._files.monotonic_us()
        file.sync_data()
        self.count_sync(self._files.monotonic_us() - began_us)

    def count_sync(self, took_us: int) -> None:
        stats = self._stats
        stats.fsyncs_total += 1
        stats.fsync_us_sum += took_us
        for bound in FSYNC_US_BOUNDS:
            if took_us <= bound:
                stats.fsync_us_buckets[bound] += 1
                return
        stats.fsync_us_over += 1

    def _settle(self, lsn: int, batch: int, dirty: int) -> None:
        with self._state:
            self._clean = dirty
            self.synced_lsn = lsn
            self._synced_batch = batch
            done = [f for f in self._unsynced[:-1] if f.last_batch <= batch]
            self._unsynced = [f for f in self._unsynced if f not in done]
        for each in done:
            each.file.close()

    def end(self, kind: int) -> None:
        """*Blocking.* Write a last mark, make it durable, and cut what was prepared beyond it."""
        self.sync()
        self.mark(kind)
        self.sync()
        current = self._current
        assert current is not None
        current.file.truncate(current.offset)
        current.file.sync()
        with self._space:
            if self._spare is not None:
                self._drop_spare()
        self._files.sync_dir()

    def fail(self, error: OSError) -> WriteFailed:
        """Nothing is retried: after a failed sync the page cache shows bytes the disk lacks."""
        if self.failed is None:
            what = error.strerror or str(error)
            self.failed = WriteFailed(self._files.path, f"the log is read-only: {what}")
        return self.failed

    def refuse_if_failed(self) -> None:
        if self.failed is not None:
            raise self.failed
