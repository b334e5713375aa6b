"""What the document says of watch sessions, their streams, and the WebSocket."""

from collections.abc import Mapping
from typing import Final

import msgspec

from topics.protocol.faces.http import websocket
from topics.protocol.faces.http.append_body import AppendBody
from topics.protocol.faces.http.openapi.operation import (
    EVENT_STREAM,
    OF_A_PARTITION,
    STREAM,
    TEXT,
    Example,
    Operation,
    Parameter,
    boolean,
    json_of,
    json_text,
)
from topics.protocol.faces.http.openapi.words import BEGIN, TOPIC, VIEW, Fields, says
from topics.protocol.faces.http.watch import (
    BeginBody,
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
    HEARTBEAT_MS_DEFAULT,
)

_WID: Final = "wid_ydG-VcZ1wNTFfOYzFEJoXA"

_WATCH: Final = """retry: 2000
id: eyJvcmRlcnMiOjB9

id: eyJvcmRlcnMiOjF9
event: record
data: {"topic":"orders","records":[{"$seq":1,"$ts":1795254919024,"data":{"order": 1}}],"from_seq":0,"to_seq":1,"head_seq":1}

id: eyJvcmRlcnMiOjF9
event: caught-up
data: {"topic":"orders","head_seq":1}

"""

_TAIL: Final = says("Only what comes after this request.", default=False)


_PARTITIONS: Final = says(
    "Of a topic with several, the partitions that are watched. Absent: all, and those that it gets later."
)
_BEGINS: Final = says("By name; at most `max_watch_topics`.", minProperties=1)


OPERATIONS: Final[Mapping[str, Operation]] = {
    "POST /v0/watch": Operation(
        "watch",
        "createWatch",
        "Make a session, with a position in each of its topics.",
        json_of(Session),
        body=WatchBody,
        parameters=(
            boolean("lenient", "Leave out topics that do not exist; else 404.", default=False),
        ),
        refusals=OF_A_PARTITION,
        description=(
            "Each topic begins after `from_seq`, at `from_ts`, or with `tail` at the "
            "head. Of a topic with several partitions all are watched. Open `stream_url` to get the records. A session without a stream ends after "
            "`session_ttl_ms`."
        ),
        takes="The topics, each with its beginning, and what the stream is to show.",
        gives="The session, and where it stands in each topic.",
        example=Example(
            body="""{"topics": {"orders": {"from_seq": 1}, "jobs": {"tail": true}},
 "include_tags": true, "heartbeat_ms": 15000}""",
            answer=json_text("""{"wid":"wid_hdHYgQ7o8uSA_empscCV7Q","stream_url":"/v0/watch/wid_hdHYgQ7o8uSA_empscCV7Q",
"session_ttl_ms":300000,"heartbeat_ms":15000,"cursor":"eyJvcmRlcnMiOjEsImpvYnMiOjN9",
"topics":{"orders":{"from_seq":1,"head_seq":3,"earliest_seq":1,
"epoch":"2b4f57fe9e64a177-1"},"jobs":{"from_seq":3,"head_seq":3,"earliest_seq":1,
"epoch":"2b4f57fe9e64a177-1"}},"performance":{"server_total_ms":0.412,
"throttle_wait_ms":0.0}}"""),
        ),
    ),
    "GET /v0/watch/:": Operation(
        "watch",
        "streamWatch",
        "A session's stream of events.",
        EVENT_STREAM,
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
        description=(
            "For an `EventSource`. Each event's `id` is the position after it: a client "
            "that connects again sends the last one as `Last-Event-ID`, and misses nothing. A client that "
            "reads slowly gets larger frames; one that does not read is disconnected."
        ),
        gives="A stream of records, losses and ends of topics.",
        example=Example({STREAM: _WATCH}, name=_WID),
    ),
    "GET /v0/ws": Operation(
        "watch",
        "openSocket",
        "A WebSocket that reads and writes; its messages are JSON text.",
        {},
        parameters=(
            Parameter(
                "handling",
                "Whether a field of a message that is not known is refused or ignored, where no header "
                "`Prefer` can be set.",
                {"type": "string", "enum": ["strict", "lenient"]},
            ),
        ),
        refusals=(ErrorCode.THROTTLED,),
        messages={
            "subscribe": (websocket.Envelope, websocket.SubscribeBody),
            "unsubscribe": (websocket.Envelope,),
            "publish": (websocket.Envelope, AppendBody),
            "ping": (websocket.Envelope,),
        },
        description=(
            "Messages are objects with an `op`: `subscribe`, `unsubscribe`, `publish` or "
            "`ping`. What comes back has an `op`, too, and the `request_id` of what it answers. Frames of "
            "records are those of the event stream."
        ),
        gives="A WebSocket from here on.",
        example=Example(
            {},
            status=101,
            messages={
                "subscribe": {
                    "op": "subscribe",
                    "request_id": 1,
                    "topics": {"orders": {"tail": True}},
                },
                "unsubscribe": {"op": "unsubscribe", "request_id": 2, "topic": "orders"},
                "publish": {
                    "op": "publish",
                    "request_id": 3,
                    "topic": "orders",
                    "records": [{"data": {"order": 6}, "tag": "eu.open"}],
                },
                "ping": {"op": "ping", "request_id": 4},
            },
        ),
    ),
}
"""By `Route.line`."""

FIELDS: Final[Mapping[type[msgspec.Struct], Fields]] = {
    BeginBody: {**BEGIN, "tail": _TAIL, "partitions": _PARTITIONS},
    WatchBody: {
        **VIEW,
        "topics": _BEGINS,
        "heartbeat_ms": says("1000 to 60000.", default=HEARTBEAT_MS_DEFAULT),
        "cursor": says(
            "An earlier session's cursor, or the last id of its stream; or a map of positions by topic, and by "
            "partition where a topic has several (`orders#3`)."
        ),
    },
    websocket.SubscribeBody: {
        **VIEW,
        **BEGIN,
        "tail": _TAIL,
        "partitions": _PARTITIONS,
        "cursor": says(
            "Positions by topic, and by partition where a topic has several (`orders#3`); they override the "
            "beginnings."
        ),
        "topic": says("One topic; or `topics`.", TOPIC),
        "topics": _BEGINS,
        "position": says(
            "On a node of a cluster: how far the log is to be shown at least, as an `ack` had it.",
            type="string",
        ),
    },
    websocket.Envelope: {
        "op": says("What is meant.", enum=["subscribe", "unsubscribe", "publish", "ping"]),
        "request_id": says("Comes back in the reply."),
        "topic": says("Of `publish` and `unsubscribe`, and of `subscribe` to one topic.", TOPIC),
        "return_seqs": says("Of `publish`: whether its reply lists `seqs`.", default=True),
    },
}
"""Every field of every body, and of the configs that answers hold."""

WHOLE: Final[Mapping[type[msgspec.Struct], str]] = {
    BeginBody: "Where a topic begins. `from_seq` and `from_ts` exclude each other.",
    websocket.SubscribeBody: "One `topic` with its beginning, where `from_seq` and `from_ts` exclude "
    "each other, or `topics`.",
}
"""What a body means as a whole, and rules between its fields."""
