"""Events survive the way into a frame and back."""

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from topics.protocol.model import codec
from topics.protocol.model.config import RouterConfig, TopicConfig
from topics.protocol.model.events import (
    AppendRemembered,
    CursorsMoved,
    DeadLettered,
    Event,
    Fired,
    Floors,
    FloorsRaised,
    Forwarded,
    GroupChanged,
    GroupDeleted,
    JobsExpired,
    JobsLeased,
    JobsNoted,
    JobsReleased,
    LogPlace,
    Loss,
    Marks,
    OffsetsCommitted,
    PartitionsAdded,
    PlaceReached,
    ProducerIdsReserved,
    RecordsAppended,
    RecordsDeleted,
    Redriven,
    RouterConfigured,
    RouterDeleted,
    RunRef,
    RunsDropped,
    RunsSealed,
    ScatteredDeleted,
    ScheduleConfigured,
    ScheduleDeleted,
    SeqsReserved,
    SeqsSkipped,
    TailLost,
    TimePassed,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
)
from topics.protocol.model.groups import CommittedOffset, GroupMember, GroupPhase
from topics.protocol.model.marks import Mark
from topics.protocol.model.records import Batch, PackedBatch, SharedText, StoredText
from topics.protocol.model.schedules import Run, ScheduleConfig, ScheduledRecord

U32 = st.integers(0, 2**32 - 1)
SEQ = st.integers(0, 2**63)
NAMES = st.none() | st.text(max_size=8)

MEMBER = GroupMember("m", "i", "c", "h", 6000, 7000, (("range", b"\xff\0"),))

SCHEDULE = ScheduleConfig(
    topic="jobs",
    record=ScheduledRecord(b"1", "n", "t", b'{"a":1}', Mark(b',"$key":"aw=="', 3), 2),
    config=TopicConfig(type="queue"),
    cron="*/5 9-17 * * 1-5",
    tz="Europe/Berlin",
    missed="all",
    until=2**53,
)

SMALL: list[Event] = [
    TopicCreated(1, 2, "jobs", TopicConfig(type="queue", cap_records=7, dead_letter="dlq"), 1024),
    TopicConfigured(1, 2, TopicConfig(), 9, Floors(1, 2, 3), 4, 5),
    TopicDeleted(1, 2),
    RecordsDeleted(1, 2, np.array([[1, 3], [9, 9]], "<u8").tobytes(), 4, 5),
    ScatteredDeleted(1, 2, b"\1" * 16, [Marks(17, 9, b"\xaa\x80"), Marks(26, 8, b"\1")], 4, 5),
    SeqsReserved(1, 2, 2048),
    RunsSealed(1, 2, 1, 9, [RunRef(1, 0, 1, 9, 400)]),
    RunsDropped(1, 2, [1, 10], Floors(cap_through=9)),
    FloorsRaised(1, 2, Floors(crash_through=2**53 + 1), 0, 0),
    TailLost(1, 2, 5, 9, "crash", 0, 0),
    RouterConfigured(1, 3, "a->b", RouterConfig(source="a", dest="b"), 1, 2, 9),
    RouterDeleted(1, 3),
    CursorsMoved(1, [(3, 9, 0), (4, 2**53, 7)]),
    SeqsSkipped(1, 2, 5, 9, 3, Loss(1, 5, "cap", 1)),
    JobsLeased(1, 2, "w", 30_001, [1, 2**53], [1 << 40, 2], [1, 7]),
    JobsReleased(1, 2, 0, [1], [3]),
    JobsExpired(1, 2, b"\1" * 16, 4, 5, 1),
    AppendRemembered(1, 2, b"k" * 16, b"p"),
    JobsNoted(1, 2, "w", [1, 2**53], "Boom: é", b'{"at":1}', True),
    PlaceReached(1, LogPlace(2, 3, 4, b"c" * 16, 5), LogPlace(1, 1, 3, b"m" * 16, 2), 7),
    TimePassed(9),
    ProducerIdsReserved(9, 2**61),
    OffsetsCommitted(1, "g", [CommittedOffset(2, 2**53, 0, "é", 1)], [3]),
    GroupChanged(1, "g", 7, GroupPhase.COMPLETING, "consumer", "range", "m", [MEMBER], ["n"], []),
    GroupChanged(1, "g", 7, GroupPhase.STABLE, "", "", "", [], [], [("m", b"\0\xff")]),
    GroupDeleted(1, "g"),
    PartitionsAdded(9, 1, [2, 3, 2**40], 1024),
    ScheduleConfigured(9, 1, "s", SCHEDULE, False, 2**53),
    ScheduleConfigured(9, 1, "s", None, True, None, 7, Run(1, 2, "jobs", 3, 2**53)),
    ScheduleDeleted(9, 1),
    AppendRemembered(9, 1, b"k" * 16, b"\x91"),
    JobsExpired(1, 2, np.array([[1, 3]], "<u8").tobytes(), 4, 5, 3),
]


CAUSES = [
    None,
    Forwarded(3, 2**53),
    DeadLettered(2, b"\1" * 16, 1, 4, 5),
    Redriven(2, b"\1" * 16, 4, 5),
]
CAUSES += [Fired(7, 2**53, None, 3, True), Fired(7, 1, 2**53)]


@st.composite
def batches(draw: Any) -> Batch:
    texts = draw(st.lists(st.binary(min_size=2, max_size=40), min_size=1, max_size=9))
    count = len(texts)

    def column(dtype: Any, top: int) -> Any:
        values = draw(st.lists(st.integers(0, top), min_size=count, max_size=count))
        return np.array(values, dtype)

    return Batch(
        text=b"".join(text + b"," for text in texts),
        ts_ms=draw(st.integers(0, 2**53)),
        size=np.array([len(text) for text in texts], np.uint32),
        data_size=column(np.uint32, 2**32 - 1),
        meta_size=column(np.uint32, 2**32 - 1) if draw(st.booleans()) else None,
        nodes=draw(NAMES | st.lists(NAMES, min_size=count, max_size=count)),
        tags=draw(st.none() | st.lists(NAMES, min_size=count, max_size=count)),
        src_seq=column(np.uint64, 2**64 - 1) if draw(st.booleans()) else None,
        hops=column(np.uint8, 255) if draw(st.booleans()) else None,
        form=column(np.uint8, 7) if draw(st.booleans()) else None,
    )


@st.composite
def appends(draw: Any) -> RecordsAppended:
    return RecordsAppended(
        now_ms=draw(SEQ),
        topic_id=draw(SEQ),
        first_seq=draw(SEQ),
        batch=draw(batches()),
        floors=Floors(draw(SEQ), draw(SEQ), draw(SEQ)),
        count=draw(SEQ),
        size_bytes=draw(SEQ),
        reserved_through=draw(SEQ),
        key=draw(st.sampled_from((b"", b"k" * 16))),
        cause=draw(st.sampled_from(CAUSES)),
        placed=draw(st.sampled_from((b"", b"\x91"))),
        jobs=draw(st.sampled_from((b"", b"\x91\xc4\x04\0\0\0\0"))),
    )


@st.composite
def packed_appends(draw: Any) -> RecordsAppended:
    return RecordsAppended(
        now_ms=draw(SEQ),
        topic_id=draw(SEQ),
        first_seq=draw(SEQ),
        batch=PackedBatch(
            draw(st.binary(min_size=4, max_size=200)),
            draw(st.integers(0, 2**53)),
            draw(U32),
            draw(st.integers(-1, 2**53)),
        ),
        floors=Floors(draw(SEQ), draw(SEQ), draw(SEQ)),
        count=draw(SEQ),
        size_bytes=draw(SEQ),
        reserved_through=draw(SEQ),
    )


@st.composite
def shared(draw: Any, text: bytes) -> SharedText:
    """The same text, cut anywhere."""
    inner = st.integers(1, len(text) - 1)
    cuts = sorted(draw(st.sets(inner, max_size=4)))
    views = memoryview(text)
    return SharedText.of(
        [views[lo:hi] for lo, hi in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    )


def encoded(*events: Event) -> bytes:
    frames = codec.Frames.of(events)
    body = b"".join(frames.parts)
    assert (len(body), len(events)) == (frames.size_bytes, frames.count)
    return body


def plain(event: Event) -> Any:
    """An event as values that compare, arrays with their dtype."""
    if not isinstance(event, RecordsAppended) or isinstance(event.batch, PackedBatch):
        return event
    batch = event.batch
    columns = {
        name: None if part is None else (part.dtype.str, part.tolist())
        for name in ("size", "data_size", "meta_size", "src_seq", "hops", "form")
        for part in [getattr(batch, name)]
    }
    head = {name: getattr(event, name) for name in event.__struct_fields__ if name != "batch"}
    return head, columns, batch.text, batch.ts_ms, batch.nodes, batch.tags


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(appends() | packed_appends() | st.sampled_from(SMALL), max_size=6))
def test_frames_hold_events_whole(events: list[Event]) -> None:
    """What is decoded equals what was encoded, to the dtype of each column."""
    body = encoded(*events)

    found = list(codec.decode_all(memoryview(body), len(events)))

    assert [plain(e) for e in events] == [plain(e) for e in found]
    assert len(body) % 8 == 0


def test_every_event_has_a_code() -> None:
    """No two kinds of event share the number that stands in the log."""
    assert len(set(codec.CODES.values())) == len(codec.CODES)
    assert {type(event) for event in SMALL} | {RecordsAppended} == set(codec.CODES)


def test_marks_are_a_bit_a_seq() -> None:
    """From any seq to any other, as the bits say. (FORMAT.md)"""
    meant = [True, False, False, True, True, False, True, False, True, True, False]
    marks = Marks(100, len(meant), np.packbits(meant).tobytes())
    for lo in range(len(meant)):
        for hi in range(lo, len(meant) + 1):
            assert marks.flags(lo, hi).tolist() == meant[lo:hi]


def test_a_delete_by_spans_is_read_as_it_always_was() -> None:
    """The bytes of a log written before there were marks. (FORMAT.md)"""
    spans = np.array([[1, 3], [9, 9]], "<u8").tobytes()
    head = b"\x96\x01\x02\xc4\x20" + spans + b"\x04\x05\x00"
    frame = codec.FRAME_HEADER.pack(56, 5, 0, 0, len(head), 0) + head

    [event] = codec.decode_all(memoryview(frame), 1)

    assert event == RecordsDeleted(1, 2, spans, 4, 5)
    assert encoded(event) == frame


def test_columns_do_not_keep_the_read_buffer() -> None:
    """A replayed batch owns its bytes, so that a log file of 64 MiB is let go of."""
    body = bytearray(encoded(RecordsAppended(1, 1, 1, _one(), Floors(), 1, 2, 3)))
    [event] = codec.decode_all(memoryview(body), 1)
    body[:] = bytes(len(body))

    assert isinstance(event, RecordsAppended)
    assert event.batch.text == b"{},"
    assert event.batch.size.tolist() == [2]


@pytest.mark.parametrize("cut", [1, 8, 15, 16])
def test_a_body_that_is_cut_is_refused(cut: int) -> None:
    """A frame never reaches beyond its batch."""
    body = encoded(*SMALL)

    with pytest.raises((ValueError, msgspec.DecodeError)):
        list(codec.decode_all(memoryview(body)[:-cut], len(SMALL)))


def test_bytes_behind_the_last_frame_are_refused() -> None:
    """The count of events in the header and the frames agree."""
    body = encoded(*SMALL)

    with pytest.raises(ValueError, match="follow the last frame"):
        list(codec.decode_all(memoryview(body), len(SMALL) - 1))


def _one() -> Batch:
    size = np.array([2], np.uint32)
    return Batch(text=b"{},", ts_ms=1, size=size, data_size=size)


def frame_of(event: Event) -> bytearray:
    return bytearray(b"".join(codec.encode(event)))


def test_a_frame_of_an_unknown_event_is_refused() -> None:
    """As a newer version would write it: the digest held, so it is no damage of these bytes."""
    body = frame_of(TopicDeleted(1, 7))
    size, _, *rest = codec.FRAME_HEADER.unpack_from(body)
    codec.FRAME_HEADER.pack_into(body, 0, size, 250, *rest)

    with pytest.raises(ValueError, match="unknown event 250"):
        list(codec.decode_all(memoryview(body), 1))


def test_records_whose_columns_are_not_there_are_cut_short() -> None:
    """A frame says by its mask which columns follow; without sizes there is no text to find.
    (FORMAT.md)"""
    event = RecordsAppended(
        now_ms=1, topic_id=1, first_seq=1,
        batch=Batch(text=b"ab,", ts_ms=1, size=np.array([2], np.uint32), data_size=np.array([1], np.uint32)),
        floors=Floors(), count=1, size_bytes=2, reserved_through=9,
    )  # fmt: skip
    frame = b"".join(codec.encode(event))
    assert codec.decode_all(memoryview(frame), 1)
    fields = codec.FRAME_HEADER.unpack_from(frame)

    for cut in (len(frame) - 16, len(frame) - 8):
        header = codec.FRAME_HEADER.pack(cut, *fields[1:])
        with pytest.raises(ValueError):
            list(codec.decode_all(memoryview(header + frame[len(header) : cut]), 1))


@given(appends() | packed_appends(), st.integers(0, 2), st.data())
def test_shared_text_has_the_frame_of_the_joined_text(
    event: RecordsAppended, large: int, draw: st.DataObject
) -> None:
    """Byte for byte, for one record and for many, small and large: the log does not know of pieces."""
    batch = event.batch
    text = bytes(batch.text) * (1 + large * 2000)
    joined = structs.replace(event, batch=structs.replace(batch, text=text))
    pieces = draw.draw(shared(text))
    parted = structs.replace(event, batch=structs.replace(batch, text=pieces))

    assert bytes(pieces) == text
    assert encoded(parted) == encoded(joined)
    if large:
        parts = codec.Frames.of([parted]).parts
        assert {id(piece) for piece in pieces.pieces} <= {id(part) for part in parts}


def test_a_record_batch_may_stay_in_its_file() -> None:
    """A large one is read where it lies, as text is."""
    data = bytes(range(256)) * 100
    event = RecordsAppended(1, 2, 3, PackedBatch(data, 4, 5, 6), Floors(), 5, len(data), 99)
    body = encoded(TopicDeleted(1, 7), event)

    def stored(at: int, size: int) -> StoredText:
        return StoredText(
            size, lambda lo, hi: body[at + lo : at + hi], lambda lo, hi: body[at + lo : at + hi]
        )

    for found, data_bytes in ((stored, len(data)), (None, len(data))):
        _, again = codec.decode_all(memoryview(body), 2, found)
        assert isinstance(again, RecordsAppended)
        text = again.batch.text
        if found is not None:
            assert isinstance(text, StoredText)
            text = bytes(text.read_blocking(0, data_bytes))
        assert text == data
        assert (again.batch.ts_ms, len(again.batch)) == (4, 5)


def test_a_record_batch_that_is_cut_is_refused() -> None:
    event = RecordsAppended(1, 2, 3, PackedBatch(b"batch" * 9, 4, 5, 6), Floors(), 5, 45, 99)
    frame = frame_of(event)
    fields = codec.FRAME_HEADER.unpack_from(frame)
    cut = len(frame) - 16

    header = codec.FRAME_HEADER.pack(cut, *fields[1:])

    with pytest.raises(ValueError, match="a record batch is cut short"):
        list(codec.decode_all(memoryview(header + frame[len(header) : cut]), 1))
