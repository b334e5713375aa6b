"""The segment files of one directory: building, opening, flagging deletes, dropping.

Owns which segments are open and which runs have delete flags to be written; knows nothing of why a
run is sealed or dropped.  Invariants: a segment number is used once.  A delete flag is written only
after the frame of the delete is durable.  A dropped segment stays open for its readers.
"""

import contextlib
import errno
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from topics.protocol.model.errors import Corrupt, ReadFailed, is_unread
from topics.protocol.model.events import RunRef, UnflaggedRows
from topics.protocol.model.ports import Contents, SealEntry, StoreStats
from topics.protocol.model.records import DELETED, PACKED
from topics.store import segment
from topics.store.files import File, Files, discard, write_all
from topics.store.handle import Access, Handle, HandleTurn, Segment
from topics.store.layout import numbers, segment_name
from topics.store.opened_runs import OpenedRuns
from topics.store.packed_runs import PackedSealedRun
from topics.store.runs import NEAREST, Deletion, SealedRun

OPEN_SEGMENTS_MAX: Final = 256
"""Bounds descriptors: an open segment has two, its file and its map."""

NEAR_FLAGS: Final = 64
"""Flags with smaller gaps between them are written with one call."""


class Segments:
    """All segment files of one directory: builds, opens, flips and drops them."""

    def __init__(
        self,
        files: Files,
        *,
        instance: bytes,
        stats: StoreStats,
        open_max: int = OPEN_SEGMENTS_MAX,
    ) -> None:
        self.lock = threading.RLock()
        self.stats = stats
        self.opened = OpenedRuns()
        self.next_number = 1
        self.next_lsn = 0
        """The lsn that a delete applied now will be written with; 0 during replay."""
        self._files = files
        self._instance = instance
        self._open_max = open_max
        self._known: weakref.WeakValueDictionary[int, Segment] = weakref.WeakValueDictionary()
        self._open: OrderedDict[int, Segment] = OrderedDict()
        self._latest: Segment | None = None
        """The last of those that are open that was asked for; of `_open`, so that nothing else keeps a file open."""
        self._with_deletes: dict[SealedRun, None] = {}
        self._unflagged: dict[tuple[int, int], Deletion] = {}
        """By segment and index of a run, the rows that a checkpoint says are deleted."""

    def close(self) -> None:
        with self.lock:
            self._open.clear()
            self._latest = None
            self._with_deletes.clear()
            for each in list(self._known.values()):
                each.move(HandleTurn.ENDED)

    # -- runs ----------------------------------------------------------------------------------

    def run(self, ref: RunRef, topic_id: int) -> SealedRun:
        with self.lock:
            owner = self._known.get(ref.segment)
            if owner is None:
                owner = self._known[ref.segment] = Segment(ref.segment)
            kind = PackedSealedRun if ref.form == PACKED else SealedRun
            run = kind(self, owner, ref, topic_id)
            if self._unflagged:
                deletion = self._unflagged.get((ref.segment, ref.index))
                if deletion is not None:
                    self.note(run, deletion)
        return run

    def handle(self, owner: Segment) -> Handle:
        """The segment's handle; opens a closed segment.  Raises Corrupt, OSError."""
        handle = owner.handle
        if owner is self._latest and handle is not None:
            return handle  # as mostly: it is the last to be closed anyway
        with self.lock:
            handle = owner.handle
            if handle is None:
                handle = Handle(self._files, owner.number, self._instance)
                owner.move(HandleTurn.OPENED, handle)
            if owner.access is Access.OPEN:
                self._enlist(owner)
        return handle

    def _enlist(self, owner: Segment) -> None:
        """Make an open segment the last to be closed for others; call under the lock."""
        self._open[owner.number] = owner
        self._open.move_to_end(owner.number)
        while len(self._open) > self._open_max:
            self._open.popitem(last=False)[1].move(HandleTurn.CROWDED_OUT)
        self._latest = owner if self._open else None

    # -- life of a segment ---------------------------------------------------------------------

    def seen(self, refs: Iterable[RunRef]) -> None:
        """Use no segment number of these runs again."""
        self.next_number = max([self.next_number, *(ref.segment + 1 for ref in refs)])

    def seal(self, entries: Sequence[SealEntry], batch: int) -> list[RunRef]:
        """*Blocking.* Build a segment of rows that the log has too, durable up to `batch`."""
        with self.lock:
            number = self.next_number
            self.next_number += 1
        return segment.build(
            self._files, number, instance=self._instance, batch=batch, entries=entries
        )

    def contents(self, number: int) -> Contents:
        """*Blocking.* The contents of a segment by its run table.  Raises Corrupt, OSError."""
        with self.lock:
            owner = self._known.get(number) or Segment(number)
            handle = owner.handle
        if handle is not None:
            table = handle.table
        else:
            # Opened apart from the cache: a scan of all segments must not evict those in use.
            handle = Handle(self._files, number, self._instance)
            table = handle.table
            handle.file.close()
        rows, text_bytes = int(table["count"].sum()), int(table["text_bytes"].sum())
        return Contents(rows, text_bytes, np.stack([table["topic_id"], table["first_seq"]], 1))

    def drop(self, number: int) -> None:
        """*Blocking.* Unlink a segment; it stays open for its readers.

        Raises:
            OSError: The file is still there.
        """
        with self.lock:
            owner = self._release(number)
        try:
            with contextlib.suppress(FileNotFoundError):
                self._files.unlink(segment_name(number))
        except BaseException:
            if owner is not None:
                self._retain(owner)
            raise
        self.opened.drop(number)

    def _release(self, number: int) -> Segment | None:
        """Keep a segment open for its readers alone; call under the lock."""
        self._with_deletes = {run: None for run in self._with_deletes if run.segment != number}
        owner = self._known.get(number)
        if owner is not None:
            # Where the file is damaged its readers get the same error, so none needs it open.
            with contextlib.suppress(Corrupt, OSError):
                self.handle(owner)
            owner.move(HandleTurn.DROPPED)
        self._open.pop(number, None)
        self._latest = None
        return owner

    def let_go(self, number: int) -> None:
        """Another process drops a segment to which no run refers here any more: do not keep it open,
        but for its readers."""
        with self.lock:
            self._release(number)

    def settle_flags(self, limit: int) -> int:
        """*Blocking.* Drop the copies of delete flags that another process has written to the files
        meanwhile, of so many runs at most; returns how many runs had all of them there."""
        with self.lock:
            some = list(self._with_deletes)[:limit]
        settled = 0
        for run in some:
            with self.lock:
                deletions = run.due(self.next_lsn)
                is_there = False
                with contextlib.suppress(Corrupt, OSError):
                    rows = run.rows_in(deletions)
                    is_there = bool(np.all(run.stored_flags()[rows] == DELETED))
                self._with_deletes.pop(run, None)
                if is_there:
                    run.flipped(self.next_lsn, repaired=False)
                    settled += 1
                else:
                    self._with_deletes[run] = None  # at the end: the others have their turn
        return settled

    def _retain(self, owner: Segment) -> None:
        """The unlink failed: the segment can be opened and closed again until it is dropped anew."""
        with self.lock:
            owner.move(HandleTurn.RETAINED)
            if owner.access is Access.OPEN:
                self._enlist(owner)

    def verify(
        self,
        refs: Iterable[RunRef],
        last_batch: int,
        checked: Callable[[], None] = lambda: None,
    ) -> None:
        """*Blocking.* Check that every run referred to exists, and that no segment was made from a
        batch beyond `last_batch`, the end of the log.  Changes nothing.

        Args:
            checked: Called after each file.

        Raises:
            Corrupt: A file is missing, its header or size is wrong, or the log lost its end.
        """
        runs: dict[int, list[RunRef]] = {}
        for ref in refs:
            runs.setdefault(ref.segment, []).append(ref)
        for number, wanted in runs.items():
            self._check_one(number, wanted)
            checked()
        for number in numbers(self._files.names(), "seg"):
            if number not in runs:
                self._check_orphan(number, last_batch)

    def _check_orphan(self, number: int, last_batch: int) -> None:
        path = f"{self._files.path}/{segment_name(number)}"
        try:
            file = self._files.open(segment_name(number))
            try:
                header = segment.read_header(file, path, number=number, instance=self._instance)
            finally:
                file.close()
        except (Corrupt, FileNotFoundError):
            return  # no run refers to it
        segment.require_log(header, path, last_batch)

    def sweep(self, refs: Iterable[RunRef]) -> list[int]:
        """*Blocking.* Unlink the segments that none of these runs refers to: a crash came between
        a seal and its event, or between a drop and its unlink.  Returns those still there."""
        named = {ref.segment for ref in refs}
        orphans = [n for n in numbers(self._files.names(), "seg") if n not in named]
        for number in orphans:
            discard(self._files, segment_name(number))
        with self.lock:
            self._with_deletes = {run: None for run in self._with_deletes if run.segment in named}
        left = set(numbers(self._files.names(), "seg")) if orphans else set()
        return [number for number in orphans if number in left]

    def _check_one(self, number: int, wanted: Sequence[RunRef]) -> None:
        handle = Handle(self._files, number, self._instance)
        try:
            for ref in wanted:
                row = handle.row(ref.index)
                found = (int(row["first_seq"]), int(row["count"]), int(row["text_bytes"]))
                if found != (ref.first_seq, ref.count, ref.text_bytes):
                    what = f"run {ref.index} does not cover what the log says"
                    raise Corrupt(handle.path, segment.TABLE_OFFSET, what)
        finally:
            handle.file.close()

    # -- flags ---------------------------------------------------------------------------------

    def note(self, run: SealedRun, deletion: Deletion) -> None:
        """Remember that the flags of these rows are to be written; the caller holds the lock."""
        run.note(self.next_lsn, deletion)
        self._with_deletes[run] = None

    def flip(self, synced_lsn: int) -> int:
        """*Blocking.* Write the flags of deletes that are durable; returns the number of rows.

        Raises:
            ReadFailed: The place for some of them could not be read, or does not verify; all others
                are written, and these are due again.
            OSError: The disk failed.
        """
        due: dict[int, list[tuple[SealedRun, NDArray[np.int64]]]] = {}
        with self.lock:
            found = [
                (run, deletions) for run in self._with_deletes if (deletions := run.due(synced_lsn))
            ]
        # Without the lock: it takes long for a large delete, and readers would wait for it.
        for run, deletions in found:
            due.setdefault(run.segment, []).append((run, run.rows_in(deletions)))
        flipped, unread = 0, None
        for number, runs in sorted(due.items()):
            try:
                flipped += self._flip_one(number, runs, synced_lsn)
            except ReadFailed as error:
                unread = unread or error
        if unread is not None:
            raise unread
        return flipped

    def unflagged(self, lsn: int) -> list[UnflaggedRows]:
        """What was deleted by frames up to `lsn` and is in no file's flags."""
        with self.lock:
            found = [(run, due) for run in self._with_deletes if (due := run.due(lsn))]
        return [
            UnflaggedRows(run.segment, run.index, run.bits_of(due).tobytes()) for run, due in found
        ]

    def restore_unflagged(self, unflagged: Sequence[UnflaggedRows]) -> None:
        """Have runs that are opened from now on know what a checkpoint says of them."""
        self._unflagged = {
            (each.segment, each.index): np.frombuffer(each.rows, np.uint8) for each in unflagged
        }

    def _opened_to_flip(self, number: int) -> tuple[Handle, File]:
        handle = Handle(self._files, number, self._instance)
        try:
            return handle, self._files.open(segment_name(number), write=True)
        except BaseException:
            handle.file.close()
            raise

    @staticmethod
    def _flags_of(handle: Handle, run: SealedRun) -> tuple[int, NDArray[np.uint8]]:
        """Where the flags of a run are in the file, and a copy of them."""
        try:
            return int(handle.row(run.index)["flags_offset"]), handle.flags(run.index).copy()
        except Corrupt as error:
            raise _no_place(error) from error

    def _flip_one(
        self, number: int, runs: Sequence[tuple[SealedRun, NDArray[np.int64]]], synced_lsn: int
    ) -> int:
        try:
            handle, file = self._opened_to_flip(number)
        except (Corrupt, FileNotFoundError) as error:
            if segment_name(number) not in self._files.names():
                return 0
            raise _no_place(error) from error
        except OSError as error:
            raise ReadFailed.of(error) from error
        try:
            flipped, repaired, wanted = 0, {}, []
            for run, rows in runs:
                base, current = self._flags_of(handle, run)
                repaired[run.index] = bool(np.any(NEAREST[current] != current))
                flipped += int(np.count_nonzero(current[rows] != DELETED))
                current[rows] = DELETED
                wanted += [(base + lo, current[lo:hi].tobytes()) for lo, hi in _stretches(rows)]
            for offset, flags in wanted:
                write_all(file, flags, offset)
            file.sync_data()
        finally:
            file.close()
            handle.file.close()
        with self.lock:
            for run, _ in runs:
                if run.flipped(synced_lsn, repaired=repaired[run.index]):
                    self._with_deletes.pop(run, None)
        return flipped


def _no_place(error: Exception) -> ReadFailed:
    """Flags cannot be written to a segment that cannot be read, or does not verify: the checkpoint keeps
    them meanwhile."""
    return ReadFailed(errno.EIO if is_unread(error) else errno.EBADMSG, str(error))


def _stretches(rows: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Ranges [lo, hi) that cover ascending rows, near ones joined."""
    cuts = np.flatnonzero(np.diff(rows) > NEAR_FLAGS) + 1
    return [(int(part[0]), int(part[-1]) + 1) for part in np.split(rows, cuts)]
