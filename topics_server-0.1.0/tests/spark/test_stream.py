"""The reader of a stream without a JVM: offsets, limits, loss, and the plan of a batch."""

import pickle
from pathlib import Path
from typing import Any

import pytest
from arrow.writer import writer
from protocol.durable import Durable
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from topics.arrow import DataLossWarning
from topics.spark import stream
from topics.spark.errors import BadOption, SparkFailure
from topics.spark.source import TopicsDataSource
from topics.spark.stream import TopicsStreamReader

ALL = ReadAllAvailable()


@pytest.fixture
def engine(tmp_path: Path) -> Durable:
    engine = writer(tmp_path / "data")
    engine.append(*range(100))
    engine.append(*range(10), name="u")
    engine.store.idle()
    return engine


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch, engine: Durable) -> None:
    """Streams live in the engine's time."""
    monkeypatch.setattr(stream, "now_ms", lambda: engine.now_ms)


def opened(engine: Durable, **options: str) -> TopicsStreamReader:
    given = {"path": str(engine.files.path), "subscribe": "t,u", "startingOffsets": "earliest"}
    if "subscribePattern" in options:
        del given["subscribe"]
    made = TopicsDataSource({k.lower(): v for k, v in {**given, **options}.items()})
    found = made.streamReader(made.schema())
    assert isinstance(found, TopicsStreamReader)
    return found


def at(offset: dict[str, Any]) -> dict[str, int]:
    return {name: place["seq"] for name, place in offset["topics"].items()}


def rows(reader: TopicsStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
    return [
        (row["topic"], row["seq"])
        for part in reader.partitions(start, end)
        for batch in pickle.loads(pickle.dumps(reader)).read(part)
        for row in batch.to_pylist()
    ]


def test_it_begins_where_it_is_told(engine: Durable) -> None:
    """At the beginning, at the head, at a seq: the offset is the last seq not to be read."""
    assert at(opened(engine).initialOffset()) == {"t": 0, "u": 0}
    assert at(opened(engine, startingOffsets="latest").initialOffset()) == {"t": 100, "u": 10}
    given = '{"t": 5, "u": -1}'
    assert at(opened(engine, startingOffsets=given).initialOffset()) == {"t": 4, "u": 10}


def test_nothing_new_is_the_same_offset(engine: Durable) -> None:
    """Spark compares offsets as text: any other one would be a batch."""
    reader = opened(engine)
    end = reader.latestOffset(reader.initialOffset(), ALL)
    engine.now_ms += 10_000
    assert reader.latestOffset(end, ALL) is end
    assert reader.reportLatestOffset() is not None
    reader.stop()


def test_a_limit_is_shared_by_lag(engine: Durable) -> None:
    """And each topic that has something gets at least one, so none starves."""
    reader = opened(engine)
    begin = reader.initialOffset()
    assert at(reader.latestOffset(begin, ReadMaxRows(22))) == {"t": 20, "u": 2}
    assert at(reader.latestOffset(begin, ReadMaxRows(2))) == {"t": 1, "u": 1}
    assert at(reader.latestOffset(begin, ReadMaxBytes(1))) == {"t": 1, "u": 1}
    assert at(reader.latestOffset(begin, ALL)) == {"t": 100, "u": 10}
    assert at(opened(engine, maxBytesPerTrigger="1b").latestOffset(begin, ReadMaxRows(50))) == {
        "t": 1,
        "u": 1,
    }
    assert reader.getDefaultReadLimit() == ReadMaxRows(1_000_000)


def test_a_batch_waits_for_enough(engine: Durable) -> None:
    """But no longer than it may; with `availableNow` not at all."""
    reader = opened(engine, minRecordsPerTrigger="200", maxTriggerDelay="10s")
    begin = reader.initialOffset()
    assert reader.latestOffset(begin, ALL) is begin
    engine.now_ms += 10_000
    assert at(reader.latestOffset(begin, ALL)) == {"t": 100, "u": 10}
    reader = opened(engine, minRecordsPerTrigger="200")
    begin = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    assert at(reader.latestOffset(begin, ALL)) == {"t": 100, "u": 10}


def test_available_now_ends(engine: Durable) -> None:
    """What comes after the start is not read, nor is a topic that joins."""
    reader = opened(engine, subscribePattern=".*")
    begin = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    engine.append(1, 2)
    engine.append(1, name="v")
    engine.store.idle()
    end = reader.latestOffset(begin, ALL)
    assert at(end) == {"t": 100, "u": 10, "v": 0}
    assert reader.latestOffset(end, ALL) is end
    assert at(opened(engine, subscribePattern=".*").latestOffset(end, ALL))["v"] == 1


@pytest.mark.parametrize("seed", range(5))
def test_a_replay_cuts_the_same_parts(
    engine: Durable, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Also when segments were sealed, records deleted and cores added in between: a part is a
    function of the two offsets."""
    monkeypatch.setattr(stream, "PART_SEQS", 100)
    reader = opened(engine, minPartitions=str(seed + 1))
    engine.append(*range(1000))
    engine.store.idle()
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, ALL)
    parts = reader.partitions(begin, end)
    assert len(parts) == seed + 1
    engine.seal_all()
    engine.delete(before_seq=500)
    engine.store.idle()

    again = opened(engine, minPartitions="16")
    assert again.partitions(begin, end) == parts
    assert [row[1] for row in rows(again, begin, end)][:3] == [500, 501, 502]


def test_expiry_is_judged_as_when_it_was_planned(engine: Durable) -> None:
    """A replay a minute later shows the records that had not expired by then. (§0.10)"""
    engine.put(ttl_ms=1000)
    engine.store.idle()
    reader = opened(engine, subscribe="t")
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, ALL)
    engine.now_ms += 60_000
    assert len(rows(reader, begin, end)) == 100


def test_loss_is_in_the_offset(engine: Durable) -> None:
    """So that a replay tells it as the first run did, once, in whatever parts. (§3.3)"""
    reader = opened(engine, subscribe="t", lossHandling="rows", minPartitions="4")
    begin = reader.initialOffset()
    engine.put(cap_records=40)
    engine.append(*range(20))
    engine.store.idle()

    end = reader.latestOffset(begin, ALL)
    assert end["lost"] == {"t": [[1, 80, "cap"]]}
    found = rows(reader, begin, end)
    assert found == [("t", 80), *(("t", seq) for seq in range(81, 121))]
    with pytest.raises(SparkFailure, match=r"lost 80 seqs, 1\.\.80, reason cap"):
        opened(engine, subscribe="t").latestOffset(begin, ALL)


def test_another_instance_of_the_topic(engine: Durable) -> None:
    """Its epoch tells it from the one that was read. (§1.4)"""
    reader = opened(engine, subscribe="t", lossHandling="warn")
    end = reader.latestOffset(reader.initialOffset(), ALL)
    engine.drop()
    engine.append(*range(3))
    engine.store.idle()

    again = reader.latestOffset(end, ALL)
    assert again["lost"]["t"][0][2] == "recreated"
    with pytest.warns(DataLossWarning, match="reason recreated"):
        assert rows(reader, end, again) == [("t", 1), ("t", 2), ("t", 3)]
    with pytest.raises(SparkFailure, match="reason recreated"):
        opened(engine, subscribe="t").latestOffset(end, ALL)


def test_a_topic_that_is_gone(engine: Durable) -> None:
    """An error, or the others go on and its place is kept."""
    reader = opened(engine, lossHandling="warn")
    end = reader.latestOffset(reader.initialOffset(), ALL)
    engine.drop()
    engine.append(1, name="u")
    engine.store.idle()

    assert at(reader.latestOffset(end, ALL)) == {"t": 100, "u": 11}
    with pytest.raises(SparkFailure, match='"t" was deleted'):
        opened(engine).latestOffset(end, ALL)


def test_following_keeps_what_it_needs_open_and_no_more(engine: Durable) -> None:
    """A stream that polls for days holds the runs that there are, not those of every poll."""
    reader = opened(engine)
    end = reader.latestOffset(reader.initialOffset(), ALL)
    for _ in range(20):
        engine.append(1)
        engine.seal_all()
        engine.store.idle()
        end = reader.latestOffset(end, ALL)
    held = reader._source._store._held  # type: ignore[union-attr]
    assert len(held) == len(set(held))


def test_offsets_of_another_version(engine: Durable) -> None:
    """A checkpoint of a later version, or of another source, says so."""
    reader = opened(engine)
    end = reader.initialOffset()
    with pytest.raises(SparkFailure, match="offsets of version 2"):
        reader.latestOffset({**end, "v": 2}, ALL)
    with pytest.raises(SparkFailure, match="no offset of the format topics"):
        reader.latestOffset({"orders": {"0": 5}}, ALL)


def test_a_reader_without_a_server(engine: Durable) -> None:
    """Its name is published through one."""
    with pytest.raises(BadOption, match="readerName is published through a server"):
        opened(engine, readerName="r")
