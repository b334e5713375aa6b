"""The HTTP face without HTTP: routes, queries, negotiation, origins, the envelope (§0.2, §0.5, §0.6)."""

import json
from base64 import urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol.harness import refusal, status_of

from topics.protocol.faces.http import bodies, routes
from topics.protocol.faces.http.routes import BodyRule
from topics.protocol.faces.http.statuses import STATUSES
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.limits import Limits

METHODS = ("GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE", "")
PATHS = sorted({route.path for route in routes.ROUTES})
ROOT = (b"",)
LIMITS = Limits()


def spelled(path: tuple[bytes, ...], name: bytes = b"jobs") -> bytes:
    return b"".join(b"/" + (name if part == b":" else part) for part in path)


@pytest.mark.parametrize("path", PATHS, ids=lambda p: spelled(p).decode())
@pytest.mark.parametrize("method", METHODS)
def test_every_cell_of_the_route_table(path: tuple[bytes, ...], method: str) -> None:
    """A row is its route, HEAD is GET's, anything else is 405 with `Allow`. (§0.6)"""
    rows = {route.method: route for route in routes.ROUTES if route.path == path}
    allowed = set(rows) | ({"HEAD"} if "GET" in rows else set())

    if method in allowed:
        route, name = routes.find_route(method, spelled(path))
        assert route is rows["GET" if method == "HEAD" else method]
        assert name == ("jobs" if b":" in path else "")
    else:
        rejection = refusal(routes.find_route, method, spelled(path))
        assert rejection.code is ErrorCode.METHOD_NOT_ALLOWED
        assert set(rejection.allow) == allowed


@pytest.mark.parametrize("path", [p for p in PATHS if p != ROOT], ids=lambda p: spelled(p).decode())
def test_neighbours_of_a_path_are_not_found(path: tuple[bytes, ...]) -> None:
    """One character or segment more or less. (§0.6)"""
    whole = spelled(path)
    for other in (whole + b"/", b"/" + whole, whole.upper(), whole + b"/x/y"):
        assert refusal(routes.find_route, "GET", other).code is ErrorCode.NOT_FOUND


@pytest.mark.parametrize("path", [b"", b"*", b"//", b"/x", b"/index.html", b"/v0", b"/."])
def test_the_root_is_one_path(path: bytes) -> None:
    """The page is at `/` and nowhere else. (§9)"""
    assert routes.find_route("GET", b"/")[0].path == ROOT
    assert refusal(routes.find_route, "GET", path).code is ErrorCode.NOT_FOUND


def test_the_placeholder_is_no_path() -> None:
    """`:` in a request is a bad name, not a pattern. (§1.1)"""
    route, name = routes.find_route("GET", b"/v0/topics/:")
    assert (route.method, name) == ("GET", ":")
    assert refusal(routes.find_route, "GET", b"/v0/:/:").code is ErrorCode.NOT_FOUND


@given(st.binary(max_size=40), st.text(max_size=8))
def test_any_path_and_method_is_judged(path: bytes, method: str) -> None:
    """Nothing a client sends is our fault. (§0.6)"""
    assert status_of(routes.find_route, method, path) in (200, 404, 405)
    assert status_of(routes.find_route, method, b"/v0/topics/" + path) in (200, 404, 405)


def test_every_route_asks_for_a_scope() -> None:
    """Reads read, appends write, removals delete, configuration is the admin's. (§0.2)"""
    scopes = {
        f"{route.method} {spelled(route.path, b':').decode()}": route.guard
        for route in routes.ROUTES
    }
    assert scopes["GET /v0/metrics"] == scopes["POST /v0/topics/:/diff"] == "read"
    assert scopes["POST /v0/topics/:"] == "write"
    assert scopes["PUT /v0/topics/:"] == "admin"
    assert {scopes[f"POST /v0/topics/:/{verb}"] for verb in ("delete", "purge")} == {"delete"}
    assert scopes["GET /v0/health"] == scopes["GET /readyz"] == "probe"
    # What has no data in it.
    is_open = [line for line, scope in scopes.items() if scope == "open"]
    assert is_open == [
        "GET /",
        "GET /v0/openapi.json",
        "GET /v0/docs",
        "GET /v0/docs/:",
        "GET /v0/console/:",
    ]


# Queries.


@pytest.mark.parametrize(
    ("raw", "parsed"),
    [
        (b"", {}),
        (b"a=1&b=2", {"a": "1", "b": "2"}),
        (b"a=1&a=2", {"a": "1"}),
        (b"a", {"a": ""}),
        (b"a=", {"a": ""}),
        (b"=1", {"": "1"}),
        (b"&&a=1&", {"a": "1"}),
        (b"a=%C3%A9+x", {"a": "é x"}),
        (b"a=%ff", {"a": "\ufffd"}),
        (b"a=b=c", {"a": "b=c"}),
        (b"a;b=1", {"a;b": "1"}),
    ],
)
def test_queries(raw: bytes, parsed: dict[str, str]) -> None:
    """The first of a repeated name counts. (§0.7)"""
    assert routes.parse_query(raw) == parsed


@given(st.binary(max_size=60))
def test_any_query_parses(raw: bytes) -> None:
    """To text, or to a 400. (§0.6)"""
    assert status_of(routes.parse_query, raw) in (200, 400)


def test_a_query_has_a_bound() -> None:
    """A thousand parameters are nobody's question. (§0.6)"""
    assert STATUSES[refusal(routes.parse_query, b"a=1&" * 1001).code] == 400


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True), ("false", False), ("1", True), ("0", False), ("", None), ("yes", None),
        ("True", None), (" true", None), ("2", None),
    ],
)  # fmt: skip
def test_booleans(text: str, value: bool | None) -> None:
    """True and false, and their digits. (§1.2)"""
    if value is None:
        rejection = refusal(routes.query_bool, {"touch": text}, "touch", True)
        assert "touch" in rejection.message
    else:
        assert routes.query_bool({"touch": text}, "touch", not value) is value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0), ("7", 7), ("007", 7), ("18446744073709551616", 2**64), ("-1", None), ("", None),
        ("1.0", None), ("+1", None), ("1_0", None), ("²", None), ("٣", None), ("9" * 21, 10**20 - 1),
        ("9" * 5000, 10**20 - 1), ("0" * 5000 + "7", 7), ("000", 0),
    ],
)  # fmt: skip
def test_naturals(text: str, value: int | None) -> None:
    """ASCII digits, any number of them: what is above every bound is clamped by each. (§0.7)"""
    if value is None:
        assert STATUSES[refusal(routes.query_natural, {"n": text}, "n", 5).code] == 400
    else:
        assert routes.query_natural({"n": text}, "n", 5) == value
    assert routes.query_natural({}, "n", 5) == 5


@given(st.binary(max_size=40))
def test_any_cursor_is_judged(raw: bytes) -> None:
    """A name, or 400. (§1.3)"""
    assert status_of(routes.parse_cursor, raw.decode("latin-1")) in (200, 400)
    assert status_of(routes.parse_cursor, urlsafe_b64encode(raw).decode()) in (200, 400)


# Negotiation.


@pytest.mark.parametrize(
    ("value", "good"),
    [
        (b"application/json", True), (b"APPLICATION/json", True),
        (b"application/json;charset=utf-8", True), (b'application/json; Charset="UTF-8"', True),
        (b"application/json;q=1", True), (b"application/json; charset=utf8", True),
        (b"application/json; charset=latin-1", False), (b"application/json; charset=", False),
        (b"application/jsonl", False), (b"text/plain", False), (b"", False), (b";", False),
    ],
)  # fmt: skip
def test_content_types(value: bytes, good: bool) -> None:
    """JSON, in UTF-8. (§0.3)"""
    for rule in (BodyRule.JSON, BodyRule.JSON_OR_EMPTY):
        status = status_of(
            lambda rule=rule: routes.check_content_type(value, empty=False, rule=rule)
        )
        assert status == (200 if good else 415)
    routes.check_content_type(value, empty=False, rule=BodyRule.NONE)


def test_no_content_type() -> None:
    """Only where there is no body; where a body is optional, one of no bytes has any type. (§0.3)"""
    routes.check_content_type(None, empty=True, rule=BodyRule.JSON)
    routes.check_content_type(b"text/plain", empty=True, rule=BodyRule.JSON_OR_EMPTY)
    assert (
        status_of(lambda: routes.check_content_type(b"text/plain", empty=True, rule=BodyRule.JSON))
        == 415
    )
    rejection = refusal(routes.check_content_type, None, empty=False, rule=BodyRule.JSON)
    assert rejection.code is ErrorCode.UNSUPPORTED_MEDIA_TYPE


@pytest.mark.parametrize(
    ("value", "accepts"),
    [
        (None, False), (b"", False), (b"gzip", True), (b"GZip", True), (b"br,gzip", True),
        (b"gzip;q=0", False), (b"gzip;q=0.0", False), (b"gzip; q=0.000", False),
        (b"gzip;q=0.001", True), (b"gzip;q=1", True), (b"gzip ; q = 0", False), (b"xgzip", False),
        (b"identity;q=1, gzip;q=0", False), (b"br;q=0, gzip", True),
        (b"*", True), (b"*;q=0", False), (b"*;q=0, gzip", True), (b"gzip;q=0, *", False),
        (b"gzip;q=0, x-gzip", False), (b"br, *;q=0.1", True), (b"gzip;q=", True),
    ],
)  # fmt: skip
def test_accepted_encodings(value: bytes | None, accepts: bool) -> None:
    """gzip with a weight above 0. (§0.3)"""
    assert routes.accepts_gzip(value) is accepts


@pytest.mark.parametrize(
    ("value", "accepts"),
    [
        (None, True), (b"", True), (b" ", True), (b"text/event-stream", True), (b"*/*", True),
        (b"Text/Event-Stream; charset=utf-8", True), (b"text/*;q=0.1", True), (b"text/html", False),
        (b"*/*;q=0, text/event-stream", True), (b"text/event-stream;q=0, */*", False),
        (b"text/*;q=0, */*", False), (b"text/*;q=0, text/event-stream;q=0.001", True),
        (b"*/*;q=0", False), (b"text/html, , application/json;q=0.9,", False), (b",", False),
        (b"text/event-stream;x=1;q=0, text/event-stream", True), (b"text/event-stream;q=1.0", True),
        (b"text/event-stream;q=0.0", False), (b"text/event-stream;q=nonsense", True),
    ],
)  # fmt: skip
def test_accepted_streams(value: bytes | None, accepts: bool) -> None:
    """The most specific item has the word, wherever it stands (RFC 9110 §12.5.1). (§7.3)"""
    assert routes.accepts_event_stream(value) is accepts


@pytest.mark.parametrize(
    ("value", "is_json"),
    [
        (None, False), (b"*/*", False), (b"application/json", True), (b"application/*", True),
        (b"text/plain, application/json;q=0", False), (b"text/plain, application/json", True),
        (b"text/plain;q=0.5, application/json;q=0.9", True), (b"application/json, */*;q=0.1", True),
        (b"text/plain;q=0.9, application/json;q=0.5", False), (b"application/json;q=0", False),
        (b"text/plain;version=0.0.4;q=0.5,*/*;q=0.1", False), (b"text/html", False),
    ],
)  # fmt: skip
def test_metrics_are_text_unless_json_is_wanted_more(value: bytes | None, is_json: bool) -> None:
    """Or as much, and by name. (§8.3)"""
    assert routes.prefers_json(value) is is_json


# The envelope.


@pytest.mark.parametrize("code", ErrorCode, ids=lambda c: c.code)
def test_every_error_in_its_envelope(code: ErrorCode) -> None:
    """`code` and `message`, `detail` where there is one; 429 and 503 say when. (§0.5, §0.6)"""
    plain = Rejection(code, 'a "quoted" message')
    detailed = Rejection(code, "m", {"topic": "é"}, retry_after_s=7, allow=("GET", "PUT"))

    told = json.loads(routes.error_body(plain) + b"}")
    assert told == {"error": {"code": code.code, "message": 'a "quoted" message'}}
    assert json.loads(routes.error_body(detailed) + b"}")["error"]["detail"] == {"topic": "é"}
    assert (b"retry-after" in dict(routes.error_headers(plain))) == (STATUSES[code] in (429, 503))
    headers = dict(routes.error_headers(detailed))
    asks = {b"www-authenticate": b"Bearer"} if STATUSES[code] == 401 else {}
    assert headers == {b"retry-after": b"7", b"allow": b"GET, PUT", **asks}
    assert code.code.islower()
    assert 400 <= STATUSES[code] < 600


def test_the_codes_of_the_contract() -> None:
    """§0.6, row by row."""
    table = {
        "invalid_request": 400, "batch_too_large": 400, "record_too_large": 400,
        "unauthorized": 401, "forbidden": 403, "topic_not_found": 404, "router_not_found": 404,
        "method_not_allowed": 405, "not_acceptable": 406, "router_cycle": 409,
        "topic_exists_incompatible": 409, "topic_not_empty": 409, "not_a_queue": 409,
        "payload_too_large": 413, "unsupported_media_type": 415, "topic_full": 422,
        "throttled": 429, "internal": 500, "not_ready": 503, "shutting_down": 503,
        "not_leader": 503, "replica_behind": 503,
    }  # fmt: skip
    known = {code.code: STATUSES[code] for code in ErrorCode}
    assert {name: known[name] for name in table} == table


def asked(
    method: str, path: bytes, query: dict[str, str] | None = None, **headers: bytes
) -> object:
    """What a request becomes, its body an append of one record."""
    route, name = routes.find_route(method, path)
    found = {name.replace("_", "-").encode(): value for name, value in headers.items()}
    body = b'{"records":[{"data":1}]}'
    request = routes.Request(name, query or {}, found.get, body, LIMITS, str)
    return route.target(request)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("path", "code"),
    [
        (b"/v0/topics/-no-name", ErrorCode.TOPIC_NOT_FOUND),
        (b"/v0/routers/-no-name", ErrorCode.ROUTER_NOT_FOUND),
    ],
)
def test_a_read_of_what_no_name_is_finds_nothing(path: bytes, code: ErrorCode) -> None:
    """404, since nothing can be there; a write answers 400. (§0.6)"""
    assert refusal(asked, "GET", path).code is code
    assert refusal(asked, "PUT", path).code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("value", "key"), [(b"order-7", "order-7"), ("größe".encode(), "größe"), (b"\xff", "ÿ")]
)
def test_a_key_in_a_header_is_text(value: bytes, key: str) -> None:
    """UTF-8, or Latin-1 where it is none: it stands for the same write as that text in a body. (§0.8)"""
    with_header = asked("POST", b"/v0/topics/t", idempotency_key=value)
    in_body = bodies.parse_append(
        "t",
        b'{"records":[{"data":1}],"idempotency_key":"%b"}' % key.encode(),
        LIMITS,
        return_seqs=True,
        header_key=None,
    )
    assert with_header.key == in_body.key  # type: ignore[attr-defined]


def test_a_push_stream_asks_for_work() -> None:
    """Who claims, how many at once, for how long. (§10.8)"""
    claim = routes.parse_work("q", {"node": "w", "max": "3", "lease_ms": "5000"}, LIMITS)

    assert (claim.topic, claim.node, claim.limit, claim.lease_ms) == ("q", "w", 3, 5000)
    assert routes.parse_work("q", {"node": "w"}, LIMITS).lease_ms is None
    assert refusal(routes.parse_work, "-", {"node": "w"}, LIMITS).code is ErrorCode.TOPIC_NOT_FOUND
    assert refusal(routes.parse_work, "q", {}, LIMITS).code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("coding", "is_gzipped"),
    [(None, False), (b"", False), (b" Identity", False), (b"gzip", True), (b"X-GZIP ", True)],
)
def test_a_body_may_be_gzipped(coding: bytes | None, is_gzipped: bool) -> None:
    """In any case of letters. (§0.5)"""
    assert routes.check_content_encoding(coding) is is_gzipped


@pytest.mark.parametrize("coding", [b"br", b"deflate", b"gzip, gzip"])
def test_no_other_coding_is_taken(coding: bytes) -> None:
    """415. (§0.5)"""
    refused = refusal(routes.check_content_encoding, coding)
    assert refused.code is ErrorCode.UNSUPPORTED_MEDIA_TYPE


def test_the_history_is_asked_for_in_steps_that_it_has() -> None:
    """400 with the steps for any other; without a step, the longest. (§8.6)"""
    assert routes.parse_history({}) == (routes.HISTORY_STEPS_MS[-1], 0)
    step = routes.HISTORY_STEPS_MS[0]
    assert routes.parse_history({"step_ms": str(step), "after_ms": "7"}) == (step, 7)

    refused = refusal(routes.parse_history, {"step_ms": "1"})

    assert refused.code is ErrorCode.INVALID_REQUEST
    assert all(str(known) in refused.message for known in routes.HISTORY_STEPS_MS)


def test_a_route_is_a_read_as_its_command_is() -> None:
    """What comes over a WebSocket says so itself, and a probe changes nothing."""
    found = {route.line: route.is_read for route in routes.ROUTES}
    assert found["POST /v0/topics/:/diff"]
    assert found["GET /v0/ws"]
    assert found["GET /v0/health"]
    assert not found["POST /v0/topics/:/claim"]
    assert not found["GET /v0/topics/:/work"]
