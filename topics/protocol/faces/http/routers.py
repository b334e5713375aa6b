"""Routers over HTTP (§6)."""

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, Raw

from topics.protocol.faces.http.checks import DEFAULT_LIMITS, check_lengths, given, short_value
from topics.protocol.faces.http.decoding import decode, invalid
from topics.protocol.faces.http.errors import Code
from topics.protocol.faces.http.fields import ABSENT, Natural, NextCursor, TagPattern
from topics.protocol.faces.http.query import next_cursor, page_of_list
from topics.protocol.faces.http.records import GapFrom, GapTo
from topics.protocol.faces.http.rendering import Rendering, encoded_from, open_object
from topics.protocol.faces.http.route import (
    BodyRule,
    Request,
    Route,
    route,
)
from topics.protocol.model import outcomes
from topics.protocol.model.commands import DeleteRouter, GetRouter, ListRouters, PutRouter
from topics.protocol.model.config import Guarantee, RouterConfig
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.limits import Limits
from topics.protocol.model.names import is_router_name, require_router_name, require_topic_name
from topics.protocol.model.outcomes import Outcome
from topics.protocol.model.records import Buffer
from topics.protocol.model.tags import parse_match


class RouterBody(msgspec.Struct):
    source: str
    dest: str
    preserve_node: bool | None = None
    preserve_tag: bool | None = None
    create_dest: bool | None = None
    filter: TagPattern = ABSENT
    allow_cycle: bool | None = None
    guarantee: Guarantee | None = None


_ROUTER_DEFAULTS: Final = RouterConfig(source="", dest="")
_ROUTER: Final = msgspec.json.Decoder(RouterBody)


def parse_put_router(router: str, body: Buffer, limits: Limits = DEFAULT_LIMITS) -> PutRouter:
    asked, default = decode(_ROUTER, body), _ROUTER_DEFAULTS
    require_topic_name(asked.source, path="$.source")
    require_topic_name(asked.dest, path="$.dest")
    if asked.source == asked.dest:
        raise invalid("dest is the source itself", "$.dest")
    config = RouterConfig(
        source=asked.source,
        dest=asked.dest,
        preserve_node=given(asked.preserve_node, default.preserve_node),
        preserve_tag=given(asked.preserve_tag, default.preserve_tag),
        filter=_filter(asked.filter, limits),
        allow_cycle=given(asked.allow_cycle, default.allow_cycle),
        guarantee=asked.guarantee or default.guarantee,
    )
    return PutRouter(router, config, given(asked.create_dest, True))


def _filter(text: Raw, limits: Limits) -> tuple[str, str, str] | None:
    """A router's `filter`, as a tuple, whichever form it came in; no longer than what a tag can
    match, since it is kept, logged and listed."""
    value = short_value(text, limits, "$.filter")
    if value is None:
        return None
    parse_match(value, "$.filter")
    if isinstance(value, str):
        value = "tag", "Glob" if value.endswith("*") else "Eq", value
    field, op, tag = value
    limit = limits.max_tag_bytes + (op == "Glob")
    check_lengths([tag], limit, "filter", "$.filter")
    return field, op, tag


RouterName = Annotated[str, Meta(description="The router's name.")]
Forwarded = Annotated[Natural, Meta(description="Copies made, ever.")]
Lag = Annotated[Natural, Meta(description="Numbers of the source that are not done with.")]


class Blocked(msgspec.Struct, kw_only=True):
    """The refusal that stops a router (§6.2)."""

    code: Code
    message: Annotated[str, Meta(description="For people; may change.")]
    since: Annotated[Natural, Meta(description="When it began.")]
    retry_ms: Annotated[Natural, Meta(description="In how many milliseconds it tries again.")]


class RouterLoss(msgspec.Struct, kw_only=True):
    """Numbers of the source that were lost before they were copied (§6.2)."""

    gap_from: GapFrom
    gap_to: GapTo
    reason: Annotated[str, Meta(description="As of a tombstone.")]
    ts: Annotated[Natural, Meta(description="When it was met.")]


BlockedBy = Annotated[Blocked | None, Meta(description="What stops it, or `null`.")]


class RouterPut(RouterConfig, frozen=True, kw_only=True):
    router: RouterName
    created: Annotated[bool, Meta(description="Whether this made it.")]


class RouterState(RouterConfig, frozen=True, kw_only=True):
    router: RouterName
    forwarded_total: Forwarded
    cursor: Annotated[Natural, Meta(description="The source's last number that is done with.")]
    lag: Lag
    blocked: BlockedBy
    lost_total: Annotated[Natural, Meta(description="Numbers lost before they were copied.")]
    loss: Annotated[RouterLoss | None, Meta(description="The last such gap, or `null`.")]


class RouterSummary(msgspec.Struct, kw_only=True):
    router: RouterName
    source: Annotated[str, Meta(description="The topic that is copied.")]
    dest: Annotated[str, Meta(description="Where its records go.")]
    guarantee: Annotated[Guarantee, Meta(description="What a copy says of where it is from.")]
    forwarded_total: Forwarded
    filter: Annotated[tuple[str, str, str] | None, Meta(description="Which tags are copied.")]
    lag: Lag
    blocked: BlockedBy


class RouterList(msgspec.Struct, kw_only=True):
    routers: Annotated[list[RouterSummary], Meta(description="By name.")]
    next_cursor: NextCursor = UNSET


class RouterDeleted(msgspec.Struct, kw_only=True):
    router: RouterName
    deleted: Annotated[bool, Meta(description="Whether there was one.")]


def _router_put(outcome: outcomes.RouterPut) -> bytes:
    config = msgspec.structs.asdict(outcome.config)
    put = RouterPut(router=outcome.router, created=outcome.created, **config)
    return encoded_from(put, "router", "created")


def blocked_of(blockage: outcomes.Blockage | None) -> Blocked | None:
    if blockage is None:
        return None
    return Blocked(
        code=blockage.code,
        message=blockage.message,
        since=blockage.since_ms,
        retry_ms=blockage.retry_ms,
    )


def _router_shown(outcome: outcomes.RouterShown) -> bytes:
    view, loss = outcome.view, outcome.view.loss
    return encoded_from(
        RouterState(
            router=view.name,
            **msgspec.structs.asdict(view.config),
            forwarded_total=view.forwarded_total,
            cursor=view.cursor,
            lag=view.lag,
            blocked=blocked_of(view.blockage),
            lost_total=view.lost_total,
            loss=None
            if loss is None
            else RouterLoss(
                gap_from=loss.gap_from, gap_to=loss.gap_to, reason=loss.reason, ts=loss.ts_ms
            ),
        ),
        "router",
    )


def _router_summary(view: outcomes.RouterView) -> RouterSummary:
    return RouterSummary(
        router=view.name,
        source=view.config.source,
        dest=view.config.dest,
        guarantee=view.config.guarantee,
        forwarded_total=view.forwarded_total,
        filter=view.config.filter,
        lag=view.lag,
        blocked=blocked_of(view.blockage),
    )


def _routers_listed(outcome: outcomes.RoutersListed) -> bytes:
    routers = [_router_summary(view) for view in outcome.views]
    return open_object(RouterList(routers=routers, next_cursor=next_cursor(outcome.after)))


def _router_dropped(outcome: outcomes.RouterDropped) -> bytes:
    return open_object(RouterDeleted(router=outcome.router, deleted=outcome.deleted))


def _put_router(request: Request) -> PutRouter:
    return parse_put_router(require_router_name(request.name), request.body, request.limits)


def _get_router(request: Request) -> GetRouter:
    if not is_router_name(request.name):
        raise Rejection(
            ErrorCode.ROUTER_NOT_FOUND, "no router has such a name", {"router": request.name[:256]}
        )
    return GetRouter(request.name)


def _list_routers(request: Request) -> ListRouters:
    query = request.query
    return ListRouters(*page_of_list(query), query.get("source"), query.get("dest"))


def _delete_router(request: Request) -> DeleteRouter:
    return DeleteRouter(require_router_name(request.name))


ROUTES: Final[tuple[Route, ...]] = (
    route("GET /v0/routers", "read", _list_routers, makes=ListRouters),
    route("PUT /v0/routers/:", "admin", _put_router, BodyRule.JSON, makes=PutRouter),
    route("GET /v0/routers/:", "read", _get_router, makes=GetRouter),
    route("DELETE /v0/routers/:", "delete", _delete_router, makes=DeleteRouter),
)
RENDERINGS: Final[Mapping[type[Outcome], Rendering]] = {
    outcomes.RouterPut: Rendering(RouterPut, _router_put, may_create=True),
    outcomes.RouterShown: Rendering(RouterState, _router_shown),
    outcomes.RoutersListed: Rendering(RouterList, _routers_listed),
    outcomes.RouterDropped: Rendering(RouterDeleted, _router_dropped),
}
