"""Sealed runs take the place of hot ones: cut at the edges, and with the deletes that came between
(§5)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from topics.protocol.state.hot_run import HotRun
from topics.protocol.state.run_list import RunList
from topics.protocol.state.sealed_runs import carry_deletes, cut_hot_runs

from .runs import live_seqs, run_of


@pytest.mark.parametrize(
    ("first_seq", "last_seq", "starts"),
    [
        (1, 20, [1, 11]),
        (11, 20, [1, 11]),
        (1, 5, [1, 6, 11]),
        (4, 5, [1, 4, 6, 11]),
        (4, 15, [1, 4, 11, 16]),
        (20, 20, [1, 11, 20]),
        (1, 19, [1, 11, 20]),
    ],
)
def test_hot_runs_begin_and_end_where_the_sealed_range_does(
    first_seq: int, last_seq: int, starts: list[int]
) -> None:
    """A replay has hot runs of other bounds than the live engine had; no record is in two of them,
    and none is lost."""
    runs = RunList()
    runs.append(run_of(1, 10))
    runs.append(run_of(11, 10))

    cut_hot_runs(runs, first_seq, last_seq)

    assert [run.first_seq for run in runs] == runs.starts == starts
    assert [run.first_seq + row for run in runs for row in range(run.count)] == list(range(1, 21))


@given(st.sets(st.integers(1, 20)), st.integers(1, 20), st.integers(0, 19), st.booleans())
def test_what_was_deleted_while_it_was_sealed_is_deleted(
    dead: set[int], first_seq: int, more: int, is_sealed: bool
) -> None:
    """In each new run, whose bounds may be others, and in no row beside the old run's: a hot run, or
    a sealed one that is written anew. (§5)"""
    old = run_of(first_seq, 1 + more)
    old.delete(np.array([seq - first_seq for seq in dead & covered(old)], np.int64))
    new = [run_of(1, 7), run_of(8, 1), run_of(9, 15)]

    carry_deletes(Sealed(old) if is_sealed else old, new)  # type: ignore[arg-type]

    for run in new:
        assert live_seqs(run) == [
            seq for seq in sorted(covered(run)) if seq not in dead & covered(old)
        ]


class Sealed:
    """Of a sealed run what is asked of it here: its deleted rows."""

    def __init__(self, run: HotRun) -> None:
        self.first_seq, self.count = run.first_seq, run.count
        self._dead = run.deleted_rows()

    def deleted_rows(self) -> NDArray[np.int64]:
        return self._dead


def covered(run: HotRun) -> set[int]:
    return set(range(run.first_seq, run.first_seq + run.count))
