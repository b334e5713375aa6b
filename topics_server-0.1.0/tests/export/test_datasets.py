"""What readers of an export get."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import topics.export
from topics.export.compact import compact
from topics.export.lake import OsLake
from topics.export.loading import Unusable
from topics.export.manifest import Damaged, Settings
from topics.export.planning import staged_path
from topics.export.target import open_target
from topics.testing import MemoryTopics

from .exporting import JSONL, PARQUET, export, remote


@pytest.fixture
def memory() -> Iterator[MemoryTopics]:
    with MemoryTopics() as memory:
        yield memory


def exported(memory: MemoryTopics, path: Path, settings: Settings = PARQUET) -> None:
    with remote(memory) as source:
        for name in ("t", "u"):
            memory.client.append(name, 1, 2)
            export(source, OsLake(path), name, settings=settings)


def test_exactly_the_files_of_the_manifest(memory: MemoryTopics, tmp_path: Path) -> None:
    """And not what an interrupted run left beside them."""
    exported(memory, tmp_path)
    orphan = "part-00000000000000000001-00000000000000000002-9.parquet"
    first = Path(topics.export.files(tmp_path, "t")[0])
    (tmp_path / "t" / orphan).write_bytes(first.read_bytes())

    assert len(topics.export.files(tmp_path)) == 2
    table = topics.export.dataset(tmp_path).to_table(columns=["topic", "seq"])
    assert sorted(zip(*table.to_pydict().values(), strict=True)) == [
        ("t", 1), ("t", 2), ("u", 1), ("u", 2)
    ]  # fmt: skip
    assert topics.export.dataset(tmp_path, "u").count_rows() == 2
    assert pq.read_table(tmp_path / "t").num_rows == 4


def test_a_swap_that_was_cut_hides_nothing(memory: MemoryTopics, tmp_path: Path) -> None:
    """Between the manifest and its place, a file is found where it waits."""
    exported(memory, tmp_path)
    exported(memory, tmp_path)
    with open_target(OsLake(tmp_path)) as target:
        compact(target, 1 << 20)
    path = Path(topics.export.files(tmp_path, "t")[0])
    waiting = tmp_path / staged_path(str(path.relative_to(tmp_path)))
    path.rename(waiting)

    assert topics.export.files(tmp_path, "t") == [str(waiting)]
    assert topics.export.dataset(tmp_path, "t").count_rows() == 4
    waiting.unlink()
    with pytest.raises(Damaged, match="it is missing"):
        topics.export.dataset(tmp_path, "t")


def test_lines_are_a_dataset_too(memory: MemoryTopics, tmp_path: Path) -> None:
    """With the members that the lines have."""
    exported(memory, tmp_path, JSONL)
    found = topics.export.dataset(tmp_path, "t").to_table()
    assert found.column("$seq").to_pylist() == [1, 2]


def test_nothing_is_exported_yet(memory: MemoryTopics, tmp_path: Path) -> None:
    """An export without rows has its columns; a directory without an export is refused."""
    with pytest.raises(Unusable, match="there is no export in it"):
        topics.export.dataset(tmp_path)
    open_target(OsLake(tmp_path), PARQUET).close()
    assert topics.export.dataset(tmp_path).to_table().num_rows == 0
    assert "seq" in topics.export.dataset(tmp_path).schema.names
    with pytest.raises(Unusable, match='there is no topic "t" in it'):
        topics.export.files(tmp_path, "t")


def test_tables_are_read_as_tables(tmp_path: Path) -> None:
    """Their files alone say nothing."""
    open_target(OsLake(tmp_path), Settings("delta", "none")).close()
    with pytest.raises(Unusable, match="a table of delta; read it as that"):
        topics.export.dataset(tmp_path)
