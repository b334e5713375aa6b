"""What came of a command, in the contract's terms, and what must have happened before it is said.

Decisions return these; `topics.protocol.faces.http.answers` makes a status and bytes of them.  Stored
text is not copied into an outcome: it stands in `Extent`s, a run and rows of it.  A run is never
changed under those who hold it, so an outcome says the same whenever it is rendered.  Everything
else in an outcome is a value that was read when the command was decided.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal, TypeAlias, final

import msgspec
from msgspec import UNSET, UnsetType

from topics.protocol.model.config import RouterConfig, TopicConfig, TopicType
from topics.protocol.model.durability import Durability
from topics.protocol.model.ended_jobs import Letter, Reason
from topics.protocol.model.events import Loss
from topics.protocol.model.groups import CLASSIC, GroupFault, GroupMember, GroupPhase
from topics.protocol.model.placed import Placed
from topics.protocol.model.ports import Extent, Run, Span
from topics.protocol.model.records import HAS_KEY, Buffer
from topics.protocol.model.schedules import Run as LastRun
from topics.protocol.model.schedules import ScheduleConfig


class Gate(Enum):
    """What must have happened before an outcome is said."""

    NOW = "now"
    WRITTEN = "written"
    """The write that carries its events."""
    SYNCED = "synced"
    """A sync that covers that write."""


# Paths of requests read these: Python 3.11 finds a member of an Enum through its metaclass, slowly.
NOW: Final = Gate.NOW
SYNCED: Final = Gate.SYNCED
WRITTEN: Final = Gate.WRITTEN


GATES: Final = (Gate.NOW, Gate.WRITTEN, Gate.SYNCED)
"""From the weakest to the strongest."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What every outcome has beside its own fields.

    Attributes:
        is_logged: Whether its events are part of this turn's write.
        is_fsync: Whether the topic's class promises the sync, so that its time is reported; other
            classes wait for one only where a reservation asks for it (§0.9, §0.10).
        erases: Ids of the topics whose deleted bytes must be gone before it is said.
    """

    gate: Gate = Gate.NOW
    is_logged: bool = False
    is_fsync: bool = False
    erases: tuple[int, ...] = ()


# ---------------------------------------------------------------------- topics (§1)


class JobCounts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A queue's jobs: `ready + in_flight + delayed` is the topic's count; `damaged` is a part of
    `delayed` (§10.7)."""

    ready: int
    in_flight: int
    delayed: int
    damaged: int
    dead_lettered: int
    blocked: int = 0
    expired: int = 0


class PartitionView(msgspec.Struct, frozen=True):
    """One partition of a topic; fields as those of `TopicView`."""

    partition: int
    head_seq: int
    earliest_seq: int
    count: int
    size_bytes: int
    epoch: str


class TopicView(msgspec.Struct, frozen=True):
    """A topic as its readers see it: of several partitions, sums, and what has no sum of the first.

    Attributes:
        head_seq: The published one.
        size_bytes: Of `count` live records, as they are served.
        disk_bytes: What its sealed records take in files.
        last_write_ms: None where there was none since the start; as `last_read_ms`.
        jobs: None where the topic is a log.
        partitions: Empty where it has one.
    """

    name: str
    config: TopicConfig
    epoch: str
    head_seq: int
    earliest_seq: int
    count: int
    size_bytes: int
    disk_bytes: int
    priority: int
    last_write_ms: int | None
    last_read_ms: int | None
    jobs: JobCounts | None
    partitions: Sequence[PartitionView] = ()


class TopicFigures(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a list says of a topic, and time alone does not change; fields as those of `TopicView`."""

    name: str
    type: TopicType
    durable: bool
    durability: Durability
    head_seq: int
    earliest_seq: int
    count: int
    size_bytes: int
    disk_bytes: int


class TopicSummary(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a list says of a topic.  A page has a thousand, so it is small to make and to encode."""

    figures: TopicFigures
    priority: int
    jobs: JobCounts | None


class TopicPut(Outcome, frozen=True):
    """§1.1."""

    topic: str
    config: TopicConfig
    created: bool


class LostLately(msgspec.Struct, frozen=True):
    """How much a topic lost in the last day for one reason, and when it did last: records, or
    sequence numbers where a crash or a router lost them."""

    reason: str
    records: int
    last_ts_ms: int


class TopicShown(Outcome, frozen=True):
    """§1.2.

    Attributes:
        segments: How many segment files its sealed records are in.
        lost: In the last day, by reason.
    """

    view: TopicView
    segments: int
    lost: Sequence[LostLately]


class TopicsListed(Outcome, frozen=True):
    """§1.3: a page of topics by name.

    Attributes:
        after: The name that the next page begins behind; None on the last page.
    """

    topics: Sequence[TopicSummary]
    after: str | None


class TopicDropped(Outcome, frozen=True):
    """§1.4.

    Attributes:
        deleted: Whether there was one.
        routers: Those that went with it.
    """

    topic: str
    deleted: bool
    routers: Sequence[str]


# ---------------------------------------------------------------------- records (§2-§5)


class Appended(Outcome, frozen=True):
    """§2: records [first_seq, first_seq + count), now or, `deduped`, before.

    Attributes:
        with_seqs: Whether the client wants every seq listed.
        created: Whether this made the topic.
        placed: Where they are in a topic of several partitions; `first_seq` and `head_seq` are those of the first
            that has any.
        seqs: Of each record, in the order in which they came, where some made no job; None: of none is that so.
        unique: The seqs that such records are answered with.
        greatest_hit: The last seq of the answer, where no record made a job.
        replaced: Jobs that made way.
    """

    topic: str
    first_seq: int
    count: int
    head_seq: int
    with_seqs: bool
    created: bool = False
    deduped: bool = False
    placed: Placed | None = None
    seqs: Sequence[int] | None = None
    unique: Sequence[int] = ()
    greatest_hit: int = 0
    replaced: Sequence[int] = ()


class BatchAppended(Outcome, frozen=True):
    """A record batch took the seqs [first_seq, first_seq + count), now or, `deduped`, before.

    Attributes:
        start_seq: Where the topic begins now.
        append_time_ms: The time that all records got; None: they keep their producer's.
    """

    topic: str
    first_seq: int
    count: int
    start_seq: int
    deduped: bool = False
    append_time_ms: int | None = None


class ProducerIds(Outcome, frozen=True):
    """Ids [first, first + count) are nobody else's."""

    first: int
    count: int


class Gap(msgspec.Struct, frozen=True):
    """Seqs [gap_from, gap_to] are lost to this reader (§3.3)."""

    gap_from: int
    gap_to: int
    reason: str


class PageText(msgspec.Struct):
    """The text of records that many readers ask for: there already, or wanted.

    Attributes:
        keep: Takes the text from who has read it; the event loop's alone.
    """

    text: bytes | None
    keep: Callable[[bytes], None] | None = None


@final
class Records(msgspec.Struct, frozen=True):
    """Live records to splice into an answer, comma-separated, in the projection asked for.

    `inserts` stand before `"data"`, one a record, each with its leading comma; none where empty.
    Where `text` has it already, there are no extents.
    """

    extents: Sequence[Extent]
    tags: bool = False
    meta: bool = True
    data: bool = True
    inserts: Sequence[bytes] = ()
    text: PageText | None = None

    def still(self) -> "Records":
        """The same for a thread, which needs runs that do not grow meanwhile."""
        return msgspec.structs.replace(self, extents=_still(self.extents))

    def is_verbatim(self, run: Run, spans: Sequence[Span]) -> bool:
        """Whether some records of a run are shown as they are stored: without tags, `$key` is not."""
        if self.tags or not (self.meta and self.data) or self.inserts:
            return False
        if not run.has_forms:
            return True
        form = run.columns.form
        return not any((form[lo:hi] & HAS_KEY).any() for lo, hi in spans)


def _still(extents: Sequence[Extent]) -> list[Extent]:
    return [Extent(run.still(), spans) for run, spans in extents]


class Page(Outcome, frozen=True):
    """§3.2: what a read found after its cursor, and where the cursor goes.

    Attributes:
        gap: What the cursor met that was lost; the records stand behind it.
        scanned: Rows looked at.
    """

    topic: str
    records: Records
    next_seq: int
    head_seq: int
    earliest_seq: int
    epoch: str
    gap: Gap | None
    scanned: int


class StablePage(Outcome, frozen=True):
    """§3.4: a page without anything that moves while the page stays as it is.

    Attributes:
        tag: Names the page: pages of one tag are equal, byte for byte.
    """

    records: Records
    next_seq: int
    gap: Gap | None
    tag: str


class Latest(Outcome, frozen=True):
    """§3.5: the latest records of tags, by partition, and in each in the order of their seqs.

    Attributes:
        partitions: The number of each record's, where the topic has several; else empty.
        after: The tag that the next page begins behind; None on the last page.
        tag: Names the answer, as that of a `StablePage` does.
    """

    records: Records
    epoch: str
    partitions: Sequence[int]
    after: str | None
    tag: str


Stable: TypeAlias = StablePage | Latest
"""What caches may keep: answers of one tag are equal, byte for byte."""
STABLE: Final = frozenset((StablePage, Latest))


class _RecordsGone(Outcome, frozen=True):
    """`removed` records were deleted; what the topic's readers see then."""

    topic: str
    removed: int
    earliest_seq: int
    head_seq: int
    count: int
    size_bytes: int


class Deleted(_RecordsGone, frozen=True):
    """§5.

    Attributes:
        log_retained_until_ms: Of an erasure on a node of a cluster, until when the files of the log
            that the nodes share may have the bytes, ms since the epoch.
    """

    log_retained_until_ms: int | None = None


class Purged(_RecordsGone, frozen=True):
    """A delete that was asked for as a purge."""


# ---------------------------------------------------------------------- queues (§10)


class Grant(msgspec.Struct, frozen=True):
    """Jobs leased to one worker, each with its lease and delivery; ascending by seq where no job has a place before
    others.

    Attributes:
        options: Priority and group of each, in a queue where jobs have options; 0 and None: the job has none.
    """

    topic_id: int
    node: str
    seqs: Sequence[int]
    leases: Sequence[int]
    deliveries: Sequence[int]
    until_ms: int
    options: Sequence[tuple[int, str | None]] = ()

    def only(self, rows: Sequence[int]) -> "Grant":
        """Some of its jobs."""
        return Grant(
            self.topic_id,
            self.node,
            [self.seqs[row] for row in rows],
            [self.leases[row] for row in rows],
            [self.deliveries[row] for row in rows],
            self.until_ms,
            [self.options[row] for row in rows] if self.options else (),
        )


class Jobs(msgspec.Struct, frozen=True):
    """The jobs of a grant as records: row for row, what the grant has."""

    grant: Grant
    extents: Sequence[Extent]

    def still(self) -> "Jobs":
        """See `Records.still`."""
        return msgspec.structs.replace(self, extents=_still(self.extents))


class Granted(Outcome, frozen=True):
    """§10.2: the answer to a claim.

    Attributes:
        jobs: None where there was nothing to do.
        ready: Jobs that may still be claimed.
        waits: What keeps the claim from jobs that are ready; empty: nothing does.
    """

    topic: str
    jobs: Jobs | None
    ready: int
    waits: str = ""

    def of(self, jobs: Jobs) -> "Granted":
        """The same answer with these jobs."""
        return msgspec.structs.replace(self, jobs=jobs)


class _HeldChanged(Outcome, frozen=True):
    """Of the jobs that a worker named, `changed` were its own; the others are `skipped`."""

    topic: str
    changed: int
    skipped: Sequence[int]
    ready: int
    in_flight: int


class Acked(_HeldChanged, frozen=True):
    """§10.4."""


class Nacked(_HeldChanged, frozen=True):
    """§10.5."""


class Extended(_HeldChanged, frozen=True):
    """§10.6: the leases of `seqs` hold until `until_ms`."""

    seqs: Sequence[int]
    until_ms: int


JobState = Literal["ready", "delayed", "leased", "done", "dead"]


class JobView(msgspec.Struct, frozen=True):
    """What may be seen of a job.

    Attributes:
        ready_at: When one that is delayed may be claimed.
        node: Who holds it, or was the last to.
        progress, result: JSON.
        dead_letter: Where its letter lies.
        ended_at: When it was done, or dead.
    """

    seq: int
    state: JobState
    group: str | None = None
    priority: int = 0
    deliveries: int = 0
    ready_at: int | None = None
    node: str | None = None
    deadline: int | None = None
    progress: bytes | None = None
    reasons: Sequence[Reason] = ()
    result: bytes | None = None
    dead_letter: Letter | None = None
    ended_at: int | None = None


class JobsListed(Outcome, frozen=True):
    """A page of jobs; `after`: where the next one goes on, None on the last."""

    topic: str
    views: Sequence[JobView]
    after: int | None


class JobShown(Outcome, frozen=True):
    """One job."""

    topic: str
    job: JobView


class JobsChanged(Outcome, frozen=True):
    """How many jobs matched, and how many of them are changed."""

    topic: str
    matched: int
    done: int


class Redriven(Outcome, frozen=True):
    """Dead letters went back to a queue, or would.

    Attributes:
        more: There are others that match.
    """

    topic: str
    to: str
    moved: int
    more: bool


# ---------------------------------------------------------------------- routers (§6)


class Blockage(msgspec.Struct, frozen=True):
    """The refusal that stops a router since `since_ms`; it tries again in `retry_ms`."""

    code: str
    message: str
    since_ms: int
    retry_ms: int


class RouterView(msgspec.Struct, frozen=True):
    """A router, and how far it is.

    Attributes:
        lag: Seqs of the source that are shown and not forwarded.
        loss: The last gap that it met in its source.
    """

    name: str
    config: RouterConfig
    forwarded_total: int
    cursor: int
    lag: int
    blockage: Blockage | None
    lost_total: int
    loss: Loss | None


class RouterPut(Outcome, frozen=True):
    """§6.1."""

    router: str
    config: RouterConfig
    created: bool


class RouterShown(Outcome, frozen=True):
    """§6.2."""

    view: RouterView


class RoutersListed(Outcome, frozen=True):
    """§6.3; as `TopicsListed`."""

    views: Sequence[RouterView]
    after: str | None


class RouterDropped(Outcome, frozen=True):
    """§6.4."""

    router: str
    deleted: bool


# ---------------------------------------------------------------------- schedules


class ScheduleView(msgspec.Struct, frozen=True):
    """A schedule, and what became of its ticks.

    Attributes:
        next_ms: The tick that comes next; None: there is none, or it is paused.
        run: The last record.
    """

    name: str
    config: ScheduleConfig
    paused: bool
    made_ms: int
    next_ms: int | None
    run: LastRun | None
    fired_total: int
    missed_total: int
    blockage: Blockage | None


class SchedulePut(Outcome, frozen=True):
    """A schedule was made, or changed, or was so before."""

    view: ScheduleView
    created: bool


class ScheduleShown(Outcome, frozen=True):
    view: ScheduleView


class SchedulesListed(Outcome, frozen=True):
    """As `TopicsListed`."""

    views: Sequence[ScheduleView]
    after: str | None


class SchedulePaused(Outcome, frozen=True):
    """A schedule is paused, or goes on.

    Attributes:
        changed: Whether it was otherwise before.
    """

    schedule: str
    paused: bool
    next_ms: int | None
    changed: bool


class ScheduleRun(Outcome, frozen=True):
    """A record was appended out of turn."""

    schedule: str
    run: LastRun


class ScheduleDropped(Outcome, frozen=True):
    schedule: str
    deleted: bool


# ---------------------------------------------------------------------- watches (§7)


class WatchPosition(msgspec.Struct, frozen=True):
    """Where a watch stands in a topic, or in one of its partitions, and where that is.

    Attributes:
        partition: Which, where the topic has several.
    """

    from_seq: int
    head_seq: int
    earliest_seq: int
    epoch: str
    partition: int | UnsetType = UNSET


class WatchCreated(Outcome, frozen=True):
    """§7.2.

    Attributes:
        cursor: The composite id of this beginning.
        ttl_ms: How long the session lives without a stream.
        positions: By the engine's names of partitions, in the order of the id.
    """

    wid: str
    ttl_ms: int
    heartbeat_ms: int
    cursor: str
    positions: Mapping[str, WatchPosition]


# ---------------------------------------------------------------------- groups of consumers


class GroupJoined(Outcome, frozen=True):
    """A member is in a generation.

    Attributes:
        members: All, with their metadata for `protocol`, for the leader; nobody for others.
        skips_assignment: The leader has nothing to assign: it came back.
    """

    member_id: str
    generation: int
    protocol_type: str
    protocol: str
    leader: str
    members: Sequence[tuple[str, str | None, bytes]] = ()
    skips_assignment: bool = False


class GroupSynced(Outcome, frozen=True):
    """What a member was assigned."""

    protocol_type: str
    protocol: str
    assignment: bytes


class HeartbeatTaken(Outcome, frozen=True):
    """A member lives, and has nothing to do."""


class GroupLeft(Outcome, frozen=True):
    """Who left: of each that was named, why not; None: it left."""

    faults: Sequence[GroupFault | None]


class OffsetsKept(Outcome, frozen=True):
    """Of each offset, in the order in which they were given, why it is not kept, or not deleted; None: it is."""

    group: str
    faults: Sequence[GroupFault | None]


class KeptOffset(msgspec.Struct, frozen=True):
    """An offset of a group.

    Attributes:
        topic: The engine's name of a partition.
        ts_ms: When it was committed.
        lag: Live records of the topic behind it, as far as they are shown, at most.
        lost: Seqs behind it that were lost before the group came to them.
    """

    topic: str
    seq: int
    leader_epoch: int
    metadata: str
    ts_ms: int
    lag: int
    lost: int


class OffsetsFound(Outcome, frozen=True):
    """Offsets of a group.

    Attributes:
        after_id: Where the next page goes on; None on the last.
        lacks: The group is not there, or has none of a topic that was asked for.
    """

    offsets: Sequence[KeptOffset]
    after_id: int | None = None
    lacks: bool = False


class GroupSummary(msgspec.Struct, frozen=True):
    """What a list says of a group."""

    name: str
    phase: GroupPhase
    generation: int
    protocol_type: str
    members: int
    kind: str = CLASSIC


class GroupsListed(Outcome, frozen=True):
    """A page of groups by name; `after` as in `TopicsListed`."""

    groups: Sequence[GroupSummary]
    after: str | None


class GroupShown(Outcome, frozen=True):
    """A group.

    Attributes:
        members: Each with its assignment, where the group is stable.
        after_id: As in `OffsetsFound`.
        assigned: Where it was asked for, what each member was assigned: partitions by topic; None: nothing that
            could be read.
    """

    summary: GroupSummary
    protocol: str
    members: Sequence[GroupMember]
    offsets: Sequence[KeptOffset]
    after_id: int | None = None
    assigned: Sequence[Mapping[str, Sequence[int]] | None] = ()


class GroupDropped(Outcome, frozen=True):
    """A group is gone."""

    group: str


# ---------------------------------------------------------------------- answers that come later


@final
class Parked(msgspec.Struct, frozen=True):
    """A long poll with nothing to say yet: it waits for its topic, up to `wait_ms`; where that is
    None, until the engine's own time for it comes (`Engine.alarm_ms`)."""

    wait_ms: int | None


class Wake(msgspec.Struct):
    """An answer, or a refusal, for the token of a parked command."""

    token: object
    result: "Outcome | Exception"


@dataclass(slots=True)
class Fetch:
    """Text that copies need and that is on the disk: the host reads `extents` on a thread and passes
    one buffer a span, or the error, to `done`."""

    extents: Sequence[Extent]
    done: Callable[[list[list[Buffer]] | Exception], None]

    def __post_init__(self) -> None:
        self.extents = _still(self.extents)

    def read(self) -> list[list[Buffer]] | Exception:
        """*Blocking.* What to hand over."""
        try:
            return [run.read_blocking(spans) for run, spans in self.extents]
        except Exception as error:
            return error
