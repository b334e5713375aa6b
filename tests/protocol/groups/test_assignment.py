"""What Kafka's clients write of an assignment, and what is none."""

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.protocol.groups.assignment import partitions_of


def one(name: bytes, *at: int) -> bytes:
    return pack(">h", len(name)) + name + pack(f">i{len(at)}i", len(at), *at)


def test_partitions_by_topic() -> None:
    """Whatever stands behind them: later versions have more, and clients data of their own."""
    rows = one(b"orders", 0, 3) + one("caf\u00e9".encode()) + one(b"clicks", 1)
    found = partitions_of(pack(">hi", 1, 3) + rows + b"more")
    assert found is not None
    assert {name: list(at) for name, at in found.items()} == {
        "orders": [0, 3],
        "caf\u00e9": [],
        "clicks": [1],
    }
    assert partitions_of(pack(">hi", 0, 0)) == {}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\0\0",
        pack(">hi", 0, 1),
        pack(">hih", 0, 1, -1),
        pack(">hih", 0, 1, 3) + b"abc",
        pack(">hi", 0, 2) + one(b"a", 1),
        pack(">hi", 0, 1) + one(b"\xff", 1),
        pack(">hih", 0, 1, 1) + b"a" + pack(">i", -1),
        pack(">hih", 0, 1, 1) + b"a" + pack(">i", 2**31 - 1),
        pack(">hi", 0, 1) + one(b"a", 1)[:-1],
    ],
)
def test_what_is_no_assignment(text: bytes) -> None:
    """Cut short, or with a length that it has not: no bytes of a client make it read more than there is."""
    assert partitions_of(text) is None


@given(st.binary(max_size=64))
def test_any_bytes_are_judged(text: bytes) -> None:
    """None of them is an error."""
    partitions_of(text)
