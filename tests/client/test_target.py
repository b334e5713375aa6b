"""The server that a client talks to, and what every request to it has."""

import gzip
import math
import socket
from typing import Any

import pytest

from topics.client import (
    AsyncClient,
    Client,
)
from topics.client.target import LOCAL_URL, parse_target

from .script import Script, appended, page


@pytest.mark.parametrize("url", ["localhost:4000", "topics", "", "ftp://x"])
def test_a_url_that_is_none(url: str) -> None:
    """A URL without scheme or host is refused where it is given."""
    with pytest.raises(ValueError, match="is not an http"):
        Client(url)


def test_headers_of_every_request(face: Any) -> None:
    """The key is a bearer token; bodies are JSON; compression is off unless asked for. (§0.2, §0.3)"""
    script = Script(appended(1, 1))

    face(script, api_key="k").do(lambda c: c.append("jobs", "x" * 5000))

    headers = script.requests[0].headers
    assert headers["authorization"] == "Bearer k"
    assert headers["content-type"] == "application/json"
    assert headers["accept-encoding"] == "identity"
    assert "content-encoding" not in headers


def test_compression(face: Any) -> None:
    """Asked for, a large body goes as gzip and a small one does not. (§0.3)"""
    script = Script(appended(1, 1), appended(2, 2))

    face(script, compress=True).do(lambda c: c.append("jobs", "x" * 5000, keyed=False))
    face(script, compress=True).do(lambda c: c.append("jobs", "y"))

    large, small = script.requests
    assert large.headers["accept-encoding"] == "gzip"
    assert large.headers["content-encoding"] == "gzip"
    assert gzip.decompress(large.content) == b'{"records":[{"data":"%b"}]}' % (b"x" * 5000)
    assert "content-encoding" not in small.headers


def test_a_long_poll_is_given_its_time(face: Any) -> None:
    """A read that waits 20 s on purpose is not taken for a server that hangs. (§3)"""
    script = Script(page(head_seq=0, cursor=0), page(head_seq=0, cursor=0))

    face(script, timeout_s=5).do(lambda c: c.diff("jobs", wait_ms=20_000))
    face(script, timeout_s=5).do(lambda c: c.diff("jobs", wait_ms=90_000))

    timeouts = [r.extensions["timeout"]["read"] for r in script.requests]
    assert timeouts == [25.0, 35.0]


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_timeouts(kind: Any) -> None:
    """A time of none or less is refused where it is given; one without end is one that no socket reaches."""
    for timeout_s in (0, -1, math.nan):
        with pytest.raises(ValueError, match=f"timeout_s is {timeout_s}, and not a number"):
            kind(LOCAL_URL, timeout_s=timeout_s)
    with socket.socket() as plain:
        plain.settimeout(kind(LOCAL_URL, timeout_s=math.inf).session.target.timeout_s)


def test_which_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the URL, else of `TOPICS_URL`, else the one that `topics serve` starts."""
    for kind in (Client, AsyncClient):
        monkeypatch.delenv("TOPICS_URL", raising=False)
        assert str(kind().session.target.url) == "http://127.0.0.1:4000"
        monkeypatch.setenv("TOPICS_URL", "http://env.test")
        assert str(kind().session.target.url) == "http://env.test"
        assert str(kind("http://own.test").session.target.url) == "http://own.test"
        monkeypatch.setenv("TOPICS_URL", "nonsense")
        with pytest.raises(ValueError, match="'nonsense' is not an http:// or https:// URL"):
            kind()


def test_a_key_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """`TOPICS_API_KEY`, unless the program names another; an empty one is none. (§0.2)"""

    def told(**options: Any) -> str | None:
        target = parse_target(LOCAL_URL, timeout_s=1, http2=False, compress=False, **options)
        return target.headers.get("authorization")

    monkeypatch.setenv("TOPICS_API_KEY", "from-environment")
    assert told(api_key=None) == "Bearer from-environment"
    assert told(api_key="own") == "Bearer own"
    monkeypatch.setenv("TOPICS_API_KEY", "")
    assert told(api_key=None) is None


def test_a_key_is_not_shown() -> None:
    """Neither by a target, nor by what holds one; they end in logs and tracebacks. (§0.2)"""
    for client in (Client(LOCAL_URL, api_key="hush-77"), AsyncClient(LOCAL_URL, api_key="hush-77")):
        for shown in (client, client.session, client.session.target):
            assert "hush" not in repr(shown)
