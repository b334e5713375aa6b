"""`topics backup`: of a running server, by the command line."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.flights import Server
from topics import Record


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A running server with 500 records in one topic."""
    server = Server(tmp_path)
    server.start()
    with server.client() as client:
        client.append_many("jobs", range(500), batch_records=100)
    yield server
    server.end()


def backup(run: Any, server: Server, dest: Path, *more: str) -> Any:
    return run("backup", "--data-dir", server.data_dir, dest, *more)


def restored(run: Any, dest: Path, home: Path, *more: str) -> tuple[Any, dict[str, list[Any]]]:
    """The result of `topics restore`, and what a server on the directory shows."""
    home.mkdir()
    done = run("restore", dest, home / "data", *more)
    assert done.exit_code == 0, done.output
    server = Server(home)
    server.start()
    try:
        with server.client() as client:
            found = {
                topic.topic: [r.data for r in client.read(topic.topic) if isinstance(r, Record)]
                for topic in client.topics()
            }
    finally:
        server.end()
    return done, found


def test_a_running_server_is_backed_up_and_restored(
    server: Server, run: Any, tmp_path: Path
) -> None:
    """What was acknowledged before the command is in the directory that is made of it; the server
    notices nothing."""
    dest = tmp_path / "backups"
    first = backup(run, server, dest)
    with server.client() as client:
        client.append_many("jobs", range(500, 600))
        client.delete("jobs", before_seq=11)
    second = backup(run, server, dest)
    server.kill()

    assert first.exit_code == second.exit_code == 0, first.output + second.output
    assert first.stdout.startswith(f"backup 1 of {server.data_dir}: 500 records in 1 topic; ")
    _, then = restored(run, dest, tmp_path / "then", "--backup", "1")
    done, now = restored(run, dest, tmp_path / "now")
    assert then == {"jobs": [*range(500)]}
    assert now == {"jobs": [*range(10, 600)]}
    assert f"backup 2 of {server.data_dir}, taken " in done.stdout
    assert done.stdout.endswith(": 590 records in 1 topic\n")


def test_a_cursor_of_the_other_history_is_told(server: Server, run: Any, tmp_path: Path) -> None:
    """A reader that sends the epoch of the lost history learns that this is another. (§3.3)"""
    with server.client() as client:
        epoch = client.topic("jobs").epoch
    backup(run, server, tmp_path / "backups")
    server.kill()
    home = tmp_path / "home"
    home.mkdir()
    run("restore", tmp_path / "backups", home / "data")
    again = Server(home)
    again.start()
    try:
        with again.client() as client:
            page = client.diff("jobs", from_seq=400, epoch=epoch)
            assert client.topic("jobs").epoch != epoch
    finally:
        again.end()

    assert page.tombstone is not None
    assert page.tombstone.reason == "recreated"


def test_killed_backups_leave_the_others_whole(server: Server, run: Any, tmp_path: Path) -> None:
    """SIGKILL at any time: the next one succeeds, and everything verifies."""
    dest = tmp_path / "backups"
    backup(run, server, dest)
    environ = {name: v for name, v in os.environ.items() if not name.startswith("TOPICS_")}
    command = [sys.executable, "-m", "topics", "backup", "--data-dir", server.data_dir, dest]
    for size in (0, 1, 2):
        with server.client() as client:
            client.append_many("jobs", range(100))
        killed = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE)
        while killed.poll() is None and len(list(dest.iterdir())) <= 2 + size:
            time.sleep(0.001)  # it needs the core itself
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
        assert run("backup", "--verify", dest).exit_code == 0

    last = backup(run, server, dest)

    assert last.exit_code == 0, last.output
    assert not list(dest.glob("*.tmp"))
    _, found = restored(run, dest, tmp_path / "now")
    assert len(found["jobs"]) == 800


def test_listing_and_keeping(server: Server, run: Any, tmp_path: Path) -> None:
    """Backups are listed with their time and size, and all but the newest can be removed."""
    dest = tmp_path / "backups"
    for _ in range(3):
        backup(run, server, dest)

    done = backup(run, server, dest, "--keep", "2")
    listed = run("backup", dest, "--list")
    rows = [
        json.loads(line)
        for line in run("backup", dest, "--list", "--json").stdout.split("\n")
        if line
    ]

    assert done.stdout.endswith("removed: backup 1, backup 2\n")
    assert [row["backup"] for row in rows] == [3, 4]
    assert {row["records"] for row in rows} == {500}
    assert rows[0]["taken"].endswith("Z")
    assert listed.stdout.split()[:2] == ["backup", "taken"]
    assert run("backup", "--verify", dest).stdout == "2 backups: everything verifies\n"


def test_damage_is_named(server: Server, run: Any, tmp_path: Path) -> None:
    """A flipped byte in a place ends with 3 and says where, for every command that reads it."""
    dest = tmp_path / "backups"
    backup(run, server, dest)
    [file] = dest.glob("*.backup")
    raw = bytearray(file.read_bytes())
    raw[5000] ^= 1
    file.write_bytes(raw)

    for done in (
        run("backup", "--verify", dest),
        run("restore", dest, tmp_path / "new"),
    ):
        assert done.exit_code == 3, done.output
        assert str(file) in done.stderr
    assert not (tmp_path / "new" / "topics.id").exists()


def test_what_cannot_be_used(server: Server, run: Any, tmp_path: Path) -> None:
    """No data directory, a place that is none, a place within the data: code 2 and one line."""
    full = tmp_path / "full"
    full.mkdir()
    (full / "notes.txt").write_text("mine")
    refusals = [
        run("backup", "--data-dir", tmp_path / "absent", tmp_path / "dest"),
        run("backup", "--data-dir", full, tmp_path / "dest"),
        backup(run, server, full),
        backup(run, server, server.data_dir),
        backup(run, server, server.data_dir / "backups"),
        run("backup", "--list", tmp_path / "absent"),
        run("backup", "--list", "--verify", tmp_path),
        run("backup", "--list", "--keep", "3", tmp_path),
        run("restore", tmp_path / "absent", tmp_path / "new"),
        run("restore", server.data_dir, tmp_path / "new"),
    ]

    for done in refusals:
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.output
    assert not (server.data_dir / "backups").exists()
