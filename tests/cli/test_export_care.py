"""`topics export status | verify | compact | reconcile | repair`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from export.exporting import seqs
from protocol.durable import Durable

from topics.export.lake import OsLake

from .exports import engine, place

__all__ = ["engine", "place"]

Run = Callable[..., Any]
Place = tuple[str, ...]


@pytest.fixture
def lake(run: Run, place: Place, engine: Durable, tmp_path: Path) -> Path:
    """An export of three commits."""
    lake = tmp_path / "lake"
    for until in ("5", "9", "head"):
        assert run("export", "t", "--to", lake, *place, "--until-seq", until).exit_code == 0
    return lake


def data_files(lake: Path) -> list[Path]:
    return sorted((lake / "t").glob("**/*.parquet"))


def test_the_state_of_an_export(run: Run, place: Place, engine: Durable, lake: Path) -> None:
    """As a table and as JSON; with a place, how far it is behind."""
    engine.append({"data": 1})
    engine.store.idle()
    shown = run("export", "status", lake).stdout.splitlines()
    assert shown[0].endswith("lake: parquet")
    assert shown[2].split()[:4] == ["t", "1", "12", "12"]

    (topic,) = json.loads(run("export", "status", lake, "--json", *place).stdout)["topics"]
    assert (topic["rows"], topic["files"], topic["lag"]) == (12, 3, 1)


def test_files_of_others_are_told(run: Run, lake: Path) -> None:
    """They are no fault of the export, and a reader of the directory may take them for records."""
    (lake / "t" / "_SUCCESS").write_text("")
    (lake / "notes.txt").write_text("x")

    done = run("export", "verify", lake)
    assert done.exit_code == 0
    assert done.stderr.splitlines() == [
        f"topics: {lake}/notes.txt: it is not the export's",
        f"topics: {lake}/t/_SUCCESS: it is not the export's",
    ]
    found = json.loads(run("export", "verify", lake, "--json").stdout)
    assert (found["ok"], found["strangers"]) == (True, ["notes.txt", "t/_SUCCESS"])

    for n in range(20):
        (lake / f"x{n:02}").write_text("x")
    assert run("export", "verify", lake).stderr.endswith("12 more are not the export's\n")


def test_files_are_merged(run: Run, lake: Path) -> None:
    """And there is nothing to merge afterwards."""
    assert run("export", "compact", lake).stdout == "3 files became 1\n"
    assert run("export", "compact", lake).stdout == "nothing to merge\n"
    assert len(data_files(lake)) == 1
    assert seqs(OsLake(lake)) == list(range(1, 13))
    assert run("export", "verify", lake).stdout == "1 file, 12 records: all verify\n"


def test_damage_is_named_and_repaired(run: Run, place: Place, lake: Path) -> None:
    """With the exit code of corruption until then."""
    broken, missing = data_files(lake)[:2]
    broken.write_bytes(broken.read_bytes()[:-1])
    missing.unlink()

    found = run("export", "verify", lake)
    assert found.exit_code == 3
    assert "3 files, 12 records: 2 problems" in found.stdout
    assert f"{missing}: it is missing" in found.stderr
    told = json.loads(run("export", "verify", lake, "--json").stdout)
    assert (told["ok"], len(told["problems"])) == (False, 2)
    assert run("export", "compact", lake).exit_code == 3

    assert run("export", "repair", lake, *place).stdout == "2 files made again with 8 records\n"
    assert run("export", "repair", lake, *place).stdout == "nothing to repair\n"
    assert run("export", "verify", lake, "--deep", *place).exit_code == 0


def test_what_cannot_be_repaired(run: Run, place: Place, engine: Durable, lake: Path) -> None:
    """Ends with 3 and says why."""
    data_files(lake)[0].unlink()
    engine.put(cap_records=3)
    engine.append({"data": 1})
    engine.store.idle()
    ended = run("export", "repair", lake, *place)
    assert ended.exit_code == 3
    assert 'it is missing; topic "t" lost 4 seqs, 1..4, reason cap' in ended.stderr


def test_deletes_are_carried_out(run: Run, place: Place, engine: Durable, lake: Path) -> None:
    """Deep verification tells of them, and reconciling does them."""
    engine.delete(match=["tag", "Eq", "b"])
    engine.store.idle()
    told = run("export", "verify", lake, "--deep", *place)
    assert told.exit_code == 0
    assert "t: seqs 1 to 12 are 12 records + 0 deleted + 0 lost" in told.stdout
    assert "8 records are the topic's, byte for byte; 4 deleted there since" in told.stdout
    deep = json.loads(run("export", "verify", lake, "--deep", "--json", *place).stdout)
    assert deep["topics"][0]["deleted_since"] == 4

    assert run("export", "reconcile", lake, *place).stdout == "t: 4 records were removed\n"
    assert seqs(OsLake(lake)) == [1, 3, 4, 6, 7, 9, 10, 12]
    none = run("export", "reconcile", lake, "u", *place)
    assert (none.exit_code, 'there is no topic "u" in it' in none.stderr) == (2, True)


@pytest.mark.parametrize("command", ["status", "verify", "compact", "reconcile", "repair"])
def test_a_directory_without_an_export(run: Run, tmp_path: Path, command: str) -> None:
    """Is refused, and nothing is made there."""
    ended = run("export", command, tmp_path / "nothing")
    assert ended.exit_code == 2
    assert "there is no export in it" in ended.stderr
    assert not (tmp_path / "nothing").exists()
