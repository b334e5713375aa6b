"""What a replica accepts of the log, and what it skips.

Owns the one rule by which all replicas read the same state from the same records: a function of a
place and a record, to the next place and a verdict.  It knows nothing of who is to lead, of stores
and of engines.  The leader's own units go through the same function, so that there is no second rule.

Invariant: what `accept` gives depends on the records behind the place and on nothing else.  Two
replicas that begin at the same place and read the same records are at the same place.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from topics.protocol.cluster.rule.unit import (
    NotOurs,
    Record,
    Shard,
    TermBegan,
    Unit,
    UnitPart,
    Unreadable,
    chain_of_base,
    chain_over_term,
    decode,
    joined,
    origin,
)

TERM_STEP_MAX: Final = 1 << 10
"""How far above all terms seen a term may be.  A candidate takes the next one; a record that is further
off is no honest node's, and would use up the terms for good."""


class Place(msgspec.Struct, frozen=True):
    """How far a replica has come, and what of the past decides about the next record.

    Attributes:
        term: That of the last accepted `TermBegan`; 0 before the first.
        seen: The greatest term in any record, also in those that were skipped.
        index: Of the last accepted unit; 0 before the first.
        chain: Digest of everything accepted.
        offset: Of the last accepted record; -1 before the first.
        read: Every record up to this offset was read.
        parts: Those of the next unit that came so far, from the first on.
    """

    term: int
    seen: int
    index: int
    chain: bytes
    offset: int
    read: int
    parts: tuple[UnitPart, ...] = ()

    @classmethod
    def before_all(cls, shard: Shard) -> "Place":
        """Where a new shard's first replica begins: the log's first offset is 0."""
        return cls(term=0, seen=0, index=0, chain=origin(shard), offset=-1, read=-1)

    @classmethod
    def adopted(cls, shard: Shard) -> "Place":
        """Where a shard begins that has data before its first record: behind a unit that is in no log.
        A replica that begins before all accepts nothing of such a shard."""
        return cls(term=0, seen=0, index=1, chain=chain_of_base(shard), offset=-1, read=-1)


class Mark(msgspec.Struct, frozen=True):
    """The last unit that a node has read in the log itself: its place right behind it, and the epoch
    that the log gave with its last record; -1 where none was read yet."""

    place: Place
    epoch: int = -1


class Skip(StrEnum):
    """Why a record is skipped."""

    READ_BEFORE = "read before"
    NOT_OURS = "not a record of this shard"
    OLD_TERM = "a term that is not above all seen"
    FAR_TERM = "a term too far above all seen"
    DEPOSED = "a unit of an earlier term"
    NOT_BEGUN = "a unit of a term that has not begun here"
    WRONG_INDEX = "not the next unit"
    WRONG_CHAIN = "goes on from another history"
    PART_OUT_OF_TURN = "not the next part"
    UNSOUND = "the parts do not make the unit"


class Began(msgspec.Struct, frozen=True):
    """A term began."""

    record: TermBegan


class Accepted(msgspec.Struct, frozen=True):
    """A unit is true now, on every node that comes here.  `chain` is the one behind it."""

    unit: Unit
    chain: bytes


class Kept(msgspec.Struct, frozen=True):
    """A part of a unit, the next of which is still to come."""

    part: UnitPart


class Skipped(msgspec.Struct, frozen=True):
    """A record without effect; None where it could not be read as one."""

    why: Skip
    record: Record | None = None


class Stopped(msgspec.Struct, frozen=True):
    """The record is this cluster's and this version cannot read it: the place stays before it."""

    why: str


Verdict: TypeAlias = Began | Accepted | Kept | Skipped | Stopped


def accept(place: Place, offset: int, raw: bytes, shard: Shard) -> tuple[Place, Verdict]:
    """The next record that the log has, at this offset.  Some offsets may hold no record."""
    if offset <= place.read:
        return place, Skipped(Skip.READ_BEFORE)
    try:
        record = decode(raw, shard)
    except NotOurs:
        return passed(place, offset), Skipped(Skip.NOT_OURS)
    except Unreadable as error:
        return place, Stopped(f"at offset {offset}: {error}")
    return accept_record(place, offset, record)


def accept_record(place: Place, offset: int, record: Record) -> tuple[Place, Verdict]:
    """As `accept`, of a record that is decoded."""
    assert offset > place.read
    if record.term > place.seen + TERM_STEP_MAX:
        return passed(place, offset), Skipped(Skip.FAR_TERM, record)
    if isinstance(record, TermBegan):
        return _begin(place, offset, record)
    return _take(place, offset, record)


def passed(place: Place, offset: int) -> Place:
    """Nothing up to this offset is to be read any more."""
    return msgspec.structs.replace(place, read=max(place.read, offset))


def _begin(place: Place, offset: int, began: TermBegan) -> tuple[Place, Verdict]:
    if began.term <= place.seen:
        return passed(place, offset), Skipped(Skip.OLD_TERM, began)
    chain = chain_over_term(place.chain, began)
    # No parts: those that a leader had not sent to the end will never be a unit.
    next_place = Place(began.term, began.term, place.index, chain, offset, offset)
    return next_place, Began(began)


def _take(place: Place, offset: int, part: UnitPart) -> tuple[Place, Verdict]:
    behind = msgspec.structs.replace(place, read=offset, seen=max(place.seen, part.term))
    why = _refusal(place, part)
    if why is not None:
        return behind, Skipped(why, part)
    parts = (*place.parts, part)
    if not part.is_last:
        return msgspec.structs.replace(behind, parts=parts), Kept(part)
    unit = joined(parts)
    if unit is None:
        return msgspec.structs.replace(behind, parts=()), Skipped(Skip.UNSOUND, part)
    chain = part.chain
    next_place = Place(place.term, behind.seen, part.index, chain, offset, offset)
    return next_place, Accepted(unit, chain)


def _refusal(place: Place, part: UnitPart) -> Skip | None:
    if part.term < place.term:
        return Skip.DEPOSED
    if part.term > place.term:
        return Skip.NOT_BEGUN
    if part.index != place.index + 1:
        return Skip.WRONG_INDEX
    if part.prev != place.chain:
        return Skip.WRONG_CHAIN
    if part.part != len(place.parts) or not all(
        (kept.unit, kept.parts) == (part.unit, part.parts) for kept in place.parts[:1]
    ):
        return Skip.PART_OUT_OF_TURN
    return None


def is_history(
    anchor: Place, place: Place, records: Iterable[tuple[int, bytes]], shard: Shard
) -> bool:
    """Whether the log has what leads from one place to another.

    Args:
        anchor: The place right behind a unit, or before all.
        place: Where the replica is, or was.
        records: What the log has now from `anchor.offset` (0 before all) through `place.read`.

    The record at the anchor's offset has to be the end of that unit.  From there the rule is applied
    again and has to end at the same place.  One record is not enough: a leader under which the log
    was cut writes on where it was, and what it writes then stands at the offset at which it looks.
    """
    found = iter(records)
    if anchor.offset >= 0:
        first = next(found, None)
        if first is None or not _ends_in(anchor, *first, shard):
            return False
    # The chain of a place says no more than what was accepted.  Which terms were seen matters, too:
    # they were in records of which some may be gone.
    again = msgspec.structs.replace(anchor, read=anchor.offset, parts=())
    for offset, raw in found:
        if offset > place.read:
            break
        again, verdict = accept(again, offset, raw, shard)
        if isinstance(verdict, Stopped):
            return False
    return passed(again, place.read) == place


def _ends_in(anchor: Place, offset: int, raw: bytes, shard: Shard) -> bool:
    try:
        record = decode(raw, shard)
    except (NotOurs, Unreadable):
        return False
    return (
        offset == anchor.offset
        and isinstance(record, UnitPart)
        and record.is_last
        and (record.index, record.chain) == (anchor.index, anchor.chain)
    )
