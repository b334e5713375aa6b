"""What `test_spark.py` compares topics with beside JSON lines: a source of rows, a topic of Kafka, a stream.

Workers import this module, so it imports little.
"""

import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from tests import brokers

BATCH: Final = 200
"""Records of a micro-batch: so few that it is its fixed cost that is timed."""
SETTLING: Final = 3
"""Micro-batches that are not counted."""


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
        return "topic STRING, seq BIGINT, ts TIMESTAMP, node STRING, tag STRING, data STRING, meta STRING"

    def reader(self, schema: Any) -> Rows:
        return Rows(self.options["path"], int(self.options["records"]))


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


def follow(frame: Any, checkpoint: Path, count: int) -> list[float]:
    """Seconds that each of so many micro-batches took, each begun when the one before had ended."""
    query = (
        frame.writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="0 seconds")
        .start()
    )
    took: dict[int, float] = {}
    try:
        while len(took) < count + SETTLING:
            assert not query.awaitTermination(1)
            for done in query.recentProgress:
                if done["numInputRows"]:
                    took[done["batchId"]] = done["durationMs"]["triggerExecution"] / 1000
    finally:
        query.stop()
    return [took[batch] for batch in sorted(took)][SETTLING:]


def median_s(took: list[float]) -> float:
    return statistics.median(took)
