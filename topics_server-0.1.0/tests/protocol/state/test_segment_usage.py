"""Segment usage: which files may go, and which are worth a rewrite (§5)."""

import pytest

from topics.protocol.model.events import RunRef
from topics.protocol.state.segment_usage import SPARSE_FACTOR, SegmentUsage

ROWS, TEXT = 10, 1000


def runs(n: int, segment: int = 7) -> list[RunRef]:
    """Runs of one file, one behind the other, all of one size."""
    return [RunRef(segment, i, 1 + i * ROWS, ROWS, TEXT) for i in range(n)]


def used(refs: list[RunRef]) -> SegmentUsage:
    """The usage of files that are referred to by these runs, and measured to hold no others."""
    usage = SegmentUsage()
    for ref in refs:
        usage.refer(ref)
    for segment in list(usage):
        own = [ref for ref in refs if ref.segment == segment]
        usage.measure(segment, ROWS * len(own), TEXT * len(own))
    return usage


def test_a_file_may_go_with_its_last_reference() -> None:
    """Not before, and it is told once. (§5)"""
    first, second = runs(2)
    other = runs(1, segment=8)[0]
    usage = used([first, second, other])

    usage.release(first)
    assert usage.take_unreferenced() == []
    assert 7 in usage

    usage.release(second)
    assert list(usage) == [8]
    assert 7 not in usage.candidates
    assert usage.take_unreferenced() == [7]
    assert usage.take_unreferenced() == []


def test_a_file_that_is_referred_to_again_stays() -> None:
    """The first slice of a seal may go before the second is installed: a file with a live run is
    not given up, however often it was without one. (§5)"""
    first, second = runs(2)
    usage = SegmentUsage()
    usage.refer(first)
    usage.release(first)
    usage.refer(second)
    assert usage.take_unreferenced() == []

    usage.release(second)
    usage.refer(first)
    usage.release(first)
    assert usage.take_unreferenced() == [7]


def test_what_lost_something_is_a_candidate() -> None:
    """A file is looked at when a run of it went or more of one may be dead, and not else. (§5)"""
    first, second = runs(2)
    usage = used([first, second])
    assert not usage.candidates

    usage.release(first)
    assert list(usage.candidates) == [7]

    usage.candidates.clear()
    usage.estimate_dead(second, 10)
    assert list(usage.candidates) == [7]
    usage.candidates.clear()
    usage.estimate_dead(second, 10)
    usage.set_dead(second, 20)
    assert not usage.candidates

    usage.make_all_candidates()
    assert list(usage.candidates) == [7]


def test_a_measured_file_shows_what_went_before_it_was_measured() -> None:
    """After a start the references alone are known; what the file holds besides them is dead. (§5)"""
    usage = SegmentUsage()
    for ref in runs(2):
        usage.refer(ref)
    assert not usage.is_measured(7)

    usage.measure(7, 2 * ROWS, 2 * TEXT)
    assert usage.is_measured(7)
    assert usage.is_fully_referenced(7)
    assert not usage.candidates

    usage.measure(7, 2 * ROWS + 1, 2 * TEXT)
    assert not usage.is_fully_referenced(7)
    assert list(usage.candidates) == [7]


@pytest.mark.parametrize("over", [0, 1])
def test_a_file_is_sparse_below_a_part_of_its_text(over: int) -> None:
    """At one part in `SPARSE_FACTOR` it is left alone, a byte below that it is rewritten. (§5)"""
    (ref,) = runs(1)
    usage = used([ref])
    usage.set_dead(ref, TEXT - TEXT // SPARSE_FACTOR + over)
    assert usage.is_sparse(7) == bool(over)


def test_a_file_is_sparse_by_its_rows_too() -> None:
    """Columns of runs that went are dead space, though their text was short. (§5)"""
    usage = SegmentUsage()
    (ref,) = runs(1)
    usage.refer(ref)
    usage.measure(7, SPARSE_FACTOR * ROWS, TEXT)
    assert not usage.is_sparse(7)
    usage.measure(7, SPARSE_FACTOR * ROWS + 1, TEXT)
    assert usage.is_sparse(7)


def test_dead_text_is_counted_for_each_run_and_goes_with_it() -> None:
    """The last figure counts, and a run that is no longer referred to leaves none behind: its text
    is not among the file's any more. (§5)"""
    first, second = runs(2)
    usage = used([first, second])
    usage.estimate_dead(first, 900)
    usage.set_dead(first, 600)
    assert (usage.live_bytes(first), usage.live_bytes(second)) == (400, 1000)
    assert usage.may_hold_dead(first)
    assert not usage.may_hold_dead(second)

    usage.set_dead(first, 0)
    assert not usage.may_hold_dead(first)
    assert usage.live_bytes(first) == TEXT

    usage.set_dead(first, TEXT)
    usage.release(first)
    assert not usage.is_sparse(7)
    usage.set_dead(second, 501)
    assert usage.is_sparse(7)


def test_what_is_not_referred_to_has_no_figures() -> None:
    """A count that comes back from a worker after the file went makes no entry of it. (§5)"""
    (ref,) = runs(1)
    usage = used([ref])
    usage.release(ref)

    usage.set_dead(ref, 10)
    usage.measure(7, ROWS, TEXT)

    assert len(usage) == 0
    assert not usage.may_hold_dead(ref)
    assert usage.live_bytes(ref) == TEXT
