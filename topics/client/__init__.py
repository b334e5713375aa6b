"""A client of the HTTP API: `Client`, and `AsyncClient` with the same calls awaited.

Both faces only carry bytes.  What a request looks like and how an answer is read stands once, in
`calls`; what is repeated, and when, in `retry`; what takes several requests, in `walks`.  The
package knows the contract and nothing of the server's own code.
"""

from topics.client.aio import AsyncClient
from topics.client.errors import (
    BadAnswer,
    BatchTooLarge,
    Conflict,
    Forbidden,
    InvalidRequest,
    NotFound,
    NotReady,
    PayloadTooLarge,
    RecordTooLarge,
    ServerFault,
    Throttled,
    TopicFull,
    TopicNotFound,
    TopicsError,
    Unauthorized,
    Unreachable,
)
from topics.client.models import (
    Appended,
    AppendedMany,
    Configured,
    Deleted,
    Diff,
    Health,
    NewRecord,
    Purged,
    RawRecord,
    Ready,
    Record,
    Tombstone,
    TopicConfig,
    TopicDeleted,
    TopicState,
    TopicSummary,
)
from topics.client.options import (
    AppendOptions,
    BatchOptions,
    Config,
    DiffOptions,
    ReadOptions,
    WriteOptions,
)
from topics.client.retry import Clock, Retry
from topics.client.sync import Client

__all__ = [
    "AppendOptions",
    "Appended",
    "AppendedMany",
    "AsyncClient",
    "BadAnswer",
    "BatchOptions",
    "BatchTooLarge",
    "Client",
    "Clock",
    "Config",
    "Configured",
    "Conflict",
    "Deleted",
    "Diff",
    "DiffOptions",
    "Forbidden",
    "Health",
    "InvalidRequest",
    "NewRecord",
    "NotFound",
    "NotReady",
    "PayloadTooLarge",
    "Purged",
    "RawRecord",
    "ReadOptions",
    "Ready",
    "Record",
    "RecordTooLarge",
    "Retry",
    "ServerFault",
    "Throttled",
    "Tombstone",
    "TopicConfig",
    "TopicDeleted",
    "TopicFull",
    "TopicNotFound",
    "TopicState",
    "TopicSummary",
    "TopicsError",
    "Unauthorized",
    "Unreachable",
    "WriteOptions",
]
