"""Frames before h2 sees them: cut, judged by their headers, put right."""

import pytest
from h2.errors import ErrorCodes
from hpack import Decoder, Encoder

from topics.server.transport.budget import Charges
from topics.server.transport.http2.blocks import count_fields
from topics.server.transport.http2.frames import (
    BLOCK_BYTES_MAX,
    CONTINUATIONS_MAX,
    ENTRIES_MAX,
    FRAME_BYTES_MAX,
    Broken,
    Frame,
    Kind,
    Splitter,
    ended,
    tamed,
    without_priority,
)
from topics.server.transport.http2.toll import SMALL_BYTES, SMALL_PER_CHARGE, Toll

from .http2_rig import PREFACE, frame


def split(*pieces: bytes) -> list[tuple[int, int, int]]:
    """Kind, stream and number of frames of all that is whole, behind a preface and SETTINGS."""
    splitter = Splitter()
    out = []
    for piece in (PREFACE, frame(4, 0, 0), *pieces):
        splitter.feed(piece)
        while (made := splitter.next()) is not None:
            out.append((made.kind, made.stream_id, made.frames))
    return out[1:]


def broken(*pieces: bytes) -> ErrorCodes | None:
    with pytest.raises(Broken) as caught:
        split(*pieces)
    return caught.value.code


def test_frames_are_cut_anywhere() -> None:
    """A frame is given when its last byte is there."""
    sent = frame(6, 0, 0, bytes(8)) + frame(0, 1, 0x8000_0003, b"data") + frame(0xEE, 3, 5)
    whole = [(6, 0, 1), (0, 3, 1), (0xEE, 5, 1)]

    for size in range(1, len(sent) + 1):
        assert split(*(sent[at : at + size] for at in range(0, len(sent), size))) == whole
    assert split(sent[:-1]) == whole[:-1]


def test_a_header_block_is_one_frame() -> None:
    """With its CONTINUATIONs, as they came, and with the flags of the first."""
    parts = [frame(1, 1, 7, b"ab"), frame(9, 0, 7, b"c"), frame(9, 4, 7, b"def")]
    splitter = Splitter()
    splitter.feed(PREFACE + frame(4, 0, 0))
    splitter.next()
    for part in parts[:-1]:
        splitter.feed(part)
        assert splitter.next() is None
        assert splitter.is_within_head
    splitter.feed(parts[-1])

    assert splitter.next() == Frame(Kind.HEADERS, 1, 7, 6, b"".join(parts), 3)
    assert not splitter.is_within_head


def test_sizes_are_judged_before_anything_is_kept() -> None:
    """By the header of a frame alone; no byte of its payload is waited for."""
    large = (FRAME_BYTES_MAX + 1).to_bytes(3, "big") + frame(0, 0, 1)[3:]
    part = frame(9, 0, 1, b"x" * FRAME_BYTES_MAX)

    assert broken(large) is ErrorCodes.FRAME_SIZE_ERROR
    assert broken(frame(1, 0, 1), *[frame(9, 0, 1)] * (CONTINUATIONS_MAX + 1)) == 11
    assert broken(frame(1, 0, 1), *[part] * (BLOCK_BYTES_MAX // FRAME_BYTES_MAX + 1)) == 11
    assert split(frame(1, 0, 1), *[frame(9, 0, 1)] * (CONTINUATIONS_MAX - 1), frame(9, 4, 1))


@pytest.mark.parametrize(
    "sent",
    [
        (frame(9, 4, 1),),
        (frame(1, 0, 1), frame(0, 0, 1)),
        (frame(1, 0, 1), frame(0xEE, 0, 1)),
        (frame(1, 0, 1), frame(9, 4, 3)),
        (frame(1, 0, 1), frame(1, 4, 1)),
    ],
)
def test_a_header_block_is_not_interrupted(sent: tuple[bytes, ...]) -> None:
    """RFC 9113, 6.10."""
    assert broken(*sent) is ErrorCodes.PROTOCOL_ERROR


def test_the_preface_is_checked_as_it_comes() -> None:
    """At its first wrong byte."""
    splitter = Splitter()
    splitter.feed(PREFACE[:5])
    with pytest.raises(Broken):
        splitter.feed(b"nonsense")


def test_a_frame_can_be_given_its_end() -> None:
    """END_STREAM, and nothing else."""
    made = ended(Frame(Kind.HEADERS, 4, 7, 2, frame(1, 4, 7, b"ab")))

    assert made == Frame(Kind.HEADERS, 5, 7, 2, frame(1, 5, 7, b"ab"))


@pytest.mark.parametrize("padding", [0, 3])
def test_a_priority_is_taken_out(padding: int) -> None:
    """The block stays as it is, with its padding."""
    flags = 4 | (8 if padding else 0)
    head, tail = (bytes([padding]), bytes(padding)) if padding else (b"", b"")
    sent = frame(1, flags | 0x20, 7, head + b"\x80\0\0\x05\x10" + b"block" + tail)
    more = frame(9, 4, 7, b"more")
    made, depends_on = without_priority(
        Frame(1, flags | 0x20, 7, len(sent) - 9 + 4, sent + more, 2)
    )

    assert depends_on == 5
    assert made.raw == frame(1, flags, 7, head + b"block" + tail) + more
    assert made.flags == flags


def test_a_priority_that_is_not_all_there_is_left_to_h2() -> None:
    """Which ends the connection."""
    sent = Frame(1, 0x24, 7, 4, frame(1, 0x24, 7, b"1234"))

    assert without_priority(sent) == (sent, None)


def test_settings_are_tamed() -> None:
    """Unknown names go, and the table of our encoder stays small."""
    sent = b"\0\x01\0\x10\0\0" + b"\0\x04\0\0\0\x09" + b"\xaa\xaa\0\0\0\x01" + b"\0\x06\0\0\0\x01"
    made = tamed(Frame(4, 0, 0, len(sent), frame(4, 0, 0, sent)))

    assert made.raw == frame(4, 0, 0, b"\0\x01\0\0\x10\0" + b"\0\x04\0\0\0\x09")
    entries = ENTRIES_MAX * (b"\0\x04" + bytes(4))
    tamed(Frame(4, 0, 0, len(entries), frame(4, 0, 0, entries)))
    with pytest.raises(Broken):
        tamed(Frame(4, 0, 0, len(entries) + 6, frame(4, 0, 0, entries + entries[:6])))


# Header blocks.


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


# Prices.


def priced(*frames: Frame) -> int:
    """What they cost together, of a client that has acknowledged our SETTINGS."""
    charges = Charges(1 << 30, 10)
    toll = Toll(charges)
    toll.frame(Frame(4, 1, 0, 0, frame(4, 1, 0)), 0.0)
    for each in frames:
        assert toll.frame(each, 0.0)
    return charges.count


@pytest.mark.parametrize(
    ("kind", "flags", "size", "price"),
    [
        (Kind.DATA, 0, 0, 0),
        (Kind.HEADERS, 4, 100, 0),
        (Kind.HEADERS, 4, 12_500, 3),
        (Kind.PRIORITY, 0, 5, 1),
        (Kind.RST_STREAM, 0, 4, 1),
        (Kind.SETTINGS, 0, 6, 1),
        (Kind.SETTINGS, 0, 6 * 32, 5),
        (Kind.SETTINGS, 1, 0, 1),
        (Kind.PUSH_PROMISE, 0, 4, 1),
        (Kind.PING, 0, 8, 1),
        (Kind.GOAWAY, 0, 8, 1),
        (Kind.WINDOW_UPDATE, 0, 4, 1),
        (0xEE, 0, 0, 1),
    ],
)
def test_each_kind_of_frame_has_its_price(kind: int, flags: int, size: int, price: int) -> None:
    """A request and DATA cost nothing by their headers."""
    assert priced(Frame(kind, flags, 1, size, frame(kind, flags, 1, bytes(size)))) == price


def test_continuations_cost_each() -> None:
    """A block in one frame is what clients send."""
    assert priced(Frame(Kind.HEADERS, 1, 1, 10, b"", frames=4)) == 3


@pytest.mark.parametrize(
    ("size", "ends", "price"),
    [
        (0, False, 8),
        (1, False, 1),
        (SMALL_BYTES - 1, False, 1),
        (SMALL_BYTES, False, 0),
        (0, True, 0),
    ],
)
def test_data_is_priced_by_what_is_in_it(size: int, ends: bool, price: int) -> None:
    """Nothing is dear, little is cheap, the end is free."""
    charges = Charges(1 << 30, 10)
    toll = Toll(charges)
    for _ in range(SMALL_PER_CHARGE):
        assert toll.data(size, 0.0, ends=ends)

    assert charges.count == price
