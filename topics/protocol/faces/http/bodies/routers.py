"""The body of a router."""

from typing import Final

import msgspec
from msgspec import Raw

from topics.protocol.faces.http.bodies.checks import check_lengths, given, short_value
from topics.protocol.faces.http.bodies.types import RouterBody
from topics.protocol.faces.http.decoding import decode, invalid
from topics.protocol.model.commands import PutRouter
from topics.protocol.model.config import RouterConfig
from topics.protocol.model.limits import Limits
from topics.protocol.model.names import require_topic_name
from topics.protocol.model.records import Buffer
from topics.protocol.model.tags import parse_match

_DEFAULT_LIMITS: Final = Limits()
_ROUTER_DEFAULTS: Final = RouterConfig(source="", dest="")
_ROUTER: Final = msgspec.json.Decoder(RouterBody)


def parse_put_router(router: str, body: Buffer, limits: Limits = _DEFAULT_LIMITS) -> PutRouter:
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
