"""The runs of a topic: finding them by seq, covering ranges of seqs, deleting by seqs (§3, §5)."""

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from topics.protocol.model.events import Marks, RunRef
from topics.protocol.state.hot_run import HotRun
from topics.protocol.state.run_list import (
    WINDOW_FIRST,
    WINDOW_MAX,
    RunList,
    packed_spans,
    rows_of,
    seq_spans,
    spans_of,
)

from .runs import live_seqs, run_of

SHAPES = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 40)), min_size=1, max_size=6)
"""Of each run: how many seqs are missing before it, and its rows."""


def listed(shape: Iterable[tuple[int, int]]) -> RunList:
    runs, seq = RunList(), 1
    for missing, count in shape:
        runs.append(run_of(seq + missing, count))
        seq += missing + count
    return runs


def seqs_in(runs: RunList) -> list[int]:
    return [run.first_seq + row for run in runs for row in range(run.count)]


def alive(runs: RunList) -> list[int]:
    found: list[int] = []
    for run in runs:
        assert isinstance(run, HotRun)
        found += live_seqs(run)
    return found


def spans_around(seqs: Iterable[int]) -> NDArray[np.uint64]:
    return seq_spans(np.array(sorted(seqs), np.uint64))


@given(SHAPES, st.integers(0, 260))
def test_a_seq_leads_to_the_runs_from_it_on(shape: list[tuple[int, int]], seq: int) -> None:
    """Every row from a seq on is in one window, none twice; where none is, no run comes. (§3.1)"""
    runs = listed(shape)
    expected = [each for each in seqs_in(runs) if each >= seq]

    reached = [
        run.first_seq + row for run, lo in runs.reaching(seq) for row in range(lo, run.count)
    ]
    walked = [run.first_seq + row for run, lo, hi in runs.windows(seq) for row in range(lo, hi)]

    assert reached == walked == expected
    starts = [run.first_seq for run in runs]
    found = runs.at(seq)
    assert (found is not None and found.first_seq == seq) == (seq in starts)
    assert runs.starts == starts


def test_windows_grow() -> None:
    """The first is short, as most walks end in it; none is longer than the greatest. (§3.1)"""
    runs = RunList()
    runs.append(run_of(1, 3 * WINDOW_MAX))

    sizes = [hi - lo for _, lo, hi in runs.windows(1)]

    assert sizes[0] == WINDOW_FIRST
    assert all(b in (2 * a, WINDOW_MAX) for a, b in pairwise(sizes[:-1]))
    assert max(sizes) == WINDOW_MAX


@given(SHAPES, st.sets(st.integers(1, 260), min_size=1))
def test_spans_cover_the_rows_that_are_there(shape: list[tuple[int, int]], seqs: set[int]) -> None:
    """Few spans and many lead to the same rows, as row numbers and as extents. (§5)"""
    runs = listed(shape)
    expected = sorted(seqs & set(seqs_in(runs)))
    spans = spans_around(seqs)

    by_rows = [int(run.first_seq + row) for run, rows in runs.rows_of(spans) for row in rows]
    by_extents = [
        run.first_seq + row
        for run, pieces in runs.extents(spans)
        for lo, hi in pieces
        for row in range(lo, hi)
    ]

    assert by_rows == by_extents == expected


@given(SHAPES, st.data())
def test_seqs_that_follow_each_other_are_found_as_others_are(
    shape: list[tuple[int, int]], draw: st.DataObject
) -> None:
    """A few neighbours in one run, neighbours in two and scattered ones: the same rows, and the same
    spans in an event, as by columns. (§10.2, §10.4)"""
    runs = listed(shape)
    there = seqs_in(runs)
    first = draw.draw(st.integers(0, len(there) - 1))
    last = draw.draw(st.integers(first, min(first + 12, len(there) - 1)))
    left_out = draw.draw(st.sets(st.integers(first, last - 1)) if last > first else st.just(set()))
    seqs = [there[i] for i in range(first, last + 1) if i not in left_out]

    found = [
        run.first_seq + row
        for run, spans in runs.extents_of(seqs)
        for lo, hi in spans
        for row in range(lo, hi)
    ]

    assert found == seqs
    assert packed_spans(seqs) == spans_around(seqs).astype("<u8").tobytes()


@pytest.mark.parametrize("count", [3, 64, 65])
def test_a_few_scattered_seqs_are_found_as_many_are(count: int) -> None:
    """On either side of the number from which columns cost less: the spans of a run are together. (§10.4)"""
    runs = listed([(0, 50), (10, 150)])
    seqs = [1, 2, *range(5, 50, 2), *range(61, 180, 2)][:count]

    extents = runs.extents_of(seqs)

    assert [run.first_seq for run, _ in extents] == [1, 61][: len(extents)]
    rows = [(run, row) for run, spans in extents for lo, hi in spans for row in range(lo, hi)]
    assert [run.first_seq + row for run, row in rows] == seqs
    assert packed_spans(seqs) == spans_around(seqs).astype("<u8").tobytes()


def test_seqs_are_found_in_the_order_in_which_they_come() -> None:
    """An extent ends where they descend or the run does; a seq that no run has is left out. (§10.2)"""
    runs = listed([(2, 10), (5, 10)])

    found = runs.extents_in_order([1, 5, 6, 9, 4, 14, 18, 12, 40])

    assert [(run.first_seq, spans) for run, spans in found] == [
        (3, [(2, 4), (6, 7)]),
        (3, [(1, 2)]),
        (18, [(0, 1)]),
        (3, [(9, 10)]),
    ]


def test_a_delete_of_seqs_that_no_run_has_reaches_none() -> None:
    """A span before a run, one between two, one behind all. (§5)"""
    runs = listed([(2, 10), (5, 10)])

    assert [*runs.delete(np.array([[1, 2], [13, 17], [28, 40]], np.uint64))] == []
    assert alive(runs) == seqs_in(runs)


@given(SHAPES, st.sets(st.integers(1, 260), min_size=1), st.booleans())
def test_seqs_are_deleted_by_spans_and_by_marks(
    shape: list[tuple[int, int]], seqs: set[int], by_marks: bool
) -> None:
    """The rows of these seqs and no other; each run that is reached is named. (§5)"""
    runs = listed(shape)
    there = seqs_in(runs)

    if by_marks:
        first, last = min(seqs), max(seqs)
        bits = np.packbits(np.isin(np.arange(first, last + 1), list(seqs))).tobytes()
        hit = list(runs.delete_marked([Marks(first, last + 1 - first, bits)]))
    else:
        hit = list(runs.delete(spans_around(seqs)))

    assert alive(runs) == [seq for seq in there if seq not in seqs]
    changed = [run for run in runs if any(run.flags)]
    assert all(any(run is other for other in hit) for run in changed)


@pytest.mark.parametrize("spans", [1, 3, 17])
@pytest.mark.parametrize("size", [1024, 1025])
def test_a_large_delete_is_a_mask_of_the_run(spans: int, size: int) -> None:
    """On either side of the size at which row numbers cost more than a mask, the same rows go. (§5)"""
    runs = RunList()
    runs.append(run_of(1, 3000))
    seqs = [*range(2, 2 + size - spans + 1), *range(2000, 2000 + 2 * (spans - 1), 2)]
    assert (len(seqs), len(spans_around(seqs))) == (size, spans)

    assert len(list(runs.delete(spans_around(seqs)))) == 1
    assert set(range(1, 3001)) - set(alive(runs)) == set(seqs)


def test_runs_are_replaced_by_their_range() -> None:
    """Runs that begin within the range go, runs beside it stay, and the list stays in order. (§3)"""
    runs = listed([(0, 10), (0, 10), (0, 10), (0, 10)])
    new = run_of(11, 20)

    old = runs.replace(11, 30, [new])

    assert [run.first_seq for run in old] == [11, 21]
    assert [run.first_seq for run in runs] == runs.starts == [1, 11, 31]
    assert (runs.at(11), runs.at(21), runs[-1].count) == (new, None, 10)
    runs.replace(31, 40, [])
    assert [run.first_seq for run in runs] == runs.starts == [1, 11]


def test_runs_do_not_overlap() -> None:
    """A run that would begin within the last one is a fault of ours. (§3)"""
    runs = listed([(0, 10)])

    with pytest.raises(AssertionError):
        runs.append(run_of(10, 5))
    runs.append(run_of(11, 5))

    assert len(runs) == 2


@given(st.sets(st.integers(0, 300)))
def test_spans_and_rows_are_each_others_inverse(rows: set[int]) -> None:
    """Half-open spans of adjacent rows; as few as there are gaps, and one more."""
    ordered = np.array(sorted(rows), np.int64)
    spans = spans_of(ordered)

    assert len(spans) == sum(row - 1 not in rows for row in rows)
    assert all(lo < hi for lo, hi in spans)
    if spans:
        starts, ends = np.array(spans, np.int64).T
        assert rows_of(starts, ends).tolist() == ordered.tolist()
    inclusive = [(first, last + 1) for first, last in seq_spans(ordered.astype(np.uint64)).tolist()]
    assert inclusive == spans


class Sealed:
    """What the list asks of a sealed run."""

    def __init__(self, first_seq: int, count: int, text_bytes: int, segment: int = 1) -> None:
        self.first_seq, self.count, self.text_bytes = first_seq, count, text_bytes
        self.ref = RunRef(segment, 0, first_seq, count, text_bytes)


def test_the_space_of_sealed_runs_is_counted() -> None:
    """Their text, and 43 bytes a row of columns and flag; runs in memory take none. (§1.2)"""
    runs = listed([(0, 10), (0, 10)])
    assert runs.disk_bytes == 0

    runs.replace(1, 10, [Sealed(1, 10, 500)])  # type: ignore[list-item]
    assert runs.disk_bytes == 500 + 10 * 43
    runs.append(Sealed(21, 5, 100))  # type: ignore[arg-type]
    runs.replace(1, 20, [Sealed(1, 20, 700)])  # type: ignore[list-item]
    assert runs.disk_bytes == 700 + 100 + 25 * 43
    runs.replace(1, 30, [])
    assert runs.disk_bytes == 0


def test_the_segments_of_sealed_runs_are_counted() -> None:
    """Each file once, however many runs of the topic it holds; runs in memory have none. (§1.2)"""
    runs = listed([(0, 10), (0, 10)])
    assert runs.segments == 0

    runs.replace(1, 20, [Sealed(1, 10, 500, 7), Sealed(11, 10, 500, 7)])  # type: ignore[list-item]
    assert runs.segments == 1
    runs.append(Sealed(21, 5, 100, 9))  # type: ignore[arg-type]
    assert runs.segments == 2
    runs.append(run_of(26, 5))
    assert runs.segments == 2
    runs.replace(1, 20, [])
    assert runs.segments == 1


def test_the_last_run_is_the_one_with_the_highest_seqs() -> None:
    """An append goes on in it."""
    runs = listed([(0, 3), (2, 4)])
    assert runs.last() is runs[1]
    assert RunList().last() is None
