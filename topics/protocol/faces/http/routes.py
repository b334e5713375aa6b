"""The HTTP face, without HTTP: the route table, query strings, negotiation, the error envelope.

`ROUTES` is the one table from which routing, 404, 405 and `Allow` follow.  A path segment is
matched before its percent-escapes are decoded, so that `%2F` is a character of a bad name and
never a separator.
"""

import binascii
import re
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Final, Literal
from urllib.parse import parse_qsl

import msgspec
import orjson

from topics.protocol.faces.http import bodies
from topics.protocol.faces.http.decoding import invalid
from topics.protocol.faces.http.suggestions import listed, nearest_path
from topics.protocol.model.access import SCOPES, Scope
from topics.protocol.model.commands import (
    FACTS,
    Ack,
    Append,
    Claim,
    Command,
    CreateWatch,
    DeleteRecords,
    DeleteRouter,
    DeleteTopic,
    Diff,
    Extend,
    GetRouter,
    GetTopic,
    ListRouters,
    ListTopics,
    Nack,
    Purge,
    PutRouter,
    PutTopic,
    ReadPage,
)
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.limits import PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX, Limits
from topics.protocol.model.names import (
    decode_segment,
    is_router_name,
    is_topic_name,
    require_router_name,
    require_topic_name,
)
from topics.protocol.model.records import Buffer

Guard = Literal["read", "write", "read+write", "delete", "admin", "probe", "socket", "open"]
"""Who may use a route: who has these scopes; `socket`: any key, and each of its commands asks for
scopes of its own; `probe`: everybody, or any key; `open`: everybody (§0.2, §8)."""


class BodyRule(Enum):
    """Whether a request has a body that is read."""

    NONE = "none"
    JSON = "json"
    JSON_OR_EMPTY = "json or empty"
    """A body of no bytes stands for `{}`, whatever its Content-Type is."""


class Probe(Enum):
    """Requests that the shell answers without the engine, ready or not."""

    PAGE = "page"
    HEALTH = "health"
    READY = "ready"
    METRICS = "metrics"
    LIMITS = "limits"
    OPENAPI = "openapi"
    DOCS = "docs"
    CONSOLE = "console"
    HISTORY = "history"
    CLUSTER = "cluster"
    TRIM = "trim"


class StreamKind(Enum):
    """Requests that are answered by a stream."""

    WATCH = "watch"
    WORK = "work"
    SOCKET = "socket"


class Request(msgspec.Struct, frozen=True):
    """What a route's parser gets: the decoded name, the query, headers it may read, the body.

    `entropy` makes an unguessable name; randomness is the shell's.  `pause` is called between the steps
    in which a large body is read: it lets others have the interpreter.
    """

    name: str
    query: Mapping[str, str]
    header: Callable[[bytes], bytes | None]
    body: Buffer
    limits: Limits
    entropy: Callable[[], str]
    pause: Callable[[], None] = lambda: None


Parser = Callable[[Request], Command]


class Route(msgspec.Struct, frozen=True):
    """One row: method and path, where `:` stands for a name; what may be done with it."""

    method: str
    path: tuple[bytes, ...]
    guard: Guard
    body: BodyRule
    target: Parser | Probe | StreamKind
    command: type[Command] | None
    """What the parser makes; of a push stream what it goes on doing; None: no single command."""
    scopes: frozenset[Scope]
    """What a key needs."""
    has_name: bool
    """Whether `:` is the name of a topic or a router."""
    takes_token: bool
    """Whether a key may come as `?token=`, because the `EventSource` of a browser sends no header
    (§7.1)."""

    def max_body_bytes(self, limits: Limits) -> int:
        """What its body may have.  Only a write has records; any other body is parsed in one call, on
        the event loop, and everything that is of use in it is bounded by other limits."""
        if self.target is _append:
            return limits.max_body_bytes
        return min(limits.max_body_bytes, limits.max_command_bytes)

    @property
    def is_read(self) -> bool:
        """Whether it changes nothing that an event tells; what comes over a WebSocket says so itself."""
        return self.command is None or FACTS[self.command].is_read

    @property
    def line(self) -> str:
        """As the table spells it: `GET /v0/topics/:`."""
        return f"{self.method} /{b'/'.join(self.path).decode()}"


# ---------------------------------------------------------------------- parsers of the routes


def _reading(request: Request) -> str:
    """The name in a read: 404 where no topic can have it."""
    if not is_topic_name(request.name):
        raise _no_such_name(request.name)
    return request.name


def _no_such_name(name: str) -> Rejection:
    return Rejection(ErrorCode.TOPIC_NOT_FOUND, "no topic has such a name", {"topic": name[:256]})


def _writing(request: Request) -> str:
    return require_topic_name(request.name)


def _put_topic(request: Request) -> PutTopic:
    return bodies.parse_put(_writing(request), request.body)


def _get_topic(request: Request) -> GetTopic:
    return GetTopic(_reading(request), query_bool(request.query, "touch", True))


def _list_topics(request: Request) -> ListTopics:
    touch = query_bool(request.query, "touch", False)
    return ListTopics(*_page(request.query), touch)


def _page(query: Mapping[str, str]) -> tuple[str, int, str]:
    """(prefix, page size, the name it begins behind) of a list (§0.7)."""
    size = query_natural(query, "page_size", PAGE_SIZE_DEFAULT) or PAGE_SIZE_DEFAULT
    after = parse_cursor(query["cursor"]) if "cursor" in query else ""
    return query.get("prefix", ""), min(size, PAGE_SIZE_MAX), after


def _delete_topic(request: Request) -> DeleteTopic:
    return DeleteTopic(_writing(request), query_bool(request.query, "if_empty", False))


def _append(request: Request) -> Append:
    key, query = request.header(b"idempotency-key"), request.query
    return bodies.parse_append(
        require_topic_name(request.name),
        request.body,
        request.limits,
        return_seqs=query_bool(query, "return_seqs", True) if query else True,
        header_key=None if key is None else _header_text(key),
        pause=request.pause,
    )


def _header_text(value: bytes) -> str:
    """A header as the same text would stand in a body; what is not UTF-8 is read as Latin-1."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _diff(request: Request) -> Diff:
    return bodies.parse_diff(_reading(request), request.body, request.limits)


def _read_page(request: Request) -> ReadPage:
    query = request.query
    return ReadPage(
        topic=_reading(request),
        from_seq=bodies.u64(query_natural(query, "from_seq", 0), "?from_seq"),
        limit=bodies.page_limit(query_natural(query, "limit", 0), request.limits),
        budget_bytes=bodies.page_budget(query_natural(query, "max_batch_bytes", 0)),
        include_tags=query_bool(query, "include_tags", False),
        include_meta=query_bool(query, "include_meta", True),
        epoch=query.get("epoch"),
    )


def _delete_records(request: Request) -> DeleteRecords:
    return bodies.parse_delete(_writing(request), request.body, request.limits)


def _purge(request: Request) -> Purge:
    return bodies.parse_purge(_writing(request), request.body)


def _claim(request: Request) -> Claim:
    return bodies.parse_claim(_writing(request), request.body, request.limits)


def _ack(request: Request) -> Ack:
    return bodies.parse_ack(_writing(request), request.body, request.limits)


def _nack(request: Request) -> Nack:
    return bodies.parse_nack(_writing(request), request.body, request.limits)


def _extend(request: Request) -> Extend:
    return bodies.parse_extend(_writing(request), request.body, request.limits)


def parse_work(name: str, query: Mapping[str, str], limits: Limits) -> Claim:
    """What a push stream asks for (§10.8): who claims, how many at once, for how long."""
    if not is_topic_name(name):
        raise _no_such_name(name)
    if "node" not in query:
        raise invalid("expected the worker's name", "?node")
    node = bodies.worker(query["node"], limits, "?node")
    limit = bodies.claim_limit(query_natural(query, "max", 1), limits)
    lease_ms = None
    if "lease_ms" in query:
        lease_ms = bodies.clamped_lease(query_natural(query, "lease_ms", 0))
    return Claim(name, node, limit, lease_ms, 0)


HISTORY_STEPS_MS: Final = (1000, 10_000)
"""Of the tables of `GET /v0/stats/history`."""


def parse_history(query: Mapping[str, str]) -> tuple[int, int]:
    """(step, time after which rows are asked for) of the last hour's figures, milliseconds (§8.6)."""
    step_ms = query_natural(query, "step_ms", HISTORY_STEPS_MS[-1])
    if step_ms not in HISTORY_STEPS_MS:
        raise invalid(f"expected {listed(map(str, HISTORY_STEPS_MS))}", "?step_ms")
    return step_ms, query_natural(query, "after_ms", 0)


def _put_router(request: Request) -> PutRouter:
    return bodies.parse_put_router(require_router_name(request.name), request.body, request.limits)


def _get_router(request: Request) -> GetRouter:
    if not is_router_name(request.name):
        raise Rejection(
            ErrorCode.ROUTER_NOT_FOUND, "no router has such a name", {"router": request.name[:256]}
        )
    return GetRouter(request.name)


def _list_routers(request: Request) -> ListRouters:
    query = request.query
    return ListRouters(*_page(query), query.get("source"), query.get("dest"))


def _delete_router(request: Request) -> DeleteRouter:
    return DeleteRouter(require_router_name(request.name))


def _create_watch(request: Request) -> CreateWatch:
    return bodies.parse_watch(
        request.body,
        request.limits,
        wid="wid_" + request.entropy(),
        lenient=query_bool(request.query, "lenient", False),
    )


def _path(text: str) -> tuple[bytes, ...]:
    return tuple(text.encode().split(b"/")[1:])


def _route(
    line: str,
    guard: Guard,
    target: Parser | Probe | StreamKind,
    body: BodyRule = BodyRule.NONE,
    *,
    makes: type[Command] | None = None,
) -> Route:
    method, text = line.split()
    path = _path(text)
    return Route(
        method,
        path,
        guard,
        body,
        target,
        makes,
        scopes=SCOPES.intersection(guard.split("+")),
        has_name=b":" in path and path[1] in (b"topics", b"routers"),
        takes_token=target in (StreamKind.WATCH, StreamKind.WORK),
    )


_ANY: Final = BodyRule.JSON_OR_EMPTY

ROUTES: Final[tuple[Route, ...]] = (
    _route("GET /", "open", Probe.PAGE),
    _route("GET /v0/topics", "read", _list_topics, makes=ListTopics),
    _route("PUT /v0/topics/:", "admin", _put_topic, _ANY, makes=PutTopic),
    _route("GET /v0/topics/:", "read", _get_topic, makes=GetTopic),
    _route("POST /v0/topics/:", "write", _append, BodyRule.JSON, makes=Append),
    _route("DELETE /v0/topics/:", "delete", _delete_topic, makes=DeleteTopic),
    _route("POST /v0/topics/:/diff", "read", _diff, _ANY, makes=Diff),
    _route("GET /v0/topics/:/records", "read", _read_page, makes=ReadPage),
    _route(
        "POST /v0/topics/:/delete", "delete", _delete_records, BodyRule.JSON, makes=DeleteRecords
    ),
    _route("POST /v0/topics/:/purge", "delete", _purge, _ANY, makes=Purge),
    _route("POST /v0/topics/:/claim", "read+write", _claim, BodyRule.JSON, makes=Claim),
    _route("POST /v0/topics/:/ack", "write", _ack, BodyRule.JSON, makes=Ack),
    _route("POST /v0/topics/:/nack", "write", _nack, BodyRule.JSON, makes=Nack),
    _route("POST /v0/topics/:/extend", "write", _extend, BodyRule.JSON, makes=Extend),
    _route("GET /v0/topics/:/work", "read+write", StreamKind.WORK, makes=Claim),
    _route("GET /v0/routers", "read", _list_routers, makes=ListRouters),
    _route("PUT /v0/routers/:", "admin", _put_router, BodyRule.JSON, makes=PutRouter),
    _route("GET /v0/routers/:", "read", _get_router, makes=GetRouter),
    _route("DELETE /v0/routers/:", "delete", _delete_router, makes=DeleteRouter),
    _route("POST /v0/watch", "read", _create_watch, BodyRule.JSON, makes=CreateWatch),
    _route("GET /v0/watch/:", "read", StreamKind.WATCH),
    _route("GET /v0/ws", "socket", StreamKind.SOCKET),
    _route("GET /v0/health", "probe", Probe.HEALTH),
    _route("GET /healthz", "probe", Probe.HEALTH),
    _route("GET /v0/ready", "probe", Probe.READY),
    _route("GET /readyz", "probe", Probe.READY),
    _route("GET /v0/metrics", "read", Probe.METRICS),
    _route("GET /v0/limits", "read", Probe.LIMITS),
    _route("GET /v0/openapi.json", "open", Probe.OPENAPI),
    _route("GET /v0/docs", "open", Probe.DOCS),
    _route("GET /v0/docs/:", "open", Probe.DOCS),
    _route("GET /v0/console/:", "open", Probe.CONSOLE),
    _route("GET /v0/stats/history", "read", Probe.HISTORY),
    _route("GET /v0/cluster", "read", Probe.CLUSTER),
    _route("POST /v0/cluster/trim", "admin", Probe.TRIM, _ANY),
)


def _index() -> dict[tuple[bytes, ...], dict[str, Route]]:
    table: dict[tuple[bytes, ...], dict[str, Route]] = {}
    for route in ROUTES:
        assert route.method not in table.setdefault(route.path, {}), route
        table[route.path][route.method] = route
    return table


_TABLE: Final = _index()
_NAMED: Final = {path for path in _TABLE if b":" in path}


def find_route(method: str, path: bytes) -> tuple[Route, str]:
    """The route of a request and the name in its path; `HEAD` goes where `GET` does.

    Raises:
        Rejection: 404 for an unknown path, 405 with `Allow` for a wrong method.
    """
    segments = tuple(path.split(b"/")[1:])
    methods, name = _TABLE.get(segments), ""
    if len(segments) > 2 and segments[2]:
        pattern = (*segments[:2], b":", *segments[3:])
        if pattern in _NAMED:
            methods, name = _TABLE[pattern], decode_segment(segments[2])
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


# ---------------------------------------------------------------------- query strings


def parse_query(raw: bytes) -> dict[str, str]:
    """A query as name -> value; the first of a repeated name counts."""
    if not raw:
        return {}
    try:
        pairs = parse_qsl(
            raw.decode("latin-1"), keep_blank_values=True, errors="replace", max_num_fields=1000
        )
    except ValueError:
        raise invalid("the query has too many parameters") from None
    return dict(reversed(pairs))


def query_bool(query: Mapping[str, str], name: str, default: bool) -> bool:
    value = query.get(name)
    if value is None:
        return default
    if value not in ("true", "false", "1", "0"):
        raise invalid(f"{name} is not true or false", f"?{name}")
    return value in ("true", "1")


def query_natural(query: Mapping[str, str], name: str, default: int) -> int:
    value = query.get(name)
    if value is None:
        return default
    if not (value.isascii() and value.isdigit()):
        raise invalid(f"{name} is not a natural number", f"?{name}")
    # What has more digits is above every bound, and `int` refuses thousands of them.
    return int((value.lstrip("0") or "0")[:20])


def parse_cursor(cursor: str) -> str:
    """The name after which a list goes on (§0.7)."""
    try:
        value = orjson.loads(b64decode(cursor.encode("ascii"), b"-_", validate=True))
    except (ValueError, binascii.Error):
        value = None
    if not (isinstance(value, dict) and isinstance(after := value.get("after"), str) and after):
        raise invalid("the cursor is not one of ours", "?cursor")
    return after


# ---------------------------------------------------------------------- negotiation


def check_content_type(value: bytes | None, *, empty: bool, rule: BodyRule) -> None:
    """415 unless the body is declared as JSON (§0.3); UTF-8 is the only charset.

    Args:
        value: The Content-Type; None where the head has none.
        empty: The body has no bytes.
    """
    if empty and (value is None or rule is BodyRule.JSON_OR_EMPTY):
        return
    kind, *params = (value or b"").split(b";")
    charsets = [
        p.split(b"=", 1)[1] for p in map(bytes.strip, params) if p.lower().startswith(b"charset=")
    ]
    good = kind.strip().lower() == b"application/json" and all(
        c.strip(b'" ').lower() in (b"utf-8", b"utf8") for c in charsets
    )
    if rule is not BodyRule.NONE and not good:
        raise Rejection(ErrorCode.UNSUPPORTED_MEDIA_TYPE, "expected Content-Type: application/json")


def check_content_encoding(value: bytes | None) -> bool:
    """Whether the body is gzipped; 415 for any coding but gzip and identity."""
    coding = (value or b"").strip().lower()
    if coding in (b"", b"identity"):
        return False
    if coding in (b"gzip", b"x-gzip"):
        return True
    raise Rejection(ErrorCode.UNSUPPORTED_MEDIA_TYPE, "expected Content-Encoding: gzip, or none")


def accepts_gzip(value: bytes | None) -> bool:
    """Whether `Accept-Encoding` offers gzip with a weight above 0."""
    weights = _weights(value)
    for coding in (b"gzip", b"x-gzip", b"*"):
        if coding in weights:
            return weights[coding] > 0
    return False


def accepts_event_stream(accept: bytes | None) -> bool:
    """Whether an `Accept` lets an event stream through; none at all does."""
    if accept is None or not accept.strip():
        return True
    return _weight_of(_weights(accept), b"text", b"event-stream") > 0


def names_event_stream(accept: bytes | None) -> bool:
    """Whether an `Accept` asks for an event stream by its name."""
    return _weights(accept).get(b"text/event-stream", 0.0) > 0


def prefers_json(accept: bytes | None) -> bool:
    """Whether an `Accept` asks for JSON where text is the default (§8.3)."""
    weights = _weights(accept)
    json = _weight_of(weights, b"application", b"json")
    text = _weight_of(weights, b"text", b"plain")
    return json > text or (json == text > 0 and b"application/json" in weights)


def _weight_of(weights: Mapping[bytes, float], kind: bytes, subtype: bytes) -> float:
    """What the most specific item that fits says of a media type (RFC 9110 §12.5.1)."""
    for item in (kind + b"/" + subtype, kind + b"/*", b"*/*"):
        if item in weights:
            return weights[item]
    return 0.0


def _weights(value: bytes | None) -> dict[bytes, float]:
    """The items of a header that negotiates, with their weights; the greatest of one that comes
    twice, as it may with other parameters."""
    weights: dict[bytes, float] = {}
    for item in (value or b"").lower().split(b","):
        name, *params = map(bytes.strip, item.split(b";"))
        if name:
            weights[name] = max(weights.get(name, 0.0), _weight(params))
    return weights


def _weight(params: Sequence[bytes]) -> float:
    for param in params:
        name, _, value = param.partition(b"=")
        if name.strip() == b"q" and (found := _WEIGHT.fullmatch(value.strip())):
            return float(found[0])
    return 1.0


_WEIGHT: Final = re.compile(rb"[01](\.\d*)?|\.\d+")


# ---------------------------------------------------------------------- errors


def error_body(refusal: Rejection) -> bytes:
    """The envelope of §0.5, its last brace left out."""
    error: dict[str, object] = {"code": refusal.code.code, "message": refusal.message}
    if refusal.detail is not None:
        error["detail"] = refusal.detail
    return b'{"error":' + orjson.dumps(error)


def error_headers(refusal: Rejection) -> Sequence[tuple[bytes, bytes]]:
    headers = []
    if refusal.retry_after_s is not None:
        headers.append((b"retry-after", b"%d" % refusal.retry_after_s))
    if refusal.code is ErrorCode.UNAUTHORIZED:
        headers.append((b"www-authenticate", b"Bearer"))
    if refusal.allow:
        headers.append((b"allow", ", ".join(refusal.allow).encode()))
    return headers
