"""A job that was written for Kafka's source, over the same records in Kafka and in a topic; and the source itself, over
a server of ours that speaks Kafka's protocol."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pytest

from bench.flights import Server
from tests import brokers
from tests.spark.conftest import Reads, settle
from topics import Client, NewRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

COUNT = 60
META = {"source": "till-7", "ids": [1, 2]}
SAME = ("key", "value", "topic", "partition", "timestamp", "headers")
"""What means the same in both.  A seq counts from 1 and an offset from 0; and a time is the server's
here, which Kafka says by another number than that of a producer's time."""


class Ours(NamedTuple):
    """A server of ours in the place of a broker."""

    bootstrap: str


@pytest.fixture(scope="module", params=["Kafka", "topics"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[brokers.Brokers | Ours]:
    try:
        brokers.java()
        brokers.jars()
        brokers.connector_jars()
    except brokers.NoBrokers as error:
        pytest.skip(str(error))
    if request.param == "Kafka":
        with brokers.running() as running:
            yield running
        return
    server = Server(tmp_path_factory.mktemp("broker"))
    server.start()
    yield Ours(server.url.removeprefix("http://"))
    server.end()


@pytest.fixture
def kafka(broker: brokers.Brokers | Ours, spark: "SparkSession") -> Callable[[Any], Any]:
    """A reader, of a batch or a stream, that reads from the broker."""
    for jar in sorted(brokers.connector_jars().iterdir()):
        spark.sql(f"ADD JAR '{jar}'")
    return lambda reader: reader.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)


@pytest.fixture
def records(broker: brokers.Brokers | Ours, reads: Reads, client: Client, name: str) -> int:
    """How many are in the topic, and the same in a topic of Kafka of this name."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    made = (
        NewRecord(
            {"n": n, "of": "é"}, tag=f"k{n % 3}" if n % 4 else None, meta=META if n % 2 else None
        )
        for n in range(COUNT)
    )
    client.append_many(name, made, batch_records=7)
    settle(reads.server)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for made_topic in admin.create_topics([NewTopic(name, 1, 1)]).values():
        made_topic.result(60)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for row in reads("url").withColumn("ms", millis()).orderBy("seq").collect():
        # A header of ours is a member of `meta` as JSON, also where it is a string.
        headers = [(k, msgspec.json.encode(v)) for k, v in META.items()] if row.meta else None
        producer.produce(name, row.data, row.tag, headers=headers, timestamp=row.ms)
    assert producer.flush(60) == 0
    return COUNT


def millis() -> Any:
    from pyspark.sql import functions as f

    return f.unix_millis("ts")


def job(frame: "DataFrame") -> "DataFrame":
    """As people write it over Kafka: the value parsed, one line for each key."""
    from pyspark.sql import functions as f

    value = f.from_json(f.col("value").cast("string"), "n BIGINT, of STRING")
    return (
        frame.select(f.col("key").cast("string").alias("key"), value.alias("value"), "timestamp")
        .groupBy("key")
        .agg(f.count("*"), f.sum("value.n"), f.max("value.of"), f.min("timestamp"))
    )


def test_a_job_of_kafkas_source_runs_over_topics(
    kafka: Callable[[Any], Any], spark: "SparkSession", reads: Reads, records: int, name: str
) -> None:
    """The schemas are equal field by field, and so are the rows, read at once. (`kafkaCompat`)"""
    options = {"subscribe": name, "includeHeaders": "true"}
    theirs = kafka(spark.read).options(**options).load()
    bare = kafka(spark.read).option("subscribe", name).load()

    for how in ("path", "url"):
        ours = reads(how, kafkaCompat="true", includeHeaders="true")
        assert list(ours.schema) == list(theirs.schema)
        assert list(reads(how, kafkaCompat="true").schema) == list(bare.schema)
        rows, expected = (side.select(*SAME).orderBy("offset").collect() for side in (ours, theirs))
        assert rows == expected
        assert len(rows) == records
        assert [row[0] for row in ours.select("offset").orderBy("offset").collect()] == [
            row[0] + 1 for row in theirs.select("offset").orderBy("offset").collect()
        ]
    assert sorted(job(ours).collect(), key=str) == sorted(job(theirs).collect(), key=str)


def test_a_stream_of_kafkas_source_runs_over_topics(
    kafka: Callable[[Any], Any],
    spark: "SparkSession",
    reads: Reads,
    records: int,
    name: str,
    home: Path,
) -> None:
    """The same query with the same options, in batches of at most 25, to the end and no further."""
    options = {
        "subscribe": name,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "25",
        "includeHeaders": "true",
    }

    def followed(frame: "DataFrame", place: str) -> tuple[list[Any], list[int]]:
        rows: list[Any] = []
        sizes: list[int] = []

        def keep(batch: "DataFrame", _number: int) -> None:
            found = batch.select(*SAME).orderBy("offset").collect()
            rows.extend(found)
            sizes.append(len(found))

        query = (
            frame.writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(home / place))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(240)
        return rows, sizes

    theirs = kafka(spark.readStream).options(**options).load()
    ours = reads.stream(kafkaCompat="true", **options)

    assert list(ours.schema) == list(theirs.schema)
    expected = followed(theirs, "theirs")
    assert followed(ours, "ours") == expected
    assert expected[1] == [25, 25, records - 50]


def test_records_of_kafka_go_into_a_topic(
    kafka: Callable[[Any], Any],
    spark: "SparkSession",
    client: Client,
    reads: Reads,
    records: int,
    name: str,
) -> None:
    """Kafka's columns are those that the sink takes: a topic is moved by one line."""
    rows = kafka(spark.read).option("subscribe", name).load().select("key", "value")
    rows.write.format("topics").mode("append").option("url", reads.server.url).option(
        "topic", f"{name}-moved"
    ).save()

    moved = [(r.tag, r.data) for r in client.read(f"{name}-moved")]
    assert moved == [(r.tag, r.data) for r in client.read(name)]
    assert len(moved) == records


def test_kafkas_sink_writes_and_its_stream_goes_on_where_it_was(
    kafka: Callable[[Any], Any],
    spark: "SparkSession",
    broker: brokers.Brokers | Ours,
    name: str,
    home: Path,
) -> None:
    """A batch, then a stream that is stopped and started again from its checkpoint: each row is there once."""
    from confluent_kafka.admin import AdminClient, NewTopic
    from pyspark.sql import functions as f

    bootstrap = {"kafka.bootstrap.servers": broker.bootstrap}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topics = [NewTopic(f"{name}-{end}", 1, 1) for end in ("in", "out")]
    for made in admin.create_topics(topics).values():
        made.result(60)

    def rows(first: int, count: int) -> Any:
        ids = spark.range(first, first + count)
        return ids.select(f.lit("k").alias("key"), f.col("id").cast("string").alias("value"))

    def write(first: int, count: int) -> None:
        rows(first, count).write.format("kafka").options(**bootstrap, topic=f"{name}-in").save()

    def copy() -> None:
        source = kafka(spark.readStream).option("subscribe", f"{name}-in")
        query = (
            source.option("startingOffsets", "earliest")
            .load()
            .select("key", "value")
            .writeStream.format("kafka")
            .options(**bootstrap, topic=f"{name}-out", checkpointLocation=str(home / "copy"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(240)

    write(0, 40)
    copy()
    write(40, 30)
    copy()
    found = kafka(spark.read).option("subscribe", f"{name}-out").load()
    values = [int(row.value) for row in found.select(f.col("value").cast("string")).collect()]
    assert sorted(values) == list(range(70))
    assert {bytes(row.key) for row in found.select("key").collect()} == {b"k"}
