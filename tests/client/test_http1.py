"""Answers read from bytes, wherever they are cut and whatever they hold."""

import pytest

from topics.client.faults import Broken, NotConnected
from topics.client.http1 import BODY_BYTES_MAX, ResponseParser, check_size, header, request

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n"


def read(*pieces: bytes, ends: bool = False) -> ResponseParser:
    parser = ResponseParser()
    parser.expect()
    for piece in pieces:
        parser.feed(piece)
    if ends:
        parser.end()
    return parser


WHOLE = [
    ("a length", OK, True),
    ("chunks", CHUNKED, True),
    ("chunks and a trailer", CHUNKED[:-2] + b"x: y\r\n\r\n", True),
    ("an interim answer", b"HTTP/1.1 103 Early\r\nlink: x\r\n\r\n" + OK, True),
    ("closing after it", OK.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"), False),
    ("of HTTP/1.0", OK.replace(b"1.1", b"1.0"), False),
    ("and something after it", OK + b"more", False),
    ("and another answer", OK + OK, False),
    (
        "closing, and something after it",
        OK.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n") + b"x",
        False,
    ),
]


@pytest.mark.parametrize("cut", ["whole", "bytes"])
@pytest.mark.parametrize(("text", "is_reusable"), [c[1:] for c in WHOLE], ids=[c[0] for c in WHOLE])
def test_an_answer(text: bytes, is_reusable: bool, cut: str) -> None:
    """Where it is cut makes no difference; only a connection with nothing left over is kept."""
    pieces = [text] if cut == "whole" else [bytes([byte]) for byte in text]

    parser = read(*pieces)

    assert (parser.has_head, parser.is_complete) == (True, True)
    assert (parser.status, b"".join(parser.take())) == (200, b"ok")
    assert parser.is_reusable == is_reusable
    assert b"link" not in dict(parser.headers)


def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    """As in HTTP/1.0: it may have been cut, which its JSON tells. (RFC 9112 §6.3)"""
    parser = read(b"HTTP/1.1 200 OK\r\n\r\no", b"k")
    assert not parser.is_complete

    parser.end()

    assert (b"".join(parser.take()), parser.is_complete) == (b"ok", True)
    assert not parser.is_reusable


@pytest.mark.parametrize("text", [b"", OK[:20], OK[:-1], CHUNKED[:-5]], ids=repr)
def test_an_answer_that_is_cut_off(text: bytes) -> None:
    """The end of a connection is not the end of an answer that announced more."""
    with pytest.raises(Broken, match="closed the connection"):
        read(text, ends=True)


HOSTILE = [
    ("another protocol", b"SSH-2.0-OpenSSH\r\n"),
    ("two lengths", b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n"),
    ("length and chunks", CHUNKED.replace(b"\r\n\r\n", b"\r\ncontent-length: 2\r\n\r\n", 1)),
    ("a chunk of no size", CHUNKED.replace(b"\r\n1\r\n", b"\r\nz\r\n", 1)),
    ("another protocol by agreement", b"HTTP/1.1 101 Go\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"),
    ("a header without end", b"HTTP/1.1 200 OK\r\nx: " + b"x" * 70_000),
    ("headers without end", b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000),
    ("interim answers without end", b"HTTP/1.1 100 Go on\r\n\r\n" * 5000),
]  # fmt: skip


@pytest.mark.parametrize("text", [c[1] for c in HOSTILE], ids=[c[0] for c in HOSTILE])
def test_what_is_no_answer(text: bytes) -> None:
    """A server that speaks something else, or never comes to the point, is an error at once."""
    with pytest.raises(Broken):
        read(*[text[at : at + 1000] for at in range(0, len(text), 1000)])


def test_a_body_without_end() -> None:
    """What is gathered whole is bounded."""
    check_size(BODY_BYTES_MAX)
    with pytest.raises(Broken, match="268435456 bytes"):
        check_size(BODY_BYTES_MAX + 1)


def test_nothing_is_sent_where_the_server_spoke_first() -> None:
    """What comes unasked would be the answer to the next request; that is known not to be sent."""
    parser = ResponseParser()
    parser.feed(OK)

    with pytest.raises(NotConnected, match="before a request"):
        parser.expect()


def test_one_answer_after_the_other() -> None:
    """Nothing of an answer is left for the next."""
    parser = read(OK)
    parser.expect()
    assert (parser.has_head, parser.is_complete, parser.take()) == (False, False, [])

    parser.feed(b"HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n")

    assert (parser.status, dict(parser.headers)) == (404, {b"content-length": b"0"})
    assert parser.is_reusable


def test_a_request() -> None:
    """Method, path, the lines of every request, those of this one, and the body with its length."""
    sent = request("POST", "/v0/t", b"host: h\r\n", {"accept": "a"}, b"{}")

    assert sent == b"POST /v0/t HTTP/1.1\r\nhost: h\r\naccept: a\r\ncontent-length: 2\r\n\r\n{}"
    assert request("GET", "/", b"", {}, None) == b"GET / HTTP/1.1\r\n\r\n"


@pytest.mark.parametrize("value", ["a\r\nb: c", "a\nb", "a\0", "\x7f"], ids=repr)
def test_a_header_cannot_hold_another(value: str) -> None:
    """A cursor or a key with a line end in it is refused, and not sent as a header of its own."""
    with pytest.raises(ValueError, match="cannot stand in the header x"):
        header("x", value)
