"""HTTP/2 requests, sound and malformed, over a connection without a socket."""

import json

import h2.events
import pytest
from h2.settings import SettingCodes

from topics.protocol.model.errors import ErrorCode
from topics.server.http.interface import Streaming
from topics.server.http.refusals import refusal
from topics.server.transport.limits import Timeouts, TransportLimits

from .http2_rig import PREFACE, SOUND, Fields, News, Rig, frame, ok

GOAWAY = 7


def refused(rig: Rig, stream: int) -> tuple[int, str]:
    """Status and code of a refusal in its envelope (§0.5)."""
    return rig.status(stream), json.loads(rig.body(stream))["error"]["code"]


def is_served(rig: Rig) -> bool:
    """Whether the connection goes on."""
    stream = rig.ask(body=b"next")
    rig.exchanged()
    return rig.body(stream) == b"next" and rig.has_ended(stream)


def forget_limit(rig: Rig) -> None:
    """Have the client open more streams than it may."""
    rig.h2.remote_settings.max_concurrent_streams = 100
    rig.h2.remote_settings.acknowledge()


# What a client in good faith gets.


def test_a_request_reaches_the_exchange_as_it_would_over_http_1() -> None:
    """One head for both: Host, path and query, the client's address."""
    rig = Rig()
    stream = rig.ask(b"/echo?x=1&y", (b"x-custom", b"\xff"), body=b"hi")
    rig.exchanged()

    (head,) = rig.exchange.heads
    assert (head.method, head.path, head.query) == ("POST", b"/echo", b"x=1&y")
    assert list(head.headers) == [(b"host", b"a"), (b"x-custom", b"\xff")]
    assert head.client == "192.0.2.7"
    assert (rig.status(stream), rig.body(stream)) == (200, b"hi")


def test_a_path_that_is_not_ascii_reaches_the_exchange_escaped() -> None:
    """HTTP/2 lets any byte through; refusing it is the exchange's, in the envelope. (§0.6)"""
    rig = Rig()
    rig.ask(b"/caf\xc3\xa9\x7f?\xff")
    rig.exchanged()

    assert (rig.exchange.heads[0].path, rig.exchange.heads[0].query) == (b"/caf%C3%A9%7F", b"%FF")


@pytest.mark.parametrize("size", [1, 2, 5, 9, 100])
def test_bytes_may_come_in_any_pieces(size: int) -> None:
    """Preface, SETTINGS, head and body, cut anywhere."""
    rig = Rig(greets=False)
    rig.h2.initiate_connection()
    stream = rig.ask(body=b"hello")
    sent = rig.h2.data_to_send()
    for at in range(0, len(sent), size):
        rig.send(sent[at : at + size])
    rig.exchanged()

    assert rig.body(stream) == b"hello"


def test_streams_share_a_connection() -> None:
    """A request that waits holds up none of its neighbours, and both are one busy connection."""
    rig = Rig()
    waiting, quick = rig.ask(b"/wait"), rig.ask(body=b"quick")
    rig.exchanged()

    assert rig.body(quick) == b"quick"
    assert not rig.has_ended(waiting)
    assert rig.shared.busy == 1
    rig.exchange.waits[0].deliver(ok(b"at last"))
    rig.exchanged()
    assert rig.body(waiting) == b"at last"
    assert rig.shared.busy == 0


def test_a_stream_whose_head_comes_later() -> None:
    """An answer that waited may be a stream, as that of another node is."""
    rig = Rig()
    stream = rig.ask(b"/wait")
    rig.exchanged()
    feed = News()
    rig.exchange.waits[0].deliver(Streaming(200, [], feed))
    rig.exchanged()
    feed.put(b"last", ends=True)
    rig.exchanged()

    assert (rig.status(stream), rig.body(stream), rig.has_ended(stream)) == (200, b"last", True)


def test_a_stream_that_comes_after_its_client_left_is_closed() -> None:
    """Nobody would close it otherwise."""
    rig = Rig()
    stream = rig.ask(b"/wait")
    rig.exchanged()
    waiting = rig.exchange.waits[0]
    rig.h2.reset_stream(stream)
    rig.exchanged()

    feed = News()
    waiting.deliver(Streaming(200, [], feed))

    assert feed.is_closed


@pytest.mark.parametrize("path", [b"/big", b"/feed", b"/refuse"])
def test_an_answer_to_head_has_no_body(path: bytes) -> None:
    """And ends with its head. (§0.6)"""
    rig = Rig()
    stream = rig.ask(path, method=b"HEAD")
    rig.exchanged()

    assert rig.has_ended(stream)
    assert rig.body(stream) == b""
    assert rig.exchange.feeds == [] or rig.exchange.feeds[0].is_closed


def test_leave_to_send_a_body_is_given_once_the_head_is_accepted() -> None:
    """`Expect: 100-continue`, and not before a refusal that the head alone decides."""
    rig = Rig()
    expect = (b"expect", b"100-continue")
    good, bad = rig.ask(b"/echo", expect, end=False), rig.ask(b"/refuse", expect, end=False)
    rig.exchanged()
    assert len(rig.of(good, h2.events.InformationalResponseReceived)) == 1
    assert rig.of(bad, h2.events.InformationalResponseReceived) == []
    assert rig.status(bad) == 404
    rig.h2.send_data(good, b"body", end_stream=True)
    rig.exchanged()

    assert (rig.status(good), rig.body(good)) == (200, b"body")


def test_trailers_end_a_request() -> None:
    """What they say is not asked for."""
    rig = Rig()
    stream = rig.ask(body=b"abc", end=False)
    rig.h2.send_headers(stream, [(b"x-checksum", b"1")], end_stream=True)
    rig.exchanged()

    assert (rig.status(stream), rig.body(stream)) == (200, b"abc")


def test_many_requests_on_one_connection_are_no_reason_to_end_it() -> None:
    """Nor do they leave anything behind."""
    rig = Rig()
    for _ in range(1500):
        stream = rig.ask()
        rig.exchanged()
        assert rig.has_ended(stream)
        rig.events.clear()

    assert rig.exchange.open == 0


# Heads that are malformed (RFC 9113, 8.1.1).


@pytest.mark.parametrize("end", [True, False], ids=["whole", "open"])
@pytest.mark.parametrize(
    "headers",
    [
        [(b":method", b"CONNECT"), (b":authority", b"a:1")],
        [(b":method", b"G\xc3\x89T"), *SOUND[1:]],
        SOUND[1:],
        SOUND[:3],
        [*SOUND[:3], (b":path", b"")],
        [*SOUND, (b":path", b"/")],
        [*SOUND, (b":status", b"103")],
        [(b":status", b"103"), *SOUND],
        [*SOUND, (b"X-Upper", b"y")],
        [*SOUND, (b"", b"y")],
        [*SOUND, (b"connection", b"close")],
        [*SOUND, (b"te", b"gzip")],
        [*SOUND, (b"transfer-encoding", b"chunked")],
        [*SOUND, (b"x", b"a\r\nb: c")],
        [*SOUND, (b"x", b" a")],
        [*SOUND, (b"content-length", b"x")],
        [*SOUND, (b"content-length", b"1"), (b"content-length", b"1")],
        [*SOUND, (b"host", b"b")],
        [*SOUND[:2], SOUND[3]],
    ],
    ids=[
        "a tunnel", "a method", "no method", "no path", "an empty path", "two paths", "status last",
        "status", "upper case", "no name", "connection", "te", "transfer-encoding", "a value",
        "a space", "a length", "lengths", "hosts", "no host",
    ],
)  # fmt: skip
def test_a_malformed_head_costs_its_stream_alone(headers: Fields, end: bool) -> None:
    """400 in the envelope, whole by its length and without END_STREAM, and then a stream error; the
    exchange hears nothing of it, and the neighbours go on. (§0.5)"""
    rig = Rig()
    waiting = rig.ask(b"/wait")
    rig.exchanged()
    bad = rig.ask_raw(headers, end=end)
    rig.exchanged()

    assert refused(rig, bad) == (400, "invalid_request")
    (response,) = rig.of(bad, h2.events.ResponseReceived)
    assert int(dict(response.headers)[b"content-length"]) == len(rig.body(bad))
    assert not rig.has_ended(bad)
    assert rig.reset_by(bad) == 1
    assert [head.path for head in rig.exchange.heads] == [b"/wait"]
    assert is_served(rig)
    rig.exchange.waits[0].deliver(ok())
    rig.exchanged()
    assert rig.status(waiting) == 200


def test_a_malformed_head_request_has_no_body() -> None:
    """HEAD is answered without one, whatever is wrong with it. (§0.6)"""
    rig = Rig()
    bad = rig.ask_raw([(b":method", b"HEAD"), *SOUND[1:], (b"upgrade", b"x")])
    rig.exchanged()

    assert (rig.status(bad), rig.body(bad), rig.reset_by(bad)) == (400, b"", 1)


def test_a_refusal_that_has_no_room_is_a_reset() -> None:
    """Nothing waits in memory for a client that opens no window."""
    rig = Rig(window=0)
    bad = rig.ask_raw(SOUND[1:])
    rig.exchanged()

    assert rig.reset_by(bad) == 1
    assert rig.of(bad, h2.events.ResponseReceived) == []


def test_a_stream_that_depends_on_itself_is_malformed() -> None:
    """Priorities mean nothing here, but one that cannot be is a stream error (RFC 7540, 5.3.1)."""
    rig = Rig()
    block = rig.h2.encoder.encode(SOUND)
    for depends_on, status in ((1, 400), (0, 200)):
        stream = rig.h2.get_next_available_stream_id()
        rig.h2.send_headers(stream, SOUND, end_stream=True)
        rig.h2.clear_outbound_data_buffer()
        rig.send(frame(1, 0x25, stream, depends_on.to_bytes(4, "big") + b"\x10" + block))
        rig.exchanged()
        assert rig.status(stream) == status


@pytest.mark.parametrize(
    "more",
    [
        [(b"x-%d" % i, b"y" * 1000) for i in range(40)],
        [(b"x-%d" % i, b"y") for i in range(101)],
    ],
    ids=["bytes", "headers"],
)
def test_a_head_is_bounded(more: Fields) -> None:
    """Over 32 KiB or 100 headers it is 431 in the envelope, and the connection goes on. (§0.5)"""
    rig = Rig()
    bad = rig.ask(b"/echo", *more)
    rig.exchanged()

    assert refused(rig, bad) == (431, "invalid_request")
    assert rig.has_ended(bad)
    assert rig.reset_by(bad) is None
    assert rig.exchange.heads == []
    assert is_served(rig)


def test_a_head_may_be_large() -> None:
    """100 headers, or a value of 30 KiB, are within the bounds."""
    rig = Rig()
    many = rig.ask(b"/echo", *[(b"x-%d" % i, b"y") for i in range(100)])
    long = rig.ask(b"/echo", (b"last-event-id", b"y" * 30_000))
    rig.exchanged()

    assert (rig.status(many), rig.status(long)) == (200, 200)


@pytest.mark.parametrize(
    "more",
    [
        [(b"x", b"y" * 4000)] * 30,
        [(b"x", b"y")] * 300,
        [(b"x-%d" % i, b"\x7f" * 1000) for i in range(60)],
    ],
    ids=["a bomb", "fields", "bytes"],
)
def test_a_head_without_bounds_ends_the_connection(more: Fields) -> None:
    """A few bytes that stand for many are not decoded for the sake of an answer."""
    rig = Rig()
    rig.ask(b"/echo", *more)
    rig.exchanged()

    assert rig.goaway() == 11
    assert rig.exchange.heads == []
    assert rig.transport.has_eof


def test_a_block_that_cannot_be_decoded_ends_the_connection() -> None:
    """HPACK has a state that both sides share: after an error in it no further head can be read."""
    rig = Rig()
    rig.send(frame(1, 5, 1, b"\x80"))
    rig.exchanged()

    assert rig.goaway() not in (None, 0)


# Bodies that are malformed.


@pytest.mark.parametrize("pieces", [[b"abc", b"d"], [b"abcd"], [b"ab"], [b""], [b"ab", b""]])
def test_a_body_of_another_length_is_malformed(pieces: list[bytes]) -> None:
    """400, a stream error, and the exchange never saw it whole."""
    rig = Rig()
    bad = rig.ask(b"/echo", (b"content-length", b"3"), end=False)
    for i, piece in enumerate(pieces):
        rig.h2.send_data(bad, piece, end_stream=i == len(pieces) - 1)
    rig.exchanged()

    assert refused(rig, bad) == (400, "invalid_request")
    assert rig.reset_by(bad) == 1
    assert rig.exchange.bodies == []
    assert rig.exchange.open == 0
    assert is_served(rig)


def test_a_body_of_the_length_that_was_declared_is_sound() -> None:
    """In however many frames, padding not counted."""
    rig = Rig()
    stream = rig.ask(b"/echo", (b"content-length", b"3"), end=False)
    rig.h2.send_data(stream, b"a", pad_length=7)
    rig.h2.send_data(stream, b"bc", end_stream=True)
    rig.exchanged()

    assert rig.body(stream) == b"abc"


def test_a_head_that_promises_a_body_and_ends_is_malformed() -> None:
    """A Content-Length, and END_STREAM at once."""
    rig = Rig()
    bad = rig.ask(b"/echo", (b"content-length", b"3"))
    rig.exchanged()

    assert refused(rig, bad) == (400, "invalid_request")
    assert rig.exchange.heads == []


def test_a_body_that_is_malformed_behind_its_answer_ends_the_stream() -> None:
    """An answer is begun once; what of it the client did not take yet is not for it."""
    rig = Rig(window=0)
    bad = rig.ask(b"/refuse", (b"content-length", b"1"), end=False)
    rig.exchanged()
    assert rig.status(bad) == 404
    rig.h2.send_data(bad, b"abc")
    rig.exchanged()

    assert rig.reset_by(bad) == 1
    assert rig.shared.busy == 0


@pytest.mark.parametrize("name", [b":path", b"X-Upper", b"upgrade"])
@pytest.mark.parametrize("path", [b"/echo", b"/refuse"])
def test_malformed_trailers_are_a_stream_error(name: bytes, path: bytes) -> None:
    """They end the request; one that is answered already is reset all the same."""
    rig = Rig()
    stream = rig.ask(path, body=b"abc", end=False)
    rig.exchanged()
    block = rig.h2.encoder.encode([(name, b"y")])
    rig.send(frame(1, 5, stream, block))
    rig.exchanged()

    assert rig.status(stream) == (400 if path == b"/echo" else 404)
    assert rig.reset_by(stream) == 1 or path == b"/refuse"
    assert rig.goaway() is None
    assert rig.exchange.bodies == []
    assert rig.exchange.open == 0


def test_trailers_that_do_not_end_their_stream_are_a_stream_error() -> None:
    """To h2 they would be the end of the connection."""
    rig = Rig()
    waiting = rig.ask(b"/wait")
    stream = rig.ask(body=b"abc", end=False)
    rig.exchanged()
    rig.send(frame(1, 4, stream, rig.h2.encoder.encode([(b"x", b"y")])))
    rig.exchanged()

    assert refused(rig, stream) == (400, "invalid_request")
    assert rig.reset_by(stream) == 1
    assert rig.goaway() is None
    assert is_served(rig)
    rig.exchange.waits[0].deliver(ok())
    rig.exchanged()
    assert rig.status(waiting) == 200


# Streams.


def test_a_stream_over_the_limit_is_refused() -> None:
    """REFUSED_STREAM says that nothing was done; the others go on (RFC 9113, 5.1.2)."""
    rig = Rig(limits=TransportLimits(streams=3))
    assert rig.h2.remote_settings.max_concurrent_streams == 3
    waiting = [rig.ask(b"/wait") for _ in range(3)]
    rig.exchanged()
    forget_limit(rig)
    bad = rig.ask_raw(SOUND)
    rig.exchanged()

    assert rig.reset_by(bad) == 7
    assert rig.goaway() is None
    assert len(rig.exchange.heads) == 3
    rig.exchange.waits[0].deliver(ok())
    rig.exchanged()
    assert rig.status(waiting[0]) == 200
    assert is_served(rig)


def test_a_head_for_a_stream_that_was_refused_can_still_be_read() -> None:
    """What the header tables learn from it counts for the heads behind it."""
    rig = Rig(limits=TransportLimits(streams=1))
    waiting = rig.ask(b"/wait")
    rig.exchanged()
    forget_limit(rig)
    rig.ask_raw([*SOUND, (b"x-new", b"remembered")])
    rig.h2.reset_stream(waiting)
    stream = rig.ask(b"/echo", (b"x-new", b"remembered"))
    rig.exchanged()

    assert rig.status(stream) == 200
    assert (b"x-new", b"remembered") in rig.exchange.heads[-1].headers


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frame(2, 0, 1, b"\0\0\0\0"), 6),
        (frame(2, 0, 1, b"\0\0\0\x01\x10"), 1),
        (frame(8, 0, 1, b"\0\0\0\0"), 1),
        (frame(8, 0, 1, b"\x7f\xff\xff\xff"), 3),
    ],
    ids=["a short PRIORITY", "PRIORITY on itself", "no increment", "too much increment"],
)
def test_a_broken_frame_of_a_stream_costs_the_stream(sent: bytes, code: int) -> None:
    """A stream error; h2 makes the end of the connection of most of them."""
    rig = Rig()
    stream = rig.ask(b"/wait")
    rig.exchanged()
    rig.send(sent)
    rig.exchanged()

    assert rig.reset_by(stream) == code
    assert rig.exchange.waits[0].is_cancelled
    assert is_served(rig)


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frame(0, 0, 0, b"x"), 1),
        (frame(0, 0, 99, b"x"), 1),
        (frame(1, 5, 0, b"\x82"), 1),
        (frame(1, 5, 2, b"\x82"), 1),
        (frame(2, 0, 0, b"\0\0\0\0\x10"), 1),
        (frame(3, 0, 99, b"\0\0\0\x08"), 1),
        (frame(3, 0, 0, b"\0\0\0\x08"), 1),
        (frame(4, 0, 1), 1),
        (frame(4, 1, 0, b"x"), 6),
        (frame(4, 0, 0, b"\0\x04\x80\0\0\0"), 3),
        (frame(4, 0, 0, (b"\0\x04" + bytes(4)) * 33), 11),
        (frame(5, 4, 1, b"\0\0\0\x02"), 1),
        (frame(6, 0, 0, b"short"), 6),
        (frame(7, 0, 1, bytes(8)), 1),
        (frame(7, 0, 0, b"short"), 6),
        (frame(8, 0, 0, bytes(4)), 1),
        (frame(8, 0, 99, b"\0\0\0\x01"), 1),
        (frame(9, 4, 1, b"x"), 1),
        (frame(1, 1, 1, b"\x82") + frame(6, 0, 0, bytes(8)), 1),
        (frame(1, 1, 1, b"\x82") + frame(9, 4, 3, b""), 1),
        (b"\x01\0\0\0\0\0\0\0\x01", 6),
    ],
    ids=lambda each: each[:24].hex() if isinstance(each, bytes) else str(each),
)
def test_what_a_connection_cannot_survive(sent: bytes, code: int) -> None:
    """GOAWAY with the code that RFC 9113 has for it, the last bytes taken, no traceback."""
    rig = Rig()
    rig.send(sent)
    rig.exchanged()

    assert rig.goaway() == code
    assert rig.transport.has_eof
    assert not rig.transport.is_aborted


@pytest.mark.parametrize(
    "sent",
    [frame(1, 5, 1), frame(6, 0, 0, bytes(8)), frame(4, 1, 0)],
    ids=["HEADERS", "PING", "ACK"],
)
def test_a_connection_begins_with_settings(sent: bytes) -> None:
    """RFC 9113, 3.4."""
    rig = Rig(greets=False)
    rig.h2.initiate_connection()
    rig.h2.clear_outbound_data_buffer()
    rig.send(PREFACE + sent)
    rig.exchanged()

    assert rig.goaway() == 1


def test_frames_of_other_types_are_ignored() -> None:
    """RFC 9113, 5.5."""
    rig = Rig()
    rig.send(frame(0x10, 0, 0, b"\0\0\0\x01u=1") + frame(0xA, 0, 1, b"x") + frame(0xFF, 0xFF, 5))

    assert is_served(rig)


def test_settings_that_nobody_knows_are_forgotten() -> None:
    """A client could fill the memory with them; and our encoder's table."""
    rig = Rig()
    sent = b"".join(name.to_bytes(2, "big") + b"\0\xff\xff\xff" for name in (1, 9, 77, 0xFFFF))
    rig.send(frame(4, 0, 0, sent))
    rig.exchanged()

    kept = rig.connection._speaker._link.h2  # type: ignore[union-attr]
    assert max(kept.remote_settings) <= SettingCodes.ENABLE_CONNECT_PROTOCOL
    assert kept.remote_settings.header_table_size == 4096
    assert kept.encoder.header_table_size == 4096


# Time.


def test_a_connection_without_requests_ends() -> None:
    """After 75 s, with a GOAWAY; a request puts it off."""
    rig = Rig()
    rig.advance(60)
    stream = rig.ask()
    rig.exchanged()
    assert rig.status(stream) == 200
    rig.advance(74)
    assert rig.goaway() is None
    rig.advance(2)

    assert rig.goaway() == 0
    assert rig.transport.has_eof
    rig.advance(10)
    assert rig.transport.is_closed or rig.transport.is_aborted


@pytest.mark.parametrize(
    "sent",
    [b"", b"\0\0", frame(4, 0, 0)[:-3], frame(4, 0, 0) + b"\0\0\x09\x01", frame(4, 0, 0) + frame(1, 1, 1, b"\x82")],
    ids=["no SETTINGS", "less", "a part of it", "a part of a head", "no CONTINUATION"],
)  # fmt: skip
def test_a_head_must_be_whole_in_time(sent: bytes) -> None:
    """Whatever has begun, but a body, is whole within 15 s or the connection ends."""
    rig = Rig(greets=False)
    rig.h2.initiate_connection()
    rig.h2.clear_outbound_data_buffer()
    rig.send(PREFACE + sent)
    rig.loop.advance(14)
    assert not any(kind == GOAWAY for kind, _, _, _ in rig.frames())
    rig.loop.advance(2)

    assert rig.frames() == [(GOAWAY, 0, 0, bytes(8))]


def test_a_wait_is_not_idle() -> None:
    """A long poll, or a stream of events, may say nothing for long."""
    rig = Rig()
    waiting, feed = rig.ask(b"/wait"), rig.ask(b"/feed")
    rig.exchanged()
    rig.advance(600)
    rig.exchange.waits[0].deliver(ok())
    rig.exchange.feeds[0].put(b"news")
    rig.exchanged()

    assert rig.status(waiting) == 200
    assert rig.body(feed) == b"news"


@pytest.mark.parametrize("sent", [b"", b"x", b"x" * 99])
def test_a_slow_body_is_refused(sent: bytes) -> None:
    """400 `body_timeout`, and the stream is reset. (§0.6)"""
    rig = Rig()
    stream = rig.ask(end=False, body=sent)
    rig.exchanged()
    rig.advance(9)
    assert rig.of(stream, h2.events.ResponseReceived) == []
    rig.advance(2)

    assert refused(rig, stream) == (400, "invalid_request")
    assert json.loads(rig.body(stream))["error"]["detail"] == {"reason": "body_timeout"}
    assert rig.reset_by(stream) == 0
    assert rig.exchange.open == 0
    assert rig.shared.bodies.held_bytes == 0
    assert is_served(rig)


def test_a_body_that_keeps_its_pace_has_time() -> None:
    """10 KiB in 10 s, and 120 s for all of it."""
    rig = Rig()
    stream = rig.ask(end=False, body=b"x")
    rig.exchanged()
    for _ in range(12):
        rig.advance(9)
        rig.h2.send_data(stream, b"x" * (10 << 10))
        rig.exchanged()
    assert rig.of(stream, h2.events.ResponseReceived) == []
    rig.advance(13)

    assert rig.status(stream) == 400


def test_a_stop_answers_what_is_in_flight() -> None:
    """GOAWAY comes behind the last answer: to h2 as a client it is the end of all streams."""
    rig = Rig()
    first, second = rig.ask(b"/wait"), rig.ask(b"/wait")
    rig.exchanged()
    rig.shared.is_draining = True
    rig.exchange.waits[0].deliver(ok(b"one"))
    rig.exchanged()
    assert rig.body(first) == b"one"
    rig.shared.drain()
    rig.exchanged()
    assert rig.goaway() is None
    rig.exchange.waits[1].deliver(ok(b"two"))
    rig.exchanged()

    assert rig.body(second) == b"two"
    assert rig.goaway() == 0
    assert rig.transport.has_eof


def test_a_stop_ends_an_idle_connection() -> None:
    """With a GOAWAY."""
    rig = Rig()
    rig.shared.drain()
    rig.exchanged()

    assert rig.goaway() == 0
    assert rig.transport.has_eof


def test_a_client_that_says_goodbye_gets_its_answers() -> None:
    """And then the connection ends; h2 would drop them."""
    rig = Rig()
    stream = rig.ask(b"/wait")
    rig.exchanged()
    rig.send(frame(7, 0, 0, bytes(8)))
    rig.exchange.waits[0].deliver(ok(b"at last"))
    rig.exchanged()

    assert rig.body(stream) == b"at last"
    assert rig.transport.has_eof


def test_a_client_that_closes_its_half_is_gone() -> None:
    """What it waited for is given up."""
    rig = Rig()
    rig.ask(b"/wait")
    rig.exchanged()
    rig.connection.eof_received()
    rig.loop.rest()

    assert rig.exchange.waits[0].is_cancelled
    assert rig.exchange.open == 0


# Refusals that the exchange makes.


@pytest.mark.parametrize("chunk", [10_000, 16_000])
def test_a_body_that_is_too_large_is_refused(chunk: int) -> None:
    """413, without reading on: the stream's window stays shut."""
    rig = Rig()
    stream = rig.ask(end=False)
    sent = 0
    while not rig.of(stream, h2.events.ResponseReceived):
        rig.h2.send_data(stream, b"x" * chunk)
        sent += chunk
        rig.exchanged()

    assert refused(rig, stream) == (413, "payload_too_large")
    assert rig.exchange.max_body_bytes < sent <= rig.exchange.max_body_bytes + 16_000
    assert rig.shared.bodies.held_bytes == 0
    rig.advance(1)
    assert rig.reset_by(stream) == 0
    assert is_served(rig)


def test_bodies_share_one_budget() -> None:
    """429 beyond it."""
    rig = Rig(limits=TransportLimits(bodies_bytes=30_000, body_free_bytes=0))
    first = rig.ask(end=False, body=b"x" * 16_000)
    second = rig.ask(end=False, body=b"x" * 16_000)
    rig.exchanged()
    assert rig.status(second) == 429
    assert json.loads(rig.body(second))["error"]["detail"]["limit"] == "max_body_memory"
    rig.h2.end_stream(first)
    rig.exchanged()

    assert rig.status(first) == 200
    assert rig.shared.bodies.held_bytes == 0


def test_an_answer_that_comes_before_the_body_is_sent_at_once() -> None:
    """The client may stop then; what it still sends opens the connection's window for the others."""
    rig = Rig()
    stream = rig.ask(b"/refuse", end=False)
    for _ in range(6):
        rig.h2.send_data(stream, b"x" * 10_000)
    rig.exchanged()
    assert rig.status(stream) == 404
    other = rig.ask(end=False)
    for _ in range(5):
        rig.h2.send_data(other, b"y" * 10_000)
    rig.h2.end_stream(other)
    rig.exchanged()

    assert len(rig.body(other)) == 50_000


def test_the_exchange_can_refuse_late() -> None:
    """A refusal is an answer like any other."""
    rig = Rig()
    stream = rig.ask(b"/wait")
    rig.exchanged()
    rig.exchange.waits[0].deliver(refusal(ErrorCode.NOT_FOUND, "x"))
    rig.exchanged()

    assert refused(rig, stream) == (404, "not_found")


def test_what_a_client_may_take_is_a_matter_of_settings() -> None:
    """The bounds are arguments."""
    rig = Rig(timeouts=Timeouts(idle_s=3))
    rig.advance(4)

    assert rig.goaway() == 0


# What is not HTTP/2.


@pytest.mark.parametrize(
    "sent",
    [
        b"INVALID CONNECTION PREFACE\r\n\r\n",
        PREFACE[:-4] + b"XX\r\n",
        PREFACE[:14] + b"\r\nhost: a\r\n\r\n",
        b"SSH-2.0-x y z\r\n",
    ],
)
def test_another_preface_ends_the_connection(sent: bytes) -> None:
    """Without an answer, which such a client would not understand (RFC 9113, 3.4)."""
    rig = Rig(greets=False)
    rig.connection.data_received(sent)
    rig.loop.rest()

    assert rig.transport.written == b""
    assert rig.transport.has_eof
