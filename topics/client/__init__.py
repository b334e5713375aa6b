"""A client of the HTTP API: `Client`, and `AsyncClient` with the same calls awaited.

The package knows the contract, and nothing of the server's own code.  From the top:

- `aio`, `sync`: the clients; their calls for queues, routers, schedules and groups are in `aioqueues`,
  `aiorouters`, `aioschedules`, `aiogroups`, and the same without `aio`.  `aiowatch`, `aioproducer`, `aioworker`, and the same without `aio`:
  what they return for longer work.  `sync` and seven more are generated (`_generate`).
- `aiosession`, `session`: send calls, and send again those that are worth it (`retry`).
- `aiopool`, `pool`: connections of HTTP/1.1 (`http1`).  `aiopool_httpx`, `pool_httpx`: all others.
- What comes back: an `answer`, or one of the `faults`.  Where the server is: `target`, `address`.
- Without I/O, for both: the calls (`endpoints`, `call`), the JSON of records (`encoding`, `decoding`), pages
  and batches (`paging`, `batching`, `accumulator`), streams (`sse`, `streams`, `watch_state`,
  `job_stream`), workers (`worker_state`, `held_job`).

The asynchronous half, and asyncio with it, is loaded when one of its names is first used, httpx when
a client is made that needs it: a command of the command line does without both.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from topics.client.errors import (
    BadAnswer,
    BatchTooLarge,
    Conflict,
    Forbidden,
    GroupNotFound,
    InvalidRequest,
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
    TopicFull,
    TopicNotFound,
    TopicsError,
    Unauthorized,
    Unreachable,
)
from topics.client.models import (
    Acked,
    Appended,
    AppendedMany,
    Assigned,
    Blocked,
    Claimed,
    Configured,
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
    LostLately,
    Nacked,
    NewRecord,
    OffsetsCommitted,
    PartitionState,
    Purged,
    QueueCounts,
    RawRecord,
    Ready,
    Record,
    RecordHead,
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
    Watched,
    WrittenPartition,
)
from topics.client.options import (
    AppendOptions,
    BatchOptions,
    Begin,
    Config,
    DiffOptions,
    ProducerOptions,
    ReadOptions,
    ScheduleOptions,
    StablePageOptions,
    WatchOptions,
    WorkOptions,
    WriteOptions,
)
from topics.client.producer import Producer, Sent
from topics.client.retry import Clock, Retry
from topics.client.sync import Client
from topics.client.watch import Watch
from topics.client.worker import HeldJob, Work

if TYPE_CHECKING:
    from topics.client.aio import AsyncClient
    from topics.client.aioproducer import AsyncProducer, AsyncSent
    from topics.client.aiowatch import AsyncWatch
    from topics.client.aioworker import AsyncHeldJob, AsyncWork

__all__ = [
    "Acked",
    "AppendOptions",
    "Appended",
    "AppendedMany",
    "Assigned",
    "AsyncClient",
    "AsyncHeldJob",
    "AsyncProducer",
    "AsyncSent",
    "AsyncWatch",
    "AsyncWork",
    "BadAnswer",
    "BatchOptions",
    "BatchTooLarge",
    "Begin",
    "Blocked",
    "Claimed",
    "Client",
    "Clock",
    "Config",
    "Configured",
    "Conflict",
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
    "InvalidRequest",
    "Job",
    "KeyRequired",
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
    "Producer",
    "ProducerOptions",
    "Purged",
    "QueueCounts",
    "RawRecord",
    "ReadOptions",
    "Ready",
    "Record",
    "RecordHead",
    "RecordNotFound",
    "RecordTooLarge",
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
    "Throttled",
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
    "Unreachable",
    "Watch",
    "WatchOptions",
    "Watched",
    "Work",
    "WorkOptions",
    "WriteOptions",
    "WrittenPartition",
]

_LATE: Final = {
    "AsyncClient": "aio",
    "AsyncHeldJob": "aioworker",
    "AsyncProducer": "aioproducer",
    "AsyncSent": "aioproducer",
    "AsyncWatch": "aiowatch",
    "AsyncWork": "aioworker",
}
"""The module of each name that is loaded when it is first used."""


def __getattr__(name: str) -> Any:
    if name in _LATE:
        return getattr(import_module(f"topics.client.{_LATE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
