"""A persistent event engine with a JSON-first HTTP API.

`Client` and `AsyncClient` talk to a server (`topics serve`):

    from topics import Client

    with Client("http://127.0.0.1:4000") as client:
        client.append("jobs", {"url": "s3://b/a.png"}, tag="tenant42:job-9001")
        for item in client.read("jobs"):
            print(item)

Importing the package is cheap: the client is loaded when it is first named, and httpx where a client
needs it (HTTP/2, a proxy, a `transport`).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from topics.version import VERSION

if TYPE_CHECKING:
    from topics.client import (
        Appended,
        AppendedMany,
        AsyncClient,
        AsyncHeldJob,
        CallTimeout,
        Client,
        Diff,
        HeldJob,
        Job,
        JobFailed,
        NewRecord,
        Prefetch,
        RawRecord,
        Record,
        Retry,
        Throttled,
        Tombstone,
        TopicConfig,
        TopicFull,
        TopicGone,
        TopicNotFound,
        TopicsError,
        TopicState,
        Unique,
        Unreachable,
        Watched,
    )

__version__: Final = VERSION

__all__ = [
    "Appended",
    "AppendedMany",
    "AsyncClient",
    "AsyncHeldJob",
    "CallTimeout",
    "Client",
    "Diff",
    "HeldJob",
    "Job",
    "JobFailed",
    "NewRecord",
    "Prefetch",
    "RawRecord",
    "Record",
    "Retry",
    "Throttled",
    "Tombstone",
    "TopicConfig",
    "TopicFull",
    "TopicGone",
    "TopicNotFound",
    "TopicState",
    "TopicsError",
    "Unique",
    "Unreachable",
    "Watched",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("topics.client"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
