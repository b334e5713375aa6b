"""How much of the log may go: nothing that is not on two machines, and no record that a node needs."""

import pytest

from topics.protocol.cluster.trimming import trim_before


@pytest.mark.parametrize(
    ("durable", "before"),
    [
        ([], None),
        ([7], None),
        ([7, -1], None),
        ([7, 5], 5),
        ([9, 5, 7], 5),
    ],
)
def test_the_log_goes_up_to_the_node_that_has_least(durable: list[int], before: int | None) -> None:
    """Not beyond the record at which it stands; and not at all while one node alone would have it."""
    assert trim_before(durable) == before


def test_the_number_of_copies_may_be_another() -> None:
    assert trim_before([7], copies=1) == 7
    assert trim_before([7, 8], copies=3) is None
