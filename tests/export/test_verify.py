"""Verification: files against the manifest, and the export against its topic."""

from collections.abc import Iterator
from typing import Any

import pytest

from topics.client import NewRecord
from topics.export.loading import load
from topics.export.manifest import Settings
from topics.export.verify import compare, verify
from topics.testing import MemoryTopics

from .exporting import JSONL, PARQUET, export, live, remote, rows
from .lakes import MemoryLake

SETTINGS = [
    PARQUET,
    JSONL,
    Settings("parquet", "tag"),
    Settings("jsonl", "hour"),
    Settings("parquet", "none", fields={"n": "int64"}),
]


@pytest.fixture
def memory() -> Iterator[MemoryTopics]:
    with MemoryTopics() as memory:
        for n in range(12):
            memory.client.append("t", {"n": n}, tag="abc"[n % 3], node="w" if n % 2 else None)
        yield memory


def exported(memory: MemoryTopics, settings: Settings = PARQUET, **more: Any) -> MemoryLake:
    lake = MemoryLake()
    with remote(memory) as source:
        export(source, lake, settings=settings, commit_seqs=5, **more)
    return lake


def problems(lake: MemoryLake) -> list[str]:
    return [problem.what for problem in verify(lake, load(lake)).problems]


def data_file(lake: MemoryLake) -> str:
    return next(path for path in lake.files() if path.startswith("t/"))


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_what_was_written_verifies(memory: MemoryTopics, settings: Settings) -> None:
    """In each format: every file, and every record byte for byte."""
    lake = exported(memory, settings)
    checked = verify(lake, load(lake))
    assert (checked.rows, checked.problems) == (12, [])
    assert checked.files == len([path for path in lake.files() if path.startswith("t/")])

    with remote(memory) as source:
        compared = compare(lake, load(lake), source, "t")
    assert compared is not None
    assert (compared.same, compared.is_whole, compared.deleted_since) == (12, True, 0)


@pytest.mark.parametrize("settings", SETTINGS[:2], ids=str)
def test_each_byte_of_a_file_counts(memory: MemoryTopics, settings: Settings) -> None:
    """A flipped bit, a cut end, a file that is gone."""
    original = exported(memory, settings)
    path = data_file(original)
    for at in range(0, original.size(path), 37):
        lake = original.killed()
        lake.names[path].data[at] ^= 4
        assert problems(lake) == ["its bytes are not those that were written"]
    lake = original.killed()
    lake.names[path].data.pop()
    size = original.size(path)
    assert problems(lake) == [f"it has {size - 1} bytes, not {size}"]
    del lake.names[path]
    assert problems(lake) == ["it is missing"]


def test_what_has_changed_since_is_told_apart(memory: MemoryTopics) -> None:
    """Deleted since, lost since; neither is a fault of the export."""
    lake = exported(memory)
    memory.client.delete("t", match=("tag", "Eq", "a"))
    memory.client.put_topic("t", cap_records=4)
    memory.client.append("t", "behind the export")
    with remote(memory) as source:
        compared = compare(lake, load(lake), source, "t")
    assert compared is not None
    assert compared.is_whole
    assert compared.same + compared.lost_since + compared.deleted_since == 12
    assert compared.same == 3
    assert compared.lost_since > 0
    assert compared.deleted_since > 0


def test_a_record_that_is_missing_is_found(memory: MemoryTopics) -> None:
    """A topic that has more than the export says is not what was exported."""
    memory.client.delete("t", match=("tag", "Eq", "a"))
    lake = exported(memory)
    with MemoryTopics() as more:
        for n in range(12):
            more.client.append("t", {"n": n}, tag="abc"[n % 3], node="w" if n % 2 else None)
        with remote(more) as source:
            source.bounds = lambda name: type(memory_bounds)(  # type: ignore[method-assign]
                memory_bounds.epoch, 12, 1
            )
            with remote(memory) as real:
                memory_bounds = real.bounds("t")
            compared = compare(lake, load(lake), source, "t")
    assert compared is not None
    assert (compared.missing, compared.same, compared.is_whole) == (4, 8, False)


def test_a_record_that_is_another_is_found(memory: MemoryTopics) -> None:
    """Its bytes are compared, not only its number."""
    lake = exported(memory)
    with MemoryTopics() as other:
        for n in range(12):
            data = {"n": n} if n != 6 else {"n": -6}
            other.client.append("t", data, tag="abc"[n % 3], node="w" if n % 2 else None)
        with remote(memory) as real:
            bounds = real.bounds("t")
        with remote(other) as source:
            source.bounds = lambda name: bounds  # type: ignore[method-assign]
            compared = compare(lake, load(lake), source, "t")
    assert compared is not None
    assert (compared.different, compared.missing, compared.same) == ([7], 0, 11)


def test_another_instance_is_not_compared(memory: MemoryTopics) -> None:
    """Its seqs are others'."""
    lake = exported(memory)
    memory.client.delete_topic("t")
    memory.client.append("t", 1)
    with remote(memory) as source:
        assert compare(lake, load(lake), source, "t") is None


def test_the_export_of_a_compacted_topic_has_the_newest_of_each_key() -> None:
    """What was exported stays in the export though compaction has deleted it in the topic since; what is
    exported later lacks it, and a row of a tombstone says that the key is gone. (docs/kafka.md)"""
    lake = MemoryLake()
    with MemoryTopics() as memory, remote(memory) as source:
        client = memory.client
        client.put_topic("t", compact=True)
        client.append("t", 1, 2, tag="a")
        client.append("t", 3, tag="b")
        export(source, lake)
        memory.advance(ms=60_000)
        assert live(source) == [2, 3]

        client.append("t", 4, 5, tag="a")
        client.append("t", NewRecord(None, tag="b", form="null"))
        memory.advance(ms=60_000)
        assert live(source) == [5, 6]
        export(source, lake)

        compared = compare(lake, load(lake), source, "t")
        assert compared is not None
        assert (compared.same, compared.deleted_since, compared.is_whole) == (2, 3, True)
    assert verify(lake, load(lake)).problems == []
    found = rows(lake)
    assert [row["seq"] for row in found] == [1, 2, 3, 5, 6]
    assert {row["tag"]: row["data"] for row in found} == {"a": "5", "b": "null"}
