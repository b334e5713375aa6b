"""What idle streams cost: `python -m bench.idle_streams [--streams 10000] [--other CHECKOUT]`.

Event streams of one topic each, over HTTP/1.1, held by client processes that only read.  Told are the
server's memory for each, and its CPU time while nothing but heartbeats is sent.  With `--other`,
another checkout takes its turn.
"""

import multiprocessing
import resource
import select
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import click

from bench.serving import Serving, serve_topics
from bench.small_requests import append, ask, received, request

CLIENTS: Final = 2
"""Processes: one alone could not hold so many sockets beside its own."""
BEAT_S: Final = 15.0
"""Between two heartbeats of a stream (§7.6)."""
SPARE_FILES: Final = 200
"""Descriptors that a process needs beside its streams."""


@dataclass(frozen=True, slots=True)
class Result:
    """What the streams came to, for the whole server; memory is resident, mapped files included."""

    streams: int
    before_bytes: int
    after_bytes: int
    cpu_part: float
    open_s: float

    @property
    def stream_bytes(self) -> float:
        return (self.after_bytes - self.before_bytes) / self.streams


def hold(port: int, streams: int, parent: Connection) -> None:
    """Open streams and read what comes, until the parent closes its end."""
    raise_file_limit(streams)
    serving = Serving("topics", None, port)  # type: ignore[arg-type]
    poll = select.epoll()
    sockets: dict[int, socket.socket] = {}
    with serving.connect() as caller:
        for _ in range(streams):
            got = ask(caller, request("POST", "/v0/watch", b'{"topics":{"t":{"tail":true}}}'))
            wid = got.partition(b'"wid":"')[2].partition(b'"')[0].decode()
            stream = serving.connect()
            stream.sendall(request("GET", f"/v0/watch/{wid}"))
            opening = b""
            while b"event: caught-up" not in opening:
                opening += received(stream)
            sockets[stream.fileno()] = stream
            poll.register(stream.fileno(), select.EPOLLIN)
    parent.send(b"open")
    poll.register(parent.fileno(), select.EPOLLIN)
    while True:
        for file, _ in poll.poll():
            if file == parent.fileno():
                return
            received(sockets[file])


def raise_file_limit(files: int) -> None:
    """Let this process, and those that it starts, have so many files open.

    Raises:
        click.ClickException: The machine allows fewer.
    """
    wanted = files + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise click.ClickException(f"{wanted} open files, and the limit is {hard} (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


@contextmanager
def held(port: int, streams: int) -> Iterator[None]:
    """Client processes that hold streams; entered when all are open."""
    spawn = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        parents = []
        for n in range(CLIENTS):
            parent, child = spawn.Pipe()
            share = streams // CLIENTS + (n < streams % CLIENTS)
            client = spawn.Process(target=hold, args=(port, share, child), daemon=True)
            client.start()
            child.close()
            stack.callback(client.join)
            stack.callback(parent.close)
            parents.append(parent)
        for parent in parents:
            parent.recv()
        yield


def resident_bytes(serving: Serving) -> int:
    pages = Path(f"/proc/{serving.process.pid}/statm").read_text().split()[1]
    return int(pages) * resource.getpagesize()


def measure(serving: Serving, streams: int, idle_s: float) -> Result:
    with serving.connect() as connection:
        ask(connection, append("t"))
    before_bytes, begun_s = resident_bytes(serving), time.perf_counter()
    with held(serving.port, streams):
        open_s = time.perf_counter() - begun_s
        time.sleep(min(idle_s, 2.0))  # what was begun while they came is over
        cpu_s, begun_s = serving.cpu_s(), time.perf_counter()
        time.sleep(idle_s)
        cpu_part = (serving.cpu_s() - cpu_s) / (time.perf_counter() - begun_s)
        return Result(streams, before_bytes, resident_bytes(serving), cpu_part, open_s)


def table(results: Sequence[tuple[str, Result]]) -> Iterator[str]:
    yield "| | streams | RSS | of each | CPU while idle | opened in |"
    yield "|---|---|---|---|---|---|"
    for name, found in results:
        yield (
            f"| {name} | {found.streams:,} | {found.after_bytes / 1e6:.0f} MB "
            f"| {found.stream_bytes:,.0f} B | {found.cpu_part:.2%} | {found.open_s:.1f} s |"
        )


@click.command()
@click.option("--streams", default=10_000, show_default=True)
@click.option("--idle", "idle_s", default=2 * BEAT_S, show_default=True, help="Seconds measured.")
@click.option("--other", type=click.Path(path_type=Path), help="A checkout to compare with.")
def main(streams: int, idle_s: float, other: Path | None) -> None:
    """Print a table."""
    raise_file_limit(streams)
    checkouts = [("this", None)] if other is None else [("this", None), ("other", other.absolute())]
    results = []
    for name, checkout in checkouts:
        with (
            tempfile.TemporaryDirectory() as home,
            serve_topics(Path(home), checkout) as serving,
        ):
            results.append((name, measure(serving, streams, idle_s)))
    print("\n".join(table(results)))


if __name__ == "__main__":
    main()
