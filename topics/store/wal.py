"""Writing the log: one log for all topics, in numbered files that are written front to back.

Owns the current file, and how far it is written and synced; `space` prepares the files.  Knows
nothing of what an event means, and never reads.  Invariants: a batch is one write that begins on a
sector of its own.  A page that a begun sync covers is never written again, because a disk may lose a
whole page that it is writing.  A file is finished before the next is begun, and durable before the
one after that is begun.
"""

import errno
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple, NoReturn

from topics.protocol.model.codec import Frames
from topics.protocol.model.errors import WriteFailed, lacks_space
from topics.protocol.model.ports import StoreStats, SyncedFile
from topics.store.files import File, Files, write_all, write_parts
from topics.store.layout import (
    BATCH_HEADER,
    BATCH_MAGIC,
    EVENTS,
    FAILED_NAME,
    FORMAT_VERSION,
    IDLE,
    LOG_HEADER,
    LOG_MAGIC,
    PAGE,
    RESERVE_NAME,
    ROTATE,
    SECTOR,
    aligned,
    digest_all,
    seal_header,
)
from topics.store.space import LogFile, Space

NOTHING: Final = Frames()
"""The frames of a mark: none."""

UNMARKED: Final = (
    f"no mark of it could be left: make an empty file {FAILED_NAME} in the data directory, or "
    "restart the machine, before the server is started again"
)

FSYNC_US_BOUNDS: Final = (
    *(50, 100, 250, 500, 1000, 2500, 5000, 10_000, 25_000, 50_000),
    *(100_000, 250_000, 1_000_000),
)


@dataclass(frozen=True, slots=True)
class LogPosition:
    """A point between two batches: file and offset of the next, number and digest of the last."""

    file_number: int
    offset: int
    batch: int
    digest: int


def leave_failure_mark(files: Files) -> str:
    """Leave the mark `FAILED_NAME` for the next start, as far as the failing disk allows.

    A disk that cannot create a file may still rename one.  The reserve is there, and a read-only
    log does not need it.

    Returns:
        A text for the error message: empty, or instructions if no mark could be left.
    """
    try:
        _make_mark(files)
    except Exception:
        return f"; {UNMARKED}"
    with suppress(Exception):
        files.sync_dir()  # without it the mark survives a kill, but not a power loss
    return ""


def _make_mark(files: Files) -> None:
    try:
        files.create(FAILED_NAME).close()
    except FileExistsError:
        return
    except Exception:
        files.rename(RESERVE_NAME, FAILED_NAME)


Note = tuple[bytes, SyncedFile]
"""What the witness is to say, and the file at whose begin."""


class LogSync(NamedTuple):
    """A sync of the log that was begun, and that another process performs.

    Attributes:
        files: What is to be synced, in this order.  Each is opened a second time, for that process alone:
            an error of the disk is reported once to each open file (errseq_t of Linux), so that this
            process is told of it, too, where the other dies over it.
        note: What the witness is to say once they are.
    """

    lsn: int
    batch: int
    dirty: int
    held: tuple[LogFile, ...]
    files: Sequence[SyncedFile] = ()
    note: Note | None = None


class Log:
    """Writes batches; `write`, `mark` and `room` on one thread, `sync` on another."""

    def __init__(
        self,
        files: Files,
        *,
        instance: bytes,
        incarnation: int,
        position: LogPosition,
        stats: StoreStats,
        file_bytes: int,
        reserve_bytes: int,
    ) -> None:
        """`position.file_number` is the number of the file to begin next; its offset is unused."""
        self.synced_lsn = 0
        self.written_lsn = 0
        self.written_bytes = 0
        self.failed: WriteFailed | None = None
        self.lacks_space = False
        """It failed for want of space."""
        self._files = files
        self._instance = instance
        self._incarnation = incarnation
        self._boot_id = files.boot_id()
        self._stats = stats
        self._space = Space(
            files,
            next_number=position.file_number,
            file_bytes=file_bytes,
            reserve_bytes=reserve_bytes,
        )
        stats.fsync_us_buckets.update(dict.fromkeys(FSYNC_US_BOUNDS, 0))
        self._batch = position.batch
        self._digest = position.digest
        self._synced_batch = position.batch
        self._vouched = position.batch
        self._last_batch = position.batch
        self._dirty = 0
        self._clean = 0
        self._current: LogFile | None = None
        self._unsynced: list[LogFile] = []
        self._syncing = threading.Lock()
        """Held from the begin of a sync to its end, which may be on another thread: of two syncs of one
        file at a time the wrong one may be told of an error."""
        self._writing = threading.Lock()
        """Held while a batch is placed and written, and while a sync begins: a sync either covers
        the batch, or the batch stays off the pages of the sync.  Taken before `_state`."""
        self._state = threading.Lock()

    # -- life ----------------------------------------------------------------------------------

    def begin(self) -> None:
        """Prepare reserve and first file.  A full disk may have neither: then `room` is 0.

        Raises:
            OSError: The disk failed.
        """
        if self._space.begin():
            with self._space.lock:
                first = self._start(self._space.take(0))
            # Before any batch: bytes behind the mark of a clean stop count as damage, unless they
            # are the file header of a later process.
            first.file.sync_data()
            if self._space.is_scarce():
                # On a disk short of space only prepared files count as room.
                self._space.find(0)

    def close(self) -> None:
        """Close every file; nothing is written."""
        self._space.close()
        for held in self._unsynced:
            held.close()

    @property
    def has_file(self) -> bool:
        return self._current is not None

    @property
    def last_batch(self) -> int:
        """The number of the newest batch, marks included."""
        return self._batch

    @property
    def position(self) -> LogPosition:
        """The position of the next batch, once the log has a file."""
        current = self._current
        assert current is not None
        return LogPosition(self._space.next_number - 1, current.offset, self._batch, self._digest)

    def room(self, *, reserve: bool) -> int:
        """Bytes of frames that the next `write` can have for certain."""
        return 0 if self.failed is not None else self._space.room(self._current, reserve=reserve)

    def ask_room(self, need_bytes: int) -> bool:
        """Have `maintain` make room for so many bytes of frames; False where there is no space."""
        return self.failed is None and self._space.ask(need_bytes)

    def find_room(self, need_bytes: int) -> None:
        """*Blocking.* Look for space again after there was none."""
        if self.failed is None:
            self._space.find(need_bytes)

    def is_space_scarce(self) -> bool:
        return self._space.is_scarce()

    @property
    def is_upkeep_due(self) -> bool:
        """Whether `maintain` may have something to do."""
        return self._space.is_due(self._current)

    def maintain(self) -> None:
        """*Blocking*, on the syncing thread: prepare the next file.  Raises WriteFailed."""
        try:
            self._space.maintain(self._current)
        except Exception as error:
            raise self.fail_and_mark(error) from error

    # -- writing -------------------------------------------------------------------------------

    def fits(self, size_bytes: int) -> bool:
        """Whether frames of `size_bytes` fit into the current file, even if a sync skips to the
        next page first."""
        current = self._current
        return current is not None and current.fits(size_bytes + PAGE)

    def write(self, frames: Frames) -> int:
        """Append one batch; returns its lsn.  Raises WriteFailed."""
        if self.failed is not None:
            raise self.failed
        self._append(EVENTS, frames)
        self._stats.frames_total += frames.count
        return self.written_lsn

    def idle(self) -> None:
        """Write an idle mark that vouches for all batches, if all are durable and none vouches yet."""
        current = self._current
        if current is None or self.failed is not None or not current.fits(0):
            return
        if self._vouched < self._last_batch <= self._synced_batch and self._dirty == self._clean:
            self._append(IDLE, NOTHING)

    def mark(self, kind: int) -> None:
        """Write a mark; the caller syncs before it relies on it."""
        self.refuse_if_failed()
        self._append(kind, NOTHING)

    def rotate(self, *, fresh: bool, stay: bool = False) -> LogPosition:
        """*Blocking.* Begin a new file if there is space for one; returns where the log continues.

        On a full disk, or with `stay`, the log continues in its current file, unless the caller
        needs a `fresh` one: a checkpoint can begin at any position.

        Raises:
            WriteFailed: As `write`.
            OSError: There is no current file, or no fresh one.
        """
        self.refuse_if_failed()
        current = self._current
        if current is None:
            raise OSError(errno.ENOSPC, "no space for a log file", self._files.path)
        if current.batches and not stay and self._space.ready(current, at_any_cost=fresh):
            try:
                self._leave(0)
            except Exception as error:
                self._raise_failed(error)
        elif current.batches and fresh:
            raise OSError(errno.ENOSPC, "no space for a log file", self._files.path)
        return self.position

    def prepare_rotation(self, *, fresh: bool) -> None:
        """*Blocking*, beside writes: do ahead what `rotate` would hold up writes for.  That is the sync of
        the file before the current one, and the space of the next.

        Raises:
            WriteFailed: As `sync`.
            OSError: As `rotate`.
        """
        self.refuse_if_failed()
        if len(self._unsynced) > 1:
            self.sync()
        if (current := self._current) is not None:
            self._space.ready(current, at_any_cost=fresh)

    def _append(self, kind: int, frames: Frames) -> None:
        current, size = self._current, frames.size_bytes
        try:
            if current is None or not current.fits(size):
                current = self._leave(size)
            self._put(current, kind, frames)
        except Exception as error:
            self._raise_failed(error)

    def _put(self, current: LogFile, kind: int, frames: Frames) -> None:
        number = self._batch + 1
        size_bytes = BATCH_HEADER.size + frames.size_bytes
        header = seal_header(
            BATCH_HEADER,
            BATCH_MAGIC,
            FORMAT_VERSION,
            kind,
            self._incarnation,
            self._instance,
            self._space.next_number - 1,
            number,
            frames.count,
            0,
            frames.size_bytes,
            self._digest,
            self._synced_batch,
            digest_all(frames.parts),
        )
        with self._writing:
            if kind != EVENTS:
                self._go_to(current, aligned(current.offset, PAGE))
            write_parts(current.file, [header, *frames.parts], current.offset)
            end = current.offset + size_bytes
            self._go_to(current, aligned(end, SECTOR if kind == EVENTS else PAGE))
            current.batches += 1
            self._digest = int.from_bytes(header[-8:], "little")
            self._vouched = self._synced_batch
            with self._state:
                # In one step: the batches that a sync covers are those that it reports.
                self._batch = current.last_batch = number
                if kind == EVENTS:
                    self.written_lsn += 1
                if kind != IDLE:
                    self._last_batch = number
                    self._dirty += 1
        self._stats.batches_total += 1
        self._stats.bytes_written_total += size_bytes

    def _end_page(self) -> None:
        """Move to the next page: a page that a sync has begun to cover is not written again."""
        current = self._current
        assert current is not None  # something is unsynced
        self._go_to(current, aligned(current.offset, PAGE))

    def _go_to(self, current: LogFile, offset: int) -> None:
        self.written_bytes += offset - current.offset
        current.offset = offset

    def _leave(self, size: int) -> LogFile:
        """End the current file and begin one with space for `size` bytes of frames."""
        if len(self._unsynced) > 1:
            # At most two files are unsynced: a power loss can only take the end of the log.
            self.sync()
        with self._space.lock:
            following = self._space.take(size)
            current = self._current
            if current is not None:
                self._put(current, ROTATE, NOTHING)
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
            self._space.next_number,
            self._batch,
            self._digest,
            self._synced_batch,
            self._boot_id,
            following.size,
        )
        write_all(following.file, header, 0)
        self._vouched = self._synced_batch
        with suppress(OSError):  # of descriptors there may be none left: then a thread syncs
            shared = self._files.open(following.file.name, write=True)
            following.shared = shared if isinstance(shared, SyncedFile) else None
        with self._writing, self._state:
            self._go_to(following, PAGE)
            self._current = following
            self._unsynced.append(following)
            self._dirty += 1
        self._space.begun(following)
        return following

    # -- durability ----------------------------------------------------------------------------

    @property
    def synced_batch(self) -> int:
        """The number of the newest batch that is durable."""
        return self._synced_batch

    def sync_batches(self) -> int:
        """*Blocking.* `sync`, and the number of the newest batch that is durable by it."""
        with self._syncing:
            self._sync()
            return self._synced_batch

    def sync(self) -> int:
        """*Blocking.* Make all batches written so far durable, oldest file first; returns the lsn."""
        with self._syncing:
            return self._sync()

    def sync_mark(self) -> int:
        """*Blocking.* `sync`, with the idle mark that it leaves out where nothing else is unsynced: a
        checkpoint names the batch in front of its position."""
        with self._syncing:
            with self._state:
                if self._synced_batch < self._batch:
                    self._dirty += 1
            return self._sync()

    def _sync(self) -> int:
        self.refuse_if_failed()
        with self._writing:
            begun = self._begun_sync()
        if begun is not None:
            self._sync_files(begun)
        return self.synced_lsn

    def _begun_sync(self) -> LogSync | None:
        """A sync of all batches written so far; None where they are durable.  The caller holds
        `_writing`."""
        with self._state:
            dirty = self._dirty
            if dirty <= self._clean:
                return None
            self._end_page()
            held = tuple(self._unsynced)
            return LogSync(self.written_lsn, self._batch, dirty, held)

    def _sync_files(self, begun: LogSync) -> None:
        try:
            for each in begun.held:
                self._timed_sync(each.file)
        except Exception as error:
            raise self.fail_and_mark(error) from error
        self._settle(begun)

    def begin_sync(self, note: Callable[[int], Note | None]) -> LogSync | None:
        """Begin a sync that another process performs: no other sync begins before `end_sync`, or
        `finish_sync`, has it back.

        Args:
            note: Returns what the witness is to say of a batch.

        Returns:
            None where nothing is to be synced, where a thread writes or syncs now, or a file is not
            shared.

        Raises:
            WriteFailed: The log is read-only.
        """
        if not self._syncing.acquire(blocking=False):
            return None
        begun = None
        try:
            self.refuse_if_failed()
            if self._writing.acquire(blocking=False):
                try:
                    files = [each.shared for each in self._unsynced if each.shared is not None]
                    if len(files) == len(self._unsynced):
                        begun = self._begun_sync()
                finally:
                    self._writing.release()
            if begun is not None:
                begun = begun._replace(files=files, note=note(begun.batch))
        except BaseException:
            self._syncing.release()
            raise
        if begun is None:
            self._syncing.release()
        return begun

    def end_sync(self, begun: LogSync, took_us: int = 0, error: Exception | None = None) -> int:
        """The other process has synced the files, or was told why not; returns the lsn.

        Args:
            took_us: How long all files took, microseconds.

        Raises:
            WriteFailed: There was an error: the log is read-only.
        """
        try:
            if error is not None:
                raise self.fail(error) from error
            for _ in begun.files:
                self.count_sync(took_us // len(begun.files))
            self._settle(begun)
            return self.synced_lsn
        finally:
            self._syncing.release()

    def finish_sync(self, begun: LogSync) -> int:
        """*Blocking.* Sync what the other process did not, or died over; returns the lsn."""
        try:
            self.refuse_if_failed()
            self._sync_files(begun)
            return self.synced_lsn
        finally:
            self._syncing.release()

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

    def _settle(self, begun: LogSync) -> None:
        with self._state:
            self._clean = begun.dirty
            self.synced_lsn = begun.lsn
            self._synced_batch = begun.batch
            done: Sequence[LogFile] = ()
            if len(self._unsynced) > 1:
                done = [f for f in self._unsynced[:-1] if f.last_batch <= begun.batch]
                self._unsynced = [f for f in self._unsynced if f not in done]
        for each in done:
            each.close()

    def end(self, kind: int) -> None:
        """*Blocking.* Write a last mark, make it durable, and truncate the prepared space behind it."""
        self.sync()
        self.mark(kind)
        self.sync()
        current = self._current
        assert current is not None
        current.file.truncate(current.offset)
        current.file.sync()
        self._space.drop_spare()
        self._files.sync_dir()

    def fail(self, error: Exception) -> WriteFailed:
        """Make the log read-only.  Nothing is retried: after a failed sync the page cache shows
        bytes that the disk lacks.

        Does not block.  A thread that may block leaves the mark (`leave_failure_mark`).
        """
        if self.failed is None:
            self.lacks_space = lacks_space(error)
            self.failed = WriteFailed(self._files.path, f"the log is read-only: {_what(error)}")
        return self.failed

    def _raise_failed(self, error: Exception) -> NoReturn:
        failure = self.fail(error)
        if failure is error:  # of a sync within
            raise failure
        raise failure from error

    def fail_and_mark(self, error: Exception) -> WriteFailed:
        """*Blocking.* As `fail`, with the mark."""
        failure = self.fail(error)
        if unmarked := leave_failure_mark(self._files):
            failure = self.failed = WriteFailed(self._files.path, failure.what + unmarked)
        return failure

    def refuse_if_failed(self) -> None:
        if self.failed is not None:
            raise self.failed


def _what(error: Exception) -> str:
    if isinstance(error, WriteFailed):
        return error.what
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return f"{type(error).__name__}: {error}"
