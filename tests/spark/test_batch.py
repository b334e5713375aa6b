"""The reader of a batch without a JVM: its plan, what it takes of filters, and what its tasks yield."""

import pickle
from pathlib import Path
from typing import Any

import pytest
from arrow.writer import writer
from protocol.durable import Durable
from pyspark.sql.datasource import DataSourceReader, EqualTo, GreaterThan
from pyspark.sql.types import LongType, StringType, StructField, StructType

from topics.arrow import DataLossWarning
from topics.arrow.loss import Gap
from topics.spark.batch import BatchPart, TopicsReader
from topics.spark.errors import BadOption, SparkFailure
from topics.spark.source import TopicsDataSource


@pytest.fixture
def engine(tmp_path: Path) -> Durable:
    """A topic of 300 records in several segments, and one that lost its beginning."""
    engine = writer(tmp_path / "data", segment_max_records=64)
    for part in range(3):
        engine.append(
            *({"data": n, "tag": f"t{n % 3}"} for n in range(100 * part, 100 * part + 100))
        )
        engine.seal_all()
    engine.put(name="capped", cap_records=5)
    engine.append(*range(12), name="capped")
    engine.store.idle()
    return engine


def source(engine: Durable, **options: str) -> TopicsDataSource:
    given = {"path": str(engine.files.path), "subscribe": "t", **options}
    return TopicsDataSource({name.lower(): value for name, value in given.items()})


def reader(engine: Durable, schema: Any = None, **options: str) -> TopicsReader:
    made = source(engine, **options)
    found = made.reader(schema or made.schema())
    assert isinstance(found, TopicsReader)
    return found


def rows(read: TopicsReader) -> list[dict[str, Any]]:
    """Every part, read as in a worker: pickled, and by another object."""
    return [
        row
        for part in read.partitions()
        for batch in pickle.loads(pickle.dumps(read)).read(pickle.loads(pickle.dumps(part)))
        for row in batch.to_pylist()
    ]


@pytest.mark.parametrize("parts", [1, 2, 7])
def test_parts_are_all_of_it(engine: Durable, parts: int) -> None:
    """However many: each record once, in order."""
    read = reader(engine, minPartitions=str(parts))
    assert len(read.partitions()) == parts
    assert [row["seq"] for row in rows(read)] == list(range(1, 301))


def test_a_part_begins_with_a_run(engine: Durable) -> None:
    """Segments are opened by one part only, where that keeps parts about even."""
    parts = reader(engine, minPartitions="3").partitions()
    assert [part.items[0].first_seq for part in parts if isinstance(part, BatchPart)] == [
        1,
        101,
        201,
    ]


def test_a_batch_of_what_is_visible(engine: Durable) -> None:
    """What is written and not synced is in a read that asks for it, in every task of it."""
    engine.auto = False
    engine.append("new")
    engine.write()

    assert len(rows(reader(engine))) == 300
    assert [row["data"] for row in rows(reader(engine, readConsistency="visible"))][-1:] == [
        '"new"'
    ]


@pytest.mark.filterwarnings("always")
def test_a_topic_that_is_deleted_before_its_task_begins(engine: Durable) -> None:
    """An error, a warning, or one row for all that was planned; the other topics are read. A repeated
    batch of a stream could otherwise never be done."""
    engine.append(1, name="u")
    engine.store.idle()
    reads = {
        loss: reader(engine, subscribe="t,u", lossHandling=loss)
        for loss in ("fail", "warn", "rows")
    }
    parts = {loss: read.partitions() for loss, read in reads.items()}
    engine.drop()
    engine.store.idle()

    def found(loss: str) -> list[dict[str, Any]]:
        batches = [batch for part in parts[loss] for batch in reads[loss].read(part)]
        return [row for batch in batches for row in batch.to_pylist()]

    with pytest.raises(SparkFailure, match='topic "t" does not exist'):
        found("fail")
    with pytest.warns(DataLossWarning, match="reason deleted"):
        assert [row["topic"] for row in found("warn")] == ["u"]
    *stones, last = found("rows")
    assert (last["topic"], last["_kind"]) == ("u", "record")
    assert sum(stone["_gap"]["missed"] for stone in stones) == 300
    assert {stone["_gap"]["reason"] for stone in stones} == {"deleted"}


BOUNDS = [
    ({"startingOffsets": '{"tt": 5}'}, 'startingOffsets: topic "tt" is none of those read'),
    ({"endingOffsets": '{"t": 5, "capped": 5}'}, 'endingOffsets: topic "capped" is none'),
    ({"startingOffsetsByTimestamp": '{"tx": 5}'}, "startingOffsetsByTimestamp: topic"),
    (
        {"subscribePattern": "cap.*", "subscribe": "", "startingOffsets": '{"caped": 9}'},
        'did you mean "capped"',
    ),
]


@pytest.mark.parametrize(("options", "line"), BOUNDS)
def test_a_bound_of_a_topic_that_is_not_read(
    engine: Durable, options: dict[str, str], line: str
) -> None:
    """It would not hold: a misspelt name read the topic from its beginning, in silence."""
    given = {name: value for name, value in options.items() if value}
    made = TopicsDataSource({"path": str(engine.files.path), "subscribe": "t", **given})
    if "subscribePattern" in given:
        made = TopicsDataSource({"path": str(engine.files.path), **given})
    read = made.reader(made.schema())
    with pytest.raises(SparkFailure, match=line):
        read.partitions()


def test_a_part_has_no_file_or_key(engine: Durable) -> None:
    """A task gets names and numbers; what it opens is its own."""
    [part] = reader(engine, minPartitions="1").partitions()
    assert len(pickle.dumps(part)) < 500


def test_spark_takes_the_pushing_for_none(engine: Durable) -> None:
    """While its setting is off, Spark refuses a reader that has `pushFilters` of its own."""
    read = reader(engine)
    assert getattr(read.pushFilters, "__func__", None) is DataSourceReader.pushFilters


def test_filters_narrow_the_plan(engine: Durable) -> None:
    """What is taken is read no more; with tombstones among the rows, and unless it is asked for,
    nothing is taken."""
    read = reader(engine, pushFilters="true")
    assert list(read.pushFilters([GreaterThan(("seq",), 290), EqualTo(("tag",), "t0")])) == []
    assert [row["seq"] for row in rows(read)] == [292, 295, 298]

    filters = [GreaterThan(("seq",), 290)]
    for options in ({}, {"pushFilters": "true", "lossHandling": "rows"}):
        read = reader(engine, **options)
        assert list(read.pushFilters(filters)) == filters
        assert len(rows(read)) == 300


def test_loss_is_told_once_or_fails(engine: Durable) -> None:
    """Before a task begins, where it is known by then. (§3.3)"""
    with pytest.raises(SparkFailure, match=r'"capped" lost 7 seqs, 1\.\.7, reason cap; to go on'):
        reader(engine, subscribe="capped").partitions()
    read = reader(engine, subscribe="capped", lossHandling="rows", minPartitions="4")
    gaps = [item for part in read.partitions() for item in part.items if isinstance(item, Gap)]  # type: ignore[attr-defined]
    assert gaps == [Gap("capped", 1, 7, "cap")]
    found = rows(read)
    assert [row["_kind"] for row in found] == ["tombstone"] + ["record"] * 5
    assert found[0]["_gap"] == {"from": 1, "to": 7, "reason": "cap", "missed": 7}


def test_a_topic_that_changes_before_a_task_begins(engine: Durable) -> None:
    """Deleted records are left out, a topic that was made anew is a loss. (§1.4, §5)"""
    read = reader(engine)
    parts = read.partitions()
    engine.delete(before_seq=291)
    engine.store.idle()
    again = [row["seq"] for part in parts for batch in read.read(part) for row in batch.to_pylist()]
    assert again == list(range(291, 301))

    engine.drop()
    engine.append(1)
    engine.store.idle()
    with pytest.raises(SparkFailure, match="reason recreated"):
        list(read.read(parts[0]))


def test_a_worker_with_an_older_directory(engine: Durable) -> None:
    """What it lacks of the plan is a loss, and never left out."""
    read = reader(engine, minPartitions="1")
    [part] = read.partitions()
    assert isinstance(part, BatchPart)
    longer = pickle.loads(pickle.dumps(part))
    object.__setattr__(longer.items[0], "last_seq", 310)

    with pytest.raises(SparkFailure, match=r"lost 10 seqs, 301\.\.310, reason rewound"):
        list(read.read(longer))


def test_nothing_to_read_is_one_empty_part(engine: Durable) -> None:
    """Spark makes a part without a value of an empty list."""
    read = reader(engine, startingOffsets="latest")
    assert rows(read) == []
    assert len(read.partitions()) == 1


WRONG = [
    (StructType([StructField("dat", StringType())]), 'no column "dat"; did you mean data?'),
    (StructType([StructField("seq", StringType())]), "column seq is bigint, not string"),
    (StructType([StructField("data", LongType())]), "use from_json or parse_json"),
]


@pytest.mark.parametrize(("schema", "line"), WRONG)
def test_a_schema_that_cannot_be(engine: Durable, schema: StructType, line: str) -> None:
    """A column that there is not, or of another type."""
    with pytest.raises(BadOption) as caught:
        reader(engine, schema)
    assert line in str(caught.value)
