"""HTTP/2 clients that cost more than they pay."""

import random
import struct
from collections.abc import Callable

import h2.errors
import h2.events
import pytest
from hpack import NeverIndexedHeaderTuple

from .http2_rig import PREFACE, SOUND, Rig, frame

CALM = int(h2.errors.ErrorCodes.ENHANCE_YOUR_CALM)
ONE = struct.pack(">I", 1)


def piece(rig: Rig, kind: str, i: int) -> bytes:
    """A frame that asks for nothing; stream 1 is a request whose body is not whole."""
    match kind:
        case "PING":
            return frame(6, 0, 0, struct.pack(">Q", i))
        case "PING ACK":
            return frame(6, 1, 0, bytes(8))
        case "SETTINGS":
            return frame(4, 0, 0, struct.pack(">HI", 4, 65_535 - i % 7))
        case "SETTINGS ACK":
            return frame(4, 1, 0)
        case "PRIORITY":
            return frame(2, 0, 2 * i + 101, struct.pack(">IB", 0, 15))
        case "unknown":
            return frame(0xBE, 0, 0, b"x")
        case "WINDOW_UPDATE":
            return frame(8, 0, 0, ONE)
        case "WINDOW_UPDATE of a stream":
            return frame(8, 0, 1, ONE)
        case "RST_STREAM, closed":
            return frame(3, 0, 1, ONE)
        case "empty DATA":
            return frame(0, 0, 1)
        case "padding":
            return frame(0, 8, 1, b"\x0a" + bytes(10))
        case "rapid reset":
            head = frame(1, 5, 2 * i + 3, rig.h2.encoder.encode(SOUND))
            return head + frame(3, 0, 2 * i + 3, ONE)
    raise AssertionError(kind)


KINDS = [
    "PING", "PING ACK", "SETTINGS", "SETTINGS ACK", "PRIORITY", "unknown", "WINDOW_UPDATE",
    "WINDOW_UPDATE of a stream", "RST_STREAM, closed", "empty DATA", "padding", "rapid reset",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_frames_that_ask_for_nothing_are_counted(kind: str) -> None:
    """More than 200 in 10 s end the connection with ENHANCE_YOUR_CALM."""
    rig = Rig()
    rig.ask(end=False)
    rig.exchanged()
    for i in range(600):
        rig.send(piece(rig, kind, i))
        rig.loop.advance(0.001)
        if rig.transport.has_eof:
            break
    codes = [payload[4:8] for kind, _, _, payload in rig.frames() if kind == 7]

    assert codes == [struct.pack(">I", CALM)]
    assert 195 < i < 500
    assert rig.exchange.open == 0
    assert len(rig.exchange.heads) <= 202


@pytest.mark.parametrize("kind", KINDS)
def test_a_budget_is_not_met_by_good_faith(kind: str) -> None:
    """A hundred of them every ten seconds are nobody's attack."""
    rig = Rig()
    rig.ask(end=False, body=b"x")
    rig.exchanged()
    for second in range(100):
        for i in range(10):
            rig.send(piece(rig, kind, 10 * second + i))
        rig.loop.advance(1)
        if second == 8:
            break

    assert not rig.transport.has_eof


def test_a_client_that_goes_on_has_to_rest() -> None:
    """Twenty are free; behind them ten are taken every five milliseconds, and a request behind them
    waits as long. What is on its way to the client goes on."""
    rig = Rig()
    rig.exchanged()
    rig.send(b"".join(frame(6, 0, 0, bytes(8)) for _ in range(60)))
    acks = sum(kind == 6 for kind, _, _, _ in rig.frames())
    assert acks == 29  # SETTINGS were one of them
    rig.loop.advance(0.006)
    assert sum(kind == 6 for kind, _, _, _ in rig.frames()) == 10
    stream = rig.ask(body=b"behind them")
    rig.exchanged()
    assert rig.of(stream, h2.events.ResponseReceived) == []
    rig.advance(0.02)

    assert rig.body(stream) == b"behind them"


def test_large_heads_are_paid_for_by_their_size() -> None:
    """Huffman's code is slow to read: 20 KB of it in every head are nobody's habit."""
    rig = Rig()
    long = NeverIndexedHeaderTuple(b"last-event-id", b"e" * 30_000)
    head = rig.h2.encoder.encode([*SOUND, long])
    assert 16_000 < len(head) < 32_000
    for i in range(100):
        stream = 2 * i + 1
        rig.send(frame(1, 1, stream, head[:16_000]) + frame(9, 4, stream, head[16_000:]))
        rig.loop.advance(0.01)

    assert rig.transport.has_eof
    assert 20 < len(rig.exchange.heads) < 50


@pytest.mark.parametrize(
    ("first", "flags"),
    [(0, 0), (300, 0x8), (5, 0x20), (305, 0x28)],
    ids=["plain", "padded", "with priority", "both"],
)
def test_a_long_code_is_read_in_turns_with_others(first: int, flags: int) -> None:
    """30 KB in Huffman's code take 5 ms; another client's request does not wait for that.  The head is
    what it was, and so is the next one that refers to it."""
    rig = Rig()
    ticking(rig, 0.00005)
    other = Rig(shared=rig.shared)
    path = b"/echo?" + b"0" * 31_000
    block = rig.h2.encoder.encode([*SOUND[:3], (b":path", path), (b"x", b"0" * 1500)])
    before = b"\xff" if flags & 0x8 else b""
    before += bytes(5) if flags & 0x20 else b""
    behind = bytes(255) if flags & 0x8 else b""
    pieces = [block[at : at + 16_000] for at in range(0, len(block), 16_000)]
    assert len(pieces) > 1
    sent = frame(1, 1 | flags, 1, before + pieces[0] + behind)
    for piece in pieces[1:-1]:
        sent += frame(9, 0, 1, piece)
    sent += frame(9, 4, 1, pieces[-1])
    rig.connection.data_received(sent)
    assert rig.loop.turn()
    other.ask()
    other.connection.data_received(other.h2.data_to_send())
    rig.loop.rest()
    again = rig.h2.encoder.encode([*SOUND, (b"x", b"0" * 1500)])
    assert len(again) < 100
    rig.send(frame(1, 5, 3, again))

    heads = rig.exchange.heads
    assert [head.query for head in heads] == [b"", path[6:], b""]
    assert [(b"x", b"0" * 1500) in head.headers for head in heads] == [False, True, True]


def test_a_code_that_is_none_ends_the_connection() -> None:
    """The next head could not be read without it (RFC 7541, 5.2)."""
    rig = Rig()
    rig.frames()
    code = b"\0" * 1000 + b"\xff" * 5
    rig.send(frame(1, 5, 1, b"\0\x01x\xff\xee\x06" + code))
    codes = [payload[4:8] for kind, _, _, payload in rig.frames() if kind == 7]

    assert codes == [struct.pack(">I", 9)]
    assert rig.transport.has_eof


def test_one_byte_of_data_at_a_time_is_paid_for() -> None:
    """At a lower price: a client may stream what it has."""
    rig = Rig()
    rig.ask(end=False)
    rig.exchanged()
    for _ in range(1500):
        rig.send(frame(0, 0, 1, b"x"))
        rig.loop.advance(0.001)
    assert not rig.transport.has_eof
    for _ in range(1500):
        rig.send(frame(0, 0, 1, b"x"))
        rig.loop.advance(0.001)

    assert rig.transport.has_eof


def test_small_bodies_that_end_in_a_frame_of_its_own_are_not_paid_for() -> None:
    """A client that does not know a body's end as it sends it ends the stream with empty DATA."""
    rig = Rig()
    for _ in range(2500):
        stream = rig.ask(body=b"{}", end=False)
        rig.exchanged()
        rig.h2.end_stream(stream)
        rig.exchanged()
        rig.loop.advance(0.001)
        assert rig.has_ended(stream)
        rig.events.clear()

    assert not rig.transport.has_eof


@pytest.mark.parametrize("size", [1, 1000])
def test_data_of_a_stream_that_is_over_is_paid_for(size: int) -> None:
    """h2 answers each frame with a reset, and opens the connection's window again: they had no end.
    What is on its way when a stream ends is no attack."""
    rig = Rig()
    stream = rig.ask(body=b"x")
    rig.exchanged()
    assert rig.has_ended(stream)
    late = frame(0, 0, stream, bytes(size))
    for _ in range(1500):
        rig.send(late)
        rig.loop.advance(0.001)
    assert not rig.transport.has_eof
    for _ in range(1500):
        rig.send(late)
        rig.loop.advance(0.001)
        if rig.transport.has_eof:
            break
    codes = [payload[4:8] for kind, _, _, payload in rig.frames() if kind == 7]

    assert codes == [struct.pack(">I", CALM)]


def test_continuations_without_end_are_cut() -> None:
    """Whatever is in them."""
    rig = Rig()
    rig.send(frame(1, 1, 1, rig.h2.encoder.encode(SOUND)))
    for _ in range(20):
        rig.send(frame(9, 0, 1, b""))
    codes = [payload[4:8] for kind, _, _, payload in rig.frames() if kind == 7]

    assert codes == [struct.pack(">I", CALM)]


def test_updates_are_earned_by_what_is_sent() -> None:
    """A client that takes a large answer in small frames may say so after each."""
    rig = Rig()
    stream = rig.ask(b"/big")
    rig.exchanged()
    updates = 0
    while not rig.has_ended(stream):
        rig.h2.increment_flow_control_window(4096, stream)
        rig.h2.increment_flow_control_window(4096)
        updates += 2
        rig.exchanged()
        assert rig.goaway() is None

    assert updates > 900


def test_one_slice_handles_few_of_many_frames() -> None:
    """However many frames come at once, a millisecond later the others have their turn."""
    rig = Rig()
    ticking(rig, 0.0003)
    other = Rig(shared=rig.shared)
    other.ask()
    pieces = b"".join(frame(8, 0, 0, ONE) for _ in range(150))
    rig.connection.data_received(pieces)
    other.connection.data_received(other.h2.data_to_send())
    while not other.exchange.heads:
        assert rig.loop.turn()

    assert rig.connection._inbox.size_bytes or rig.connection._is_queued
    rig.loop.rest()
    assert not rig.connection._is_queued


def test_a_crowd_of_new_connections_waits_in_line() -> None:
    """However many come at once, one that was there before is served when it asks."""
    rig = Rig()
    rig.loop.advance(1)
    crowd = [Rig(shared=rig.shared, greets=False) for _ in range(50)]
    for other in crowd:
        other.h2.initiate_connection()
        other.ask(b"/wait")
        other.connection.data_received(other.h2.data_to_send())
    rig.ask()
    rig.connection.data_received(rig.h2.data_to_send())

    assert [head.path for head in rig.exchange.heads] == [b"/echo"]
    rig.loop.rest()
    assert len(rig.exchange.heads) == 51


def ticking(rig: Rig, step_s: float) -> None:
    """Have every look at the CPU's clock cost some of it."""
    now = [0.0]

    def clock() -> float:
        now[0] += step_s
        return now[0]

    rig.shared.clock = clock
    rig.shared.turns._clock = rig.shared.stopwatch._clock = clock


# Bytes of a client never end in a traceback.


def cut(data: bytes, dice: random.Random) -> list[bytes]:
    at, out = 0, []
    while at < len(data):
        size = dice.randrange(1, 200)
        out.append(data[at : at + size])
        at += size
    return out


def noise(dice: random.Random) -> bytes:
    return dice.randbytes(dice.randrange(1, 300))


def frames_of_noise(dice: random.Random) -> bytes:
    stream = dice.choice((0, 1, 3, 5, 7, 2, 9))
    return frame(
        dice.randrange(0, 12),
        dice.randrange(256),
        stream,
        dice.randbytes(dice.choice((0, 1, 4, 5, 6, 8, 9, 40))),
    )


def sound_but_for_a_bit(dice: random.Random) -> bytes:
    client = Rig(greets=False).h2
    client.initiate_connection()
    for i in range(3):
        client.send_headers(2 * i + 1, SOUND)
        client.send_data(2 * i + 1, b"x" * 50, end_stream=bool(i % 2))
    client.send_headers(1, [(b"x", b"y")], end_stream=True)
    client.ping(b"12345678")
    client.increment_flow_control_window(10)
    client.reset_stream(5)
    sent = bytearray(client.data_to_send()[len(PREFACE) :])
    for _ in range(dice.randrange(1, 4)):
        sent[dice.randrange(len(sent))] ^= 1 << dice.randrange(8)
    return bytes(sent)


@pytest.mark.parametrize("make", [noise, frames_of_noise, sound_but_for_a_bit])
def test_no_bytes_end_in_a_traceback(
    make: Callable[[random.Random], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """And each request that was admitted is closed, whatever came behind it."""
    dice = random.Random(9113)
    for _ in range(400):
        rig = Rig(greets=False)
        rig.connection.data_received(PREFACE)
        rig.send(frame(4, 0, 0))
        for _ in range(8):
            for part in cut(make(dice), dice):
                if not rig.transport.is_aborted:
                    rig.send(part)
        rig.loop.advance(40)
        rig.leave()
        assert rig.exchange.open == 0
        assert rig.shared.busy == 0
        assert rig.shared.answers.held_bytes == rig.shared.bodies.held_bytes == 0

    assert caplog.records == []


def test_a_reset_right_after_the_connect_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    """At whatever byte."""
    whole = PREFACE + frame(4, 0, 0) + frame(1, 5, 1, Rig().h2.encoder.encode(SOUND))
    for size in range(0, len(whole), 3):
        rig = Rig(greets=False)
        rig.send(whole[:size])
        rig.leave()
        assert rig.exchange.open == 0

    assert caplog.records == []
