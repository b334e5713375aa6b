"""Kafka's clients, beside Kafka itself: `python -m bench.kafka [--beside] [--records N]`.

The client is a socket that sends requests which were encoded before, so that only the server's work is in the figures: CPU
time of the server by record, and records a second.  With `--beside`, a broker of Apache Kafka does the same in the same
run, each in its turn.
"""

import os
import socket
import statistics
import struct
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
from crc32c import crc32c

from bench.serving import cpu_s_of, serve_topics
from topics.protocol.batches.codecs import NAMES, packed
from topics.protocol.batches.varints import zigzag_of
from topics.protocol.faces.kafka.apis import SERVED
from topics.protocol.faces.kafka.codec import decode, encode
from topics.protocol.faces.kafka.schema import message, types

HEAD: Final = struct.Struct(">ihhih")
SIZE: Final = struct.Struct(">i")
KEYS: Final = {api.name: key for key, api in SERVED.items()}
IN_FLIGHT: Final = 5
BATCH: Final = 1000
VALUE: Final = b'{"order": 12345, "total": 99.5, "state": "open", "items": [1, 2, 3], "at": "2026-11-28T00:00:00Z"}'


class Broker(NamedTuple):
    """A server of Kafka's protocol."""

    name: str
    port: int
    pid: int


class Client:
    """A connection."""

    def __init__(self, broker: Broker) -> None:
        self._socket = socket.create_connection(("127.0.0.1", broker.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb", 1 << 20)

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def send(self, frame: bytes) -> None:
        self._socket.sendall(frame)

    def take(self) -> bytes:
        head = self._file.read(SIZE.size)
        return self._file.read(SIZE.unpack(head)[0])

    def ask(self, name: str, version: int, **fields: Any) -> Any:
        self.send(framed(name, version, **fields))
        data = memoryview(self.take())
        at = 5 if version >= message(name + "Response").flexible else 4
        return decode(name + "Response", version, data, at)


def framed(name: str, version: int, **fields: Any) -> bytes:
    """A request as it goes over the wire."""
    flexible = b"\0" if version >= message(name + "Request").flexible else b""
    value = getattr(types(name + "Request"), name + "Request")(**fields)
    body = flexible + b"".join(encode(name + "Request", version, value))
    return HEAD.pack(HEAD.size - 4 + 5 + len(body), KEYS[name], version, 7, 5) + b"bench" + body


def batch_of(count: int, codec: int, *, keyed: bool) -> bytes:
    """Records of some 100 bytes."""
    out = bytearray()
    for nth in range(count):
        key = b"k%03d" % (nth % 500) if keyed else None
        body = b"\0\0" + zigzag_of(nth)
        body += zigzag_of(-1) if key is None else zigzag_of(len(key)) + key
        body += zigzag_of(len(VALUE)) + VALUE + b"\0"
        out += zigzag_of(len(body)) + body
    now_ms = int(time.time() * 1000)
    tail = struct.pack(">hiqqqhii", codec, count - 1, now_ms, now_ms, -1, -1, -1, count)
    tail += packed(codec, bytes(out))
    return struct.pack(">qiibI", 0, len(tail) + 9, -1, 2, crc32c(tail)) + tail


def produce_frame(topic: str, data: bytes, partition: int = 0) -> bytes:
    T = types("ProduceRequest")
    part = T.PartitionProduceData(index=partition, records=data)
    topics = [T.TopicProduceData(name=topic, partition_data=[part])]
    return framed(
        "Produce", 9, acks=-1, timeout_ms=30_000, transactional_id=None, topic_data=topics
    )


def create(broker: Broker, topic: str) -> None:
    client = Client(broker)
    T = types("CreateTopicsRequest")
    new = T.CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
    client.ask("CreateTopics", 5, topics=[new], timeout_ms=10_000)
    client.close()
    while _end(broker, topic) < 0:
        time.sleep(0.1)


def _end(broker: Broker, topic: str) -> int:
    client = Client(broker)
    T = types("ListOffsetsRequest")
    asked = T.ListOffsetsTopic(name=topic, partitions=[T.ListOffsetsPartition(timestamp=-1)])
    (part,) = client.ask("ListOffsets", 5, replica_id=-1, topics=[asked]).topics[0].partitions
    client.close()
    return part.offset if part.error_code == 0 else -1


class Figure(NamedTuple):
    """What a job took: CPU time of the server by record, and records a second."""

    cpu_us: float
    per_s: float

    def __str__(self) -> str:
        return f"{self.cpu_us:7.2f} µs {self.per_s:11,.0f}/s"


@contextmanager
def measured(broker: Broker, records: int) -> Iterator[list[Figure]]:
    found: list[Figure] = []
    cpu_s, begun_s = cpu_s_of(broker.pid), time.perf_counter()
    yield found
    took_s = time.perf_counter() - begun_s
    found.append(Figure((cpu_s_of(broker.pid) - cpu_s) / records * 1e6, records / took_s))


def produced(broker: Broker, topic: str, frame: bytes, times: int, records: int) -> Figure:
    """Send a request again and again, some on their way at a time."""
    client = Client(broker)
    with measured(broker, records) as found:
        on_way = 0
        for _ in range(times):
            client.send(frame)
            on_way += 1
            if on_way == IN_FLIGHT:
                client.take()
                on_way -= 1
        for _ in range(on_way):
            client.take()
    client.close()
    assert _end(broker, topic) % records == 0
    return found[0]


def fetched(broker: Broker, topic: str, records: int) -> Figure:
    """Read a topic from its begin to its end."""
    client, offset = Client(broker), 0
    T = types("FetchRequest")
    with measured(broker, records) as found:
        while offset < records:
            part = T.FetchPartition(fetch_offset=offset, partition_max_bytes=1 << 20)
            topics = [T.FetchTopic(topic=topic, partitions=[part])]
            client.send(
                framed("Fetch", 11, max_wait_ms=500, min_bytes=1, max_bytes=50 << 20, topics=topics)
            )
            data = client.take()
            offset = _behind(data, offset)
    client.close()
    return found[0]


def _behind(answer: bytes, offset: int) -> int:
    """The offset behind the last batch of an answer."""
    response = decode("FetchResponse", 11, memoryview(answer), 4)
    data = response.responses[0].partitions[0].records
    at = 0
    while data is not None and at + 61 <= len(data):
        base, size = struct.unpack_from(">qi", data, at)
        if at + 12 + size > len(data):
            break
        (delta,) = struct.unpack_from(">i", data, at + 23)
        offset = base + delta + 1
        at += 12 + size
    return offset


def single(broker: Broker, topic: str, times: int) -> list[float]:
    """One record a request, one request at a time: seconds each."""
    client, frame, took = Client(broker), produce_frame(topic, batch_of(1, 0, keyed=True)), []
    for _ in range(times):
        begun_s = time.perf_counter()
        client.send(frame)
        client.take()
        took.append(time.perf_counter() - begun_s)
    client.close()
    return took


def end_to_end(broker: Broker, topic: str, times: int) -> list[float]:
    """From the send of a record to its arrival at a consumer that waits: seconds each."""
    producer, consumer = Client(broker), Client(broker)
    frame, took, offset = produce_frame(topic, batch_of(1, 0, keyed=True)), [], _end(broker, topic)
    T = types("FetchRequest")
    for _ in range(times):
        part = T.FetchPartition(fetch_offset=offset, partition_max_bytes=1 << 20)
        topics = [T.FetchTopic(topic=topic, partitions=[part])]
        consumer.send(
            framed("Fetch", 11, max_wait_ms=5000, min_bytes=1, max_bytes=1 << 20, topics=topics)
        )
        time.sleep(0.002)
        begun_s = time.perf_counter()
        producer.send(frame)
        offset = _behind(consumer.take(), offset)
        took.append(time.perf_counter() - begun_s)
        producer.take()
    producer.close()
    consumer.close()
    return took


def rss_mb(pid: int) -> float:
    line = next(
        each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmRSS" in each
    )
    return int(line.split()[1]) / 1024


def run(broker: Broker, records: int) -> None:
    print(f"{broker.name}: {rss_mb(broker.pid):.0f} MB before the first request")
    warm = f"warm-{os.getpid()}"
    create(broker, warm)
    produced(broker, warm, produce_frame(warm, batch_of(BATCH, 0, keyed=True)), 30, 30 * BATCH)
    fetched(broker, warm, 30 * BATCH)
    for codec in (0, 3, 4):
        name = f"{NAMES[codec]}-{os.getpid()}"
        create(broker, name)
        frame = produce_frame(name, batch_of(BATCH, codec, keyed=True))
        times = records // BATCH
        print(f"  produce {NAMES[codec]:5} {produced(broker, name, frame, times, times * BATCH)}")
        print(f"  fetch   {NAMES[codec]:5} {fetched(broker, name, times * BATCH)}")
    name = f"single-{os.getpid()}"
    create(broker, name)
    with measured(broker, 2000) as found:
        took = single(broker, name, 2000)
    print(f"  one record a request        {found[0]}, p50 {statistics.median(took) * 1e3:.2f} ms")
    took = sorted(end_to_end(broker, name, 1000))
    print(f"  end to end, p50 and p99     {took[500] * 1e3:.2f} and {took[990] * 1e3:.2f} ms")
    print(f"  {rss_mb(broker.pid):.0f} MB in the end")


def servers(*, beside: bool) -> Iterator[Broker]:
    """This server, and then a broker of Apache Kafka, each alive until the next is asked for."""
    with (
        tempfile.TemporaryDirectory() as home,
        serve_topics(Path(home)) as served,
    ):
        yield Broker("topics", served.port, served.process.pid)
    if beside:
        from tests import brokers

        brokers.Broker.flags = ("-Xmx1g",)  # as it is measured by itself, with its large compiler
        with brokers.running() as started:
            (broker,) = started.brokers
            yield Broker("Apache Kafka", broker.port, broker.pid)


@click.command()
@click.option("--beside", is_flag=True, help="A broker of Apache Kafka does the same.")
@click.option("--records", default=300_000, help="Of each topic.")
def main(beside: bool, records: int) -> None:
    """Run the jobs."""
    for broker in servers(beside=beside):
        run(broker, records)


if __name__ == "__main__":
    main()
