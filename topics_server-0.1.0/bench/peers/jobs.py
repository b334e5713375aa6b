"""What is measured: the jobs, what must lie there before a round, and a round of each."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle, islice
from socket import socket
from typing import Final, TypeAlias, cast

from bench.loads import data_of
from bench.peers.load import Worker, repeating, run_alone, run_together, watch
from bench.peers.wording import PAGE_RECORDS, Ask, LogPeer, Peer, QueuePeer, exchange
from bench.serving import Serving

FILL_RECORDS: Final = 1000


@dataclass(frozen=True, slots=True)
class Round:
    """What one round came to.

    Attributes:
        units: Records, deliveries or jobs.
        delays_s: Of deliveries.
    """

    units: int
    took_s: float
    cpu_s: float
    delays_s: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return self.units / self.took_s

    @property
    def cpu_us(self) -> float:
        return self.cpu_s * 1e6 / self.units

    def delay_ms(self, part: float) -> float:
        """The delay that this part of the deliveries stayed under."""
        return sorted(self.delays_s)[int((len(self.delays_s) - 1) * part)] * 1000


@dataclass(frozen=True, slots=True)
class Appends:
    """`requests` is about a second's worth; `records` of `size_bytes` in each."""

    name: str
    requests: int
    records: int = 1
    size_bytes: int = 64
    fsync: bool = False
    clients: int = 1
    unit: str = "record"

    def run(self, peer: Peer, serving: Serving, key: str, scale: float) -> Round:
        log = cast(LogPeer, peer)
        ask = log.append(key, data_of(self.size_bytes), self.records)
        count = max(int(self.requests * scale), self.clients)
        with _connected(peer, serving, self.clients) as connections:
            for made in log.create(key, fsync=self.fsync):
                exchange(connections[0], made)
            if self.clients == 1:
                work = partial(run_alone, connections[0], [ask] * count)
            else:
                each = [
                    repeating(peer.addressed(ask, n), count // self.clients)
                    for n in range(self.clients)
                ]
                count = count // self.clients * self.clients
                work = partial(run_together, connections, each)
            return _timed(serving, work, count * self.records)


@dataclass(frozen=True, slots=True)
class Pages:
    """Pages of a thousand, again and again, of `lying` records."""

    name: str
    requests: int
    lying: int
    size_bytes: int = 64
    fsync: bool = False
    unit: str = "record"

    def run(self, peer: Peer, serving: Serving, key: str, scale: float) -> Round:
        log = cast(LogPeer, peer)
        with _connected(peer, serving, 1) as connections:
            for made in log.create(key, fsync=False):
                exchange(connections[0], made)
            fill = log.append(key, data_of(self.size_bytes), FILL_RECORDS)
            run_alone(connections[0], [fill] * (self.lying // FILL_RECORDS))
            pages = [log.page(key, after) for after in range(0, self.lying, PAGE_RECORDS)]
            asks = list(islice(cycle(pages), max(int(self.requests * scale), 1)))
            return _timed(
                serving, partial(run_alone, connections[0], asks), len(asks) * PAGE_RECORDS
            )


@dataclass(frozen=True, slots=True)
class Watching:
    """A hundred watchers: a write each `every_s`, or (0) when all have the last."""

    name: str
    writes: int
    every_s: float
    watchers: int = 100
    records: int = 1
    fsync: bool = False
    unit: str = "delivery"

    def run(self, peer: Peer, serving: Serving, key: str, scale: float) -> Round:
        log = cast(LogPeer, peer)
        with _connected(peer, serving, self.watchers + 1) as (writer, *watchers):
            for made in log.create(key, fsync=False):
                exchange(writer, made)
            for n, watcher in enumerate(watchers, 1):
                log.follow(watcher, key, n)
            cpu_s, begun_s = serving.cpu_s(), time.perf_counter()
            found = watch(
                *(log, writer, watchers, key),
                writes=max(int(self.writes * scale), 2),
                records=self.records,
                data=data_of(64),
                every_s=self.every_s,
            )
            took_s = time.perf_counter() - begun_s
            return Round(found.records, took_s, serving.cpu_s() - cpu_s, found.delays_s)


@dataclass(frozen=True, slots=True)
class Working:
    """Sixteen workers that claim eight jobs and ack them; `depth` jobs are left in the end."""

    name: str
    jobs: int
    depth: int
    workers: int = 16
    fsync: bool = False
    unit: str = "job"

    def run(self, peer: Peer, serving: Serving, key: str, scale: float) -> Round:
        queue = cast(QueuePeer, peer)
        jobs = max(int(self.jobs * scale) // FILL_RECORDS, 1) * FILL_RECORDS
        with _connected(peer, serving, self.workers) as connections:
            for made in queue.create_queue(key):
                exchange(connections[0], made)
            fill = queue.put_jobs(key, data_of(64), FILL_RECORDS)
            run_alone(connections[0], [fill] * ((jobs + self.depth) // FILL_RECORDS))
            done = [0]
            workers = [Worker(queue, key, n, done, jobs) for n in range(self.workers)]
            found = _timed(serving, partial(run_together, connections, workers), 1)
            return Round(done[0], found.took_s, found.cpu_s)


Job: TypeAlias = Appends | Pages | Watching | Working

JOBS: Final[tuple[Job, ...]] = (
    Appends("one client, one record, disk", 4000),
    Appends("one client, one record, fsync", 2000, fsync=True),
    Appends("32 clients, one record, disk", 8000, clients=32),
    Appends("32 clients, one record, fsync", 8000, clients=32, fsync=True),
    Appends("1000 x 64 B a request, disk", 300, records=1000),
    Appends("1000 x 64 B a request, fsync", 300, records=1000, fsync=True),
    Appends("1000 x 1 KiB a request, disk", 60, records=1000, size_bytes=1024),
    Appends("1000 x 1 KiB a request, fsync", 60, records=1000, size_bytes=1024, fsync=True),
    Pages("read 300,000 records, pages of 1000", 300, 300_000),
    Pages("read 8,000 recent records again and again", 600, 8_000),
    Watching("100 watchers, a write each 10 ms", 100, every_s=0.01),
    Watching("100 watchers, a write when all have the last", 300, every_s=0.0),
    Working("16 workers, claim 8 and ack 8, 2,000 deep", 20_000, 2_000),
    Working("16 workers, claim 8 and ack 8, 20,000 deep", 20_000, 20_000),
)

SUSTAINED: Final = Appends("1000 x 64 B a request, disk, for 5,000,000", 5000, records=1000)
"""Longer than what memory for unsealed records can take: sealing has to keep up."""


def offers(peer: Peer, job: Job) -> bool:
    """Whether a server has what a job needs."""
    return hasattr(peer, "create_queue" if isinstance(job, Working) else "create")


@contextmanager
def _connected(peer: Peer, serving: Serving, count: int) -> Iterator[list[socket]]:
    with ExitStack() as stack:
        connections = [stack.enter_context(serving.connect()) for _ in range(count)]
        for n, connection in enumerate(connections):
            peer.greet(connection, n)
        yield connections


def _timed(serving: Serving, work: "partial[None]", units: int) -> Round:
    cpu_s, begun_s = serving.cpu_s(), time.perf_counter()
    work()
    took_s = time.perf_counter() - begun_s
    return Round(units, took_s, serving.cpu_s() - cpu_s)


__all__ = ["JOBS", "SUSTAINED", "Ask", "Job", "Round", "Watching", "offers"]
