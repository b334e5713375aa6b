"""What goes in and comes out of a call, as typed values.

Unknown fields of an answer are ignored (§0.1), so an older client reads a newer server.  `seq`
counts from 1; times are milliseconds since the epoch.
"""

from collections.abc import Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

D = TypeVar("D")
R = TypeVar("R")

_SERVED: Final = {"seq": "$seq", "ts_ms": "$ts", "node": "$node", "tag": "$tag"}


class NewRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A record to append, where a bare value is not enough.

    `data` is anything that JSON can say (a NaN is sent as null); `msgspec.Raw(b"...")` is sent byte
    for byte.
    """

    data: Any
    tag: str | None = None
    node: str | None = None
    meta: Mapping[str, Any] | msgspec.Raw | None = None


class Record(
    msgspec.Struct, Generic[D], frozen=True, kw_only=True, omit_defaults=True, rename=_SERVED
):
    """A record as it was read.

    `Record[Departure]` decodes `data` into that type (a dataclass, a TypedDict, a msgspec Struct).
    `tag` is None unless tags were asked for.
    """

    seq: int
    ts_ms: int
    node: str | None = None
    tag: str | None = None
    data: D
    meta: dict[str, Any] | None = None


class RawRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename=_SERVED):
    """A record whose JSON is left alone: `bytes(record.data)` is what was stored, byte for byte.

    `msgspec.json.encode(record)` gives the record's text as the server sent it.
    """

    seq: int
    ts_ms: int
    node: str | None = None
    tag: str | None = None
    data: msgspec.Raw
    meta: msgspec.Raw = msgspec.Raw(b"")


class RecordHead(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename=_SERVED):
    """A record without its data, as `watch(..., include_data=False)` gives it."""

    seq: int
    ts_ms: int
    node: str | None = None
    tag: str | None = None
    meta: dict[str, Any] | None = None


class Tombstone(msgspec.Struct, frozen=True, kw_only=True):
    """Records that were lost before this reader saw them: seqs [gap_from, gap_to], inclusive.

    `reason` is "cap", "ttl", "mixed", "recreated", "source_trim" or "crash"; of a watch also
    "from_seq_too_old", where it began or came back too late.
    """

    gap_from: int
    gap_to: int
    reason: str
    missed_estimate: int = 0
    earliest_seq: int = 0
    head_seq: int = 0


class TopicGone(msgspec.Struct, frozen=True, kw_only=True):
    """A watched topic was deleted; no item of it follows.  `head_seq` is its last head."""

    head_seq: int = 0


class Watched(NamedTuple, Generic[R]):
    """What a watch gives: an item, and the topic that it is of."""

    topic: str
    item: R | Tombstone | TopicGone


class WatchPosition(msgspec.Struct, frozen=True, kw_only=True):
    """Where a watch session stands in one topic when it is made."""

    from_seq: int
    head_seq: int
    earliest_seq: int
    epoch: str | None = None


class WatchSession(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription that the server keeps; a topic that it does not know is not in `topics`."""

    wid: str
    topics: dict[str, WatchPosition]
    heartbeat_ms: int | None = None


class Diff(msgspec.Struct, Generic[R], frozen=True, kw_only=True):
    """One page of a topic: the records after a cursor, and where to go on."""

    records: list[R]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    caught_up: bool
    lag: int = 0
    tombstone: Tombstone | None = None
    epoch: str | None = None


class TopicConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A topic's config in force, every field resolved (§0.10)."""

    type: str = "log"
    ttl_ms: int = 0
    cap_records: int = 0
    cap_bytes: int = 0
    discard: str = "old"
    durable: bool = False
    durability: str = "disk"
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


class Configured(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of `put_topic`; `created` only where this call made the topic."""

    topic: str
    created: bool
    config: TopicConfig


class TopicState(msgspec.Struct, frozen=True, kw_only=True):
    """Where a topic stands: live seqs lie in [earliest_seq, head_seq], `count` of them."""

    topic: str
    head_seq: int
    earliest_seq: int
    next_seq: int
    count: int
    bytes: int
    config: TopicConfig
    type: str = "log"
    effective_priority: int = 0
    last_write_ts: int | None = None
    last_read_ts: int | None = None
    epoch: str | None = None


class TopicSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One topic of the list."""

    topic: str
    head_seq: int
    earliest_seq: int
    count: int
    bytes: int
    durable: bool = False
    effective_priority: int = 0


class TopicsPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of the list; no `next_cursor` on the last."""

    topics: list[TopicSummary]
    next_cursor: str | None = None


class TopicDeleted(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of `delete_topic`; `deleted` is false where there was none."""

    topic: str
    deleted: bool
    routers_removed: list[str] = []


class Appended(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of an append: its records have the seqs [first_seq, last_seq], inclusive.

    `deduped` says that an earlier attempt with the same key had already appended them.
    """

    topic: str
    first_seq: int
    last_seq: int
    head_seq: int
    created: bool = False
    deduped: bool = False

    @property
    def count(self) -> int:
        return self.last_seq - self.first_seq + 1

    @property
    def seqs(self) -> range:
        """Seqs of the records, in the order in which they were given."""
        return range(self.first_seq, self.last_seq + 1)


class AppendedMany(msgspec.Struct, frozen=True, kw_only=True):
    """Sum of the batches of one `append_many`.

    Batches of other writers may stand between ours, so `last_seq - first_seq + 1 >= records`.

    Attributes:
        records: Records acknowledged, the deduplicated ones included.
        deduped: How many of them an earlier attempt had already appended.
        first_seq: 0 where there was nothing to append.
        last_seq: 0 where there was nothing to append.
    """

    topic: str
    records: int = 0
    deduped: int = 0
    batches: int = 0
    first_seq: int = 0
    last_seq: int = 0


class Deleted(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of `delete`: how many records went, and the topic's state after it."""

    topic: str
    deleted: int
    head_seq: int
    earliest_seq: int
    count: int
    bytes: int


class Purged(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of `purge`: how many records went, and the topic's state after it."""

    topic: str
    purged: int
    head_seq: int
    earliest_seq: int
    count: int
    bytes: int
    success: bool = True


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The process answers."""

    status: str
    version: str
    uptime_ms: int


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """The server serves: its log is replayed."""

    status: str
    wal_replay_complete: bool = True
    topics: int = 0
