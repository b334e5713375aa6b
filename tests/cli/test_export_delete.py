"""`topics export --then-delete`, before a real server."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from export.exporting import seqs

from bench.flights import Server
from topics.arrow.readers import READERS, Position, publish
from topics.cli.exits import Stop
from topics.cli.export_delete import _ask
from topics.export.handoff import Bound
from topics.export.lake import OsLake
from topics.export.then_delete import Plan

from .exports import server, settled, where

__all__ = ["server"]

Run = Callable[..., Any]


@pytest.mark.parametrize("kind", ["url", "path"])
def test_the_hand_off(server: Server, run: Run, tmp_path: Path, kind: str) -> None:
    """What is exported, verified, read by the named reader and old enough is deleted, and no more."""
    lake = tmp_path / "l"
    command = ["export", "t", "--to", str(lake), *where(server, kind), "--then-delete"]
    with server.client() as client:
        young = run(*command, "--yes")
        assert (
            "t: nothing to delete (exported and verified: through 3,000, age: through 0)"
            in young.stdout
        )

        command += ["--min-age", "0ms", "--require-reader", "billing"]
        unknown = run(*command, "--yes")
        assert unknown.exit_code == 2
        assert 'reader "billing" has published no position for this topic' in unknown.stderr

        publish(client, "billing", {"t": Position(2000, client.topic("t").epoch or "")})
        settled(server, READERS, 1)
        asked = run(*command)
        assert asked.exit_code == 2
        assert "the records from seq 1 to 2,000 are to be deleted for every reader" in asked.stdout
        assert "asks on a terminal; give --yes" in asked.stderr
        dry = run(*command, "--dry-run")
        assert "from seq 1 to 2,000" in dry.stdout
        assert client.topic("t").earliest_seq == 1

        done = run(*command, "--yes")
        assert done.exit_code == 0
        assert "t: 2,000 records were deleted" in done.stdout
        assert client.topic("t").earliest_seq == 2001

        assert (
            run("export", "reconcile", lake, "--url", server.url).stdout
            == "t: 0 records were removed\n"
        )
    assert seqs(OsLake(lake)) == list(range(1, 3001))
    deep = run("export", "verify", lake, "--deep", "--url", server.url)
    assert (deep.exit_code, "2,000 handed off" in deep.stdout) == (0, True)


@pytest.mark.parametrize("kind", ["url", "path"])
def test_a_rehearsal_of_a_new_export(server: Server, run: Run, tmp_path: Path, kind: str) -> None:
    """It says what would be deleted after the export that would be made; nothing is made."""
    lake = tmp_path / "l"
    asked = ["export", "t", "--to", lake, *where(server, kind), "--then-delete", "--min-age", "0s"]

    dry = run(*asked, "--dry-run")

    assert (dry.exit_code, dry.stderr) == (0, "")
    assert "t: would export seqs 1 to 3,000" in dry.stdout
    assert "t: the records from seq 1 to 3,000 are to be deleted" in dry.stdout
    assert not lake.exists()

    run(*asked[:-3])
    with server.client() as client:
        client.append("t", 1)
        settled(server, "t", 3001)
    assert "the records from seq 1 to 3,001" in run(*asked, "--dry-run").stdout


def test_what_was_deleted_before_the_hand_off_is_not_kept(
    server: Server, run: Run, tmp_path: Path
) -> None:
    """Somebody's delete reaches the export before the rest is handed to it."""
    lake = tmp_path / "l"
    run("export", "t", "--to", lake, "--url", server.url)
    with server.client() as client:
        client.delete("t", before_seq=11)
    command = ["export", "t", "--to", lake, "--url", server.url, "--then-delete", "--min-age", "0s"]
    assert run(*command, "--yes").exit_code == 0
    assert seqs(OsLake(lake)) == list(range(11, 3001))


@pytest.mark.parametrize(("answer", "deletes"), [(True, True), (False, False)])
def test_a_person_is_asked(monkeypatch: pytest.MonkeyPatch, answer: bool, deletes: bool) -> None:
    """On a terminal; no is the answer that leaves all as it is."""
    plan = Plan("t", "e", 1, Bound(11, "age", {"age": 10}))
    asked: list[str] = []

    def confirm(text: str, **_: Any) -> bool:
        asked.append(text)
        return answer

    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("click.confirm", confirm)
    if deletes:
        _ask(plan)
    else:
        with pytest.raises(Stop, match="nothing was deleted"):
            _ask(plan)
    assert asked == ["Delete them in t?"]
