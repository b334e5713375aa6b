"""A server under random valid load, with clients that come and go: what it holds stays bounded.

A minute in CI, ten or more by hand: `TOPICS_TESTS_SOAK_S=600 pytest tests/test_soak.py`.  Memory and
descriptors are read from the server's process; at the end every topic has what was acknowledged.
"""

import asyncio
import os
import random
import resource
import socket
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
from contract.server import Server

from topics import AsyncClient, Record
from topics.client.errors import TopicsError

SOAK_S: Final = float(os.environ.get("TOPICS_TESTS_SOAK_S", "0"))
CLIENTS: Final = 12
TOPICS: Final = 20
KEPT: Final = 2000
"""Records that a topic keeps at most, so that what is stored is bounded, too."""
SLACK_BYTES: Final = 24 << 20
"""What memory may differ by at the same work: fragmentation, caches that fill."""

pytestmark = pytest.mark.skipif(not SOAK_S, reason="set TOPICS_TESTS_SOAK_S to run it")


def anonymous_bytes(pid: int) -> int:
    """Memory of a process without its mapped files (proc(5), smaps_rollup)."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Anonymous:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no Anonymous in smaps_rollup")


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


class Load:
    """What random clients do, and what they know of it.

    Attributes:
        acknowledged: By topic, the highest seq and the number of records that were acknowledged.
    """

    def __init__(self, port: int, seed: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.rng = random.Random(seed)
        self.head: dict[str, int] = defaultdict(int)
        self.done: dict[str, int] = defaultdict(int)
        self.ends = asyncio.Event()

    async def prepare(self) -> None:
        async with AsyncClient(self.url) as client:
            for n in range(TOPICS):
                durability = ("ephemeral", "memory", "disk", "fsync")[n % 4]
                kind = "queue" if n % 5 == 4 else "log"
                await client.put_topic(
                    f"t{n}", durability=durability, type=kind, cap_records=KEPT, lease_ms=1000
                )
            for n in range(4):
                await client.put_router(f"r{n}", source=f"t{n}", dest=f"copies{n}")
                await client.put_topic(f"copies{n}", cap_records=KEPT)

    async def client(self, n: int) -> None:
        """One client after another, until the end."""
        rng = random.Random(self.rng.random())
        while not self.ends.is_set():
            async with AsyncClient(self.url, http2=rng.random() < 0.2) as client:
                for _ in range(rng.randint(1, 60)):
                    if self.ends.is_set():
                        return
                    with suppress(TopicsError):
                        await self.step(client, rng, n)
                        self.done["steps"] += 1

    async def step(self, client: AsyncClient, rng: random.Random, n: int) -> None:
        topic = f"t{rng.randrange(TOPICS)}"
        match rng.randrange(8):
            case 0 | 1 | 2:
                size = rng.choice((1, 10, 200))
                text = "x" * rng.choice((0, 50, 2000))
                values = [{"n": i, "text": text} for i in range(size)]
                found = await client.append(topic, *values, tag=f"a:{rng.randrange(9)}")
                self.head[topic] = max(self.head[topic], found.last_seq)
                self.done["records"] += size
            case 3:
                await client.diff(topic, from_seq=max(self.head[topic] - 300, 0), limit=100)
            case 4:
                await client.delete(topic, match=f"a:{rng.randrange(9)}")
            case 5:
                await self.work(client, rng, f"t{4 + 5 * rng.randrange(TOPICS // 5)}", n)
            case 6:
                await self.watch(client, topic)
            case _:
                await self.leave_in_the_middle(rng, topic)

    async def work(self, client: AsyncClient, rng: random.Random, queue: str, n: int) -> None:
        found = await client.claim(queue, node=f"w{n}", max=20)
        if found.jobs and rng.random() < 0.8:
            await client.ack(queue, found.jobs, node=f"w{n}")
        elif found.jobs:
            await client.nack(queue, found.jobs, node=f"w{n}")

    async def watch(self, client: AsyncClient, topic: str) -> None:
        """Watch for a few records, or for half a second."""
        with suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                seen = 0
                async with client.watch(topic) as watch:
                    async for _ in watch:
                        seen += 1
                        if seen == 20:
                            break

    async def leave_in_the_middle(self, rng: random.Random, topic: str) -> None:
        """A client that sends half a request, or does not wait for its answer, and is gone."""
        _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        body = b'{"records":[{"data":1}]}'
        head = f"POST /v0/topics/{topic} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
        sent = head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body
        writer.write(sent[: rng.randint(0, len(sent))])
        await writer.drain()
        if rng.random() < 0.5:
            accepted: socket.socket = writer.get_extra_info("socket")
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def soak(server: Server, pid: int) -> tuple[list[int], Load]:
    """Memory at the ends of eight parts of the time, and the load."""
    load = Load(server.port, seed=20_261_122)
    await load.prepare()
    clients = [asyncio.create_task(load.client(n)) for n in range(CLIENTS)]
    samples = []
    for _ in range(8):
        await asyncio.sleep(SOAK_S / 8)
        samples.append(anonymous_bytes(pid))
        for task in clients:
            if task.done():
                task.result()
    load.ends.set()
    await asyncio.gather(*clients)
    return samples, load


def test_memory_and_descriptors_stay_flat(tmp_path: Path) -> None:
    """Memory peaks no higher at the end than in the first half, and what was opened is closed again."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    try:
        with Server(tmp_path, flush_ms=50, segment_max_age_ms=2000, slow_request_ms=0) as server:
            before = descriptors(server.pid)
            samples, load = asyncio.run(soak(server, server.pid))
            asyncio.run(settled(load))
            after = descriptors(server.pid)
            asyncio.run(kept(load))
            print(f"{load.done['steps']} steps, {load.done['records']} records, "
                  f"memory {[size >> 20 for size in samples]} MiB, descriptors {before} to {after}")  # fmt: skip
            assert server.stop() == 0
            server.assert_log_is_quiet()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    warm, late = max(samples[:5]), max(samples[6:])
    assert late <= warm * 1.1 + SLACK_BYTES, [size >> 20 for size in samples]
    # Segments and log files are few and bounded; connections and streams are all gone.
    assert after <= before + 2 * TOPICS


async def settled(load: Load) -> None:
    """Wait until the server has let go of every connection but the one that asks."""
    async with AsyncClient(load.url) as client:
        for _ in range(600):
            found = await client.metrics()
            if found["topics_sse_connections"] == 0:
                return
            await asyncio.sleep(0.05)
    raise AssertionError("streams are left open")


async def kept(load: Load) -> None:
    """What was acknowledged is in the topic, or lost and told: the head is at least there, and the
    records that are live are read."""
    async with AsyncClient(load.url) as client:
        for topic, head in sorted(load.head.items()):
            state = await client.topic(topic)
            assert state.head_seq >= head
            live = [item async for item in client.read(topic) if isinstance(item, Record)]
            assert len(live) == state.count
