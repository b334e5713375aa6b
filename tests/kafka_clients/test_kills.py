"""A server that is killed again and again under producers that try again: each record is there once, in order (§6)."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from contract.server import Server, until

from .test_libraries import consumed

KILLS = 4


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_retry_over_a_kill_is_stored_once(tmp_path: Path, codec: str) -> None:
    """The state of a producer comes out of the log itself, so that a restart knows its batches. (125)"""
    server = Server(tmp_path, port=0).start()
    bootstrap = f"127.0.0.1:{server.port}"
    server._settings["port"] = server.port
    told: list[Any] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "compression.type": codec,
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

    with server:
        producer.list_topics("t", timeout=30)
        for _ in range(KILLS):
            write(200)
            reached = len(told)

            def answered(reached: int = reached) -> bool:
                write(5)
                producer.poll(0.01)
                return len(told) > reached + 50

            until("some were acknowledged", answered)
            server.kill()
            write(50)
            server.start()
        assert producer.flush(120) == 0
        assert [error for error, _ in told if error] == []
        found = consumed(bootstrap, "t", sent)
    assert [message.value() for message in found] == [b"%d" % at for at in range(sent)]
    assert [message.offset() for _, message in told] == list(range(sent))


def test_a_kill_costs_a_group_no_rebalance(tmp_path: Path) -> None:
    """Members go on in their generation, with the partitions that they have. (§5)"""
    server = Server(tmp_path, port=0).start()
    bootstrap = f"127.0.0.1:{server.port}"
    server._settings["port"] = server.port
    told: list[tuple[str, str, list[int]]] = []
    read: set[tuple[int, int]] = set()

    def member(name: str) -> Consumer:
        settings = {"bootstrap.servers": bootstrap, "group.id": "g", "client.id": name}
        made = Consumer(
            {**settings, "auto.offset.reset": "earliest", "reconnect.backoff.max.ms": 200}
        )

        def heard(what: str) -> Any:
            return lambda _, parts: told.append((name, what, [each.partition for each in parts]))

        made.subscribe(["t"], heard("assign"), heard("revoke"), heard("lost"))
        return made

    def poll(*members: Consumer) -> None:
        for each in members:
            message = each.poll(0.05)
            if message is not None and message.error() is None:
                read.add((message.partition(), message.offset()))

    def write(producer: Producer, count: int) -> None:
        for nth in range(count):
            producer.produce("t", b"%d" % nth, partition=nth % 2)
        assert producer.flush(60) == 0

    with server:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("t", 2, 1)])["t"].result(30)
        producer = Producer({"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 200})
        members = member("a"), member("b")

        def shared() -> bool:
            poll(*members)
            last = {name: parts for name, what, parts in told if what == "assign"}
            return sorted(last.values()) == [[0], [1]]

        until("each has a partition", shared)
        before = list(told)
        server.kill()
        server.start()
        write(producer, 10)

        def all_read() -> bool:
            poll(*members)
            return len(read) == 10

        until("all was read", all_read)
        assert told == before
        for each in members:
            each.close()
    server.assert_log_is_quiet()
