"""The demonstration's second half: the same flights through Spark.

From the data directory, while the server runs, to Parquet by date; from there to a report in SQL, as a
table and a plot; and a stream that follows a topic while it is written, and whose driver is killed.
Every figure is compared with the source.
"""

import os
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from bench.flights import BATCH_RECORDS, Flight, Report, Server, read_all
from topics import Client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA: Final = """
    seq BIGINT, tag STRING, _corrupt STRING,
    data STRUCT<year: INT, month: INT, day: INT, hour: INT, carrier: STRING, dep_delay: DOUBLE>
"""
REPORT: Final = """
    SELECT carrier, hour, count(*) AS flights, count(dep_delay) AS departed, sum(dep_delay) AS delay
    FROM flights GROUP BY carrier, hour
"""
PICTURES: Final = Path("build")
"""The plot outlives the demonstration, whose own directory does not."""
FOLLOWED: Final = 12_000
PATIENCE_S: Final = 300.0
LATE_MIN: Final = 15

Delays = dict[tuple[str, int], tuple[int, int, float]]
"""Carrier and hour -> flights, those that departed, and the sum of their delays in minutes."""


def run(report: Report, server: Server, flights: Sequence[Flight]) -> None:
    """All of it; `flights` is what the topic "flights" holds."""
    from topics.spark.sessions import session

    report.step("Spark: from the data directory to Parquet, partitioned by date")
    began_s = time.perf_counter()
    PICTURES.mkdir(exist_ok=True)
    with stderr_into(PICTURES / "demo-spark.log"):
        spark = session("topics demo", master="local[2]")
    spark.sparkContext.setLogLevel("OFF")
    report.figure(f"session started in {time.perf_counter() - began_s:.1f} s")
    try:
        show_lake(report, spark, server, flights)
        show_report(report, spark, flights)
    finally:
        spark.stop()
    with server.client() as client:
        show_stream(report, server, client, flights[:FOLLOWED])


@contextmanager
def stderr_into(path: Path) -> Iterator[None]:
    """Processes that are started meanwhile say there what they have to say: Spark's workers print a
    traceback each time the JVM closes a pipe before they do."""
    sys.stderr.flush()
    ours = os.dup(2)
    with path.open("wb") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)


def show_lake(
    report: Report, spark: "SparkSession", server: Server, flights: Sequence[Flight]
) -> None:
    lake = server.home / "lake"
    began_s = time.perf_counter()
    frame = (
        spark.read.format("topics")
        .option("path", str(server.data_dir))
        .option("subscribe", "flights")
        .option("startingOffsets", "earliest")
        .schema(SCHEMA)
        .load()
    )
    (
        frame.selectExpr(
            "seq", "tag", "data.*", "_corrupt", "make_date(data.year, data.month, data.day) AS date"
        )
        .write.mode("overwrite")
        .partitionBy("date")
        .parquet(str(lake))
    )
    took_s = time.perf_counter() - began_s
    report.figure(f"{len(flights):,} flights in {took_s:.1f} s: {len(flights) / took_s:,.0f}/s")
    found = spark.read.parquet(str(lake))
    found.createOrReplaceTempView("flights")
    total, corrupt, dates = found.selectExpr(
        "count(*)", "count(_corrupt)", "count(DISTINCT date)"
    ).first() or (0, 0, 0)
    days = {tuple(row[:3]) for row in map(fields_of, flights)}
    report.check(total == len(flights), f"{total:,} rows: those that the topic holds")
    report.check(corrupt == 0, "every one fits the schema")
    report.check(dates == len(days), f"{dates} dates, a folder each")


def fields_of(flight: Flight) -> tuple[int, int, int, int, float | None]:
    found = _fields(flight.data)
    return found.year, found.month, found.day, found.hour, found.dep_delay


class _Fields(msgspec.Struct):
    year: int
    month: int
    day: int
    hour: int
    dep_delay: float | None = None


_fields: Final = msgspec.json.Decoder(_Fields).decode


def delays_of(flights: Sequence[Flight]) -> Delays:
    """The report, straight from the source."""
    found: dict[tuple[str, int], list[float]] = defaultdict(list)
    flown: Counter[tuple[str, int]] = Counter()
    for flight in flights:
        *_, hour, delay = fields_of(flight)
        flown[flight.carrier, hour] += 1
        if delay is not None:
            found[flight.carrier, hour].append(delay)
    return {key: (count, len(found[key]), sum(found[key])) for key, count in flown.items()}


def show_report(report: Report, spark: "SparkSession", flights: Sequence[Flight]) -> None:
    report.step("Spark SQL: delays per carrier and hour")
    rows = spark.sql(REPORT).collect()
    found: Delays = {
        (row.carrier, row.hour): (row.flights, row.departed, row.delay or 0.0) for row in rows
    }
    for line in table(found):
        report.figure(line)
    path = plot(found, PICTURES / "delays.png")
    report.figure(f"drawn in {path}: {path.stat().st_size:,} bytes")
    report.check(found == delays_of(flights), f"all {len(found)} groups are those of the source")


def table(delays: Delays) -> Iterator[str]:
    """A line a carrier, the latest first: flights, mean delay, and the worst hour."""
    yield f"{'carrier':8}{'flights':>9}{'mean delay':>12}   worst hour"
    for carrier in by_mean(delays):
        hours = {hour: sums for (name, hour), sums in delays.items() if name == carrier}
        flown = sum(flights for flights, _, _ in hours.values())
        worst = max(hours, key=lambda hour: mean(hours[hour]))
        yield (
            f"{carrier:8}{flown:>9,}{mean(total(hours.values())):>9.1f} min"
            f"   {worst:02}:00, {mean(hours[worst]):.0f} min"
        )


def total(sums: Any) -> tuple[int, int, float]:
    flights, departed, delay = (sum(column) for column in zip(*sums, strict=True))
    return flights, departed, delay


def mean(sums: tuple[int, int, float]) -> float:
    """Minutes a flight that departed."""
    _, departed, delay = sums
    return delay / departed if departed else 0.0


def by_mean(delays: Delays) -> list[str]:
    """Carriers, those with the longest mean delay first."""
    carriers = {carrier for carrier, _ in delays}
    means = {
        carrier: mean(total(sums for (name, _), sums in delays.items() if name == carrier))
        for carrier in carriers
    }
    return sorted(carriers, key=lambda carrier: (-means[carrier], carrier))


def plot(delays: Delays, path: Path) -> Path:
    """Mean delays as a map of carriers and hours, a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    carriers = by_mean(delays)
    hours = sorted({hour for _, hour in delays})
    nothing = float("nan")
    grid = [
        [mean(delays[carrier, hour]) if (carrier, hour) in delays else nothing for hour in hours]
        for carrier in carriers
    ]
    figure, axes = pyplot.subplots(figsize=(10, 5), layout="constrained")
    image = axes.imshow(grid, aspect="auto", cmap="magma_r", vmin=0)
    axes.set_xticks(range(len(hours)), [f"{hour:02}" for hour in hours])
    axes.set_yticks(range(len(carriers)), carriers)
    axes.set_xlabel("scheduled hour of departure")
    axes.set_ylabel("carrier")
    axes.set_title("Mean delay of departures from New York City, 2013")
    figure.colorbar(image, label="minutes")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return path


class Follower:
    """The stream's driver: a process group of its own, with its JVM and its workers."""

    def __init__(self, server: Server, *, is_once: bool) -> None:
        checkpoint = server.home / "checkpoint"
        self.commits = checkpoint / "commits"
        arguments = [server.url, "live", "live.late", str(checkpoint)]
        with (server.home / "follow.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "bench.demo_follow",
                    *arguments,
                    *["--once"][: int(is_once)],
                ],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_for_batches(self, count: int) -> bool:
        """Until so many batches are committed; False: it ended before."""
        deadline_s = time.monotonic() + PATIENCE_S
        while sum(path.name.isdigit() for path in self.commits.glob("*")) < count:
            if self.process.poll() is not None or time.monotonic() > deadline_s:
                return False
            time.sleep(0.01)
        return True

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def following(server: Server, *, is_once: bool = False) -> Iterator[Follower]:
    follower = Follower(server, is_once=is_once)
    try:
        yield follower
    finally:
        if follower.process.poll() is None:
            follower.kill()


def show_stream(report: Report, server: Server, client: Client, flights: Sequence[Flight]) -> None:
    report.step("A stream follows while flights are appended, and its driver is killed")
    batches = [flights[n : n + BATCH_RECORDS] for n in range(0, len(flights), BATCH_RECORDS)]
    half = len(batches) // 2

    def append(some: Sequence[Sequence[Flight]]) -> None:
        for batch in some:
            client.append("live", *(flight.record for flight in batch))

    append(batches[:half])
    with following(server) as follower:
        is_running = follower.wait_for_batches(1)
        append(batches[half:])
        follower.kill()
    report.check(is_running, "it was killed with SIGKILL while it followed")
    began_s = time.perf_counter()
    with following(server, is_once=True) as follower:
        code = follower.process.wait(PATIENCE_S)
    report.figure(f"started again; at the end after {time.perf_counter() - began_s:.1f} s")
    report.check(code == 0, "it went on from its checkpoint to the end")
    late = Counter((f.tag, f.data) for f in flights if (fields_of(f)[4] or 0) >= LATE_MIN)
    found, losses = read_all(client, "live.late", late.total())
    copied = Counter((record.tag, bytes(record.data)) for record in found)
    report.check(copied == late, f"all {late.total():,} late departures are in the copy, each once")
    report.check(not losses, "no tombstone: nothing was lost")
