"""What each route is for, takes and answers: one row for every row of `http.ROUTES`.

What follows from the route itself is not here: a name in its path, the refusals that every request
can meet, the media type of a body (`topics.protocol.faces.http.openapi.document`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import msgspec

from topics.protocol.faces.http import websocket
from topics.protocol.faces.http.append_body import AppendBody
from topics.protocol.faces.http.cluster import Cluster, ClusterTrimmed, TrimBody
from topics.protocol.faces.http.queues import (
    Acked,
    ClaimBody,
    Claimed,
    ExtendBody,
    Extended,
    HeldBody,
    JobEvent,
    NackBody,
    Nacked,
)
from topics.protocol.faces.http.records import (
    Appended,
    DeleteBody,
    DiffBody,
    Page,
    PurgeBody,
    Purged,
    RecordsDeleted,
    StablePage,
)
from topics.protocol.faces.http.routers import (
    RouterBody,
    RouterDeleted,
    RouterList,
    RouterPut,
    RouterState,
)
from topics.protocol.faces.http.server import Health, History, LimitsInForce, Ready
from topics.protocol.faces.http.topics import (
    ConfigBody,
    TopicDeleted,
    TopicList,
    TopicPut,
    TopicState,
)
from topics.protocol.faces.http.watch import (
    CaughtUpEvent,
    ErrorEvent,
    RecordEvent,
    Session,
    TombstoneEvent,
    TopicDeletedEvent,
    WatchBody,
)
from topics.protocol.model.errors import ErrorCode
from topics.protocol.model.limits import (
    BATCH_BYTES_DEFAULT,
    KEY_CHARS_MAX,
    LIMIT_DEFAULT,
    PAGE_SIZE_DEFAULT,
)

Shape: TypeAlias = type[msgspec.Struct]
Schema: TypeAlias = dict[str, Any]

JSON: Final = "application/json"
TEXT: Final[Schema] = {"type": "string"}

TAGS: Final[Mapping[str, str]] = {
    "topics": "Append-only logs: made, configured, listed, deleted.",
    "records": "What topics hold: appended, read by cursor, deleted.",
    "queues": "Topics of type `queue`: their records are jobs, leased to workers.",
    "routers": "What copies each record of one topic to another.",
    "watch": "Many topics over one connection, pushed as records come.",
    "server": "The process itself: page, probes, metrics, limits, this document.",
}


class Parameter(msgspec.Struct, frozen=True):
    """A parameter of the query, or a header."""

    name: str
    description: str
    schema: Schema
    place: str = "query"
    required: bool = False


@dataclass(frozen=True, slots=True)
class Operation:
    """One route.

    Attributes:
        name: The `operationId`; unique.
        answer: Shape of a good answer by media type; a type, or a schema.
        body: What a request says.
        creates: Whether a good answer is 201 where something was made.
        refusals: Codes that are its own.
        events: Shapes of a stream's `data` by event.
        messages: Shapes of what a client says over a WebSocket, by `op`.
        is_stable: Whether it has an `ETag` and no `performance`, and may be 304.
    """

    tag: str
    name: str
    summary: str
    answer: Mapping[str, Shape | Schema]
    body: Shape | None = None
    parameters: tuple[Parameter, ...] = ()
    refusals: tuple[ErrorCode, ...] = ()
    creates: bool = False
    events: Mapping[str, Shape] = field(default_factory=dict)
    messages: Mapping[str, tuple[Shape, ...]] = field(default_factory=dict)
    is_stable: bool = False


def _bool(name: str, description: str, *, default: bool) -> Parameter:
    return Parameter(name, description, {"type": "boolean", "default": default})


def _natural(name: str, description: str, default: int | None = None) -> Parameter:
    schema: Schema = {"type": "integer", "minimum": 0}
    return Parameter(
        name, description, schema if default is None else {**schema, "default": default}
    )


_PAGE: Final = (
    Parameter("prefix", "Only names that begin so.", TEXT),
    _natural("page_size", "At most 1000; 0 is the default.", PAGE_SIZE_DEFAULT),
    Parameter("cursor", "The `next_cursor` of the page before.", TEXT),
)
_EVENT_STREAM: Final[Mapping[str, Shape | Schema]] = {"text/event-stream": TEXT}
_OF_A_TOPIC: Final = (ErrorCode.TOPIC_NOT_FOUND,)
_OF_A_QUEUE: Final = (ErrorCode.TOPIC_NOT_FOUND, ErrorCode.NOT_A_QUEUE)
_OF_JOBS: Final = (*_OF_A_QUEUE, ErrorCode.BATCH_TOO_LARGE)


def _json(shape: Shape | Schema) -> Mapping[str, Shape | Schema]:
    return {JSON: shape}


_HEALTH: Final = "200 as long as the process answers at all."
_READY: Final = "200 while requests are served; 503 while the log is replayed and at the end."

OPERATIONS: Final[Mapping[str, Operation]] = {
    "GET /": Operation(
        "server", "getConsole", "The page for people; HTML without data.", {"text/html": TEXT}
    ),
    "GET /v0/topics": Operation(
        "topics",
        "listTopics",
        "Topics by name, a page at a time.",
        _json(TopicList),
        parameters=(
            *_PAGE,
            _bool("touch", "Whether those listed count as read.", default=False),
        ),
    ),
    "PUT /v0/topics/:": Operation(
        "topics",
        "putTopic",
        "Make a topic, or replace its config as a whole.",
        _json(TopicPut),
        ConfigBody,
        refusals=(ErrorCode.TOPIC_EXISTS_INCOMPATIBLE,),
        creates=True,
    ),
    "GET /v0/topics/:": Operation(
        "topics",
        "getTopic",
        "A topic's state and config.",
        _json(TopicState),
        parameters=(_bool("touch", "Whether this counts as a read.", default=True),),
        refusals=_OF_A_TOPIC,
    ),
    "POST /v0/topics/:": Operation(
        "records",
        "appendRecords",
        "Append records: all of them, with consecutive numbers, or none.",
        _json(Appended),
        AppendBody,
        (
            _bool("return_seqs", "Whether the answer lists `seqs`.", default=True),
            Parameter(
                "Idempotency-Key",
                "As `idempotency_key`, which overrules it.",
                {"type": "string", "maxLength": KEY_CHARS_MAX},
                "header",
            ),
        ),
        (
            ErrorCode.BATCH_TOO_LARGE,
            ErrorCode.RECORD_TOO_LARGE,
            ErrorCode.TOPIC_NOT_FOUND,
            ErrorCode.TOPIC_FULL,
        ),
        creates=True,
    ),
    "DELETE /v0/topics/:": Operation(
        "topics",
        "deleteTopic",
        "Remove a topic, its records and its routers, for good.",
        _json(TopicDeleted),
        parameters=(_bool("if_empty", "Only if it holds no record.", default=False),),
        refusals=(ErrorCode.TOPIC_NOT_EMPTY, ErrorCode.THROTTLED),
    ),
    "POST /v0/topics/:/diff": Operation(
        "records",
        "readRecords",
        "Read what comes after a cursor, and what was lost there.",
        _json(Page),
        DiffBody,
        refusals=_OF_A_TOPIC,
    ),
    "GET /v0/topics/:/records": Operation(
        "records",
        "readRecordsPage",
        "Read what comes after a cursor as a page that caches may keep, and ask again about.",
        _json(StablePage),
        parameters=(
            _natural("from_seq", "Records after this number; 0: from the earliest.", 0),
            _natural("limit", "At most 1000 by default; 0 is the default.", LIMIT_DEFAULT),
            _natural(
                "max_batch_bytes",
                "At most 8 MiB; 0 is the default. The first record always fits.",
                BATCH_BYTES_DEFAULT,
            ),
            _bool("include_tags", "Whether records have their `$tag`.", default=False),
            _bool("include_meta", "Whether records have their `meta`.", default=True),
            Parameter("epoch", "The topic's, as it was read: another one is a tombstone.", TEXT),
            Parameter("If-None-Match", "The `ETag` of pages that are kept.", TEXT, "header"),
        ),
        refusals=_OF_A_TOPIC,
        is_stable=True,
    ),
    "POST /v0/topics/:/delete": Operation(
        "records",
        "deleteRecords",
        "Remove records by number, by tag, or by both.",
        _json(RecordsDeleted),
        DeleteBody,
        refusals=_OF_A_TOPIC,
    ),
    "POST /v0/topics/:/purge": Operation(
        "records",
        "purgeRecords",
        "Remove records, said in the words of NATS.",
        _json(Purged),
        PurgeBody,
        refusals=_OF_A_TOPIC,
    ),
    "POST /v0/topics/:/claim": Operation(
        "queues",
        "claimJobs",
        "Lease jobs to a worker.",
        _json(Claimed),
        ClaimBody,
        refusals=_OF_A_QUEUE,
    ),
    "POST /v0/topics/:/ack": Operation(
        "queues",
        "ackJobs",
        "Jobs are done: delete them.",
        _json(Acked),
        HeldBody,
        refusals=_OF_JOBS,
    ),
    "POST /v0/topics/:/nack": Operation(
        "queues",
        "nackJobs",
        "Give jobs back, to be claimed now or later.",
        _json(Nacked),
        NackBody,
        refusals=_OF_JOBS,
    ),
    "POST /v0/topics/:/extend": Operation(
        "queues",
        "extendJobs",
        "Keep jobs for longer.",
        _json(Extended),
        ExtendBody,
        refusals=_OF_JOBS,
    ),
    "GET /v0/topics/:/work": Operation(
        "queues",
        "streamJobs",
        "Jobs as a stream of events, leased when they are sent.",
        _EVENT_STREAM,
        parameters=(
            Parameter("node", "Who works.", {"type": "string", "minLength": 1}, required=True),
            _natural("max", "Jobs that this stream may hold at once.", 1),
            _natural("lease_ms", "How long each is leased; else as the topic has it."),
        ),
        refusals=(*_OF_A_QUEUE, ErrorCode.NOT_ACCEPTABLE, ErrorCode.THROTTLED),
        events={"job": JobEvent, "error": ErrorEvent},
    ),
    "GET /v0/routers": Operation(
        "routers",
        "listRouters",
        "Routers by name, a page at a time.",
        _json(RouterList),
        parameters=(
            *_PAGE,
            Parameter("source", "Only those from this topic.", TEXT),
            Parameter("dest", "Only those into this topic.", TEXT),
        ),
    ),
    "PUT /v0/routers/:": Operation(
        "routers",
        "putRouter",
        "Make a router, or change it.",
        _json(RouterPut),
        RouterBody,
        refusals=(
            ErrorCode.TOPIC_NOT_FOUND,
            ErrorCode.TOPIC_EXISTS_INCOMPATIBLE,
            ErrorCode.ROUTER_CYCLE,
        ),
        creates=True,
    ),
    "GET /v0/routers/:": Operation(
        "routers",
        "getRouter",
        "What a router forwards, how far it is, and what stops it.",
        _json(RouterState),
        refusals=(ErrorCode.ROUTER_NOT_FOUND,),
    ),
    "DELETE /v0/routers/:": Operation(
        "routers",
        "deleteRouter",
        "End a router, after what it owes; copies stay.",
        _json(RouterDeleted),
        refusals=(ErrorCode.THROTTLED,),
    ),
    "POST /v0/watch": Operation(
        "watch",
        "createWatch",
        "Make a session, with a position in each of its topics.",
        _json(Session),
        WatchBody,
        (_bool("lenient", "Leave out topics that do not exist; else 404.", default=False),),
        _OF_A_TOPIC,
    ),
    "GET /v0/watch/:": Operation(
        "watch",
        "streamWatch",
        "A session's stream of events.",
        _EVENT_STREAM,
        parameters=(
            Parameter("Last-Event-ID", "The last id that arrived.", TEXT, "header"),
            Parameter("last_event_id", "The same, where no header can be set.", TEXT),
        ),
        refusals=(ErrorCode.NOT_FOUND, ErrorCode.NOT_ACCEPTABLE, ErrorCode.THROTTLED),
        events={
            "record": RecordEvent,
            "tombstone": TombstoneEvent,
            "caught-up": CaughtUpEvent,
            "topic-deleted": TopicDeletedEvent,
            "error": ErrorEvent,
        },
    ),
    "GET /v0/ws": Operation(
        "watch",
        "openSocket",
        "A WebSocket that reads and writes; its messages are JSON text.",
        {},
        refusals=(ErrorCode.THROTTLED,),
        messages={
            "subscribe": (websocket.Envelope, websocket.SubscribeBody),
            "unsubscribe": (websocket.Envelope,),
            "publish": (websocket.Envelope, AppendBody),
            "ping": (websocket.Envelope,),
        },
    ),
    "GET /v0/health": Operation("server", "getHealth", _HEALTH, _json(Health)),
    "GET /healthz": Operation("server", "getHealthz", _HEALTH, _json(Health)),
    "GET /v0/ready": Operation(
        "server",
        "getReady",
        _READY,
        _json(Ready),
        refusals=(ErrorCode.NOT_READY, ErrorCode.SHUTTING_DOWN, ErrorCode.REPLICA_BEHIND),
    ),
    "GET /readyz": Operation(
        "server",
        "getReadyz",
        _READY,
        _json(Ready),
        refusals=(ErrorCode.NOT_READY, ErrorCode.SHUTTING_DOWN, ErrorCode.REPLICA_BEHIND),
    ),
    "GET /v0/metrics": Operation(
        "server",
        "getMetrics",
        "Metrics as Prometheus text, or as JSON where `Accept` asks for it.",
        # Text first: a client that takes the first type for the only one reads JSON as text, too.
        {"text/plain": TEXT, JSON: {"$ref": "#/components/schemas/Metrics"}},
    ),
    "GET /v0/limits": Operation(
        "server", "getLimits", "Every bound in force.", _json(LimitsInForce)
    ),
    "POST /v0/cluster/trim": Operation(
        "server",
        "trimCluster",
        "Trim the log of the cluster by hand.",
        _json(ClusterTrimmed),
        TrimBody,
        refusals=(ErrorCode.TRIM_REFUSED,),
    ),
    "GET /v0/cluster": Operation(
        "server", "getCluster", "The cluster that the server is in.", _json(Cluster)
    ),
    "GET /v0/stats/history": Operation(
        "server",
        "getHistory",
        "The last hour in figures: what the console's charts are drawn of. A step without a row is one "
        "in which nothing was asked of the server.",
        _json(History),
        parameters=(
            Parameter(
                "step_ms",
                "Of the rows.",
                {"type": "integer", "enum": [1000, 10000], "default": 10000},
            ),
            _natural("after_ms", "Rows of later times only; at most 900 are in one answer.", 0),
        ),
    ),
    "GET /v0/openapi.json": Operation(
        "server",
        "getOpenapi",
        "This document.",
        _json({"type": "object"}),
    ),
    "GET /v0/docs": Operation(
        "server", "getDocs", "This document, to read and to try.", {"text/html": TEXT}
    ),
    "GET /v0/docs/:": Operation(
        "server",
        "getDocsFile",
        "A file of that page.",
        {"text/javascript": TEXT, "text/css": TEXT},
        refusals=(ErrorCode.NOT_FOUND,),
    ),
    "GET /v0/console/:": Operation(
        "server",
        "getConsoleFile",
        "A file of the page at `/`.",
        {"text/javascript": TEXT, "text/css": TEXT},
        refusals=(ErrorCode.NOT_FOUND,),
    ),
}
"""By `Route.line`."""
