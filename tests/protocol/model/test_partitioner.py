"""Keys go where Java's clients put them (§4, 122)."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from topics.protocol.model import partitioner
from topics.protocol.model.partitioner import hash_of, hashes_of, partition_of_key

# Of Kafka's own test of `Utils.murmur2`, made positive as its partitioner makes them.
KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", KNOWN)
def test_a_hash_is_kafkas(key: bytes) -> None:
    assert hash_of(key) == KNOWN[key] & 0x7FFFFFFF
    assert partition_of_key(key, 7) == (KNOWN[key] & 0x7FFFFFFF) % 7


@given(st.lists(st.none() | st.binary(max_size=9)))
@example([b"abc", b"abcd", b"abcde", None])
def test_keys_are_hashed_side_by_side_as_one_by_one(keys: list[bytes | None]) -> None:
    """Whatever their lengths are, and however many have one."""
    many = keys * (partitioner.TOGETHER + 1)
    assert hashes_of(many) == [None if key is None else hash_of(key) for key in many]


@given(st.binary(min_size=partitioner.LONG_BYTES, max_size=partitioner.LONG_BYTES + 9))
def test_a_long_key_is_hashed_as_a_short_one(key: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partitioner, "LONG_BYTES", 1 << 20)
        expected = hash_of(key)
    assert hash_of(key) == expected
