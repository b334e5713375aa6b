"""A node of the cluster: when it may lead, when it may answer, and when it must let go.

Owns the lifecycle of one node over one shard, as a table of states and inputs (`TABLE`).  What a leader
has in flight is `in_flight`'s.  It decides nothing about records of the log: `replica.accept` does, for
the node's own units too.  It has no clock: that something takes too long is an input.

Invariants:
- a unit is answered as accepted only after `accept` accepted it at its offset;
- in a term only one process decides, and only from the state that the log had when its term began;
- an engine that may hold what was not accepted is dropped before anything is applied to it.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final, TypeAlias

import msgspec

from topics.protocol.cluster.rule.in_flight import Flight, UnitsInFlight
from topics.protocol.cluster.rule.replica import (
    Accepted,
    Began,
    Mark,
    Place,
    Skip,
    Skipped,
    Stopped,
    Verdict,
    accept,
    accept_record,
    is_history,
    passed,
)
from topics.protocol.cluster.rule.steps import (
    INPUTS,
    AnswerClients,
    Apply,
    AskEnd,
    CannotApply,
    Cease,
    ClientReply,
    Decided,
    Effect,
    EndIs,
    Found,
    GiveUp,
    Halt,
    HistoryLost,
    Input,
    Install,
    Lead,
    Leads,
    NotElected,
    NotShown,
    Offered,
    OpenAnew,
    Passed,
    Prove,
    ReadAsked,
    ReadFailed,
    ReadOn,
    Send,
    SendFailed,
    Sent,
    Shown,
    StepDown,
    TakeSnapshot,
)
from topics.protocol.cluster.rule.unit import (
    FORMAT,
    FORMAT_OLDEST,
    Shard,
    TermBegan,
    Unit,
    UnitPart,
    encode,
)


class NodeState(StrEnum):
    """What a node is."""

    JOINING = "joining"
    """It looks whether the log is the one of its store."""
    FOLLOWING = "following"
    SEEKING = "seeking"
    """To lead: it reads to the end."""
    BEGINNING = "beginning"
    """Its `TermBegan` is on its way."""
    PROVING = "proving"
    """Its term began; it looks whether the log is still the one that it has read."""
    LEADING = "leading"
    DRAINING = "draining"
    """It decides nothing more; units are in flight."""
    ASIDE = "aside"
    """Its store is no prefix of the log; it waits for a snapshot."""
    HALTED = "halted"


class Proof(msgspec.Struct, frozen=True):
    """What is to be shown: that the log has what leads from `mark` to `place`."""

    number: int
    mark: Mark
    place: Place


class Node:
    """One node over one shard.  It begins with `start`, and takes one input at a time by `step`.

    Args:
        name: For people; nothing is decided by it.
        place: That of the last unit in its store, as `Apply` gave it; `Place.before_all` for an
            empty one.
        mark: As `Apply` gave it with that.
        message_bytes_max: The largest record that the log takes.

    Attributes:
        place: How far it has come, units in flight not counted.
        anchor: Its place at the last unit: what a store holds.
        mark: The last unit that it has read back, and not only sent.
    """

    def __init__(
        self, shard: Shard, name: str, place: Place, mark: Mark, *, message_bytes_max: int
    ) -> None:
        self.state = NodeState.JOINING
        self.place = self.anchor = place
        self.mark = mark
        self._shard = shard
        self._name = name
        self._message_bytes_max = message_bytes_max
        self._effects: list[Effect] = []
        self._proof: Proof | None = None
        self._proofs = 0
        self._attempt: TermBegan | None = None
        self._target = -1
        self._in_flight = UnitsInFlight()

    def start(self, *, needs_snapshot: bool = False) -> list[Effect]:
        """The first effects.

        Args:
            needs_snapshot: The store is empty, and the log is not where the state begins; or another
                node's state is had sooner.
        """
        if needs_snapshot:
            assert self.place.index == 0
            self._set_aside("it has no data")
        else:
            self._prove(self.mark, self.place)
        return self._taken()

    def step(self, event: Input) -> list[Effect]:
        """What follows from an input, in order."""
        TABLE[self.state][type(event)](self, event)
        return self._taken()

    @property
    def is_settled(self) -> bool:
        """Whether all that the engine holds is accepted: only then may it be sealed, checkpointed or
        copied, because each of these would make a unit in flight part of the store."""
        return self._in_flight.is_settled

    @property
    def has_room(self) -> bool:
        """Whether another unit may be decided."""
        return self._in_flight.has_room

    @property
    def format(self) -> int:
        """Of the records that are written."""
        return self._in_flight.format

    def write_format(self, format_: int) -> None:
        """From here on records are written in this format, which all live nodes read."""
        assert FORMAT_OLDEST <= format_ <= FORMAT
        self._in_flight.format = format_

    def _taken(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    def _do(self, *effects: Effect) -> None:
        self._effects += effects

    def _move(self, state: NodeState) -> None:
        assert state in TRANSITIONS[self.state], (self.state, state)
        self.state = state

    def _ignore(self, event: Input) -> None:
        """It means nothing here: a report that comes late, or what is so already."""

    # ------------------------------------------------------------------ is the log still ours?

    def _prove(self, mark: Mark, place: Place) -> None:
        self._proofs += 1
        self._proof = Proof(self._proofs, mark, place)
        self._do(Prove(self._proofs, max(mark.place.offset, 0), place.read, mark.epoch))

    def _judge(self, event: Shown) -> bool | None:
        """Whether the proof that is waited for holds; None where another one is."""
        proof = self._proof
        if proof is None or event.proof != proof.number:
            return None
        self._proof = None
        return is_history(proof.mark.place, proof.place, event.records, self._shard)

    def _joined(self, event: Shown) -> None:
        match self._judge(event):
            case True:
                self._read_on()
            case False:
                self._lost()

    def _read_on(self) -> None:
        self._in_flight.unread.clear()
        self._move(NodeState.FOLLOWING)
        self._do(ReadOn(self.place.read + 1))

    def _looked(self, event: Shown) -> None:
        if self._judge(event) is False:
            self._lost()

    def _proved(self, event: Shown) -> None:
        match self._judge(event):
            case True:
                self._move(NodeState.LEADING)
                self._do(Leads(self.place.term))
            case False:
                self._lost()

    def _not_shown(self, event: NotShown) -> None:
        if self._proof is None or event.proof != self._proof.number:
            return
        if event.is_lost:
            self._lost()
        else:
            self._set_aside("the log was trimmed past this node")

    def _read_failed(self, event: ReadFailed) -> None:
        if event.is_lost:
            self._lost()
        else:
            self._set_aside("the log was trimmed past this node")

    def _lost(self) -> None:
        self._do(HistoryLost(self.place))
        self._set_aside("the log lost records")

    def _set_aside(self, why: str) -> None:
        self._let_go(why, ClientReply.UNKNOWN)
        self._proof = None
        self._move(NodeState.ASIDE)
        self._do(TakeSnapshot())

    def _offered(self, event: Offered) -> None:
        self._prove(event.mark, event.place)

    def _snapshot_shown(self, event: Shown) -> None:
        proof = self._proof
        match self._judge(event):
            case True:
                assert proof is not None
                self.place = self.anchor = proof.place
                self.mark = proof.mark
                self._do(Install(proof.place, proof.mark))
                self._read_on()
            case False:
                self._do(TakeSnapshot())

    def _snapshot_not_shown(self, event: NotShown) -> None:
        if self._proof is not None and event.proof == self._proof.number:
            self._proof = None
            self._do(TakeSnapshot())

    def _halt(self, why: str) -> None:
        self._let_go(why, ClientReply.UNKNOWN)
        self._move(NodeState.HALTED)
        self._do(Halt(why))

    def _cannot_apply(self, event: CannotApply) -> None:
        self._halt(event.why)

    # ------------------------------------------------------------------ reading

    def _found(self, event: Found) -> None:
        if event.offset <= self.place.read:
            self._read_back(event)
            return
        if self._in_flight.unread:
            # The log has nothing more where it said that our records are.
            self._lost()
            return
        self.place, verdict = accept(self.place, event.offset, event.raw, self._shard)
        if isinstance(verdict, Accepted):
            self.mark = Mark(self.place, event.epoch)
        self._judged(verdict)

    def _judged(self, verdict: Verdict) -> None:
        match verdict:
            case Accepted():
                self.anchor = self.place
                self._on_unit(verdict)
            case Began(record):
                self._on_term(record)
            case Skipped(why, record):
                self._on_skipped(why, record)
            case Stopped(why):
                self._halt(why)
        if self.state is NodeState.SEEKING:
            self._begin_at_end()

    def _read_back(self, event: Found) -> None:
        """A record that was accepted by its offset is there, or the log is another one."""
        if not self._in_flight.is_due(event.offset):
            return
        is_there, end = self._in_flight.read_back(event)
        if not is_there:
            self._lost()
        elif end is not None:
            self.mark = Mark(end, event.epoch)

    def _passed(self, event: Passed) -> None:
        if self._in_flight.is_due(event.offset):
            self._lost()
            return
        self.place = passed(self.place, event.offset)
        if self.state is NodeState.SEEKING:
            self._begin_at_end()

    def _on_unit(self, accepted: Accepted) -> None:
        flights = self._in_flight.flights
        flight = flights[0] if flights else None
        is_own = flight is not None and self._is_own(flight, accepted)
        if not is_own and self.state in OF_OWN_TERM:
            # Another process holds our nonce, or sent what we did not: this engine is not the one
            # that the term belongs to.
            self._let_go("another process decides in this term", ClientReply.NOT_APPLIED)
        self._do(Apply(accepted.unit, self.anchor, self.mark, is_own))
        if is_own:
            assert flight is not None
            flights.popleft()
            self._answer(flight, ClientReply.ACCEPTED)
            self._end_drain()

    @staticmethod
    def _is_own(flight: Flight, accepted: Accepted) -> bool:
        """By the chain: another process may decide the same index in the same term."""
        return flight.ticket == accepted.chain

    def _on_term(self, began: TermBegan) -> None:
        if self.state is NodeState.BEGINNING and self._is_attempt(began):
            self._move(NodeState.PROVING)
        elif self.state is not NodeState.SEEKING:  # which reads what was before its time
            # Nothing of an earlier term that is not accepted by now ever will be.
            self._let_go(f"{began.node} began term {began.term}", ClientReply.NOT_APPLIED)
        self._prove(self.mark, self.place)

    def _is_attempt(self, began: TermBegan) -> bool:
        """By the nonce: another process may have this node's name and take the same term."""
        return self._attempt is not None and began.nonce == self._attempt.nonce

    def _on_skipped(self, why: Skip, record: Any) -> None:
        if isinstance(record, TermBegan):
            if self.state is NodeState.BEGINNING and self._is_attempt(record):
                self._let_go(f"term {record.term} was another's", ClientReply.NOT_APPLIED)
        elif isinstance(record, UnitPart):
            if why is Skip.NOT_BEGUN:
                # A leader writes once it has read that its term began.  That record was before this
                # one, and is gone.
                self._let_go("a term began that is not in the log", ClientReply.UNKNOWN)
                self._prove(self.mark, self.place)
            elif self._in_flight.is_missed(record, self.place):
                self._let_go("a unit was not accepted", ClientReply.UNKNOWN)

    # ------------------------------------------------------------------ to lead

    def _seek(self, event: Lead) -> None:
        self._attempt = TermBegan(0, event.nonce, self._name)
        self._target = -1
        self._move(NodeState.SEEKING)
        self._do(AskEnd())

    def _cannot_lead(self, event: Lead) -> None:
        self._do(NotElected(f"this node is {self.state}"))

    def _end_is(self, event: EndIs) -> None:
        self._target = event.offset
        self._begin_at_end()

    def _begin_at_end(self) -> None:
        if self._target < 0 or self.place.read < self._target - 1:
            return
        assert self._attempt is not None
        began = TermBegan(self.place.seen + 1, self._attempt.nonce, self._name)
        self._attempt = began
        self._move(NodeState.BEGINNING)
        self._do(Send(began.nonce, 0, encode(began, self._shard, format_=self._in_flight.format)))

    def _begin_failed(self, event: SendFailed) -> None:
        if event.is_known and self._attempt is not None and event.ticket == self._attempt.nonce:
            self._let_go("the log did not take its term", ClientReply.NOT_APPLIED)

    def _give_up(self, event: GiveUp | Cease) -> None:
        self._let_go(f"{type(event).__name__}", ClientReply.UNKNOWN)

    # ------------------------------------------------------------------ leading

    def _send(self, event: Decided) -> None:
        index, chain = self._in_flight.tip(self.place)
        unit = Unit(self.place.term, index + 1, chain, event.frames, event.body)
        sends = self._in_flight.add(unit, event.tokens, self._shard, self._message_bytes_max)
        self._do(*sends)

    def _not_sent(self, event: Decided) -> None:
        """The engine decided before it heard that it may not: it holds what nobody will accept."""
        self._do(AnswerClients(event.tokens, ClientReply.NOT_APPLIED), OpenAnew())

    def _not_sent_while_draining(self, event: Decided) -> None:
        self._do(AnswerClients(event.tokens, ClientReply.NOT_APPLIED))
        self._let_go("the engine decided while it drained", ClientReply.UNKNOWN)

    def _sent(self, event: Sent) -> None:
        self._in_flight.sent(event)
        self._settle()

    def _settle(self) -> None:
        """Accept what directly follows what was read: nobody wrote between.  Everything else is
        read back."""
        while (found := self._in_flight.next_by_offset(self.place)) is not None:
            offset, part = found
            self.place, verdict = accept_record(self.place, offset, part)
            assert not isinstance(verdict, Skipped | Stopped), verdict
            end = self.place if isinstance(verdict, Accepted) else None
            self._in_flight.accepted(offset, part, end)
            self._judged(verdict)

    def _send_failed(self, event: SendFailed) -> None:
        if event.is_known and self._in_flight.has(event.ticket):
            self._let_go("the log did not take a unit", ClientReply.UNKNOWN)

    def _cease(self, event: Cease) -> None:
        self._do(StepDown("asked to"))
        self._move(NodeState.DRAINING)
        self._end_drain()

    def _end_drain(self) -> None:
        if self.state is NodeState.DRAINING and self.is_settled:
            self._move(NodeState.FOLLOWING)

    def _asked(self, event: ReadAsked) -> None:
        if self._in_flight.flights:
            self._in_flight.flights[-1].asked.append(event.token)
        else:
            self._do(AnswerClients((event.token,), ClientReply.ACCEPTED))

    def _not_asked(self, event: ReadAsked) -> None:
        self._do(AnswerClients((event.token,), ClientReply.NOT_APPLIED))

    def _answer(self, flight: Flight, reply: ClientReply) -> None:
        asked = ClientReply.ACCEPTED if reply is ClientReply.ACCEPTED else ClientReply.NOT_APPLIED
        if flight.tokens:
            self._do(AnswerClients(flight.tokens, reply))
        if flight.asked:
            self._do(AnswerClients(tuple(flight.asked), asked))

    def _let_go(self, why: str, in_flight: ClientReply) -> None:
        """Whatever this node was about to lead, it follows now."""
        self._attempt = None
        if self.state in CANDIDATES:
            self._do(NotElected(why))
            self._move(NodeState.FOLLOWING)
        elif self.state in DECIDERS:
            flights = self._in_flight.taken()
            is_leading = self.state is NodeState.LEADING
            self._do(*((StepDown(why),) if is_leading else ()), OpenAnew())
            for flight in flights:
                self._answer(flight, in_flight)
            self._move(NodeState.FOLLOWING)


CANDIDATES: Final = frozenset({NodeState.SEEKING, NodeState.BEGINNING, NodeState.PROVING})
DECIDERS: Final = frozenset({NodeState.LEADING, NodeState.DRAINING})
OF_OWN_TERM: Final = frozenset({NodeState.PROVING, *DECIDERS})

TRANSITIONS: Final[dict[NodeState, frozenset[NodeState]]] = {
    NodeState.JOINING: frozenset({NodeState.FOLLOWING, NodeState.ASIDE}),
    NodeState.FOLLOWING: frozenset({NodeState.SEEKING, NodeState.ASIDE, NodeState.HALTED}),
    NodeState.SEEKING: frozenset({NodeState.BEGINNING, NodeState.FOLLOWING}),
    NodeState.BEGINNING: frozenset({NodeState.PROVING, NodeState.FOLLOWING}),
    NodeState.PROVING: frozenset({NodeState.LEADING, NodeState.FOLLOWING}),
    NodeState.LEADING: frozenset({NodeState.DRAINING, NodeState.FOLLOWING}),
    NodeState.DRAINING: frozenset({NodeState.FOLLOWING}),
    NodeState.ASIDE: frozenset({NodeState.FOLLOWING}),
    NodeState.HALTED: frozenset(),
}
"""A node that leads or is about to lets that go before it is anything else."""

Handler: TypeAlias = Callable[[Node, Any], None]

_READING: Final[dict[type, Handler]] = {
    Found: Node._found,
    Passed: Node._passed,
    ReadFailed: Node._read_failed,
    Shown: Node._looked,
    NotShown: Node._not_shown,
    Lead: Node._ignore,
    Cease: Node._ignore,
    EndIs: Node._ignore,
    Sent: Node._ignore,
    SendFailed: Node._ignore,
    GiveUp: Node._ignore,
    Decided: Node._not_sent,
    ReadAsked: Node._asked,
    Offered: Node._ignore,
    CannotApply: Node._cannot_apply,
}
"""A node that reads, leading or not."""

_WAITING: Final[dict[type, Handler]] = {
    **dict.fromkeys(INPUTS, Node._ignore),
    Lead: Node._cannot_lead,
    Decided: Node._not_sent,
    ReadAsked: Node._not_asked,
}
"""A node that knows nothing it could show."""

TABLE: Final[dict[NodeState, dict[type, Handler]]] = {
    NodeState.JOINING: {**_WAITING, Shown: Node._joined, NotShown: Node._not_shown},
    NodeState.FOLLOWING: {**_READING, Lead: Node._seek},
    NodeState.SEEKING: {
        **_READING,
        EndIs: Node._end_is,
        GiveUp: Node._give_up,
        Cease: Node._give_up,
    },
    NodeState.BEGINNING: {
        **_READING,
        SendFailed: Node._begin_failed,
        GiveUp: Node._give_up,
        Cease: Node._give_up,
    },
    NodeState.PROVING: {
        **_READING,
        Shown: Node._proved,
        GiveUp: Node._give_up,
        Cease: Node._give_up,
    },
    NodeState.LEADING: {
        **_READING,
        Sent: Node._sent,
        SendFailed: Node._send_failed,
        GiveUp: Node._give_up,
        Cease: Node._cease,
        Decided: Node._send,
    },
    NodeState.DRAINING: {
        **_READING,
        Lead: Node._cannot_lead,
        Sent: Node._sent,
        SendFailed: Node._send_failed,
        GiveUp: Node._give_up,
        Decided: Node._not_sent_while_draining,
    },
    NodeState.ASIDE: {
        **_WAITING,
        Shown: Node._snapshot_shown,
        NotShown: Node._snapshot_not_shown,
        Offered: Node._offered,
    },
    NodeState.HALTED: {**_WAITING},
}
"""What each input does in each state."""

assert all(row.keys() == set(INPUTS) for row in TABLE.values())
