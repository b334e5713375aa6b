"""How many fields there are in a header block, before it is decoded (RFC 7541)."""

import pytest
from hpack import Decoder, Encoder
from hypothesis import given
from hypothesis import strategies as st

from topics.server.transport.http2.blocks import count_fields


@pytest.mark.parametrize("huffman", [True, False])
@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 300, 20_000])
def test_fields_are_counted_as_the_decoder_counts_them(size: int, huffman: bool) -> None:
    """Of tables, with a name of a table, all literal; indexed and not."""
    encoder, decoder = Encoder(), Decoder(max_header_list_size=1 << 20)
    encoder.header_table_size = 2000
    fields = [
        (b":method", b"GET"), (b":path", b"/" * size), (b"n" * max(size, 1), b"v"),
        (b"cookie", b"c" * size, True), (b"x", b"y"), (b"x", b"y"),
    ]  # fmt: skip
    for _ in range(3):
        block = encoder.encode(fields, huffman=huffman)

        assert count_fields(block, 100) == len(decoder.decode(block, raw=True)) == len(fields)
        assert count_fields(block, 2) == 3


@pytest.mark.parametrize("block", [b"", b"\xff", b"\xff\x80", b"\x00", b"\x00\x05ab", b"\x7f"])
def test_a_block_that_is_cut_short_is_counted_to_its_end(block: bytes) -> None:
    """The decoder says what is wrong with it."""
    assert count_fields(block, 100) in (0, 1)


def test_many_fields_are_counted_no_further_than_asked() -> None:
    """However long the block is."""
    assert count_fields(b"\x82" * 40_000, 200) == 201


@given(
    fields=st.lists(
        st.tuples(
            st.sampled_from([b":path", b"cookie", b"accept", b"x", b"x" * 200]),
            st.binary(max_size=300),
            st.booleans(),
        ),
        max_size=20,
    ),
    table=st.sampled_from([0, 100, 4096]),
    huffman=st.booleans(),
)
def test_any_block_is_counted_as_the_decoder_counts_it(
    fields: list[tuple[bytes, bytes, bool]], table: int, huffman: bool
) -> None:
    """Any table, also one whose size the block changes, which is no field."""
    encoder, decoder = Encoder(), Decoder(max_header_list_size=1 << 20)
    encoder.header_table_size = table
    for _ in range(2):
        block = encoder.encode(fields, huffman=huffman)
        assert count_fields(block, 100) == len(decoder.decode(block, raw=True)) == len(fields)


@given(st.binary(max_size=200), st.integers(0, 10))
def test_no_bytes_fail(block: bytes, limit: int) -> None:
    """What is malformed is left for the decoder, and no byte stands for two fields."""
    assert 0 <= count_fields(block, limit) <= min(limit + 1, len(block))
