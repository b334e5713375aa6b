"""A message and its detail for each code of an error (§0.6)."""

from collections.abc import Mapping
from typing import Any, Final

from topics.protocol.model.errors import ErrorCode

REFUSALS: Final[Mapping[ErrorCode, tuple[str, Mapping[str, Any]]]] = {
    ErrorCode.INVALID_REQUEST: (
        "Expected `int | null`, got `str` - at `$.limit`",
        {},
    ),
    ErrorCode.PARTITION_REQUIRED: (
        'topic "orders" has 8 partitions: name one',
        {"topic": "orders", "partitions": 8},
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
    ErrorCode.PARTITION_NOT_FOUND: (
        'topic "orders" has no partition 8',
        {"topic": "orders", "partition": 8},
    ),
    ErrorCode.ROUTER_NOT_FOUND: ('router "refunds" does not exist', {"router": "refunds"}),
    ErrorCode.GROUP_NOT_FOUND: ('group "refunds" does not exist', {"group": "refunds"}),
    ErrorCode.SCHEDULE_NOT_FOUND: ('schedule "refunds" does not exist', {"schedule": "refunds"}),
    ErrorCode.RECORD_NOT_FOUND: (
        'topic "orders" has no record with the tag "nobody"',
        {"topic": "orders", "tag": "nobody"},
    ),
    ErrorCode.JOB_NOT_FOUND: ('queue "jobs" has no job 9', {"topic": "jobs", "seq": 9}),
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
    ErrorCode.GROUP_NOT_EMPTY: (
        'group "billing" has 3 members',
        {"group": "billing", "members": 3},
    ),
    ErrorCode.TRIM_REFUSED: (
        'the log is not trimmed: node "n2" needs the log from offset 5120 on',
        {"waits_for": "node", "node": "n2", "before": 5120},
    ),
    ErrorCode.UPGRADE_PENDING: (
        "a node of an older version could not read this; it is taken once every node is upgraded",
        {"format": 2, "written": 1},
    ),
    ErrorCode.PARTITIONED: (
        'topic "orders" is no queue: with more than one partition it has no order of its own',
        {"topic": "orders"},
    ),
    ErrorCode.NOT_A_QUEUE: ('topic "orders" is a log', {"topic": "orders", "type": "log"}),
    ErrorCode.NO_DEAD_LETTER: ('queue "jobs" has no dead_letter', {"topic": "jobs"}),
    ErrorCode.LEASED: (
        'job 1 of queue "jobs" is leased to "worker-1"',
        {"topic": "jobs", "seq": 1},
    ),
    ErrorCode.PAYLOAD_TOO_LARGE: ("the body exceeds 67108864 bytes", {"limit": 64 << 20}),
    ErrorCode.UNSUPPORTED_MEDIA_TYPE: ("expected Content-Type: application/json", {}),
    ErrorCode.TOPIC_FULL: (
        'topic "full" is full: cap_records is 1000',
        {"topic": "full", "limit": "cap_records", "max": 1000},
    ),
    ErrorCode.KEY_REQUIRED: (
        'topic "states" is compacted: each record needs a tag or a key',
        {"topic": "states", "records": [0]},
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
