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


def sink(memory: MemoryTopics) -> Sink:
    given = write_options({"url": "http://h", "topic": "t"})
    return Sink(memory.client, given, "app", 3, find(memory.client, "spark.txn", "app"))


def mark(memory: MemoryTopics, *markers: Marker) -> None:
    client = memory.client
    put(client, "spark.txn", find(client, "spark.txn", "app"), markers)


def begin(memory: MemoryTopics) -> int:
    """Version 3 is begun; when that was."""
    mark(memory, Marker("app", 2, 3, topic="t", epoch=epoch(memory)))
    return memory.now_ms


def epoch(memory: MemoryTopics, name: str = "t") -> str:
    memory.client.put_topic(name)
    return memory.client.topic(name).epoch or ""


def datas(memory: MemoryTopics) -> list[Any]:
    return [record.data for record in memory.client.read("t")]


def test_sent_again_is_known_by_its_key(memory: MemoryTopics) -> None:
    """Within the topic's window: a task that is tried again appends what is missing. (§0.8)"""
    begin(memory)
    sink(memory).send(CHUNKS[:3], 0)
    memory.advance(ms=3_600_000)

    written = sink(memory).send(CHUNKS, 0)

    assert datas(memory) == list(range(40))
    assert (written.rows, written.deduped, written.heads) == ({"t": 40}, 30, {"t": 40})
    assert written.epochs == {"t": epoch(memory)}


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
                written.append(sink(memory).send([others.pop(0)], 0))

    begin(memory)
    others = list(CHUNKS)
    written.append(sink(memory).send(attempt(CHUNKS), 0))
    written.append(sink(memory).send(others, 0))

    assert sorted(datas(memory)) == list(range(40))
    assert sum(each.rows.get("t", 0) for each in written) == 80
    assert sum(each.deduped for each in written) == 40


def test_sent_again_later_is_known_by_its_stamp(memory: MemoryTopics) -> None:
    """Once keys are forgotten, too; chunks of other tasks, versions and applications are others."""
    began_ms = begin(memory)
    sink(memory).send([CHUNKS[0], CHUNKS[2]], 0)
    memory.advance(ms=2 * 86_400_000)
    assert stamps(memory.client, "t", "app", 3, began_ms) == {(0, "0-x"): 10, (0, "2-x"): 10}
    assert stamps(memory.client, "t", "app", 4, began_ms) == {}
    assert stamps(memory.client, "nowhere", "app", 3, began_ms) == {}

    written = sink(memory).send(CHUNKS, 0)
    assert sorted(datas(memory)) == list(range(40))
    assert written.deduped == 20
    sink(memory).send([CHUNKS[0]], 1)
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

    assert made.send(CHUNKS[:1], 0).rows == {"t": 10}
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


def test_a_copy_of_a_stamp_is_none(memory: MemoryTopics) -> None:
    """A router copies records with their meta: the chunk of another topic is not this topic's. (§6)"""
    begin(memory)
    memory.client.put_router("r", source="t", dest="u")
    sink(memory).send(CHUNKS, 0)
    assert stamps(memory.client, "t", "app", 3, 0) == {(0, f"{n}-x"): 10 for n in range(4)}
    assert stamps(memory.client, "u", "app", 3, 0) == {}
    # The stamps of earlier versions named no topic.
    old = {"_topics_spark": {"a": "app", "v": 3, "p": 7, "c": "old"}}
    memory.client.append("u", 1, meta=old)
    assert stamps(memory.client, "u", "app", 3, 0).keys() == {(7, "old")}


@pytest.mark.parametrize("days", [0, 2])
def test_a_query_that_was_changed_after_a_failure(memory: MemoryTopics, days: int) -> None:
    """Its blocks of seqs have the names that they had: one with more rows than were appended is appended
    as a whole, so that none is lost; fewer rows are known, as after a delete. (§0.8)"""
    begin(memory)
    sink(memory).send([Chunk("t", "b7", CHUNKS[0].rows[:4])], 0)
    memory.advance(ms=days * 86_400_000)
    assert sink(memory).send([Chunk("t", "b7", CHUNKS[0].rows[:3])], 0).deduped == 3

    for _ in range(2):
        sink(memory).send([Chunk("t", "b7", CHUNKS[0].rows)], 0)
    assert datas(memory) == [*range(4), *range(10)]


def known(memory: MemoryTopics) -> Known:
    return find(memory.client, "spark.txn", "app")


def dones(memory: MemoryTopics) -> dict[str | None, int]:
    return {topic: each.marker.done for topic, each in known(memory).placed.items()}


def test_the_newest_marker_counts(memory: MemoryTopics) -> None:
    """Of each application and topic its own, and those that it overtakes are deleted."""
    client = memory.client
    assert known(memory).placed == {}
    mark(memory, Marker("app", 1, 1, {"t": 9}, 10, "t"), Marker("app", 4, 4, topic="u"))
    put(client, "spark.txn", find(client, "spark.txn", "other"), [Marker("other", 7, 7)])
    mark(memory, Marker("app", 1, 2, topic="t"))
    mark(memory, Marker("app", 2, 2, topic="t"))

    assert dones(memory) == {"t": 2, "u": 4}
    assert find(client, "spark.txn", "other").whole == Marker("other", 7, 7)
    mark(memory, Marker("app", 5, 5, topic="u"))
    mark(memory, Marker("app", 6, 6, topic="u"))
    mark(memory, Marker("app", 3, 3, topic="t"))
    assert client.topic("spark.txn").count == 3
    client.append("spark.txn", {"app": 5}, tag="broken")
    with pytest.raises(SparkFailure, match='no marker of "broken"'):
        find(client, "spark.txn", "broken")


def test_an_idle_topic_keeps_no_heap_of_markers(memory: MemoryTopics) -> None:
    """Its marker is written anew, and is as old as it was."""
    mark(memory, Marker("app", 1, 1, topic="idle"), Marker("app", 0, 0, topic="t"))
    at_ms = memory.now_ms
    memory.advance(ms=1000)
    for version in range(1, 300):
        mark(memory, Marker("app", version, version, topic="t"))

    assert dones(memory) == {"idle": 1, "t": 299}
    assert known(memory).placed["idle"].at_ms == at_ms
    assert memory.client.topic("spark.txn").count < 70


def test_writers_to_two_topics_at_once(memory: MemoryTopics) -> None:
    """Whichever has read what before the other appended: no marker goes back."""
    client = memory.client
    mark(memory, Marker("app", 1, 1, topic="t"), Marker("app", 1, 1, topic="u"))
    for version in range(2, 200):
        both = known(memory)
        put(client, "spark.txn", both, [Marker("app", version, version, topic="t")])
        put(client, "spark.txn", both, [Marker("app", version, version, topic="u")])
        assert dones(memory) == {"t": version, "u": version}


def test_a_topic_that_was_made_anew_has_no_version(memory: MemoryTopics) -> None:
    """A marker is of an instance; that of a restored directory goes on. (§1.4)"""
    first = epoch(memory)
    mark(memory, Marker("app", 3, 3, topic="t", epoch=first))
    assert known(memory).standing("t", first, 3).is_done
    memory.client.delete_topic("t")
    assert not known(memory).standing("t", "", 3).is_done
    assert not known(memory).standing("t", epoch(memory), 3).is_done
    restored = f"restored-{first.rpartition('-')[2]}"
    assert known(memory).standing("t", restored, 3).is_done


def test_the_marker_of_an_earlier_version_of_topics(memory: MemoryTopics) -> None:
    """It was one an application. The topics that it names have its version; of others the stamps
    decide, so that what was skipped is written, and what is there is not written again."""
    client = memory.client
    begin_ms = memory.now_ms
    first = Sink(client, write_options({"url": "http://h", "topic": "t"}), "app", 3, None)
    first.send(CHUNKS[:2], 0)
    old = {"app": "app", "done": 3, "begun": 3, "topics": {"u": 9}, "rows": 40}
    client.append("spark.txn", old, tag="app")
    memory.advance(ms=2 * 86_400_000)

    assert known(memory).standing("u", epoch(memory, "u"), 3).is_done
    assert known(memory).standing("u", epoch(memory, "u"), 2).is_done
    assert not known(memory).standing("u", epoch(memory, "u"), 4).is_done
    assert known(memory).standing("t", epoch(memory), 3).since_ms < begin_ms
    written = sink(memory).send(CHUNKS, 0)
    assert sorted(datas(memory)) == list(range(40))
    assert written.deduped == 20
    mark(memory, Marker("app", 3, 3, topic="t", epoch=epoch(memory)))
    assert sink(memory).send(CHUNKS, 0).skipped == 40


def test_when_a_version_may_have_begun(memory: MemoryTopics) -> None:
    """What nothing tells is looked for among all records."""
    at = epoch(memory)
    mark(memory, Marker("app", 1, 5, topic="t", epoch=at))
    began_ms = memory.now_ms
    assert known(memory).standing("t", at, 5).since_ms == began_ms
    assert known(memory).standing("t", at, 4).since_ms == 0
    memory.advance(ms=1000)
    mark(memory, Marker("app", -1, 5))
    assert known(memory).standing("u", at, 5).since_ms == began_ms + 1000
    assert known(memory).standing("t", at, 5).since_ms == began_ms
    assert known(memory).standing("t", at, 6).since_ms == began_ms + 1000
