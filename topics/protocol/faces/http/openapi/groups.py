"""What the document says of groups of consumers."""

from collections.abc import Mapping
from typing import Final

import msgspec

from topics.protocol.faces.http.groups import (
    COMMIT_OFFSETS_MAX,
    CommitBody,
    GroupDeleted,
    GroupList,
    GroupState,
    OffsetBody,
    OffsetsCommitted,
)
from topics.protocol.faces.http.openapi.operation import (
    LISTED,
    PAGE,
    TEXT,
    Example,
    Operation,
    Parameter,
    json_of,
    json_text,
    natural,
)
from topics.protocol.faces.http.openapi.words import PARTITION, TOPIC, Fields, says
from topics.protocol.model.errors import ErrorCode
from topics.protocol.model.limits import PAGE_SIZE_MAX

OPERATIONS: Final[Mapping[str, Operation]] = {
    "GET /v0/groups": Operation(
        "groups",
        "listGroups",
        "Groups by name, a page at a time.",
        json_of(GroupList),
        parameters=PAGE,
        description=f"What each group does, and how many members it has. {LISTED}",
        gives="One page of groups.",
        example=Example(
            query={"prefix": "bill"},
            answer=json_text("""{"groups":[{"group":"billing","kind":"classic","state":"empty","generation":0,
"protocol_type":"","members":0}],"performance":{"server_total_ms":0.412,
"throttle_wait_ms":0.0}}"""),
        ),
    ),
    "GET /v0/groups/:": Operation(
        "groups",
        "getGroup",
        "A group's members, and how far it is in each partition.",
        json_of(GroupState),
        parameters=(
            natural("page_size", "Offsets, at most 1000; 0 is the default.", PAGE_SIZE_MAX),
            Parameter("cursor", "The `next_cursor` of the page before.", TEXT),
        ),
        refusals=(ErrorCode.GROUP_NOT_FOUND,),
        description=(
            "Members are clients that speak Kafka's protocol. `seq` is what the group committed: reads go on with "
            "`from_seq: seq`. `lag` counts records, `lost` sequence numbers. Topics outside of the key's "
            "prefixes are left out. While there is a `next_cursor`, there are further offsets: send it as "
            "`cursor`."
        ),
        gives="The group as it is now.",
        example=Example(
            name="billing",
            answer=json_text("""{"group":"billing","kind":"classic","state":"empty","generation":0,
"protocol_type":"","protocol":"","members":[],"offsets":[{"topic":"orders","partition":0,"seq":1,
"ts":1795254919024,"lag":2,"lost":0}],"performance":{"server_total_ms":0.412,
"throttle_wait_ms":0.0}}"""),
        ),
    ),
    "POST /v0/groups/:/commit": Operation(
        "groups",
        "commitOffsets",
        "Store how far a group is; the first commit makes the group.",
        json_of(OffsetsCommitted),
        body=CommitBody,
        refusals=(
            ErrorCode.TOPIC_NOT_FOUND,
            ErrorCode.PARTITION_NOT_FOUND,
            ErrorCode.GROUP_NOT_EMPTY,
            ErrorCode.UPGRADE_PENDING,
        ),
        description=(
            "All offsets are stored, or none; they are on the disk before the answer is sent. An offset may also go "
            "back. A group that has members is theirs: 409. What is not used for a week is forgotten, and an "
            "offset goes with its topic."
        ),
        takes="Topics, and the last record of each that is done with.",
        gives="How many were stored.",
        example=Example(
            name="billing",
            body="""{"offsets": [{"topic": "orders", "seq": 2}]}""",
            answer=json_text("""{"group":"billing","committed":1,"performance":{"server_total_ms":1.912,
"wal_append_ms":0.122,"fsync_ms":1.511,"throttle_wait_ms":0.0}}"""),
        ),
    ),
    "DELETE /v0/groups/:": Operation(
        "groups",
        "deleteGroup",
        "Forget a group and its offsets.",
        json_of(GroupDeleted),
        refusals=(ErrorCode.GROUP_NOT_FOUND, ErrorCode.GROUP_NOT_EMPTY),
        description="A group that has members is theirs: 409. Records stay.",
        gives="That it is gone.",
        example=Example(
            name="billing",
            answer=json_text("""{"group":"billing","deleted":true,"performance":{"server_total_ms":1.912,
"wal_append_ms":0.122,"fsync_ms":1.511,"throttle_wait_ms":0.0}}"""),
        ),
    ),
}
"""By `Route.line`."""

FIELDS: Final[Mapping[type[msgspec.Struct], Fields]] = {
    CommitBody: {
        "offsets": says(
            "1 to 1000; of one partition that is there twice the last counts.",
            minItems=1,
            maxItems=COMMIT_OFFSETS_MAX,
        )
    },
    OffsetBody: {
        "topic": says("The topic; it is there.", TOPIC),
        "seq": says("Records up to here are done with; 0: none is."),
        "partition": says("Which partition of the topic.", PARTITION, default=0),
    },
}
"""Every field of every body, and of the configs that answers hold."""

WHOLE: Final[Mapping[type[msgspec.Struct], str]] = {
    OffsetBody: "How far a group is in a topic, or in one of its partitions.",
}
"""What a body means as a whole, and rules between its fields."""
