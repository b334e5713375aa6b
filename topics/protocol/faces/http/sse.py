"""Frames as Server-Sent Events (§7.5).

A frame is `id`, `event` and one line of `data`: stored records are always one line, and the rest is
rendered here.  Line ends are LF.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import orjson

from topics.protocol.faces.http.statuses import STATUSES
from topics.protocol.model.errors import Rejection
from topics.protocol.model.render import JsonText
from topics.protocol.state.frames import (
    CaughtUpFrame,
    DeletedFrame,
    Frame,
    RecordFrame,
    TombstoneFrame,
)
from topics.protocol.state.topic import Tombstone
from topics.protocol.state.watched import StreamEnd

ENDS: Final[Mapping[StreamEnd, int]] = {
    StreamEnd.TAKEN_OVER: 409,
    StreamEnd.KEY_REMOVED: 401,
    StreamEnd.MOVED: 503,
}
"""The status of §0.6 that tells a client why its stream ended."""

assert ENDS.keys() == set(StreamEnd)


def opening(composite_id: bytes) -> bytes:
    """The first block: after how long to reconnect, and the id to reconnect with until another one
    comes.  It has no data, so that no event is dispatched."""
    return b"retry: 2000\nid: %b\n\n" % composite_id


def heartbeat(now_ms: int) -> bytes:
    return b": hb %d\n\n" % now_ms


def encode(
    frame: Frame, composite_id: bytes, texts: Sequence[bytes | memoryview | bytearray] = ()
) -> bytes:
    """A frame as one event; `texts` are the records of a `RecordFrame`, with their commas."""
    match frame:
        case RecordFrame():
            data = frame.texts.get("sse")
            if data is None:
                data = frame.texts["sse"] = record_data(frame, texts)
            event = b"record"
        case TombstoneFrame():
            data, event = tombstone_data(frame), b"tombstone"
        case CaughtUpFrame():
            data, event = orjson.dumps(head_fields(frame)), b"caught-up"
        case DeletedFrame():  # pragma: no branch - a frame is of no other kind
            data = orjson.dumps({**head_fields(frame), "reason": "deleted"})
            event = b"topic-deleted"
    return b"".join((b"id: %b\nevent: %b\ndata: " % (composite_id, event), data, b"\n\n"))


def record_data(frame: RecordFrame, texts: Sequence[bytes | memoryview | bytearray]) -> bytes:
    """The `data` of a record frame: head, slices, tail; joined once for all streams that get it."""
    if frame.partition is None:
        head = b'{"topic":"%b","records":[' % frame.topic.encode()
    else:
        head = b'{"topic":"%b","partition":%d,"records":[' % (frame.topic.encode(), frame.partition)
    tail = b'],"from_seq":%d,"to_seq":%d,"head_seq":%d}' % (
        frame.from_seq,
        frame.to_seq,
        frame.head_seq,
    )
    return b"".join([head, *texts, tail])


def tombstone_data(frame: TombstoneFrame) -> bytes:
    return orjson.dumps(stone_fields(frame))


def stone_fields(frame: TombstoneFrame) -> dict[str, object]:
    stone: Tombstone = frame.stone
    return {
        **place_of(frame.topic, frame.partition),
        "reason": stone.reason,
        "gap_from": stone.gap_from,
        "gap_to": stone.gap_to,
        "missed_estimate": max(stone.gap_to - stone.gap_from + 1, 0),
        "earliest_seq": frame.earliest_seq,
        "head_seq": frame.head_seq,
    }


def head_fields(frame: CaughtUpFrame | DeletedFrame) -> dict[str, object]:
    return {**place_of(frame.topic, frame.partition), "head_seq": frame.head_seq}


def place_of(topic: str, partition: int | None) -> dict[str, object]:
    """The topic, and which of its partitions, where it has several."""
    return {"topic": topic} if partition is None else {"topic": topic, "partition": partition}


def ended(why: StreamEnd) -> bytes:
    """The last event of a stream that the server ends."""
    return encode_error(ENDS[why], why.value)


def encode_error(code: int, why: str, **more: object) -> bytes:
    """An error of a stream, with a status of §0.6; the last event where the server ends the stream."""
    return b"event: error\ndata: %b\n\n" % orjson.dumps({"code": code, "error": why, **more})


def unreadable(topic: str, refusal: Rejection, partition: int | None = None) -> bytes:
    """One topic, or one of its partitions, cannot be read any further; the rest of the stream goes on."""
    which: dict[str, object] = {} if partition is None else {"partition": partition}
    detail = dict(refusal.detail or {})
    status = STATUSES[refusal.code]
    return encode_error(status, refusal.message, topics=[topic], **which, detail=detail)


def encode_job(seq: int, text: JsonText) -> bytes:
    """One leased job (§10.8); `text` is its record with its queue and its lease."""
    return b"".join((b"id: %d\nevent: job\ndata: " % seq, text, b"\n\n"))
