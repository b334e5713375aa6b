"""Tasks of taskiq as jobs: what is stored, what labels do, and what a worker acks."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from taskiq import AckableMessage, AsyncBroker, SimpleRetryMiddleware, SmartRetryMiddleware
from taskiq.acks import AcknowledgeType

from bench.flights import Server
from topics.client import AsyncClient, Client, Config, Retry
from topics.integrations.taskiq import TopicsBroker

from .working import WAIT_S, drained, started, until, working


def broker_of(url: str, namespace: str, **options: Any) -> TopicsBroker:
    return TopicsBroker(url, namespace=namespace, **options)


def test_tasks_are_run(url: str, namespace: str) -> None:
    """Every task that is sent is run, and then gone."""
    broker = broker_of(url, namespace)
    got: list[int] = []

    @broker.task
    async def put(number: int) -> None:
        got.append(number)

    async def story() -> None:
        async with started(broker):
            for number in range(20):
                await put.kiq(number)
            async with working(broker):
                await drained(broker)

    asyncio.run(story())
    assert sorted(got) == list(range(20))


def test_a_task_is_a_job_that_can_be_read(url: str, namespace: str) -> None:
    """The queue is a topic: a task is its JSON, its tag the task's name. (§10)"""
    broker = broker_of(url, namespace)
    put = broker.register_task(lambda number: None, task_name="put")

    async def story() -> None:
        async with started(broker):
            await put.kiq(5)

    asyncio.run(story())
    with Client(url) as client:
        (record,) = client.read(f"{namespace}:default", include_tags=True)
        config = client.topic(f"{namespace}:default").config
    assert (record.data["task_name"], record.data["args"], record.tag) == ("put", [5], "put")
    assert (config.discard, config.leases_durable) == ("reject", True)
    assert config.dead_letter == f"{namespace}:default:dead"


def test_labels_say_more_of_the_job(url: str, namespace: str) -> None:
    """A delay, a priority, a key that one task has at a time, and another queue. (§10)"""
    broker = broker_of(url, namespace)
    put = broker.register_task(lambda number: None, task_name="put")

    async def story() -> None:
        async with started(broker):
            await put.kicker().with_labels(delay=60, priority=7).kiq(1)
            await put.kicker().with_labels(unique="bill:acme").kiq(2)
            await put.kicker().with_labels(unique="bill:acme").kiq(3)
            await put.kicker().with_labels(queue_name="mail").kiq(4)

    asyncio.run(story())
    with Client(url) as client:
        delayed, ready = client.jobs(f"{namespace}:default")
        assert (delayed.state, delayed.priority) == ("delayed", 7)
        assert ready.state == "ready"
        assert client.topic(f"{namespace}:mail").count == 1


@pytest.mark.parametrize(
    "retries",
    [
        SimpleRetryMiddleware(default_retry_count=3),
        SmartRetryMiddleware(default_retry_count=3, default_delay=0.01, use_jitter=False),
    ],
)
def test_a_retry_is_a_task_of_its_own(url: str, namespace: str, retries: Any) -> None:
    """It is not held up by the key of the task before it, which is acked after it is sent."""
    broker = broker_of(url, namespace).with_middlewares(retries)
    calls: list[int] = []

    @broker.task(unique="once", retry_on_error=True)
    async def fail_twice() -> None:
        calls.append(1)
        if len(calls) < 3:
            raise ValueError("not yet")

    async def story() -> None:
        async with started(broker):
            await fail_twice.kiq()
            async with working(broker):
                await drained(broker)

    asyncio.run(story())
    assert len(calls) == 3


def test_a_lease_is_extended_while_the_task_runs(url: str, namespace: str) -> None:
    """A task stays the worker's for longer than its first lease. (§10.6)"""
    broker = broker_of(url, namespace, lease_ms=3000)
    calls: list[float] = []

    async def story() -> None:
        async with started(broker):
            go_on = asyncio.Event()

            @broker.task
            async def slow() -> None:
                calls.append(time.time())
                await go_on.wait()

            await slow.kiq()
            async with working(broker):

                async def is_extended() -> bool:
                    jobs = [job async for job in broker.client.jobs(broker.topic())]
                    held = [job for job in jobs if job.state == "leased"]
                    return bool(calls and held and held[0].deadline_ms > calls[0] * 1000 + 3500)

                await until(is_extended)
                go_on.set()
                await drained(broker)

    asyncio.run(story())
    assert len(calls) == 1


def test_a_shutdown_gives_back_what_was_not_acked(url: str, namespace: str) -> None:
    """Prefetched tasks, and tasks without an ack, are ready again at once. (§10.5)"""
    broker = broker_of(url, namespace, prefetch=3)
    put = broker.register_task(lambda number: None, task_name="put")

    async def story() -> None:
        async with started(broker):
            for number in range(3):
                await put.kiq(number)
            listening = broker.listen()
            first, second = await anext(listening), await anext(listening)
            await listening.aclose()
            await first.ack()
            assert second.data

    asyncio.run(story())
    with Client(url) as client:
        counts = client.topic(f"{namespace}:default").queue
    assert counts is not None
    assert (counts.ready, counts.in_flight) == (2, 0)


def test_the_worker_chooses_when_it_acks(url: str, namespace: str) -> None:
    """A task that is acked when it is received is not done again."""
    broker = broker_of(url, namespace)
    counts: list[int] = []

    @broker.task
    async def count() -> None:
        counts.append((await broker.client.topic(broker.topic(), touch=False)).count)

    async def story() -> None:
        async with started(broker):
            await count.kiq()
            async with working(broker, ack_time=AcknowledgeType.WHEN_RECEIVED):
                await drained(broker)
                await until(lambda: _now(counts))

    asyncio.run(story())
    assert counts == [0]


async def _now(value: object) -> object:
    return value


@pytest.mark.parametrize("dead_letter", [True, False])
def test_a_record_that_is_no_task_is_a_dead_letter(
    url: str, namespace: str, dead_letter: bool
) -> None:
    """The record does not stop the tasks after it; of a queue without dead letters it is dropped."""
    config: Config = {} if dead_letter else {"dead_letter": None}
    broker = broker_of(url, namespace, queue_config=config)
    put = broker.register_task(lambda: None, task_name="put")

    async def story() -> AckableMessage:
        async with started(broker):
            await broker.create_topics()
            await broker.client.append(broker.topic(), 5)
            await put.kiq()
            async with asyncio.timeout(WAIT_S):
                message = await anext(broker.listen())
            await message.ack()
            return message

    message = asyncio.run(story())

    assert b"put" in message.data
    with Client(url) as client:
        assert client.topic(f"{namespace}:default").count == 0
        if dead_letter:
            # It may be seen some moments after the job is gone.
            (dead,) = client.diff(f"{namespace}:default:dead", wait_ms=30_000).records
            assert dead.data == 5


def test_a_queue_that_is_deleted_comes_back(url: str, namespace: str) -> None:
    """A worker creates it anew and goes on."""
    broker = broker_of(url, namespace)
    put = broker.register_task(lambda number: None, task_name="put")

    async def story() -> bytes:
        async with started(broker), asyncio.timeout(WAIT_S):
            await put.kiq(1)
            listening = broker.listen()
            await (await anext(listening)).ack()
            await broker.client.delete_topic(broker.topic())
            coming = asyncio.ensure_future(anext(listening))

            async def is_back() -> bool:
                found = [t.topic async for t in broker.client.topics(prefix=namespace)]
                return broker.topic() in found

            await until(is_back)
            await put.kiq(2)
            message = await coming
            await message.ack()
            return message.data

    assert b'"args":[2]' in asyncio.run(story()).replace(b" ", b"")


def test_an_ack_waits_for_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A server that is away for longer than the client tries gets the ack when it is back; the job is
    not another worker's before."""
    monkeypatch.setattr("topics.integrations.taskiq.broker.PAUSE_S", 0.01)
    server = Server(tmp_path)
    server.start()

    async def story() -> int:
        client = AsyncClient(server.url, retry=Retry(for_s=0))
        async with client, started(TopicsBroker(client=client)) as broker, asyncio.timeout(WAIT_S):
            await broker.register_task(lambda: None, task_name="put").kiq()
            message = await anext(broker.listen())
            server.kill()
            acking = asyncio.ensure_future(message.ack())
            await until(lambda: _now("does not answer" in caplog.text))
            await asyncio.to_thread(server.start, server.url.rpartition(":")[2])
            await acking
            return (await broker.client.topic(broker.topic())).count

    try:
        assert asyncio.run(story()) == 0
    finally:
        server.end()


def test_an_ack_that_comes_too_late_changes_nothing(
    url: str, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The task is another worker's by then, or its queue was deleted. (§10.4)"""
    broker = broker_of(url, namespace, prefetch=2)
    put = broker.register_task(lambda: None, task_name="put")

    async def story() -> None:
        async with started(broker):
            await put.kiq()
            await put.kiq()
            listening = broker.listen()
            first, second = await anext(listening), await anext(listening)
            jobs = [job.seq async for job in broker.client.jobs(broker.topic())]
            await broker.client.purge(broker.topic())
            await first.ack()
            assert f"job {jobs[0]} of {namespace}:default ran out" in caplog.text
            await broker.client.delete_topic(broker.topic())
            await second.ack()
            assert f"job {jobs[1]} of {namespace}:default ran out" in caplog.text

    asyncio.run(story())


def test_a_broker_can_be_started_in_several_loops(url: str, namespace: str) -> None:
    """A module declares it before there is a loop; each has connections of its own."""
    broker = broker_of(url, namespace)
    put = broker.register_task(lambda number: None, task_name="put")

    async def story() -> None:
        async with started(broker):
            await put.kiq(1)

    asyncio.run(story())
    asyncio.run(story())

    with Client(url) as client:
        assert client.topic(f"{namespace}:default").count == 2
    assert isinstance(broker, AsyncBroker)
