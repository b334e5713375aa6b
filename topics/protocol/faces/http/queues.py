"""The calls of workers over HTTP: what to claim, and which jobs are meant (§10)."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from topics.protocol.faces.http.checks import (
    DEFAULT_LIMITS,
    U64_MAX,
    check_lengths,
    clamp,
    clamped_lease,
    tag_match,
    u64,
)
from topics.protocol.faces.http.decoding import (
    FieldTooLong,
    decode,
    invalid,
    require_depth,
)
from topics.protocol.faces.http.fields import ABSENT, AnyJson, Natural, TagPattern, TopicName
from topics.protocol.faces.http.query import query_natural
from topics.protocol.faces.http.records import TopicRecord
from topics.protocol.faces.http.rendering import Rendering, open_object
from topics.protocol.faces.http.route import (
    BodyRule,
    Request,
    Route,
    StreamKind,
    name_to_write,
    no_such_name,
    route,
)
from topics.protocol.model import outcomes
from topics.protocol.model.commands import Ack, Claim, Extend, Nack, Redrive
from topics.protocol.model.config import LEASE_MS_MAX
from topics.protocol.model.ended_jobs import cut_text
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.limits import (
    BATCH_BYTES_MAX,
    PROGRESS_BYTES_MAX,
    REASON_BYTES_MAX,
    REDRIVEN_MAX,
    WAIT_MS_MAX,
    Limits,
)
from topics.protocol.model.names import is_topic_name, quote, require_topic_name
from topics.protocol.model.outcomes import Outcome
from topics.protocol.model.records import ONE_LINE, Buffer


class ClaimBody(msgspec.Struct):
    node: str
    max: Natural | None = None
    lease_ms: Natural | None = None
    wait_ms: Natural | None = None


class HeldBody(msgspec.Struct):
    """What ack, nack and extend share (§10.4-§10.6)."""

    node: str
    seqs: list[Natural]
    lease_ids: list[str] | None = None


class AckBody(HeldBody, kw_only=True):
    result: AnyJson = ABSENT
    results: dict[str, AnyJson] | None = None


class NackBody(HeldBody, kw_only=True):
    delay_ms: Natural | None = None
    reason: str | None = None
    dead: bool | None = None


class ExtendBody(HeldBody, kw_only=True):
    lease_ms: Natural
    progress: AnyJson = ABSENT


class RedriveBody(msgspec.Struct, forbid_unknown_fields=True):
    """What a redrive moves, and where to (§10.6)."""

    to: str
    match: TagPattern = ABSENT
    seqs: list[Natural] | None = None
    max: Natural | None = None
    dry_run: bool | None = None


_CLAIM: Final = msgspec.json.Decoder(ClaimBody)
_ACK: Final = msgspec.json.Decoder(AckBody)
_NACK: Final = msgspec.json.Decoder(NackBody)
_EXTEND: Final = msgspec.json.Decoder(ExtendBody)
_REDRIVE: Final = msgspec.json.Decoder(RedriveBody)


def parse_claim(topic: str, body: Buffer, limits: Limits) -> Claim:
    asked = decode(_CLAIM, body)
    return Claim(
        topic=topic,
        node=worker(asked.node, limits, "$.node"),
        limit=claim_limit(asked.max, limits),
        lease_ms=None if asked.lease_ms is None else clamped_lease(asked.lease_ms),
        wait_ms=min(asked.wait_ms or 0, WAIT_MS_MAX),
    )


def worker(node: str, limits: Limits, path: str) -> str:
    """The worker's name: not empty, and no longer than a node's."""
    if not node:
        raise invalid("expected the worker's name", path)
    check_lengths([node], limits.max_node_bytes, "node", path)
    return node


def claim_limit(asked: int | None, limits: Limits) -> int:
    return clamp(asked or 1, 1, limits.max_claim or asked or 1)


def parse_ack(topic: str, body: Buffer, limits: Limits) -> Ack:
    asked = _decode_held(_ACK, body, limits)
    seqs, leases = _held(asked, limits)
    node = worker(asked.node, limits, "$.node")
    result = _said(asked.result, limits.max_record_bytes, "$.result")
    if len(result) * len(seqs) > BATCH_BYTES_MAX:
        raise Rejection(
            ErrorCode.BATCH_TOO_LARGE,
            f"{len(result)} bytes for each of {len(seqs)} jobs exceed {BATCH_BYTES_MAX} - at `$.result`",
            {"limit": BATCH_BYTES_MAX},
        )
    if not asked.results:
        return Ack(topic, node, seqs, leases, result)
    return Ack(topic, node, seqs, leases, result, _results(asked.results, seqs, limits))


def _results(
    asked: Mapping[str, msgspec.Raw], seqs: Sequence[int], limits: Limits
) -> tuple[tuple[int, bytes], ...]:
    """What came of each job that is named; `null` is a result."""
    known, found = set(seqs), []
    for name, text in asked.items():
        path = f"$.results[{quote(name)}]"
        if not (name.isascii() and name.isdigit() and len(name) <= 20 and int(name) in known):
            raise invalid("expected one of seqs", path)
        found.append((int(name), _text_of(text, limits.max_record_bytes, path)))
    return tuple(found)


def _said(text: msgspec.Raw, most: int, path: str) -> bytes:
    """JSON that may be absent; empty where it is, or is null."""
    return b"" if not text or bytes(text) == b"null" else _text_of(text, most, path)


def _text_of(text: msgspec.Raw, most: int, path: str) -> bytes:
    """JSON of at most so many bytes, on one line."""
    raw = bytes(text).translate(ONE_LINE)
    if len(raw) > most:
        raise invalid(f"{len(raw)} bytes exceed {most}", path)
    require_depth(raw, path)
    return raw


def parse_nack(topic: str, body: Buffer, limits: Limits) -> Nack:
    asked = _decode_held(_NACK, body, limits)
    seqs, leases = _held(asked, limits)
    delay_ms = None if asked.delay_ms is None else min(asked.delay_ms, LEASE_MS_MAX)
    node = worker(asked.node, limits, "$.node")
    reason = cut_text(asked.reason or "", REASON_BYTES_MAX)
    return Nack(topic, node, seqs, leases, delay_ms, reason, bool(asked.dead))


def parse_extend(topic: str, body: Buffer, limits: Limits) -> Extend:
    asked = _decode_held(_EXTEND, body, limits)
    seqs, leases = _held(asked, limits)
    lease_ms = clamped_lease(asked.lease_ms)
    node = worker(asked.node, limits, "$.node")
    progress = _said(asked.progress, PROGRESS_BYTES_MAX, "$.progress")
    return Extend(topic, node, seqs, leases, lease_ms, progress)


def parse_redrive(topic: str, body: Buffer, limits: Limits = DEFAULT_LIMITS) -> Redrive:
    asked = decode(_REDRIVE, body)
    to = require_topic_name(asked.to, path="$.to")
    if to == topic:
        raise invalid("a topic cannot be redriven to itself", "$.to")
    match, is_dry = tag_match(asked.match, limits), bool(asked.dry_run)
    if asked.seqs is None:
        limit = clamp(asked.max or REDRIVEN_MAX, 1, REDRIVEN_MAX)
        return Redrive(topic, to, match, limit, is_dry)
    if match is not None or asked.max is not None:
        raise invalid("seqs stands alone", "$.seqs")
    if len(asked.seqs) > REDRIVEN_MAX:
        raise invalid(f"{len(asked.seqs)} letters exceed {REDRIVEN_MAX}", "$.seqs")
    seqs = sorted({seq for seq in asked.seqs if seq <= U64_MAX})
    return Redrive(topic, to, None, REDRIVEN_MAX, is_dry, seqs)


H = TypeVar("H", bound=HeldBody)


def _decode_held(decoder: msgspec.json.Decoder[H], body: Buffer, limits: Limits) -> H:
    try:
        return decode(decoder, body)
    except FieldTooLong as refusal:
        if refusal.field == "seqs" and limits.max_claim:
            raise _too_many_seqs(limits) from None
        raise


def _too_many_seqs(limits: Limits) -> Rejection:
    return Rejection(
        ErrorCode.BATCH_TOO_LARGE,
        f"more than {limits.max_claim} seqs - at `$.seqs`",
        {"limit": limits.max_claim},
    )


def _held(asked: HeldBody, limits: Limits) -> tuple[list[int], list[int] | None]:
    """The seqs, and the number of each one's lease where tokens were given."""
    seqs, tokens = asked.seqs, asked.lease_ids
    if limits.max_claim and len(seqs) > limits.max_claim:
        raise _too_many_seqs(limits)
    u64(max(seqs, default=0), "$.seqs")
    if tokens is None:
        return seqs, None
    if len(tokens) != len(seqs):
        raise invalid(f"{len(tokens)} lease_ids for {len(seqs)} seqs", "$.lease_ids")
    return seqs, [_lease_number(token) for token in tokens]


_LEASE_ID: Final = re.compile(r"lease_([1-9a-f][0-9a-f]{0,23})")


def _lease_number(token: str) -> int:
    """The number in a lease's token; 0, which no lease has, where the token is not the server's."""
    found = _LEASE_ID.fullmatch(token)
    return int(found[1], 16) if found else 0


LeaseId = Annotated[str, Meta(description="The lease's token; never given twice.")]
Deadline = Annotated[Natural, Meta(description="Through when the lease holds.")]
Deliveries = Annotated[int, Meta(ge=1, description="How often it was delivered, now included.")]


class Job(TopicRecord, kw_only=True):
    """A leased record (§10.2)."""

    lease_id: LeaseId
    deadline: Deadline
    deliveries: Deliveries
    priority: Annotated[int | UnsetType, Meta(description="Where it is not 0.")] = UNSET
    group: Annotated[str | UnsetType, Meta(description="Where the job was given one.")] = UNSET


class Claimed(msgspec.Struct, kw_only=True):
    topic: TopicName
    claimed: Annotated[
        list[Job],
        Meta(description="Lowest number first; most urgent first where jobs have options."),
    ]
    count: Annotated[Natural, Meta(description="Jobs in this answer.")]
    ready: Annotated[Natural, Meta(description="Jobs that may still be claimed.")]
    waits: Annotated[
        Literal["rate", "in_flight", "group"] | UnsetType,
        Meta(description="What keeps this claim from jobs that are ready."),
    ] = UNSET


Skipped = Annotated[list[Natural], Meta(description="Numbers that `node` does not hold.")]
ReadyJobs = Annotated[Natural, Meta(description="Jobs that may be claimed.")]
InFlight = Annotated[Natural, Meta(description="Jobs under a lease.")]


class Acked(msgspec.Struct, kw_only=True):
    topic: TopicName
    acked: Annotated[Natural, Meta(description="Jobs that are done, and deleted.")]
    skipped: Skipped
    ready: ReadyJobs
    in_flight: InFlight


class Nacked(msgspec.Struct, kw_only=True):
    topic: TopicName
    nacked: Annotated[Natural, Meta(description="Jobs that were given back.")]
    skipped: Skipped
    ready: ReadyJobs
    in_flight: InFlight


class Extended(msgspec.Struct, kw_only=True):
    topic: TopicName
    extended: Annotated[Natural, Meta(description="Leases that last longer.")]
    skipped: Skipped
    ready: ReadyJobs
    in_flight: InFlight
    deadlines: Annotated[dict[str, Natural], Meta(description="By number, when each ends.")]


class JobEvent(Job, kw_only=True):
    """One leased job (§10.8)."""

    topic: TopicName


def _granted(outcome: outcomes.Granted) -> tuple[bytes, bytes]:
    count = 0 if outcome.jobs is None else len(outcome.jobs.grant.seqs)
    before = b'{"topic":"%b","claimed":[' % outcome.topic.encode()
    end = b'],"count":%d,"ready":%d' % (count, outcome.ready)
    return before, end + b',"waits":"%b"' % outcome.waits.encode() if outcome.waits else end


def _acked(outcome: outcomes.Acked) -> bytes:
    acked = Acked(
        topic=outcome.topic,
        acked=outcome.changed,
        skipped=list(outcome.skipped),
        ready=outcome.ready,
        in_flight=outcome.in_flight,
    )
    return open_object(acked)


def _nacked(outcome: outcomes.Nacked) -> bytes:
    nacked = Nacked(
        topic=outcome.topic,
        nacked=outcome.changed,
        skipped=list(outcome.skipped),
        ready=outcome.ready,
        in_flight=outcome.in_flight,
    )
    return open_object(nacked)


def _extended(outcome: outcomes.Extended) -> bytes:
    extended = Extended(
        topic=outcome.topic,
        extended=outcome.changed,
        skipped=list(outcome.skipped),
        ready=outcome.ready,
        in_flight=outcome.in_flight,
        deadlines={str(seq): outcome.until_ms for seq in outcome.seqs},
    )
    return open_object(extended)


class Redriven(msgspec.Struct, kw_only=True):
    topic: TopicName
    to: Annotated[str, Meta(description="The queue.")]
    moved: Annotated[Natural, Meta(description="Letters that went back, or would.")]
    more: Annotated[bool, Meta(description="Whether others match: call again.")]


def _redriven(outcome: outcomes.Redriven) -> bytes:
    redriven = Redriven(topic=outcome.topic, to=outcome.to, moved=outcome.moved, more=outcome.more)
    return open_object(redriven)


def _redrive(request: Request) -> Redrive:
    return parse_redrive(name_to_write(request), request.body, request.limits)


def _claim(request: Request) -> Claim:
    return parse_claim(name_to_write(request), request.body, request.limits)


def _ack(request: Request) -> Ack:
    return parse_ack(name_to_write(request), request.body, request.limits)


def _nack(request: Request) -> Nack:
    return parse_nack(name_to_write(request), request.body, request.limits)


def _extend(request: Request) -> Extend:
    return parse_extend(name_to_write(request), request.body, request.limits)


def parse_work(name: str, query: Mapping[str, str], limits: Limits) -> Claim:
    """What a push stream asks for (§10.8): who claims, how many at once, for how long."""
    if not is_topic_name(name):
        raise no_such_name(name)
    if "node" not in query:
        raise invalid("expected the worker's name", "?node")
    node = worker(query["node"], limits, "?node")
    limit = claim_limit(query_natural(query, "max", 1), limits)
    lease_ms = None
    if "lease_ms" in query:
        lease_ms = clamped_lease(query_natural(query, "lease_ms", 0))
    return Claim(name, node, limit, lease_ms, 0)


ROUTES: Final[tuple[Route, ...]] = (
    route("POST /v0/topics/:/claim", "read+write", _claim, BodyRule.JSON, makes=Claim),
    route("POST /v0/topics/:/ack", "write", _ack, BodyRule.JSON, makes=Ack),
    route("POST /v0/topics/:/nack", "write", _nack, BodyRule.JSON, makes=Nack),
    route("POST /v0/topics/:/extend", "write", _extend, BodyRule.JSON, makes=Extend),
    route(
        "POST /v0/topics/:/redrive",
        "read+write+delete",
        _redrive,
        BodyRule.JSON,
        makes=Redrive,
    ),
    route("GET /v0/topics/:/work", "read+write", StreamKind.WORK, makes=Claim),
)
RENDERINGS: Final[Mapping[type[Outcome], Rendering]] = {
    outcomes.Granted: Rendering(Claimed, _granted),
    outcomes.Acked: Rendering(Acked, _acked),
    outcomes.Nacked: Rendering(Nacked, _nacked),
    outcomes.Extended: Rendering(Extended, _extended),
    outcomes.Redriven: Rendering(Redriven, _redriven),
}
