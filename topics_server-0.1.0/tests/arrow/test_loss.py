"""Loss as a scan tells it (§3.3)."""

import pickle

import pytest

from topics.arrow.loss import DataLoss, Gap

ONE = Gap("t", 5, 9, "cap")
OTHER = Gap("t", 12, 12, "crash")


def test_a_gap_counts_both_of_its_ends() -> None:
    """Its seqs are an upper bound of what was lost. (§3.3)"""
    assert (ONE.missed, OTHER.missed) == (5, 1)
    assert str(ONE) == 'topic "t" lost 5 seqs, 5..9, reason cap'


@pytest.mark.parametrize(
    ("gaps", "more"), [([ONE], ""), ([ONE, OTHER], " and 1 more gaps"), ([ONE] * 4, " and 3 more")]
)
def test_an_error_tells_the_first_gap_and_how_many_follow(gaps: list[Gap], more: str) -> None:
    """And what to do about it; a list of all could be long."""
    error = DataLoss(gaps)

    assert error.gaps == tuple(gaps)
    assert str(error).startswith(str(ONE) + more)
    assert '"warn" or "rows"' in str(error)


def test_an_error_goes_from_process_to_process() -> None:
    """A reader in another process raises it, and its gaps arrive whole."""
    there = pickle.loads(pickle.dumps(DataLoss([ONE, OTHER])))

    assert there.gaps == (ONE, OTHER)
    assert str(there) == str(DataLoss([ONE, OTHER]))
