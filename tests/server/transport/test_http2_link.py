"""What the parts of an HTTP/2 connection share: one timer, one socket, the streams and their room."""

import json

import pytest
from h2.errors import ErrorCodes

from topics.protocol.model.errors import ErrorCode
from topics.server.http.refusals import refusal
from topics.server.transport.http2.link import FLUSH_BYTES, Http2Link
from topics.server.transport.http2.stream import Stream, StreamInput, StreamState
from topics.server.transport.limits import Timeouts, TransportLimits

from .http2_rig import SOUND, Rig, frame


def link_of(rig: Rig) -> Http2Link:
    speaker = rig.connection._speaker
    found: Http2Link = speaker._link  # type: ignore[union-attr]
    return found


def opened(rig: Rig) -> Stream:
    """A stream that the exchange has yet to answer."""
    rig.ask(b"/wait")
    rig.exchanged()
    return list(link_of(rig).streams.values())[-1]


# Time.


def test_one_timer_rings_for_all_streams() -> None:
    """For the first that is due; the others are set again, and none rings twice."""
    rig = Rig()
    link = link_of(rig)
    streams = [opened(rig) for _ in range(3)]
    start_s = rig.loop.time()
    for stream, left_s in zip(streams, (3, 1, 2), strict=True):
        link.put_off(stream, left_s)
    due: list[tuple[float, int]] = []
    rig.connection.deadline._on_due = lambda: due.extend(
        (rig.loop.time() - start_s, stream.id) for stream in link.due()
    )
    for _ in range(40):
        rig.loop.advance(0.1)

    assert [each for _, each in due] == [3, 5, 1]
    assert [at_s for at_s, _ in due] == pytest.approx([1, 2, 3], abs=0.11)
    assert all(stream.due_s is None for stream in streams)


def test_a_connection_is_idle_from_its_last_stream_on() -> None:
    """Not from its first."""
    rig = Rig(timeouts=Timeouts(idle_s=10))
    stream = opened(rig)
    rig.loop.advance(1000)
    assert not rig.transport.has_eof
    link_of(rig).close(stream)
    rig.loop.advance(9)
    assert not rig.transport.has_eof
    rig.loop.advance(2)

    assert rig.transport.has_eof


# Streams.


def test_a_connection_is_busy_while_it_has_streams() -> None:
    """A stop waits for those."""
    rig = Rig()
    link = link_of(rig)
    first, second = opened(rig), opened(rig)
    assert rig.shared.busy == 1
    link.close(first)
    assert rig.shared.busy == 1
    link.close(second)

    assert rig.shared.busy == 0
    assert (first.state, second.state) == (StreamState.CLOSED, StreamState.CLOSED)


def test_a_closed_stream_gives_back_its_room() -> None:
    """And its connection asks the exchange again only when half of the room is free."""
    rig = Rig(limits=TransportLimits(connection_answers_bytes=100))
    link = link_of(rig)
    stream = opened(rig)
    assert link.answers.take(51)
    stream.held_bytes = 51
    assert link.is_full
    link.close(stream)

    assert not link.is_full
    assert rig.shared.answers.held_bytes == 0


@pytest.mark.parametrize(
    ("ends", "spoilt", "is_head", "kinds", "code"),
    [
        (True, False, False, [1, 0], None),
        (True, False, True, [1], None),
        (False, False, False, [1, 0, 3], ErrorCodes.NO_ERROR),
        (True, True, False, [1, 0, 3], ErrorCodes.PROTOCOL_ERROR),
        (False, True, True, [1, 3], ErrorCodes.PROTOCOL_ERROR),
    ],
)
def test_a_request_that_the_exchange_does_not_see_is_answered_at_once(
    ends: bool, spoilt: bool, is_head: bool, kinds: list[int], code: ErrorCodes | None
) -> None:
    """Whole, and reset behind the answer where the client has more to send or broke the rules (RFC
    9113, 8.1 and 8.1.1)."""
    rig = Rig()
    link = link_of(rig)
    link.h2.receive_data(frame(1, 5 if ends else 4, 1, rig.h2.encoder.encode(SOUND)))
    rig.frames()
    answer = refusal(ErrorCode.INVALID_REQUEST, "why")
    link.reject(1, answer, is_head=is_head, ends=ends, spoilt=spoilt)
    link.flush()
    found = rig.frames()

    assert [kind for kind, *_ in found] == kinds
    if 0 in kinds:
        assert json.loads(found[1][3])["error"]["message"] == "why"
    if code is not None:
        assert int.from_bytes(found[-1][3]) == code


def test_a_reset_of_a_stream_whose_halves_have_ended_is_sent_all_the_same() -> None:
    """To h2 it is closed; to the client its answer has not come."""
    rig = Rig()
    link = link_of(rig)
    stream = opened(rig)
    link.h2.send_headers(stream.id, [(b":status", b"200")], end_stream=True)
    stream.move(StreamInput.ANSWERED)
    link.flush()
    rig.frames()
    link.reset(stream, ErrorCodes.CANCEL)

    assert [(kind, each) for kind, _, each, _ in rig.frames()] == [(3, stream.id)]
    assert stream.id not in link.streams


# Bytes.


def test_frames_are_written_together() -> None:
    """So many bytes at a time that the socket can say that it is full."""
    rig = Rig()
    link = link_of(rig)
    link.h2.ping(b"12345678")
    link.made(FLUSH_BYTES - 1)
    assert not rig.transport.written
    link.made(1)

    assert [kind for kind, *_ in rig.frames()] == [6]


def test_a_connection_ends_once() -> None:
    """One GOAWAY, however many reasons."""
    rig = Rig()
    link = link_of(rig)
    link.go(ErrorCodes.PROTOCOL_ERROR)
    link.go(ErrorCodes.NO_ERROR)

    assert [(kind, payload[4:8]) for kind, _, _, payload in rig.frames()] == [(7, b"\0\0\0\1")]
    assert rig.transport.has_eof
