"""The pause after a destination took nothing (§6.1, §10.6)."""

from itertools import pairwise

from topics.protocol.model.backoff import BACKOFF_FIRST_MS, BACKOFF_MAX_MS, backoff_ms


def test_pauses_double_to_a_bound() -> None:
    """The first is short, no later one is shorter, and the last is seconds: however often it was
    refused, also after a year of refusals."""
    pauses_ms = [backoff_ms(refusals) for refusals in range(40)]

    assert pauses_ms[0] == BACKOFF_FIRST_MS
    assert all(after == min(2 * before, BACKOFF_MAX_MS) for before, after in pairwise(pauses_ms))
    assert pauses_ms[-1] == backoff_ms(10**9) == BACKOFF_MAX_MS
