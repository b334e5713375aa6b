"""What is configured: a topic (§0.10) and a router (§6.1), with fields, defaults and bounds."""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from topics.protocol.model.durability import DURABILITIES, Durability, DurabilityClass
from topics.protocol.model.kafka_configs import (
    DELETE_RETENTION,
    KEPT,
    MAX_COMPACTION_LAG,
    MAX_TIME_AFTER,
    MAX_TIME_BEFORE,
    MIN_COMPACTION_LAG,
    MIN_DIRTY_RATIO,
)

TopicType = Literal["log", "queue"]
Discard = Literal["old", "reject"]
Guarantee = Literal["at_least_once", "exactly_once"]

PRIORITY_MAX: Final = 1000
LEASE_MS_MIN: Final = 100
LEASE_MS_MAX: Final = 86_400_000
CLAIM_JITTER_MS_MAX: Final = 5000
MESSAGE_BYTES: Final = 1_048_588
"""A record batch of Kafka's clients, where a topic says nothing else: Kafka's own bound."""
MESSAGE_BYTES_MAX: Final = 2**31 - 1
PARTITIONS_MAX: Final = 1000
BACKOFF_MS_MAX: Final = 86_400_000
"""A job rests, and a rate counts, a day at most."""
TimestampType = Literal["CreateTime", "LogAppendTime"]
Order = Literal["group"]


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """At most `max` jobs are started in any `per_ms`."""

    max: int
    per_ms: int


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """How long a job rests that was not done: `base_ms` × `factor` ^ (deliveries − 1), at most `max_ms`, less up to the
    share `jitter` of it."""

    base_ms: int
    factor: float = 2.0
    max_ms: int = BACKOFF_MS_MAX
    jitter: float = 0.0


class TopicConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A topic's config in force, every field resolved; echoed whole in every answer.

    The queue fields (`lease_ms` and after) are kept and inert on a log.  The fields from `max_message_bytes`
    on are shown where they are given, and nowhere else.

    Attributes:
        partitions: How many logs the topic is; UNSET: one.
        compact: Of records with one key the newest stays, and older ones are deleted.
        result_ttl_ms: How long what became of a job of the queue is kept; UNSET: an hour.
        keep_done: Of how many jobs that ended it is kept; UNSET: of 1,000.
        kafka_configs: Configs of Kafka's clients that no other field says, by their names there.
        order: "group": jobs of a group are done one after another.
        fair: Claims take groups in turn.
        rate: How many jobs are started, at most.
        max_in_flight, group_max_in_flight: How many may be in flight, of the queue and of a group.
        backoff: How long a job rests that was not done, where nobody says.
    """

    type: TopicType = "log"
    ttl_ms: int = 0
    cap_records: int = 0
    cap_bytes: int = 0
    discard: Discard = "old"
    durable: bool = False
    durability: Durability = "disk"
    priority: int | None = None
    auto_priority: bool = True
    auto_create: bool = True
    idempotency_window_ms: int = 120_000
    dedupe_node: bool = True
    lease_ms: int = 30_000
    claim_jitter_ms: int = 0
    max_deliveries: int = 0
    dead_letter: str | None = None
    leases_durable: bool = False
    max_message_bytes: int | UnsetType = UNSET
    message_timestamp_type: TimestampType | UnsetType = UNSET
    partitions: int | UnsetType = UNSET
    compact: bool | UnsetType = UNSET
    kafka_configs: Mapping[str, str] | UnsetType = UNSET
    order: Order | UnsetType = UNSET
    fair: bool | UnsetType = UNSET
    rate: Rate | UnsetType = UNSET
    max_in_flight: int | UnsetType = UNSET
    group_max_in_flight: int | UnsetType = UNSET
    backoff: Backoff | UnsetType = UNSET
    result_ttl_ms: int | UnsetType = UNSET
    keep_done: int | UnsetType = UNSET

    @property
    def partition_count(self) -> int:
        """How many logs the topic is."""
        return 1 if self.partitions is UNSET else self.partitions

    @property
    def is_compacted(self) -> bool:
        """Only the newest record of each key stays."""
        return self.compact is True

    @property
    def delete_retention_ms(self) -> int:
        """A record of a null value that is the newest of its key stays this long in a compacted topic."""
        return int(self.kafka_config(DELETE_RETENTION))

    @property
    def min_compaction_lag_ms(self) -> int:
        """No record younger than this is compacted away."""
        return int(self.kafka_config(MIN_COMPACTION_LAG))

    @property
    def max_compaction_lag_ms(self) -> int:
        """A record that has a newer one of its key is compacted away after this, however few there are."""
        return int(self.kafka_config(MAX_COMPACTION_LAG))

    @property
    def min_dirty_ratio(self) -> float:
        """Which part of a topic is to be new since its last compaction before the next is worth it."""
        return float(self.kafka_config(MIN_DIRTY_RATIO))

    @property
    def time_bounds_ms(self) -> tuple[int, int] | None:
        """How much earlier, and how much later, than its append a record may be by the time of its producer; None:
        any time is taken."""
        if not self.kafka_configs or self.has_append_time:
            return None
        return int(self.kafka_config(MAX_TIME_BEFORE)), int(self.kafka_config(MAX_TIME_AFTER))

    def kafka_config(self, name: str) -> str:
        """A config that is kept as text for Kafka's clients, by its name there."""
        kept = self.kafka_configs or {}
        return kept.get(name, KEPT[name].default)

    @property
    def batch_bytes_max(self) -> int:
        """Of a record batch, as it comes."""
        given = self.max_message_bytes
        return MESSAGE_BYTES if given is UNSET else given

    @property
    def has_append_time(self) -> bool:
        """Records of Kafka's clients get the time of their append for that of their producer."""
        return self.message_timestamp_type == "LogAppendTime"

    @property
    def durability_class(self) -> DurabilityClass:
        """What `durability` promises."""
        return DURABILITIES[self.durability]


class RouterConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A router as it was asked for (§6.1): whatever is appended to `source` goes to `dest` too.

    `filter` is a question about tags, resolved: `("tag", "Eq" or "Glob", text)`.
    """

    source: str
    dest: str
    preserve_node: bool = True
    preserve_tag: bool = True
    filter: tuple[str, str, str] | None = None
    allow_cycle: bool = False
    guarantee: Guarantee = "at_least_once"
