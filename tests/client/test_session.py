"""A session chooses its connections, and they may be wrapped."""

from typing import Any

import httpx
import pytest

from topics.client import AsyncClient, Client, endpoints
from topics.client.aiopool import AsyncPool
from topics.client.aiopool_httpx import AsyncHttpxPool
from topics.client.call import Call
from topics.client.pool import Pool
from topics.client.pool_httpx import HttpxPool
from topics.client.target import PreparedRequest

from .jobs import Queue
from .script import URL, Script, appended, error, ok
from .streams import Stream, Streams, gone, records, session


@pytest.mark.parametrize(
    ("environ", "url", "options", "is_own"),
    [
        ({}, "http://a.example", {}, True),
        ({}, "https://a.example", {}, True),
        ({}, "https://a.example", {"http2": True}, False),
        ({"HTTP_PROXY": "http://p.example:1"}, "http://a.example", {}, False),
        ({"HTTP_PROXY": "http://p.example:1"}, "https://a.example", {}, True),
        ({"ALL_PROXY": "http://p.example:1"}, "https://a.example", {}, False),
        ({"HTTP_PROXY": "http://p.example:1", "NO_PROXY": "a.example"}, "http://a.example", {}, True),
    ],
    ids=str,
)  # fmt: skip
def test_what_needs_more_than_a_connection(
    environ: dict[str, str],
    url: str,
    options: dict[str, Any],
    is_own: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """httpx carries HTTP/2 and the environment's proxies; the pool of this package all the rest."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)

    with Client(url, **options) as client:
        assert type(client.session.connections) is (Pool if is_own else HttpxPool)
    kind: Any = AsyncPool if is_own else AsyncHttpxPool
    assert type(AsyncClient(url, **options).session.connections) is kind


class Noted:
    """Connections that note the path of each request."""

    def __init__(self, connections: Any) -> None:
        self.inner = connections
        self.paths: list[str] = []

    @property
    def is_closed(self) -> bool:
        return bool(self.inner.is_closed)

    def request(self, call: Call[Any], prepared: PreparedRequest) -> Any:
        self.paths.append(call.path)
        return self.inner.request(call, prepared)

    def stream(self, call: Call[Any], prepared: PreparedRequest) -> Any:
        self.paths.append(call.path)
        return self.inner.stream(call, prepared)

    def close(self) -> None:
        self.inner.close()


def test_everything_a_client_makes_shares_its_session() -> None:
    """Connections that a program wraps carry the calls of watches, producers and workers too."""
    queue = Queue("a")
    script = Streams(
        appended(1, 1),
        session(jobs=0),
        Stream(records(1, 1), gone()),
        *[queue] * 4,
    )
    with Client(URL, transport=httpx.MockTransport(script)) as client:
        noted = Noted(client.session.connections)
        client.session.connections = noted
        with client.producer("jobs") as producer:
            producer.send(1)
        assert [item.topic for item in client.watch("jobs")] == ["jobs", "jobs"]
        assert client.work("jobs", lambda _job: None, drain=True) == 1

    assert noted.paths == [
        "/v0/topics/jobs",
        "/v0/watch",
        "/v0/watch/w1",
        "/v0/topics/jobs",
        "/v0/topics/jobs/claim",
        "/v0/topics/jobs/ack",
        "/v0/topics/jobs/claim",
    ]


def test_one_attempt_and_many(face: Any) -> None:
    """`send` gives what came of one attempt; `do` repeats it, and gives the value. (§0.6)"""
    busy = error(503, "not_ready", retry_after="1")
    script = Script(busy, busy, ok({"max_topics": 7}))

    outcome = face(script).do(lambda c: c.session.send(endpoints.limits()))
    assert outcome.status_code == 503
    assert script.pauses_s == []

    assert face(script).do(lambda c: c.session.do(endpoints.limits())) == {"max_topics": 7}
    assert script.pauses_s == [1.0]
