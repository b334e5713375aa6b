"""Jobs over HTTP: how their paths and bodies are read (§10.9)."""

import pytest

from topics.protocol.faces.http.jobs import parse_change, parse_changes, parse_get, parse_list
from topics.protocol.faces.http.routes import find_route, item_of
from topics.protocol.model.commands import ChangeJobs, GetJob, ListJobs
from topics.protocol.model.errors import ErrorCode, Rejection


@pytest.mark.parametrize(
    ("method", "path", "line", "item"),
    [
        ("GET", b"/v0/topics/q/jobs", "GET /v0/topics/:/jobs", ""),
        ("GET", b"/v0/topics/q/jobs/7", "GET /v0/topics/:/jobs/:", "7"),
        ("GET", b"/v0/topics/q/jobs/%37", "GET /v0/topics/:/jobs/:", "7"),
        ("POST", b"/v0/topics/q/jobs/7/retry", "POST /v0/topics/:/jobs/:/retry", "7"),
        ("POST", b"/v0/topics/q/jobs/retry", "POST /v0/topics/:/jobs/retry", ""),
    ],
)
def test_a_path_of_a_job(method: str, path: bytes, line: str, item: str) -> None:
    route, name = find_route(method, path)
    assert (route.line, name, item_of(route, path)) == (line, "q", item)


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", b"/v0/topics/q/jobs/", ErrorCode.NOT_FOUND),
        ("GET", b"/v0/topics/q/jobs/7/retry", ErrorCode.METHOD_NOT_ALLOWED),
        ("GET", b"/v0/topics/q/jobs/retry", ErrorCode.METHOD_NOT_ALLOWED),
        ("POST", b"/v0/topics/q/jobs/7", ErrorCode.METHOD_NOT_ALLOWED),
        ("POST", b"/v0/topics/q/jobs/7/retry/x", ErrorCode.NOT_FOUND),
        ("GET", b"/v0/topics//jobs/7", ErrorCode.NOT_FOUND),
    ],
)
def test_a_path_that_is_none(method: str, path: bytes, code: ErrorCode) -> None:
    with pytest.raises(Rejection) as refused:
        find_route(method, path)
    assert refused.value.code is code


def test_parameters_are_bounded() -> None:
    """Clamped, as those of every list. (§0.7)"""
    assert parse_list("q", {}) == ListJobs("q", None, None, 0, 100)
    asked = {"limit": "9999", "after": "9" * 30, "state": "dead", "group": "g"}
    assert parse_list("q", asked) == ListJobs("q", "dead", "g", 2**64 - 1, 1000)
    assert parse_get("q", "7", {"wait_ms": "99999"}) == GetJob("q", 7, 30_000)
    assert parse_change("q", "retry", "7", b'{"dry_run":true}') == ChangeJobs(
        "q", "retry", 7, is_dry=True
    )
    found = parse_changes("q", "cancel", b'{"state":"ready"}')
    assert (found.seq, found.state, found.match) == (None, "ready", None)
