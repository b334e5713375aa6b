"""Commands and frames of the WebSocket: JSON text both ways (§7.7).

The same writes, reads, cursors and tombstones as HTTP and SSE; only the wrapping is its own.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec
import orjson

from topics.nesting import deep
from topics.protocol.faces.http import records as http_records
from topics.protocol.faces.http.append_body import AppendBody, RecordBody, append_body, append_of
from topics.protocol.faces.http.decoding import LARGE_BODY_BYTES, decode, invalid, why_not_json
from topics.protocol.faces.http.fields import Natural
from topics.protocol.faces.http.large_body import LargeBody
from topics.protocol.faces.http.rendering import fields_of
from topics.protocol.faces.http.sse import head_fields, place_of, record_data, stone_fields
from topics.protocol.faces.http.suggestions import listed
from topics.protocol.faces.http.watch import (
    BeginBody,
    PartitionNumbers,
    Position,
    ViewBody,
    begun_at,
    parse_begin,
    parse_begins,
    parse_positions,
    parse_view,
    positions,
)
from topics.protocol.model.access import Caller, Scope
from topics.protocol.model.commands import Append, Begin, View
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.limits import Limits
from topics.protocol.model.names import require_topic_name
from topics.protocol.model.outcomes import Appended, WatchPosition
from topics.protocol.model.permission import permitted
from topics.protocol.model.records import Buffer
from topics.protocol.state.frames import (
    CaughtUpFrame,
    DeletedFrame,
    Frame,
    RecordFrame,
    TombstoneFrame,
)


class Identified(msgspec.Struct):
    request_id: str | int | None = None


class Envelope(Identified, kw_only=True):
    op: str
    topic: str | None = None
    return_seqs: bool | None = None


class SubscribeBody(ViewBody, kw_only=True):
    topic: str | None = None
    topics: dict[str, BeginBody | None] | None = None
    from_seq: Natural | None = None
    from_ts: Natural | None = None
    tail: bool | None = None
    partitions: PartitionNumbers = None
    cursor: dict[str, Natural] | None = None
    position: Any = None


class LargeMessage(AppendBody, kw_only=True):
    """What a large message may hold: only a `publish` is large."""

    records: list[RecordBody] | None = None  # type: ignore[assignment]
    op: str
    request_id: str | int | None = None
    topic: str | None = None
    return_seqs: bool | None = None


class _AnyRecord(msgspec.Struct):
    pass


class _LargeIdentified(Identified):
    records: list[_AnyRecord] | None = None


OPS: Final = ("subscribe", "unsubscribe", "publish", "ping")
_ENVELOPE: Final = deep(msgspec.json.Decoder(Envelope).decode)
_IDENTIFIED: Final = deep(msgspec.json.Decoder(Identified).decode)
_FIELD: Final = rb'\s*"[^"\\]*"\s*:\s*(?:"[^"\\]*(?:\\.[^"\\]*)*"|[-+.\w]+)\s*'
_FIRST_FIELDS: Final = re.compile(rb"\s*{((?:%b,)*)" % _FIELD, re.DOTALL)
_LAST_FIELDS: Final = re.compile(rb"\]\s*((?:,%b)*)}\s*\Z" % _FIELD, re.DOTALL)
ENDS_BYTES: Final = 1024
"""Of a message that is not read whole: what is looked at of its first and its last fields."""
_NOT_JSON: Final = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
_SUBSCRIBE: Final = msgspec.json.Decoder(SubscribeBody)


class Subscribe(msgspec.Struct, frozen=True):
    """Attributes:
    position: As it came, which may be no text: how far the log is to be shown at least, on a node of
        a cluster; None elsewhere.
    """

    topics: Mapping[str, Begin]
    view: View
    position: Any = None


class Unsubscribe(msgspec.Struct, frozen=True):
    topic: str


class Publish(msgspec.Struct, frozen=True):
    append: Append


class Ping(msgspec.Struct, frozen=True):
    pass


Order: TypeAlias = Subscribe | Unsubscribe | Publish | Ping


RequireKnown: TypeAlias = Callable[[str, bytes, Limits, Callable[[], None]], None]
"""Given an `op` that there is, its message, and a pause for a large one.  Raises Rejection."""


class BadText(Exception):
    """The message is not JSON: `invalid_json`."""


class ClientMessage(msgspec.Struct, frozen=True):
    """What a message asks, or why not; `request_id` is JSON text, empty where none was given."""

    request_id: bytes
    order: Order | Rejection


def parse(
    raw: bytes,
    limits: Limits,
    pause: Callable[[], None] = lambda: None,
    require_known: RequireKnown | None = None,
) -> ClientMessage:
    """A message.

    Args:
        pause: Called between the steps in which a large message is read.
        require_known: Refuses a field that nobody would read, where that is asked for.

    Raises:
        BadText: It is not JSON.
    """
    if len(raw) > LARGE_BODY_BYTES:
        return _parse_large(raw, limits, pause, require_known)
    try:
        envelope = _ENVELOPE(raw)
    except msgspec.ValidationError as error:
        return ClientMessage(_request_id(raw), invalid(str(error)))
    except _NOT_JSON as error:
        raise BadText(why_not_json(error, raw)) from None
    given = _given(envelope)
    try:
        _require_sound(envelope, given)
        if require_known is not None and envelope.op in OPS:
            require_known(envelope.op, raw, limits, pause)
        return ClientMessage(given, _order(envelope, raw, limits))
    except Rejection as refusal:
        return ClientMessage(given, refusal)


def _parse_large(
    raw: bytes, limits: Limits, pause: Callable[[], None], require_known: RequireKnown | None
) -> ClientMessage:
    try:
        message: LargeMessage = LargeBody(raw, LargeMessage, limits, pause).read()
    except msgspec.ValidationError as error:
        return ClientMessage(_large_request_id(raw, limits, pause), invalid(str(error)))
    except Rejection as refusal:
        return ClientMessage(_large_request_id(raw, limits, pause), refusal)
    except _NOT_JSON as error:
        raise BadText(why_not_json(error, raw)) from None
    given = _given(message)
    try:
        _require_sound(message, given)
        if message.op != "publish":
            order = _order(message, raw, limits)
        elif message.records is None:
            raise invalid("Object missing required field `records`")
        else:
            order = Publish(_append(message, message, limits))
        if require_known is not None:
            require_known(message.op, raw, limits, pause)
        return ClientMessage(given, order)
    except Rejection as refusal:
        return ClientMessage(given, refusal)


def _large_request_id(raw: bytes, limits: Limits, pause: Callable[[], None]) -> bytes:
    try:
        return _given(LargeBody(raw, _LargeIdentified, limits, pause).read())
    except Rejection:
        return _outer_request_id(raw)
    except _NOT_JSON:
        return b""


def _outer_request_id(raw: bytes) -> bytes:
    """The id of a message that is too large to be read, where it stands before the records, or after them,
    among fields that hold one value each."""
    last = _LAST_FIELDS.search(raw, max(len(raw) - ENDS_BYTES, 0))
    first = _FIRST_FIELDS.match(raw, 0, ENDS_BYTES)
    for found in (last, first):
        try:
            given = _given(_IDENTIFIED(b"{%b}" % found[1].strip(b","))) if found else b""
        except _NOT_JSON:
            continue
        if given:
            return given
    return b""


def _request_id(raw: bytes) -> bytes:
    """The id of a message that is wrong elsewhere, so that the client knows which its error is of.

    Raises:
        BadText: It is not JSON: the first error was found before that one.
    """
    try:
        return _given(_IDENTIFIED(raw))
    except msgspec.ValidationError:
        return b""
    except _NOT_JSON as error:
        raise BadText(why_not_json(error, raw)) from None


def _require_sound(message: "Identified | LargeMessage", given: bytes) -> None:
    if message.request_id is not None and not given:
        raise invalid("expected text, or an integer of 64 bits", "$.request_id")


def _given(message: "Identified | LargeMessage") -> bytes:
    """The id as JSON text; empty where there is none, or none that can be encoded again."""
    if message.request_id is None:
        return b""
    try:
        return orjson.dumps(message.request_id)
    except orjson.JSONEncodeError:  # an integer of more than 64 bits
        return b""


def _order(envelope: "Envelope | LargeMessage", raw: bytes, limits: Limits) -> Order:
    match envelope.op:
        case "subscribe":
            return _subscribe(raw, limits)
        case "unsubscribe":
            return Unsubscribe(_required(envelope.topic))
        case "publish":
            return Publish(_append(envelope, append_body(raw, limits), limits))
        case "ping":
            return Ping()
        case other:
            what = f"unknown op {orjson.dumps(other[:64]).decode()}, expected {listed(OPS)}"
            raise invalid(what, "$.op")


def _append(envelope: "Envelope | LargeMessage", asked: AppendBody, limits: Limits) -> Append:
    topic = require_topic_name(_required(envelope.topic), path="$.topic")
    with_seqs = envelope.return_seqs is not False
    return append_of(topic, asked, limits, return_seqs=with_seqs, header_key=None)


_READS: Final[frozenset[Scope]] = frozenset({"read"})
_WRITES: Final[frozenset[Scope]] = frozenset({"write"})


def permitted_order(order: Order, caller: Caller) -> Order:
    """The order as a key may give it: each has scopes of its own, and every name is checked (§7.7).

    Raises:
        Rejection: 401 where the key was removed since; 403.
    """
    caller.require_current()
    match order:
        case Subscribe(topics):
            caller.require_scopes(_READS)
            for name in topics:
                caller.require_name(name)
        case Unsubscribe(topic):
            caller.require_name(topic)
        case Publish(append):
            caller.require_scopes(_WRITES)
            return Publish(permitted(append, caller))
        case Ping():  # pragma: no branch - an order is of no other kind
            pass
    return order


def _required(topic: str | None) -> str:
    if topic is None:
        raise invalid("expected a topic", "$.topic")
    return topic


def _subscribe(raw: bytes, limits: Limits) -> Subscribe:
    if len(raw) > limits.max_command_bytes:
        # As the body of a watch; only what is published is large.
        raise invalid(f"a message of {len(raw)} bytes exceeds {limits.max_command_bytes}")
    asked = decode(_SUBSCRIBE, raw)
    view = parse_view(asked, limits)
    if asked.topics is not None:
        if not asked.topics:
            raise invalid("expected at least one topic", "$.topics")
        if asked.topic is not None:
            raise invalid("topic and topics exclude each other", "$.topic")
        topics = parse_begins(asked.topics, limits)
    else:
        begin = BeginBody(asked.from_seq, asked.from_ts, asked.tail, partitions=asked.partitions)
        topics = {_required(asked.topic): parse_begin(begin, limits, "$")}
    if asked.cursor is not None:
        topics = begun_at(topics, parse_positions(asked.cursor, topics))
    return Subscribe(topics, view, asked.position)


def encode(frame: Frame, texts: Sequence[Buffer] = ()) -> bytes:
    """A frame as one message."""
    match frame:
        case RecordFrame():
            text = frame.texts.get("ws")
            if text is None:
                data = frame.texts.get("sse") or record_data(frame, texts)
                text = frame.texts["ws"] = b'{"op":"record",' + data[1:]
            return text
        case TombstoneFrame():
            return _message("tombstone", stone_fields(frame))
        case CaughtUpFrame():
            return _message("caught_up", head_fields(frame))
        case DeletedFrame():  # pragma: no branch - a frame is of no other kind
            return _message("topic_deleted", {**head_fields(frame), "reason": "deleted"})


def _message(op: str, fields: Mapping[str, Any]) -> bytes:
    return orjson.dumps({"op": op, **fields})


def opened(op: str, request_id: bytes) -> bytes:
    """The beginning of a reply: its op and its request's id; fields and a brace follow."""
    if not request_id:
        return b'{"op":"%b"' % op.encode()
    return b'{"op":"%b","request_id":%b' % (op.encode(), request_id)


def reply(op: str, request_id: bytes, fields: Mapping[str, Any]) -> bytes:
    body = orjson.dumps(fields)[1:]
    return opened(op, request_id) + (b"," if fields else b"") + body


def subscribed(request_id: bytes, at: Mapping[str, WatchPosition]) -> bytes:
    """Topics were added to the socket; where it stands in each partition, by the engine's name of it."""
    return subscribed_at(request_id, positions(at))


def subscribed_at(request_id: bytes, topics: Mapping[str, Position]) -> bytes:
    """The reply to a subscription, with positions as an answer has them."""
    return opened("subscribed", request_id) + b',"topics":%b}' % msgspec.json.encode(topics)


def ack(
    request_id: bytes,
    appended: Appended,
    *,
    write_ms: float,
    sync_ms: float,
    throttle_ms: float,
    position: bytes = b"",
) -> bytes:
    """The reply to a publish: the fields of an append's answer, and how long it took.

    Args:
        position: Of the log that has it, on a node of a cluster.
    """
    return (
        b'%b,%b,"performance":{"wal_append_ms":%.3f,"fsync_ms":%.3f,"throttle_wait_ms":%.1f}%b}'
        % (
            opened("ack", request_id),
            fields_of(http_records.appended(appended)),
            write_ms,
            sync_ms if appended.is_fsync else 0.0,
            throttle_ms,
            b',"position":"%b"' % position if position else b"",
        )
    )


def refused(request_id: bytes, refusal: Rejection) -> bytes:
    fields: dict[str, Any] = {"code": refusal.code.code, "message": refusal.message}
    if refusal.detail is not None:
        fields["detail"] = dict(refusal.detail)
    if refusal.retry_after_s is not None:
        fields["retry_after_ms"] = refusal.retry_after_s * 1000
    return reply("error", request_id, fields)


def unreadable(topic: str, refusal: Rejection, partition: int | None = None) -> bytes:
    """A topic cannot be read any further and is unsubscribed, or one of its partitions cannot be; the socket
    stays."""
    detail = {**place_of(topic, partition), **(refusal.detail or {})}
    return refused(b"", Rejection(refusal.code, refusal.message, detail))


def bad_text(why: str) -> bytes:
    return reply("error", b"", {"code": "invalid_json", "message": f"not JSON: {why}"})


BINARY: Final = reply(
    "error", b"", {"code": ErrorCode.INVALID_REQUEST.code, "message": "expected a text message"}
)
