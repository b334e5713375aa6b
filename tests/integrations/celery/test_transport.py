"""Kombu over a real server: queues, exchanges, acks, leases, and what is for one consumer alone."""

import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from contract.server import Server, until
from kombu import Connection, Consumer, Exchange, Producer, Queue
from kombu.exceptions import ChannelError, OperationalError

from tests.ports import unused_port
from topics.client import Client

Connect = Callable[..., Connection]

TASKS = Queue("tasks", Exchange("tasks", "direct"), routing_key="tasks")


def publish(connection: Connection, *bodies: Any, **options: Any) -> None:
    """Send to `tasks`, as Celery does: by its name, where nothing else is said."""
    TASKS(connection.default_channel).declare()
    producer = Producer(connection)
    for body in bodies:
        producer.publish(body, **{"routing_key": "tasks", **options})


class Heard:
    """Messages that a consumer got, in their order."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.messages: list[Any] = []

    @property
    def bodies(self) -> list[Any]:
        return [message.decode() for message in self.messages]

    def take(self, count: int) -> list[Any]:
        """Wait until there are so many in all; their bodies."""
        while len(self.messages) < count:
            self.connection.drain_events(timeout=60)
        return self.bodies

    def quiet(self, seconds: float = 0.7) -> None:
        """Nothing comes for longer than a claim waits."""
        with pytest.raises(socket.timeout):
            self.connection.drain_events(timeout=seconds)


@contextmanager
def consuming(
    connection: Connection, *queues: Queue, prefetch: int = 0, no_ack: bool = False
) -> Iterator[Heard]:
    heard = Heard(connection)
    channel = connection.channel()
    consumer = Consumer(
        channel, list(queues or [TASKS]), no_ack=no_ack, on_message=heard.messages.append
    )
    consumer.qos(prefetch_count=prefetch)
    with consumer:
        yield heard
    channel.close()


def test_a_message_is_gone_once_it_is_acked(connect: Connect, client: Client, prefix: str) -> None:
    """A message is a job until it is acked. (§10.4)"""
    publish(connect(), {"n": 1}, {"n": 2})

    with consuming(connect()) as heard:
        assert heard.take(2) == [{"n": 1}, {"n": 2}]
        heard.messages[0].ack()
        until("acked", lambda: client.topic(f"{prefix}tasks").count == 1)

    until("given back", lambda: client.topic(f"{prefix}tasks").queue.ready == 1)


def test_the_end_of_the_process_is_asked_for_once(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many messages a channel has had: each request would hold its place until then."""
    asked: list[Any] = []
    monkeypatch.setattr("atexit.register", asked.append)
    publish(connect(), *range(5))
    with consuming(connect(), prefetch=1) as heard:
        for count in range(1, 6):
            heard.take(count)
            heard.messages[count - 1].ack()

    assert len([each for each in asked if each.__name__ == "restore_unacked_once"]) == 1


def test_what_was_not_acked_is_given_back_at_once(connect: Connect) -> None:
    """A consumer that ends leaves its messages to others, and not to the end of a lease. (§10.5)"""
    publish(connect(), "a")
    with consuming(connect()) as heard:
        heard.take(1)

    with consuming(connect()) as heard:
        assert heard.take(1) == ["a"]
        assert heard.messages[0].delivery_info["redelivered"]


@pytest.mark.parametrize("dead_letter", [None, "dead"])
def test_a_message_is_rejected(
    connect: Connect, client: Client, prefix: str, dead_letter: str | None
) -> None:
    """With `requeue` it comes again; without, it is a dead letter where the queue has those. (§10.6)"""
    config = {"dead_letter": dead_letter and f"{prefix}{dead_letter}"}
    publish(connect(queue_config=config), {"n": 1})

    with consuming(connect(queue_config=config)) as heard:
        heard.take(1)
        heard.messages[0].requeue()
        heard.take(2)
        heard.messages[1].reject()
        until("rejected", lambda: client.topic(f"{prefix}tasks").count == 0)

    dead = list(client.read(f"{prefix}dead")) if dead_letter else []
    assert [record.data["body"] for record in dead] == ([{"n": 1}] if dead_letter else [])


def test_the_higher_priority_comes_first(connect: Connect) -> None:
    """As in AMQP, and not as with Redis. (decision on jobs)"""
    connection = connect()
    for priority in (0, 9, 5):
        publish(connection, priority, priority=priority)

    with consuming(connect()) as heard:
        assert heard.take(3) == [9, 5, 0]


def test_an_eta_is_waited_for_at_the_server(connect: Connect, client: Client, prefix: str) -> None:
    """No worker holds a message before its time. (`not_before`)"""
    eta = datetime.now(UTC) + timedelta(hours=1)
    publish(connect(), "later", headers={"eta": eta.isoformat()})

    with consuming(connect()) as heard:
        heard.quiet()
    assert client.topic(f"{prefix}tasks").queue.delayed == 1

    client.promote(f"{prefix}tasks", 1)
    with consuming(connect()) as heard:
        assert heard.take(1) == ["later"]


def test_no_more_is_claimed_than_the_prefetch_count(
    connect: Connect, client: Client, prefix: str
) -> None:
    """What a worker may not have yet is for others. (`basic_qos`)"""
    publish(connect(), *range(10))

    with consuming(connect(), prefetch=3) as heard:
        heard.take(3)
        heard.quiet()
        assert client.topic(f"{prefix}tasks").queue.in_flight == 3
        heard.messages[0].ack()
        assert heard.take(4) == [0, 1, 2, 3]


def test_queues_share_the_prefetch_count(connect: Connect, client: Client, prefix: str) -> None:
    """With room for one message, one of two queues has it, and the other waits its turn."""
    other = Queue("other")
    connection = connect()
    with consuming(connection, TASKS, other, prefetch=1) as heard:
        producer = Producer(connect())
        for queue in ("tasks", "other"):
            producer.publish(queue, routing_key=queue)
        first = heard.take(1)[0]
        heard.quiet()
        heard.messages[0].ack()
        assert sorted(heard.take(2)) == ["other", "tasks"]
        assert heard.bodies[0] == first


def test_a_message_that_does_not_fit_is_not_delivered(
    connect: Connect, client: Client, prefix: str
) -> None:
    """It waits at the server while another queue has the room: no delivery of it is counted. (§10.7)"""
    connection = connect()
    with consuming(connection, TASKS, Queue("other"), prefetch=1) as heard:
        producer = Producer(connect())
        producer.publish("busy", routing_key="tasks")
        heard.take(1)
        producer.publish("other", routing_key="other")
        heard.quiet()

        (job,) = client.jobs(f"{prefix}other")
        assert (job.state, job.deliveries) == ("ready", 0)
        heard.messages[0].ack()
        assert heard.take(2) == ["busy", "other"]
        assert not heard.messages[1].delivery_info["redelivered"]


@pytest.mark.parametrize("prefetch", [1, 2, 3])
def test_queues_take_turns_where_there_is_little_room(connect: Connect, prefetch: int) -> None:
    """A queue with many messages does not keep another's from a worker, nor an empty one it. (`basic_qos`)"""
    queues = [TASKS, Queue("other"), Queue("empty")]
    publish(connect(), *range(50))
    with consuming(connect(), *queues, prefetch=prefetch) as heard:
        heard.take(1)
        producer = Producer(heard.connection)
        producer.publish("other", routing_key="other")
        for count in range(1, 10_000):
            heard.take(count)
            if "other" in heard.bodies:
                break
            producer.publish(count, routing_key=TASKS.name)  # so that this queue is never empty
            heard.messages[count - 1].ack()

        assert "other" in heard.bodies
        assert heard.connection.channel().queue_declare(TASKS.name, passive=True).message_count > 0


def test_a_lease_is_extended_for_as_long_as_a_message_is_held(connect: Connect) -> None:
    """A task may take longer than its lease. (§10.6)"""
    publish(connect(), "long")

    with consuming(connect(lease_ms=600)) as heard:
        heard.take(1)
        with consuming(connect()) as other:
            other.quiet(2)


def test_the_messages_of_a_dead_consumer_come_back(
    connect: Connect, client: Client, prefix: str
) -> None:
    """After the lease, where nobody gave them back. (§10.3)"""
    publish(connect(), "a")
    client.claim(f"{prefix}tasks", node="dead", lease_ms=500)

    with consuming(connect()) as heard:
        assert heard.take(1) == ["a"]


def test_purge_leaves_what_is_in_hand(connect: Connect) -> None:
    """It counts what it deletes, messages with an eta too."""
    connection = connect()
    publish(connection, 1, 2, 3)
    publish(connection, 4, headers={"eta": "2099-01-01T00:00:00+00:00"})
    with consuming(connect(), prefetch=1) as heard:
        heard.take(1)

        assert TASKS(connection.default_channel).purge() == 3
        assert connection.default_channel.queue_declare("tasks", passive=True).message_count == 0
        heard.messages[0].requeue()
        assert heard.take(2) == [1, 1]


def test_a_queue_that_is_not_there_is_refused(connect: Connect) -> None:
    """Where it is only asked for (`passive`)."""
    with pytest.raises(ChannelError, match="NOT_FOUND"):
        connect().default_channel.queue_declare("none", passive=True)


def test_a_queue_is_deleted_with_its_bindings(
    connect: Connect, client: Client, prefix: str
) -> None:
    """No message is sent to it any more."""
    connection = connect()
    publish(connection, 1, 2)

    assert TASKS(connection.default_channel).delete() == 2

    producer = Producer(connection, exchange=TASKS.exchange, routing_key="tasks")
    producer.publish("nobody")
    assert not list(client.topics(prefix=f"{prefix}tasks"))


@pytest.mark.parametrize(
    ("kind", "bound", "sent", "is_heard"),
    [
        ("direct", "a.b", "a.b", True),
        ("direct", "a.b", "a.c", False),
        ("direct", "", "", True),
        ("direct", "é" * 100, "é" * 100, True),
        ("direct", "é" * 100, "é" * 99, False),
        ("topic", "a.*", "a.b", True),
        ("topic", "a.*", "a.b.c", False),
        ("topic", "a.#", "a.b.c", True),
        ("topic", "a.#.d", "a.d", True),
        ("fanout", "", "anything", True),
    ],
)
@pytest.mark.parametrize("is_kept", [True, False], ids=["queue", "consumer"])
def test_a_producer_in_another_process_routes_rightly(
    connect: Connect, is_kept: bool, kind: str, bound: str, sent: str, is_heard: bool
) -> None:
    """Bindings are the server's: of queues, and of consumers without a queue."""
    exchange = Exchange("news", kind)
    queue = Queue("own", exchange, routing_key=bound, durable=is_kept, auto_delete=not is_kept)
    with consuming(connect(), queue) as heard:
        producer = Producer(connect(), exchange=exchange)
        producer.publish("hello", routing_key=sent)

        if is_heard:
            assert heard.take(1) == ["hello"]
        else:
            heard.quiet()


def test_an_unbound_queue_hears_nothing(connect: Connect) -> None:
    """Processes that know the binding learn that it is gone."""
    connection, producer = connect(), Producer(connect(), exchange=TASKS.exchange)
    publish(connection, 1)
    producer.publish(2, routing_key="tasks", declare=[TASKS.exchange])

    TASKS(connection.default_channel).unbind_from(TASKS.exchange, "tasks")
    producer.publish(3, routing_key="tasks")
    with consuming(connect(), Queue("tasks")) as heard:
        assert heard.take(2) == [1, 2]
        heard.quiet()


def test_each_consumer_of_a_fanout_hears_all(connect: Connect) -> None:
    """What was sent before it was bound is not for it; nothing is left when it has gone."""
    exchange = Exchange("all", "fanout")
    queues = [Queue(f"own-{n}", exchange, exclusive=True) for n in range(2)]
    sending = Producer(connect(), exchange=exchange, auto_declare=True)
    sending.publish("before")
    with consuming(connect(), queues[0]) as first:
        sending.publish(1)
        with consuming(connect(), queues[1]) as second:
            sending.publish(2)

            assert first.take(2) == [1, 2]
            assert second.take(1) == [2]


def test_a_consumer_that_comes_back_hears_each_message_once(connect: Connect) -> None:
    """It goes on where it was, whether its last request is answered yet or not."""
    connection, exchange = connect(), Exchange("all", "fanout")
    queue = Queue("own", exchange, exclusive=True)
    sending = Producer(connect(), exchange=exchange)
    heard = Heard(connection)
    consumer = Consumer(connection, [queue], no_ack=True, on_message=heard.messages.append)
    for n in range(4):
        consumer.consume()
        sending.publish(n)
        heard.take(n + 1)
        consumer.cancel()

    consumer.consume()
    heard.quiet()
    assert heard.bodies == [0, 1, 2, 3]


def test_a_reply_comes_through_the_default_exchange(
    connect: Connect, client: Client, prefix: str
) -> None:
    """To a queue that one consumer has declared for itself, as the `rpc` backend does."""
    queue = Queue("oid", durable=False, auto_delete=True)
    with consuming(connect(), queue, no_ack=True) as heard:
        Producer(connect()).publish("reply", routing_key="oid")

        assert heard.take(1) == ["reply"]
    assert not list(client.topics(prefix=f"{prefix}oid"))


def test_a_consumer_without_acks_holds_nothing(
    connect: Connect, client: Client, prefix: str
) -> None:
    """`no_ack` deletes a message as it is delivered."""
    publish(connect(), 1, 2)

    with consuming(connect(), no_ack=True, prefetch=1) as heard:
        assert heard.take(2) == [1, 2]
        until("deleted", lambda: client.topic(f"{prefix}tasks").count == 0)


def test_messages_are_fetched_one_by_one(connect: Connect) -> None:
    """`get` does not wait."""
    connection = connect()
    publish(connection, "a")
    bound = TASKS(connection.default_channel)

    message = bound.get()

    assert message.decode() == "a"
    assert bound.get() is None


def test_a_record_of_another_program_is_a_message(
    connect: Connect, client: Client, prefix: str
) -> None:
    """It needs no field of kombu's but a body."""
    connection = connect()
    publish(connection)
    client.append(f"{prefix}tasks", {"headers": {"task": "add"}, "body": [[2, 2], {}, {}]})

    with consuming(connection) as heard:
        assert heard.take(1) == [[[2, 2], {}, {}]]
        assert heard.messages[0].headers == {"task": "add"}


def test_arguments_of_a_queue_are_its_config(connect: Connect, client: Client, prefix: str) -> None:
    """Arguments of AMQP that a topic has, and fields of its config. (§0.10)"""
    queue = Queue("slow", max_length=10, message_ttl=60, queue_arguments={"max_deliveries": 3})

    queue(connect(lease_ms=5000).default_channel).declare()

    config = client.topic(f"{prefix}slow").config
    assert (config.cap_records, config.ttl_ms, config.max_deliveries) == (10, 60_000, 3)
    assert (config.lease_ms, config.discard) == (5000, "reject")


def test_a_queue_that_was_deleted_is_made_again(
    connect: Connect, client: Client, prefix: str
) -> None:
    """By a producer that has declared it, and by a consumer."""
    connection = connect()
    publish(connection)
    with consuming(connect()) as heard:
        client.delete_topic(f"{prefix}tasks")
        Producer(connection).publish("a", routing_key="tasks")

        assert heard.take(1) == ["a"]


def test_an_event_loop_is_told_of_messages(connect: Connect) -> None:
    """The descriptor that a loop waits at is readable when there is a message, and only then."""

    class Loop:
        def add_reader(self, descriptor: int, callback: Callable[[], None]) -> None:
            self.descriptor, self.callback = descriptor, callback

        def remove_reader(self, descriptor: int) -> None:
            assert descriptor == self.descriptor

    loop, connection = Loop(), connect()
    connection.connect()
    connection.register_with_event_loop(loop)
    with consuming(connection) as heard:
        publish(connect(), "a")
        until("readable", lambda: _is_readable(loop.descriptor))
        loop.callback()

        assert heard.bodies == ["a"]
        assert not _is_readable(loop.descriptor)
    connection.release()


def _is_readable(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], 0)[0])


def test_no_server_is_a_connection_error() -> None:
    """Kombu repeats what it can, and says so; it does not wait for a client's own patience."""
    connection = Connection(f"topics://127.0.0.1:{unused_port()}")

    with pytest.raises(OperationalError, match="refused"):
        connection.ensure_connection(max_retries=1, interval_start=0)


def test_a_consumer_survives_the_death_of_the_server(tmp_path: Any) -> None:
    """Messages in hand stay with it while the server is away; nothing acked is lost or comes twice."""
    with Server(tmp_path / "server") as server:
        url = f"topics://127.0.0.1:{server.port}"
        with Connection(url, transport_options={"wait_ms": 300}) as connection:
            publish(connection, *range(6))
            with consuming(connection, prefetch=2) as heard:
                heard.take(2)
                settings = dict(server._settings)
                server.kill()
                server._settings = {**settings, "port": server.port}
                server.start()
                for message in heard.messages[:2]:
                    message.ack()
                for count in range(3, 7):
                    heard.take(count)
                    heard.messages[count - 1].ack()
                assert heard.bodies == list(range(6))
        with Client(f"http://127.0.0.1:{server.port}") as client:
            until("acked", lambda: client.topic("tasks").count == 0)


def test_a_lost_connection_is_raised_to_the_consumer(tmp_path: Any) -> None:
    """Where the server stays away, kombu is told, and reconnects."""
    with Server(tmp_path / "server") as server:
        url = f"topics://127.0.0.1:{server.port}"
        options = {"wait_ms": 300, "retry_s": 0.2}
        with (
            Connection(url, transport_options=options) as connection,
            consuming(connection) as heard,
        ):
            server.kill()
            with pytest.raises(connection.connection_errors):
                heard.take(1)


def test_a_closed_connection_leaves_no_thread(connect: Connect) -> None:
    """Threads that wait at the server end with their next answer."""
    before = set(threading.enumerate())
    with consuming(
        connect(), TASKS, Queue("own", Exchange("all", "fanout"), exclusive=True)
    ) as heard:
        pass
    heard.connection.release()

    until("no thread", lambda: not set(threading.enumerate()) - before)
