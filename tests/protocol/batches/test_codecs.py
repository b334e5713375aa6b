"""Compressed records, each codec within a bound; held against the libraries of a client."""

import random
import struct

import cramjam
import pytest

from topics.protocol.batches.codecs import (
    GZIP,
    LZ4,
    NAMES,
    SNAPPY,
    ZSTD,
    is_for_java,
    packed,
    unpacked,
)
from topics.protocol.batches.header import BatchError

TEXT = b'{"user": "someone", "n": 123}' * 500
CODECS = (0, GZIP, SNAPPY, LZ4, ZSTD)


def framed(*blocks: bytes) -> bytes:
    """Snappy as Java writes it."""
    head = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    return head + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


@pytest.mark.parametrize("codec", CODECS)
def test_what_was_packed_is_unpacked(codec: int) -> None:
    data = packed(codec, TEXT)

    assert bytes(unpacked(codec, data, len(TEXT))) == TEXT
    assert bytes(unpacked(codec, memoryview(data), 1 << 20)) == TEXT
    assert (data == TEXT) is (codec == 0)


@pytest.mark.parametrize("codec", CODECS)
def test_records_beyond_the_bound_are_refused(codec: int) -> None:
    """Also where a few bytes would become many."""
    for data, bound in ((TEXT, len(TEXT) - 1), (bytes(8 << 20), 1 << 20)):
        with pytest.raises(BatchError, match=f"more than {bound} bytes") as refused:
            unpacked(codec, packed(codec, data), bound)

        assert not refused.value.is_corrupt


@pytest.mark.parametrize("codec", CODECS[1:])
def test_what_no_codec_wrote_is_corrupt(codec: int) -> None:
    dice = random.Random(codec)
    whole = packed(codec, TEXT)
    for data in (b"", b"abc", dice.randbytes(500), whole[: len(whole) // 2]):
        with pytest.raises(BatchError, match=f"not {NAMES[codec]}") as refused:
            unpacked(codec, data, 1 << 20)

        assert refused.value.is_corrupt


def test_blocks_of_lz4_do_not_refer_to_each_other() -> None:
    """Java's clients read no others, and would stand before such a batch for ever."""
    assert is_for_java(LZ4, packed(LZ4, TEXT * 20))
    linked = bytes(cramjam.lz4.compress(TEXT * 20))
    assert not is_for_java(LZ4, linked)
    assert bytes(unpacked(LZ4, linked, 1 << 20)) == TEXT * 20
    assert is_for_java(ZSTD, packed(ZSTD, TEXT))


@pytest.mark.parametrize("codec", [5, 7])
def test_a_codec_of_another_number_is_refused(codec: int) -> None:
    with pytest.raises(BatchError, match="a compression of number"):
        unpacked(codec, TEXT, 1 << 20)


def test_snappy_comes_in_blocks_too() -> None:
    """As Java's library writes it."""
    blocks = [bytes(cramjam.snappy.compress_raw(part)) for part in (TEXT, b"", b"end")]

    assert bytes(unpacked(SNAPPY, framed(*blocks), 1 << 20)) == TEXT + b"end"
    with pytest.raises(BatchError, match="more than"):
        unpacked(SNAPPY, framed(*blocks), len(TEXT) + 2)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (framed() + b"\0\0", "half a block"),
        (framed() + struct.pack(">i", 5) + b"abcd", "longer than what is left"),
        (framed() + struct.pack(">i", -1), "longer than what is left"),
        (framed(b"noise"), "not snappy"),
    ],
)
def test_blocks_that_lie_are_corrupt(data: bytes, why: str) -> None:
    with pytest.raises(BatchError, match=why) as refused:
        unpacked(SNAPPY, data, 1 << 20)

    assert refused.value.is_corrupt
