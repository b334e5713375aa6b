"""Exports into Delta and Iceberg tables: the same promises over another log."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from topics import NewRecord
from topics.export.lake import OsLake
from topics.export.loading import Unusable
from topics.export.manifest import By, Damaged, Format, Settings
from topics.export.run import ExportJob, ExportRun
from topics.export.tables import Tables, open_tables, tables_of
from topics.testing import MemoryTopics

from .exporting import Quiet, live, remote

FORMATS: list[Format] = ["delta", "iceberg"]


@pytest.fixture(params=FORMATS)
def format(request: pytest.FixtureRequest) -> Format:
    pytest.importorskip({"delta": "deltalake", "iceberg": "pyiceberg"}[request.param])
    chosen: Format = request.param
    return chosen


@pytest.fixture
def memory() -> Iterator[MemoryTopics]:
    with MemoryTopics() as memory:
        records = [NewRecord({"n": n}, tag="abc"[n % 3]) for n in range(12)]
        memory.client.append_many("eu:t", records)
        yield memory


def export(memory: MemoryTopics, path: Path, settings: Settings, **job: Any) -> Any:
    with remote(memory) as source, open_tables(OsLake(path), settings) as tables:
        run = ExportRun(source, tables, ExportJob(("eu:t",), **job), Quiet())
        run._sizers["eu:t"].seqs = 5
        return run.once()


def seqs(tables: Tables) -> list[int]:
    found = tables.table("eu:t").rows(1, 10**9)
    return sorted(found.column("seq").to_pylist())


@pytest.mark.parametrize("by", ["none", "date", "hour", "tag"])
def test_each_record_is_there_once(
    memory: MemoryTopics, tmp_path: Path, format: Format, by: By
) -> None:
    """Run after run, and byte for byte."""
    settings = Settings(format, by)
    assert export(memory, tmp_path, settings).commits == 3
    memory.client.append("eu:t", {"n": 12}, node="w", meta={"m": 1})
    assert export(memory, tmp_path, settings).rows == 1
    assert export(memory, tmp_path, settings).commits == 0

    tables = tables_of(OsLake(tmp_path))
    assert seqs(tables) == list(range(1, 14))
    tables.verify("eu:t")
    with remote(memory) as source:
        found = tables.compare(source, "eu:t")
    assert found is not None
    assert (found.same, found.is_whole) == (13, True)
    assert {name: (ln.first, ln.last) for name, ln in tables.lineages().items()} == {
        "eu:t": (1, 13)
    }


def test_files_of_others(memory: MemoryTopics, tmp_path: Path, format: Format) -> None:
    """They are told beside the tables; what a table's own tools write is in its directory."""
    export(memory, tmp_path, Settings(format, "tag"))
    assert tables_of(OsLake(tmp_path)).strangers() == []
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x.parquet").write_text("x")
    assert tables_of(OsLake(tmp_path)).strangers() == ["other/x.parquet"]


def test_a_run_that_was_cut_commits_nothing_twice(
    memory: MemoryTopics, tmp_path: Path, format: Format
) -> None:
    """The transaction is the commit: whether its answer arrived does not matter."""
    settings = Settings(format, "none")
    with remote(memory) as source, open_tables(OsLake(tmp_path), settings) as tables:
        run = ExportRun(source, tables, ExportJob(("eu:t",)), Quiet())
        run._sizers["eu:t"].seqs = 5
        real = tables.commit

        def cut(chunk: Any) -> Any:
            real(chunk)
            raise KeyboardInterrupt

        tables.commit = cut  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            run.once()
    assert seqs(tables_of(OsLake(tmp_path))) == [1, 2, 3, 4, 5]
    export(memory, tmp_path, settings)
    assert seqs(tables_of(OsLake(tmp_path))) == list(range(1, 13))


def test_gaps_and_deletes_are_in_the_stamp(
    memory: MemoryTopics, tmp_path: Path, format: Format
) -> None:
    """A commit without rows moves the export on as well. (§3.3)"""
    memory.client.put_topic("eu:t", cap_records=4)
    memory.client.append("eu:t", "more", tag="x")
    memory.client.delete("eu:t", match=("tag", "Eq", "a"))
    export(memory, tmp_path, Settings(format, "none"), loss="record")

    lineage = tables_of(OsLake(tmp_path)).lineage("eu:t")
    assert lineage is not None
    assert (lineage.last, lineage.rows + lineage.deleted + lineage.missed) == (13, 13)
    assert lineage.missed > 0


def test_deletes_reach_the_table(memory: MemoryTopics, tmp_path: Path, format: Format) -> None:
    """But not those of the hand-off."""
    settings = Settings(format, "tag")
    export(memory, tmp_path, settings)
    memory.client.delete("eu:t", match=("tag", "Eq", "b"))
    with remote(memory) as source:
        with open_tables(OsLake(tmp_path)) as tables:
            assert tables.reconcile(source, "eu:t") == 4
            assert seqs(tables) == live(source, "eu:t")
            tables.hand_off("eu:t", source.bounds("eu:t").epoch, 6)
            memory.client.delete("eu:t", before_seq=6)
        with open_tables(OsLake(tmp_path)) as tables:
            assert tables.reconcile(source, "eu:t") == 0
            lineage = tables.lineage("eu:t")
            assert lineage is not None
            assert (lineage.handed, lineage.erased) == (5, 4)
    assert export(memory, tmp_path, settings).commits == 0


def test_rows_that_went_missing_are_noticed(
    memory: MemoryTopics, tmp_path: Path, format: Format
) -> None:
    """Another program may have deleted them."""
    export(memory, tmp_path, Settings(format, "none"))
    tables = tables_of(OsLake(tmp_path))
    stamp = tables.table("eu:t").stamp()
    assert stamp is not None
    tables.table("eu:t").delete([3], stamp)
    with pytest.raises(Damaged, match="has 11 rows, and 12 were exported"):
        tables.verify("eu:t")


@pytest.mark.parametrize(("by", "before", "after"), [("none", 3, 1), ("tag", 8, 3)])
def test_small_files_are_merged(
    memory: MemoryTopics, tmp_path: Path, format: Format, by: By, before: int, after: int
) -> None:
    """One file for each partition, with the same rows; a second time there is nothing to merge, and
    the export goes on."""
    export(memory, tmp_path, Settings(format, by))
    with open_tables(OsLake(tmp_path)) as tables:
        assert tables.compact("eu:t", 1 << 20) == {"before": before, "after": after}
        assert tables.compact("eu:t", 1 << 20) == {"before": 0, "after": 0}
        assert seqs(tables) == list(range(1, 13))
        tables.verify("eu:t")
        with remote(memory) as source:
            found = tables.compare(source, "eu:t")
    assert found is not None
    assert (found.same, found.is_whole) == (12, True)
    assert export(memory, tmp_path, Settings(format, by)).commits == 0
    memory.client.append("eu:t", {"n": 12})
    assert export(memory, tmp_path, Settings(format, by)).rows == 1


def test_large_files_stay_as_they_are(memory: MemoryTopics, tmp_path: Path, format: Format) -> None:
    """What is half as large as the target, or larger, is not read again."""
    export(memory, tmp_path, Settings(format, "none"))
    with open_tables(OsLake(tmp_path)) as tables:
        assert tables.compact("eu:t", 10) == {"before": 0, "after": 0}


def test_a_table_is_of_one_instance(memory: MemoryTopics, tmp_path: Path, format: Format) -> None:
    """Seqs of two would be the same."""
    export(memory, tmp_path, Settings(format, "none"))
    memory.client.delete_topic("eu:t")
    memory.client.append("eu:t", 1)
    with pytest.raises(Unusable, match="a table has one instance; export it to another directory"):
        export(memory, tmp_path, Settings(format, "none"), loss="warn")


def test_typed_members_are_columns(memory: MemoryTopics, tmp_path: Path, format: Format) -> None:
    """As in Parquet."""
    export(memory, tmp_path, Settings(format, "none", fields={"n": "int64", "x": "string"}))
    rows = tables_of(OsLake(tmp_path)).table("eu:t").rows(1, 2)
    assert sorted(row["data"]["n"] for row in rows.to_pylist()) == [0, 1]
