"""The body of an append: records whose `data` and `meta` are kept as text."""

from collections.abc import Callable, Sequence
from hashlib import blake2b
from operator import attrgetter
from typing import Any, Final

import msgspec
from msgspec import Raw

from topics.nesting import DEPTH_MAX, deep, may_be_deeper
from topics.protocol.faces.http.checks import check_lengths, require_partition
from topics.protocol.faces.http.decoding import (
    LARGE_BODY_BYTES,
    decode_whole,
    decoded,
    invalid,
    require_depth,
    require_utf8,
)
from topics.protocol.faces.http.fields import ABSENT, AnyJson, MetaObject, Natural, Pairs
from topics.protocol.faces.http.job_options import UniqueField, requests_of
from topics.protocol.faces.http.large_body import LargeBody, batch_too_large
from topics.protocol.faces.http.marked import Form, marks_of, meta_of, metas_of
from topics.protocol.faces.http.topics import TOPIC_DEFAULTS, ConfigBody, resolve_config
from topics.protocol.model.commands import Append
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.job_options import JobRequest
from topics.protocol.model.limits import (
    ADDED_BYTES_MAX,
    ADDED_KEYS_MAX,
    KEY_CHARS_MAX,
    LETTER_BYTES_MAX,
    META_KEYS_MAX,
    Limits,
)
from topics.protocol.model.marks import Mark
from topics.protocol.model.records import Buffer


class RecordBody(msgspec.Struct, gc=False):
    data: AnyJson
    tag: str | None = None
    node: str | None = None
    meta: MetaObject = ABSENT
    form: Form | None = None
    key: str | None = None
    time: int | None = None
    headers: Pairs = ABSENT
    partition: Natural | None = None
    delay_ms: int | None = None
    not_before: int | None = None
    priority: int | None = None
    expires_ms: int | None = None
    group: str | None = None
    unique: UniqueField = None


class AppendBody(msgspec.Struct, gc=False):
    records: list[RecordBody]
    node: str | None = None
    idempotency_key: str | None = None
    create: bool | None = None
    config: ConfigBody | None = None
    disable_backpressure: bool | None = None


_APPEND: Final = msgspec.json.Decoder(AppendBody)
_DATA: Final = attrgetter("data")
_TAG: Final = attrgetter("tag")
_NODE: Final = attrgetter("node")
_META: Final = attrgetter("meta")
_PARTITION: Final = attrgetter("partition")
OPTIONS: Final = ("delay_ms", "not_before", "priority", "expires_ms", "group", "unique")
_OPTIONED: Final = attrgetter(*OPTIONS)
_NO_OPTIONS: Final = (None,) * len(OPTIONS)
_PLAIN: Final = attrgetter(
    "meta", "node", "tag", "form", "key", "time", "headers", "partition", *OPTIONS
)
_NOTHING: Final = (None,) * (8 + len(OPTIONS))
ADDED: Final = ("$", "_topics_")
"""What the names of keys begin with that a server adds to meta."""
OF_A_LETTER: Final = frozenset({"$dead_letter_errors", "$dead_letter_reason", "$group"})
"""Of these keys, those with what a client said: their values are longer than a server's own words."""
_JSON: Final = deep(msgspec.json.Decoder().decode)
_META_KEYS: Final = deep(msgspec.json.Decoder(dict[str, Raw]).decode)


def parse_append(
    topic: str,
    body: Buffer,
    limits: Limits,
    *,
    return_seqs: bool,
    header_key: str | None,
    pause: Callable[[], None] = lambda: None,
) -> Append:
    """The write that a body asks for.

    Args:
        pause: Called between the steps in which a large body is read.
    """
    asked = append_body(body, limits, pause)
    return append_of(topic, asked, limits, return_seqs=return_seqs, header_key=header_key)


def append_of(
    topic: str, asked: AppendBody, limits: Limits, *, return_seqs: bool, header_key: str | None
) -> Append:
    records = asked.records
    if not records:
        raise invalid("expected at least one record", "$.records")
    if len(records) > limits.max_batch_records:
        raise batch_too_large(limits)
    metas: list[Buffer | None] | None = None
    tags: list[str | None] | None = None
    nodes: str | list[str | None] | None
    record = records[0]
    marks: list[Mark | None] | None = None
    partitions: list[int | None] | None = None
    jobs: list[JobRequest | None] | None = None
    if len(records) == 1 and _PLAIN(record) == _NOTHING:
        # The common case, without the lists that pay for many.
        datas = [record.data]
        nodes = _batch_node(asked.node, limits)
        longest = len(record.data)
    else:
        datas = list(map(_DATA, records))
        if any(map(_is_marked, records)):
            marks = marks_of(records)
        metas = _metas(records, limits, has_marks=marks is not None)
        nodes = _nodes(records, asked.node, limits)
        tags = list(map(_TAG, records))
        if tags.count(None) == len(tags):
            tags = None
        else:
            check_lengths(tags, limits.max_tag_bytes, "tag")
        longest = max(_sizes(datas, metas))
        partitions = list(map(_PARTITION, records))
        if partitions.count(None) == len(partitions):
            partitions = None
        else:
            for at, partition in enumerate(partitions):
                require_partition(partition, f"$.records[{at}].partition")
        if marks is not None:
            _require_marks(marks, limits)
        if any(_OPTIONED(record) != _NO_OPTIONS for record in records):
            jobs = requests_of(records, limits)
    if longest > limits.max_record_bytes:
        _require_sizes(datas, metas, limits)
    if longest > 2 * DEPTH_MAX and may_be_deeper():
        _require_depths(datas, metas)
    key = asked.idempotency_key if asked.idempotency_key is not None else header_key
    if key is not None and len(key) > KEY_CHARS_MAX:
        raise invalid(
            f"a key of {len(key)} characters exceeds {KEY_CHARS_MAX}", "$.idempotency_key"
        )
    return Append(
        topic=topic,
        datas=datas,
        nodes=nodes,
        tags=tags,
        metas=metas,
        key=b"" if key is None else digest_of_key(key),
        create=asked.create,
        config=resolve_config(asked.config, topic, "$.config") if asked.config else TOPIC_DEFAULTS,
        is_configuring=asked.config is not None,
        return_seqs=return_seqs,
        disable_backpressure=bool(asked.disable_backpressure),
        marks=marks,
        partitions=partitions,
        jobs=jobs,
    )


def append_body(
    body: Buffer, limits: Limits, pause: Callable[[], None] = lambda: None
) -> AppendBody:
    """The body, decoded and not yet checked."""
    if len(body) <= LARGE_BODY_BYTES:
        return decode_whole(_APPEND, body)
    require_utf8(body, pause)
    large = LargeBody(bytes(body), AppendBody, limits, pause)
    made: AppendBody = decoded(AppendBody, body, large.read)
    return made


def digest_of_key(key: str) -> bytes:
    """16 bytes that stand for an idempotency key in memory, log and checkpoint."""
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _sizes(datas: Sequence[Buffer], metas: Sequence[Buffer | None] | None) -> list[int]:
    """Bytes of data and meta of each record."""
    sizes = list(map(len, datas))
    if metas is None:
        return sizes
    return [d + (len(m) if m is not None else 0) for d, m in zip(sizes, metas, strict=True)]


def _require_sizes(
    datas: Sequence[Buffer], metas: Sequence[Buffer | None] | None, limits: Limits
) -> None:
    most = limits.max_record_bytes
    for i, size in enumerate(_sizes(datas, metas)):
        meta = None if metas is None or size <= most else metas[i]
        if size > most and (meta is None or size - _added(bytes(meta))[1] > most):
            what = f"data and meta of {size} bytes exceed {most} - at `$.records[{i}]`"
            raise Rejection(ErrorCode.RECORD_TOO_LARGE, what, {"limit": most})


def _require_depths(datas: Sequence[Buffer], metas: Sequence[Buffer | None] | None) -> None:
    for i, data in enumerate(datas):
        require_depth(data, f"$.records[{i}].data")
    for i, meta in enumerate(metas or ()):
        require_depth(meta or b"", f"$.records[{i}].meta")


def _require_marks(marks: Sequence[Mark | None], limits: Limits) -> None:
    most = limits.max_record_bytes
    for i, mark in enumerate(marks):
        if mark is not None and len(mark.head) > most:
            what = f"key and headers of {len(mark.head)} bytes exceed {most} - at `$.records[{i}]`"
            raise Rejection(ErrorCode.RECORD_TOO_LARGE, what, {"limit": most})


def _added(meta: bytes) -> tuple[int, int]:
    """How many keys of meta a server adds, and their bytes: as many of both as count in no limit."""
    members = _META_KEYS(meta)
    names = [name for name in members if name.startswith(ADDED)][:ADDED_KEYS_MAX]
    size_bytes = letter_bytes = 0
    for name in names:
        # A name and its value have a colon between them and a comma behind.
        size = len(msgspec.json.encode(name)) + len(members[name]) + 2
        if name in OF_A_LETTER:
            letter_bytes += size
        else:
            size_bytes += size
    return len(names), min(size_bytes, ADDED_BYTES_MAX) + min(letter_bytes, LETTER_BYTES_MAX)


def _batch_node(node: str | None, limits: Limits) -> str | None:
    if node is not None:
        check_lengths([node], limits.max_node_bytes, "node", path="$.node")
    return node


def _nodes(
    records: Sequence[RecordBody], batch_node: str | None, limits: Limits
) -> str | list[str | None] | None:
    own = list(map(_NODE, records))
    _batch_node(batch_node, limits)
    if own.count(None) == len(own):
        return batch_node
    check_lengths(own, limits.max_node_bytes, "node")
    return [batch_node if n is None else n for n in own]


def _is_marked(record: RecordBody) -> bool:
    return (
        record.form is not None
        or record.key is not None
        or record.time is not None
        or record.headers is not None
    )


def _metas(
    records: Sequence[RecordBody], limits: Limits, *, has_marks: bool
) -> list[Buffer | None] | None:
    metas: list[Any] = list(map(_META, records))
    if has_marks:
        metas = metas_of(records, metas)
    if metas.count(None) == len(metas):
        return None
    for i, meta in enumerate(metas):
        if meta is not None:
            headers = records[i].headers if has_marks else None
            metas[i] = _meta(bytes(meta), limits, f"$.records[{i}].meta", headers)
    return None if metas.count(None) == len(metas) else metas


def _meta(meta: bytes, limits: Limits, path: str, headers: Raw | None) -> bytes | None:
    if meta == b"null":
        return None
    if not meta.startswith(b"{"):
        raise invalid("expected `object`", path)
    what = _beyond(meta, limits)
    if what and not _is_made_of(headers, meta, limits):
        raise invalid(f"meta {what}", path)
    return meta


def _beyond(meta: bytes, limits: Limits) -> str:
    """Which limit a meta exceeds; empty: none."""
    beyond = len(meta) - limits.max_meta_bytes
    if beyond > ADDED_BYTES_MAX + LETTER_BYTES_MAX or (beyond > 0 and beyond > _added(meta)[1]):
        return f"of {len(meta)} bytes exceeds {limits.max_meta_bytes}"
    # Every key has a colon, so few colons are few keys; only the rest is worth a parse.
    if meta.count(b":") > META_KEYS_MAX:
        beyond = len(_META_KEYS(meta)) - META_KEYS_MAX
        if beyond > 0 and beyond > _added(meta)[0]:
            return f"has more than {META_KEYS_MAX} keys"
    return ""


def _is_made_of(headers: Raw | None, meta: bytes, limits: Limits) -> bool:
    """Whether a meta is nothing but headers, as that of a record of Kafka's is: then the record's bounds hold alone."""
    if headers is None or max(len(meta), len(headers)) > limits.max_record_bytes:
        return False
    made = meta_of(headers)
    return made is not None and _JSON(meta) == _JSON(made)
