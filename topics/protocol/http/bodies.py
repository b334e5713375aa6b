"""Request bodies: JSON text in, commands out; every 400 for a body is raised here.

`data` and `meta` are checked for grammar and kept as the bytes they came in, never parsed.  The
order of the checks within a body is: it is text, it is JSON, it has the right types, it is in
range, names in it are names.
"""

import re
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from hashlib import blake2b
from operator import attrgetter
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Meta, Raw

from topics.protocol.http.decoding import (
    LARGE_BODY_BYTES,
    FieldTooLong,
    decode,
    decode_whole,
    invalid,
)
from topics.protocol.model.commands import (
    Ack,
    Append,
    Begin,
    Claim,
    CreateWatch,
    DeleteRecords,
    Diff,
    Extend,
    Nack,
    Purge,
    PutRouter,
    PutTopic,
    View,
)
from topics.protocol.model.config import (
    CLAIM_JITTER_MS_MAX,
    LEASE_MS_MAX,
    LEASE_MS_MIN,
    PRIORITY_MAX,
    Discard,
    Guarantee,
    RouterConfig,
    TopicConfig,
    TopicType,
)
from topics.protocol.model.cursor import Remembered, parse_composite
from topics.protocol.model.durability import Durability, durability_of
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.limits import (
    BATCH_BYTES_DEFAULT,
    BATCH_BYTES_MAX,
    FRAME_BYTES_DEFAULT,
    HEARTBEAT_MS_DEFAULT,
    HEARTBEAT_MS_MAX,
    HEARTBEAT_MS_MIN,
    KEY_CHARS_MAX,
    LIMIT_DEFAULT,
    META_KEYS_MAX,
    WAIT_MS_MAX,
    Limits,
)
from topics.protocol.model.names import require_topic_name
from topics.protocol.model.records import Buffer
from topics.protocol.model.tags import MATCH_SCHEMA, TagRange, parse_match, parse_subject

Natural = Annotated[int, Meta(ge=0)]
U64_MAX: Final = 2**64 - 1
TS_MAX: Final = 2**63 - 1
MATCH_BYTES_MAX: Final = 16 << 10
ESCAPED_BYTES: Final = 6
"""What one byte may take in JSON text."""
_ABSENT: Final[Any] = None
"""Of a field that is kept as text: none was given.  Not an empty `Raw`, which has no place in a
schema."""

AnyJson = Annotated[Raw, Meta(description="Any JSON value; kept byte for byte.")]
MetaObject = Annotated[
    Raw, Meta(extra_json_schema={"type": ["object", "null"], "maxProperties": META_KEYS_MAX})
]
TagPattern = Annotated[Raw, Meta(extra_json_schema=MATCH_SCHEMA)]


class ConfigBody(msgspec.Struct):
    """The config object of §0.10, every field optional; null means absent."""

    type: TopicType | None = None
    ttl_ms: Natural | None = None
    cap_records: Natural | None = None
    cap_bytes: Natural | None = None
    discard: Discard | None = None
    durable: bool | None = None
    durability: Durability | None = None
    priority: int | None = None
    auto_priority: bool | None = None
    auto_create: bool | None = None
    idempotency_window_ms: Natural | None = None
    dedupe_node: bool | None = None
    lease_ms: Natural | None = None
    claim_jitter_ms: Natural | None = None
    max_deliveries: Natural | None = None
    dead_letter: str | None = None
    leases_durable: bool | None = None


class RecordBody(msgspec.Struct, gc=False):
    data: AnyJson
    tag: str | None = None
    node: str | None = None
    meta: MetaObject = _ABSENT


class _TooMany(Exception):
    """More records than are allowed; the rest of them is not decoded."""


_left: Final[ContextVar[list[int]]] = ContextVar("records that the body may still hold")
"""Of the body that is decoded in this context: a large one may be, on a thread, beside others."""


class CountedRecord(RecordBody, gc=False):
    """A record of a large body: counted while it is decoded, so that a body of millions is refused
    at the first record beyond the limit."""

    def __post_init__(self) -> None:
        left = _left.get()
        left[0] -= 1
        if left[0] < 0:
            raise _TooMany


class AppendBody(msgspec.Struct, gc=False):
    records: list[RecordBody]
    node: str | None = None
    idempotency_key: str | None = None
    create: bool | None = None
    config: ConfigBody | None = None
    disable_backpressure: bool | None = None


class LargeAppendBody(AppendBody, gc=False):
    records: list[CountedRecord]  # type: ignore[assignment]


class DiffBody(msgspec.Struct):
    from_seq: Natural | None = None
    from_ts: Natural | None = None
    limit: Natural | None = None
    max_batch_bytes: Natural | None = None
    node: str | list[str] | None = None
    match: TagPattern = _ABSENT
    include_tags: bool | None = None
    include_meta: bool | None = None
    wait_ms: Natural | None = None
    epoch: str | None = None


class BeginBody(msgspec.Struct):
    from_seq: Natural | None = None
    from_ts: Natural | None = None
    tail: bool | None = None
    match: TagPattern = _ABSENT
    node: str | list[str] | None = None


class ViewBody(msgspec.Struct):
    """The options that a watch session and a `subscribe` share (§7.2, §7.7)."""

    node: str | list[str] | None = None
    limit: Natural | None = None
    max_batch_bytes: Natural | None = None
    match: TagPattern = _ABSENT
    include_tags: bool | None = None
    include_meta: bool | None = None
    include_data: bool | None = None
    consistency: Literal["eventual", "strong"] | None = None


class WatchBody(ViewBody, kw_only=True):
    topics: dict[str, BeginBody | None]
    heartbeat_ms: Natural | None = None
    cursor: str | None = None


class RouterBody(msgspec.Struct):
    source: str
    dest: str
    preserve_node: bool | None = None
    preserve_tag: bool | None = None
    create_dest: bool | None = None
    filter: TagPattern = _ABSENT
    allow_cycle: bool | None = None
    guarantee: Guarantee | None = None


class DeleteBody(msgspec.Struct, forbid_unknown_fields=True):
    before_seq: Natural | None = None
    match: TagPattern = _ABSENT
    erase: bool | None = None


class PurgeBody(msgspec.Struct, forbid_unknown_fields=True):
    seq: Natural | None = None
    keep: Natural | None = None
    filter: str | None = None


class ClaimBody(msgspec.Struct):
    node: str
    max: Natural | None = None
    lease_ms: Natural | None = None
    wait_ms: Natural | None = None


class HeldBody(msgspec.Struct):
    """What ack, nack and extend share (§10.4-§10.6)."""

    node: str
    seqs: list[Natural]
    lease_ids: list[str] | None = None


class NackBody(HeldBody, kw_only=True):
    delay_ms: Natural | None = None


class ExtendBody(HeldBody, kw_only=True):
    lease_ms: Natural


_DEFAULT_LIMITS: Final = Limits()
_TOPIC_DEFAULTS: Final = TopicConfig()
_ROUTER_DEFAULTS: Final = RouterConfig(source="", dest="")
_CONFIG: Final = msgspec.json.Decoder(ConfigBody)
_APPEND: Final = msgspec.json.Decoder(AppendBody)
_LARGE_APPEND: Final = msgspec.json.Decoder(LargeAppendBody)
_DIFF: Final = msgspec.json.Decoder(DiffBody)
_WATCH: Final = msgspec.json.Decoder(WatchBody)
_ROUTER: Final = msgspec.json.Decoder(RouterBody)
_DELETE: Final = msgspec.json.Decoder(DeleteBody)
_PURGE: Final = msgspec.json.Decoder(PurgeBody)
_CLAIM: Final = msgspec.json.Decoder(ClaimBody)
_ACK: Final = msgspec.json.Decoder(HeldBody)
_NACK: Final = msgspec.json.Decoder(NackBody)
_EXTEND: Final = msgspec.json.Decoder(ExtendBody)
_DATA: Final = attrgetter("data")
_TAG: Final = attrgetter("tag")
_NODE: Final = attrgetter("node")
_META: Final = attrgetter("meta")
_META_KEYS: Final = msgspec.json.Decoder(dict[str, Raw])


def _u64(value: int | None, path: str, default: int = 0) -> int:
    if value is None:
        return default
    if value > U64_MAX:
        raise invalid(f"{value if value < 10**30 else 'the number'} exceeds 2^64 - 1", path)
    return value


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value


def _clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def resolve_config(body: ConfigBody, topic: str, path: str = "$") -> TopicConfig:
    """A config with every field resolved: defaults, clamps, and durability from `durable`."""
    default = _TOPIC_DEFAULTS

    def u64(field: str) -> int:
        return _u64(getattr(body, field), f"{path}.{field}", getattr(default, field))

    durability = body.durability or durability_of(durable=bool(body.durable))
    priority = body.priority
    if body.dead_letter is not None:
        require_topic_name(body.dead_letter, path=f"{path}.dead_letter")
        if body.dead_letter == topic:
            raise invalid("dead_letter names the topic itself", f"{path}.dead_letter")
    return TopicConfig(
        type=body.type or default.type,
        ttl_ms=u64("ttl_ms"),
        cap_records=u64("cap_records"),
        cap_bytes=u64("cap_bytes"),
        discard=body.discard or default.discard,
        durable=durability == durability_of(durable=True),
        durability=durability,
        priority=None if priority is None else _clamp(priority, -PRIORITY_MAX, PRIORITY_MAX),
        auto_priority=_or(body.auto_priority, default.auto_priority),
        auto_create=_or(body.auto_create, default.auto_create),
        idempotency_window_ms=u64("idempotency_window_ms"),
        dedupe_node=_or(body.dedupe_node, default.dedupe_node),
        lease_ms=clamped_lease(_or(body.lease_ms, default.lease_ms)),
        claim_jitter_ms=min(
            _or(body.claim_jitter_ms, default.claim_jitter_ms), CLAIM_JITTER_MS_MAX
        ),
        max_deliveries=u64("max_deliveries"),
        dead_letter=body.dead_letter,
        leases_durable=_or(body.leases_durable, default.leases_durable),
    )


def parse_put(topic: str, body: Buffer) -> PutTopic:
    asked = decode(_CONFIG, body)
    return PutTopic(topic, resolve_config(asked, topic), asked.type is not None)


def parse_append(
    topic: str, body: Buffer, limits: Limits, *, return_seqs: bool, header_key: str | None
) -> Append:
    asked = _append_body(body, limits)
    records = asked.records
    if not records:
        raise invalid("expected at least one record", "$.records")
    if len(records) > limits.max_batch_records:
        raise _batch_too_large(limits)
    datas = list(map(_DATA, records))
    tags = list(map(_TAG, records))
    metas = _metas(records, limits)
    nodes = _nodes(records, asked.node, limits)
    is_tagged = tags.count(None) < len(tags)
    if is_tagged:
        _check_lengths(tags, limits.max_tag_bytes, "tag")
    sizes = list(map(len, datas))
    if metas is not None:
        sizes = [d + (len(m) if m is not None else 0) for d, m in zip(sizes, metas, strict=True)]
    if max(sizes) > limits.max_record_bytes:
        i = next(i for i, size in enumerate(sizes) if size > limits.max_record_bytes)
        raise Rejection(
            ErrorCode.RECORD_TOO_LARGE,
            f"data and meta of {sizes[i]} bytes exceed {limits.max_record_bytes}"
            f" - at `$.records[{i}]`",
            {"limit": limits.max_record_bytes},
        )
    key = asked.idempotency_key if asked.idempotency_key is not None else header_key
    if key is not None and len(key) > KEY_CHARS_MAX:
        raise invalid(
            f"a key of {len(key)} characters exceeds {KEY_CHARS_MAX}", "$.idempotency_key"
        )
    return Append(
        topic=topic,
        datas=datas,
        nodes=nodes,
        tags=tags if is_tagged else None,
        metas=metas,
        key=b"" if key is None else digest_of_key(key),
        create=asked.create,
        config=resolve_config(asked.config, topic, "$.config") if asked.config else _TOPIC_DEFAULTS,
        return_seqs=return_seqs,
        disable_backpressure=bool(asked.disable_backpressure),
    )


def _append_body(body: Buffer, limits: Limits) -> AppendBody:
    if len(body) <= LARGE_BODY_BYTES:
        return decode_whole(_APPEND, body)
    _left.set([limits.max_batch_records])
    try:
        return decode_whole(_LARGE_APPEND, body)
    except _TooMany:
        raise _batch_too_large(limits) from None


def _batch_too_large(limits: Limits) -> Rejection:
    return Rejection(
        ErrorCode.BATCH_TOO_LARGE,
        f"the batch exceeds {limits.max_batch_records} records",
        {"limit": limits.max_batch_records},
    )


def digest_of_key(key: str) -> bytes:
    """16 bytes that stand for an idempotency key in memory, log and checkpoint."""
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _nodes(
    records: Sequence[RecordBody], batch_node: str | None, limits: Limits
) -> str | list[str | None] | None:
    own = list(map(_NODE, records))
    if batch_node is not None:
        _check_lengths([batch_node], limits.max_node_bytes, "node", path="$.node")
    if own.count(None) == len(own):
        return batch_node
    _check_lengths(own, limits.max_node_bytes, "node")
    return [batch_node if n is None else n for n in own]


def _check_lengths(
    texts: Sequence[str | None], limit: int, field: str, path: str | None = None
) -> None:
    for i, text in enumerate(texts):
        if text is None or len(text) * 4 <= limit or len(text.encode()) <= limit:
            continue
        where = path or f"$.records[{i}].{field}"
        raise invalid(f"a {field} of {len(text.encode())} bytes exceeds {limit}", where)


def _metas(records: Sequence[RecordBody], limits: Limits) -> list[Buffer | None] | None:
    metas: list[Any] = list(map(_META, records))
    if metas.count(None) == len(metas):
        return None
    for i, meta in enumerate(metas):
        if meta is not None:
            metas[i] = _meta(bytes(meta), limits, f"$.records[{i}].meta")
    return None if metas.count(None) == len(metas) else metas


def _meta(meta: bytes, limits: Limits, path: str) -> bytes | None:
    if meta == b"null":
        return None
    if not meta.startswith(b"{"):
        raise invalid("expected `object`", path)
    if len(meta) > limits.max_meta_bytes:
        raise invalid(f"meta of {len(meta)} bytes exceeds {limits.max_meta_bytes}", path)
    # Every key has a colon, so few colons are few keys; only the rest is worth a parse.
    if meta.count(b":") > META_KEYS_MAX and len(_META_KEYS.decode(meta)) > META_KEYS_MAX:
        raise invalid(f"meta has more than {META_KEYS_MAX} keys", path)
    return meta


def parse_diff(topic: str, body: Buffer, limits: Limits) -> Diff:
    asked = decode(_DIFF, body)
    if asked.from_seq is not None and asked.from_ts is not None:
        raise invalid("from_seq and from_ts exclude each other", "$.from_ts")
    nodes = [asked.node] if isinstance(asked.node, str) else (asked.node or [])
    return Diff(
        topic=topic,
        from_seq=_u64(asked.from_seq, "$.from_seq"),
        from_ts=None if asked.from_ts is None else min(_u64(asked.from_ts, "$.from_ts"), TS_MAX),
        limit=min(asked.limit or min(LIMIT_DEFAULT, limits.max_limit), limits.max_limit),
        budget_bytes=min(asked.max_batch_bytes or BATCH_BYTES_DEFAULT, BATCH_BYTES_MAX),
        nodes=tuple(nodes),
        match=_match(asked.match, limits),
        include_tags=bool(asked.include_tags),
        include_meta=_or(asked.include_meta, True),
        wait_ms=min(asked.wait_ms or 0, WAIT_MS_MAX),
        epoch=asked.epoch,
    )


def parse_watch(body: Buffer, limits: Limits, *, wid: str, lenient: bool) -> CreateWatch:
    asked = decode(_WATCH, body)
    if not asked.topics:
        raise invalid("expected at least one topic", "$.topics")
    topics = parse_begins(asked.topics, limits)
    beat = HEARTBEAT_MS_DEFAULT if asked.heartbeat_ms is None else asked.heartbeat_ms
    known: Remembered | None = Remembered()
    if asked.cursor is not None:
        known = parse_composite(asked.cursor, list(topics), strict=True)
    if known is None:
        # To begin elsewhere than the client believes would be a silent gap.
        raise invalid("not the id of a frame, nor a session's cursor", "$.cursor")
    return CreateWatch(
        wid=wid,
        topics=topics,
        view=parse_view(asked, limits),
        heartbeat_ms=_clamp(beat, HEARTBEAT_MS_MIN, HEARTBEAT_MS_MAX),
        lenient=lenient,
        cursors=known.positions,
    )


def parse_begins(topics: Mapping[str, BeginBody | None], limits: Limits) -> dict[str, Begin]:
    """Where to begin in each topic; a name that cannot exist is not found when the watch
    is decided."""
    if len(topics) > limits.max_watch_topics:
        raise invalid(f"{len(topics)} topics exceed {limits.max_watch_topics}", "$.topics")
    return {
        name: parse_begin(begin or BeginBody(), limits, f"$.topics.{name[:64]}")
        for name, begin in topics.items()
    }


def parse_begin(asked: BeginBody, limits: Limits, path: str) -> Begin:
    if asked.from_seq is not None and asked.from_ts is not None:
        raise invalid("from_seq and from_ts exclude each other", f"{path}.from_ts")
    from_ts = None if asked.from_ts is None else min(_u64(asked.from_ts, path), TS_MAX)
    nodes = (asked.node,) if isinstance(asked.node, str) else asked.node
    return Begin(
        from_seq=_u64(asked.from_seq, f"{path}.from_seq"),
        from_ts=from_ts,
        tail=bool(asked.tail),
        match=_match(asked.match, limits, f"{path}.match"),
        nodes=None if nodes is None else tuple(nodes),
    )


def parse_view(asked: ViewBody, limits: Limits) -> View:
    nodes = [asked.node] if isinstance(asked.node, str) else (asked.node or [])
    budget = FRAME_BYTES_DEFAULT if asked.max_batch_bytes is None else asked.max_batch_bytes
    return View(
        limit=min(asked.limit or min(LIMIT_DEFAULT, limits.max_limit), limits.max_limit),
        budget_bytes=min(budget or BATCH_BYTES_DEFAULT, BATCH_BYTES_MAX),
        nodes=tuple(nodes),
        match=_match(asked.match, limits),
        tags=bool(asked.include_tags),
        meta=_or(asked.include_meta, True),
        data=_or(asked.include_data, True),
        strong=asked.consistency == "strong",
    )


def parse_put_router(router: str, body: Buffer, limits: Limits = _DEFAULT_LIMITS) -> PutRouter:
    asked, default = decode(_ROUTER, body), _ROUTER_DEFAULTS
    require_topic_name(asked.source, path="$.source")
    require_topic_name(asked.dest, path="$.dest")
    if asked.source == asked.dest:
        raise invalid("dest is the source itself", "$.dest")
    config = RouterConfig(
        source=asked.source,
        dest=asked.dest,
        preserve_node=_or(asked.preserve_node, default.preserve_node),
        preserve_tag=_or(asked.preserve_tag, default.preserve_tag),
        filter=_filter(asked.filter, limits),
        allow_cycle=_or(asked.allow_cycle, default.allow_cycle),
        guarantee=asked.guarantee or default.guarantee,
    )
    return PutRouter(router, config, _or(asked.create_dest, True))


def _match(text: Raw, limits: Limits, path: str = "$.match") -> TagRange | None:
    return None if (value := _short(text, limits, path)) is None else parse_match(value, path)


def _short(text: Raw, limits: Limits, path: str) -> Any:
    """The value of a field that takes a tag or a pattern of one; None where there is none.  Its text
    is bounded here: a list or a string in it could otherwise be as long as the body."""
    if not text:
        return None
    longest = max(MATCH_BYTES_MAX, ESCAPED_BYTES * limits.max_tag_bytes + 64)
    if len(text) > longest:
        raise invalid(f"{len(text)} bytes exceed {longest}", path)
    return msgspec.json.decode(text)


def _filter(text: Raw, limits: Limits) -> tuple[str, str, str] | None:
    """A router's `filter`, as a tuple, whichever form it came in; no longer than what a tag can
    match, since it is kept, logged and listed."""
    value = _short(text, limits, "$.filter")
    if value is None:
        return None
    parse_match(value, "$.filter")
    if isinstance(value, str):
        value = "tag", "Glob" if value.endswith("*") else "Eq", value
    field, op, tag = value
    limit = limits.max_tag_bytes + (op == "Glob")
    _check_lengths([tag], limit, "filter", "$.filter")
    return field, op, tag


def parse_delete(topic: str, body: Buffer, limits: Limits = _DEFAULT_LIMITS) -> DeleteRecords:
    asked = decode(_DELETE, body)
    match = _match(asked.match, limits)
    if asked.before_seq is None and match is None:
        raise invalid("expected before_seq or match", "$")
    before = None if asked.before_seq is None else _u64(asked.before_seq, "$.before_seq")
    return DeleteRecords(topic, before, match, bool(asked.erase))


def parse_purge(topic: str, body: Buffer) -> Purge:
    asked = decode(_PURGE, body)
    if asked.seq is not None and asked.keep is not None:
        raise invalid("seq and keep exclude each other", "$.keep")
    return Purge(
        topic,
        None if asked.seq is None else _u64(asked.seq, "$.seq"),
        None if asked.keep is None else _u64(asked.keep, "$.keep"),
        None if asked.filter is None else parse_subject(asked.filter),
    )


def parse_claim(topic: str, body: Buffer, limits: Limits) -> Claim:
    asked = decode(_CLAIM, body)
    return Claim(
        topic=topic,
        node=worker(asked.node, limits, "$.node"),
        limit=claim_limit(asked.max, limits),
        lease_ms=None if asked.lease_ms is None else clamped_lease(asked.lease_ms),
        wait_ms=min(asked.wait_ms or 0, WAIT_MS_MAX),
    )


def worker(node: str, limits: Limits, path: str) -> str:
    """The worker's name: not empty, and no longer than a node's."""
    if not node:
        raise invalid("expected the worker's name", path)
    _check_lengths([node], limits.max_node_bytes, "node", path)
    return node


def claim_limit(asked: int | None, limits: Limits) -> int:
    return _clamp(asked or 1, 1, limits.max_claim or asked or 1)


def clamped_lease(lease_ms: int) -> int:
    return _clamp(lease_ms, LEASE_MS_MIN, LEASE_MS_MAX)


def parse_ack(topic: str, body: Buffer, limits: Limits) -> Ack:
    asked = _decode_held(_ACK, body, limits)
    return Ack(topic, worker(asked.node, limits, "$.node"), *_held(asked, limits))


def parse_nack(topic: str, body: Buffer, limits: Limits) -> Nack:
    asked = _decode_held(_NACK, body, limits)
    seqs, leases = _held(asked, limits)
    delay_ms = min(asked.delay_ms or 0, LEASE_MS_MAX)
    return Nack(topic, worker(asked.node, limits, "$.node"), seqs, leases, delay_ms)


def parse_extend(topic: str, body: Buffer, limits: Limits) -> Extend:
    asked = _decode_held(_EXTEND, body, limits)
    seqs, leases = _held(asked, limits)
    lease_ms = clamped_lease(asked.lease_ms)
    return Extend(topic, worker(asked.node, limits, "$.node"), seqs, leases, lease_ms)


H = TypeVar("H", bound=HeldBody)


def _decode_held(decoder: msgspec.json.Decoder[H], body: Buffer, limits: Limits) -> H:
    try:
        return decode(decoder, body)
    except FieldTooLong as refusal:
        if refusal.field == "seqs" and limits.max_claim:
            raise _too_many_seqs(limits) from None
        raise


def _too_many_seqs(limits: Limits) -> Rejection:
    return Rejection(
        ErrorCode.BATCH_TOO_LARGE,
        f"more than {limits.max_claim} seqs - at `$.seqs`",
        {"limit": limits.max_claim},
    )


def _held(asked: HeldBody, limits: Limits) -> tuple[list[int], list[int] | None]:
    """The seqs, and the number of each one's lease where tokens were given."""
    seqs, tokens = asked.seqs, asked.lease_ids
    if limits.max_claim and len(seqs) > limits.max_claim:
        raise _too_many_seqs(limits)
    _u64(max(seqs, default=0), "$.seqs")
    if tokens is None:
        return seqs, None
    if len(tokens) != len(seqs):
        raise invalid(f"{len(tokens)} lease_ids for {len(seqs)} seqs", "$.lease_ids")
    return seqs, [_lease_number(token) for token in tokens]


_LEASE_ID: Final = re.compile(r"lease_([1-9a-f][0-9a-f]{0,23})")


def _lease_number(token: str) -> int:
    """The number in a lease's token; 0, which no lease has, where the token is not the server's."""
    found = _LEASE_ID.fullmatch(token)
    return int(found[1], 16) if found else 0
