"""What the document says of records."""

from collections.abc import Mapping
from typing import Final

import msgspec

from topics.protocol.faces.http.append_body import AppendBody, RecordBody
from topics.protocol.faces.http.job_options import UniqueBody
from topics.protocol.faces.http.openapi.operation import (
    OF_A_PARTITION,
    TEXT,
    Example,
    Operation,
    Parameter,
    boolean,
    json_of,
    json_text,
    natural,
)
from topics.protocol.faces.http.openapi.words import BEGIN, MATCH, PARTITION, VIEW, Fields, says
from topics.protocol.faces.http.records import (
    Appended,
    DeleteBody,
    DiffBody,
    LatestRecords,
    Page,
    PurgeBody,
    Purged,
    RecordsDeleted,
    StablePage,
)
from topics.protocol.model.errors import ErrorCode
from topics.protocol.model.job_options import DELAY_MS_MAX, KEY_BYTES_MAX
from topics.protocol.model.limits import (
    BATCH_BYTES_DEFAULT,
    KEY_CHARS_MAX,
    LIMIT_DEFAULT,
)
from topics.protocol.model.tags import SUBJECT_PATTERN

OPERATIONS: Final[Mapping[str, Operation]] = {
    "POST /v0/topics/:": Operation(
        "records",
        "appendRecords",
        "Append records: all of them, with consecutive numbers, or none.",
        json_of(Appended),
        body=AppendBody,
        parameters=(
            boolean("return_seqs", "Whether the answer lists `seqs`.", default=True),
            Parameter(
                "Idempotency-Key",
                "As `idempotency_key`, which overrules it.",
                {"type": "string", "maxLength": KEY_CHARS_MAX},
                "header",
            ),
        ),
        refusals=(
            ErrorCode.PARTITION_NOT_FOUND,
            ErrorCode.BATCH_TOO_LARGE,
            ErrorCode.RECORD_TOO_LARGE,
            ErrorCode.TOPIC_NOT_FOUND,
            ErrorCode.UPGRADE_PENDING,
            ErrorCode.TOPIC_FULL,
            ErrorCode.KEY_REQUIRED,
        ),
        creates=True,
        description=(
            "A topic that does not exist is made, unless `create` is false. The "
            "answer comes when the records are as safe as the "
            "topic's durability class promises. With an `idempotency_key` the same append can be sent "
            "again: it is stored once, and the answer is that of the first, with `deduped`. Records of a queue are "
            "jobs, and may say when a job may start, how urgent it is, and which key it has."
        ),
        takes="The records, in the order in which they get their numbers.",
        gives="The numbers that the records have.",
        example=Example(
            name="orders",
            body="""{"records": [
 {"data": {"order": 4, "total": 12.50}, "tag": "eu.paid", "meta": {"trace": "a1"}},
 {"data": {"order": 5, "total": 8}, "tag": "us.open"}],
 "node": "shop-1", "idempotency_key": "import-7"}""",
            answer=json_text("""{"topic":"orders","first_seq":4,"last_seq":5,"seqs":[4,5],"head_seq":5,"count":2,
"created":false,"deduped":false,"performance":{"server_total_ms":0.412,
"wal_append_ms":0.122,"fsync_ms":0.000,"throttle_wait_ms":0.0}}"""),
        ),
    ),
    "POST /v0/topics/:/diff": Operation(
        "records",
        "readRecords",
        "Read what comes after a cursor, and what was lost there.",
        json_of(Page),
        body=DiffBody,
        refusals=OF_A_PARTITION,
        description=(
            "Continue with `next_from_seq`. `caught_up` says that there is "
            "nothing more for now; with `wait_ms` the answer waits for a record. Records that were lost "
            "before they could be read are in `tombstone`; records that were deleted are in none. Send the "
            "`epoch` of the last page, to learn that the topic was deleted and made again."
        ),
        takes="Where to begin, how much, and which records.",
        gives="Records in order, where to continue, and what was lost.",
        example=Example(
            name="orders",
            body="""{"from_seq": 1, "limit": 100, "include_tags": true, "wait_ms": 20000}""",
            answer=json_text("""{"topic":"orders","records":[{"$seq":2,"$ts":1795254919024,"$tag":"eu.open",
"data":{"order": 2, "total": 35}},{"$seq":3,"$ts":1795254919024,"$tag":"us.paid",
"data":{"order": 3, "total": 7}}],"next_from_seq":3,"head_seq":3,"earliest_seq":1,
"caught_up":true,"tombstone":null,"lag":0,"epoch":"2b4f57fe9e64a177-1",
"performance":{"server_total_ms":0.412,"records_scanned":2,"throttle_wait_ms":0.0}}"""),
        ),
    ),
    "GET /v0/topics/:/records": Operation(
        "records",
        "readRecordsPage",
        "Read what comes after a cursor as a page that caches may keep, and ask again about.",
        json_of(StablePage),
        parameters=(
            natural("from_seq", "Records after this number; 0: from the earliest.", 0),
            natural("limit", "At most 1000 by default; 0 is the default.", LIMIT_DEFAULT),
            natural(
                "max_batch_bytes",
                "At most 8 MiB; 0 is the default. The first record always fits.",
                BATCH_BYTES_DEFAULT,
            ),
            boolean("include_tags", "Whether records have their `$tag`.", default=False),
            boolean("include_meta", "Whether records have their `meta`.", default=True),
            Parameter("epoch", "The topic's, as it was read: another one is a tombstone.", TEXT),
            natural(
                "partition", "Which one; needed where the topic has more than one.", **PARTITION
            ),
            Parameter("If-None-Match", "The `ETag` of pages that are kept.", TEXT, "header"),
        ),
        refusals=OF_A_PARTITION,
        is_stable=True,
        description=(
            "For the same parameters the same bytes, as long as nothing is "
            "removed: the answer has no timings and no marks that move. Ask again with `If-None-Match`, and "
            "304 says that the page is as it was."
        ),
        gives="Records in order, where to continue, and what was lost.",
        example=Example(
            name="orders",
            query={"from_seq": "1", "limit": "100"},
            answer=json_text("""{"records":[{"$seq":2,"$ts":1795254919024,"data":{"order": 2, "total": 35}},{"$seq":3,
"$ts":1795254919024,"data":{"order": 3, "total": 7}}],"tombstone":null,"next_from_seq":3}"""),
        ),
    ),
    "GET /v0/topics/:/latest": Operation(
        "records",
        "readLatestRecords",
        "Read the latest record of a tag, or of each tag that begins with a prefix.",
        json_of(LatestRecords),
        parameters=(
            Parameter("tag", "The one tag; it excludes `prefix` and `cursor`.", TEXT),
            Parameter(
                "prefix", "Tags that begin so; without it and without `tag`: all tags.", TEXT
            ),
            natural("limit", "At most 1000 by default; 0 is the default.", LIMIT_DEFAULT),
            Parameter("cursor", "`next_cursor` of the page before.", TEXT),
            natural(
                "max_batch_bytes",
                "At most 8 MiB; 0 is the default. The first record always fits.",
                BATCH_BYTES_DEFAULT,
            ),
            boolean("include_tags", "Whether records have their `$tag`.", default=True),
            boolean("include_meta", "Whether records have their `meta`.", default=True),
            Parameter("If-None-Match", "The `ETag` of answers that are kept.", TEXT, "header"),
        ),
        refusals=(ErrorCode.TOPIC_NOT_FOUND, ErrorCode.RECORD_NOT_FOUND),
        is_stable=True,
        description=(
            "A topic as a table, by tag: compacted or not, each tag has its newest record. Pages go by "
            "tag; within one, records are in the order of their numbers. With `If-None-Match`, 304 says that "
            "the answer is as it was."
        ),
        gives="The newest record of each tag.",
        example=Example(
            name="orders",
            query={"prefix": "us."},
            answer=json_text("""{"records":[{"$seq":3,"$ts":1795254919024,"$tag":"us.paid",
"data":{"order": 3, "total": 7}}],"epoch":"2b4f57fe9e64a177-1"}"""),
        ),
    ),
    "POST /v0/topics/:/delete": Operation(
        "records",
        "deleteRecords",
        "Remove records by number, by tag, or by both.",
        json_of(RecordsDeleted),
        body=DeleteBody,
        refusals=OF_A_PARTITION,
        description=(
            "Removes records below a number, those whose tag matches, or those "
            "of which both is true. Readers are not informed of them. Records that are appended later are not "
            "affected. With `erase` the answer comes when their bytes are gone from the disk."
        ),
        takes="Which records; at least one of `before_seq` and `match`.",
        gives="How many records were removed, and what is left.",
        example=Example(
            name="orders",
            body="""{"before_seq": 3, "match": ["tag", "Glob", "eu.*"]}""",
            answer=json_text("""{"topic":"orders","deleted":2,"earliest_seq":3,"head_seq":3,"count":1,"bytes":62,
"performance":{"server_total_ms":0.412,"wal_append_ms":0.122,"fsync_ms":0.000,
"throttle_wait_ms":0.0}}"""),
        ),
    ),
    "POST /v0/topics/:/purge": Operation(
        "records",
        "purgeRecords",
        "Remove records, said in the words of NATS.",
        json_of(Purged),
        body=PurgeBody,
        refusals=OF_A_PARTITION,
        description=(
            "Without a field it removes all. `filter` matches tags token by "
            "token: `*` is one token between dots, a final `>` one or more. `keep` leaves the newest, `seq` "
            "limits it to those below; they exclude each other."
        ),
        takes="Which records; none of the fields for all.",
        gives="How many records were removed, and what is left.",
        example=Example(
            name="orders",
            body="""{"filter": "eu.*", "keep": 1}""",
            answer=json_text("""{"topic":"orders","success":true,"purged":1,"earliest_seq":2,"head_seq":3,"count":2,
"bytes":125,"performance":{"server_total_ms":0.412,"wal_append_ms":0.122,"fsync_ms":0.000,
"throttle_wait_ms":0.0}}"""),
        ),
    ),
}
"""By `Route.line`."""

_PARTITION: Final = says("Which one; needed where the topic has more than one.", PARTITION)

FIELDS: Final[Mapping[type[msgspec.Struct], Fields]] = {
    RecordBody: {
        "data": says("Any JSON, kept byte for byte; with `meta` at most `max_record_bytes`."),
        "tag": says("What deletes, purges and filtered reads go by; at most `max_tag_bytes`."),
        "node": says("Who wrote it; at most `max_node_bytes`."),
        "meta": says("An object of at most 64 keys and `max_meta_bytes`."),
        "form": says(
            "What the data stand for, for Kafka's clients: text, bytes in base64, or no value; "
            "JSON where it is absent."
        ),
        "key": says("The key of a client of Kafka's in base64, where it is no tag."),
        "time": says("The time of its producer, milliseconds since the epoch."),
        "headers": says("Headers of a client of Kafka's: pairs of a name and a value."),
        "partition": says(
            "Where it goes; else by its tag or key, or where the append's turn is.", PARTITION
        ),
        "delay_ms": says(
            f"Queues: the job may be claimed after this; at most {DELAY_MS_MAX}, which is ten years."
        ),
        "not_before": says(
            "Queues: the job may be claimed from this time on, milliseconds since the epoch. Not with "
            "`delay_ms`."
        ),
        "priority": says(
            "Queues: -128 to 127; jobs of a higher priority are claimed first.", default=0
        ),
        "expires_ms": says(
            "Queues: unless it is claimed so soon after it may be, the job is deleted, or a dead letter; "
            f"1 to {DELAY_MS_MAX}."
        ),
        "group": says(
            "Queues: with which jobs it takes turns; else those with its tag. At most `max_tag_bytes`."
        ),
        "unique": says(
            "Queues: a key, or what another append of the key does: while a job has it, there is no "
            "second one."
        ),
    },
    UniqueBody: {
        "key": says(f"1 to {KEY_BYTES_MAX} bytes."),
        "on_conflict": says(
            "Where a job has the key: `keep` that one, or `replace` it where it waits; `keep` where "
            "nothing is said."
        ),
        "for_ms": says(
            "The key is held for so long after the append, also where the job is done before; at most "
            f"{DELAY_MS_MAX}."
        ),
    },
    AppendBody: {
        "records": says("All of them or none; at most `max_batch_records`.", minItems=1),
        "node": says("For all records that name none."),
        "idempotency_key": says(
            "The same key again answers as the first time, and writes nothing.",
            maxLength=KEY_CHARS_MAX,
        ),
        "create": says("Whether to make the topic; else as `config.auto_create` says."),
        "config": says("Used only if this write makes the topic."),
        "disable_backpressure": says(
            "Let this write pass where unsealed records hold too much memory.", default=False
        ),
    },
    DiffBody: {
        **BEGIN,
        "limit": says("Records; at most `max_limit`, 0: as absent.", default=LIMIT_DEFAULT),
        "max_batch_bytes": says(
            "Bytes, at most 8388608; the first record always fits.", default=BATCH_BYTES_DEFAULT
        ),
        "include_tags": VIEW["include_tags"],
        "include_meta": VIEW["include_meta"],
        "wait_ms": says(
            "How long to wait where there is nothing to answer; at most 30000.", default=0
        ),
        "epoch": says("The `epoch` read before: another one by now is answered with a tombstone."),
        "partition": _PARTITION,
    },
    DeleteBody: {
        "before_seq": says("Records with a smaller number."),
        "match": MATCH,
        "erase": says("Answer when the bytes are gone, too.", default=False),
        "partition": says(
            "Which one; needed with `before_seq`. Without it, what matches in all.", PARTITION
        ),
    },
    PurgeBody: {
        "seq": says("Records with a smaller number; 0: none. Not with `keep`."),
        "keep": says("All but the newest so many that match; 0: all."),
        "filter": says(
            "A NATS subject: `*` is one token, a final `>` one or more.", pattern=SUBJECT_PATTERN
        ),
        "partition": says("Which one; needed with `seq` or `keep`. Without it, all.", PARTITION),
    },
}
"""Every field of every body, and of the configs that answers hold."""

WHOLE: Final[Mapping[type[msgspec.Struct], str]] = {
    DeleteBody: "What to delete: `before_seq`, `match`, or what both say; at least one of them.",
    UniqueBody: "A key that one job of a queue has at a time.",
    PurgeBody: "What to purge; nothing said is everything. `seq` and `keep` exclude each other.",
    DiffBody: "What to read. `from_seq` and `from_ts` exclude each other.",
}
"""What a body means as a whole, and rules between its fields."""
