"""What must hold, whatever goes wrong: each invariant has a name and a function.

`Oracle` reads the log as a node that never fails and forgets nothing.  It applies the rule in words of
its own, so that a slip in `replica` is none of it.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from topics.protocol.cluster.rule.unit import (
    Shard,
    TermBegan,
    Unit,
    UnitPart,
    chain_over_term,
    chain_over_unit,
    decode,
    origin,
)
from topics.protocol.model.events import Event

if TYPE_CHECKING:
    from .ledger import Ledger


class Violation(AssertionError):
    """An invariant does not hold."""

    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(f"invariant={invariant} | {what}")
        self.invariant = invariant


@dataclass
class Moment:
    """The log's state behind one record."""

    offset: int
    term: int = 0
    seen: int = 0
    index: int = 0
    chain: bytes = b""
    parts: list[UnitPart] = field(default_factory=list)
    events: list[Event] | None = None


class Oracle:
    """What the log says.

    Attributes:
        moments: Behind each record, in order; trimmed ones too.
    """

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self.moments = [Moment(-1, chain=origin(shard))]
        self.marks: set[int] = set()
        """The clients' commands that are true."""

    def landed(self, offset: int, raw: bytes) -> None:
        """A record is in the log."""
        last, record = self.moments[-1], decode(raw, self._shard)
        now = Moment(offset, last.term, last.seen, last.index, last.chain, last.parts)
        now.seen = max(last.seen, record.term)
        if isinstance(record, TermBegan):
            if record.term > last.seen:
                now.term, now.parts = record.term, []
                now.chain = chain_over_term(last.chain, record)
        elif (record.term, record.index, record.prev) == (last.term, last.index + 1, last.chain):
            self._part(now, record)
        self.moments.append(now)
        self.marks.update(event.now_ms for event in now.events or ())

    @staticmethod
    def _part(now: Moment, part: UnitPart) -> None:
        if part.part != len(now.parts) or any(part.unit != kept.unit for kept in now.parts):
            return
        now.parts = [*now.parts, part]
        if part.part + 1 == part.parts:
            body = b"".join(kept.body for kept in now.parts)
            unit = Unit(part.term, part.index, part.prev, part.frames, body)
            now.index, now.chain = part.index, chain_over_unit(part.prev, part.unit)
            now.parts, now.events = [], unit.events()

    def cut(self, first_offset: int) -> None:
        """The log lost its records from this offset on."""
        self.moments = [moment for moment in self.moments if moment.offset < first_offset]
        self.marks = {event.now_ms for moment in self.moments for event in moment.events or ()}

    def chain_at(self, index: int) -> bytes | None:
        """The chain right behind a unit."""
        for moment in reversed(self.moments):
            if moment.index == index and (moment.events is not None or index == 0):
                return moment.chain
        return None

    def state_at(self, index: int, empty: "Ledger") -> "Ledger":
        """`empty`, after all units up to this one."""
        for moment in self.moments:
            if moment.events is not None and moment.index <= index:
                empty.apply(moment.events)
        return empty


def acknowledged_is_true(mark: int, oracle: Oracle, *, who: str) -> None:
    """What a client was told to be accepted is in the log, accepted by every replica."""
    if mark not in oracle.marks:
        raise Violation("acknowledged is true", f"{who} acknowledged {mark}, which is not accepted")


def acknowledged_stays(acknowledged: set[int], oracle: Oracle) -> None:
    """And it stays there."""
    if gone := acknowledged - oracle.marks:
        raise Violation("acknowledged stays", f"{sorted(gone)[:5]} were acknowledged")


def refused_is_not_there(refused: set[int], oracle: Oracle) -> None:
    """What a client was told not to be applied, and never to be, is not."""
    if there := refused & oracle.marks:
        raise Violation("refused is not there", f"{sorted(there)[:5]} were refused")


def replicas_agree(index: int, chain: bytes, oracle: Oracle, *, who: str) -> None:
    """At each index all replicas have accepted the same history."""
    if oracle.chain_at(index) != chain:
        raise Violation("replicas agree", f"{who} has another unit {index}")


def leader_has_the_log(offset: int, chain: bytes, oracle: Oracle, *, who: str) -> None:
    """A leader decides from the state that the log has where its term began."""
    if [moment.chain for moment in oracle.moments if moment.offset == offset] != [chain]:
        raise Violation("a leader has the log", f"{who} leads from another state at {offset}")


def state_is_of_its_index(index: int, state: "Ledger", oracle: Oracle, *, who: str) -> None:
    """A replica at an index shows, and its store holds, the units up to it and nothing else."""
    from .ledger import Ledger

    if oracle.state_at(index, Ledger()).shows() != state.shows():
        raise Violation("a state is of its index", f"{who} at {index}")


def read_is_accepted(shown: set[int], oracle: Oracle, *, who: str) -> None:
    """A read shows nothing that is not accepted."""
    if early := shown - oracle.marks:
        raise Violation("a read is accepted", f"{who} showed {sorted(early)[:5]}")


def no_is_true(mark: int, acknowledged_before: bool, *, who: str) -> None:
    """Where a command found nothing to do, there was nothing when it was answered."""
    if acknowledged_before:
        raise Violation("a no is true", f"{who} did not find {mark}, acknowledged before")


def loss_is_told(untold: dict[str, int]) -> None:
    """Whoever had accepted what the log lost has said so."""
    if untold:
        raise Violation("a loss is told", f"{untold}")


def loss_is_noticed(has_met_loss: bool, *, who: str) -> None:
    """A leader that has read what stands in the place of a lost record acknowledges nothing more."""
    if has_met_loss:
        raise Violation("a loss is noticed", f"{who} goes on")


def can_go_on(acknowledged: bool) -> None:
    """Once nothing goes wrong any more, a leader is found and a write is accepted."""
    if not acknowledged:
        raise Violation("can go on", "nobody leads, or nothing is accepted")


def copies_exist(able: int) -> None:
    """While no more than one machine is lost at a time, a node has all that the log lets go of."""
    if not able:
        raise Violation("copies exist", "no store goes on where the log begins")
