"""Frames as Server-Sent Events, and the composite id that a stream resumes from (§7.4, §7.5).

A frame is `id`, `event` and one line of `data`: stored records are always one line, and the rest is
rendered here.  Line ends are LF.
"""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Final

import orjson

from topics.protocol.model.errors import Rejection
from topics.protocol.model.render import JsonText
from topics.protocol.state.topic import Tombstone
from topics.protocol.state.watches import (
    CaughtUpFrame,
    DeletedFrame,
    Frame,
    RecordFrame,
    Remembered,
    TombstoneFrame,
    Watched,
)

MAP_TOPICS_MAX: Final = 64
"""Topics up to which the id is the documented map; beyond it is a list in the session's order."""
INSTANCES: Final = "~"
"""Key of an id, and no topic's name: a list in the session's order of the instances that positions
are in, 0 where the session knew no other.  It is there once a topic was made again while the session
watched it: without it, an id from before could pass for one from after."""


def opening(composite_id: bytes) -> bytes:
    """The first block: when to come back, and with which id where nothing more arrives.  It has no
    data, so that no event is dispatched."""
    return b"retry: 2000\nid: %b\n\n" % composite_id


def heartbeat(now_ms: int) -> bytes:
    return b": hb %d\n\n" % now_ms


def composite(watched: Iterable[Watched]) -> bytes:
    """The positions of a session, as base64url of JSON without padding (§7.4)."""
    positions, instances = {}, []
    for each in watched:
        positions[each.name] = each.cursor
        instances.append(each.topic_id if each.is_heir else 0)
    value: dict[str, object] = dict(positions)
    if len(positions) > MAP_TOPICS_MAX:
        value = {"d": _digest(positions), "s": list(positions.values())}
    if any(instances):
        value[INSTANCES] = instances
    return urlsafe_b64encode(orjson.dumps(value)).rstrip(b"=")


def parse_composite(text: str, names: Sequence[str], *, strict: bool = False) -> Remembered | None:
    """The positions of a composite id, for those of `names` that it holds; None where it is no such
    id.  A list of other topics, or of these in another order, holds nothing.

    Args:
        strict: Something else than a position in the place of one makes it no such id, and is not
            left out.
    """
    try:
        value = orjson.loads(urlsafe_b64decode(text.encode() + b"=="))
    except (ValueError, binascii.Error):
        return None
    if not isinstance(value, dict):
        return None
    instances = _zipped(names, value.get(INSTANCES))
    if len(names) > MAP_TOPICS_MAX:
        is_ours = value.get("d") == _digest(names)
        value = _zipped(names, value.get("s")) if is_ours else {}
        if strict and is_ours and len(value) < len(names):
            return None
    positions = _naturals(value, names)
    if strict and any(name in value and name not in positions for name in names):
        return None
    return Remembered(positions, _naturals(instances, names))


def _zipped(names: Sequence[str], values: object) -> dict[str, object]:
    return dict(zip(names, values, strict=False)) if isinstance(values, list) else {}


def _naturals(value: Mapping[str, object], names: Iterable[str]) -> dict[str, int]:
    """What of a client's map is a natural number, by name."""
    known = {name: value.get(name) for name in names}
    return {n: s for n, s in known.items() if type(s) is int and s >= 0}


def _digest(names: Iterable[str]) -> str:
    return blake2b("\n".join(names).encode(), digest_size=6).hexdigest()


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
            data, event = orjson.dumps(_named(frame)), b"caught-up"
        case DeletedFrame():
            data, event = orjson.dumps({**_named(frame), "reason": "deleted"}), b"topic-deleted"
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (composite_id, event, data)


def record_data(frame: RecordFrame, texts: Sequence[bytes | memoryview | bytearray]) -> bytes:
    """The `data` of a record frame: head, slices, tail; joined once for all who get it."""
    head = b'{"topic":"%b","records":[' % frame.topic.encode()
    tail = b'],"from_seq":%d,"to_seq":%d,"head_seq":%d}' % (
        frame.from_seq,
        frame.to_seq,
        frame.head_seq,
    )
    return b"".join([head, *texts, tail])


def tombstone_data(frame: TombstoneFrame) -> bytes:
    return orjson.dumps({"topic": frame.topic, **stone_fields(frame)})


def stone_fields(frame: TombstoneFrame) -> Mapping[str, object]:
    stone: Tombstone = frame.stone
    return {
        "reason": stone.reason,
        "gap_from": stone.gap_from,
        "gap_to": stone.gap_to,
        "missed_estimate": max(stone.gap_to - stone.gap_from + 1, 0),
        "earliest_seq": frame.earliest_seq,
        "head_seq": frame.head_seq,
    }


def _named(frame: CaughtUpFrame | DeletedFrame) -> dict[str, object]:
    return {"topic": frame.topic, "head_seq": frame.head_seq}


def encode_error(code: int, why: str, **more: object) -> bytes:
    """A problem of a stream, with a status of §0.6; the final word where the server ends it."""
    return b"event: error\ndata: %b\n\n" % orjson.dumps({"code": code, "error": why, **more})


def unreadable(topic: str, refusal: Rejection) -> bytes:
    """One topic cannot be read any further; the rest of the stream goes on."""
    detail = dict(refusal.detail or {})
    return encode_error(refusal.code.status, refusal.message, topics=[topic], detail=detail)


def encode_job(topic: str, seq: int, text: JsonText) -> bytes:
    """One leased job (§10.8); `text` is its record with the lease spliced in."""
    return b'id: %d\nevent: job\ndata: {"topic":"%b",%b\n\n' % (seq, topic.encode(), text[1:])
