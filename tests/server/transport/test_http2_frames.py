"""Frames before h2 sees them: cut, judged by their headers, put right."""

from itertools import pairwise

import pytest
from h2.errors import ErrorCodes
from hypothesis import given
from hypothesis import strategies as st

from topics.server.transport.http2.frames import (
    BLOCK_BYTES_MAX,
    CONTINUATIONS_MAX,
    ENTRIES_MAX,
    FRAME_BYTES_MAX,
    Broken,
    Frame,
    FrameType,
    Splitter,
    ended,
    tamed,
    without_priority,
)

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

    assert splitter.next() == Frame(FrameType.HEADERS, 1, 7, 6, b"".join(parts), 3)
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
    made = ended(Frame(FrameType.HEADERS, 4, 7, 2, frame(1, 4, 7, b"ab")))

    assert made == Frame(FrameType.HEADERS, 5, 7, 2, frame(1, 5, 7, b"ab"))


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


@given(
    sent=st.lists(
        st.tuples(
            st.sampled_from([0, 2, 3, 4, 5, 6, 7, 8, 0xEE]),
            st.integers(0, 255),
            st.integers(0, 0xFFFF_FFFF),
            st.binary(max_size=40),
        ),
        max_size=8,
    ),
    cuts=st.lists(st.integers(0, 400), max_size=12),
)
def test_frames_come_out_as_they_went_in(
    sent: list[tuple[int, int, int, bytes]], cuts: list[int]
) -> None:
    """Whatever is in them and wherever the network cuts; a stream without its reserved bit
    (RFC 9113, 4.1)."""
    whole = PREFACE + frame(4, 0, 0) + b"".join(frame(*each) for each in sent)
    ends = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    splitter = Splitter()
    out: list[Frame] = []
    for begin, end in pairwise(ends):
        splitter.feed(whole[begin:end])
        while (made := splitter.next()) is not None:
            out.append(made)

    assert splitter.is_empty
    assert out[1:] == [
        Frame(kind, flags, stream & 0x7FFF_FFFF, len(payload), frame(kind, flags, stream, payload))
        for kind, flags, stream, payload in sent
    ]


@pytest.mark.parametrize(
    "first",
    [frame(6, 0, 0, bytes(8)), frame(1, 5, 1), frame(1, 0, 1), frame(4, 1, 0), frame(0xEE, 0, 0)],
    ids=["PING", "HEADERS", "part of HEADERS", "an acknowledgement", "unknown"],
)
def test_settings_come_first(first: bytes) -> None:
    """And are no acknowledgement of ours (RFC 9113, 3.4)."""
    splitter = Splitter()
    splitter.feed(PREFACE + first)
    with pytest.raises(Broken) as caught:
        splitter.next()
    assert caught.value.code is ErrorCodes.PROTOCOL_ERROR


@pytest.mark.parametrize(
    ("left", "is_within"),
    [
        (b"", False),
        (frame(0, 0, 1, b"data")[:3], True),
        (frame(0, 0, 1, b"data")[:4], False),
        (frame(0, 0, 1, b"data")[:-1], False),
        (frame(6, 0, 0, bytes(8))[:-1], True),
        (frame(1, 0, 1), True),
    ],
    ids=["nothing", "no kind yet", "DATA by its kind", "DATA", "PING", "part of a block"],
)
def test_what_a_client_may_not_leave_unfinished(left: bytes, is_within: bool) -> None:
    """All but DATA, which has the deadlines of a body, must be whole as soon as a head must."""
    splitter = Splitter()
    splitter.feed(PREFACE)
    assert splitter.is_within_head, "the connection begins with SETTINGS"
    splitter.feed(frame(4, 0, 0) + left)
    while splitter.next() is not None:
        pass
    assert splitter.is_within_head is is_within


@pytest.mark.parametrize(
    ("flags", "size", "code"),
    [
        (0, 5, ErrorCodes.FRAME_SIZE_ERROR),
        (0, 7, ErrorCodes.FRAME_SIZE_ERROR),
        (1, 6, ErrorCodes.FRAME_SIZE_ERROR),
        (0, 6 * (ENTRIES_MAX + 1), ErrorCodes.ENHANCE_YOUR_CALM),
    ],
    ids=["a part of an entry", "one and a part", "an acknowledgement with one", "too many"],
)
def test_malformed_settings_end_the_connection(flags: int, size: int, code: ErrorCodes) -> None:
    """RFC 9113, 6.5."""
    with pytest.raises(Broken) as caught:
        tamed(Frame(4, flags, 0, size, frame(4, flags, 0, bytes(size))))
    assert caught.value.code is code


def test_a_number_is_without_its_reserved_bit() -> None:
    """RFC 9113, 6.9."""
    assert Frame(8, 0, 1, 4, frame(8, 0, 1, b"\xff\xff\xff\xfe")).number() == 0x7FFF_FFFE
