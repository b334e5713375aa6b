"""What people build on Kafka, unchanged: Streams at least once, Connect distributed, FastStream."""

import asyncio
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests import brokers
from tests.ports import unused_port

from .conftest import HERE

WAIT_S = 90
LINES = [f"{word} river {at % 3}" for at, word in enumerate(["salt", "tide", "moor"] * 20)]
FLAGS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def create(bootstrap: str, **partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(name, count, 1) for name, count in partitions.items()]
    for made in admin.create_topics(topics).values():
        made.result(30)


def produced(bootstrap: str, topic: str, lines: list[str]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for at, line in enumerate(lines):
        producer.produce(topic, line, key=str(at))
    assert producer.flush(30) == 0


@contextmanager
def program(log: Path, *line: object) -> Iterator["subprocess.Popen[bytes]"]:
    """A program of Java that runs until the end; what it said is told where the story fails."""
    try:
        java, jars = brokers.java(), brokers.program_jars()
    except brokers.NoBrokers as error:
        pytest.skip(str(error))
    words = [java, *FLAGS, "-cp", f"{jars}/*", *map(str, line)]
    with log.open("wb") as out:
        running = subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT)
        try:
            yield running
        except BaseException:
            print(log.read_text()[-3000:])
            raise
        finally:
            running.terminate()
            try:
                running.wait(20)
            except subprocess.TimeoutExpired:
                running.kill()
                running.wait()


def until(found: Callable[[], bool], running: "subprocess.Popen[bytes]") -> None:
    """Look again and again at what another program brings about."""
    end = time.monotonic() + WAIT_S
    while not found():
        assert running.poll() is None, f"it ended with {running.returncode}"
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.1)


def counts_of(bootstrap: str, topic: str) -> Callable[[], dict[str, int]]:
    """The newest count of each word so far, whenever it is asked."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "counts", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    counts: dict[str, int] = {}

    def read() -> dict[str, int]:
        while (got := consumer.poll(0.2)) is not None:
            if got.error() is None:
                counts[got.key().decode()] = int(got.value())
        return counts

    return read


def expected(lines: list[str]) -> dict[str, int]:
    words = [word for line in lines for word in line.split(" ")]
    return {word: words.count(word) for word in words}


@pytest.mark.kafka
def test_streams_count_words_and_go_on_after_a_restart(bootstrap: str, tmp_path: Path) -> None:
    """At least once, over four partitions and a repartition topic; what it counted is in its compacted changelog."""
    create(bootstrap, lines=4, counts=2)
    produced(bootstrap, "lines", LINES)
    read = counts_of(bootstrap, "counts")
    source = HERE / "programs" / "java" / "WordCount.java"
    line = (source, bootstrap, "word-count")
    with program(tmp_path / "first.log", *line, tmp_path / "a", "lines", "counts") as running:
        until(lambda: read() == expected(LINES), running)
    produced(bootstrap, "lines", LINES[:7])
    # Another folder: its state comes from the changelog, and its place from the group.
    with program(tmp_path / "second.log", *line, tmp_path / "b", "lines", "counts") as running:
        until(lambda: read() == expected(LINES + LINES[:7]), running)


@pytest.mark.kafka
def test_connect_carries_a_file_through_a_topic(bootstrap: str, tmp_path: Path) -> None:
    """A distributed worker, which keeps its configs, offsets and states in three compacted topics."""
    port = unused_port()
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "connect",
        "listeners": f"http://127.0.0.1:{port}",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "config.storage.topic": "connect-configs",
        "offset.storage.topic": "connect-offsets",
        "status.storage.topic": "connect-status",
        "config.storage.replication.factor": "1",
        "offset.storage.replication.factor": "1",
        "status.storage.replication.factor": "1",
        "offset.storage.partitions": "3",
        "status.storage.partitions": "2",
        "offset.flush.interval.ms": "500",
        "plugin.discovery": "service_load",
    }
    properties = tmp_path / "connect.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    create(bootstrap, carried=2)
    read_from, written_to = tmp_path / "in.txt", tmp_path / "out.txt"
    read_from.write_text("".join(f"{line}\n" for line in LINES[:30]))
    connectors: dict[str, dict[str, Any]] = {
        "from-file": {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "file": str(read_from),
            "topic": "carried",
        },
        "to-file": {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
            "file": str(written_to),
            "topics": "carried",
        },
    }
    worker = ("org.apache.kafka.connect.cli.ConnectDistributed", properties)

    def carried(count: int) -> bool:
        return written_to.exists() and len(written_to.read_text().splitlines()) >= count

    with (
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as rest,
        program(tmp_path / "connect.log", *worker) as running,
    ):

        def is_up() -> bool:
            try:
                return rest.get("/connectors").status_code == 200
            except httpx.TransportError:
                return False

        until(is_up, running)
        for name, config in connectors.items():
            body = json.dumps({"name": name, "config": {**config, "tasks.max": "1"}})
            made = rest.post(
                "/connectors", content=body, headers={"content-type": "application/json"}
            )
            assert made.status_code == 201, made.text
        until(lambda: carried(30), running)
    with read_from.open("a") as more:
        more.write("".join(f"{line}\n" for line in LINES[30:]))
    with program(tmp_path / "again.log", *worker) as running:
        until(lambda: carried(len(LINES)), running)
    assert sorted(written_to.read_text().splitlines()) == sorted(LINES)


def test_faststream(bootstrap: str) -> None:
    """Subscribers of one group share the partitions; what a handler returns goes to the next topic."""
    faststream = pytest.importorskip("faststream.confluent", reason="needs faststream[confluent]")
    create(bootstrap, orders=3, bills=1)
    got: list[int] = []

    async def story() -> None:
        broker = faststream.KafkaBroker(bootstrap)

        @broker.subscriber("orders", group_id="billing", auto_offset_reset="earliest")
        @broker.publisher("bills")
        async def bill(order: dict[str, int]) -> int:
            return order["price"] * 2

        @broker.subscriber("bills", group_id="books", auto_offset_reset="earliest")
        async def book(price: int) -> None:
            got.append(price)
            if len(got) == 30:
                done.set()

        done = asyncio.Event()
        async with broker:
            await broker.start()
            for price in range(30):
                await broker.publish({"price": price}, topic="orders", key=str(price).encode())
            await asyncio.wait_for(done.wait(), WAIT_S)

    asyncio.run(story())
    assert sorted(got) == [2 * price for price in range(30)]
