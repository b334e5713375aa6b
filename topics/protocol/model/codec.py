"""Events as frames of the log, and back.

Owns the encoding of one event; knows nothing of batches, files or digests.  A frame is a fixed
header, a msgpack head, and for appended records the columns and the text as they are: decoding is a
few slices however many records there are.  Invariant: a frame's length is a multiple of 8, so that
columns of the next one are aligned.

An event is encoded before it is applied: where encoding fails, for want of memory, nothing has
changed yet.
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Self, TypeAlias, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from topics.protocol.model.events import (
    AppendRemembered,
    Cause,
    CursorsMoved,
    Event,
    Floors,
    FloorsRaised,
    GroupChanged,
    GroupDeleted,
    JobsExpired,
    JobsLeased,
    JobsNoted,
    JobsReleased,
    OffsetsCommitted,
    PartitionsAdded,
    PlaceReached,
    ProducerIdsReserved,
    RecordsAppended,
    RecordsDeleted,
    RouterConfigured,
    RouterDeleted,
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
from topics.protocol.model.records import (
    COLUMN_DTYPES,
    Batch,
    Buffer,
    PackedBatch,
    StoredText,
    Text,
)

CODES: Final[dict[type[Event], int]] = {
    TopicCreated: 1,
    TopicConfigured: 2,
    TopicDeleted: 3,
    RecordsAppended: 4,
    RecordsDeleted: 5,
    SeqsReserved: 6,
    RunsSealed: 7,
    RunsDropped: 8,
    TailLost: 9,
    FloorsRaised: 10,
    RouterConfigured: 11,
    RouterDeleted: 12,
    CursorsMoved: 13,
    SeqsSkipped: 14,
    JobsLeased: 15,
    JobsReleased: 16,
    ScatteredDeleted: 17,
    PlaceReached: 18,
    TimePassed: 19,
    OffsetsCommitted: 22,
    GroupChanged: 23,
    PartitionsAdded: 21,
    ProducerIdsReserved: 24,
    GroupDeleted: 26,
    ScheduleConfigured: 27,
    ScheduleDeleted: 28,
    JobsNoted: 29,
    AppendRemembered: 31,
    JobsExpired: 32,
}
"""Codes are part of the format: they are added to, never given out again."""

assert set(CODES) == set(get_args(Event))

APPENDED: Final = CODES[RecordsAppended]
PACKED_APPENDED: Final = 20
"""The code of `RecordsAppended` where its batch is packed."""

JOBS_APPENDED: Final = 30
"""The code of `RecordsAppended` where jobs among its records have options."""

assert not {PACKED_APPENDED, JOBS_APPENDED} & set(CODES.values())

FRAME_HEADER: Final = struct.Struct("<IBBHII")
"""bytes of the frame with its padding, event code, column mask, -, head bytes, records."""

FRAME_COLUMNS: Final[dict[str, np.dtype[Any]]] = {
    name: COLUMN_DTYPES[name]
    for name in ("src_seq", "size", "data_size", "meta_size", "hops", "form")
}
"""The columns that a frame may carry, in file order; bit i of the mask says that column i does."""

_ONE_ROW: Final = struct.Struct("<I4xI4x")
"""`size` and `data_size` of a single record, each with its padding."""
_ONE_ROW_MASK: Final = sum(
    1 << bit for bit, name in enumerate(FRAME_COLUMNS) if name in ("size", "data_size")
)

assert FRAME_HEADER.size == 16

STORED_BYTES: Final = 16 << 10
"""Text from this size on may stay in its file: a page of such pieces costs less to read than to send."""

SMALL_BYTES: Final = 4096
"""A frame of at most so many bytes is one buffer; of a larger one the text is not copied."""


class AppendHead(msgspec.Struct, frozen=True, array_like=True):
    """All of `RecordsAppended` but its columns and its text."""

    now_ms: int
    topic_id: int
    first_seq: int
    ts_ms: int
    text_bytes: int
    nodes: str | list[str | None] | None
    tags: list[str | None] | None
    floors: Floors
    count: int
    size_bytes: int
    reserved_through: int
    key: bytes
    cause: Cause | None = None
    placed: bytes = b""
    jobs: bytes = b""


class PackedHead(msgspec.Struct, frozen=True, array_like=True):
    """All of `RecordsAppended` with a packed batch but its text."""

    now_ms: int
    topic_id: int
    first_seq: int
    ts_ms: int
    max_ms: int
    text_bytes: int
    floors: Floors
    count: int
    size_bytes: int
    reserved_through: int


_encode = msgspec.msgpack.Encoder().encode
_decode_packed = msgspec.msgpack.Decoder(PackedHead).decode
_decode_append = msgspec.msgpack.Decoder(AppendHead).decode
_decoders: Final[dict[int, msgspec.msgpack.Decoder[Any]]] = {
    code: msgspec.msgpack.Decoder(event)
    for event, code in CODES.items()
    if event is not RecordsAppended
}
_PADDING: Final = tuple(bytes(n) for n in range(8))
_HEADER_BYTES: Final = FRAME_HEADER.size


Frame: TypeAlias = tuple[Buffer, ...]
"""The bytes of one encoded event, in order."""


class Frames(msgspec.Struct, eq=False):
    """Encoded events that are to be written as one batch.

    Attributes:
        parts: The frames' bytes, in order; the text of records is referred to and not copied.
        size_bytes: Of all of them.
        count: Events.
    """

    parts: list[Buffer] = []
    size_bytes: int = 0
    count: int = 0

    @classmethod
    def of(cls, events: Iterable[Event]) -> Self:
        """The frames of all of `events`."""
        frames = cls()
        for event in events:
            frames.add(encode(event))
        return frames

    def add(self, frame: Frame) -> None:
        """Take in one more event."""
        self.parts += frame
        self.size_bytes += len(frame[0]) if len(frame) == 1 else sum(map(len, frame))
        self.count += 1


def encode(event: Event) -> Frame:
    """The frame of an event.  Raises MemoryError, and nothing is held of it then."""
    if type(event) is RecordsAppended:
        return _encode_append(event)
    head = _encode(event)
    size = _HEADER_BYTES + len(head)
    padding = -size & 7
    header = FRAME_HEADER.pack(size + padding, CODES[type(event)], 0, 0, len(head), 0)
    return (header + head + _PADDING[padding],)


def _encode_packed(event: RecordsAppended, batch: PackedBatch) -> Frame:
    text = batch.text
    head = _encode(
        PackedHead(
            event.now_ms,
            event.topic_id,
            event.first_seq,
            batch.ts_ms,
            batch.max_ms,
            len(text),
            event.floors,
            event.count,
            event.size_bytes,
            event.reserved_through,
        )
    )
    size = _HEADER_BYTES + len(head)
    padding = _PADDING[-size & 7]
    size += len(padding) + len(text)
    end = _PADDING[-size & 7]
    header = FRAME_HEADER.pack(size + len(end), PACKED_APPENDED, 0, 0, len(head), batch.records)
    if size <= SMALL_BYTES:
        return (b"".join((header, head, padding, *_pieces_of(text), end)),)
    return b"".join((header, head, padding)), *_pieces_of(text), end


def _encode_append(event: RecordsAppended) -> Frame:
    batch = event.batch
    if isinstance(batch, PackedBatch):
        return _encode_packed(event, batch)
    text = batch.text
    fields = (
        event.now_ms,
        event.topic_id,
        event.first_seq,
        batch.ts_ms,
        len(text),
        batch.nodes,
        batch.tags,
        event.floors,
        event.count,
        event.size_bytes,
        event.reserved_through,
        event.key,
    )
    code = APPENDED
    if event.jobs:
        code, head = JOBS_APPENDED, _encode((*fields, event.cause, event.placed, event.jobs))
    elif event.placed:
        head = _encode((*fields, event.cause, event.placed))
    else:
        head = _encode(fields if event.cause is None else (*fields, event.cause))
    mask, records = 0, len(batch.size)
    if records == 1 and batch.meta_size is batch.src_seq is batch.hops is batch.form is None:
        return _encode_one(head, batch, code)
    size = _HEADER_BYTES + len(head)
    padding = -size & 7
    size += padding
    parts: list[Buffer] = [b"", head, _PADDING[padding]]
    for column, (_, _, item, bit) in zip(_columns_of(batch), _COLUMN_ITEMS, strict=True):
        if column is not None:
            mask |= bit
            raw = column.tobytes()
            assert len(raw) == records * item
            padding = -len(raw) & 7
            size += len(raw) + padding
            parts += (raw, _PADDING[padding]) if padding else (raw,)
    before, size = size, size + len(text)
    padding = -size & 7
    size += padding
    parts[0] = FRAME_HEADER.pack(size, code, mask, 0, len(head), records)
    # Joined, a small frame is one buffer of the vectored write; a large text is not worth a copy.
    if before + len(text) <= SMALL_BYTES:
        parts += (*_pieces_of(text), _PADDING[padding])
        return (b"".join(parts),)
    return b"".join(parts), *_pieces_of(text), _PADDING[padding]


def _encode_one(head: bytes, batch: Batch, code: int) -> Frame:
    """The frame of a single record with no other column than its sizes, the common case, without the
    loop that pays for more."""
    text = batch.text
    size = _HEADER_BYTES + len(head)
    padding = _PADDING[-size & 7]
    before = size + len(padding) + _ONE_ROW.size
    size = before + len(text)
    end = _PADDING[-size & 7]
    header = FRAME_HEADER.pack(size + len(end), code, _ONE_ROW_MASK, 0, len(head), 1)
    row = _ONE_ROW.pack(batch.size.item(), batch.data_size.item())
    if size <= SMALL_BYTES:
        return (b"".join((header, head, padding, row, *_pieces_of(text), end)),)
    return b"".join((header, head, padding, row)), *_pieces_of(text), end


def _pieces_of(text: Text) -> tuple[Buffer, ...]:
    if isinstance(text, bytes):
        return (text,)
    assert not isinstance(text, StoredText)  # it was read from a log, and goes into none
    return text.pieces


def _columns_of(batch: Batch) -> tuple[NDArray[Any] | None, ...]:
    """In the order of `FRAME_COLUMNS`."""
    return batch.src_seq, batch.size, batch.data_size, batch.meta_size, batch.hops, batch.form


def decode_all(
    body: memoryview, count: int, stored: Callable[[int, int], StoredText] | None = None
) -> Iterator[Event]:
    """The events of a batch's body, in order.

    Args:
        stored: Where large text is to stay in its file: makes it of its offset in the body and its
            size.

    Raises:
        ValueError: The body is not `count` frames.  Its digest held, so it was written so.
    """
    at = 0
    for _ in range(count):
        if at + _HEADER_BYTES > len(body):
            raise ValueError(f"frame at {at} lies beyond the batch")
        size, code, mask, _, head_bytes, records = FRAME_HEADER.unpack_from(body, at)
        frame = body[at : at + size]
        if not _HEADER_BYTES + head_bytes <= size == len(frame):
            raise ValueError(f"frame at {at} says {size} bytes")
        head = frame[_HEADER_BYTES : _HEADER_BYTES + head_bytes]
        if code in (APPENDED, JOBS_APPENDED):
            fields = _decode_append(head)
            text = None
            if stored is not None and fields.text_bytes >= STORED_BYTES:
                text = stored(at + _text_at(head_bytes, mask, records), fields.text_bytes)
            yield _decode_append_frame(frame, fields, head_bytes, mask, records, text)
        elif code == PACKED_APPENDED:
            packed, text = _decode_packed(head), None
            if stored is not None and packed.text_bytes >= STORED_BYTES:
                text = stored(at + _text_at(head_bytes, 0, records), packed.text_bytes)
            yield _decode_packed_frame(
                frame, packed, _text_at(head_bytes, 0, records), records, text
            )
        elif code in _decoders:
            yield _decoders[code].decode(head)
        else:
            raise ValueError(f"frame at {at} holds an unknown event {code}")
        at += size
    if at != len(body):
        raise ValueError(f"{len(body) - at} bytes follow the last frame")


_COLUMN_ITEMS: Final = tuple(
    (name, dtype, dtype.itemsize, 1 << bit)
    for bit, (name, dtype) in enumerate(FRAME_COLUMNS.items())
)


def _text_at(head_bytes: int, mask: int, records: int) -> int:
    """Where in its frame the text of records begins."""
    # Columns begin at a multiple of 8, as every part of a frame does.
    at = (_HEADER_BYTES + head_bytes + 7) & -8
    return at + sum((item * records + 7) & -8 for _, _, item, bit in _COLUMN_ITEMS if mask & bit)


def _decode_packed_frame(
    frame: memoryview, head: PackedHead, text_at: int, records: int, stored: StoredText | None
) -> RecordsAppended:
    if text_at + head.text_bytes > len(frame):
        raise ValueError("frame of a record batch is cut short")
    text = stored or bytes(frame[text_at : text_at + head.text_bytes])
    return RecordsAppended(
        now_ms=head.now_ms,
        topic_id=head.topic_id,
        first_seq=head.first_seq,
        batch=PackedBatch(text, head.ts_ms, records, head.max_ms),
        floors=head.floors,
        count=head.count,
        size_bytes=head.size_bytes,
        reserved_through=head.reserved_through,
    )


def _decode_append_frame(
    frame: memoryview,
    head: AppendHead,
    head_bytes: int,
    mask: int,
    records: int,
    stored: StoredText | None,
) -> RecordsAppended:
    at, text_at = (_HEADER_BYTES + head_bytes + 7) & -8, _text_at(head_bytes, mask, records)
    # A copy of the columns, a few bytes a record: views would keep the whole read buffer alive.
    raw = bytes(frame[at:text_at])
    is_short = text_at + head.text_bytes > len(frame)
    text = stored or bytes(frame[text_at : text_at + head.text_bytes])
    columns: dict[str, Any] = {}
    at = 0
    for name, dtype, item, bit in _COLUMN_ITEMS:
        if mask & bit:
            columns[name] = np.frombuffer(raw, dtype, records, at)
            at += (item * records + 7) & -8
    if is_short or "size" not in columns or "data_size" not in columns:
        raise ValueError("frame of records is cut short")
    batch = Batch(text=text, ts_ms=head.ts_ms, nodes=head.nodes, tags=head.tags, **columns)
    return RecordsAppended(
        now_ms=head.now_ms,
        topic_id=head.topic_id,
        first_seq=head.first_seq,
        batch=batch,
        floors=head.floors,
        count=head.count,
        size_bytes=head.size_bytes,
        reserved_through=head.reserved_through,
        key=head.key,
        cause=head.cause,
        placed=head.placed,
        jobs=head.jobs,
    )
