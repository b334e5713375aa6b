"""The models of answers: what each outcome is on the wire, and what `/v0/openapi.json` says of it.

`topics.protocol.faces.http.answers` has the outcome that each is made of.  Answers are encoded from these,
in the order of their fields; those that hold stored text are spliced, by templates that a property
test holds against these.  A field is required unless its default is `UNSET`; one more is allowed always, since answers
grow within a version (§0.1).  `performance`, which ends every answer (§0.9), is in none of them: it
is known only when the answer is sent.

Their names are the schemas' in the document, so some are also those of the events or states that
they are the wire form of: `models.Tombstone` is a `state.Tombstone` with what a reader needs beside.
"""

from dataclasses import fields
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

from topics.protocol.model.config import Guarantee, RouterConfig, TopicConfig, TopicType
from topics.protocol.model.durability import Durability
from topics.protocol.model.errors import ErrorCode
from topics.protocol.model.limits import Limits

Seq = Annotated[int, Meta(ge=1, description="The record's number in its topic.")]
Ts = Annotated[int, Meta(ge=0, description="When it was appended, milliseconds since 1970.")]
Node = Annotated[str | UnsetType, Meta(description="Who wrote it; absent where no name was given.")]
Tag = Annotated[str | UnsetType, Meta(description="Its tag, where asked for; absent where none.")]
TopicName = Annotated[str, Meta(description="The topic's name.")]
HeadSeq = Annotated[int, Meta(ge=0, description="The greatest number given out; 0: none.")]
EarliestSeq = Annotated[
    int, Meta(ge=1, description="The first record that is there; `head_seq + 1`: none.")
]
Count = Annotated[int, Meta(ge=0, description="Records that are there.")]
Bytes = Annotated[int, Meta(ge=0, description="Their size as they are served.")]
DiskBytes = Annotated[
    int,
    Meta(
        ge=0,
        description="What its records take in segment files, deleted ones included until their "
        "file is rewritten; what is only in the log does not count.",
    ),
]
Epoch = Annotated[str, Meta(description="Which instance of the name this is.")]
Natural = Annotated[int, Meta(ge=0)]
Ms = Annotated[float, Meta(ge=0)]


class Performance(msgspec.Struct, kw_only=True):
    """How long it took, in milliseconds (§0.9)."""

    server_total_ms: Annotated[Ms, Meta(description="From the request's head to the answer.")]
    wal_append_ms: Annotated[Ms | UnsetType, Meta(description="The write to the log.")] = UNSET
    fsync_ms: Annotated[Ms | UnsetType, Meta(description="The wait for the disk.")] = UNSET
    records_scanned: Annotated[Natural | UnsetType, Meta(description="Records looked at.")] = UNSET
    throttle_wait_ms: Annotated[
        Ms, Meta(description="How long a write waited for room before it was decided.")
    ]


# ---------------------------------------------------------------------- errors (§0.5)

Code = Annotated[
    str,
    Meta(
        description="What to branch on.",
        extra_json_schema={"enum": [code.code for code in ErrorCode]},
    ),
]


class ErrorDetail(msgspec.Struct, kw_only=True):
    code: Code
    message: Annotated[str, Meta(description="For people; may change.")]
    detail: Annotated[
        dict[str, Any] | UnsetType, Meta(description="More about it, where there is more to say.")
    ] = UNSET


class ErrorEnvelope(msgspec.Struct, kw_only=True):
    """Whatever is not 2xx (§0.5)."""

    error: Annotated[ErrorDetail, Meta(description="What went wrong.")]
    performance: Annotated[
        Performance | UnsetType, Meta(description="Absent where no request was understood.")
    ] = UNSET


# ---------------------------------------------------------------------- topics (§1)


class QueueCounters(msgspec.Struct, kw_only=True):
    """A queue's jobs: `ready + in_flight + delayed` is `count` (§10.7)."""

    ready: Annotated[Natural, Meta(description="May be claimed.")]
    in_flight: Annotated[Natural, Meta(description="Under a lease.")]
    dead_lettered: Annotated[Natural, Meta(description="Moved away so far.")]
    delayed: Annotated[Natural | UnsetType, Meta(description="Wait; absent where 0.")] = UNSET
    damaged: Annotated[
        Natural | UnsetType,
        Meta(description="Of the delayed, those that cannot be read; absent where 0."),
    ] = UNSET


Counters = Annotated[QueueCounters | UnsetType, Meta(description="Queues only.")]
Priority = Annotated[int, Meta(description="Which topic's news a stream sends first (§0.10).")]


class TopicPut(msgspec.Struct, kw_only=True):
    topic: TopicName
    created: Annotated[bool, Meta(description="Whether this made it.")]
    config: Annotated[TopicConfig, Meta(description="The config in force.")]


class LostLately(msgspec.Struct, kw_only=True):
    reason: Annotated[
        Literal["cap", "ttl", "mixed", "crash", "source_trim"],
        Meta(description="As of a tombstone."),
    ]
    records: Annotated[
        int,
        Meta(
            ge=1,
            description="Records; with `crash` and `source_trim` sequence numbers, which are at most as "
            "many records.",
        ),
    ]
    last_ts: Annotated[Natural, Meta(description="When it happened last.")]


class TopicState(msgspec.Struct, kw_only=True):
    topic: TopicName
    type: Annotated[TopicType, Meta(description="A log, or a queue.")]
    epoch: Epoch
    head_seq: HeadSeq
    earliest_seq: EarliestSeq
    next_seq: Annotated[int, Meta(ge=1, description="`head_seq + 1`.")]
    count: Count
    bytes: Bytes
    disk_bytes: DiskBytes
    segments: Annotated[Natural, Meta(description="Segment files that its records are in.")]
    lost_24h: Annotated[
        list[LostLately],
        Meta(description="What it lost in this hour and the 23 before, by reason; no deletes."),
    ]
    config: Annotated[TopicConfig, Meta(description="The config in force.")]
    effective_priority: Priority
    last_write_ts: Annotated[Natural | None, Meta(description="`null`: not since the start.")]
    last_read_ts: Annotated[Natural | None, Meta(description="`null`: not since the start.")]
    queue: Counters = UNSET


class TopicSummary(msgspec.Struct, kw_only=True):
    topic: TopicName
    type: Annotated[TopicType, Meta(description="A log, or a queue.")]
    head_seq: HeadSeq
    earliest_seq: EarliestSeq
    count: Count
    bytes: Bytes
    disk_bytes: DiskBytes
    durable: Annotated[bool, Meta(description="Whether `durability` is `fsync`.")]
    durability: Annotated[Durability, Meta(description="The topic's class.")]
    effective_priority: Priority
    queue: Counters = UNSET


NextCursor = Annotated[
    str | UnsetType, Meta(description="Where to go on, as `?cursor=`; absent on the last page.")
]


class TopicList(msgspec.Struct, kw_only=True):
    topics: Annotated[list[TopicSummary], Meta(description="By name.")]
    next_cursor: NextCursor = UNSET


class TopicDeleted(msgspec.Struct, kw_only=True):
    topic: TopicName
    deleted: Annotated[bool, Meta(description="Whether there was one.")]
    routers_removed: Annotated[list[str], Meta(description="Routers that went with it.")]


# ---------------------------------------------------------------------- records (§2-§5)


class Appended(msgspec.Struct, kw_only=True):
    topic: TopicName
    first_seq: Annotated[int, Meta(ge=1, description="The first record's number.")]
    last_seq: Annotated[int, Meta(ge=1, description="The last record's number.")]
    seqs: Annotated[
        list[int] | UnsetType, Meta(description="All numbers, unless `return_seqs=false`.")
    ] = UNSET
    head_seq: HeadSeq
    count: Annotated[int, Meta(ge=1, description="Records in this write.")]
    created: Annotated[bool, Meta(description="Whether this made the topic.")]
    deduped: Annotated[bool, Meta(description="Whether its key was known (§0.8).")]


Data = Annotated[Any, Meta(description="As it was written, byte for byte.")]
MetaData = Annotated[
    dict[str, Any] | UnsetType, Meta(description="As it was written; absent where none.")
]


class TopicRecord(msgspec.Struct, kw_only=True):
    seq: Seq = field(name="$seq")
    ts: Ts = field(name="$ts")
    node: Node = field(name="$node", default=UNSET)
    tag: Tag = field(name="$tag", default=UNSET)
    data: Data
    meta: MetaData = UNSET


GapFrom = Annotated[int, Meta(ge=1, description="The first lost number.")]
GapTo = Annotated[int, Meta(ge=0, description="The last lost number.")]
Missed = Annotated[int, Meta(ge=0, description="The length of the gap.")]


Reason = Annotated[
    Literal["cap", "ttl", "mixed", "crash", "recreated", "source_trim"],
    Meta(description="How it was lost."),
]


class Tombstone(msgspec.Struct, kw_only=True):
    """What was lost (§3.3)."""

    gap_from: GapFrom
    gap_to: GapTo
    reason: Reason
    missed_estimate: Missed
    earliest_seq: EarliestSeq
    head_seq: HeadSeq


class Page(msgspec.Struct, kw_only=True):
    topic: TopicName
    records: Annotated[list[TopicRecord], Meta(description="In order.")]
    next_from_seq: Annotated[Natural, Meta(description="Where to go on.")]
    head_seq: HeadSeq
    earliest_seq: EarliestSeq
    caught_up: Annotated[bool, Meta(description="Whether `next_from_seq` is `head_seq`.")]
    tombstone: Annotated[Tombstone | None, Meta(description="What was lost, or `null`.")]
    lag: Annotated[Natural, Meta(description="`head_seq` - `next_from_seq`.")]
    epoch: Epoch


class Loss(msgspec.Struct, kw_only=True):
    """What was lost, without the marks of the topic, which move (§3.4)."""

    gap_from: GapFrom
    gap_to: GapTo
    reason: Reason
    missed_estimate: Missed


class StablePage(msgspec.Struct, kw_only=True):
    records: Annotated[list[TopicRecord], Meta(description="In order.")]
    tombstone: Annotated[Loss | None, Meta(description="What was lost, or `null`.")]
    next_from_seq: Annotated[Natural, Meta(description="Where to go on.")]


class RecordsDeleted(msgspec.Struct, kw_only=True):
    topic: TopicName
    deleted: Annotated[Natural, Meta(description="Records that this removed.")]
    earliest_seq: EarliestSeq
    head_seq: HeadSeq
    count: Count
    bytes: Bytes
    log_retained_until: Annotated[
        Natural | UnsetType,
        Meta(
            description="Of an erasure on a node of a cluster: until when the files of the cluster's log "
            "may have the bytes, milliseconds since the epoch (§5)."
        ),
    ] = UNSET


class Purged(msgspec.Struct, kw_only=True):
    topic: TopicName
    success: Annotated[Literal[True], Meta(description="Always.")]
    purged: Annotated[Natural, Meta(description="Records that this removed.")]
    earliest_seq: EarliestSeq
    head_seq: HeadSeq
    count: Count
    bytes: Bytes


# ---------------------------------------------------------------------- queues (§10)

LeaseId = Annotated[str, Meta(description="The lease's token; never given twice.")]
Deadline = Annotated[Natural, Meta(description="Through when the lease holds.")]
Deliveries = Annotated[int, Meta(ge=1, description="How often it was delivered, now included.")]


class Job(TopicRecord, kw_only=True):
    """A leased record (§10.2)."""

    lease_id: LeaseId
    deadline: Deadline
    deliveries: Deliveries


class Claimed(msgspec.Struct, kw_only=True):
    topic: TopicName
    claimed: Annotated[list[Job], Meta(description="Lowest number first.")]
    count: Annotated[Natural, Meta(description="Jobs in this answer.")]
    ready: Annotated[Natural, Meta(description="Jobs that may still be claimed.")]


Skipped = Annotated[list[Natural], Meta(description="Numbers that `node` does not hold.")]
ReadyJobs = Annotated[Natural, Meta(description="Jobs that may be claimed.")]
InFlight = Annotated[Natural, Meta(description="Jobs under a lease.")]


class Acked(msgspec.Struct, kw_only=True):
    topic: TopicName
    acked: Annotated[Natural, Meta(description="Jobs that are done, and deleted.")]
    skipped: Skipped
    ready: ReadyJobs
    in_flight: InFlight


class Nacked(msgspec.Struct, kw_only=True):
    topic: TopicName
    nacked: Annotated[Natural, Meta(description="Jobs that were given back.")]
    skipped: Skipped
    ready: ReadyJobs
    in_flight: InFlight


class Extended(msgspec.Struct, kw_only=True):
    topic: TopicName
    extended: Annotated[Natural, Meta(description="Leases that last longer.")]
    skipped: Skipped
    ready: ReadyJobs
    in_flight: InFlight
    deadlines: Annotated[dict[str, Natural], Meta(description="By number, when each ends.")]


# ---------------------------------------------------------------------- routers (§6)

RouterName = Annotated[str, Meta(description="The router's name.")]
Forwarded = Annotated[Natural, Meta(description="Copies made, ever.")]
Lag = Annotated[Natural, Meta(description="Numbers of the source that are not done with.")]


class Blocked(msgspec.Struct, kw_only=True):
    """The refusal that stops a router (§6.2)."""

    code: Code
    message: Annotated[str, Meta(description="For people; may change.")]
    since: Annotated[Natural, Meta(description="When it began.")]
    retry_ms: Annotated[Natural, Meta(description="In how many milliseconds it tries again.")]


class RouterLoss(msgspec.Struct, kw_only=True):
    """Numbers of the source that were lost before they were copied (§6.2)."""

    gap_from: GapFrom
    gap_to: GapTo
    reason: Annotated[str, Meta(description="As of a tombstone.")]
    ts: Annotated[Natural, Meta(description="When it was met.")]


BlockedBy = Annotated[Blocked | None, Meta(description="What stops it, or `null`.")]


class RouterPut(RouterConfig, frozen=True, kw_only=True):
    router: RouterName
    created: Annotated[bool, Meta(description="Whether this made it.")]


class RouterState(RouterConfig, frozen=True, kw_only=True):
    router: RouterName
    forwarded_total: Forwarded
    cursor: Annotated[Natural, Meta(description="The source's last number that is done with.")]
    lag: Lag
    blocked: BlockedBy
    lost_total: Annotated[Natural, Meta(description="Numbers lost before they were copied.")]
    loss: Annotated[RouterLoss | None, Meta(description="The last such gap, or `null`.")]


class RouterSummary(msgspec.Struct, kw_only=True):
    router: RouterName
    source: Annotated[str, Meta(description="The topic that is copied.")]
    dest: Annotated[str, Meta(description="Where its records go.")]
    guarantee: Annotated[Guarantee, Meta(description="What a copy says of where it is from.")]
    forwarded_total: Forwarded
    filter: Annotated[tuple[str, str, str] | None, Meta(description="Which tags are copied.")]
    lag: Lag
    blocked: BlockedBy


class RouterList(msgspec.Struct, kw_only=True):
    routers: Annotated[list[RouterSummary], Meta(description="By name.")]
    next_cursor: NextCursor = UNSET


class RouterDeleted(msgspec.Struct, kw_only=True):
    router: RouterName
    deleted: Annotated[bool, Meta(description="Whether there was one.")]


# ---------------------------------------------------------------------- watch (§7)


class Position(msgspec.Struct, kw_only=True):
    """Where a session stands in a topic."""

    from_seq: Annotated[Natural, Meta(description="It gets records after this number.")]
    head_seq: HeadSeq
    earliest_seq: EarliestSeq
    epoch: Epoch


class Session(msgspec.Struct, kw_only=True):
    wid: Annotated[str, Meta(description="Cannot be guessed; all that the stream asks for.")]
    stream_url: Annotated[str, Meta(description="The path of the stream.")]
    session_ttl_ms: Annotated[Natural, Meta(description="How long it lives without a stream.")]
    heartbeat_ms: Annotated[Natural, Meta(description="The longest silence of the stream.")]
    cursor: Annotated[str, Meta(description="The id of this beginning.")]
    topics: Annotated[dict[str, Position], Meta(description="By name.")]


class WatchedRecord(TopicRecord, kw_only=True):
    """A record as a stream sends it; without `data` where `include_data` is false."""

    data: Data | UnsetType = UNSET


class RecordEvent(msgspec.Struct, kw_only=True):
    """Records of one topic: its position moved from `from_seq` to `to_seq` (§7.5)."""

    topic: TopicName
    records: Annotated[list[WatchedRecord], Meta(description="In order.")]
    from_seq: Annotated[Natural, Meta(description="The position before.")]
    to_seq: Annotated[Natural, Meta(description="The position after.")]
    head_seq: HeadSeq


class TombstoneEvent(msgspec.Struct, kw_only=True):
    """Loss; the position is behind it (§7.5)."""

    topic: TopicName
    gap_from: GapFrom
    gap_to: GapTo
    reason: Annotated[
        Literal["cap", "ttl", "mixed", "crash", "recreated", "source_trim", "from_seq_too_old"],
        Meta(description="How it was lost."),
    ]
    missed_estimate: Missed
    earliest_seq: EarliestSeq
    head_seq: HeadSeq


class CaughtUpEvent(msgspec.Struct, kw_only=True):
    """The topic is read to its head (§7.5)."""

    topic: TopicName
    head_seq: HeadSeq


class TopicDeletedEvent(msgspec.Struct, kw_only=True):
    """Nothing more comes of the topic on this stream (§7.5)."""

    topic: TopicName
    head_seq: HeadSeq
    reason: Annotated[Literal["deleted"], Meta(description="Why.")]


class ErrorEvent(msgspec.Struct, kw_only=True):
    """With `topics`, these end; without, the stream does (§7.5)."""

    code: Annotated[int, Meta(description="A status of §0.6.")]
    error: Annotated[str, Meta(description="For people; may change.")]
    topics: Annotated[list[str] | UnsetType, Meta(description="Topics that end.")] = UNSET
    detail: Annotated[
        dict[str, Any] | UnsetType, Meta(description="Which records cannot be read.")
    ] = UNSET


class JobEvent(Job, kw_only=True):
    """One leased job (§10.8)."""

    topic: TopicName


# ---------------------------------------------------------------------- server (§8)


class Health(msgspec.Struct, kw_only=True):
    status: Annotated[Literal["ok"], Meta(description="Always.")]
    version: Annotated[str, Meta(description="The server's version.")]
    uptime_ms: Annotated[Natural, Meta(description="Since the start.")]


class Ready(msgspec.Struct, kw_only=True):
    status: Annotated[Literal["ready"], Meta(description="Always.")]
    wal_replay_complete: Annotated[Literal[True], Meta(description="Always.")]
    topics: Annotated[Natural, Meta(description="How many there are.")]


class ClusterNode(msgspec.Struct, kw_only=True):
    """One node, as the node that answers knows it (§8.7)."""

    node: Annotated[str, Meta(description="Its id, which it keeps with its data directory.")]
    url: Annotated[str, Meta(description="Where the other nodes reach it.")]
    role: Annotated[
        Literal["leader", "follower", "away", "lost"],
        Meta(
            description="`away`: not heard of for longer than a session; `lost`: the log has lost "
            "what its data rests on."
        ),
    ]
    index: Annotated[Natural, Meta(description="The last unit that it had applied.")]
    lag_units: Annotated[Natural, Meta(description="Units that it had not applied.")]
    lag_ms: Annotated[Natural, Meta(description="Age of the oldest of them; 0: none.")]
    seen_ms_ago: Annotated[Natural, Meta(description="Age of these figures.")]
    durable: Annotated[
        Natural | None,
        Meta(description="Offset of the last unit that it has on its disk; null: none."),
    ]


class ClusterLoss(msgspec.Struct, kw_only=True):
    """What the cluster's log lost (§8.7)."""

    at_ms: Annotated[Natural, Meta(description="When it was noticed.")]
    index: Annotated[Natural, Meta(description="The last unit that the node had applied.")]
    what: Annotated[str, Meta(description="What was not found in the log.")]
    set_aside: Annotated[
        str | None,
        Meta(description="Where the data are since a snapshot took their place; null: not yet."),
    ]


class ClusterSnapshot(msgspec.Struct, kw_only=True):
    """Snapshots of other nodes that this one took, and those that others took of it (§8.7)."""

    taking: Annotated[bool, Meta(description="Whether one is being taken, or waited for.")]
    source: Annotated[
        str | None, Meta(description="The node that gives it, or gave the last; null: none.")
    ]
    copied_bytes: Annotated[Natural, Meta(description="Of its store.")]
    total_bytes: Annotated[Natural, Meta(description="Of its store when it was asked; 0: unknown.")]
    trouble: Annotated[str | None, Meta(description="Why the last attempt failed.")]
    taken: Annotated[Natural, Meta(description="How many this node took since its start.")]
    taken_ms: Annotated[Natural, Meta(description="How long the last of these took.")]
    served: Annotated[Natural, Meta(description="How many others took of it since its start.")]
    set_aside: Annotated[
        str | None, Meta(description="Where what it had before the last was set aside.")
    ]


TrimWait = Annotated[
    Literal["retention", "node", "copies"],
    Meta(
        description="Why no more may go: it is too young; a node needs it; fewer than two nodes "
        "have it."
    ),
]


class ClusterTrim(msgspec.Struct, kw_only=True):
    """How far the trimming of the log is, as a leader found it when it looked last (§8.7)."""

    before: Annotated[Natural, Meta(description="Records before this offset are gone, or soon.")]
    waits_for: TrimWait
    node: Annotated[str | None, Meta(description="The node that needs the rest, where it is one.")]
    looked_ms: Annotated[Natural, Meta(description="When it looked.")]
    last_ms: Annotated[
        Natural | None, Meta(description="When the log was trimmed last; null: not yet.")
    ]


class ClusterPosition(msgspec.Struct, kw_only=True):
    """What one node needs of the log (§8.8)."""

    node: Annotated[str, Meta(description="Its id.")]
    offset: Annotated[
        Natural | None, Meta(description="It needs the log from here on; null: all of it.")
    ]
    is_copy: Annotated[bool, Meta(description="Whether it has what was before on its disk.")]


class ClusterTrimmed(msgspec.Struct, kw_only=True):
    """What was trimmed by hand, or would be (§8.8)."""

    trimmed: Annotated[bool, Meta(description="Whether records went.")]
    before: Annotated[Natural, Meta(description="The records before this offset.")]
    records: Annotated[Natural, Meta(description="Offsets from the log's start to there.")]
    log_start: Annotated[Natural, Meta(description="First offset of the log, before it.")]
    log_end: Annotated[Natural, Meta(description="Offset behind the log's last record.")]
    waits_for: TrimWait
    node: Annotated[str | None, Meta(description="The node that needs the rest, where it is one.")]
    positions: Annotated[tuple[ClusterPosition, ...], Meta(description="What each node needs.")]


class Cluster(msgspec.Struct, kw_only=True):
    """The cluster that the server is in (§8.7)."""

    enabled: Annotated[
        bool, Meta(description="Whether it is in one; if not, there is no other field.")
    ]
    cluster: Annotated[str | UnsetType, Meta(description="Its name.")] = UNSET
    shard: Annotated[Natural | UnsetType, Meta(description="The shard's number.")] = UNSET
    node: Annotated[str | UnsetType, Meta(description="The node that answers.")] = UNSET
    leader: Annotated[
        str | UnsetType | None, Meta(description="The node that leads; null: none is known.")
    ] = UNSET
    leader_url: Annotated[
        str | UnsetType | None, Meta(description="Where the other nodes reach it.")
    ] = UNSET
    term: Annotated[Natural | UnsetType, Meta(description="Rises with each leader.")] = UNSET
    index: Annotated[
        Natural | UnsetType, Meta(description="The last unit that was applied here.")
    ] = UNSET
    lag_units: Annotated[
        Natural | UnsetType, Meta(description="Units that were not applied here.")
    ] = UNSET
    lag_ms: Annotated[
        Natural | UnsetType, Meta(description="Age of the oldest of them; 0: none.")
    ] = UNSET
    log_start: Annotated[
        Natural | UnsetType | None, Meta(description="First offset of the cluster's log.")
    ] = UNSET
    log_end: Annotated[
        Natural | UnsetType | None, Meta(description="Offset behind its last record.")
    ] = UNSET
    in_flight: Annotated[
        Natural | UnsetType, Meta(description="Units sent from here and not accepted yet.")
    ] = UNSET
    nodes: Annotated[
        tuple[ClusterNode, ...] | UnsetType, Meta(description="All that are known, by id.")
    ] = UNSET
    loss: Annotated[
        ClusterLoss | UnsetType | None, Meta(description="Null where nothing was lost.")
    ] = UNSET
    snapshot: Annotated[
        ClusterSnapshot | UnsetType, Meta(description="Snapshots taken and given.")
    ] = UNSET
    trim: Annotated[
        ClusterTrim | UnsetType | None, Meta(description="Null before a leader has looked.")
    ] = UNSET


class QueueHistory(msgspec.Struct, kw_only=True):
    """Columns of one queue, a value for each row, at ten seconds."""

    topic: TopicName
    at_ms: Annotated[list[float], Meta(description="When; rises.")]
    ready: Annotated[list[float], Meta(description="Could be claimed.")]
    in_flight: Annotated[list[float], Meta(description="Under a lease.")]
    delayed: Annotated[list[float], Meta(description="Waited.")]
    dead_lettered: Annotated[list[float], Meta(description="Moved away up to then.")]


class History(msgspec.Struct, kw_only=True):
    """The last hour in figures (§8.6)."""

    step_ms: Annotated[int, Meta(description="Of the rows of `series`.")]
    now_ms: Annotated[int, Meta(description="The server's time.")]
    series: Annotated[
        dict[str, list[float]], Meta(description="Columns, a value for each row; `at_ms` rises.")
    ]
    queues: Annotated[
        list[QueueHistory], Meta(description="The 20 queues that were written to last.")
    ]


LimitsInForce: Final = msgspec.defstruct(
    "LimitsInForce",
    [(limit.name, Natural) for limit in fields(Limits)],
    kw_only=True,
    module=__name__,
)
"""Every row of `Limits`, whatever rows it has."""

METRICS: Final[dict[str, Any]] = {
    "type": "object",
    "description": "One key a family, `topics_…` or `process_…`: a number, or a list of samples, each with "
    "its labels and its `value`.",
    "properties": {
        "performance": {
            "description": "How long it took.",
            "$ref": "#/components/schemas/Performance",
        }
    },
    "required": ["performance"],
    "additionalProperties": True,
}
"""The JSON of `topics.server.observing.metrics.as_json`."""
