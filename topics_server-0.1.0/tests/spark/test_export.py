"""`topics export --engine spark`: the files and the manifest of the engine `direct`."""

from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from bench.flights import Server
from topics import Client, NewRecord
from topics.cli import main

from .conftest import Reads, settle

pytestmark = pytest.mark.spark


def export(url: str, *arguments: object) -> tuple[int, str]:
    done = CliRunner(env={"TOPICS_URL": url}).invoke(main, ["export", *map(str, arguments)])
    return done.exit_code, done.output


def rows(folder: Path) -> list[dict[str, Any]]:
    files = [str(path) for path in folder.rglob("part-*.parquet")]
    return sorted(ds.dataset(files).to_table().to_pylist(), key=lambda row: row["seq"])


@pytest.mark.parametrize("how", ["path", "url"])
def test_the_same_as_the_direct_engine(
    reads: Reads, client: Client, server: Server, home: Path, name: str, how: str
) -> None:
    """The same rows, verified against the manifest; a second run goes on, with either engine."""
    place = ("--path", server.data_dir) if how == "path" else ("--url", server.url)
    given = ("--by", "tag", "--target-file-size", "64KB")
    client.append_many(name, [NewRecord({"n": n}, tag=f"t{n % 3}") for n in range(3000)])
    client.delete(name, match=("tag", "Eq", "t1"))
    settle(server)
    for engine in ("direct", "spark"):
        code, said = export(
            server.url, name, *place, "--to", home / engine, *given, "--engine", engine
        )
        assert code == 0, said
    client.append_many(name, list(range(100)))
    settle(server)
    for engine, other in (("direct", "spark"), ("spark", "direct")):
        code, said = export(
            server.url, name, *place, "--to", home / engine, *given, "--engine", other
        )
        assert code == 0, said

    assert rows(home / "spark") == rows(home / "direct")
    assert len(rows(home / "spark")) == 2100
    for engine in ("direct", "spark"):
        code, said = export(server.url, "verify", home / engine, "--deep")
        assert code == 0, said
    assert not list((home / "spark" / "_topics_export" / "staged").iterdir())


def test_what_ends_a_task_ends_the_export(
    reads: Reads, client: Client, server: Server, home: Path, name: str
) -> None:
    """Loss and damage have the exit codes and the lines of the direct engine; no file is left."""
    client.put_topic(name, cap_records=10)
    client.append(name, *range(50))
    given = (name, "--to")
    assert (
        export(server.url, *given, home / "direct")[0]
        == export(server.url, *given, home / "spark", "--master", "local[2]")[0]
        == 4
    )
    assert not list((home / "spark").rglob("part-*"))
    code, said = export(
        server.url, *given, home / "spark", "--master", "local[2]", "--loss", "record"
    )
    assert code == 0, said
    [file] = (home / "spark").rglob("part-*.parquet")
    assert pq.read_table(file).column("seq").to_pylist() == list(range(41, 51))
