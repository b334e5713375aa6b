"""Header blocks before they are decoded: how many fields, and long strings as text (RFC 7541)."""

import pytest
from hpack import Decoder, Encoder, HPACKDecodingError
from hypothesis import given
from hypothesis import strategies as st

from topics.server.transport.http2.blocks import (
    LONG_BYTES,
    STEP_BYTES,
    BadCode,
    count_fields,
    plain,
)


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


# ---------------------------------------------------------------------- long strings


def made(block: bytes) -> tuple[bytes, int]:
    """The block with its long strings as text, and how many steps that took."""
    work, steps = plain(block), 0
    while True:
        try:
            next(work)
        except StopIteration as done:
            return done.value, steps
        steps += 1


@given(
    fields=st.lists(
        st.tuples(
            st.sampled_from([b":path", b"cookie", b"x", b"x" * 700]),
            st.binary(max_size=40) | st.binary(min_size=1, max_size=8).map(lambda b: b * 900),
            st.booleans(),
        ),
        max_size=6,
    ),
    table=st.sampled_from([0, 4096]),
    huffman=st.booleans(),
)
def test_a_block_in_text_is_the_same_list(
    fields: list[tuple[bytes, bytes, bool]], table: int, huffman: bool
) -> None:
    """Whatever the table remembers, for this block and the next one."""
    encoder = Encoder()
    of_code, of_text = Decoder(1 << 20), Decoder(1 << 20)
    encoder.header_table_size = table
    for _ in range(2):
        block = encoder.encode(fields, huffman=huffman)
        text, _ = made(block)
        assert of_code.decode(block, raw=True) == of_text.decode(text, raw=True)


def test_a_long_string_takes_many_steps() -> None:
    """30 KiB of code, which the decoder would decode in one go of 5 ms."""
    block = Encoder().encode([(b"x", b"0" * 49_000)], huffman=True)
    text, steps = made(block)
    assert len(block) > 30_000
    assert steps == pytest.approx(len(block) / STEP_BYTES, abs=2)
    assert b"0" * 49_000 in text


def test_short_strings_are_left_to_the_decoder() -> None:
    """A usual head costs nothing."""
    fields = [(b":path", b"/v0/topics"), (b"cookie", b"c" * LONG_BYTES)]
    block = Encoder().encode(fields, huffman=True)
    assert made(block) == (block, 0)


@pytest.mark.parametrize("end", [b"\xff\xff\xff\xff", b"\x00"])
def test_a_string_in_no_code_is_refused(end: bytes) -> None:
    """As the decoder refuses it: a symbol that must not occur, and an end within a code."""
    code = b"\0" * 600 + end
    block = b"\0\x01x\xff" + bytes([(len(code) - 127) & 0x7F | 0x80, (len(code) - 127) >> 7]) + code
    with pytest.raises(HPACKDecodingError):
        Decoder(1 << 20).decode(block, raw=True)
    with pytest.raises(BadCode):
        made(block)


@pytest.mark.parametrize("block", [b"", b"\xff", b"\x00", b"\x00\x05ab", b"\0\x01x\xff\xff\x7fab"])
def test_a_block_that_is_cut_short_is_left_to_the_decoder(block: bytes) -> None:
    """It is not looked at behind its end."""
    assert made(block) == (block, 0)
