"""Answers of another node, in pieces of any size."""

import pytest

from topics.server.cluster.parser import HEAD_BYTES_MAX, AnswerParser, BadAnswer

ANSWER = b"HTTP/1.1 201 Created\r\nX-A: 1\r\nContent-Length: 5\r\n\r\nhello"


def parsed(*pieces: bytes, bodiless: bool = False) -> AnswerParser:
    parser = AnswerParser()
    parser.expect(bodiless=bodiless)
    for piece in pieces:
        parser.feed(piece)
    return parser


def body(parser: AnswerParser) -> bytes:
    return b"".join(iter(parser.take, None))


@pytest.mark.parametrize("size", [1, 2, 7, len(ANSWER)])
def test_an_answer_in_pieces(size: int) -> None:
    parser = parsed(*(ANSWER[at : at + size] for at in range(0, len(ANSWER), size)))

    assert (parser.status, parser.length) == (201, 5)
    assert parser.headers == [(b"x-a", b"1"), (b"content-length", b"5")]
    assert (body(parser), parser.buffered_bytes) == (b"hello", 0)
    assert parser.is_complete
    assert parser.is_reusable


def test_the_answer_to_head_has_no_body() -> None:
    """What it says of a length is about a GET; its connection is not used again."""
    parser = parsed(ANSWER[:-5], bodiless=True)
    assert (parser.is_complete, parser.is_reusable) == (True, False)


def test_a_connection_is_not_used_again_where_more_came() -> None:
    assert not parsed(ANSWER + b"H").is_reusable
    assert not parsed(ANSWER, b"H").is_reusable
    assert not parsed(ANSWER.replace(b"X-A: 1", b"Connection: close")).is_reusable
    closed = parsed(ANSWER)
    closed.end()
    assert not closed.is_reusable


@pytest.mark.parametrize("cut", range(0, len(ANSWER), 9))
def test_an_answer_that_breaks_off_is_none(cut: int) -> None:
    with pytest.raises(BadAnswer):
        parsed(ANSWER[:cut]).end()


@pytest.mark.parametrize(
    "said",
    [
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * HEAD_BYTES_MAX,
        b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
    ],
    ids=["garbage", "an endless head", "another protocol", "no number"],
)
def test_what_is_no_answer_is_told(said: bytes) -> None:
    with pytest.raises(BadAnswer):
        parsed(said)
