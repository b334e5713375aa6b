"""The HTTP face without HTTP: routes, queries, negotiation, origins, the envelope (§0.2, §0.5, §0.6)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.harness import refusal, status_of
from topics.protocol.faces.http.routes import ROUTES, find_route
from topics.protocol.model.errors import ErrorCode

METHODS = ("GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE", "")
PATHS = sorted({route.path for route in ROUTES})
ROOT = (b"",)


def spelled(path: tuple[bytes, ...], name: bytes = b"jobs") -> bytes:
    return b"".join(b"/" + (name if part == b":" else part) for part in path)


@pytest.mark.parametrize("path", PATHS, ids=lambda p: spelled(p).decode())
@pytest.mark.parametrize("method", METHODS)
def test_every_cell_of_the_route_table(path: tuple[bytes, ...], method: str) -> None:
    """A row is its route, HEAD is GET's, anything else is 405 with `Allow`. (§0.6)"""
    rows = {route.method: route for route in ROUTES if route.path == path}
    allowed = set(rows) | ({"HEAD"} if "GET" in rows else set())

    if method in allowed:
        route, name = find_route(method, spelled(path))
        assert route is rows["GET" if method == "HEAD" else method]
        assert name == ("jobs" if b":" in path else "")
    else:
        rejection = refusal(find_route, method, spelled(path))
        assert rejection.code is ErrorCode.METHOD_NOT_ALLOWED
        assert set(rejection.allow) == allowed


@pytest.mark.parametrize("path", [p for p in PATHS if p != ROOT], ids=lambda p: spelled(p).decode())
def test_neighbours_of_a_path_are_not_found(path: tuple[bytes, ...]) -> None:
    """One character or segment more or less. (§0.6)"""
    whole = spelled(path)
    for other in (whole + b"/", b"/" + whole, whole.upper(), whole + b"/x/y"):
        assert refusal(find_route, "GET", other).code is ErrorCode.NOT_FOUND


@pytest.mark.parametrize("path", [b"", b"*", b"//", b"/x", b"/index.html", b"/v0", b"/."])
def test_the_root_is_one_path(path: bytes) -> None:
    """The page is at `/` and nowhere else. (§9)"""
    assert find_route("GET", b"/")[0].path == ROOT
    assert refusal(find_route, "GET", path).code is ErrorCode.NOT_FOUND


def test_the_placeholder_is_no_path() -> None:
    """`:` in a request is a bad name, not a pattern. (§1.1)"""
    route, name = find_route("GET", b"/v0/topics/:")
    assert (route.method, name) == ("GET", ":")
    assert refusal(find_route, "GET", b"/v0/:/:").code is ErrorCode.NOT_FOUND


@given(st.binary(max_size=40), st.text(max_size=8))
def test_any_path_and_method_is_judged(path: bytes, method: str) -> None:
    """Nothing a client sends is our fault. (§0.6)"""
    assert status_of(find_route, method, path) in (200, 404, 405)
    assert status_of(find_route, method, b"/v0/topics/" + path) in (200, 404, 405)


def test_every_route_asks_for_a_scope() -> None:
    """Reads read, appends write, removals delete, configuration is the admin's. (§0.2)"""
    scopes = {
        f"{route.method} {spelled(route.path, b':').decode()}": route.guard for route in ROUTES
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
