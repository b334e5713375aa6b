"""The grammar of event streams, whole and cut at every place."""

import re

import pytest

from topics.client import sse
from topics.client.sse import Comment, Event, EventParser, Parsed, Reconnect


def parsed(*pieces: bytes) -> list[Parsed]:
    parser = EventParser()
    return [told for piece in pieces for told in parser.feed(piece)]


OURS = (
    b"retry: 2000\n\n: hb 1748467205000\n\n"
    b'id: eyJqIjoxfQ\nevent: record\ndata: {"topic":"j","records":[{"$seq":1,"data":"\xc3\xa9"}]}\n\n'
    b'id: eyJqIjoyfQ\nevent: caught-up\ndata: {"topic":"j"}\n\n'
    b'event: error\ndata: {"code":503}\n\n'
)
TOLD = [
    Reconnect(2000),
    Comment(b"hb 1748467205000"),
    Event("record", b'{"topic":"j","records":[{"$seq":1,"data":"\xc3\xa9"}]}', "eyJqIjoxfQ"),
    Event("caught-up", b'{"topic":"j"}', "eyJqIjoyfQ"),
    Event("error", b'{"code":503}', "eyJqIjoyfQ"),
]

STRANGE = (
    b"\xef\xbb\xbfdata: a\rdata:b\r\ndata\r\n\r\n"  # a BOM, and three kinds of line ends
    b"id: 1\nevent: x\n\n"  # no data: no event, but the id counts
    b"data:  two\nother: field\nretry: soon\nretry: \xb2\nid: a\0b\n\n"
    b"id\ndata: unnamed\n\n"
    b":\n"
    b"data: unfinished\n"
)
STRANGE_TOLD = [
    Event("message", b"a\nb\n", None),
    Event("message", b" two", "1"),
    Event("message", b"unnamed", ""),
    Comment(b""),
]

CASES = pytest.mark.parametrize(("text", "told"), [(OURS, TOLD), (STRANGE, STRANGE_TOLD)])


@CASES
def test_whole(text: bytes, told: list[Parsed]) -> None:
    """Fields, comments, ids that stay, line ends of three kinds. (§7.5)"""
    assert parsed(text) == told


@CASES
def test_cut_at_every_place(text: bytes, told: list[Parsed]) -> None:
    """Where a connection cuts the stream into two or three pieces makes no difference."""
    for first in range(len(text) + 1):
        assert parsed(text[:first], text[first:]) == told, first
        for second in range(first, len(text) + 1, 7):
            assert parsed(text[:first], text[first:second], text[second:]) == told, (first, second)


@CASES
def test_byte_by_byte(text: bytes, told: list[Parsed]) -> None:
    """Pieces of one byte, and of none."""
    assert parsed(*(text[n : n + 1] for n in range(len(text)))) == told
    assert parsed(*(piece for n in range(len(text)) for piece in (text[n : n + 1], b""))) == told


@CASES
def test_line_ends_are_all_the_same(text: bytes, told: list[Parsed]) -> None:
    """LF, CR and CRLF end a line alike."""
    lines = re.split(b"\r\n|\r|\n", text)

    for end in (b"\n", b"\r", b"\r\n"):
        assert parsed(*(line + end for line in lines[:-1])) == told


def test_an_event_comes_with_its_last_byte() -> None:
    """An event is there as soon as its blank line is, also where that ends with CR."""
    parser = EventParser()

    assert parser.feed(b"data: a\r\r") == [Event("message", b"a", None)]
    assert parser.feed(b"\ndata: b\r\n\r") == [Event("message", b"b", None)]
    assert parser.feed(b"\n") == []


def test_a_stream_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is held back is bounded, be it one line or many; comments and events are not held."""
    monkeypatch.setattr(sse, "EVENT_BYTES_MAX", 100)

    for piece in (b"x" * 30, b"data: " + b"x" * 24 + b"\n"):
        with pytest.raises(ValueError, match="more than 100 bytes"):
            parsed(*[piece] * 4)
    assert len(parsed(*[b": hb 1\n\n"] * 100)) == 100
    assert len(parsed(*[b"data: " + b"x" * 60 + b"\n\n"] * 9)) == 9


def test_a_large_event_is_joined_once() -> None:
    """A long line in many pieces costs its length, not its square: 8 MiB in pieces of 1 KiB."""
    parser = EventParser()
    body = b"x" * (8 << 20)
    told = parser.feed(b"data: ")
    for at in range(0, len(body), 1024):
        told += parser.feed(body[at : at + 1024])

    assert told == []
    assert len(parser._pieces) == 1 + len(body) // 1024
    assert parser.feed(b"\n\n") == [Event("message", body, None)]
