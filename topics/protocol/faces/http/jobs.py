"""Jobs over HTTP: what may be seen of them, and what an operator does with them (§10.9)."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from topics.protocol.faces.http.checks import DEFAULT_LIMITS, U64_MAX, tag_match
from topics.protocol.faces.http.decoding import decode, invalid
from topics.protocol.faces.http.fields import ABSENT, Natural, TagPattern, TopicName
from topics.protocol.faces.http.query import query_natural
from topics.protocol.faces.http.rendering import Rendering, open_object
from topics.protocol.faces.http.route import (
    ANY_BODY,
    NO_BODY,
    BodyRule,
    Request,
    Route,
    name_to_read,
    name_to_write,
    route,
)
from topics.protocol.model import outcomes
from topics.protocol.model.commands import ChangeJobs, GetJob, ListJobs
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.limits import PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX, WAIT_MS_MAX, Limits
from topics.protocol.model.outcomes import Outcome
from topics.protocol.model.records import Buffer

STATES: Final = ("ready", "delayed", "leased", "done", "dead")


class PromoteBody(msgspec.Struct, forbid_unknown_fields=True):
    """Which jobs are made ready."""

    match: TagPattern = ABSENT
    state: Literal["delayed"] | None = None
    dry_run: bool | None = None


class RetryBody(msgspec.Struct, forbid_unknown_fields=True):
    """Which jobs are tried again."""

    match: TagPattern = ABSENT
    state: Literal["delayed"] | None = None
    dry_run: bool | None = None


class CancelBody(msgspec.Struct, forbid_unknown_fields=True):
    """Which jobs are taken away."""

    match: TagPattern = ABSENT
    state: Literal["ready", "delayed"] | None = None
    dry_run: bool | None = None


class OneBody(msgspec.Struct, forbid_unknown_fields=True):
    """How one job is changed."""

    dry_run: bool | None = None


_ONE: Final = msgspec.json.Decoder(OneBody)
_MANY: Final[Mapping[str, msgspec.json.Decoder[Any]]] = {
    "promote": msgspec.json.Decoder(PromoteBody),
    "retry": msgspec.json.Decoder(RetryBody),
    "cancel": msgspec.json.Decoder(CancelBody),
}


def parse_list(topic: str, query: Mapping[str, str]) -> ListJobs:
    state = query.get("state")
    if state is not None and state not in STATES:
        raise invalid(f"expected one of {', '.join(STATES)}", "?state")
    after = min(query_natural(query, "after", 0), U64_MAX)
    limit = query_natural(query, "limit", PAGE_SIZE_DEFAULT) or PAGE_SIZE_DEFAULT
    return ListJobs(topic, state, query.get("group"), after, min(limit, PAGE_SIZE_MAX))


def parse_get(topic: str, seq: str, query: Mapping[str, str]) -> GetJob:
    wait_ms = min(query_natural(query, "wait_ms", 0), WAIT_MS_MAX)
    return GetJob(topic, seq_of(topic, seq), wait_ms)


def seq_of(topic: str, text: str) -> int:
    """The job's number in a path.  Raises Rejection: 404 where no job can have it."""
    if text.isascii() and text.isdigit() and len(text) <= 20 and 0 < int(text) <= U64_MAX:
        return int(text)
    raise Rejection(
        ErrorCode.JOB_NOT_FOUND, "no job has such a number", {"topic": topic, "seq": text[:64]}
    )


def parse_change(topic: str, action: str, seq: str, body: Buffer) -> ChangeJobs:
    asked = decode(_ONE, body)
    return ChangeJobs(topic, action, seq_of(topic, seq), is_dry=bool(asked.dry_run))


def parse_changes(
    topic: str, action: str, body: Buffer, limits: Limits = DEFAULT_LIMITS
) -> ChangeJobs:
    asked = decode(_MANY[action], body)
    match = tag_match(asked.match, limits)
    if action == "cancel" and match is None and asked.state is None:
        raise invalid("expected match or state", "$")
    return ChangeJobs(topic, action, match=match, state=asked.state, is_dry=bool(asked.dry_run))


# ---------------------------------------------------------------------- answers


class JobReason(msgspec.Struct, kw_only=True):
    """Why a worker gave the job back."""

    time: Annotated[Natural, Meta(description="When, in milliseconds since the epoch.")]
    node: Annotated[str, Meta(description="Which worker.")]
    reason: Annotated[str, Meta(description="In its words.")]


class JobLetter(msgspec.Struct, kw_only=True):
    """Where a dead letter lies."""

    topic: TopicName
    seq: Annotated[Natural, Meta(description="Its number there.")]


class JobItem(msgspec.Struct, kw_only=True):
    """A job as it may be seen (§10.9)."""

    seq: Annotated[Natural, Meta(description="Its number in the queue.")]
    state: Annotated[
        Literal["ready", "delayed", "leased", "done", "dead"],
        Meta(description="Where it is; `done` and `dead` are no longer in the queue."),
    ]
    group: Annotated[str | None, Meta(description="Its group; null without one.")]
    priority: Annotated[int, Meta(description="Higher ones come first.")]
    deliveries: Annotated[Natural, Meta(description="How often it was delivered.")]
    ready_at: Annotated[
        Natural | None, Meta(description="When it may be claimed; null unless `delayed`.")
    ]
    node: Annotated[str | None, Meta(description="Who holds it, or was the last to.")]
    deadline: Annotated[
        Natural | None, Meta(description="Through when the lease holds; null unless `leased`.")
    ]
    progress: Annotated[Raw, Meta(description="What a worker last said it was at, or null.")]
    reasons: Annotated[
        list[JobReason], Meta(description="Why it was given back: the last five, oldest first.")
    ]
    result: Annotated[Raw, Meta(description="What came of it, or null.")]
    dead_letter: Annotated[
        JobLetter | UnsetType, Meta(description="Of a `dead` one, where its letter was put.")
    ] = UNSET
    ended_at: Annotated[
        Natural | UnsetType, Meta(description="Of a `done` or `dead` one, when it ended.")
    ] = UNSET


class JobList(msgspec.Struct, kw_only=True):
    topic: TopicName
    jobs: Annotated[list[JobItem], Meta(description="By number; ended ones as they ended.")]
    next_after: Annotated[
        Natural | None, Meta(description="`after` of the next page; null: this is the last.")
    ]


class JobAnswer(JobItem, kw_only=True):
    """One job."""

    topic: TopicName


class JobsChanged(msgspec.Struct, kw_only=True):
    topic: TopicName
    matched: Annotated[Natural, Meta(description="Jobs that were meant.")]
    done: Annotated[
        Natural,
        Meta(description="Jobs that were changed, or would be; fewer than matched: call again."),
    ]


def _item(view: outcomes.JobView) -> dict[str, Any]:
    letter = view.dead_letter
    return {
        "seq": view.seq,
        "state": view.state,
        "group": view.group,
        "priority": view.priority,
        "deliveries": view.deliveries,
        "ready_at": view.ready_at,
        "node": view.node,
        "deadline": view.deadline,
        "progress": Raw(view.progress or b"null"),
        "reasons": [
            JobReason(time=each.time, node=each.node, reason=each.reason) for each in view.reasons
        ],
        "result": Raw(view.result or b"null"),
        "dead_letter": UNSET if letter is None else JobLetter(topic=letter.topic, seq=letter.seq),
        "ended_at": UNSET if view.ended_at is None else view.ended_at,
    }


def _jobs_listed(outcome: outcomes.JobsListed) -> bytes:
    jobs = [JobItem(**_item(view)) for view in outcome.views]
    return open_object(JobList(topic=outcome.topic, jobs=jobs, next_after=outcome.after))


def _job_shown(outcome: outcomes.JobShown) -> bytes:
    return open_object(JobAnswer(topic=outcome.topic, **_item(outcome.job)))


def _jobs_changed(outcome: outcomes.JobsChanged) -> bytes:
    return open_object(JobsChanged(topic=outcome.topic, matched=outcome.matched, done=outcome.done))


def _list_jobs(request: Request) -> ListJobs:
    return parse_list(name_to_read(request), request.query)


def _get_job(request: Request) -> GetJob:
    return parse_get(name_to_read(request), request.item, request.query)


def _changing(action: str) -> tuple[Any, Any]:
    """The parsers of an action, of one job and of many."""

    def one(request: Request) -> ChangeJobs:
        return parse_change(name_to_write(request), action, request.item, request.body)

    def many(request: Request) -> ChangeJobs:
        return parse_changes(name_to_write(request), action, request.body, request.limits)

    return one, many


_PROMOTE, _PROMOTE_MANY = _changing("promote")
_RETRY, _RETRY_MANY = _changing("retry")
_CANCEL, _CANCEL_MANY = _changing("cancel")
_JOBS: Final = "/v0/topics/:/jobs"

ROUTES: Final[tuple[Route, ...]] = (
    route(f"GET {_JOBS}", "read", _list_jobs, NO_BODY, makes=ListJobs),
    route(f"GET {_JOBS}/:", "read", _get_job, NO_BODY, makes=GetJob),
    route(f"POST {_JOBS}/promote", "write", _PROMOTE_MANY, ANY_BODY, makes=ChangeJobs),
    route(f"POST {_JOBS}/retry", "write", _RETRY_MANY, ANY_BODY, makes=ChangeJobs),
    route(f"POST {_JOBS}/cancel", "delete", _CANCEL_MANY, BodyRule.JSON, makes=ChangeJobs),
    route(f"POST {_JOBS}/:/promote", "write", _PROMOTE, ANY_BODY, makes=ChangeJobs),
    route(f"POST {_JOBS}/:/retry", "write", _RETRY, ANY_BODY, makes=ChangeJobs),
    route(f"POST {_JOBS}/:/cancel", "delete", _CANCEL, ANY_BODY, makes=ChangeJobs),
)
RENDERINGS: Final[Mapping[type[Outcome], Rendering]] = {
    outcomes.JobsListed: Rendering(JobList, _jobs_listed),
    outcomes.JobShown: Rendering(JobAnswer, _job_shown),
    outcomes.JobsChanged: Rendering(JobsChanged, _jobs_changed),
}
