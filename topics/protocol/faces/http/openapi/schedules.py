"""What the document says of schedules."""

from collections.abc import Mapping
from typing import Final

import msgspec

from topics.protocol.faces.http.openapi.operation import (
    LISTED,
    PAGE,
    TEXT,
    Example,
    Operation,
    Parameter,
    json_of,
    json_text,
)
from topics.protocol.faces.http.openapi.words import TOPIC, Fields, says
from topics.protocol.faces.http.schedules import (
    ScheduleBody,
    ScheduleDeleted,
    ScheduleList,
    SchedulePaused,
    SchedulePut,
    ScheduleRun,
    ScheduleState,
)
from topics.protocol.model.errors import ErrorCode
from topics.protocol.model.schedules import CRON_CHARS_MAX, EVERY_MS_MAX, EVERY_MS_MIN

_OF_A_SCHEDULE: Final = (ErrorCode.SCHEDULE_NOT_FOUND,)
_STATE: Final = """"schedule":"report","topic":"jobs","record":{"data":{"make": "report"}},"config":null,
"cron":"0 6 * * 1-5","every_ms":null,"at":null,"tz":"Europe/Berlin","missed":"one","until":null,
"paused":false,"created_at":1795254919024,"next_at":1795323600000,"last_run":null,"fired_total":0,
"missed_total":0,"blocked":null"""

OPERATIONS: Final[Mapping[str, Operation]] = {
    "GET /v0/schedules": Operation(
        "schedules",
        "listSchedules",
        "Schedules by name, a page at a time.",
        json_of(ScheduleList),
        parameters=(*PAGE, Parameter("topic", "Only those into this topic.", TEXT)),
        description=f"Each schedule with its next tick and its last record, and what blocks it. {LISTED}",
        gives="One page of schedules.",
        example=Example(
            query={"topic": "jobs"},
            answer=json_text("""{"schedules":[{"schedule":"report","topic":"jobs","cron":"0 6 * * 1-5",
"every_ms":null,"at":null,"tz":"Europe/Berlin","missed":"one","until":null,"paused":false,
"next_at":1795323600000,"last_run":null,"fired_total":0,"missed_total":0,"blocked":null}],
"performance":{"server_total_ms":0.412,"throttle_wait_ms":0.0}}"""),
        ),
    ),
    "PUT /v0/schedules/:": Operation(
        "schedules",
        "putSchedule",
        "Make a schedule, or change it.",
        json_of(SchedulePut),
        body=ScheduleBody,
        refusals=(
            ErrorCode.RECORD_TOO_LARGE,
            ErrorCode.TOPIC_NOT_FOUND,
            ErrorCode.PARTITIONED,
            ErrorCode.UPGRADE_PENDING,
        ),
        creates=True,
        description=(
            "At each tick the server appends `record` to `topic`, once, with the tick in its `meta`: "
            "`$schedule` and `$schedule_at`. The same request again changes nothing; a change of the record alone "
            "leaves the next tick where it is."
        ),
        takes="What is appended, where, and when: one of `cron`, `every_ms` and `at`.",
        gives="The schedule as it is now.",
        example=Example(
            name="cleanup",
            body="""{"topic": "jobs", "record": {"data": {"clean": "carts"}}, "every_ms": 3600000,
 "missed": "none"}""",
            status=201,
            answer=json_text("""{"schedule":"cleanup","topic":"jobs","record":{"data":{"clean": "carts"}},
"config":null,"cron":null,"every_ms":3600000,"at":null,"tz":null,"missed":"none","until":null,
"paused":false,"created_at":1795254919024,"next_at":1795258519024,"last_run":null,"fired_total":0,
"missed_total":0,"blocked":null,"created":true,"performance":{"server_total_ms":0.412,
"wal_append_ms":0.122,"fsync_ms":0.000,"throttle_wait_ms":0.0}}"""),
        ),
    ),
    "GET /v0/schedules/:": Operation(
        "schedules",
        "getSchedule",
        "What a schedule appends, its next tick and its last record.",
        json_of(ScheduleState),
        refusals=_OF_A_SCHEDULE,
        description=(
            "`missed_total` counts ticks that did not happen. A refusal of the topic is in `blocked`: the tick is "
            "tried again by itself."
        ),
        gives="The schedule as it is now.",
        example=Example(
            name="report",
            answer=json_text(
                "{"
                + _STATE
                + ""","performance":{"server_total_ms":0.412,"throttle_wait_ms":0.0}}"""
            ),
        ),
    ),
    "DELETE /v0/schedules/:": Operation(
        "schedules",
        "deleteSchedule",
        "End a schedule; records stay.",
        json_of(ScheduleDeleted),
        description="Deleting what does not exist is no error: `deleted` is false.",
        gives="Whether there was one.",
        example=Example(
            name="report",
            answer=json_text("""{"schedule":"report","deleted":true,"performance":{"server_total_ms":0.412,
"wal_append_ms":0.122,"fsync_ms":0.000,"throttle_wait_ms":0.0}}"""),
        ),
    ),
    "POST /v0/schedules/:/run": Operation(
        "schedules",
        "runSchedule",
        "Append a schedule's record now.",
        json_of(ScheduleRun),
        refusals=(
            *_OF_A_SCHEDULE,
            ErrorCode.TOPIC_NOT_FOUND,
            ErrorCode.PARTITION_NOT_FOUND,
            ErrorCode.PARTITIONED,
            ErrorCode.UPGRADE_PENDING,
            ErrorCode.TOPIC_FULL,
            ErrorCode.KEY_REQUIRED,
        ),
        description=(
            "Also while the schedule is paused. The next tick stays where it is. Sent twice, the request appends two "
            "records."
        ),
        gives="Where the record is.",
        example=Example(
            name="report",
            answer=json_text("""{"at":1795254919024,"ts":1795254919024,"topic":"jobs","partition":0,"seq":4,
"schedule":"report","performance":{"server_total_ms":0.412,"wal_append_ms":0.122,
"fsync_ms":0.000,"throttle_wait_ms":0.0}}"""),
        ),
    ),
    "POST /v0/schedules/:/pause": Operation(
        "schedules",
        "pauseSchedule",
        "Let a schedule have no ticks until it is resumed.",
        json_of(SchedulePaused),
        refusals=(*_OF_A_SCHEDULE, ErrorCode.UPGRADE_PENDING),
        description="Ticks that pass meanwhile do not happen, and are not counted as missed.",
        gives="The schedule's state, and whether it was otherwise before.",
        example=Example(
            name="report",
            answer=json_text("""{"schedule":"report","paused":true,"changed":true,"next_at":null,
"performance":{"server_total_ms":0.412,"wal_append_ms":0.122,"fsync_ms":0.000,
"throttle_wait_ms":0.0}}"""),
        ),
    ),
    "POST /v0/schedules/:/resume": Operation(
        "schedules",
        "resumeSchedule",
        "Let a paused schedule have ticks again.",
        json_of(SchedulePaused),
        refusals=(*_OF_A_SCHEDULE, ErrorCode.UPGRADE_PENDING),
        description="It goes on with its first tick from now on; where there is none, that is 400.",
        gives="The schedule's state, and whether it was otherwise before.",
        example=Example(
            name="report",
            answer=json_text("""{"schedule":"report","paused":false,"changed":false,"next_at":1795323600000,
"performance":{"server_total_ms":0.412,"wal_append_ms":0.122,"fsync_ms":0.000,
"throttle_wait_ms":0.0}}"""),
        ),
    ),
}
"""By `Route.line`."""

FIELDS: Final[Mapping[type[msgspec.Struct], Fields]] = {
    ScheduleBody: {
        "topic": says("Where each tick appends; made if it does not exist.", TOPIC),
        "record": says("What each tick appends: the fields of a record of an append."),
        "cron": says(
            "Minute, hour, day of the month, month, day of the week; six fields begin with the second.",
            maxLength=CRON_CHARS_MAX,
        ),
        "every_ms": says(
            "Between two ticks, counted from when the schedule was made.",
            minimum=EVERY_MS_MIN,
            maximum=EVERY_MS_MAX,
        ),
        "at": says("When its one tick is, milliseconds since the epoch; it is deleted then."),
        "tz": says("The time zone of `cron`, as `Europe/Berlin`.", default="UTC"),
        "missed": says(
            "Which of the ticks that could not happen in time happen later: none, the last, or all.",
            default="one",
        ),
        "until": says("No tick is then or later, milliseconds since the epoch."),
        "paused": says("Whether it has no ticks for now.", default=False),
        "config": says("Of the topic, where a tick makes it."),
    },
}
"""Every field of every body, and of the configs that answers hold."""

WHOLE: Final[Mapping[type[msgspec.Struct], str]] = {
    ScheduleBody: "Exactly one of `cron`, `every_ms` and `at` is given; `tz` goes with `cron`.",
}
"""What a body means as a whole, and rules between its fields."""
