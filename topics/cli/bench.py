"""`topics bench`: how much a server does for this machine, by a load of its own.

Owns the load, its topics and the figures.  Invariant: it writes to topics that it made itself, under
names that nobody else has, and deletes them however it ends, short of SIGKILL.
"""

import json
import os
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

import click

from topics.cli.exits import REFUSED, Stop, output
from topics.cli.moments import age_ms
from topics.cli.printing import Table, say_json, warn
from topics.cli.target import with_client

if TYPE_CHECKING:
    from topics.client import Client, Config

TESTS: Final = ("append", "batch", "read", "work")
"""In their order: a read reads what was appended before it."""
OPERATIONS_MAX: Final = 1_000_000
"""Operations of one test: their times are kept until it ends."""
DURATION_MS_MAX: Final = 600_000
CAP_BYTES: Final = 1 << 30
"""The topics hold no more than that."""
FILLED_RECORDS: Final = 10_000
"""What a read finds, where no test has appended before it."""
JOBS_PER_S: Final = 5000
"""Jobs that are there for each second of `work`; it ends early where they do not last."""
JOBS_MAX: Final = 200_000
PAGE_RECORDS: Final = 1000
"""Of one request of a read, and of one append that fills a topic."""
NODE: Final = "topics-bench"

Operation = Callable[[], int]
"""A request, or a claim with its ack; returns how many records it was about, 0 where none is left."""


@click.command("bench")
@click.argument("tests", nargs=-1, type=click.Choice(TESTS), metavar="[TEST]...")
@click.option(
    "--duration",
    default="5s",
    show_default=True,
    callback=age_ms,
    metavar="DURATION",
    help="Of each test; ten minutes at most.",
)
@click.option(
    "--clients",
    type=click.IntRange(1, 256),
    default=4,
    show_default=True,
    metavar="N",
    help="Requests at the same time, each of a thread with a connection.",
)
@click.option(
    "--size",
    type=click.IntRange(2, 1_000_000),
    default=100,
    show_default=True,
    metavar="BYTES",
    help="Of a record's data.",
)
@click.option(
    "--batch",
    type=click.IntRange(1, 10_000),
    default=100,
    show_default=True,
    metavar="N",
    help="Records of one request of `batch`.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, OPERATIONS_MAX),
    default=OPERATIONS_MAX,
    show_default=True,
    metavar="N",
    help="Operations of each test, at most.",
)
@click.option(
    "--durability",
    type=click.Choice(("ephemeral", "memory", "disk", "fsync")),
    default="disk",
    show_default=True,
    help="Of the topics of the load.",
)
@click.option(
    "--prefix", default="", metavar="TEXT", help="Of the topics' names, for a key with prefixes."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line for each test.")
@with_client
def command(
    client: "Client",
    tests: tuple[str, ...],
    duration: int,
    clients: int,
    size: int,
    batch: int,
    limit: int,
    durability: Any,
    prefix: str,
    as_json: bool,
) -> None:
    """Put a load on the server, and print what it did: requests and records a second, and how long they
    took.

    A TEST is append (a record a request), batch (--batch records a request), read (pages of 1,000), or
    work (a claim of one job, and its ack); all four by default. The load writes to topics that it
    makes for itself, and deletes them at its end. The figures are of this machine, its Python and the
    network as well: other clients make the server do more.

    \b
    topics bench
    topics bench append work --clients 32 --duration 30s --durability fsync
    """
    if not 0 < duration <= DURATION_MS_MAX:
        raise click.BadParameter("from 1ms to 10m", param_hint="--duration")
    output()
    bound = Bound(clients=clients, duration_s=duration / 1000, operations=limit)
    load = Load(client, prefix, durability, size_bytes=size, batch=batch, bound=bound)
    table = Table("<test", *(f">{title}" for title in TITLES))
    for test in TESTS:
        if test not in (tests or TESTS):
            continue
        figures = load.run(test)
        if as_json:
            say_json(json.dumps({"test": test, **figures.row(size)}))
        else:
            table.print([[test, *figures.cells(size)]])


# ---------------------------------------------------------------------- the load


@dataclass(frozen=True, slots=True)
class Bound:
    """How much load there is: a test ends when its time or its operations are over."""

    clients: int
    duration_s: float
    operations: int


class Load:
    """The tests, each before a topic of its own."""

    def __init__(
        self,
        client: "Client",
        prefix: str,
        durability: Any,
        *,
        size_bytes: int,
        batch: int,
        bound: Bound,
    ) -> None:
        import msgspec

        self._client = client
        self._prefix = prefix
        self._durability = durability
        self._value = msgspec.Raw(b'"' + b"x" * (size_bytes - 2) + b'"')
        self._batch = batch
        self._bound = bound

    def run(self, test: str) -> "Figures":
        """Make the topic of a test, measure, and delete it."""
        config: Config = {"cap_bytes": CAP_BYTES, "durability": self._durability}
        if test == "work":
            config["type"] = "queue"
        begin = {
            "append": lambda topic: self._appender(topic, 1),
            "batch": lambda topic: self._appender(topic, self._batch),
            "read": self._reader,
            "work": self._worker,
        }
        with own_topic(self._client, self._prefix, config) as topic:
            self._fill(topic, self._records_before(test))
            return measure([begin[test](topic) for _ in range(self._bound.clients)], self._bound)

    def _records_before(self, test: str) -> int:
        """How many records a topic has before its test begins."""
        if test == "work":
            jobs = int(JOBS_PER_S * self._bound.duration_s) + 1
            return min(jobs, JOBS_MAX, self._bound.operations)
        return FILLED_RECORDS if test == "read" else 0

    def _fill(self, topic: str, records: int) -> None:
        self._client.append_many(topic, repeat(self._value, records), batch_records=PAGE_RECORDS)

    def _appender(self, topic: str, count: int) -> "Operation":
        """Appends so many records in one request."""
        values = [self._value] * count

        def append() -> int:
            # Without a key: the server has nothing to remember, and no append is repeated in secret.
            self._client.append(topic, *values, keyed=False)
            return count

        return append

    def _reader(self, topic: str) -> "Operation":
        """Reads the topic page by page, again and again."""
        from topics.client import RawRecord

        from_seq = 0

        def read() -> int:
            nonlocal from_seq
            page = self._client.diff(
                topic, from_seq=from_seq, limit=PAGE_RECORDS, record_type=RawRecord
            )
            from_seq = 0 if page.caught_up else page.next_from_seq
            return len(page.records)

        return read

    def _worker(self, topic: str) -> "Operation":
        """Claims a job and acks it."""

        def work() -> int:
            claimed = self._client.claim(topic, node=NODE)
            if not claimed.jobs:
                return 0
            return self._client.ack(topic, claimed.jobs, node=NODE).acked

        return work


def unguessed() -> str:
    """64 random bits, as a name has them."""
    return os.urandom(8).hex()


@contextmanager
def own_topic(client: "Client", prefix: str, config: "Config") -> Iterator[str]:
    """A new topic, which is deleted in the end.

    Raises:
        Stop: There is a topic of that name, which is left alone.
    """
    from topics.client import TopicNotFound, TopicsError

    name = f"{prefix}bench-{unguessed()}"
    try:
        client.topic(name, touch=False)
    except TopicNotFound:
        pass
    else:
        raise Stop(f"{name} exists, and is none of this load's", REFUSED)
    client.put_topic(name, **config)
    try:
        yield name
    finally:
        try:
            client.delete_topic(name)
        except TopicsError as error:
            warn(f"{name} was made by this load and is still there: {error}")


# ---------------------------------------------------------------------- the figures


@dataclass(frozen=True, slots=True)
class Figures:
    """What one test did.

    Attributes:
        times_s: How long each operation took, ascending, shape (operations,).
        elapsed_s: From the first to the last of all clients.
    """

    records: int
    times_s: "array[float]"
    elapsed_s: float

    def quantile_ms(self, share: float) -> float:
        """The time within which this share of the operations was done; 0 where there was none."""
        if not self.times_s:
            return 0.0
        at = min(int(share * len(self.times_s)), len(self.times_s) - 1)
        return self.times_s[at] * 1000

    def row(self, size_bytes: int) -> dict[str, float]:
        """The figures as numbers."""
        elapsed_s = max(self.elapsed_s, 1e-9)
        return {
            "operations": len(self.times_s),
            "records": self.records,
            "elapsed_s": round(self.elapsed_s, 3),
            "operations_per_s": round(len(self.times_s) / elapsed_s, 1),
            "records_per_s": round(self.records / elapsed_s, 1),
            "bytes_per_s": round(self.records * size_bytes / elapsed_s, 1),
            "p50_ms": round(self.quantile_ms(0.5), 3),
            "p99_ms": round(self.quantile_ms(0.99), 3),
            "max_ms": round(self.quantile_ms(1.0), 3),
        }

    def cells(self, size_bytes: int) -> list[str]:
        """The figures as cells under `TITLES`."""
        row = self.row(size_bytes)
        return [
            f"{row['operations_per_s']:,.0f}",
            f"{row['records_per_s']:,.0f}",
            f"{row['bytes_per_s'] / 1e6:,.1f}",
            *(f"{row[name]:,.2f}" for name in ("p50_ms", "p99_ms", "max_ms")),
        ]


TITLES: Final = ("operations/s", "records/s", "MB/s", "p50 ms", "p99 ms", "max ms")


def measure(
    operations: "list[Operation]", bound: Bound, clock: Callable[[], float] = time.perf_counter
) -> Figures:
    """Let each operation be done again and again by a thread of its own, until the bound.

    Raises:
        BaseException: That of the first operation that failed, or of the thread that waits; every
            other one has ended by then.
    """
    # With logging behind it, it is a part of what other commands do not load.
    from concurrent.futures import ThreadPoolExecutor, as_completed

    load = _Running(bound, clock)
    with ThreadPoolExecutor(len(operations)) as pool:
        try:
            for run in as_completed([pool.submit(load.repeat, each) for each in operations]):
                run.result()
        finally:
            load.stop()
    return Figures(load.records, array("d", sorted(load.times_s)), clock() - load.begin_s)


class _Running:
    """What the threads of a test share."""

    def __init__(self, bound: Bound, clock: Callable[[], float]) -> None:
        self.records = 0
        self.times_s = array("d")
        self.begin_s = clock()
        self._clock = clock
        self._end_s = self.begin_s + bound.duration_s
        self._left = bound.operations
        self._lock = threading.Lock()

    def stop(self) -> None:
        with self._lock:
            self._left = 0

    def repeat(self, operation: Operation) -> None:
        """Do an operation until the bound, or until it finds nothing to do."""
        while self._takes():
            begin_s = self._clock()
            records = operation()
            if not records:
                return
            self._note(records, self._clock() - begin_s)

    def _takes(self) -> bool:
        with self._lock:
            if not self._left or self._clock() >= self._end_s:
                return False
            self._left -= 1
            return True

    def _note(self, records: int, took_s: float) -> None:
        with self._lock:
            self.records += records
            self.times_s.append(took_s)
