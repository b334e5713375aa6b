"""HTTP/1.1 by the byte: framing, order, bodies, deadlines, memory, streams, the end (§0.1, §0.6)."""

import json
from typing import Any

import msgspec
import pytest

from topics.server.http.interface import Answer
from topics.server.transport.http1_heads import Heads
from topics.server.transport.limits import HEAD_BYTES_MAX, Timeouts, TransportLimits

from .http1_rig import CHUNKED, GET, POST, KnownHeads, Rig, get, post
from .http2_rig import Rig as Http2Rig
from .http2_rig import ok

BAD = (400, "invalid_request")


@pytest.fixture(params=["parsed", "known"], autouse=True)
def heads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a head has to be parsed or came before makes no difference to any of these."""
    made = KnownHeads if request.param == "known" else lambda: Heads(0)
    monkeypatch.setattr(Rig, "heads", made)


# ---------------------------------------------------------------------- requests


def test_a_request_is_answered_in_one_write() -> None:
    """Without a task, a queue or a turn of the loop."""
    rig = Rig()
    rig.send(get(b"/refuse"))  # by then the connection has proved light
    rig.loop.advance(1.0)
    rig.got()

    rig.connection.data_received(post(b"hello"))

    status, headers, body = rig.answer()
    assert (status, body) == (200, b"hello")
    assert set(headers) == {"content-length", "date"}
    assert rig.exchange.open == 0


def test_the_exchange_sees_the_head_as_it_came() -> None:
    """Path and query raw, names in lower case, the client's address."""
    rig = Rig()
    rig.send(b"GET /a%2Fb?x=1&y HTTP/1.1\r\nHOST: a\r\nX-Y:  z \t\r\n\r\n")

    (head,) = rig.exchange.heads
    assert (head.method, head.path, head.query) == ("GET", b"/a%2Fb", b"x=1&y")
    assert list(head.headers) == [(b"host", b"a"), (b"x-y", b"z")]
    assert head.client == "192.0.2.7"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_bytes_may_come_in_any_pieces(size: int) -> None:
    """Nothing depends on where the network cuts."""
    sent = (
        post(b"one") + CHUNKED + b"3;x=y\r\ntwo\r\n0\r\nz: 1\r\n\r\n" + get(b"/echo", b"HEAD") + GET
    )
    rig = Rig()
    rig.send(*[sent[at : at + size] for at in range(0, len(sent), size)])

    assert rig.exchange.bodies == [b"one", b"two", b"", b""]
    assert rig.got().count(b"HTTP/1.1 200 OK") == 4


def test_pipelined_requests_are_answered_in_order() -> None:
    """What waits is answered before what came behind it, which is not looked at before."""
    rig = Rig()
    rig.send(post(b"1") + get(b"/wait") + post(b"3") + get(b"/wait") + post(b"5"))
    assert rig.answer()[2] == b"1"
    assert len(rig.exchange.heads) == 2
    assert rig.got() == b""

    rig.exchange.waits[0].deliver(ok(b"2"))  # type: ignore[misc]
    rig.loop.rest()
    assert [rig.answer()[2] for _ in range(2)] == [b"2", b"3"]
    rig.exchange.waits[1].deliver(ok(b"4"))  # type: ignore[misc]
    rig.loop.rest()
    assert [rig.answer()[2] for _ in range(2)] == [b"4", b"5"]
    assert rig.exchange.open == 0


def test_a_head_request_has_no_body() -> None:
    """And what comes behind it is read. (§1.2)"""
    rig = Rig()
    rig.send(get(b"/echo", b"HEAD") + post(b"x"))
    assert rig.got().endswith(b"\r\n\r\nx")


@pytest.mark.parametrize("method", ["BREW", "QUERY", "M-SEARCH"])
def test_which_methods_there_are_is_the_exchange_s(method: str) -> None:
    """httptools knows a list of its own; here any token comes through."""
    rig = Rig()
    rig.send(get(b"/echo", method.encode()), GET)
    assert [head.method for head in rig.exchange.heads] == [method, "GET"]


@pytest.mark.parametrize(
    ("version", "headers", "stays"),
    [
        (b"1.1", b"", True),
        (b"1.1", b"Connection: Close\r\n", False),
        (b"1.1", b"Connection: x, close\r\n", False),
        (b"1.0", b"", False),
        (b"1.0", b"Connection: keep-alive\r\n", False),
    ],
)
def test_whether_a_connection_goes_on(version: bytes, headers: bytes, stays: bool) -> None:
    """Unless its client asks for the end, and never on HTTP/1.0."""
    rig = Rig()
    rig.send(b"GET /echo HTTP/%b\r\nHost: a\r\n%b\r\n" % (version, headers))

    assert ("connection" in rig.answer()[1]) is not stays
    assert rig.is_finished is not stays


@pytest.mark.parametrize(
    ("target", "host", "path", "query"),
    [
        (b"http://b:1/echo", b"b:1", b"/echo", b""),
        (b"HTTP://b/echo?x=1", b"b", b"/echo", b"x=1"),
        (b"https://[::1]:1/a//b", b"[::1]:1", b"/a//b", b""),
        (b"http://b", b"b", b"/", b""),
        (b"http://b?x", b"b", b"/", b"x"),
        (b"//b/echo", b"a", b"//b/echo", b""),
    ],
)
def test_a_target_may_be_in_absolute_form(
    target: bytes, host: bytes, path: bytes, query: bytes
) -> None:
    """Any server must take it, and the host that it names is the one that is asked, whatever the
    Host says (RFC 9112 §3.2.2)."""
    rig = Rig()
    rig.send(get(target))
    (head,) = rig.exchange.heads
    assert (head.path, head.query) == (path, query)
    assert [value for name, value in head.headers if name == b"host"] == [host]


def test_an_upgrade_that_is_not_known_is_ignored() -> None:
    """Prior knowledge only: an upgrade would smuggle requests past a proxy's rules.  So would a body
    that is taken for the next request."""
    upgrade = b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk\r\n"
    rig = Rig()
    rig.send(POST + upgrade + b"Content-Length: 2\r\n\r\nab" + GET[:-2] + upgrade + b"\r\n" + GET)
    rig.send(CHUNKED[:-2] + upgrade + b"\r\n" + b"2\r\ncd\r\n0\r\n\r\n" + GET)
    assert [rig.answer()[0] for _ in range(5)] == [200] * 5
    assert rig.exchange.bodies == [b"ab", b"", b"", b"cd", b""]


# ---------------------------------------------------------------------- what is not HTTP


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
        b"G" * 40,
        b" GET / HTTP/1.1\r\n\r\n",
        b"GET /echo HTTP/1.1\r\n\r\n",
        b"GET /echo HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        b"GET /echo HTTP/7.3\r\nHost: a\r\n\r\n",
        b"GET /echo HTTP/2.0\r\nHost: a\r\n\r\n",
        b"GET /echo HTTP/1.1\nHost: a\n\n",
        b"GET /echo HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n",
        b"GET /echo HTTP/1.1\r\nHost: a\r\nX : a\r\n\r\n",
        b"GET /echo HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n",
        b"GET /caf\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET http:///echo HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET http://me@b/echo HTTP/1.1\r\nHost: a\r\n\r\n",
        b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
        POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
        POST + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\n",
        POST + b"Content-Length: -1\r\n\r\n",
        POST + b"Content-Length: +1\r\n\r\n",
        POST + b"Content-Length: 1, 1\r\n\r\n",
        POST + b"Content-Length: 99999999999999999999999\r\n\r\n",
        POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        POST + b"Transfer-Encoding: identity\r\n\r\n",
        b"POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        CHUNKED + b"x\r\n",
        CHUNKED + b"1\nx\n0\n\n",
        CHUNKED + b"1\r\nxy\r\n0\r\n\r\n",
        CHUNKED + b"ffffffffffffffffff\r\n",
    ],
)
@pytest.mark.parametrize("is_whole", [True, False], ids=["whole", "by bytes"])
def test_what_is_not_http_is_refused_in_the_envelope(sent: bytes, is_whole: bool) -> None:
    """Also what two servers could read differently (request smuggling); the connection ends. (§0.5)"""
    rig = Rig()
    rig.send(*([sent] if is_whole else [bytes([byte]) for byte in sent]))

    assert rig.code() == BAD
    assert rig.is_finished
    assert rig.exchange.bodies == []
    assert rig.exchange.open == 0


def test_what_came_before_it_is_answered() -> None:
    """A pipelined request is not lost for what comes behind it."""
    rig = Rig()
    rig.send(post(b"1") + b"nonsense\r\n\r\n" + GET)
    assert rig.answer()[2] == b"1"
    assert rig.code() == BAD
    assert rig.got() == b""


@pytest.mark.parametrize(
    "sent",
    [
        GET[:-2] + b"X: " + b"y" * 2 * HEAD_BYTES_MAX,
        GET[:-2] + b"X: y\r\n" * 100 + b"\r\n",
        GET[:-2] + b"a:\r\n" * 20_000,
        b"GET /" + b"x" * 2 * HEAD_BYTES_MAX,
        GET[:-2] + b"X: " + b"y" * (HEAD_BYTES_MAX - 10) + b"\r\n\r\n",
    ],
    ids=["endless", "many", "a flood", "a long target", "just too large"],
)
def test_a_head_is_bounded(sent: bytes) -> None:
    """32 KiB and 100 headers, whether it ends or not. (§0.6)"""
    rig = Rig()
    rig.send(sent)
    assert rig.code() == (431, "invalid_request")
    assert rig.is_finished


def test_a_head_within_the_bounds_is_read() -> None:
    """The largest one."""
    rig = Rig()
    rig.send(GET[:-2] + b"X: " + b"y" * (HEAD_BYTES_MAX - 12) + b"\r\n\r\n")
    assert rig.answer()[0] == 200


@pytest.mark.parametrize(
    "sent", [b"HEAD /echo HTTP/9\r\n\r\n", get(b"/", b"HEAD")[:-2] + b"x\r\n\r\n"]
)
def test_a_head_request_that_cannot_be_read_has_no_body_either(sent: bytes) -> None:
    """Its client would take the body for the next answer."""
    rig = Rig()
    rig.send(sent)
    assert rig.got().endswith(b"\r\n\r\n")


def test_trailers_are_bounded() -> None:
    """They mean nothing here, and are no way around the bound of a head."""
    rig = Rig()
    rig.send(CHUNKED + b"0\r\n" + b"a: b\r\n" * 20_000)
    status, _, body = rig.answer()
    assert status == 431
    assert b"callback" not in body


# ---------------------------------------------------------------------- bodies


def test_small_chunks_are_joined() -> None:
    """A megabyte in chunks of a byte is no million objects."""
    rig = Rig()
    finished: list[list[bytes]] = []
    begin = rig.exchange.begin

    def begun(head: Any) -> Any:
        admitted = begin(head)
        finish = admitted.finish  # type: ignore[union-attr]
        admitted.finish = lambda pieces: (finished.append(pieces), finish(pieces))[1]  # type: ignore
        return admitted

    rig.exchange.begin = begun  # type: ignore[method-assign]
    rig.send(CHUNKED + b"1\r\nx\r\n" * 100_000 + b"0\r\n\r\n")
    assert rig.answer()[2] == b"x" * 100_000
    assert len(finished[0]) < 5


@pytest.mark.parametrize("is_declared", [True, False])
def test_a_body_that_is_too_large_is_refused(is_declared: bool) -> None:
    """By its length before it comes, or where it passes the limit. (§0.6)"""
    rig = Rig()
    size = rig.exchange.max_body_bytes + 1
    if is_declared:
        rig.send(POST + b"Content-Length: %d\r\n\r\n" % size)
    else:
        rig.send(CHUNKED, b"%x\r\n" % (2 * size), *[b"x" * 10_000] * (size // 10_000 + 1))
    assert rig.code() == (413, "payload_too_large")
    assert rig.is_finished
    assert rig.shared.bodies.held_bytes == 0


def test_leave_to_send_is_given_once() -> None:
    """`100 Continue` to a client that waits for it, not to one that does not, nor before a refusal
    that the head alone decides (RFC 9110 §10.1.1)."""
    expect = b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n"
    rig = Rig()
    rig.send(POST + expect)
    assert rig.got() == b"HTTP/1.1 100 Continue\r\n\r\n"
    rig.send(b"ab")
    assert rig.answer()[2] == b"ab"
    rig.send(POST + expect + b"cd")
    assert rig.answer()[2] == b"cd"

    rig.send(POST.replace(b"/echo", b"/refuse") + expect)
    assert rig.code() == (404, "not_found")
    assert rig.is_finished


def test_a_refused_request_with_a_small_body_keeps_its_connection() -> None:
    """The body is read and forgotten behind the answer; nobody waits for it."""
    rig = Rig()
    rig.send(post(b"", b"/refuse").replace(b"Length: 0", b"Length: 100"))
    assert rig.code() == (404, "not_found")
    rig.send(b"x" * 100 + GET)
    assert rig.answer()[0] == 200
    assert rig.exchange.bodies == [b""]


def test_a_refused_request_with_a_large_body_ends_its_connection() -> None:
    """The answer says so, and what still comes is dropped until the client has read it."""
    rig = Rig()
    rig.send(POST.replace(b"/echo", b"/refuse") + b"Content-Length: 1000000\r\n\r\n")
    assert rig.answer()[1]["connection"] == "close"
    assert rig.is_finished
    rig.send(b"x" * 100_000)
    assert not rig.transport.is_closing()
    rig.end_half()
    assert rig.transport.is_closed


def test_all_bodies_share_one_budget() -> None:
    """Beyond it a body is refused with 429, and the others are not. (§0.6)"""
    first = Rig(limits=TransportLimits(bodies_bytes=1000, body_free_bytes=0))
    second = Rig(shared=first.shared)
    first.send(POST + b"Content-Length: 900\r\n\r\n" + b"x" * 600)
    second.send(POST + b"Content-Length: 900\r\n\r\n" + b"y" * 600)
    assert second.code() == (429, "throttled")
    first.send(b"x" * 300)
    assert first.answer()[2] == b"x" * 900
    assert first.shared.bodies.held_bytes == 0


def test_a_body_that_holds_most_gives_way_to_another() -> None:
    """A body that is never ended does not keep others out: it is refused for them. (§11)"""
    first = Rig(limits=TransportLimits(bodies_bytes=1000, body_free_bytes=0))
    second = Rig(shared=first.shared)
    first.send(POST + b"Content-Length: 1000\r\n\r\n" + b"x" * 999)
    second.send(post(b"y" * 200))

    assert second.answer()[2] == b"y" * 200
    assert first.code() == (429, "throttled")
    assert first.is_finished
    assert first.shared.bodies.held_bytes == 0


def test_a_body_of_http2_gives_way_alike() -> None:
    """Its stream is refused; the connection goes on. (§11)"""
    first = Http2Rig(limits=TransportLimits(bodies_bytes=20_000, body_free_bytes=0))
    stream = first.ask(end=False, body=b"x" * 16_000)
    first.exchanged()
    second = Rig(shared=first.shared)
    second.send(post(b"y" * 10_000))
    first.exchanged()

    assert second.answer()[2] == b"y" * 10_000
    assert first.status(stream) == 429
    other = first.ask(end=True)
    first.exchanged()
    assert first.status(other) == 200
    assert first.shared.bodies.held_bytes == 0


# ---------------------------------------------------------------------- time


@pytest.mark.parametrize("begin", [b"G", b"PRI * HT", b"GET /echo HTTP/1.1\r\nHo"])
def test_a_slow_head_is_cut_off(begin: bytes) -> None:
    """It must be whole in 15 s from its first byte, however steadily it comes."""
    rig = Rig(timeouts=Timeouts(head_s=15))
    rig.send(begin)
    rig.loop.advance(14)
    assert not rig.is_finished
    rig.loop.advance(2)
    assert rig.is_finished


def test_an_empty_line_is_no_head() -> None:
    """A client may send one behind a body; a thousand of them keep nothing alive."""
    rig = Rig(timeouts=Timeouts(idle_s=75))
    rig.send(b"\r\n" * 1000 + GET)
    assert rig.answer()[0] == 200
    for _ in range(80):
        rig.send(b"\r\n")
        rig.loop.advance(1)
    assert rig.is_finished


@pytest.mark.parametrize(
    ("piece", "every_s", "after_s"),
    [(b"", 1, 10), (b"x", 1, 11), (b"x" * 1200, 1, 120)],
    ids=["nothing", "too slow", "for ever"],
)
def test_a_body_keeps_a_pace(piece: bytes, every_s: float, after_s: float) -> None:
    """10 s to the first byte, then 1 KiB/s on average, and 120 s in all: 400 `body_timeout`. (§0.6)"""
    rig = Rig()
    rig.send(POST + b"Content-Length: 1000000\r\n\r\n")
    passed_s = 0.0
    while not rig.transport.written:
        if piece:
            rig.send(piece)
        rig.loop.advance(every_s)
        passed_s += every_s
        assert passed_s < 200
    _, _, body = rig.answer()
    assert json.loads(body)["error"]["detail"]["reason"] == "body_timeout"
    assert abs(passed_s - after_s) <= 1
    assert rig.is_finished
    assert rig.exchange.open == 0


def test_a_wait_has_no_deadline() -> None:
    """The exchange decides how long it is."""
    rig = Rig()
    rig.send(get(b"/wait"))
    rig.loop.advance(10_000)
    rig.exchange.waits[0].deliver(ok(b"at last"))  # type: ignore[misc]
    assert rig.answer()[2] == b"at last"


# ---------------------------------------------------------------------- clients that leave


def test_a_wait_ends_with_its_client() -> None:
    """What it waited for is given up, and the request closed. (§3)"""
    rig = Rig()
    rig.send(get(b"/wait") + GET)
    rig.lose()
    assert rig.exchange.waits[0].is_cancelled
    assert rig.exchange.open == 0
    assert (rig.shared.busy, rig.shared.connections) == (0, set())
    rig.exchange.waits[0].deliver(ok(b"late"))  # type: ignore[misc]
    assert rig.got() == b""


def test_a_client_that_closes_its_half_gets_no_jobs() -> None:
    """A claim in its window is given up at once: most such clients have left, and a job leased to
    one would be lost until its lease ends. (§10.2)"""
    rig = Rig()
    rig.send(get(b"/wait"))
    rig.exchange.waits[0].waits_for_news = True
    rig.end_half()

    assert rig.exchange.waits[0].is_cancelled
    assert rig.transport.is_closed


def test_a_client_that_closes_its_half_is_answered() -> None:
    """An answer that waits for a disk is there soon, and the connection ends after a while."""
    rig = Rig(timeouts=Timeouts(linger_s=2))
    rig.send(get(b"/wait"))
    rig.end_half()
    rig.loop.advance(1)
    rig.exchange.waits[0].deliver(ok(b"written"))  # type: ignore[misc]
    rig.loop.rest()
    assert rig.answer()[2] == b"written"
    assert rig.transport.is_closed

    rig = Rig(timeouts=Timeouts(linger_s=2))
    rig.send(get(b"/wait"))
    rig.end_half()
    rig.loop.advance(3)
    assert rig.exchange.waits[0].is_cancelled
    assert rig.transport.is_closed


def test_a_body_that_is_cut_off_is_no_request() -> None:
    """The client ends its half in the middle of it: nothing is carried out. (§2)"""
    rig = Rig()
    rig.send(post(b"hello")[:-1])
    rig.end_half()
    assert rig.exchange.bodies == []
    assert rig.got() == b""
    assert rig.transport.is_closed
    assert rig.exchange.open == 0


# ---------------------------------------------------------------------- large answers


def test_a_large_answer_is_written_as_it_is_taken() -> None:
    """Of 2 MB a client that does not read holds a slice, and the rest counts until it is taken."""
    rig = Rig()
    rig.transport.room = 0
    rig.send(get(b"/big") + GET)
    written = len(rig.transport.written)
    assert written < 200_000
    assert rig.shared.answers.held_bytes == 2_000_000 - rig.transport.written.count(b"x")

    rig.transport.take_all()
    rig.loop.rest()
    assert rig.answer()[2] == b"x" * 2_000_000
    assert rig.answer()[0] == 200
    assert rig.shared.answers.held_bytes == 0
    assert rig.exchange.open == 0


def delivered(rig: Rig, size: int) -> None:
    """An answer of so many bytes to a request of its own."""
    rig.send(get(b"/wait"))
    deliver = rig.exchange.waits[-1].deliver
    assert deliver is not None
    deliver(ok(bytes(size)))
    rig.loop.rest()


@pytest.mark.parametrize("size", [60_000, 100_000, 256 << 10])
def test_a_page_is_written_at_once(size: int) -> None:
    """Its head with it: a turn for each slice would cost more than the page."""
    rig = Rig()

    delivered(rig, size)

    assert rig.transport.writes == 1
    assert rig.answer()[2] == bytes(size)
    assert rig.shared.answers.held_bytes == 0


def test_a_page_that_waits_in_the_transport_is_counted() -> None:
    """Until its client has taken it; the next request is read behind it."""
    rig = Rig()
    rig.transport.room = 30_000
    delivered(rig, 100_000)
    rig.send(GET)
    assert rig.shared.answers.held_bytes == 100_000
    assert len(rig.exchange.heads) == 1

    rig.transport.take_all()
    rig.loop.rest()

    assert rig.answer()[2] == bytes(100_000)
    assert rig.answer()[0] == 200
    assert rig.shared.answers.held_bytes == 0
    assert rig.exchange.open == 0


def test_a_page_that_waits_is_given_up_with_its_client() -> None:
    """Nothing of it is counted any more."""
    rig = Rig()
    rig.transport.room = 0
    delivered(rig, 100_000)

    rig.lose()

    assert rig.shared.answers.held_bytes == 0
    assert rig.exchange.open == 0


def test_answers_that_wait_share_one_budget() -> None:
    """Beyond it a large answer is a 429, and small ones are served. (§0.6)"""
    first = Rig(limits=TransportLimits(answers_bytes=3_000_000))
    second = Rig(shared=first.shared)
    first.transport.room = 0
    first.send(get(b"/big"))
    second.send(get(b"/big") + post(b"small"))
    assert second.code() == (429, "throttled")
    assert second.answer()[2] == b"small"
    first.lose()
    assert first.shared.answers.held_bytes == 0
    second.send(get(b"/big"))
    assert second.answer()[0] == 200


def test_an_answer_that_finds_no_room_is_taken_back() -> None:
    """What it grants is not the client's; one that is sent stays. (§10.2)"""
    rig = Rig(limits=TransportLimits(answers_bytes=300_000))
    taken_back: list[int] = []

    def claimed(size: int) -> Answer:
        return msgspec.structs.replace(ok(bytes(size)), unsent=lambda: taken_back.append(size))

    for size in (200_000, 400_000):
        rig.send(get(b"/wait"))
        deliver = rig.exchange.waits[-1].deliver
        assert deliver is not None
        deliver(claimed(size))
        rig.loop.rest()

    assert [rig.answer()[0], rig.answer()[0]] == [200, 429]
    assert taken_back == [400_000]


def test_a_client_that_does_not_read_is_cut_off() -> None:
    """After `write_s` without a byte taken; meanwhile nothing more of it is read."""
    rig = Rig(timeouts=Timeouts(take_s=30, write_s=35))
    rig.transport.room = 0
    rig.send(get(b"/big") + GET)
    rig.loop.advance(34)
    assert not rig.transport.is_aborted
    rig.loop.advance(2)
    assert rig.transport.is_aborted
    assert len(rig.exchange.heads) == 1
    assert rig.exchange.open == 0


# ---------------------------------------------------------------------- streams


def chunks(data: bytes) -> bytes:
    """The body that its chunks make; the last one is there."""
    out = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        out += data[: int(size, 16)]
        data = data[int(size, 16) + 2 :]
    return out


def test_a_stream_is_written_from_the_turn_that_has_news() -> None:
    """Each piece a chunk, as soon as it is there. (§7.3)"""
    rig = Rig()
    rig.send(get(b"/feed"))
    head = rig.got()
    assert b"transfer-encoding: chunked" in head
    assert b"connection: keep-alive" in head
    feed = rig.exchange.feeds[0]

    feed.put(b"one", b"two")
    rig.loop.rest()
    assert rig.got() == b"3\r\none\r\n3\r\ntwo\r\n"
    feed.put(b"end", ends=True)
    rig.loop.rest()
    assert rig.got() == b"3\r\nend\r\n0\r\n\r\n"
    assert feed.is_closed
    rig.send(GET)
    assert rig.answer()[0] == 200


def test_a_stream_to_http_1_0_ends_with_its_connection() -> None:
    """Which knows no chunks."""
    rig = Rig()
    rig.send(b"GET /feed HTTP/1.0\r\n\r\n")
    assert b"chunked" not in rig.got()
    rig.exchange.feeds[0].put(b"one", ends=True)
    rig.loop.rest()
    assert rig.got() == b"one"
    assert rig.is_finished


def test_a_stream_waits_for_its_client() -> None:
    """What is not taken stays with the feed, where it is a cursor and no bytes. (§7.6)"""
    rig = Rig()
    rig.send(get(b"/feed"))
    rig.got()
    rig.transport.room = 10
    feed = rig.exchange.feeds[0]
    feed.put(*[b"x" * 100] * 50)
    rig.loop.rest()
    assert feed.left == 49

    rig.transport.take_all()
    rig.loop.rest()
    assert feed.left == 0


def test_a_piece_that_is_pushed_is_written_at_once() -> None:
    """Without a turn, as a chunk; not where the client has yet to take what came before, nor where it
    is gone. (§7.6)"""
    rig = Rig()
    rig.send(get(b"/feed"))
    rig.got()
    feed = rig.exchange.feeds[0]
    assert feed.push(b"one")
    assert rig.got() == b"3\r\none\r\n"

    rig.transport.room = 0
    assert feed.push(b"two")
    assert not feed.push(b"three")
    assert rig.got() == b"3\r\ntwo\r\n"
    rig.transport.take_all()
    assert feed.push(b"three")
    rig.lose()
    assert not feed.push(b"four")


def test_a_stream_that_is_not_taken_has_a_last_word() -> None:
    """408 in its form, behind what is not taken yet; and the client has its time for it. (§7.6)"""
    rig = Rig(timeouts=Timeouts(take_s=30, write_s=35))
    rig.send(get(b"/feed"))
    rig.got()
    rig.transport.room = 10
    rig.exchange.feeds[0].put(b"x" * 100, b"never seen")
    rig.loop.rest()
    rig.loop.advance(31)

    assert rig.exchange.feeds[0].is_closed
    last = chunks(rig.got())
    assert last.startswith(b"x" * 100 + b"event: error")
    assert b"408" in last
    assert not rig.transport.is_aborted
    rig.loop.advance(36)
    assert rig.transport.is_aborted


@pytest.mark.parametrize("how", ["lost", "half"])
def test_a_stream_ends_with_its_client(how: str) -> None:
    """Also where it only closes its half: a reader has nothing to say, and most that do so have left."""
    rig = Rig()
    rig.send(get(b"/feed"))
    if how == "lost":
        rig.lose()
    else:
        rig.end_half()
    assert rig.exchange.feeds[0].is_closed
    assert rig.exchange.open == 0


def test_a_stream_has_ended_before_the_next_client_is_heard() -> None:
    """A client that left is given nothing of what is written later: its session's cursor would move
    past records that nobody has got. (§7.4)"""
    rig = Rig()
    rig.send(get(b"/feed"))
    rig.connection.eof_received()
    assert rig.exchange.feeds[0].is_closed


def test_what_comes_behind_a_stream_is_never_read_as_a_request() -> None:
    """Bytes that were dropped may be half of one; so the connection ends with the stream."""
    rig = Rig()
    rig.send(get(b"/feed"), GET[:10])
    rig.exchange.feeds[0].put(b"x", ends=True)
    rig.send(GET)
    assert len(rig.exchange.heads) == 1
    assert rig.is_finished


# ---------------------------------------------------------------------- the server stops


def test_a_stop_lets_answers_out_and_ends_what_is_idle() -> None:
    """Answers say that their connection ends; then the idle ones go. (§0.10)"""
    waiting = Rig()
    idle = Rig(shared=waiting.shared)
    waiting.send(get(b"/wait"))
    idle.send(GET)
    quiet: list[bool] = []
    waiting.shared.when_quiet = lambda: quiet.append(True)
    waiting.shared.is_draining = True
    assert not quiet

    waiting.exchange.waits[0].deliver(ok(b"written"))  # type: ignore[misc]
    _, headers, body = waiting.answer()
    assert (headers["connection"], body) == ("close", b"written")
    assert waiting.is_finished
    assert quiet
    assert not idle.is_finished
    waiting.shared.drain()
    assert idle.is_finished
