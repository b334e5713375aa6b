"""Kafka's clients on a cluster of nodes whose leaders are killed: each record is there once, in order (§7).

One cluster for all stories of this module, which come in their order.
"""

import asyncio
import shutil
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as AskedPartition
from confluent_kafka.admin import AdminClient, NewTopic
from contract.server import until

from tests import brokers, nodes
from tests.nodes import NodeServer, NodeServers
from topics.server.cluster.kafka_face import number_of

from .conftest import run
from .test_libraries import consumed

pytestmark = pytest.mark.kafka

KILLS = 3


@pytest.fixture(scope="module")
def servers() -> Iterator[NodeServers]:
    try:
        brokers.java()
        brokers.jars()
    except brokers.NoBrokers as error:
        pytest.skip(str(error))
    # A short session: a test waits for a leader's death to be noticed.
    session = {"TOPICS_CLUSTER_SESSION_MS": "2000"}
    with brokers.running() as kafka, nodes.running(kafka.bootstrap, **session) as found:
        yield found


def bootstrap(servers: NodeServers) -> str:
    return ",".join(f"127.0.0.1:{node.port}" for node in servers.nodes)


def only(node: NodeServer) -> str:
    return f"127.0.0.1:{node.port}"


def a_follower(servers: NodeServers) -> NodeServer:
    leader = servers.leader()
    return next(node for node in servers.nodes if node is not leader)


def test_a_client_that_knows_one_node_finds_the_leader(servers: NodeServers) -> None:
    """Also for a topic that its question makes: a producer may know a follower alone."""
    program = shutil.which("kcat")
    if program is None:
        pytest.skip("needs kcat")
    follower = a_follower(servers)
    run(program, "-b", only(follower), "-P", "-t", "asked-for", "-K:", stdin="eu:1\nus:2\n")
    for node in servers.nodes:
        read = (program, "-b", only(node), "-C", "-t", "asked-for", "-e", "-q", "-f", "%o %k %s\n")
        assert run(*read) == "0 eu 1\n1 us 2\n"


def test_all_nodes_are_told_and_the_leader_is_the_controller(servers: NodeServers) -> None:
    leader = servers.leader()
    told = leader.ask("/v0/cluster")
    for node in servers.nodes:
        found = AdminClient({"bootstrap.servers": only(node)}).list_topics(timeout=30)
        assert {each.port for each in found.brokers.values()} == {n.port for n in servers.nodes}
        assert found.controller_id == number_of(told["leader"])
        part = found.topics["asked-for"].partitions[0]
        assert part.leader == found.controller_id


def test_a_follower_makes_and_deletes_nothing_itself(servers: NodeServers) -> None:
    """An admin client that came to it asks the controller."""
    admin = AdminClient({"bootstrap.servers": only(a_follower(servers))})
    admin.create_topics([NewTopic("made", 1, 1)])["made"].result(30)
    admin.delete_topics(["made"])["made"].result(30)


def test_a_retry_over_the_death_of_a_leader_is_stored_once(servers: NodeServers) -> None:
    """The next leader has the state of producers out of the log. (125)"""
    told: list[Any] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap(servers),
            "enable.idempotence": True,
            "linger.ms": 2,
            "retry.backoff.ms": 20,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "message.timeout.ms": 120_000,
        }
    )
    sent = 0

    def write(count: int) -> None:
        nonlocal sent
        for _ in range(count):
            producer.produce("t", b"%d" % sent, on_delivery=lambda e, m: told.append((e, m)))
            sent += 1
        producer.poll(0)

    for _ in range(KILLS):
        leader, reached = servers.leader(), len(told)
        write(200)
        while len(told) <= reached + 50:
            write(5)
            producer.poll(0.01)
        leader.kill()
        write(50)
        while len(told) < sent - 50:  # another leads
            producer.poll(0.1)
        servers.start()
    assert producer.flush(120) == 0
    assert [error for error, _ in told if error] == []
    assert [message.offset() for _, message in told] == list(range(sent))
    found = consumed(bootstrap(servers), "t", sent)
    assert [message.value() for message in found] == [b"%d" % at for at in range(sent)]


def test_a_consumer_goes_on_at_the_next_leader(servers: NodeServers) -> None:
    """Where it was: it neither begins anew nor leaves anything out."""
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

    async def story() -> None:
        where = bootstrap(servers)
        producer = AIOKafkaProducer(bootstrap_servers=where, enable_idempotence=True)
        consumer = AIOKafkaConsumer(bootstrap_servers=where, metadata_max_age_ms=1000)
        await producer.start()
        await consumer.start()
        consumer.assign([TopicPartition("read", 0)])
        await consumer.seek_to_beginning()
        found: list[bytes | None] = []

        async def written(first: int, count: int) -> None:
            for at in range(first, first + count):
                await producer.send_and_wait("read", b"%d" % at)

        async def read(count: int) -> None:
            while len(found) < count:
                found.append((await consumer.getone()).value)

        await written(0, 20)
        await read(20)
        # A fetch waits at the leader when it is killed.
        killer = threading.Thread(target=servers.leader().kill)
        killer.start()
        await written(20, 20)
        await read(40)
        killer.join()
        assert found == [b"%d" % at for at in range(40)]
        await consumer.stop()
        await producer.stop()

    asyncio.run(asyncio.wait_for(story(), 100))
    servers.start()


def test_a_group_goes_on_at_the_next_leader(servers: NodeServers) -> None:
    """No rebalance follows, and what was committed right before the kill is there. (§5)"""
    where = bootstrap(servers)
    told: list[tuple[str, str, list[int]]] = []
    read: set[tuple[int, int]] = set()
    admin = AdminClient({"bootstrap.servers": where})
    admin.create_topics([NewTopic("shared", 2, 1)])["shared"].result(30)
    producer = Producer({"bootstrap.servers": where, "enable.idempotence": True})

    def member(name: str) -> Consumer:
        settings = {
            "bootstrap.servers": where,
            "group.id": "g",
            "client.id": name,
            "partition.assignment.strategy": "cooperative-sticky",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 200,
        }
        made = Consumer(settings)

        def heard(what: str) -> Any:
            return lambda _, parts: told.append((name, what, [each.partition for each in parts]))

        made.subscribe(["shared"], heard("assign"), heard("revoke"), heard("lost"))
        return made

    def poll() -> None:
        for each in members:
            message = each.poll(0.05)
            if message is not None and message.error() is None:
                read.add((message.partition(), message.offset()))

    def write(count: int) -> None:
        for nth in range(count):
            producer.produce("shared", b"%d" % nth, partition=nth % 2)
        assert producer.flush(90) == 0

    def has_read(count: int) -> bool:
        poll()
        return len(read) == count

    def shared() -> bool:
        poll()
        return all(each.assignment() for each in members)

    members = [member("a"), member("b")]
    until("each has a partition", shared)
    write(10)
    until("all was read", lambda: has_read(10))
    before = list(told)
    for each in members:
        each.commit(asynchronous=False)
    servers.leader().kill()
    write(10)
    until("what came at the next leader was read", lambda: has_read(20))
    kept = [part.offset for each in members for part in each.committed(each.assignment(), 60)]
    assert kept == [5, 5]
    for each in members:
        each.commit(asynchronous=False)
    assert told == before
    for each in members:
        each.close()
    servers.start()


@pytest.mark.filterwarnings("ignore:read_text is deprecated", "ignore:open_text is deprecated")
def test_a_group_of_three_libraries_goes_on_over_a_leader_that_is_paused(
    servers: NodeServers,
) -> None:
    """No rebalance, no commit that goes back, and all is read, when another leads and when the paused node is back. (§5)"""
    from aiokafka import AIOKafkaConsumer
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition

    where = bootstrap(servers)
    admin = AdminClient({"bootstrap.servers": where})
    admin.create_topics([NewTopic("mixed", 3, 1)])["mixed"].result(30)
    producer = Producer({"bootstrap.servers": where, "enable.idempotence": True})
    end = threading.Event()
    owned: dict[str, set[int]] = {}
    read: dict[tuple[int, int], bytes | None] = {}
    kept: dict[int, int] = {}
    errors: list[BaseException] = []
    limits = {"session_timeout_ms": 30_000, "heartbeat_interval_ms": 1000}

    def seen(partition: int, offset: int, value: bytes | None) -> None:
        read[partition, offset] = value

    def of_librdkafka() -> None:
        settings = {
            "bootstrap.servers": where,
            "group.id": "mixed",
            "partition.assignment.strategy": "range",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 30_000,
            "reconnect.backoff.max.ms": 200,
        }
        consumer = Consumer(settings)
        consumer.subscribe(["mixed"])
        while not end.is_set():
            message = consumer.poll(0.1)
            owned["librdkafka"] = {each.partition for each in consumer.assignment()}
            if message is not None and message.error() is None:
                seen(message.partition(), message.offset(), message.value())
                for each in consumer.commit(message, asynchronous=False):
                    kept[each.partition] = each.offset
        consumer.close()

    def of_kafka_python() -> None:
        consumer = KafkaConsumer(
            "mixed",
            bootstrap_servers=where.split(","),
            group_id="mixed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            reconnect_backoff_max_ms=200,
            **limits,
        )
        while not end.is_set():
            for part, messages in consumer.poll(100).items():
                for each in messages:
                    seen(each.partition, each.offset, each.value)
                at = messages[-1].offset + 1
                consumer.commit(
                    {TopicPartition("mixed", part.partition): OffsetAndMetadata(at, "", -1)}
                )
                kept[part.partition] = at
            owned["kafka-python"] = {each.partition for each in consumer.assignment()}
        consumer.close()

    async def of_aiokafka() -> None:
        consumer = AIOKafkaConsumer(
            "mixed",
            bootstrap_servers=where,
            group_id="mixed",
            partition_assignment_strategy=[RangePartitionAssignor],
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            metadata_max_age_ms=2000,
            **limits,
        )
        await consumer.start()
        while not end.is_set():
            for part, messages in (await consumer.getmany(timeout_ms=100)).items():
                for each in messages:
                    seen(each.partition, each.offset, each.value)
                at = messages[-1].offset + 1
                await consumer.commit({part: at})
                kept[part.partition] = at
            owned["aiokafka"] = {each.partition for each in consumer.assignment()}
        await consumer.stop()

    def guarded(work: Any) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    def write(count: int) -> None:
        for nth in range(count):
            producer.produce("mixed", b"%d" % nth, partition=nth % 3)
        assert producer.flush(90) == 0

    def is_shared() -> bool:
        return errors != [] or sorted(map(sorted, owned.values())) == [[0], [1], [2]]

    def generation() -> int:
        found: int = servers.leader().ask("/v0/groups/mixed")["generation"]
        return found

    members = [
        threading.Thread(target=guarded, args=(work,))
        for work in (of_librdkafka, of_kafka_python, lambda: asyncio.run(of_aiokafka()))
    ]
    for each in members:
        each.start()
    try:
        until("each has a partition", is_shared)
        write(30)
        until("all was read", lambda: errors != [] or len(read) == 30)
        before, owners = generation(), dict(owned)
        paused = servers.leader()
        paused.pause()
        assert servers.leader() is not paused
        paused.resume()
        write(30)
        until("all was read at the next leader", lambda: errors != [] or len(read) == 60)
        until("all was committed", lambda: errors != [] or kept == dict.fromkeys(range(3), 20))
        assert (generation(), owned) == (before, owners)
    finally:
        end.set()
        for each in members:
            each.join(60)
    assert errors == []
    asked = Consumer({"bootstrap.servers": where, "group.id": "mixed"})
    parts = asked.committed([AskedPartition("mixed", at) for at in range(3)], 60)
    asked.close()
    assert [each.offset for each in parts] == [20, 20, 20]
