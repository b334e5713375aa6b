"""The reader of a stream without a JVM: offsets, limits, loss, and the plan of a batch."""

import pickle
import random
from collections.abc import Iterator
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
    assert at(reader.latestOffset(begin, ALL)) == {"t": 100, "u": 10}
    assert reader.getDefaultReadLimit() == ReadMaxRows(1_000_000)


def batches(
    reader: TopicsStreamReader, limit: ReadMaxRows | ReadMaxBytes
) -> Iterator[list[tuple[str, int, int]]]:
    """Topic, seq and bytes of `data` of each record, by batch, to the end of what is there."""
    start = reader.initialOffset()
    while (end := reader.latestOffset(start, limit)) is not start:
        yield [
            (row["topic"], row["seq"], len(row["data"]))
            for part in reader.partitions(start, end)
            for batch in reader.read(part)
            for row in batch.to_pylist()
        ]
        start = end


@pytest.mark.parametrize("seed", range(6))
def test_a_limit_of_bytes_is_one(tmp_path: Path, seed: int) -> None:
    """Large records first and small ones behind them, of several topics, deleted ones among them: no
    batch has more bytes, but for one record that alone has more; and batches are not much smaller."""
    chance = random.Random(seed)
    engine = writer(tmp_path / "other", segment_max_records=64)
    for name in "tuv"[: 1 + seed % 3]:
        engine.append(*("x" * chance.randrange(50, 3000) for _ in range(60)), name=name)
        engine.append(*range(2000), name=name)
        engine.append("y" * 15_000, *range(50), name=name)
        engine.seal_all()
    engine.delete(before_seq=20)
    engine.store.idle()
    options = {"path": str(engine.files.path), "subscribePattern": ".*"}
    if seed % 2:
        options["maxBytesPerTrigger"] = "10000b"
    reader = opened(engine, **options)

    made = list(batches(reader, ReadMaxRows(10**6) if seed % 2 else ReadMaxBytes(10_000)))
    found = [row[:2] for batch in made for row in batch]
    assert len(found) == len(set(found))
    assert len(found) == sum(engine.topic(name).count for name in "tuv"[: 1 + seed % 3])
    sizes = [sum(row[2] for row in batch) for batch in made]
    assert [n for n, size in enumerate(sizes) if size > 10_000 and len(made[n]) > 1] == []
    assert sum(sizes) / len(sizes) > 4000


def test_no_topic_waits_for_ever(engine: Durable) -> None:
    """One with a record that fits into no share of a busy topic's is the first in its turn."""
    engine.append("x" * 4000, name="u")
    engine.append(*("y" * 100 for _ in range(1000)))
    engine.store.idle()
    reader = opened(engine, maxBytesPerTrigger="5000b")

    first = [
        batch for batch, _ in zip(batches(reader, ReadMaxRows(10**6)), range(20), strict=False)
    ]
    assert ("u", 11) in {row[:2] for batch in first[:6] for row in batch}
    assert all(sum(row[2] for row in batch) <= 5000 for batch in first)


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


@pytest.mark.parametrize("most", [1, 10, 40, 1000])
def test_a_gap_is_one_row(engine: Durable, most: int) -> None:
    """However few records a batch may have: it takes none of them. (§3.3)"""
    reader = opened(engine, subscribe="t", lossHandling="rows", minPartitions="4")
    start = reader.latestOffset(reader.initialOffset(), ReadMaxRows(40))
    engine.put(cap_records=60)
    engine.append(*range(150))
    engine.store.idle()

    batches = []
    while (end := reader.latestOffset(start, ReadMaxRows(most))) is not start:
        batches.append([row[1] for row in rows(reader, start, end)])
        start = end
    assert batches[0] == [190, *range(191, min(191 + most, 251))]
    assert [seq for batch in batches for seq in batch] == [190, *range(191, 251)]
    assert len(batches) == -(-60 // most)


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


def test_a_checkpoint_of_other_topics(engine: Durable) -> None:
    """What is not subscribed any more is not read, and stays where it was; what joins is read from its
    beginning, and so the same when it comes back."""
    reader = opened(engine, subscribe="t")
    end = reader.latestOffset(reader.initialOffset(), ALL)
    engine.append(1, 2)
    engine.store.idle()

    other = opened(engine, subscribe="u")
    later = other.latestOffset(end, ALL)
    assert at(later) == {"t": 100, "u": 10}
    assert {name for name, _ in rows(other, end, later)} == {"u"}
    pattern = opened(engine, subscribePattern="u|v")
    assert pattern.latestOffset(later, ALL) is later
    assert at(opened(engine).latestOffset(later, ALL)) == {"t": 102, "u": 10}


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
