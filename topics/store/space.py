"""Space for the log: the spare file that is prepared ahead of its use, and the reserve.

Owns the log files that hold no batch yet, and the promise of `room`; knows nothing of batches.
Invariants: only what is allocated is promised, so that no write meets a disk that another program has
filled since.  A log file has its bytes allocated, and its size and name durable, before anything is
written into it.  What replaces a prepared file is prepared before that is let go.
"""

import errno
import threading
from dataclasses import dataclass
from typing import Final

from topics.protocol.model.ports import SyncedFile
from topics.store.files import REFUSED, File, Files, discard, write_all
from topics.store.layout import BATCH_HEADER, PAGE, RESERVE_NAME, aligned, log_name

FIRST_FILE_BYTES: Final = 1 << 20
"""The first file of a process is small, so that a fresh server starts at once; later ones double."""

LEAST_FILE_BYTES: Final = 64 << 10
"""The least size of a prepared file: a smaller one was truncated."""

BATCH_MARGIN: Final = BATCH_HEADER.size + PAGE
"""Bytes that one more batch takes besides its frames: its header, and the page that is kept for
the mark at the end of the file."""
FILE_MARGIN: Final = PAGE + BATCH_MARGIN
"""The same for a file without a header yet, which takes a page of its own."""

ROOMY_FILES: Final = 4
"""Free space, in files of the wanted size, at which a file is begun early, or at full size."""

ASKED_BYTES_MAX: Final = 1 << 30
"""The largest batch that space is made for."""
KEPT_BYTES: Final = 256 << 10
"""Of what is allocated, appends leave so much, or a quarter, to deletes and acks of the same turn."""
FILL_BYTES: Final = 1 << 20
UPKEEP_BYTES: Final = FILL_BYTES // 8
"""Written between two looks at what is prepared: the next file, of twice the size, is filled before
the second half of the current one is."""
UPKEEP_US: Final = 200_000
"""The same in time, for what other programs do to the disk meanwhile."""
SMALL_BATCH_BYTES: Final = 16 << 10

_ZEROS: Final = bytes(FILL_BYTES)
_NOT_FULL: Final = REFUSED | {errno.EROFS}
"""What is no want of space, and does not pass by itself."""


@dataclass(slots=True)
class LogFile:
    """A log file that this process has open.

    Attributes:
        last_batch: The number of its newest batch.
        shared: The file, opened a second time for a process that syncs it.
    """

    file: File
    size: int
    offset: int = 0
    filled: int = 0
    last_batch: int = 0
    batches: int = 0
    is_reserve: bool = False
    shared: SyncedFile | None = None

    def close(self) -> None:
        self.file.close()
        if self.shared is not None:
            self.shared.close()

    def fits(self, size: int) -> bool:
        """Whether a batch with `size` bytes of frames fits, even if it begins on the next page.

        File sizes are whole pages: a batch that ends before the last page leaves that page free.
        """
        page = (self.offset + PAGE - 1) & -PAGE
        return page + BATCH_MARGIN + size <= self.size

    def room(self) -> int:
        left = self.size - ((self.offset + PAGE - 1) & -PAGE) - BATCH_MARGIN
        return left if left > 0 else 0


class Space:
    """Prepares log files; `take` and `room` on the thread that writes, `maintain` on another."""

    def __init__(
        self, files: Files, *, next_number: int, file_bytes: int, reserve_bytes: int
    ) -> None:
        """Nothing is prepared before `begin`.

        Args:
            next_number: Number of the file to begin next.
            file_bytes: Size that log files grow to.
            reserve_bytes: Size that the reserve grows to.
        """
        self.lock = threading.RLock()
        """Held from `take` to `begun`: a file prepared in between would get the name of the file
        that is being begun."""
        self.next_number = next_number
        self._files = files
        self._file_bytes = aligned(max(file_bytes, LEAST_FILE_BYTES), PAGE)
        self._reserve_bytes = aligned(max(reserve_bytes, LEAST_FILE_BYTES), PAGE)
        self._plenty_bytes = 8 * (self._file_bytes + self._reserve_bytes)
        self._next_size = min(FIRST_FILE_BYTES, self._file_bytes)
        self._free_bytes = files.free_bytes()
        self._spare: LogFile | None = None
        self._reserve: LogFile | None = None
        self._asked_bytes = 0
        """Frames that `maintain` is to make space for."""
        self._ask_max = ASKED_BYTES_MAX
        """The largest batch that space may be asked for: less than what there was none for at last."""
        self._maintained: LogFile | None = None
        self._maintained_at = 0
        self._maintained_us = 0

    def begin(self) -> bool:
        """Prepare reserve and first file; False on a disk without space for the file.

        A file that an earlier process prepared is used as it is, and never unlinked: if the previous
        file ends in a rotation mark, a log without its successor counts as having lost its end.
        """
        with self.lock:
            names = self._files.names()
            if RESERVE_NAME in names:
                self._reserve = self._opened(RESERVE_NAME)
                self._reserve.is_reserve = True
            name = log_name(self.next_number)
            if name in names:
                self._spare = self._opened(name)
            self._replenish()
            self._fill_spare()
            return self._spare is not None

    def _opened(self, name: str) -> LogFile:
        file = self._files.open(name, write=True)
        return LogFile(file, file.size() & -PAGE)

    def close(self) -> None:
        for held in (self._spare, self._reserve):
            if held is not None:
                held.file.close()

    def is_scarce(self) -> bool:
        """Whether free space was short when it was last measured, so that every byte counts."""
        return self._reserve is None or self._free_bytes <= self._plenty_bytes

    # -- the promise ---------------------------------------------------------------------------

    def room(self, current: LogFile | None, *, reserve: bool) -> int:
        """Bytes of frames that the next batch can have for certain, given the current file."""
        spare, held = self._spare, self._reserve
        room = 0 if current is None or current.is_reserve else current.room()
        if spare is not None and spare.size - FILE_MARGIN > room:
            room = spare.size - FILE_MARGIN
        if held is None or self._free_bytes <= self._plenty_bytes:
            self._free_bytes = self._files.free_bytes()
            return max(room, self._reserved_room(current)) if reserve else room
        # The reserve backs what the next file would otherwise be made for when it is needed, because
        # another program may take the space before then.
        if held.size - FILE_MARGIN > room:
            room = held.size - FILE_MARGIN
        if reserve:
            return room
        return room - (KEPT_BYTES if room >= 4 * KEPT_BYTES else room // 4)

    def ask(self, need_bytes: int) -> bool:
        """Have the next `maintain` make room for `need_bytes` of frames; False where the disk lacks the
        space, or lacks as much again for sealing them."""
        need_bytes += min(need_bytes // 3 + 1, KEPT_BYTES)
        if need_bytes > self._ask_max or _file_size(need_bytes) > self._free_bytes // ROOMY_FILES:
            return False
        self._asked_bytes = max(self._asked_bytes, need_bytes)
        return True

    def find(self, need_bytes: int) -> None:
        """*Blocking.* Make the missing one of reserve and spare if there is space again.

        The spare gets room for `need_bytes` if as much space again is left for sealing them.
        """
        self._free_bytes = self._files.free_bytes()
        self._ask_max = ASKED_BYTES_MAX
        with self.lock:
            self._replenish()
            self._widen(need_bytes)

    def _widen(self, need_bytes: int) -> bool:
        """Whether the spare has room for `need_bytes`, now that it was made larger if it may be."""
        size, spare = _file_size(need_bytes), self._spare
        if spare is None or spare.size >= size:
            return spare is not None
        if self._free_bytes < ROOMY_FILES * size:
            return False
        roomy = self._free_bytes >= ROOMY_FILES * self._next_size
        return self._replace_spare(max(size, self._next_size) if roomy else size)

    def _replace_spare(self, size: int) -> bool:
        """A larger spare, in the place of the one that there may be; False where it is as before.

        What was promised on the old one holds meanwhile.
        """
        larger = self._prepare(log_name(self.next_number), size)
        if larger is None:
            return False
        spare, self._spare = self._spare, larger
        if spare is not None:
            spare.file.close()
        return True

    def _reserved_room(self, current: LogFile | None) -> int:
        reserve = self._reserve
        room = current.room() if current is not None else 0
        return max(room, reserve.size - FILE_MARGIN) if reserve is not None else room

    # -- taking --------------------------------------------------------------------------------

    def ready(self, current: LogFile, *, at_any_cost: bool) -> bool:
        """Whether a file can be taken after `current` without the reserve and, unless `at_any_cost`,
        without the space that sealing and checkpoints need; what the rest of `current` was promised
        for must fit into it, or into the reserve."""
        with self.lock:
            self._free_bytes = self._files.free_bytes()
            if not at_any_cost and self._free_bytes < ROOMY_FILES * FIRST_FILE_BYTES:
                return False
            self._replenish()
            rest = _file_size(current.room())
            if any(held.size >= rest for held in (self._spare, self._reserve) if held is not None):
                return self._spare is not None
            return self._replace_spare(rest)

    def take(self, size: int) -> LogFile:
        """A file without a header, with space for `size` bytes of frames; the caller holds the lock.

        Raises:
            OSError: There is no space, even with the reserve.
        """
        need = _file_size(size)
        if self._spare is not None and self._spare.size >= need:
            return self._taken_spare()
        for size_bytes in (max(self._next_size, need), max(LEAST_FILE_BYTES, need)):
            if self._replace_spare(size_bytes):
                return self._taken_spare()
        return self._taken_reserve(need)

    def begun(self, taken: LogFile) -> None:
        """The taken file has its header: the next file gets the next number and twice the size."""
        self.next_number += 1
        self._next_size = min(max(self._next_size, taken.size) * 2, self._file_bytes)

    def drop_spare(self) -> None:
        with self.lock:
            if self._spare is not None:
                spare = self._taken_spare()
                spare.file.close()
                self._files.unlink(spare.file.name)

    def _taken_spare(self) -> LogFile:
        assert self._spare is not None
        spare, self._spare = self._spare, None
        return spare

    def _taken_reserve(self, need: int) -> LogFile:
        reserve = self._reserve
        if reserve is None or reserve.size < need:
            raise OSError(errno.ENOSPC, f"no space for {need} bytes of log", self._files.path)
        self._files.rename(RESERVE_NAME, log_name(self.next_number))
        self._files.sync_dir()
        if self._spare is not None:
            self._taken_spare().file.close()  # too small; its name is the reserve's now
        reserve.file.name = log_name(self.next_number)
        self._reserve = None
        return reserve

    # -- preparing -----------------------------------------------------------------------------

    def is_due(self, current: LogFile | None) -> bool:
        """Whether `maintain` may have something to do: space was asked for or is missing, or much was
        written, or much time has passed, since it looked last."""
        if self._asked_bytes or self._reserve is None or current is None:
            return True
        if current is not self._maintained or current.offset - self._maintained_at >= UPKEEP_BYTES:
            return True
        return self._files.monotonic_us() - self._maintained_us >= UPKEEP_US

    def maintain(self, current: LogFile | None) -> None:
        """*Blocking*, on the syncing thread: prepare the next file ahead of its use.

        Raises:
            OSError: The disk failed.
        """
        self._maintained, self._maintained_us = current, self._files.monotonic_us()
        self._maintained_at = 0 if current is None else current.offset
        self._free_bytes = self._files.free_bytes()
        with self.lock:
            if self._reserve is None or (current is not None and current.offset * 2 > current.size):
                self._replenish()
            self._grow_reserve(current)
            asked, self._asked_bytes = self._asked_bytes, 0
            if asked:
                self._replenish()
                if not self._widen(asked):
                    self._ask_max = asked - 1
        if current is not None and current.offset < current.batches * SMALL_BATCH_BYTES:
            self._fill_spare()

    def _replenish(self) -> None:
        """Make the missing one of reserve and spare; first the reserve, which deletes need to free
        space."""
        if self._reserve is None:
            size = min(self._reserve_bytes, FIRST_FILE_BYTES)
            self._reserve = self._prepare(RESERVE_NAME, size)
            if self._reserve is not None:
                self._reserve.is_reserve = True
        if self._reserve is not None and self._spare is None:
            name = log_name(self.next_number)
            small = min(self._next_size, FIRST_FILE_BYTES)
            roomy = self._free_bytes >= ROOMY_FILES * self._next_size
            self._spare = self._prepare(name, self._next_size if roomy else small)
            if self._spare is None and self._next_size > small:
                self._spare = self._prepare(name, small)

    def _prepare(self, name: str, size: int) -> LogFile | None:
        """A new file whose space, size and directory entry are durable; None where there is no space.

        It gets its name last, so that a named log file always has its space; until then a file that
        has the name keeps it.
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
        except OSError as error:
            if file is not None:
                file.close()
            discard(self._files, temp)
            if error.errno in _NOT_FULL:
                raise
            return None
        file.name = name
        try:
            self._files.sync_dir()
        except OSError:
            file.close()
            discard(self._files, name)
            if self._spare is not None and self._spare.file.name == name:
                self._taken_spare().file.close()
            return None
        return LogFile(file, size)

    def _grow_reserve(self, current: LogFile | None) -> None:
        reserve = self._reserve
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
        """Write zeros into the next part of the spare, so that its later syncs touch no metadata.

        `fdatasync` of an allocated but unwritten extent must convert it, which costs a journal
        commit.  This pays for small batches, whose writers wait for the sync; large batches would
        only be written twice.
        """
        with self.lock:
            spare = self._spare
            if spare is None or spare.filled >= spare.size:
                return
            step = min(FILL_BYTES, spare.size - spare.filled)
            write_all(spare.file, memoryview(_ZEROS)[:step], spare.filled)
            spare.filled += step
            # Under the lock: the file may not be begun between the zeros and their sync.
            spare.file.sync_data()


def has_space(files: Files, size: int) -> bool:
    """*Blocking.* Whether the disk takes so many bytes now.

    They are allocated, written and synced, since a file system that copies on write, or has a quota, may
    refuse any of the three.  The file is that which a start removes.
    """
    trial = RESERVE_NAME + ".tmp"
    discard(files, trial)
    try:
        file = files.create(trial)
        try:
            file.allocate(size)
            for offset in range(0, size, FILL_BYTES):
                # Random, because zeros may take no space at all.
                write_all(file, files.entropy(min(FILL_BYTES, size - offset)), offset)
            file.sync()
        finally:
            file.close()
    except OSError:
        return False
    finally:
        discard(files, trial)
    return True


def _file_size(frames_bytes: int) -> int:
    """Bytes of a file that takes one batch with so many bytes of frames."""
    return aligned(frames_bytes + FILE_MARGIN, PAGE)
