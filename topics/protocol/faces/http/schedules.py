"""Schedules over HTTP: routes, bodies, answers (§14)."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from topics.nesting import deep
from topics.protocol.faces.http.append_body import OPTIONS, AppendBody, RecordBody, append_of
from topics.protocol.faces.http.checks import DEFAULT_LIMITS, TS_MAX
from topics.protocol.faces.http.decoding import decode, invalid
from topics.protocol.faces.http.fields import (
    Data,
    HeadersOf,
    MetaData,
    Natural,
    NextCursor,
    Seq,
    TopicName,
    Ts,
)
from topics.protocol.faces.http.job_options import UniqueBody
from topics.protocol.faces.http.marked import Form
from topics.protocol.faces.http.query import next_cursor, page_of_list
from topics.protocol.faces.http.rendering import Rendering, encode, open_object
from topics.protocol.faces.http.route import BodyRule, Request, Route, route
from topics.protocol.faces.http.routers import Blocked, blocked_of
from topics.protocol.faces.http.topics import ConfigBody, resolve_config
from topics.protocol.model import outcomes
from topics.protocol.model.commands import (
    Append,
    DeleteSchedule,
    GetSchedule,
    ListSchedules,
    PauseSchedule,
    PutSchedule,
    ResumeSchedule,
    RunSchedule,
)
from topics.protocol.model.config import TopicConfig
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.limits import Limits
from topics.protocol.model.names import is_schedule_name, require_schedule_name, require_topic_name
from topics.protocol.model.outcomes import Outcome
from topics.protocol.model.records import Buffer
from topics.protocol.model.schedules import (
    CRON_CHARS_MAX,
    EVERY_MS_MAX,
    EVERY_MS_MIN,
    UTC,
    ZONE_CHARS_MAX,
    Missed,
    Run,
    ScheduleConfig,
    ScheduledRecord,
)

ADDED: Final = ("$schedule", "$schedule_at")
"""What a tick adds to `meta`."""


class ScheduleBody(msgspec.Struct):
    topic: str
    record: RecordBody
    cron: str | None = None
    every_ms: Natural | None = None
    at: Natural | None = None
    tz: str | None = None
    missed: Missed | None = None
    until: Natural | None = None
    paused: bool | None = None
    config: ConfigBody | None = None


_BODY: Final = msgspec.json.Decoder(ScheduleBody)
_META: Final = deep(msgspec.json.Decoder(dict[str, Raw]).decode)
_HEAD: Final = deep(msgspec.json.Decoder(dict[str, Any]).decode)


def parse_put_schedule(schedule: str, body: Buffer, limits: Limits = DEFAULT_LIMITS) -> PutSchedule:
    """What a body asks for.  Raises Rejection: 400."""
    asked = decode(_BODY, body)
    topic = require_topic_name(asked.topic, path="$.topic")
    _require_one_time(asked)
    _require_bounds(asked)
    config = ScheduleConfig(
        topic=topic,
        record=_record(topic, asked.record, limits),
        config=None if asked.config is None else resolve_config(asked.config, topic, "$.config"),
        cron=asked.cron,
        every_ms=asked.every_ms,
        at=asked.at,
        tz=_zone_of(asked),
        missed=asked.missed or "one",
        until=asked.until,
    )
    return PutSchedule(schedule, config, bool(asked.paused))


def _require_one_time(asked: ScheduleBody) -> None:
    times = asked.cron, asked.every_ms, asked.at
    if len(times) - times.count(None) != 1:
        raise invalid("expected one of cron, every_ms and at", "$")
    if asked.tz is not None and asked.cron is None:
        raise invalid("tz is the time zone of cron", "$.tz")


def _zone_of(asked: ScheduleBody) -> str | None:
    if asked.cron is None:
        return None
    return UTC if asked.tz is None else asked.tz


def _require_bounds(asked: ScheduleBody) -> None:
    if asked.cron is not None and len(asked.cron) > CRON_CHARS_MAX:
        raise invalid(f"{len(asked.cron)} characters exceed {CRON_CHARS_MAX}", "$.cron")
    if asked.tz is not None and len(asked.tz) > ZONE_CHARS_MAX:
        raise invalid(f"{len(asked.tz)} characters exceed {ZONE_CHARS_MAX}", "$.tz")
    if asked.every_ms is not None and not EVERY_MS_MIN <= asked.every_ms <= EVERY_MS_MAX:
        raise invalid(f"every_ms is {EVERY_MS_MIN} to {EVERY_MS_MAX}", "$.every_ms")
    for name in ("at", "until"):
        value = getattr(asked, name)
        if value is not None and value > TS_MAX:
            raise invalid("a time has at most 63 bits", f"$.{name}")


def _record(topic: str, asked: RecordBody, limits: Limits) -> ScheduledRecord:
    """The record, as an append of it would be read."""
    try:
        append = append_of(topic, AppendBody([asked]), limits, return_seqs=False, header_key=None)
    except Rejection as refusal:
        message = refusal.message.replace("$.records[0]", "$.record")
        raise Rejection(refusal.code, message, refusal.detail) from None
    record = _only(append, asked)
    for name in () if record.meta is None else _META(record.meta):
        if name in ADDED:
            raise invalid(f"`{name}` is added by each tick", "$.record.meta")
    return record


def _only(append: Append, asked: RecordBody) -> ScheduledRecord:
    """The one record of an append."""
    meta = None if append.metas is None else append.metas[0]
    nodes = append.nodes
    return ScheduledRecord(
        data=bytes(append.datas[0]),
        node=nodes if nodes is None or isinstance(nodes, str) else nodes[0],
        tag=None if append.tags is None else append.tags[0],
        meta=None if meta is None else bytes(meta),
        mark=None if append.marks is None else append.marks[0],
        partition=None if append.partitions is None else append.partitions[0],
        job=None if append.jobs is None else append.jobs[0],
        options=b"" if append.jobs is None else _options(asked),
    )


def _options(asked: RecordBody) -> bytes:
    """What was asked of a job, in the client's words."""
    given = {name: getattr(asked, name) for name in OPTIONS}
    if isinstance(asked.unique, UniqueBody):
        given["unique"] = _given(msgspec.structs.asdict(asked.unique))
    return encode(_given(given))


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


# ---------------------------------------------------------------------- answers


ScheduleName = Annotated[str, Meta(description="The schedule's name.")]
Cron = Annotated[str | None, Meta(description="The cron expression, or `null`.")]
EveryMs = Annotated[Natural | None, Meta(description="Milliseconds between two ticks, or `null`.")]
At = Annotated[Natural | None, Meta(description="When its one tick is, or `null`.")]
Zone = Annotated[str | None, Meta(description="The time zone of `cron`.")]
MissedTicks = Annotated[Missed, Meta(description="Which of the ticks that were missed happen.")]
Until = Annotated[Natural | None, Meta(description="No tick is then or later.")]
Paused = Annotated[bool, Meta(description="Whether it has no ticks for now.")]
NextAt = Annotated[
    Natural | None,
    Meta(description="The next tick, milliseconds since the epoch; `null` where there is none."),
]


class LastRun(msgspec.Struct, kw_only=True):
    """The last record that a schedule appended."""

    at: Annotated[Natural, Meta(description="Its tick, as `$schedule_at` says.")]
    ts: Ts
    topic: TopicName
    partition: Annotated[Natural, Meta(description="The partition that has it.")]
    seq: Seq


Last = Annotated[LastRun | None, Meta(description="The last record, or `null`.")]
Fired = Annotated[Natural, Meta(description="Ticks and runs that happened, ever.")]
MissedTotal = Annotated[Natural, Meta(description="Ticks that did not happen, ever.")]
BlockedBy = Annotated[Blocked | None, Meta(description="What stops it, or `null`.")]


class RecordToAppend(msgspec.Struct, kw_only=True):
    """The record that each tick appends, with the fields of an append (§2)."""

    data: Data
    tag: Annotated[str | UnsetType, Meta(description="Its tag.")] = UNSET
    node: Annotated[str | UnsetType, Meta(description="Who writes it.")] = UNSET
    meta: MetaData = UNSET
    form: Annotated[Form | UnsetType, Meta(description="What `data` stand for.")] = UNSET
    key: Annotated[str | UnsetType, Meta(description="Its key in base64.")] = UNSET
    time: Annotated[int | UnsetType, Meta(description="The time of its producer.")] = UNSET
    headers: HeadersOf = UNSET
    partition: Annotated[Natural | UnsetType, Meta(description="Where it goes.")] = UNSET
    delay_ms: Annotated[Natural | UnsetType, Meta(description="Of a job: from the tick on.")] = (
        UNSET
    )
    not_before: Annotated[Natural | UnsetType, Meta(description="Of a job.")] = UNSET
    priority: Annotated[int | UnsetType, Meta(description="Of a job.")] = UNSET
    expires_ms: Annotated[Natural | UnsetType, Meta(description="Of a job.")] = UNSET
    group: Annotated[str | UnsetType, Meta(description="Of a job.")] = UNSET
    unique: Annotated[str | UniqueBody | UnsetType, Meta(description="Of a job.")] = UNSET


class ScheduleState(msgspec.Struct, kw_only=True):
    schedule: ScheduleName
    topic: TopicName
    record: Annotated[RecordToAppend, Meta(description="What each tick appends.")]
    config: Annotated[
        TopicConfig | None, Meta(description="Of the topic, where a tick makes it; or `null`.")
    ]
    cron: Cron
    every_ms: EveryMs
    at: At
    tz: Zone
    missed: MissedTicks
    until: Until
    paused: Paused
    created_at: Annotated[Natural, Meta(description="When the schedule was made.")]
    next_at: NextAt
    last_run: Last
    fired_total: Fired
    missed_total: MissedTotal
    blocked: BlockedBy


class SchedulePut(ScheduleState, kw_only=True):
    created: Annotated[bool, Meta(description="Whether this made it.")]


class ScheduleSummary(msgspec.Struct, kw_only=True):
    schedule: ScheduleName
    topic: TopicName
    cron: Cron
    every_ms: EveryMs
    at: At
    tz: Zone
    missed: MissedTicks
    until: Until
    paused: Paused
    next_at: NextAt
    last_run: Last
    fired_total: Fired
    missed_total: MissedTotal
    blocked: BlockedBy


class ScheduleList(msgspec.Struct, kw_only=True):
    schedules: Annotated[list[ScheduleSummary], Meta(description="By name.")]
    next_cursor: NextCursor = UNSET


class SchedulePaused(msgspec.Struct, kw_only=True):
    schedule: ScheduleName
    paused: Paused
    changed: Annotated[bool, Meta(description="Whether it was otherwise before.")]
    next_at: NextAt


class ScheduleRun(LastRun, kw_only=True):
    schedule: ScheduleName


class ScheduleDeleted(msgspec.Struct, kw_only=True):
    schedule: ScheduleName
    deleted: Annotated[bool, Meta(description="Whether there was one.")]


def _run_of(run: Run | None) -> LastRun | None:
    if run is None:
        return None
    return LastRun(
        at=run.at_ms, ts=run.ts_ms, topic=run.topic, partition=run.partition, seq=run.seq
    )


def _summary(view: outcomes.ScheduleView) -> ScheduleSummary:
    config = view.config
    return ScheduleSummary(
        schedule=view.name,
        topic=config.topic,
        cron=config.cron,
        every_ms=config.every_ms,
        at=config.at,
        tz=config.tz,
        missed=config.missed,
        until=config.until,
        paused=view.paused,
        next_at=view.next_ms,
        last_run=_run_of(view.run),
        fired_total=view.fired_total,
        missed_total=view.missed_total,
        blocked=blocked_of(view.blockage),
    )


def _shown_record(record: ScheduledRecord) -> RecordToAppend:
    marks = {} if record.mark is None else _HEAD(b"{" + record.mark.head[1:] + b"}")
    return RecordToAppend(
        data=Raw(record.data),
        tag=UNSET if record.tag is None else record.tag,
        node=UNSET if record.node is None else record.node,
        meta=UNSET if record.meta is None else Raw(record.meta),  # type: ignore[arg-type]
        partition=UNSET if record.partition is None else record.partition,
        **{name.removeprefix("$"): value for name, value in marks.items()},
        **(_HEAD(record.options) if record.options else {}),
    )


def _state(view: outcomes.ScheduleView) -> dict[str, Any]:
    fields = msgspec.structs.asdict(_summary(view))
    return fields | {
        "record": _shown_record(view.config.record),
        "config": view.config.config,
        "created_at": view.made_ms,
    }


def _schedule_put(outcome: outcomes.SchedulePut) -> bytes:
    return open_object(SchedulePut(created=outcome.created, **_state(outcome.view)))


def _schedule_shown(outcome: outcomes.ScheduleShown) -> bytes:
    return open_object(ScheduleState(**_state(outcome.view)))


def _schedules_listed(outcome: outcomes.SchedulesListed) -> bytes:
    schedules = [_summary(view) for view in outcome.views]
    return open_object(ScheduleList(schedules=schedules, next_cursor=next_cursor(outcome.after)))


def _schedule_paused(outcome: outcomes.SchedulePaused) -> bytes:
    return open_object(
        SchedulePaused(
            schedule=outcome.schedule,
            paused=outcome.paused,
            changed=outcome.changed,
            next_at=outcome.next_ms,
        )
    )


def _schedule_run(outcome: outcomes.ScheduleRun) -> bytes:
    run = _run_of(outcome.run)
    assert run is not None
    return open_object(ScheduleRun(schedule=outcome.schedule, **msgspec.structs.asdict(run)))


def _schedule_dropped(outcome: outcomes.ScheduleDropped) -> bytes:
    return open_object(ScheduleDeleted(schedule=outcome.schedule, deleted=outcome.deleted))


# ---------------------------------------------------------------------- routes


def _put(request: Request) -> PutSchedule:
    return parse_put_schedule(require_schedule_name(request.name), request.body, request.limits)


def _known_name(request: Request) -> str:
    if not is_schedule_name(request.name):
        raise Rejection(
            ErrorCode.SCHEDULE_NOT_FOUND,
            "no schedule has such a name",
            {"schedule": request.name[:256]},
        )
    return request.name


def _get(request: Request) -> GetSchedule:
    return GetSchedule(_known_name(request))


def _list(request: Request) -> ListSchedules:
    return ListSchedules(*page_of_list(request.query), request.query.get("topic"))


def _delete(request: Request) -> DeleteSchedule:
    return DeleteSchedule(require_schedule_name(request.name))


def _run(request: Request) -> RunSchedule:
    return RunSchedule(_known_name(request))


def _pause(request: Request) -> PauseSchedule:
    return PauseSchedule(_known_name(request))


def _resume(request: Request) -> ResumeSchedule:
    return ResumeSchedule(_known_name(request))


ROUTES: Final[tuple[Route, ...]] = (
    route("GET /v0/schedules", "admin", _list, makes=ListSchedules),
    route("PUT /v0/schedules/:", "admin", _put, BodyRule.JSON, makes=PutSchedule),
    route("GET /v0/schedules/:", "admin", _get, makes=GetSchedule),
    route("DELETE /v0/schedules/:", "admin", _delete, makes=DeleteSchedule),
    route("POST /v0/schedules/:/run", "admin", _run, makes=RunSchedule),
    route("POST /v0/schedules/:/pause", "admin", _pause, makes=PauseSchedule),
    route("POST /v0/schedules/:/resume", "admin", _resume, makes=ResumeSchedule),
)
RENDERINGS: Final[Mapping[type[Outcome], Rendering]] = {
    outcomes.SchedulePut: Rendering(SchedulePut, _schedule_put, may_create=True),
    outcomes.ScheduleShown: Rendering(ScheduleState, _schedule_shown),
    outcomes.SchedulesListed: Rendering(ScheduleList, _schedules_listed),
    outcomes.SchedulePaused: Rendering(SchedulePaused, _schedule_paused),
    outcomes.ScheduleRun: Rendering(ScheduleRun, _schedule_run),
    outcomes.ScheduleDropped: Rendering(ScheduleDeleted, _schedule_dropped),
}
