"""`topics export`: runs, their options, and how they end."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from export.exporting import rows, seqs
from interrupts import heard
from protocol.durable import Durable

from bench.flights import Server
from topics.export.lake import OsLake
from topics.export.planning import MANIFEST

from .exports import engine, place, server, where

__all__ = ["engine", "place", "server"]

Run = Callable[..., Any]
Place = tuple[str, ...]


def lines(result: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_run_and_the_next(run: Run, place: Place, engine: Durable, tmp_path: Path) -> None:
    """The last line counts what is in the files now; the next run goes on from there."""
    lake = tmp_path / "lake"
    first = run("export", "t", "--to", lake, *place)
    assert (first.exit_code, first.stderr) == (0, "")
    assert first.stdout.startswith(
        "12 records of 12 seqs exported and verified (0 deleted, 0 lost), 1 file"
    )

    assert run("export", "t", "--to", lake, *place).stdout == "nothing new to export\n"
    engine.append({"data": 12})
    engine.store.idle()
    assert run("export", "--to", lake, *place, "t").stdout.startswith("1 record of 1 seq exported")
    assert seqs(OsLake(lake)) == list(range(1, 14))


def test_the_word_run_may_be_given(run: Run, place: Place, engine: Durable, tmp_path: Path) -> None:
    """So that a topic may be called as one of the commands."""
    engine.append({"data": 1}, name="status")
    engine.store.idle()
    lake = tmp_path / "lake"
    assert run("export", "run", "status", "--to", lake, *place).exit_code == 0
    assert "status" in run("export", "status", lake).stdout


def test_help_has_both(run: Run) -> None:
    """The options of a run, and the commands."""
    shown = run("export", "--help").stdout
    assert "--then-delete" in shown
    assert "reconcile" in shown
    assert run("export", "verify", "--help").exit_code == 0
    assert run("export").exit_code in (0, 2)


def test_what_happens_as_json(run: Run, place: Place, tmp_path: Path) -> None:
    """A line for each commit, and one at the end."""
    told = lines(run("export", "t", "--to", tmp_path / "lake", *place, "--json"))
    assert [line["event"] for line in told] == ["begin", "commit", "done"]
    assert (told[1]["from"], told[1]["to"], told[1]["rows"]) == (1, 12, 12)
    assert told[2] | {"rows": 12, "lost": 0, "verified": True, "interrupted": False} == told[2]


def test_a_dry_run_changes_nothing(run: Run, place: Place, tmp_path: Path) -> None:
    """It says which seqs would be next."""
    lake = tmp_path / "lake"
    told = run("export", "t", "--to", lake, *place, "--dry-run", "--until-seq", "5")
    assert told.stdout == "t: would export seqs 1 to 4\n"
    assert not lake.exists()
    run("export", "t", "--to", lake, *place)
    assert run("export", "t", "--to", lake, *place, "--dry-run").stdout == "t: nothing to export\n"
    (said,) = lines(run("export", "t", "--to", lake, *place, "--dry-run", "--json"))
    assert said["seqs"] == 0


def test_an_export_keeps_its_settings(
    run: Run, place: Place, engine: Durable, tmp_path: Path
) -> None:
    """Later runs need not repeat them, and may not change them."""
    lake = tmp_path / "lake"
    given = ("--format", "jsonl", "--by", "tag", "--tag-prefix", "a")
    assert run("export", "t", "--to", lake, *place, *given).exit_code == 0
    engine.append({"data": 1, "tag": "a"}, {"data": 1, "tag": "b"})
    engine.store.idle()
    assert run("export", "t", "--to", lake, *place).stdout.startswith("1 record of 2 seqs")

    other = run("export", "t", "--to", lake, *place, "--by", "date")
    assert other.exit_code == 2
    assert "another --by: tag, not date; give the same, or another directory" in other.stderr

    text = tmp_path / "text"
    assert run("export", "t", "--to", text, *place).exit_code == 0
    other = run("export", "t", "--to", text, *place, "--data-schema", "variant")
    assert other.exit_code == 2
    assert "another --data-schema; give the same" in other.stderr


@pytest.fixture
def lossy(engine: Durable) -> None:
    engine.put(cap_records=5)
    engine.append({"data": "more"})
    engine.store.idle()


@pytest.mark.parametrize(("loss", "code"), [("fail", 4), ("warn", 4), ("record", 0)])
def test_loss_ends_as_it_was_asked(
    run: Run, place: Place, lossy: None, tmp_path: Path, loss: str, code: int
) -> None:
    """Stop before committing; go on and say so; go on. The gap is in the manifest. (§3.3)"""
    lake = tmp_path / "lake"
    ended = run("export", "t", "--to", lake, *place, "--loss", loss)
    assert ended.exit_code == code
    assert 'topic "t" lost 8 seqs, 1..8, reason cap' in ended.stderr
    if loss == "fail":
        assert "--from-seq earliest-retained" in ended.stderr
        assert ended.stderr.count("\n") == 1
        assert seqs(OsLake(lake)) == []
    else:
        assert seqs(OsLake(lake)) == [9, 10, 11, 12, 13]
        status = json.loads(run("export", "status", lake, "--json").stdout)
        assert status["topics"][0]["gaps"] == [[1, 8, "cap"]]


def test_what_is_there_may_be_enough(run: Run, place: Place, lossy: None, tmp_path: Path) -> None:
    """`earliest-retained` asks for no more."""
    ended = run("export", "t", "--to", tmp_path / "l", *place, "--from-seq", "earliest-retained")
    assert ended.exit_code == 0


def test_members_become_columns(run: Run, place: Place, engine: Durable, tmp_path: Path) -> None:
    """Of a sample, or of a file; what does not fit keeps its text."""
    engine.append({"data": {"n": "x"}})
    engine.append({"data": 5})
    engine.store.idle()
    (tmp_path / "schema.json").write_text('{"n": "int64"}')
    run("export", "t", "--to", tmp_path / "i", *place, "--data-schema", "infer")
    assert rows(OsLake(tmp_path / "i"))[0]["data"] == {"n": "0"}
    assert (
        rows(OsLake(tmp_path / "i"))[-1] | {"data": None, "_corrupt": "5"}
        == rows(OsLake(tmp_path / "i"))[-1]
    )

    told = run(
        "export", "t", "--to", tmp_path / "f", *place, "--data-schema", tmp_path / "schema.json"
    )
    assert "2 do not fit the schema" in told.stdout
    (tmp_path / "double.json").write_text('{"n": "double"}')
    engine.append({"data": {"n": 9007199254740993}})
    engine.store.idle()
    told = run(
        "export", "t", "--to", tmp_path / "d", *place, "--data-schema", tmp_path / "double.json"
    )
    assert "2 do not fit the schema, 1 integer rounded" in told.stdout
    (state,) = json.loads(run("export", "status", tmp_path / "d", "--json").stdout)["topics"]
    assert (state["corrupt"], state["rounded"], state["filtered"]) == (2, 1, 0)
    found = rows(OsLake(tmp_path / "f"))
    assert (found[0]["data"], found[-2]["data"], found[-2]["_corrupt"]) == (
        {"n": 0},
        None,
        '{"n":"x"}',
    )
    assert (
        run("export", "t", "--to", tmp_path / "i", *place, "--data-schema", "infer").exit_code == 0
    )


WRONG: list[tuple[tuple[str, ...], str]] = [
    (("t", "t"), "a topic is named twice"),
    (("none",), 'topic "none" does not exist'),
    (("t", "--from-seq", "0"), "'0' is neither a seq from 1 on nor earliest"),
    (("t", "--until-seq", "x"), "'x' is neither a seq from 1 on nor head"),
    (("t", "--target-file-size", "big"), "'big' is no size such as 256MB"),
    (("--follow", "t"), "'t' is no duration such as 10s; write --follow last"),
    (("t", "--then-delete", "--follow=1s"), "exclude each other"),
    (("t", "--data-schema", "variant", "--engine", "direct"), "needs --engine spark: pyarrow"),
    (("t", "--data-schema", "variant", "--format", "delta"), "for parquet, and not for delta"),
    (("t", "--data-schema", "/nowhere.json"), "/nowhere.json: No such file"),
    (("t", "--format", "jsonl", "--data-schema", "infer"), "lines of JSON have none"),
    (("t", "--format", "jsonl", "--compression", "snappy"), "snappy is not for jsonl"),
    (("t", "--format", "jsonl", "--compression", "lz4"), "lz4 is not for jsonl"),
    (("t", "--format", "delta", "--master", "local"), "--master is for --engine spark"),
    (("t", "--engine", "direct", "--master", "local"), "--master is for --engine spark"),
    (("t", "--format", "iceberg", "--engine", "spark"), "spark writes parquet and jsonl"),
    (("t", "--min-age", "1d"), "--min-age is for --then-delete"),
    (("t", "--require-reader", "r"), "--require-reader is for --then-delete"),
    (("t", "--yes"), "--yes is for --then-delete"),
]


@pytest.mark.parametrize("compression", ["zstd", "snappy", "lz4", "gzip", "none"])
@pytest.mark.parametrize("format", ["parquet", "delta", "iceberg", "jsonl"])
def test_every_format_is_compressed_as_it_was_asked(
    run: Run, place: Place, tmp_path: Path, format: str, compression: str
) -> None:
    """And what a format has not is refused."""
    lake = tmp_path / "lake"
    given = ("--format", format, "--compression", compression)
    done = run("export", "t", "--to", lake, *place, *given)
    if format == "jsonl":
        ends = {"zstd": ".jsonl.zst", "gzip": ".jsonl.gz", "none": ".jsonl"}
        assert (done.exit_code == 0) == (compression in ends)
        assert all(path.name.endswith(ends[compression]) for path in (lake / "t").glob("part-*"))
        return
    assert done.exit_code == 0, done.stderr
    (file,) = (lake / "t").rglob("*.parquet")
    found = pyarrow.parquet.read_metadata(file).row_group(0).column(0).compression
    assert found.lower().startswith(compression.replace("none", "uncompressed"))


@pytest.mark.parametrize(("given", "words"), WRONG, ids=str)
def test_a_mistake_is_one_line(
    run: Run, place: Place, tmp_path: Path, given: tuple[str, ...], words: str
) -> None:
    """With what to do, and nothing is written."""
    ended = run("export", *given, "--to", tmp_path / "l", *place)
    assert ended.exit_code == 2
    assert words in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "l").exists() or not seqs(OsLake(tmp_path / "l"))


def test_places_that_are_not_right(run: Run, place: Place, tmp_path: Path) -> None:
    """A server that is down, no data directory, a foreign directory, an ephemeral topic."""
    down = run(
        "export", "t", "--to", tmp_path / "l", "--url", "http://127.0.0.1:9", "--retry-for", "0"
    )
    assert down.exit_code == 2
    assert down.stderr.count("\n") == 1
    assert "127.0.0.1:9" in down.stderr

    none = run("export", "t", "--to", tmp_path / "l", "--path", tmp_path / "nowhere")
    assert (none.exit_code, none.stderr.count("\n")) == (2, 1)

    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "x.csv").write_text("")
    foreign = run("export", "t", "--to", tmp_path / "mine", *place)
    assert foreign.exit_code == 2
    assert "not empty and no export is in it" in foreign.stderr

    (tmp_path / "file").write_text("")
    file = run("export", "t", "--to", tmp_path / "file", *place)
    assert (file.exit_code, file.stderr.count("\n")) == (2, 1)


def test_two_exports_of_one_directory(run: Run, place: Place, tmp_path: Path) -> None:
    """The second is told to wait."""
    from topics.export.manifest import Settings
    from topics.export.target import open_target

    with open_target(OsLake(tmp_path / "l"), Settings("parquet", "none")):
        ended = run("export", "t", "--to", tmp_path / "l", *place)
    assert ended.exit_code == 2
    assert "another export is writing it; wait for it, or stop it" in ended.stderr


def test_a_damaged_manifest(run: Run, place: Place, tmp_path: Path) -> None:
    """Ends with 3 and names the line."""
    lake = tmp_path / "l"
    run("export", "t", "--to", lake, *place)
    data = bytearray((lake / MANIFEST).read_bytes())
    data[20] ^= 1
    (lake / MANIFEST).write_bytes(data)
    ended = run("export", "t", "--to", lake, *place)
    assert ended.exit_code == 3
    assert "manifest.jsonl: line 1, byte 0, does not verify" in ended.stderr


@pytest.mark.parametrize("kind", ["url", "path"])
def test_it_follows_a_topic(server: Server, tmp_path: Path, kind: str) -> None:
    """What is appended is exported, until an interrupt ends it after what it is at."""
    lake = tmp_path / "l"
    command = [sys.executable, "-m", "topics", "export", "t", "--to", str(lake)]
    command += [*where(server, kind), "--json", "--follow=10ms"]
    with (
        heard(),
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as follower,
        server.client() as client,
    ):
        assert follower.stdout is not None
        exported = 0
        for line in follower.stdout:
            said = json.loads(line)
            if said["event"] == "commit":
                exported += said["rows"]
                if exported in (3000, 3001):
                    client.append("t", {"more": exported})
            if exported == 3002:
                break
        os.kill(follower.pid, signal.SIGINT)
        rest = follower.stdout.read().splitlines()
    assert follower.returncode == 130
    assert json.loads(rest[-1])["event"] == "done"
    assert json.loads(rest[-1])["rows"] == 3002
    assert seqs(OsLake(lake)) == list(range(1, 3003))
