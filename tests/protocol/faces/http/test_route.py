"""A row of the route table, and what its parser makes of a request."""

import pytest

from protocol.harness import refusal
from topics.protocol.faces.http.append_body import parse_append
from topics.protocol.faces.http.route import Request
from topics.protocol.faces.http.routes import ROUTES, find_route
from topics.protocol.model.errors import ErrorCode
from topics.protocol.model.limits import Limits

LIMITS = Limits()


def asked(
    method: str, path: bytes, query: dict[str, str] | None = None, **headers: bytes
) -> object:
    """What a request becomes, its body an append of one record."""
    route, name = find_route(method, path)
    found = {name.replace("_", "-").encode(): value for name, value in headers.items()}
    body = b'{"records":[{"data":1}]}'
    request = Request(name, query or {}, found.get, body, LIMITS, str)
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
    in_body = parse_append(
        "t",
        b'{"records":[{"data":1}],"idempotency_key":"%b"}' % key.encode(),
        LIMITS,
        return_seqs=True,
        header_key=None,
    )
    assert with_header.key == in_body.key  # type: ignore[attr-defined]


def test_a_route_is_a_read_as_its_command_is() -> None:
    """What comes over a WebSocket says so itself, and a probe changes nothing."""
    found = {route.line: route.is_read for route in ROUTES}
    assert found["POST /v0/topics/:/diff"]
    assert found["GET /v0/ws"]
    assert found["GET /v0/health"]
    assert not found["POST /v0/topics/:/claim"]
    assert not found["GET /v0/topics/:/work"]
