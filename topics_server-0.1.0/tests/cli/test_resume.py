"""`topics append` killed in the middle and started again, before a real server."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.flights import Server
from topics.client import TopicNotFound

LINES = 20_000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path / "server")
    server.home.mkdir()
    server.start()
    yield server
    server.end()


def count(server: Server) -> int:
    with server.client() as client:
        try:
            return client.topic("jobs").count
        except TopicNotFound:
            return 0


def test_an_import_that_is_killed_can_be_repeated(server: Server, tmp_path: Path) -> None:
    """After a SIGKILL the same command ends with every line in the topic, each of them once. (§0.8)"""
    file = tmp_path / "jobs.ndjson"
    file.write_text("".join(f"{n}\n" for n in range(LINES)))
    command = [sys.executable, "-m", "topics", "append", "jobs", str(file)]
    command += ["--batch", "10", "--url", server.url]

    first = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while count(server) < 1000:
        assert first.poll() is None
    first.kill()
    first.wait()
    interrupted_at = count(server)
    second = subprocess.run(command, capture_output=True, text=True, check=False)

    assert 1000 <= interrupted_at < LINES
    assert second.returncode == 0, second.stderr
    # One batch may still have been on its way when the first run was killed.
    told = {f", {n:,} of them by an earlier run" for n in (interrupted_at, interrupted_at + 10)}
    assert any(words in second.stderr for words in told)
    with server.client() as client:
        assert [item.data for item in client.read("jobs")] == list(range(LINES))  # type: ignore[union-attr]
