"""Slots of requests, long polls and streams: taken once, and given back at every end (§11)."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from topics.protocol.model.limits import Limits
from topics.server.http.exchange import TopicsExchange
from topics.server.http.interface import Answer, Head, Streaming
from topics.testing import START_MS, _Shell

ADDRESS = "192.0.2.1"
JSON = (b"content-type", b"application/json")
STREAM = (b"accept", b"text/event-stream")
POLL = {"from_seq": 0, "wait_ms": 1000}


class Desk:
    """An exchange over memory; every request comes from one address."""

    def __init__(self, **limits: int) -> None:
        self.shell = _Shell(Limits(**limits), START_MS)
        self.exchange = TopicsExchange(self.shell)
        self.do("PUT", "/v0/topics/t", {})
        self.do("PUT", "/v0/topics/q", {"type": "queue"})

    def begin(self, method: str, target: str, *headers: tuple[bytes, bytes]) -> Any:
        path, _, query = target.encode().partition(b"?")
        return self.exchange.begin(Head(method, path, query, headers or (JSON,), ADDRESS))

    def do(self, method: str, target: str, body: object = None, *headers: Any) -> Any:
        """A request up to its answer, its wait or its stream; not closed where it is admitted."""
        admitted = self.begin(method, target, *headers)
        if isinstance(admitted, Answer):
            return admitted
        sent = [json.dumps(body).encode()] if body is not None else []
        made = admitted.finish(sent)
        if isinstance(made, Answer):
            admitted.close()
            return made
        return admitted, made

    @property
    def held(self) -> tuple[int, int, int]:
        """(requests, long polls, streams) that are counted now."""
        streams = self.shell.engine.watches.connection_shares
        return self.exchange.slots.inflight.used, self.exchange.slots.polls.used, streams.used


def refusal(answer: Answer) -> dict[str, Any]:
    assert answer.status == 429
    detail: dict[str, Any] = json.loads(b"".join(answer.body))["error"]["detail"]
    return detail


@pytest.fixture
def desk() -> Desk:
    return Desk(max_inflight_per_ip=2, max_long_polls=1, max_sse_connections=1)


def test_a_request_is_counted_until_it_is_closed(desk: Desk) -> None:
    """From its head to its end, whatever comes of it; the next is 429. (§11)"""
    first, second = desk.begin("PUT", "/v0/topics/a"), desk.begin("GET", "/v0/topics")
    refused = desk.begin("GET", "/v0/topics")
    assert refusal(refused) == {"limit": "max_inflight_per_ip", "max": 2}
    assert dict(refused.headers)[b"retry-after"] == b"1"
    first.close()
    first.close()
    assert desk.held == (1, 0, 0)
    assert desk.do("GET", "/v0/topics").status == 200
    second.close()
    assert desk.held == (0, 0, 0)


@pytest.mark.parametrize("path", ["/v0/health", "/v0/ready", "/v0/metrics", "/v0/limits"])
def test_probes_are_not_counted(desk: Desk, path: str) -> None:
    """A client at its bound may still ask how the server is. (§8)"""
    held = [desk.begin("GET", "/v0/topics") for _ in range(2)]
    assert not isinstance(desk.begin("GET", path), Answer)
    for one in held:
        one.close()


REFUSED: list[tuple[str, str, Any, tuple[tuple[bytes, bytes], ...]]] = [
    ("POST", "/v0/topics/t", None, ((b"content-length", b"999999999999"),)),
    ("POST", "/v0/topics/t", None, ((b"content-type", b"text/plain"),)),
    ("POST", "/v0/topics/t", {"records": 1}, ()),
    ("POST", "/v0/topics/absent/diff", POLL, ()),
    ("GET", "/v0/watch/none", None, ()),
    ("GET", "/v0/watch/none", None, (STREAM,)),
    ("GET", "/v0/topics/t/work?node=n", None, (STREAM,)),
    ("GET", "/v0/ws", None, ()),
    ("GET", "/nowhere", None, ()),
]


@pytest.mark.parametrize(("method", "target", "body", "headers"), REFUSED)
def test_a_refusal_holds_nothing(
    desk: Desk, method: str, target: str, body: Any, headers: tuple[tuple[bytes, bytes], ...]
) -> None:
    """By its head, its body or the state."""
    assert desk.do(method, target, body, *headers).status >= 400
    assert desk.held == (0, 0, 0)


def finish_by_news(desk: Desk, pending: Any) -> None:
    desk.do("POST", "/v0/topics/t", {"records": [{"data": 1}]})


def finish_by_time(desk: Desk, pending: Any) -> None:
    desk.shell.advance(2000)


def finish_by_drain(desk: Desk, pending: Any) -> None:
    desk.shell.driver.drain()


def finish_by_delete(desk: Desk, pending: Any) -> None:
    desk.do("DELETE", "/v0/topics/t")


def leave(desk: Desk, pending: Any) -> None:
    pending.cancel()


@pytest.mark.parametrize(
    "end", [finish_by_news, finish_by_time, finish_by_drain, finish_by_delete, leave]
)
def test_a_long_poll_is_counted_until_it_ends(desk: Desk, end: Callable[[Desk, Any], None]) -> None:
    """By news, its time, a stop, its topic's end, its client's; a read that need not wait is none.
    (§11)"""
    told: list[Answer] = []
    admitted, pending = desk.do("POST", "/v0/topics/t/diff", POLL)
    pending.then(told.append)
    assert desk.held == (1, 1, 0)
    refused = desk.do("POST", "/v0/topics/t/diff", POLL)
    assert refusal(refused) == {"limit": "max_long_polls", "max": 1}
    assert desk.do("POST", "/v0/topics/t/diff", {}).status == 200

    end(desk, pending)
    assert len(told) == (end is not leave)
    admitted.close()
    assert desk.held == (0, 0, 0)


def test_a_claim_that_waits_is_a_long_poll(desk: Desk) -> None:
    """It parks as a read does. (§10.2)"""
    admitted, pending = desk.do("POST", "/v0/topics/q/claim", {"node": "n", "wait_ms": 1000})
    assert desk.held == (1, 1, 0)
    pending.cancel()
    admitted.close()
    assert desk.held == (0, 0, 0)


def test_a_stream_is_counted_as_a_stream_only() -> None:
    """Holding streams does not block ordinary requests of the same client. (§11)"""

    async def story() -> None:
        desk = Desk(max_inflight_per_ip=1, max_sse_connections=1)
        made = json.loads(b"".join(desk.do("POST", "/v0/watch", {"topics": {"t": {}}}).body))
        for target in (made["stream_url"], "/v0/topics/q/work?node=n"):
            for _ in range(2):
                admitted, streaming = desk.do("GET", target, None, STREAM)
                assert isinstance(streaming, Streaming)
                assert desk.held == (0, 0, 1)
                other = desk.do("GET", "/v0/topics/q/work?node=m", None, STREAM)
                assert refusal(other) == {"limit": "max_sse_connections", "max": 1}
                assert desk.do("GET", "/v0/topics").status == 200
                assert streaming.feed is not None
                streaming.feed.close()
                admitted.close()
                assert desk.held == (0, 0, 0)

    asyncio.run(story())


def test_a_websocket_is_a_stream() -> None:
    """From its handshake to its end. (§7.7, §11)"""

    async def story() -> None:
        desk = Desk(max_inflight_per_ip=1, max_sse_connections=1)
        head = Head("GET", b"/v0/ws", b"", (), ADDRESS)
        socket: Any = desk.exchange.connect(head)
        assert desk.held == (0, 0, 1)
        refused: Any = desk.exchange.connect(head)
        assert refusal(refused) == {"limit": "max_sse_connections", "max": 1}
        socket.close()
        assert desk.held == (0, 0, 0)

    asyncio.run(story())


def test_a_watch_session_counts_for_who_made_it() -> None:
    """A part of all is left for other clients; a stream counts for its session's maker. (§11)"""

    async def story() -> None:
        desk = Desk(max_watch_sessions=100, max_sse_connections_per_ip=1)
        made = [desk.do("POST", "/v0/watch", {"topics": {"t": {}}}) for _ in range(76)]
        assert [answer.status for answer in made] == [200] * 75 + [429]
        assert refusal(made[-1]) == {"limit": "max_watch_sessions", "max": 100, "reason": "share"}
        urls = [json.loads(b"".join(answer.body))["stream_url"] for answer in made[:2]]
        _, streaming = desk.do("GET", urls[0], None, STREAM)
        refused = desk.do("GET", urls[1], None, STREAM)
        assert refusal(refused) == {"limit": "max_sse_connections_per_ip", "max": 1}
        streaming.feed.close()

    asyncio.run(story())


# ---------------------------------------------------------------------- who is connected


def told(desk: Desk) -> list[tuple[str, dict[str, Any]]]:
    """The kind of each client, and what else is told of it but for its id and time."""
    answer = desk.do("GET", "/v0/clients")
    if not isinstance(answer, Answer):
        found: list[Answer] = []
        answer[1].then(found.append)
        answer[0].close()
        [answer] = found
    clients = json.loads(b"".join(answer.body))["clients"]
    for each in clients:
        assert each.pop("address") == ADDRESS
        del each["client"], each["since_ms"]
    return [(each.pop("kind"), each) for each in clients]


AGENT = (b"user-agent", b"probe/1 " + b"x" * 500)
PLACE = {"topic_count": 1, "lag": 0, "agent": ("probe/1 " + "x" * 500)[:200]}
WAITING: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("read", "/v0/topics/t/diff", POLL, {"topics": [{"topic": "t", "seq": 0, "lag": 0}]}),
    ("claim", "/v0/topics/q/claim", {"node": "n", "wait_ms": 1000}, {"node": "n"}),
]


@pytest.mark.parametrize(("kind", "target", "body", "also"), WAITING)
def test_a_request_that_waits_is_a_client(
    kind: str, target: str, body: Any, also: dict[str, Any]
) -> None:
    """Until it is over. (§8.9)"""
    desk = Desk()
    admitted, pending = desk.do("POST", target, body, JSON, AGENT)
    [(found, fields)] = told(desk)
    assert (found, fields["agent"]) == (kind, PLACE["agent"])
    assert fields.items() >= also.items()
    pending.cancel()
    admitted.close()
    assert told(desk) == []


def test_a_job_that_is_waited_for_has_a_client() -> None:
    """As long as it has not ended. (§10.9, §8.9)"""
    desk = Desk()
    desk.do("POST", "/v0/topics/q", {"records": [{"data": 1}]})
    admitted, pending = desk.do("GET", "/v0/topics/q/jobs/1?wait_ms=1000")
    assert [kind for kind, _ in told(desk)] == ["job"]
    pending.cancel()
    admitted.close()
    assert told(desk) == []


def test_a_request_that_is_answered_at_once_is_none() -> None:
    """A claim waits for its window and no longer; a read from a time has no place yet. (§8.9)"""
    desk = Desk()
    desk.do("PUT", "/v0/topics/window", {"type": "queue", "claim_jitter_ms": 50})
    desk.do("POST", "/v0/topics/window", {"records": [{"data": 1}]})
    admitted, _ = desk.do("POST", "/v0/topics/window/claim", {"node": "n"})
    assert told(desk) == []
    admitted.close()
    admitted, pending = desk.do("POST", "/v0/topics/t/diff", {"from_ts": 9**15, "wait_ms": 1000})
    assert told(desk)[0][1]["topics"] == [{"topic": "t"}]
    pending.cancel()
    admitted.close()


def test_streams_are_clients() -> None:
    """A watch, a worker and a WebSocket, until each is closed. (§8.9)"""

    async def story() -> None:
        desk = Desk()
        desk.do("POST", "/v0/topics/t", {"records": [{"data": 1}, {"data": 2}]})
        begin = {"topics": {"t": {"from_seq": 1}}}
        made = json.loads(b"".join(desk.do("POST", "/v0/watch", begin).body))
        admitted, watch = desk.do("GET", made["stream_url"], None, STREAM, AGENT)
        admitted.close()
        admitted, work = desk.do("GET", "/v0/topics/q/work?node=n", None, STREAM)
        admitted.close()
        socket: Any = desk.exchange.connect(Head("GET", b"/v0/ws", b"", (), ADDRESS))
        watching, working, talking = told(desk)
        assert watching == (
            "watch",
            PLACE | {"lag": 1, "topics": [{"topic": "t", "seq": 1, "lag": 1}]},
        )
        place = {"node": "n", "in_flight": 0, "topic_count": 1, "topics": [{"topic": "q"}]}
        assert working == ("work", place)
        assert talking == ("websocket", {"topic_count": 0, "topics": []})
        for feed in (watch.feed, work.feed, socket):
            feed.close()
        assert told(desk) == []

    asyncio.run(story())
