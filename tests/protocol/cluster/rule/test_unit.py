"""The records that nodes share: what is written is read, and what was not written is refused."""

import struct

import numpy as np
import pytest
from fuzz.mutation import damaged, fuzzed
from hypothesis import given
from hypothesis import strategies as st

from topics.protocol.cluster.rule import unit as units
from topics.protocol.cluster.rule.unit import (
    DIGEST_BYTES,
    FORMAT,
    LOCAL_EVENTS,
    MESSAGE_BYTES_MIN,
    PARTS_MAX,
    PRELUDE,
    TERM_MAX,
    UNIT_BYTES_MAX,
    NotOurs,
    Shard,
    TermBegan,
    Unit,
    UnitPart,
    Unreadable,
    body_of,
    chain_over_term,
    decode,
    encode,
    joined,
    origin,
    parts_of,
)
from topics.protocol.model.events import (
    Event,
    Floors,
    JobsLeased,
    RecordsAppended,
    RunsDropped,
    RunsSealed,
    SeqsReserved,
)
from topics.protocol.model.records import Batch

SHARD = Shard(bytes(range(16)), 3)
BEGAN = TermBegan(7, b"n" * 16, "node-ä")
EVENTS: list[Event] = [
    SeqsReserved(1, 2, 2048),
    JobsLeased(1, 2, "w", 30_001, [1, 2], [7 << 40, 8 << 40], [1, 7]),
]
LOCAL: list[Event] = [RunsSealed(1, 2, 1, 9, []), RunsDropped(1, 2, [1], Floors())]


def unit_of(events: list[Event] = EVENTS) -> Unit:
    frames, body = body_of(events)
    return Unit(7, 9, b"p" * 16, frames, body)


def only_part(unit: Unit) -> UnitPart:
    [part] = parts_of(unit, MESSAGE_BYTES_MIN)
    return part


def forged(raw: bytes, *, at: int, to: bytes) -> bytes:
    """These bytes in another record, whose digest is right."""
    raw = raw[:at] + to + raw[at + len(to) :]
    head, body = raw[: PRELUDE.size - DIGEST_BYTES], raw[PRELUDE.size :]
    return head + units._digest(head, body) + body


SOUND = [encode(BEGAN, SHARD), encode(only_part(unit_of()), SHARD)]


@pytest.mark.parametrize("record", [BEGAN, only_part(unit_of()), only_part(unit_of([]))])
def test_a_record_is_read_as_it_was_written(record: TermBegan | UnitPart) -> None:
    """Also a unit without an event, which only asks the log whether its leader still leads."""
    assert decode(encode(record, SHARD), SHARD) == record


def test_a_unit_has_its_events_back() -> None:
    """Through the codec of the log's frames."""
    again = joined([only_part(unit_of())])

    assert again is not None
    assert again.events() == EVENTS
    assert again.chain == only_part(unit_of()).chain


def test_records_with_columns_come_back_too() -> None:
    """Their columns lie at offsets of the frame, wherever that lies in a message."""
    text = b'{"$seq":1},'
    size = np.array([len(text) - 1], np.uint32)
    batch = Batch(text=text, ts_ms=5, size=size, data_size=np.array([1], np.uint32))
    event = RecordsAppended(5, 2, 1, batch, Floors(), 1, 11, 1024)

    [again] = unit_of([event]).events()

    assert isinstance(again, RecordsAppended)
    assert again.batch.text == text
    assert again.batch.size.tolist() == [len(text) - 1]


def test_a_unit_larger_than_a_message_is_cut() -> None:
    """Each part fits, and all of them are the unit."""
    unit = Unit(7, 9, b"p" * 16, 1, bytes(range(256)) * 1000)
    parts = parts_of(unit, MESSAGE_BYTES_MIN)
    raws = [encode(part, SHARD) for part in parts]

    assert len(parts) == 4
    assert max(map(len, raws)) == MESSAGE_BYTES_MIN
    read = [decode(raw, SHARD) for raw in raws]
    assert joined([part for part in read if isinstance(part, UnitPart)]) == unit


def test_parts_of_two_units_make_none() -> None:
    """The digest of the whole unit is in each part."""
    one = parts_of(Unit(7, 9, b"p" * 16, 1, b"a" * 100_000), MESSAGE_BYTES_MIN)
    other = parts_of(Unit(7, 9, b"p" * 16, 1, b"b" * 100_000), MESSAGE_BYTES_MIN)

    assert joined([one[0], other[1]]) is None


def test_the_largest_unit_has_as_many_parts_as_are_read() -> None:
    """`PARTS_MAX` is that of the smallest message that a log may have."""
    room = MESSAGE_BYTES_MIN - PRELUDE.size - units.UNIT_HEADER.size

    assert (PARTS_MAX - 1) * room < UNIT_BYTES_MAX <= PARTS_MAX * room


@pytest.mark.parametrize("event", LOCAL, ids=lambda event: type(event).__name__)
def test_how_one_node_keeps_its_records_is_not_shared(event: Event) -> None:
    """A leader does not write it, and a replica does not apply it."""
    assert isinstance(event, LOCAL_EVENTS)
    with pytest.raises(AssertionError):
        body_of([event])
    frames = units.Frames.of([event])
    with pytest.raises(Unreadable, match=type(event).__name__):
        Unit(1, 1, bytes(16), 1, b"".join(frames.parts)).events()


def test_frames_of_a_newer_version_are_not_skipped() -> None:
    """A node that left out one event would go on from another state."""
    body = unit_of().body
    code = struct.unpack_from("<B", body, 4)[0]
    assert code == 6
    with pytest.raises(Unreadable, match="unknown event 200"):
        Unit(7, 9, b"p" * 16, 2, body[:4] + b"\xc8" + body[5:]).events()


NOT_OURS = {
    "nothing": b"",
    "short": SOUND[0][:47],
    "cut": SOUND[0][:-1],
    "longer": SOUND[0] + b"\0",
    "other magic": b"json" + SOUND[0][4:],
    "one bit": SOUND[1][:-1] + bytes([SOUND[1][-1] ^ 1]),
    "another cluster": encode(BEGAN, Shard(b"x" * 16, 3)),
    "another shard": encode(BEGAN, Shard(SHARD.cluster, 4)),
    "a newer one of another cluster": forged(
        encode(BEGAN, Shard(b"x" * 16, 3)), at=4, to=(FORMAT + 1).to_bytes(2, "little")
    ),
}


@pytest.mark.parametrize("raw", NOT_OURS.values(), ids=NOT_OURS.keys())
def test_what_every_version_skips(raw: bytes) -> None:
    """What is no whole record of this cluster and shard: all nodes agree about it for ever."""
    with pytest.raises(NotOurs):
        decode(raw, SHARD)


UNREADABLE = {
    f"format {FORMAT + 1}": (0, 4, (FORMAT + 1).to_bytes(2, "little")),
    "a record of kind 3": (0, 6, (3).to_bytes(2, "little")),
    "term 0": (0, 48, bytes(8)),
    f"term {TERM_MAX + 1}": (0, 48, (TERM_MAX + 1).to_bytes(8, "little")),
    "the node of TermBegan": (0, 72, b"\xff"),
    "unit 9 of term 0": (1, 48, bytes(8)),
    "unit 0 of term 7": (1, 56, bytes(8)),
    "part 1 of 1": (1, 80, (1).to_bytes(4, "little")),
    "part 0 of 0": (1, 84, bytes(4)),
    "part 0 of 9999": (1, 84, (9999).to_bytes(4, "little")),
    "a part of": (1, 96, bytes(8)),
    f"of {UNIT_BYTES_MAX + 1} bytes": (1, 96, (UNIT_BYTES_MAX + 1).to_bytes(8, "little")),
}


@pytest.mark.parametrize("reason", UNREADABLE)
def test_what_this_version_cannot_read_it_does_not_skip(reason: str) -> None:
    """A whole record of this cluster that is not of this version, or breaks its bounds: the reason
    names what was met."""
    which, at, to = UNREADABLE[reason]
    with pytest.raises(Unreadable, match=reason):
        decode(forged(SOUND[which], at=at, to=to), SHARD)


def test_headers_that_are_cut_have_a_reason() -> None:
    """With a size and a digest that hold."""
    for raw, kind in ((SOUND[0], 2), (SOUND[1], 1)):
        short = raw[:6] + kind.to_bytes(2, "little") + (60).to_bytes(4, "little") + raw[12:60]
        with pytest.raises(Unreadable, match=r"bytes|header"):
            decode(forged(short, at=0, to=short[:4]), SHARD)


@fuzzed
@given(damaged(SOUND))
def test_damaged_bytes_are_read_as_written_or_skipped(raw: bytes) -> None:
    """No accident makes a record of another."""
    try:
        record = decode(raw, SHARD)
    except NotOurs:
        return
    assert raw in SOUND
    assert encode(record, SHARD) == raw


@fuzzed
@given(st.sampled_from(SOUND), st.integers(PRELUDE.size, 140), st.binary(min_size=1, max_size=9))
def test_a_wrong_record_with_a_right_digest_has_a_reason(raw: bytes, at: int, to: bytes) -> None:
    """Whatever a broken writer puts under a right digest is read whole, or refused as what it is."""
    at = min(at, len(raw) - 1)
    raw = forged(raw, at=at, to=to[: len(raw) - at])
    try:
        record = decode(raw, SHARD)
    except Unreadable:
        return
    assert decode(encode(record, SHARD), SHARD) == record


def test_the_chain_is_of_everything() -> None:
    """Another shard, term, nonce, node, unit or order makes another chain."""
    chain = origin(SHARD)
    began = [
        BEGAN,
        TermBegan(8, b"n" * 16, "node-ä"),
        TermBegan(7, b"m" * 16, "node-ä"),
        TermBegan(7, b"n" * 16, "node-b"),
    ]
    chains = [chain, origin(Shard(SHARD.cluster, 4)), origin(Shard(b"x" * 16, 3))]
    chains += [chain_over_term(chain, each) for each in began]
    frames, body = body_of(EVENTS)
    chains += [
        Unit(*fields, frames, body).chain
        for fields in ((7, 1, chain), (8, 1, chain), (7, 2, chain), (7, 1, chains[1]))
    ]
    chains.append(Unit(7, 1, chain, 0, b"").chain)

    assert len(set(chains)) == len(chains)


def test_an_older_format_is_read_and_a_newer_one_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A newer version writes the older one while a node of it lives; a node that meets the newer
    one all the same stops, with a sentence. (§1)"""
    newer = encode(BEGAN, SHARD, format_=FORMAT + 1)
    with pytest.raises(Unreadable) as stopped:
        decode(newer, SHARD)
    said = f"a record of format {FORMAT + 1}; this version reads up to {FORMAT}: upgrade this node"
    assert str(stopped.value) == said

    monkeypatch.setattr(units, "FORMAT", FORMAT + 1)
    assert decode(newer, SHARD) == decode(encode(BEGAN, SHARD, format_=FORMAT), SHARD) == BEGAN
