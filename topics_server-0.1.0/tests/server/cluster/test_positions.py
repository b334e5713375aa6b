"""Positions as clients carry them."""

import pytest

from topics.protocol.model.errors import Rejection
from topics.server.cluster.positions import Position, parse_position


def test_a_position_comes_back_as_it_was_given() -> None:
    assert parse_position(Position(0, 17).text, shard=0) == 17
    assert parse_position(b" 3.4 ", shard=3) == 4


@pytest.mark.parametrize("text", [b"", b".", b"0.", b".1", b"-1.2", b"0.1.2", b"0,1", b"1.1"])
def test_what_is_no_position_of_the_shard_is_refused(text: bytes) -> None:
    with pytest.raises(Rejection):
        parse_position(text, shard=0)
