"""The life of a stream: every cell of its table, and the same told over the wire."""

import h2.events
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.server.transport.bodies import Bodies, BodyShare
from topics.server.transport.http2.stream import (
    JOIN_BYTES,
    TABLE,
    Outbound,
    Stream,
    StreamInput,
    StreamState,
)

from .http2_rig import Rig, frame, ok

MOVES = """
             ended      answered  opened   sent       reset
receiving    waiting    refusing  tunnel   -          closed
waiting      -          sending   -        -          closed
refusing     sending    -         -        lingering  closed
tunnel       sending    -         -        lingering  closed
sending      -          -         -        closed     closed
lingering    closed     -         -        -          closed
closed       -          -         -        -          -
"""

_HEAD, *_ROWS = [line.split() for line in MOVES.strip().splitlines()]


@pytest.mark.parametrize(
    ("state", "what", "made"),
    [
        (StreamState(row[0]), StreamInput(what), None if made == "-" else StreamState(made))
        for row in _ROWS
        for what, made in zip(_HEAD, row[1:], strict=True)
    ],
)
def test_every_cell(state: StreamState, what: StreamInput, made: StreamState | None) -> None:
    """A stream moves as the table says, and in no other way."""
    stream = Stream(1, is_head=False, coming=None)
    stream.state = state

    if made is None:
        with pytest.raises(AssertionError):
            stream.move(what)
    else:
        stream.move(what)
        assert stream.state is made


def test_the_table_has_every_state_and_every_input() -> None:
    """And says nothing that is not written above."""
    assert {StreamState(row[0]) for row in _ROWS} == set(StreamState)
    assert [StreamInput(what) for what in _HEAD] == list(StreamInput)
    assert sum(made != "-" for row in _ROWS for made in row[1:]) == len(TABLE)


# The same from outside: each way that a request can come to its end closes what was admitted.


def test_receiving_waiting_sending_closed() -> None:
    """Head, body, answer."""
    rig = Rig()
    stream = rig.ask(body=b"hello")
    rig.exchanged()

    assert (rig.status(stream), rig.body(stream), rig.has_ended(stream)) == (200, b"hello", True)
    assert rig.exchange.open == 0
    assert rig.shared.busy == 0


@pytest.mark.parametrize(
    ("path", "end"),
    [(b"/echo", False), (b"/refuse", False), (b"/wait", True), (b"/feed", True), (b"/big", True)],
    ids=["receiving", "refusing", "waiting", "sending news", "sending"],
)
def test_a_client_resets_a_stream(path: bytes, end: bool) -> None:
    """In each state: what waited is cancelled, what was admitted closed, the connection goes on."""
    rig = Rig(window=0)
    stream = rig.ask(path, end=end)
    rig.exchanged()
    rig.h2.reset_stream(stream)
    rig.exchanged()

    assert rig.exchange.open == 0
    assert rig.shared.busy == 0
    assert all(each.is_cancelled for each in rig.exchange.waits)
    assert all(each.is_closed for each in rig.exchange.feeds)
    assert rig.shared.answers.held_bytes == rig.shared.bodies.held_bytes == 0
    after = rig.ask(method=b"HEAD")
    rig.exchanged()
    assert rig.status(after) == 200


@pytest.mark.parametrize(
    ("path", "end"),
    [(b"/echo", False), (b"/refuse", False), (b"/wait", True), (b"/feed", True), (b"/big", True)],
    ids=["receiving", "refusing", "waiting", "sending news", "sending"],
)
def test_a_client_is_gone(path: bytes, end: bool) -> None:
    """The end of the connection is that of its streams."""
    rig = Rig(window=0)
    rig.ask(path, end=end, body=b"" if end else b"x")
    rig.exchanged()
    rig.leave()

    assert rig.exchange.open == 0
    assert rig.shared.busy == 0
    assert all(each.is_cancelled for each in rig.exchange.waits)
    assert all(each.is_closed for each in rig.exchange.feeds)
    assert rig.shared.answers.held_bytes == rig.shared.bodies.held_bytes == 0
    assert not rig.shared.connections


def test_an_answer_for_a_client_that_is_gone_is_dropped() -> None:
    """Whatever the wait does then."""
    rig = Rig()
    stream = rig.ask(b"/wait")
    rig.exchanged()
    rig.h2.reset_stream(stream)
    rig.exchanged()
    rig.exchange.waits[0].deliver(ok(b"late"))
    rig.exchanged()

    assert rig.of(stream, h2.events.ResponseReceived) == []


def test_refusing_lingering_closed_by_the_client() -> None:
    """A request that is refused by its head is answered at once; a client that ends its body soon
    gets no reset."""
    rig = Rig()
    stream = rig.ask(b"/refuse", end=False)
    rig.exchanged()
    assert (rig.status(stream), rig.has_ended(stream)) == (404, True)
    rig.send(frame(0, 1, stream, b"rest"))
    rig.advance(10)

    assert rig.reset_by(stream) is None
    assert rig.shared.busy == 0


def test_refusing_lingering_closed_by_time() -> None:
    """A client that does not is reset with NO_ERROR (RFC 9113, 8.1)."""
    rig = Rig()
    stream = rig.ask(b"/refuse", end=False)
    rig.exchanged()
    assert rig.status(stream) == 404
    rig.send(frame(0, 0, stream, b"more"))
    rig.advance(1)

    assert rig.reset_by(stream) == 0
    assert rig.shared.busy == 0


def test_refusing_sending_closed() -> None:
    """A client may end its body before it takes the refusal."""
    rig = Rig(window=0)
    stream = rig.ask(b"/refuse", end=False)
    rig.exchanged()
    rig.send(frame(0, 1, stream, b"rest"))
    assert not rig.has_ended(stream)
    rig.h2.increment_flow_control_window(1000, stream)
    rig.exchanged()

    assert rig.has_ended(stream)
    assert rig.reset_by(stream) is None
    assert rig.shared.busy == 0


# What waits to be sent.


def test_an_answer_leaves_in_the_pieces_that_are_asked_for() -> None:
    """Buffers are cut and joined as the frames need them."""
    outbound = Outbound()
    outbound.add([b"a" * 10_000, memoryview(b"b" * 10_000), b"", b"c"])

    assert outbound.size == 20_001
    assert outbound.take(4) == b"aaaa"
    assert outbound.take(10_000) == b"a" * 9_996 + b"bbbb"
    assert outbound.take(30_000) == b"b" * 9_996 + b"c"
    assert outbound.size == 0


def test_a_body_of_small_pieces_costs_few() -> None:
    """Each piece would cost more than its bytes."""
    stream = Stream(1, is_head=False, coming=None)
    for _ in range(10_000):
        stream.keep(b"xyz")
    stream.keep(b"l" * 5000)
    stream.keep(b"!")

    pieces = stream.take_pieces()
    assert b"".join(pieces) == b"xyz" * 10_000 + b"l" * 5000 + b"!"
    assert len(pieces) <= 4


@given(
    bodies=st.lists(
        st.lists(st.one_of(st.binary(max_size=50), st.just(b"l" * (JOIN_BYTES + 1))), max_size=4),
        max_size=4,
    ),
    sizes=st.lists(st.integers(1, 20_000), min_size=1, max_size=8),
)
def test_what_leaves_is_what_was_added(bodies: list[list[bytes]], sizes: list[int]) -> None:
    """Whatever sizes the windows allow: in order, full until the last, and `size` is what is left."""
    outbound = Outbound()
    for body in bodies:
        outbound.add(body)
    whole = b"".join(b"".join(body) for body in bodies)
    at = turn = 0
    while at < len(whole):
        most = sizes[turn % len(sizes)]
        piece = outbound.take(most)
        assert piece == whole[at : at + most]
        at, turn = at + most, turn + 1
        assert outbound.size == max(len(whole) - at, 0)
    assert outbound.take(1) == b""


# What comes.


@pytest.mark.parametrize(
    ("coming", "sizes", "is_sound"),
    [
        (None, (5, 0), True),
        (0, (0,), True),
        (5, (5,), True),
        (5, (2, 3, 0), True),
        (5, (2, 2), False),
        (5, (6,), False),
        (5, (5, 1, 0), False),
        (0, (1,), False),
    ],
)
def test_a_body_has_the_length_that_was_declared(
    coming: int | None, sizes: tuple[int, ...], is_sound: bool
) -> None:
    """No byte less at its end, and no byte more at any time (RFC 9113, 8.1.1)."""
    stream = Stream(1, is_head=False, coming=coming)
    last = len(sizes) - 1
    counted = [stream.counts(size, ends=i == last) for i, size in enumerate(sizes)]
    assert all(counted) is is_sound


def test_a_body_is_taken_once() -> None:
    """In order; what it counts for its pace is counted whether it is joined or not."""
    stream = Stream(1, is_head=False, coming=None)
    for piece in (b"a", b"b" * 2000, b"c", b"d"):
        stream.keep(piece)
    assert b"".join(stream.take_pieces()) == b"a" + b"b" * 2000 + b"cd"
    assert stream.take_pieces() == []
    assert stream.received_bytes == stream.progress_bytes == 2003


def test_a_stream_that_is_closed_holds_nothing() -> None:
    """Neither bytes nor its share of the memory for bodies, and it is due for nothing."""
    bodies = Bodies(100, 0)
    stream = Stream(1, is_head=False, coming=None)
    stream.body_share = BodyShare(bodies, "", stream.drop_body)
    assert stream.body_share.take(2)
    stream.keep(b"ab")
    stream.outbound.add([b"answer"])
    stream.due_s = 10.0
    stream.move(StreamInput.RESET)
    stream.close()

    assert bodies.held_bytes == stream.outbound.size == 0
    assert stream.due_s is None
    assert stream.take_pieces() == []


@pytest.mark.parametrize("state", StreamState)
def test_a_stream_is_open_until_its_client_may_send_no_more(state: StreamState) -> None:
    """Which is where the table has a move for the client's end."""
    stream = Stream(1, is_head=False, coming=None)
    stream.state = state
    assert stream.is_open is ((state, StreamInput.ENDED) in TABLE)
