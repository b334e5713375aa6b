"""`topics spark`: the doctor's exit code, and the offsets of a checkpoint."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from topics.cli import main


def run(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(main, ["spark", *arguments])
    return done.exit_code, done.stdout, done.stderr


def test_the_doctor_says_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line each; 2 where a session could not start."""
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    code, told, _ = run("doctor")
    assert code == 2
    assert told.splitlines()[0].startswith("no  /nowhere/bin/java (JAVA_HOME) does not run")
    assert [line[:2] for line in told.splitlines()[1:]] == ["ok"] * 5
    code, told, _ = run("doctor", "--json")
    assert code == 2
    assert [json.loads(line)["ok"] for line in told.splitlines()] == [False] + [True] * 5


def checkpoint(folder: Path, *, lines: list[str]) -> Path:
    for kind in ("offsets", "commits"):
        (folder / kind).mkdir()
    for batch in ("8", "9", "10"):
        (folder / "offsets" / batch).write_text("\n".join(lines))
        if batch != "10":
            (folder / "commits" / batch).write_text("v1\n{}")
    return folder


def test_how_far_a_stream_came(tmp_path: Path) -> None:
    """Its last batch that was committed, for a person and as `startingOffsets`."""
    offset = {"v": 1, "asof": 5, "parts": 2, "topics": {"orders": {"seq": 40, "id": "e-1"}}}
    home = checkpoint(tmp_path, lines=["v1", '{"conf":{}}', json.dumps(offset), "-", '{"rate":1}'])

    assert run("offsets", str(home)) == (0, "batch 9\norders  through seq 40  epoch e-1\n", "")
    assert run("offsets", str(home), "--json") == (0, '{"orders": 41}\n', "")


def test_how_far_a_stream_of_several_partitions_came(tmp_path: Path) -> None:
    """A line for each, and JSON in Kafka's form, which names them. (§2.1)"""
    ends = {"orders": 40, "orders#10": 2, "orders#2": 5, "words": 7}
    topics = {name: {"seq": seq, "id": "e"} for name, seq in ends.items()}
    offset = json.dumps({"v": 1, "asof": 5, "parts": 2, "topics": topics})
    home = checkpoint(tmp_path, lines=["v1", '{"conf":{}}', offset])

    assert run("offsets", str(home))[1].splitlines() == [
        "batch 9",
        "orders  through seq 40  epoch e",
        "orders, partition 2  through seq 5  epoch e",
        "orders, partition 10  through seq 2  epoch e",
        "words  through seq 7  epoch e",
    ]
    starting = {"orders": {"0": 41, "10": 3, "2": 6}, "words": 8}
    assert json.loads(run("offsets", str(home), "--json")[1]) == starting


def test_no_stream_of_ours(tmp_path: Path) -> None:
    """A folder without a commit log, and a stream of another source."""
    code, _, said = run("offsets", str(tmp_path))
    assert (code, "no batch of a stream has been committed" in said) == (2, True)
    home = checkpoint(tmp_path, lines=["v1", "{}", '{"orders":{"0":4}}'])
    code, _, said = run("offsets", str(home))
    assert (code, "batch 9 has no offsets of the format topics" in said) == (2, True)
