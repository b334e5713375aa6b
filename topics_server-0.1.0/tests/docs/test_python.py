"""The Python on the pages, each block in a program that has what it speaks of."""

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import httpx
import msgspec
import pytest

from bench.flights import Server
from topics import AsyncClient, Client, NewRecord, RawRecord, Record, Tombstone, TopicGone
from topics.testing import MemoryTopics

from .blocks import find, run_python


class Done(Exception):
    """A loop that goes on for ever has done what is to be seen."""


class Departure(msgspec.Struct):
    flight: int


@dataclass(frozen=True, slots=True)
class Program:
    """What a block needs, and what must be so afterwards.

    Attributes:
        given: What is done before; may give names.
        then: What is asserted, of the client and the block's names.
        instead: Words of the block, and what stands for them: an end for a loop that has none.
        cuts: Whether the block is for both clients, the part behind `async` for the other one.
    """

    given: Callable[[Client], dict[str, Any]] = lambda client: {}
    then: Callable[[Client, dict[str, Any]], bool] = lambda client, names: True
    instead: dict[str, str] = field(default_factory=dict)
    ends: bool = False


def jobs(client: Client, count: int = 3) -> dict[str, Any]:
    client.put_topic("jobs", type="queue")
    client.append("jobs", *({"url": f"s3://b/{n}.png"} for n in range(count)))
    return {}


def log(client: Client, name: str = "jobs") -> dict[str, Any]:
    client.append(name, *(NewRecord(n, tag=f"tenant42:{n}") for n in range(3)))
    return {}


def order_of(n: int) -> Any:
    return msgspec.defstruct("Order", [("id", int)])(n)


def watched(client: Client) -> dict[str, Any]:
    log(client)
    log(client, "audit")
    saved: list[str] = []

    def save(cursor: str) -> None:
        saved.append(cursor)
        raise Done

    return {"since_ms": 0, "save": save, "saved": saved}


def sent(client: Client) -> dict[str, Any]:
    producer = client.producer("jobs")
    return {"producer": producer}


def kept(client: Client) -> dict[str, Any]:
    client.append("jobs", 1)
    return {"made": []}


PROGRAMS = {
    ("client.md", 'client.append("jobs", 1)  '): Program(
        lambda client: {"values": [1, 2]},
        lambda client, names: client.topic("jobs").count == 1 + 3 + 1 + 2,
    ),
    ("client.md", "def convert(value)"): Program(
        then=lambda client, names: client.diff("jobs").records[0].data == {"price": "1.10"}
    ),
    ("client.md", 'client.append("orders", order, '): Program(
        lambda client: {"order": order_of(7), "orders": [order_of(8), order_of(9)]},
        lambda client, names: client.topic("orders").count == 3,
    ),
    ("client.md", "sent = producer.send"): Program(
        sent, lambda client, names: names["sent"].result() == client.topic("jobs").head_seq == 1
    ),
    ("client.md", 'for item in client.read("jobs", from_seq=cursor'): Program(
        lambda client: {**log(client), "cursor": 0, "since_ms": 0},
        lambda client, names: names["cursor"] == 3 and names["item"].data == 0,
        instead={"    ...": "    break"},
    ),
    ("client.md", 'page = client.page("jobs", from_seq=7000)'): Program(
        log, lambda client, names: names["page"].next_from_seq == 3, instead={"7000": "0"}
    ),
    ("client.md", 'client.read("flights", record_type'): Program(
        lambda client: {"made": client.append("flights", {"flight": 1})}
    ),
    ("client.md", 'client.append("copy", record.data'): Program(
        lambda client: {"record": SimpleNamespace(data={"price": Decimal("1.10")})},
        lambda client, names: bytes(
            next(iter(client.read("copy", record_type=RawRecord))).data
        ) == b'{"price":1.10}',
    ),
    ("client.md", 'for topic, item in client.watch("jobs", tail=True)'): Program(
        watched,
        lambda client, names: names["topic"] in ("jobs", "audit") and len(names["saved"]) == 1,
        # What is appended from now on does not come here, so the first loop begins earlier.
        instead={"    ...": "    break", "tail=True": "", "4096": "0"},
        ends=True,
    ),
    ("client.md", "def resize(job):"): Program(
        lambda client: {**jobs(client), "make_thumbnail": len},
        lambda client, names: client.topic("jobs").count == 0,
        instead={"concurrency=4": "concurrency=4, drain=True", '"w1"': '"w1", drain=True'},
    ),
    ("client.md", 'claimed = client.claim("jobs"'): Program(
        jobs, lambda client, names: client.topic("jobs").count == 2
    ),
    ("client.md", 'client.put_router("orders-audit"'): Program(
        lambda client: log(client, "orders"),
        lambda client, names: list(client.routers()) == [],
    ),
    ("client.md", 'client.put_topic("jobs", cap_records'): Program(
        lambda client: {"a": [log(client, "chat"), log(client, "orders")]},
        lambda client, names: {t.topic for t in client.topics()} == {"chat", "orders"},
    ),
    ("queues.md", "with Client() as client"): Program(
        lambda client: {"download": len},
        lambda client, names: client.topic("jobs").count == 0,
        instead={"concurrency=4": "concurrency=4, drain=True"},
    ),
    ("routers.md", 'client.put_router("orders-audit"'): Program(
        lambda client: log(client, "orders"),
        lambda client, names: len(list(client.routers(source="orders"))) == 2,
    ),
}  # fmt: skip
"""By page and first words."""


@pytest.mark.parametrize(("page", "first"), PROGRAMS)
def test_a_block_runs(server: Server, page: str, first: str) -> None:
    """As it stands, but for loops that would not end."""
    program = PROGRAMS[page, first]
    code = find(page, first).code
    for word, other in program.instead.items():
        assert word in code
        code = code.replace(word, other)
    with server.client() as client:
        names = {
            "client": client, "Client": Client, "NewRecord": NewRecord, "Record": Record,
            "RawRecord": RawRecord, "Tombstone": Tombstone, "TopicGone": TopicGone,
            "Departure": Departure, "msgspec": msgspec, "base64": base64,
            "Decimal": Decimal, "UUID": UUID, **program.given(client),
        }  # fmt: skip

        if program.ends:
            with pytest.raises(Done):
                run_python(code, names)
        else:
            run_python(code, names)

        assert program.then(client, names)


@pytest.mark.parametrize(
    ("first", "instead", "left"),
    [
        ('with client.producer("jobs") as producer', {"100_000": "100"}, 1),
        ("async def resize(job)", {"concurrency=16": "concurrency=16, drain=True",
                                   'work("jobs") as': 'work("jobs", drain=True) as'}, 0),
    ],
)  # fmt: skip
def test_a_block_of_the_asynchronous_client_runs(
    server: Server, first: str, instead: dict[str, str], left: int
) -> None:
    """Its part from `async` on."""
    code = find("client.md", first).code
    for word, other in instead.items():
        code = code.replace(word, other)
    begin = code.index("async ")
    with server.client() as client:
        jobs(client, 2 if left == 0 else 0) if left == 0 else None

        async def given() -> None: ...

        names: dict[str, Any] = {"URL": server.url, "AsyncClient": AsyncClient}
        inside = "".join(f"    {line}\n" for line in code[begin:].splitlines())
        run_python(f"async with AsyncClient(URL) as client:\n{inside}", names)

        assert client.topic("jobs").count == left


def test_clients_of_other_transports() -> None:
    """What stands for a server in a test."""
    code = find("client.md", 'client = Client("http://topics.test"').code
    told = {"status": "ok", "version": "1", "uptime_ms": 1}
    names = {
        "Client": Client, "AsyncClient": AsyncClient, "httpx": httpx, "app": None,
        "handler": lambda request: httpx.Response(200, json=told),
    }  # fmt: skip
    first, second = code.splitlines()

    assert run_python(first, dict(names))["client"].health().version == "1"
    assert isinstance(run_python(second, dict(names))["client"], AsyncClient)


def shown_in(page: str, first: str, **given: Any) -> Iterator[Callable[..., None]]:
    """The test functions that a block defines."""
    names = run_python(find(page, first).code, dict(given))
    yield from (each for name, each in names.items() if name.startswith("test_"))


@pytest.mark.parametrize(
    ("page", "first", "fixture"),
    [
        ("client.md", "def test_jobs_expire", True),
        ("testing.md", "from topics import Record", False),
        ("testing.md", "def test_my_consumer", True),
        ("testing.md", "def test_a_job_that_keeps", True),
    ],
)
def test_a_test_passes(page: str, first: str, fixture: bool) -> None:
    """Those that are shown as tests."""

    def fail(job: Any) -> None:
        raise ValueError("bad")

    consumer = SimpleNamespace(run_once=lambda client: client.topic("jobs"))
    (test,) = shown_in(page, first, my_consumer=consumer, my_handler=fail)

    with MemoryTopics() as memory_topics:
        test(*[memory_topics] * fixture)


@pytest.fixture
def lake(server: Server) -> dict[str, str]:
    """Words of `docs/arrow.md`, and what stands for them."""
    with server.client() as client:
        client.append("orders", NewRecord({"total": 1.5}, tag="eu"), NewRecord({"total": 2.5}))
    server.stop()  # a scan shows what is durable, which all is now
    server.start()
    return {"/var/lib/topics": str(server.data_dir), "http://127.0.0.1:4000": server.url}


@pytest.mark.parametrize(
    ("first", "libraries", "name", "count"),
    [
        ("import topics.arrow", (), "table", 2),
        ("from topics.arrow import scan", (), "batches", 2),
        ("import duckdb, polars", ("duckdb", "polars", "pandas"), "orders", 0),
    ],
)
def test_arrow(
    lake: dict[str, str], first: str, libraries: tuple[str, ...], name: str, count: int
) -> None:
    """A data directory read in place while its server runs; where the libraries are installed."""
    for library in libraries:
        pytest.importorskip(library)
    code = find("arrow.md", first).code
    for word, other in lake.items():
        code = code.replace(word, other)

    found = run_python(code, {})[name]

    rows = sum(len(each) for each in found) if name == "batches" else getattr(found, "num_rows", 0)
    assert rows == count


def test_json_of_a_socket_is_json() -> None:
    """The messages of `docs/watching.md` are those that the server takes. (§7.7)"""
    from topics.protocol.http import websocket
    from topics.protocol.model.limits import Limits

    for line in find("watching.md", '{"op": "subscribe"').code.splitlines():
        asked = websocket.parse(line.encode(), Limits())
        assert not isinstance(asked.order, Exception), line


def test_the_types_of_an_export_are_read() -> None:
    """The file that `--data-schema` takes."""
    from topics.export.schema_file import fields_of

    assert fields_of(json.loads(find("export.md", '{"id": "int64"').code)).names == [
        "id", "price", "at", "tags", "to",
    ]  # fmt: skip
