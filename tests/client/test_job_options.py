"""Options of jobs, and of a queue's order, from the client to a worker's hand (§2, §10)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from topics.client import (
    Appended,
    AsyncClient,
    Backoff,
    Client,
    InvalidRequest,
    Job,
    NewRecord,
    Rate,
    Unique,
    WorkOptions,
)
from topics.client.models import Claimed
from topics.client.retry import Clock, Retry
from topics.client.worker_state import WorkerState
from topics.testing import MemoryTopics

EVERY: dict[str, Any] = {
    "delay_ms": 1000,
    "priority": 7,
    "expires_ms": 60_000,
    "group": "acme",
    "unique": Unique("k", on_conflict="replace", for_ms=5000),
}


def queue(memory: MemoryTopics, **config: Any) -> Client:
    memory.client.put_topic("q", type="queue", **config)
    return memory.client


def claimed(client: Client, most: int = 9) -> list[Any]:
    return [job.data for job in client.claim("q", node="w", max=most).jobs]


def asynchronously(memory: MemoryTopics, use: Callable[[AsyncClient], Awaitable[Any]]) -> Any:
    async def story() -> Any:
        async with memory.async_client() as client:
            return await use(client)

    return asyncio.run(story())


def require_every_option(memory: MemoryTopics, append: Callable[[Any], object]) -> None:
    """One job has them all: it waits, is shown, gives way, and ends."""
    client = queue(memory)
    append("a")
    assert claimed(client) == []
    append("b")
    counts = client.topic("q").queue
    assert counts is not None
    assert (counts.delayed, counts.ready) == (1, 0)
    memory.advance(ms=1000)
    [job] = client.claim("q", node="w").jobs
    assert (job.data, job.priority, job.group) == ("b", 7, "acme")
    client.ack("q", job, node="w")

    memory.advance(ms=3999)
    again = client.append("q", "c", unique="k")
    assert (again.unique, list(again.seqs)) == ([2], [2])
    memory.advance(ms=1)
    append("d")
    memory.advance(ms=1000 + 60_000)
    assert claimed(client) == []
    counts = client.topic("q").queue
    assert counts is not None
    assert (counts.expired, counts.ready, counts.delayed) == (1, 0, 0)


def by_values(client: Client) -> Callable[[Any], object]:
    return lambda value: client.append("q", value, **EVERY)


def by_records(client: Client) -> Callable[[Any], object]:
    return lambda value: client.append("q", NewRecord(value, **EVERY))


def by_many(client: Client) -> Callable[[Any], object]:
    return lambda value: client.append_many("q", [NewRecord(value, **EVERY)])


def by_producer(client: Client) -> Callable[[Any], object]:
    def append(value: Any) -> None:
        with client.producer("q") as producer:
            producer.send(value, **EVERY)

    return append


@pytest.mark.parametrize("way", [by_values, by_records, by_many, by_producer])
def test_every_option_by_every_call(
    memory_topics: MemoryTopics, way: Callable[[Client], Callable[[Any], object]]
) -> None:
    """(§2, §10)"""
    require_every_option(memory_topics, way(memory_topics.client))


@pytest.mark.parametrize("way", ["append", "append_many", "producer"])
def test_every_option_by_every_awaited_call(memory_topics: MemoryTopics, way: str) -> None:
    """(§2, §10)"""

    async def send(client: AsyncClient, value: Any) -> None:
        if way == "append":
            await client.append("q", value, **EVERY)
        elif way == "append_many":
            await client.append_many("q", [NewRecord(value, **EVERY)])
        else:
            async with client.producer("q") as producer:
                await producer.send(value, **EVERY)

    require_every_option(
        memory_topics,
        lambda value: asynchronously(memory_topics, lambda client: send(client, value)),
    )


def test_a_time_instead_of_a_delay(memory_topics: MemoryTopics) -> None:
    """And not both. (§2)"""
    client = queue(memory_topics)
    client.append("q", 1, not_before=memory_topics.now_ms + 500)
    assert claimed(client) == []
    memory_topics.advance(ms=500)
    assert claimed(client) == [1]
    with pytest.raises(InvalidRequest, match="exclude each other"):
        client.append("q", 1, delay_ms=1, not_before=1)


def test_options_are_for_bare_values_and_for_queues(memory_topics: MemoryTopics) -> None:
    """A record has its own; a log refuses them. (§2)"""
    client = queue(memory_topics)
    client.append("q", "bare", NewRecord("own", priority=9), "bare", priority=1)
    jobs = client.claim("q", node="w", max=3).jobs
    assert [(job.data, job.priority) for job in jobs] == [("own", 9), ("bare", 1), ("bare", 1)]
    with pytest.raises(InvalidRequest, match="is a log"):
        client.append("log", 1, priority=1)
    misspelled: dict[str, Any] = {"prioritty": 1}
    with pytest.raises(TypeError, match="'prioritty'"):
        client.append("q", 1, **misspelled)
    with client.producer("q") as producer, pytest.raises(TypeError, match="'prioritty'"):
        producer.send(1, **misspelled)


def test_seqs_are_those_of_the_jobs_that_stand_for_the_records(
    memory_topics: MemoryTopics,
) -> None:
    """Also where the answer of an append names no list otherwise. (§2)"""
    client = queue(memory_topics)
    first = client.append("q", "a", unique="k")
    assert (list(first.seqs), first.unique, first.replaced) == ([1], [], [])
    mixed = client.append("q", "b", NewRecord("c", unique="k"), "d")
    assert (mixed.count, list(mixed.seqs), mixed.unique) == (3, [2, 1, 3], [1])
    assert (mixed.first_seq, mixed.last_seq) == (2, 3)
    hit = client.append("q", "e", unique="k")
    assert (hit.count, list(hit.seqs), hit.first_seq, hit.last_seq) == (1, [1], 1, 1)
    newer = client.append("q", "f", unique=Unique("k", on_conflict="replace"))
    assert (list(newer.seqs), newer.replaced) == ([4], [1])


def test_a_retry_is_told_the_same(memory_topics: MemoryTopics) -> None:
    """The key remembers which records made no job. (§0.8)"""
    client = queue(memory_topics)
    client.append("q", "a", unique="k")
    records = [NewRecord("b"), NewRecord("c", unique="k")]
    first, again = (client.append("q", *records, idempotency_key="i") for _ in range(2))
    assert (list(first.seqs), first.unique, first.deduped) == ([2, 1], [1], False)
    assert (list(again.seqs), again.unique, again.deduped) == ([2, 1], [1], True)


def test_many_records_count_those_that_made_no_job(memory_topics: MemoryTopics) -> None:
    """The span is of what was appended. (§2)"""
    client = queue(memory_topics)
    client.append("q", "first", unique="k")
    seen: list[Appended] = []
    keep, replace = Unique("k"), Unique("k", on_conflict="replace")
    records = [
        *(NewRecord(1, unique=keep), NewRecord(2)),
        *(NewRecord(3, unique=keep), NewRecord(4, unique=keep)),
        *(NewRecord(5, unique=replace), NewRecord(6)),
    ]
    total = client.append_many("q", records, batch_records=2, progress=seen.append)
    assert [list(each.seqs) for each in seen] == [[1, 2], [1, 1], [3, 4]]
    assert (total.records, total.unique, total.replaced) == (6, 3, 1)
    assert (total.first_seq, total.last_seq) == (2, 4)

    again = client.append_many("q", [NewRecord(7, unique=keep)])
    assert (again.records, again.unique, again.first_seq, again.last_seq) == (1, 1, 0, 0)


def test_a_producer_gives_the_seq_of_the_job_that_was_there(memory_topics: MemoryTopics) -> None:
    """(§2)"""
    client = queue(memory_topics)
    client.append("q", "a", unique="k")
    with client.producer("q") as producer:
        sent = [producer.send("b"), producer.send("c", unique="k"), producer.send("d")]
    assert [each.result() for each in sent] == [2, 1, 3]


CONFIG: dict[str, Any] = {
    "order": "group",
    "fair": True,
    "rate": Rate(max=2, per_ms=1000),
    "max_in_flight": 5,
    "group_max_in_flight": 1,
    "backoff": Backoff(base_ms=100, factor=3, max_ms=5000, jitter=0.5),
}


def test_a_queue_s_order_is_configured_and_kept(memory_topics: MemoryTopics) -> None:
    """A change of one field keeps the others; null takes one away. (§0.10)"""
    client = memory_topics.client
    made = client.put_topic("q", type="queue", **CONFIG).config
    assert {name: getattr(made, name) for name in CONFIG} == CONFIG
    changed = client.configure_topic("q", lease_ms=5000, rate={"max": 9, "per_ms": 60_000}).config
    assert changed.rate == Rate(max=9, per_ms=60_000)
    assert {name: getattr(changed, name) for name in CONFIG} == {**CONFIG, "rate": changed.rate}
    bare = client.configure_topic("q", **dict.fromkeys(CONFIG)).config
    assert {name: getattr(bare, name) for name in CONFIG} == dict.fromkeys(CONFIG)
    by_default = client.configure_topic("q", backoff={"base_ms": 100}).config.backoff
    assert by_default == Backoff(base_ms=100)


def test_a_claim_says_what_it_waits_for(memory_topics: MemoryTopics) -> None:
    """Blocked jobs are ready, and are counted. (§10.2)"""
    client = queue(memory_topics, order="group", max_in_flight=2)
    client.append("q", 1, 2, group="a")
    client.append("q", 3, 4, group="b")
    first = client.claim("q", node="w", max=1)
    assert ([job.group for job in first.jobs], first.waits) == (["a"], None)
    second = client.claim("q", node="w", max=2)
    assert (second.count, second.ready, second.waits) == (1, 2, "in_flight")
    counts = client.topic("q").queue
    assert counts is not None
    assert (counts.ready, counts.in_flight, counts.blocked) == (2, 2, 2)
    client.configure_topic("q", max_in_flight=None)
    assert client.claim("q", node="w").waits == "group"


def test_a_worker_s_job_has_its_options(memory_topics: MemoryTopics) -> None:
    """Claimed, or pushed. (§10.2, §10.8)"""
    client = queue(memory_topics)
    client.append("q", 1, priority=3, group="g")
    client.append("q", 2)
    seen: list[Any] = []
    client.work("q", lambda job: seen.append((job.data, job.priority, job.group)), drain=True)
    assert seen == [(1, 3, "g"), (2, 0, None)]


def test_a_nack_without_a_delay_is_the_queue_s_affair(memory_topics: MemoryTopics) -> None:
    """With one, that counts; without a backoff the job comes at once. (§10.5)"""
    client = queue(memory_topics, backoff={"base_ms": 5000})
    client.append("q", 1)

    def claim() -> list[Any]:
        return list(client.claim("q", node="w").jobs)

    client.nack("q", claim(), node="w")
    assert claim() == []
    memory_topics.advance(ms=5000)
    client.nack("q", claim(), node="w", delay_ms=0)
    client.configure_topic("q", backoff=None)
    client.nack("q", claim(), node="w")
    assert len(claim()) == 1


def fail(_job: object) -> None:
    raise ValueError("not this one")


def quiet(_job: object, _error: Exception) -> None:
    """The failure is meant."""


@pytest.mark.parametrize(
    ("options", "rests_ms"),
    [({}, 7000), ({"lease_ms": 30_000}, 7000), ({"first_delay_ms": 300}, 300)],
    ids=str,
)
def test_a_worker_without_delays_leaves_them_to_the_queue(
    memory_topics: MemoryTopics, options: WorkOptions, rests_ms: int
) -> None:
    """Where the queue has a `backoff`. (§10.5)"""
    client = queue(memory_topics, backoff={"base_ms": 7000})
    client.append("q", 1)
    client.work("q", fail, on_error=quiet, limit=1, **options)
    memory_topics.advance(ms=rests_ms - 1)
    assert claimed(client) == []
    memory_topics.advance(ms=1)
    assert claimed(client) == [1]


def test_an_awaited_worker_leaves_them_to_the_queue_too(memory_topics: MemoryTopics) -> None:
    """(§10.5)"""
    client = queue(memory_topics, backoff={"base_ms": 7000})
    client.append("q", 1)

    async def fail(_job: object) -> None:
        raise ValueError("not this one")

    asynchronously(memory_topics, lambda c: c.work("q", fail, on_error=quiet, limit=1))
    memory_topics.advance(ms=6999)
    assert claimed(client) == []
    memory_topics.advance(ms=1)
    assert claimed(client) == [1]


def test_a_queue_whose_jobs_wait_for_its_rate_is_not_drained() -> None:
    """Ready jobs are there, though a claim gets none, and the next one pauses; what waits for its group is left to who holds that. (§10.2)"""
    clock = Clock(lambda: 0.0, lambda: 0.0)
    state = WorkerState("q", Job[Any], retry=Retry(), clock=clock, drain=True)
    claim = state.claim(waits=False)
    assert claim is not None

    def answer(ready: int, waits: str | None) -> Claimed[Job[Any]]:
        return Claimed(topic="q", jobs=[], ready=ready, waits=waits)

    first_s, next_s = [state.claimed(claim, answer(3, why)) for why in ("rate", "in_flight")]
    assert first_s is not None
    assert next_s is not None
    assert next_s > first_s > 0
    assert state.claimed(claim, answer(3, "group")) is None
    assert state.claimed(claim, answer(0, None)) is None
