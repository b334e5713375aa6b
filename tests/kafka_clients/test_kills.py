"""A server that is killed again and again under producers that try again: each record is there once, in order (§6)."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
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
