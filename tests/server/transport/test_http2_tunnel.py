"""WebSockets over HTTP/2 (RFC 8441)."""

import json

import h2.events
import pytest
from h2.settings import SettingCodes

from topics.protocol.model.errors import ErrorCode
from topics.server.http.refusals import refusal
from topics.server.transport.websocket import PING_S

from .http2_rig import Fields, News, Rig

CONNECT: Fields = [
    (b":method", b"CONNECT"), (b":protocol", b"websocket"), (b":scheme", b"http"),
    (b":path", b"/socket"), (b":authority", b"a"), (b"sec-websocket-version", b"13"),
]  # fmt: skip


def masked(opcode: int, payload: bytes, *, fin: bool = True) -> bytes:
    """A frame of a client, with a mask of zeros."""
    assert len(payload) < 65_536
    first = bytes([(0x80 if fin else 0) | opcode])
    if len(payload) < 126:
        return first + bytes([0x80 | len(payload)]) + bytes(4) + payload
    return first + b"\xfe" + len(payload).to_bytes(2, "big") + bytes(4) + payload


def text(payload: bytes) -> bytes:
    """A frame of the server's with a message."""
    return bytes([0x81, len(payload)]) + payload


def opened(rig: Rig, fields: Fields = CONNECT) -> int:
    stream = rig.ask_raw(fields, end=False)
    rig.exchanged()
    return stream


def socket_of(rig: Rig) -> News:
    made: News = rig.exchange.feeds[0]
    return made


def test_it_is_offered() -> None:
    """SETTINGS_ENABLE_CONNECT_PROTOCOL (RFC 8441, 3)."""
    rig = Rig()

    assert rig.h2.remote_settings[SettingCodes.ENABLE_CONNECT_PROTOCOL] == 1


def test_messages_go_both_ways() -> None:
    """As over HTTP/1.1; the exchange sees a GET (§7.7)."""
    rig = Rig()
    stream = opened(rig)
    assert rig.status(stream) == 200
    assert rig.exchange.heads[0].method == "GET"
    rig.h2.send_data(stream, masked(1, b'{"op":"ping"}') + masked(1, b"second")[:3])
    rig.exchanged()
    rig.h2.send_data(stream, masked(1, b"second")[3:])
    rig.exchanged()
    assert socket_of(rig).heard == [b'{"op":"ping"}', b"second"]
    socket_of(rig).put(b"one", b"two")
    rig.exchanged()

    assert rig.body(stream) == text(b"one") + text(b"two")
    assert rig.shared.busy == 1


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ([*CONNECT[:3], (b":path", b"/other"), *CONNECT[4:]], 404, "not_found"),
        (CONNECT[:-1], 400, "invalid_request"),
        ([*CONNECT[:-1], (b"sec-websocket-version", b"12")], 400, "invalid_request"),
        ([CONNECT[0], (b":protocol", b"connect-udp"), *CONNECT[2:]], 400, "invalid_request"),
    ],
    ids=["none there", "no version", "another version", "another protocol"],
)
def test_a_handshake_is_refused_in_the_envelope(fields: Fields, status: int, code: str) -> None:
    """And costs no more than its stream. (§0.5)"""
    rig = Rig()
    stream = opened(rig, fields)

    assert rig.status(stream) == status
    assert json.loads(rig.body(stream))["error"]["code"] == code
    rig.advance(1)
    assert rig.shared.busy == 0
    after = rig.ask()
    rig.exchanged()
    assert rig.status(after) == 200


def test_a_command_that_waits_holds_up_its_own_stream_alone() -> None:
    """What comes meanwhile is not acknowledged, so that the client's window stops it; the window of
    the connection is the others'."""
    rig = Rig()
    stream = opened(rig)
    socket_of(rig).is_busy = True
    for _ in range(6):
        rig.h2.send_data(stream, masked(1, b"x" * 9000))
        rig.exchanged()
    assert socket_of(rig).heard == []
    assert rig.h2.local_flow_control_window(stream) < 12_000
    assert rig.h2.outbound_flow_control_window == 65_535
    socket_of(rig).free()
    rig.exchanged()

    assert socket_of(rig).heard == [b"x" * 9000] * 6
    assert rig.h2.local_flow_control_window(stream) == 65_535


def test_a_client_that_says_nothing_has_to_rest() -> None:
    """On its stream alone: another stream's socket is heard meanwhile."""
    rig = Rig()
    stream, other = opened(rig), opened(rig)
    rig.h2.send_data(stream, masked(9, b"") * 35 + masked(1, b"x" * 20))
    rig.h2.send_data(other, masked(1, b"y" * 20))
    rig.exchanged()
    assert [each.heard for each in rig.exchange.feeds] == [[], [b"y" * 20]]
    assert rig.body(stream) == b"\x8a\0" * 30
    rig.advance(0.005)

    assert socket_of(rig).heard == [b"x" * 20]
    assert rig.body(stream) == b"\x8a\0" * 35


def test_both_sides_say_goodbye() -> None:
    """The client's Close is answered, and the stream ends."""
    rig = Rig()
    stream = opened(rig)
    rig.h2.send_data(stream, masked(8, b"\x03\xe8"))
    rig.exchanged()
    assert rig.body(stream) == b"\x88\x02\x03\xe8"
    assert rig.has_ended(stream)
    rig.h2.end_stream(stream)
    rig.exchanged()

    assert socket_of(rig).is_closed
    assert rig.reset_by(stream) is None
    assert rig.shared.busy == 0


def test_a_client_that_answers_no_goodbye_is_left() -> None:
    """What breaks the protocol is told so, and has five seconds."""
    rig = Rig()
    stream = opened(rig)
    rig.h2.send_data(stream, masked(1, b"\xff\xfe this is not UTF-8"))
    rig.exchanged()
    assert rig.body(stream)[:4] == b"\x88" + rig.body(stream)[1:2] + (1007).to_bytes(2, "big")
    rig.advance(6)

    assert rig.has_ended(stream)
    assert socket_of(rig).is_closed
    rig.advance(1)
    assert rig.shared.busy == 0


@pytest.mark.parametrize("how", ["end", "reset", "leave"])
def test_a_client_that_is_gone_is_given_up(how: str) -> None:
    """However it goes."""
    rig = Rig()
    stream = opened(rig)
    match how:
        case "end":
            rig.h2.end_stream(stream)
        case "reset":
            rig.h2.reset_stream(stream)
        case "leave":
            rig.leave()
    if how != "leave":
        rig.exchanged()

    assert socket_of(rig).is_closed
    assert rig.shared.busy == 0


def test_an_idle_socket_is_pinged() -> None:
    """Proxies close what says nothing."""
    rig = Rig()
    stream = opened(rig)
    rig.advance(PING_S + 1)
    assert rig.body(stream) == b"\x89\x00"
    rig.advance(PING_S)

    assert rig.body(stream) == b"\x89\x00" * 2


def test_a_socket_that_is_not_read_is_told_why() -> None:
    """1013 behind what waits, then the end."""
    rig = Rig(window=4)
    stream = opened(rig)
    socket_of(rig).put(b"0123456789")
    rig.exchanged()
    rig.advance(31)
    assert socket_of(rig).is_closed
    rig.h2.increment_flow_control_window(1000, stream)
    rig.exchanged()

    sent = text(b"0123456789")
    assert rig.body(stream)[: len(sent) + 1] == sent + b"\x88"
    assert rig.body(stream)[len(sent) + 2 :][:2] == (1013).to_bytes(2, "big")
    assert rig.has_ended(stream)


def test_a_socket_ends_when_its_far_side_does() -> None:
    """1001, when the server stops."""
    rig = Rig()
    stream = opened(rig)
    socket_of(rig).put(b"last", ends=True)
    rig.exchanged()

    assert rig.body(stream)[:6] == text(b"last")
    assert (1001).to_bytes(2, "big") in rig.body(stream)
    assert rig.of(stream, h2.events.StreamReset) == []


LATER: Fields = [*CONNECT[:3], (b":path", b"/later"), *CONNECT[4:]]


def test_a_handshake_may_be_judged_later() -> None:
    """What comes before is heard once it is accepted."""
    rig = Rig()
    stream = opened(rig, LATER)
    rig.h2.send_data(stream, masked(1, b"early"))
    rig.exchanged()
    assert not rig.of(stream, h2.events.ResponseReceived)
    socket = News()
    rig.exchange.waits[0].deliver(socket)
    rig.exchanged()
    assert rig.status(stream) == 200
    assert socket.heard == [b"early"]


def test_a_refusal_may_come_later() -> None:
    """As an answer to any request."""
    rig = Rig()
    stream = opened(rig, LATER)
    rig.exchange.waits[0].deliver(refusal(ErrorCode.NOT_FOUND, "no WebSocket here"))
    rig.exchanged()
    assert rig.status(stream) == 404


def test_much_that_comes_before_the_verdict_is_not_kept() -> None:
    """A client waits for its answer; one that does not is reset."""
    rig = Rig()
    stream = opened(rig, LATER)
    for _ in range(5):
        rig.h2.send_data(stream, bytes(16_000))
        rig.exchanged()
        if rig.reset_by(stream) is not None:
            break
    assert rig.reset_by(stream) is not None
    assert rig.exchange.waits[0].is_cancelled


@pytest.mark.parametrize("how", ["ends", "resets"])
def test_a_client_that_leaves_before_the_verdict_has_no_socket(how: str) -> None:
    """The handshake is given up, and what is opened all the same is closed."""
    rig = Rig()
    stream = opened(rig, LATER)
    if how == "ends":
        rig.h2.end_stream(stream)
    else:
        rig.h2.reset_stream(stream)
    rig.exchanged()
    assert rig.exchange.waits[0].is_cancelled
    socket = News()
    rig.exchange.waits[0].deliver(socket)
    assert socket.is_closed
