"""Records over HTTP: appended, read, deleted (§2 to §5)."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

from topics.protocol.faces.http.append_body import parse_append
from topics.protocol.faces.http.checks import (
    DEFAULT_LIMITS,
    TS_MAX,
    page_budget,
    page_limit,
    partition_name_of,
    skipped_nodes,
    tag_match,
    u64,
)
from topics.protocol.faces.http.decoding import decode, invalid
from topics.protocol.faces.http.fields import (
    ABSENT,
    Bytes,
    Count,
    Data,
    EarliestSeq,
    Epoch,
    FormOf,
    HeadersOf,
    HeadSeq,
    KeyOf,
    MetaData,
    Natural,
    NextCursor,
    Node,
    Seq,
    Tag,
    TagPattern,
    TimeOf,
    TopicName,
    Ts,
)
from topics.protocol.faces.http.query import list_cursor, parse_cursor, query_bool, query_natural
from topics.protocol.faces.http.rendering import Rendering, encode, open_object
from topics.protocol.faces.http.route import (
    ANY_BODY,
    BodyRule,
    Request,
    Route,
    header_text,
    name_to_read,
    name_to_write,
    route,
)
from topics.protocol.model import outcomes
from topics.protocol.model.commands import Append, DeleteRecords, Diff, Purge, ReadLatest, ReadPage
from topics.protocol.model.limits import WAIT_MS_MAX, Limits
from topics.protocol.model.names import require_topic_name
from topics.protocol.model.outcomes import Outcome
from topics.protocol.model.placed import Placed
from topics.protocol.model.records import Buffer
from topics.protocol.model.tags import TagRange, begins_with, equals, parse_subject


class DiffBody(msgspec.Struct):
    from_seq: Natural | None = None
    from_ts: Natural | None = None
    limit: Natural | None = None
    max_batch_bytes: Natural | None = None
    node: str | list[str] | None = None
    match: TagPattern = ABSENT
    include_tags: bool | None = None
    include_meta: bool | None = None
    wait_ms: Natural | None = None
    epoch: str | None = None
    partition: Natural | None = None


class DeleteBody(msgspec.Struct, forbid_unknown_fields=True):
    before_seq: Natural | None = None
    match: TagPattern = ABSENT
    erase: bool | None = None
    partition: Natural | None = None


class PurgeBody(msgspec.Struct, forbid_unknown_fields=True):
    seq: Natural | None = None
    keep: Natural | None = None
    filter: str | None = None
    partition: Natural | None = None


_DIFF: Final = msgspec.json.Decoder(DiffBody)


def parse_diff(topic: str, body: Buffer, limits: Limits) -> Diff:
    asked = decode(_DIFF, body)
    if asked.from_seq is not None and asked.from_ts is not None:
        raise invalid("from_seq and from_ts exclude each other", "$.from_ts")
    return Diff(
        topic=partition_name_of(topic, asked.partition, "$.partition"),
        from_seq=u64(asked.from_seq, "$.from_seq"),
        from_ts=None if asked.from_ts is None else min(u64(asked.from_ts, "$.from_ts"), TS_MAX),
        limit=page_limit(asked.limit, limits),
        budget_bytes=page_budget(asked.max_batch_bytes),
        nodes=() if asked.node is None else skipped_nodes(asked.node, limits) or (),
        match=None if asked.match is None else tag_match(asked.match, limits),
        include_tags=bool(asked.include_tags),
        include_meta=asked.include_meta is not False,
        wait_ms=min(asked.wait_ms, WAIT_MS_MAX) if asked.wait_ms else 0,
        epoch=asked.epoch,
        partition=asked.partition,
    )


_DELETE: Final = msgspec.json.Decoder(DeleteBody)
_PURGE: Final = msgspec.json.Decoder(PurgeBody)


def parse_delete(topic: str, body: Buffer, limits: Limits = DEFAULT_LIMITS) -> DeleteRecords:
    asked = decode(_DELETE, body)
    match = tag_match(asked.match, limits)
    if asked.before_seq is None and match is None:
        raise invalid("expected before_seq or match", "$")
    before = None if asked.before_seq is None else u64(asked.before_seq, "$.before_seq")
    name = partition_name_of(topic, asked.partition, "$.partition")
    return DeleteRecords(name, before, match, bool(asked.erase), partition=asked.partition)


def parse_purge(topic: str, body: Buffer) -> Purge:
    asked = decode(_PURGE, body)
    if asked.seq is not None and asked.keep is not None:
        raise invalid("seq and keep exclude each other", "$.keep")
    return Purge(
        partition_name_of(topic, asked.partition, "$.partition"),
        None if asked.seq is None else u64(asked.seq, "$.seq"),
        None if asked.keep is None else u64(asked.keep, "$.keep"),
        None if asked.filter is None else parse_subject(asked.filter),
        asked.partition,
    )


SeqOfOne = Annotated[int, Meta(ge=1)]


class PartitionWritten(msgspec.Struct, kw_only=True):
    partition: Annotated[Natural, Meta(description="Its number.")]
    first_seq: Annotated[int, Meta(ge=1, description="The number of its first record there.")]
    last_seq: Annotated[int, Meta(ge=1, description="That of its last.")]


class Appended(msgspec.Struct, kw_only=True):
    """`first_seq`, `last_seq` and `head_seq` are absent where several partitions were written."""

    topic: TopicName
    first_seq: Annotated[SeqOfOne | UnsetType, Meta(description="The first record's number.")] = (
        UNSET
    )
    last_seq: Annotated[SeqOfOne | UnsetType, Meta(description="The last record's number.")] = UNSET
    seqs: Annotated[
        list[int] | UnsetType,
        Meta(
            description="All numbers, one a record; with `return_seqs=false` only where several partitions were written, or a record made no job."
        ),
    ] = UNSET
    head_seq: Annotated[Natural | UnsetType, Meta(description="The greatest number given out.")] = (
        UNSET
    )
    partitions: Annotated[
        list[PartitionWritten] | UnsetType,
        Meta(description="Of a topic with several partitions: those that were written (§2.1)."),
    ] = UNSET
    count: Annotated[
        int, Meta(ge=1, description="Records in this write, also those that made no job.")
    ]
    created: Annotated[bool, Meta(description="Whether this made the topic.")]
    deduped: Annotated[bool, Meta(description="Whether its key was known (§0.8).")]
    unique: Annotated[
        list[int] | UnsetType,
        Meta(
            description="Numbers of jobs that were there already, for records that made none (§10)."
        ),
    ] = UNSET
    replaced: Annotated[
        list[int] | UnsetType, Meta(description="Jobs that made way for those of this write (§10).")
    ] = UNSET


class TopicRecord(msgspec.Struct, kw_only=True):
    seq: Seq = field(name="$seq")
    ts: Ts = field(name="$ts")
    node: Node = field(name="$node", default=UNSET)
    form: FormOf = field(name="$form", default=UNSET)
    key: KeyOf = field(name="$key", default=UNSET)
    time: TimeOf = field(name="$time", default=UNSET)
    headers: HeadersOf = field(name="$headers", default=UNSET)
    tag: Tag = field(name="$tag", default=UNSET)
    data: Data
    meta: MetaData = UNSET


GapFrom = Annotated[int, Meta(ge=1, description="The first lost number.")]
GapTo = Annotated[int, Meta(ge=0, description="The last lost number.")]
Missed = Annotated[int, Meta(ge=0, description="The length of the gap.")]
Reason = Annotated[
    Literal["cap", "ttl", "mixed", "crash", "recreated", "source_trim"],
    Meta(description="How it was lost."),
]


class Tombstone(msgspec.Struct, kw_only=True):
    """What was lost (§3.3)."""

    gap_from: GapFrom
    gap_to: GapTo
    reason: Reason
    missed_estimate: Missed
    earliest_seq: EarliestSeq
    head_seq: HeadSeq


class Page(msgspec.Struct, kw_only=True):
    topic: TopicName
    records: Annotated[list[TopicRecord], Meta(description="In order.")]
    next_from_seq: Annotated[Natural, Meta(description="Where to go on.")]
    head_seq: HeadSeq
    earliest_seq: EarliestSeq
    caught_up: Annotated[bool, Meta(description="Whether `next_from_seq` is `head_seq`.")]
    tombstone: Annotated[Tombstone | None, Meta(description="What was lost, or `null`.")]
    lag: Annotated[Natural, Meta(description="`head_seq` - `next_from_seq`.")]
    epoch: Epoch


class Loss(msgspec.Struct, kw_only=True):
    """What was lost, without the marks of the topic, which move (§3.4)."""

    gap_from: GapFrom
    gap_to: GapTo
    reason: Reason
    missed_estimate: Missed


class StablePage(msgspec.Struct, kw_only=True):
    records: Annotated[list[TopicRecord], Meta(description="In order.")]
    tombstone: Annotated[Loss | None, Meta(description="What was lost, or `null`.")]
    next_from_seq: Annotated[Natural, Meta(description="Where to go on.")]


class LatestRecords(msgspec.Struct, kw_only=True):
    records: Annotated[
        list[TopicRecord],
        Meta(description="One for each tag, by partition, in each in the order of their numbers."),
    ]
    epoch: Epoch
    partitions: Annotated[
        list[Natural] | UnsetType,
        Meta(description="Of a topic with several: the partition of each record of `records`."),
    ] = UNSET
    next_cursor: NextCursor = UNSET


class RecordsDeleted(msgspec.Struct, kw_only=True):
    topic: TopicName
    deleted: Annotated[Natural, Meta(description="Records that this removed.")]
    earliest_seq: EarliestSeq
    head_seq: HeadSeq
    count: Count
    bytes: Bytes
    log_retained_until: Annotated[
        Natural | UnsetType,
        Meta(
            description="Of an erasure on a node of a cluster: until when the files of the cluster's log "
            "may have the bytes, milliseconds since the epoch (§5)."
        ),
    ] = UNSET


class Purged(msgspec.Struct, kw_only=True):
    topic: TopicName
    success: Annotated[Literal[True], Meta(description="Always.")]
    purged: Annotated[Natural, Meta(description="Records that this removed.")]
    earliest_seq: EarliestSeq
    head_seq: HeadSeq
    count: Count
    bytes: Bytes


def _page(outcome: outcomes.Page) -> tuple[bytes, bytes]:
    head_seq, next_seq, gap = outcome.head_seq, outcome.next_seq, outcome.gap
    tail = (
        b'],"next_from_seq":%d,"head_seq":%d,"earliest_seq":%d,"caught_up":%b,'
        b'"tombstone":%b,"lag":%d,"epoch":"%b"'
    ) % (
        next_seq,
        head_seq,
        outcome.earliest_seq,
        b"true" if next_seq == head_seq else b"false",
        b"null" if gap is None else _tombstone(gap, outcome.earliest_seq, head_seq),
        head_seq - next_seq,
        outcome.epoch.encode(),
    )
    return b'{"topic":"%b","records":[' % outcome.topic.encode(), tail


def _tombstone(gap: outcomes.Gap, earliest_seq: int, head_seq: int) -> bytes:
    stone = Tombstone(
        gap_from=gap.gap_from,
        gap_to=gap.gap_to,
        reason=gap.reason,  # type: ignore[arg-type]
        missed_estimate=_missed(gap),
        earliest_seq=earliest_seq,
        head_seq=head_seq,
    )
    return encode(stone)


def _stable_page(outcome: outcomes.StablePage) -> tuple[bytes, bytes]:
    gap = outcome.gap
    loss = b"null" if gap is None else encode(_loss(gap))
    tail = b'],"tombstone":%b,"next_from_seq":%d' % (loss, outcome.next_seq)
    return b'{"records":[', tail


def _latest(outcome: outcomes.Latest) -> tuple[bytes, bytes]:
    tail = b'],"epoch":"%b"' % outcome.epoch.encode()
    if outcome.partitions:
        tail += b',"partitions":' + encode(outcome.partitions)
    if outcome.after is not None:
        tail += b',"next_cursor":"%b"' % list_cursor(outcome.after).encode()
    return b'{"records":[', tail


def _loss(gap: outcomes.Gap) -> Loss:
    return Loss(
        gap_from=gap.gap_from,
        gap_to=gap.gap_to,
        reason=gap.reason,  # type: ignore[arg-type]
        missed_estimate=_missed(gap),
    )


def _missed(gap: outcomes.Gap) -> int:
    return max(gap.gap_to - gap.gap_from + 1, 0)


def appended(outcome: outcomes.Appended) -> Appended:
    """As an append is answered, and a publish over a WebSocket (§2, §7.7)."""
    placed = outcome.placed
    if placed is not None:
        return _placed(outcome, placed)
    end_seq = outcome.first_seq + outcome.count
    seqs: list[int] | UnsetType = UNSET
    if outcome.seqs is not None:
        seqs = [*outcome.seqs]
    elif outcome.with_seqs:
        seqs = [*range(outcome.first_seq, end_seq)]
    return Appended(
        topic=outcome.topic,
        first_seq=outcome.first_seq,
        last_seq=outcome.greatest_hit or end_seq - 1,
        seqs=seqs,
        head_seq=outcome.head_seq,
        count=outcome.count if outcome.seqs is None else len(outcome.seqs),
        created=outcome.created,
        deduped=outcome.deduped,
        unique=[*outcome.unique] or UNSET,
        replaced=[*outcome.replaced] or UNSET,
    )


def _placed(outcome: outcomes.Appended, placed: Placed) -> Appended:
    """In a topic of several partitions."""
    is_one = len(placed.spans) == 1
    return Appended(
        topic=outcome.topic,
        first_seq=outcome.first_seq if is_one else UNSET,
        last_seq=placed.spans[0].last_seq if is_one else UNSET,
        seqs=UNSET if is_one and not outcome.with_seqs else placed.seqs(),
        head_seq=outcome.head_seq if is_one else UNSET,
        partitions=[
            PartitionWritten(
                partition=each.partition, first_seq=each.first_seq, last_seq=each.last_seq
            )
            for each in placed.spans
        ],
        count=outcome.count,
        created=outcome.created,
        deduped=outcome.deduped,
    )


def _appended(outcome: outcomes.Appended) -> bytes:
    return open_object(appended(outcome))


def _deleted(outcome: outcomes.Deleted) -> bytes:
    until_ms = outcome.log_retained_until_ms
    return open_object(
        RecordsDeleted(
            topic=outcome.topic,
            deleted=outcome.removed,
            earliest_seq=outcome.earliest_seq,
            head_seq=outcome.head_seq,
            count=outcome.count,
            bytes=outcome.size_bytes,
            log_retained_until=UNSET if until_ms is None else until_ms,
        )
    )


def _purged(outcome: outcomes.Purged) -> bytes:
    return open_object(
        Purged(
            topic=outcome.topic,
            success=True,
            purged=outcome.removed,
            earliest_seq=outcome.earliest_seq,
            head_seq=outcome.head_seq,
            count=outcome.count,
            bytes=outcome.size_bytes,
        )
    )


def _append(request: Request) -> Append:
    key, query = request.header(b"idempotency-key"), request.query
    return parse_append(
        require_topic_name(request.name),
        request.body,
        request.limits,
        return_seqs=query_bool(query, "return_seqs", True) if query else True,
        header_key=None if key is None else header_text(key),
        pause=request.pause,
    )


def _diff(request: Request) -> Diff:
    return parse_diff(name_to_read(request), request.body, request.limits)


def _read_page(request: Request) -> ReadPage:
    query = request.query
    partition = query_natural(query, "partition", 0) if "partition" in query else None
    return ReadPage(
        topic=partition_name_of(name_to_read(request), partition, "?partition"),
        from_seq=u64(query_natural(query, "from_seq", 0), "?from_seq"),
        limit=page_limit(query_natural(query, "limit", 0), request.limits),
        budget_bytes=page_budget(query_natural(query, "max_batch_bytes", 0)),
        include_tags=query_bool(query, "include_tags", False),
        include_meta=query_bool(query, "include_meta", True),
        epoch=query.get("epoch"),
        partition=partition,
    )


def _read_latest(request: Request) -> ReadLatest:
    query, limits = request.query, request.limits
    tag = query.get("tag")
    if tag is not None and not query.keys().isdisjoint(("prefix", "cursor")):
        raise invalid("tag excludes prefix and cursor", "?tag")
    match = begins_with(query.get("prefix", "")) if tag is None else equals(tag)
    if tag == "":
        raise invalid("a tag is not empty", "?tag")
    if "cursor" in query:
        match = TagRange(
            max(match.lower, parse_cursor(query["cursor"]).encode() + b"\0"), match.upper
        )
    return ReadLatest(
        topic=name_to_read(request),
        match=match,
        tag=tag,
        limit=1 if tag is not None else page_limit(query_natural(query, "limit", 0), limits),
        budget_bytes=page_budget(query_natural(query, "max_batch_bytes", 0)),
        include_tags=query_bool(query, "include_tags", True),
        include_meta=query_bool(query, "include_meta", True),
    )


def _delete_records(request: Request) -> DeleteRecords:
    return parse_delete(name_to_write(request), request.body, request.limits)


def _purge(request: Request) -> Purge:
    return parse_purge(name_to_write(request), request.body)


ROUTES: Final[tuple[Route, ...]] = (
    route("POST /v0/topics/:", "write", _append, BodyRule.JSON, makes=Append),
    route("POST /v0/topics/:/diff", "read", _diff, ANY_BODY, makes=Diff),
    route("GET /v0/topics/:/records", "read", _read_page, makes=ReadPage),
    route("GET /v0/topics/:/latest", "read", _read_latest, makes=ReadLatest),
    route(
        "POST /v0/topics/:/delete", "delete", _delete_records, BodyRule.JSON, makes=DeleteRecords
    ),
    route("POST /v0/topics/:/purge", "delete", _purge, ANY_BODY, makes=Purge),
)
RENDERINGS: Final[Mapping[type[Outcome], Rendering]] = {
    outcomes.Appended: Rendering(Appended, _appended, may_create=True),
    outcomes.Page: Rendering(Page, _page),
    outcomes.StablePage: Rendering(StablePage, _stable_page),
    outcomes.Latest: Rendering(LatestRecords, _latest),
    outcomes.Deleted: Rendering(RecordsDeleted, _deleted),
    outcomes.Purged: Rendering(Purged, _purged),
}
