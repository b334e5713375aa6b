"""Reads of topics with several partitions (§2.1), without a JVM: columns, places, streams that meet new ones."""

import logging
import pickle
from pathlib import Path
from typing import Any

import pytest
from arrow.partitioned import partitioned, write
from arrow.writer import writer
from protocol.durable import Durable
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import IntegerType, LongType, StringType

from topics.spark.batch import TopicsReader
from topics.spark.chunks import chunks
from topics.spark.errors import BadOption, SparkFailure
from topics.spark.source import TopicsDataSource
from topics.spark.stream import TopicsStreamReader

from .test_encoding import rows as encoded

ALL = ReadAllAvailable()


@pytest.fixture
def engine(tmp_path: Path) -> Durable:
    engine = partitioned(writer(tmp_path / "data"))
    engine.store.idle()
    return engine


def source(engine: Durable, **options: str) -> TopicsDataSource:
    given = {"path": str(engine.files.path), "subscribe": "t", **options}
    if "assign" in options or "subscribePattern" in options:
        del given["subscribe"]
    return TopicsDataSource({name.lower(): value for name, value in given.items()})


def batch(engine: Durable, **options: str) -> list[tuple[int, int]]:
    """Partition and seq of every row of a batch read."""
    made = source(engine, **options)
    reader = made.reader(made.schema())
    assert isinstance(reader, TopicsReader)
    return _places(reader, reader.partitions())


def _places(reader: Any, parts: Any) -> list[tuple[int, int]]:
    return [
        (row["partition"], row["seq"])
        for part in parts
        for each in pickle.loads(pickle.dumps(reader)).read(part)
        for row in each.to_pylist()
    ]


def stream(engine: Durable, **options: str) -> TopicsStreamReader:
    given = {"startingOffsets": "earliest", "includePartition": "true", **options}
    made = source(engine, **given)
    reader = made.streamReader(made.schema())
    assert isinstance(reader, TopicsStreamReader)
    return reader


def at(offset: dict[str, Any]) -> dict[str, int]:
    return {name: place["seq"] for name, place in offset["topics"].items()}


def test_the_column_is_there_where_a_topic_has_several(engine: Durable) -> None:
    """Or where an option says so; a place that cannot be read says so when it is read."""
    engine.put("one")
    engine.store.idle()
    assert source(engine).schema()["partition"].dataType == IntegerType()
    assert source(engine, subscribePattern=".*").schema().names[:3] == ["topic", "partition", "seq"]
    assert "partition" not in source(engine, subscribe="one").schema().names
    assert "partition" not in source(engine, includePartition="false").schema().names
    assert "partition" not in source(engine, subscribe="gone").schema().names
    assert "partition" not in source(engine, subscribePattern="(").schema().names


def test_a_batch_reads_all_or_those_that_are_assigned(engine: Durable) -> None:
    """A bound is of all partitions, or of the one that it names."""
    assert batch(engine) == [(0, 1), (0, 2), (2, 1)]
    assert batch(engine, assign='{"t": [1, 2]}') == [(2, 1)]
    assert batch(engine, startingOffsets='{"t": {"0": 2}}') == [(0, 2), (2, 1)]
    assert batch(engine, endingOffsets='{"t": {"2": 1}}') == [(0, 1), (0, 2)]
    with pytest.raises(BadOption, match='topic "t#7" is none of those read'):
        batch(engine, startingOffsets='{"t": {"7": 2}}')
    with pytest.raises(SparkFailure, match='topic "t", partition 7, does not exist'):
        batch(engine, assign='{"t": [7]}')


def test_a_stream_has_a_place_in_each(engine: Durable) -> None:
    """And a limit is shared out among them."""
    reader = stream(engine)
    begin = reader.initialOffset()
    assert at(begin) == {"t": 0, "t#1": 0, "t#2": 0}
    assert at(reader.latestOffset(begin, ReadMaxRows(2))) == {"t": 1, "t#1": 0, "t#2": 1}
    end = reader.latestOffset(begin, ALL)
    assert at(end) == {"t": 2, "t#1": 0, "t#2": 1}
    assert at(reader.latestOffset(begin, ReadMaxBytes(1 << 20))) == at(end)
    assert _places(reader, reader.partitions(begin, end)) == [(0, 1), (0, 2), (2, 1)]


def test_a_stream_that_began_with_one_partition_goes_on(tmp_path: Path) -> None:
    """Its checkpoint is as it was, and the partitions that join are read from their beginnings."""
    engine = writer(tmp_path / "data")
    engine.put()
    write(engine, 0, b"1")
    engine.store.idle()
    reader = stream(engine)
    first = reader.latestOffset(reader.initialOffset(), ALL)
    assert at(first) == {"t": 1}

    engine.put(partitions=2)
    write(engine, 1, b"2", b"3")
    engine.store.idle()
    second = reader.latestOffset(first, ALL)
    assert at(second) == {"t": 1, "t#1": 2}
    assert _places(reader, reader.partitions(first, second)) == [(1, 1), (1, 2)]


def test_a_stream_of_what_is_there_now_ends_there(engine: Durable) -> None:
    """In each partition."""
    reader = stream(engine)
    reader.prepareForTriggerAvailableNow()
    write(engine, 1, b"late")
    engine.store.idle()
    assert at(reader.latestOffset(reader.initialOffset(), ALL)) == {"t": 2, "t#1": 0, "t#2": 1}


def test_a_partition_that_is_gone_is_missed(
    engine: Durable, caplog: pytest.LogCaptureFixture
) -> None:
    """The topic of its name has fewer now: the stream fails, or goes on with the others."""
    begin = stream(engine).latestOffset(stream(engine).initialOffset(), ALL)
    engine.drop()
    engine.put()
    engine.store.idle()
    with pytest.raises(SparkFailure, match='topic "t", partition 1, was deleted'):
        stream(engine).latestOffset(begin, ALL)
    with caplog.at_level(logging.WARNING):
        stream(engine, lossHandling="warn").latestOffset(begin, ALL)
    assert 'topic "t", partition 2, was deleted' in caplog.text


def test_a_stream_leaves_what_it_is_not_assigned(engine: Durable) -> None:
    """Also where its checkpoint has been there."""
    begin = stream(engine).initialOffset()
    reader = stream(engine, assign='{"t": [2]}')
    end = reader.latestOffset(begin, ALL)
    assert at(end) == {"t": 0, "t#1": 0, "t#2": 1}
    assert _places(reader, reader.partitions(begin, end)) == [(2, 1)]


def test_a_written_row_names_the_partition_that_it_comes_from() -> None:
    """Seqs ascend within it, and its blocks have names of their own; where it goes, its tag says."""
    types = {
        "topic": StringType(),
        "partition": IntegerType(),
        "seq": LongType(),
        "data": StringType(),
    }
    given = [("o", 0, 5), ("o", 0, 6), ("o", 2, 1), ("o", None, 7)]
    values = [{"topic": t, "partition": p, "seq": s, "data": "1"} for t, p, s in given]
    made = encoded(types, *values)
    assert [(row.source, row.seq) for row in made] == [("o", 5), ("o", 6), ("o#2", 1), ("o", 7)]
    assert b"partition" not in made[2].encoded()
    found = chunks(made, most_records=100, most_bytes=1 << 20, is_sourced=True)
    assert [each.name for each in found] == ["o@b0", "o#2@b0"]
