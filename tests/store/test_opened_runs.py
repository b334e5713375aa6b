"""Runs that are open: those used last, within a bound."""

import numpy as np
import pytest

from topics.protocol.model.records import COLUMN_DTYPES, Columns
from topics.store import opened_runs
from topics.store.opened_runs import Opened, OpenedRuns


def opened(rows: int) -> Opened:
    columns = {name: np.zeros(rows, dtype) for name, dtype in COLUMN_DTYPES.items()}
    return Opened(Columns(**columns), memoryview(bytes(58 * rows)))


def test_those_used_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record takes its text and 42 bytes of columns."""
    monkeypatch.setattr(opened_runs, "OPENED_BYTES_MAX", 300)
    runs = OpenedRuns()
    for index in range(3):
        runs.keep((1, index), opened(1))
    assert runs.find((1, 0)) is not None

    runs.keep((2, 0), opened(1))

    assert runs.find((1, 1)) is None
    assert all(runs.find(key) is not None for key in ((1, 0), (1, 2), (2, 0)))


def test_one_is_kept_however_large_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened_runs, "OPENED_BYTES_MAX", 300)
    runs = OpenedRuns()

    runs.keep((1, 0), opened(9))
    assert runs.find((1, 0)) is not None
    runs.keep((1, 1), opened(1))

    assert runs.find((1, 0)) is None


def test_a_run_that_was_opened_twice_counts_once() -> None:
    runs = OpenedRuns()
    runs.keep((1, 0), opened(2))

    runs.keep((1, 0), opened(3))

    assert runs._bytes == 300


def test_a_segment_that_is_gone_takes_its_runs_along() -> None:
    runs = OpenedRuns()
    runs.keep((1, 0), opened(2))
    runs.keep((2, 0), opened(3))

    runs.drop(1)

    assert runs.find((1, 0)) is None
    assert runs._bytes == 300


def test_what_was_not_read_whole_is_forgotten() -> None:
    runs = OpenedRuns()
    runs.keep((1, 0), opened(2))

    runs.forget((1, 0))
    runs.forget((1, 0))

    assert runs.find((1, 0)) is None
    assert runs._bytes == 0
