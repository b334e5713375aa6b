"""Topics that a consumer's metadata names."""

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.protocol.groups.subscription import topics_of


def subscription(*names: bytes, version: int = 1) -> bytes:
    parts = [pack(">h", len(name)) + name for name in names]
    return pack(">hi", version, len(names)) + b"".join(parts) + b"\0\0\0\0owned"


def test_topics_are_those_that_are_named() -> None:
    """Whatever stands behind them."""
    assert topics_of(subscription(b"orders", "é".encode())) == {"orders", "é"}


@pytest.mark.parametrize(
    "raw",
    [b"", b"\0\1", subscription(b"orders")[:9], pack(">hih", 1, 1, -1), subscription(b"\xff")],
)
def test_what_is_none_names_nothing(raw: bytes) -> None:
    assert topics_of(raw) == frozenset()


@given(st.binary(max_size=40))
def test_whatever_a_member_says_is_taken(raw: bytes) -> None:
    assert isinstance(topics_of(raw), frozenset)
