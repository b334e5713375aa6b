"""What an export shows while it goes on."""

import io
import json
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress, TextColumn

from topics.arrow.loss import Gap
from topics.cli.export_progress import Telling, progress, summary
from topics.export.manifest import Commit, File
from topics.export.run import Result

COMMIT = Commit("t", "e", 1, 10, 8, 2, files=(File("t/1", 8, 1, 10, 5_000_000, ""),), corrupt=1)


def test_the_last_line() -> None:
    """Counts that add up."""
    result = Result()
    assert summary(result) == "nothing new to export"
    result.add(COMMIT)
    assert summary(result) == (
        "8 records of 10 seqs exported and verified (2 deleted, 0 lost, 1 do not fit the schema), "
        "1 file, 5.0 MB"
    )
    result.add(Commit("t", "e", 11, 20, 5, 2, filtered=3, rounded=1))
    assert summary(result) == (
        "13 records of 20 seqs exported and verified (4 deleted, 3 of other tags, 0 lost, "
        "1 do not fit the schema, 1 integer rounded), 1 file, 5.0 MB"
    )


def test_events_are_lines_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    """And nothing else is printed then."""
    with progress(as_json=True) as telling:
        telling.begin("t", 1, 10)
        telling.read("t", 5, 100)
        telling.lost(Gap("t", 1, 2, "cap"))
        telling.note("mended")
        telling.committed(COMMIT)
    printed = capsys.readouterr()
    assert printed.err == ""
    events = [json.loads(line) for line in printed.out.splitlines()]
    assert [event["event"] for event in events] == ["begin", "lost", "note", "commit"]
    assert events[1] == {"event": "lost", "topic": "t", "from": 1, "to": 2, "reason": "cap"}


def test_loss_is_told_where_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    """On standard error."""
    with progress(as_json=False) as telling:
        telling.lost(Gap("t", 1, 2, "cap"))
    assert 'topic "t" lost 2 seqs, 1..2, reason cap' in capsys.readouterr().err


def test_a_bar_for_a_person() -> None:
    """Over the seqs of a topic, which may come out of order; other lines go above it."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100)
    bar = Progress(
        TextColumn("{task.description} {task.completed} {task.fields[figures]}"), console=console
    )
    telling: Any = Telling(as_json=False, bar=bar)
    with bar:
        telling.begin("t", 11, 20)
        telling.read("t", 18, 1000)
        telling.read("t", 15, 1000)
        telling.lost(Gap("t", 11, 12, "cap"))
        telling.begin("u", 1, 2)
        assert [(task.description, task.completed) for task in bar.tasks] == [("u", 0)]
        telling.read("u", 2, 10)
        bar.refresh()
    assert "u 2" in out.getvalue()
    assert "lost 2 seqs" in out.getvalue()
