"""Watch sessions over HTTP, and the events of their streams (§7)."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, cast

import msgspec
from msgspec import UNSET, Meta, UnsetType

from topics.protocol.faces.http.checks import (
    TS_MAX,
    clamp,
    given,
    page_limit,
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
from topics.protocol.model.cursor import Remembered, parse_composite
from topics.protocol.model.limits import (
    BATCH_BYTES_DEFAULT,
    BATCH_BYTES_MAX,
    FRAME_BYTES_DEFAULT,
    HEARTBEAT_MS_DEFAULT,
    HEARTBEAT_MS_MAX,
    HEARTBEAT_MS_MIN,
    Limits,
)
from topics.protocol.model.outcomes import Outcome
from topics.protocol.model.records import Buffer


class BeginBody(msgspec.Struct):
    from_seq: Natural | None = None
    from_ts: Natural | None = None
    tail: bool | None = None
    match: TagPattern = ABSENT
    node: str | list[str] | None = None


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
    cursor: str | None = None


_WATCH: Final = msgspec.json.Decoder(WatchBody)


def parse_watch(body: Buffer, limits: Limits, *, wid: str, lenient: bool) -> CreateWatch:
    asked = decode(_WATCH, body)
    if not asked.topics:
        raise invalid("expected at least one topic", "$.topics")
    topics = parse_begins(asked.topics, limits)
    beat = HEARTBEAT_MS_DEFAULT if asked.heartbeat_ms is None else asked.heartbeat_ms
    known: Remembered | None = Remembered()
    if asked.cursor is not None:
        known = parse_composite(asked.cursor, list(topics), strict=True)
    if known is None:
        # To begin elsewhere than the client believes would be a silent gap.
        raise invalid("not the id of a frame, nor a session's cursor, of these topics", "$.cursor")
    return CreateWatch(
        wid=wid,
        topics=topics,
        view=parse_view(asked, limits),
        heartbeat_ms=clamp(beat, HEARTBEAT_MS_MIN, HEARTBEAT_MS_MAX),
        lenient=lenient,
        cursors=known.positions,
    )


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
    )


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


class Position(msgspec.Struct, kw_only=True):
    """Where a session stands in a topic."""

    from_seq: Annotated[Natural, Meta(description="It gets records after this number.")]
    head_seq: HeadSeq
    earliest_seq: EarliestSeq
    epoch: Epoch


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
    """Records of one topic: its position moved from `from_seq` to `to_seq` (§7.5)."""

    topic: TopicName
    records: Annotated[list[WatchedRecord], Meta(description="In order.")]
    from_seq: Annotated[Natural, Meta(description="The position before.")]
    to_seq: Annotated[Natural, Meta(description="The position after.")]
    head_seq: HeadSeq


class TombstoneEvent(msgspec.Struct, kw_only=True):
    """Loss; the position is behind it (§7.5)."""

    topic: TopicName
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
    """The topic is read to its head (§7.5)."""

    topic: TopicName
    head_seq: HeadSeq


class TopicDeletedEvent(msgspec.Struct, kw_only=True):
    """Nothing more comes of the topic on this stream (§7.5)."""

    topic: TopicName
    head_seq: HeadSeq
    reason: Annotated[Literal["deleted"], Meta(description="Why.")]


class ErrorEvent(msgspec.Struct, kw_only=True):
    """With `topics`, these end; without, the stream does (§7.5)."""

    code: Annotated[int, Meta(description="A status of §0.6.")]
    error: Annotated[str, Meta(description="For people; may change.")]
    topics: Annotated[list[str] | UnsetType, Meta(description="Topics that end.")] = UNSET
    detail: Annotated[
        dict[str, Any] | UnsetType, Meta(description="Which records cannot be read.")
    ] = UNSET


def position(where: outcomes.WatchPosition) -> Position:
    """Where a watch begins, as `POST /v0/watch` and `subscribed` say it."""
    return Position(
        from_seq=where.from_seq,
        head_seq=where.head_seq,
        earliest_seq=where.earliest_seq,
        epoch=where.epoch,
    )


def _watch_created(outcome: outcomes.WatchCreated) -> bytes:
    return open_object(
        Session(
            wid=outcome.wid,
            stream_url=f"/v0/watch/{outcome.wid}",
            session_ttl_ms=outcome.ttl_ms,
            heartbeat_ms=outcome.heartbeat_ms,
            cursor=outcome.cursor,
            # Encoded as they are: the fields are those of the model, in its order, and a session has
            # hundreds.
            topics=cast("dict[str, Position]", outcome.positions),
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
