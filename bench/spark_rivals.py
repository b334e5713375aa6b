"""What `test_spark.py` compares topics with beside JSON lines: a source of rows, a topic of Kafka, a stream.

Workers import this module, so it imports little.
"""

import statistics
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from tests import brokers

BATCH: Final = 200
"""Records of a micro-batch: so few that it is its fixed cost that is timed."""
SETTLING: Final = 3
"""Micro-batches that are not counted."""
POLL_S: Final = 0.2
COLUMNS: Final = (
    "topic STRING, seq BIGINT, ts TIMESTAMP, node STRING, tag STRING, data STRING, meta STRING"
)


class Half(InputPartition):
    def __init__(self, first: int, last: int) -> None:
        super().__init__((first, last))
        self.first, self.last = first, last


class Rows(DataSourceReader):
    """The same scan as that of topics, handed over as tuples: what a Python source is at its simplest."""

    def __init__(self, path: str, records: int) -> None:
        self.path, self.records = path, records

    def partitions(self) -> list[InputPartition]:
        middle = self.records // 2
        return [Half(1, middle), Half(middle + 1, self.records)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        from topics.arrow.scan import scan

        assert isinstance(partition, Half)
        for batch in scan(self.path, "t", start=partition.first, end=partition.last + 1):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


class RowSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "rows_of_topics"

    def schema(self) -> str:
        return COLUMNS

    def reader(self, schema: Any) -> Rows:
        return Rows(self.options["path"], int(self.options["records"]))


class Constant(DataSourceStreamReader):
    """The same row over and over: what any stream from Python costs."""

    def initialOffset(self) -> dict[str, int]:
        return {"n": 0}

    # Spark asks with a start and a limit if the method takes them; the base class has neither.
    def latestOffset(  # type: ignore[override]
        self, start: dict[str, int], limit: object
    ) -> dict[str, int]:
        return {"n": start["n"] + BATCH}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [Half(start["n"] + 1, end["n"])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        import pyarrow as pa

        assert isinstance(partition, Half)
        n = partition.last - partition.first + 1
        text = pa.array(["x" * 20] * n)
        columns = {
            "topic": text,
            "seq": pa.array(range(n), pa.int64()),
            "ts": pa.array([0] * n, pa.timestamp("us", tz="UTC")),
            "node": text,
            "tag": text,
            "data": pa.array(["y" * 120] * n),
            "meta": text,
        }
        yield pa.record_batch(columns)


class ConstantSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "constant_rows"

    def schema(self) -> str:
        return COLUMNS

    def streamReader(self, schema: Any) -> Constant:
        return Constant()


def fill_kafka(bootstrap: str, records: Iterable[tuple[str, str]]) -> None:
    """A topic `t` of one partition, with these keys and values."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic("t", 1, 1)]).values():
        made.result(60)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
    for tag, data in records:
        while True:
            try:
                producer.produce("t", data, tag)
            except BufferError:
                producer.poll(0.1)
            else:
                break
    assert producer.flush(120) == 0


def kafka_frame(spark: Any, bootstrap: str) -> Any:
    for jar in sorted(brokers.connector_jars().iterdir()):
        spark.sql(f"ADD JAR '{jar}'")
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    return reader.option("subscribe", "t").load()


def follow(
    frame: Any, checkpoint: Path, count: int, cpu_below_s: Callable[[], dict[int, float]]
) -> tuple[float, float]:
    """The median of micro-batches, each begun when the one before had ended, and the CPU of one, in s.

    Args:
        count: So many at least, once the stream has settled.
        cpu_below_s: CPU so far of each process that works for it, by its id.
    """
    query = (
        frame.writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="0 seconds")
        .start()
    )
    took: dict[int, float] = {}
    before: dict[int, float] = {}
    settled = 0
    try:
        while not settled or len(took) < settled + count:
            assert not query.awaitTermination(POLL_S)
            for done in query.recentProgress:
                if done["numInputRows"]:
                    took[done["batchId"]] = done["durationMs"]["triggerExecution"] / 1000
            if not settled and len(took) >= SETTLING:
                settled, before = len(took), cpu_below_s()
        after = cpu_below_s()
    finally:
        query.stop()
    counted = [took[batch] for batch in sorted(took)][settled:]
    spent_s = sum(each - before.get(pid, 0.0) for pid, each in after.items())
    return statistics.median(counted), max(spent_s, 0.01) / len(counted)
