"""The rule of acceptance: which records of the log are true, and why the others are skipped."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.protocol.cluster.rule import unit as units
from topics.protocol.cluster.rule.replica import (
    TERM_STEP_MAX,
    Accepted,
    Began,
    Kept,
    Mark,
    Place,
    Skip,
    Skipped,
    Stopped,
    accept,
    accept_record,
    is_history,
    passed,
)
from topics.protocol.cluster.rule.unit import (
    FORMAT,
    Record,
    Shard,
    TermBegan,
    Unit,
    UnitPart,
    encode,
    parts_of,
)

SHARD = Shard(b"c" * 16)
ZERO = Place.before_all(SHARD)
WIDE, NARROW = 1000, 124
"""Messages that hold a unit, and four bytes of one."""


def began(term: int, nonce: bytes = b"n" * 16) -> TermBegan:
    return TermBegan(term, nonce, "n1")


def parts(place: Place, body: bytes = b"", *, term: int = 0, index: int = 0) -> list[UnitPart]:
    """The next unit of this place, or one that is off in term or index."""
    unit = Unit(term or place.term, index or place.index + 1, place.chain, 0, body)
    return parts_of(unit, NARROW if body else WIDE)


def run(place: Place, *records: Record) -> tuple[Place, list[str]]:
    """Each record at the next offset; what became of it."""
    said = []
    for record in records:
        place, verdict = accept(place, place.read + 1, encode(record, SHARD), SHARD)
        match verdict:
            case Skipped(why):
                said.append(why)
            case Stopped(why):
                said.append("stopped")
            case _:
                said.append(type(verdict).__name__.lower())
    return place, said


def led(term: int = 1, units: int = 0) -> Place:
    """A place in a term, after some units."""
    place, _ = run(ZERO, began(term))
    for _ in range(units):
        place, _ = run(place, *parts(place))
    return place


def test_a_term_begins_and_its_units_follow() -> None:
    place, said = run(ZERO, began(1))
    first = parts(place)[0]
    place, said_then = run(place, first)

    assert (said, said_then) == (["began"], ["accepted"])
    assert (place.term, place.index, place.offset, place.chain) == (1, 1, 1, first.chain)


def test_a_term_has_to_be_above_all_seen() -> None:
    """The first of two candidates with one term has it."""
    place, said = run(led(5), began(5, b"m" * 16), began(4), began(6))

    assert said == [Skip.OLD_TERM, Skip.OLD_TERM, "began"]
    assert place.term == 6


def test_a_term_in_a_skipped_record_is_seen() -> None:
    """A leader whose `TermBegan` the log has lost goes on writing: nobody is to take its term."""
    place = led(5)
    place, said = run(place, parts(place, term=7)[0], began(7), began(6), began(8))

    assert said == [Skip.NOT_BEGUN, Skip.OLD_TERM, Skip.OLD_TERM, "began"]


def test_a_term_far_above_all_seen_is_not_believed() -> None:
    """It would use up the terms; and it is not seen."""
    _, said = run(led(5), began(5 + TERM_STEP_MAX + 1), began(5 + TERM_STEP_MAX))

    assert said == [Skip.FAR_TERM, "began"]


def test_the_units_of_a_deposed_leader_are_skipped() -> None:
    old = led(1, units=2)
    late = parts(old)
    new, _ = run(old, began(2))

    assert run(new, *late)[1] == [Skip.DEPOSED]


def test_a_unit_is_the_next_one_of_this_history() -> None:
    """By its index, and by its chain: another history may have a unit of the same index."""
    place, other = led(1, units=1), led(1)
    other, _ = run(other, *parts(other, b"other"))
    assert (place.term, place.index) == (other.term, other.index)

    late, early = parts(place, index=1), parts(place, index=3)
    assert run(place, *late, *early)[1] == [Skip.WRONG_INDEX] * 2
    assert run(place, *parts(other))[1] == [Skip.WRONG_CHAIN]


def test_a_repeated_unit_is_accepted_once() -> None:
    place = led()
    unit = parts(place)

    assert run(place, *unit, *unit)[1] == ["accepted", Skip.WRONG_INDEX]


def test_a_unit_is_accepted_with_its_last_part() -> None:
    """In their order; repetitions are skipped and do no harm."""
    place = led()
    a, b, c = parts(place, b"0123456789")

    after, said = run(place, c, a, a, b, b, c)

    assert said == [
        Skip.PART_OUT_OF_TURN,
        "kept",
        Skip.PART_OUT_OF_TURN,
        "kept",
        Skip.PART_OUT_OF_TURN,
        "accepted",
    ]
    assert (after.index, after.parts) == (1, ())


def test_parts_end_with_the_term() -> None:
    """What a deposed leader has not sent to the end is never a unit."""
    place = led()
    a, b, c = parts(place, b"0123456789")

    after, said = run(place, a, b, began(2), c)

    assert said[-1] == Skip.DEPOSED
    assert (after.index, after.parts) == (0, ())


def test_parts_of_another_unit_do_not_fit() -> None:
    """A unit of the same index and chain, which no honest leader sends, cannot take their place."""
    place = led()
    one, other = parts(place, b"0123456789"), parts(place, b"abcdefghij")

    assert run(place, one[0], other[1], one[1], one[2])[1] == [
        "kept",
        Skip.PART_OUT_OF_TURN,
        "kept",
        "accepted",
    ]


def test_parts_that_do_not_make_their_unit_are_dropped() -> None:
    """A broken leader's; the unit itself may still come."""
    place = led()
    a, b, c = parts(place, b"0123456789")
    wrong = msgspec.structs.replace(b, body=b"????")

    assert run(place, a, wrong, c, a, b, c)[1] == [
        "kept",
        "kept",
        Skip.UNSOUND,
        "kept",
        "kept",
        "accepted",
    ]


def test_what_is_not_ours_is_passed_over() -> None:
    place, verdict = accept(led(), 9, b"hello", SHARD)

    assert verdict == Skipped(Skip.NOT_OURS)
    assert (place.read, place.offset) == (9, 0)


def test_what_cannot_be_read_stops_a_replica() -> None:
    """It does not go on from another state than those that can read it: the place stays before it."""
    place = led()
    raw = bytearray(encode(began(2), SHARD))
    raw[4] = FORMAT + 1
    raw[32:48] = units._digest(raw[:32], raw[48:])

    after, verdict = accept(place, 1, bytes(raw), SHARD)

    assert isinstance(verdict, Stopped)
    assert f"format {FORMAT + 1}" in verdict.why
    assert after == place


def test_what_was_read_is_not_read_again() -> None:
    place = led(1, units=1)

    assert accept(place, place.read, b"", SHARD) == (place, Skipped(Skip.READ_BEFORE))
    assert passed(place, 0) == place
    assert passed(place, 9).read == 9


# ---------------------------------------------------------------------- all read the same


@st.composite
def logs(draw: st.DrawFn) -> list[Record]:
    """What two leaders, a deposed one and repetitions of all write, in any order."""
    records: list[Record] = []
    place = ZERO
    for _ in range(draw(st.integers(1, 24))):
        kind = draw(st.integers(0, 5))
        if kind == 0 or not place.term:
            record: Record = began(
                draw(st.integers(1, 9)), draw(st.binary(min_size=16, max_size=16))
            )
        elif kind < 4:
            record = draw(
                st.sampled_from(parts(place, draw(st.sampled_from([b"", b"0123456789"]))))
            )
        elif kind == 4 and records:
            record = draw(st.sampled_from(records))
        else:
            record = parts(place, term=draw(st.integers(1, 9)))[0]
        records.append(record)
        place, _ = accept_record(place, place.read + 1, record)
    return records


@given(logs(), st.data())
def test_replicas_that_read_the_same_are_at_the_same_place(
    log: list[Record], data: st.DataObject
) -> None:
    """Also one that starts anew from its last unit, which is all that a store keeps."""
    steady = kept = ZERO
    for offset, record in enumerate(log):
        steady, verdict = accept_record(steady, offset, record)
        if isinstance(verdict, Accepted) and data.draw(st.booleans()):
            kept = steady
    again = kept
    for offset, record in enumerate(log):
        if offset > again.read:
            again, _ = accept_record(again, offset, record)

    assert again == steady


@given(logs())
def test_terms_and_indexes_never_fall(log: list[Record]) -> None:
    place = ZERO
    for offset, record in enumerate(log):
        after, verdict = accept_record(place, offset, record)
        assert after.seen >= max(place.seen, after.term)
        assert after.term >= place.term
        assert after.index - place.index == isinstance(verdict, Accepted)
        assert (after.chain != place.chain) == isinstance(verdict, Accepted | Began)
        assert bool(after.parts) >= isinstance(verdict, Kept)
        place = after


# ---------------------------------------------------------------------- is this log ours?


def log_of(*records: Record) -> list[tuple[int, bytes]]:
    return [(offset, encode(record, SHARD)) for offset, record in enumerate(records)]


def history() -> tuple[Place, Place, list[tuple[int, bytes]]]:
    """A log of two units and two terms; the place behind its first unit, and the last place."""
    records: list[Record] = [began(1)]
    place, _ = run(ZERO, *records)
    records += parts(place)
    anchor, _ = run(place, *parts(place))
    records += [*parts(anchor), began(2)]
    place, _ = run(anchor, *records[2:])
    return anchor, place, log_of(*records)


def test_a_log_shows_its_own_history() -> None:
    anchor, place, log = history()

    assert is_history(anchor, place, log[1:], SHARD)
    assert is_history(ZERO, place, log, SHARD)
    assert is_history(anchor, anchor, log[1:], SHARD)
    assert is_history(ZERO, ZERO, [], SHARD)


@pytest.mark.parametrize("first_gone", [1, 2, 3])
def test_a_log_that_was_cut_shows_another_history(first_gone: int) -> None:
    """Whatever of it is gone, and whatever stands there now."""
    anchor, place, log = history()

    assert not is_history(anchor, place, log[1:first_gone], SHARD)
    elsewhere = [(at, encode(began(9), SHARD)) for at in range(first_gone, 4)]
    assert not is_history(anchor, place, [*log[1:first_gone], *elsewhere], SHARD)
    holes = [each for each in log[1:] if each[0] != first_gone]
    assert not is_history(anchor, place, holes, SHARD)


def test_the_record_at_a_place_is_not_enough() -> None:
    """The log lost unit 1; its leader did not notice, and wrote unit 2 where it always would have.
    So that record is there, and what it goes on from is not."""
    anchor, _, log = history()
    at_two = parts(anchor)[0]
    behind_two, _ = run(anchor, at_two)
    assert log[2] == (2, encode(at_two, SHARD))
    lost = [log[0], (1, b"a broker's own"), log[2]]

    assert is_history(behind_two, behind_two, lost[2:], SHARD)
    assert not is_history(ZERO, behind_two, lost, SHARD)
    assert Mark(ZERO).epoch == -1


def test_a_part_or_a_term_is_no_end_of_a_unit() -> None:
    anchor, _, log = history()
    first = parts(led(), b"0123456789")[0]

    for raw in (encode(began(1), SHARD), encode(first, SHARD), b"?"):
        assert not is_history(anchor, anchor, [(1, raw)], SHARD)
    assert not is_history(anchor, anchor, [(2, log[1][1])], SHARD)


def test_a_history_that_cannot_be_read_is_not_shown() -> None:
    """A record of a newer version stands in it: this one cannot tell what it was."""
    anchor, place, log = history()
    raw = bytearray(log[2][1])
    raw[4] = FORMAT + 1
    raw[32:48] = units._digest(bytes(raw[:32]), bytes(raw[48:]))

    assert is_history(anchor, place, log[1:], SHARD)
    assert not is_history(anchor, place, [log[1], (2, bytes(raw)), log[3]], SHARD)


def test_a_log_behind_a_base_shows_nothing_to_a_replica_without_it() -> None:
    """What a single server had is in no log: a replica that begins before all accepts no unit of such a
    log, and cannot be taken for one that has it. (§6)"""
    base = Place.adopted(SHARD)
    assert base.index == 1
    assert Place.adopted(Shard(b"d" * 16)).chain != base.chain
    place, _ = run(base, began(1))
    [first] = parts(place)

    led, said = run(base, began(1), first)
    missed, why = run(ZERO, began(1), first)

    assert (led.index, led.offset) == (2, 1)
    assert said[-1] == "accepted"
    assert (missed.index, why[-1]) == (0, Skip.WRONG_INDEX)
    raw = [(0, encode(began(1), SHARD)), (1, encode(first, SHARD))]
    assert is_history(base, led, raw, SHARD)
    assert not is_history(ZERO, led, raw, SHARD)
