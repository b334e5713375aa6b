"""One node over one shard: when it may lead, when it may answer, and when it must let go."""

from collections.abc import Callable, Sequence

import pytest

from topics.protocol.cluster.rule.in_flight import IN_FLIGHT_MAX
from topics.protocol.cluster.rule.leading import TABLE, TRANSITIONS, Node, NodeState
from topics.protocol.cluster.rule.replica import Mark, Place
from topics.protocol.cluster.rule.steps import (
    INPUTS,
    AnswerClients,
    Apply,
    CannotApply,
    Cease,
    ClientReply,
    Decided,
    Effect,
    EndIs,
    Found,
    GiveUp,
    Halt,
    Input,
    Install,
    Lead,
    Leads,
    NotElected,
    NotShown,
    Offered,
    Passed,
    Prove,
    ReadAsked,
    ReadFailed,
    ReadOn,
    Send,
    SendFailed,
    Sent,
    Shown,
    TakeSnapshot,
)
from topics.protocol.cluster.rule.unit import (
    FORMAT,
    Shard,
    TermBegan,
    Unit,
    _digest,
    decode,
    encode,
    parts_of,
)

SHARD = Shard(b"c" * 16)
ZERO = Place.before_all(SHARD)
OURS, THEIRS = b"o" * 16, b"t" * 16


class Rig:
    """A node, and a log that holds what the test puts there."""

    def __init__(self, place: Place = ZERO, mark: Mark | None = None) -> None:
        self.node = Node(SHARD, "n1", place, mark or Mark(place), message_bytes_max=1000)
        self.log: list[bytes] = []
        self.did: list[Effect] = self.node.start()

    def hear(self, *events: Input) -> list[Effect]:
        for event in events:
            self.did = self.node.step(event)
        return self.did

    def show(self) -> list[Effect]:
        """The log shows what the node asked to see of it."""
        [prove] = [each for each in self.did if isinstance(each, Prove)]
        at = range(prove.first_offset, min(prove.last_offset + 1, len(self.log)))
        return self.hear(Shown(prove.proof, [(offset, self.log[offset]) for offset in at]))

    def put(self, raw: bytes) -> int:
        self.log.append(raw)
        return len(self.log) - 1

    def read(self, raw: bytes) -> list[Effect]:
        """Another's record lands, and is read."""
        return self.hear(Found(self.put(raw), raw, 0))

    def sent(self) -> list[Send]:
        return [each for each in self.did if isinstance(each, Send)]

    def land(self, send: Send) -> Sent:
        return Sent(send.ticket, send.part, self.put(send.raw))

    def read_back(self, offset: int) -> list[Effect]:
        return self.hear(Found(offset, self.log[offset], 0))

    def follow(self) -> "Rig":
        self.show()
        return self

    def lead(self, nonce: bytes = OURS) -> "Rig":
        self.hear(Lead(nonce), EndIs(len(self.log)))
        [send] = self.sent()
        self.land(send)
        self.read_back(len(self.log) - 1)
        self.show()
        assert self.did == [Leads(self.node.place.term)]
        return self

    def decide(self, *tokens: object, body: bytes = b"") -> Send:
        self.hear(Decided(tokens, 0, body))
        return self.sent()[0]

    def another_begins(self, term: int = 0) -> list[Effect]:
        began = TermBegan(term or self.node.place.seen + 1, THEIRS, "n1")
        return self.read(encode(began, SHARD))

    def names(self) -> list[str]:
        return [type(each).__name__ for each in self.did]

    def replies(self) -> list[tuple[tuple[object, ...], ClientReply]]:
        return [(each.tokens, each.reply) for each in self.did if isinstance(each, AnswerClients)]


def following() -> Rig:
    return Rig().follow()


def seeking() -> Rig:
    rig = following()
    rig.hear(Lead(OURS))
    return rig


def beginning() -> Rig:
    rig = seeking()
    rig.hear(EndIs(0))
    return rig


def proving() -> Rig:
    rig = beginning()
    rig.land(rig.sent()[0])
    rig.read_back(0)
    return rig


def leading() -> Rig:
    return following().lead()


def draining() -> Rig:
    rig = leading()
    rig.decide("a")
    rig.hear(Cease())
    return rig


def aside() -> Rig:
    rig = following()
    rig.hear(ReadFailed(is_lost=True))
    return rig


def halted() -> Rig:
    rig = following()
    rig.hear(CannotApply("format 2"))
    return rig


IN: dict[NodeState, Callable[[], Rig]] = {
    NodeState.JOINING: Rig,
    NodeState.FOLLOWING: following,
    NodeState.SEEKING: seeking,
    NodeState.BEGINNING: beginning,
    NodeState.PROVING: proving,
    NodeState.LEADING: leading,
    NodeState.DRAINING: draining,
    NodeState.ASIDE: aside,
    NodeState.HALTED: halted,
}


def example(rig: Rig, kind: type) -> Input:
    """An input of this type which is about what the node waits for, where it waits for any."""
    node = rig.node
    proof = node._proofs
    began = encode(TermBegan(node.place.seen + 1, THEIRS, "n2"), SHARD)
    ticket = node._in_flight.flights[0].ticket if node._in_flight.flights else OURS
    examples: Sequence[Input] = (
        Found(len(rig.log), began, 0),
        Passed(len(rig.log)),
        ReadFailed(is_lost=True),
        Shown(proof, [(at, raw) for at, raw in enumerate(rig.log)]),
        NotShown(proof, is_lost=False),
        Lead(THEIRS),
        Cease(),
        EndIs(len(rig.log)),
        Sent(ticket, 0, len(rig.log)),
        SendFailed(ticket, is_known=True),
        GiveUp(),
        Decided(("token",), 0, b""),
        ReadAsked("token"),
        Offered(ZERO, Mark(ZERO)),
        CannotApply("format 2"),
    )
    [found] = [each for each in examples if type(each) is kind]
    return found


CELLS: dict[NodeState, dict[str, str]] = {
    NodeState.JOINING: {
        "Found": "joining",
        "Passed": "joining",
        "ReadFailed": "joining",
        "Shown": "ReadOn following",
        "NotShown": "TakeSnapshot aside",
        "Lead": "NotElected joining",
        "Cease": "joining",
        "EndIs": "joining",
        "Sent": "joining",
        "SendFailed": "joining",
        "GiveUp": "joining",
        "Decided": "AnswerClients OpenAnew joining",
        "ReadAsked": "AnswerClients joining",
        "Offered": "joining",
        "CannotApply": "joining",
    },
    NodeState.FOLLOWING: {
        "Found": "Prove following",
        "Passed": "following",
        "ReadFailed": "HistoryLost TakeSnapshot aside",
        "Shown": "following",
        "NotShown": "following",
        "Lead": "AskEnd seeking",
        "Cease": "following",
        "EndIs": "following",
        "Sent": "following",
        "SendFailed": "following",
        "GiveUp": "following",
        "Decided": "AnswerClients OpenAnew following",
        "ReadAsked": "AnswerClients following",
        "Offered": "following",
        "CannotApply": "Halt halted",
    },
    NodeState.SEEKING: {
        "Found": "Prove seeking",
        "Passed": "seeking",
        "ReadFailed": "HistoryLost NotElected TakeSnapshot aside",
        "Shown": "seeking",
        "NotShown": "seeking",
        "Lead": "seeking",
        "Cease": "NotElected following",
        "EndIs": "Send beginning",
        "Sent": "seeking",
        "SendFailed": "seeking",
        "GiveUp": "NotElected following",
        "Decided": "AnswerClients OpenAnew seeking",
        "ReadAsked": "AnswerClients seeking",
        "Offered": "seeking",
        "CannotApply": "NotElected Halt halted",
    },
    NodeState.BEGINNING: {
        "Found": "NotElected Prove following",
        "Passed": "beginning",
        "ReadFailed": "HistoryLost NotElected TakeSnapshot aside",
        "Shown": "beginning",
        "NotShown": "beginning",
        "Lead": "beginning",
        "Cease": "NotElected following",
        "EndIs": "beginning",
        "Sent": "beginning",
        "SendFailed": "NotElected following",
        "GiveUp": "NotElected following",
        "Decided": "AnswerClients OpenAnew beginning",
        "ReadAsked": "AnswerClients beginning",
        "Offered": "beginning",
        "CannotApply": "NotElected Halt halted",
    },
    NodeState.PROVING: {
        "Found": "NotElected Prove following",
        "Passed": "proving",
        "ReadFailed": "HistoryLost NotElected TakeSnapshot aside",
        "Shown": "Leads leading",
        "NotShown": "NotElected TakeSnapshot aside",
        "Lead": "proving",
        "Cease": "NotElected following",
        "EndIs": "proving",
        "Sent": "proving",
        "SendFailed": "proving",
        "GiveUp": "NotElected following",
        "Decided": "AnswerClients OpenAnew proving",
        "ReadAsked": "AnswerClients proving",
        "Offered": "proving",
        "CannotApply": "NotElected Halt halted",
    },
    NodeState.LEADING: {
        "Found": "StepDown OpenAnew Prove following",
        "Passed": "leading",
        "ReadFailed": "HistoryLost StepDown OpenAnew TakeSnapshot aside",
        "Shown": "leading",
        "NotShown": "leading",
        "Lead": "leading",
        "Cease": "StepDown following",
        "EndIs": "leading",
        "Sent": "leading",
        "SendFailed": "leading",
        "GiveUp": "StepDown OpenAnew following",
        "Decided": "Send leading",
        "ReadAsked": "AnswerClients leading",
        "Offered": "leading",
        "CannotApply": "StepDown OpenAnew Halt halted",
    },
    NodeState.DRAINING: {
        "Found": "OpenAnew AnswerClients Prove following",
        "Passed": "draining",
        "ReadFailed": "HistoryLost OpenAnew AnswerClients TakeSnapshot aside",
        "Shown": "draining",
        "NotShown": "draining",
        "Lead": "NotElected draining",
        "Cease": "draining",
        "EndIs": "draining",
        "Sent": "Apply AnswerClients following",
        "SendFailed": "OpenAnew AnswerClients following",
        "GiveUp": "OpenAnew AnswerClients following",
        "Decided": "AnswerClients OpenAnew AnswerClients following",
        "ReadAsked": "draining",
        "Offered": "draining",
        "CannotApply": "OpenAnew AnswerClients Halt halted",
    },
    NodeState.ASIDE: {
        "Found": "aside",
        "Passed": "aside",
        "ReadFailed": "aside",
        "Shown": "aside",
        "NotShown": "aside",
        "Lead": "NotElected aside",
        "Cease": "aside",
        "EndIs": "aside",
        "Sent": "aside",
        "SendFailed": "aside",
        "GiveUp": "aside",
        "Decided": "AnswerClients OpenAnew aside",
        "ReadAsked": "AnswerClients aside",
        "Offered": "Prove aside",
        "CannotApply": "aside",
    },
    NodeState.HALTED: {
        "Found": "halted",
        "Passed": "halted",
        "ReadFailed": "halted",
        "Shown": "halted",
        "NotShown": "halted",
        "Lead": "NotElected halted",
        "Cease": "halted",
        "EndIs": "halted",
        "Sent": "halted",
        "SendFailed": "halted",
        "GiveUp": "halted",
        "Decided": "AnswerClients OpenAnew halted",
        "ReadAsked": "AnswerClients halted",
        "Offered": "halted",
        "CannotApply": "halted",
    },
}
"""Effects and state after; of an input which is about what the node waits for."""


def told(rig: Rig) -> str:
    return " ".join([*rig.names(), rig.node.state.value])


@pytest.mark.parametrize("state", NodeState, ids=lambda state: state.value)
def test_every_cell_of_the_table(state: NodeState) -> None:
    """What each input does in each state: the effects in their order, and the state after."""
    cells = {}
    for kind in INPUTS:
        rig = IN[state]()
        assert rig.node.state is state
        rig.hear(example(rig, kind))
        cells[kind.__name__] = told(rig)

    assert cells == CELLS[state]


def test_the_table_is_whole() -> None:
    assert TABLE.keys() == TRANSITIONS.keys() == IN.keys() == set(NodeState)


# ---------------------------------------------------------------------- to lead


def test_a_candidate_leads_once_it_has_read_its_own_term() -> None:
    """It reads to the end, begins a term above all seen, reads that back, and looks whether the log is
    still the one that it read.  That the broker has the record is not enough."""
    rig = following()
    rig.hear(Lead(OURS), EndIs(1))
    assert rig.did == []
    rig.another_begins(term=4)

    [send] = rig.sent()
    rig.hear(rig.land(send))
    assert rig.node.state is NodeState.BEGINNING
    rig.read_back(1)
    assert rig.node.state is NodeState.PROVING
    assert rig.show() == [Leads(5)]


def test_a_candidate_reads_over_offsets_without_a_record() -> None:
    """The log's end may lie behind records that no reader gets."""
    rig = seeking()
    rig.hear(EndIs(3))
    assert rig.did == []

    assert rig.hear(Passed(2)) == rig.sent()
    assert rig.node.state is NodeState.BEGINNING


def test_a_term_of_the_same_name_is_not_ours() -> None:
    """Another process with our name took the same term before us: the nonce is not ours."""
    rig = beginning()

    rig.another_begins(term=1)

    assert rig.node.state is NodeState.FOLLOWING
    rig.read(encode(TermBegan(1, OURS, "n1"), SHARD))
    assert rig.node.state is NodeState.FOLLOWING


def test_an_attempt_that_is_over_does_not_lead_later() -> None:
    """Its record lands after the node gave up: a term that nobody leads in."""
    rig = beginning()
    [send] = rig.sent()
    rig.hear(GiveUp())

    rig.land(send)
    rig.read_back(0)

    assert rig.names() == ["Prove"]
    assert (rig.node.state, rig.node.place.term) == (NodeState.FOLLOWING, 1)


def test_a_log_that_was_cut_between_the_look_and_the_term_is_found_out() -> None:
    """Another node wrote on from before our place.  Our term begins there as well, and all accept it;
    our units go on from what is gone, so none but ourselves would accept them."""
    rig = following()
    rig.read(encode(TermBegan(1, THEIRS, "n2"), SHARD))
    rig.hear(Lead(OURS), EndIs(1))
    [send] = rig.sent()
    rig.log = [encode(TermBegan(1, b"x" * 16, "n3"), SHARD)]

    rig.land(send)
    rig.read_back(1)
    rig.show()

    assert rig.names() == ["HistoryLost", "NotElected", "TakeSnapshot"]


# ---------------------------------------------------------------------- answers


def test_a_unit_is_answered_when_its_offset_is_the_next() -> None:
    """Nobody wrote between, so it is accepted; it goes to the node's own log before the answer."""
    rig = leading()

    rig.hear(rig.land(rig.decide("a", "b")))

    assert rig.names() == ["Apply", "AnswerClients"]
    assert rig.replies() == [(("a", "b"), ClientReply.ACCEPTED)]
    [apply] = [each for each in rig.did if isinstance(each, Apply)]
    assert (apply.is_own, apply.place.index, apply.mark.place.index) == (True, 1, 0)


def test_a_unit_with_a_gap_before_it_is_read_back() -> None:
    """There may be a higher term in the gap."""
    rig = leading()
    send = rig.decide("a")
    gap = rig.put(b"a broker's own")
    rig.hear(rig.land(send))
    assert rig.did == []

    rig.read_back(gap)
    assert rig.did == []
    rig.read_back(gap + 1)
    assert rig.replies() == [(("a",), ClientReply.ACCEPTED)]


def test_a_unit_of_unknown_outcome_is_read_back() -> None:
    """The reader tells, if it came; the mark is there then, too."""
    rig = leading()
    send = rig.decide("a")
    rig.hear(SendFailed(send.ticket, is_known=False))
    assert rig.did == []

    rig.read_back(rig.land(send).offset)

    assert rig.replies() == [(("a",), ClientReply.ACCEPTED)]
    assert rig.node.mark.place.index == 1


def test_units_are_answered_in_their_order() -> None:
    """The second one's offset comes first."""
    rig = leading()
    first, second = (rig.land(rig.decide(token)) for token in "ab")
    rig.hear(second)
    assert rig.did == []

    rig.hear(first)

    assert [tokens for tokens, _ in rig.replies()] == [("a",), ("b",)]


def test_a_unit_in_parts_is_answered_with_its_last() -> None:
    rig = leading()
    rig.hear(Decided(("a",), 0, b"x" * 2000))
    sends = rig.sent()
    assert len(sends) == 3

    for send in sends:
        assert rig.replies() == []
        rig.hear(rig.land(send))

    assert rig.replies() == [(("a",), ClientReply.ACCEPTED)]


def test_a_read_waits_for_what_is_in_flight() -> None:
    """And for nothing where nothing is."""
    rig = leading()
    assert rig.hear(ReadAsked("r")) == [AnswerClients(("r",), ClientReply.ACCEPTED)]
    send = rig.decide("a")
    assert rig.hear(ReadAsked("r")) == []

    rig.hear(rig.land(send))

    assert rig.replies() == [(("a",), ClientReply.ACCEPTED), (("r",), ClientReply.ACCEPTED)]


def test_the_engine_runs_ahead_by_a_bounded_number_of_units() -> None:
    rig = leading()
    assert rig.node.is_settled
    for at in range(IN_FLIGHT_MAX):
        assert rig.node.has_room
        rig.decide(at)

    assert not rig.node.has_room
    assert not rig.node.is_settled
    with pytest.raises(AssertionError):
        rig.decide("more")


# ---------------------------------------------------------------------- losing


def test_a_higher_term_ends_what_is_in_flight_for_good() -> None:
    """No unit of an earlier term is accepted behind it: its clients may be told so.  The engine goes
    before anything else is applied."""
    rig = leading()
    late = rig.decide("a")

    rig.another_begins()

    assert rig.names() == ["StepDown", "OpenAnew", "AnswerClients", "Prove"]
    assert rig.replies() == [(("a",), ClientReply.NOT_APPLIED)]
    rig.read_back(rig.land(late).offset)
    assert rig.did == []


def test_a_unit_that_is_skipped_may_still_be_accepted_later() -> None:
    """What came before it is late.  So the outcome of both is unknown; and when they come, the node
    follows, and applies them as another's."""
    rig = leading()
    first, second = rig.decide("a"), rig.decide("b")

    rig.read_back(rig.land(second).offset)

    assert rig.names() == ["StepDown", "OpenAnew", "AnswerClients", "AnswerClients"]
    assert {reply for _, reply in rig.replies()} == {ClientReply.UNKNOWN}
    for send in (first, second):
        rig.read_back(rig.land(send).offset)
        assert [each.is_own for each in rig.did if isinstance(each, Apply)] == [False]


def test_a_repeated_part_is_no_reason_to_step_down() -> None:
    rig = leading()
    rig.hear(Decided(("a",), 0, b"x" * 2000))
    for send in rig.sent():
        for _ in range(2):
            rig.read_back(rig.land(send).offset)

    assert rig.node.state is NodeState.LEADING
    assert rig.node.place.index == 1


def test_a_process_that_decides_in_our_term_has_our_nonce() -> None:
    """A machine that was cloned.  The engine goes, and its unit is applied as another's."""
    rig = leading()
    rig.decide("a")
    place = rig.node.place
    [part] = parts_of(Unit(place.term, 1, place.chain, 0, b"theirs"), 1000)

    rig.read(encode(part, SHARD))

    assert rig.names() == ["StepDown", "OpenAnew", "AnswerClients", "Apply"]
    assert rig.replies() == [(("a",), ClientReply.NOT_APPLIED)]


def test_a_decision_that_comes_too_late_is_undone() -> None:
    """The engine applied it and nobody will accept it."""
    rig = leading()
    rig.another_begins()

    rig.hear(Decided(("a",), 0, b""))

    assert rig.did[0] == AnswerClients(("a",), ClientReply.NOT_APPLIED)
    assert rig.names() == ["AnswerClients", "OpenAnew"]


def test_a_leader_that_ceases_keeps_its_engine() -> None:
    """Once what is in flight is settled, the engine holds what is accepted and nothing else."""
    rig = leading()
    send = rig.decide("a")
    rig.hear(Cease())

    rig.hear(rig.land(send))

    assert rig.names() == ["Apply", "AnswerClients"]
    assert rig.node.state is NodeState.FOLLOWING


# ---------------------------------------------------------------------- a log that lost


def test_a_record_that_is_not_where_the_log_said_is_lost() -> None:
    """The log answered with an offset, lost the record, and has another one there."""
    rig = leading()
    rig.hear(rig.land(rig.decide("a")))
    assert rig.replies() == [(("a",), ClientReply.ACCEPTED)]
    rig.log.pop()

    rig.another_begins()

    assert rig.names() == ["HistoryLost", "StepDown", "OpenAnew", "TakeSnapshot"]


@pytest.mark.parametrize("event", [Passed(9), Found(9, b"", 1)], ids=["passed", "found"])
def test_a_record_that_the_reader_did_not_meet_is_lost(event: Input) -> None:
    rig = leading()
    rig.hear(rig.land(rig.decide("a")))

    rig.hear(event)

    assert rig.names() == ["HistoryLost", "StepDown", "OpenAnew", "TakeSnapshot"]


def test_a_unit_of_a_term_that_never_began_here_makes_a_node_look() -> None:
    """A leader writes after its `TermBegan`; that is not in this log, so the log is another."""
    rig = following()
    rig.another_begins()
    [part] = parts_of(Unit(2, 1, b"?" * 16, 0, b""), 1000)
    rig.log[0] = b"another"

    rig.read(encode(part, SHARD))
    rig.show()

    assert rig.names() == ["HistoryLost", "TakeSnapshot"]


def test_a_store_is_set_aside_once_a_snapshot_is_proven() -> None:
    """A snapshot of a node that does not know yet is no better; the store may be the only copy."""
    rig = aside()
    other = Place(1, 1, 1, b"?" * 16, 0, 0)
    rig.hear(Offered(other, Mark(other)))
    assert rig.show()[0].__class__.__name__ == "TakeSnapshot"

    rig.hear(Offered(ZERO, Mark(ZERO)))

    assert rig.show() == [Install(ZERO, Mark(ZERO)), ReadOn(0)]


def test_a_node_that_needs_a_snapshot_asks_for_it_before_it_reads() -> None:
    """It has no data, and the log is not where the state begins; what it loses by that is nothing. It
    leads nothing, and reads the log from its beginning only where that is what it is offered. (§6)"""
    node = Node(SHARD, "n1", ZERO, Mark(ZERO), message_bytes_max=1 << 20)
    assert node.start(needs_snapshot=True) == [TakeSnapshot()]
    assert node.state is NodeState.ASIDE
    assert [type(effect) for effect in node.step(Lead(OURS))] == [NotElected]

    base = Place.adopted(SHARD)
    [prove] = node.step(Offered(base, Mark(base)))
    assert isinstance(prove, Prove)
    assert node.step(Shown(prove.proof, [])) == [Install(base, Mark(base)), ReadOn(0)]
    assert node.place == base


def test_a_mark_is_what_was_read_and_not_only_sent() -> None:
    """So a start looks again at everything that was accepted by its offset, from the last unit that
    the log itself has shown, in the epoch that it had."""
    rig = leading()
    for token in "ab":
        rig.hear(rig.land(rig.decide(token)))
    rig.read_back(0)
    rig.hear(Found(1, rig.log[1], 7))

    again = Rig(rig.node.anchor, rig.node.mark)

    assert again.did == [Prove(1, 1, 2, 7)]
    again.log = rig.log
    assert again.show() == [ReadOn(3)]


def test_a_node_that_was_down_while_the_log_was_cut_looks() -> None:
    """Others wrote on from before its place, and the log is longer than it was."""
    rig = leading()
    rig.read_back(rig.land(rig.decide("a")).offset)
    again = Rig(rig.node.anchor, rig.node.mark)
    again.log = [rig.log[0], *[encode(TermBegan(9, THEIRS, "n2"), SHARD)] * 3]

    again.show()

    assert again.names() == ["HistoryLost", "TakeSnapshot"]


def test_what_was_trimmed_is_no_loss() -> None:
    rig = Rig()
    assert rig.hear(NotShown(1, is_lost=False))[0].__class__.__name__ == "TakeSnapshot"
    rig = Rig()
    assert rig.hear(NotShown(1, is_lost=True))[0].__class__.__name__ == "HistoryLost"
    rig = following()
    rig.hear(ReadFailed(is_lost=False))
    assert rig.names() == ["TakeSnapshot"]


def test_a_late_look_says_nothing() -> None:
    """Another one was asked for since."""
    rig = following()
    rig.another_begins()
    rig.another_begins()
    rig.hear(Shown(2, []), NotShown(2, is_lost=True))

    assert rig.node.state is NodeState.FOLLOWING


def test_a_record_of_a_newer_version_halts() -> None:
    """To skip it would be to go on from another state than the others."""
    rig = leading()
    raw = bytearray(encode(TermBegan(9, THEIRS, "n2"), SHARD))
    raw[4] = FORMAT + 1
    raw[32:48] = _digest(raw[:32], raw[48:])

    rig.read(bytes(raw))

    assert isinstance(rig.did[-1], Halt)
    assert f"format {FORMAT + 1}" in rig.did[-1].why


def test_what_another_look_showed_says_nothing_to_a_node_that_joins() -> None:
    """It waits for the answer to its own question. (docs/design.md)"""
    for rig in (Rig(), proving()):
        state = rig.node.state

        assert rig.hear(Shown(99, [])) == []
        assert rig.node.state is state


def test_a_snapshot_that_cannot_be_proven_is_not_installed() -> None:
    """The log was trimmed past it meanwhile: another one is asked for, once."""
    rig = aside()
    other = Place(1, 1, 1, b"?" * 16, 0, 0)
    rig.hear(Offered(other, Mark(other)))
    [prove] = [each for each in rig.did if isinstance(each, Prove)]

    assert rig.hear(NotShown(prove.proof + 1, is_lost=False)) == []
    assert rig.hear(NotShown(prove.proof, is_lost=False)) == [TakeSnapshot()]
    assert rig.hear(NotShown(prove.proof, is_lost=False)) == []


def test_a_term_of_an_attempt_with_the_same_nonce_is_not_this_one() -> None:
    """The log has the first attempt's record twice; the second copy comes while the node begins
    again: it leads by no record that is skipped."""
    rig = leading()
    first = rig.log[0]
    rig.another_begins()
    rig.show()
    rig.hear(Lead(OURS), EndIs(len(rig.log)))
    assert rig.node.state is NodeState.BEGINNING

    rig.read(first)

    assert rig.names() == ["NotElected"]
    assert rig.node.state is NodeState.FOLLOWING


def test_a_term_whose_record_the_log_refused_is_not_led() -> None:
    """And the refusal of another record says nothing of it."""
    rig = beginning()
    [send] = rig.sent()

    assert rig.hear(SendFailed(b"?" * 16, is_known=True)) == []
    rig.hear(SendFailed(send.ticket, is_known=True))

    assert rig.names() == ["NotElected"]


def test_a_unit_that_nobody_waits_for_answers_who_asks_behind_it() -> None:
    """What the engine decides by itself, as time passes, has no client; a read behind it has."""
    rig = leading()
    send = rig.decide()
    rig.hear(ReadAsked("read"))

    rig.hear(rig.land(send))

    assert rig.replies() == [(("read",), ClientReply.ACCEPTED)]


def test_a_leader_writes_in_the_format_that_it_is_told() -> None:
    """The newest that the oldest live node reads (§1): its term, and each unit from then on."""
    rig = following()
    assert rig.lead().log[0][4] == 1
    assert rig.decide("a").raw[4] == 1

    rig.node.write_format(2)
    assert rig.decide("b").raw[4] == 2
    assert decode(rig.sent()[0].raw, SHARD) is not None

    newer = following()
    newer.node.write_format(2)
    assert newer.lead().log[0][4] == 2
