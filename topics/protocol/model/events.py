"""What became true.  Events are all that the log holds, and `apply` over them is recovery.

An event is resolved: it holds every outcome (sequence numbers, rendered bytes, floors, counters,
spans of deleted seqs) and never a query, a memory address, a file offset or a local clock.  So the
same log can be replayed on another machine, and a later event never changes what an earlier one did.

`now_ms` is the engine's time, milliseconds since the epoch, never decreasing along the log.
`count` and `size_bytes` are the topic's live records and their text after the event (absolute, not
deltas, because records expire without an event).
"""

from collections.abc import Iterator, Sequence
from typing import Final, Protocol, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from topics.protocol.model.config import RouterConfig, TopicConfig
from topics.protocol.model.groups import CommittedOffset, GroupMember, GroupPhase
from topics.protocol.model.records import Batch, Buffer, PackedBatch
from topics.protocol.model.schedules import Run, ScheduleConfig


class Floors(msgspec.Struct, frozen=True, array_like=True):
    """The greatest seq of a live record that was lost, by cause; 0 where none was.

    `evict_floor` of the contract is one more than the greatest of the three.  Records through `trim_through`
    were deleted by a trim, which is no loss: readers of HTTP pass over them in silence, and those of Kafka
    are told that their place is gone.
    """

    cap_through: int = 0
    ttl_through: int = 0
    crash_through: int = 0
    trim_through: int = 0

    @property
    def evict_floor(self) -> int:
        return max(self.cap_through, self.ttl_through, self.crash_through) + 1

    @property
    def start_seq(self) -> int:
        """Where the log begins for readers of Kafka."""
        return max(self.evict_floor, self.trim_through + 1)


class Hole(msgspec.Struct, frozen=True, array_like=True):
    """Seqs [first_seq, last_seq] that were lost above the floor (`crash` or `source_trim`).

    `hops` is how far the loss came in a ring of routers, which pass it on as they do records.
    """

    first_seq: int
    last_seq: int
    reason: str
    hops: int = 0


class RunRef(msgspec.Struct, frozen=True, array_like=True):
    """Where a sealed run is: the `index`-th run of segment file `segment`.

    It covers seqs [first_seq, first_seq + count - 1]; `text_bytes` is its payload, commas included;
    `form` is that of its records (`records.PACKED`).
    """

    segment: int
    index: int
    first_seq: int
    count: int
    text_bytes: int
    form: int = 0

    @property
    def last_seq(self) -> int:
        return self.first_seq + self.count - 1


class TopicCreated(msgspec.Struct, frozen=True, array_like=True):
    now_ms: int
    topic_id: int
    name: str
    config: TopicConfig
    reserved_through: int


class TopicConfigured(msgspec.Struct, frozen=True, array_like=True):
    """A `PUT` changed the config; what the new caps evicted and the TTL expired is resolved here.

    That of the first partition changes the config of all; another one has an event of its own before it where more
    changes there.
    """

    now_ms: int
    topic_id: int
    config: TopicConfig
    head_seq: int
    floors: Floors
    count: int
    size_bytes: int


class TopicDeleted(msgspec.Struct, frozen=True, array_like=True):
    now_ms: int
    topic_id: int


class PartitionsAdded(msgspec.Struct, frozen=True, array_like=True):
    """A topic has more partitions: those behind its last have the ids `topic_ids`, and its config."""

    now_ms: int
    topic_id: int
    topic_ids: Sequence[int]
    reserved_through: int


class Loss(msgspec.Struct, frozen=True, array_like=True):
    """Source seqs [gap_from, gap_to] that a router could not copy any more, why, and when."""

    gap_from: int
    gap_to: int
    reason: str
    ts_ms: int


class Forwarded(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """The batch is what a router copied: its source is forwarded through `cursor` now."""

    router_id: int
    cursor: int


class DeadLettered(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The batch is jobs that were delivered too often: they left queue `queue_id` with it.

    `spans` are their seqs there, as in `RecordsDeleted`, with `count` and `size_bytes` of the queue
    afterwards; empty where the queue's own records are in no log.
    """

    queue_id: int
    spans: bytes
    jobs: int
    count: int
    size_bytes: int

    @property
    def span_array(self) -> NDArray[np.uint64]:
        return np.frombuffer(self.spans, dtype="<u8").reshape(-1, 2)


class Fired(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """The batch is the record of a schedule.

    Attributes:
        at_ms: The tick; where a client asked for the run, when it did.
        next_ms: The tick after it; None: there is none.
        missed: Ticks before it that do not happen any more.
        ends: The schedule goes with it.
    """

    schedule_id: int
    at_ms: int
    next_ms: int | None
    missed: int = 0
    ends: bool = False


class Redriven(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """The batch is dead letters that went back to a queue: they left topic `source_id` with it.

    Fields as those of `DeadLettered`; `spans` is empty where the source's own records are in no log.
    """

    source_id: int
    spans: bytes
    count: int
    size_bytes: int

    @property
    def span_array(self) -> NDArray[np.uint64]:
        return np.frombuffer(self.spans, dtype="<u8").reshape(-1, 2)


CopyCause: TypeAlias = Forwarded | DeadLettered | Redriven
"""Why records of one topic came to another."""
Cause: TypeAlias = CopyCause | Fired


def source_of(cause: Cause | None) -> int | None:
    """The id of the topic that records left with a batch of copies; None where they left none."""
    match cause:
        case DeadLettered():
            return cause.queue_id
        case Redriven():
            return cause.source_id
        case _:
            return None


class RecordsAppended(msgspec.Struct, frozen=True, array_like=True):
    """A batch took the seqs [first_seq, first_seq + len(batch) - 1].

    Attributes:
        batch: A packed one has neither key nor cause.
        floors: After the eviction that the batch caused.
        reserved_through: No seq up to here will ever be given to another record.
        key: Digest (16 bytes) of the idempotency key, empty without one.
        cause: What else became true with it, where the batch is copies (one entry of the log, so
            that nothing is ever copied twice or lost in between).
        jobs: Of a queue, the options of those records that have some (msgpack of `job_options.JobOptions`).
        placed: Of a key in a topic of several partitions, where all records of its append went (msgpack of
            `placed.Placed`); the key is the topic's.
    """

    now_ms: int
    topic_id: int
    first_seq: int
    batch: Batch | PackedBatch
    floors: Floors
    count: int
    size_bytes: int
    reserved_through: int
    key: bytes = b""
    cause: Cause | None = None
    placed: bytes = b""
    jobs: bytes = b""


class RecordsDeleted(msgspec.Struct, frozen=True, array_like=True):
    """Records removed on request.

    `spans` holds k pairs (first_seq, last_seq), both inclusive, ascending, as little-endian u64:
    shape (k, 2) in `span_array`.  `buried` of them are jobs that went to a dead-letter topic whose
    records are in no log, so that no `DeadLettered` holds them.
    """

    now_ms: int
    topic_id: int
    spans: bytes
    count: int
    size_bytes: int
    buried: int = 0

    @property
    def span_array(self) -> NDArray[np.uint64]:
        return np.frombuffer(self.spans, dtype="<u8").reshape(-1, 2)


SPAN_BYTES: Final = 16
"""A span of seqs in an event."""
MARKS_BYTES: Final = 24
"""Bytes that marks take in an event beside their bits, at most."""


class Marks(msgspec.Struct, frozen=True, array_like=True):
    """The seqs among `count` from `first_seq` on whose bit is set.  `bits` has ceil(count / 8) bytes;
    the highest bit of the first byte is that of `first_seq`, as `numpy.packbits` has it."""

    first_seq: int
    count: int
    bits: bytes

    def flags(self, lo: int, hi: int) -> NDArray[np.bool_]:
        """Whether the bit of each seq from the `lo`-th to the one before the `hi`-th is set."""
        first = lo >> 3
        bits = np.frombuffer(self.bits, np.uint8, -(-hi // 8) - first, first)
        return np.unpackbits(bits, count=hi - 8 * first)[lo - 8 * first :].view(np.bool_)


class ScatteredDeleted(msgspec.Struct, frozen=True, array_like=True):
    """Records removed on request that are so scattered that spans alone would be long.

    The removed seqs are those of `spans`, as in `RecordsDeleted`, and of `marks`, ascending; no seq
    is in both.  So a delete takes at most one bit for each record of the runs that it hits, in the
    log and in memory, and it is applied by columns.
    """

    now_ms: int
    topic_id: int
    spans: bytes
    marks: Sequence[Marks]
    count: int
    size_bytes: int

    @property
    def span_array(self) -> NDArray[np.uint64]:
        return np.frombuffer(self.spans, dtype="<u8").reshape(-1, 2)


class SeqsReserved(msgspec.Struct, frozen=True, array_like=True):
    """Seqs up to `reserved_through` may be given out without a frame of their own (`ephemeral`)."""

    now_ms: int
    topic_id: int
    reserved_through: int


class RunsSealed(msgspec.Struct, frozen=True, array_like=True):
    """The unsealed or smaller runs that covered [first_seq, last_seq] now stand in `runs`."""

    now_ms: int
    topic_id: int
    first_seq: int
    last_seq: int
    runs: Sequence[RunRef]


class RunsDropped(msgspec.Struct, frozen=True, array_like=True):
    """Runs without a live record were dropped as a whole; their first seqs."""

    now_ms: int
    topic_id: int
    first_seqs: Sequence[int]
    floors: Floors


class FloorsRaised(msgspec.Struct, frozen=True, array_like=True):
    """Logged records were lost by an append or an expiry that is itself not logged."""

    now_ms: int
    topic_id: int
    floors: Floors
    count: int
    size_bytes: int


class TailLost(msgspec.Struct, frozen=True, array_like=True):
    """Recovery could not bring [first_seq, last_seq] back; the topic goes on after it.

    An empty range (`first_seq > last_seq`) only corrects the counters.
    """

    now_ms: int
    topic_id: int
    first_seq: int
    last_seq: int
    reason: str
    count: int
    size_bytes: int


class RouterConfigured(msgspec.Struct, frozen=True, array_like=True):
    """A router was made, or changed; it goes on behind source seq `cursor`."""

    now_ms: int
    router_id: int
    name: str
    config: RouterConfig
    source_id: int
    dest_id: int
    cursor: int


class RouterDeleted(msgspec.Struct, frozen=True, array_like=True):
    now_ms: int
    router_id: int


class CursorsMoved(msgspec.Struct, frozen=True, array_like=True):
    """Routers passed over records that they do not copy, or whose copies are in no log.

    `moves` are (router id, source seq, copies made) each.
    """

    now_ms: int
    moves: Sequence[tuple[int, int, int]]


class SeqsSkipped(msgspec.Struct, frozen=True, array_like=True):
    """A router met `loss` in its source: as many seqs of its destination are a hole, which came
    `hops` far in a ring."""

    now_ms: int
    topic_id: int
    first_seq: int
    last_seq: int
    router_id: int
    loss: Loss
    hops: int = 0


class JobsLeased(msgspec.Struct, frozen=True, array_like=True):
    """Jobs were claimed, or their leases extended; holds everything about each lease.

    Attributes:
        seqs, leases, deliveries: One each a job, ascending by seq.
        until_ms: Deadline of all of them.
    """

    now_ms: int
    topic_id: int
    node: str
    until_ms: int
    seqs: Sequence[int]
    leases: Sequence[int]
    deliveries: Sequence[int]


class JobsReleased(msgspec.Struct, frozen=True, array_like=True):
    """Leases ended without an ack: the jobs may be claimed again from `ready_ms` on (0: now)."""

    now_ms: int
    topic_id: int
    ready_ms: int
    seqs: Sequence[int]
    deliveries: Sequence[int]


class JobReason(msgspec.Struct, frozen=True, array_like=True):
    """Why a worker gave a job back: when, who, and in which words."""

    now_ms: int
    node: str
    reason: str


class JobNotes(msgspec.Struct, frozen=True, array_like=True):
    """What workers said of a job.

    Attributes:
        reasons: The last ones, the oldest first; at most `REASONS_MAX`.
        progress: What the last one that said something was at, as JSON; empty: nothing.
        is_dead: It goes to the dead letters, however often it was delivered.
    """

    reasons: tuple[JobReason, ...] = ()
    progress: bytes = b""
    is_dead: bool = False

    @property
    def size_bytes(self) -> int:
        """What it holds in memory, about."""
        texts = sum(len(each.reason) + len(each.node) + NOTE_BYTES for each in self.reasons)
        return texts + len(self.progress) + NOTE_BYTES

    def revived(self) -> "JobNotes":
        """The same of a job that is not to go to the dead letters."""
        return JobNotes(self.reasons, self.progress)

    def noted(self, event: "JobsNoted") -> "JobNotes":
        """The same with what a worker said now."""
        reasons = self.reasons
        if event.reason:
            reason = JobReason(event.now_ms, event.node, event.reason)
            reasons = (*reasons, reason)[-REASONS_MAX:]
        return JobNotes(reasons, event.progress or self.progress, self.is_dead or event.is_dead)


NO_NOTES: Final = JobNotes()
REASONS_MAX: Final = 5
"""Reasons that are kept of a job."""
NOTE_BYTES: Final = 96
"""Objects that hold the texts of a note."""


class JobsNoted(msgspec.Struct, frozen=True, array_like=True):
    """A worker said something of jobs: why it gave them back, or how far it is.

    Attributes:
        reason: Empty: it said none.
        progress: JSON; empty: it said none.
        is_dead: They are to go to the dead letters.
    """

    now_ms: int
    topic_id: int
    node: str
    seqs: Sequence[int]
    reason: str = ""
    progress: bytes = b""
    is_dead: bool = False


class JobsExpired(msgspec.Struct, frozen=True, array_like=True):
    """Jobs that were not started in time are gone, as there is no dead-letter topic; fields as those of
    `RecordsDeleted`."""

    now_ms: int
    topic_id: int
    spans: bytes
    count: int
    size_bytes: int
    jobs: int

    @property
    def span_array(self) -> NDArray[np.uint64]:
        return np.frombuffer(self.spans, dtype="<u8").reshape(-1, 2)


class AppendRemembered(msgspec.Struct, frozen=True, array_like=True):
    """An append to a queue made no job, as its unique keys were held: what its idempotency key stands for (msgpack of
    `placed.Placed`)."""

    now_ms: int
    topic_id: int
    key: bytes
    placed: bytes


class ProducerIdsReserved(msgspec.Struct, frozen=True, array_like=True):
    """Ids of producers below `through` may be given out, each once."""

    now_ms: int
    through: int


class OffsetsCommitted(msgspec.Struct, frozen=True, array_like=True):
    """A group has these offsets of topics, and none any more of the topics whose ids are in `removed`."""

    now_ms: int
    group: str
    offsets: Sequence[CommittedOffset]
    removed: Sequence[int] = ()


class GroupChanged(msgspec.Struct, frozen=True, array_like=True):
    """The members of a group changed, or what they do.

    Attributes:
        members: Members that came, or are not as they were.
        left: Ids of members that are no longer in it.
        assignments: What the leader gave to members, by their ids; in a new generation nobody has anything before.
    """

    now_ms: int
    group: str
    generation: int
    phase: GroupPhase
    protocol_type: str
    protocol: str
    leader: str
    members: Sequence[GroupMember] = ()
    left: Sequence[str] = ()
    assignments: Sequence[tuple[str, bytes]] = ()


class GroupDeleted(msgspec.Struct, frozen=True, array_like=True):
    """A group is gone, with its offsets."""

    now_ms: int
    group: str


class ScheduleConfigured(msgspec.Struct, frozen=True, array_like=True):
    """A schedule was made, or changed; or ticks passed of which no record is in the log.

    Attributes:
        config: None: as it was.
        next_ms: The tick that comes next; None: there is none, or the schedule is paused.
        missed: Ticks that do not happen any more.
        run: What it has appended to a topic whose records are in no log; None: nothing.
    """

    now_ms: int
    schedule_id: int
    name: str
    config: ScheduleConfig | None
    paused: bool
    next_ms: int | None
    missed: int = 0
    run: Run | None = None


class ScheduleDeleted(msgspec.Struct, frozen=True, array_like=True):
    now_ms: int
    schedule_id: int


class LogPlace(msgspec.Struct, frozen=True, array_like=True):
    """A place behind a unit in the log that a cluster's nodes share (`cluster.replica.Place`)."""

    term: int
    seen: int
    index: int
    chain: bytes
    offset: int


class PlaceReached(msgspec.Struct, frozen=True, array_like=True):
    """All before this event is what the shared log has up to `place`; the node has read the log itself
    up to `mark`, whose last record was of the log's `epoch`.  Of one node: never in the shared log."""

    now_ms: int
    place: LogPlace
    mark: LogPlace
    epoch: int


class TimePassed(msgspec.Struct, frozen=True, array_like=True):
    """It is this late on every node of a cluster: what has expired by now is gone."""

    now_ms: int


Event: TypeAlias = (
    TopicCreated
    | TopicConfigured
    | TopicDeleted
    | RecordsAppended
    | RecordsDeleted
    | SeqsReserved
    | RunsSealed
    | RunsDropped
    | FloorsRaised
    | TailLost
    | RouterConfigured
    | RouterDeleted
    | CursorsMoved
    | SeqsSkipped
    | JobsLeased
    | JobsReleased
    | JobsNoted
    | ScatteredDeleted
    | PlaceReached
    | TimePassed
    | ProducerIdsReserved
    | OffsetsCommitted
    | GroupChanged
    | GroupDeleted
    | PartitionsAdded
    | ScheduleConfigured
    | ScheduleDeleted
    | AppendRemembered
    | JobsExpired
)


class KeyImage(msgspec.Struct, frozen=True, array_like=True):
    """One remembered idempotency key: digest (16 bytes), the seqs of its batch, and when.  A `count`
    of 0 is the place of a key that was remembered again later."""

    digest: bytes
    first_seq: int
    count: int
    ts_ms: int


class PlacedKeyImage(msgspec.Struct, frozen=True, array_like=True):
    """A remembered idempotency key of a topic of several partitions: digest (16 bytes), where its batch went
    (msgpack of `placed.Placed`), and when."""

    digest: bytes
    placed: bytes
    ts_ms: int


class JobImage(msgspec.Struct, frozen=True, array_like=True):
    """A job that was delivered, or released, before: leased until `until_ms` where `lease` is not 0, else
    claimable from then on."""

    seq: int
    deliveries: int
    until_ms: int
    lease: int
    node: str
    notes: JobNotes | None = None


class QueueImage(msgspec.Struct, frozen=True, array_like=True):
    """What a queue holds beside its records.

    Attributes:
        jobs: Those that outlive the process.
        is_arranged: Below `fresh_from` there may be jobs that were never delivered: they are not claimed in the order
            of their seqs.
        holds: Unique keys that are held until some time, whether their job is done or not: digest (16 bytes), seq and
            time (u64 each, big-endian).
        expired: Jobs that were not started in time, over the life of this instance.
        keyless: Jobs that are there and lost their unique key to a later one.
    """

    dead_lettered: int
    fresh_from: int
    jobs: list[JobImage]
    is_arranged: bool = False
    holds: bytes = b""
    expired: int = 0
    keyless: list[int] = []


class ProducerImage(msgspec.Struct, frozen=True, array_like=True):
    """A producer of Kafka's, and what it wrote last: five batches, the oldest first, each as number of the first
    record (u32), records (u32, 0: none) and first seq (u64), big-endian."""

    producer_id: int
    epoch: int
    ts_ms: int
    batches: bytes


class LossImage(msgspec.Struct, frozen=True, array_like=True):
    """What a topic lost for one reason: `records` in `hour`, counted from the epoch, and in each of
    the hours before it."""

    hour: int
    last_ts_ms: int
    records: list[int]


class TopicImage(msgspec.Struct, array_like=True):
    """A topic as a checkpoint keeps it: small, and without any record's payload.  Each partition behind the first
    has an image of its own, with the engine's name of it, and its config is that of the first.

    `volatile` are the seqs [first, last] that live only in memory (`ephemeral`) and are lost with
    the process.  `runs` are the sealed runs, ascending.  `losses` are by reason.
    """

    topic_id: int
    name: str
    config: TopicConfig
    head_seq: int
    reserved_through: int
    floors: Floors
    expired_through: int
    count: int
    size_bytes: int
    last_ts_ms: int
    last_write_ms: int
    holes: list[Hole]
    volatile: list[tuple[int, int]]
    runs: list[RunRef]
    keys: list[KeyImage]
    queue: QueueImage | None = None
    losses: dict[str, LossImage] = {}
    producers: list[ProducerImage] = []
    placed_keys: list[PlacedKeyImage] = []


class RouterImage(msgspec.Struct, frozen=True, array_like=True):
    router_id: int
    name: str
    config: RouterConfig
    source_id: int
    dest_id: int
    cursor: int
    forwarded_total: int
    lost_total: int
    loss: Loss | None


class GroupImage(msgspec.Struct, frozen=True, array_like=True):
    """A group as a checkpoint keeps it.

    Attributes:
        used_ms: When it last changed.
    """

    name: str
    generation: int
    phase: GroupPhase
    protocol_type: str
    protocol: str
    leader: str
    used_ms: int
    members: list[GroupMember]
    offsets: list[CommittedOffset]


class ScheduleImage(msgspec.Struct, frozen=True, array_like=True):
    """A schedule as a checkpoint keeps it.

    Attributes:
        made_ms: When it was made.
    """

    schedule_id: int
    name: str
    config: ScheduleConfig
    paused: bool
    made_ms: int
    next_ms: int | None
    fired_total: int
    missed_total: int
    run: Run | None


class UnflaggedRows(msgspec.Struct, frozen=True, array_like=True):
    """Deleted rows of a sealed run whose delete flags are not in its file, because the file could not
    be read.

    `rows` has a bit for each row of the run, the most significant one first.
    """

    segment: int
    index: int
    rows: bytes


class Checkpoint(msgspec.Struct, array_like=True):
    """The engine's state between two events, at a boundary between two log files.

    `place` is that of a cluster's node; `unflagged` is what the log before the boundary deleted and no
    file says; `producer_ids` are reserved below that; `groups` are those of consumers.  Fields at the end that
    have nothing to say are not in its bytes.
    """

    now_ms: int
    next_topic_id: int
    topics: list[TopicImage]
    next_router_id: int = 1
    routers: list[RouterImage] = []
    place: PlaceReached | None = None
    unflagged: Sequence[UnflaggedRows] = ()
    producer_ids: int = 0
    groups: list[GroupImage] = []
    schedules: list[ScheduleImage] = []

    def pieces(self) -> Iterator[Buffer]:
        yield encode_image(self)

    def with_unflagged(self, unflagged: Sequence[UnflaggedRows]) -> "Image":
        return msgspec.structs.replace(self, unflagged=unflagged)


class Image(Protocol):
    """A `Checkpoint` on its way to the disk."""

    def pieces(self) -> Iterator[Buffer]:
        """The msgpack of a `Checkpoint`, in order; every call gives the same."""

    def with_unflagged(self, unflagged: Sequence[UnflaggedRows]) -> "Image":
        """The same with deleted rows that no file says."""


encode_image = msgspec.msgpack.Encoder().encode
"""Any image, or field of one, as msgpack."""


def array_header(items: int) -> bytes:
    """What begins a msgpack array."""
    if items < 16:
        return bytes([0x90 | items])
    if items < 1 << 16:
        return b"\xdc" + items.to_bytes(2, "big")
    return b"\xdd" + items.to_bytes(4, "big")
