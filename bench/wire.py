"""Load over bare sockets against a real server process: `python -m bench.wire`.

Requests are encoded beforehand and replies only measured, not parsed, so that the client costs as
little as Python can: one process, blocking for a lone connection, `epoll` for many.  Client and
server share the machine.  Each job runs for several rounds, those of the servers in turn; the table
has the best round: its rate, and the CPU time of the server per record.

With `redis-server` installed (Debian: `apt-get install redis-server`) the same jobs run against
streams of Redis with an append-only file, `everysec` for `disk` and `always` for `fsync`: `XADD` a
record, pipelined where a request holds a thousand, and `XRANGE` for pages.  The ratio to it carries
from machine to machine; the rates do not.
"""

import select
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Final, Protocol

import click

from bench.conftest import machine
from bench.loads import append_body, data_of
from bench.serving import Serving, has_redis, serve_redis, serve_topics

PAGE_RECORDS: Final = 1000
BACKLOG_RECORDS: Final = 300_000
RECENT_RECORDS: Final = 8_000
RECV_BYTES: Final = 1 << 20

IsWhole = Callable[[bytearray], bool]
"""Whether one connection's reply is complete; raises ValueError for a refusal."""


# ---------------------------------------------------------------------- replies


def http_reply(reply: bytearray) -> bool:
    """A head that says 200 or 201, and the bytes that its Content-Length promises."""
    end = reply.find(b"\r\n\r\n")
    if end < 0:
        return False
    head = reply[:end].lower()
    at = head.index(b"content-length:") + len(b"content-length:")
    stop = head.find(b"\r\n", at)
    if len(reply) < end + 4 + int(head[at : stop if stop >= 0 else end]):
        return False
    if not head.startswith(b"http/1.1 20"):
        raise ValueError(reply[: end + 200].decode(errors="replace"))
    return True


class Lines:
    """As many lines: each item of Redis's protocol ends one, and our payloads hold none."""

    def __init__(self, lines: int) -> None:
        self._lines = lines
        self._left = lines
        self._seen = 0

    def __call__(self, reply: bytearray) -> bool:
        if reply.startswith(b"-"):
            raise ValueError(bytes(reply[:500]))
        self._left -= reply.count(b"\n", self._seen)
        self._seen = len(reply)
        if self._left > 0:
            return False
        self._left, self._seen = self._lines, 0
        return True


# ---------------------------------------------------------------------- servers


@dataclass(frozen=True, slots=True)
class Ask:
    """A request, and what its reply looks like: 0 lines for HTTP."""

    request: bytes
    lines: int = 0

    def judge(self) -> IsWhole:
        return Lines(self.lines) if self.lines else http_reply


class Peer(Protocol):
    """A kind of server: how to start it, and how to say what the jobs say."""

    name: str

    def start(self, home: Path, *, fsync: bool) -> Serving: ...

    def create(self, key: str, *, fsync: bool) -> Ask: ...

    def append(self, key: str, records: int, size_bytes: int) -> Ask: ...

    def page(self, key: str, after: int) -> Ask:
        """The thousand records behind the `after`-th, once `records` were appended."""


class Topics:
    """This server, over HTTP/1.1."""

    name = "topics"

    def start(self, home: Path, *, fsync: bool) -> Serving:
        return serve_topics(home)

    def create(self, key: str, *, fsync: bool) -> Ask:
        durability = b"fsync" if fsync else b"disk"
        return self._ask(b"PUT", key, b"", b'{"durability":"%b"}' % durability)

    def append(self, key: str, records: int, size_bytes: int) -> Ask:
        return self._ask(b"POST", key, b"", append_body(records, size_bytes))

    def page(self, key: str, after: int) -> Ask:
        body = b'{"from_seq":%d,"limit":%d,"max_batch_bytes":8388608}' % (after, PAGE_RECORDS)
        return self._ask(b"POST", key, b"/diff", body)

    @staticmethod
    def _ask(method: bytes, key: str, after: bytes, body: bytes) -> Ask:
        head = (
            b"%b /v0/topics/%b%b HTTP/1.1\r\nhost: 127.0.0.1\r\n"
            b"content-type: application/json\r\ncontent-length: %d\r\n\r\n"
        ) % (method, key.encode(), after, len(body))
        return Ask(head + body)


class Redis:
    """Streams of Redis.  Ids are counted by the server (`0-*`), as ours are."""

    name = "redis"

    def start(self, home: Path, *, fsync: bool) -> Serving:
        return serve_redis(home, fsync="always" if fsync else "everysec")

    def create(self, key: str, *, fsync: bool) -> Ask:
        return Ask(_redis(b"DEL", key.encode()), 1)

    def append(self, key: str, records: int, size_bytes: int) -> Ask:
        one = _redis(b"XADD", key.encode(), b"0-*", b"d", data_of(size_bytes))
        return Ask(one * records, 2 * records)

    def page(self, key: str, after: int) -> Ask:
        start = b"(0-%d" % after if after else b"-"
        request = _redis(b"XRANGE", key.encode(), start, b"+", b"COUNT", b"%d" % PAGE_RECORDS)
        # An entry is *2, $n, its id, *2, $1, d, $n, its data; one line stands before them all.
        return Ask(request, 1 + 8 * PAGE_RECORDS)


def _redis(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(w), w) for w in words)


# ---------------------------------------------------------------------- load


def run_alone(connection: socket.socket, asks: Sequence[Ask]) -> None:
    """One request after the other on a blocking connection."""
    buffer = bytearray(RECV_BYTES)
    view = memoryview(buffer)
    for ask in asks:
        connection.sendall(ask.request)
        is_whole = ask.judge()
        reply = bytearray()
        while True:
            size = connection.recv_into(view)
            if not size:
                raise ConnectionError("the server closed the connection")
            reply += view[:size]
            if is_whole(reply):
                break


@dataclass(slots=True)
class _Client:
    connection: socket.socket
    reply: bytearray
    is_whole: IsWhole


def run_together(connections: Sequence[socket.socket], asks: Sequence[Ask]) -> None:
    """Small requests over all connections; each sends its next one when it was answered."""
    coming = iter(asks)
    clients: dict[int, _Client] = {}
    with select.epoll() as poll:
        for connection, ask in zip(connections, coming, strict=False):
            clients[connection.fileno()] = _Client(connection, bytearray(), ask.judge())
            poll.register(connection, select.EPOLLIN)
            connection.sendall(ask.request)
        owed = len(clients)
        while owed:
            for fileno, _ in poll.poll():
                client = clients[fileno]
                client.reply += client.connection.recv(RECV_BYTES)
                if not client.is_whole(client.reply):
                    continue
                client.reply.clear()
                following = next(coming, None)
                if following is None:
                    owed -= 1
                else:
                    client.is_whole = following.judge()
                    client.connection.sendall(following.request)


# ---------------------------------------------------------------------- jobs


@dataclass(frozen=True, slots=True)
class Job:
    """One row of the table.

    Attributes:
        requests: How many requests a round sends at scale 1; about a second's worth.
        records: How many records each is about.
        size_bytes: Of `data`.
        pages_of: For reads: how many records lie there; 0 for appends.
        clients: Connections.
    """

    name: str
    requests: int
    records: int = 1
    size_bytes: int = 64
    fsync: bool = False
    pages_of: int = 0
    clients: int = 1

    def prepare(self, peer: Peer, serving: Serving, key: str) -> None:
        """What must lie there before a round."""
        with serving.connect() as connection:
            fill = peer.append(key, PAGE_RECORDS, self.size_bytes)
            appends = self.pages_of // PAGE_RECORDS
            run_alone(connection, [peer.create(key, fsync=self.fsync), *[fill] * appends])

    def asks(self, peer: Peer, key: str, scale: float) -> list[Ask]:
        count = max(int(self.requests * scale), self.clients)
        if not self.pages_of:
            return [peer.append(key, self.records, self.size_bytes)] * count
        pages = [peer.page(key, after) for after in range(0, self.pages_of, PAGE_RECORDS)]
        return list(islice(cycle(pages), count))


JOBS: Final = (
    Job("1 client, 1 record, disk", 4000),
    Job("1 client, 1 record, fsync", 2000, fsync=True),
    Job("32 clients, 1 record, disk", 8000, clients=32),
    Job("32 clients, 1 record, fsync", 8000, clients=32, fsync=True),
    Job("1000 x 64 B a request, disk", 300, records=1000),
    Job("1000 x 64 B a request, fsync", 300, records=1000, fsync=True),
    Job("1000 x 1 KiB a request, disk", 60, records=1000, size_bytes=1024),
    Job("1000 x 1 KiB a request, fsync", 60, records=1000, size_bytes=1024, fsync=True),
    Job("read a backlog of 300,000, pages of 1000", 300, records=1000, pages_of=BACKLOG_RECORDS),
    Job("read 8000 recent records again and again", 600, records=1000, pages_of=RECENT_RECORDS),
)

SUSTAINED: Final = Job("1000 x 64 B a request, disk, for 5,000,000", 5000, records=1000)
"""Longer than what memory for unsealed records can take: sealing has to keep up."""


@dataclass(frozen=True, slots=True)
class Round:
    """What one round came to; `units` are records."""

    units: int
    took_s: float
    cpu_s: float

    @property
    def rate(self) -> float:
        return self.units / self.took_s

    @property
    def cpu_us(self) -> float:
        return self.cpu_s * 1e6 / self.units


def run_round(job: Job, peer: Peer, serving: Serving, key: str, scale: float) -> Round:
    """Prepare, connect, and time the requests alone."""
    job.prepare(peer, serving, key)
    asks = job.asks(peer, key, scale)
    with ExitStack() as stack:
        connections = [stack.enter_context(serving.connect()) for _ in range(job.clients)]
        cpu_s, began_s = serving.cpu_s(), time.perf_counter()
        if job.clients == 1:
            run_alone(connections[0], asks)
        else:
            run_together(connections, asks)
        took_s = time.perf_counter() - began_s
        return Round(len(asks) * job.records, took_s, serving.cpu_s() - cpu_s)


def peers() -> tuple[Peer, ...]:
    return (Topics(), Redis()) if has_redis() else (Topics(),)


def run_job(job: Job, home: Path, *, rounds: int, scale: float) -> dict[str, list[Round]]:
    """Rounds of a job by server, the servers in turn; each server is fresh for the job."""
    done: dict[str, list[Round]] = {}
    with ExitStack() as stack:
        started = [
            (peer, stack.enter_context(peer.start(home / peer.name, fsync=job.fsync)))
            for peer in peers()
        ]
        for n in range(rounds):
            for peer, serving in started:
                found = run_round(job, peer, serving, f"round-{n}", scale)
                done.setdefault(peer.name, []).append(found)
    return done


# ---------------------------------------------------------------------- the table


def best(rounds: Sequence[Round]) -> Round:
    return max(rounds, key=lambda each: each.rate)


def cells(job: Job, done: dict[str, list[Round]]) -> Iterator[str]:
    yield job.name
    ours = best(done["topics"])
    for name in ("topics", "redis"):
        if name not in done:
            yield "not installed"
            continue
        found = best(done[name])
        cpu_us = min(each.cpu_us for each in done[name])
        yield f"{found.rate:,.0f}/s, {cpu_us:.3g} us"
    yield f"{ours.rate / best(done['redis']).rate:.2f}" if "redis" in done else "-"


@click.command()
@click.option("--rounds", default=5, show_default=True, help="Rounds of each job; the best counts.")
@click.option("--scale", default=1.0, show_default=True, help="Length of a round.")
@click.option("--only", default="", help="Jobs whose name holds this.")
@click.option("--dir", "path", type=click.Path(path_type=Path), help="Where the data goes.")
def main(rounds: int, scale: float, only: str, path: Path | None) -> None:
    """Measure the server over sockets, and Redis beside it where it is installed."""
    click.echo(machine())
    if not has_redis():
        click.echo("redis-server is not installed: no column to compare with")
    click.echo(f"| job, best of {rounds} | topics, server CPU | redis | ratio |\n|---|---|---|---|")
    for job in (*JOBS, SUSTAINED):
        if only not in job.name:
            continue
        try:
            with tempfile.TemporaryDirectory(prefix="topics-wire-", dir=path) as home:
                times = rounds if job is not SUSTAINED else 1
                done = run_job(job, Path(home), rounds=times, scale=scale)
        except ValueError as refusal:
            told = str(refusal).partition("\r\n\r\n")[2]
            click.echo(f"| {job.name} | refused: `{told}` | | |")
        else:
            click.echo(f"| {' | '.join(cells(job, done))} |")


if __name__ == "__main__":
    main()
