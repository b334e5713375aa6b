"""A client that knows several nodes of one cluster: it asks one until that is away, and then the next."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import msgspec
import pytest

from topics.client import (
    AsyncClient,
    Client,
    NotReady,
    ServerFault,
    Throttled,
    TopicsError,
    Unreachable,
)
from topics.client.target import LOCAL_URL, parse_targets

from .jobs import Handled, Queue
from .script import ONE_TRY, appended, collect, error, ok, page
from .streams import Stream, Streams, records, session, short

A, B, C = "http://a.test", "http://b.test:4001", "http://c.test"
REFUSED = httpx.ConnectError("refused")
BROKEN = httpx.ReadError("broken")
SLOW = httpx.ReadTimeout("slow")


class Cluster:
    """Nodes by their hosts: what each answers, for ever, and who was asked."""

    def __init__(self, **nodes: Any) -> None:
        self.nodes = nodes
        self.asked: list[str] = []
        self.keys: list[str] = []
        self.pauses_s: list[float] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        node = request.url.host.partition(".")[0]
        self.asked.append(node)
        if request.content:
            self.keys.append(msgspec.json.decode(request.content).get("idempotency_key", ""))
        answer = self.nodes[node]
        if isinstance(answer, Exception):
            raise answer
        given = answer(request) if callable(answer) else answer
        return httpx.Response(given.status_code, headers=given.headers, content=given.content)


@pytest.fixture(params=[Client, AsyncClient])
def do(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Use a client of either face that knows the nodes of a cluster."""

    def do(cluster: Cluster, use: Callable[[Any], Any], **options: Any) -> Any:
        async def sleep(pause_s: float) -> None:
            cluster.pauses_s.append(pause_s)

        pause: Any = cluster.pauses_s.append if request.param is Client else sleep
        urls = [A, B, C][: len(cluster.nodes)]
        options = {"transport": httpx.MockTransport(cluster), "sleep": pause, **options}
        return collect(request.param(urls, **options), use)

    return do


def twice(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The same call, two times."""

    def use(client: Any) -> Any:
        if isinstance(client, Client):
            return [call(client), call(client)]

        async def both() -> Any:
            return [await call(client), await call(client)]

        return both()

    return use


AWAY: list[Any] = [REFUSED, BROKEN, SLOW, error(503, "not_ready"), error(502, "x"), error(504, "x")]


@pytest.mark.parametrize(
    "away", AWAY, ids=lambda a: type(a).__name__ + str(getattr(a, "status_code", ""))
)
def test_the_next_node_is_asked(do: Any, away: Any) -> None:
    """At once, under the same idempotency key; and from then on that one is. (§0.8)"""
    cluster = Cluster(a=away, b=appended(1, 1))

    do(cluster, twice(lambda c: c.append("jobs", 1, idempotency_key="k")))

    assert cluster.asked == ["a", "b", "b"]
    assert (cluster.keys, cluster.pauses_s) == (["k"] * 3, [])


def test_the_nodes_take_turns(do: Any) -> None:
    """Behind the last node comes the first one again; between two rounds there is a pause."""
    answers = iter([REFUSED, REFUSED, page(head_seq=0, cursor=0)])

    def first(_request: httpx.Request) -> Any:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    cluster = Cluster(a=first, b=error(503, "not_ready"), c=REFUSED)
    do(cluster, lambda c: c.diff("jobs"))

    assert cluster.asked == ["a", "b", "c", "a", "b", "c", "a"]
    assert len(cluster.pauses_s) == 2


@pytest.mark.parametrize(
    ("answer", "raised"), [(REFUSED, Unreachable), (error(503, "not_ready"), NotReady)]
)
def test_no_node_is_there(do: Any, answer: Any, raised: Any) -> None:
    """Each was asked once; the error is of the last one."""
    cluster = Cluster(a=error(503, "not_ready"), b=answer)

    with pytest.raises(raised):
        do(cluster, lambda c: c.diff("jobs"), retry=ONE_TRY)

    assert cluster.asked == ["a", "b"]


@pytest.mark.parametrize(
    ("answer", "raised"),
    [(error(429, "throttled"), Throttled), (error(500, "internal"), ServerFault)],
)
def test_an_answer_is_no_absence(do: Any, answer: Any, raised: Any) -> None:
    """What one node refuses, or fails at, is the cluster's answer."""
    cluster = Cluster(a=answer, b=appended(1, 1))

    with pytest.raises(raised):
        do(cluster, lambda c: c.append("jobs", 1), retry=ONE_TRY)

    assert cluster.asked == ["a"]


@pytest.mark.parametrize("away", [BROKEN, error(503, "not_leader", {"outcome": "unknown"}), error(504, "x")], ids=["broken", "503", "504"])  # fmt: skip
def test_what_may_have_happened_is_sent_to_no_other_node(do: Any, away: Any) -> None:
    """A call that could do its work twice raises, and the next call is for the next node. (§5)"""
    cluster = Cluster(a=away, b=ok({"topic": "t", "deleted": 1, "head_seq": 1, "earliest_seq": 1, "count": 0, "bytes": 0}))  # fmt: skip

    with pytest.raises(TopicsError):
        do(cluster, lambda c: c.delete("jobs", match="t"))
    assert cluster.asked == ["a"]

    cluster = Cluster(a=REFUSED, b=cluster.nodes["b"])
    assert do(cluster, lambda c: c.delete("jobs", match="t")).deleted == 1


def test_health_is_of_one_node(do: Any) -> None:
    """A refusal of it is its result; a node that is not there has none."""
    ready = ok({"status": "ready"})
    cluster = Cluster(a=error(503, "not_ready"), b=ready)
    with pytest.raises(NotReady):
        do(cluster, lambda c: c.ready())
    assert do(Cluster(a=REFUSED, b=ready), lambda c: c.ready()).status == "ready"


def test_a_worker_goes_on_at_another_node(do: Any) -> None:
    """Its lease ids are the cluster's. (§10.4)"""
    queue = Queue("a", "b")
    cluster = Cluster(a=queue, b=queue)

    def act(job: Any) -> None:
        if job.seq == 1:
            cluster.nodes["a"] = BROKEN

    assert do(cluster, Handled(act)) == 2
    assert queue.said == ["claim 1", "ack 1", "claim 1", "ack 2", "claim 0"]
    assert set(cluster.asked[cluster.asked.index("b") :]) == {"b"}


def test_a_watch_goes_on_at_another_node() -> None:
    """A stream that breaks is made again at the next node, by a session of its own, at the same position.
    (§7.6)"""
    given = Streams(
        session(jobs=0),
        Stream(records(1, 1), fault=BROKEN),
        error(404, "watch_not_found"),
        session("w2", jobs=1),
        Stream(records(2, 2)),
    )
    transport = httpx.MockTransport(given)
    with Client([A, B], transport=transport, sleep=lambda _s: None) as client:
        watch = iter(client.watch("jobs"))
        assert [short(next(watch)) for _ in range(2)] == ["jobs 1", "jobs 2"]

    asked = [f"{r.method} {r.url.host[0]}" for r in given.requests]
    assert asked == ["POST a", "GET a", "GET b", "POST b", "GET b"]


def test_what_is_told_of_retries(do: Any) -> None:
    """A hook hears each error that is not the last word, and the pause before the next attempt."""
    told: list[Any] = []
    answers = iter(
        [error(503, "not_ready", retry_after="2"), error(429, "throttled"), appended(1, 1)]
    )
    cluster = Cluster(a=lambda _request: next(answers))

    do(cluster, lambda c: c.append("jobs", 1), on_retry=lambda e, s: told.append((e.code, s)))

    assert told[0] == ("not_ready", 2.0)
    assert [code for code, _ in told] == ["not_ready", "throttled"]
    assert [pause_s for _, pause_s in told] == cluster.pauses_s


@pytest.mark.parametrize(
    ("given", "urls"),
    [
        ("http://a.test,http://b.test:4001", [A, B]),
        ("http://a.test , HTTPS://b.test/x", [A, "https://b.test/x"]),
        ("http://a.test,http://b.test:4001, ", [A, B]),
        ([A, B], [A, B]),
        ((A,), [A]),
        ("http://u:p,w@a.test", ["http://u:p,w@a.test"]),
    ],
)
def test_urls(given: Any, urls: list[str]) -> None:
    """A list, or a text with commas between; a comma within a URL is its own."""
    assert [target.url.rstrip("/") for target in targets(given)] == urls


@pytest.mark.parametrize("given", ["http://a.test:4000,b.test:4000", "a.test,b.test", ","])
def test_a_list_of_hosts_is_told_what_it_lacks(given: str) -> None:
    """As other systems take it: of several URLs, each has its scheme here."""
    with pytest.raises(ValueError, match="of several URLs each has its http:// or https://"):
        targets(given)


def test_urls_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `TOPICS_URL` has them; the server of this machine where it has none."""
    monkeypatch.setenv("TOPICS_URL", f"{A},{B}")
    assert len(targets(None)) == 2
    monkeypatch.setenv("TOPICS_URL", "")
    assert [target.url.rstrip("/") for target in targets(None)] == [LOCAL_URL]
    with pytest.raises(ValueError, match="needs the URL"):
        targets([])


def targets(given: Any) -> Any:
    return parse_targets(given, api_key=None, timeout_s=1, http2=False, compress=False)


def test_all_are_closed() -> None:
    """With the client; until then none is."""
    with Client([A, B]) as client:
        nodes: Any = client.session.connections
        assert not client.is_closed
    assert client.is_closed
    assert all(node.is_closed for node in nodes._nodes)

    async def story() -> None:
        async with AsyncClient([A, B]) as client:
            awaited: Any = client.session.connections
            assert not client.is_closed
        assert all(node.is_closed for node in awaited._nodes)

    asyncio.run(story())
