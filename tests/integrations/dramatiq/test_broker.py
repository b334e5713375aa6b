"""Messages of dramatiq as jobs: what is stored, when it is claimed, and what becomes of it."""

import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import dramatiq
import pytest
from dramatiq import Message
from dramatiq.errors import ConnectionClosed, QueueJoinTimeout, QueueNotFound

from bench.flights import Server
from topics.client import Client, Retry
from topics.integrations.dramatiq import TopicsBroker
from topics.testing import MemoryTopics

from ..processes import until

WAIT_S = 100


def dead_letters(broker: TopicsBroker) -> list[Any]:
    """The dead letters of the queue, once there are any: they may be seen some moments after the message is gone."""
    topic = broker.topic("default.XQ")
    found = broker.client.diff(topic, wait_ms=30_000)
    assert found.records
    return found.records


def test_actors_are_called(broker: TopicsBroker, working: Callable[..., Any]) -> None:
    """Every message that is sent is processed, and then gone."""
    got: list[int] = []

    @dramatiq.actor
    def put(number: int) -> None:
        got.append(number)

    for number in range(20):
        put.send(number)
    with working(broker):
        broker.join("default", timeout=WAIT_S * 1000)

    assert sorted(got) == list(range(20))


def test_a_message_is_a_job_that_can_be_read(broker: TopicsBroker, namespace: str) -> None:
    """The queue is a topic: a message is its JSON, its tag the actor, its priority the actor's negated. (§10)"""

    @dramatiq.actor(queue_name="mail", priority=5)
    def send(to: str) -> None: ...

    message = send.send("ada")

    (record,) = broker.client.read(f"{namespace}:mail", include_tags=True)
    assert record.data == {**message.asdict(), "args": ["ada"]}
    assert record.tag == "send"
    (job,) = broker.client.jobs(f"{namespace}:mail")
    assert (job.state, job.priority) == ("ready", -5)


@pytest.mark.parametrize(
    ("options", "sent", "priority"),
    [
        ({}, {}, 0),
        ({"priority": 3}, {}, -3),
        ({"priority": 1000}, {}, -128),
        ({"priority": -1000}, {}, 127),
        ({"priority": 3, "broker_priority": 9}, {}, 9),
        ({"broker_priority": 9}, {"broker_priority": 2}, 2),
        ({"broker_priority": 500}, {}, 127),
    ],
)
def test_priorities(
    broker: TopicsBroker, options: dict[str, int], sent: dict[str, int], priority: int
) -> None:
    """The message's `broker_priority`, else the actor's, else the actor's `priority` negated; within bounds. (§10)"""
    actor = dramatiq.actor(lambda: None, actor_name="do", **options)

    actor.send_with_options(**sent)

    (job,) = broker.client.jobs(broker.topic("default"))
    assert job.priority == priority


def test_a_delayed_message_waits_in_the_server(broker: TopicsBroker) -> None:
    """The job has its time; the message that is stored has no `eta`, so no worker holds it. (§10)"""

    @dramatiq.actor
    def later() -> None: ...

    message = later.send_with_options(delay=60_000)

    assert message.queue_name == "default.DQ"
    (job,) = broker.client.jobs(broker.topic("default"), state="delayed")
    assert job.ready_at_ms == message.options["eta"]
    (record,) = broker.client.read(broker.topic("default"))
    assert record.data["queue_name"] == "default"
    assert "eta" not in record.data["options"]


def test_delays_are_by_the_servers_clock() -> None:
    """A message is claimed when its delay is over, and not before. (§10)"""
    with MemoryTopics(start_ms=int(time.time() * 1000)) as topics:
        broker = TopicsBroker(client=topics.client)
        broker.declare_queue("default")
        broker.enqueue(Message("default", "later", (), {}, {}), delay=3_600_000)
        consumer = broker.consume("default", timeout=0)

        assert next(consumer) is None
        topics.advance(ms=7_200_000)
        found = next(consumer)

        assert found is not None
        assert found.queue_name == "default"
        consumer.ack(found)
        consumer.close()


def test_messages_with_an_eta_of_their_own_wait_too(broker: TopicsBroker) -> None:
    """A message that was made for a delay queue goes to its queue, with its time. (§10)"""
    broker.declare_queue("default")
    eta = int(time.time() * 1000) + 60_000

    broker.enqueue(Message("default.DQ", "later", (), {}, {"eta": eta}))

    (job,) = broker.client.jobs(broker.topic("default"))
    assert job.ready_at_ms == eta


def test_delay_queues_are_declared(broker: TopicsBroker) -> None:
    """Middleware hears of them, and a worker that consumes from them gets nothing."""
    heard: list[tuple[str, str]] = []

    class Listener(dramatiq.Middleware):
        def after_declare_queue(self, broker: Any, queue_name: str) -> None:
            heard.append(("queue", queue_name))

        def after_declare_delay_queue(self, broker: Any, queue_name: str) -> None:
            heard.append(("delay queue", queue_name))

    broker.add_middleware(Listener())
    broker.declare_queue("a")
    broker.declare_queue("a")

    assert heard == [("queue", "a"), ("delay queue", "a.DQ")]
    assert broker.get_declared_queues() == {"a"}
    assert broker.get_declared_delay_queues() == {"a.DQ"}
    assert next(broker.consume("a.DQ", timeout=0)) is None


def test_a_failed_message_is_a_dead_letter(
    broker: TopicsBroker, working: Callable[..., Any]
) -> None:
    """After its last retry it is in `NAME.XQ`, with the exception as the reason. (§10.6)"""

    @dramatiq.actor(max_retries=1, min_backoff=1, max_backoff=1)
    def fail() -> None:
        raise ValueError("no such address")

    fail.send()
    with working(broker):
        broker.join("default", timeout=WAIT_S * 1000)

    (dead,) = dead_letters(broker)
    assert dead.data["options"]["retries"] == 1
    assert dead.meta["$dead_letter_reason"] == "ValueError: no such address"


def test_a_dead_letter_can_be_redriven(broker: TopicsBroker, working: Callable[..., Any]) -> None:
    """It goes back to the queue as it was, and is processed. (§10)"""
    calls: list[str] = []

    @dramatiq.actor(max_retries=0)
    def mend() -> None:
        calls.append("called")
        if len(calls) == 1:
            raise ValueError("broken")

    mend.send()
    with working(broker):
        broker.join("default", timeout=WAIT_S * 1000)
        assert len(dead_letters(broker)) == 1
        broker.client.redrive(broker.topic("default.XQ"), broker.topic("default"))
        broker.join("default", timeout=WAIT_S * 1000)

    assert calls == ["called", "called"]


def test_a_queue_without_dead_letters_drops(
    url: str, namespace: str, working: Callable[..., Any]
) -> None:
    """Where the queue's config names no dead letters, a message that failed is gone."""
    broker = TopicsBroker(url=url, namespace=namespace, queue_config={"dead_letter": None})
    broker.declare_queue("default")
    broker.enqueue(Message("default", "missing", (), {}, {}))

    with working(broker):
        broker.join("default", timeout=WAIT_S * 1000)

    assert [topic.topic for topic in broker.client.topics(prefix=namespace)] == [
        f"{namespace}:default"
    ]
    broker.close()


@pytest.mark.parametrize("data", ["no message", {"no": "message"}, 5])
def test_a_record_that_is_no_message_is_a_dead_letter(broker: TopicsBroker, data: Any) -> None:
    """The record does not stop the messages after it."""
    broker.declare_queue("default")
    broker.create_topics("default")
    broker.client.append(broker.topic("default"), data)
    broker.enqueue(Message("default", "next", (), {}, {}))
    consumer = broker.consume("default", prefetch=2)

    found = next(consumer)

    assert found is not None
    assert found.actor_name == "next"
    assert [each.data for each in dead_letters(broker)] == [data]
    consumer.ack(found)
    consumer.close()


def test_no_more_than_prefetch_is_claimed(broker: TopicsBroker) -> None:
    """A message that was settled makes room for the next."""
    broker.declare_queue("default")
    for name in "abc":
        broker.enqueue(Message("default", name, (), {}, {}))
    consumer = broker.consume("default", prefetch=2, timeout=0)

    first, second, third = next(consumer), next(consumer), next(consumer)
    assert first is not None
    assert second is not None
    assert third is None
    consumer.ack(first)
    third = next(consumer)

    assert third is not None
    assert third.actor_name == "c"
    consumer.requeue([second, third])
    assert broker.client.topic(broker.topic("default")).queue.ready == 2
    consumer.close()


def test_closing_gives_back_what_was_claimed(broker: TopicsBroker) -> None:
    """Claimed messages that the worker did not get are ready again at once. (§10.5)"""
    broker.declare_queue("default")
    for name in "abc":
        broker.enqueue(Message("default", name, (), {}, {}))
    consumer = broker.consume("default", prefetch=3)
    found = next(consumer)

    consumer.close()

    assert found is not None
    counts = broker.client.topic(broker.topic("default")).queue
    assert (counts.ready, counts.in_flight) == (2, 1)
    consumer.requeue([found])


def test_leases_are_extended(url: str, namespace: str) -> None:
    """A message stays the worker's for longer than its first lease. (§10.6)"""
    broker = TopicsBroker(url=url, namespace=namespace, lease_ms=600)
    broker.declare_queue("default")
    broker.enqueue(Message("default", "long", (), {}, {}))
    consumer = broker.consume("default")
    found = next(consumer)

    def deadline_ms() -> int:
        (job,) = broker.client.jobs(broker.topic("default"))
        return job.deadline_ms or 0

    assert found is not None
    first_ms = found.job.deadline_ms
    until("its lease is extended twice", lambda: deadline_ms() > first_ms + 300)
    consumer.ack(found)
    assert broker.client.topic(broker.topic("default")).count == 0
    consumer.close()
    broker.close()


def test_an_ack_that_comes_too_late_changes_nothing(
    broker: TopicsBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """The message is another worker's by then. (§10.4)"""
    broker.declare_queue("default")
    broker.enqueue(Message("default", "a", (), {}, {}))
    consumer = broker.consume("default")
    late = next(consumer)
    assert late is not None
    node, topic = late.job.keeper.node, broker.topic("default")
    broker.client.nack(
        topic, [late.job], node=node, delay_ms=0
    )  # as if it had stood still for long
    other = broker.consume("default")
    held = next(other)
    assert held is not None

    consumer.ack(late)

    assert broker.client.topic(broker.topic("default")).count == 1
    assert "ran out" in caplog.text
    consumer.ack(held)
    assert broker.client.topic(broker.topic("default")).count == 0
    consumer.close()


def test_messages_of_another_consumer_can_be_settled(broker: TopicsBroker) -> None:
    """After a lost connection a worker settles messages of its old consumer with a new one."""
    broker.declare_queue("default")
    for name in "ab":
        broker.enqueue(Message("default", name, (), {}, {}))
    old = broker.consume("default", prefetch=2)
    first, second = next(old), next(old)
    old.close()
    new = broker.consume("default")
    assert first is not None
    assert second is not None

    new.ack(first)
    new.nack(second)

    assert broker.client.topic(broker.topic("default")).count == 0
    new.ack(first._message)  # no message of any consumer: it is logged
    new.nack(first._message)
    new.close()


def test_a_queue_that_is_deleted_comes_back(broker: TopicsBroker) -> None:
    """The consumer creates it anew, and what was leased in it is gone."""
    broker.declare_queue("default")
    broker.enqueue(Message("default", "a", (), {}, {}))
    consumer = broker.consume("default", prefetch=2, timeout=0)
    lost = next(consumer)
    assert lost is not None
    broker.client.delete_topic(broker.topic("default"))

    consumer.ack(lost)
    assert next(consumer) is None

    assert broker.client.topic(broker.topic("default")).config.dead_letter == broker.topic(
        "default.XQ"
    )
    consumer.close()


def test_the_config_of_a_topic_that_exists_stays(broker: TopicsBroker) -> None:
    """An operator's choices outlive a deployment."""
    broker.declare_queue("default")
    broker.client.put_topic(broker.topic("default"), type="queue", lease_ms=5000, fair=True)

    broker.enqueue(Message("default", "a", (), {}, {}))
    broker.create_topics("default")

    config = broker.client.topic(broker.topic("default")).config
    assert (config.lease_ms, config.fair) == (5000, True)


def test_flush_drops_everything_but_dead_letters(broker: TopicsBroker) -> None:
    broker.declare_queue("default")
    broker.declare_queue("unused")
    broker.enqueue(Message("default", "a", (), {}, {}))
    broker.enqueue(Message("default", "b", (), {}, {}), delay=60_000)

    broker.flush_all()

    assert broker.join("default", timeout=0) is None
    assert broker.join("unused") is None


def test_joining_ends_in_time(broker: TopicsBroker) -> None:
    broker.declare_queue("default")
    broker.enqueue(Message("default", "a", (), {}, {}))

    with pytest.raises(QueueJoinTimeout):
        broker.join("default", timeout=1)


def test_only_declared_queues_are_consumed(broker: TopicsBroker) -> None:
    with pytest.raises(QueueNotFound):
        broker.consume("unknown")


def test_a_server_that_is_away_is_a_closed_connection() -> None:
    """dramatiq's own error, after which a worker tries again."""
    broker = TopicsBroker(client=Client("http://127.0.0.1:9", retry=Retry(for_s=0)))
    broker.declare_queue("default")

    with pytest.raises(ConnectionClosed):
        broker.enqueue(Message("default", "a", (), {}, {}))
    with pytest.raises(ConnectionClosed):
        next(broker.consume("default"))
    with pytest.raises(ConnectionClosed):
        broker.flush("default")


def test_an_ack_can_be_repeated(tmp_path: Path) -> None:
    """The lease is kept while the server is away, so that the worker's next attempt counts."""
    server = Server(tmp_path)
    server.start()
    with Client(server.url, retry=Retry(for_s=0)) as client:
        broker = TopicsBroker(client=client)
        broker.declare_queue("default")
        broker.enqueue(Message("default", "a", (), {}, {}))
        consumer = broker.consume("default")
        found = next(consumer)
        assert found is not None
        server.kill()

        with pytest.raises(ConnectionClosed):
            consumer.ack(found)
        server.start(server.url.rpartition(":")[2])
        consumer.ack(found)

        assert client.topic("dramatiq:default").count == 0
        consumer.close()
    server.end()


def test_a_worker_that_stops_gives_back_what_it_did_not_begin(
    broker: TopicsBroker, working: Callable[..., Any]
) -> None:
    """One message is finished, the others are ready for other workers."""
    begun, go_on = Event(), Event()

    @dramatiq.actor
    def slow() -> None:
        begun.set()
        assert go_on.wait(WAIT_S)

    slow.send()
    slow.send()
    slow.send()
    with working(broker, threads=1) as worker:
        assert begun.wait(WAIT_S)
        for thread in worker.workers:
            thread.stop()
        go_on.set()

    counts = broker.client.topic(broker.topic("default")).queue
    assert (counts.ready, counts.in_flight) == (2, 0)
