"""The runs of a topic: which run holds a seq, and which rows a range of seqs covers.

A topic's records lie in runs, hot or sealed, side by side.  This list finds the runs and rows that seqs
mean, and deletes rows by their seqs; it knows neither floors nor counters.

Invariants: runs ascend and do not overlap; `starts` are their first seqs.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from struct import Struct, pack
from typing import Any, Final, overload

import numpy as np
from numpy.typing import NDArray

from topics.protocol.model.events import Marks
from topics.protocol.model.ports import Extent, Run, Span
from topics.protocol.model.records import COLUMN_DTYPES

WINDOW_FIRST: Final = 256
WINDOW_MAX: Final = 65_536
"""Rows that a walk looks at in one go, from the first to the last: most walks end early."""
SEALED_ROW_BYTES: Final = sum(np.dtype(dtype).itemsize for dtype in COLUMN_DTYPES.values()) + 1
"""Columns and flag of a row in a segment, whatever its text."""
_SPAN: Final = Struct("<QQ")
_SPANS_FEW: Final = 16
"""Spans up to which a loop costs less than columns."""
SEQS_FEW: Final = 64
"""Seqs up to which it does."""
_ROWS_FEW: Final = 1024
"""Rows of a run up to which an array of row numbers costs less than a mask of the run."""


class RunList(Sequence[Run]):
    """Runs, ascending.

    Attributes:
        starts: Their first seqs.
        disk_bytes: What the sealed ones take in segment files: text, columns and flags, of deleted
            rows too as long as they are there; without the tables of distinct tags and nodes.
        segments: How many segment files they are in.
    """

    def __init__(self) -> None:
        self._runs: list[Run] = []
        self.starts: list[int] = []
        self.disk_bytes = 0
        self._segments: int | None = 0
        self._found: tuple[Sequence[int], list[tuple[Run, list[int]]]] = (), []

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    @overload
    def __getitem__(self, at: int) -> Run: ...

    @overload
    def __getitem__(self, at: slice) -> list[Run]: ...

    def __getitem__(self, at: int | slice) -> Run | list[Run]:
        return self._runs[at]

    def last(self) -> Run | None:
        """The run with the highest seqs."""
        runs = self._runs
        return runs[-1] if runs else None

    @property
    def segments(self) -> int:
        # Counted when it is asked for, once after each change of sealed runs: the change itself
        # looks at all runs, too.
        if self._segments is None:
            self._segments = len({run.ref.segment for run in self._runs if run.ref is not None})
        return self._segments

    def append(self, run: Run) -> None:
        assert not self._runs or self.starts[-1] + self._runs[-1].count <= run.first_seq
        self._runs.append(run)
        self.starts.append(run.first_seq)
        if run.ref is not None:
            self.disk_bytes += _disk_bytes(run)
            self._segments = None

    def replace(self, first_seq: int, last_seq: int, runs: Sequence[Run]) -> list[Run]:
        """Put `runs` where the runs within [first_seq, last_seq] stand; returns those."""
        lo = bisect_right(self.starts, first_seq - 1)
        hi = bisect_right(self.starts, last_seq)
        old = self._runs[lo:hi]
        self._found = (), []
        self._runs[lo:hi] = runs
        self.starts[lo:hi] = [run.first_seq for run in runs]
        self.disk_bytes += sum(map(_disk_bytes, runs)) - sum(map(_disk_bytes, old))
        self._segments = None
        return old

    def at(self, first_seq: int) -> Run | None:
        """The run that begins with a seq."""
        i = bisect_left(self.starts, first_seq)
        return self._runs[i] if i < len(self._runs) and self.starts[i] == first_seq else None

    def reaching(self, seq: int) -> Iterator[tuple[Run, int]]:
        """(run, first row) of every run that reaches beyond `seq - 1`, ascending."""
        runs = self._runs
        for i in range(max(bisect_right(self.starts, seq) - 1, 0), len(runs)):
            run = runs[i]
            row = seq - run.first_seq if seq > run.first_seq else 0
            if row < run.count:
                yield run, row

    def windows(self, seq: int) -> Iterator[tuple[Run, int, int]]:
        """(run, lo, hi) over all rows from `seq` on, in growing windows; short first, because
        most walks end early."""
        size = WINDOW_FIRST
        for run, row in self.reaching(seq):
            count = run.count
            while row < count:
                yield run, row, min(row + size, count)
                row += size
                size = min(size * 2, WINDOW_MAX)

    def rows_of(self, spans: NDArray[np.uint64]) -> Iterator[tuple[Run, NDArray[np.int64]]]:
        """(run, rows) that seq spans of shape (k, 2), both ends inclusive, cover."""
        if len(spans) <= _SPANS_FEW:
            for run, lo, hi in self._pieces(spans.tolist()):
                yield run, np.arange(lo, hi)
            return
        for run, starts, ends in self._parts(spans):
            yield run, rows_of(starts, ends)

    def _parts(
        self, spans: NDArray[np.uint64]
    ) -> Iterator[tuple[Run, NDArray[np.int64], NDArray[np.int64]]]:
        """(run, starts, ends) of the rows that many spans cover, half-open, run by run: a copy of all
        spans of a large delete would be millions."""
        n, at = len(spans), 0
        for run, _ in self.reaching(int(spans[0, 0])):
            run_last = run.first_seq + run.count - 1
            at = lo = bisect_left(range(n), run.first_seq, at, key=lambda i: int(spans[i, 1]))
            if lo == n:
                break
            hi = bisect_right(range(n), run_last, lo, key=lambda i: int(spans[i, 0]))
            if lo == hi:
                continue
            part = spans[lo:hi].astype(np.int64) - run.first_seq
            yield run, np.maximum(part[:, 0], 0), np.minimum(part[:, 1] + 1, run.count)

    def delete(self, spans: NDArray[np.uint64], seqs: Sequence[int] | None = None) -> Iterator[Run]:
        """Delete the rows that seq spans of shape (k, 2), both ends inclusive, cover; gives each run
        that they reach.

        Args:
            seqs: The same seqs one by one, where they are few (`seqs_in`).
        """
        if len(spans) == 1:
            for run, lo, hi in self._pieces(spans.tolist()):
                _delete_span(run, lo, hi)
                yield run
            return
        if seqs is not None:
            for run, rows in self.rows_by_run(seqs) if seqs else ():
                run.delete(np.array(rows, np.int64))
                yield run
            return
        if len(spans) <= _SPANS_FEW:
            for run, pieces in groupby(self._pieces(spans.tolist()), itemgetter(0)):
                for _, lo, hi in pieces:
                    _delete_span(run, lo, hi)
                yield run
            return
        for run, starts, ends in self._parts(spans):
            if int((ends - starts).sum()) <= _ROWS_FEW:
                run.delete(rows_of(starts, ends))
            else:
                edges = np.zeros(run.count + 1, np.int8)
                edges[starts] += 1
                edges[ends] -= 1
                run.delete_marked(np.cumsum(edges[:-1], dtype=np.int8).view(np.bool_))
            yield run

    def delete_marked(self, marks: Sequence[Marks]) -> Iterator[Run]:
        """Delete the rows whose seqs are marked; gives each run that the marks reach."""
        for each in marks:
            for run, lo in self.reaching(each.first_seq):
                at = run.first_seq + lo - each.first_seq
                rows = min(run.count - lo, each.count - at)
                if rows <= 0:
                    break
                marked = each.flags(at, at + rows)
                if rows < run.count:  # at a replay, runs may end elsewhere than they did
                    marked = np.pad(marked, (lo, run.count - lo - rows))
                run.delete_marked(marked)
                yield run

    def _pieces(self, spans: Sequence[Sequence[int]]) -> Iterator[tuple[Run, int, int]]:
        """(run, lo, hi) of every part of a run that seq spans, both ends inclusive, cover; as
        `rows_of`, for a few of them."""
        runs, starts = self._runs, self.starts
        for first, last in spans:
            at = max(bisect_right(starts, first) - 1, 0)
            while at < len(runs) and starts[at] <= last:
                run, run_first = runs[at], starts[at]
                lo, hi = max(first - run_first, 0), min(last + 1 - run_first, run.count)
                if lo < hi:
                    yield run, lo, hi
                at += 1

    def rows_by_run(self, seqs: Sequence[int]) -> list[tuple[Run, list[int]]]:
        """(run, rows) of seqs in any order, at least one, as they come: where one descends, or is in another run than
        the one before it, another pair begins.  Seqs that no run has are left out.  A loop: for a few.

        What was found last is kept, because a claim and an ack ask for the same seqs twice each.
        """
        known, found = self._found
        if known != seqs:
            found = self._find(seqs)
            if len(found) == 1 and len(found[0][1]) == len(seqs):
                self._found = list(seqs), found
        return found

    def _find(self, seqs: Sequence[int]) -> list[tuple[Run, list[int]]]:
        starts, at = self.starts, bisect_right(self.starts, seqs[0]) - 1
        if at >= 0 and seqs[-1] < starts[at] + self._runs[at].count and seqs == sorted(seqs):
            first = starts[at]
            return [(self._runs[at], [seq - first for seq in seqs])]
        found: list[tuple[Run, list[int]]] = []
        rows: list[int] = []
        first = end = last = 0
        for seq in seqs:
            if not last < seq < end:
                at = bisect_right(starts, seq) - 1
                if at < 0 or seq >= starts[at] + self._runs[at].count:
                    continue  # no run has it
                run, rows = self._runs[at], []
                first, end = starts[at], starts[at] + run.count
                found.append((run, rows))
            last = seq
            rows.append(seq - first)
        return found

    def extents_in_order(self, seqs: Sequence[int]) -> list[Extent]:
        """The rows of seqs in any order, as they come.  A loop: for a few, or where they descend."""
        return [Extent(run, _few_spans(rows)) for run, rows in self.rows_by_run(seqs)]

    def extents_of(self, seqs: Sequence[int]) -> list[Extent]:
        """The rows of some seqs, ascending, run by run."""
        first_seq, last_seq = seqs[0], seqs[-1]
        if last_seq - first_seq == len(seqs) - 1:
            run = self._runs[max(bisect_right(self.starts, first_seq) - 1, 0)]
            row = first_seq - run.first_seq
            if row >= 0 and row + len(seqs) <= run.count:
                return [Extent(run, [(row, row + len(seqs))])]
        if len(seqs) <= SEQS_FEW:
            return self.extents_in_order(seqs)
        return self.extents(seq_spans(np.array(seqs, np.uint64)))

    def extents(self, spans: NDArray[np.uint64]) -> list[Extent]:
        """The rows that seq spans of shape (k, 2), both ends inclusive, cover, run by run."""
        if len(spans) <= _SPANS_FEW:
            return [Extent(run, [(lo, hi)]) for run, lo, hi in self._pieces(spans.tolist())]
        return [Extent(run, spans_of(rows)) for run, rows in self.rows_of(spans)]


def _disk_bytes(run: Run) -> int:
    ref = run.ref
    return 0 if ref is None else ref.text_bytes + ref.count * SEALED_ROW_BYTES


def _delete_span(run: Run, lo: int, hi: int) -> None:
    if hi - lo <= _ROWS_FEW:
        run.delete_span(lo, hi)
        return
    marked = np.zeros(run.count, np.bool_)
    marked[lo:hi] = True
    run.delete_marked(marked)


def seqs_in(spans: NDArray[np.uint64]) -> list[int] | None:
    """The seqs in spans of shape (k, 2), both ends inclusive, ascending; None where they are many."""
    if len(spans) > SEQS_FEW:
        return None
    seqs: list[int] = []
    for first, last in spans.tolist():
        if first == last:
            seqs.append(first)
        elif last - first < SEQS_FEW:
            seqs += range(first, last + 1)
        else:
            return None
    return seqs if len(seqs) <= SEQS_FEW else None


def picked(column: NDArray[Any], rows: Sequence[int]) -> Sequence[int]:
    """The ints of a few rows of a column; a column's own methods take several times as long."""
    if len(rows) == 1:
        return (column.item(rows[0]),)
    found: tuple[int, ...] = itemgetter(*rows)(column.data)
    return found


def rows_of(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """All rows of the half-open spans, ascending."""
    sizes = ends - starts
    total = int(sizes.sum())
    steps = np.ones(total, np.int64)
    at = np.cumsum(sizes[:-1])
    steps[0] = starts[0]
    steps[at] = starts[1:] - ends[:-1] + 1
    return np.cumsum(steps)


def rows_in(spans: Sequence[Span]) -> NDArray[np.int64]:
    """All rows of a few half-open spans, ascending."""
    return np.concatenate([np.arange(lo, hi, dtype=np.int64) for lo, hi in spans])


def spans_of(rows: NDArray[np.int64]) -> list[Span]:
    """Half-open spans of adjacent rows."""
    if not len(rows):
        return []
    cuts = np.flatnonzero(np.diff(rows) != 1)
    starts = rows[np.concatenate(([0], cuts + 1))].tolist()
    ends = rows[np.concatenate((cuts, [len(rows) - 1]))].tolist()
    return [(a, b + 1) for a, b in zip(starts, ends, strict=True)]


def packed_spans(seqs: Sequence[int]) -> bytes:
    """Spans of adjacent seqs of an ascending sequence, as `RecordsDeleted` has them."""
    if seqs[-1] - seqs[0] == len(seqs) - 1:
        return _SPAN.pack(seqs[0], seqs[-1])
    if len(seqs) <= SEQS_FEW:
        ends: list[int] = []
        after = -1
        for seq in seqs:
            if seq == after:
                ends[-1] = seq
            else:
                ends += (seq, seq)
            after = seq + 1
        return pack(f"<{len(ends)}Q", *ends)
    return seq_spans(np.array(seqs, np.uint64)).astype("<u8", copy=False).tobytes()


def _few_spans(numbers: Sequence[int]) -> list[Span]:
    """Half-open spans of adjacent numbers of an ascending sequence."""
    spans: list[Span] = []
    first = end = numbers[0]
    for number in numbers:
        if number != end:
            spans.append((first, end))
            first = number
        end = number + 1
    spans.append((first, end))
    return spans


def seq_spans(seqs: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spans of adjacent seqs, both ends inclusive, shape (k, 2)."""
    if not len(seqs):
        return np.empty((0, 2), np.uint64)
    if int(seqs[-1]) - int(seqs[0]) == len(seqs) - 1:
        return seqs[[0, -1]][None, :]
    cuts = np.flatnonzero(np.diff(seqs) != 1)
    starts = seqs[np.concatenate(([0], cuts + 1))]
    ends = seqs[np.concatenate((cuts, [len(seqs) - 1]))]
    return np.stack((starts, ends), axis=1)
