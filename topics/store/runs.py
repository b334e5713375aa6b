"""Sealed runs as readers see them.

Owns the delete flags of a run that its file does not have yet, and the set of its text blocks that
were verified; knows nothing of topics.  An unused run costs one small object.  Invariant: readers see
a delete flag at once, and it leaves memory only after it is in the file.
"""

import threading
from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from topics.protocol.model.errors import Corrupt, DamagedRun
from topics.protocol.model.events import RunRef
from topics.protocol.model.job_options import DecodedOptions, JobOptions, decoded_options
from topics.protocol.model.ports import Span, StoreStats, TagMatch
from topics.protocol.model.records import DELETED, LIVE, TEXT, Buffer, Columns
from topics.store.handle import Handle, Segment
from topics.store.layout import BLOCK, JOBS, digest
from topics.store.opened_runs import OpenedRuns

_OPTIONS: Final = msgspec.msgpack.Decoder(JobOptions)
NEAR_BYTES: Final = 16 << 10
"""Spans with smaller gaps between them are read with one call."""

Deletion: TypeAlias = NDArray[np.int64] | NDArray[np.uint8]
"""Rows that were deleted at once: their numbers, or, of dtype u1, a bit a row of the run."""

_BITS: Final = np.array([i.bit_count() for i in range(256)], np.uint8)
NEAREST: Final = np.where(
    _BITS[np.arange(256) ^ LIVE] < _BITS[np.arange(256) ^ DELETED], LIVE, DELETED
)
"""The meaning of each flag byte: LIVE or DELETED, whichever is fewer bit flips away."""


class Home(Protocol):
    """What opens a run's segment and remembers its deletes: `segments.Segments`."""

    lock: threading.RLock
    stats: StoreStats
    opened: OpenedRuns

    def handle(self, owner: Segment) -> Handle: ...

    def note(self, run: "SealedRun", deletion: Deletion) -> None: ...


class SealedRun:
    """A run of a segment file; implements `ports.Run`."""

    form: int = TEXT

    __slots__ = (
        *("_checked", "_dead", "_forms", "_heap", "_deletions", "_pinned", "_segment", "_segments"),
        *("count", "first_seq", "index", "ref", "text_bytes", "topic_id"),
    )

    def __init__(self, segments: Home, owner: Segment, ref: RunRef, topic_id: int) -> None:
        self.ref: RunRef | None = ref
        self.first_seq = ref.first_seq
        self.count = ref.count
        self.text_bytes = ref.text_bytes
        self.index = ref.index
        self.topic_id = topic_id
        self._segments = segments
        self._segment = owner
        self._checked: bytearray | None = None
        self._pinned: Handle | None = None
        self._heap: NDArray[np.uint8] | None = None
        self._deletions: list[tuple[int, Deletion]] | tuple[()] = ()
        self._dead: int | None = None
        self._forms: bool | None = None

    def __repr__(self) -> str:
        return (
            f"SealedRun({self._segment.number}.{self.index}, seq {self.first_seq} x {self.count})"
        )

    def _handle(self) -> Handle:
        return self._pinned or self._segments.handle(self._segment)

    def _opened(self) -> Handle:
        """The handle, after the run table was compared with the reference."""
        try:
            return self._compared()
        except Corrupt as damage:
            raise self._damaged(damage) from None

    def _damaged(self, damage: Corrupt) -> DamagedRun:
        return DamagedRun(damage, self.first_seq, self.first_seq + self.count - 1)

    def _compared(self) -> Handle:
        handle = self._handle()
        if self._checked is None:
            row = handle.row(self.index)
            said = (self.topic_id, self.first_seq, self.count, self.text_bytes)
            found = tuple(int(row[n]) for n in ("topic_id", "first_seq", "count", "text_bytes"))
            if said != found:
                raise Corrupt(handle.path, 0, f"run {self.index} is {found} and not {said}")
            self._checked = bytearray(-(-self.text_bytes // BLOCK))
        return handle

    def open(self) -> None:
        """Open the segment now and keep it open as long as this run lives.  Raises Corrupt."""
        self._pinned = self._opened()

    # -- columns and tables --------------------------------------------------------------------

    @property
    def is_warm(self) -> bool:
        handle = self._pinned or self._segment.handle
        return handle is not None and self.index in handle.columns

    def warm(self) -> None:
        self._verified(self._opened())

    @property
    def columns(self) -> Columns:
        return self._verified(self._opened())

    @property
    def has_forms(self) -> bool:
        if self._forms is None:
            self._forms = bool(self.columns.form.any())
        return self._forms

    def job_options(self) -> DecodedOptions | None:
        handle = self._opened()
        try:
            data = handle.section(self.index, JOBS)
        except Corrupt as damage:
            raise self._damaged(damage) from None
        return None if data is None else decoded_options(_OPTIONS.decode(data), self.first_seq)

    @property
    def times(self) -> NDArray[np.int64]:
        return self.columns.ts_ms

    def weights(self, rows: NDArray[np.int64], gone: int = 0) -> NDArray[Any]:
        return self.columns.size[rows]

    def _verified(self, handle: Handle) -> Columns:
        try:
            return handle.checked_columns(self.index)
        except Corrupt as damage:
            raise self._damaged(damage) from None

    def tags_of(self, tag_ids: Sequence[int]) -> list[str]:
        return self._strings("tag", tag_ids)

    def nodes_of(self, node_ids: Sequence[int]) -> list[str]:
        return self._strings("node", node_ids)

    def _strings(self, table: str, numbers: Sequence[int]) -> list[str]:
        offsets, text = self._table(table)
        ends, view = np.asarray(numbers, np.int64), text.data
        spans = zip(offsets[ends - 1].tolist(), offsets[ends].tolist(), strict=True)
        return [str(view[lo:hi], "utf-8") for lo, hi in spans]

    def _table(self, name: str) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
        handle = self._opened()
        return self._part(handle, f"{name}_offsets"), self._part(handle, f"{name}_text")

    def _part(self, handle: Handle, name: str) -> NDArray[Any]:
        try:
            return handle.part(self.index, name)
        except Corrupt as damage:
            raise self._damaged(damage) from None

    def node_ids(self, nodes: Sequence[str]) -> NDArray[np.uint32]:
        offsets, text = self._table("node")
        found = []
        for node in nodes:
            wanted = node.encode()
            rank = _rank(offsets, text, wanted)
            if rank < len(offsets) - 1 and _at(offsets, text, rank) == wanted:
                found.append(rank + 1)
        return np.array(found, np.uint32)

    def tag_ids(self, match: TagMatch, rows: tuple[int, int] | None = None) -> NDArray[np.uint32]:
        offsets, text = self._table("tag")
        lo = _rank(offsets, text, match.lower)
        hi = len(offsets) - 1 if match.upper is None else _rank(offsets, text, match.upper)
        ids = np.arange(lo + 1, max(lo, hi) + 1, dtype=np.uint32)
        if match.exact:
            return ids
        return ids[[match.accepts(_at(offsets, text, rank)) for rank in range(lo, lo + len(ids))]]

    def next_tags(self, match: TagMatch, most: int) -> list[str]:
        return self.tags_of(self.tag_ids(match)[:most].tolist())

    def tag_rows(self, match: TagMatch) -> NDArray[np.int64]:
        ids = self.tag_ids(match)
        if not len(ids):
            return np.zeros(0, np.int64)
        handle = self._opened()
        offsets = self._part(handle, "posting_offsets")
        rows = self._part(handle, "postings")
        first, last = int(ids[0]), int(ids[-1])
        if last - first + 1 == len(ids):
            found = rows[offsets[first - 1] : offsets[last]]
        else:
            found = np.concatenate([rows[offsets[i - 1] : offsets[i]] for i in ids.tolist()])
        return np.sort(found).astype(np.int64)

    # -- flags ---------------------------------------------------------------------------------

    @property
    def flags(self) -> NDArray[np.uint8]:
        heap = self._heap
        if heap is not None:
            return heap
        if self._deletions:
            return self._to_heap()
        stored = self.stored_flags()
        return stored if self._dead is not None else self._counted(stored)

    def stored_flags(self) -> NDArray[np.uint8]:
        """The flags as the file has them.  Raises Corrupt, OSError."""
        handle = self._opened()
        try:
            return handle.flags(self.index)
        except Corrupt as damage:
            raise self._damaged(damage) from None

    def _counted(self, stored: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The file's flags, with the deleted rows counted, unless a delete came in between:
        maintenance reads flags on a thread of its own."""
        with self._segments.lock:
            dead = int(np.count_nonzero(stored))
            if self._deletions or dead != int(np.count_nonzero(stored == DELETED)):
                return self._to_heap()
            self._dead = dead
        return stored

    def _to_heap(self) -> NDArray[np.uint8]:
        """A copy of the file's flags in memory, with the deletes since; a byte that is no flag is
        read as the nearer one and counted."""
        with self._segments.lock:
            stored = self.stored_flags()
            if np.count_nonzero(stored) == np.count_nonzero(stored == DELETED):
                flags = stored.copy()
            else:
                flags = NEAREST[stored].astype(np.uint8)
                damaged = int(np.count_nonzero(flags != stored))
                self._segments.stats.flag_repairs_total += damaged
            for _, deletion in self._deletions:
                _apply(deletion, flags)
            self._heap = flags
            self._dead = int(np.count_nonzero(flags))
        return flags

    @property
    def dead(self) -> int:
        if self._dead is None:
            _ = self.flags
            assert self._dead is not None
        return self._dead

    def delete(self, rows: NDArray[np.int64]) -> None:
        if not len(rows):
            return
        with self._segments.lock:
            self._segments.note(self, rows)
            if self._heap is not None and self._dead is not None:
                self._dead += int(np.count_nonzero(self._heap[rows] != DELETED))
                self._heap[rows] = DELETED
                return
            # The segment is not opened here: during replay its file may be gone already, because a
            # later event drops it.
            self._dead = None

    def delete_span(self, lo: int, hi: int) -> None:
        self.delete(np.arange(lo, hi))

    def delete_marked(self, marked: NDArray[np.bool_]) -> None:
        if not marked.any():
            return
        with self._segments.lock:
            # A bit a row: rows scattered over many runs would take 64 times the memory.
            self._segments.note(self, np.packbits(marked))
            heap = self._heap
            if heap is not None and self._dead is not None:
                self._dead += int(np.count_nonzero(marked & (heap == LIVE)))
                heap |= marked.view(np.uint8) * np.uint8(DELETED)
            elif self._dead == 0:
                self._dead = int(np.count_nonzero(marked))
            else:
                self._dead = None

    @property
    def known_dead(self) -> int:
        if self._dead is not None or self._checked is not None:
            return self.dead
        return len(self.deleted_rows())

    def deleted_rows(self) -> NDArray[np.int64]:
        if self._checked is not None:
            return np.flatnonzero(self.flags == DELETED)
        return self.rows_in([deletion for _, deletion in self._deletions])

    @property
    def segment(self) -> int:
        return self._segment.number

    def note(self, lsn: int, deletion: Deletion) -> None:
        """Rows deleted by the frame `lsn`; the caller holds the lock, as for `due` and `flipped`."""
        if isinstance(self._deletions, tuple):
            self._deletions = []
        self._deletions.append((lsn, deletion))

    def due(self, lsn: int) -> list[Deletion]:
        """What was deleted by frames up to `lsn`."""
        return [deletion for at, deletion in self._deletions if at <= lsn]

    def rows_in(self, deletions: Sequence[Deletion]) -> NDArray[np.int64]:
        """Rows of any of these, ascending."""
        if not deletions:
            return np.zeros(0, np.int64)
        return np.flatnonzero(self._flags_in(deletions))

    def bits_of(self, deletions: Sequence[Deletion]) -> NDArray[np.uint8]:
        """The same as a bit a row, which is a deletion too."""
        return np.packbits(self._flags_in(deletions) != LIVE)

    def _flags_in(self, deletions: Sequence[Deletion]) -> NDArray[np.uint8]:
        flags = np.zeros(self.count, np.uint8)
        for deletion in deletions:
            _apply(deletion, flags)
        return flags

    def flipped(self, lsn: int, *, repaired: bool) -> bool:
        """The file has the flags that were due: drop the copy unless more rows were deleted."""
        self._deletions = [deletion for deletion in self._deletions if deletion[0] > lsn] or ()
        if self._deletions:
            return False
        if not repaired:
            self._heap = None
        return True

    # -- text ----------------------------------------------------------------------------------

    def read(self, spans: Sequence[Span]) -> list[Buffer] | None:
        return self._read(spans, nowait=True)

    def read_blocking(self, spans: Sequence[Span]) -> list[Buffer]:
        buffers = self._read(spans, nowait=False)
        assert buffers is not None
        return buffers

    def views(self, spans: Sequence[Span]) -> None:
        return None

    def still(self) -> "SealedRun":
        return self

    def _read(self, spans: Sequence[Span], *, nowait: bool) -> list[Buffer] | None:
        handle = self._opened()
        ranges = byte_ranges(self._verified(handle), spans)
        buffers: list[Buffer] = []
        for near in (ranges,) if len(ranges) == 1 else _near(ranges):
            lo = near[0][0]
            view = self._fetch(handle, lo, near[-1][1], nowait)
            if view is None:
                return None
            buffers += [view[a - lo : b - lo] for a, b in near]
        return buffers

    def _fetch(self, handle: Handle, lo: int, hi: int, nowait: bool) -> memoryview | None:
        """Bytes [lo, hi) of the text, verified now or by an earlier call."""
        checked = self._checked
        assert checked is not None
        if lo >= hi:
            return memoryview(b"")
        first, last = lo // BLOCK, -(-hi // BLOCK)
        known = checked.find(0, first, last) < 0
        start, end = (lo, hi) if known else (first * BLOCK, min(last * BLOCK, self.text_bytes))
        base = int(handle.table[self.index]["text_offset"])
        view = np.empty(end - start, np.uint8).data
        if nowait:
            if not handle.file.read_nowait(view, base + start):
                return None
        else:
            _fill(handle, view, base + start)
        if not known:
            self._check(handle, view, first, last, base)
        return view[lo - start : hi - start]

    def _check(self, handle: Handle, view: memoryview, first: int, last: int, base: int) -> None:
        checked = self._checked
        assert checked is not None
        wanted = handle.part(self.index, "blocks")[first:last].tolist()
        for block, expected in enumerate(wanted, first):
            at = (block - first) * BLOCK
            if digest(view[at : at + BLOCK]) != expected:
                raise Corrupt(handle.path, base + block * BLOCK, "a block of text does not verify")
            checked[block] = 1


def _apply(deletion: Deletion, flags: NDArray[np.uint8]) -> None:
    """Set the flags, LIVE or DELETED each, of what was deleted."""
    if deletion.dtype == np.uint8:
        bits = np.unpackbits(deletion.view(np.uint8), count=len(flags))
        flags |= bits * np.uint8(DELETED)
    else:
        flags[deletion] = DELETED


def _fill(handle: Handle, view: memoryview, offset: int) -> None:
    filled = 0
    while filled < len(view):
        step = handle.file.read_into(view[filled:], offset + filled)
        if step == 0:
            raise Corrupt(handle.path, offset + filled, "the file ends here")
        filled += step


def byte_ranges(columns: Columns, spans: Sequence[Span]) -> list[tuple[int, int]]:
    """Byte range of each span's text, without its final comma."""
    offsets, sizes = columns.offset.data, columns.size.data
    ranges = []
    for lo, hi in spans:
        start, end, size = offsets[lo], offsets[hi - 1], sizes[hi - 1]
        # The offset of a last row without text is that of the next row: behind a comma.
        ranges.append((start, end + size if size else max(start, end - 1)))
    return ranges


def _near(ranges: Sequence[tuple[int, int]]) -> Iterator[Sequence[tuple[int, int]]]:
    """Ranges of bytes that are read with one call."""
    if ranges and ranges[-1][1] - ranges[0][0] <= NEAR_BYTES and ranges == sorted(ranges):
        yield ranges
        return
    at = 0
    while at < len(ranges):
        hi = ranges[at][1]
        stop = at + 1
        while stop < len(ranges) and 0 <= ranges[stop][0] - hi <= NEAR_BYTES:
            hi = ranges[stop][1]
            stop += 1
        yield ranges[at:stop]
        at = stop


def _at(offsets: NDArray[np.uint32], text: NDArray[np.uint8], rank: int) -> bytes:
    return text[offsets[rank] : offsets[rank + 1]].tobytes()


def _rank(offsets: NDArray[np.uint32], text: NDArray[np.uint8], wanted: bytes) -> int:
    """Number of strings of a table that are less than `wanted`, by bisection."""
    lo, hi = 0, len(offsets) - 1
    while lo < hi:
        middle = (lo + hi) // 2
        if _at(offsets, text, middle) < wanted:
            lo = middle + 1
        else:
            hi = middle
    return lo
