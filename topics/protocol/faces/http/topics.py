"""Topics over HTTP: routes, bodies, answers (§1)."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from topics.protocol.faces.http.checks import clamp, clamped_lease, given, u64
from topics.protocol.faces.http.decoding import decode, invalid
from topics.protocol.faces.http.fields import (
    Bytes,
    Count,
    DiskBytes,
    EarliestSeq,
    Epoch,
    HeadSeq,
    Natural,
    NextCursor,
    TopicName,
)
from topics.protocol.faces.http.query import next_cursor, page_of_list, query_bool
from topics.protocol.faces.http.rendering import Rendering, open_object
from topics.protocol.faces.http.route import (
    ANY_BODY,
    Request,
    Route,
    name_to_read,
    name_to_write,
    route,
)
from topics.protocol.model import outcomes
from topics.protocol.model.commands import DeleteTopic, GetTopic, ListTopics, PutTopic
from topics.protocol.model.config import (
    BACKOFF_MS_MAX,
    CLAIM_JITTER_MS_MAX,
    MESSAGE_BYTES_MAX,
    PARTITIONS_MAX,
    PRIORITY_MAX,
    Backoff,
    Discard,
    Order,
    Rate,
    TimestampType,
    TopicConfig,
    TopicType,
)
from topics.protocol.model.durability import Durability, durability_of
from topics.protocol.model.kafka_configs import TEXT_MAX
from topics.protocol.model.names import require_topic_name
from topics.protocol.model.outcomes import Outcome
from topics.protocol.model.records import Buffer

ConfigText = Annotated[str, Meta(max_length=TEXT_MAX)]


class RateBody(msgspec.Struct):
    """How many jobs are started, at most (§0.10)."""

    max: Annotated[int, Meta(ge=1)]
    per_ms: Annotated[int, Meta(ge=1, le=BACKOFF_MS_MAX)]


class BackoffBody(msgspec.Struct):
    """How long a job rests that was not done (§0.10)."""

    base_ms: Natural
    factor: Annotated[float, Meta(ge=1, le=1000)] | None = None
    max_ms: Natural | None = None
    jitter: Annotated[float, Meta(ge=0, le=1)] | None = None


class ConfigBody(msgspec.Struct):
    """The config object of §0.10, every field optional; null means absent."""

    type: TopicType | None = None
    ttl_ms: Natural | None = None
    cap_records: Natural | None = None
    cap_bytes: Natural | None = None
    discard: Discard | None = None
    durable: bool | None = None
    durability: Durability | None = None
    priority: int | None = None
    auto_priority: bool | None = None
    auto_create: bool | None = None
    idempotency_window_ms: Natural | None = None
    dedupe_node: bool | None = None
    lease_ms: Natural | None = None
    claim_jitter_ms: Natural | None = None
    max_deliveries: Natural | None = None
    dead_letter: str | None = None
    leases_durable: bool | None = None
    max_message_bytes: Natural | None = None
    message_timestamp_type: TimestampType | None = None
    partitions: Natural | None = None
    compact: bool | None = None
    kafka_configs: dict[str, ConfigText] | None = None
    order: Order | None = None
    fair: bool | None = None
    rate: RateBody | None = None
    max_in_flight: Natural | None = None
    group_max_in_flight: Natural | None = None
    backoff: BackoffBody | None = None
    result_ttl_ms: Natural | None = None
    keep_done: Natural | None = None


TOPIC_DEFAULTS: Final = TopicConfig()
BACKOFF_DEFAULTS: Final = Backoff(base_ms=0)
_CONFIG: Final = msgspec.json.Decoder(ConfigBody)


def resolve_config(body: ConfigBody, topic: str, path: str = "$") -> TopicConfig:
    """A config with every field resolved: defaults, clamps, and durability from `durable`."""
    default = TOPIC_DEFAULTS

    def natural(field: str) -> int:
        return u64(getattr(body, field), f"{path}.{field}", getattr(default, field))

    durability = body.durability or durability_of(durable=bool(body.durable))
    priority = body.priority
    if body.dead_letter is not None:
        require_topic_name(body.dead_letter, path=f"{path}.dead_letter")
        if body.dead_letter == topic:
            raise invalid("dead_letter names the topic itself", f"{path}.dead_letter")
    config = TopicConfig(
        type=body.type or default.type,
        ttl_ms=natural("ttl_ms"),
        cap_records=natural("cap_records"),
        cap_bytes=natural("cap_bytes"),
        discard=body.discard or default.discard,
        durable=durability == durability_of(durable=True),
        durability=durability,
        priority=None if priority is None else clamp(priority, -PRIORITY_MAX, PRIORITY_MAX),
        auto_priority=given(body.auto_priority, default.auto_priority),
        auto_create=given(body.auto_create, default.auto_create),
        idempotency_window_ms=natural("idempotency_window_ms"),
        dedupe_node=given(body.dedupe_node, default.dedupe_node),
        lease_ms=clamped_lease(given(body.lease_ms, default.lease_ms)),
        claim_jitter_ms=min(
            given(body.claim_jitter_ms, default.claim_jitter_ms), CLAIM_JITTER_MS_MAX
        ),
        max_deliveries=natural("max_deliveries"),
        dead_letter=body.dead_letter,
        leases_durable=given(body.leases_durable, default.leases_durable),
        max_message_bytes=(
            UNSET
            if body.max_message_bytes is None
            else clamp(
                u64(body.max_message_bytes, f"{path}.max_message_bytes", 0), 1, MESSAGE_BYTES_MAX
            )
        ),
        message_timestamp_type=given(body.message_timestamp_type, UNSET),
        partitions=_partitions(body.partitions, f"{path}.partitions"),
        compact=given(body.compact, UNSET),
        kafka_configs=body.kafka_configs or UNSET,
        order=given(body.order, UNSET),
        fair=given(body.fair, UNSET),
        rate=UNSET if body.rate is None else Rate(max=body.rate.max, per_ms=body.rate.per_ms),
        max_in_flight=_most(body.max_in_flight, f"{path}.max_in_flight"),
        group_max_in_flight=_most(body.group_max_in_flight, f"{path}.group_max_in_flight"),
        backoff=_backoff(body.backoff),
        result_ttl_ms=_result_ttl(body.result_ttl_ms, f"{path}.result_ttl_ms"),
        keep_done=(UNSET if body.keep_done is None else u64(body.keep_done, f"{path}.keep_done")),
    )
    if config.order == "group" and given(body.group_max_in_flight, 1) > 1:
        what = 'with `order` "group" one job of a group is in flight'
        raise invalid(what, f"{path}.group_max_in_flight")
    return _kept(config, f"{path}.kafka_configs")


def _most(asked: int | None, path: str) -> int | UnsetType:
    return UNSET if asked is None else u64(asked, path, 0)


def _backoff(body: BackoffBody | None) -> Backoff | UnsetType:
    if body is None:
        return UNSET
    longest = BACKOFF_MS_MAX if body.max_ms is None else min(body.max_ms, BACKOFF_MS_MAX)
    return Backoff(
        base_ms=min(body.base_ms, longest),
        factor=given(body.factor, BACKOFF_DEFAULTS.factor),
        max_ms=longest,
        jitter=given(body.jitter, BACKOFF_DEFAULTS.jitter),
    )


def _partitions(asked: int | None, path: str) -> int | UnsetType:
    if asked is None:
        return UNSET
    if not 1 <= asked <= PARTITIONS_MAX:
        raise invalid(f"a topic has 1 to {PARTITIONS_MAX} partitions", path)
    return asked


def _result_ttl(asked: int | None, path: str) -> int | UnsetType:
    if asked is None:
        return UNSET
    if not asked:
        raise invalid("results are kept for 1 ms at least; keep_done 0 keeps none", path)
    return u64(asked, path)


def _kept(config: TopicConfig, path: str) -> TopicConfig:
    if config.kafka_configs is UNSET:
        return config
    # Where nobody names such a config, nothing of that face is loaded.
    from topics.protocol.faces.kafka.configs import BadConfig, with_kept

    try:
        return with_kept(config)
    except BadConfig as error:
        raise invalid(str(error), path) from error


def parse_put(topic: str, body: Buffer) -> PutTopic:
    asked = decode(_CONFIG, body)
    return PutTopic(topic, resolve_config(asked, topic), asked.type is not None)


class QueueCounters(msgspec.Struct, kw_only=True):
    """A queue's jobs: `ready + in_flight + delayed` is `count` (§10.7)."""

    ready: Annotated[Natural, Meta(description="May be claimed.")]
    in_flight: Annotated[Natural, Meta(description="Under a lease.")]
    dead_lettered: Annotated[Natural, Meta(description="Moved away so far.")]
    delayed: Annotated[Natural | UnsetType, Meta(description="Wait; absent where 0.")] = UNSET
    damaged: Annotated[
        Natural | UnsetType,
        Meta(description="Of the delayed, those that cannot be read; absent where 0."),
    ] = UNSET
    blocked: Annotated[
        Natural | UnsetType,
        Meta(
            description="Of the ready, those that wait for others of their group; absent where 0."
        ),
    ] = UNSET
    expired: Annotated[
        Natural | UnsetType,
        Meta(description="Deleted so far, as they were not started in time; absent where 0."),
    ] = UNSET


Counters = Annotated[QueueCounters | UnsetType, Meta(description="Queues only.")]
Priority = Annotated[int, Meta(description="Which topic's news a stream sends first (§0.10).")]


class TopicPut(msgspec.Struct, kw_only=True):
    topic: TopicName
    created: Annotated[bool, Meta(description="Whether this made it.")]
    config: Annotated[TopicConfig, Meta(description="The config in force.")]


class LostLately(msgspec.Struct, kw_only=True):
    reason: Annotated[
        Literal["cap", "ttl", "mixed", "crash", "source_trim"],
        Meta(description="As of a tombstone."),
    ]
    records: Annotated[
        int,
        Meta(
            ge=1,
            description="Records; with `crash` and `source_trim` sequence numbers, which are at most as "
            "many records.",
        ),
    ]
    last_ts: Annotated[Natural, Meta(description="When it happened last.")]


class PartitionState(msgspec.Struct, kw_only=True):
    partition: Annotated[Natural, Meta(description="Its number.")]
    head_seq: HeadSeq
    earliest_seq: EarliestSeq
    next_seq: Annotated[int, Meta(ge=1, description="`head_seq + 1`.")]
    count: Count
    bytes: Bytes
    epoch: Epoch


class TopicState(msgspec.Struct, kw_only=True):
    """Of several partitions `count`, `bytes` and `disk_bytes` are sums, and the numbers are those of partition 0."""

    topic: TopicName
    type: Annotated[TopicType, Meta(description="A log, or a queue.")]
    epoch: Epoch
    head_seq: HeadSeq
    earliest_seq: EarliestSeq
    next_seq: Annotated[int, Meta(ge=1, description="`head_seq + 1`.")]
    count: Count
    bytes: Bytes
    disk_bytes: DiskBytes
    segments: Annotated[Natural, Meta(description="Segment files that its records are in.")]
    lost_24h: Annotated[
        list[LostLately],
        Meta(description="What it lost in this hour and the 23 before, by reason; no deletes."),
    ]
    config: Annotated[TopicConfig, Meta(description="The config in force.")]
    effective_priority: Priority
    last_write_ts: Annotated[Natural | None, Meta(description="`null`: not since the start.")]
    last_read_ts: Annotated[Natural | None, Meta(description="`null`: not since the start.")]
    queue: Counters = UNSET
    partitions: Annotated[
        list[PartitionState] | UnsetType, Meta(description="Where it has more than one.")
    ] = UNSET


class TopicSummary(msgspec.Struct, kw_only=True):
    topic: TopicName
    type: Annotated[TopicType, Meta(description="A log, or a queue.")]
    head_seq: HeadSeq
    earliest_seq: EarliestSeq
    count: Count
    bytes: Bytes
    disk_bytes: DiskBytes
    durable: Annotated[bool, Meta(description="Whether `durability` is `fsync`.")]
    durability: Annotated[Durability, Meta(description="The topic's class.")]
    effective_priority: Priority
    queue: Counters = UNSET


class TopicList(msgspec.Struct, kw_only=True):
    topics: Annotated[list[TopicSummary], Meta(description="By name.")]
    next_cursor: NextCursor = UNSET


class TopicDeleted(msgspec.Struct, kw_only=True):
    topic: TopicName
    deleted: Annotated[bool, Meta(description="Whether there was one.")]
    routers_removed: Annotated[list[str], Meta(description="Routers that went with it.")]


def _topic_put(outcome: outcomes.TopicPut) -> bytes:
    put = TopicPut(topic=outcome.topic, created=outcome.created, config=outcome.config)
    return open_object(put)


def _counters(jobs: outcomes.JobCounts | None) -> QueueCounters | msgspec.UnsetType:
    """`delayed` is left out where it is 0, as the contract's own example has it, and so is
    `damaged`, a part of it (§10.7)."""
    if jobs is None:
        return UNSET
    return QueueCounters(
        ready=jobs.ready,
        in_flight=jobs.in_flight,
        dead_lettered=jobs.dead_lettered,
        delayed=jobs.delayed or UNSET,
        damaged=jobs.damaged or UNSET,
        blocked=jobs.blocked or UNSET,
        expired=jobs.expired or UNSET,
    )


def _topic_shown(outcome: outcomes.TopicShown) -> bytes:
    view = outcome.view
    return open_object(
        TopicState(
            topic=view.name,
            type=view.config.type,
            epoch=view.epoch,
            head_seq=view.head_seq,
            earliest_seq=view.earliest_seq,
            next_seq=view.head_seq + 1,
            count=view.count,
            bytes=view.size_bytes,
            disk_bytes=view.disk_bytes,
            segments=outcome.segments,
            lost_24h=[
                LostLately(
                    reason=each.reason,  # type: ignore[arg-type]
                    records=each.records,
                    last_ts=each.last_ts_ms,
                )
                for each in outcome.lost
            ],
            config=view.config,
            effective_priority=view.priority,
            last_write_ts=view.last_write_ms,
            last_read_ts=view.last_read_ms,
            queue=_counters(view.jobs),
            partitions=[_partition(each) for each in view.partitions] or UNSET,
        )
    )


def _partition(view: outcomes.PartitionView) -> PartitionState:
    return PartitionState(
        partition=view.partition,
        head_seq=view.head_seq,
        earliest_seq=view.earliest_seq,
        next_seq=view.head_seq + 1,
        count=view.count,
        bytes=view.size_bytes,
        epoch=view.epoch,
    )


def _topic_summary(summary: outcomes.TopicSummary) -> TopicSummary:
    figures = summary.figures
    return TopicSummary(
        topic=figures.name,
        type=figures.type,
        head_seq=figures.head_seq,
        earliest_seq=figures.earliest_seq,
        count=figures.count,
        bytes=figures.size_bytes,
        disk_bytes=figures.disk_bytes,
        durable=figures.durable,
        durability=figures.durability,
        effective_priority=summary.priority,
        queue=_counters(summary.jobs),
    )


def _topics_listed(outcome: outcomes.TopicsListed) -> bytes:
    topics = [_topic_summary(each) for each in outcome.topics]
    return open_object(TopicList(topics=topics, next_cursor=next_cursor(outcome.after)))


def _topic_dropped(outcome: outcomes.TopicDropped) -> bytes:
    dropped = TopicDeleted(
        topic=outcome.topic, deleted=outcome.deleted, routers_removed=list(outcome.routers)
    )
    return open_object(dropped)


def _put_topic(request: Request) -> PutTopic:
    return parse_put(name_to_write(request), request.body)


def _get_topic(request: Request) -> GetTopic:
    return GetTopic(name_to_read(request), query_bool(request.query, "touch", True))


def _list_topics(request: Request) -> ListTopics:
    touch = query_bool(request.query, "touch", False)
    return ListTopics(*page_of_list(request.query), touch)


def _delete_topic(request: Request) -> DeleteTopic:
    return DeleteTopic(name_to_write(request), query_bool(request.query, "if_empty", False))


ROUTES: Final[tuple[Route, ...]] = (
    route("GET /v0/topics", "read", _list_topics, makes=ListTopics),
    route("PUT /v0/topics/:", "admin", _put_topic, ANY_BODY, makes=PutTopic),
    route("GET /v0/topics/:", "read", _get_topic, makes=GetTopic),
    route("DELETE /v0/topics/:", "delete", _delete_topic, makes=DeleteTopic),
)
RENDERINGS: Final[Mapping[type[Outcome], Rendering]] = {
    outcomes.TopicPut: Rendering(TopicPut, _topic_put, may_create=True),
    outcomes.TopicShown: Rendering(TopicState, _topic_shown),
    outcomes.TopicsListed: Rendering(TopicList, _topics_listed),
    outcomes.TopicDropped: Rendering(TopicDeleted, _topic_dropped),
}
