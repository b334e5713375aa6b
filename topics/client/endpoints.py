"""The calls of the API: the path, parameters and body of each, and the type of its answer.

Owns every route that the client uses.  Sends nothing.  Invariant: a call that could do its work
twice is not repeatable.
"""

import os
from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import quote

import msgspec

from topics.client.call import Call, Kept
from topics.client.decoding import decoder_of
from topics.client.encoding import encode, encode_record
from topics.client.errors import InvalidRequest
from topics.client.job_options import JobOptions
from topics.client.models import (
    Acked,
    Appended,
    Claimed,
    ClientsPage,
    Configured,
    Deleted,
    Diff,
    Extended,
    Group,
    GroupDeleted,
    GroupsPage,
    Guarantee,
    Health,
    JobsChanged,
    JobsPage,
    LatestPage,
    Nacked,
    OffsetsCommitted,
    Purged,
    Ready,
    Redriven,
    Router,
    RouterConfig,
    RouterDeleted,
    RoutersPage,
    Schedule,
    ScheduleDeleted,
    SchedulePaused,
    SchedulePut,
    ScheduleRun,
    SchedulesPage,
    StablePage,
    TopicConfig,
    TopicDeleted,
    TopicsPage,
    TopicState,
    WatchSession,
)
from topics.client.options import (
    AppendOptions,
    Begin,
    Config,
    DiffOptions,
    Match,
    ScheduleOptions,
    StablePageOptions,
    WriteOptions,
    require,
)

J = TypeVar("J")
R = TypeVar("R")

WAIT_MS_MAX: Final = 30_000
"""The longest long poll that the server grants (§3)."""
ERASE_MS: Final = 3_600_000
"""How long an erasure may take, beyond the time of any call: segments with records of other topics are
rewritten, at a bounded rate (§5)."""
PAGE_RECORDS: Final = 1000
"""Records of one page: the most that a server grants by default (§3)."""


class Leased(Protocol):
    """A job under its lease, as an ack names it: a `Job`, a `HeldJob`, or anything with these
    two."""

    @property
    def seq(self) -> int: ...

    @property
    def lease_id(self) -> str: ...


Partition = str | tuple[str, int]
"""A topic, which is its only or first partition, or a partition by its number."""
Leases = int | Leased | Iterable[int | Leased]
"""Jobs by their seq, or as they were claimed; in the latter case their lease ids are sent too."""


def topic_path(topic: str, action: str = "") -> str:
    """Path of a topic or of an action on it.

    Raises:
        InvalidRequest: The name would change the path ("..", for one); nothing is sent.
    """
    path = f"/v0/topics/{_segment(topic, 'topic')}"
    return f"{path}/{action}" if action else path


def _segment(name: str, kind: str) -> str:
    if name in ("", ".", ".."):
        raise InvalidRequest("invalid_request", 0, f"{name!r} is not a {kind} name")
    return quote(name, safe=":")


def put_topic(topic: str, config: Config) -> Call[Configured]:
    require(Config, config, "put_topic()")
    return Call("PUT", topic_path(topic), decoder_of(Configured), body=encode(config))


_SHOWN_WHERE_GIVEN: Final = (
    "max_message_bytes",
    "message_timestamp_type",
    "partitions",
    "compact",
    "kafka_configs",
    "order",
    "fair",
    "rate",
    "max_in_flight",
    "group_max_in_flight",
    "backoff",
)


def merged(config: TopicConfig, changes: Config) -> Config:
    """The whole config with `changes` applied, because a `PUT` replaces the whole (§1.1).

    `durable` is left out unless it is changed: `durability` says the same and wins over it.  What the config does
    not have is left out, too.
    """
    fields = {name: getattr(config, name) for name in config.__struct_fields__}
    for name in _SHOWN_WHERE_GIVEN:
        if fields[name] is None:
            del fields[name]
    del fields["durable"]
    if "durable" in changes and "durability" not in changes:
        del fields["durability"]
    return Config(**{**fields, **changes})  # type: ignore[typeddict-item]


def topic(topic: str, *, touch: bool) -> Call[TopicState]:
    return Call("GET", topic_path(topic), decoder_of(TopicState), {"touch": _word(touch)})


def topics(*, prefix: str, page_size: int, cursor: str | None) -> Call[TopicsPage]:
    params = {"page_size": str(page_size)}
    if prefix:
        params["prefix"] = prefix
    if cursor is not None:
        params["cursor"] = cursor
    return Call("GET", "/v0/topics", decoder_of(TopicsPage), params)


def delete_topic(topic: str, *, if_empty: bool) -> Call[TopicDeleted]:
    # Not repeatable: between two attempts another client may have created a topic of that name,
    # and the second would delete that one.
    path, params = topic_path(topic), {"if_empty": _word(if_empty)}
    return Call("DELETE", path, decoder_of(TopicDeleted), params, is_repeatable=False)


_OF_VALUES: Final = ("tag", "meta", "partition", "default", *JobOptions.__optional_keys__)
"""Options of `append` that are for each bare value."""


def append(topic: str, values: Iterable[Any], options: AppendOptions) -> Call[Appended]:
    """Append values as one atomic batch, under a new idempotency key unless one is given."""
    require(AppendOptions, options, "append()")
    rest = dict(options)
    shared: dict[str, Any] = {name: rest.pop(name) for name in _OF_VALUES if name in rest}
    records = [encode_record(value, **shared) for value in values]
    key = options.get("idempotency_key")
    if key is None and options.get("keyed", True):
        key = os.urandom(16).hex()
    for own in ("keyed", "idempotency_key"):
        rest.pop(own, None)
    return append_batch(topic, records, key, WriteOptions(**rest))  # type: ignore[typeddict-item]


def append_batch(
    topic: str, records: Iterable[bytes], key: str | None, options: WriteOptions
) -> Call[Appended]:
    """Append encoded records as one atomic batch.

    Seqs of a batch are contiguous, so the answer is asked for without their list, which has it all the same
    where they are in several partitions, or a record made no job.  Without a `key` it is not repeatable: an attempt whose answer was lost may have been appended.
    """
    require(Config, options.get("config") or {}, "config of an append")
    tail = _body({"idempotency_key": key, **options})
    # The records are JSON already; the rest of the object is encoded and joined to them.
    body = b'{"records":[' + b",".join(records) + b"]" + (b"," if len(tail) > 2 else b"")
    return Call(
        "POST",
        topic_path(topic),
        decoder_of(Appended),
        {"return_seqs": "false"},
        body + tail[1:],
        is_repeatable=key is not None,
    )


def diff(topic: str, record_type: type[R], options: DiffOptions) -> Call[Diff[R]]:
    """One page of records.  Its `wait_ms` lets the session add a long poll's wait to the
    timeout."""
    require(DiffOptions, options, "diff()")
    body = _body({"limit": PAGE_RECORDS, **options})
    wait_ms = min(options.get("wait_ms", 0), WAIT_MS_MAX)
    kind: Any = Diff[record_type]  # type: ignore[valid-type]
    path = topic_path(topic, "diff")
    return Call("POST", path, decoder_of(kind), body=body, wait_ms=wait_ms)


def page(
    topic: str, record_type: type[R], known: StablePage[R] | None, options: StablePageOptions
) -> Call[StablePage[R]]:
    """One page of records, or the one that is known where it still holds."""
    require(StablePageOptions, options, "page()")
    asked = {"limit": PAGE_RECORDS, **options}
    params = {
        name: _word(value) if isinstance(value, bool) else str(value)
        for name, value in asked.items()
        if value is not None
    }
    kind: Any = StablePage[record_type]  # type: ignore[valid-type]
    kept = None if known is None or known.etag is None else Kept(known.etag, known)
    path = topic_path(topic, "records")
    return Call("GET", path, decoder_of(kind), params, kept=kept, stamped=_with_etag)


def _with_etag(page: StablePage[R], etag: str) -> StablePage[R]:
    return msgspec.structs.replace(page, etag=etag)


def latest(
    topic: str,
    record_type: type[R],
    *,
    tag: str | None = None,
    prefix: str = "",
    include_meta: bool = True,
    cursor: str | None = None,
) -> Call[LatestPage[R]]:
    """The newest record of a tag, or a page of those of all tags with a prefix."""
    params = {"prefix": prefix, "limit": str(PAGE_RECORDS)} if tag is None else {"tag": tag}
    if cursor is not None:
        params["cursor"] = cursor
    if not include_meta:
        params["include_meta"] = _word(include_meta)
    kind: Any = LatestPage[record_type]  # type: ignore[valid-type]
    return Call("GET", topic_path(topic, "latest"), decoder_of(kind), params)


def create_watch(
    topics: Mapping[str, Begin],
    *,
    cursor: str | Mapping[str, int] | None,
    options: Mapping[str, Any],
    lenient: bool,
) -> Call[WatchSession]:
    """Repeatable: a session whose answer was lost is dropped by the server when its TTL ends
    (§7.1)."""
    body = _body({"topics": topics, "cursor": cursor, **options})
    params = {"lenient": "true"} if lenient else {}
    return Call("POST", "/v0/watch", decoder_of(WatchSession), params, body)


def open_watch(wid: str, last_event_id: str | None) -> Call[bytes]:
    path = f"/v0/watch/{quote(wid, safe='')}"
    return Call("GET", path, bytes, accept="text/event-stream", last_event_id=last_event_id)


def delete(
    topic: str,
    *,
    before_seq: int | None,
    match: Match | None,
    erase: bool = False,
    partition: int | None = None,
) -> Call[Deleted]:
    # Not repeatable: it removes what is there when it arrives (§5), and a second attempt would
    # remove what was appended since the first.  With `erase` a 429 may come after the delete.
    fields = {"before_seq": before_seq, "match": match, "partition": partition}
    return Call(
        "POST",
        topic_path(topic, "delete"),
        decoder_of(Deleted),
        body=_body({**fields, "erase": erase or None}),
        is_repeatable=False,
        is_patient=not erase,
        wait_ms=ERASE_MS if erase else 0,
    )


def purge(
    topic: str,
    *,
    seq: int | None,
    keep: int | None,
    filter: str | None,
    partition: int | None = None,
) -> Call[Purged]:
    # Not repeatable, as `delete`.
    body = _body({"seq": seq, "keep": keep, "filter": filter, "partition": partition})
    path = topic_path(topic, "purge")
    return Call("POST", path, decoder_of(Purged), body=body, is_repeatable=False)


def claim(
    queue: str,
    job_type: type[J],
    *,
    node: str,
    max: int,
    lease_ms: int | None,
    wait_ms: int | None,
) -> Call[Claimed[J]]:
    """Repeatable: the jobs of a lost answer are handed out again when their lease ends, as those of
    a worker that died (§10.3)."""
    options = {"node": node, "max": max, "lease_ms": lease_ms, "wait_ms": wait_ms}
    kind: Any = Claimed[job_type]  # type: ignore[valid-type]
    body, path = _body(options), topic_path(queue, "claim")
    return Call("POST", path, decoder_of(kind), body=body, wait_ms=min(wait_ms or 0, WAIT_MS_MAX))


def open_work(queue: str, *, node: str, max: int, lease_ms: int | None) -> Call[bytes]:
    params = {"node": node, "max": str(max)}
    if lease_ms is not None:
        params["lease_ms"] = str(lease_ms)
    path = topic_path(queue, "work")
    return Call("GET", path, bytes, params, accept="text/event-stream")


def ack(
    queue: str,
    jobs: Leases,
    *,
    node: str,
    lease_ids: list[str] | None,
    result: Any = None,
    results: Mapping[int, Any] | None = None,
) -> Call[Acked]:
    """Repeatable: a job that the first attempt deleted is `skipped` by the second (§10.4)."""
    own = {str(seq): value for seq, value in results.items()} if results else None
    body = _body({"node": node, "result": result, "results": own, **_leases(jobs, lease_ids)})
    return Call("POST", topic_path(queue, "ack"), decoder_of(Acked), body=body)


def nack(
    queue: str,
    jobs: Leases,
    *,
    node: str,
    delay_ms: int | None,
    lease_ids: list[str] | None,
    reason: str | None = None,
    dead: bool = False,
) -> Call[Nacked]:
    """Repeatable only under lease ids: without them a second attempt could give back a job that the
    same node has claimed again meanwhile (§10.5)."""
    leases = _leases(jobs, lease_ids)
    said = {"reason": reason or None, "dead": dead or None}
    body = _body({"node": node, "delay_ms": delay_ms, **said, **leases})
    path, is_fenced = topic_path(queue, "nack"), leases["lease_ids"] is not None
    return Call("POST", path, decoder_of(Nacked), body=body, is_repeatable=is_fenced)


def extend(
    queue: str,
    jobs: Leases,
    *,
    node: str,
    lease_ms: int,
    lease_ids: list[str] | None,
    progress: Any = None,
) -> Call[Extended]:
    """Repeatable: it sets the deadline anew, and does not add to the old one (§10.6)."""
    fields = {"node": node, "lease_ms": lease_ms, "progress": progress}
    body = _body({**fields, **_leases(jobs, lease_ids)})
    return Call("POST", topic_path(queue, "extend"), decoder_of(Extended), body=body)


def jobs(
    queue: str, *, state: str | None, group: str | None, limit: int, after: str | None
) -> Call[JobsPage]:
    given = {"state": state, "group": group, "limit": str(limit), "after": after}
    params = {name: value for name, value in given.items() if value is not None}
    return Call("GET", topic_path(queue, "jobs"), decoder_of(JobsPage), params)


def job(queue: str, seq: int, *, wait_ms: int, kind: type[J]) -> Call[J]:
    params = {"wait_ms": str(wait_ms)} if wait_ms else {}
    path = f"{topic_path(queue, 'jobs')}/{int(seq)}"
    return Call("GET", path, decoder_of(kind), params, wait_ms=min(wait_ms, WAIT_MS_MAX))


def change_jobs(
    queue: str,
    action: str,
    seq: int | None,
    *,
    match: Match | None,
    state: str | None,
    dry_run: bool,
) -> Call[JobsChanged]:
    """Not repeatable: a job that the first attempt changed may be another worker's by the second, or gone."""
    if seq is not None and (match is not None or state is not None):
        raise ValueError("one job is named, or those that match")
    which = "" if seq is None else f"/{int(seq)}"
    path = f"{topic_path(queue, 'jobs')}{which}/{action}"
    body = _body({"match": match, "state": state, "dry_run": dry_run or None})
    return Call("POST", path, decoder_of(JobsChanged), body=body, is_repeatable=dry_run)


def redrive(
    topic: str,
    to: str,
    *,
    match: Match | None,
    seqs: list[int] | None,
    max: int | None,
    dry_run: bool,
) -> Call[Redriven]:
    """Not repeatable: a second attempt would move others (§10.6)."""
    body = _body({"to": to, "match": match, "seqs": seqs, "max": max, "dry_run": dry_run or None})
    path = topic_path(topic, "redrive")
    return Call("POST", path, decoder_of(Redriven), body=body, is_repeatable=dry_run)


def _leases(jobs: Leases, lease_ids: list[str] | None) -> dict[str, Any]:
    """The fields that name jobs: their seqs, and their lease ids where these are known."""
    named = list(jobs) if isinstance(jobs, Iterable) else [jobs]
    seqs = [job if isinstance(job, int) else job.seq for job in named]
    known = [job.lease_id for job in named if not isinstance(job, int)]
    if lease_ids is None and known:
        lease_ids = known
    if lease_ids is not None and len(lease_ids) != len(seqs):
        raise ValueError(f"{len(lease_ids)} lease ids for {len(seqs)} jobs")
    return {"seqs": seqs, "lease_ids": lease_ids}


def router_path(router: str) -> str:
    return f"/v0/routers/{_segment(router, 'router')}"


def put_router(
    router: str,
    source: str,
    dest: str,
    *,
    filter: Match | None,
    preserve_node: bool,
    preserve_tag: bool,
    create_dest: bool,
    allow_cycle: bool,
    guarantee: Guarantee,
) -> Call[RouterConfig]:
    # Repeatable: the same router again changes nothing (§6.1).
    body = {
        "source": source,
        "dest": dest,
        "filter": filter,
        "preserve_node": preserve_node,
        "preserve_tag": preserve_tag,
        "create_dest": create_dest,
        "allow_cycle": allow_cycle,
        "guarantee": guarantee,
    }
    return Call("PUT", router_path(router), decoder_of(RouterConfig), body=encode(body))


def router(router: str) -> Call[Router]:
    return Call("GET", router_path(router), decoder_of(Router))


def routers(
    *, prefix: str, source: str | None, dest: str | None, page_size: int, cursor: str | None
) -> Call[RoutersPage]:
    asked = {"prefix": prefix or None, "source": source, "dest": dest, "cursor": cursor}
    params = {name: value for name, value in asked.items() if value is not None}
    params["page_size"] = str(page_size)
    return Call("GET", "/v0/routers", decoder_of(RoutersPage), params)


def delete_router(router: str) -> Call[RouterDeleted]:
    # Not repeatable, as `delete_topic`.
    return Call("DELETE", router_path(router), decoder_of(RouterDeleted), is_repeatable=False)


def schedule_path(schedule: str, action: str = "") -> str:
    path = f"/v0/schedules/{_segment(schedule, 'schedule')}"
    return f"{path}/{action}" if action else path


def put_schedule(
    schedule: str, topic: str, value: Any, options: ScheduleOptions
) -> Call[SchedulePut]:
    require(ScheduleOptions, options, "put_schedule()")
    config = options.get("config")
    if config is not None:
        require(Config, config, "put_schedule()")
    shared: dict[str, Any] = {k: v for k, v in options.items() if k in _OF_VALUES}
    record = encode_record(value, **shared)
    # Repeatable: the same schedule again changes nothing.
    body = _body(
        {
            "topic": topic,
            "record": msgspec.Raw(record),
            "cron": options.get("cron"),
            "every_ms": options.get("every_ms"),
            "at": options.get("at_ms"),
            "tz": options.get("tz"),
            "missed": options.get("missed"),
            "until": options.get("until_ms"),
            "paused": options.get("paused"),
            "config": config,
        }
    )
    return Call("PUT", schedule_path(schedule), decoder_of(SchedulePut), body=body)


def schedule(schedule: str) -> Call[Schedule]:
    return Call("GET", schedule_path(schedule), decoder_of(Schedule))


def schedules(
    *, prefix: str, topic: str | None, page_size: int, cursor: str | None
) -> Call[SchedulesPage]:
    asked = {"prefix": prefix or None, "topic": topic, "cursor": cursor}
    params = {name: value for name, value in asked.items() if value is not None}
    params["page_size"] = str(page_size)
    return Call("GET", "/v0/schedules", decoder_of(SchedulesPage), params)


def delete_schedule(schedule: str) -> Call[ScheduleDeleted]:
    # Not repeatable, as `delete_topic`.
    path = schedule_path(schedule)
    return Call("DELETE", path, decoder_of(ScheduleDeleted), is_repeatable=False)


def run_schedule(schedule: str) -> Call[ScheduleRun]:
    # Not repeatable: each attempt may append a record.
    path = schedule_path(schedule, "run")
    return Call("POST", path, decoder_of(ScheduleRun), is_repeatable=False)


def pause_schedule(schedule: str) -> Call[SchedulePaused]:
    return Call("POST", schedule_path(schedule, "pause"), decoder_of(SchedulePaused))


def resume_schedule(schedule: str) -> Call[SchedulePaused]:
    return Call("POST", schedule_path(schedule, "resume"), decoder_of(SchedulePaused))


def group_path(group: str, action: str = "") -> str:
    path = f"/v0/groups/{_segment(group, 'group')}"
    return f"{path}/{action}" if action else path


def group(group: str, *, page_size: int, cursor: str | None) -> Call[Group]:
    params = {"page_size": str(page_size)}
    if cursor is not None:
        params["cursor"] = cursor
    return Call("GET", group_path(group), decoder_of(Group), params)


def groups(*, prefix: str, page_size: int, cursor: str | None) -> Call[GroupsPage]:
    asked = {"prefix": prefix or None, "cursor": cursor}
    params = {name: value for name, value in asked.items() if value is not None}
    params["page_size"] = str(page_size)
    return Call("GET", "/v0/groups", decoder_of(GroupsPage), params)


def commit_offsets(group: str, offsets: Mapping[Partition, int]) -> Call[OffsetsCommitted]:
    # Repeatable: the same offsets again change nothing (§13.3).
    rows = []
    for at, seq in offsets.items():
        topic, partition = (at, 0) if isinstance(at, str) else at
        rows.append({"topic": topic, "partition": partition, "seq": seq})
    path, body = group_path(group, "commit"), encode({"offsets": rows})
    return Call("POST", path, decoder_of(OffsetsCommitted), body=body)


def delete_group(group: str) -> Call[GroupDeleted]:
    # Not repeatable, as `delete_topic`.
    return Call("DELETE", group_path(group), decoder_of(GroupDeleted), is_repeatable=False)


def health() -> Call[Health]:
    return Call("GET", "/v0/health", decoder_of(Health), is_patient=False)


def ready() -> Call[Ready]:
    return Call("GET", "/v0/ready", decoder_of(Ready), is_patient=False)


def metrics() -> Call[dict[str, Any]]:
    return Call("GET", "/v0/metrics", decoder_of(dict[str, Any]), is_patient=False)


def metrics_text() -> Call[str]:
    return Call("GET", "/v0/metrics", bytes.decode, accept="text/plain", is_patient=False)


def limits() -> Call[dict[str, Any]]:
    return Call("GET", "/v0/limits", decoder_of(dict[str, Any]))


def clients(*, topic: str | None, limit: int, after: str | None) -> Call[ClientsPage]:
    given = {"topic": topic, "limit": str(limit), "after": after}
    params = {name: value for name, value in given.items() if value is not None}
    return Call("GET", "/v0/clients", decoder_of(ClientsPage), params)


def cluster() -> Call[dict[str, Any]]:
    return Call("GET", "/v0/cluster", decoder_of(dict[str, Any]))


def trim_cluster(
    *, before: int | None, now: bool, alone: bool, dry_run: bool
) -> Call[dict[str, Any]]:
    # Repeatable: what is gone is gone.
    body = _body({"before": before, "now": now, "alone": alone, "dry_run": dry_run})
    return Call("POST", "/v0/cluster/trim", decoder_of(dict[str, Any]), body=body)


def _body(fields: Mapping[str, Any]) -> bytes:
    """A JSON object without the fields that are None: the server's default holds for them.

    Raises:
        TypeError, ValueError: JSON has no form for a field; the message names the place.
    """
    return encode({name: value for name, value in fields.items() if value is not None})


def _word(value: bool) -> str:
    return "true" if value else "false"
