"""What each field of a request means, in a line: the words of `/v0/openapi.json`.

Which fields there are, and their types, come from the bodies themselves (`topics.protocol.faces.http.bodies`);
here is what a type cannot say.  A fragment is JSON schema: a description, a default that is not
null, which the document puts into words, and bounds that no setting moves.  Bounds that only clamp
are described in words, since a greater number is no error (§0.3); so are rules between fields, of
which generators of clients make types that nobody can fill in.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec

from topics.protocol.faces.http import websocket
from topics.protocol.faces.http.append_body import AppendBody, RecordBody
from topics.protocol.faces.http.cluster import TrimBody
from topics.protocol.faces.http.queues import ClaimBody, ExtendBody, HeldBody, NackBody
from topics.protocol.faces.http.records import DeleteBody, DiffBody, PurgeBody
from topics.protocol.faces.http.routers import RouterBody
from topics.protocol.faces.http.topics import ConfigBody
from topics.protocol.faces.http.watch import BeginBody, WatchBody
from topics.protocol.model.config import RouterConfig, TopicConfig
from topics.protocol.model.limits import (
    BATCH_BYTES_DEFAULT,
    FRAME_BYTES_DEFAULT,
    HEARTBEAT_MS_DEFAULT,
    KEY_CHARS_MAX,
    LIMIT_DEFAULT,
)
from topics.protocol.model.names import TOPIC_PATTERN
from topics.protocol.model.tags import SUBJECT_PATTERN

Fragment: TypeAlias = dict[str, Any]
Fields: TypeAlias = Mapping[str, Fragment]

TOPIC: Final[Fragment] = {"pattern": f"^{TOPIC_PATTERN}$"}


def _says(description: str, more: Fragment | None = None, **bounds: object) -> Fragment:
    return {"description": description, **(more or {}), **bounds}


def _defaults(config: msgspec.Struct, words: Fields) -> Fields:
    """Words with the defaults that a config resolves to; null is none worth telling."""
    known = msgspec.structs.asdict(config)
    # Sent where it was left out, the default of these would mean something else: another type, or
    # the last word over `durable`.
    for name in ("type", "durability"):
        known.pop(name, None)
    return {
        name: said if known.get(name) is None else {**said, "default": known[name]}
        for name, said in words.items()
    }


_CONFIG: Final[Fields] = _defaults(
    TopicConfig(),
    {
        "type": _says(
            "A log, or a queue whose records can be worked off; fixed once it exists; `log` at first."
        ),
        "ttl_ms": _says("Records older than this are gone; 0: never."),
        "cap_records": _says("The most records the topic holds; 0: no cap."),
        "cap_bytes": _says("The most bytes it holds, as they are served; 0: no cap."),
        "discard": _says("What a full topic does: lose its oldest records, or answer 422."),
        "durable": _says("Short for `fsync`; `durability` has the last word."),
        "durability": _says("What an acknowledged write survives; `disk` where nothing is said."),
        "priority": _says("-1000 to 1000: which topic's news a stream sends first."),
        "auto_priority": _says("Without a priority: 1000 after a read, halved each minute."),
        "auto_create": _says("In a write's config: whether the write may make the topic."),
        "idempotency_window_ms": _says("How long keys are remembered; 0: not at all."),
        "dedupe_node": _says("Whether readers may leave out their own records."),
        "lease_ms": _says("Queues: how long a claim holds a job; clamped to 100 to 86400000."),
        "claim_jitter_ms": _says("Queues: a claim waits for others; at most 5000."),
        "max_deliveries": _says("Queues: then a job goes to `dead_letter`; 0: never."),
        "dead_letter": _says("Queues: the topic for jobs that were delivered too often.", TOPIC),
        "leases_durable": _says("Queues: whether leases survive a crash."),
    },
)

_ROUTER: Final[Fields] = _defaults(
    RouterConfig(source="", dest=""),
    {
        "preserve_node": _says("Whether copies keep `$node`."),
        "preserve_tag": _says("Whether copies keep their tag."),
        "filter": _says("Which tags to copy; all records where there is none."),
        "allow_cycle": _says("Whether the router may close a ring of topics."),
        "guarantee": _says("`exactly_once` puts its source into each copy's `meta`."),
    },
)
_ENDS: Final[Fields] = {
    "source": _says("The topic that is copied.", TOPIC),
    "dest": _says("Where its records go.", TOPIC),
}

_MATCH: Final = _says(
    "Only tags that match: `Eq` is this tag, `Glob` all that begin with what stands before the "
    "last `*`; a string is `Glob` if it ends in `*`, else `Eq`. At most 16 KiB of text."
)
_BEGIN: Final[Fields] = {
    "from_seq": _says("Records after this number; 0, as absent, is the earliest there is."),
    "from_ts": _says("Instead of `from_seq`: from the first record at or after this time."),
    "match": _MATCH,
    "node": _says("One name or a list: leave out what they wrote."),
}
_TAIL: Final = _says("Only what comes after this request.", default=False)
_VIEW: Final[Fields] = {
    "node": _BEGIN["node"],
    "match": _MATCH,
    "limit": _says(
        "Records in one frame; at most `max_limit`, 0: as absent.", default=LIMIT_DEFAULT
    ),
    "max_batch_bytes": _says(
        "Bytes in one frame, at most 8388608; the first record always fits.",
        default=FRAME_BYTES_DEFAULT,
    ),
    "include_tags": _says("Show `$tag`.", default=False),
    "include_meta": _says("Show `meta`.", default=True),
    "include_data": _says("Show `data`.", default=True),
    "consistency": _says("`strong`: only what is on the disk.", default="eventual"),
}
_BEGINS: Final = _says("By name; at most `max_watch_topics`.", minProperties=1)
_WORKER: Final = _says("The worker's name; workers of one name hold the same leases.", minLength=1)
_HELD: Final[Fields] = {
    "node": _WORKER,
    "seqs": _says("The jobs' numbers; at most `max_claim`."),
    "lease_ids": _says("One for each number: only that lease counts."),
}

FIELDS: Final[Mapping[type[msgspec.Struct], Fields]] = {
    ConfigBody: _CONFIG,
    TopicConfig: _CONFIG,
    RecordBody: {
        "data": _says("Any JSON, kept byte for byte; with `meta` at most `max_record_bytes`."),
        "tag": _says("What deletes, purges and filtered reads go by; at most `max_tag_bytes`."),
        "node": _says("Who wrote it; at most `max_node_bytes`."),
        "meta": _says("An object of at most 64 keys and `max_meta_bytes`."),
    },
    AppendBody: {
        "records": _says("All of them or none; at most `max_batch_records`.", minItems=1),
        "node": _says("For all records that name none."),
        "idempotency_key": _says(
            "The same key again answers as the first time, and writes nothing.",
            maxLength=KEY_CHARS_MAX,
        ),
        "create": _says("Whether to make the topic; else as `config.auto_create` says."),
        "config": _says("Used only if this write makes the topic."),
        "disable_backpressure": _says(
            "Let this write pass where unsealed records hold too much memory.", default=False
        ),
    },
    DiffBody: {
        **_BEGIN,
        "limit": _says("Records; at most `max_limit`, 0: as absent.", default=LIMIT_DEFAULT),
        "max_batch_bytes": _says(
            "Bytes, at most 8388608; the first record always fits.", default=BATCH_BYTES_DEFAULT
        ),
        "include_tags": _VIEW["include_tags"],
        "include_meta": _VIEW["include_meta"],
        "wait_ms": _says(
            "How long to wait where there is nothing to answer; at most 30000.", default=0
        ),
        "epoch": _says("The `epoch` read before: another one by now is answered with a tombstone."),
    },
    BeginBody: {**_BEGIN, "tail": _TAIL},
    WatchBody: {
        **_VIEW,
        "topics": _BEGINS,
        "heartbeat_ms": _says("1000 to 60000.", default=HEARTBEAT_MS_DEFAULT),
        "cursor": _says("An earlier session's cursor, or the last id of its stream."),
    },
    websocket.SubscribeBody: {
        **_VIEW,
        **_BEGIN,
        "tail": _TAIL,
        "topic": _says("One topic; or `topics`.", TOPIC),
        "topics": _BEGINS,
        "position": _says(
            "On a node of a cluster: how far the log is to be shown at least, as an `ack` had it.",
            type="string",
        ),
    },
    websocket.Envelope: {
        "op": _says("What is meant.", enum=["subscribe", "unsubscribe", "publish", "ping"]),
        "request_id": _says("Comes back in the reply."),
        "topic": _says("Of `publish` and `unsubscribe`, and of `subscribe` to one topic.", TOPIC),
        "return_seqs": _says("Of `publish`: whether its reply lists `seqs`.", default=True),
    },
    RouterBody: {
        **_ENDS,
        **_ROUTER,
        "create_dest": _says("Make a missing destination; else 404.", default=True),
    },
    RouterConfig: {**_ENDS, **_ROUTER},
    DeleteBody: {
        "before_seq": _says("Records with a smaller number."),
        "match": _MATCH,
        "erase": _says("Answer when the bytes are gone, too.", default=False),
    },
    PurgeBody: {
        "seq": _says("Records with a smaller number; 0: none. Not with `keep`."),
        "keep": _says("All but the newest so many that match; 0: all."),
        "filter": _says(
            "A NATS subject: `*` is one token, a final `>` one or more.", pattern=SUBJECT_PATTERN
        ),
    },
    TrimBody: {
        "before": _says("The records before this offset, however young. Not with `now`."),
        "now": _says("All that no live node needs, however young.", default=False),
        "alone": _says(
            "Also where one node alone has the data: they end with its disk.", default=False
        ),
        "dry_run": _says("Say what would go, and let nothing go.", default=False),
    },
    ClaimBody: {
        "node": _WORKER,
        "max": _says("Jobs wanted; at most `max_claim`, 0 is 1.", default=1),
        "lease_ms": _says("How long they are leased, 100 to 86400000; else as the topic has it."),
        "wait_ms": _says("Where there is no job, wait; at most 30000.", default=0),
    },
    HeldBody: _HELD,
    NackBody: {
        **_HELD,
        "delay_ms": _says("May be claimed after this; at most 86400000.", default=0),
    },
    ExtendBody: {**_HELD, "lease_ms": _says("From now; clamped to 100 to 86400000.")},
}
"""Every field of every body, and of the configs that answers hold."""

WHOLE: Final[Mapping[type[msgspec.Struct], str]] = {
    DeleteBody: "What to delete: `before_seq`, `match`, or what both say; at least one of them.",
    PurgeBody: "What to purge; nothing said is everything. `seq` and `keep` exclude each other.",
    TrimBody: "How far to trim. `before` and `now` exclude each other.",
    DiffBody: "What to read. `from_seq` and `from_ts` exclude each other.",
    BeginBody: "Where a topic begins. `from_seq` and `from_ts` exclude each other.",
    websocket.SubscribeBody: "One `topic` with its beginning, where `from_seq` and `from_ts` exclude "
    "each other, or `topics`.",
    HeldBody: "Jobs, and whose they are.",
    ConfigBody: "A topic's config; a field left out has its default.",
    TopicConfig: "A topic's config in force, every field given.",
}
"""What a body means as a whole, and rules between its fields."""
