"""What the document says of queues and their jobs."""

from collections.abc import Mapping
from typing import Final

import msgspec

from topics.protocol.faces.http.openapi.operation import (
    EVENT_STREAM,
    OF_A_QUEUE,
    STREAM,
    Example,
    Operation,
    Parameter,
    json_of,
    json_text,
    natural,
)
from topics.protocol.faces.http.openapi.words import TOPIC, Fields, says
from topics.protocol.faces.http.queues import (
    AckBody,
    Acked,
    ClaimBody,
    Claimed,
    ExtendBody,
    Extended,
    HeldBody,
    JobEvent,
    NackBody,
    Nacked,
    RedriveBody,
    Redriven,
)
from topics.protocol.faces.http.watch import (
    ErrorEvent,
)
from topics.protocol.model.errors import ErrorCode

OF_JOBS: Final = (*OF_A_QUEUE, ErrorCode.BATCH_TOO_LARGE, ErrorCode.UPGRADE_PENDING)

_HELD_TEXT: Final = (
    "A number that `node` holds no lease of is in `skipped`, and is no error: another worker may "
    "have the job by now. With `lease_ids`, a job counts only under that very lease."
)

_WORK: Final = """retry: 2000

id: 1
event: job
data: {"$seq":1,"$ts":1795254919024,"topic":"jobs","lease_id":"lease_10000000000","deadline":1795254949024,"deliveries":1,"$tag":"mail","data":{"mail": 1}}

"""

_WORKER: Final = says("The worker's name; workers of one name hold the same leases.", minLength=1)

_HELD_FIELDS: Final[Fields] = {
    "node": _WORKER,
    "seqs": says("The jobs' numbers; at most `max_claim`."),
    "lease_ids": says("One for each number: only that lease counts."),
}


OPERATIONS: Final[Mapping[str, Operation]] = {
    "POST /v0/topics/:/claim": Operation(
        "queues",
        "claimJobs",
        "Lease jobs to a worker.",
        json_of(Claimed),
        body=ClaimBody,
        refusals=OF_A_QUEUE,
        description=(
            "The oldest ready jobs are leased to `node`, those of the highest priority first, each to one "
            "worker at a time. A job that is not acked before its `deadline` is delivered again. With `wait_ms` the "
            "answer waits for a job."
        ),
        takes="Who works, how many jobs, and for how long.",
        gives="The leased jobs; none where no job is ready.",
        example=Example(
            name="jobs",
            body="""{"node": "worker-1", "max": 2, "lease_ms": 60000}""",
            answer=json_text("""{"topic":"jobs","claimed":[{"$seq":1,"$ts":1795254919024,"lease_id":"lease_10000000000",
"deadline":1795254979024,"deliveries":1,"$tag":"mail","data":{"mail": 1}},{"$seq":2,
"$ts":1795254919024,"lease_id":"lease_10000000001","deadline":1795254979024,"deliveries":1,
"$tag":"mail","data":{"mail": 2}}],"count":2,"ready":1,
"performance":{"server_total_ms":0.412,"throttle_wait_ms":0.0}}"""),
        ),
    ),
    "POST /v0/topics/:/ack": Operation(
        "queues",
        "ackJobs",
        "Jobs are done: delete them.",
        json_of(Acked),
        body=AckBody,
        refusals=OF_JOBS,
        description=(
            "The jobs are deleted. What came of them may be said: a result is kept beside the queue for as "
            f"long as its config has it. {_HELD_TEXT}"
        ),
        takes="Who worked, and on which jobs.",
        gives="How many jobs are done, and which the worker did not hold.",
        example=Example(
            name="jobs",
            body="""{"node": "worker-1", "seqs": [1, 2]}""",
            answer=json_text("""{"topic":"jobs","acked":2,"skipped":[],"ready":1,"in_flight":0,
"performance":{"server_total_ms":0.412,"wal_append_ms":0.122,"fsync_ms":0.000,
"throttle_wait_ms":0.0}}"""),
        ),
    ),
    "POST /v0/topics/:/nack": Operation(
        "queues",
        "nackJobs",
        "Give jobs back, to be claimed now or later.",
        json_of(Nacked),
        body=NackBody,
        refusals=(*OF_JOBS, ErrorCode.NO_DEAD_LETTER),
        description=(
            "The jobs can be claimed again, after `delay_ms` if given, else as the queue's `backoff` "
            f"says; with `dead` they go to the dead letters. {_HELD_TEXT}"
        ),
        takes="Who gives back which jobs.",
        gives="How many jobs were given back, and which the worker did not hold.",
        example=Example(
            name="jobs",
            body="""{"node": "worker-1", "seqs": [1, 9], "delay_ms": 5000, "reason": "no connection"}""",
            answer=json_text("""{"topic":"jobs","nacked":1,"skipped":[9],"ready":1,"in_flight":1,
"performance":{"server_total_ms":0.412,"wal_append_ms":0.122,"fsync_ms":0.000,
"throttle_wait_ms":0.0}}"""),
        ),
    ),
    "POST /v0/topics/:/extend": Operation(
        "queues",
        "extendJobs",
        "Keep jobs for longer.",
        json_of(Extended),
        body=ExtendBody,
        refusals=OF_JOBS,
        description=f"Leases end `lease_ms` from now, which is clamped as in `claim`. {_HELD_TEXT}",
        takes="Who keeps which jobs, and for how long.",
        gives="The new deadlines, and which jobs the worker did not hold.",
        example=Example(
            name="jobs",
            body="""{"node": "worker-1", "seqs": [1], "lease_ms": 300000}""",
            answer=json_text("""{"topic":"jobs","extended":1,"skipped":[],"ready":1,"in_flight":2,
"deadlines":{"1":1795255219024},"performance":{"server_total_ms":0.412,
"throttle_wait_ms":0.0}}"""),
        ),
    ),
    "POST /v0/topics/:/redrive": Operation(
        "queues",
        "redriveLetters",
        "Dead letters back into a queue.",
        json_of(Redriven),
        body=RedriveBody,
        refusals=(
            *OF_A_QUEUE,
            ErrorCode.TOPIC_FULL,
            ErrorCode.PARTITION_REQUIRED,
            ErrorCode.UPGRADE_PENDING,
        ),
        description=(
            "The oldest letters that match become jobs of the queue `to`, each in one entry of the log: none "
            "is lost or doubled. Keys of `meta` that begin with `$dead_letter_` stay behind. Where the "
            "letters are jobs of a queue, those that are leased or delayed stay. With `more`, call again. `seqs` "
            "names letters; those that are not there are left out."
        ),
        takes="Which letters, and which queue.",
        gives="How many letters were moved, and whether there are more.",
        example=Example(
            name="jobs-dead",
            body="""{"to": "jobs", "match": "mail"}""",
            answer=json_text("""{"topic":"jobs-dead","to":"jobs","moved":1,"more":false,
"performance":{"server_total_ms":0.412,"wal_append_ms":0.122,"fsync_ms":0.000,
"throttle_wait_ms":0.0}}"""),
        ),
    ),
    "GET /v0/topics/:/work": Operation(
        "queues",
        "streamJobs",
        "Jobs as a stream of events, leased when they are sent.",
        EVENT_STREAM,
        parameters=(
            Parameter("node", "Who works.", {"type": "string", "minLength": 1}, required=True),
            natural("max", "Jobs that this stream may hold at once.", 1),
            natural("lease_ms", "How long each is leased; else as the topic has it."),
        ),
        refusals=(*OF_A_QUEUE, ErrorCode.NOT_ACCEPTABLE, ErrorCode.THROTTLED),
        events={"job": JobEvent, "error": ErrorEvent},
        description=(
            "Each event is a job, leased as by `claim`. At most `max` are held at "
            "once: ack, nack or extend them by their routes, and the next one is sent. When the stream ends, "
            "its jobs are released."
        ),
        gives="A stream of jobs.",
        example=Example({STREAM: _WORK}, name="jobs", query={"node": "worker-1", "max": "2"}),
    ),
}
"""By `Route.line`."""

FIELDS: Final[Mapping[type[msgspec.Struct], Fields]] = {
    ClaimBody: {
        "node": _WORKER,
        "max": says("Jobs wanted; at most `max_claim`, 0 is 1.", default=1),
        "lease_ms": says("How long they are leased, 100 to 86400000; else as the topic has it."),
        "wait_ms": says("Where there is no job, wait; at most 30000.", default=0),
    },
    HeldBody: _HELD_FIELDS,
    NackBody: {
        **_HELD_FIELDS,
        "delay_ms": says(
            "May be claimed after this; at most 86400000. Else as the queue's `backoff` says."
        ),
        "reason": says("Why; of a longer text the first KiB is kept."),
        "dead": says("They go to the dead letters at once.", default=False),
    },
    RedriveBody: {
        "to": says("The queue that they go to.", TOPIC),
        "match": says("Only letters of these tags; as a delete has it."),
        "seqs": says("Only these letters, without `match` and `max`; at most 1000."),
        "max": says("Letters at most; up to 1000, which is the default.", default=1000),
        "dry_run": says("Move nothing, and say how many would be moved.", default=False),
    },
    AckBody: {
        **_HELD_FIELDS,
        "result": says("What came of all of them."),
        "results": says("What came of each, by its number."),
    },
    ExtendBody: {
        **_HELD_FIELDS,
        "lease_ms": says("From now; clamped to 100 to 86400000."),
        "progress": says("How far they are; at most 1024 bytes."),
    },
}
"""Every field of every body, and of the configs that answers hold."""

WHOLE: Final[Mapping[type[msgspec.Struct], str]] = {
    HeldBody: "Jobs, and whose they are.",
}
"""What a body means as a whole, and rules between its fields."""
