"""Outcomes as HTTP answers: a status, and the JSON of the one model that each outcome has.

`RENDERINGS` is the table from an outcome's type to its model and its renderer.  What a renderer makes
is the text of an object without its last brace, because the performance block follows (§0.9).  It
encodes the model, which is as fast as a `bytes` template of the same fields (0.4 µs for an append);
only a page and a claim are templates, around records that are served as they lie.
`tests/protocol/faces/http/test_answers.py` decodes both with the models.

Names of topics need no escaping: their charset has nothing that JSON would escape.
"""

from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

import msgspec
import orjson
from msgspec import UNSET

from topics.protocol.faces.http import answer_models as models
from topics.protocol.model import outcomes
from topics.protocol.model.outcomes import Outcome
from topics.protocol.model.records import Buffer


class Rendering(msgspec.Struct, frozen=True):
    """One row: what an outcome is on the wire.

    Attributes:
        text: The object's text, its last brace left out; where it has records, what stands before
            them and what behind.
        may_create: Whether it is 201 where the outcome says `created`.
    """

    model: type[msgspec.Struct]
    text: Callable[[Any], bytes | tuple[bytes, bytes]]
    may_create: bool = False


def status_of(outcome: Outcome) -> int:
    row = RENDERINGS[type(outcome)]
    return 201 if row.may_create and outcome.created else 200  # type: ignore[attr-defined]


def text_of(outcome: Outcome, records: Sequence[Buffer] = ()) -> list[Buffer]:
    """The object's text, its last brace left out: the performance block follows.

    Args:
        records: The text of the records that it shows, with their commas.
    """
    text = RENDERINGS[type(outcome)].text(outcome)
    if type(text) is bytes:
        return [text]
    before, behind = text
    return [before, *records, behind]  # type: ignore[list-item]


def list_cursor(after: str) -> str:
    """The opaque cursor of a list: the name that the next page begins behind (§0.7)."""
    return urlsafe_b64encode(orjson.dumps({"after": after})).decode()


# ---------------------------------------------------------------------- templates


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
    stone = models.Tombstone(
        gap_from=gap.gap_from,
        gap_to=gap.gap_to,
        reason=gap.reason,  # type: ignore[arg-type]
        missed_estimate=_missed(gap),
        earliest_seq=earliest_seq,
        head_seq=head_seq,
    )
    return _encode(stone)


def _stable_page(outcome: outcomes.StablePage) -> tuple[bytes, bytes]:
    gap = outcome.gap
    loss = b"null" if gap is None else _encode(_loss(gap))
    tail = b'],"tombstone":%b,"next_from_seq":%d' % (loss, outcome.next_seq)
    return b'{"records":[', tail


def _loss(gap: outcomes.Gap) -> models.Loss:
    return models.Loss(
        gap_from=gap.gap_from,
        gap_to=gap.gap_to,
        reason=gap.reason,  # type: ignore[arg-type]
        missed_estimate=_missed(gap),
    )


def _missed(gap: outcomes.Gap) -> int:
    return max(gap.gap_to - gap.gap_from + 1, 0)


def _granted(outcome: outcomes.Granted) -> tuple[bytes, bytes]:
    count = 0 if outcome.jobs is None else len(outcome.jobs.grant.seqs)
    before = b'{"topic":"%b","claimed":[' % outcome.topic.encode()
    return before, b'],"count":%d,"ready":%d' % (count, outcome.ready)


# ---------------------------------------------------------------------- encoded


_encode: Final = msgspec.json.Encoder().encode


def open_object(model: msgspec.Struct) -> bytes:
    """A model's text, its last brace left out."""
    return _encode(model)[:-1]


def fields_of(model: msgspec.Struct) -> bytes:
    """A model's text, both braces left out."""
    return _encode(model)[1:-1]


def appended(outcome: outcomes.Appended) -> models.Appended:
    """As an append is answered, and a publish over a WebSocket (§2, §7.7)."""
    end_seq = outcome.first_seq + outcome.count
    return models.Appended(
        topic=outcome.topic,
        first_seq=outcome.first_seq,
        last_seq=end_seq - 1,
        seqs=[*range(outcome.first_seq, end_seq)] if outcome.with_seqs else UNSET,
        head_seq=outcome.head_seq,
        count=outcome.count,
        created=outcome.created,
        deduped=outcome.deduped,
    )


def _appended(outcome: outcomes.Appended) -> bytes:
    return open_object(appended(outcome))


def _acked(outcome: outcomes.Acked) -> bytes:
    acked = models.Acked(
        topic=outcome.topic,
        acked=outcome.changed,
        skipped=list(outcome.skipped),
        ready=outcome.ready,
        in_flight=outcome.in_flight,
    )
    return open_object(acked)


def _nacked(outcome: outcomes.Nacked) -> bytes:
    nacked = models.Nacked(
        topic=outcome.topic,
        nacked=outcome.changed,
        skipped=list(outcome.skipped),
        ready=outcome.ready,
        in_flight=outcome.in_flight,
    )
    return open_object(nacked)


def _extended(outcome: outcomes.Extended) -> bytes:
    extended = models.Extended(
        topic=outcome.topic,
        extended=outcome.changed,
        skipped=list(outcome.skipped),
        ready=outcome.ready,
        in_flight=outcome.in_flight,
        deadlines={str(seq): outcome.until_ms for seq in outcome.seqs},
    )
    return open_object(extended)


def _encoded_from(model: msgspec.Struct, *first: str) -> bytes:
    """The model with these fields before those of its base."""
    fields = {name: getattr(model, name) for name in first} | msgspec.structs.asdict(model)
    return _encode(fields)[:-1]


def _topic_put(outcome: outcomes.TopicPut) -> bytes:
    put = models.TopicPut(topic=outcome.topic, created=outcome.created, config=outcome.config)
    return open_object(put)


def _counters(jobs: outcomes.JobCounts | None) -> models.QueueCounters | msgspec.UnsetType:
    """`delayed` is left out where it is 0, as the contract's own example has it, and so is
    `damaged`, a part of it (§10.7)."""
    if jobs is None:
        return UNSET
    return models.QueueCounters(
        ready=jobs.ready,
        in_flight=jobs.in_flight,
        dead_lettered=jobs.dead_lettered,
        delayed=jobs.delayed or UNSET,
        damaged=jobs.damaged or UNSET,
    )


def _topic_shown(outcome: outcomes.TopicShown) -> bytes:
    view = outcome.view
    return open_object(
        models.TopicState(
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
                models.LostLately(
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
        )
    )


def _topic_summary(summary: outcomes.TopicSummary) -> models.TopicSummary:
    figures = summary.figures
    return models.TopicSummary(
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


def _next_cursor(after: str | None) -> str | msgspec.UnsetType:
    return UNSET if after is None else list_cursor(after)


def _topics_listed(outcome: outcomes.TopicsListed) -> bytes:
    topics = [_topic_summary(each) for each in outcome.topics]
    return open_object(models.TopicList(topics=topics, next_cursor=_next_cursor(outcome.after)))


def _topic_dropped(outcome: outcomes.TopicDropped) -> bytes:
    dropped = models.TopicDeleted(
        topic=outcome.topic, deleted=outcome.deleted, routers_removed=list(outcome.routers)
    )
    return open_object(dropped)


def _deleted(outcome: outcomes.Deleted) -> bytes:
    until_ms = outcome.log_retained_until_ms
    return open_object(
        models.RecordsDeleted(
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
        models.Purged(
            topic=outcome.topic,
            success=True,
            purged=outcome.removed,
            earliest_seq=outcome.earliest_seq,
            head_seq=outcome.head_seq,
            count=outcome.count,
            bytes=outcome.size_bytes,
        )
    )


def _router_put(outcome: outcomes.RouterPut) -> bytes:
    config = msgspec.structs.asdict(outcome.config)
    put = models.RouterPut(router=outcome.router, created=outcome.created, **config)
    return _encoded_from(put, "router", "created")


def _blocked(blockage: outcomes.Blockage | None) -> models.Blocked | None:
    if blockage is None:
        return None
    return models.Blocked(
        code=blockage.code,
        message=blockage.message,
        since=blockage.since_ms,
        retry_ms=blockage.retry_ms,
    )


def _router_shown(outcome: outcomes.RouterShown) -> bytes:
    view, loss = outcome.view, outcome.view.loss
    return _encoded_from(
        models.RouterState(
            router=view.name,
            **msgspec.structs.asdict(view.config),
            forwarded_total=view.forwarded_total,
            cursor=view.cursor,
            lag=view.lag,
            blocked=_blocked(view.blockage),
            lost_total=view.lost_total,
            loss=None
            if loss is None
            else models.RouterLoss(
                gap_from=loss.gap_from, gap_to=loss.gap_to, reason=loss.reason, ts=loss.ts_ms
            ),
        ),
        "router",
    )


def _router_summary(view: outcomes.RouterView) -> models.RouterSummary:
    return models.RouterSummary(
        router=view.name,
        source=view.config.source,
        dest=view.config.dest,
        guarantee=view.config.guarantee,
        forwarded_total=view.forwarded_total,
        filter=view.config.filter,
        lag=view.lag,
        blocked=_blocked(view.blockage),
    )


def _routers_listed(outcome: outcomes.RoutersListed) -> bytes:
    routers = [_router_summary(view) for view in outcome.views]
    return open_object(models.RouterList(routers=routers, next_cursor=_next_cursor(outcome.after)))


def _router_dropped(outcome: outcomes.RouterDropped) -> bytes:
    return open_object(models.RouterDeleted(router=outcome.router, deleted=outcome.deleted))


def position(where: outcomes.WatchPosition) -> models.Position:
    """Where a watch begins, as `POST /v0/watch` and `subscribed` say it."""
    return models.Position(
        from_seq=where.from_seq,
        head_seq=where.head_seq,
        earliest_seq=where.earliest_seq,
        epoch=where.epoch,
    )


def _watch_created(outcome: outcomes.WatchCreated) -> bytes:
    return open_object(
        models.Session(
            wid=outcome.wid,
            stream_url=f"/v0/watch/{outcome.wid}",
            session_ttl_ms=outcome.ttl_ms,
            heartbeat_ms=outcome.heartbeat_ms,
            cursor=outcome.cursor,
            # Encoded as they are: the fields are those of the model, in its order, and a session has
            # hundreds.
            topics=cast("dict[str, models.Position]", outcome.positions),
        )
    )


RENDERINGS: Final[Mapping[type[Outcome], Rendering]] = {
    outcomes.TopicPut: Rendering(models.TopicPut, _topic_put, may_create=True),
    outcomes.TopicShown: Rendering(models.TopicState, _topic_shown),
    outcomes.TopicsListed: Rendering(models.TopicList, _topics_listed),
    outcomes.TopicDropped: Rendering(models.TopicDeleted, _topic_dropped),
    outcomes.Appended: Rendering(models.Appended, _appended, may_create=True),
    outcomes.Page: Rendering(models.Page, _page),
    outcomes.StablePage: Rendering(models.StablePage, _stable_page),
    outcomes.Deleted: Rendering(models.RecordsDeleted, _deleted),
    outcomes.Purged: Rendering(models.Purged, _purged),
    outcomes.Granted: Rendering(models.Claimed, _granted),
    outcomes.Acked: Rendering(models.Acked, _acked),
    outcomes.Nacked: Rendering(models.Nacked, _nacked),
    outcomes.Extended: Rendering(models.Extended, _extended),
    outcomes.RouterPut: Rendering(models.RouterPut, _router_put, may_create=True),
    outcomes.RouterShown: Rendering(models.RouterState, _router_shown),
    outcomes.RoutersListed: Rendering(models.RouterList, _routers_listed),
    outcomes.RouterDropped: Rendering(models.RouterDeleted, _router_dropped),
    outcomes.WatchCreated: Rendering(models.Session, _watch_created),
}
"""What each outcome is on the wire."""
