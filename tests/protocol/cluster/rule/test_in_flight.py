"""What a leader has sent: settled in its order, remembered until the log shows it."""

import msgspec
import pytest

from topics.protocol.cluster.rule.in_flight import IN_FLIGHT_MAX, UNREAD_MAX, UnitsInFlight, seal_of
from topics.protocol.cluster.rule.replica import Place
from topics.protocol.cluster.rule.steps import Found, Send, Sent
from topics.protocol.cluster.rule.unit import Shard, Unit, UnitPart, decode

SHARD = Shard(b"c" * 16)
PLACE = msgspec.structs.replace(Place.before_all(SHARD), term=1, seen=1, offset=4, read=4)


def add(units: UnitsInFlight, *tokens: object, body: bytes = b"") -> list[Send]:
    index, chain = units.tip(PLACE)
    return units.add(Unit(1, index + 1, chain, 0, body), tokens, SHARD, 1024)


def test_each_unit_goes_on_from_the_one_before() -> None:
    """Index and chain are those of the last in flight, and of the place where none is."""
    units = UnitsInFlight()
    assert units.tip(PLACE) == (PLACE.index, PLACE.chain)

    [first], [second] = add(units, "a"), add(units, "b")

    assert units.tip(PLACE) == (PLACE.index + 2, second.ticket)
    part = decode(second.raw, SHARD)
    assert isinstance(part, UnitPart)
    assert part.prev == first.ticket


def test_only_what_directly_follows_is_accepted_by_its_offset() -> None:
    """Behind a gap there may be another leader's record."""
    units = UnitsInFlight()
    [send] = add(units, "a")
    assert units.next_by_offset(PLACE) is None

    units.sent(Sent(send.ticket, 0, 6))
    assert units.next_by_offset(PLACE) is None

    behind_gap = msgspec.structs.replace(PLACE, read=5)
    found = units.next_by_offset(behind_gap)
    assert found is not None
    assert found[0] == 6


def test_a_reader_that_is_far_behind_has_to_come_closer() -> None:
    """What is remembered is bounded: nothing more is accepted by its offset."""
    units = UnitsInFlight()
    [send] = add(units, "a")
    units.sent(Sent(send.ticket, 0, 5))
    found = units.next_by_offset(PLACE)
    assert found is not None
    for _ in range(UNREAD_MAX):
        units.accepted(*found, None)

    assert units.next_by_offset(PLACE) is None


def test_a_record_that_is_read_back_has_to_be_ours() -> None:
    """By its place and its digest."""
    for raw_of in (lambda raw: raw, lambda raw: bytes(len(raw))):
        units = UnitsInFlight()
        [send] = add(units, "a")
        units.sent(Sent(send.ticket, 0, 5))
        found = units.next_by_offset(PLACE)
        assert found is not None
        units.accepted(*found, PLACE)
        assert not units.is_due(4)
        assert units.is_due(5)

        raw = raw_of(send.raw)

        assert units.read_back(Found(5, raw, 0)) == (seal_of(raw) == seal_of(send.raw), PLACE)
        assert not units.unread


def test_a_repetition_is_not_missed_and_what_comes_early_is() -> None:
    """The second unit in the place of the first: what is missing before it may still come."""
    units = UnitsInFlight()
    [first], [second] = add(units, "a"), add(units, "b")
    parts = [flight.parts[0] for flight in units.flights]

    assert units.is_missed(parts[1], PLACE)
    kept = msgspec.structs.replace(PLACE, parts=(parts[0],))
    assert not units.is_missed(parts[0], kept)
    assert units.has(first.ticket)
    assert units.has(second.ticket)
    assert not units.has(b"another")


def test_units_in_flight_are_bounded() -> None:
    """The engine runs ahead by no more; those that are taken leave room."""
    units = UnitsInFlight()
    for at in range(IN_FLIGHT_MAX):
        assert units.has_room
        add(units, at)
    assert not units.has_room
    with pytest.raises(AssertionError):
        add(units, "more")

    assert len(units.taken()) == IN_FLIGHT_MAX
    assert units.is_settled
