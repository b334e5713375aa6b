"""A cluster of three nodes beside one node without Kafka, and beside bare Kafka: `python -m bench.cluster`.

Brokers and nodes are started on this machine and killed at the end.  The lanes take turns in each round,
and each is asked for the same: the table has the best round of each, and the median of each round's own
ratio to the cluster.  Bare Kafka is librdkafka's producer as the nodes have it (`acks=all`, idempotent,
no linger), with a delivery report for each request; a batch is one message of as many bytes.

With `--before DIR`, a checkout of another version, nodes of that are one more lane over the same brokers.
"""

import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import click

from bench.conftest import machine
from bench.loads import append_body
from bench.serving import serve_topics
from tests import brokers
from tests.nodes import NodeServer, NodeServers, running

BATCH: Final = 1000
RECORD_BYTES: Final = 64
ONE: Final = append_body(1, RECORD_BYTES)
MANY: Final = append_body(BATCH, RECORD_BYTES)
PAGE: Final = json.dumps({"from_seq": 0, "limit": BATCH}).encode()


@dataclass(frozen=True)
class Round:
    """What came of one: requests, how long all took and each, and the CPU time of the servers."""

    requests: int
    wall_s: float
    cpu_s: float
    took_s: Sequence[float]

    @property
    def rate(self) -> float:
        return self.requests / self.wall_s

    def percentile_ms(self, percent: int) -> float:
        return 1000 * sorted(self.took_s)[len(self.took_s) * percent // 100]


Run: TypeAlias = Callable[[int, int, bytes], Round]
"""So many clients, so many requests in all, of this body."""


def cpu_s(pid: int) -> float:
    """User and system time of another process so far (clock_getcpuclockid(3))."""
    return time.clock_gettime((~pid << 3) | 2)


class Connection:
    """A kept connection of HTTP/1.1, one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> "Connection":
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, path: str, body: bytes) -> bytes:
        head = (
            f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        answered = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        size = answered.partition(b"content-length:")[2].partition(b"\r\n")[0]
        content = await self._reader.readexactly(int(size))
        assert answered.startswith((b"http/1.1 200", b"http/1.1 201")), content
        return content

    def close(self) -> None:
        self._writer.close()


async def over_http(
    ports: Sequence[int], pids: Sequence[int], path: str, clients: int, requests: int, body: bytes
) -> Round:
    """Clients in turn to the ports."""
    connections = [await Connection.open(ports[i % len(ports)]) for i in range(clients)]
    took_s: list[float] = []
    left = iter(range(requests))

    async def one(connection: Connection) -> None:
        for _ in left:
            began_s = time.perf_counter()
            await connection.ask(path, body)
            took_s.append(time.perf_counter() - began_s)

    cpu, began_s = sum(map(cpu_s, pids)), time.perf_counter()
    await asyncio.gather(*map(one, connections))
    wall_s = time.perf_counter() - began_s
    for connection in connections:
        connection.close()
    return Round(requests, wall_s, sum(map(cpu_s, pids)) - cpu, took_s)


def appends(port: int, pid: int) -> Run:
    path = "/v0/topics/load?return_seqs=false"
    return lambda clients, requests, body: asyncio.run(
        over_http([port], [pid], path, clients, requests, body)
    )


def bare_kafka(bootstrap: str, copies: int) -> Run:
    """One producer with so many messages outstanding."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("bare", 1, copies)])["bare"].result(30)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 0,
            "message.max.bytes": 1 << 20,
        }
    )

    def run(clients: int, requests: int, body: bytes) -> Round:
        took_s: list[float] = []

        def send() -> None:
            began_s = time.perf_counter()

            def delivered(error: object, _: object) -> None:
                assert error is None, error
                took_s.append(time.perf_counter() - began_s)

            producer.produce("bare", body, partition=0, on_delivery=delivered)

        sent, began_s = 0, time.perf_counter()
        while len(took_s) < requests:
            while sent < min(requests, len(took_s) + clients):
                send()
                sent += 1
            producer.poll(1.0)
        return Round(requests, time.perf_counter() - began_s, 0.0, took_s)

    return run


async def lags(leader: NodeServer, others: Sequence[NodeServer], records: int) -> list[float]:
    """Seconds from the answer to a write until each replica's long poll has the record."""
    writer = await Connection.open(leader.port)
    readers = [await Connection.open(node.port) for node in others]
    body = append_body(1, RECORD_BYTES)
    found: list[float] = []
    # The topic is there, on every node.
    first = json.loads(await writer.ask("/v0/topics/lag", body))["head_seq"]
    await asyncio.sleep(1)

    async def poll(reader: Connection, seq: int) -> float:
        asked = json.dumps({"from_seq": seq, "wait_ms": 20_000}).encode()
        await reader.ask("/v0/topics/lag/diff", asked)
        return time.perf_counter()

    for seq in range(first, first + records):
        polls = [asyncio.create_task(poll(reader, seq)) for reader in readers]
        await asyncio.sleep(0.005)  # they wait by now
        await writer.ask("/v0/topics/lag", body)
        answered_s = time.perf_counter()
        found += [max(0.0, at_s - answered_s) for at_s in await asyncio.gather(*polls)]
    for connection in (writer, *readers):
        connection.close()
    return found


def told(lanes: dict[str, Run], rounds: int, requests: dict[str, tuple[int, int, bytes]]) -> None:
    """Measure, and print the table."""
    for job, (clients, count, body) in requests.items():
        found: dict[str, list[Round]] = {name: [] for name in lanes}
        for run in lanes.values():
            run(clients, max(clients, count // 10), body)  # warm
        for at in range(rounds):
            # Each round begins with another lane.
            names = list(lanes)[at % len(lanes) :] + list(lanes)[: at % len(lanes)]
            for name in names:
                found[name].append(lanes[name](clients, count, body))
        for name, done in found.items():
            best = max(done, key=lambda each: each.rate)
            ratio = statistics.median(
                each.rate / ours.rate for each, ours in zip(done, found["cluster"], strict=True)
            )
            cpu = f"{min(each.cpu_s / each.requests for each in done) * 1e6:.0f} µs"
            click.echo(
                f"| {job} | {name} | {best.rate:,.0f}/s | {best.percentile_ms(50):.2f} ms "
                f"| {best.percentile_ms(99):.2f} ms | {cpu if best.cpu_s else '–'} | {ratio:.2f} |"
            )


def reads(servers: NodeServers, rounds: int, pages: int) -> None:
    """Six clients that read a page again and again: all from one node, and from all three."""
    path = "/v0/topics/read/diff"
    leader = servers.leader()
    asyncio.run(
        over_http([leader.port], [leader.pid], "/v0/topics/read?return_seqs=false", 1, 20, MANY)
    )
    time.sleep(2)
    kinds = {"one node": [leader], "three nodes at once": servers.nodes}
    found: dict[str, list[Round]] = {name: [] for name in kinds}
    for _ in range(rounds):
        for name, nodes in kinds.items():
            ports, pids = [node.port for node in nodes], [node.pid for node in nodes]
            found[name].append(asyncio.run(over_http(ports, pids, path, 6, pages, PAGE)))
    for name, done in found.items():
        best = max(done, key=lambda each: each.rate)
        ratio = statistics.median(
            each.rate / one.rate for each, one in zip(done, found["one node"], strict=True)
        )
        cpu_us = min(each.cpu_s / each.requests for each in done) * 1e6
        click.echo(
            f"| {name} | {best.rate * BATCH:,.0f}/s | {cpu_us / BATCH:.3f} µs | {ratio:.2f} |"
        )


@click.command(help=__doc__)
@click.option("--brokers", "count", type=click.Choice(["1", "3"]), default="1")
@click.option("--rounds", default=5, show_default=True)
@click.option("--requests", default=600, show_default=True, help="Of a round; a tenth of batches.")
@click.option("--before", type=click.Path(path_type=Path), help="Another checkout.")
def main(count: str, rounds: int, requests: int, before: Path | None) -> None:
    copies = int(count)
    click.echo(f"{machine()}; {copies} broker(s), load {os.getloadavg()[0]:.1f} at the start")
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="topics-bench-")))
        bootstrap = stack.enter_context(brokers.running(copies)).bootstrap
        servers = stack.enter_context(running(bootstrap, copies))
        leader = servers.leader()
        single = stack.enter_context(serve_topics(home / "single"))
        lanes = {
            "cluster": appends(leader.port, leader.pid),
            "one node": appends(single.port, single.process.pid),
            "bare Kafka": bare_kafka(bootstrap, copies),
        }
        if before is not None:
            old = stack.enter_context(
                running(
                    bootstrap,
                    copies,
                    TOPICS_CLUSTER_NAME="before",
                    PYTHONPATH=str(before.resolve()),
                    PYTHONSAFEPATH="1",
                )
            )
            was = old.leader()
            lanes["before"] = appends(was.port, was.pid)
        click.echo("\n| job | lane | best | p50 | p99 | CPU a request | rate, of the cluster's |")
        click.echo("|---|---|---|---|---|---|---|")
        told(
            lanes,
            rounds,
            {
                "1 client, 1 record": (1, requests, ONE),
                "32 clients, 1 record": (32, 4 * requests, ONE),
                f"1 client, {BATCH} x {RECORD_BYTES} B": (1, requests // 10, MANY),
                f"8 clients, {BATCH} x {RECORD_BYTES} B": (8, requests // 5, MANY),
            },
        )
        click.echo("\n| reads by 6 clients, pages of 1000 | best | CPU a record | ratio |")
        click.echo("|---|---|---|---|")
        reads(servers, rounds, requests // 2)
        others = [node for node in servers.nodes if node is not leader]
        found = sorted(asyncio.run(lags(leader, others, requests // 2)))
        p50, p99 = (found[len(found) * percent // 100] * 1000 for percent in (50, 99))
        click.echo(f"\nlag of the replicas: p50 {p50:.2f} ms, p99 {p99:.2f} ms")
        click.echo(f"load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
