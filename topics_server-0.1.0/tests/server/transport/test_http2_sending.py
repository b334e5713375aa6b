"""Answers on their way out, frame by frame: whose is the next, and how much is made at a time.

`test_http2_flow.py` has the windows, what is slow and what is refused for want of room.
"""

import pytest

from topics.server.transport.http2.frames import FRAME_BYTES_MAX
from topics.server.transport.http2.sending import Sender

from .http2_rig import Rig, frame, ok

HEADERS, DATA = 1, 0


def sender_of(rig: Rig) -> Sender:
    found: Sender = rig.connection._speaker._sender  # type: ignore[union-attr]
    return found


def waiting(rig: Rig, *sizes: int) -> list[int]:
    """Streams whose answers, of so many bytes, are there and of which no frame is made; the
    connection has its turn when the test makes frames."""
    streams = [rig.ask(b"/wait") for _ in sizes]
    rig.exchanged()
    rig.connection.work_soon = lambda: None  # type: ignore[method-assign]
    for size, wait in zip(sizes, rig.exchange.waits, strict=True):
        wait.deliver(ok(bytes(size)))
    return streams


def made(rig: Rig) -> list[tuple[int, int, int]]:
    """One step: the frames, as kind, stream and size."""
    rig.connection._speaker._link.flush()  # type: ignore[union-attr]
    return [(kind, stream, len(payload)) for kind, _, stream, payload in rig.frames()]


def test_a_step_makes_one_frame_with_a_body() -> None:
    """However much there is to send: the head comes with the first."""
    rig = Rig(window=1 << 20)
    (stream,) = waiting(rig, 3 * FRAME_BYTES_MAX)
    sender, steps = sender_of(rig), []
    while sender.make_frame():
        steps.append([(kind, size) for kind, _, size in made(rig) if kind == DATA])

    assert steps == [[(DATA, FRAME_BYTES_MAX)]] * 3
    assert stream not in rig.connection._speaker._link.streams  # type: ignore[union-attr]


def test_streams_take_turns() -> None:
    """Answers begin in the order in which they came, then each has a frame; one that is short ends
    while a long one goes on."""
    rig = Rig(window=1 << 20)
    long, short = waiting(rig, 3 * FRAME_BYTES_MAX - 1, FRAME_BYTES_MAX)
    sender, order = sender_of(rig), []
    while sender.make_frame():
        order += [stream for kind, stream, _ in made(rig) if kind == DATA]

    assert order == [long, short, long, long]


@pytest.mark.parametrize("answers", [0, 1, 2])
def test_an_answer_is_made_with_its_request_where_it_is_alone(answers: int) -> None:
    """Several share the turns that come."""
    rig = Rig()
    waiting(rig, *[10] * answers)

    assert sender_of(rig).make_first() is (answers == 1)


def test_what_the_connections_window_stops_waits_in_line() -> None:
    """It is looked at again when that window opens, and not before."""
    rig = Rig(window=1 << 20)
    streams = waiting(rig, 60_000, 60_000, 60_000)
    sender = sender_of(rig)
    while sender.make_frame():
        pass
    sent = sum(size for kind, _, size in made(rig) if kind == DATA)
    assert sent == 65_535
    assert not sender.make_frame()
    rig.connection._speaker._link.h2.receive_data(frame(8, 0, 0, (3000).to_bytes(4)))  # type: ignore[union-attr]
    assert sender.make_frame()
    ((kind, stream, size),) = made(rig)

    assert (kind, size) == (DATA, 3000)
    assert stream in streams
    while sender.make_frame():
        assert made(rig) == []


def test_nothing_is_made_of_nothing() -> None:
    """And nothing of an answer whose stream was reset before it began."""
    rig = Rig()
    (stream,) = waiting(rig, 10)
    rig.connection._speaker._link.close(rig.connection._speaker._link.streams[stream])  # type: ignore[union-attr]
    sender = sender_of(rig)
    assert sender.make_frame()
    assert made(rig) == []
    assert not sender.make_frame()
