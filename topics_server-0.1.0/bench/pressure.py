"""A server with a slow disk that is offered three times what it can write (§0.6).

Run `python -m bench.pressure [--disk BYTES_PER_S] [--seconds S] [--offer FACTOR]`.  Writers keep the server
busy first, each with one write at a time, which tells its capacity; then so many times as much is
offered, whatever comes of it, half of it to a topic of priority -100 and half to one of 500, with a
loader that asked for no backpressure, and a client that reads.  Printed are: what was written as a
part of the capacity; how many writes of either priority were refused, and how soon, by the client and by what the server
says itself; how long the loader
waited at most; the p99 of the reads before and meanwhile; the growth of the server's peak RSS; and
how long after the last offer a write is answered as before.
"""

import asyncio
import json
import os
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

import click

from bench.neighbour import forget_peak, p99_ms, rss_mib
from bench.serving import Serving, serve_command

RECORD_BYTES: Final = 400_000
WRITERS: Final = 32
CONNECTIONS_MAX: Final = 900
READ_EVERY_S: Final = 0.01
LOW, HIGH, LOADER, READ = "low", "high", "loader", "read"


def post(target: str, body: object) -> bytes:
    text = json.dumps(body).encode()
    head = f"POST {target} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(text)}\r\n\r\n".encode() + text


def put(topic: str, **config: object) -> bytes:
    return post(f"/v0/topics/{topic}", config).replace(b"POST", b"PUT", 1)


WRITE: Final = {"records": [{"data": "x" * RECORD_BYTES}]}


@dataclass(slots=True)
class Told:
    """What came of the requests to one topic; times in seconds."""

    done: int = 0
    done_s: list[float] = field(default_factory=list)
    refused_s: list[float] = field(default_factory=list)
    server_s: list[float] = field(default_factory=list)
    without_retry: int = 0
    not_offered: int = 0
    reasons: Counter[str] = field(default_factory=Counter)


class Offers:
    """Requests over connections that are kept, each with one request at a time."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._open = 0

    async def ask(self, request: bytes, told: Told) -> None:
        if not self._idle and self._open >= CONNECTIONS_MAX:
            told.not_offered += 1
            return
        if self._idle:
            reader, writer = self._idle.pop()
        else:
            self._open += 1
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(request)
        await writer.drain()
        begun_s = time.perf_counter()
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            took_s = time.perf_counter() - begun_s
            fields = head.lower()
            size = int(fields.partition(b"content-length:")[2].split()[0])
            body = await reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            self._open -= 1
            writer.close()
            return
        if head.split()[1] == b"429":
            told.refused_s.append(took_s)
            refusal = json.loads(body)
            told.reasons[refusal["error"]["message"]] += 1
            told.server_s.append(refusal["performance"]["server_total_ms"] / 1000)
            told.without_retry += b"retry-after:" not in fields
        else:
            told.done += 1
            told.done_s.append(took_s)
        if b"connection: close" in fields:
            self._open -= 1
            writer.close()
        else:
            self._idle.append((reader, writer))

    def close(self) -> None:
        for _, writer in self._idle:
            writer.close()


async def busy(offers: Offers, seconds: float) -> float:
    """Writes a second, where every writer waits for its answer."""
    told, until_s = Told(), time.perf_counter() + seconds
    request = post(f"/v0/topics/{HIGH}", WRITE)

    async def write() -> None:
        while time.perf_counter() < until_s:
            await offers.ask(request, told)

    await asyncio.gather(*(write() for _ in range(WRITERS)))
    return told.done / seconds


async def read(offers: Offers, told: Told, until_s: float) -> None:
    request = post(f"/v0/topics/{READ}/diff", {"from_seq": 0})
    while time.perf_counter() < until_s:
        await offers.ask(request, told)
        await asyncio.sleep(READ_EVERY_S)


async def load(offers: Offers, told: Told, until_s: float) -> None:
    request = post(f"/v0/topics/{LOW}", WRITE | {"disable_backpressure": True})
    while time.perf_counter() < until_s:
        await offers.ask(request, told)


async def offered(offers: Offers, a_second: float, seconds: float) -> dict[str, Told]:
    """Offer writes at a rate, whatever comes of them."""
    told = {name: Told() for name in (LOW, HIGH, LOADER, READ)}
    requests = {name: post(f"/v0/topics/{name}", WRITE) for name in (LOW, HIGH)}
    begun_s = time.perf_counter()
    until_s = begun_s + seconds
    tasks = [
        asyncio.create_task(read(offers, told[READ], until_s)),
        asyncio.create_task(load(offers, told[LOADER], until_s)),
    ]
    sent = 0
    while (now_s := time.perf_counter()) < until_s:
        while sent < (now_s - begun_s) * a_second:
            name = (LOW, HIGH)[sent % 2]
            tasks.append(asyncio.create_task(offers.ask(requests[name], told[name])))
            sent += 1
        await asyncio.sleep(0.002)
    await asyncio.gather(*tasks)
    return told


async def recovered_s(offers: Offers, usual_s: float) -> float:
    """Seconds until a write of the lowest priority is answered as before."""
    begun_s = time.perf_counter()
    while True:
        told = Told()
        await offers.ask(post(f"/v0/topics/{LOW}", WRITE), told)
        if told.done_s and told.done_s[0] <= usual_s:
            return time.perf_counter() - begun_s
        await asyncio.sleep(0.02)


async def measure(serving: Serving, seconds: float, offer: float) -> list[str]:
    offers = Offers(serving.port)
    set_up = Told()
    for name, priority in ((LOW, -100), (HIGH, 500), (READ, 0)):
        config = {"priority": priority, "discard": "old", "cap_records": 200}
        await offers.ask(put(name, **config), set_up)
    await offers.ask(post(f"/v0/topics/{READ}", {"records": [{"data": 1}] * 10}), set_up)
    alone, calm = Told(), Told()
    await busy(offers, seconds / 2)
    capacity = await busy(offers, seconds)
    await asyncio.sleep(1)
    await read(offers, calm, time.perf_counter() + 1)
    for _ in range(10):
        await offers.ask(post(f"/v0/topics/{LOW}", WRITE), alone)
    memory = rss_mib(serving, "VmRSS")
    forget_peak(serving)
    begun_s = time.perf_counter()
    told = await offered(offers, offer * capacity, seconds)
    took_s = time.perf_counter() - begun_s
    grown = rss_mib(serving, "VmHWM") - memory
    normal_s = await recovered_s(offers, 3 * max(alone.done_s))
    offers.close()
    for name in (LOW, HIGH, LOADER):
        for reason, times in told[name].reasons.most_common(3):
            print(f"{name}: {times} x {reason}", file=sys.stderr)
    written = sum(told[name].done for name in (LOW, HIGH, LOADER)) / took_s
    lines = [
        f"capacity | {capacity:.0f} writes of 400 KB a second",
        f"goodput at {offer:g} times that | {100 * written / capacity:.0f} %",
    ]
    for name in (LOW, HIGH):
        one = told[name]
        asked = one.done + len(one.refused_s)
        wait = ""
        if one.refused_s:
            inside = f"{median(one.server_s) * 1e3:.1f} (p99 {p99_ms(one.server_s):.1f}) ms in the server"
            wait = f" after {median(one.refused_s) * 1e3:.1f} ms, {inside}"
        lines.append(
            f"{name} priority | {len(one.refused_s)} of {asked} refused{wait}, "
            f"{one.without_retry} without Retry-After"
        )
    loader = told[LOADER]
    slowest = max(loader.done_s, default=0.0)
    lines += [
        f"loader | {loader.done} written, {len(loader.refused_s)} refused, waits up to {slowest:.2f} s",
        f"reads, p99 | {p99_ms(calm.done_s):.1f} -> {p99_ms(told[READ].done_s):.1f} ms",
        f"peak RSS | +{grown} MiB",
        f"normal again | after {normal_s:.2f} s",
    ]
    return lines


@click.command()
@click.option(
    "--disk", default=10_000_000, show_default=True, help="Bytes that it writes a second."
)
@click.option("--sync-ms", default=5.0, show_default=True, help="How long a sync takes.")
@click.option("--seconds", default=8.0, show_default=True, help="How long the offer lasts.")
@click.option("--offer", default=3.0, show_default=True, help="Of the capacity.")
def main(disk: int, sync_ms: float, seconds: float, offer: float) -> None:
    """Print what a server does under more writes than its disk takes."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as home:
        command = [sys.executable, "-m", "bench.slow_disk", str(disk), str(sync_ms)]
        with serve_command(Path(home) / "server", command) as serving:
            for line in asyncio.run(measure(serving, seconds, offer)):
                print(line, flush=True)


if __name__ == "__main__":
    main()
