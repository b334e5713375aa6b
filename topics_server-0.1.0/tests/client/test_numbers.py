"""Numbers that Python's float and int do not take, from a real server into both faces (§0.4)."""

import asyncio
from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import count
from typing import Any

import msgspec
import pytest

from bench.flights import Server
from topics.client import AsyncClient, Client, Record

from .script import collect

TEXTS = [b"1e400", b"9" * 5000, b'{"deep":[-1e400,1]}', b"1e" + b"9" * 30, b"7"]
VALUES = [
    Decimal("1e400"),
    Decimal("9" * 5000),
    {"deep": [Decimal("-1e400"), 1]},
    msgspec.Raw(b"1e" + b"9" * 30),
    7,
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"))
    server.start()
    yield server
    server.end()


@pytest.fixture(params=["sync", "async"])
def do(request: pytest.FixtureRequest, server: Server) -> Callable[..., Any]:
    """Run a call with either face."""
    face = Client if request.param == "sync" else AsyncClient
    return lambda use: collect(face(server.url), use)


_names = count()


@pytest.fixture
def name(server: Server) -> str:
    """A topic that has each of the numbers."""
    name = f"t{next(_names)}"
    with server.client() as client:
        client.append(name, *map(msgspec.Raw, TEXTS))
    return name


def test_pages_and_reads(do: Callable[..., Any], name: str) -> None:
    """No record stops a reader. (§3)"""
    page = do(lambda c: c.diff(name))
    read = do(lambda c: c.read(name))

    assert [record.data for record in page.records] == VALUES
    assert [record.data for record in read] == VALUES


def test_watches(server: Server, name: str) -> None:
    """Neither does one end a watch. (§7.5)"""
    with server.client() as client, client.watch(name) as watch:
        found = [next(watch).item for _ in VALUES]
    assert [item.data for item in found if isinstance(item, Record)] == VALUES

    async def watched() -> list[Any]:
        async with AsyncClient(server.url) as client, client.watch(name) as watch:
            return [(await anext(watch)).item for _ in VALUES]

    assert [item.data for item in asyncio.run(watched())] == VALUES


@pytest.fixture
def queue(server: Server) -> str:
    """A queue with each of the numbers as a job, and in its `meta`."""
    name = f"q{next(_names)}"
    with server.client() as client:
        client.put_topic(name, type="queue")
        for text in TEXTS:
            client.append(name, msgspec.Raw(text), meta=msgspec.Raw(b'{"m":%b}' % text))
    return name


def test_claims(do: Callable[..., Any], queue: str) -> None:
    """A job with such a number is no poison. (§10.2)"""
    claimed = do(lambda c: c.claim(queue, node="w", max=10))

    assert [job.data for job in claimed.jobs] == VALUES
    assert [job.meta for job in claimed.jobs] == [{"m": value} for value in VALUES]


@pytest.mark.parametrize("push", [False, True], ids=["claimed", "pushed"])
def test_workers(server: Server, queue: str, push: bool) -> None:
    """Each is handed out once and done, claimed or over a stream. (§10.8)"""
    with server.client() as client:
        done: list[Any] = []
        client.work(
            queue, lambda job: done.append(job.data), drain=not push, push=push, limit=len(VALUES)
        )
        assert done == VALUES
        assert client.topic(queue).count == 0


def test_workers_of_a_loop(server: Server, queue: str) -> None:
    """The same, awaited."""

    async def worked() -> list[Any]:
        done: list[Any] = []

        async def handle(job: Any) -> None:
            done.append(job.data)

        async with AsyncClient(server.url) as client:
            await client.work(queue, handle, drain=True)
        return done

    assert asyncio.run(worked()) == VALUES


def test_what_was_read_can_be_appended(do: Callable[..., Any], name: str) -> None:
    """Raw data always; a `Decimal` by a `default` that says how it is written. (§0.4)"""
    copy = f"copy-{name}"
    read = do(lambda c: c.diff(name))

    do(
        lambda c: c.append(
            copy,
            *[record.data for record in read.records],
            default=lambda number: msgspec.Raw(str(number).encode()),
        )
    )

    assert [record.data for record in do(lambda c: c.diff(copy)).records] == VALUES
