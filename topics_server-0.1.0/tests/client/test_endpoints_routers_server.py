"""Both faces keeping routers of a real engine, and the command line drawing them."""

import asyncio
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click.testing
import pytest

import topics.client
from bench.flights import Server
from topics.cli import main
from topics.client import Conflict, Record, RouterNotFound, TopicNotFound
from topics.testing import MemoryTopics

from .script import collect


@pytest.fixture(params=["sync", "async"])
def do(request: pytest.FixtureRequest, memory_topics: MemoryTopics) -> Callable[..., Any]:
    """Run a call with either face; an iterator's items as a list."""
    if request.param == "async":
        return lambda use: collect(memory_topics.async_client(), use)

    def do(use: Callable[[Any], Any]) -> Any:
        given = use(memory_topics.client)
        return list(given) if hasattr(given, "__next__") else given

    return do


def data(items: Any) -> list[Any]:
    return [item.data if isinstance(item, Record) else item.reason for item in items]


def test_what_is_forwarded(do: Any) -> None:
    """Copies of what comes from now on, filtered, with writer, tag and meta. (§6.1)"""
    do(lambda c: c.append("orders", "before"))
    put = do(lambda c: c.put_router("r", "orders", "eu", filter="eu.*", preserve_node=False))
    copy_of = do(lambda c: c.put_router("r", "orders", "eu", filter="eu.*", preserve_node=False))
    do(lambda c: c.append("orders", "a", tag="eu.x", node="w", meta={"m": 1}))
    do(lambda c: c.append("orders", "b", tag="us.x"))

    (copy,) = do(lambda c: c.read("eu", include_tags=True))
    router = do(lambda c: c.router("r"))

    assert (put.created, copy_of.created, put.filter) == (True, False, ("tag", "Glob", "eu.*"))
    assert (copy.seq, copy.data, copy.tag, copy.node, copy.meta) == (1, "a", "eu.x", None, {"m": 1})
    assert (router.forwarded_total, router.lag, router.cursor_seq) == (1, 0, 3)
    assert (router.blocked, router.loss, router.lost_total) == (None, None, 0)


def test_lists(do: Any) -> None:
    """All pages, by prefix, source and destination. (§6.3)"""
    for n in range(5):
        do(lambda c, n=n: c.put_router(f"r{n}", "a" if n < 3 else "b", f"d{n}"))

    def names(**options: Any) -> list[str]:
        return [router.router for router in do(lambda c: c.routers(page_size=2, **options))]

    assert names() == ["r0", "r1", "r2", "r3", "r4"]
    assert names(prefix="r4") == ["r4"]
    assert names(source="a") == ["r0", "r1", "r2"]
    assert names(source="b", dest="d3") == ["r3"]
    assert names(dest="d9") == []


def test_refusals(do: Any) -> None:
    """A ring, a second source, a destination that is not to be made, a name that is none. (§6)"""
    do(lambda c: c.put_router("r", "a", "b"))

    with pytest.raises(Conflict) as ring:
        do(lambda c: c.put_router("s", "b", "a"))
    with pytest.raises(Conflict) as second:
        do(lambda c: c.put_router("s", "c", "b"))
    with pytest.raises(TopicNotFound):
        do(lambda c: c.put_router("s", "a", "new", create_dest=False))
    with pytest.raises(RouterNotFound):
        do(lambda c: c.router("nothing"))

    assert ring.value.detail == {"cycle": ["b", "a", "b"]}
    assert second.value.detail["reason"] == "router_dest_fan_in"
    assert do(lambda c: c.put_router("s", "b", "a", allow_cycle=True)).allow_cycle


def test_a_destination_that_is_full(do: Any, memory_topics: MemoryTopics) -> None:
    """It holds the router up, which says so, and goes on when there is room. (§6.1)"""
    do(lambda c: c.put_topic("small", cap_records=1, discard="reject"))
    do(lambda c: c.put_router("r", "a", "small"))
    do(lambda c: c.append("a", 1, 2, 3))

    assert data(do(lambda c: c.read("small"))) == [1]
    router = do(lambda c: c.router("r"))
    (listed,) = do(lambda c: c.routers())
    assert (router.lag, router.blocked.code, router.blocked.retry_ms) == (2, "topic_full", 50)
    assert (listed.lag, listed.blocked) == (2, router.blocked)

    do(lambda c: c.put_topic("small"))
    memory_topics.advance(ms=5000)
    assert data(do(lambda c: c.read("small"))) == [1, 2, 3]
    assert do(lambda c: c.router("r")).blocked is None


def test_a_loss(do: Any, memory_topics: MemoryTopics) -> None:
    """What a cap took before it was forwarded is counted, and told where it is missing. (§6, §3.3)"""
    do(lambda c: c.put_topic("a", cap_records=2))
    do(lambda c: c.put_topic("small", cap_records=1, discard="reject"))
    do(lambda c: c.put_router("r", "a", "small"))
    do(lambda c: c.append("a", 1, 2))
    assert data(do(lambda c: c.read("small"))) == [1]

    do(lambda c: c.append("a", 3, 4))
    do(lambda c: c.put_topic("small"))
    memory_topics.advance(ms=5000)

    assert data(do(lambda c: c.read("small"))) == [1, "source_trim", 3, 4]
    router = do(lambda c: c.router("r"))
    assert (router.lost_total, router.loss.gap_from, router.loss.gap_to) == (1, 2, 2)
    assert (router.loss.reason, router.loss.ts_ms > 0) == ("cap", True)


def test_deletion(do: Any) -> None:
    """A router stops, its copies stay; with a topic its routers go. (§6.4, §1.4)"""
    do(lambda c: c.put_router("r", "a", "b"))
    do(lambda c: c.put_router("s", "a", "c"))
    do(lambda c: c.append("a", 1))

    assert do(lambda c: c.delete_router("r")).deleted is True
    assert do(lambda c: c.delete_router("r")).deleted is False
    do(lambda c: c.append("a", 2))

    assert data(do(lambda c: c.read("b"))) == [1]
    assert do(lambda c: c.delete_topic("a")).routers_removed == ["s"]
    assert do(lambda c: c.routers()) == []


def test_into_a_queue(do: Any) -> None:
    """What is forwarded into a queue is a job, that a worker waits for. (§6, §10)"""
    do(lambda c: c.put_topic("jobs", type="queue"))
    do(lambda c: c.put_router("r", "orders", "jobs", filter="paid.*"))
    do(lambda c: c.append("orders", "a", tag="paid.1"))
    do(lambda c: c.append("orders", "b", tag="open.1"))
    got: list[Any] = []

    def use(client: Any) -> Any:
        async def awaited(job: Any) -> None:
            got.append(job.data)

        is_blocking = isinstance(client, topics.client.Client)
        handler = (lambda job: got.append(job.data)) if is_blocking else awaited
        return client.work("jobs", handler, drain=True)

    assert do(use) == 1
    assert got == ["a"]


def test_a_worker_is_woken_by_a_router(memory_topics: MemoryTopics) -> None:
    """A claim that waits gets what is forwarded to its queue. (§6, §10.2)"""

    async def story() -> Any:
        async with memory_topics.async_client() as client:
            await client.put_topic("jobs", type="queue")
            await client.put_router("r", "orders", "jobs")
            waiting = asyncio.ensure_future(client.claim("jobs", node="w", wait_ms=30_000))
            while not memory_topics._shell.driver.parked:
                await asyncio.sleep(0)
            await client.append("orders", "a")
            return (await waiting).jobs

    (job,) = asyncio.run(story())
    assert job.data == "a"


def test_the_command_line(memory_topics: MemoryTopics, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real routers, as a table and drawn. (§6.3)"""
    client = memory_topics.client
    client.put_router("orders-audit", "orders", "audit", filter="eu.*")
    client.put_router("audit-orders", "audit", "orders", allow_cycle=True)
    client.append("orders", 1, tag="eu.1")
    client.read("audit")
    own = functools.partial(topics.client.Client, transport=client.session.connections.transport)
    monkeypatch.setattr(topics.client, "Client", own)

    table = click.testing.CliRunner().invoke(main, ["routers"]).stdout.splitlines()
    drawing = click.testing.CliRunner().invoke(main, ["routers", "--graph"]).stdout.splitlines()

    assert [line.split()[:3] for line in table[1:]] == [
        ["audit-orders", "audit", "orders"],
        ["orders-audit", "orders", "audit"],
    ]
    assert drawing == [
        "audit",
        "└── audit-orders -> orders",
        "    └── orders-audit -> audit  only eu.*  (a ring)",
    ]


def test_a_server_that_is_killed(tmp_path: Path) -> None:
    """Routers go on after a SIGKILL where they were: no copy is missing, none is there twice. (§6)"""
    server = Server(tmp_path)
    server.start()
    port = server.url.rpartition(":")[2]
    with server.client() as client:
        client.put_router("r", "a", "b", guarantee="exactly_once")
        client.append("a", *range(500))
        server.kill()
        server.start(port=port)
        client.append("a", *range(500, 600))

        copies = data(client.read("b"))
        router = client.router("r")
    server.end()

    assert copies == list(range(600))
    assert (router.forwarded_total, router.lag) == (600, 0)
