"""The hot run: records of one topic that no segment holds yet, in memory.

It owns growing columns, a list of text arenas and the interned nodes and tags of its rows; it knows
neither files nor which of its rows a reader may see.  Bytes never move once they are written: a slice
given to a reader stays valid while the run grows, loses rows to deletes, or is replaced by another.

A logged run frees the memory of deleted records when it is sealed.  A volatile one never is: it stays
small, so that it is freed as a whole, and `compacted` copies its live rows once the dead ones are more.
"""

import copy
import struct
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, cast

import numpy as np
from numpy.typing import NDArray

from topics.protocol.model.ports import Run, Span, TagMatch
from topics.protocol.model.records import (
    COLUMN_DTYPES,
    DELETED,
    LIVE,
    RUN_TEXT_BYTES_MAX,
    TEXT,
    Batch,
    Buffer,
    Columns,
    StoredText,
    Text,
)
from topics.protocol.state.unsealed_run import UnsealedRun

_ROWS_FIRST: Final = 16
_ARENA_FIRST_BYTES: Final = 256
_ARENA_MAX_BYTES: Final = 1 << 20
_ADOPT_BYTES: Final = 256 << 10
"""A batch from this size on becomes an arena itself instead of being copied into one."""
_ADOPT_BYTES_MAX: Final = 4 << 20
"""A batch beyond this size is copied into arenas: an answer that refers to a part of an arena keeps
all of it in memory."""

HOT_RUN_BYTES: Final = 8 << 10
"""What a hot run costs before its first record: arrays, tables, the first arena; an estimate."""

HOT_ROW_BYTES: Final = 64
"""What a hot record costs beside its text: columns and flag; an estimate for the memory bound."""

STRING_BYTES: Final = 144
"""What a tag or a node that a run did not have yet costs beside its characters: the text's own head, a
number, and places in a list, in an order and in a table that grows by doubling; an estimate."""

_PARTS: Final = {**COLUMN_DTYPES, "flags": np.dtype("|u1")}
_STARTS: Final = dict(
    zip(_PARTS, np.cumsum([0, *(d.itemsize for d in _PARTS.values())]).tolist(), strict=False)
)
"""Where a part begins in the memory of a run, in bytes for each row that there is room for."""
_ROW_BYTES: Final = sum(dtype.itemsize for dtype in _PARTS.values())
_PACKERS: Final = {name: struct.Struct(dtype.char) for name, dtype in _PARTS.items()}

_STRETCHES_FEW: Final = 64
"""Stretches of live rows up to which a loop costs less than a mask over their text."""
_INSERTS_FEW: Final = 32
"""Strings up to which inserting each into the sorted view costs less than sorting it."""
_LOOKS_LESS: Final = 4
"""How many times as many tags as rows there must be for a look at the rows to cost less."""
_ROWS_FEW: Final = 64
"""Rows up to which their tags are looked at one by one."""
_GAP_ROWS: Final = 128
"""Adjacent dead rows above which two runs cost no more than one with those rows."""


class _Strings:
    """Interned strings of a run: ids from 1 in order of appearance, and a sorted view on demand.

    Attributes:
        memory_bytes: An estimate of what they hold.
    """

    __slots__ = ("_order", "ids", "memory_bytes", "texts")

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.ids: dict[str, int] = {}
        self.memory_bytes = 0
        self._order: list[int] = []

    def intern(self, text: str) -> int:
        known = self.ids.get(text)
        if known is None:
            self.texts.append(text)
            known = self.ids[text] = len(self.texts)
            self.memory_bytes += string_bytes(text)
        return known

    def texts_of(self, ids: Sequence[int]) -> list[str]:
        return [self.texts[known - 1] for known in ids]

    def utf8(self, known: int) -> bytes:
        return self.texts[known - 1].encode()

    def in_order(self) -> list[int]:
        """The ids by their text in UTF-8, ascending, which is the order of its characters.  Sorted when
        asked for: deletes are rarer than appends.  What was sorted before stays: a delete after each of
        many appends does not sort all each time.  The numbers are those of the table, so that the order
        takes a reference for each."""
        order, texts, ids = self._order, self.texts, self.ids
        if len(order) != len(texts):
            order = order.copy()  # another thread may be going through it
            news = [ids[text] for text in texts[len(order) :]]
            by_text = self._text_of
            if len(news) <= _INSERTS_FEW:
                for new in news:
                    insort(order, new, key=by_text)
            else:
                order += news
                order.sort(key=by_text)
            self._order = order
        return order

    def _text_of(self, known: int) -> str:
        return self.texts[known - 1]


_NO_STRINGS: Final = _Strings()
"""The table of any run without strings; nothing is ever interned here."""


class HotRun(UnsealedRun):
    """A run that grows by batches of text; implements `ports.Run`."""

    form: Final = TEXT
    has_forms = False

    def __init__(self, first_seq: int, *, volatile: bool = False, base_bytes: int = 0) -> None:
        super().__init__(first_seq, volatile=volatile, base_bytes=base_bytes)
        self._strings_bytes = 0
        """Of its tables, as far as they count in `memory_bytes`."""
        self._deleted_bytes = 0
        self._unweighed: list[NDArray[np.bool_]] = []
        self._passed_rows = 0
        self._nodes = _NO_STRINGS
        self._tags = _NO_STRINGS
        self._arenas: list[Buffer | StoredText] = []
        self._bases: list[int] = []
        self._is_stored = False
        """Some of the text is in a file."""
        self._room: bytearray | None = None
        self._room_used = 0
        self._is_room_last = False
        self._view: Columns | None = None
        self._capacity = _ROWS_FIRST
        self._memory = bytearray(_ROWS_FIRST * _ROW_BYTES)
        self._arrays: dict[str, NDArray[Any]] | None = None
        self._cells: dict[str, memoryview] | None = None

    # Most topics are small, and there are many of them: a run is one block of memory, and its views
    # are made when they are first used.

    def _allocate(self, capacity: int) -> None:
        rows, old = self.count, self._parts if self.count else None
        self._capacity = capacity
        self._memory = bytearray(capacity * _ROW_BYTES)
        self._arrays = self._cells = None
        if old is not None:
            for name, part in self._parts.items():
                part[:rows] = old[name][:rows]
        if capacity > _ROWS_FIRST:
            # Item assignment through a memoryview costs a third of that through numpy.
            memory = memoryview(self._memory)
            self._cells = {
                name: memory[start * capacity : (start + dtype.itemsize) * capacity].cast(
                    cast(Literal["I"], dtype.char)
                )
                for (name, dtype), start in zip(_PARTS.items(), _STARTS.values(), strict=True)
            }

    @property
    def _parts(self) -> dict[str, NDArray[Any]]:
        """The columns and the flags, as far as there is room, by name."""
        if self._arrays is None:
            capacity = self._capacity
            self._arrays = {
                name: np.frombuffer(self._memory, dtype, capacity, _STARTS[name] * capacity)
                for name, dtype in _PARTS.items()
            }
        return self._arrays

    def _cell(self, name: str, row: int) -> int:
        if self._cells is not None:
            return self._cells[name][row]
        packer = _PACKERS[name]
        at = _STARTS[name] * self._capacity + row * packer.size
        found: int = packer.unpack_from(self._memory, at)[0]
        return found

    def _set_cell(self, name: str, row: int, value: int) -> None:
        if self._cells is not None:
            self._cells[name][row] = value
        else:
            packer = _PACKERS[name]
            at = _STARTS[name] * self._capacity + row * packer.size
            packer.pack_into(self._memory, at, value)

    @property
    def _flags(self) -> NDArray[np.uint8]:
        return self._parts["flags"]

    @property
    def is_warm(self) -> bool:
        return True

    def warm(self) -> None:
        return

    @property
    def columns(self) -> Columns:
        if self._view is None:
            rows = self.count
            parts = self._parts
            self._view = Columns(*(parts[name][:rows] for name in COLUMN_DTYPES))
        return self._view

    @property
    def flags(self) -> NDArray[np.uint8]:
        return self._flags[: self.count]

    @property
    def times(self) -> NDArray[np.int64]:
        return self.columns.ts_ms

    def weights(self, rows: NDArray[np.int64], gone: int = 0) -> NDArray[np.uint32]:
        return self.columns.size[rows]

    def takes(self, batch: Batch, first_seq: int, records_max: int, full_bytes: int) -> bool:
        """Whether the batch may follow the last row.

        Args:
            first_seq: Of the batch.
            records_max: Of a run; one record is always taken.
            full_bytes: Of text, from which on a run is full.
        """
        rows, text_bytes = self.count, self.text_bytes
        count = rows + len(batch.size)
        return (
            not self.frozen
            and self.first_seq + rows == first_seq
            and (count <= records_max or count <= 1)
            and text_bytes < full_bytes
            and text_bytes + len(batch.text) < RUN_TEXT_BYTES_MAX
        )

    def append(self, batch: Batch) -> None:
        """Take a batch as the next rows.  Its text is copied into an arena, or kept as one; text that
        is shared with other runs is kept in its pieces, and counts in each of them; stored text stays
        where it is, and counts as if it were here."""
        n = len(batch.size)
        if self.count + n > self._capacity:
            self._allocate(max(self._capacity * 2, self.count + n))
        offset = self._store_text(batch.text)
        known_bytes = self._nodes.memory_bytes + self._tags.memory_bytes
        if n == 1:
            self._append_one(batch, offset)
        else:
            self._append_many(batch, offset, n)
        strings_bytes = self._nodes.memory_bytes + self._tags.memory_bytes - known_bytes
        self.count += n
        self._strings_bytes += strings_bytes
        self.memory_bytes += len(batch.text) + n * HOT_ROW_BYTES + strings_bytes
        self._view = None

    def _append_one(self, batch: Batch, offset: int) -> None:
        row, cells, put = self.count, self._cells, self._set_cell
        if cells is not None:
            cells["ts_ms"][row] = batch.ts_ms
            cells["offset"][row] = offset
            cells["size"][row] = batch.size.item()
            cells["data_size"][row] = batch.data_size.item()
        else:
            put("ts_ms", row, batch.ts_ms)
            put("offset", row, offset)
            put("size", row, batch.size.item())
            put("data_size", row, batch.data_size.item())
        if batch.meta_size is not None:
            put("meta_size", row, batch.meta_size.item())
        nodes = batch.nodes
        node = nodes if nodes is None or isinstance(nodes, str) else nodes[0]
        if node is not None:
            put("node_id", row, self._own_nodes().intern(node))
        if batch.tags is not None and batch.tags[0] is not None:
            put("tag_id", row, self._own_tags().intern(batch.tags[0]))
        if batch.src_seq is not None and batch.hops is not None:
            put("src_seq", row, batch.src_seq.item())
            put("hops", row, batch.hops.item())
        if batch.form is not None:
            put("form", row, batch.form.item())
            self.has_forms = True

    def _own_nodes(self) -> _Strings:
        if self._nodes is _NO_STRINGS:
            self._nodes = _Strings()
        return self._nodes

    def _own_tags(self) -> _Strings:
        if self._tags is _NO_STRINGS:
            self._tags = _Strings()
        return self._tags

    def _append_many(self, batch: Batch, offset: int, n: int) -> None:
        new, columns = slice(self.count, self.count + n), self._parts
        columns["ts_ms"][new] = batch.ts_ms
        columns["size"][new] = batch.size
        columns["data_size"][new] = batch.data_size
        ends = np.cumsum(batch.size, dtype=np.int64) + np.arange(1, n + 1)
        offsets = columns["offset"][new]
        offsets[0] = offset
        offsets[1:] = ends[:-1] + offset
        if batch.meta_size is not None:
            columns["meta_size"][new] = batch.meta_size
        if batch.nodes is not None:
            columns["node_id"][new] = _ids(self._own_nodes(), batch.nodes)
        if batch.tags is not None:
            columns["tag_id"][new] = _ids(self._own_tags(), batch.tags)
        if batch.src_seq is not None and batch.hops is not None:
            columns["src_seq"][new] = batch.src_seq
            columns["hops"][new] = batch.hops
        if batch.form is not None:
            columns["form"][new] = batch.form
            self.has_forms = True

    def _store_text(self, text: Text) -> int:
        """Place text behind the last; returns its offset in the run."""
        offset, size = self.text_bytes, len(text)
        self.text_bytes += size
        if not isinstance(text, bytes):
            if isinstance(text, StoredText):
                self._is_stored = True
                self._adopt(text, offset)
                return offset
            at = offset
            for piece in text.pieces:
                self._adopt(piece, at)
                at += len(piece)
            return offset
        if size > _ADOPT_BYTES_MAX:
            for at in range(0, size, _ARENA_MAX_BYTES):
                self._adopt(text[at : at + _ARENA_MAX_BYTES], offset + at)
            return offset
        if size >= _ADOPT_BYTES:
            self._adopt(text, offset)
            return offset
        room, used = self._room, self._room_used
        if room is None or used + size > len(room):
            last = _ARENA_FIRST_BYTES // 2 if room is None else len(room)
            bytes_max = min(max(2 * last, _ARENA_FIRST_BYTES), _ARENA_MAX_BYTES)
            room, used = bytearray(max(size, bytes_max)), 0
            self._adopt(room, offset)
            self._room, self._is_room_last = room, True
        elif not self._is_room_last:
            # Text of another arena lies between: what is left of the room is one more.
            self._adopt(memoryview(room)[used:], offset)
            self._is_room_last = True
        room[used : used + size] = text
        self._room_used = used + size
        return offset

    def _adopt(self, arena: Buffer | StoredText, offset: int) -> None:
        self._arenas.append(arena)
        self._bases.append(offset)
        self._is_room_last = False

    def delete(self, rows: NDArray[np.int64]) -> None:
        live = self._flags[rows] == LIVE
        fresh = int(np.count_nonzero(live))
        self._flags[rows] = DELETED
        self.dead += fresh
        if self.volatile and fresh:
            sizes = int(self._parts["size"][rows].sum(dtype=np.int64, where=live))
            self._deleted_bytes += sizes + fresh * (1 + self._row_bytes)

    def delete_span(self, lo: int, hi: int) -> None:
        if self.volatile:
            self.delete(np.arange(lo, hi))
            return
        flags = self._flags[lo:hi]
        self.dead += flags.tobytes().count(LIVE)
        flags.fill(DELETED)

    def delete_marked(self, marked: NDArray[np.bool_]) -> None:
        flags = self.flags
        fresh = marked & (flags == LIVE)
        flags |= marked.view(np.uint8) * np.uint8(DELETED)
        self.dead += int(np.count_nonzero(fresh))
        if self.volatile:
            self._unweighed.append(fresh)

    @property
    def known_dead(self) -> int:
        return self.dead

    def deleted_rows(self) -> NDArray[np.int64]:
        if not self.dead:
            return np.empty(0, np.int64)
        return np.flatnonzero(self.flags != LIVE)

    # ------------------------------------------------------------------ rows that no read needs

    def pass_through(self, seq: int) -> None:
        """A floor stands at `seq`: no read needs a row up to there."""
        self._passed_rows = min(max(seq + 1 - self.first_seq, self._passed_rows), self.count)

    @property
    def wasted_bytes(self) -> int:
        """What `compacted` would save, or somewhat more: a row that was deleted before a floor passed it
        counts twice."""
        while self._unweighed:
            killed = self._unweighed.pop()
            rows = int(np.count_nonzero(killed))
            sizes = self._parts["size"][: len(killed)] * killed
            self._deleted_bytes += int(sizes.sum(dtype=np.int64)) + rows * (1 + self._row_bytes)
        return self._deleted_bytes + self.weight(self._passed_rows)

    @property
    def is_gone(self) -> bool:
        """Whether no read needs any row."""
        return self._passed_rows == self.count or self.dead == self.count

    @property
    def _row_bytes(self) -> int:
        """What a row costs beside its text, with its share of the tables."""
        return HOT_ROW_BYTES + self._strings_bytes // max(self.count, 1)

    def weight(self, row: int) -> int:
        """What the rows below `row` add to `memory_bytes`, if all have the same share of the tables."""
        if row == self.count:
            return self.text_bytes + row * HOT_ROW_BYTES + self._strings_bytes
        return int(self._cell("offset", row)) + row * self._row_bytes

    def row_at(self, weight: int) -> int:
        """The first row below which the rows weigh so much; `count` where none is."""
        rows = np.arange(self.count, dtype=np.int64)
        weights = self.columns.offset + rows * self._row_bytes
        return int(weights.searchsorted(weight, "left"))

    def compacted(self, base_bytes: int = 0) -> list["HotRun"]:
        """Runs of the live rows: without the text of dead rows, and without the rows of long dead
        stretches.  This run stays as it is, for the reads that hold it.

        Args:
            base_bytes: What the first of them counts for before its first record.
        """
        live = np.flatnonzero(self.flags[self._passed_rows :] == LIVE) + self._passed_rows
        if not len(live):
            return []
        cuts = np.flatnonzero(np.diff(live) > _GAP_ROWS)
        starts = live[np.concatenate(([0], cuts + 1))].tolist()
        lasts = live[np.concatenate((cuts, [len(live) - 1]))].tolist()
        runs = [self._compacted(starts[0], lasts[0] + 1, base_bytes)]
        for lo, last in zip(starts[1:], lasts[1:], strict=True):
            runs.append(self._compacted(lo, last + 1, HOT_RUN_BYTES))
        return runs

    def _compacted(self, lo: int, hi: int, base_bytes: int) -> "HotRun":
        run = HotRun(self.first_seq + lo, volatile=self.volatile, base_bytes=base_bytes)
        rows = hi - lo
        run._allocate(max(rows, _ROWS_FIRST))
        run.count = rows
        dead = self._flags[lo:hi] != LIVE
        run._flags[:rows] = self._flags[lo:hi]
        run.dead = int(np.count_nonzero(dead))
        columns = {name: run._parts[name][:rows] for name in COLUMN_DTYPES}
        for name, column in columns.items():
            column[:] = self._parts[name][lo:hi]
        for name in ("size", "data_size", "meta_size", "node_id", "tag_id"):
            columns[name][dead] = 0
        sizes = np.where(dead, 0, columns["size"].astype(np.int64) + 1)
        columns["offset"][:] = np.cumsum(sizes) - sizes
        for name, old, new in (
            ("node_id", self._nodes, run._own_nodes),
            ("tag_id", self._tags, run._own_tags),
        ):
            if old.texts:
                columns[name][:] = _moved(columns[name], old, new())
        text = b"".join(self._live_text(lo, dead))
        run._arenas, run._bases, run.text_bytes = [text], [0], len(text)
        run._strings_bytes = run._nodes.memory_bytes + run._tags.memory_bytes
        run.memory_bytes += len(text) + rows * HOT_ROW_BYTES + run._strings_bytes
        return run

    def _live_text(self, lo: int, dead: NDArray[np.bool_]) -> Iterator[Buffer]:
        """Text of those rows from `lo` on that are not dead, commas included."""
        edges = np.flatnonzero(np.diff(dead, prepend=True, append=True)) + lo
        cell = self._cell
        if len(edges) > 2 * _STRETCHES_FEW:
            offsets = self._parts["offset"][lo : lo + len(dead)].astype(np.int64)
            first, last = int(offsets[0]), lo + len(dead) - 1
            end = cell("offset", last) + cell("size", last) + (not dead[-1])
            text = np.frombuffer(self._slice(first, end), np.uint8)
            yield text[np.repeat(~dead, np.diff(offsets, append=end))].tobytes()
            return
        for first, end in edges.reshape(-1, 2).tolist():
            end_offset = cell("offset", end - 1) + cell("size", end - 1) + 1
            yield self._slice(cell("offset", first), end_offset)

    # ------------------------------------------------------------------ cutting

    def tail(self, row: int) -> "HotRun":
        """The rows from `row` on as a run of its own, which shares the text, and the tables: those count
        in this run."""
        rest = HotRun(self.first_seq + row, volatile=self.volatile)
        rest._allocate(max(self.count - row, _ROWS_FIRST))
        rest.count = self.count - row
        start = self._cell("offset", row)
        for name, part in self._parts.items():
            rest._parts[name][: rest.count] = part[row : self.count]
        rest._parts["offset"][: rest.count] -= np.uint32(start)
        rest.dead = int(np.count_nonzero(rest._flags))
        rest.text_bytes = self.text_bytes - start
        rest.memory_bytes = rest.text_bytes + rest.count * HOT_ROW_BYTES
        first = bisect_right(self._bases, start) - 1
        rest._arenas = self._arenas[first:]
        rest._bases = [base - start for base in self._bases[first:]]
        rest._is_stored = self._is_stored
        rest._nodes, rest._tags = self._nodes, self._tags
        return rest

    def cut(self, row: int) -> "HotRun":
        rest = self.tail(row)
        self.text_bytes -= rest.text_bytes
        self.memory_bytes -= rest.memory_bytes
        self.count = row
        self.dead = int(np.count_nonzero(self.flags))
        self._room, self._view, self.frozen = None, None, True
        return rest

    def node_ids(self, nodes: Sequence[str]) -> NDArray[np.uint32]:
        known = (self._nodes.ids.get(node) for node in nodes)
        return np.array([i for i in known if i is not None], np.uint32)

    def nodes_of(self, node_ids: Sequence[int]) -> list[str]:
        return self._nodes.texts_of(node_ids)

    def tags_of(self, tag_ids: Sequence[int]) -> list[str]:
        return self._tags.texts_of(tag_ids)

    def tag_ids(self, match: TagMatch, rows: tuple[int, int] | None = None) -> NDArray[np.uint32]:
        if rows is not None and (rows[1] - rows[0]) * _LOOKS_LESS <= len(self._tags.texts):
            # A reader at the head asks at each publication: for the few tags of the new rows, not
            # for all that the run has.
            present = self.columns.tag_id[rows[0] : rows[1]].tolist()
            # Of a few, a set takes a tenth of what numpy does.
            present = (
                sorted(set(present)) if len(present) <= _ROWS_FEW else np.unique(present).tolist()
            )
            texts = self._tags.texts
            kept = [i for i in present if i and _matches(match, texts[i - 1].encode())]
            return np.array(kept, np.uint32)
        order, utf8 = self._tags.in_order(), self._tags.utf8
        lo = bisect_left(order, match.lower, key=utf8)
        hi = len(order) if match.upper is None else bisect_left(order, match.upper, key=utf8)
        ids = [i for i in order[lo:hi] if match.exact or match.accepts(utf8(i))]
        return np.array(sorted(ids), np.uint32)

    def next_tags(self, match: TagMatch, most: int) -> list[str]:
        order, utf8 = self._tags.in_order(), self._tags.utf8
        lo = bisect_left(order, match.lower, key=utf8)
        hi = len(order) if match.upper is None else bisect_left(order, match.upper, key=utf8)
        return self.tags_of(order[lo : min(lo + most, hi)])

    def tag_rows(self, match: TagMatch) -> NDArray[np.int64]:
        """As `ports.Run.tag_rows`; compares one integer column of at most a hot run's rows."""
        ids = self.tag_ids(match)
        if not len(ids):
            return np.empty(0, np.int64)
        column = self.columns.tag_id
        hit = column == ids[0] if len(ids) == 1 else np.isin(column, ids)
        return np.flatnonzero(hit)

    def read(self, spans: Sequence[Span]) -> list[Buffer] | None:
        if self._is_stored:
            return self._read_stored(spans, is_blocking=False)
        return [self._slice(*self._text_range(span)) for span in spans]

    def read_blocking(self, spans: Sequence[Span]) -> list[Buffer]:
        if self._is_stored:
            texts = self._read_stored(spans, is_blocking=True)
            assert texts is not None
            return texts
        return [self._slice(*self._text_range(span)) for span in spans]

    def _read_stored(self, spans: Sequence[Span], *, is_blocking: bool) -> list[Buffer] | None:
        texts: list[Buffer] = []
        for span in spans:
            pieces: list[Buffer] = []
            for arena, lo, hi in self._where(*self._text_range(span)):
                if not isinstance(arena, StoredText):
                    pieces.append(memoryview(arena)[lo:hi])
                elif is_blocking:
                    pieces.append(arena.read_blocking(lo, hi))
                elif (piece := arena.read(lo, hi)) is not None:
                    pieces.append(piece)
                else:
                    return None
            texts.append(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        return texts

    def views(self, spans: Sequence[Span]) -> list[Sequence[Buffer]] | None:
        if self._is_stored:
            return None
        return [self._views(*self._text_range(span)) for span in spans]

    def still(self) -> "HotRun":
        """Shares the memory of the rows that there are; a batch that comes later is not in it."""
        return copy.copy(self)

    def _text_range(self, span: Span) -> tuple[int, int]:
        """Where in the run's text a span begins and ends, without its final comma."""
        cell, (lo, hi) = self._cell, span
        return cell("offset", lo), cell("offset", hi - 1) + cell("size", hi - 1)

    def _slice(self, start: int, end: int) -> Buffer:
        """Bytes [start, end) of the run's text; a view where they lie in one arena."""
        views = self._views(start, end)
        return views[0] if len(views) == 1 else b"".join(views)

    def _views(self, start: int, end: int) -> list[Buffer]:
        """Bytes [start, end) of the run's text as they lie in its arenas, all of which are memory."""
        found = self._where(start, end)
        return [memoryview(cast(Buffer, arena))[lo:hi] for arena, lo, hi in found]

    def _where(self, start: int, end: int) -> list[tuple[Buffer | StoredText, int, int]]:
        """The arenas that have bytes [start, end) of the run's text, and which bytes of each."""
        bases = self._bases
        found: list[tuple[Buffer | StoredText, int, int]] = []
        i = bisect_right(bases, start) - 1
        while True:
            base = bases[i]
            # An arena's unused room does not count: the next one begins where its text ended.
            after = bases[i + 1] if i + 1 < len(bases) else self.text_bytes
            if end <= after:
                found.append((self._arenas[i], start - base, end - base))
                return found
            found.append((self._arenas[i], start - base, after - base))
            start, i = after, i + 1


def is_volatile(run: Run) -> bool:
    """Whether the run's records live in memory only (`ephemeral`)."""
    return isinstance(run, HotRun) and run.volatile


def hot_bytes_of_text(batch: Batch) -> int:
    """What a batch adds to a run's `memory_bytes`, if none of its strings is known there."""
    rows_bytes = len(batch.text) + len(batch.size) * HOT_ROW_BYTES
    return rows_bytes + strings_bytes(batch.nodes) + strings_bytes(batch.tags)


def string_bytes(text: str) -> int:
    """What a run holds for a string that it did not have."""
    return STRING_BYTES + len(text) * (1 if text.isascii() else 4)


def strings_bytes(texts: str | Sequence[str | None] | None) -> int:
    """The same of all different ones."""
    if texts is None or isinstance(texts, str):
        return 0 if texts is None else string_bytes(texts)
    return sum(map(string_bytes, filter(None, set(texts))))


def _moved(ids: NDArray[np.uint32], old: _Strings, new: _Strings) -> NDArray[np.uint32]:
    """Ids of one table as those of another, which takes the strings that are used."""
    known = np.zeros(len(old.texts) + 1, np.uint32)
    for used in np.flatnonzero(np.bincount(ids)).tolist():
        if used:
            known[used] = new.intern(old.texts[used - 1])
    return known[ids]


def _ids(table: _Strings, texts: str | Sequence[str | None]) -> NDArray[np.uint32] | int:
    if isinstance(texts, str):
        return table.intern(texts)
    intern = table.intern
    return np.fromiter((0 if t is None else intern(t) for t in texts), np.uint32, len(texts))


def _matches(match: TagMatch, tag: bytes) -> bool:
    is_within = match.lower <= tag and (match.upper is None or tag < match.upper)
    return is_within and (match.exact or match.accepts(tag))
