"""What the document says of jobs: lists of them, and what an operator does with them."""

from collections.abc import Mapping
from typing import Final

import msgspec

from topics.protocol.faces.http.jobs import (
    STATES,
    CancelBody,
    JobAnswer,
    JobList,
    JobsChanged,
    OneBody,
    PromoteBody,
    RetryBody,
)
from topics.protocol.faces.http.openapi.operation import (
    OF_A_QUEUE,
    TEXT,
    Example,
    Operation,
    Parameter,
    json_of,
    json_text,
    natural,
)
from topics.protocol.faces.http.openapi.words import Fields, says
from topics.protocol.model.errors import ErrorCode
from topics.protocol.model.limits import PAGE_SIZE_DEFAULT

_OF_A_JOB: Final = (*OF_A_QUEUE, ErrorCode.JOB_NOT_FOUND)
_ITEM: Final = """{"seq":1,"state":"delayed","group":"mail","priority":0,"deliveries":1,
"ready_at":1795254979024,"node":null,"deadline":null,"progress":null,
"reasons":[{"time":1795254919024,"node":"worker-1","reason":"no connection"}],"result":null"""
_CHANGED: Final = """{"topic":"jobs","matched":1,"done":1,
"performance":{"server_total_ms":0.412,"wal_append_ms":0.122,"fsync_ms":0.000,
"throttle_wait_ms":0.0}}"""
_ONE: Final = "The job is changed at once, and for good; what a worker holds is left alone."
_MANY: Final = (
    "Of many jobs one call changes at most 5,000: where `done` is less than `matched`, call again. What a "
    "worker holds is left alone."
)
_TAKES: Final = "Which jobs, and whether to change them."
_GIVES: Final = "How many jobs matched, and how many were changed."
_BRINGS_BACK: Final = (
    *_OF_A_JOB,
    ErrorCode.LEASED,
    ErrorCode.TOPIC_FULL,
)


OPERATIONS: Final[Mapping[str, Operation]] = {
    "GET /v0/topics/:/jobs": Operation(
        "jobs",
        "listJobs",
        "List jobs of a queue.",
        json_of(JobList),
        parameters=(
            Parameter("state", "Of this state only.", {"type": "string", "enum": [*STATES]}),
            Parameter("group", "Of this group only.", TEXT),
            natural("after", "The `next_after` of the page before.", 0),
            natural("limit", "At most 1000; 0 is the default.", PAGE_SIZE_DEFAULT),
        ),
        refusals=OF_A_QUEUE,
        description=(
            "Without `state` all jobs that are in the queue. `done` and `dead` ones are listed for as long as "
            "the queue keeps what became of them (`result_ttl_ms`, `keep_done`). A page may be short, or "
            "empty: while there is a `next_after`, there is a further page."
        ),
        gives="A page of jobs.",
        example=Example(
            json_text(
                f'{{"topic":"jobs","jobs":[{_ITEM}}}],"next_after":null,'
                '"performance":{"server_total_ms":0.412,"throttle_wait_ms":0.0}}'
            ),
            name="jobs",
            query={"state": "delayed"},
        ),
    ),
    "GET /v0/topics/:/jobs/:": Operation(
        "jobs",
        "getJob",
        "One job, also after its end.",
        json_of(JobAnswer),
        parameters=(natural("wait_ms", "Wait for its end; at most 30000.", 0),),
        refusals=_OF_A_JOB,
        description=(
            "With `wait_ms` the answer waits until the job is done or dead, and shows it as it is when the "
            "time is over. 404 `job_not_found` for one that ended and is not kept, or not any more."
        ),
        gives="The job.",
        example=Example(
            json_text(
                f'{_ITEM},"topic":"jobs",'
                '"performance":{"server_total_ms":0.412,"throttle_wait_ms":0.0}}'
            ),
            name="jobs",
            item="1",
        ),
    ),
    "POST /v0/topics/:/jobs/:/promote": Operation(
        "jobs",
        "promoteJob",
        "A job that is delayed may be claimed now.",
        json_of(JobsChanged),
        body=OneBody,
        refusals=(*_OF_A_JOB, ErrorCode.LEASED),
        description=f"It does not become the first. {_ONE}",
        takes="Whether to change it.",
        gives=_GIVES,
        example=Example(json_text(_CHANGED), name="jobs", item="1", body="{}"),
    ),
    "POST /v0/topics/:/jobs/:/retry": Operation(
        "jobs",
        "retryJob",
        "A job is tried again, as if it had not failed.",
        json_of(JobsChanged),
        body=OneBody,
        refusals=_BRINGS_BACK,
        description=(
            "One that was given back may be claimed now, and its deliveries count from none. A dead one comes "
            f"back from its dead-letter topic as a new job, at the queue's end. {_ONE}"
        ),
        takes="Whether to change it.",
        gives=_GIVES,
        example=Example(json_text(_CHANGED), name="jobs", item="1", body="{}"),
    ),
    "POST /v0/topics/:/jobs/:/cancel": Operation(
        "jobs",
        "cancelJob",
        "A job is taken away.",
        json_of(JobsChanged),
        body=OneBody,
        refusals=(*_OF_A_JOB, ErrorCode.LEASED),
        description=f"It is deleted, and nothing is kept of it. {_ONE}",
        takes="Whether to change it.",
        gives=_GIVES,
        example=Example(json_text(_CHANGED), name="jobs", item="1", body="{}"),
    ),
    "POST /v0/topics/:/jobs/promote": Operation(
        "jobs",
        "promoteJobs",
        "Jobs that are delayed may be claimed now.",
        json_of(JobsChanged),
        body=PromoteBody,
        refusals=OF_A_QUEUE,
        description=_MANY,
        takes=_TAKES,
        gives=_GIVES,
        example=Example(json_text(_CHANGED), name="jobs", body="""{"match": "mail"}"""),
    ),
    "POST /v0/topics/:/jobs/retry": Operation(
        "jobs",
        "retryJobs",
        "Jobs that were given back are tried again, as if they had not failed.",
        json_of(JobsChanged),
        body=RetryBody,
        refusals=OF_A_QUEUE,
        description=f"Dead ones come back by `redrive`. {_MANY}",
        takes=_TAKES,
        gives=_GIVES,
        example=Example(json_text(_CHANGED), name="jobs", body="""{"state": "delayed"}"""),
    ),
    "POST /v0/topics/:/jobs/cancel": Operation(
        "jobs",
        "cancelJobs",
        "Jobs are taken away.",
        json_of(JobsChanged),
        body=CancelBody,
        refusals=OF_A_QUEUE,
        description=_MANY,
        takes=f"{_TAKES} `match` or `state` is required.",
        gives=_GIVES,
        example=Example(json_text(_CHANGED), name="jobs", body="""{"state": "delayed"}"""),
    ),
}
"""By `Route.line`."""

_DRY: Final = says("Change nothing, and say what would be changed.", default=False)
_MATCH: Final = says("Only jobs of these tags; as a delete has it.")

FIELDS: Final[Mapping[type[msgspec.Struct], Fields]] = {
    OneBody: {"dry_run": _DRY},
    PromoteBody: {"match": _MATCH, "state": says("The only one."), "dry_run": _DRY},
    RetryBody: {"match": _MATCH, "state": says("The only one."), "dry_run": _DRY},
    CancelBody: {
        "match": _MATCH,
        "state": says("Jobs of this state only."),
        "dry_run": _DRY,
    },
}
"""Every field of every body."""
