"""The values that calls take and return.

Unknown fields of an answer are ignored (§0.1), so an older client reads a newer server.  `seq`
counts from 1; times are milliseconds since the epoch.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

import msgspec

from topics.client.showing import page_line, page_table

D = TypeVar("D")
J = TypeVar("J")
R = TypeVar("R")

Guarantee = Literal["at_least_once", "exactly_once"]
"""What a router promises when the server comes back from a crash (§6)."""

_SERVED: Final = {
    **{"seq": "$seq", "ts_ms": "$ts", "node": "$node", "tag": "$tag"},
    **{"form": "$form", "key": "$key", "time": "$time", "headers": "$headers"},
}


class Unique(msgspec.Struct, frozen=True, omit_defaults=True):
    """A key that one job of a queue has at a time (§10).

    Attributes:
        key: At most 256 bytes.
        on_conflict: Where a job has the key already: "keep" makes no other, "replace" removes it where it
            waits, and takes its place.
        for_ms: So long after the append the key is held, even if the job is done before.
    """

    key: str
    on_conflict: Literal["keep", "replace"] = "keep"
    for_ms: int = 0


class NewRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A record to append, where a bare value is not enough.

    `data` is anything that JSON has a form for; a NaN or an infinity is a `ValueError`.
    `msgspec.Raw(b"...")` is sent byte for byte.  `form`, `key`, `time` and `headers` are those of a record
    of Kafka's clients, as it was read.  Without a `partition` the server places it by its tag or key.

    The rest is for jobs, the records of a queue (§10); a log refuses them.

    Attributes:
        delay_ms: The job may not be claimed for so long.
        not_before: Instead of `delay_ms`: it may not be claimed before, milliseconds since the epoch.
        priority: Within [-128, 127]; jobs of a higher one are claimed first.
        expires_ms: It ends unless it is claimed so soon after it may be.
        group: With which jobs it takes turns; by default those with its tag.
        unique: A key: while a job has it, an append of the key makes no second one.
    """

    data: Any
    tag: str | None = None
    node: str | None = None
    meta: Mapping[str, Any] | msgspec.Raw | None = None
    form: Literal["text", "base64", "null"] | None = None
    key: str | None = None
    time: int | None = None
    headers: Sequence[tuple[str | Mapping[str, str], Any]] | msgspec.Raw | None = None
    partition: int | None = None
    delay_ms: int | None = None
    not_before: int | None = None
    priority: int | None = None
    expires_ms: int | None = None
    group: str | None = None
    unique: str | Unique | None = None


class Record(
    msgspec.Struct,
    Generic[D],
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    repr_omit_defaults=True,
    rename=_SERVED,
):
    """A record as it was read.

    `Record[Departure]` decodes `data` into that type (a dataclass, a TypedDict, a msgspec Struct).
    `tag` is None unless tags were asked for.  `form`, `key`, `time` and `headers` are there where a client
    of Kafka's wrote the record.
    """

    seq: int
    ts_ms: int
    node: str | None = None
    form: str | None = None
    key: str | None = None
    time: int | None = None
    headers: list[tuple[str | dict[str, str], Any]] | None = None
    tag: str | None = None
    data: D
    meta: dict[str, Any] | None = None


class RawRecord(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    repr_omit_defaults=True,
    rename=_SERVED,
):
    """A record whose JSON is not decoded: `bytes(record.data)` is what was stored, byte for byte.

    `msgspec.json.encode(record)` gives the record's text as the server sent it.
    """

    seq: int
    ts_ms: int
    node: str | None = None
    form: str | None = None
    key: str | None = None
    time: int | None = None
    headers: msgspec.Raw = msgspec.Raw(b"")
    tag: str | None = None
    data: msgspec.Raw
    meta: msgspec.Raw = msgspec.Raw(b"")


class RecordHead(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    repr_omit_defaults=True,
    rename=_SERVED,
):
    """A record without its data, as `watch(..., include_data=False)` yields it."""

    seq: int
    ts_ms: int
    node: str | None = None
    tag: str | None = None
    meta: dict[str, Any] | None = None


class Tombstone(msgspec.Struct, frozen=True, kw_only=True):
    """Records that were lost before this reader saw them: seqs [gap_from, gap_to], inclusive.

    `reason` is "cap", "ttl", "mixed", "recreated", "source_trim" or "crash"; of a watch also
    "from_seq_too_old", where it began, or was resumed, below the earliest record.
    """

    gap_from: int
    gap_to: int
    reason: str
    missed_estimate: int = 0
    earliest_seq: int = 0
    head_seq: int = 0


class TopicGone(msgspec.Struct, frozen=True, kw_only=True):
    """A watched topic was deleted; no item of it follows.  `head_seq` is its last head, of several partitions the
    first one's."""

    head_seq: int = 0


class _Pair(NamedTuple, Generic[R]):
    topic: str
    item: R | Tombstone | TopicGone


class Watched(_Pair[R]):
    """An item of a watch, with the name of its topic: `topic, item = watched`.

    Attributes:
        partition: Which one of the topic the item is of; 0 where it has one.
    """

    partition: int = 0


class PartitionPosition(msgspec.Struct, frozen=True, kw_only=True):
    """The position of a watch session in one partition when it is created."""

    partition: int
    from_seq: int
    head_seq: int
    earliest_seq: int
    epoch: str | None = None


class WatchPosition(msgspec.Struct, frozen=True, kw_only=True):
    """The position of a watch session in one topic when it is created.

    Attributes:
        partitions: Of a topic with several: those that are watched.  The other fields are the first one's.
    """

    from_seq: int
    head_seq: int
    earliest_seq: int
    epoch: str | None = None
    partitions: list[PartitionPosition] = []


class WatchSession(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription that the server keeps; a topic that does not exist is not in `topics`."""

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

    def __repr__(self) -> str:
        return page_line(self, self.records)

    def _repr_html_(self) -> str:
        return page_table(self, self.records)


class StablePage(msgspec.Struct, Generic[R], frozen=True, kw_only=True):
    """One page of a topic, without anything that moves while the page stays as it is.

    `etag` names it: pages of one `etag` are equal.  A tombstone has no `earliest_seq` and `head_seq`
    here.
    """

    records: list[R]
    next_from_seq: int
    tombstone: Tombstone | None = None
    etag: str | None = None

    def __repr__(self) -> str:
        return page_line(self, self.records)

    def _repr_html_(self) -> str:
        return page_table(self, self.records)


class LatestPage(msgspec.Struct, Generic[R], frozen=True, kw_only=True):
    """The newest records of some tags; without `next_cursor` there are no more.

    `partitions` is parallel to `records` where the topic has several, and else empty.
    """

    records: list[R]
    epoch: str
    partitions: list[int] = []
    next_cursor: str | None = None

    def __repr__(self) -> str:
        return page_line(self, self.records)

    def _repr_html_(self) -> str:
        return page_table(self, self.records)

    @property
    def items(self) -> list[R]:
        return self.records


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """At most `max` jobs of a queue are started in any `per_ms`."""

    max: int
    per_ms: int


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """How long a job rests that was not done: a queue's `backoff` (§0.10).

    Attributes:
        base_ms: After the first delivery.
        factor: By which it grows with each delivery.
        max_ms: The longest.
        jitter: Up to this share of it is left out, by chance.
    """

    base_ms: int
    factor: float = 2.0
    max_ms: int = 86_400_000
    jitter: float = 0.0


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
    max_message_bytes: int | None = None
    message_timestamp_type: str | None = None
    partitions: int | None = None
    compact: bool | None = None
    kafka_configs: Mapping[str, str] | None = None
    order: str | None = None
    fair: bool | None = None
    rate: Rate | None = None
    max_in_flight: int | None = None
    group_max_in_flight: int | None = None
    backoff: Backoff | None = None
    result_ttl_ms: int | None = None
    keep_done: int | None = None


class Configured(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of `put_topic`; `created` is true where this call created the topic."""

    topic: str
    created: bool
    config: TopicConfig


class QueueCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs of a queue are where: `ready + in_flight + delayed` is the `count` (§10.7).

    Attributes:
        ready: Could be claimed now.
        in_flight: Under a lease.
        delayed: Whose time has not come, or damaged.
        damaged: Of the delayed, those that cannot be read and are never handed out.
        dead_lettered: Moved to the dead-letter topic since the queue was created.
        blocked: Of the ready, those that wait for other jobs of their group.
        expired: Deleted since the queue was created, as nobody claimed them in time.
    """

    ready: int
    in_flight: int
    delayed: int = 0
    damaged: int = 0
    dead_lettered: int = 0
    blocked: int = 0
    expired: int = 0


class LostLately(msgspec.Struct, frozen=True, kw_only=True):
    """How much a topic lost in the last day for one `reason`, and when it did last (ms since the
    epoch).  Lost by `crash` and `source_trim` are sequence numbers, at most as many records."""

    reason: str
    records: int
    last_ts: int


class PartitionState(msgspec.Struct, frozen=True, kw_only=True):
    """One partition of a topic: `count` records are live, their seqs in [earliest_seq, head_seq]."""

    partition: int
    head_seq: int
    earliest_seq: int
    next_seq: int
    count: int
    bytes: int
    epoch: str | None = None


class TopicState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a topic: `count` records are live, their seqs in [earliest_seq, head_seq].

    `partitions` is empty where the topic has one.  Where it has several, `count` and `bytes` are sums,
    and the seqs and the epoch are those of the first.

    `queue` is None where the topic is a log.  `disk_bytes` is what its records take in `segments`
    segment files, deleted ones included until their file is rewritten.  `lost_24h` is what it lost in
    this hour and the 23 before, by reason; deletes are no loss.
    """

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
    queue: QueueCounts | None = None
    disk_bytes: int = 0
    segments: int = 0
    lost_24h: list[LostLately] = []
    partitions: list[PartitionState] = []


class TopicSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One topic of the list; `queue` is None where it is a log."""

    topic: str
    type: str = "log"
    head_seq: int
    earliest_seq: int
    count: int
    bytes: int
    durable: bool = False
    durability: str = "disk"
    effective_priority: int = 0
    queue: QueueCounts | None = None
    disk_bytes: int = 0


class TopicsPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of the list; no `next_cursor` on the last."""

    items: list[TopicSummary] = msgspec.field(name="topics")
    next_cursor: str | None = None


class TopicDeleted(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of `delete_topic`; `deleted` is false where it did not exist."""

    topic: str
    deleted: bool
    routers_removed: list[str] = []


class WrittenPartition(msgspec.Struct, frozen=True, kw_only=True):
    """Of an append, the records of one partition: their seqs are [first_seq, last_seq]."""

    partition: int
    first_seq: int
    last_seq: int

    @property
    def count(self) -> int:
        return self.last_seq - self.first_seq + 1


class Appended(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of an append: its records have the seqs [first_seq, last_seq], inclusive.

    `deduped` says that an earlier attempt with the same key had already appended them.

    Attributes:
        first_seq, last_seq, head_seq: 0 where the records are in several partitions.
        partitions: Of a topic with several: those that were written, and the seqs in each.
        unique: Of a queue: the jobs that had the unique keys of some records already.  Those records made
            no job: `seqs` has these jobs in their places, and [first_seq, last_seq] are of the others,
            or of these jobs where there are no others.
        replaced: Of a queue: the jobs that made way for those of this append.
    """

    topic: str
    first_seq: int = 0
    last_seq: int = 0
    head_seq: int = 0
    created: bool = False
    deduped: bool = False
    partitions: list[WrittenPartition] = []
    unique: list[int] = []
    replaced: list[int] = []
    listed: list[int] = msgspec.field(name="seqs", default_factory=list)

    @property
    def count(self) -> int:
        """Records of the append, also those that made no job."""
        if self.listed:
            return len(self.listed)
        if self.partitions:
            return sum(each.count for each in self.partitions)
        return self.last_seq - self.first_seq + 1

    @property
    def seqs(self) -> Sequence[int]:
        """Seqs of the records, in the order in which they were given; each is of its partition."""
        return self.listed or range(self.first_seq, self.last_seq + 1)


class AppendedMany(msgspec.Struct, frozen=True, kw_only=True):
    """Sum of the batches of one `append_many`.

    Batches of other writers may lie between these, so `last_seq - first_seq + 1 >= records - unique`.  Both
    are 0 where the topic has several partitions: there is no span of seqs.

    Attributes:
        records: Records acknowledged, the deduplicated ones included.
        deduped: How many of them an earlier attempt had already appended.
        first_seq: 0 where there was nothing to append.
        last_seq: 0 where there was nothing to append.
        unique: How many of them made no job, as another one had their unique key.
        replaced: How many jobs made way for them.
    """

    topic: str
    records: int = 0
    deduped: int = 0
    batches: int = 0
    first_seq: int = 0
    last_seq: int = 0
    unique: int = 0
    replaced: int = 0


class Deleted(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of `delete`: how many records went, and the topic's state after it.

    Attributes:
        log_retained_until_ms: Of a delete with `erase` on a node of a cluster: when the log of the cluster
            has dropped the bytes, too.
    """

    topic: str
    deleted: int
    head_seq: int
    earliest_seq: int
    count: int
    bytes: int
    log_retained_until_ms: int | None = msgspec.field(name="log_retained_until", default=None)


class Purged(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of `purge`: how many records went, and the topic's state after it."""

    topic: str
    purged: int
    head_seq: int
    earliest_seq: int
    count: int
    bytes: int
    success: bool = True


class Job(
    msgspec.Struct,
    Generic[D],
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    repr_omit_defaults=True,
    rename={**_SERVED, "deadline_ms": "deadline"},
):
    """A job as it was claimed: a record, and its lease.

    `Job[Resize]` decodes `data` into that type; `Job[msgspec.Raw]` does not decode it.

    Attributes:
        node: The writer of the record; None where it named none.
        lease_id: The id of this delivery's lease; an ack carries it, so that the ack of a worker
            that comes too late does not count.
        deadline_ms: When the lease ends, unless it is extended.
        deliveries: How often the job was handed out, this time included.
        priority: As it was appended.
        group: As it was appended; None where it was given none.
    """

    seq: int
    ts_ms: int
    node: str | None = None
    tag: str | None = None
    data: D
    meta: dict[str, Any] | None = None
    lease_id: str
    deadline_ms: int
    deliveries: int
    priority: int = 0
    group: str | None = None


class Claimed(msgspec.Struct, Generic[J], frozen=True, kw_only=True):
    """Answer of `claim`: at most `max` jobs, in the order in which they are to be done.

    Attributes:
        ready: So many more could be claimed after it.
        waits: Why this claim got none of these, where it asked for more: "rate" and "in_flight" are
            limits of the queue, "group" says that they wait for others of their group.
    """

    topic: str
    jobs: list[J] = msgspec.field(name="claimed")
    ready: int = 0
    waits: str | None = None

    @property
    def count(self) -> int:
        return len(self.jobs)


class Acked(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of `ack`: how many jobs were deleted, and the queue's counts after it.

    `skipped` are the seqs whose lease had ended; or which an earlier attempt of the same call,
    whose answer was lost, had settled.
    """

    topic: str
    acked: int
    skipped: list[int] = []
    ready: int = 0
    in_flight: int = 0


class Nacked(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of `nack`: how many jobs were given back; `skipped` as in `Acked`."""

    topic: str
    nacked: int
    skipped: list[int] = []
    ready: int = 0
    in_flight: int = 0


class Extended(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of `extend`: the new deadlines by seq; `skipped` are the seqs whose lease had
    ended."""

    topic: str
    extended: int
    skipped: list[int] = []
    deadlines_ms: dict[int, int] = msgspec.field(name="deadlines", default_factory=dict)


class JobReason(msgspec.Struct, frozen=True, kw_only=True):
    """Why a worker gave a job back, when, and which one."""

    time_ms: int = msgspec.field(name="time")
    node: str
    reason: str


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """Where a dead letter was put."""

    topic: str
    seq: int


class JobInfo(msgspec.Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """A job as `jobs` and `job` show it.

    Attributes:
        state: "ready", "delayed", "leased", "done" or "dead".
        ready_at_ms: When one that is delayed may be claimed.
        node: Who holds it, or was the last to.
        deadline_ms: When its lease ends.
        progress: What a worker last said it was at.
        reasons: Why it was given back: the last five, the oldest first.
        result: What came of it.
        dead_letter: Of a dead one.
        ended_at_ms: When it was done, or dead.
    """

    seq: int
    state: str
    group: str | None = None
    priority: int = 0
    deliveries: int = 0
    ready_at_ms: int | None = msgspec.field(name="ready_at", default=None)
    node: str | None = None
    deadline_ms: int | None = msgspec.field(name="deadline", default=None)
    progress: Any = None
    reasons: list[JobReason] = []
    result: Any = None
    dead_letter: DeadLetter | None = None
    ended_at_ms: int | None = msgspec.field(name="ended_at", default=None)


class JobsPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of `jobs`."""

    topic: str
    jobs: list[JobInfo]
    next_after: int | None = None

    @property
    def items(self) -> list[JobInfo]:
        return self.jobs

    @property
    def next_cursor(self) -> str | None:
        return None if self.next_after is None else str(self.next_after)


class JobsChanged(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of `promote`, `retry` and `cancel`: how many jobs matched, and how many were changed, or would be;
    where these are fewer, a further call changes more."""

    topic: str
    matched: int
    done: int


class Redriven(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of `redrive`: how many letters were moved, or would be; with `more`, a further call moves more."""

    topic: str
    to: str
    moved: int
    more: bool


class Blocked(msgspec.Struct, frozen=True, kw_only=True):
    """Why a router forwards nothing: what its destination answered, and when it tries again.

    Attributes:
        code: `error.code` of the refusal, e.g. "topic_full".
        since_ms: When it began, milliseconds since the epoch.
        retry_ms: The present pause between attempts.
    """

    code: str
    message: str = ""
    since_ms: int = msgspec.field(name="since", default=0)
    retry_ms: int = 0


class RouterLoss(msgspec.Struct, frozen=True, kw_only=True):
    """Records of the source, seqs [gap_from, gap_to], that were lost before they were forwarded."""

    gap_from: int
    gap_to: int
    reason: str = ""
    ts_ms: int = msgspec.field(name="ts", default=0)


class RouterConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of `put_router`; `created` is true where this call created the router."""

    router: str
    created: bool
    source: str
    dest: str
    preserve_node: bool = True
    preserve_tag: bool = True
    filter: str | tuple[str, str, str] | None = None
    allow_cycle: bool = False
    guarantee: str = "at_least_once"


class RouterSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One router of the list.

    Attributes:
        filter: The tags that are forwarded; None forwards all.
        forwarded_total: Copies appended to `dest` so far.
        lag: Records of the source that are still to be forwarded.
        blocked: Why it forwards nothing; None while it does.
    """

    router: str
    source: str
    dest: str
    guarantee: str = "at_least_once"
    filter: str | tuple[str, str, str] | None = None
    forwarded_total: int = 0
    lag: int = 0
    blocked: Blocked | None = None


class Router(RouterSummary, frozen=True, kw_only=True):
    """A router, and how far it is.

    Attributes:
        cursor_seq: The last seq of the source that was forwarded.
        lost_total: Records of the source that were lost before they were forwarded.
        loss: The last such loss.
    """

    preserve_node: bool = True
    preserve_tag: bool = True
    allow_cycle: bool = False
    cursor_seq: int = msgspec.field(name="cursor", default=0)
    lost_total: int = 0
    loss: RouterLoss | None = None


class RoutersPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of the list; no `next_cursor` on the last."""

    items: list[RouterSummary] = msgspec.field(name="routers")
    next_cursor: str | None = None


class RouterDeleted(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of `delete_router`; `deleted` is false where it did not exist."""

    router: str
    deleted: bool


class ScheduleLastRun(msgspec.Struct, frozen=True, kw_only=True):
    """The last record that a schedule appended.

    Attributes:
        at_ms: Its tick, as `meta["$schedule_at"]` says.
        ts_ms: When it was appended.
    """

    at_ms: int = msgspec.field(name="at")
    ts_ms: int = msgspec.field(name="ts")
    topic: str
    partition: int = 0
    seq: int


class ScheduleSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One schedule of the list.

    Attributes:
        cron, every_ms, at_ms: One of them is not None.
        tz: The time zone of `cron`.
        next_at_ms: The next tick; None where there is none, or it is paused.
        last_run: The last record; None before the first.
        missed_total: Ticks that did not happen.
        blocked: Why its topic does not take the record; None while it does.
    """

    schedule: str
    topic: str
    cron: str | None = None
    every_ms: int | None = None
    at_ms: int | None = msgspec.field(name="at", default=None)
    tz: str | None = None
    missed: str = "one"
    until_ms: int | None = msgspec.field(name="until", default=None)
    paused: bool = False
    next_at_ms: int | None = msgspec.field(name="next_at", default=None)
    last_run: ScheduleLastRun | None = None
    fired_total: int = 0
    missed_total: int = 0
    blocked: Blocked | None = None


class ScheduledRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record that each tick appends."""

    data: Any
    tag: str | None = None
    node: str | None = None
    meta: dict[str, Any] | None = None
    form: str | None = None
    key: str | None = None
    time: int | None = None
    headers: list[Any] | None = None
    partition: int | None = None
    delay_ms: int | None = None
    not_before: int | None = None
    priority: int | None = None
    expires_ms: int | None = None
    group: str | None = None
    unique: str | dict[str, Any] | None = None


class Schedule(ScheduleSummary, frozen=True, kw_only=True):
    """A schedule, and what it appends.

    Attributes:
        config: Of the topic, where a tick makes it; None: the server's defaults.
        created_at_ms: When it was made: `every_ms` counts from then.
    """

    record: ScheduledRecord
    config: TopicConfig | None = None
    created_at_ms: int = msgspec.field(name="created_at", default=0)


class SchedulePut(Schedule, frozen=True, kw_only=True):
    """Answer of `put_schedule`; `created` is true where this call created the schedule."""

    created: bool


class SchedulesPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of the list; no `next_cursor` on the last."""

    items: list[ScheduleSummary] = msgspec.field(name="schedules")
    next_cursor: str | None = None


class SchedulePaused(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of `pause_schedule` and `resume_schedule`; `changed` is false where it was so before."""

    schedule: str
    paused: bool
    changed: bool
    next_at_ms: int | None = msgspec.field(name="next_at", default=None)


class ScheduleRun(ScheduleLastRun, frozen=True, kw_only=True):
    """Answer of `run_schedule`: where the record is."""

    schedule: str


class ScheduleDeleted(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of `delete_schedule`; `deleted` is false where it did not exist."""

    schedule: str
    deleted: bool


class GroupSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One group of the list.

    Attributes:
        kind: How its members share partitions: "classic", they do so themselves.
        state: "empty" without members, "stable" while they read; between both, a "…_rebalance".
        members: How many.
    """

    group: str
    kind: str = "classic"
    state: str = ""
    generation: int = 0
    protocol_type: str = ""
    members: int = 0


class GroupsPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of the list; no `next_cursor` on the last."""

    items: list[GroupSummary] = msgspec.field(name="groups")
    next_cursor: str | None = None


class Assigned(msgspec.Struct, frozen=True, kw_only=True):
    """Partitions of a topic that a member reads."""

    topic: str
    partitions: list[int]


class GroupMember(msgspec.Struct, frozen=True, kw_only=True):
    """A member of a group: a client that speaks Kafka's protocol.

    Attributes:
        assignment: What it reads; None where the server cannot tell.
    """

    member_id: str
    client_id: str = ""
    client_host: str = ""
    instance_id: str | None = None
    assignment: list[Assigned] | None = None


class GroupOffset(msgspec.Struct, frozen=True, kw_only=True):
    """How far a group is in a partition.

    Attributes:
        seq: Records up to here are done with; give it as `from_seq`.
        ts_ms: When it was committed.
        lag: Records behind it that are there, up to the head, at most.
        lost: Sequence numbers behind it that were lost before the group came there.
    """

    topic: str
    partition: int = 0
    seq: int
    ts_ms: int = msgspec.field(name="ts", default=0)
    lag: int = 0
    lost: int = 0


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """A group, its members, and how far it is; fields as in `GroupSummary`.

    Attributes:
        protocol: How its members assign partitions, e.g. "range".
        offsets: The first 1,000; `group_offsets` has all.
    """

    group: str
    kind: str = "classic"
    state: str = ""
    generation: int = 0
    protocol_type: str = ""
    protocol: str = ""
    members: list[GroupMember] = []
    offsets: list[GroupOffset] = []
    next_cursor: str | None = None

    @property
    def items(self) -> list[GroupOffset]:
        """Of one page of offsets."""
        return self.offsets


class OffsetsCommitted(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of `commit_offsets`: how many were stored."""

    group: str
    committed: int


class GroupDeleted(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of `delete_group`."""

    group: str
    deleted: bool


class ConnectedTopic(msgspec.Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """A topic, or one of its partitions, that a connected client has to do with.

    Attributes:
        partition: Its number, where the topic has several.
        seq: The last record that the client was sent; None of a worker.
        lag: Sequence numbers between that and the head; None where it is not known.
    """

    topic: str
    partition: int | None = None
    seq: int | None = None
    lag: int | None = None


class ConnectedClient(msgspec.Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """A client that is connected to the server, as `clients` shows it.

    Attributes:
        client: Its id.
        kind: "watch", "websocket", "work", "read", "claim", "job" or "kafka".
        key: The name of its key, never the key.
        address: Where it comes from.
        since_ms: When it came, in milliseconds since the epoch.
        agent: What its program calls itself.
        node: What a worker calls itself.
        group: The group of consumers that it has joined.
        in_flight: Jobs that a worker to which they are pushed holds.
        lag: The sum over its topics.
        topic_count: Its topics, each partition counted.
        topics: Up to 16 of them, the greatest lag first.
    """

    client: str
    kind: str
    key: str | None = None
    address: str = ""
    since_ms: int = 0
    agent: str | None = None
    node: str | None = None
    group: str | None = None
    in_flight: int | None = None
    lag: int | None = None
    topic_count: int = 0
    topics: list[ConnectedTopic] = []


class ClientsPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of `clients`."""

    items: list[ConnectedClient] = msgspec.field(name="clients")
    next_cursor: str | None = msgspec.field(name="next_after", default=None)


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
