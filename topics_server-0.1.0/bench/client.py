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
BATCH: Final = 5000

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


def _receive_answer(connection: socket.socket) -> bytes:
    """The body of an answer that comes whole, if in pieces."""
    reply = b""
    while b"\r\n\r\n" not in reply:
        reply += connection.recv(65536)
    head, _, body = reply.partition(b"\r\n\r\n")
    size = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
    while len(body) < size:
        body += connection.recv(65536)
    return body


def bare_one_by_one(port: int, requests: int) -> Round:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def ask() -> None:
            connection.sendall(prepared())
            _receive_answer(connection)

        return one_by_one(ask, requests)


def ours_one_by_one(port: int, requests: int) -> Round:
    with Client(f"http://127.0.0.1:{port}") as client:
        return one_by_one(lambda: client.append("jobs", RECORD), requests)


def bare_batches(port: int, records: int) -> Round:
    """The same records, as prepared batches of 5000, one after the other."""
    one = BODY.partition(b"[")[2].partition(b"]")[0]
    body = b'{"records":[' + b",".join([one] * BATCH) + b"]}"
    request = HEAD % len(body) + body
    told = b'"count":%d' % BATCH
    with socket.create_connection(("127.0.0.1", port)) as connection:
        began_s = time.perf_counter()
        for _ in range(records // BATCH):
            connection.sendall(request)
            reply = _receive_answer(connection)
            assert told in reply, reply
        return Round(records / (time.perf_counter() - began_s))


def ours_produced(port: int, records: int) -> Round:
    """Each by a `send` of its own, until the last is acknowledged."""
    with Client(f"http://127.0.0.1:{port}") as client:
        began_s = time.perf_counter()
        with client.producer("jobs") as producer:
            for _ in range(records):
                producer.send(RECORD)
        return Round(records / (time.perf_counter() - began_s))


def ours_produced_async(port: int, records: int) -> Round:
    async def produce() -> Round:
        async with AsyncClient(f"http://127.0.0.1:{port}") as client:
            began_s = time.perf_counter()
            async with client.producer("jobs") as producer:
                for _ in range(records):
                    await producer.send(RECORD)
            return Round(records / (time.perf_counter() - began_s))

    return asyncio.run(produce())


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
    Job("records by Producer.send", 500_000, bare_batches, ours_produced),
    Job("records by AsyncProducer.send", 500_000, bare_batches, ours_produced_async),
)


@dataclass(frozen=True, slots=True)
class Timed:
    """A round, and the CPU time of this process for each of its requests."""

    round: Round
    cpu_us: float


def timed(run: Callable[[int, int], Round], port: int, requests: int) -> Timed:
    began_s = time.process_time()
    found = run(port, requests)
    return Timed(found, (time.process_time() - began_s) * 1e6 / requests)


def run_job(job: Job, serving: Serving, *, rounds: int, scale: float) -> str:
    """A row of the table."""
    requests = max(int(job.requests * scale), 1)
    bare: list[Timed] = []
    ours: list[Timed] = []
    for _ in range(rounds):
        bare.append(timed(job.bare, serving.port, requests))
        ours.append(timed(job.ours, serving.port, requests))
    ratios = [o.round.rate / b.round.rate for b, o in zip(bare, ours, strict=True)]
    cells = [job.name, _cell(bare), _cell(ours), f"{statistics.median(ratios):.2f}"]
    return " | ".join(cells)


def _cell(rounds: Sequence[Timed]) -> str:
    best = max((each.round for each in rounds), key=lambda each: each.rate)
    cpu_us = min(each.cpu_us for each in rounds)
    text = f"{best.rate:,.0f}/s, {cpu_us:.3g} us CPU"
    if not best.took_s:
        return text
    return f"{text}, p50 {best.percentile_ms(50):.2f} ms, p99 {best.percentile_ms(99):.2f} ms"


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
