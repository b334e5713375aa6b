"""The calls of the API: the path, parameters and body of each, and the type of its answer.

Owns every route that the client uses.  Sends nothing.  Invariant: a call that could do its work
twice is not repeatable.
"""

import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import quote

import msgspec

from topics.client.call import Call, decoder_of
from topics.client.encoding import encode_record
from topics.client.errors import InvalidRequest
from topics.client.models import (
    Acked,
    Appended,
    Claimed,
    Configured,
    Deleted,
    Diff,
    Extended,
    Guarantee,
    Health,
    Nacked,
    Purged,
    Ready,
    Router,
    RouterConfig,
    RouterDeleted,
    RoutersPage,
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
    WriteOptions,
    require,
)

J = TypeVar("J")
R = TypeVar("R")

WAIT_MS_MAX: Final = 30_000
"""The longest long poll that the server grants (§3)."""
PAGE_RECORDS: Final = 1000
"""Records asked for at once: what a server grants by default (§3)."""


class Leased(Protocol):
    """What an ack names: a `Job`, a `HeldJob`, or anything that says which job and which lease."""

    @property
    def seq(self) -> int: ...

    @property
    def lease_id(self) -> str: ...


Leases = int | Leased | Iterable[int | Leased]
"""Jobs by their seq, or as they were claimed: then their lease ids go with them."""


def topic_path(topic: str, action: str = "") -> str:
    """Path of a topic or of an action on it.

    Raises:
        InvalidRequest: A name that would change the path; nothing is sent.
    """
    path = f"/v0/topics/{_segment(topic, 'topic')}"
    return f"{path}/{action}" if action else path


def _segment(name: str, kind: str) -> str:
    if name in ("", ".", ".."):
        raise InvalidRequest("invalid_request", 0, f"{name!r} is not a {kind} name")
    return quote(name, safe=":")


def put_topic(topic: str, config: Config) -> Call[Configured]:
    require(Config, config, "put_topic()")
    return Call("PUT", topic_path(topic), decoder_of(Configured), body=_json(config))


def merged(config: TopicConfig, changes: Config) -> Config:
    """A config to `PUT` that changes only `changes`; a `PUT` replaces it all (§1.1).

    `durable` is left out unless it is changed: `durability` says the same and wins over it.
    """
    fields = {name: getattr(config, name) for name in config.__struct_fields__}
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
    # Not repeatable: between two attempts another writer may have made a topic of that name.
    path, params = topic_path(topic), {"if_empty": _word(if_empty)}
    return Call("DELETE", path, decoder_of(TopicDeleted), params, is_repeatable=False)


def append(topic: str, values: Iterable[Any], options: AppendOptions) -> Call[Appended]:
    """Append values as one atomic batch, under a new idempotency key unless one is given."""
    require(AppendOptions, options, "append()")
    rest = dict(options)
    tag, meta = options.get("tag"), options.get("meta")
    default = options.get("default")
    records = [encode_record(value, tag=tag, meta=meta, default=default) for value in values]
    key = options.get("idempotency_key")
    if key is None and options.get("keyed", True):
        key = secrets.token_hex(16)
    for own in ("tag", "meta", "keyed", "idempotency_key", "default"):
        rest.pop(own, None)
    return append_batch(topic, records, key, WriteOptions(**rest))  # type: ignore[typeddict-item]


def append_batch(
    topic: str, records: Iterable[bytes], key: str | None, options: WriteOptions
) -> Call[Appended]:
    """Append encoded records as one atomic batch.

    Seqs of a batch are contiguous, so the answer is asked for without their list.  Without a `key`
    it is not repeatable: an attempt whose answer was lost may have been appended.
    """
    require(Config, options.get("config") or {}, "config of an append")
    rest = {"idempotency_key": key, **options}
    tail = _json({name: value for name, value in rest.items() if value is not None})
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
    """One page; a long poll carries its wait, so that its timeout can allow for it."""
    require(DiffOptions, options, "diff()")
    body = {"limit": PAGE_RECORDS, **options}
    body = {name: value for name, value in body.items() if value is not None}
    wait_ms = min(options.get("wait_ms", 0), WAIT_MS_MAX)
    path, decode = topic_path(topic, "diff"), _reads_diff(record_type)
    return Call("POST", path, decode, body=_json(body), wait_ms=wait_ms)


def create_watch(
    topics: Mapping[str, Begin], *, cursor: str | None, options: Mapping[str, Any], lenient: bool
) -> Call[WatchSession]:
    """Repeatable: a session whose answer was lost holds nothing up, and is let go when idle."""
    body = {"topics": topics, "cursor": cursor, **options}
    body = {name: value for name, value in body.items() if value is not None}
    params = {"lenient": "true"} if lenient else {}
    return Call("POST", "/v0/watch", decoder_of(WatchSession), params, _json(body))


def open_watch(wid: str, last_event_id: str | None) -> Call[bytes]:
    path = f"/v0/watch/{quote(wid, safe='')}"
    return Call("GET", path, bytes, accept="text/event-stream", last_event_id=last_event_id)


def delete(topic: str, *, before_seq: int | None, match: Match | None) -> Call[Deleted]:
    # Not repeatable: it is point-in-time (§5), and a second attempt is a later point.
    body: dict[str, Any] = {} if before_seq is None else {"before_seq": before_seq}
    body |= {} if match is None else {"match": match}
    path = topic_path(topic, "delete")
    return Call("POST", path, decoder_of(Deleted), body=_json(body), is_repeatable=False)


def purge(topic: str, *, seq: int | None, keep: int | None, filter: str | None) -> Call[Purged]:
    options = {"seq": seq, "keep": keep, "filter": filter}
    body = _json({name: value for name, value in options.items() if value is not None})
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
    """Repeatable: what an attempt whose answer was lost had claimed comes again when its lease
    ends, as after any worker that vanished (§10.3)."""
    options = {"node": node, "max": max, "lease_ms": lease_ms, "wait_ms": wait_ms}
    kind: Any = Claimed[job_type]  # type: ignore[valid-type]
    body, path = _present(options), topic_path(queue, "claim")
    return Call("POST", path, decoder_of(kind), body=body, wait_ms=min(wait_ms or 0, WAIT_MS_MAX))


def open_work(queue: str, *, node: str, max: int, lease_ms: int | None) -> Call[bytes]:
    params = {"node": node, "max": str(max)}
    if lease_ms is not None:
        params["lease_ms"] = str(lease_ms)
    path = topic_path(queue, "work")
    return Call("GET", path, bytes, params, accept="text/event-stream")


def ack(queue: str, jobs: Leases, *, node: str, lease_ids: list[str] | None) -> Call[Acked]:
    """Repeatable: what is done is done (§10.4)."""
    body = _present({"node": node, **_leases(jobs, lease_ids)})
    return Call("POST", topic_path(queue, "ack"), decoder_of(Acked), body=body)


def nack(
    queue: str, jobs: Leases, *, node: str, delay_ms: int, lease_ids: list[str] | None
) -> Call[Nacked]:
    """Repeatable only under lease ids: without them a second attempt could give back what the same
    node has claimed again meanwhile."""
    leases = _leases(jobs, lease_ids)
    body = _present({"node": node, "delay_ms": delay_ms, **leases})
    path, is_fenced = topic_path(queue, "nack"), leases["lease_ids"] is not None
    return Call("POST", path, decoder_of(Nacked), body=body, is_repeatable=is_fenced)


def extend(
    queue: str, jobs: Leases, *, node: str, lease_ms: int, lease_ids: list[str] | None
) -> Call[Extended]:
    """Repeatable: it sets the deadline, and adds nothing to it (§10.6)."""
    body = _present({"node": node, "lease_ms": lease_ms, **_leases(jobs, lease_ids)})
    return Call("POST", topic_path(queue, "extend"), decoder_of(Extended), body=body)


def _leases(jobs: Leases, lease_ids: list[str] | None) -> dict[str, Any]:
    """Fields that name jobs: by seq, and under their leases where these are known."""
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
    return Call("PUT", router_path(router), decoder_of(RouterConfig), body=_json(body))


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
    # Not repeatable, as of topics: another may have made one of that name between two attempts.
    return Call("DELETE", router_path(router), decoder_of(RouterDeleted), is_repeatable=False)


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


_json: Final = msgspec.json.Encoder().encode


def _present(fields: Mapping[str, Any]) -> bytes:
    """A body of the fields that say something."""
    return _json({name: value for name, value in fields.items() if value is not None})


def _reads_diff(record_type: type[R]) -> Callable[[bytes], Diff[R]]:
    kind: Any = Diff[record_type]  # type: ignore[valid-type]
    return decoder_of(kind)


def _word(value: bool) -> str:
    return "true" if value else "false"
