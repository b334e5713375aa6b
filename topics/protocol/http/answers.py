"""Answers as JSON text, spliced where it is worth it; each lacks its last brace (`Outcome`).

Names of topics need no escaping: their charset has nothing that JSON would escape.
"""

from base64 import urlsafe_b64encode
from typing import Final

import msgspec
import orjson

from topics.protocol.model.commands import Diff
from topics.protocol.model.config import RouterConfig, TopicConfig
from topics.protocol.model.outcomes import Gate, Outcome, Piece, Records
from topics.protocol.state.queue import Queue
from topics.protocol.state.routers import Blocked, Router
from topics.protocol.state.topic import Selection, Tombstone, Topic

PRIORITY_FRESH: Final = 1000
PRIORITY_HALF_LIFE_MS: Final = 60_000


def list_cursor(after: str) -> str:
    """The opaque cursor of a list: where the page ended, by name (§0.7)."""
    return urlsafe_b64encode(orjson.dumps({"after": after})).decode()


def effective_priority(topic: Topic, now_ms: int) -> int:
    """The manual priority; else 1000 for a topic read just now, halved each minute (§0.10)."""
    if topic.config.priority is not None:
        return topic.config.priority
    if not topic.config.auto_priority or topic.last_read_ms is None:
        return 0
    minutes = (now_ms - topic.last_read_ms) / PRIORITY_HALF_LIFE_MS
    return int(PRIORITY_FRESH * 0.5 ** min(minutes, 64))


def summary(topic: Topic, now_ms: int) -> dict[str, object]:
    count, size_bytes = topic.shown()
    return {
        "topic": topic.name,
        "type": topic.config.type,
        "head_seq": topic.published_seq,
        "earliest_seq": topic.earliest_seq,
        "count": count,
        "bytes": size_bytes,
        "durable": topic.config.durable,
        "durability": topic.config.durability,
        "effective_priority": effective_priority(topic, now_ms),
    }


def queue_counters(topic: Topic, queue: Queue) -> dict[str, int]:
    """§10.7; `ready + in_flight + delayed` is the topic's count; `delayed` is left out where it
    is 0, as the contract's own example has it, and so is `damaged`, a part of it."""
    count, _ = topic.shown()
    counters = {
        "ready": count - queue.in_flight - queue.delayed,
        "in_flight": queue.in_flight,
        "dead_lettered": queue.dead_lettered,
    }
    if queue.delayed:
        counters["delayed"] = queue.delayed
    if queue.damaged:
        counters["damaged"] = queue.damaged
    return counters


def open_object(value: object) -> bytes:
    """JSON text of an object, its last brace left out."""
    return orjson.dumps(value, default=_plain)[:-1]


def _plain(value: object) -> object:
    return msgspec.structs.asdict(value)  # type: ignore[arg-type]


def put_outcome(name: str, config: TopicConfig, *, created: bool) -> Outcome:
    """An identical `PUT` waits too: what it repeats may still be on its way to the disk."""
    return Outcome(
        [open_object({"topic": name, "created": created, "config": config})],
        status=201 if created else 200,
        gate=Gate.SYNCED,
        logs=True,
    )


def router_fields(config: RouterConfig) -> dict[str, object]:
    """A router's config as every answer tells it (§6.1)."""
    return msgspec.structs.asdict(config)


def router_state(router: Router, lag: int, now_ms: int) -> dict[str, object]:
    """§6.2, and how far it is, what stops it, what it lost."""
    loss = router.loss
    return {
        "router": router.name,
        **router_fields(router.config),
        "forwarded_total": router.forwarded_total,
        "cursor": router.cursor,
        "lag": lag,
        "blocked": _blocked(router.blocked, now_ms),
        "lost_total": router.lost_total,
        "loss": None
        if loss is None
        else {
            "gap_from": loss.gap_from,
            "gap_to": loss.gap_to,
            "reason": loss.reason,
            "ts": loss.ts_ms,
        },
    }


def _blocked(blocked: Blocked | None, now_ms: int) -> dict[str, object] | None:
    if blocked is None:
        return None
    return {
        "code": blocked.code,
        "message": blocked.message,
        "since": blocked.since_ms,
        "retry_ms": max(blocked.retry_at_ms - now_ms, 0),
    }


def router_summary(router: Router, lag: int, now_ms: int) -> dict[str, object]:
    """§6.3."""
    return {
        "router": router.name,
        "source": router.config.source,
        "dest": router.config.dest,
        "guarantee": router.config.guarantee,
        "forwarded_total": router.forwarded_total,
        "filter": router.config.filter,
        "lag": lag,
        "blocked": _blocked(router.blocked, now_ms),
    }


def append_head(name: str, first_seq: int, count: int, with_seqs: bool) -> bytes:
    last_seq = first_seq + count - 1
    head = b'{"topic":"%b","first_seq":%d,"last_seq":%d,' % (name.encode(), first_seq, last_seq)
    if not with_seqs:
        return head
    return b'%b"seqs":%b,' % (head, orjson.dumps(list(range(first_seq, last_seq + 1))))


def delete_outcome(topic: Topic, what: bytes, gate: Gate) -> Outcome:
    count, size_bytes = topic.shown()
    body = b'{"topic":"%b",%b,"earliest_seq":%d,"head_seq":%d,"count":%d,"bytes":%d' % (
        topic.name.encode(),
        what,
        topic.earliest_seq,
        topic.published_seq,
        count,
        size_bytes,
    )
    return Outcome([body], gate=gate, logs=True, is_fsync=gate is Gate.SYNCED)


def diff_outcome(topic: Topic, page: Selection, command: Diff) -> Outcome:
    head_seq, earliest = topic.published_seq, topic.earliest_seq
    stone = b"null" if page.tombstone is None else _stone(page.tombstone, earliest, head_seq)
    tail = (
        b'],"next_from_seq":%d,"head_seq":%d,"earliest_seq":%d,"caught_up":%b,'
        b'"tombstone":%b,"lag":%d,"epoch":"%b"'
    ) % (
        page.next_seq,
        head_seq,
        earliest,
        b"true" if page.next_seq == head_seq else b"false",
        stone,
        head_seq - page.next_seq,
        topic.epoch.encode(),
    )
    records = Records(page.extents, tags=command.include_tags, meta=command.include_meta)
    head = b'{"topic":"%b","records":[' % topic.name.encode()
    return Outcome([head, records, tail], scanned=page.scanned)


def _stone(stone: Tombstone, earliest_seq: int, head_seq: int) -> bytes:
    return (
        b'{"gap_from":%d,"gap_to":%d,"reason":"%b","missed_estimate":%d,'
        b'"earliest_seq":%d,"head_seq":%d}'
    ) % (
        stone.gap_from,
        stone.gap_to,
        stone.reason.encode(),
        max(stone.gap_to - stone.gap_from + 1, 0),
        earliest_seq,
        head_seq,
    )


LEASE_PREFIX: Final = "lease_"


def lease_insert(lease: int, until_ms: int, deliveries: int) -> bytes:
    """What a claimed job has beside its record (§10.2)."""
    return b',"lease_id":"lease_%x","deadline":%d,"deliveries":%d' % (lease, until_ms, deliveries)


def claim_outcome(
    topic: Topic, jobs: Records | None, count: int, ready: int, gate: Gate
) -> Outcome:
    head = b'{"topic":"%b","claimed":[' % topic.name.encode()
    tail = b'],"count":%d,"ready":%d' % (count, ready)
    pieces: list[Piece] = [head, tail] if jobs is None else [head, jobs, tail]
    return Outcome(pieces, gate=gate, logs=gate is not Gate.NOW)


def held_outcome(
    topic: Topic,
    what: bytes,
    n: int,
    skipped: list[int],
    ready: int,
    in_flight: int,
    gate: Gate,
    deadlines: dict[str, int] | None,
) -> Outcome:
    """The answer to an ack, a nack or an extend (§10.4-§10.6)."""
    body = b'{"topic":"%b","%b":%d,"skipped":%b,"ready":%d,"in_flight":%d' % (
        topic.name.encode(),
        what,
        n,
        orjson.dumps(skipped),
        ready,
        in_flight,
    )
    if deadlines is not None:
        body += b',"deadlines":' + orjson.dumps(deadlines)
    is_logged = gate is not Gate.NOW
    return Outcome([body], gate=gate, logs=is_logged, is_fsync=gate is Gate.SYNCED)
