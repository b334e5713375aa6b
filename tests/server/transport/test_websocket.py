"""WebSocket by the byte, on HTTP/1.1: the handshake, messages, what is charged, the end (§7.7)."""

import base64
import hashlib

import pytest

from topics.protocol.model.errors import ErrorCode
from topics.server.http.refusals import refusal
from topics.server.transport.limits import Timeouts, TransportLimits

from .http1_rig import GET, Rig
from .http2_rig import News

KEY = b"AAAAAAAAAAAAAAAAAAAAAA=="
ASK = (
    b"GET /socket HTTP/1.1\r\nHost: a\r\nUpgrade: WebSocket\r\nConnection: keep-alive, Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %b\r\n"
    b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n" % KEY
)
TEXT, BINARY, CONT, CLOSE, PING, PONG = 0x81, 0x82, 0x80, 0x88, 0x89, 0x8A


def frame(first: int, payload: bytes = b"", mask: bytes = b"\1\2\3\4") -> bytes:
    """A frame of a client; without the highest bit of `first` others follow."""
    size = len(payload)
    if size < 126:
        length = bytes([0x80 | size])
    elif size < 1 << 16:
        length = b"\xfe" + size.to_bytes(2)
    else:
        length = b"\xff" + size.to_bytes(8)
    masked = bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload))
    return bytes([first]) + length + mask + masked


def frames(data: bytes) -> list[tuple[int, bytes]]:
    """What the server sent: (first byte, payload) of each frame."""
    out = []
    while data:
        size, at = data[1], 2
        if size == 126:
            size, at = int.from_bytes(data[2:4]), 4
        elif size == 127:
            size, at = int.from_bytes(data[2:10]), 10
        out.append((data[0], data[at : at + size]))
        data = data[at + size :]
    return out


def closed(rig: Rig) -> int:
    """The code of the Close frame that came last."""
    first, payload = frames(rig.got())[-1]
    assert first == CLOSE
    return int.from_bytes(payload[:2])


def opened(
    limits: TransportLimits | None = None, timeouts: Timeouts | None = None
) -> tuple[Rig, News]:
    rig = Rig(limits=limits, timeouts=timeouts)
    rig.send(ASK)
    assert rig.got().startswith(b"HTTP/1.1 101 ")
    return rig, rig.exchange.feeds[0]


# ---------------------------------------------------------------------- the handshake


def test_a_handshake_is_accepted() -> None:
    """By the digest of its key, and without an extension (RFC 6455 §4.2.2)."""
    rig = Rig()
    rig.send(ASK)
    head = rig.got()
    digest = hashlib.sha1(KEY + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
    assert b"sec-websocket-accept: " + base64.b64encode(digest) in head
    assert b"extensions" not in head
    assert head.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("was", "now"),
    [
        (b"GET", b"POST"),
        (b"HTTP/1.1", b"HTTP/1.0"),
        (b"Version: 13", b"Version: 8"),
        (KEY, b"short"),
        (KEY, b"\xff" * 24),
        (b"Upgrade: WebSocket", b"Upgrade: h2c"),
        (b"keep-alive, Upgrade", b"keep-alive"),
    ],
)
def test_a_broken_handshake_is_the_request_without_it(was: bytes, now: bytes) -> None:
    """An `Upgrade` may be ignored (RFC 9110 §7.8), and no byte of one is an error of ours."""
    rig = Rig()
    rig.send(ASK.replace(was, now, 1).replace(b"/socket", b"/echo"))
    assert rig.answer()[0] == 200


def test_any_bytes_in_a_header_of_a_handshake_are_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A protocol that is asked for by name is not chosen, whatever its name."""
    rig = Rig()
    rig.send(ASK[:-2] + b"Sec-WebSocket-Protocol: \xff\xfe\r\nOrigin: \xff\r\n\r\n")
    assert rig.got().startswith(b"HTTP/1.1 101 ")
    assert caplog.records == []


def test_a_handshake_is_refused_as_its_path_would_be() -> None:
    """In the envelope; the connection ends, as its client may take it for upgraded. (§7.7)"""
    rig = Rig()
    rig.send(ASK.replace(b"/socket", b"/refuse"))
    assert rig.code() == (404, "not_found")
    assert rig.is_finished


def test_frames_before_the_answer_are_refused() -> None:
    """A client must wait (RFC 6455 §4.1); a proxy may take these bytes for another request."""
    rig = Rig()
    rig.send(ASK + frame(TEXT, b"early"))
    assert rig.code() == (400, "invalid_request")
    assert rig.exchange.feeds == []
    assert rig.is_finished


# ---------------------------------------------------------------------- messages


@pytest.mark.parametrize("step", [1, 3, 1000])
@pytest.mark.parametrize("size", [0, 20, 125, 126, 70_000])
def test_messages_come_whole(size: int, step: int) -> None:
    """However the network cuts them, and however the client does."""
    rig, socket = opened()
    text = b"x" * size
    sent = frame(TEXT, text) + frame(1, b"a" * 20) + frame(0, b"b" * 20) + frame(PING, b"?")
    sent += frame(CONT, b"c" * 20) + frame(BINARY, b"y" * 20)
    rig.send(*[sent[at : at + step] for at in range(0, len(sent), step)])

    assert socket.heard == [text, b"a" * 20 + b"b" * 20 + b"c" * 20, b"binary"]
    assert frames(rig.got()) == [(PONG, b"?")]


def test_messages_out_are_text() -> None:
    """Each as it comes, from the turn that has it."""
    rig, socket = opened()
    socket.put(b"one", b"x" * 1000)
    rig.loop.rest()
    assert frames(rig.got()) == [(TEXT, b"one"), (TEXT, b"x" * 1000)]


def test_a_command_waits_for_the_one_before() -> None:
    """Nothing more is read while one is carried out."""
    rig, socket = opened()
    socket.is_busy = True
    rig.send(frame(TEXT, b"x" * 20), frame(TEXT, b"y" * 20))
    assert socket.heard == []
    socket.free()
    rig.loop.rest()
    assert socket.heard == [b"x" * 20, b"y" * 20]


# ---------------------------------------------------------------------- what breaks the protocol


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"\x81\x05hello", 1002),
        (frame(0x83), 1002),
        (frame(0xC1, b"x" * 20), 1002),
        (frame(CONT, b"x" * 20), 1002),
        (frame(1, b"x" * 20) + frame(TEXT, b"y" * 20), 1002),
        (frame(PING, b"x" * 126), 1002),
        (frame(9, b"x"), 1002),
        (frame(TEXT, b"\xff" * 20), 1007),
        (frame(TEXT, b"x" * 1001), 1009),
        (frame(1, b"x" * 600) + frame(CONT, b"x" * 600), 1009),
    ],
    ids=[
        *("unmasked", "opcode", "reserved bit", "nothing to continue", "not continued"),
        *("a large ping", "a ping in parts", "no text", "too large", "too large in parts"),
    ],
)
def test_who_breaks_the_protocol_is_told_so(sent: bytes, code: int) -> None:
    """In a Close frame, and then the connection ends."""
    rig, socket = opened(TransportLimits(message_bytes=1000))
    rig.send(sent)
    assert closed(rig) == code
    rig.loop.advance(6)
    assert rig.is_finished
    assert socket.is_closed
    assert rig.exchange.open == 0


def test_a_client_says_goodbye() -> None:
    """And is answered with its own code (RFC 6455 §5.5.1)."""
    rig, socket = opened()
    rig.send(frame(CLOSE, (4001).to_bytes(2) + b"bye"))
    assert closed(rig) == 4001
    assert rig.is_finished
    assert socket.is_closed


def test_a_server_says_goodbye() -> None:
    """Behind its last message; its client has a moment to answer. (§7.7)"""
    rig, socket = opened(timeouts=Timeouts(farewell_s=5))
    socket.put(b"the last word", ends=True)
    rig.loop.rest()
    (message, (first, payload)) = frames(rig.got())
    assert message == (TEXT, b"the last word")
    assert (first, payload[:2]) == (CLOSE, (1001).to_bytes(2))
    assert not rig.is_finished
    rig.send(frame(TEXT, b"x" * 20), frame(CLOSE, (1001).to_bytes(2)))
    assert rig.is_finished
    assert socket.heard == []


@pytest.mark.parametrize(
    "flooded",
    [
        frame(PING),
        frame(PONG),
        frame(PING, b"x" * 125),
        frame(TEXT),
        frame(TEXT, b"{}"),
        frame(BINARY, b"x" * 20),
        frame(1, b"x") + frame(0) * 300,
        frame(1, b"x") + frame(0, b"y") * 300,
    ],
    ids=["pings", "pongs", "long pings", "empty", "tiny", "binary", "empty parts", "tiny parts"],
)
def test_frames_that_say_nothing_are_counted(flooded: bytes) -> None:
    """200 in 10 s; then the socket is closed with 1008."""
    rig, _ = opened(TransportLimits(frames=200, frames_s=10))
    rig.send(flooded * (250 if len(flooded) < 300 else 1))
    rig.loop.advance(1)
    assert closed(rig) == 1008


def test_a_client_that_says_nothing_has_to_rest() -> None:
    """Beyond 20 frames, 5 ms after each ten; what it sends waits, and is heard then. (§7.7)"""
    rig, socket = opened()
    rig.send(frame(PING) * 45 + frame(TEXT, b"x" * 20))
    pongs = [len(frames(rig.got()))]
    for _ in range(2):
        assert socket.heard == []
        rig.loop.advance(0.005)
        pongs.append(len(frames(rig.got())))

    assert pongs == [30, 10, 5]
    assert socket.heard == [b"x" * 20]


def test_good_faith_does_not_meet_the_budget() -> None:
    """A ping a second, for an hour."""
    rig, _ = opened()
    for _ in range(3600):
        rig.send(frame(PING))
        rig.loop.advance(1)
    assert not rig.is_finished
    assert len([each for each in frames(rig.got()) if each[0] == PONG]) == 3600


# ---------------------------------------------------------------------- time, and the end


def test_the_server_pings() -> None:
    """Every 20 s, so that a proxy does not take an idle socket for a dead one."""
    rig, _ = opened()
    rig.loop.advance(61)
    assert frames(rig.got()) == [(PING, b"")] * 3


def test_a_socket_that_is_not_taken_gets_its_close_frame() -> None:
    """1013, behind what is not taken yet, and its time to take it. (§7.6)"""
    rig, socket = opened(timeouts=Timeouts(take_s=30, write_s=35))
    rig.transport.room = 10
    socket.put(b"x" * 100, b"never seen")
    rig.loop.rest()
    rig.loop.advance(31)
    assert closed(rig) == 1013
    assert socket.is_closed
    assert not rig.transport.is_aborted
    rig.loop.advance(36)
    assert rig.transport.is_aborted


def test_who_does_not_read_is_not_heard() -> None:
    """What waits for a client is one buffer, however much it sends. (§7.7)"""
    rig, socket = opened()
    rig.transport.room = 0
    socket.put(b"x" * 100)
    rig.loop.rest()
    rig.send(frame(TEXT, b"x" * 20) * 10)
    assert socket.heard == []
    rig.transport.take_all()
    rig.loop.rest()
    assert len(socket.heard) == 10


@pytest.mark.parametrize("how", ["lost", "half"])
def test_a_socket_ends_with_its_client(how: str) -> None:
    """Without a Close frame, too."""
    rig, socket = opened()
    if how == "lost":
        rig.lose()
    else:
        rig.end_half()
    assert socket.is_closed
    assert (rig.exchange.open, rig.shared.busy) == (0, 0)


def test_a_bug_behind_a_socket_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Close 1011, and a trace in the log."""
    rig, socket = opened()

    def hear(text: bytes) -> None:
        raise ValueError("a bug")

    socket.hear = hear  # type: ignore[method-assign]
    rig.send(frame(TEXT, b"x" * 20))
    assert closed(rig) == 1011
    assert "a command failed" in caplog.text


def test_a_connection_without_a_handshake_stays_http() -> None:
    """The first request on it is no reason to expect frames."""
    rig = Rig()
    rig.send(GET + ASK)
    assert rig.answer()[0] == 200
    assert rig.got().startswith(b"HTTP/1.1 101 ")


# ---------------------------------------------------------------------- a verdict that comes later


LATER = ASK.replace(b"/socket", b"/later")


def test_a_handshake_may_be_judged_later() -> None:
    """Nothing is said before; then it is a WebSocket, or the refusal."""
    rig = Rig()
    rig.send(LATER)
    assert rig.got() == b""
    socket = News()
    rig.exchange.waits[0].deliver(socket)
    rig.loop.rest()
    assert rig.got().startswith(b"HTTP/1.1 101 ")
    rig.send(frame(TEXT, b'{"op":"ping","request_id":1}'))
    assert socket.heard == [b'{"op":"ping","request_id":1}']

    refused = Rig()
    refused.send(LATER)
    refused.exchange.waits[0].deliver(refusal(ErrorCode.NOT_FOUND, "no WebSocket here"))
    refused.loop.rest()
    assert refused.answer()[0] == 404


def test_a_client_that_leaves_before_the_verdict_has_no_socket() -> None:
    """The handshake is given up, and what is opened all the same is closed."""
    rig = Rig()
    rig.send(LATER)
    rig.lose()
    assert rig.exchange.waits[0].is_cancelled
    socket = News()
    rig.exchange.waits[0].deliver(socket)
    assert socket.is_closed
