"""Places with records, for the commands of `topics export`."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from arrow.writer import writer
from protocol.durable import Durable

from bench.flights import Server
from topics.arrow.local import LocalSource


@pytest.fixture
def engine(tmp_path: Path) -> Durable:
    """Topic `t` of twelve records of three tags."""
    engine = writer(tmp_path / "data")
    engine.append(*({"data": {"n": n}, "tag": "abc"[n % 3]} for n in range(12)))
    engine.store.idle()
    return engine


@pytest.fixture
def place(engine: Durable, tmp_path: Path) -> tuple[str, ...]:
    """The options that read it."""
    return ("--path", str(tmp_path / "data"))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path / "server")
    server.home.mkdir()
    server.start()
    with server.client() as client:
        client.append_many("t", [{"n": n} for n in range(3000)], batch_records=500)
    settled(server, "t", 3000)
    yield server
    server.end()


def settled(server: Server, topic: str, head: int) -> None:
    """Until a reader of the directory sees it: what was answered is durable a moment later."""
    with LocalSource(server.data_dir) as source:
        while topic not in source.topics() or source.bounds(topic).head_seq < head:
            source.refresh()


def where(server: Server, kind: str) -> list[str]:
    more = ["--path", str(server.data_dir)] if kind == "path" else []
    return ["--url", server.url, *more]
