"""What the bounds of the transport met is counted, for metrics (§8.3)."""

import pytest

from topics.server.transport.abuse_counts import Abuse
from topics.server.transport.limits import Timeouts, TransportLimits

from .http1_rig import GET, POST, Rig, get
from .test_websocket import ASK, PING
from .test_websocket import frame as ws_frame


def hits(rig: Rig) -> dict[str, float]:
    """AbuseCounts that were met, and how often."""
    (_, told) = rig.shared.families()
    return {s.labels["guard"]: s.value for s in told.samples if s.value}


def test_nothing_is_counted_of_a_client_that_keeps_to_its_bounds() -> None:
    """Each guard is told, and each as 0; the connection is counted while it is open."""
    rig = Rig().send(GET)
    connections, told = rig.shared.families()

    assert connections.samples[0].value == 1
    assert {sample.labels["guard"] for sample in told.samples} == {guard.value for guard in Abuse}
    assert hits(rig) == {}
    rig.lose()
    assert next(rig.shared.families()).samples[0].value == 0


def test_a_connection_without_room() -> None:
    """Which is reset as it comes (§11)."""
    first = Rig(limits=TransportLimits(connections=1))
    Rig(shared=first.shared)

    assert hits(first) == {"too_many_connections": 1}


@pytest.mark.parametrize(
    ("sent", "guard"),
    [(b"GET /ec", "slow_head"), (POST + b"Content-Length: 9\r\n\r\nabc", "slow_body")],
)
def test_a_request_that_does_not_come(sent: bytes, guard: str) -> None:
    """By its deadline."""
    rig = Rig().send(sent)
    rig.loop.advance(400)

    assert hits(rig) == {guard: 1}


def test_a_client_that_does_not_read() -> None:
    """Nothing of a large answer is taken."""
    rig = Rig(timeouts=Timeouts(take_s=30, write_s=35))
    rig.transport.room = 0
    rig.send(get(b"/big"))
    rig.loop.advance(60)

    assert hits(rig) == {"slow_reader": 1}


def test_frames_that_say_nothing() -> None:
    """Of a WebSocket, which is closed with 1008."""
    rig = Rig(limits=TransportLimits(frames=10))
    rig.send(ASK)
    for _ in range(200):
        rig.send(ws_frame(PING, b"x"))
        rig.loop.advance(0.01)

    assert hits(rig) == {"websocket_flood": 1}


def test_frames_that_ask_for_nothing() -> None:
    """Of HTTP/2: the connection ends with ENHANCE_YOUR_CALM."""
    from .http2_rig import Rig as Http2Rig
    from .http2_rig import frame

    rig = Http2Rig(limits=TransportLimits(frames=10))
    for _ in range(2000):
        if rig.transport.is_closing() or rig.transport.has_eof:
            break
        rig.connection.data_received(frame(6, 0, 0, b"x" * 8))
        rig.loop.advance(0.01)
    (_, told) = rig.connection.shared.families()

    assert {s.labels["guard"]: s.value for s in told.samples if s.value} == {"http2_flood": 1}
