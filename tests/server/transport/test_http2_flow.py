"""Flow control of HTTP/2, both ways, and what waits for a client that takes little."""

import json
from functools import partial

import h2.events
import msgspec
import pytest
from h2.settings import SettingCodes

from topics.server.transport.http2.sending import SLOW
from topics.server.transport.limits import TransportLimits

from .http2_rig import Rig, frame, ok


def take(rig: Rig, stream: int, size: int) -> None:
    """Open the windows of a stream and of the connection."""
    rig.h2.increment_flow_control_window(size, stream)
    rig.h2.increment_flow_control_window(size)
    rig.exchanged()


# Answers.


def test_an_answer_is_sent_as_the_windows_open() -> None:
    """Not a byte more, and every byte in the end."""
    rig = Rig(window=10)
    rig.exchange.big = [b"abc" * 100, b"defg" * 100]
    stream = rig.ask(b"/big")
    rig.exchanged()
    assert rig.body(stream) == (b"abc" * 4)[:10]
    rig.h2.increment_flow_control_window(300, stream)
    rig.exchanged()
    assert len(rig.body(stream)) == 310
    rig.h2.increment_flow_control_window(1000, stream)
    rig.exchanged()

    assert rig.body(stream) == b"abc" * 100 + b"defg" * 100
    assert rig.has_ended(stream)
    assert rig.shared.answers.held_bytes == 0


def test_a_window_that_settings_change_counts_for_open_streams() -> None:
    """Larger, and smaller than nothing (RFC 9113, 6.9.2)."""
    rig = Rig(window=100)
    rig.exchange.big = [b"x" * 1000]
    stream = rig.ask(b"/big")
    rig.exchanged()
    assert len(rig.body(stream)) == 100
    rig.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
    rig.exchanged()
    rig.h2.increment_flow_control_window(90, stream)
    rig.exchanged()
    assert len(rig.body(stream)) == 100
    rig.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 50})
    rig.exchanged()
    assert len(rig.body(stream)) == 140
    rig.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 5000})
    rig.exchanged()

    assert rig.has_ended(stream)


def test_the_connections_window_is_shared_in_turns() -> None:
    """Streams with something to send take turns, a frame each."""
    rig = Rig(window=1 << 20)
    first, second = rig.ask(b"/big"), rig.ask(b"/big")
    rig.exchanged()
    sizes = len(rig.body(first)), len(rig.body(second))
    assert sum(sizes) == 65_535
    assert min(sizes) > 16_000
    rig.h2.increment_flow_control_window(1 << 22)
    take(rig, first, 1 << 21)
    take(rig, second, 1 << 21)

    assert len(rig.body(first)) == len(rig.body(second)) == 2_000_000


def test_a_small_answer_overtakes_a_large_one() -> None:
    """The large one has a frame a turn."""
    rig = Rig(window=1 << 24)
    large = rig.ask(b"/big")
    rig.h2.increment_flow_control_window(1 << 24)
    small = rig.ask(body=b"small")
    rig.exchanged()
    order = [e.stream_id for e in rig.events if isinstance(e, h2.events.DataReceived)]

    assert order.index(small) < 20 < order.count(large)


def test_nothing_is_written_for_a_client_that_does_not_read() -> None:
    """The transport says when it is full, and the frames wait where they came from."""
    rig = Rig(window=1 << 24)
    rig.h2.increment_flow_control_window(1 << 24)
    rig.exchanged()
    rig.connection.pause_writing()
    stream = rig.ask(b"/big")
    rig.exchanged()
    assert rig.transport.written == b""
    assert rig.exchange.heads == []  # nor is it heard
    rig.connection.resume_writing()
    rig.exchanged()

    assert len(rig.body(stream)) == 2_000_000


def test_a_client_that_takes_nothing_loses_its_stream() -> None:
    """After 35 s without a byte taken; one that takes a little has time."""
    rig = Rig(window=100)
    stream = rig.ask(b"/big")
    rig.exchanged()
    rig.advance(34)
    rig.h2.increment_flow_control_window(1, stream)
    rig.exchanged()
    rig.advance(34)
    assert rig.reset_by(stream) is None
    rig.advance(2)

    assert rig.reset_by(stream) == 8
    assert rig.shared.answers.held_bytes == 0
    assert rig.exchange.open == 0


def test_a_client_that_takes_nothing_is_asked_nothing_more() -> None:
    """Once half of what one connection may hold waits, requests wait, too: however many are asked,
    two pages of 8 MiB are made."""
    rig = Rig(window=0)
    rig.exchange.big = [bytes(8 << 20)]
    streams = [rig.ask(b"/big") for _ in range(50)]
    rig.exchanged()

    assert len(rig.exchange.bodies) == 3
    assert rig.shared.answers.held_bytes == 3 * (8 << 20)
    rig.h2.increment_flow_control_window(3 * (8 << 20))
    for stream in streams[:3]:
        rig.h2.increment_flow_control_window(8 << 20, stream)
    rig.exchanged()
    assert len(rig.exchange.bodies) > 3
    rig.leave()
    assert rig.shared.answers.held_bytes == 0


def test_a_connection_keeps_few_threads_busy() -> None:
    """A hundred streams ask for a page each: four are in the making, and each that is made lets the
    next one be asked for.  Other connections' pages wait for four at most."""
    rig = Rig()
    streams = [rig.ask(b"/page") for _ in range(100)]
    rig.exchanged()
    waits = rig.exchange.waits
    assert len(waits) == 4

    for made in range(100):
        waits[made].deliver(ok(b"page"))
        rig.exchanged()
        assert len(waits) == min(made + 5, 100)

    assert all(rig.body(stream) == b"page" for stream in streams)
    assert rig.exchange.open == 0


def test_pages_that_are_given_up_let_others_be_made() -> None:
    """By a reset of their streams, and with the connection."""
    rig = Rig()
    streams = [rig.ask(b"/page") for _ in range(10)]
    rig.exchanged()
    for stream in streams[:4]:
        rig.h2.reset_stream(stream)
    rig.exchanged()
    assert [each.is_cancelled for each in rig.exchange.waits] == [True] * 4 + [False] * 4

    rig.leave()
    assert rig.exchange.open == 0
    assert all(each.is_cancelled for each in rig.exchange.waits)


def test_answers_that_no_thread_makes_do_not_wait_for_each_other() -> None:
    """Long polls, and writes that wait for one sync together."""
    rig = Rig()
    for _ in range(100):
        rig.ask(b"/wait")
    rig.exchanged()

    assert len(rig.exchange.waits) == 100


def test_a_client_that_resets_what_waits_is_asked_no_more_for_it() -> None:
    """A request that had to wait and is given up is never made."""
    rig = Rig(window=0)
    rig.exchange.big = [bytes(8 << 20)]
    streams = [rig.ask(b"/big") for _ in range(5)]
    rig.exchanged()
    asked = len(rig.exchange.bodies)
    for stream in reversed(streams):
        rig.h2.reset_stream(stream)
        rig.exchanged()

    assert len(rig.exchange.bodies) == asked
    assert rig.exchange.open == 0


def test_an_answer_that_finds_no_room_becomes_429() -> None:
    """Beyond the bound of a connection; small answers always find some. (§0.5)"""
    rig = Rig(window=0, limits=TransportLimits(connection_answers_bytes=100_000))
    rig.exchange.big = [bytes(99_000)]
    first = rig.ask(b"/wait")
    rig.exchanged()
    rig.exchange.waits[0].deliver(ok(bytes(120_000)))
    rig.exchanged()
    assert rig.status(first) == 429
    take(rig, first, 1000)
    error = json.loads(rig.body(first))["error"]
    assert (error["code"], error["detail"]["limit"]) == ("throttled", "max_answer_memory")
    second = rig.ask(b"/wait")
    rig.exchanged()
    rig.exchange.waits[1].deliver(ok(bytes(60_000)))
    rig.exchanged()

    assert rig.status(second) == 200


def test_an_answer_that_finds_no_room_is_taken_back() -> None:
    """What it grants is not the client's; one that is sent stays. (§10.2)"""
    rig = Rig(limits=TransportLimits(connection_answers_bytes=300_000))
    taken_back: list[int] = []
    for size in (200_000, 400_000):
        rig.ask(b"/wait")
        rig.exchanged()
        answer = msgspec.structs.replace(ok(bytes(size)), unsent=partial(taken_back.append, size))
        rig.exchange.waits[-1].deliver(answer)
        rig.exchanged()

    assert taken_back == [400_000]


def test_all_connections_share_what_may_wait() -> None:
    """429 beyond it, for large answers."""
    rig = Rig(window=0, limits=TransportLimits(answers_bytes=150_000))
    rig.exchange.big = [bytes(100_000)]
    other = Rig(window=0, shared=rig.shared)
    first, second = rig.ask(b"/big"), other.ask(b"/big")
    rig.exchanged()
    other.exchanged()
    assert (rig.status(first), other.status(second)) == (200, 429)
    rig.leave()
    third = other.ask(b"/big")
    other.exchanged()

    assert other.status(third) == 200


# Streams of events.


def test_events_are_sent_as_they_come() -> None:
    """In the turn that they come in."""
    rig = Rig()
    stream = rig.ask(b"/feed")
    rig.exchanged()
    assert rig.status(stream) == 200
    rig.exchange.feeds[0].put(b"one")
    rig.exchanged()
    assert rig.body(stream) == b"one"
    rig.exchange.feeds[0].put(b"two", b"three", ends=True)
    rig.exchanged()

    assert rig.body(stream) == b"onetwothree"
    assert rig.has_ended(stream)
    assert rig.exchange.feeds[0].is_closed
    assert rig.exchange.open == 0


def test_a_feed_can_end_without_a_word() -> None:
    """END_STREAM in a frame of its own."""
    rig = Rig()
    stream = rig.ask(b"/feed")
    rig.exchanged()
    rig.exchange.feeds[0].put(ends=True)
    rig.exchanged()

    assert rig.has_ended(stream)


def test_one_event_is_held_for_a_client_that_takes_none() -> None:
    """The rest is where it came from, as a cursor. (§7.6)"""
    rig = Rig(window=4)
    stream = rig.ask(b"/feed")
    rig.exchanged()
    rig.exchange.feeds[0].put(*[b"12345"] * 100)
    rig.exchanged()
    assert rig.body(stream) == b"1234"
    assert rig.exchange.feeds[0].left == 99
    take(rig, stream, 6)

    assert rig.body(stream) == b"1234512345"


def test_a_slow_reader_gets_a_last_word() -> None:
    """30 s without a byte taken: an error frame behind what waits, then the end. (§7.6)"""
    rig = Rig(window=4)
    stream = rig.ask(b"/feed")
    rig.exchanged()
    rig.exchange.feeds[0].put(b"123456", b"never sent")
    rig.exchanged()
    rig.advance(31)
    assert rig.exchange.feeds[0].is_closed
    take(rig, stream, 1000)

    assert rig.body(stream) == b"123456" + SLOW
    assert rig.has_ended(stream)


def test_a_slow_reader_that_takes_no_last_word_is_reset() -> None:
    """After 35 s more."""
    rig = Rig(window=4)
    stream = rig.ask(b"/feed")
    rig.exchanged()
    rig.exchange.feeds[0].put(b"123456")
    rig.exchanged()
    rig.advance(31)
    assert rig.reset_by(stream) is None
    rig.advance(35)

    assert rig.reset_by(stream) == 8
    assert rig.exchange.open == 0


def test_a_slow_reader_is_seen_when_the_window_of_the_connection_is_shut() -> None:
    """Whichever window it leaves shut."""
    rig = Rig(window=1 << 20)
    stream = rig.ask(b"/feed")
    rig.exchanged()
    rig.exchange.feeds[0].put(b"x" * 65_535, b"next")
    rig.exchanged()
    assert len(rig.body(stream)) == 65_535
    rig.advance(31)
    rig.h2.increment_flow_control_window(1000)
    rig.exchanged()

    assert rig.body(stream).endswith(b"next" + SLOW)


def test_a_full_socket_gets_a_last_word_too() -> None:
    """Where nothing at all is taken, the connection says so to all its streams of events."""
    rig = Rig()
    streams = [rig.ask(b"/feed"), rig.ask(b"/feed")]
    rig.exchanged()
    rig.connection.pause_writing()
    rig.loop.advance(31)
    assert all(feed.is_closed for feed in rig.exchange.feeds)
    rig.connection.resume_writing()
    rig.exchanged()

    assert [rig.body(stream) for stream in streams] == [SLOW, SLOW]


def test_a_quick_reader_is_not_slow() -> None:
    """Time counts from when something waits."""
    rig = Rig()
    stream = rig.ask(b"/feed")
    rig.exchanged()
    for i in range(10):
        rig.advance(29)
        rig.exchange.feeds[0].put(b"%d" % i)
        rig.exchanged()
    rig.advance(500)

    assert rig.body(stream) == b"0123456789"


# Bodies.


def test_a_body_of_any_size_is_taken() -> None:
    """The windows open as it comes."""
    rig = Rig()
    stream = rig.ask(end=False)
    body = bytes(range(256)) * 3000
    sent = 0
    while sent < len(body):
        size = min(rig.h2.local_flow_control_window(stream), 16_384, len(body) - sent)
        assert size > 0
        rig.h2.send_data(stream, body[sent : sent + size])
        sent += size
        rig.exchanged()
    rig.h2.end_stream(stream)
    rig.exchanged()

    assert rig.exchange.bodies == [body]


def test_a_body_that_is_dropped_opens_no_window_of_its_stream() -> None:
    """A client that goes on regardless is stopped by its own window."""
    rig = Rig()
    stream = rig.ask(b"/refuse", end=False)
    rig.exchanged()
    rig.h2.send_data(stream, b"x" * 16_000)
    rig.exchanged()

    assert rig.h2.local_flow_control_window(stream) == 65_535 - 16_000
    assert rig.h2.outbound_flow_control_window == 65_535


def test_padding_is_given_back() -> None:
    """It counts against the windows like data (RFC 9113, 6.1)."""
    rig = Rig()
    stream = rig.ask(end=False)
    for _ in range(500):
        rig.h2.send_data(stream, b"x" * 100, pad_length=255)
        rig.exchanged()
    rig.h2.end_stream(stream)
    rig.exchanged()

    assert len(rig.body(stream)) == 50_000


@pytest.mark.parametrize("end", [True, False])
def test_data_for_a_stream_that_is_over_is_given_back(end: bool) -> None:
    """The connection's window is everybody's."""
    rig = Rig()
    stream = rig.ask(b"/refuse", end=end)
    rig.exchanged()
    rig.advance(1)
    for _ in range(8):
        rig.send(frame(0, 0, stream, b"x" * 16_000))
        rig.exchanged()
    other = rig.ask(end=False, body=b"y" * 16_000)
    rig.h2.end_stream(other)
    rig.exchanged()

    assert rig.goaway() is None
    assert len(rig.body(other)) == 16_000
