"""Sealed runs as readers see them, and the segments that are open for it.

Owns file handles, maps and delete flags of sealed runs; refuses to know what a topic is.  A run
costs a small object until it is asked for something.  Invariants: a segment's maps and handle are
let go of together and opened again by name; a flag is seen at once by readers and reaches the file
only after the delete's own frame is durable.
"""

import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from topics.protocol.errors import Corrupt
from topics.protocol.events import RunRef
from topics.protocol.ports import SealEntry, Span, StoreStats, TagMatch
from topics.protocol.records import COLUMN_DTYPES, DELETED, LIVE, Buffer, Columns
from topics.store import segment
from topics.store.files import Files, discard, write_all
from topics.store.layout import BLOCK, TEMP, digest, numbers, segment_name

OPEN_SEGMENTS_MAX: Final = 256
"""Each open segment holds a file and a map of it: two descriptors."""

NEAR_BYTES: Final = 16 << 10
"""Spans that lie no further apart are read at once."""

NEAR_FLAGS: Final = 64

_BITS: Final = np.array([i.bit_count() for i in range(256)], np.uint8)
NEAREST: Final = np.where(
    _BITS[np.arange(256) ^ LIVE] < _BITS[np.arange(256) ^ DELETED], LIVE, DELETED
)
"""What a flag byte means: the one of LIVE and DELETED that fewer flipped bits lead to."""


class Handle:
    """An open segment: its file, its run table and the map of everything before the payload."""

    __slots__ = ("columns", "file", "header", "map", "parts", "path", "table")

    def __init__(self, files: Files, number: int, instance: bytes) -> None:
        name = segment_name(number)
        self.path = f"{files.path}/{name}"
        self.columns: dict[int, Columns] = {}
        self.parts: dict[tuple[int, str], NDArray[Any]] = {}
        try:
            self.file = files.open(name)
        except FileNotFoundError as error:
            raise Corrupt(self.path, 0, "the file is missing") from error
        try:
            self.header = segment.read_header(
                self.file, self.path, number=number, instance=instance
            )
            self.table = segment.read_table(self.file, self.path, self.header)
            self.map = self.file.map_readonly(self.header.payload_offset)
        except BaseException:
            self.file.close()
            raise

    def row(self, index: int) -> Any:
        if index >= self.header.runs:
            raise Corrupt(self.path, 0, f"the segment has no run {index}")
        return self.table[index]

    def part(self, index: int, name: str) -> NDArray[Any]:
        """A part of a run's section, as `segment.Shape` names them, through the map."""
        part = self.parts.get((index, name))
        if part is None:
            row = self.row(index)
            at, dtype, items = segment.shape_of(row).parts()[name]
            part = np.frombuffer(self.map, dtype, items, int(row["section_offset"]) + at)
            self.parts[index, name] = part
        return part

    def checked_columns(self, index: int) -> Columns:
        """Columns of a run; its whole section is compared with its digest the first time."""
        columns = self.columns.get(index)
        if columns is None:
            row = self.row(index)
            segment.check_section(self.file, self.path, row)
            placed = segment.shape_of(row).parts()
            base = int(row["section_offset"])
            columns = Columns(
                **{
                    name: np.frombuffer(self.map, dtype, placed[name][2], base + placed[name][0])
                    for name, dtype in COLUMN_DTYPES.items()
                }
            )
            self.columns[index] = columns
        return columns

    def flags(self, index: int) -> NDArray[np.uint8]:
        """The flag bytes as the file has them, through the map."""
        flags = self.parts.get((index, "flags"))
        if flags is None:
            row = self.row(index)
            at = int(row["flags_offset"])
            flags = np.frombuffer(self.map, np.uint8, int(row["count"]), at)
            self.parts[index, "flags"] = flags
        return flags


class Segment:
    """A segment by number, shared by its runs; the handle is there while it is in use."""

    __slots__ = ("__weakref__", "handle", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.handle: Handle | None = None


class SealedRun:
    """A run of a segment file; implements `ports.Run`."""

    __slots__ = (
        *("_checked", "_dead", "_heap", "_kills", "_pinned", "_segment", "_segments"),
        *("count", "first_seq", "index", "ref", "text_bytes", "topic_id"),
    )

    def __init__(self, segments: "Segments", owner: Segment, ref: RunRef, topic_id: int) -> None:
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
        self._kills: tuple[tuple[int, NDArray[np.int64]], ...] = ()
        self._dead: int | None = None

    def __repr__(self) -> str:
        return (
            f"SealedRun({self._segment.number}.{self.index}, seq {self.first_seq} x {self.count})"
        )

    def _handle(self) -> Handle:
        return self._pinned or self._segments.handle(self._segment)

    def _opened(self) -> Handle:
        """The handle, once the run table says what the reference said."""
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
        """Open the segment now; it stays open as long as this run.  Raises Corrupt."""
        self._pinned = self._opened()

    # -- columns and tables --------------------------------------------------------------------

    @property
    def columns(self) -> Columns:
        return self._opened().checked_columns(self.index)

    def tag(self, tag_id: int) -> str:
        return self._string("tag", tag_id)

    def node(self, node_id: int) -> str:
        return self._string("node", node_id)

    def _string(self, table: str, number: int) -> str:
        offsets, text = self._table(table)
        lo, hi = offsets[number - 1 : number + 1].tolist()
        return text[lo:hi].tobytes().decode()

    def _table(self, name: str) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
        handle = self._opened()
        handle.checked_columns(self.index)
        offsets = handle.part(self.index, f"{name}_offsets")
        return offsets, handle.part(self.index, f"{name}_text")

    def node_ids(self, nodes: Sequence[str]) -> NDArray[np.uint32]:
        offsets, text = self._table("node")
        found = []
        for node in nodes:
            wanted = node.encode()
            rank = _rank(offsets, text, wanted)
            if rank < len(offsets) - 1 and _at(offsets, text, rank) == wanted:
                found.append(rank + 1)
        return np.array(found, np.uint32)

    def tag_ids(self, match: TagMatch) -> NDArray[np.uint32]:
        offsets, text = self._table("tag")
        lo = _rank(offsets, text, match.lower)
        hi = len(offsets) - 1 if match.upper is None else _rank(offsets, text, match.upper)
        ids = np.arange(lo + 1, max(lo, hi) + 1, dtype=np.uint32)
        if match.exact:
            return ids
        return ids[[match.accepts(_at(offsets, text, rank)) for rank in range(lo, lo + len(ids))]]

    def tag_rows(self, match: TagMatch) -> NDArray[np.int64]:
        ids = self.tag_ids(match)
        if not len(ids):
            return np.zeros(0, np.int64)
        handle = self._opened()
        offsets = handle.part(self.index, "posting_offsets")
        rows = handle.part(self.index, "postings")
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
        if self._kills:
            return self._to_heap()
        stored = self._opened().flags(self.index)
        if self._dead is None:
            self._dead = int(np.count_nonzero(stored))
            if self._dead != int(np.count_nonzero(stored == DELETED)):
                return self._to_heap()
        return stored

    def _to_heap(self) -> NDArray[np.uint8]:
        """The file's flags with what was killed since, in memory; bytes that are neither flag are
        read as the nearer one, and counted."""
        with self._segments.lock:
            stored = self._opened().flags(self.index)
            flags = NEAREST[stored].astype(np.uint8)
            damaged = int(np.count_nonzero(flags != stored))
            self._segments.stats.flag_repairs_total += damaged
            for _, rows in self._kills:
                flags[rows] = DELETED
            self._heap = flags
            self._dead = int(np.count_nonzero(flags))
        return flags

    @property
    def dead(self) -> int:
        if self._dead is None:
            _ = self.flags
            assert self._dead is not None
        return self._dead

    def kill(self, rows: NDArray[np.int64]) -> None:
        if not len(rows):
            return
        with self._segments.lock:
            self._segments.note(self, rows)
            if self._heap is not None and self._dead is not None:
                self._dead += int(np.count_nonzero(self._heap[rows] != DELETED))
                self._heap[rows] = DELETED
                return
            # Not opened here: while the log is replayed the file may be gone, dropped later on.
            self._dead = None

    def killed(self) -> NDArray[np.int64]:
        if self._checked is not None:
            return np.flatnonzero(self.flags == DELETED)
        told = [rows for _, rows in self._kills]
        return np.unique(np.concatenate(told)) if told else np.zeros(0, np.int64)

    @property
    def segment(self) -> int:
        return self._segment.number

    def note(self, lsn: int, rows: NDArray[np.int64]) -> None:
        """Rows killed by the frame `lsn`; under the lock, like the two below."""
        self._kills += ((lsn, rows),)

    def due(self, lsn: int) -> list[NDArray[np.int64]]:
        """Rows killed by frames up to `lsn`."""
        return [rows for at, rows in self._kills if at <= lsn]

    def flipped(self, lsn: int, *, repaired: bool) -> bool:
        """The file shows what was due: let go of the copy, unless more was killed meanwhile."""
        self._kills = tuple(kill for kill in self._kills if kill[0] > lsn)
        if self._kills:
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

    def _read(self, spans: Sequence[Span], *, nowait: bool) -> list[Buffer] | None:
        handle = self._opened()
        ranges = _byte_ranges(handle.checked_columns(self.index), spans)
        buffers: list[Buffer] = []
        at = 0
        while at < len(ranges):
            lo, hi = ranges[at]
            stop = at + 1
            while stop < len(ranges) and 0 <= ranges[stop][0] - hi <= NEAR_BYTES:
                hi = ranges[stop][1]
                stop += 1
            view = self._fetch(handle, lo, hi, nowait)
            if view is None:
                return None
            buffers += [view[a - lo : b - lo] for a, b in ranges[at:stop]]
            at = stop
        return buffers

    def _fetch(self, handle: Handle, lo: int, hi: int, nowait: bool) -> memoryview | None:
        """Bytes [lo, hi) of the text, verified now or before."""
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


def _fill(handle: Handle, view: memoryview, offset: int) -> None:
    filled = 0
    while filled < len(view):
        step = handle.file.read_into(view[filled:], offset + filled)
        if step == 0:
            raise Corrupt(handle.path, offset + filled, "the file ends here")
        filled += step


def _byte_ranges(columns: Columns, spans: Sequence[Span]) -> list[tuple[int, int]]:
    """Where the text of each span lies, the final comma left out."""
    offset, size = columns.offset, columns.size
    ranges = []
    for lo, hi in spans:
        start, end, last = int(offset[lo]), int(offset[hi - 1]), int(size[hi - 1])
        # A last row without text stands where the next one would: behind a comma.
        end = end + last if last else max(start, end - 1)
        ranges.append((start, end))
    return ranges


def _at(offsets: NDArray[np.uint32], text: NDArray[np.uint8], rank: int) -> bytes:
    return text[offsets[rank] : offsets[rank + 1]].tobytes()


def _rank(offsets: NDArray[np.uint32], text: NDArray[np.uint8], wanted: bytes) -> int:
    """How many strings of a table are less than `wanted`, by bisection."""
    lo, hi = 0, len(offsets) - 1
    while lo < hi:
        middle = (lo + hi) // 2
        if _at(offsets, text, middle) < wanted:
            lo = middle + 1
        else:
            hi = middle
    return lo


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
        self.next_number = 1
        self.next_lsn = 0
        """The lsn that the write of a delete applied now will get; 0 while the log is replayed."""
        self._files = files
        self._instance = instance
        self._open_max = open_max
        self._known: weakref.WeakValueDictionary[int, Segment] = weakref.WeakValueDictionary()
        self._open: OrderedDict[int, Segment] = OrderedDict()
        self._killed: dict[SealedRun, None] = {}

    def close(self) -> None:
        with self.lock:
            self._open.clear()
            self._killed.clear()
            for each in list(self._known.values()):
                each.handle = None

    # -- runs ----------------------------------------------------------------------------------

    def run(self, ref: RunRef, topic_id: int) -> SealedRun:
        with self.lock:
            owner = self._known.get(ref.segment)
            if owner is None:
                owner = self._known[ref.segment] = Segment(ref.segment)
        return SealedRun(self, owner, ref, topic_id)

    def handle(self, owner: Segment) -> Handle:
        """The segment's handle, opened where it is not.  Raises Corrupt, OSError."""
        handle = owner.handle
        with self.lock:
            if handle is None:
                handle = owner.handle = Handle(self._files, owner.number, self._instance)
                self._open[owner.number] = owner
                while len(self._open) > self._open_max:
                    self._open.popitem(last=False)[1].handle = None
            elif owner.number in self._open:
                self._open.move_to_end(owner.number)
        return handle

    # -- life of a segment ---------------------------------------------------------------------

    def seen(self, refs: Iterable[RunRef]) -> None:
        """No number of these is ever given out again."""
        self.next_number = max([self.next_number, *(ref.segment + 1 for ref in refs)])

    def seal(self, entries: Sequence[SealEntry]) -> list[RunRef]:
        with self.lock:
            number = self.next_number
            self.next_number += 1
        return segment.build(self._files, number, instance=self._instance, entries=entries)

    def drop(self, number: int) -> None:
        """*Blocking.* Unlink a segment; what is being read stays open for its readers."""
        with self.lock:
            self._killed = {run: None for run in self._killed if run.segment != number}
            owner = self._known.get(number)
            try:
                if owner is not None:
                    self.handle(owner)
            except (Corrupt, OSError):
                # Its readers will be told so; there is nothing to keep for them.
                pass
            self._open.pop(number, None)
        discard(self._files, segment_name(number))

    def check(self, refs: Iterable[RunRef]) -> None:
        """*Blocking.* Every run referred to is there; every other segment is an orphan and goes.

        Raises:
            Corrupt: A file is missing, or its header or size is wrong.  Nothing was unlinked.
        """
        runs: dict[int, list[RunRef]] = {}
        for ref in refs:
            runs.setdefault(ref.segment, []).append(ref)
        for number, wanted in runs.items():
            self._check_one(number, wanted)
        for number in numbers(self._files.names(), "seg"):
            if number not in runs:
                discard(self._files, segment_name(number))
        for name in self._files.names():
            if TEMP.fullmatch(name) and ".seg" in name:
                discard(self._files, name)
        with self.lock:
            self._killed = {run: None for run in self._killed if run.segment in runs}
            self.seen(ref for found in runs.values() for ref in found)

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

    def note(self, run: SealedRun, rows: NDArray[np.int64]) -> None:
        """Remember that these rows are to be flipped; under the lock."""
        run.note(self.next_lsn, rows)
        self._killed[run] = None

    def flip(self, synced_lsn: int) -> int:
        """*Blocking.* Write the flags whose deletes are durable; returns rows flipped.

        Raises:
            OSError: The disk failed.
        """
        due: dict[int, list[tuple[SealedRun, NDArray[np.int64]]]] = {}
        with self.lock:
            for run in self._killed:
                rows = run.due(synced_lsn)
                if rows:
                    due.setdefault(run.segment, []).append((run, np.unique(np.concatenate(rows))))
        return sum(self._flip_one(number, runs, synced_lsn) for number, runs in sorted(due.items()))

    def _flip_one(
        self, number: int, runs: Sequence[tuple[SealedRun, NDArray[np.int64]]], synced_lsn: int
    ) -> int:
        try:
            handle = Handle(self._files, number, self._instance)
            file = self._files.open(segment_name(number), write=True)
        except (Corrupt, FileNotFoundError):
            if segment_name(number) in self._files.names():
                raise
            return 0
        try:
            flipped, repaired = 0, {}
            for run, rows in runs:
                base = int(handle.row(run.index)["flags_offset"])
                current = handle.flags(run.index).copy()
                repaired[run.index] = bool(np.any(NEAREST[current] != current))
                flipped += int(np.count_nonzero(current[rows] != DELETED))
                current[rows] = DELETED
                for lo, hi in _stretches(rows):
                    write_all(file, current[lo:hi].tobytes(), base + lo)
            file.sync_data()
        finally:
            file.close()
            handle.file.close()
        with self.lock:
            for run, _ in runs:
                if run.flipped(synced_lsn, repaired=repaired[run.index]):
                    self._killed.pop(run, None)
        return flipped


def _stretches(rows: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Stretches [lo, hi) that cover ascending rows, near ones joined."""
    cuts = np.flatnonzero(np.diff(rows) > NEAR_FLAGS) + 1
    return [(int(part[0]), int(part[-1]) + 1) for part in np.split(rows, cuts)]
