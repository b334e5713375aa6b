"""What is open of record batches in memory: kept while it is asked for, within a bound (§11)."""

import pytest

from topics.protocol.state.open_runs import IDLE_MS, OpenRuns


class Run:
    """A run that holds so much."""

    def __init__(self, opened_bytes: int) -> None:
        self.opened_bytes = opened_bytes
        self.is_asked = True


@pytest.fixture
def open_runs() -> OpenRuns[Run]:
    return OpenRuns()


def noted(open_runs: OpenRuns[Run], *sizes: int) -> list[Run]:
    runs = [Run(size) for size in sizes]
    for run in runs:
        open_runs.note(run)
    return runs


def closed(open_runs: OpenRuns[Run], most_bytes: int, now_ms: int = 0) -> list[Run]:
    return list(open_runs.excess(most_bytes, now_ms))


def test_what_a_run_holds_is_counted_as_it_grows(open_runs: OpenRuns[Run]) -> None:
    first, _ = noted(open_runs, 10, 20)
    assert not open_runs.owes(30)
    assert open_runs.held_bytes == 30
    first.opened_bytes = 15
    open_runs.note(first)
    assert open_runs.owes(34)
    assert open_runs.held_bytes == 35


def test_those_that_nobody_asks_go_first(open_runs: OpenRuns[Run]) -> None:
    """A run that was asked since the last look has another chance."""
    first, second, third = noted(open_runs, 10, 10, 10)
    assert closed(open_runs, 30) == []
    for run in (first, third):
        run.is_asked = False
    assert closed(open_runs, 29) == [first]
    assert closed(open_runs, 19) == [third]
    assert second.is_asked is False
    assert open_runs.held_bytes == 10


def test_one_run_may_be_open_however_large_it_is(open_runs: OpenRuns[Run]) -> None:
    """Else nobody could read it."""
    noted(open_runs, 1000)
    assert not open_runs.owes(10)
    assert closed(open_runs, 10) == []
    noted(open_runs, 2000)
    assert len(closed(open_runs, 10)) == 1
    assert open_runs.held_bytes == 2000


def test_what_is_not_asked_any_more_is_let_go(open_runs: OpenRuns[Run]) -> None:
    run, other = noted(open_runs, 10, 10)
    assert closed(open_runs, 100) == []
    assert closed(open_runs, 100, IDLE_MS) == []
    run.is_asked = True
    assert closed(open_runs, 100, 2 * IDLE_MS - 1) == []
    assert closed(open_runs, 100, 2 * IDLE_MS) == [other]
    assert closed(open_runs, 100, 3 * IDLE_MS) == [run]
    assert open_runs.held_bytes == 0
    assert closed(open_runs, 100, 9 * IDLE_MS) == []


def test_a_run_that_is_gone_counts_no_more(open_runs: OpenRuns[Run]) -> None:
    run, other = noted(open_runs, 10, 10)
    assert open_runs.owes(10)
    open_runs.forget(run)
    open_runs.forget(run)
    assert open_runs.held_bytes == 10
    other.is_asked = False
    assert closed(open_runs, 0) == []
