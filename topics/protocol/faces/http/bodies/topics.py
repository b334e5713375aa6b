"""Bodies about a topic: its config, and what to delete of it."""

from typing import Final

import msgspec

from topics.protocol.faces.http.bodies.checks import clamp, clamped_lease, given, tag_match, u64
from topics.protocol.faces.http.bodies.types import ConfigBody, DeleteBody, PurgeBody
from topics.protocol.faces.http.decoding import decode, invalid
from topics.protocol.model.commands import DeleteRecords, Purge, PutTopic
from topics.protocol.model.config import CLAIM_JITTER_MS_MAX, PRIORITY_MAX, TopicConfig
from topics.protocol.model.durability import durability_of
from topics.protocol.model.limits import Limits
from topics.protocol.model.names import require_topic_name
from topics.protocol.model.records import Buffer
from topics.protocol.model.tags import parse_subject

TOPIC_DEFAULTS: Final = TopicConfig()
_DEFAULT_LIMITS: Final = Limits()
_CONFIG: Final = msgspec.json.Decoder(ConfigBody)
_DELETE: Final = msgspec.json.Decoder(DeleteBody)
_PURGE: Final = msgspec.json.Decoder(PurgeBody)


def resolve_config(body: ConfigBody, topic: str, path: str = "$") -> TopicConfig:
    """A config with every field resolved: defaults, clamps, and durability from `durable`."""
    default = TOPIC_DEFAULTS

    def natural(field: str) -> int:
        return u64(getattr(body, field), f"{path}.{field}", getattr(default, field))

    durability = body.durability or durability_of(durable=bool(body.durable))
    priority = body.priority
    if body.dead_letter is not None:
        require_topic_name(body.dead_letter, path=f"{path}.dead_letter")
        if body.dead_letter == topic:
            raise invalid("dead_letter names the topic itself", f"{path}.dead_letter")
    return TopicConfig(
        type=body.type or default.type,
        ttl_ms=natural("ttl_ms"),
        cap_records=natural("cap_records"),
        cap_bytes=natural("cap_bytes"),
        discard=body.discard or default.discard,
        durable=durability == durability_of(durable=True),
        durability=durability,
        priority=None if priority is None else clamp(priority, -PRIORITY_MAX, PRIORITY_MAX),
        auto_priority=given(body.auto_priority, default.auto_priority),
        auto_create=given(body.auto_create, default.auto_create),
        idempotency_window_ms=natural("idempotency_window_ms"),
        dedupe_node=given(body.dedupe_node, default.dedupe_node),
        lease_ms=clamped_lease(given(body.lease_ms, default.lease_ms)),
        claim_jitter_ms=min(
            given(body.claim_jitter_ms, default.claim_jitter_ms), CLAIM_JITTER_MS_MAX
        ),
        max_deliveries=natural("max_deliveries"),
        dead_letter=body.dead_letter,
        leases_durable=given(body.leases_durable, default.leases_durable),
    )


def parse_put(topic: str, body: Buffer) -> PutTopic:
    asked = decode(_CONFIG, body)
    return PutTopic(topic, resolve_config(asked, topic), asked.type is not None)


def parse_delete(topic: str, body: Buffer, limits: Limits = _DEFAULT_LIMITS) -> DeleteRecords:
    asked = decode(_DELETE, body)
    match = tag_match(asked.match, limits)
    if asked.before_seq is None and match is None:
        raise invalid("expected before_seq or match", "$")
    before = None if asked.before_seq is None else u64(asked.before_seq, "$.before_seq")
    return DeleteRecords(topic, before, match, bool(asked.erase))


def parse_purge(topic: str, body: Buffer) -> Purge:
    asked = decode(_PURGE, body)
    if asked.seq is not None and asked.keep is not None:
        raise invalid("seq and keep exclude each other", "$.keep")
    return Purge(
        topic,
        None if asked.seq is None else u64(asked.seq, "$.seq"),
        None if asked.keep is None else u64(asked.keep, "$.keep"),
        None if asked.filter is None else parse_subject(asked.filter),
    )
