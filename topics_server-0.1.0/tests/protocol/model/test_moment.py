"""Times of which one may be never."""

import pytest

from topics.protocol.model.moment import earlier


@pytest.mark.parametrize(
    ("one_ms", "other_ms", "found_ms"),
    [(None, None, None), (5, None, 5), (None, 5, 5), (5, 7, 5), (7, 5, 5), (0, 5, 0), (None, 0, 0)],
)
def test_the_earlier_of_two_times(
    one_ms: int | None, other_ms: int | None, found_ms: int | None
) -> None:
    """Never is later than any time; 0 is a time."""
    assert earlier(one_ms, other_ms) == found_ms
