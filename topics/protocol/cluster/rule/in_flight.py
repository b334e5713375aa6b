"""What a leader has sent and does not yet know to be true.

Owns the units in flight, in their order, and the records of ours that were accepted by their offset and
not read back yet.  It sends nothing and accepts nothing: it says what comes next, and `leading.Node`
asks the rule.

Invariants: units are settled in the order in which they were sent, each once; a record that was
accepted by its offset is remembered until the log shows it, or is known to be another.
"""

from collections import deque
from typing import Final

import msgspec

from topics.protocol.cluster.rule.replica import Place
from topics.protocol.cluster.rule.steps import Found, Send, Sent
from topics.protocol.cluster.rule.unit import (
    FORMAT_OLDEST,
    PRELUDE,
    Shard,
    Unit,
    UnitPart,
    encode,
    parts_of,
)

IN_FLIGHT_MAX: Final = 64
"""Units that may be in flight; the engine runs ahead by no more."""
UNREAD_MAX: Final = 4096
"""Records of ours that were accepted by their offset and not read back yet.  A reader that is so far
behind has to come closer before the next is answered by its offset."""


class Flight(msgspec.Struct, eq=False):
    """A unit that was sent and is not known to be accepted."""

    ticket: bytes
    parts: list[UnitPart]
    tokens: tuple[object, ...]
    seals: list[bytes]
    """Digest of each part's record."""
    offsets: dict[int, int]
    asked: list[object] = []


class Unread(msgspec.Struct, frozen=True):
    """A record of ours that was accepted by its offset; `place` where it was the end of a unit."""

    offset: int
    seal: bytes
    place: Place | None


class UnitsInFlight:
    """The units of one leader that are in flight.

    Attributes:
        format: Of the records that are sent.
        flights: The first is the next to be settled.
        unread: Ascending by offset.
    """

    def __init__(self) -> None:
        self.format = FORMAT_OLDEST
        self.flights: deque[Flight] = deque()
        self.unread: deque[Unread] = deque()

    @property
    def is_settled(self) -> bool:
        return not self.flights

    @property
    def has_room(self) -> bool:
        return len(self.flights) < IN_FLIGHT_MAX

    # ------------------------------------------------------------------ sending

    def tip(self, place: Place) -> tuple[int, bytes]:
        """Index and chain behind the last unit in flight; those of the place where none is."""
        if not self.flights:
            return place.index, place.chain
        last = self.flights[-1]
        return last.parts[0].index, last.ticket

    def add(
        self, unit: Unit, tokens: tuple[object, ...], shard: Shard, message_bytes_max: int
    ) -> list[Send]:
        """Take in the next unit; its records, to be sent."""
        assert self.has_room
        parts = parts_of(unit, message_bytes_max)
        raws = [encode(part, shard, format_=self.format) for part in parts]
        ticket = parts[-1].chain
        self.flights.append(Flight(ticket, parts, tokens, [seal_of(raw) for raw in raws], {}))
        return [Send(ticket, at, raw) for at, raw in enumerate(raws)]

    def sent(self, event: Sent) -> None:
        """The log has said where a record is."""
        for flight in self.flights:
            if flight.ticket == event.ticket:
                flight.offsets[event.part] = event.offset
                break

    def has(self, ticket: bytes) -> bool:
        """Whether the unit of this ticket is in flight."""
        return any(flight.ticket == ticket for flight in self.flights)

    # ------------------------------------------------------------------ settling

    def next_by_offset(self, place: Place) -> tuple[int, UnitPart] | None:
        """The record of ours that directly follows what was read, and its offset: nobody wrote
        between.  None where there is none: everything else is read back."""
        if not self.flights or len(self.unread) >= UNREAD_MAX:
            return None
        flight, at = self.flights[0], len(place.parts)
        offset = flight.offsets.get(at)
        return (offset, flight.parts[at]) if offset == place.read + 1 else None

    def accepted(self, offset: int, part: UnitPart, end: Place | None) -> None:
        """That record was accepted by its offset; `end` is the place behind the unit's last."""
        self.unread.append(Unread(offset, self.flights[0].seals[part.part], end))

    def is_missed(self, part: UnitPart, place: Place) -> bool:
        """Whether this is a part of ours that came out of turn, and not the repetition of one that
        was kept.

        What follows is unknown for all in flight: what is missing before it may still come, and then
        a repetition of this one would be accepted.
        """
        for at, flight in enumerate(self.flights):
            if part.unit == flight.parts[0].unit:
                return at > 0 or part.part >= len(place.parts)
        return False

    def taken(self) -> deque[Flight]:
        """All of them, which are in flight no longer."""
        flights, self.flights = self.flights, deque()
        return flights

    # ------------------------------------------------------------------ reading back

    def is_due(self, offset: int) -> bool:
        """Whether the log shows at this offset, if anywhere, the first record that was not read back."""
        return bool(self.unread) and offset >= self.unread[0].offset

    def read_back(self, event: Found) -> tuple[bool, Place | None]:
        """Whether the record that is due is there, and the place where it is the end of a unit."""
        ours = self.unread.popleft()
        return (ours.offset, ours.seal) == (event.offset, seal_of(event.raw)), ours.place


def seal_of(raw: bytes) -> bytes:
    """The digest in a record's prelude."""
    return raw[PRELUDE.size - 16 : PRELUDE.size]
