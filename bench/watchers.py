"""Many watchers of one topic over real sockets: how long a write takes to each, and how many a
second.

Run `python -m bench.watchers [--watchers 1,10,100,1000] [--writes 200] [--records 10]`.  The client is
bare sockets on one event loop beside the server, so on a small machine both share the cores.
"""

import asyncio
import json
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import click

from bench.serving import Serving, serve_topics

DEADLINE_S = 120.0


@dataclass(frozen=True, slots=True)
class Result:
    """Times from the moment a write is sent to the moment a watcher has its frame, seconds."""

    watchers: int
    p50_s: float
    p99_s: float
    deliveries_per_s: float


def ask(method: str, target: str, body: object = None) -> bytes:
    text = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: */*\r\n"
    if body is not None:
        head += f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n"
    return head.encode() + b"\r\n" + text


class Caller:
    """One connection that asks and reads whole answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> "Caller":
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 24))

    async def ask(self, request: bytes) -> bytes:
        self._writer.write(request)
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        at = head.index(b"content-length:") + 15
        return await self._reader.readexactly(int(head[at : head.index(b"\r", at)]))

    def close(self) -> None:
        self._writer.close()


async def watch(
    port: int, url: str, seen: list[float], frames: int, ready: asyncio.Semaphore
) -> None:
    """Read a stream until `frames` record frames have come; when each came goes into `seen`."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    writer.write(ask("GET", url))
    count, kept = 0, b""
    while count < frames:
        chunk = await reader.read(1 << 18)
        now_s = time.perf_counter()
        assert chunk, "the stream ended"
        text = kept + chunk
        if b"event: caught-up" in text:
            ready.release()
        new = text.count(b"event: record\n")
        seen.extend([now_s] * new)
        count += new
        # A name that is cut by the end of a chunk is looked at with the next one, once.
        last = text.rfind(b"\n") + 1
        kept = text[last:]
    writer.close()


async def measure(
    server: Serving, watchers: int, writes: int, records: int, every_s: float
) -> Result:
    caller = await Caller.open(server.port)
    await caller.ask(ask("PUT", "/v0/topics/w", {}))
    ready, tasks = asyncio.Semaphore(0), []
    logs: list[list[float]] = [[] for _ in range(watchers)]
    for log in logs:
        begun = json.loads(
            await caller.ask(ask("POST", "/v0/watch", {"topics": {"w": {"tail": True}}}))
        )
        url = begun["stream_url"]
        tasks.append(asyncio.create_task(watch(server.port, url, log, writes, ready)))
    for _ in range(watchers):
        await ready.acquire()
    body = ask(
        "POST", "/v0/topics/w?return_seqs=false", {"records": [{"data": "x" * 64}] * records}
    )
    sent, begun_s = [], time.perf_counter()
    for i in range(writes):
        sent.append(time.perf_counter())
        await caller.ask(body)
        while all(len(log) <= i for log in logs[-1:]):
            await asyncio.sleep(0)
        await asyncio.sleep(every_s)
    await asyncio.wait_for(asyncio.gather(*tasks), DEADLINE_S)
    took_s = time.perf_counter() - begun_s
    caller.close()
    waits = sorted(log[i] - sent[i] for log in logs for i in range(writes))
    return Result(
        watchers,
        statistics.median(waits),
        waits[int(len(waits) * 0.99)],
        watchers * writes * records / took_s,
    )


@click.command()
@click.option("--watchers", default="1,10,100,1000", show_default=True)
@click.option("--writes", default=100, show_default=True)
@click.option("--records", default=10, show_default=True, help="Records of a write.")
@click.option("--every-ms", default=0.0, show_default=True, help="Pause between writes.")
def main(watchers: str, writes: int, records: int, every_ms: float) -> None:
    """One writer, many watchers."""
    click.echo(f"{'watchers':>9}{'p50 ms':>10}{'p99 ms':>10}{'records/s':>14}")
    for count in map(int, watchers.split(",")):
        with tempfile.TemporaryDirectory() as home, serve_topics(Path(home) / "t") as server:
            found = asyncio.run(measure(server, count, writes, records, every_ms / 1000))
        figures = f"{found.p50_s * 1000:10.2f}{found.p99_s * 1000:10.2f}"
        click.echo(f"{found.watchers:>9}{figures}{found.deliveries_per_s:>14,.0f}")


if __name__ == "__main__":
    main()
