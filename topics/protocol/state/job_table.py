"""Options of a queue's jobs in memory, by seq: of those jobs that have some, and are not done (§10, 130-133).

Columns, as a queue may hold millions.  A job without options has no row.  A row of a job that is gone is marked, and
its chunk goes with the last one.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topics.protocol.model.job_options import DIGEST_BYTES, ROW, DecodedOptions
from topics.protocol.state.job import Job
from topics.protocol.state.run_list import rows_of

DELAYED: Final = 1
"""The job was never delivered, and may not be claimed yet."""
GONE: Final = 4
"""The job is done, or was removed."""
TAGGED: Final = 8
"""Its group is that of its tag: none was asked for."""
SEQ_MAX: Final = 2**63 - 1
CHUNK_ROWS: Final = 1 << 16
_FIRST_ROWS: Final = 64
_LEAVING_MAX: Final = 1024
"""Jobs that are done are marked so many at once: that costs little more than the mark of one."""


class JobRow(NamedTuple):
    """The options of one job, as `ROW` has them.  A group that is that of the tag is a group, too (`TAGGED`)."""

    seq: int
    ready_ms: int
    expires_ms: int
    hold_ms: int
    group: int
    priority: int
    flags: int

    @property
    def given_group(self) -> int:
        """The group that was asked for; 0: none."""
        return 0 if self.flags & TAGGED else self.group

    def is_early(self, job: Job) -> bool:
        """Whether the job may be claimed sooner than was asked, and was not started yet."""
        return not job.deliveries and 0 < job.released_ms < self.ready_ms


class Removed(NamedTuple):
    """What was known of jobs that are gone.

    Attributes:
        delayed: How many of them could not be claimed yet.
        keys: Their unique keys, each with its job.
    """

    delayed: int
    keys: list[tuple[bytes, int]]


_NOTHING: Final = Removed(0, [])


class _Chunk:
    """Rows of ascending seqs, which stand beside them as well: to look for a seq in a column of rows copies the column.
    One row is found and changed through views whose items are ints of Python.

    Attributes:
        flags: The column of flags, as a view.
    """

    __slots__ = ("_seq_of", "_seqs", "count", "digests", "flags", "gone", "rows")

    def __init__(self) -> None:
        self.digests: NDArray[np.uint8] | None = None
        self.count = 0
        self.gone = 0
        self._place(np.zeros(_FIRST_ROWS, ROW), np.zeros(_FIRST_ROWS, np.int64))

    def _place(self, rows: NDArray[np.void], seqs: NDArray[np.int64]) -> None:
        self.rows, self._seqs = rows, seqs
        self.flags, self._seq_of = rows["flags"].data, seqs.data

    @property
    def seqs(self) -> NDArray[np.int64]:
        return self._seqs[: self.count]

    def find(self, seq: int) -> int:
        """The row of a seq; -1: it has none."""
        seq_of, last = self._seq_of, self.count - 1
        # Each row between two others has a seq of its own, so it is not far from where it would be without gaps.
        first, end = last - seq_of[last] + seq, seq - seq_of[0]
        if first > last or end < 0:
            return -1
        row = bisect_left(seq_of, seq, max(first, 0), min(end, last))
        return row if seq_of[row] == seq else -1

    def rows_in(self, spans: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of seqs in spans of shape (k, 2), both ends inclusive, ascending."""
        seqs = self.seqs
        begins, ends = seqs.searchsorted(spans[:, 0]), seqs.searchsorted(spans[:, 1], "right")
        hit = ends > begins
        return rows_of(begins[hit], ends[hit]) if hit.any() else np.empty(0, np.int64)

    def keys_of(self, rows: NDArray[np.int64] | Sequence[int]) -> list[tuple[bytes, int]]:
        """Unique keys of jobs, each with its job."""
        if self.digests is None:
            return []
        pairs = zip(self.digests[rows], self._seqs[rows].tolist(), strict=True)
        return [(digest.tobytes(), seq) for digest, seq in pairs if digest.any()]

    def append(self, rows: NDArray[np.void], digests: NDArray[np.uint8] | None) -> None:
        end = self.count + len(rows)
        if end > len(self.rows):
            size = min(max(2 * len(self.rows), end), max(CHUNK_ROWS, end))
            more_rows = size - len(self.rows)
            self._place(
                np.concatenate([self.rows, np.zeros(more_rows, ROW)]),
                np.concatenate([self._seqs, np.zeros(more_rows, np.int64)]),
            )
        if digests is not None and self.digests is None:
            self.digests = np.zeros((len(self.rows), DIGEST_BYTES), np.uint8)
        if self.digests is not None and len(self.digests) < len(self.rows):
            more = np.zeros((len(self.rows) - len(self.digests), DIGEST_BYTES), np.uint8)
            self.digests = np.concatenate([self.digests, more])
        self.rows[self.count : end] = rows
        self._seqs[self.count : end] = rows["seq"]
        if digests is not None and self.digests is not None:
            self.digests[self.count : end] = digests
        self.count = end


class JobTable:
    """Rows by seq.

    Attributes:
        groups: Names of groups; a row has the number of one, from 1 on.
        live: Rows of jobs that are not gone.
    """

    def __init__(self) -> None:
        self.groups: list[str] = []
        self._group_ids: dict[str, int] = {}
        self._chunks: list[_Chunk] = []
        self._firsts: list[int] = []
        self.live = 0
        self._is_keyed = False
        self._leaving: list[int] = []
        """Jobs that are gone, and not marked so yet."""

    def group_id(self, name: str) -> int:
        found = self._group_ids.get(name)
        if found is None:
            self.groups.append(name)
            found = self._group_ids[name] = len(self.groups)
        return found

    def forget_groups(self) -> None:
        """Forget the names of groups that no job has which is there; the others get other numbers."""
        parts = [rows for rows, _ in self.pieces(0, SEQ_MAX)]
        numbers = np.zeros(len(self.groups) + 1, np.uint32)
        for rows in parts:
            numbers[rows["group"][rows["flags"] & GONE == 0]] = 1
        numbers[0] = 0
        kept = np.flatnonzero(numbers)
        numbers[kept] = np.arange(1, len(kept) + 1)
        for rows in parts:
            rows["group"] = numbers[rows["group"]]
        self.groups = [self.groups[number - 1] for number in kept.tolist()]
        self._group_ids = {name: number for number, name in enumerate(self.groups, 1)}

    def add(self, options: DecodedOptions) -> NDArray[np.void]:
        """Take in rows behind all others; returns the rows, with the table's numbers of groups."""
        rows, digests = options.rows, options.digests
        if options.groups:
            ids = np.array([0, *map(self.group_id, options.groups)], np.uint32)
            rows["group"] = ids[rows["group"]]
        self._append(rows, digests)
        return rows

    def _append(self, rows: NDArray[np.void], digests: NDArray[np.uint8] | None) -> None:
        last = self._chunks[-1] if self._chunks else None
        if last is None or last.count + len(rows) > CHUNK_ROWS:
            last = _Chunk()
            self._chunks.append(last)
            self._firsts.append(int(rows["seq"][0]))
        last.append(rows, digests)
        self.live += len(rows)
        self._is_keyed |= digests is not None

    def insert(self, options: Sequence[DecodedOptions]) -> None:
        """Take in rows that may lie before others, or be there already: those that are there stay.

        Args:
            options: Each behind the last one.
        """
        self.settle()
        before, chunks = JobTable(), self._chunks
        first_seq = self._firsts[0] if chunks else SEQ_MAX
        merged: list[DecodedOptions] = []
        for each in options:
            ids = np.array([0, *map(self.group_id, each.groups)], np.uint32)
            each.rows["group"] = ids[each.rows["group"]]
            if not len(each.rows):
                continue
            if int(each.rows["seq"][-1]) < first_seq:
                before._append(each.rows, each.digests)
            else:
                merged.append(each)
        if merged:
            chunks = self._merged(merged)
        self._chunks = before._chunks + chunks
        self._firsts = [int(chunk.seqs[0]) for chunk in self._chunks]
        self._is_keyed |= any(each.digests is not None for each in options)
        self.live = sum(chunk.count - chunk.gone for chunk in self._chunks)

    def _merged(self, options: Sequence[DecodedOptions]) -> list[_Chunk]:
        """The chunks with rows that lie among theirs."""
        known = [DecodedOptions(rows, (), digests) for rows, digests in self.pieces(0, SEQ_MAX)]
        every = [*known, *options]
        rows = np.concatenate([each.rows for each in every])
        digests = np.concatenate([_digests_of(each) for each in every])
        _, first = np.unique(rows["seq"], return_index=True)
        rows, digests = rows[first], digests[first]
        merged = JobTable()
        for lo in range(0, len(rows), CHUNK_ROWS):
            some = digests[lo : lo + CHUNK_ROWS]
            merged._append(rows[lo : lo + CHUNK_ROWS], some if some.any() else None)
        for chunk in merged._chunks:
            chunk.gone = int(np.count_nonzero(chunk.rows["flags"][: chunk.count] & GONE))
        return merged._chunks

    def pieces(
        self, first_seq: int, last_seq: int, *, are_marked: bool = True
    ) -> Iterator[tuple[NDArray[np.void], NDArray[np.uint8] | None]]:
        """The rows of seqs [first_seq, last_seq], as views that may be written, with their digests.

        Args:
            are_marked: What is gone is marked so; else the mark may be missing.
        """
        if are_marked:
            self.settle()
        at = max(bisect_right(self._firsts, first_seq) - 1, 0)
        for chunk in self._chunks[at:]:
            seqs = chunk.seqs
            lo, hi = int(seqs.searchsorted(first_seq)), int(seqs.searchsorted(last_seq, "right"))
            if lo < hi:
                digests = chunk.digests
                yield chunk.rows[lo:hi], None if digests is None else digests[lo:hi]
            elif int(seqs[0]) > last_seq:
                return

    def row(self, seq: int) -> JobRow | None:
        """The options of a job; None where it has none."""
        at = bisect_right(self._firsts, seq) - 1
        if at < 0:
            return None
        chunk = self._chunks[at]
        row = chunk.find(seq)
        return None if row < 0 else JobRow._make(chunk.rows.item(row))

    def rows(self, seqs: Sequence[int]) -> list[JobRow | None]:
        """The options of some jobs, in any order; None for each that has none."""
        at = bisect_right(self._firsts, min(seqs)) - 1
        if at < 0 or at != bisect_right(self._firsts, max(seqs)) - 1:
            return list(map(self.row, seqs))
        chunk = self._chunks[at]
        places = np.minimum(chunk.seqs.searchsorted(np.array(seqs)), chunk.count - 1)
        found = map(JobRow._make, chunk.rows[places].tolist())
        return [row if row.seq == seq else None for seq, row in zip(seqs, found, strict=True)]

    def clear(self, seq: int, flags: int) -> int:
        """Clear flags of a job; returns its flags before, 0 where it has no options."""
        at = bisect_right(self._firsts, seq) - 1
        chunk = self._chunks[at] if at >= 0 else None
        row = -1 if chunk is None else chunk.find(seq)
        if chunk is None or row < 0:
            return 0
        before = chunk.flags[row]
        chunk.flags[row] = before & ~flags
        return before

    def clear_all(self, seqs: NDArray[np.int64], flags: int) -> NDArray[np.bool_]:
        """The same of many jobs, ascending, shape (n,): whether each had any of these flags."""
        had = np.zeros(len(seqs), np.bool_)
        for chunk, rows, at in self._found(seqs):
            column = chunk.rows["flags"]
            had[at] = column[rows] & flags > 0
            column[rows] &= np.uint8(~flags & 0xFF)
        return had

    def priorities(self, seqs: NDArray[np.int64]) -> NDArray[np.int8]:
        """Of jobs, ascending, shape (n,): 0 where one has no options."""
        found = np.zeros(len(seqs), np.int8)
        for chunk, rows, at in self._found(seqs):
            found[at] = chunk.rows["priority"][rows]
        return found

    def _found(
        self, seqs: NDArray[np.int64]
    ) -> Iterator[tuple[_Chunk, NDArray[np.int64], NDArray[np.int64]]]:
        """(chunk, rows, places) of those of some seqs, ascending, that have options: their places among `seqs`."""
        first = max(bisect_right(self._firsts, int(seqs[0])) - 1, 0) if len(seqs) else 0
        for chunk in self._chunks[first:] if len(seqs) else ():
            own = chunk.seqs
            lo, hi = seqs.searchsorted(own[0]), seqs.searchsorted(own[-1], "right")
            some = seqs[lo:hi]
            rows = own.searchsorted(some)
            hit = np.flatnonzero(own[rows] == some)
            yield chunk, rows[hit], hit + lo
            if hi == len(seqs):
                break

    def digest(self, seq: int) -> bytes:
        """Of the job's unique key; empty where it has none."""
        for _, digests in self.pieces(seq, seq):
            if digests is not None and digests.any():
                return digests.tobytes()
        return b""

    def remove(self, spans: NDArray[np.int64]) -> Removed:
        """Mark jobs as gone.

        Args:
            spans: Of their seqs, both ends inclusive, ascending, shape (k, 2), k at least 1.
        """
        first_seq, last_seq = int(spans[0, 0]), int(spans[-1, 1])
        at = max(bisect_right(self._firsts, first_seq) - 1, 0)
        delayed, keys, is_empty = 0, [], False
        for chunk in self._chunks[at:]:
            if chunk.seqs[0] > last_seq:
                break
            rows = chunk.rows_in(spans)
            if len(rows):
                rows = rows[chunk.rows["flags"][rows] & GONE == 0]
            if not len(rows):
                continue
            delayed += int(np.count_nonzero(chunk.rows["flags"][rows] & DELAYED))
            keys += chunk.keys_of(rows)
            chunk.rows["flags"][rows] = GONE
            chunk.gone += len(rows)
            self.live -= len(rows)
            is_empty |= chunk.gone == chunk.count
        if is_empty:
            self._drop_empty()
        return Removed(delayed, keys)

    def remove_few(self, seqs: Sequence[int], *, were_delivered: bool = False) -> Removed:
        """The same of a few, in any order.

        Args:
            were_delivered: Each was, or was released; so none is known as delayed.
        """
        if were_delivered and not self._is_keyed:
            self._leaving += seqs
            if len(self._leaving) >= _LEAVING_MAX:
                self.settle()
            return _NOTHING
        firsts, delayed, keys, is_empty = self._firsts, 0, [], False
        for seq in seqs:
            at = bisect_right(firsts, seq) - 1
            chunk = self._chunks[at] if at >= 0 else None
            row = -1 if chunk is None else chunk.find(seq)
            if chunk is None or row < 0 or (flags := chunk.flags[row]) & GONE:
                continue
            delayed += flags & DELAYED
            if chunk.digests is not None:
                keys += chunk.keys_of([row])
            chunk.flags[row] = GONE
            chunk.gone += 1
            is_empty |= chunk.gone == chunk.count
            self.live -= 1
        if is_empty:
            self._drop_empty()
        return Removed(delayed, keys)

    def settle(self) -> None:
        """Mark the jobs that are gone and not marked so yet; what reads marks calls it before."""
        if not self._leaving:
            return
        seqs = np.array(sorted(self._leaving))
        self._leaving = []
        is_empty = False
        for chunk, rows, _ in self._found(seqs):
            column = chunk.rows["flags"]
            rows = rows[column[rows] & GONE == 0]
            column[rows] = GONE
            chunk.gone += len(rows)
            self.live -= len(rows)
            is_empty |= chunk.gone == chunk.count
        if is_empty:
            self._drop_empty()

    def _drop_empty(self) -> None:
        kept = [c for c in self._chunks if c.gone < c.count]
        self._chunks, self._firsts = kept, [int(c.seqs[0]) for c in kept]


def _digests_of(options: DecodedOptions) -> NDArray[np.uint8]:
    if options.digests is None:
        return np.zeros((len(options.rows), DIGEST_BYTES), np.uint8)
    return options.digests
