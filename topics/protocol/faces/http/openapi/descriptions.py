"""What each route does, in sentences: `OPERATIONS` has a line for each, this has the rest.

The reference is docs/api.md; here stands what a client has to know before it calls.
"""

from collections.abc import Mapping
from typing import Final

_PROBE: Final = "Needs no key, unless the server asks for keys on probes."
_HEALTH: Final = f"Says that the process answers, not that it serves; see `ready`. {_PROBE}"
_READY: Final = (
    f"Send requests here while it answers 200. While the log is replayed, "
    f"`error.detail.replay_progress` of the 503 says how far that is. {_PROBE}"
)
_HELD: Final = (
    "A number that `node` holds no lease of is in `skipped`, and is no error: another worker may "
    "have the job by now. With `lease_ids`, a job counts only under that very lease."
)
_LISTED: Final = (
    "Names are in byte order. While there is a `next_cursor`, there is a further page: send it as "
    "`cursor`. Names outside of the key's prefixes are left out."
)

DESCRIPTIONS: Final[Mapping[str, str]] = {
    "GET /": "The console. It fetches what it shows from `/v0`, and asks for a key where that does.",
    "GET /v0/topics": f"State and counters of each topic. {_LISTED}",
    "PUT /v0/topics/:": "A field that is left out gets its default, also where the topic exists: "
    "read the config first to change only a part of it. The type of a topic cannot be changed. 201 "
    "where the topic was made, 200 where it was there. It is on the disk before the answer is sent.",
    "GET /v0/topics/:": "Counts, bounds, config, and of a queue how many jobs are where. With "
    "`touch=false` it does not count as use of the topic.",
    "POST /v0/topics/:": "A topic that does not exist is made, unless `create` is false. The "
    "answer comes when the records are as safe as the "
    "topic's durability class promises. With an `idempotency_key` the same append can be sent "
    "again: it is stored once, and the answer is that of the first, with `deduped`.",
    "DELETE /v0/topics/:": "Watchers get `topic-deleted`. A topic made later under the same name "
    "begins at 1, with another `epoch`. Deleting what does not exist is no error: `deleted` is "
    "false.",
    "POST /v0/topics/:/diff": "Continue with `next_from_seq`. `caught_up` says that there is "
    "nothing more for now; with `wait_ms` the answer waits for a record. Records that were lost "
    "before they could be read are in `tombstone`; records that were deleted are in none. Send the "
    "`epoch` of the last page, to learn that the topic was deleted and made again.",
    "GET /v0/topics/:/records": "For the same parameters the same bytes, as long as nothing is "
    "removed: the answer has no timings and no marks that move. Ask again with `If-None-Match`, and "
    "304 says that the page is as it was.",
    "POST /v0/topics/:/delete": "Removes records below a number, those whose tag matches, or those "
    "of which both is true. Readers are not informed of them. Records that are appended later are not "
    "affected. With `erase` the answer comes when their bytes are gone from the disk.",
    "POST /v0/topics/:/purge": "Without a field it removes all. `filter` matches tags token by "
    "token: `*` is one token between dots, a final `>` one or more. `keep` leaves the newest, `seq` "
    "limits it to those below; they exclude each other.",
    "POST /v0/topics/:/claim": "The oldest ready jobs are leased to `node`, each to one worker at a "
    "time. A job that is not acked before its `deadline` is delivered again. With `wait_ms` the "
    "answer waits for a job.",
    "POST /v0/topics/:/ack": f"The jobs are deleted. {_HELD}",
    "POST /v0/topics/:/nack": f"The jobs can be claimed again, after `delay_ms` if given. {_HELD}",
    "POST /v0/topics/:/extend": f"Leases end `lease_ms` from now, which is clamped as in `claim`. {_HELD}",
    "GET /v0/topics/:/work": "Each event is a job, leased as by `claim`. At most `max` are held at "
    "once: ack, nack or extend them by their routes, and the next one is sent. When the stream ends, "
    "its jobs are released.",
    "GET /v0/routers": f"Each router with its lag, and what blocks it. {_LISTED}",
    "PUT /v0/routers/:": "Copies what is appended to `source` from now on to `dest`, which is made "
    "if it does not exist. `filter` selects by tag. A destination has one source. The same "
    "request again changes nothing; with another source or destination the router begins anew, at the "
    "head.",
    "GET /v0/routers/:": "`lag` is how many numbers of the source it has yet to look at. A refusal "
    "of the destination is in `blocked`: the router tries again by itself, and loses nothing. What "
    "the source lost before it was copied is in `loss`.",
    "DELETE /v0/routers/:": "Copies that exist stay. Deleting what does not exist is no error: "
    "`deleted` is false.",
    "POST /v0/watch": "Each topic begins after `from_seq`, at `from_ts`, or with `tail` at the "
    "head. Open `stream_url` to get the records. A session without a stream ends after "
    "`session_ttl_ms`.",
    "GET /v0/watch/:": "For an `EventSource`. Each event's `id` is the position after it: a client "
    "that connects again sends the last one as `Last-Event-ID`, and misses nothing. A client that "
    "reads slowly gets larger frames; one that does not read is disconnected.",
    "GET /v0/ws": "Messages are objects with an `op`: `subscribe`, `unsubscribe`, `publish` or "
    "`ping`. What comes back has an `op`, too, and the `request_id` of what it answers. Frames of "
    "records are those of the event stream.",
    "GET /v0/health": _HEALTH,
    "GET /healthz": f"As `/v0/health`. {_HEALTH}",
    "GET /v0/ready": _READY,
    "GET /readyz": f"As `/v0/ready`. {_READY}",
    "GET /v0/metrics": "Counters and gauges of the process, of its limits, and of the first "
    "topics. docs/monitoring.md says what each means. `Accept: application/json` gets JSON.",
    "GET /v0/limits": "Each is a setting of the server, or a constant; 0 is no bound. A client that "
    "stays within them is not refused for size.",
    "GET /v0/openapi.json": "OpenAPI 3.1, made of the tables that the server goes by.",
    "GET /v0/docs": "Swagger UI, served by this server alone.",
    "GET /v0/docs/:": "Script and style sheet of `/v0/docs`.",
    "GET /v0/console/:": "Modules and style sheets of the console at `/`.",
    "GET /v0/stats/history": "What the charts of the console are drawn of. A step without a row is "
    "one in which nothing was asked of the server and nothing was written. An answer has 900 rows of "
    "a table at most: continue with its last `at_ms` as `after_ms`.",
    "GET /v0/cluster": "As the node that answers knows it: figures of the other nodes are as old as "
    "`seen_ms_ago` says. A server that is in no cluster answers `enabled: false`.",
    "POST /v0/cluster/trim": "The leader trims the log by itself; this is for more than that, or "
    "for knowing. Never beyond what a live node needs. 409 where the server is in no cluster.",
}
"""By `Route.line`."""

BODIES: Final[Mapping[str, str]] = {
    "PUT /v0/topics/:": "Fields of the config; `{}` or no body for the defaults.",
    "POST /v0/topics/:": "The records, in the order in which they get their numbers.",
    "POST /v0/topics/:/diff": "Where to begin, how much, and which records.",
    "POST /v0/topics/:/delete": "Which records; at least one of `before_seq` and `match`.",
    "POST /v0/topics/:/purge": "Which records; none of the fields for all.",
    "POST /v0/cluster/trim": "How far; none of the fields for what the leader would trim by itself.",
    "POST /v0/topics/:/claim": "Who works, how many jobs, and for how long.",
    "POST /v0/topics/:/ack": "Who worked, and on which jobs.",
    "POST /v0/topics/:/nack": "Who gives back which jobs.",
    "POST /v0/topics/:/extend": "Who keeps which jobs, and for how long.",
    "PUT /v0/routers/:": "From where to where, and which records.",
    "POST /v0/watch": "The topics, each with its beginning, and what the stream is to show.",
}
"""What a body is, of each route that reads one."""

ANSWERS: Final[Mapping[str, str]] = {
    "GET /": "The page.",
    "GET /v0/topics": "One page of topics.",
    "PUT /v0/topics/:": "The config in force, with all defaults.",
    "GET /v0/topics/:": "The topic as it is now.",
    "POST /v0/topics/:": "The numbers that the records have.",
    "DELETE /v0/topics/:": "Whether there was one, and which routers went with it.",
    "POST /v0/topics/:/diff": "Records in order, where to continue, and what was lost.",
    "GET /v0/topics/:/records": "Records in order, where to continue, and what was lost.",
    "POST /v0/topics/:/delete": "How many records were removed, and what is left.",
    "POST /v0/topics/:/purge": "How many records were removed, and what is left.",
    "POST /v0/topics/:/claim": "The leased jobs; none where no job is ready.",
    "POST /v0/topics/:/ack": "How many jobs are done, and which the worker did not hold.",
    "POST /v0/topics/:/nack": "How many jobs were given back, and which the worker did not hold.",
    "POST /v0/topics/:/extend": "The new deadlines, and which jobs the worker did not hold.",
    "GET /v0/topics/:/work": "A stream of jobs.",
    "GET /v0/routers": "One page of routers.",
    "PUT /v0/routers/:": "The router as it is now.",
    "GET /v0/routers/:": "The router as it is now.",
    "DELETE /v0/routers/:": "Whether there was one.",
    "POST /v0/watch": "The session, and where it stands in each topic.",
    "GET /v0/watch/:": "A stream of records, losses and ends of topics.",
    "GET /v0/ws": "A WebSocket from here on.",
    "GET /v0/health": "It is alive.",
    "GET /healthz": "It is alive.",
    "GET /v0/ready": "It serves.",
    "GET /readyz": "It serves.",
    "GET /v0/metrics": "Every family of metrics.",
    "GET /v0/limits": "The bounds by name.",
    "GET /v0/openapi.json": "The document.",
    "GET /v0/docs": "The page.",
    "GET /v0/docs/:": "The file.",
    "GET /v0/console/:": "The file.",
    "GET /v0/stats/history": "The rows.",
    "GET /v0/cluster": "The cluster, or that there is none.",
    "POST /v0/cluster/trim": "What went, or would, and what each node needs.",
}
"""What a good answer is."""
