"""Bytes to HTTP/1.1 messages: where they end, what they say, what is malformed (RFC 9112)."""

import gc
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.server.transport.http1_heads import Heads, RequestHead
from topics.server.transport.http1_parser import (
    CHUNKED_BYTES,
    CHUNKS_MAX,
    JOINED_BYTES,
    METHOD_BYTES_MAX,
    SMALL_BYTES,
    Malformed,
    Parser,
)
from topics.server.transport.limits import HEAD_BYTES_MAX, HEADERS_MAX, TransportLimits

FEED_BYTES = TransportLimits().feed_bytes
HOST = b"Host: a\r\n"
KEY = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
VERSION = b"Sec-WebSocket-Version: 13\r\n"
UPGRADE = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"


@dataclass
class Read:
    """What a parser made of one message."""

    message: RequestHead
    body: bytes


def read(*pieces: bytes, feed_bytes: int = FEED_BYTES) -> list[Read]:
    """All whole messages of a connection, as its driver reads them."""
    parser = Parser(feed_bytes)
    made: list[Read] = []
    for piece in pieces:
        at = 0
        while at < len(piece):
            taken = parser.feed(piece, at)
            assert 0 < taken <= len(piece) - at
            at += taken
            if parser.is_complete:
                assert parser.message is not None
                body = b"".join(parser.take_body())
                assert parser.body_bytes == len(body)
                made.append(Read(parser.message, body))
                parser.next_message()
    parser.close()
    return made


def one(sent: bytes) -> RequestHead:
    (made,) = read(sent)
    return made.message


# ---------------------------------------------------------------------- any split


def text(alphabet: str, most: int = 12) -> st.SearchStrategy[bytes]:
    return st.text(alphabet, min_size=1, max_size=most).map(str.encode)


NAMES = text("abXY-_!09").map(lambda name: b"x" + name)
VALUES = st.one_of(st.just(b""), text("aB9,;=/"), st.just(b"inner \t space"))
METHODS = st.sampled_from([b"GET", b"POST", b"PUT", b"DELETE", b"PATCH", b"QUERY", b"M-SEARCH"])


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """A valid request: any method, with headers, without a body, with a length or in chunks; it may
    ask for an upgrade, which is ignored."""
    head = b"%b /%b HTTP/1.1\r\n" % (draw(METHODS), draw(text("ab/%2F?&=x")))
    fields = draw(st.lists(st.tuples(NAMES, VALUES), max_size=4))
    lines = [b"%b: %b\r\n" % each for each in fields]
    lines.insert(draw(st.integers(0, len(lines))), HOST)
    if draw(st.booleans()):
        lines.append(b"Connection: Upgrade\r\nUpgrade: h2c\r\n")
    kind = draw(st.sampled_from(["none", "length", "chunks"]))
    if kind == "none":
        return head + b"".join(lines) + b"\r\n"
    pieces = draw(st.lists(st.binary(min_size=1, max_size=30), max_size=4))
    if kind == "length":
        body = b"".join(pieces)
        return head + b"".join(lines) + b"Content-Length: %d\r\n\r\n" % len(body) + body
    chunks = b"".join(b"%x;x=y\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    trailer = draw(st.sampled_from([b"", b"x-sum: 1\r\n"]))
    head += b"".join(lines) + b"Transfer-Encoding: chunked\r\n\r\n"
    return head + chunks + b"0\r\n" + trailer + b"\r\n"


@given(
    sent=st.lists(requests(), min_size=1, max_size=3),
    cuts=st.lists(st.integers(0, 600), max_size=20),
    feed_bytes=st.sampled_from([1, 2, 5, 64, FEED_BYTES]),
)
def test_any_split_gives_the_same_messages(
    sent: list[bytes], cuts: list[int], feed_bytes: int
) -> None:
    """Wherever the network cuts, and however little is parsed at once: each message is read as if
    it had come alone and whole, and its body is not taken for the next."""
    alone = [made for each in sent for made in read(each)]
    assert len(alone) == len(sent)
    assert all(made.message.length in (None, len(made.body)) for made in alone)

    whole = b"".join(sent)
    ends = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    pieces = [whole[begin:end] for begin, end in pairwise(ends)]

    assert read(*pieces, feed_bytes=feed_bytes) == alone


def test_nothing_behind_a_message_is_parsed() -> None:
    """What follows is the next message's, and may be no HTTP at all."""
    parser = Parser(FEED_BYTES)
    whole = b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 2\r\n\r\nab"
    sent = whole + b"\0nonsense"
    at = 0
    while not parser.is_complete:
        at += parser.feed(sent, at)
    assert at == len(whole)
    assert parser.feed(sent, at) == 0

    parser.next_message()
    with pytest.raises(Malformed):
        parser.feed(sent, at)


def holds(parser: Parser, text: bytes) -> bool:
    """Whether anything that the parser refers to has the text."""
    seen: set[int] = set()
    waiting: list[object] = [*vars(parser).values()]
    while waiting:
        each = waiting.pop()
        if isinstance(each, bytes | bytearray) and text in each:
            return True
        if id(each) not in seen and not callable(each):
            seen.add(id(each))
            waiting += gc.get_referents(each)
    return False


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("size", [0, 2])
def test_a_connection_that_waits_keeps_no_key(is_known: bool, size: int) -> None:
    """Of the last request, which was parsed or found; nor does one that goes on for long. (§0.2)"""
    parser = Parser(FEED_BYTES, Heads())
    head = b"POST / HTTP/1.1\r\n" + HOST + b"Authorization: secret\r\nContent-Length: %d\r\n\r\n"
    sent = head % size + b"a" * size
    for _ in range(1 + is_known):
        assert not holds(parser, b"secret")
        at = parser.feed(sent, 0)
        assert holds(parser, b"secret")
        while not parser.is_complete:
            at += parser.feed(sent, at)
        parser.next_message()
    assert not holds(parser, b"secret")

    parser.feed(sent, 0)
    parser.forget_head()
    assert not holds(parser, b"secret")


def test_an_empty_line_before_a_message_is_skipped() -> None:
    """Some clients send one behind a body; the message has not begun by then (RFC 9112 §2.2)."""
    parser = Parser(FEED_BYTES)
    assert parser.feed(b"\r\n\r\nGET", 0) == 4
    assert not parser.is_begun
    assert parser.feed(b"GET", 0) == 3
    assert parser.is_begun


# ---------------------------------------------------------------------- what a head says


def test_a_head_is_given_as_it_came() -> None:
    """Path and query raw; names in lower case, values without the whitespace around them."""
    made = one(b"GET /a%2Fb?x=1?y HTTP/1.1\r\nHOST: a\r\nX-Y: \t z \t\r\n\r\n")
    assert (made.method, made.path, made.query) == ("GET", b"/a%2Fb", b"x=1?y")
    assert list(made.headers) == [(b"host", b"a"), (b"x-y", b"z")]


@pytest.mark.parametrize(
    ("version", "lines", "keeps_alive", "expects_leave"),
    [
        (b"1.1", b"", True, False),
        (b"1.1", b"Connection: x\r\nConnection: Close\r\n", False, False),
        (b"1.1", b"Expect: 100-Continue\r\n", True, True),
        (b"1.1", b"Expect: 200-ok\r\n", True, False),
        (b"1.0", b"", False, False),
        (b"1.0", b"Connection: keep-alive\r\n", False, False),
        (b"1.0", b"Expect: 100-continue\r\n", False, False),
    ],
)
def test_what_a_head_says_of_its_connection(
    version: bytes, lines: bytes, keeps_alive: bool, expects_leave: bool
) -> None:
    """An HTTP/1.0 connection never goes on, and its client knows no 100 (RFC 9110 §10.1.1)."""
    made = one(b"GET / HTTP/%b\r\n" % version + HOST + lines + b"\r\n")
    assert made.is_http11 is (version == b"1.1")
    assert (made.keeps_alive, made.expects_leave) == (keeps_alive, expects_leave)


@pytest.mark.parametrize(
    ("lines", "opens"),
    [
        (UPGRADE + KEY + VERSION, True),
        (UPGRADE.replace(b"websocket", b"WebSocket") + KEY + VERSION, True),
        (UPGRADE.replace(b"Upgrade\r", b"keep-alive, Upgrade\r", 1) + KEY + VERSION, True),
        (UPGRADE + VERSION, False),
        (UPGRADE + KEY, False),
        (UPGRADE + KEY + VERSION.replace(b"13", b"8"), False),
        (UPGRADE + KEY.replace(b"dGhl", b"") + VERSION, False),
        (UPGRADE + KEY.replace(b"dGhl", b"%%%%") + VERSION, False),
        (UPGRADE.replace(b"websocket", b"h2c") + KEY + VERSION, False),
        (b"Upgrade: websocket\r\n" + KEY + VERSION, False),
    ],
)  # fmt: skip
def test_which_handshake_opens_a_websocket(lines: bytes, opens: bool) -> None:
    """RFC 6455 §4.2.1; any other upgrade is a request like others, and so is what follows it."""
    get = b"GET / HTTP/1.1\r\n" + HOST + lines + b"\r\n"
    assert one(get).opens_websocket is opens
    assert not one(get.replace(b"GET", b"POST")).opens_websocket
    assert not one(get.replace(b"1.1", b"1.0")).opens_websocket


# ---------------------------------------------------------------------- what is malformed

GET = b"GET / HTTP/1.1\r\n"
POST = b"POST / HTTP/1.1\r\n" + HOST
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"

MALFORMED = {
    "no method": b" / HTTP/1.1\r\n",
    "a method that is no token": b"G(T / HTTP/1.1\r\n",
    "a method without end": b"G" * (METHOD_BYTES_MAX + 1),
    "a long method": b"G" * (METHOD_BYTES_MAX + 1) + b" / HTTP/1.1\r\n",
    "no version": b"GET /\r\n" + HOST + b"\r\n",
    "another version": b"GET / HTTP/2.0\r\n" + HOST + b"\r\n",
    "a space in the target": b"GET /a b HTTP/1.1\r\n" + HOST + b"\r\n",
    "bare line feeds": b"GET / HTTP/1.1\nHost: a\n\n",
    "no host": GET + b"\r\n",
    "two hosts": GET + HOST + HOST + b"\r\n",
    "an empty host in the target": b"GET http:///x HTTP/1.1\r\n" + HOST + b"\r\n",
    "a user in the target": b"GET http://u@a/x HTTP/1.1\r\n" + HOST + b"\r\n",
    "a name with a space": GET + HOST + b"X : y\r\n\r\n",
    "no name": GET + HOST + b": y\r\n\r\n",
    "no colon": GET + HOST + b"x\r\n\r\n",
    "a folded line": GET + HOST + b"X: y\r\n z\r\n\r\n",
    "NUL in a value": GET + HOST + b"X: y\0z\r\n\r\n",
    "two lengths": POST + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\n",
    "a length with a sign": POST + b"Content-Length: +1\r\n\r\n",
    "a negative length": POST + b"Content-Length: -1\r\n\r\n",
    "a list of lengths": POST + b"Content-Length: 1, 1\r\n\r\n",
    "a length beyond 64 bits": POST + b"Content-Length: 99999999999999999999\r\n\r\n",
    "a long length": POST + b"Content-Length: %020d\r\n\r\n" % 1,
    "a length and chunks": CHUNKED[:-2] + b"Content-Length: 1\r\n\r\n",
    "chunks and a length": POST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    "another coding": POST + b"Transfer-Encoding: gzip\r\n\r\n",
    "two codings": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
    "chunked twice": CHUNKED[:-2] + b"Transfer-Encoding: chunked\r\n\r\n",
    "chunks of HTTP/1.0": CHUNKED.replace(b"1.1", b"1.0"),
    "no size of a chunk": CHUNKED + b"x\r\n",
    "a chunk of another size": CHUNKED + b"1\r\nab\r\n",
    "a chunk beyond 64 bits": CHUNKED + b"fffffffffffffffff\r\n",
}


@pytest.mark.parametrize("kind", MALFORMED)
@pytest.mark.parametrize("size", [1, 3, 1 << 20])
def test_what_is_malformed_is_refused(kind: str, size: int) -> None:
    """Also what two servers could read differently (RFC 9112 §11.2), however it is cut."""
    sent = MALFORMED[kind]
    with pytest.raises(Malformed) as caught:
        read(*(sent[at : at + size] for at in range(0, len(sent), size)))
    assert caught.value.status == 400


@pytest.mark.parametrize("size", [7, 1 << 20])
@pytest.mark.parametrize(
    ("lines", "fits"),
    [
        (b"x:" + b"y" * (HEAD_BYTES_MAX - 7) + b"\r\n", True),
        (b"x:" + b"y" * (HEAD_BYTES_MAX - 6) + b"\r\n", False),
        (b"x:\r\n" * (HEADERS_MAX - 1), True),
        (b"x:\r\n" * HEADERS_MAX, False),
    ],
    ids=["largest", "too large", "most", "too many"],
)
def test_the_bounds_of_a_head_are_exact(lines: bytes, fits: bool, size: int) -> None:
    """Target, names and values count, line ends and colons do not: here `/`, `hosta` and `x`."""
    sent = GET + HOST + lines + b"\r\n"
    pieces = [sent[at : at + size] for at in range(0, len(sent), size)]
    if fits:
        assert len(read(*pieces)) == 1
    else:
        with pytest.raises(Malformed) as caught:
            read(*pieces)
        assert caught.value.status == 431


def test_the_largest_head_fits_on_the_wire() -> None:
    """As many headers as there may be, of all the bytes that there may be, each as it is usually
    written, and the longest method: what does not count refuses nothing."""
    values = HEAD_BYTES_MAX - len(b"/" + b"hosta") - (HEADERS_MAX - 1)
    size, more = divmod(values, HEADERS_MAX - 1)
    lines = [b"x: %b\r\n" % (b"y" * (size + (i < more))) for i in range(HEADERS_MAX - 1)]
    sent = b"M" * METHOD_BYTES_MAX + b" / HTTP/1.1\r\n" + HOST + b"".join(lines) + b"\r\n"
    assert len(one(sent).headers) == HEADERS_MAX


@pytest.mark.parametrize("begin", [b"GET /", GET + HOST + b"x: ", GET + HOST + b"x"])
def test_a_head_without_end_is_cut_off(begin: bytes) -> None:
    """In the target, a value or a name: no more than about a head's bound is ever given to the
    parser, which bounds nothing itself."""
    parser = Parser(FEED_BYTES)
    parser.feed(begin, 0)
    given_bytes = 0

    def give() -> None:
        nonlocal given_bytes
        while given_bytes < 10 * HEAD_BYTES_MAX:
            given_bytes += parser.feed(b"y" * 1000, 0)

    with pytest.raises(Malformed) as caught:
        give()
    assert caught.value.status == 431
    assert given_bytes < HEAD_BYTES_MAX + 2000


def test_trailers_are_bounded_as_a_head_is() -> None:
    """They mean nothing here, and are no way around the bound."""
    line = b"a: b\r\n"
    few = CHUNKED + b"0\r\n" + line * 1000 + b"\r\n"
    assert len(read(few)) == 1
    with pytest.raises(Malformed):
        read(CHUNKED + b"0\r\n" + line * HEAD_BYTES_MAX)


# ---------------------------------------------------------------------- bodies


def test_small_pieces_of_a_body_are_joined() -> None:
    """A body in chunks of a byte is no million objects, and large pieces are not copied into it."""
    parser = Parser(FEED_BYTES)
    large = b"l" * SMALL_BYTES
    sent = CHUNKED + b"1\r\nx\r\n" * (2 * JOINED_BYTES)
    sent += b"%x\r\n%b\r\n" % (len(large), large) + b"0\r\n\r\n"
    at = 0
    while not parser.is_complete:
        at += parser.feed(sent, at)
    pieces = parser.take_body()
    assert b"".join(pieces) == b"x" * (2 * JOINED_BYTES) + large
    assert len(pieces) < 10
    assert parser.take_body() == []


def test_tiny_chunks_are_read_in_shorter_steps() -> None:
    """Each costs a call, whatever it holds: after a step with many the next ones are shorter, and a
    body in large chunks is read in whole steps again."""
    parser = Parser(FEED_BYTES)
    head = b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
    assert parser.feed(head, 0) == len(head)

    tiny = b"1\r\nx\r\n" * 10_000
    at, steps = 0, []
    while at < len(tiny):
        before = parser.body_bytes
        at += parser.feed(tiny, at)
        steps.append(parser.body_bytes - before)
    assert max(steps) <= CHUNKED_BYTES // 6 + 1
    assert max(steps[3:]) <= CHUNKS_MAX

    large = (b"%x\r\n" % 50_000 + b"x" * 50_000 + b"\r\n") * 2
    at = 0
    taken = 0
    while at < len(large):
        step = parser.feed(large, at)
        taken, at = max(taken, step), at + step
    assert taken == FEED_BYTES


def test_trailers_are_read_in_shorter_steps() -> None:
    """Each costs a call, as a chunk does."""
    parser = Parser(FEED_BYTES)
    sent = CHUNKED + b"1\r\nx\r\n0\r\n" + b"a: b\r\n" * 2000
    at, steps = 0, []
    while at < len(sent):
        steps.append(parser.feed(sent, at))
        at += steps[-1]
    assert max(steps[1:]) <= CHUNKED_BYTES
    assert max(steps[3:]) <= CHUNKS_MAX * len(b"a: b\r\n")


class Counting(Parser):
    """A parser that counts the headers that it is told of."""

    told = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        self.told += 1
        super().on_header(name, value)


def test_a_head_is_refused_at_its_first_header_too_many() -> None:
    """Not behind all that one step holds: each costs a call."""
    parser = Counting(FEED_BYTES)
    with pytest.raises(Malformed) as caught:
        parser.feed(GET + HOST + b"a: b\r\n" * (FEED_BYTES // 6), 0)
    assert caught.value.status == 431
    assert parser.told == HEADERS_MAX + 1


class WithoutMemory(Parser):
    """A parser that finds no memory for a body."""

    def on_body(self, body: bytes) -> None:
        raise MemoryError


def test_a_failure_of_the_server_is_no_fault_of_the_request() -> None:
    """What fails while a sound request is read is not refused as malformed: a client would take that
    for its own error, and never repeat the request. (F28)"""
    data = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"
    parser = WithoutMemory(FEED_BYTES)
    end_of_head = parser.feed(data, 0)

    with pytest.raises(MemoryError):
        parser.feed(data, end_of_head)
