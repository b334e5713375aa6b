"""Exports of topics with several partitions (§2.1): a column says which, and an export that began before goes on."""

from pathlib import Path
from typing import Any

import pytest
from arrow.partitioned import partitioned, write
from arrow.writer import opened, writer
from protocol.durable import Durable

import topics.export
from topics.arrow.columns import FIELDS
from topics.export.compact import compact
from topics.export.handoff import NotSafe
from topics.export.lake import OsLake
from topics.export.loading import load
from topics.export.manifest import Format, Settings
from topics.export.reconcile import reconcile
from topics.export.repair import repair
from topics.export.run import ExportJob, ExportRun
from topics.export.tables import open_tables, tables_of
from topics.export.target import open_target
from topics.export.verify import compare, verify

from .exporting import JSONL, PARQUET, Quiet, export

ALL = ["topic", "partition", "seq", "ts", "node", "tag", "data", "meta"]


@pytest.fixture
def engine(tmp_path: Path) -> Durable:
    return writer(tmp_path / "data")


@pytest.fixture
def lake(tmp_path: Path) -> OsLake:
    (tmp_path / "lake").mkdir()
    return OsLake(tmp_path / "lake")


def run(engine: Durable, lake: OsLake, settings: Settings = PARQUET) -> int:
    with opened(engine) as source:
        return export(source, lake, settings=settings).rows


def table(lake: OsLake) -> Any:
    return topics.export.dataset(lake.path, "t").to_table().sort_by("seq")


def is_same(engine: Durable, lake: OsLake, name: str) -> bool:
    with opened(engine) as source:
        found = compare(lake, load(lake), source, name)
    return found is not None and found.is_whole and found.same > 0


def test_rows_say_their_partition(engine: Durable, lake: OsLake) -> None:
    """All in the directory of the topic, each partition going on behind its own last seq."""
    assert run(partitioned(engine), lake) == 3
    write(engine, 2, b"4")
    write(engine, 1, b"5")
    assert run(engine, lake) == 2

    found = table(lake)
    assert found.schema.names == ALL
    rows = {(row["topic"], row["partition"], row["seq"]) for row in found.to_pylist()}
    assert rows == {("t", 0, 1), ("t", 0, 2), ("t", 1, 1), ("t", 2, 1), ("t", 2, 2)}
    assert {path.split("/")[0] for path in load(lake).live()} == {"t"}
    assert load(lake).names() == ["t", "t#1", "t#2"]
    assert not verify(lake, load(lake)).problems
    assert all(is_same(engine, lake, name) for name in ("t", "t#1", "t#2"))


def test_one_partition_has_the_columns_that_it_had(engine: Durable, lake: OsLake) -> None:
    """So what was built on such an export stays as it is."""
    engine.put()
    write(engine, 0, b"1")
    assert run(engine, lake) == 1
    assert table(lake).schema.names == list(FIELDS)


def test_an_export_goes_on_when_partitions_come(engine: Durable, lake: OsLake) -> None:
    """Rows from before have no column, and are of the first; merged with others they have it."""
    engine.put()
    write(engine, 0, b"1")
    run(engine, lake)
    engine.put(partitions=2)
    write(engine, 0, b"2")
    write(engine, 1, b"3")
    assert run(engine, lake) == 2
    assert table(lake).column("partition").to_pylist() == [None, 1, 0]

    with open_target(lake) as target:
        compact(target, 1 << 20)
    assert table(lake).column("partition").to_pylist() == [0, 1, 0]
    assert all(is_same(engine, lake, name) for name in ("t", "t#1"))


def test_lines_of_the_first_partition_are_as_they_were(engine: Durable, lake: OsLake) -> None:
    """Others have a member; a line says it behind its seq."""
    assert run(partitioned(engine), lake, JSONL) == 3
    lines = [
        line.partition(b',"$ts"')[0]
        for path in topics.export.files(lake.path, "t")
        for line in Path(path).read_bytes().splitlines()
    ]
    assert lines == [b'{"$seq":1', b'{"$seq":2', b'{"$seq":1,"$partition":2']
    assert all(is_same(engine, lake, name) for name in ("t", "t#2"))


def test_deletes_and_repairs_are_of_a_partition(engine: Durable, lake: OsLake) -> None:
    """A seq that is deleted in one stays in the others."""
    run(partitioned(engine), lake)
    engine.delete("t#2", before_seq=2)
    with opened(engine) as source, open_target(lake) as target:
        assert [reconcile(target, source, name).erased for name in ("t", "t#2")] == [0, 1]
    assert table(lake).column("partition").to_pylist() == [0, 0]

    [path] = topics.export.files(lake.path, "t")
    Path(path).unlink()
    with opened(engine) as source, open_target(lake) as target:
        assert repair(target, source).rows == 2
    assert table(lake).schema.names == ALL


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_a_table_has_all_partitions(engine: Durable, lake: OsLake, format: Format) -> None:
    """It began when there was one: then the column is added, and each partition has a stamp of its own."""
    pytest.importorskip({"delta": "deltalake", "iceberg": "pyiceberg"}[format])

    def once() -> int:
        with opened(engine) as source, open_tables(lake, Settings(format, "none")) as tables:
            return ExportRun(source, tables, ExportJob(("t",)), Quiet()).once().rows

    engine.put()
    write(engine, 0, b"1", b"2")
    assert once() == 2
    engine.put(partitions=3)
    write(engine, 0, b"3")
    write(engine, 2, b"4", b"5")
    assert (once(), once()) == (3, 0)

    tables = tables_of(lake)
    assert list(tables.lineages()) == ["t", "t#2"]
    assert tables.topics() == ["t"]
    rows = tables.table("t").rows(1, 10, ["partition", "seq"]).to_pylist()
    assert sorted(((row["partition"] or 0), row["seq"]) for row in rows) == [
        *((0, seq) for seq in (1, 2, 3)),
        *((2, seq) for seq in (1, 2)),
    ]
    with opened(engine) as source:
        for name in ("t", "t#2"):
            tables.verify(name)
            found = tables.compare(source, name)
            assert found is not None
            assert (found.is_whole, found.same > 0) == (True, True)

    engine.delete("t#2", before_seq=2)
    with opened(engine) as source, open_tables(lake) as writable:
        assert [writable.reconciled(source, name).erased for name in ("t", "t#2")] == [0, 1]
        writable.compact("t", 1 << 20)
    assert len(tables_of(lake).table("t").rows(1, 10)) == 4
    for name in ("t", "t#2"):
        tables_of(lake).verify(name)


def test_nothing_is_handed_off_of_a_partition_that_is_not_exported(
    engine: Durable, lake: OsLake
) -> None:
    """The message names it as clients do."""
    from topics.export.then_delete import plan

    run(partitioned(engine), lake)
    with opened(engine) as source:
        lineage = load(lake).current("t#2")
        limits = {"readers": (), "min_age_ms": 0, "now_ms": engine.now_ms + 1}
        found = plan(source, PARQUET, lineage, "t#2", **limits)  # type: ignore[arg-type]
        assert (found.bound.before_seq, found.earliest_seq) == (2, 1)
        with pytest.raises(NotSafe, match='topic "t", partition 2, is not the one'):
            plan(source, PARQUET, None, "t#2", **limits)  # type: ignore[arg-type]
