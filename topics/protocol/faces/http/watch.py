"""Watch sessions over HTTP, and the events of their streams (§7)."""

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias, cast

import msgspec
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import replace

from topics.protocol.faces.http.checks import (
    TS_MAX,
    clamp,
    given,
    page_limit,
    require_partition,
    skipped_nodes,
    tag_match,
    u64,
)
from topics.protocol.faces.http.decoding import decode, invalid
from topics.protocol.faces.http.fields import (
    ABSENT,
    Data,
    EarliestSeq,
    Epoch,
    HeadSeq,
    Natural,
    TagPattern,
    TopicName,
)
from topics.protocol.faces.http.query import query_bool
from topics.protocol.faces.http.records import GapFrom, GapTo, Missed, TopicRecord
from topics.protocol.faces.http.rendering import Rendering, open_object
from topics.protocol.faces.http.route import (
    BodyRule,
    Request,
    Route,
    StreamKind,
    route,
)
from topics.protocol.model import outcomes
from topics.protocol.model.commands import Begin, CreateWatch, View
from topics.protocol.model.cursor import NO_CURSOR, Listed, parse_cursor, positions_of
from topics.protocol.model.limits import (
    BATCH_BYTES_DEFAULT,
    BATCH_BYTES_MAX,
    FRAME_BYTES_DEFAULT,
    HEARTBEAT_MS_DEFAULT,
    HEARTBEAT_MS_MAX,
    HEARTBEAT_MS_MIN,
    Limits,
)
from topics.protocol.model.names import PARTITION_MARK, partition_of, public_name
from topics.protocol.model.outcomes import Outcome
from topics.protocol.model.records import Buffer

PartitionNumbers: TypeAlias = Annotated[list[Natural], Meta(min_length=1)] | None
"""Of a topic, the partitions that are watched; None: all."""


class BeginBody(msgspec.Struct):
    from_seq: Natural | None = None
    from_ts: Natural | None = None
    tail: bool | None = None
    match: TagPattern = ABSENT
    node: str | list[str] | None = None
    partitions: PartitionNumbers = None


class ViewBody(msgspec.Struct):
    """The options that a watch session and a `subscribe` share (§7.2, §7.7)."""

    node: str | list[str] | None = None
    limit: Natural | None = None
    max_batch_bytes: Natural | None = None
    match: TagPattern = ABSENT
    include_tags: bool | None = None
    include_meta: bool | None = None
    include_data: bool | None = None
    consistency: Literal["eventual", "strong"] | None = None


class WatchBody(ViewBody, kw_only=True):
    topics: dict[str, BeginBody | None]
    heartbeat_ms: Natural | None = None
    cursor: str | dict[str, Natural] | None = None


_WATCH: Final = msgspec.json.Decoder(WatchBody)


def parse_watch(body: Buffer, limits: Limits, *, wid: str, lenient: bool) -> CreateWatch:
    asked = decode(_WATCH, body)
    if not asked.topics:
        raise invalid("expected at least one topic", "$.topics")
    topics = parse_begins(asked.topics, limits)
    beat = HEARTBEAT_MS_DEFAULT if asked.heartbeat_ms is None else asked.heartbeat_ms
    known: Mapping[str, int] | Listed | None = {}
    if isinstance(asked.cursor, str):
        known = parse_cursor(asked.cursor, topics)
    elif asked.cursor is not None:
        known = parse_positions(asked.cursor, topics)
    if known is None:
        # To begin elsewhere than the client believes would be a silent gap.
        raise invalid(NO_CURSOR, "$.cursor")
    listed = None
    if isinstance(known, Listed):
        # A node of an earlier version decides by these, which are all where no topic has partitions.
        listed, known = known, known.over(list(topics)) or {}
    return CreateWatch(
        wid=wid,
        topics=topics,
        view=parse_view(asked, limits),
        heartbeat_ms=clamp(beat, HEARTBEAT_MS_MIN, HEARTBEAT_MS_MAX),
        lenient=lenient,
        cursors=known,
        listed=listed,
    )


def parse_positions(cursor: Mapping[str, int], topics: Collection[str]) -> dict[str, int]:
    """The positions of a cursor that is a map, by the engine's names of partitions."""
    for name, seq in cursor.items():
        u64(seq, f"$.cursor.{name[:64]}")
    found = positions_of(cursor, topics)
    if found is None:
        raise invalid(f'a partition is named "TOPIC{PARTITION_MARK}NUMBER"', "$.cursor")
    return found


def begun_at(topics: Mapping[str, Begin], cursors: Mapping[str, int]) -> dict[str, Begin]:
    """The topics, from the positions that there are."""
    at: dict[str, dict[int, int]] = {}
    for name, seq in cursors.items():
        topic, number = partition_of(name)
        at.setdefault(topic, {})[number] = seq
    return {
        name: replace(begin, at=at[name]) if name in at else begin for name, begin in topics.items()
    }


_NOTHING_SAID: Final = BeginBody()
_FIRST: Final = Begin()
"""What a topic that says nothing asks for: most do, and a session has hundreds."""


def parse_begins(topics: Mapping[str, BeginBody | None], limits: Limits) -> dict[str, Begin]:
    """Where to begin in each topic; a name that cannot exist is not found when the watch
    is decided."""
    if len(topics) > limits.max_watch_topics:
        raise invalid(f"{len(topics)} topics exceed {limits.max_watch_topics}", "$.topics")
    return {
        name: _FIRST
        if begin is None or begin == _NOTHING_SAID
        else parse_begin(begin, limits, f"$.topics.{name[:64]}")
        for name, begin in topics.items()
    }


def parse_begin(asked: BeginBody, limits: Limits, path: str) -> Begin:
    if asked.from_seq is not None and asked.from_ts is not None:
        raise invalid("from_seq and from_ts exclude each other", f"{path}.from_ts")
    from_ts = None if asked.from_ts is None else min(u64(asked.from_ts, path), TS_MAX)
    return Begin(
        from_seq=u64(asked.from_seq, f"{path}.from_seq"),
        from_ts=from_ts,
        tail=bool(asked.tail),
        match=tag_match(asked.match, limits, f"{path}.match"),
        nodes=skipped_nodes(asked.node, limits, f"{path}.node"),
        partitions=_partitions(asked.partitions, f"{path}.partitions"),
    )


def _partitions(asked: list[int] | None, path: str) -> tuple[int, ...] | None:
    if asked is None:
        return None
    for number in asked:
        require_partition(number, path)
    return tuple(sorted(set(asked)))


def parse_view(asked: ViewBody, limits: Limits) -> View:
    budget = FRAME_BYTES_DEFAULT if asked.max_batch_bytes is None else asked.max_batch_bytes
    return View(
        limit=page_limit(asked.limit, limits),
        budget_bytes=min(budget or BATCH_BYTES_DEFAULT, BATCH_BYTES_MAX),
        nodes=skipped_nodes(asked.node, limits) or (),
        match=tag_match(asked.match, limits),
        tags=bool(asked.include_tags),
        meta=given(asked.include_meta, True),
        data=given(asked.include_data, True),
        strong=asked.consistency == "strong",
    )


FromSeq: TypeAlias = Annotated[Natural, Meta(description="It gets records after this number.")]
Partition: TypeAlias = Annotated[
    Natural | UnsetType, Meta(description="Which one, of a topic with several.")
]


class PartitionPosition(msgspec.Struct, kw_only=True):
    """Where a session stands in a partition."""

    partition: Annotated[Natural, Meta(description="Its number.")]
    from_seq: FromSeq
    head_seq: HeadSeq
    earliest_seq: EarliestSeq
    epoch: Epoch


class Position(msgspec.Struct, kw_only=True):
    """Where a session stands in a topic; of several partitions, in the first of those that it watches."""

    from_seq: FromSeq
    head_seq: HeadSeq
    earliest_seq: EarliestSeq
    epoch: Epoch
    partitions: Annotated[
        list[PartitionPosition] | UnsetType,
        Meta(description="Where it has more than one: those that are watched."),
    ] = UNSET


class Session(msgspec.Struct, kw_only=True):
    wid: Annotated[str, Meta(description="Cannot be guessed; all that the stream asks for.")]
    stream_url: Annotated[str, Meta(description="The path of the stream.")]
    session_ttl_ms: Annotated[Natural, Meta(description="How long it lives without a stream.")]
    heartbeat_ms: Annotated[Natural, Meta(description="The longest silence of the stream.")]
    cursor: Annotated[str, Meta(description="The id of this beginning.")]
    topics: Annotated[dict[str, Position], Meta(description="By name.")]


class WatchedRecord(TopicRecord, kw_only=True):
    """A record as a stream sends it; without `data` where `include_data` is false."""

    data: Data | UnsetType = UNSET


class RecordEvent(msgspec.Struct, kw_only=True):
    """Records of one topic, or partition: its position moved from `from_seq` to `to_seq` (§7.5)."""

    topic: TopicName
    partition: Partition = UNSET
    records: Annotated[list[WatchedRecord], Meta(description="In order.")]
    from_seq: Annotated[Natural, Meta(description="The position before.")]
    to_seq: Annotated[Natural, Meta(description="The position after.")]
    head_seq: HeadSeq


class TombstoneEvent(msgspec.Struct, kw_only=True):
    """Loss; the position is behind it (§7.5)."""

    topic: TopicName
    partition: Partition = UNSET
    gap_from: GapFrom
    gap_to: GapTo
    reason: Annotated[
        Literal["cap", "ttl", "mixed", "crash", "recreated", "source_trim", "from_seq_too_old"],
        Meta(description="How it was lost."),
    ]
    missed_estimate: Missed
    earliest_seq: EarliestSeq
    head_seq: HeadSeq


class CaughtUpEvent(msgspec.Struct, kw_only=True):
    """The topic, or the partition, is read to its head (§7.5)."""

    topic: TopicName
    partition: Partition = UNSET
    head_seq: HeadSeq


class TopicDeletedEvent(msgspec.Struct, kw_only=True):
    """Nothing more comes of the topic on this stream; of several partitions each says so (§7.5)."""

    topic: TopicName
    partition: Partition = UNSET
    head_seq: HeadSeq
    reason: Annotated[Literal["deleted"], Meta(description="Why.")]


class ErrorEvent(msgspec.Struct, kw_only=True):
    """With `topics`, these end; without, the stream does (§7.5)."""

    code: Annotated[int, Meta(description="A status of §0.6.")]
    error: Annotated[str, Meta(description="For people; may change.")]
    topics: Annotated[list[str] | UnsetType, Meta(description="Topics that end.")] = UNSET
    partition: Annotated[
        Natural | UnsetType, Meta(description="Where only this one of the topic ends.")
    ] = UNSET
    detail: Annotated[
        dict[str, Any] | UnsetType, Meta(description="Which records cannot be read.")
    ] = UNSET


def positions(at: Mapping[str, outcomes.WatchPosition]) -> dict[str, Position]:
    """Where a watch begins in each topic, as `POST /v0/watch` and `subscribed` say it.

    Args:
        at: By the engine's names of partitions.
    """
    if all(where.partition is UNSET for where in at.values()):
        # Encoded as they are: the fields are those of the model, in its order, and a session has
        # hundreds.
        return cast("dict[str, Position]", at)
    by_topic: dict[str, list[outcomes.WatchPosition]] = {}
    for name, where in at.items():
        by_topic.setdefault(public_name(name), []).append(where)
    return {topic: _position(many) for topic, many in by_topic.items()}


def _position(many: list[outcomes.WatchPosition]) -> Position:
    """Where a watch begins in the partitions of one topic."""
    first = many[0]
    parts: list[PartitionPosition] | UnsetType = UNSET
    if first.partition is not UNSET:
        parts = [
            PartitionPosition(
                partition=cast("int", each.partition),
                from_seq=each.from_seq,
                head_seq=each.head_seq,
                earliest_seq=each.earliest_seq,
                epoch=each.epoch,
            )
            for each in many
        ]
    return Position(
        from_seq=first.from_seq,
        head_seq=first.head_seq,
        earliest_seq=first.earliest_seq,
        epoch=first.epoch,
        partitions=parts,
    )


def _watch_created(outcome: outcomes.WatchCreated) -> bytes:
    return open_object(
        Session(
            wid=outcome.wid,
            stream_url=f"/v0/watch/{outcome.wid}",
            session_ttl_ms=outcome.ttl_ms,
            heartbeat_ms=outcome.heartbeat_ms,
            cursor=outcome.cursor,
            topics=positions(outcome.positions),
        )
    )


def _create_watch(request: Request) -> CreateWatch:
    return parse_watch(
        request.body,
        request.limits,
        wid="wid_" + request.entropy(),
        lenient=query_bool(request.query, "lenient", False),
    )


ROUTES: Final[tuple[Route, ...]] = (
    route("POST /v0/watch", "read", _create_watch, BodyRule.JSON, makes=CreateWatch),
    route("GET /v0/watch/:", "read", StreamKind.WATCH),
    route("GET /v0/ws", "socket", StreamKind.SOCKET),
)
RENDERINGS: Final[Mapping[type[Outcome], Rendering]] = {
    outcomes.WatchCreated: Rendering(Session, _watch_created),
}
