"""Chunks to a server: each once, under keys and without; what a version leaves behind."""

import random
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from topics import Client
from topics.client import Retry
from topics.spark import sink as sinks
from topics.spark.chunks import Chunk
from topics.spark.encoding import Row
from topics.spark.errors import SparkFailure
from topics.spark.options import write_options
from topics.spark.sink import Sink, Written, key_of, require_window
from topics.spark.transactions import Known, Marker, find, put, stamps
from topics.testing import MemoryTopics

CHUNKS = [
    Chunk("t", f"{n}-x", tuple(Row(b'{"data":%d' % (10 * n + k), None, "t") for k in range(10)))
    for n in range(4)
]


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryTopics]:
    with MemoryTopics() as memory:
        monkeypatch.setattr(sinks, "now_ms", lambda: memory.now_ms)
        yield memory


def sink(memory: MemoryTopics, since_ms: int | None = None, **options: str) -> Sink:
    given = write_options({"url": "http://h", "topic": "t", **options})
    return Sink(memory.client, given, "app", 3, since_ms)


def datas(memory: MemoryTopics) -> list[Any]:
    return [record.data for record in memory.client.read("t")]


def test_sent_again_is_known_by_its_key(memory: MemoryTopics) -> None:
    """Within the topic's window: a task that is tried again appends what is missing. (§0.8)"""
    began_ms = memory.now_ms
    sink(memory, began_ms).send(CHUNKS[:3], 0)
    memory.advance(ms=3_600_000)

    written = sink(memory, began_ms).send(CHUNKS, 0)

    assert datas(memory) == list(range(40))
    assert (written.rows, written.deduped, written.heads) == (40, 30, {"t": 40})


@pytest.mark.parametrize("seed", range(8))
def test_two_attempts_at_once(memory: MemoryTopics, seed: int) -> None:
    """A speculative duplicate of a task runs beside it: whichever of both appends a chunk first,
    it is there once. (§0.8)"""
    chance = random.Random(seed)
    written: list[Written] = []

    def attempt(chunks: list[Chunk]) -> Iterator[Chunk]:
        """The chunks; between two of them the other attempt may go on."""
        for chunk in chunks:
            yield chunk
            if others and chance.random() < 0.5:
                written.append(sink(memory, memory.now_ms).send([others.pop(0)], 0))

    others = list(CHUNKS)
    written.append(sink(memory, memory.now_ms).send(attempt(CHUNKS), 0))
    written.append(sink(memory, memory.now_ms).send(others, 0))

    assert sorted(datas(memory)) == list(range(40))
    assert sum(each.rows for each in written) == 80
    assert sum(each.deduped for each in written) == 40


def test_sent_again_later_is_known_by_its_stamp(memory: MemoryTopics) -> None:
    """Once keys are forgotten, too; chunks of other tasks, versions and applications are others."""
    began_ms = memory.now_ms
    sink(memory, began_ms).send([CHUNKS[0], CHUNKS[2]], 0)
    memory.advance(ms=2 * 86_400_000)
    assert stamps(memory.client, "t", "app", 3, began_ms) == {(0, "0-x"), (0, "2-x")}
    assert stamps(memory.client, "t", "app", 4, began_ms) == set()
    assert stamps(memory.client, "nowhere", "app", 3, began_ms) == set()

    written = sink(memory, began_ms).send(CHUNKS, 0)
    assert sorted(datas(memory)) == list(range(40))
    assert written.deduped == 20
    sink(memory, began_ms).send([CHUNKS[0]], 1)
    assert len(datas(memory)) == 50


def test_a_topic_remembers_keys_long_enough(memory: MemoryTopics) -> None:
    """Its other settings stay; one that remembers them longer is left alone."""
    memory.client.put_topic("t", cap_records=70, ttl_ms=9)
    require_window(memory.client, "t", 1000, is_needed=True)
    assert memory.client.topic("t").config.idempotency_window_ms == 120_000
    require_window(memory.client, "t", 200_000, is_needed=True)
    config = memory.client.topic("t").config
    assert (config.idempotency_window_ms, config.cap_records, config.ttl_ms) == (200_000, 70, 9)


def refusing(*answers: httpx.Response) -> Client:
    """A client of a server that gives these answers, the last one again and again."""
    left = list(answers)

    def answer(request: httpx.Request) -> httpx.Response:
        return left.pop(0) if len(left) > 1 else left[0]

    transport = httpx.MockTransport(answer)
    return Client("http://h", transport=transport, retry=Retry(for_s=30), sleep=slept.append)


slept: list[float] = []
FORBIDDEN = httpx.Response(403, json={"error": {"code": "forbidden", "message": "no admin"}})
STATE = {"topic": "t", "head_seq": 0, "next_seq": 1, "earliest_seq": 1, "count": 0, "bytes": 0}


def test_a_key_that_may_not_set_the_window() -> None:
    """An error that says what to do, where a replay would depend on it."""
    state = httpx.Response(200, json={**STATE, "config": {"idempotency_window_ms": 5}})
    with pytest.raises(SparkFailure, match="lower the option minIdempotencyWindow"):
        require_window(refusing(state, state, FORBIDDEN), "t", 1000, is_needed=True)
    require_window(refusing(state, state, FORBIDDEN), "t", 1000, is_needed=False)


def test_a_busy_server_is_waited_for() -> None:
    """As long as it asks for, and the chunk arrives once."""
    slept.clear()
    state = httpx.Response(200, json={**STATE, "config": {"idempotency_window_ms": 10**9}})
    error = {"error": {"code": "throttled", "message": "busy"}}
    busy = httpx.Response(429, headers={"retry-after": "7"}, json=error)
    there = httpx.Response(200, json={"topic": "t", "first_seq": 1, "last_seq": 10, "head_seq": 10})
    made = Sink(
        refusing(state, busy, busy, there),
        write_options({"url": "http://h", "topic": "t"}),
        "a",
        1,
        None,
    )

    assert made.send(CHUNKS[:1], 0).rows == 10
    assert [round(pause) for pause in slept] == [7, 7]


def test_too_large_says_which_option() -> None:
    """The server's bound is lower than the option."""
    state = httpx.Response(200, json={**STATE, "config": {"idempotency_window_ms": 10**9}})
    large = httpx.Response(400, json={"error": {"code": "batch_too_large", "message": "10 > 5"}})
    made = Sink(
        refusing(state, large), write_options({"url": "http://h", "topic": "t"}), "a", 1, None
    )
    with pytest.raises(SparkFailure, match="lower the option chunkRecords"):
        made.send(CHUNKS[:1], 0)


def test_keys_fit() -> None:
    """A long one is a digest of itself; others can be read by a person. (§0.8)"""
    assert key_of("app", 3, 1, "b7") == "spark:app:3:1:b7"
    long = key_of("a" * 128, 3, 1, "n" * 200)
    assert len(long) <= 256
    assert long != key_of("a" * 128, 3, 2, "n" * 200)


def test_the_newest_marker_counts(memory: MemoryTopics) -> None:
    """Of each application its own, and the older ones are deleted."""
    client = memory.client
    assert find(client, "spark.txn", "app") is None
    put(client, "spark.txn", Marker("app", 1, 1, {"t": 9}, 10))
    put(client, "spark.txn", Marker("other", 7, 7))
    put(client, "spark.txn", Marker("app", 1, 2))
    put(client, "spark.txn", Marker("app", 1, 2))

    assert find(client, "spark.txn", "app") == Known(Marker("app", 1, 2), memory.now_ms)
    assert find(client, "spark.txn", "other") == Known(Marker("other", 7, 7), memory.now_ms)
    assert client.topic("spark.txn").count == 2
    client.append("spark.txn", {"app": 5}, tag="broken")
    with pytest.raises(SparkFailure, match='no marker of "broken"'):
        find(client, "spark.txn", "broken")
