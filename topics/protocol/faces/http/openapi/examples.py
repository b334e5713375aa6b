"""An example of each route: what a client sends, and what it gets.

They are one small shop: a log `orders`, whose records are tagged by region and state, a queue `jobs`,
and a router `orders-eu`.  A test sends each request to a real server, and compares what it answers.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import orjson

from topics.protocol.model.errors import ErrorCode
from topics.protocol.model.limits import Limits
from topics.version import VERSION

_JSON: Final = "application/json"
_STREAM: Final = "text/event-stream"


@dataclass(frozen=True, slots=True)
class Example:
    """One request and its answer.

    Attributes:
        answer: By media type: a text, or what its JSON says.
        name: What stands in the path in place of the name.
        query: Parameters of the query, as they are typed.
        body: JSON text.
        status: Of the answer.
        messages: Of a WebSocket, what a client says, by `op`.
    """

    answer: Mapping[str, Any]
    name: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    body: str = ""
    status: int = 200
    messages: Mapping[str, Any] = field(default_factory=dict)


def _json(text: str) -> Mapping[str, Any]:
    return {_JSON: orjson.loads(text)}


_HEALTH: Final = _json(f"""{{"status":"ok","version":"{VERSION}","uptime_ms":86400000,
"performance":{{"server_total_ms":0.044,"throttle_wait_ms":0.0}}}}""")
_READY: Final = _json("""{"status":"ready","wal_replay_complete":true,"topics":3,
"performance":{"server_total_ms":0.041,"throttle_wait_ms":0.0}}""")
_WID: Final = "wid_ydG-VcZ1wNTFfOYzFEJoXA"

_WORK: Final = """retry: 2000

id: 1
event: job
data: {"$seq":1,"$ts":1795254919024,"topic":"jobs","lease_id":"lease_10000000000","deadline":1795254949024,"deliveries":1,"$tag":"mail","data":{"mail": 1}}

"""
_WATCH: Final = """retry: 2000
id: eyJvcmRlcnMiOjB9

id: eyJvcmRlcnMiOjF9
event: record
data: {"topic":"orders","records":[{"$seq":1,"$ts":1795254919024,"data":{"order": 1}}],"from_seq":0,"to_seq":1,"head_seq":1}

id: eyJvcmRlcnMiOjF9
event: caught-up
data: {"topic":"orders","head_seq":1}

"""
_METRICS: Final = """# HELP topics_topics Topics.
# TYPE topics_topics gauge
topics_topics 3
"""

EXAMPLES: Final[Mapping[str, Example]] = {
    "GET /": Example({"text/html": "<!doctype html>"}),
    "GET /v0/topics": Example(
        query={"prefix": "or", "page_size": "2"},
        answer=_json("""{"topics":[{"topic":"orders","type":"log","head_seq":3,"earliest_seq":1,"count":3,
"bytes":188,"disk_bytes":0,"durable":false,"durability":"disk","effective_priority":0},
{"topic":"orders-eu","type":"log","head_seq":2,"earliest_seq":1,"count":2,"bytes":126,
"disk_bytes":0,"durable":false,"durability":"disk","effective_priority":0}],
"performance":{"server_total_ms":0.412,"throttle_wait_ms":0.0}}"""),
    ),
    "PUT /v0/topics/:": Example(
        name="audit",
        body="""{"durability": "fsync", "ttl_ms": 7776000000}""",
        status=201,
        answer=_json("""{"topic":"audit","created":true,"config":{"type":"log","ttl_ms":7776000000,"cap_records":0,
"cap_bytes":0,"discard":"old","durable":true,"durability":"fsync","priority":null,
"auto_priority":true,"auto_create":true,"idempotency_window_ms":120000,"dedupe_node":true,
"lease_ms":30000,"claim_jitter_ms":0,"max_deliveries":0,"dead_letter":null,
"leases_durable":false},"performance":{"server_total_ms":0.412,"wal_append_ms":0.122,
"fsync_ms":0.000,"throttle_wait_ms":0.0}}"""),
    ),
    "GET /v0/topics/:": Example(
        name="jobs",
        answer=_json("""{"topic":"jobs","type":"queue","epoch":"2b4f57fe9e64a177-1","head_seq":3,"earliest_seq":1,
"next_seq":4,"count":3,"bytes":147,"disk_bytes":0,"segments":0,"lost_24h":[],
"config":{"type":"queue","ttl_ms":0,"cap_records":0,"cap_bytes":0,"discard":"old","durable":false,"durability":"disk",
"priority":null,"auto_priority":true,"auto_create":true,"idempotency_window_ms":120000,
"dedupe_node":true,"lease_ms":30000,"claim_jitter_ms":0,"max_deliveries":5,
"dead_letter":"jobs-dead","leases_durable":false},"effective_priority":0,
"last_write_ts":1795254919024,"last_read_ts":1795254920110,"queue":{"ready":3,"in_flight":0,
"dead_lettered":0},"performance":{"server_total_ms":0.412,"throttle_wait_ms":0.0}}"""),
    ),
    "POST /v0/topics/:": Example(
        name="orders",
        body="""{"records": [
 {"data": {"order": 4, "total": 12.50}, "tag": "eu.paid", "meta": {"trace": "a1"}},
 {"data": {"order": 5, "total": 8}, "tag": "us.open"}],
 "node": "shop-1", "idempotency_key": "import-7"}""",
        answer=_json("""{"topic":"orders","first_seq":4,"last_seq":5,"seqs":[4,5],"head_seq":5,"count":2,
"created":false,"deduped":false,"performance":{"server_total_ms":0.412,
"wal_append_ms":0.122,"fsync_ms":0.000,"throttle_wait_ms":0.0}}"""),
    ),
    "DELETE /v0/topics/:": Example(
        name="orders",
        answer=_json("""{"topic":"orders","deleted":true,"routers_removed":["orders-eu"],
"performance":{"server_total_ms":0.412,"wal_append_ms":0.122,"fsync_ms":0.000,
"throttle_wait_ms":0.0}}"""),
    ),
    "POST /v0/topics/:/diff": Example(
        name="orders",
        body="""{"from_seq": 1, "limit": 100, "include_tags": true, "wait_ms": 20000}""",
        answer=_json("""{"topic":"orders","records":[{"$seq":2,"$ts":1795254919024,"$tag":"eu.open",
"data":{"order": 2, "total": 35}},{"$seq":3,"$ts":1795254919024,"$tag":"us.paid",
"data":{"order": 3, "total": 7}}],"next_from_seq":3,"head_seq":3,"earliest_seq":1,
"caught_up":true,"tombstone":null,"lag":0,"epoch":"2b4f57fe9e64a177-1",
"performance":{"server_total_ms":0.412,"records_scanned":2,"throttle_wait_ms":0.0}}"""),
    ),
    "GET /v0/topics/:/records": Example(
        name="orders",
        query={"from_seq": "1", "limit": "100"},
        answer=_json("""{"records":[{"$seq":2,"$ts":1795254919024,"data":{"order": 2, "total": 35}},{"$seq":3,
"$ts":1795254919024,"data":{"order": 3, "total": 7}}],"tombstone":null,"next_from_seq":3}"""),
    ),
    "POST /v0/topics/:/delete": Example(
        name="orders",
        body="""{"before_seq": 3, "match": ["tag", "Glob", "eu.*"]}""",
        answer=_json("""{"topic":"orders","deleted":2,"earliest_seq":3,"head_seq":3,"count":1,"bytes":62,
"performance":{"server_total_ms":0.412,"wal_append_ms":0.122,"fsync_ms":0.000,
"throttle_wait_ms":0.0}}"""),
    ),
    "POST /v0/topics/:/purge": Example(
        name="orders",
        body="""{"filter": "eu.*", "keep": 1}""",
        answer=_json("""{"topic":"orders","success":true,"purged":1,"earliest_seq":2,"head_seq":3,"count":2,
"bytes":125,"performance":{"server_total_ms":0.412,"wal_append_ms":0.122,"fsync_ms":0.000,
"throttle_wait_ms":0.0}}"""),
    ),
    "POST /v0/topics/:/claim": Example(
        name="jobs",
        body="""{"node": "worker-1", "max": 2, "lease_ms": 60000}""",
        answer=_json("""{"topic":"jobs","claimed":[{"$seq":1,"$ts":1795254919024,"lease_id":"lease_10000000000",
"deadline":1795254979024,"deliveries":1,"$tag":"mail","data":{"mail": 1}},{"$seq":2,
"$ts":1795254919024,"lease_id":"lease_10000000001","deadline":1795254979024,"deliveries":1,
"$tag":"mail","data":{"mail": 2}}],"count":2,"ready":1,
"performance":{"server_total_ms":0.412,"throttle_wait_ms":0.0}}"""),
    ),
    "POST /v0/topics/:/ack": Example(
        name="jobs",
        body="""{"node": "worker-1", "seqs": [1, 2]}""",
        answer=_json("""{"topic":"jobs","acked":2,"skipped":[],"ready":1,"in_flight":0,
"performance":{"server_total_ms":0.412,"wal_append_ms":0.122,"fsync_ms":0.000,
"throttle_wait_ms":0.0}}"""),
    ),
    "POST /v0/topics/:/nack": Example(
        name="jobs",
        body="""{"node": "worker-1", "seqs": [1, 9], "delay_ms": 5000}""",
        answer=_json("""{"topic":"jobs","nacked":1,"skipped":[9],"ready":1,"in_flight":1,
"performance":{"server_total_ms":0.412,"throttle_wait_ms":0.0}}"""),
    ),
    "POST /v0/topics/:/extend": Example(
        name="jobs",
        body="""{"node": "worker-1", "seqs": [1], "lease_ms": 300000}""",
        answer=_json("""{"topic":"jobs","extended":1,"skipped":[],"ready":1,"in_flight":2,
"deadlines":{"1":1795255219024},"performance":{"server_total_ms":0.412,
"throttle_wait_ms":0.0}}"""),
    ),
    "GET /v0/routers": Example(
        query={"source": "orders"},
        answer=_json("""{"routers":[{"router":"orders-eu","source":"orders","dest":"orders-eu",
"guarantee":"at_least_once","forwarded_total":2,"filter":["tag","Glob","eu.*"],"lag":0,
"blocked":null}],"performance":{"server_total_ms":0.412,"throttle_wait_ms":0.0}}"""),
    ),
    "PUT /v0/routers/:": Example(
        name="orders-us",
        body="""{"source": "orders", "dest": "orders-us", "filter": ["tag", "Glob", "us.*"]}""",
        status=201,
        answer=_json("""{"router":"orders-us","created":true,"source":"orders","dest":"orders-us",
"preserve_node":true,"preserve_tag":true,"filter":["tag","Glob","us.*"],"allow_cycle":false,
"guarantee":"at_least_once","performance":{"server_total_ms":0.412,"wal_append_ms":0.122,
"fsync_ms":0.000,"throttle_wait_ms":0.0}}"""),
    ),
    "GET /v0/routers/:": Example(
        name="orders-eu",
        answer=_json("""{"router":"orders-eu","source":"orders","dest":"orders-eu","preserve_node":true,
"preserve_tag":true,"filter":["tag","Glob","eu.*"],"allow_cycle":false,
"guarantee":"at_least_once","forwarded_total":2,"cursor":3,"lag":0,"blocked":null,
"lost_total":0,"loss":null,"performance":{"server_total_ms":0.412,"throttle_wait_ms":0.0}}"""),
    ),
    "DELETE /v0/routers/:": Example(
        name="orders-eu",
        answer=_json("""{"router":"orders-eu","deleted":true,"performance":{"server_total_ms":0.412,
"wal_append_ms":0.122,"fsync_ms":0.000,"throttle_wait_ms":0.0}}"""),
    ),
    "POST /v0/watch": Example(
        body="""{"topics": {"orders": {"from_seq": 1}, "jobs": {"tail": true}},
 "include_tags": true, "heartbeat_ms": 15000}""",
        answer=_json("""{"wid":"wid_hdHYgQ7o8uSA_empscCV7Q","stream_url":"/v0/watch/wid_hdHYgQ7o8uSA_empscCV7Q",
"session_ttl_ms":300000,"heartbeat_ms":15000,"cursor":"eyJvcmRlcnMiOjEsImpvYnMiOjN9",
"topics":{"orders":{"from_seq":1,"head_seq":3,"earliest_seq":1,
"epoch":"2b4f57fe9e64a177-1"},"jobs":{"from_seq":3,"head_seq":3,"earliest_seq":1,
"epoch":"2b4f57fe9e64a177-1"}},"performance":{"server_total_ms":0.412,
"throttle_wait_ms":0.0}}"""),
    ),
    "GET /v0/health": Example(_HEALTH),
    "GET /v0/ready": Example(_READY),
    "GET /v0/topics/:/work": Example(
        {_STREAM: _WORK}, name="jobs", query={"node": "worker-1", "max": "2"}
    ),
    "GET /v0/watch/:": Example({_STREAM: _WATCH}, name=_WID),
    "GET /v0/ws": Example(
        {},
        status=101,
        messages={
            "subscribe": {"op": "subscribe", "request_id": 1, "topics": {"orders": {"tail": True}}},
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
    "GET /healthz": Example(_HEALTH),
    "GET /readyz": Example(_READY),
    "GET /v0/metrics": Example(
        {
            "text/plain": _METRICS,
            _JSON: {
                "topics_topics": 3,
                "performance": {"server_total_ms": 1.204, "throttle_wait_ms": 0.0},
            },
        }
    ),
    "GET /v0/limits": Example(
        {
            _JSON: {
                **asdict(Limits()),
                "performance": {"server_total_ms": 0.093, "throttle_wait_ms": 0.0},
            }
        }
    ),
    "GET /v0/openapi.json": Example(
        {_JSON: {"openapi": "3.1.0", "info": {"title": "topics", "version": VERSION}, "paths": {}}}
    ),
    "GET /v0/docs": Example({"text/html": "<!doctype html>"}),
    "GET /v0/docs/:": Example(
        {"text/css": ".swagger-ui{}", "text/javascript": "SwaggerUIBundle({})"},
        name="swagger-ui.css",
    ),
    "GET /v0/console/:": Example(
        {"text/css": ":root {}", "text/javascript": "export {};"}, name="main.js"
    ),
    "GET /v0/stats/history": Example(
        {
            _JSON: {
                "step_ms": 10_000,
                "now_ms": 1795254924012,
                "series": {"at_ms": [1795254920000.0], "records_in_per_s": [12.5]},
                "queues": [
                    {
                        "topic": "mails",
                        "at_ms": [1795254920000.0],
                        "ready": [2.0],
                        "in_flight": [0.0],
                        "delayed": [0.0],
                        "dead_lettered": [0.0],
                    }
                ],
                "performance": {"server_total_ms": 0.214, "throttle_wait_ms": 0.0},
            }
        }
    ),
    "POST /v0/cluster/trim": Example(
        {
            _JSON: {
                "trimmed": False,
                "before": 5120,
                "records": 5000,
                "log_start": 120,
                "log_end": 5131,
                "waits_for": "node",
                "node": "n2",
                "positions": [
                    {"node": "n1", "offset": 5130, "is_copy": True},
                    {"node": "n2", "offset": 5120, "is_copy": True},
                ],
                "performance": {"server_total_ms": 8.012, "throttle_wait_ms": 0.0},
            }
        },
        body='{"now": true, "dry_run": true}',
    ),
    "GET /v0/cluster": Example(
        {
            _JSON: {
                "enabled": False,
                "performance": {"server_total_ms": 0.031, "throttle_wait_ms": 0.0},
            }
        }
    ),
}
"""By `Route.line`."""

REFUSALS: Final[Mapping[ErrorCode, tuple[str, Mapping[str, Any]]]] = {
    ErrorCode.INVALID_REQUEST: (
        "Expected `int | null`, got `str` - at `$.limit`",
        {},
    ),
    ErrorCode.BATCH_TOO_LARGE: ("the batch exceeds 10000 records", {"limit": 10_000}),
    ErrorCode.RECORD_TOO_LARGE: (
        "data and meta of 1048592 bytes exceed 1048576 - at `$.records[0]`",
        {"limit": 1 << 20},
    ),
    ErrorCode.UNAUTHORIZED: ("expected a valid key: Authorization: Bearer KEY", {}),
    ErrorCode.FORBIDDEN: ("the key lacks the scope write", {"scopes": ["write"]}),
    ErrorCode.NOT_FOUND: ("no such watch session; post a new one", {}),
    ErrorCode.TOPIC_NOT_FOUND: ('topic "refunds" does not exist', {"topic": "refunds"}),
    ErrorCode.ROUTER_NOT_FOUND: ('router "refunds" does not exist', {"router": "refunds"}),
    ErrorCode.METHOD_NOT_ALLOWED: ("PATCH is not allowed here", {"allow": ["GET", "HEAD"]}),
    ErrorCode.NOT_ACCEPTABLE: ("this answers text/event-stream only", {}),
    ErrorCode.ROUTER_CYCLE: (
        "the router would close a ring of 2 topics",
        {"cycle": ["orders-eu", "orders", "orders-eu"]},
    ),
    ErrorCode.TOPIC_EXISTS_INCOMPATIBLE: (
        'topic "orders" is a log; its type cannot change',
        {"topic": "orders", "type": "log"},
    ),
    ErrorCode.TOPIC_NOT_EMPTY: (
        'topic "orders" holds 3 records',
        {"topic": "orders", "count": 3},
    ),
    ErrorCode.TRIM_REFUSED: (
        'the log is not trimmed: node "n2" needs the log from offset 5120 on',
        {"waits_for": "node", "node": "n2", "before": 5120},
    ),
    ErrorCode.NOT_A_QUEUE: ('topic "orders" is a log', {"topic": "orders", "type": "log"}),
    ErrorCode.PAYLOAD_TOO_LARGE: ("the body exceeds 67108864 bytes", {"limit": 64 << 20}),
    ErrorCode.UNSUPPORTED_MEDIA_TYPE: ("expected Content-Type: application/json", {}),
    ErrorCode.TOPIC_FULL: (
        'topic "full" is full: cap_records is 1000',
        {"topic": "full", "limit": "cap_records", "max": 1000},
    ),
    ErrorCode.THROTTLED: (
        "too many bytes of bodies are in flight",
        {"limit": "max_body_memory", "max": 256 << 20},
    ),
    ErrorCode.INTERNAL: (
        "the log failed before this was durable; whether it will be found again is unknown",
        {"reason": "write_failed", "outcome": "unknown"},
    ),
    ErrorCode.NOT_READY: ("the log is being replayed", {"replay_progress": 0.42}),
    ErrorCode.SHUTTING_DOWN: ("the server is stopping", {}),
    ErrorCode.NOT_LEADER: ("no node leads now", {"leader": None, "outcome": "not_applied"}),
    ErrorCode.REPLICA_BEHIND: ("this replica does not show unit 17 yet", {}),
}
"""Of each code, a message and its detail, as some request gets them."""


def refusal_of(code: ErrorCode) -> dict[str, Any]:
    """The body of an answer that is not good."""
    message, detail = REFUSALS[code]
    return {
        "error": {"code": code.code, "message": message, **({"detail": detail} if detail else {})}
    }
