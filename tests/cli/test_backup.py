"""`topics backup`: of a running server, by the command line."""

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.flights import Server
from topics import Client, Record


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A running server with 500 records in one topic."""
    server = Server(tmp_path)
    server.start()
    with server.client() as client:
        client.append_many("jobs", range(500), batch_records=100)
    yield server
    server.end()


@pytest.fixture(params=["--data-dir", "--url"])
def source(request: pytest.FixtureRequest, server: Server) -> list[str]:
    """The server as it is named: by its directory, or by its URL from any machine."""
    return [request.param, str(server.data_dir) if request.param == "--data-dir" else server.url]


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
    server: Server, source: list[str], run: Any, tmp_path: Path
) -> None:
    """What was acknowledged before the command is in the directory that is made of it; the server
    notices nothing."""
    dest = tmp_path / "backups"
    first = run("backup", *source, dest)
    with server.client() as client:
        client.append_many("jobs", range(500, 600))
        client.delete("jobs", before_seq=11)
    second = run("backup", *source, dest)
    server.kill()

    assert first.exit_code == second.exit_code == 0, first.output + second.output
    assert first.stdout.startswith(f"backup 1 of {source[1]}: 500 records in 1 topic; ")
    assert run("backup", "--verify", dest).stdout == "2 backups: everything verifies\n"
    _, then = restored(run, dest, tmp_path / "then", "--backup", "1")
    done, now = restored(run, dest, tmp_path / "now")
    assert then == {"jobs": [*range(500)]}
    assert now == {"jobs": [*range(10, 600)]}
    assert f"backup 2 of {source[1]}, taken " in done.stdout
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


def test_killed_backups_leave_the_others_whole(
    server: Server, source: list[str], run: Any, tmp_path: Path
) -> None:
    """SIGKILL at any time: the next one succeeds, and everything verifies."""
    dest = tmp_path / "backups"
    run("backup", *source, dest)
    environ = {name: v for name, v in os.environ.items() if not name.startswith("TOPICS_")}
    command = [sys.executable, "-m", "topics", "backup", *source, dest]
    for size in (0, 1, 2):
        with server.client() as client:
            client.append_many("jobs", range(100))
        killed = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE)
        while killed.poll() is None and len(list(dest.iterdir())) <= 2 + size:
            time.sleep(0.001)  # it needs the core itself
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
        assert run("backup", "--verify", dest).exit_code == 0

    last = run("backup", *source, dest)

    assert last.exit_code == 0, last.output
    assert not list(dest.glob("*.tmp"))
    _, found = restored(run, dest, tmp_path / "now")
    assert len(found["jobs"]) == 800


def test_a_backup_by_url_shares_what_one_by_directory_has(
    server: Server, run: Any, tmp_path: Path
) -> None:
    """A segment is copied once, whichever way: both are backups of one history. (§11)"""
    dest = tmp_path / "backups"
    server.stop()
    server.start()  # the records of a stopped server are in segments
    with server.client() as client:
        client.append("jobs", 500)

    by_url = run("backup", "--url", server.url, dest, "--json")
    by_directory = backup(run, server, dest, "--json")

    first, second = json.loads(by_url.stdout), json.loads(by_directory.stdout)
    assert (first["records"], second["records"]) == (501, 501)
    assert first["instance"] == second["instance"]
    assert second["copied_bytes"] == 0


def test_a_server_that_goes_on_writing_is_backed_up(
    server: Server, run: Any, tmp_path: Path
) -> None:
    """Each backup has what was acknowledged before it began, and no gap. (§11)"""
    dest, stop, appended = tmp_path / "backups", threading.Event(), [500]

    def write() -> None:
        with server.client() as client:
            while not stop.is_set():
                appended[0] = client.append("jobs", *range(100)).last_seq

    writer = threading.Thread(target=write)
    writer.start()
    least = []
    try:
        for _ in range(3):
            least.append(appended[0])
            assert run("backup", "--url", server.url, dest).exit_code == 0
    finally:
        stop.set()
        writer.join()

    for number, known in enumerate(least, 1):
        _, found = restored(run, dest, tmp_path / str(number), "--backup", str(number))
        assert len(found["jobs"]) >= known


def test_a_server_with_keys_and_readers(run: Any, tmp_path: Path) -> None:
    """A key that may read everything and administer is needed; any process of the server answers. (§0.2)"""
    all_of_it, some = "a" * 32, "b" * 32
    settings = {
        "TOPICS_API_KEYS": f"{all_of_it}:read+write+admin,{some}:read+admin:jobs",
        "TOPICS_READERS": "1",
    }
    server = Server(tmp_path, settings=settings)
    server.start()
    try:
        with Client(server.url, api_key=all_of_it) as client:
            client.append_many("jobs", range(500))

        for _ in range(4):
            done = run("backup", "--url", server.url, "--api-key", all_of_it, tmp_path / "dest")
            assert done.exit_code == 0, done.output
            assert "500 records in 1 topic" in done.stdout
        refused = run("backup", "--url", server.url, "--api-key", some, tmp_path / "other")
        assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1), refused.output
        assert "403" in refused.stderr
        assert "401" in run("backup", "--url", server.url, tmp_path / "other").stderr
    finally:
        server.end()


class OtherProgram(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, *_: object) -> None:
        """Nothing on the terminal of the tests."""


def test_a_url_that_is_no_server(run: Any, tmp_path: Path) -> None:
    """Nothing listens there, or something else does: code 2 and one line."""
    with http.server.HTTPServer(("127.0.0.1", 0), OtherProgram) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        urls = [f"http://127.0.0.1:{other.server_port}", "http://127.0.0.1:1", "ftp://host"]
        refusals = [run("backup", "--url", url, tmp_path / "dest") for url in urls]
        other.shutdown()

    for done in refusals:
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.output


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
    """No data directory, a place that is none, a place within the data, two sources: code 2 and one line."""
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
        backup(run, server, tmp_path / "dest", "--url", server.url),
        run("restore", tmp_path / "absent", tmp_path / "new"),
        run("restore", server.data_dir, tmp_path / "new"),
    ]

    for done in refusals:
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.output
    assert not (server.data_dir / "backups").exists()
