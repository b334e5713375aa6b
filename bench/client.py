"""The Python client before a server process, beside bare sockets that do the same.

Rounds alternate, and each is of the same work: `rate` is the best of them, `p50` and `p99` those of
that round, and the ratio the median of each round's own, so that a neighbour who is busy for a
second weighs on both.  The bare client writes prepared requests and reads answers by their
content-length; it knows no retry, no timeout, no pool, and decodes nothing.
"""

import asyncio
import socket
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

import click

from bench.serving import Serving, serve_topics
from topics import AsyncClient, Client

RECORD: Final = {"n": 1, "text": "x" * 40}
BODY: Final = (
    b'{"records":[{"data":{"n":1,"text":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}}],'
    b'"idempotency_key":"%032x"}'
)
HEAD: Final = (
    b"POST /v0/topics/jobs?return_seqs=false HTTP/1.1\r\nhost: 127.0.0.1\r\n"
    b"accept: application/json\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
)
CONCURRENT: Final = 100

_keys = count()


def prepared() -> bytes:
    """An append of one record under a key of its own."""
    body = BODY % next(_keys)
    return HEAD % len(body) + body


@dataclass(frozen=True, slots=True)
class Round:
    """What came of one: requests (or records) a second, and how long each request took."""

    rate: float
    took_s: Sequence[float] = ()

    def percentile_ms(self, percent: int) -> float:
        return 1000 * sorted(self.took_s)[len(self.took_s) * percent // 100]


async def together(ask: Callable[[], Awaitable[object]], requests: int) -> Round:
    """So many requests, `CONCURRENT` at a time."""
    took_s: list[float] = []
    left = iter(range(requests))

    async def one() -> None:
        for _ in left:
            began_s = time.perf_counter()
            await ask()
            took_s.append(time.perf_counter() - began_s)

    began_s = time.perf_counter()
    await asyncio.gather(*[one() for _ in range(CONCURRENT)])
    return Round(requests / (time.perf_counter() - began_s), took_s)


async def _read_answer(reader: asyncio.StreamReader) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    assert head.startswith((b"http/1.1 200", b"http/1.1 201")), head
    size = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
    await reader.readexactly(int(size))


async def bare_together(port: int, requests: int) -> Round:
    opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CONCURRENT)]
    free = list(opened)

    async def ask() -> None:
        connection = free.pop()
        connection[1].write(prepared())
        await _read_answer(connection[0])
        free.append(connection)

    try:
        return await together(ask, requests)
    finally:
        for _, writer in opened:
            writer.close()


async def ours_together(port: int, requests: int) -> Round:
    async with AsyncClient(f"http://127.0.0.1:{port}") as client:
        return await together(lambda: client.append("jobs", RECORD), requests)


def one_by_one(ask: Callable[[], object], requests: int) -> Round:
    took_s: list[float] = []
    start_s = time.perf_counter()
    for _ in range(requests):
        began_s = time.perf_counter()
        ask()
        took_s.append(time.perf_counter() - began_s)
    return Round(requests / (time.perf_counter() - start_s), took_s)


def bare_one_by_one(port: int, requests: int) -> Round:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def ask() -> None:
            connection.sendall(prepared())
            reply = connection.recv(65536)
            head, _, body = reply.partition(b"\r\n\r\n")
            size = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
            while len(body) < int(size):
                body += connection.recv(65536)

        return one_by_one(ask, requests)


def ours_one_by_one(port: int, requests: int) -> Round:
    with Client(f"http://127.0.0.1:{port}") as client:
        return one_by_one(lambda: client.append("jobs", RECORD), requests)


@dataclass(frozen=True, slots=True)
class Job:
    """One row: the same work by bare sockets and by the client."""

    name: str
    requests: int
    bare: Callable[[int, int], Round]
    ours: Callable[[int, int], Round]


JOBS: Final = (
    Job(
        f"AsyncClient, {CONCURRENT} appends at a time",
        6000,
        lambda port, n: asyncio.run(bare_together(port, n)),
        lambda port, n: asyncio.run(ours_together(port, n)),
    ),
    Job("Client, one append after the other", 3000, bare_one_by_one, ours_one_by_one),
)


def run_job(job: Job, serving: Serving, *, rounds: int, scale: float) -> str:
    """A row of the table."""
    requests = max(int(job.requests * scale), 1)
    bare: list[Round] = []
    ours: list[Round] = []
    for _ in range(rounds):
        bare.append(job.bare(serving.port, requests))
        ours.append(job.ours(serving.port, requests))
    ratio = statistics.median(o.rate / b.rate for b, o in zip(bare, ours, strict=True))
    cells = [job.name, *(_cell(found) for found in (bare, ours)), f"{ratio:.2f}"]
    return " | ".join(cells)


def _cell(rounds: Sequence[Round]) -> str:
    best = max(rounds, key=lambda each: each.rate)
    p50, p99 = best.percentile_ms(50), best.percentile_ms(99)
    return f"{best.rate:,.0f}/s, p50 {p50:.2f} ms, p99 {p99:.2f} ms"


@click.command()
@click.option("--rounds", default=5, show_default=True, help="Rounds of each job; the best counts.")
@click.option("--scale", default=1.0, show_default=True, help="Length of a round.")
@click.option("--only", default="", help="Jobs whose name holds this.")
def main(rounds: int, scale: float, only: str) -> None:
    """Measure the Python client, and bare sockets beside it."""
    click.echo("| job | bare sockets | client | ratio |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="topics-client-") as home:
        for number, job in enumerate(JOBS):
            if only in job.name:
                with serve_topics(Path(home) / str(number)) as serving:
                    click.echo(f"| {run_job(job, serving, rounds=rounds, scale=scale)} |")


if __name__ == "__main__":
    main()
