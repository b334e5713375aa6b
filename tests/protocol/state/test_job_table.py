"""Options of jobs in memory, by seq (130-133)."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest

from topics.protocol.model.job_options import (
    JobRequest,
    Unique,
    decoded_options,
    resolved_options,
)
from topics.protocol.state import job_table
from topics.protocol.state.job_table import (
    DELAYED,
    GONE,
    SEQ_MAX,
    TAGGED,
    JobTable,
    Removed,
)


def options(first_seq: int, *requests: JobRequest | None) -> Any:
    found = resolved_options(requests, 1000)
    assert found is not None
    return decoded_options(found, first_seq)


def urgent(priority: int, **more: Any) -> JobRequest:
    return JobRequest(priority=priority, **more)


def digest(letter: bytes) -> Unique:
    return Unique(letter * 16)


def seqs(table: JobTable) -> list[int]:
    return [
        seq
        for rows, _ in table.pieces(0, SEQ_MAX)
        for seq in rows["seq"][rows["flags"] & GONE == 0].tolist()
    ]


Removal: TypeAlias = Callable[[JobTable, list[tuple[int, int]]], Removed]


def by_spans(table: JobTable, spans: list[tuple[int, int]]) -> Removed:
    return table.remove(np.array(spans, np.int64))


def one_by_one(table: JobTable, spans: list[tuple[int, int]]) -> Removed:
    return table.remove_few([seq for lo, hi in spans for seq in range(lo, hi + 1)])


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_table, "CHUNK_ROWS", 4)


def test_rows_are_found_by_seq_over_all_chunks() -> None:
    """A job without options has none."""
    table = JobTable()
    for first in range(1, 31, 3):
        table.add(options(first, urgent(first), None, urgent(-1)))
    for first in range(1, 31, 3):
        row = table.row(first)
        assert row is not None
        assert (row.seq, row.priority) == (first, first)
        assert table.row(first + 1) is None
    assert (table.row(0), table.row(31), table.live) == (None, None, 20)
    assert JobTable().row(1) is None


@pytest.mark.parametrize("seqs", [[1, 2, 3], [3, 1], [4, 5, 6], [6, 1, 40, 5, 0]])
def test_rows_of_many_are_those_of_each(seqs: list[int]) -> None:
    """In any order, of one chunk or of several, also of jobs without options and beyond the last."""
    table = JobTable()
    for first in range(1, 31, 3):
        table.add(options(first, urgent(first), None, urgent(-1)))
    assert table.rows(seqs) == [table.row(seq) for seq in seqs]
    assert JobTable().rows(seqs) == [None] * len(seqs)


def test_flags_are_cleared() -> None:
    """The flags that a job had are returned; a job without options has none."""
    table = JobTable()
    table.add(options(1, urgent(1), None, urgent(3)))
    for rows, _ in table.pieces(3, 3):
        rows["flags"] = DELAYED | TAGGED
    assert [table.clear(seq, DELAYED) for seq in (0, 1, 2, 3, 3, 4)] == [0, 0, 0, 9, 8, 0]


@pytest.mark.parametrize("seqs", [[], [0], [3, 4, 5, 20], [*range(40)]])
def test_what_is_asked_of_many_is_what_each_says(seqs: list[int]) -> None:
    """Flags and priorities, of one chunk or of several, also of jobs without options and beyond the last."""
    table, other = JobTable(), JobTable()
    for first in range(1, 31, 3):
        for each in (table, other):
            each.add(options(first, urgent(first), None, urgent(-1)))
    for each in (table, other):
        for rows, _ in each.pieces(0, 12):
            rows["flags"] = DELAYED | TAGGED
    wanted = [bool(other.clear(seq, DELAYED) & DELAYED) for seq in seqs]
    assert table.clear_all(np.array(seqs, np.int64), DELAYED).tolist() == wanted
    every = [rows["flags"].tolist() for rows, _ in table.pieces(0, SEQ_MAX)]
    assert every == [rows["flags"].tolist() for rows, _ in other.pieces(0, SEQ_MAX)]
    found = [table.row(seq) for seq in seqs]
    priorities = [0 if row is None else row.priority for row in found]
    assert table.priorities(np.array(seqs, np.int64)).tolist() == priorities


def test_marks_of_jobs_that_were_delivered_come_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many at once, and before marks are read. (§10.4)"""
    monkeypatch.setattr(job_table, "_LEAVING_MAX", 6)
    table = JobTable()
    for first in range(1, 31, 3):
        table.add(options(first, urgent(first), None, urgent(-1)))
    seen = []
    for some in ((1, 2, 9), (4, 30), (12, 28), (3, 6), (7,), (10, 13)):
        assert table.remove_few(some, were_delivered=True) == Removed(0, [])
        seen.append(table.live)
    assert seen == [20, 20, 14, 14, 14, 14]
    table.insert([])
    assert table.live == 9
    assert seqs(table) == [15, 16, 18, 19, 21, 22, 24, 25, 27]


def test_a_job_with_a_key_is_marked_at_once() -> None:
    """Its key is free. (130)"""
    table = JobTable()
    table.add(options(1, JobRequest(unique=digest(b"k")), urgent(1)))
    assert table.remove_few([1, 2], were_delivered=True) == Removed(0, [(b"k" * 16, 1)])
    assert table.live == 0


def test_keys_are_kept_where_a_chunk_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each job its own, and of those without none. (130)"""
    monkeypatch.setattr(job_table, "_FIRST_ROWS", 1)
    table = JobTable()
    for seq in range(1, 5):
        unique = None if seq == 3 else digest(b"%d" % seq)
        table.add(options(seq, urgent(1, unique=unique)))
    assert [table.digest(seq) for seq in range(1, 5)] == [b"1" * 16, b"2" * 16, b"", b"4" * 16]


def test_rows_between_two_seqs() -> None:
    """None where there are none: before all, between two chunks, behind all."""
    table = JobTable()
    for first in (10, 12, 30, 32):
        table.add(options(first, urgent(1), urgent(2)))
    assert [len(rows) for rows, _ in table.pieces(1, 9)] == []
    assert [len(rows) for rows, _ in table.pieces(14, 29)] == []
    assert [len(rows) for rows, _ in table.pieces(13, 30)] == [1, 1]
    assert [len(rows) for rows, _ in table.pieces(40, 50)] == []


def test_a_group_has_one_number_in_all_appends() -> None:
    table = JobTable()
    table.add(options(1, JobRequest(group="b"), JobRequest(group="a")))
    rows = table.add(options(3, JobRequest(group="a"), urgent(1)))
    assert table.groups == ["b", "a"]
    assert rows["group"].tolist() == [2, 0]


def test_the_key_of_a_job_is_there_where_it_has_one() -> None:
    table = JobTable()
    table.add(options(1, urgent(1)))
    assert table.digest(1) == b""
    table.add(options(2, JobRequest(unique=digest(b"k")), urgent(1)))
    table.add(options(4, urgent(1)))
    assert [table.digest(seq) for seq in range(1, 6)] == [b"", b"k" * 16, b"", b"", b""]


@pytest.mark.parametrize(
    "spans", [[(2, 9)], [(2, 3), (5, 5), (7, 9)], [(1, 1), (40, 50)], [(15, 20)], [(0, 0)]]
)
@pytest.mark.parametrize("removal", [by_spans, one_by_one])
def test_what_is_gone_is_told_once(removal: Removal, spans: list[tuple[int, int]]) -> None:
    """And a chunk goes with its last job."""
    table = JobTable()
    for first in range(1, 13, 2):
        table.add(options(first, urgent(1), JobRequest(unique=digest(b"x"))))
    wanted = [s for lo, hi in spans for s in range(lo, hi + 1) if 1 <= s <= 12]
    for rows, _ in table.pieces(9, 9):
        rows["flags"] |= DELAYED
    keyed = [(b"x" * 16, seq) for seq in wanted if seq % 2 == 0]
    removed = removal(table, spans)
    assert removed == Removed(int(9 in wanted), keyed)
    assert removal(table, spans) == Removed(0, [])
    assert seqs(table) == [seq for seq in range(1, 13) if seq not in wanted]
    assert table.live == 12 - len(wanted)
    table.remove(np.array([[0, SEQ_MAX]]))
    assert (table.live, seqs(table), [*table.pieces(0, SEQ_MAX)]) == (0, [], [])
    assert removal(JobTable(), spans) == Removed(0, [])


def test_rows_of_earlier_times_come_between() -> None:
    """Rows that are there already stay as they are, also the gone ones among them."""
    table = JobTable()
    table.add(options(5, urgent(5), JobRequest(group="g", unique=digest(b"k"))))
    table.remove(np.array([[5, 5]]))
    table.insert([options(1, urgent(1), urgent(2)), options(5, urgent(9), JobRequest(group="h"))])
    assert seqs(table) == [1, 2, 6]
    assert table.live == 3
    row = table.row(6)
    assert row is not None
    assert table.groups[row.group - 1] == "g"
    assert table.digest(6) == b"k" * 16

    nothing = options(1, urgent(1))
    table.insert([nothing._replace(rows=nothing.rows[:0])])
    table.insert([])
    assert seqs(table) == [1, 2, 6]
    empty = JobTable()
    empty.insert([])
    assert seqs(empty) == []
