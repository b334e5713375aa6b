"""Chunks on their way into files."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from topics import NewRecord
from topics.arrow.columns import FIELDS, schema
from topics.export import writing
from topics.export.manifest import By, Settings
from topics.export.writing import Recreated, TooManyPartitions, partitioned
from topics.testing import MemoryTopics

from .exporting import export, remote, seqs
from .lakes import MemoryLake


@pytest.fixture
def memory() -> Iterator[MemoryTopics]:
    with MemoryTopics() as memory:
        yield memory


@pytest.mark.parametrize(
    ("by", "directories"),
    [
        ("none", {"t"}),
        ("date", {"t/date=1970-01-01", "t/date=1970-01-02"}),
        ("hour", {"t/date=1970-01-01/hour=00", "t/date=1970-01-02/hour=01"}),
        ("tag", {"t/by_tag=a", "t/by_tag=b%2F%C3%BC", "t/by_tag=__HIVE_DEFAULT_PARTITION__"}),
    ],
)
def test_partitions_are_directories(memory: MemoryTopics, by: By, directories: set[str]) -> None:
    """Of a day, an hour or a tag; the columns are the same everywhere."""
    lake = MemoryLake()
    base = memory.client.append("t", 0, tag="a")
    memory.client.append("t", 1, tag="b/ü")
    memory.advance(ms=25 * 3600_000)
    memory.client.append("t", 2)
    del base
    with remote(memory) as source:
        export(source, lake, settings=Settings("parquet", by))
    found = {path.rpartition("/")[0] for path in lake.files() if path.startswith("t/")}
    if by in ("date", "hour"):
        assert len(found) == len(directories)
        assert all(("hour=" in path) == (by == "hour") for path in found)
    else:
        assert found == directories
    assert seqs(lake) == [1, 2, 3]


def batch(*rows: tuple[int, int, str | None]) -> pa.RecordBatch:
    """Of (seq, microseconds, tag)."""
    wanted = schema(list(FIELDS))
    known = {
        "seq": [row[0] for row in rows],
        "ts": [row[1] for row in rows],
        "tag": [row[2] for row in rows],
    }
    arrays = [
        pa.array(known[f.name], f.type) if f.name in known else pa.nulls(len(rows), f.type)
        for f in wanted
    ]
    return pa.record_batch(arrays, schema=wanted)


HOUR = 3_600_000_000


@pytest.mark.parametrize(
    ("by", "parts"),
    [
        ("none", {"": [1, 2, 3, 4]}),
        ("date", {"date=1970-01-01": [1, 2, 4], "date=1970-01-02": [3]}),
        (
            "hour",
            {
                "date=1970-01-01/hour=00": [1, 4],
                "date=1970-01-01/hour=01": [2],
                "date=1970-01-02/hour=00": [3],
            },
        ),
        ("tag", {"by_tag=a": [1, 3], "by_tag=__HIVE_DEFAULT_PARTITION__": [2, 4]}),
    ],
)
def test_a_batch_is_divided(by: By, parts: dict[str, list[int]]) -> None:
    """By UTC, whatever the order of times; the order of seqs stays."""
    rows = batch((1, 0, "a"), (2, HOUR, None), (3, 24 * HOUR, "a"), (4, HOUR - 1, None))
    found = {name: part.column("seq").to_pylist() for name, part in partitioned(rows, by)}
    assert found == parts


def test_too_many_tags(memory: MemoryTopics, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is an open file: a chunk of more is refused, and nothing of it is left."""
    monkeypatch.setattr(writing, "OPEN_MAX", 3)
    memory.client.append_many("t", [NewRecord(n, tag=f"t{n}") for n in range(4)])
    lake = MemoryLake()
    with remote(memory) as source:
        with pytest.raises(TooManyPartitions, match="more than 3 tags within one commit; choose"):
            export(source, lake, settings=Settings("parquet", "tag"))
        assert [path for path in lake.files() if "staged" in path] == []


def test_times_that_go_on_close_their_files(
    memory: MemoryTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many days there are, few are open at once."""
    monkeypatch.setattr(writing, "OPEN_MAX", 2)
    for n in range(6):
        memory.client.append("t", n)
        memory.advance(ms=86_400_000)
    lake = MemoryLake()
    with remote(memory) as source:
        export(source, lake, settings=Settings("parquet", "date"))
    assert len([path for path in lake.files() if path.startswith("t/")]) == 6
    assert seqs(lake) == [1, 2, 3, 4, 5, 6]


def test_a_large_file_is_followed_by_another(memory: MemoryTopics) -> None:
    """A chunk may have several files of one partition, also where a batch is larger than a file."""
    memory.client.append_many("t", range(3000), batch_records=1000)
    lake = MemoryLake()
    with remote(memory) as source:
        wanted = source.read

        def small(*given: Any) -> Any:
            for found in wanted(*given):
                for at in range(0, len(found), 1000):
                    yield found.slice(at, 1000)

        source.read = small  # type: ignore[method-assign]
        export(source, lake, settings=Settings("jsonl", "none"), target_bytes=20_000)
    assert len([path for path in lake.files() if path.startswith("t/")]) == 5
    assert max(map(lake.size, lake.files())) < 40_000
    assert seqs(lake) == list(range(1, 3001))


def test_an_instance_that_ends_while_it_is_read(memory: MemoryTopics) -> None:
    """Nothing of it is committed: its rows may be another's."""
    memory.client.append("t", *range(10))
    lake = MemoryLake()
    with remote(memory) as source:
        real = source.read

        def read(*given: Any) -> Any:
            yield from real(*given)
            memory.client.delete_topic("t")
            memory.client.append("t", "new")

        source.read = read  # type: ignore[method-assign]
        result = export(source, lake)
        assert (result.commits, seqs(lake)) == (0, [])
        source.read = real  # type: ignore[method-assign]
        export(source, lake)
    assert seqs(lake) == [1]
    assert issubclass(Recreated, Exception)


def test_a_gap_in_pieces_is_one(memory: MemoryTopics) -> None:
    """A server tells of a long gap page by page."""
    memory.client.put_topic("t", cap_records=10)
    for _ in range(5):
        memory.client.append_many("t", range(2000), batch_records=1000)
    with remote(memory) as source:
        result = export(source, MemoryLake(), loss="record")
    assert [(gap.first_seq, gap.last_seq) for gap in result.lost] == [(1, 9990)]
