"""Heads that came before: which are kept, and that nothing can be told from it but the time."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.server.transport.http1_heads import (
    KEPT_BYTES_MAX,
    KEPT_FIELDS_MAX,
    KEPT_MAX,
    Heads,
    RequestHead,
)
from topics.server.transport.http1_parser import Malformed, Parser
from topics.server.transport.limits import TransportLimits

from .http1_rig import GET, KnownHeads, Rig, get, post

FEED_BYTES = TransportLimits().feed_bytes
HOST = b"Host: a\r\n"


def read(heads: Heads, sent: bytes) -> RequestHead | None:
    parser = Parser(FEED_BYTES, heads)
    try:
        parser.feed(sent, 0)
        return parser.message
    except Malformed:
        return None
    finally:
        parser.close()


# ---------------------------------------------------------------------- which are kept


def test_a_head_is_parsed_once() -> None:
    """The next request has the same message, and with it what the exchange has noted there."""
    heads = Heads()
    first = read(heads, post(b"hello"))
    second = read(heads, post(b"other"))

    assert first is not None
    assert first is second
    assert len(heads) == 1
    assert (first.length, first.wire_bytes) == (5, len(post(b"hello")) - 5)


def keyed(value: bytes, name: bytes = b"Authorization", more: bytes = b"") -> bytes:
    return b"GET /v0/topics HTTP/1.1\r\n" + HOST + name + b": " + value + b"\r\n" + more + b"\r\n"


@pytest.mark.parametrize("name", [b"Authorization", b"authorization"])
def test_a_key_is_not_kept_and_always_that_of_the_request(name: bytes) -> None:
    """Clients with different keys share a head, and what the exchange has noted; each has its own key,
    and the table none. (§0.2)"""
    heads = Heads()
    first = read(heads, keyed(b"Bearer first", name, b"X: y\r\n"))
    again = [read(heads, keyed(b"Bearer %b" % key, name, b"X: y\r\n")) for key in (b"2", b"first")]
    messages = [first, *again]

    assert len(heads) == 1
    assert len({id(message and message.memo) for message in messages}) == 1
    assert [message and message.headers for message in messages] == [
        [(b"host", b"a"), (b"authorization", b"Bearer %b" % key), (b"x", b"y")]
        for key in (b"first", b"2", b"first")
    ]
    assert [message and message.wire_bytes for message in messages] == [
        len(keyed(b"Bearer %b" % key, name, b"X: y\r\n")) for key in (b"first", b"2", b"first")
    ]
    assert not any(b"Bearer" in key or b"Bearer" in repr(kept).encode() for key, kept in heads.kept)


@pytest.mark.parametrize(
    "sent",
    [
        keyed(b"Bearer a", b"AUTHORIZATION"),
        keyed(b"Bearer a", b"Authorization "),
        keyed(b" Bearer a"),
        keyed(b"Bearer  a"),
        keyed(b"Bearer a "),
        keyed(b""),
        keyed(b"Bearer \xe9"),
        keyed(b"Bearer a", more=b"Authorization: Bearer b\r\n"),
        keyed(b"Bearer a", more=b"AUTHORIZATION: Bearer b\r\n"),
        keyed(b"Bearer a", more=b"Cookie: a=b\r\n"),
        keyed(b"a=b", b"Cookie"),
        keyed(b"Basic a", b"Proxy-Authorization"),
        get(b"/v0/watch/w?token=a"),
        get(b"/v0/watch/w?tok%65n=a"),
    ],
)
def test_a_head_that_may_hold_a_key_elsewhere_is_not_kept(sent: bytes) -> None:
    """In other fields, in the query, or spelled in a way that would need more than a search. (§0.2)"""
    heads = Heads()
    read(heads, keyed(b"Bearer a"))
    read(heads, sent)

    assert len(heads) == 1
    assert heads.find(sent, 0) is None


@pytest.mark.parametrize("value", [b"a\nX: y", b"a\rb", b"a\0", b"\x7f", b"a\tb"])
def test_no_other_value_passes_for_a_key_than_a_parser_takes(value: bytes) -> None:
    """A head is known whatever its key is, but a line end or a control character is none."""
    heads = Heads()
    read(heads, keyed(b"Bearer a"))

    assert heads.find(keyed(value), 0) is None


@pytest.mark.parametrize(
    "sent",
    [
        b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\nExpect: 100-continue\r\n\r\n",
        b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\nExpect: x\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + HOST + b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + HOST + b"Upgrade: h2c\r\n\r\n",
        b"CONNECT a:1 HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET / HTTP/1.1\r\n" + HOST + b"X: " + b"y" * KEPT_BYTES_MAX + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + HOST + b"X: y\r\n" * KEPT_FIELDS_MAX + b"\r\n",
        b"GET / HTTP/1.1\r\nX: y\r\n\r\n",
    ],
    ids=[
        "chunked",
        "expect",
        "odd expect",
        "handshake",
        "upgrade",
        "connect",
        "large",
        "many",
        "bad",
    ],
)
def test_what_is_not_plain_is_parsed_each_time(sent: bytes) -> None:
    """Its body, or what comes behind it, is more than so many bytes; or it is no request at all."""
    heads = Heads()
    read(heads, sent)
    assert len(heads) == 0
    assert heads.find(sent, 0) is None


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: a\n\r\n\r\n",
        b"GET / HTTP/1.1\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: y\rz\r\n\r\n",
    ],
)
def test_line_ends_that_can_be_read_in_two_ways_are_not_kept(sent: bytes) -> None:
    """A lone CR or LF ends a line for one parser and not for another (RFC 9112 §2.2): no table may
    decide it, whatever the parser of today says."""
    message = RequestHead("GET", b"/", b"", [], True, 0, True, False, False, is_plain=True)
    heads = Heads()
    heads.keep(sent, message)
    assert len(heads) == 0


def test_a_head_that_came_in_pieces_is_not_kept() -> None:
    """Its bytes are not at hand any more; the next time it may come whole."""
    heads = Heads()
    parser = Parser(FEED_BYTES, heads)
    parser.feed(GET[:9], 0)
    parser.feed(GET[9:], 0)
    assert parser.is_complete
    assert len(heads) == 0


def test_a_small_body_behind_a_known_head_is_taken_at_once() -> None:
    """As many bytes as its head says, and none of the next request."""
    heads = Heads()
    read(heads, post(b"hello"))
    parser = Parser(FEED_BYTES, heads)
    sent = post(b"other") + GET
    at = parser.feed(sent, 0)
    assert parser.whole_body(sent, at, 5) == b"other"
    assert parser.is_complete
    assert parser.body_bytes == 5
    assert parser.feed(sent, at + 5) == 0


@pytest.mark.parametrize(
    ("sent", "is_known", "most_bytes"),
    [(post(b"hello"), False, 5), (post(b"hello")[:-1], True, 5), (post(b"hello"), True, 4)],
    ids=["new head", "not whole", "large"],
)
def test_any_other_body_is_taken_as_it_comes(sent: bytes, is_known: bool, most_bytes: int) -> None:
    """A head that has to be parsed, a body whose rest is still to come, and one that is not small."""
    heads = Heads()
    if is_known:
        read(heads, post(b"hello"))
    parser = Parser(FEED_BYTES, heads)
    at = parser.feed(sent, 0)
    assert parser.whole_body(sent, at, most_bytes) is None
    assert not parser.is_complete
    assert parser.feed(sent, at) == len(sent) - at


def test_the_head_that_came_last_on_a_connection_is_not_looked_up() -> None:
    """A client that repeats itself has its message, whatever others have displaced; one byte more or less
    is another head."""
    heads = Heads(1)
    parser = Parser(FEED_BYTES, heads)
    parser.feed(GET, 0)
    kept = heads.find(GET, 0)
    parser.next_message()
    parser.feed(GET, 0)
    read(heads, post(b"hello"))
    assert heads.find(GET, 0) is None

    parser.next_message()
    assert parser.feed(b"xx" + GET + GET, 2) == len(GET)
    assert parser.message is kept is not None

    parser.next_message()
    other = GET[:-2] + b"X: y\r\n\r\n"
    assert parser.feed(other, 0) == len(other)
    assert parser.message is not kept
    assert parser.message is not None
    assert (b"x", b"y") in parser.message.headers


def test_a_part_of_a_known_head_is_not_found() -> None:
    """Nor one that begins like it."""
    heads = Heads()
    read(heads, GET)
    assert heads.find(GET, 0) is not None
    assert heads.find(b"xx" + GET, 2) is not None
    assert heads.find(GET[:-1], 0) is None
    assert heads.find(GET, 1) is None
    assert heads.find(GET[:-2] + b"X: y\r\n\r\n", 0) is None


def test_heads_are_bounded() -> None:
    """The one that was not asked for longest goes: a client that never repeats itself displaces the
    heads of others only as far as they do not come again."""
    heads = Heads(3)
    paths = [b"/%d" % i for i in range(3)]
    for path in paths:
        read(heads, get(path))
    assert heads.find(get(b"/0"), 0) is not None
    read(heads, get(b"/3"))

    found = [heads.find(get(b"/%d" % i), 0) is not None for i in range(4)]
    assert (len(heads), found) == (3, [True, False, True, True])
    assert KEPT_MAX * KEPT_BYTES_MAX <= 1 << 20


def test_none_are_kept_where_there_may_be_none() -> None:
    heads = Heads(0)
    assert read(heads, GET) is not None
    assert len(heads) == 0


# ---------------------------------------------------------------------- any bytes, any split

LINES = st.sampled_from(
    [
        *(b"GET /echo HTTP/1.1", b"POST /echo HTTP/1.1", b"POST /wait HTTP/1.1"),
        *(b"POST /refuse HTTP/1.1", b"HEAD /echo?x HTTP/1.1", b"POST /echo HTTP/1.0"),
        *(b"CONNECT a:1 HTTP/1.1", b"BREW /echo HTTP/1.1", b"get /echo HTTP/1.1", b"POST /echo"),
        *(b"GET http://b/echo HTTP/1.1", b"GET  /echo HTTP/1.1", b"GET /echo HTTP/2.0"),
    ]
)
FIELDS = st.sampled_from(
    [
        *(b"Host: a", b"Host: b", b"host:a", b"Content-Length: 3", b"Content-Length: 0"),
        *(
            b"Content-Length: 5",
            b"content-length:3 ",
            b"Content-Length: +3",
            b"Content-Length: 3, 3",
        ),
        *(b"Content-Length: 99999999999999999999", b"Content-Length : 3", b"Content-Length: 0x3"),
        *(b"Transfer-Encoding: chunked", b"Transfer-Encoding: x, chunked", b"Expect: 100-continue"),
        *(b"Connection: close", b"Connection: keep-alive", b"Upgrade: h2c", b"Connection: upgrade"),
        *(b"X: y", b"X:\ty ", b" folded", b"X: \x00", b"X y", b": y", b"X: y\rz", b"X: y\nz"),
    ]
)
ENDS = st.sampled_from([b"\r\n"] * 30 + [b"\n", b"\r", b"\r\r\n"])
BODIES = st.sampled_from(
    [b"", b"abc", b"hello", b"3\r\nabc\r\n0\r\n\r\n", b"\r\n", b"GET /x HTTP/1.1\r\n\r\n", b"\0"]
)


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """A request, sound or nearly: mostly with a host, seldom with an odd line end."""
    fields = draw(st.lists(FIELDS, max_size=3))
    if draw(st.integers(0, 9)):
        fields.insert(0, b"Host: a")
    lines = [draw(LINES), *fields, b""]
    return b"".join(line + draw(ENDS) for line in lines) + draw(BODIES)


def cut(whole: bytes, cuts: list[int]) -> list[bytes]:
    ends = sorted({0, len(whole), *(at for at in cuts if at < len(whole))})
    return [whole[begin:end] for begin, end in pairwise(ends)]


def told(heads: Heads, pieces: list[bytes]) -> list[object]:
    """All that a connection does for its client and asks of its exchange, piece by piece."""
    rig = Rig()
    rig.shared.heads = heads
    rig.connection = type(rig.connection)(rig.shared, rig.connection._http1, rig.connection._http2)
    rig.transport.protocol = rig.connection
    rig.connection.connection_made(rig.transport)  # type: ignore[arg-type]
    seen: list[object] = []
    for piece in pieces:
        rig.send(piece)
        seen.append((re.sub(rb"date: [^\r]*", b"", rig.got()), rig.is_finished, rig.shared.busy))
    rig.loop.advance(11)
    seen.append((re.sub(rb"date: [^\r]*", b"", rig.got()), rig.is_finished))
    rig.end_half()
    seen.append((rig.is_finished, rig.exchange.open, rig.exchange.bodies))
    seen.append([(h.method, h.path, h.query, list(h.headers)) for h in rig.exchange.heads])
    return seen


@given(
    st.lists(messages(), min_size=1, max_size=4).map(b"".join),
    st.lists(st.integers(1, 300), max_size=6),
)
def test_any_bytes_have_the_same_answers(whole: bytes, cuts: list[int]) -> None:
    """Wherever the network cuts, whether heads are parsed, came before on this connection, or came
    before on another: pipelining, framing, refusals, deadlines and the end are the same. (§0.1)"""
    pieces = cut(whole, cuts)
    expected = told(Heads(0), pieces)

    assert told(KnownHeads(), pieces) == expected
    used = Heads()
    told(used, [whole])
    assert told(used, pieces) == expected


@given(
    st.lists(messages(), min_size=1, max_size=4).map(b"".join),
    st.lists(st.integers(1, 300), max_size=6),
)
def test_a_small_feed_changes_nothing(whole: bytes, cuts: list[int]) -> None:
    """The parser alone, in steps as small as may be: the same messages, the same bodies."""

    def parsed(heads: Heads | None, feed_bytes: int) -> list[object]:
        parser = Parser(feed_bytes, heads)
        made: list[object] = []
        try:
            for piece in cut(whole, cuts):
                at = 0
                while at < len(piece):
                    at += parser.feed(piece, at)
                    if parser.is_complete:
                        assert parser.message is not None
                        kept = parser.message
                        made.append(
                            (kept.method, kept.path, kept.length, b"".join(parser.take_body()))
                        )
                        if not kept.keeps_alive:
                            return made
                        parser.next_message()
        except Malformed as malformed:
            made.append((malformed.status, parser.method))
        return made

    assert parsed(KnownHeads(), 7) == parsed(None, 7) == parsed(KnownHeads(), FEED_BYTES)
