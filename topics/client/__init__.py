"""A client of the HTTP API: `Client`, and `AsyncClient` with the same calls awaited.

The package knows the contract, and nothing of the server's own code.  From the top:

- `aio`, `sync`: the clients; their calls for queues, jobs, routers, schedules and groups are in `aioqueues`, `aiojobs`,
  `aiorouters`, `aioschedules`, `aiogroups`, and the same without `aio`.  `aiowatch`, `aioproducer`, `aiotable`,
  `aiolease_keeper`, `aioworker`, and the same without `aio`: what they return for longer work.  `sync` and ten more
  are generated (`_generate`).
- `prefetch`: for threads, jobs of several queues within the room of one keeper.
- `aiosession`, `session`: send calls, and send again those that are worth it (`retry`).
- `aiofailover`, `failover`: connections to several nodes of one cluster, one of which is asked.
- `aiopool`, `pool`: connections of HTTP/1.1 (`http1`).  `aiopool_httpx`, `pool_httpx`: all others.
- What comes back: an `answer`, or one of the `faults`.  Where the server is: `target`, `address`.
- Without I/O, for both: the calls (`endpoints`, `call`), the JSON of records (`encoding`, `decoding`), pages
  and batches (`paging`, `batching`, `accumulator`), streams (`sse`, `streams`, `watch_state`,
  `job_stream`), workers (`worker_state`), leases (`lease_state`, `held_job`).

The asynchronous half, and asyncio with it, is loaded when one of its names is first used, httpx when
a client is made that needs it: a command of the command line does without both.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from topics.client.errors import (
    BadAnswer,
    BatchTooLarge,
    CallTimeout,
    Conflict,
    Forbidden,
    GroupNotFound,
    InvalidRequest,
    JobFailed,
    JobNotFound,
    KeyRequired,
    LeaseLost,
    NotFound,
    NotReady,
    NotSent,
    PartitionNotFound,
    PartitionRequired,
    PayloadTooLarge,
    RecordNotFound,
    RecordTooLarge,
    RouterNotFound,
    ScheduleNotFound,
    ServerFault,
    Throttled,
    TimeLimitExceeded,
    TopicFull,
    TopicNotFound,
    TopicsError,
    Unauthorized,
    Unreachable,
)
from topics.client.job_options import JobOptions
from topics.client.lease_keeper import HeldJob, LeaseKeeper
from topics.client.models import (
    Acked,
    Appended,
    AppendedMany,
    Assigned,
    Backoff,
    Blocked,
    Claimed,
    Configured,
    DeadLetter,
    Deleted,
    Diff,
    Extended,
    Group,
    GroupDeleted,
    GroupMember,
    GroupOffset,
    GroupSummary,
    Health,
    Job,
    JobInfo,
    JobReason,
    JobsChanged,
    LostLately,
    Nacked,
    NewRecord,
    OffsetsCommitted,
    PartitionState,
    Purged,
    QueueCounts,
    Rate,
    RawRecord,
    Ready,
    Record,
    RecordHead,
    Redriven,
    Router,
    RouterConfig,
    RouterDeleted,
    RouterLoss,
    RouterSummary,
    Schedule,
    ScheduleDeleted,
    ScheduledRecord,
    ScheduleLastRun,
    SchedulePaused,
    SchedulePut,
    ScheduleRun,
    ScheduleSummary,
    StablePage,
    Tombstone,
    TopicConfig,
    TopicDeleted,
    TopicGone,
    TopicState,
    TopicSummary,
    Unique,
    Watched,
    WrittenPartition,
)
from topics.client.names import tag_for, tag_of
from topics.client.options import (
    AppendOptions,
    BatchOptions,
    Begin,
    CallOptions,
    Config,
    DiffOptions,
    KeeperOptions,
    ProducerOptions,
    ReadOptions,
    ScheduleOptions,
    StablePageOptions,
    WatchOptions,
    WorkOptions,
    WriteOptions,
)
from topics.client.prefetch import Intake, Prefetch
from topics.client.producer import Producer, Sent
from topics.client.retry import Clock, Retry
from topics.client.sync import Client
from topics.client.table import Table
from topics.client.watch import Watch
from topics.client.worker import Work

if TYPE_CHECKING:
    from topics.client.aio import AsyncClient
    from topics.client.aiolease_keeper import AsyncHeldJob, AsyncLeaseKeeper
    from topics.client.aioproducer import AsyncProducer, AsyncSent
    from topics.client.aiotable import AsyncTable
    from topics.client.aiowatch import AsyncWatch
    from topics.client.aioworker import AsyncWork

__all__ = [
    "Acked",
    "AppendOptions",
    "Appended",
    "AppendedMany",
    "Assigned",
    "AsyncClient",
    "AsyncHeldJob",
    "AsyncLeaseKeeper",
    "AsyncProducer",
    "AsyncSent",
    "AsyncTable",
    "AsyncWatch",
    "AsyncWork",
    "Backoff",
    "BadAnswer",
    "BatchOptions",
    "BatchTooLarge",
    "Begin",
    "Blocked",
    "CallOptions",
    "CallTimeout",
    "Claimed",
    "Client",
    "Clock",
    "Config",
    "Configured",
    "Conflict",
    "DeadLetter",
    "Deleted",
    "Diff",
    "DiffOptions",
    "Extended",
    "Forbidden",
    "Group",
    "GroupDeleted",
    "GroupMember",
    "GroupNotFound",
    "GroupOffset",
    "GroupSummary",
    "Health",
    "HeldJob",
    "Intake",
    "InvalidRequest",
    "Job",
    "JobFailed",
    "JobInfo",
    "JobNotFound",
    "JobOptions",
    "JobReason",
    "JobsChanged",
    "KeeperOptions",
    "KeyRequired",
    "LeaseKeeper",
    "LeaseLost",
    "LostLately",
    "Nacked",
    "NewRecord",
    "NotFound",
    "NotReady",
    "NotSent",
    "OffsetsCommitted",
    "PartitionNotFound",
    "PartitionRequired",
    "PartitionState",
    "PayloadTooLarge",
    "Prefetch",
    "Producer",
    "ProducerOptions",
    "Purged",
    "QueueCounts",
    "Rate",
    "RawRecord",
    "ReadOptions",
    "Ready",
    "Record",
    "RecordHead",
    "RecordNotFound",
    "RecordTooLarge",
    "Redriven",
    "Retry",
    "Router",
    "RouterConfig",
    "RouterDeleted",
    "RouterLoss",
    "RouterNotFound",
    "RouterSummary",
    "Schedule",
    "ScheduleDeleted",
    "ScheduleLastRun",
    "ScheduleNotFound",
    "ScheduleOptions",
    "SchedulePaused",
    "SchedulePut",
    "ScheduleRun",
    "ScheduleSummary",
    "ScheduledRecord",
    "Sent",
    "ServerFault",
    "StablePage",
    "StablePageOptions",
    "Table",
    "Throttled",
    "TimeLimitExceeded",
    "Tombstone",
    "TopicConfig",
    "TopicDeleted",
    "TopicFull",
    "TopicGone",
    "TopicNotFound",
    "TopicState",
    "TopicSummary",
    "TopicsError",
    "Unauthorized",
    "Unique",
    "Unreachable",
    "Watch",
    "WatchOptions",
    "Watched",
    "Work",
    "WorkOptions",
    "WriteOptions",
    "WrittenPartition",
    "tag_for",
    "tag_of",
]

_LATE: Final = {
    "AsyncClient": "aio",
    "AsyncHeldJob": "aiolease_keeper",
    "AsyncLeaseKeeper": "aiolease_keeper",
    "AsyncProducer": "aioproducer",
    "AsyncSent": "aioproducer",
    "AsyncTable": "aiotable",
    "AsyncWatch": "aiowatch",
    "AsyncWork": "aioworker",
}
"""The module of each name that is loaded when it is first used."""


def __getattr__(name: str) -> Any:
    if name in _LATE:
        return getattr(import_module(f"topics.client.{_LATE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
