"""Reading a page of a thousand records, up to the buffers that the socket would get."""

from collections.abc import Iterator
from typing import Any

import pytest

from bench.conftest import NODES, built, fill
from bench.desk import NOTHING_SEALED, Desk, fetch
from bench.loads import delete, diff, put
from bench.test_append import answered, head_of
from topics.protocol.model.commands import Diff
from topics.protocol.model.outcomes import Page
from topics.protocol.model.records import Buffer
from topics.protocol.model.render import project

PAGE = b'{"from_seq":5000,"limit":1000}'
FILTERED = b'{"from_seq":5000,"limit":1000,"node":"%b"}' % NODES[3].encode()
MATCHED = b'{"from_seq":5000,"limit":100,"match":["tag","Glob","kind3.*"]}'
ONE_IN_TWENTY = b'{"match":["tag","Eq","kind3.odd"]}'
TAGS = b'{"from_seq":5000,"limit":1000,"include_tags":true}'


@pytest.fixture(scope="module")
def hot() -> Desk:
    desk = Desk.in_memory(NOTHING_SEALED)
    desk.run(put("t"))
    fill(desk, "t", 20_000)
    return desk


@pytest.fixture
def warm(sealed: Desk) -> Desk:
    """Sealed records whose pages are in memory and were verified before."""
    fetch(sealed.run(diff("sealed", PAGE)))
    return sealed


def select(desk: Desk, command: Diff) -> list[Buffer]:
    return fetch(desk.run(command))


def records_of(buffers: list[Buffer]) -> int:
    return sum(bytes(buffer).count(b'{"$seq":') for buffer in buffers)


def test_hot(benchmark: Any, goal: Any, hot: Desk) -> None:
    goal("diff, 1000 records from memory", "<= 15 us")

    buffers = benchmark(select, hot, diff("t", PAGE))

    assert records_of(buffers) == 1000


def test_sealed(benchmark: Any, goal: Any, warm: Desk) -> None:
    goal("diff, 1000 records from a warm segment", "<= 60 us")

    buffers = benchmark(select, warm, diff("sealed", PAGE))

    assert records_of(buffers) == 1000


def test_parse(benchmark: Any, goal: Any) -> None:
    goal("diff, parsing its body", "")

    assert benchmark(diff, "t", PAGE).limit == 1000


def test_node_filter_hot(benchmark: Any, goal: Any, hot: Desk) -> None:
    goal("diff, 1000 from memory, one node of ten left out", "")

    assert records_of(benchmark(select, hot, diff("t", FILTERED))) == 1000


def test_node_filter_sealed(benchmark: Any, goal: Any, warm: Desk) -> None:
    goal("diff, 1000 from a warm segment, one node of ten left out", "")

    assert records_of(benchmark(select, warm, diff("sealed", FILTERED))) == 1000


def test_match_sealed(benchmark: Any, goal: Any, warm: Desk) -> None:
    goal("diff, 100 from a warm segment by tag, one of ten", "")

    assert records_of(benchmark(select, warm, diff("sealed", MATCHED))) == 100


def with_tags(desk: Desk, body: bytes) -> list[Buffer]:
    """As the exchange projects what is not served as it lies."""
    outcome = desk.run(diff("t", body))
    assert isinstance(outcome, Page)
    records = outcome.records
    return [
        text
        for run, spans in records.extents
        for text in project(run, spans, run.read_blocking(spans), tags=True, meta=True, data=True)
    ]


def test_include_tags(benchmark: Any, goal: Any, hot: Desk) -> None:
    goal("diff, 1000 from memory with include_tags", "")

    assert b'"$tag"' in bytes(benchmark(with_tags, hot, TAGS)[0])


@pytest.fixture(scope="module")
def holed_hot() -> Desk:
    desk = Desk.in_memory(NOTHING_SEALED)
    desk.run(put("t"))
    fill(desk, "t", 20_000)
    desk.run(delete("t", ONE_IN_TWENTY))
    return desk


@pytest.fixture(scope="module")
def holed_warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """Sealed first, deleted from afterwards, the flags in the file."""
    desk = Desk.on_disk(built(tmp_path_factory.mktemp("holed") / "data", 20_000))
    desk.run(delete("sealed", ONE_IN_TWENTY))
    desk.sync()
    desk.store.flip()
    yield desk
    desk.stop()


def test_deleted_hot(benchmark: Any, goal: Any, holed_hot: Desk) -> None:
    goal("diff, 1000 from memory, 5 % deleted", "")

    assert records_of(benchmark(select, holed_hot, diff("t", PAGE))) == 1000


def test_deleted_sealed(benchmark: Any, goal: Any, holed_warm: Desk) -> None:
    goal("diff, 1000 from a warm segment, 5 % deleted", "")

    assert records_of(benchmark(select, holed_warm, diff("sealed", PAGE))) == 1000


def test_exchange_hot(benchmark: Any, goal: Any, hot: Desk) -> None:
    goal("diff, 1000 from memory, through the exchange", "")
    head = head_of(b"/v0/topics/t/diff", PAGE)

    assert benchmark(answered, hot, head, PAGE).status == 200


def test_exchange_sealed(benchmark: Any, goal: Any, warm: Desk) -> None:
    goal("diff, 1000 from a warm segment, through the exchange", "")
    head = head_of(b"/v0/topics/sealed/diff", PAGE)

    assert benchmark(answered, warm, head, PAGE).status == 200
