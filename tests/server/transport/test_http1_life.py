"""The life of an HTTP/1.1 request: every cell of its table, and the ways through it from outside."""

import pytest

from topics.server.http.interface import Streaming
from topics.server.transport.http1 import Http1
from topics.server.transport.http1_life import TABLE, RequestInput, RequestState

from .http1_rig import GET, Rig, get, post
from .http2_rig import News, ok

MOVES = """
           admitted  postponed  begun    streamed   done  cut-short  ended
idle       body      waiting    sending  streaming  idle  spill      over
body       -         waiting    sending  streaming  idle  spill      over
spill      -         -          -        -          idle  -          over
waiting    -         -          sending  streaming  idle  -          over
sending    -         -          -        -          idle  spill      over
streaming  -         -          -        -          idle  -          over
over       -         -          -        -          -     -          -
"""
_NAMES, *_ROWS = [line.split() for line in MOVES.strip().splitlines()]
CELLS = [
    pytest.param(
        RequestState(row[0]), RequestInput(what.replace("-", " ")), made, id=f"{row[0]}-{what}"
    )
    for row in _ROWS
    for what, made in zip(_NAMES, row[1:], strict=True)
]


@pytest.mark.parametrize(("state", "what", "made"), CELLS)
def test_every_cell_of_the_table(state: RequestState, what: RequestInput, made: str) -> None:
    """A request moves as the table says, and no other way."""
    request = Http1(Rig().connection)
    request._state = state

    if made == "-":
        with pytest.raises(AssertionError):
            request._move(what)
        assert request._state is state
    else:
        request._move(what)
        assert request._state is RequestState(made)


def test_the_picture_is_the_whole_table() -> None:
    assert [row[0] for row in _ROWS] == [state.value for state in RequestState]
    assert [name.replace("-", " ") for name in _NAMES] == [what.value for what in RequestInput]
    assert sum(made != "-" for row in _ROWS for made in row[1:]) == len(TABLE)


# The same from outside: each way leads back to an idle connection, or to its end.


def state_of(rig: Rig) -> RequestState:
    speaker = rig.connection._speaker
    assert isinstance(speaker, Http1)
    return speaker._state


def test_idle_body_idle() -> None:
    """A head, its body, an answer that is there at once."""
    rig = Rig()
    whole = post(b"hello")
    rig.send(whole[:-2])
    assert state_of(rig) is RequestState.BODY

    rig.send(whole[-2:])
    assert (rig.answer()[0], state_of(rig)) == (200, RequestState.IDLE)


def test_idle_waiting_idle() -> None:
    """An answer that comes later."""
    rig = Rig()
    rig.send(get(b"/wait"))
    assert state_of(rig) is RequestState.WAITING

    rig.exchange.waits[0].deliver(ok(b"now"))  # type: ignore[misc]
    assert (rig.answer()[2], state_of(rig)) == (b"now", RequestState.IDLE)


@pytest.mark.parametrize("is_late", [False, True])
def test_a_large_answer_is_sent_from_either(is_late: bool) -> None:
    """Whether it waited or not."""
    rig = Rig()
    rig.exchange.big = [bytes(200_000)]
    rig.transport.room = 0
    rig.send(get(b"/wait" if is_late else b"/big"))
    if is_late:
        rig.exchange.waits[0].deliver(ok(*rig.exchange.big))  # type: ignore[misc]
        rig.loop.rest()
    assert state_of(rig) is RequestState.SENDING

    rig.transport.take_all()
    rig.loop.rest()
    assert (len(rig.answer()[2]), state_of(rig)) == (200_000, RequestState.IDLE)


def test_idle_spill_idle() -> None:
    """A refusal comes before the body, which is read all the same."""
    rig = Rig()
    whole = post(b"hello", b"/refuse")
    rig.send(whole[:-2])
    assert (rig.answer()[0] >= 400, state_of(rig)) == (True, RequestState.SPILL)

    rig.send(whole[-2:])
    assert state_of(rig) is RequestState.IDLE


def test_idle_streaming_idle() -> None:
    """A stream that the server ends leaves its connection to the next request."""
    rig = Rig()
    rig.send(get(b"/feed"))
    assert state_of(rig) is RequestState.STREAMING

    rig.exchange.feeds[0].put(b"last", ends=True)
    rig.loop.rest()
    assert state_of(rig) is RequestState.IDLE


def test_waiting_streaming_idle() -> None:
    """A stream whose head comes later, as that of another node does."""
    rig = Rig()
    rig.send(get(b"/wait"))
    feed = News()
    rig.exchange.waits[0].deliver(Streaming(200, [], feed))  # type: ignore[misc]
    assert state_of(rig) is RequestState.STREAMING

    feed.put(b"last", ends=True)
    rig.loop.rest()
    assert state_of(rig) is RequestState.IDLE
    assert b"4\r\nlast\r\n0\r\n" in rig.got()


def test_a_stream_that_comes_after_its_client_left_is_closed() -> None:
    """Nobody would close it otherwise."""
    rig = Rig()
    rig.send(get(b"/wait"))
    waiting = rig.exchange.waits[0]
    rig.lose()

    feed = News()
    waiting.deliver(Streaming(200, [], feed))  # type: ignore[misc]

    assert feed.is_closed


@pytest.mark.parametrize(
    ("sent", "state"),
    [
        (GET[:-2], RequestState.IDLE),
        (post(b"hello")[:-2], RequestState.BODY),
        (post(b"hello", b"/refuse")[:-2], RequestState.SPILL),
        (get(b"/wait"), RequestState.WAITING),
        (get(b"/big"), RequestState.SENDING),
        (get(b"/feed"), RequestState.STREAMING),
    ],
    ids=lambda value: value.value if isinstance(value, RequestState) else "",
)
def test_a_client_may_leave_at_any_time(sent: bytes, state: RequestState) -> None:
    """What was admitted is closed once, and what waits is cancelled."""
    rig = Rig()
    rig.exchange.big = [bytes(200_000)]
    rig.transport.room = 0 if state is RequestState.SENDING else None
    rig.send(sent)
    assert state_of(rig) is state
    speaker = rig.connection._speaker

    rig.lose()

    assert isinstance(speaker, Http1)
    assert speaker._state is RequestState.OVER
    assert rig.exchange.open == 0
    assert all(wait.is_cancelled for wait in rig.exchange.waits)
    assert all(feed.is_closed for feed in rig.exchange.feeds)
