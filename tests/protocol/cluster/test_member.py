"""One node: effects in their order, and engines that are dropped and opened anew."""

from typing import Any

import pytest

from topics.protocol.cluster.rule.leading import NodeState
from topics.protocol.cluster.rule.steps import Found, Halt
from topics.protocol.cluster.rule.unit import Unit, encode, parts_of
from topics.protocol.driver.group_commit import Write
from topics.protocol.faces.http.topics import parse_put
from topics.protocol.model.access import ANYONE
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.holder import NOBODY
from topics.protocol.state.watched import StreamEnd

from .rig import Rig


@pytest.fixture
def rig() -> Rig:
    return Rig()


def outcome_of(refusal: object) -> tuple[ErrorCode, object]:
    assert isinstance(refusal, Rejection)
    return refusal.code, (refusal.detail or {}).get("outcome")


def test_an_engine_that_decided_is_not_one_that_follows(rig: Rig) -> None:
    """Deposed with a unit on its way: the engine goes, and its client is told that nothing of it will
    ever be. (§2)"""
    rig.append("kept")
    rig.land()
    rig.append("gone")
    rig.turn()
    engine = rig.leader.engine
    late = rig.leader.outbox.popleft()

    rig.lead(rig.replica)
    rig.world.put(late.raw)
    rig.land()

    assert outcome_of(rig.answers[-1]) == (ErrorCode.NOT_LEADER, "not_applied")
    assert rig.leader.engine is not engine
    assert rig.read() == rig.read(rig.replica) == ["kept"]


def test_a_leader_that_ceases_answers_what_is_on_its_way(rig: Rig) -> None:
    """And what came behind it is refused: another node has to decide it."""
    rig.append("a")
    rig.turn()
    rig.append("b")

    rig.leader.member.cease()
    assert outcome_of(rig.answers[0]) == (ErrorCode.NOT_LEADER, "not_applied")
    engine = rig.leader.engine
    rig.land()

    assert rig.answers[1]["seqs"] == [1]
    assert rig.leader.engine is not engine
    assert rig.read() == ["a"]


def test_a_turn_that_was_not_sent_is_not_applied(rig: Rig) -> None:
    """It was decided, and this node is asked to let go before the turn ends."""
    rig.append("a")

    rig.leader.member.cease()
    rig.land()

    assert [outcome_of(answer) for answer in rig.answers] == [(ErrorCode.NOT_LEADER, "not_applied")]
    assert "t" not in rig.leader.engine.state.topics


def test_what_takes_too_long_is_unknown(rig: Rig) -> None:
    """The log may have it, now or later; the next leader's replicas decide. (§2)"""
    rig.append("a")
    rig.turn()

    rig.leader.member.give_up()

    assert [outcome_of(answer) for answer in rig.answers] == [(ErrorCode.NOT_LEADER, "unknown")]
    rig.land()
    assert rig.read() == rig.read(rig.replica) == ["a"]


def test_a_long_poll_and_a_stream_end_with_their_engine(rig: Rig) -> None:
    """Their clients come back, to this node or to another."""
    rig.append("a")
    rig.land()
    assert rig.read(wait_ms=10_000, from_seq=1) is None
    woken: list[None] = []
    stream = rig.leader.engine.watch_commands.open_socket(
        lambda: woken.append(None), ANYONE, NOBODY
    )

    rig.lead(rig.replica)

    assert stream.ended_by is StreamEnd.MOVED
    assert woken


def test_a_stream_that_is_opened_on_a_dropped_engine_ends(rig: Rig) -> None:
    """Until the next engine is open there is the old one, to which nothing happens any more: a stream
    on it would send heartbeats and no record, for ever."""
    rig.append("a")
    rig.land()
    dropped = rig.leader.engine
    rig.lead(rig.replica)

    stream = dropped.watch_commands.open_socket(lambda: None, ANYONE, NOBODY)

    assert stream.ended_by is StreamEnd.MOVED


def test_a_restart_goes_on_from_the_place_in_its_own_log(rig: Rig) -> None:
    """And emits nothing of its own. (§4)"""
    rig.append("a")
    rig.land()
    end, anchor = rig.world.log.next_offset, rig.replica.node.anchor
    rig.world.kill(rig.replica, power=False)

    rig.world.start("n1")

    again = rig.world.processes["n1"]
    assert again.node.anchor == anchor
    rig.land()
    assert again.node.state is NodeState.FOLLOWING
    assert rig.world.log.next_offset == end
    assert rig.read(again) == ["a"]


def test_a_power_loss_is_read_again(rig: Rig) -> None:
    """What this node's own log did not keep, the shared log has. (§4)"""
    rig.replica.sync()
    rig.append(*range(20))
    rig.land()
    rig.world.kill(rig.replica, power=True)

    rig.world.start("n1")
    rig.land()

    assert rig.read(rig.world.processes["n1"]) == list(range(20))


def test_a_node_without_a_state_shows_none(rig: Rig) -> None:
    """Its place was trimmed: 503 `replica_behind` until it has another's data. (§6)"""
    rig.append("a")
    rig.land()
    rig.world.kill(rig.replica, power=False)
    for data in ("b", "c"):
        rig.append(data)
        rig.land()
    # The leader's own log has the mark of the unit before its last one.
    rig.world.log.trim_to(rig.world.log.next_offset - 2)
    rig.world.start("n1")
    again = rig.world.processes["n1"]
    for _ in range(9):
        if again.asked:
            rig.world.look(again)  # type: ignore[arg-type]
        while again.reports:
            rig.world.report(again)  # type: ignore[arg-type]

    assert again.node.state is NodeState.ASIDE
    refusal = rig.read(again)
    assert isinstance(refusal, Rejection)
    assert refusal.code is ErrorCode.REPLICA_BEHIND
    rig.land()
    assert rig.read(again) == ["a", "b", "c"]


def test_answers_do_not_wait_for_the_store_to_be_opened(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host takes its time to open it, and may fail to: the clients learn at once what became of their
    commands.  Nothing is shown or read meanwhile."""
    rig.append("a")
    rig.turn()
    member, reopen, asked = rig.leader.member, rig.leader.reopen, []
    assert member.may_read
    monkeypatch.setattr(rig.leader, "reopen", lambda: asked.append(reopen))

    member.give_up()

    assert [outcome_of(answer) for answer in rig.answers] == [(ErrorCode.NOT_LEADER, "unknown")]
    assert member.index == 0
    assert not member.may_read
    assert not member.is_settled
    [opens] = asked
    opens()
    assert member.index == 1
    assert member.may_read
    rig.land()
    assert len(rig.answers) == 1
    assert rig.read() == rig.read(rig.replica) == ["a"]


def test_an_answer_that_cannot_be_delivered_concerns_no_other(rig: Rig) -> None:
    """Its client's connection is broken; the next client is answered, and an operator reads why."""
    lines: list[tuple[str, str]] = []
    rig.leader.log = lambda *line: lines.append(line)  # type: ignore[method-assign]

    def broken(answer: object) -> None:
        raise BrokenPipeError("gone")

    rig.leader.ask(parse_put("t", b"{}"), broken)
    rig.append("a")
    rig.turn()

    rig.leader.member.give_up()

    assert [outcome_of(answer) for answer in rig.answers] == [(ErrorCode.NOT_LEADER, "unknown")]
    assert ("error", "an answer could not be delivered: BrokenPipeError('gone')") in lines


def test_a_node_begins_to_lead_once_it_wrote_what_it_followed(rig: Rig) -> None:
    """Its term is accepted first, and may be over by then: then it never decides, and its engine, which
    only followed, stays. (§2)"""
    writes: list[Any] = []
    host, member = rig.replica.host, rig.replica.member
    host._steps[Write] = writes.append
    rig.append("a")
    rig.land()
    member.lead(b"n" * 16)
    rig.land()
    assert member.state is NodeState.LEADING
    assert not member.leads

    member.give_up()
    host._steps[Write] = host.write_log
    host.write_log(writes.pop())
    rig.land()

    assert member.state is NodeState.FOLLOWING
    assert not member.leads
    assert rig.replica.host is host
    assert rig.read(rig.replica) == ["a"]


def test_a_unit_that_cannot_be_read_halts_the_node(rig: Rig) -> None:
    """Nothing behind it may be applied, and it shows what it had. (§2)"""
    rig.append("a")
    rig.land()
    node, halts = rig.replica.node, []
    rig.replica.carry = halts.append  # type: ignore[method-assign]
    rig.replica.member._apply = rig.replica._apply  # type: ignore[method-assign]
    place = node.place
    unit = Unit(place.term, place.index + 1, place.chain, 1, b"no event")
    [part] = parts_of(unit, 1 << 20)
    raw = encode(part, rig.world.shard)

    rig.replica.hear(Found(place.read + 1, raw, node.mark.epoch))

    [halt] = halts
    assert isinstance(halt, Halt)
    assert node.state is NodeState.HALTED
    assert rig.replica.member.index == place.index
    assert rig.read(rig.replica) == ["a"]


def test_a_node_whose_log_failed_takes_no_further_part(rig: Rig) -> None:
    """Its own log may not hold what it would apply: it hears nothing more, and shows what it had."""
    rig.append("a")
    rig.land()
    member, index = rig.replica.member, rig.replica.member.index
    rig.replica.host.driver.commit.failed(OSError(5, "Input/output error"))
    member.failed()

    rig.append("b")
    rig.land()
    member.lead(b"n" * 16)
    rig.land()

    assert rig.read() == ["a", "b"]
    assert rig.read(rig.replica) == ["a"]
    assert member.index == index
    assert not rig.replica.outbox
