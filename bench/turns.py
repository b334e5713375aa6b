"""What several turns in flight bring where the brokers are far: `python -m bench.turns`.

One leader in this process, over a log in memory that answers after so many milliseconds, and clients
that each append one record, at times of their own: one comes every few milliseconds, whether those before
it are answered or not.  (Clients that wait for their answers come together after a while, in one turn, and
then one at a time is as good.)  The pauses between turns take turns; `one at a time` is without several.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import click

from bench.conftest import machine
from bench.loads import LIMITS, append, append_body
from topics.protocol.cluster.rule.unit import Shard
from topics.protocol.cluster.turns import TURN_EVERY_MS
from topics.protocol.driver.reply import Reply, Ticket
from topics.protocol.model.outcomes import Outcome
from topics.server.cluster.node.host import ClusterHost, NodeName
from topics.server.cluster.node.runtime import ClusterRuntime
from topics.store.files import OsFiles
from topics.store.store import DiskStore

COMMAND = append("t", append_body(1, 64))
NEVER_MS = 1 << 40
EVERY_S = 0.0117


class FarLog:
    """Implements `ports.ReplicatedLog`; what is appended is there, and known, after `delay_s`."""

    def __init__(self, delay_s: float) -> None:
        self.delay_s = delay_s
        self._records: list[bytes] = []
        self._more = asyncio.Event()

    async def append(self, unit: bytes) -> int:
        await asyncio.sleep(self.delay_s)
        self._records.append(unit)
        more, self._more = self._more, asyncio.Event()
        more.set()
        return len(self._records) - 1

    async def read(
        self, from_offset: int, epoch: int = -1
    ) -> AsyncIterator[tuple[int, bytes, int]]:
        at = from_offset
        while True:
            while at < len(self._records):
                yield at, self._records[at], 0
                at += 1
            await self._more.wait()

    async def end(self) -> int:
        return len(self._records)

    async def trim(self, before: int) -> None: ...


async def appended(runtime: ClusterRuntime) -> None:
    done: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
    found = runtime.submit(COMMAND, done.set_result)
    reply = await done if isinstance(found, Ticket) else found
    assert isinstance(reply.result, Outcome), reply.result


async def round_of(
    folder: Path, delay_s: float, every_ms: int, requests: int
) -> tuple[float, float]:
    """Milliseconds of the median request, and this process's CPU time for each."""
    runtime = ClusterRuntime(LIMITS, lambda: DiskStore(OsFiles(str(folder)), history=b"h" * 8))
    name = NodeName(cluster="bench", node="n1", url="http://n1")
    host = ClusterHost(runtime, FarLog(delay_s), Shard(b"c" * 16), name, message_bytes_max=1 << 20)
    await host.start()
    host.gained()
    while not host.leads:
        await asyncio.sleep(0.01)
    runtime.acceptance.turns.turn_every_ms = every_ms
    await appended(runtime)
    took_ms: list[float] = []

    async def one(at: int) -> None:
        await asyncio.sleep(at * EVERY_S)
        began_s = time.perf_counter()
        await appended(runtime)
        took_ms.append((time.perf_counter() - began_s) * 1000)

    cpu_s = time.process_time()
    await asyncio.gather(*map(one, range(requests)))
    cpu_s = time.process_time() - cpu_s
    await host.stop()
    await runtime.stop()
    return statistics.median(took_ms), cpu_s / requests


@click.command(help=__doc__)
@click.option("--rounds", default=5, show_default=True)
@click.option("--requests", default=200, show_default=True)
def main(rounds: int, requests: int) -> None:
    click.echo(f"{machine()}\n")
    click.echo("| brokers answer after | turns | p50 | CPU a request | p50, of one at a time |")
    click.echo("|---|---|---|---|---|")
    pauses = {
        "one at a time": NEVER_MS,
        f"every {TURN_EVERY_MS} ms": TURN_EVERY_MS,
        "every 2 ms": 2,
    }
    for delay_ms in (10, 30, 100):
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in pauses}
        for _ in range(rounds):
            for name, every_ms in pauses.items():
                with tempfile.TemporaryDirectory(prefix="topics-bench-") as folder:
                    found[name].append(
                        asyncio.run(round_of(Path(folder), delay_ms / 1000, every_ms, requests))
                    )
        for name, done in found.items():
            pairs = zip(done, found["one at a time"], strict=True)
            ratio = statistics.median(ours[0] / one[0] for ours, one in pairs)
            p50, cpu_us = min(done)[0], min(each[1] for each in done) * 1e6
            click.echo(f"| {delay_ms} ms | {name} | {p50:.1f} ms | {cpu_us:.0f} µs | {ratio:.2f} |")


if __name__ == "__main__":
    main()
