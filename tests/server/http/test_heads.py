"""Heads: what they alone decide, once, and once more when they come again; over memory."""

import pytest

from topics.protocol.model.limits import Limits
from topics.server.http.interface import Answer, Head

from .desk import JSON, Desk, code

COMMANDS = [
    ("PUT", "/v0/topics/a"),
    ("GET", "/v0/topics/a"),
    ("POST", "/v0/topics/a/diff"),
    ("POST", "/v0/topics/a/delete"),
    ("POST", "/v0/topics/a/purge"),
    ("POST", "/v0/topics/a/claim"),
    ("POST", "/v0/topics/a/ack"),
    ("POST", "/v0/topics/a/nack"),
    ("POST", "/v0/topics/a/extend"),
    ("PUT", "/v0/routers/a"),
    ("POST", "/v0/watch"),
    ("GET", "/v0/ready"),
]


def admitted_bytes(desk: Desk, method: str, path: str, size: int | None = None) -> int | None:
    """What a driver is told that a body may have; None where the head is refused with 413."""
    length = [] if size is None else [(b"content-length", b"%d" % size)]
    found = desk.exchange.begin(Head(method, path.encode(), b"", [JSON, *length]))
    if isinstance(found, Answer):
        assert code(found) == (413, "payload_too_large")
        return None
    found.close()
    return found.max_body_bytes


@pytest.mark.parametrize(("method", "path"), COMMANDS)
def test_only_a_write_has_a_large_body(method: str, path: str) -> None:
    """Any other body is parsed in one call on the event loop: its bytes are bounded before that, by
    what its head declares and as it comes. (§0.6, §2)"""
    desk = Desk(Limits(max_body_bytes=5000, max_command_bytes=1000))

    assert admitted_bytes(desk, method, path) == 1000
    assert admitted_bytes(desk, method, path, 1000) == 1000
    assert admitted_bytes(desk, method, path, 1001) is None

    assert admitted_bytes(desk, "POST", "/v0/topics/a", 5000) == 5000
    assert admitted_bytes(desk, "POST", "/v0/topics/a", 5001) is None


def test_no_body_is_larger_than_a_writes() -> None:
    """`TOPICS_MAX_BODY_BYTES` is the bound of all. (§2)"""
    desk = Desk(Limits(max_body_bytes=500, max_command_bytes=1000))

    assert admitted_bytes(desk, "POST", "/v0/watch") == 500
