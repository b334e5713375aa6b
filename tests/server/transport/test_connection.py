"""One connection, whatever is spoken on it: its choice, its bounds, its turns, its end."""

from typing import Any

import pytest

from topics.server.transport.busy_poll import BusyPoll
from topics.server.transport.connection import PREFACE, SMALL_BYTES, is_foreign
from topics.server.transport.connection_life import ConnectionState
from topics.server.transport.http1 import Http1
from topics.server.transport.http2 import Http2
from topics.server.transport.limits import Timeouts, TransportLimits

from .http1_rig import GET, POST, Rig, get, post
from .http2_rig import ok

# ---------------------------------------------------------------------- which protocol


@pytest.mark.parametrize("size", [1, 2, 5, 24, 1000])
def test_the_first_bytes_choose_the_speaker(size: int) -> None:
    """However they come; they stay for the speaker. (RFC 9113 §3.4)"""
    for sent, kind in ((PREFACE, Http2), (GET, Http1)):
        rig = Rig()
        for at in range(0, len(sent), size):
            rig.send(sent[at : at + size])
        assert isinstance(rig.connection._speaker, kind)
        assert rig.connection.state is ConnectionState.OPEN
    assert rig.answer()[0] == 200


def test_a_beginning_that_may_be_either_is_waited_for() -> None:
    """Nothing is chosen, and nothing is lost, until the bytes differ."""
    rig = Rig()
    rig.send(PREFACE[:1])
    assert rig.connection.state is ConnectionState.CHOOSING

    rig.send(b"OST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx")
    assert rig.answer()[2] == b"x"


@pytest.mark.parametrize(
    "sent",
    [b"GET / HTTP/1.1\r\n", b"GET /a b HTTP/1.1\r\n", b"nonsense\r\n\r\n", b"GET /\r\n", b"P"],
)
def test_a_request_is_not_a_preface(sent: bytes) -> None:
    """Sound or not, it has an answer in HTTP/1.1."""
    assert not is_foreign(sent)


@pytest.mark.parametrize("sent", [b"SSH-2.0-x y SMTP/1\r\n", b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"])
def test_another_protocol_gets_no_answer(sent: bytes) -> None:
    """Its client would not understand one in HTTP/1.1."""
    rig = Rig()
    rig.send(sent)
    assert rig.got() == b""
    assert rig.is_finished


@pytest.mark.parametrize("sent", [b"", b"PRI * HT"])
def test_a_client_that_ends_before_the_choice_is_let_go(sent: bytes) -> None:
    """Without a byte that would be silence; with some, it is a request that never was."""
    rig = Rig()
    if sent:
        rig.send(sent)
    rig.end_half()
    assert rig.is_finished


# ---------------------------------------------------------------------- bounds


def test_connections_are_bounded() -> None:
    """One too many is reset as soon as it is accepted."""
    first = Rig(limits=TransportLimits(connections=1))
    second = Rig(shared=first.shared)
    assert second.transport.is_aborted
    first.lose()
    assert not Rig(shared=first.shared).transport.is_aborted


def test_an_inbox_whose_client_is_gone_is_dropped() -> None:
    """What was pipelined behind a wait is not carried out for nobody."""
    rig = Rig()
    rig.send(get(b"/wait"), post(b"x") * 2000)
    assert not rig.transport.is_reading
    rig.lose()
    rig.loop.advance(1)
    assert rig.exchange.bodies == [b""]


def test_reading_stops_at_a_full_inbox_and_goes_on_where_there_is_room() -> None:
    """What the speaker does not take is held, up to `inbox_bytes` and one read more."""
    rig = Rig(limits=TransportLimits(inbox_bytes=1000))
    rig.send(get(b"/wait"), b"\r\n" * 499)
    assert rig.transport.is_reading
    rig.send(b"\r\n")
    assert not rig.transport.is_reading

    rig.exchange.waits[0].deliver(ok(b"x"))  # type: ignore[misc]
    rig.loop.rest()
    assert rig.transport.is_reading


# ---------------------------------------------------------------------- turns


def test_a_light_connection_is_served_at_once() -> None:
    """It used little CPU time lately: its answer waits for no turn."""
    rig = Rig()
    rig.loop.advance(1)
    rig.connection.data_received(GET)
    assert rig.answer()[0] == 200


def test_a_light_connection_that_sends_more_than_a_small_request_takes_its_turn() -> None:
    """Its piece may be many times the work of one, however little it uses on average."""
    rig = Rig()
    rig.loop.advance(1)
    rig.connection.data_received(b"\r\n" * ((SMALL_BYTES - len(GET)) // 2) + GET)
    assert rig.answer()[0] == 200
    rig.got()

    rig.connection.data_received(b"\r\n" * (SMALL_BYTES // 2) + GET)
    assert rig.got() == b""
    rig.loop.rest()
    assert rig.answer()[0] == 200


def test_of_many_small_requests_at_once_the_rest_waits_for_turns() -> None:
    """They fit into one small piece: the first of them are answered as they come, for
    `direct_turn_s`."""
    rig = Rig()
    rig.loop.advance(1)
    now_s = 0.0

    def clock() -> float:
        nonlocal now_s
        now_s += rig.shared.limits.direct_turn_s / 4
        return now_s

    rig.shared.clock = clock
    rig.connection.data_received(GET * 20)
    assert len(rig.exchange.heads) < 5
    rig.loop.rest()
    assert len(rig.exchange.heads) == 20


def test_a_heavy_connection_waits_for_its_turn() -> None:
    """A new one counts as heavy, so that a crowd of them does not pass those that have proved light."""
    rig = Rig()
    rig.connection.data_received(GET)
    assert rig.got() == b""
    rig.loop.rest()
    assert rig.answer()[0] == 200


def test_a_connection_that_ended_has_no_more_turns() -> None:
    """It stood in line when its client went."""
    rig = Rig()
    rig.connection.data_received(GET)
    rig.lose()
    assert rig.exchange.heads == []


def test_a_lone_client_that_asks_again_at_once_is_waited_for() -> None:
    """The loop has another pass until its time is over, or the client is gone."""
    rig = Rig()
    now_s = 0.0
    rig.shared.busy_poll = poll = BusyPoll(rig.loop.call_soon, lambda: now_s, 1.0)
    passes = []
    poll.may_poll = lambda: bool(passes.append(None)) or len(passes) < 3
    rig.send(GET)
    assert not passes  # it may be the only one
    rig.send(GET)
    assert len(passes) == 3
    now_s = 2.0
    rig.send(GET)  # late
    assert len(passes) == 3
    rig.lose()
    again = Rig(shared=rig.shared)
    again.send(GET)
    assert len(passes) == 3


def test_a_crowd_that_sends_much_shares_what_one_pass_receives() -> None:
    """Bodies of 64 MiB on five connections: the loop reads `pass_bytes` of them in one pass, not as much
    of each, and each of them comes as far as the others."""
    limits, piece = TransportLimits(pass_bytes=64 << 10), bytes(64 << 10)
    first = Rig(limits=limits)
    first.exchange.max_body_bytes = 64 << 20
    rigs = [first, *(Rig(shared=first.shared) for _ in range(4))]
    for rig in rigs:
        rig.send(POST + b"Content-Length: %d\r\n\r\n" % (64 << 20))

    received = dict.fromkeys(rigs, 0)
    in_pass = []
    for _ in range(51):
        before = sum(received.values())
        for rig in rigs:
            if rig.transport.is_reading:
                rig.connection.data_received(piece)
                received[rig] += 1
        in_pass.append(sum(received.values()) - before)
        first.loop.turn()

    # The first pass finds out who sends much.
    assert max(in_pass[1:]) == 1
    assert sum(in_pass[1:]) >= 45
    assert max(received.values()) - min(received.values()) <= 1


def test_a_refused_body_is_freed_in_steps() -> None:
    """It had megabytes, which the loop frees after other work. (§11, `max_body_memory`)"""
    rig = Rig(limits=TransportLimits(bodies_bytes=4 << 20))
    rig.exchange.max_body_bytes = 64 << 20
    rig.send(POST + b"Content-Length: %d\r\n\r\n" % (64 << 20))
    for _ in range(16):
        rig.send(bytes(256 << 10))
    assert rig.shared.deferred_free.held_bytes == 0

    rig.connection.data_received(bytes(256 << 10))
    while rig.got() == b"":
        rig.loop.turn()
    assert rig.shared.deferred_free.held_bytes >= 3 << 20
    rig.loop.rest()
    assert rig.shared.deferred_free.held_bytes == 0


# ---------------------------------------------------------------------- the end


def test_an_idle_connection_ends() -> None:
    """After its time without a request, counted from the last answer."""
    rig = Rig(timeouts=Timeouts(idle_s=75))
    rig.loop.advance(70)
    rig.send(GET)
    rig.loop.advance(74)
    assert not rig.is_finished
    rig.loop.advance(2)
    assert rig.is_finished


def test_a_client_that_does_not_read_is_cut_off() -> None:
    """After `write_s` without a byte taken; meanwhile nothing more of it is read."""
    rig = Rig(timeouts=Timeouts(take_s=30, write_s=35))
    rig.transport.room = 0
    rig.send(get(b"/big") + GET)
    rig.loop.advance(34)
    assert not rig.transport.is_aborted
    rig.loop.advance(2)
    assert rig.transport.is_aborted
    assert len(rig.exchange.heads) == 1
    assert rig.exchange.open == 0


@pytest.mark.parametrize("early", [True, False])
def test_a_bug_ends_its_connection_alone(early: bool, caplog: pytest.LogCaptureFixture) -> None:
    """It is in the log, and nobody else's."""
    rig = Rig()
    other = Rig(shared=rig.shared)

    def begin(head: Any) -> Any:
        raise ValueError("a bug")

    rig.exchange.begin = begin  # type: ignore[method-assign]
    if not early:
        rig.loop.advance(1)
    rig.send(GET)
    assert rig.transport.is_aborted
    assert "a connection failed" in caplog.text
    del rig.exchange.begin
    other.send(GET)
    assert other.answer()[0] == 200


def test_what_comes_behind_the_end_is_dropped_and_bounded() -> None:
    """Received bytes are read, since unread ones would make the kernel send a reset that overtakes the
    answer; too many of them close the socket."""
    rig = Rig(limits=TransportLimits(drain_bytes=1000))
    rig.send(get(b"/echo").replace(b"Host: a", b"Host: a\r\nConnection: close"))
    assert rig.answer()[1]["connection"] == "close"
    assert rig.connection.state is ConnectionState.FINISHING
    rig.send(bytes(900))
    assert not rig.transport.is_closed
    rig.send(bytes(200))
    assert rig.transport.is_closed


def test_a_finished_connection_that_lingers_is_cut() -> None:
    """Its client does not close its half in `linger_s`."""
    rig = Rig(timeouts=Timeouts(linger_s=2))
    rig.connection.finish()
    rig.loop.advance(1)
    assert not rig.transport.is_aborted
    rig.loop.advance(2)
    assert rig.transport.is_aborted


def test_an_end_is_an_end() -> None:
    """Whatever is asked of it afterwards: nothing is written, nothing runs, nothing is counted."""
    rig = Rig()
    rig.send(get(b"/wait"))
    assert rig.shared.busy == 1
    rig.lose()

    rig.connection.finish()
    rig.connection.abort()
    rig.connection.drain()
    rig.connection.write(b"x")
    rig.connection.work_soon()
    rig.connection.eof_received()
    rig.loop.rest()

    assert rig.got() == b""
    assert rig.shared.busy == 0
    assert rig.shared.connections == set()
    assert rig.connection.unsent_bytes == 0


def test_a_stop_ends_a_connection_that_chose_nothing() -> None:
    """(§0.10)"""
    rig = Rig()
    rig.shared.drain()
    assert rig.is_finished
