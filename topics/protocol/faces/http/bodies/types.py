"""The types of request bodies, as JSON is decoded into them; `/v0/openapi.json` is made of them.

A field that is absent and one that is null mean the same.  `data`, `meta` and tag patterns stay text.
"""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Raw

from topics.protocol.model.config import Discard, Guarantee, TopicType
from topics.protocol.model.durability import Durability
from topics.protocol.model.limits import META_KEYS_MAX
from topics.protocol.model.tags import MATCH_TYPES

Natural = Annotated[int, Meta(ge=0)]
_ABSENT: Final[Any] = None
"""Of a field that is kept as text: none was given.  Not an empty `Raw`, which has no place in a
schema."""

AnyJson = Annotated[Raw, Meta(description="Any JSON value; kept byte for byte.")]
MetaObject = Annotated[
    Raw, Meta(extra_json_schema={"type": ["object", "null"], "maxProperties": META_KEYS_MAX})
]
TagPattern = Annotated[Raw, Meta(extra_json_schema={"anyOf": [*MATCH_TYPES, {"type": "null"}]})]


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


class AppendBody(msgspec.Struct, gc=False):
    records: list[RecordBody]
    node: str | None = None
    idempotency_key: str | None = None
    create: bool | None = None
    config: ConfigBody | None = None
    disable_backpressure: bool | None = None


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


class TrimBody(msgspec.Struct, forbid_unknown_fields=True):
    before: Natural | None = None
    now: bool | None = None
    alone: bool | None = None
    dry_run: bool | None = None


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
