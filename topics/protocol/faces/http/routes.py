"""The route table.

`ROUTES` is the one table from which routing, 404, 405 and `Allow` follow.  A path segment is
matched before its percent-escapes are decoded, so that `%2F` is a character of a bad name and
never a separator.
"""

from typing import Final

from topics.protocol.faces.http import (
    clients,
    cluster,
    groups,
    jobs,
    queues,
    records,
    routers,
    schedules,
    server,
    topics,
    watch,
)
from topics.protocol.faces.http.route import Route
from topics.protocol.faces.http.suggestions import nearest_path
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.names import decode_segment, require_utf8_segment

ROUTES: Final[tuple[Route, ...]] = tuple(
    row
    for noun in (
        *(topics, records, queues, jobs, routers, groups),
        *(schedules, watch, server, clients, cluster),
    )
    for row in noun.ROUTES
)
"""One row for every method of every path."""


_METHODS: Final = ("PUT", "GET", "POST", "DELETE")
"""In the order in which `Allow` names those of a path."""


def _index() -> dict[tuple[bytes, ...], dict[str, Route]]:
    table: dict[tuple[bytes, ...], dict[str, Route]] = {}
    for row in sorted(ROUTES, key=lambda row: _METHODS.index(row.method)):
        assert row.method not in table.setdefault(row.path, {}), row
        table[row.path][row.method] = row
    return table


_ITEM_AT: Final = 4
"""Where a path has its second name, if it has one: `/v0/topics/:/jobs/:`."""
_TABLE: Final = _index()
_NAMED: Final = {path for path in _TABLE if b":" in path}


def find_route(method: str, path: bytes) -> tuple[Route, str]:
    """The route of a request and the name in its path; `HEAD` goes where `GET` does.

    Raises:
        Rejection: 404 for an unknown path, 405 with `Allow` for a wrong method, 400 for the name of a group that is
            not UTF-8.
    """
    segments = tuple(path.split(b"/")[1:])
    methods, name = _TABLE.get(segments), ""
    if len(segments) > 2 and segments[2]:
        pattern = (*segments[:2], b":", *segments[3:])
        if pattern not in _NAMED and len(segments) > _ITEM_AT and segments[_ITEM_AT]:
            pattern = (*pattern[:_ITEM_AT], b":", *segments[_ITEM_AT + 1 :])
        if pattern in _NAMED:
            methods, name = _TABLE[pattern], decode_segment(segments[2])
            if segments[1] == b"groups" and "\ufffd" in name:
                require_utf8_segment(segments[2])
    if methods is None:
        near = nearest_path(path, _TABLE)
        if near is None:
            raise Rejection(ErrorCode.NOT_FOUND, "no such path")
        hint = f"no such path, did you mean {near}?"
        raise Rejection(ErrorCode.NOT_FOUND, hint, {"did_you_mean": near})
    route = methods.get("GET" if method == "HEAD" else method)
    if route is None:
        allow = (*methods, "HEAD") if "GET" in methods else tuple(methods)
        raise Rejection(
            ErrorCode.METHOD_NOT_ALLOWED,
            f"{method[:32]} is not allowed here",
            {"allow": list(allow)},
            allow=allow,
        )
    return route, name


def item_of(route: Route, path: bytes) -> str:
    """What the second `:` of a route's path stands for in a path that led to it; empty where there is none."""
    if not route.has_item:
        return ""
    return decode_segment(path.split(b"/")[1:][_ITEM_AT])
