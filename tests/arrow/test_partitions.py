"""Scans of topics with several partitions (§2.1): a column says which, and one partition stays as it was."""

from pathlib import Path

import pytest

import topics.arrow
from topics.arrow import DataLoss, NoSuchTopic
from topics.arrow.columns import FIELDS, schema
from topics.arrow.local import LocalSource
from topics.arrow.remote import RemoteSource
from topics.arrow.scan import read, resolve, scan
from topics.arrow.source import Wanted
from topics.client import NewRecord
from topics.testing import MemoryTopics

from .partitioned import partitioned, write
from .writer import opened, writer

BEHIND_TOPIC = ["topic", "partition", "seq", "ts", "node", "tag", "data", "meta"]


def places(source: LocalSource, **more: object) -> list[tuple[int, int]]:
    """Partition and seq of every row of a scan."""
    rows = [row for each in scan(source, "t", **more) for row in each.to_pylist()]  # type: ignore[arg-type]
    return [(row["partition"], row["seq"]) for row in rows]


def test_all_partitions_are_read_one_after_the_other(tmp_path: Path) -> None:
    """Each in the order of its seqs; rows name the topic as clients know it. (§2.1)"""
    with opened(partitioned(writer(tmp_path))) as source:
        assert source.topics() == ["t"]
        assert source.partitions("t") == ["t", "t#1", "t#2"]
        table = topics.arrow.reader(source, "t").read_all()

    assert table.schema.names == BEHIND_TOPIC
    assert table.column("topic").to_pylist() == ["t"] * 3
    assert table.column("partition").to_pylist() == [0, 0, 2]
    assert table.column("seq").to_pylist() == [1, 2, 1]
    assert table.column("data").to_pylist() == ['{"n":1}', '{"n":2}', '{"n":3}']


def test_a_topic_with_one_partition_has_the_columns_that_it_had(tmp_path: Path) -> None:
    """So tables that are made of it go on; the column is there for those who ask. (122)"""
    engine = writer(tmp_path)
    engine.put(partitions=1)
    write(engine, 0, b"1")
    with opened(engine) as source:
        assert scan(source, "t").schema.names == list(FIELDS)
        assert scan(source, "t", loss="rows").schema == schema(list(FIELDS), loss_rows=True)
        [batch] = scan(source, "t", columns=["seq", "partition"])
        assert batch.to_pylist() == [{"seq": 1, "partition": 0}]


def test_partitions_that_are_named_are_read_alone(tmp_path: Path) -> None:
    """Which is how a program shares them out among processes. (§2.1)"""
    with opened(partitioned(writer(tmp_path))) as source:
        assert places(source, partitions=[2]) == [(2, 1)]
        assert places(source, partitions=[1, 2]) == [(2, 1)]
        with pytest.raises(NoSuchTopic, match='topic "t", partition 7, does not exist'):
            scan(source, "t", partitions=[7])


def test_a_place_is_of_all_partitions_or_of_one(tmp_path: Path) -> None:
    """As a cursor of a watch names one. (§2.1)"""
    with opened(partitioned(writer(tmp_path))) as source:
        assert places(source, start=2) == [(0, 2)]
        assert places(source, start={"t": 2, "t#2": 1}) == [(0, 2), (2, 1)]
        assert places(source, end={"t#0": 2}) == [(0, 1), (2, 1)]


def test_loss_names_its_partition(tmp_path: Path) -> None:
    """A cap is a partition's; so is what it takes. (§3.3)"""
    engine = partitioned(writer(tmp_path), cap_records=2)
    write(engine, 2, b"4", b"5")
    with opened(engine) as source:
        with pytest.raises(DataLoss, match='topic "t", partition 2, lost 1 seqs'):
            scan(source, "t")
        rows = [row for each in scan(source, "t", loss="rows") for row in each.to_pylist()]
    assert [(row["partition"], row["seq"], row["_kind"]) for row in rows] == [
        *((0, seq, "record") for seq in (1, 2)),
        (2, 1, "tombstone"),
        *((2, seq, "record") for seq in (2, 3)),
    ]


def test_partitions_that_come_to_a_topic_are_found(tmp_path: Path) -> None:
    """Their numbers begin anew, and those before go on. (§2.1)"""
    engine = writer(tmp_path)
    engine.put()
    write(engine, 0, b"1")
    with opened(engine) as source:
        assert source.partitions("t") == ["t"]
        engine.put(partitions=2)
        write(engine, 1, b"2", b"3")
        engine.store.idle()
        source.refresh()
        assert places(source, columns=["partition", "seq"]) == [(0, 1), (1, 1), (1, 2)]


def test_a_partition_is_deleted_with_its_topic(tmp_path: Path) -> None:
    """And a topic of its name that has one partition does not have it. (§2.1)"""
    engine = partitioned(writer(tmp_path))
    with opened(engine) as source:
        each = resolve(source, "t#2", "earliest", "latest")
        engine.drop()
        engine.put()
        engine.store.idle()
        source.refresh()
        with pytest.raises(NoSuchTopic, match="partition 2"):
            list(read(source, each, Wanted(schema(["seq"])), "fail"))
        with pytest.raises(NoSuchTopic):
            source.partitions("t#2")


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_a_visible_read_shows_what_the_server_shows_of_each_partition(
    tmp_path: Path, durability: str
) -> None:
    """A partition is there, and changes its class, with its topic. (§0.6)"""
    engine = writer(tmp_path)
    engine.put(partitions=2)
    engine.put(partitions=3, durability=durability)
    write(engine, 2, b"1")
    engine.sync()
    engine.store.idle()
    with LocalSource(tmp_path, consistency="visible") as source:
        assert source.partitions("t") == ["t", "t#1", "t#2"]
        assert places(source) == [(2, 1)]


def test_a_server_gives_what_its_files_give(memory_topics: MemoryTopics) -> None:
    """Batch for batch; the first partition is named where the topic has several. (§3)"""
    client = memory_topics.client
    client.put_topic("t", partitions=3, cap_records=3)
    client.append("t", *(NewRecord(n, partition=n % 3) for n in range(4)))
    client.append("t", "a", "b", partition=2)
    with RemoteSource(client, ahead=1) as source:
        assert source.topics() == ["t"]
        assert source.partitions("t") == ["t", "t#1", "t#2"]
        table = topics.arrow.reader(source, "t").read_all()
        assert table.schema.names == BEHIND_TOPIC
        rows = [(row["partition"], row["seq"], row["data"]) for row in table.to_pylist()]
        assert rows == [
            *((0, 1, "0"), (0, 2, "3"), (1, 1, "1")),
            *((2, 1, "2"), (2, 2, '"a"'), (2, 3, '"b"')),
        ]
        assert [source.bounds(name).head_seq for name in ("t", "t#1", "t#2")] == [2, 1, 3]
        assert len({source.bounds(name).epoch for name in ("t", "t#1", "t#2")}) == 3
        assert [source.seek(name, 1 << 50) for name in ("t", "t#2")] == [3, 4]
        assert source.text_bytes("t#1", 1, 1) < source.text_bytes("t#2", 1, 3)
        wanted = Wanted(schema(["data"]))
        assert source.reach("t#2", 1, 3, wanted, 2) == (1, 1)

        client.append("t", "c", partition=2)
        with pytest.raises(DataLoss, match='topic "t", partition 2, lost 1 seqs'):
            scan(source, "t")
        for name in ("t#7", "u", "u#1"):
            with pytest.raises(NoSuchTopic):
                source.bounds(name)
            with pytest.raises(NoSuchTopic):
                source.seek(name, 0)
