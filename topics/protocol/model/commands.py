"""What a client asks, parsed and bounded: everything about a request that its own bytes decide.

A command that reads or writes one partition has the engine's name of it as its `topic` (`names.partition_name`).

A command that exists is well-formed; whether it can be carried out is for `decide` to say.  One is
made for every request, hence Structs: a frozen dataclass takes ten times as long to make.

`FACTS` says of each kind of command what its carriers ask: whose names it holds, whether it changes
anything, whether it waits, and what must be at hand where it is decided.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from topics.protocol.model.access import ANYONE, Caller
from topics.protocol.model.config import RouterConfig, TopicConfig
from topics.protocol.model.cursor import Listed
from topics.protocol.model.draft import Draft, draft_of
from topics.protocol.model.groups import NO_MEMBER, Membership, OffsetCommit
from topics.protocol.model.holder import NOBODY, Holder
from topics.protocol.model.job_options import JobRequest
from topics.protocol.model.marks import Mark
from topics.protocol.model.names import public_name
from topics.protocol.model.partitioner import hashes_of
from topics.protocol.model.render import JsonText
from topics.protocol.model.schedules import ScheduleConfig
from topics.protocol.model.tags import Match, TagRange


class OnBehalf(msgspec.Struct, frozen=True, kw_only=True):
    """What is decided, or answered, by who asks: the caller decides which names the answer may hold,
    whose a session is, and whether a write may configure (§0.2)."""

    caller: Caller = ANYONE


class PutTopic(OnBehalf, frozen=True):
    """`config` has every omitted field at its default; `type_given` is false where `type` was
    omitted, which keeps the type of a topic that exists.

    Attributes:
        previous: The config that this one replaces, None where the topic is to be made; else nothing changes, and the
            outcome has the config that is in force.  UNSET: whatever is there.
    """

    topic: str
    config: TopicConfig
    type_given: bool
    previous: TopicConfig | UnsetType | None = UNSET


class AddPartitions(msgspec.Struct, frozen=True):
    """A topic that is there is to have `partitions` of them; `is_dry`: whether it could is asked."""

    topic: str
    partitions: int
    is_dry: bool = False


class GetTopic(OnBehalf, frozen=True):
    topic: str
    touch: bool = True


class ListTopics(OnBehalf, frozen=True):
    """A page of names that begin with `prefix` and come after `after`."""

    prefix: str
    page_size: int
    after: str
    touch: bool = False


class DeleteTopic(OnBehalf, frozen=True):
    topic: str
    if_empty: bool = False


class Append(OnBehalf, frozen=True, kw_only=True):
    """Records to append, n >= 1, as JSON text; one node, tag and meta (or None) each.

    `nodes` is one for all, or one a record; `tags` and `metas` are None where no record has one.
    `is_configuring` says that `config` was given, and is not the default.  `draft` is their text, where a
    thread has rendered that already.  `marks` are those of records of Kafka's; None where no record has one.
    `jobs` are the options of jobs; None where no record has any.  `partitions` are those that records name; None where none does.  `hashes` are those of their keys, where a thread
    has computed them.
    """

    topic: str
    datas: Sequence[JsonText]
    nodes: str | Sequence[str | None] | None
    tags: Sequence[str | None] | None
    metas: Sequence[JsonText | None] | None
    key: bytes
    create: bool | None
    config: TopicConfig
    is_configuring: bool = False
    return_seqs: bool
    disable_backpressure: bool
    draft: Draft | None = None
    marks: Sequence[Mark | None] | None = None
    partitions: Sequence[int | None] | None = None
    hashes: Sequence[int | None] | None = None
    jobs: Sequence[JobRequest | None] | None = None

    @property
    def size_bytes(self) -> int:
        """Of the records' `data`."""
        return sum(map(len, self.datas))

    def hashed(self) -> "Append":
        """The same with the hashes of its keys: of a record's tag, or of the key that a client of Kafka's gave it."""
        keys: list[bytes | None] = [None] * len(self.datas)
        if self.tags is not None:
            keys = [None if tag is None else tag.encode() for tag in self.tags]
        for at, mark in enumerate(self.marks or ()):
            if mark is not None and mark.key is not None:
                keys[at] = mark.key
        return msgspec.structs.replace(self, hashes=hashes_of(keys))

    def drafted(self, first_seq: int, ts_ms: int, pause: Callable[[], None]) -> "Append":
        """The same with its text rendered, for the seqs and the time that it will probably get."""
        draft = draft_of(
            self.datas,
            first_seq=first_seq,
            ts_ms=ts_ms,
            nodes=self.nodes,
            metas=self.metas,
            marks=self.marks,
            pause=pause,
        )
        return msgspec.structs.replace(self, draft=draft)


class AppendBatch(msgspec.Struct, frozen=True):
    """A record batch of Kafka's to append to a topic that is there.

    Attributes:
        data: The batch, sound, as it came.
        waits_for_sync: The answer waits for what the topic's class promises; else for the write alone.
        unpacked_bytes: Its records, once they are unpacked.
        unkeyed: Which of them have no key, the first ones of many.
        min_ms: The least time of those that have one; −1: none has.
    """

    topic: str
    data: bytes
    waits_for_sync: bool = True
    unpacked_bytes: int = 0
    unkeyed: tuple[int, ...] = ()
    min_ms: int = -1

    disable_backpressure: ClassVar[bool] = False

    @property
    def size_bytes(self) -> int:
        """As it came."""
        return len(self.data)


Write: TypeAlias = Append | AppendBatch
"""What waits before it is decided, where it must (§0.6)."""


class ReserveProducerIds(msgspec.Struct, frozen=True):
    """Ids for producers that no other producer of this history has, or will have."""

    count: int


class FetchPart(msgspec.Struct, frozen=True):
    """What a fetch asks of one topic.

    Attributes:
        epoch: The instance that is meant, by its first partition; None: whichever is there.
        after_seq: Records behind this seq are wanted.
        budget_bytes: Bytes of batches at most.
    """

    topic: str
    epoch: str | None
    after_seq: int
    budget_bytes: int


class FetchBatches(msgspec.Struct, frozen=True):
    """Record batches behind cursors, for a client of Kafka's.

    Attributes:
        budget_bytes: Of all parts; the first batch is shown whatever its size.
        least_bytes: The fetch waits for so many, up to `wait_ms`.
        holder: In whose share it counts while it waits.
        connection: By which it came; those that wait on one count once.
        is_rest: Others of its fetch have shown a batch, so that none is shown beyond the budget.
    """

    parts: Sequence[FetchPart]
    budget_bytes: int
    least_bytes: int
    wait_ms: int
    holder: Holder = NOBODY
    connection: int = 0
    is_rest: bool = False


class FindPlaces(msgspec.Struct, frozen=True):
    """Where topics begin and end; and, where the second of a part is true, in which rows a time is."""

    parts: Sequence[tuple[str, bool]]


class DescribeTopics(OnBehalf, frozen=True):
    """Names, epochs and configs: of some names, of some epochs, or of a page of all names after `after`."""

    names: Sequence[str] = ()
    epochs: Sequence[str] = ()
    after: str | None = None
    page_size: int = 0


class DescribeProducers(msgspec.Struct, frozen=True):
    """What producers of Kafka's wrote last into a topic: `page_size` of them behind the first `skip`."""

    topic: str
    skip: int
    page_size: int


class Diff(msgspec.Struct, frozen=True):
    """Read from a cursor, or from a time where `from_ts` is given (§3); `partition` is what the client names."""

    topic: str
    from_seq: int
    from_ts: int | None
    limit: int
    budget_bytes: int
    nodes: tuple[str, ...]
    match: Match | None
    include_tags: bool
    include_meta: bool
    wait_ms: int
    epoch: str | None
    partition: int | None = None


class ReadPage(msgspec.Struct, frozen=True):
    """Read from a cursor what a cache may keep: no filter, no waiting (§3.4); `partition` as in `Diff`."""

    topic: str
    from_seq: int
    limit: int
    budget_bytes: int
    include_tags: bool
    include_meta: bool
    epoch: str | None
    partition: int | None = None


class ReadLatest(msgspec.Struct, frozen=True):
    """Read the latest record of each tag in a range (§3.5).

    Attributes:
        match: The range, behind the page before.
        tag: The one tag that is asked for; None: those with a prefix are.
    """

    topic: str
    match: TagRange
    tag: str | None
    limit: int
    budget_bytes: int
    include_tags: bool
    include_meta: bool


RecordRead: TypeAlias = Diff | ReadPage | ReadLatest
"""Whoever has the records of the topic decides it."""


class DeleteRecords(msgspec.Struct, frozen=True):
    """Remove what lies below `before_seq` and matches; at least one is given (§5).

    With `erase`, the answer waits until the bytes of every deleted record of the topic have left
    the segments and the log.  With `trims`, the log begins at `before_seq` for readers of Kafka from now on.
    Without `partition`, what matches goes from all partitions.
    """

    topic: str
    before_seq: int | None
    match: Match | None
    erase: bool = False
    trims: bool = False
    partition: int | None = None


class DeleteSeqs(msgspec.Struct, frozen=True):
    """Remove records that newer ones supersede; no client asks for it.

    Attributes:
        epoch: The instance of the topic that is meant.
        seqs: Ascending, as u64 in little-endian bytes.
    """

    topic: str
    epoch: str
    seqs: bytes


class Purge(msgspec.Struct, frozen=True):
    """As a delete, with NATS's words: below `seq`, or all but the newest `keep`, of a subject."""

    topic: str
    seq: int | None
    keep: int | None
    match: Match | None
    partition: int | None = None


class Redrive(msgspec.Struct, frozen=True):
    """Move dead letters back to a queue, the oldest first: at most `limit`, of those that match.

    With `is_dry` nothing changes, and the outcome says what would be moved.  `seqs`, ascending, names the
    letters; those that are not there are left out.
    """

    topic: str
    to: str
    match: Match | None
    limit: int
    is_dry: bool = False
    seqs: Sequence[int] | None = None


class View(msgspec.Struct, frozen=True, cache_hash=True):
    """How a stream wants to see a topic: bounds of a frame, filters, projection (§7.2).

    `strong` shows only what a sync has covered.  A part of the key under which streams share a
    frame: hashed and compared for each delivery, hence a `Struct`.
    """

    limit: int
    budget_bytes: int
    nodes: tuple[str, ...] = ()
    match: Match | None = None
    tags: bool = False
    meta: bool = True
    data: bool = True
    strong: bool = False


class Begin(msgspec.Struct, frozen=True):
    """Where to begin in a topic: after a seq, at a time, or at the head (`tail`); and, where they
    are given, its own filters instead of those of the whole watch.

    Attributes:
        partitions: Those that are watched, ascending; None: all, and those that it gets later.
        at: Positions by partition.  Where there are any they win over the rest, and a partition without one
            begins with its first record.
    """

    from_seq: int = 0
    from_ts: int | None = None
    tail: bool = False
    match: Match | None = None
    nodes: tuple[str, ...] | None = None
    partitions: tuple[int, ...] | None = None
    at: Mapping[int, int] = {}


class CreateWatch(OnBehalf, frozen=True):
    """A new watch session (§7.2).

    Attributes:
        wid: Its name; the shell's entropy.
        cursors: Positions of a composite id that the client kept, by the engine's names of partitions; they
            win over `topics`.
        holder: Who made it, and whose share it counts in.
        listed: Of an id that is a list: the same, for its decision to name.
    """

    wid: str
    topics: Mapping[str, Begin]
    view: View
    heartbeat_ms: int
    lenient: bool
    cursors: Mapping[str, int]
    holder: Holder = NOBODY
    listed: Listed | None = None

    def by(self, holder: Holder) -> "CreateWatch":
        """The same, made by a holder."""
        return msgspec.structs.replace(self, holder=holder)


class PutRouter(OnBehalf, frozen=True):
    """Create or change a router (§6.1)."""

    router: str
    config: RouterConfig
    create_dest: bool


class GetRouter(OnBehalf, frozen=True):
    router: str


class ListRouters(OnBehalf, frozen=True):
    """A page of router names, as `ListTopics`; of one source or destination where they are given."""

    prefix: str
    page_size: int
    after: str
    source: str | None
    dest: str | None


class DeleteRouter(OnBehalf, frozen=True):
    router: str


class PutSchedule(OnBehalf, frozen=True):
    """Make or change a schedule."""

    schedule: str
    config: ScheduleConfig
    paused: bool = False


class GetSchedule(OnBehalf, frozen=True):
    schedule: str


class ListSchedules(OnBehalf, frozen=True):
    """A page of schedules by name, as `ListTopics`; of one topic where it is given."""

    prefix: str
    page_size: int
    after: str
    topic: str | None = None


class DeleteSchedule(OnBehalf, frozen=True):
    schedule: str


class PauseSchedule(OnBehalf, frozen=True):
    """Let a schedule have no ticks from now on."""

    schedule: str


class ResumeSchedule(OnBehalf, frozen=True):
    """Let a paused schedule have ticks again."""

    schedule: str


class RunSchedule(OnBehalf, frozen=True):
    """Append the record of a schedule now, whatever its next tick is."""

    schedule: str


class Claim(msgspec.Struct, frozen=True):
    """Lease up to `limit` jobs to a worker (§10.2); `lease_ms` None: as the topic has it.

    `wait_ms` is how long to wait for a first job where there is none.
    """

    topic: str
    node: str
    limit: int
    lease_ms: int | None
    wait_ms: int


class Held(msgspec.Struct, frozen=True):
    """Jobs that `node` says it holds, k of them; with their lease numbers where it wants to be fenced
    off from a later holder (0 stands for a token that is not the server's)."""

    topic: str
    node: str
    seqs: Sequence[int]
    leases: Sequence[int] | None


class Ack(Held, frozen=True):
    """Complete jobs: the ack is the delete (§10.4).

    Attributes:
        result: What came of all of them, as JSON; empty: nothing is said.
        results: The same of some of them, by seq.
    """

    result: bytes = b""
    results: tuple[tuple[int, bytes], ...] = ()


class Nack(Held, frozen=True):
    """Release jobs, to be claimed again after `delay_ms` (§10.5); None: after the queue's `backoff`.

    Attributes:
        reason: Why; empty: nothing is said.
        is_dead: They go to the dead letters at once.
    """

    delay_ms: int | None
    reason: str = ""
    is_dead: bool = False


class Extend(Held, frozen=True):
    """Let leases end `lease_ms` from now (§10.6); `progress`, JSON, says how far the jobs are."""

    lease_ms: int
    progress: bytes = b""


class ListJobs(OnBehalf, frozen=True):
    """A page of the jobs of a queue behind `after` (§10.9).

    Attributes:
        state: Of these only; None: of those that are in the queue.
        group: Of this group only.
    """

    topic: str
    state: str | None
    group: str | None
    after: int
    limit: int


class GetJob(OnBehalf, frozen=True):
    """One job of a queue, also after its end; with `wait_ms`, once it has ended (§10.9)."""

    topic: str
    seq: int
    wait_ms: int = 0


class ChangeJobs(OnBehalf, frozen=True):
    """Make jobs ready, try them again, or take them away (§10.9).

    Attributes:
        action: `promote`, `retry` or `cancel`.
        seq: The one that is meant; None: those that match.
        state: Of these only; None: of all that the action is for.
        is_dry: Nothing changes, and the outcome says what would.
    """

    topic: str
    action: str
    seq: int | None = None
    match: Match | None = None
    state: str | None = None
    is_dry: bool = False


class JoinGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Become a member of a group, or a member of its next generation.

    Attributes:
        member_id: Empty: a new member, which gets `new_member_id`, the shell's entropy.
        instance_id: Of a static member.
        protocols: The ways of assigning that it knows, the best first, each with its metadata.
        joins_twice: A new member is told its id first, and joins with that.
        skips_assignment: It can be told that it leads and has nothing to assign.
    """

    group: str
    member_id: str
    new_member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_ms: int
    rebalance_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    joins_twice: bool = False
    skips_assignment: bool = False


class SyncGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Ask what the leader assigned; the leader says it: `assignments`, by the ids of members.

    Attributes:
        protocol_type, protocol: What the member takes for those of the group; None: it does not say.
    """

    group: str
    member: Membership
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: Sequence[tuple[str, bytes]] = ()


class Heartbeat(msgspec.Struct, frozen=True):
    """A member lives."""

    group: str
    member: Membership


class LeaveGroup(msgspec.Struct, frozen=True):
    """Members leave; a static one may be named by its instance alone."""

    group: str
    members: Sequence[Membership]


class CommitOffsets(msgspec.Struct, frozen=True):
    """Keep offsets for a group: by a member, or for a group that has none.

    Attributes:
        is_whole: All of them or none; else each by itself.
    """

    group: str
    offsets: Sequence[OffsetCommit]
    member: Membership = NO_MEMBER
    is_whole: bool = False


class FetchOffsets(OnBehalf, frozen=True):
    """The offsets of a group: of some topics, or a page of those of all, behind the topic with the id `after_id`."""

    group: str
    topics: Sequence[str] | None = None
    after_id: int = 0
    page_size: int = 1000


class DeleteOffsets(msgspec.Struct, frozen=True):
    """Forget the offsets that a group has of some topics."""

    group: str
    topics: Sequence[str]


class ListGroups(OnBehalf, frozen=True):
    """A page of groups by name, as `ListTopics`; of some phases where they are given."""

    prefix: str
    page_size: int
    after: str
    phases: Sequence[str] = ()


class DescribeGroup(OnBehalf, frozen=True):
    """A group, its members, and a page of its offsets, as `FetchOffsets`.

    Attributes:
        shows_assigned: What the members were assigned is to be read.
    """

    group: str
    after_id: int = 0
    page_size: int = 10_000
    shows_assigned: bool = False


class DeleteGroup(msgspec.Struct, frozen=True):
    group: str


Command: TypeAlias = (
    PutTopic
    | AddPartitions
    | GetTopic
    | ListTopics
    | DeleteTopic
    | Append
    | AppendBatch
    | ReserveProducerIds
    | FetchBatches
    | FindPlaces
    | DescribeTopics
    | DescribeProducers
    | Diff
    | ReadPage
    | ReadLatest
    | DeleteRecords
    | DeleteSeqs
    | Purge
    | Redrive
    | CreateWatch
    | PutRouter
    | GetRouter
    | ListRouters
    | DeleteRouter
    | PutSchedule
    | GetSchedule
    | ListSchedules
    | DeleteSchedule
    | PauseSchedule
    | ResumeSchedule
    | RunSchedule
    | Claim
    | Ack
    | Nack
    | Extend
    | ListJobs
    | GetJob
    | ChangeJobs
    | JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | CommitOffsets
    | FetchOffsets
    | DeleteOffsets
    | ListGroups
    | DescribeGroup
    | DeleteGroup
)


# ---------------------------------------------------------------------- what carriers ask


class RestsOn(Enum):
    """What decides a command."""

    RECORDS = "records"
    """The records of the topics that it names, and nothing else: whoever has these decides it."""
    LIST = "list"
    """The names of everything, at one moment."""
    STATE = "state"
    """What the engine alone knows: counts, leases, sessions, routers."""


# Paths of requests read these: Python 3.11 finds a member of an Enum through its metaclass, slowly.
LIST: Final = RestsOn.LIST
RECORDS: Final = RestsOn.RECORDS


Names: TypeAlias = Callable[[Any], Iterable[str]]


class Facts(NamedTuple):
    """Of one kind of command.

    Attributes:
        topics: The topics that a command names, by their public names, wherever it does: in the path, the body,
            a config.
        routers: The routers that it names.
        groups: The groups that it names, with the topics whose offsets they keep: what is read of these rests on no
            record.
        schedules: The schedules that it names.
        is_read: It changes nothing that an event tells, so that every replica may decide it.
        gives_records: Its outcome has records.
        rests_on: What decides it.
        waits: Whether a command that is parked waits for news, rather than for its own next part.
    """

    topics: Names
    routers: Names
    is_read: bool = False
    gives_records: bool = False
    rests_on: RestsOn = RestsOn.STATE
    waits: Callable[[Any], bool] | None = None
    groups: Names | None = None
    schedules: Names | None = None


def _none(_: object) -> Iterable[str]:
    """What a list leaves out is for its decision to say."""
    return ()


def _topic(command: Any) -> Iterable[str]:
    return (public_name(command.topic),)


def _configured(command: Append | PutTopic) -> Iterable[str]:
    letters = command.config.dead_letter
    return (command.topic,) if letters is None else (command.topic, letters)


def _redriven(command: Redrive) -> Iterable[str]:
    return command.topic, command.to


def _watched(command: CreateWatch) -> Iterable[str]:
    return command.topics


def _router(command: PutRouter | GetRouter | DeleteRouter) -> Iterable[str]:
    return (command.router,)


def _ends(command: PutRouter) -> Iterable[str]:
    return command.config.source, command.config.dest


def _schedule(command: Any) -> Iterable[str]:
    return (command.schedule,)


def _scheduled(command: PutSchedule) -> Iterable[str]:
    config = command.config.config
    letters = None if config is None else config.dead_letter
    topic = command.config.topic
    return (topic,) if letters is None else (topic, letters)


def _parts(command: FetchBatches) -> Iterable[str]:
    return dict.fromkeys(public_name(part.topic) for part in command.parts)


def _places(command: FindPlaces) -> Iterable[str]:
    return dict.fromkeys(public_name(name) for name, _ in command.parts)


def _described(command: DescribeTopics) -> Iterable[str]:
    return dict.fromkeys(map(public_name, command.names))


def _group(command: Any) -> Iterable[str]:
    return (command.group,)


def _offsets(command: CommitOffsets | FetchOffsets | DeleteOffsets) -> Iterable[str]:
    if isinstance(command, CommitOffsets):
        return command.group, *(public_name(each.topic) for each in command.offsets)
    return command.group, *(public_name(name) for name in command.topics or ())


def _waits(command: Diff | FetchBatches) -> bool:
    return command.wait_ms > 0


def _job_waits(command: GetJob) -> bool:
    return command.wait_ms > 0


def _always(_: object) -> bool:
    return True


_CHANGE: Final = Facts(_topic, _none)
_GROUP: Final = Facts(_none, _none, groups=_group)
_SCHEDULE: Final = Facts(_none, _none, schedules=_schedule)
_LIST: Final = Facts(_none, _none, is_read=True, rests_on=RestsOn.LIST)
_RECORDS: Final = Facts(_topic, _none, is_read=True, gives_records=True, rests_on=RestsOn.RECORDS)

FACTS: Final[Mapping[type, Facts]] = {
    PutTopic: Facts(_configured, _none),
    GetTopic: Facts(_topic, _none, is_read=True),
    ListTopics: _LIST,
    DeleteTopic: _CHANGE,
    AddPartitions: _CHANGE,
    Append: Facts(_configured, _none),
    AppendBatch: _CHANGE,
    ReserveProducerIds: Facts(_none, _none),
    FetchBatches: Facts(_parts, _none, is_read=True, waits=_waits),
    FindPlaces: Facts(_places, _none, is_read=True),
    DescribeTopics: Facts(_described, _none, is_read=True),
    DescribeProducers: Facts(_topic, _none, is_read=True),
    Diff: _RECORDS._replace(waits=_waits),
    ReadPage: _RECORDS,
    ReadLatest: _RECORDS,
    DeleteRecords: _CHANGE,
    DeleteSeqs: _CHANGE,
    Purge: _CHANGE,
    Redrive: Facts(_redriven, _none),
    CreateWatch: Facts(_watched, _none, is_read=True),
    PutRouter: Facts(_ends, _router),
    GetRouter: Facts(_none, _router, is_read=True),
    ListRouters: _LIST,
    DeleteRouter: Facts(_none, _router),
    PutSchedule: _SCHEDULE._replace(topics=_scheduled),
    GetSchedule: _SCHEDULE._replace(is_read=True),
    ListSchedules: Facts(_none, _none, is_read=True),
    DeleteSchedule: _SCHEDULE,
    PauseSchedule: _SCHEDULE,
    ResumeSchedule: _SCHEDULE,
    RunSchedule: _SCHEDULE,
    Claim: Facts(_topic, _none, gives_records=True, waits=_always),
    Ack: _CHANGE,
    Nack: _CHANGE,
    Extend: _CHANGE,
    ListJobs: Facts(_topic, _none, is_read=True),
    GetJob: Facts(_topic, _none, is_read=True, waits=_job_waits),
    ChangeJobs: _CHANGE,
    JoinGroup: _GROUP._replace(waits=_always),
    SyncGroup: _GROUP._replace(waits=_always),
    Heartbeat: _GROUP,
    LeaveGroup: _GROUP,
    CommitOffsets: _GROUP._replace(groups=_offsets),
    FetchOffsets: _GROUP._replace(groups=_offsets, is_read=True),
    DeleteOffsets: _GROUP._replace(groups=_offsets),
    ListGroups: Facts(_none, _none, is_read=True),
    DescribeGroup: _GROUP._replace(is_read=True),
    DeleteGroup: _GROUP,
}
"""One row for each kind; what is not here is no command."""


def facts_of(command: Command) -> Facts:
    return FACTS[type(command)]


def waits_for_news(command: Command) -> bool:
    """Whether a command that is parked waits for records or jobs."""
    waits = FACTS[type(command)].waits
    return waits is not None and waits(command)


def names_of(command: Command) -> Iterable[str]:
    """Every name of a topic, router, group or schedule that a command holds."""
    facts = FACTS[type(command)]
    names = (*facts.topics(command), *facts.routers(command))
    for more in (facts.groups, facts.schedules):
        if more is not None:
            names = (*names, *more(command))
    return names
