"""What the document says of topics."""

from collections.abc import Mapping
from typing import Final

import msgspec

from topics.protocol.faces.http.openapi.operation import (
    LISTED,
    OF_A_TOPIC,
    PAGE,
    Example,
    Operation,
    boolean,
    json_of,
    json_text,
)
from topics.protocol.faces.http.openapi.words import TOPIC, Fields, defaults, says
from topics.protocol.faces.http.topics import (
    BackoffBody,
    ConfigBody,
    RateBody,
    TopicDeleted,
    TopicList,
    TopicPut,
    TopicState,
)
from topics.protocol.model.config import PARTITIONS_MAX, Backoff, Rate, TopicConfig
from topics.protocol.model.errors import ErrorCode

_CONFIG: Final[Fields] = defaults(
    TopicConfig(),
    {
        "type": says(
            "A log, or a queue whose records can be worked off; fixed once it exists; `log` at first."
        ),
        "ttl_ms": says("Records older than this are gone; 0: never."),
        "cap_records": says("The most records the topic holds; 0: no cap."),
        "cap_bytes": says("The most bytes it holds, as they are served; 0: no cap."),
        "discard": says("What a full topic does: lose its oldest records, or answer 422."),
        "durable": says("Short for `fsync`; `durability` has the last word."),
        "durability": says("What an acknowledged write survives; `disk` where nothing is said."),
        "priority": says("-1000 to 1000: which topic's news a stream sends first."),
        "auto_priority": says("Without a priority: 1000 after a read, halved each minute."),
        "auto_create": says("In a write's config: whether the write may make the topic."),
        "idempotency_window_ms": says("How long keys are remembered; 0: not at all."),
        "dedupe_node": says("Whether readers may leave out their own records."),
        "lease_ms": says("Queues: how long a claim holds a job; clamped to 100 to 86400000."),
        "claim_jitter_ms": says("Queues: a claim waits for others; at most 5000."),
        "max_deliveries": says("Queues: then a job goes to `dead_letter`; 0: never."),
        "dead_letter": says("Queues: the topic for jobs that were delivered too often.", TOPIC),
        "leases_durable": says("Queues: whether leases survive a crash."),
        "max_message_bytes": says(
            "The largest record batch of a client of Kafka's, 1048588 bytes where it is absent."
        ),
        "message_timestamp_type": says(
            "Whose time records of Kafka's clients have: their producer's where it is absent."
        ),
        "partitions": says(
            "How many logs the topic is, 1 to 1000; one where it is absent.",
            minimum=1,
            maximum=PARTITIONS_MAX,
        ),
        "compact": says("Of records with one key the newest stays, and older ones are deleted."),
        "kafka_configs": says(
            "Configs of Kafka's clients, by their names there, that no other field says."
        ),
        "order": says("Queues: with `group`, jobs of a group are done one after another."),
        "fair": says("Queues: claims take groups in turn; `false` where it is absent."),
        "rate": says("Queues: how many jobs are started in a time, at most."),
        "max_in_flight": says("Queues: how many jobs are leased at once, at most; 0: no limit."),
        "group_max_in_flight": says(
            "Queues: how many jobs of one group are leased at once, at most; 0: no limit. With `order` "
            "it is 1."
        ),
        "backoff": says(
            "Queues: how long a job rests after a nack without `delay_ms`, and after its lease ran out."
        ),
        "result_ttl_ms": says("How long what became of a job is kept; an hour where it is absent."),
        "keep_done": says("Of how many jobs that ended it is kept; of 1000 where it is absent."),
    },
)

_RATE: Final[Fields] = {
    "max": says("Jobs, 1 or more."),
    "per_ms": says("The time, 1 to 86400000, wherever it begins."),
}

_BACKOFF: Final[Fields] = {
    "base_ms": says("After the first delivery; at most `max_ms`."),
    "factor": says("By which it grows with each delivery, 1 to 1000.", default=2.0),
    "max_ms": says("The longest; at most 86400000, which is its default."),
    "jitter": says("0 to 1: up to this share of it is left out, by chance.", default=0.0),
}


OPERATIONS: Final[Mapping[str, Operation]] = {
    "GET /v0/topics": Operation(
        "topics",
        "listTopics",
        "Topics by name, a page at a time.",
        json_of(TopicList),
        parameters=(
            *PAGE,
            boolean("touch", "Whether those listed count as read.", default=False),
        ),
        description=f"State and counters of each topic. {LISTED}",
        gives="One page of topics.",
        example=Example(
            query={"prefix": "or", "page_size": "2"},
            answer=json_text("""{"topics":[{"topic":"orders","type":"log","head_seq":3,"earliest_seq":1,"count":3,
"bytes":188,"disk_bytes":0,"durable":false,"durability":"disk","effective_priority":0},
{"topic":"orders-eu","type":"log","head_seq":2,"earliest_seq":1,"count":2,"bytes":126,
"disk_bytes":0,"durable":false,"durability":"disk","effective_priority":0}],
"performance":{"server_total_ms":0.412,"throttle_wait_ms":0.0}}"""),
        ),
    ),
    "PUT /v0/topics/:": Operation(
        "topics",
        "putTopic",
        "Make a topic, or replace its config as a whole.",
        json_of(TopicPut),
        body=ConfigBody,
        refusals=(
            ErrorCode.TOPIC_EXISTS_INCOMPATIBLE,
            ErrorCode.PARTITIONED,
            ErrorCode.UPGRADE_PENDING,
        ),
        creates=True,
        description=(
            "A field that is left out gets its default, also where the topic exists: "
            "read the config first to change only a part of it. The type of a topic cannot be changed. 201 "
            "where the topic was made, 200 where it was there. It is on the disk before the answer is sent."
        ),
        takes="Fields of the config; `{}` or no body for the defaults.",
        gives="The config in force, with all defaults.",
        example=Example(
            name="audit",
            body="""{"durability": "fsync", "ttl_ms": 7776000000}""",
            status=201,
            answer=json_text("""{"topic":"audit","created":true,"config":{"type":"log","ttl_ms":7776000000,"cap_records":0,
"cap_bytes":0,"discard":"old","durable":true,"durability":"fsync","priority":null,
"auto_priority":true,"auto_create":true,"idempotency_window_ms":120000,"dedupe_node":true,
"lease_ms":30000,"claim_jitter_ms":0,"max_deliveries":0,"dead_letter":null,
"leases_durable":false},"performance":{"server_total_ms":0.412,"wal_append_ms":0.122,
"fsync_ms":0.000,"throttle_wait_ms":0.0}}"""),
        ),
    ),
    "GET /v0/topics/:": Operation(
        "topics",
        "getTopic",
        "A topic's state and config.",
        json_of(TopicState),
        parameters=(boolean("touch", "Whether this counts as a read.", default=True),),
        refusals=OF_A_TOPIC,
        description=(
            "Counts, bounds, config, and of a queue how many jobs are where. With "
            "`touch=false` it does not count as use of the topic."
        ),
        gives="The topic as it is now.",
        example=Example(
            name="jobs",
            answer=json_text("""{"topic":"jobs","type":"queue","epoch":"2b4f57fe9e64a177-1","head_seq":3,"earliest_seq":1,
"next_seq":4,"count":3,"bytes":147,"disk_bytes":0,"segments":0,"lost_24h":[],
"config":{"type":"queue","ttl_ms":0,"cap_records":0,"cap_bytes":0,"discard":"old","durable":false,"durability":"disk",
"priority":null,"auto_priority":true,"auto_create":true,"idempotency_window_ms":120000,
"dedupe_node":true,"lease_ms":30000,"claim_jitter_ms":0,"max_deliveries":5,
"dead_letter":"jobs-dead","leases_durable":false},"effective_priority":0,
"last_write_ts":1795254919024,"last_read_ts":1795254920110,"queue":{"ready":3,"in_flight":0,
"dead_lettered":0},"performance":{"server_total_ms":0.412,"throttle_wait_ms":0.0}}"""),
        ),
    ),
    "DELETE /v0/topics/:": Operation(
        "topics",
        "deleteTopic",
        "Remove a topic, its records and its routers, for good.",
        json_of(TopicDeleted),
        parameters=(boolean("if_empty", "Only if it holds no record.", default=False),),
        refusals=(ErrorCode.TOPIC_NOT_EMPTY, ErrorCode.THROTTLED),
        description=(
            "Watchers get `topic-deleted`. A topic made later under the same name "
            "begins at 1, with another `epoch`. Deleting what does not exist is no error: `deleted` is "
            "false."
        ),
        gives="Whether there was one, and which routers went with it.",
        example=Example(
            name="orders",
            answer=json_text("""{"topic":"orders","deleted":true,"routers_removed":["orders-eu"],
"performance":{"server_total_ms":0.412,"wal_append_ms":0.122,"fsync_ms":0.000,
"throttle_wait_ms":0.0}}"""),
        ),
    ),
}
"""By `Route.line`."""

FIELDS: Final[Mapping[type[msgspec.Struct], Fields]] = {
    ConfigBody: _CONFIG,
    TopicConfig: _CONFIG,
    RateBody: _RATE,
    Rate: _RATE,
    BackoffBody: _BACKOFF,
    Backoff: _BACKOFF,
}
"""Every field of every body, and of the configs that answers hold."""

WHOLE: Final[Mapping[type[msgspec.Struct], str]] = {
    ConfigBody: "A topic's config; a field left out has its default.",
    TopicConfig: "A topic's config in force, every field given.",
    RateBody: "At most `max` jobs are started in any `per_ms`.",
    Rate: "At most `max` jobs are started in any `per_ms`.",
    BackoffBody: "How long a job rests: `base_ms` times `factor` for each delivery after the first.",
    Backoff: "How long a job rests: `base_ms` times `factor` for each delivery after the first.",
}
"""What a body means as a whole, and rules between its fields."""
