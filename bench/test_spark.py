"""Spark over topics beside Spark over JSON lines, rows and Kafka, in one session: ratios, best of three.

`pytest bench/test_spark.py --benchmark-only -m spark` measures two million records, five with
TOPICS_BENCH_FULL=1, TOPICS_BENCH_RECORDS if that is set, and prints the table; `make test-spark` runs everything once and small.  What is
compared takes turns.  Each ratio is one of wall clock, and one of the CPU of this process, the JVM, its
workers and the server, which other processes disturb less.
"""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from bench.flights import Server
from bench.test_export import Silent
from tests import brokers
from topics import NewRecord
from topics.arrow.local import LocalSource
from topics.cli.export_engine import engine
from topics.export.engines import FileExport
from topics.export.lake import OsLake
from topics.export.manifest import Settings
from topics.export.run import ExportJob, ExportRun
from topics.export.target import open_target

pytest.importorskip("pyspark", reason="needs the extra spark")
pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("default"), pytest.mark.timeout(1800)]

RECORDS: Final = int(
    os.environ.get("TOPICS_BENCH_RECORDS")
    or (5_000_000 if os.environ.get("TOPICS_BENCH_FULL") else 2_000_000)
)
RECORDS_QUICK: Final = 5_000
DATA: Final = "id BIGINT, user STRING, amount DOUBLE, ok BOOLEAN, path STRING, agent STRING, items ARRAY<BIGINT>"
TOPICS: Final = ("t", "unfit", "mixed")
ROUNDS: Final = 3
BATCHES: Final = 20
"""Micro-batches of a round."""

Report = Callable[[str, str, str], None]


class Took(NamedTuple):
    """Of several rounds, the least of each."""

    wall_s: float
    cpu_s: float

    def times(self, other: "Took") -> str:
        """How many times as long as the other."""
        return f"{self.wall_s / other.wall_s:.2f} x (CPU {self.cpu_s / other.cpu_s:.2f} x)"


@dataclass(frozen=True)
class Ground:
    """One session, and the same records three times: a data directory, its server, a file."""

    spark: Any
    server: Server
    lines: Path
    records: int
    rounds: int

    def topics(self, schema: str | None = None, topic: str = "t", **options: Any) -> Any:
        reader = self.spark.read.format("topics").option("subscribe", topic)
        place = options or {"path": self.server.data_dir}
        reader = reader.options(**{name: str(value) for name, value in place.items()})
        return (reader.schema(schema) if schema else reader).load()

    def json(self, data: str) -> Any:
        schema = f"topic STRING, seq BIGINT, ts BIGINT, node STRING, tag STRING, data {data}, meta STRING"
        return self.spark.read.schema(schema).json(str(self.lines))

    def compare(
        self, *makes: Callable[[], Any], act: Callable[[Any], None] | None = None
    ) -> list[Took]:
        """The least that each takes, in turns; the first round is not counted.

        Args:
            act: What is done with a frame; by default all of it is read into nothing.
        """
        act = act or read_whole
        times: list[list[tuple[float, float]]] = [[] for _ in makes]
        for n in range(self.rounds + 1):
            for make, found in zip(makes, times, strict=True):
                took = timed(lambda make=make: act(make()))  # type: ignore[misc]
                if n or self.rounds == 1:
                    found.append(took)
        return [Took(*map(min, zip(*found, strict=True))) for found in times]


def read_whole(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def timed(act: Callable[[], None]) -> tuple[float, float]:
    """Wall clock of it, and the CPU of this process, the JVM and its workers."""
    before, began_s = cpu_below_s(os.getpid()), time.perf_counter()
    own_s = time.process_time()
    act()
    wall_s = time.perf_counter() - began_s
    own_s = time.process_time() - own_s
    after = cpu_below_s(os.getpid())
    # A worker that Spark ended meanwhile had nothing to do.
    below_s = sum(spent - before.get(pid, 0.0) for pid, spent in after.items())
    return wall_s, max(own_s + below_s, 0.01)


def records(count: int, topic: str = "t") -> Iterator[tuple[str, str]]:
    """Records of a topic: of `unfit` one in twenty does not fit `DATA`, of `mixed` every second has an
    integer for a string."""
    for n in range(count):
        data = {
            "id": str(n) if topic == "unfit" and n % 20 == 7 else n,
            "user": n % 5000 if topic == "mixed" and n % 2 else f"user-{n % 5000}",
            "amount": n / 7,
            "ok": n % 3 == 0,
            "path": f"/shop/{n % 97}/cart",
            "agent": "Mozilla/5.0",
            "items": [n % 10, n % 7],
        }
        yield f"tag-{n % 50}", json.dumps(data, separators=(",", ":"))


@pytest.fixture(scope="module")
def ground(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ground]:
    """The topic, sealed, and the lines."""
    import msgspec

    from topics.spark.errors import SparkFailure
    from topics.spark.sessions import session

    is_quick = request.config.getoption("benchmark_disable")
    count = RECORDS_QUICK if is_quick else RECORDS
    home = tmp_path_factory.mktemp("spark-bench")
    server = Server(home)
    server.start()
    with server.client() as client:
        for topic in TOPICS:
            found = records(count, topic)
            values = (NewRecord(msgspec.Raw(data.encode()), tag=tag) for tag, data in found)
            client.append_many(topic, values, node="n-1", batch_records=10_000)
    port = server.url.rsplit(":", 1)[1]
    server.stop()
    server.start(port)
    lines = home / "lines.jsonl"
    with lines.open("w") as file:
        for seq, (tag, data) in enumerate(records(count), 1):
            file.write(
                f'{{"topic":"t","seq":{seq},"ts":1795254071742,"node":"n-1","tag":"{tag}","data":{data}}}\n'
            )
    try:
        spark = session(
            "bench",
            master="local[2]",
            settings={
                "spark.driver.memory": "4g",
                "spark.sql.python.filterPushdown.enabled": "true",
            },
        )
    except SparkFailure as missing:
        server.end()
        pytest.skip(str(missing))
    spark.sparkContext.setLogLevel("OFF")
    yield Ground(spark, server, lines, count, 1 if is_quick else ROUNDS)
    server.end()


def test_reading(benchmark: Any, ground: Ground, report: Report) -> None:
    """The table of ratios; every read has all the records."""
    seqs = {"schema": "seq BIGINT"}
    assert ground.topics(**seqs).count() == ground.records
    assert ground.topics(**seqs, url=ground.server.url).count() == ground.records
    assert ground.json("STRING").count() == ground.records

    last = ground.records // 2
    first = last - ground.records // 500

    def some() -> Any:
        found = ground.topics(path=ground.server.data_dir, pushFilters="true")
        return found.where(f"seq > {first} and seq <= {last}")

    whole, lines, narrow, remote, part = benchmark.pedantic(
        ground.compare,
        args=[
            ground.topics,
            lambda: ground.json("STRING"),
            lambda: ground.topics("seq BIGINT, ts TIMESTAMP"),
            lambda: ground.topics(url=ground.server.url),
            some,
        ],
    )
    report("Spark: records a second of a local read", f"{ground.records / whole.wall_s:,.0f}", "")
    name = "Spark: topics, faster than spark.read.json, data as a string"
    report(name, lines.times(whole), ">= 2.0 x")
    name = "Spark: a full read takes so much longer than two columns"
    report(name, whole.times(narrow), ">= 1.6 x")
    report("Spark: speed of a remote read, of a local one", whole.times(remote), ">= 0.15 x")
    report("Spark: time of 0.2 % of the seqs, of a full read", part.times(whole), "<= 0.5 x")


def test_reading_typed(benchmark: Any, ground: Ground, report: Report) -> None:
    """`data` as a struct, parsed by the source, by Spark's JSON source, and by `from_json`."""
    from pyspark.sql import functions as f

    schema = f"seq BIGINT, ts TIMESTAMP, tag STRING, data STRUCT<{DATA.replace(' ', ': ').replace(',:', ',')}>"
    typed = ground.topics(schema)
    assert typed.agg(f.sum("data.id")).first()[0] == sum(range(ground.records))

    struct = schema.split("data ", 1)[1]
    text = "seq BIGINT, ts TIMESTAMP, tag STRING, data STRING"
    parsed = f.from_json("data", DATA).alias("data")
    made, lines, behind = benchmark.pedantic(
        ground.compare,
        args=[
            lambda: ground.topics(schema),
            lambda: ground.json(struct),
            lambda: ground.topics(text).select("seq", "ts", "tag", parsed),
        ],
    )
    name = "Spark: typed, faster than spark.read.json, data as a struct"
    report(name, lines.times(made), ">= 1.2 x")
    name = "Spark: typed, faster than the same read with from_json"
    report(name, behind.times(made), ">= 1.4 x")


@pytest.mark.parametrize("topic", ["unfit", "mixed"])
def test_reading_mixed(benchmark: Any, ground: Ground, report: Report, topic: str) -> None:
    """`data` as a struct where 5 % of the rows do not fit, and where a string is an integer in every
    second row: parsed by the source, and by `from_json`."""
    from pyspark.sql import functions as f

    schema = f"seq BIGINT, ts TIMESTAMP, tag STRING, data STRUCT<{DATA.replace(' ', ': ').replace(',:', ',')}>"
    text = "seq BIGINT, ts TIMESTAMP, tag STRING, data STRING"
    parsed = f.from_json("data", DATA).alias("data")
    fit = ground.topics(schema, topic).where("data is not null").count()
    assert fit == ground.records - (len(range(7, ground.records, 20)) if topic == "unfit" else 0)

    made, behind = benchmark.pedantic(
        ground.compare,
        args=[
            lambda: ground.topics(schema, topic),
            lambda: ground.topics(text, topic).select("seq", "ts", "tag", parsed),
        ],
    )
    name = f"Spark: typed, faster than from_json, {topic} data"
    report(name, behind.times(made), ">= 1.0 x")


def test_rows(benchmark: Any, ground: Ground, report: Report) -> None:
    """Arrow batches, beside the same scan handed over as tuples."""
    from bench.spark_rivals import RowSource

    ground.spark.dataSource.register(RowSource)
    reader = ground.spark.read.format("rows_of_topics").option("records", ground.records)
    rows = reader.option("path", str(ground.server.data_dir)).load()
    assert rows.count() == ground.records

    arrow, tuples = benchmark.pedantic(ground.compare, args=[ground.topics, lambda: rows])
    report("Spark: Arrow, faster than a source of row tuples", tuples.times(arrow), ">= 8 x")


def test_beside_kafka(
    benchmark: Any, ground: Ground, report: Report, request: pytest.FixtureRequest
) -> None:
    """All records by Kafka's source from a broker, and by topics with the same columns.

    The CPU is that of the JVM, its workers, this process, and the broker or the server: all of them
    run below this process, and the one that is not read from has nothing to do.
    """
    from bench.spark_rivals import fill_kafka, kafka_frame

    if request.config.getoption("benchmark_disable"):
        pytest.skip("only measured: tests/spark/test_kafka.py has the same job, small")
    try:
        with brokers.running() as broker:
            fill_kafka(broker.bootstrap, records(ground.records))
            assert kafka_frame(ground.spark, broker.bootstrap).count() == ground.records
            kafka, local, remote = benchmark.pedantic(
                ground.compare,
                args=[
                    lambda: kafka_frame(ground.spark, broker.bootstrap),
                    lambda: ground.topics(path=ground.server.data_dir, kafkaCompat="true"),
                    lambda: ground.topics(url=ground.server.url, kafkaCompat="true"),
                ],
            )
    except brokers.NoBrokers as missing:
        pytest.skip(str(missing))
    name = "Spark: topics by path, faster than Kafka's source from a broker"
    report(name, kafka.times(local), "CPU >= 1.0 x")
    report("Spark: topics by URL, faster than Kafka's source", kafka.times(remote), "")


def test_micro_batches(benchmark: Any, ground: Ground, report: Report, tmp_path: Path) -> None:
    """The median of micro-batches of 200 records into nothing, beside those that Spark makes up, and
    those that Python makes up: no source in Python takes less."""
    from bench.spark_rivals import BATCH, ConstantSource, follow

    count = 2 if ground.rounds == 1 else BATCHES
    ground.spark.dataSource.register(ConstantSource)
    made_up = ground.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", BATCH)
    stream = ground.spark.readStream.format("topics").option("subscribe", "t")
    stream = stream.option("startingOffsets", "earliest").option("maxRecordsPerTrigger", BATCH)
    frames = {
        "rate": made_up.option("numPartitions", 1).load(),
        "constant": ground.spark.readStream.format("constant_rows").load(),
        "path": stream.option("path", str(ground.server.data_dir)).load(),
    }
    found: dict[str, list[Took]] = {name: [] for name in frames}

    def take_turns() -> None:
        for n in range(ground.rounds):
            for name, frame in frames.items():
                to = tmp_path / f"{name}-{n}"
                took = follow(frame, to, count, lambda: cpu_below_s(os.getpid()))
                found[name].append(Took(*took))

    benchmark.pedantic(take_turns)
    rate, constant, ours = (Took(*map(min, zip(*of, strict=True))) for of in found.values())
    report("Spark: a micro-batch of topics", f"{ours.wall_s * 1000:.0f} ms (p50)", "")
    name = "Spark: a micro-batch of topics takes, of one that Spark makes up"
    report(name, ours.times(rate), "<= 1.3 x")
    name = "Spark: a micro-batch of topics takes, of constant rows from Python"
    report(name, ours.times(constant), "")


def test_exporting(benchmark: Any, ground: Ground, report: Report, tmp_path: Path) -> None:
    """All records into Parquet: by the engine `direct`, which is this process alone, by the engine
    `spark`, and by Spark's own writer from topics and from JSON lines."""

    def by_engine(name: str) -> Callable[[], Path]:
        def export() -> Path:
            to = tmp_path / name
            with LocalSource(ground.server.data_dir) as source:
                settings = Settings("parquet", "none")
                with open_target(OsLake(to), settings) as target:
                    exported = FileExport(target, engine=engine(name), target_bytes=256 << 20)
                    done = ExportRun(source, exported, ExportJob(("t",)), Silent()).once()
            assert done.rows == ground.records
            return to

        return export

    def by_spark(make: Callable[[], Any]) -> Callable[[], Path]:
        def write() -> Path:
            make().write.option("compression", "zstd").parquet(str(tmp_path / "own"))
            return tmp_path / "own"

        return write

    direct, spark, own, lines = benchmark.pedantic(
        ground.compare,
        args=[
            by_engine("direct"),
            by_engine("spark"),
            by_spark(ground.topics),
            by_spark(lambda: ground.json("STRING")),
        ],
        kwargs={"act": shutil.rmtree},
    )
    name = "Spark: engine direct, faster than Spark's own Parquet writer"
    report(name, own.times(direct), ">= 1.5 x (CPU 2.5 x)")
    report("Spark: engine direct, faster than engine spark", spark.times(direct), "")
    name = "Spark: Parquet from topics, faster than from JSON lines"
    report(name, lines.times(own), ">= 1.25 x")


def test_memory_of_a_worker(benchmark: Any, ground: Ground, report: Report) -> None:
    """Anonymous memory of the Python process that reads, at the default batch."""
    benchmark.pedantic(ground.compare, args=[ground.topics])
    sizes = [size for pid in workers() if (size := anonymous_bytes(pid))]
    assert sizes
    report("Spark: anonymous memory of a worker", f"{max(sizes) / 1e6:,.0f} MB", "<= 250 MB")


def workers() -> list[int]:
    """Python processes below this one that are Spark's."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command = (path / "cmdline").read_bytes()
            environ = (path / "environ").read_bytes()
        except OSError:
            continue
        if b"pyspark.daemon" in command and b"SPARK_ENV_LOADED" in environ:
            found.append(int(path.name))
    return [pid for pid in found if is_below(pid, os.getpid())]


def is_below(pid: int, ancestor: int) -> bool:
    while pid > 1:
        try:
            status = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return False
        pid = int(status.rpartition(")")[2].split()[1])
        if pid == ancestor:
            return True
    return False


def cpu_below_s(ancestor: int) -> dict[int, float]:
    """CPU of each process below this one, by its id, with that of its own that ended."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        pid = int(path.name)
        if pid != ancestor and is_below(pid, ancestor):
            try:
                fields = (path / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            found[pid] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return found


def anonymous_bytes(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    for line in status.splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0
