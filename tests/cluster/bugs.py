"""Bugs sown on purpose: each takes one clause out of the rule, and the simulation has to find it, by an
invariant with a name.

`BUGS` has for each bug how it is sown, the kinds of worlds that meet it, and the invariants that may
find it.  Three more need a cut between two steps that hardly any world has there; a history that is
written down finds each of them (`WRITTEN`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from topics.protocol.cluster.rule import leading, replica
from topics.protocol.cluster.rule.in_flight import Flight
from topics.protocol.cluster.rule.leading import TABLE, Node, NodeState
from topics.protocol.cluster.rule.replica import Accepted, Mark, Place, Skip, Verdict, accept_record
from topics.protocol.cluster.rule.steps import (
    AnswerClients,
    ClientReply,
    Decided,
    Found,
    Leads,
    Send,
    Sent,
    Shown,
)
from topics.protocol.cluster.rule.trimming import NodeNeeds, bound_of
from topics.protocol.cluster.rule.unit import TermBegan, Unit, UnitPart, joined

from .invariants import Violation
from .process import Process, Token
from .style import KINDS
from .world import World, told_world

Patch = pytest.MonkeyPatch


def acknowledge_on_send(patch: Patch) -> None:
    """The log has not said that it has the unit."""

    def hasty(self: Node, event: Decided) -> None:
        Node._send(self, event)
        self._in_flight.flights[-1].tokens = ()
        self._do(AnswerClients(event.tokens, ClientReply.ACCEPTED))

    patch.setitem(TABLE[NodeState.LEADING], Decided, hasty)


def lead_before_reading_back(patch: Patch) -> None:
    """Another candidate's `TermBegan` of the same term may be before ours."""

    def hasty(self: Node, event: Sent) -> None:
        assert self._attempt is not None
        if event.ticket != self._attempt.nonce or event.offset <= self.place.read:
            return
        self.place, _ = accept_record(self.place, event.offset, self._attempt)
        self._move(NodeState.PROVING)
        self._move(NodeState.LEADING)
        self._do(Leads(self.place.term))

    patch.setitem(TABLE[NodeState.BEGINNING], Sent, hasty)


def lead_without_proof(patch: Patch) -> None:
    """The log was cut after this node had looked, and before its term began."""

    def on_term(self: Node, began: TermBegan) -> None:
        is_ours = self.state is NodeState.BEGINNING and self._is_attempt(began)
        original(self, began)
        if is_ours:
            self._effects.pop()
            self._proof = None
            self._move(NodeState.LEADING)
            self._do(Leads(self.place.term))

    original = Node._on_term
    patch.setattr(Node, "_on_term", on_term)


def compare_the_index(patch: Patch) -> None:
    """Two histories have a unit of the same index."""
    refusal = replica._refusal

    def lax(place: Place, part: UnitPart) -> Skip | None:
        why = refusal(place, part)
        return None if why is Skip.WRONG_CHAIN else why

    patch.setattr(replica, "_refusal", lax)


def apply_before_accepted(patch: Patch) -> None:
    """The node's own log gets what is in flight."""
    send, apply = Process.send, Process.apply

    def early(self: Process, effect: Send) -> None:
        send(self, effect)
        flights = [f for f in self.node._in_flight.flights if f.ticket == effect.ticket]
        if flights and effect.part == len(flights[0].parts) - 1:
            unit = joined(flights[0].parts)
            assert unit is not None
            place = msgspec.structs.replace(self.node.anchor, index=unit.index, chain=effect.ticket)
            self.store.entries.append((place, self.node.mark, unit.events()))

    def once(self: Process, unit: Unit, place: Place, mark: Mark, is_own: bool) -> None:
        if not is_own:
            apply(self, unit, place, mark, is_own)

    patch.setattr(Process, "send", early)
    patch.setattr(Process, "apply", once)


def checkpoint_with_units_in_flight(patch: Patch) -> None:
    """The engine's memory is ahead of what is accepted."""
    patch.setattr(Node, "is_settled", True)


def keep_the_engine_after_stepping_down(patch: Patch) -> None:
    def kept(self: Process) -> None:
        self.decides = False
        self.turn, self.events = [], []

    patch.setattr(Process, "open_anew", kept)


def trim_too_early(patch: Patch) -> None:
    """As far as it is accepted: on no disk, perhaps."""
    patch.setattr(
        World, "trim_point", staticmethod(lambda leader, known: leader.node.anchor.offset)
    )


def trim_on_one_copy(patch: Patch) -> None:
    """The leader is the only node that was heard of."""
    patch.setattr(
        World, "trim_point", staticmethod(lambda leader, known: bound_of(known, copies=1).before)
    )


def trim_the_record_at_which_a_node_stands(patch: Patch) -> None:
    """It cannot tell the log from another one any more."""

    def greedy(leader: Process, known: list[NodeNeeds]) -> int:
        before = bound_of(known).before
        return before + 1 if before else 0

    patch.setattr(World, "trim_point", staticmethod(greedy))


def own_records_by_name(patch: Patch) -> None:
    """Two processes have one name."""

    def by_name(self: Node, began: TermBegan) -> bool:
        return self._attempt is not None and began.node == self._attempt.node

    def by_index(flight: Flight, accepted: Accepted) -> bool:
        return flight.parts[0].index == accepted.unit.index

    patch.setattr(Node, "_is_attempt", by_name)
    patch.setattr(Node, "_is_own", staticmethod(by_index))


def forget_terms_of_skipped_records(patch: Patch) -> None:
    """A term is taken twice: once by a leader whose `TermBegan` the log has lost."""
    take = replica._take

    def forgetful(place: Place, offset: int, part: UnitPart) -> tuple[Place, Verdict]:
        after, verdict = take(place, offset, part)
        return msgspec.structs.replace(after, seen=place.seen), verdict

    patch.setattr(replica, "_take", forgetful)


def keep_parts_over_a_new_term(patch: Patch) -> None:
    """A deposed leader's last part makes a unit that its clients were told never to be one."""
    begin, refusal = replica._begin, replica._refusal

    def keeping(place: Place, offset: int, began: TermBegan) -> tuple[Place, Verdict]:
        after, verdict = begin(place, offset, began)
        return msgspec.structs.replace(after, parts=place.parts), verdict

    def lax(place: Place, part: UnitPart) -> Skip | None:
        if place.parts and place.parts[0].unit == part.unit and part.part == len(place.parts):
            return None
        return refusal(place, part)

    patch.setattr(replica, "_begin", keeping)
    patch.setattr(replica, "_refusal", lax)


def answer_no_at_once(patch: Patch) -> None:
    """A deposed leader finds nothing to do, and answers that from what it knew."""

    def hasty(self: Process, token: Token) -> None:
        self.wait(token)

    patch.setattr(Process, "decide_check", hasty)


def read_what_is_in_flight(patch: Patch) -> None:
    def hasty(self: Node, event: Any) -> None:
        self._do(AnswerClients((event.token,), ClientReply.ACCEPTED))

    patch.setitem(TABLE[NodeState.LEADING], leading.ReadAsked, hasty)


def refuse_for_good_too_early(patch: Patch) -> None:
    """What is missing before a unit may still come, and then the unit again."""
    let_go = Node._let_go
    patch.setattr(
        Node, "_let_go", lambda self, why, in_flight: let_go(self, why, ClientReply.NOT_APPLIED)
    )


def believe_an_offset_with_a_gap_before_it(patch: Patch) -> None:
    """Between the last record that was read and ours there is another leader's."""

    def hasty(self: Node) -> None:
        flights = self._in_flight.flights
        while flights:
            flight, at = flights[0], len(self.place.parts)
            offset = flight.offsets.get(at)
            if offset is None or offset <= self.place.read:
                return
            self.place, verdict = accept_record(self.place, offset, flight.parts[at])
            self._judged(verdict)

    patch.setattr(Node, "_settle", hasty)


def never_read_back(patch: Patch) -> None:
    """A record was answered with its offset, and the log lost it before it was read."""

    def blind(self: Node, event: Found) -> None:
        if self._in_flight.is_due(event.offset):
            ours = self._in_flight.unread.popleft()
            if ours.place is not None:
                self.mark = Mark(ours.place, event.epoch)

    patch.setattr(Node, "_read_back", blind)


def join_without_looking(patch: Patch) -> None:
    """A node that was down while the log was cut."""

    def hasty(self: Node, event: Shown) -> None:
        if self._judge(event) is not None:
            self._read_on()

    patch.setitem(TABLE[NodeState.JOINING], Shown, hasty)


@dataclass(frozen=True)
class Bug:
    sow: Callable[[Patch], None]
    kinds: tuple[str, ...]
    found_by: frozenset[str]


def _bug(sow: Callable[[Patch], None], kinds: str, *found_by: str) -> Bug:
    return Bug(sow, tuple(kinds.split()), frozenset(found_by))


WORLDS = "no seq twice", "no lease twice", "replicas agree", "a state is of its index"
"""What a node on a state of its own breaks first depends on what its engine does next."""
ANSWERS = "acknowledged is true", "acknowledged stays"

BUGS: dict[str, Bug] = {
    bug.sow.__name__: bug
    for bug in (
        _bug(acknowledge_on_send, "storm duel", *ANSWERS),
        _bug(lead_before_reading_back, "duel twins", "a leader has the log", *WORLDS, *ANSWERS),
        _bug(compare_the_index, "cuts", *WORLDS),
        _bug(apply_before_accepted, "storm duel", *WORLDS),
        _bug(checkpoint_with_units_in_flight, "storm duel", *WORLDS),
        _bug(keep_the_engine_after_stepping_down, "storm duel", "a read is accepted", *WORLDS),
        _bug(trim_too_early, "trims", "copies exist"),
        _bug(trim_on_one_copy, "trims", "copies exist"),
        _bug(trim_the_record_at_which_a_node_stands, "trims", "copies exist"),
        _bug(own_records_by_name, "twins", *ANSWERS, *WORLDS),
        _bug(forget_terms_of_skipped_records, "cuts", "a leader has the log", *WORLDS),
        _bug(keep_parts_over_a_new_term, "duel storm", "refused is not there", *WORLDS),
        _bug(answer_no_at_once, "duel storm", "a no is true"),
        _bug(read_what_is_in_flight, "storm duel", "a read is accepted"),
        _bug(refuse_for_good_too_early, "duel storm", "refused is not there"),
        _bug(believe_an_offset_with_a_gap_before_it, "duel twins", *ANSWERS, *WORLDS),
    )
}

WRITTEN: dict[str, Callable[[Patch], None]] = {
    "test_a_node_that_was_down_while_the_log_was_cut_looks": join_without_looking,
    "test_a_log_that_was_cut_between_the_look_and_the_term_is_found_out": lead_without_proof,
    "test_a_record_that_is_not_where_the_log_said_is_lost": never_read_back,
}
"""Histories of `tests/protocol/cluster/rule/test_leading.py`, and the bug that each of them finds."""

FIRST: dict[str, int] = {
    "answer_no_at_once": 2768,
    "apply_before_accepted": 13,
    "compare_the_index": 887,
    "own_records_by_name": 819,
}
"""The first world that meets the bug, where it takes many."""

SEEDS = 600
"""Worlds of its kinds in which a bug has to be found."""


def find(bug: Bug, seeds: int = SEEDS) -> tuple[int, Violation]:
    """The first world that meets the bug, and what it says.

    Raises:
        AssertionError: No world does.
    """
    kinds = list(KINDS)
    first = FIRST.get(bug.sow.__name__, 0)
    tried = [
        seed for seed in range(first, first + 6 * seeds) if kinds[seed % len(kinds)] in bug.kinds
    ][:seeds]
    with pytest.MonkeyPatch.context() as patch:
        bug.sow(patch)
        for seed in tried:
            try:
                told_world(seed)
            except Violation as violation:
                return seed, violation
    raise AssertionError(f"no world of {len(tried)} meets it")
