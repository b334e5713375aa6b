"""Where the commands print to, and read from: full disks, closed descriptors, readers that leave."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench.flights import Server
from topics import RawRecord
from topics.cli import read as read_module

FULL = "No space left on device"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a topic, a queue and a router."""
    server = Server(tmp_path_factory.mktemp("output") / "server")
    server.home.mkdir()
    server.start()
    with server.client() as client:
        client.append("jobs", 1, 2, 3)
        client.put_topic("work", type="queue")
        client.put_router("jobs-audit", "jobs", "audit")
    yield server
    server.end()


def shell(server: Server, words: str, redirect: str) -> tuple[int, str, str]:
    """`topics WORDS REDIRECT` of a shell: its code, what it printed and what it told."""
    line = f'set -o pipefail; "{sys.executable}" -m topics {words} {redirect}'
    done = subprocess.run(
        ["bash", "-c", line],
        env={"TOPICS_URL": server.url, "PATH": "/usr/bin:/bin"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "words",
    ["watch jobs", "topics", "topics --json", "routers", "routers --graph", "settings", "--help"],
)
def test_a_full_disk_is_one_line(server: Server, words: str) -> None:
    """What cannot be printed is told, with the code of what the machine is to blame for."""
    assert shell(server, words, "> /dev/full") == (2, "", f"topics: {FULL}\n")


def test_a_full_disk_and_a_read(server: Server) -> None:
    """A read also says how far it came: here, nowhere."""
    told = f"topics: {FULL}; nothing was printed\n"

    assert shell(server, "read jobs", "> /dev/full") == (2, "", told)


class Disk:
    """Takes so many bytes, a few at a time, and is full then."""

    def __init__(self, size: int) -> None:
        self.size, self.text = size, b""

    def write(self, piece: bytes) -> int:
        if len(self.text) == self.size:
            raise OSError(28, FULL)
        taken = bytes(piece[: min(7, self.size - len(self.text))])
        self.text += taken
        return len(taken)


@pytest.mark.parametrize(
    ("size", "last_seq"), [(0, 10), (5, 10), (6, 11), (17, 12), (18, 13), (99, 14)]
)
@pytest.mark.parametrize("waits", [False, True])
def test_a_disk_that_fills_up(
    monkeypatch: pytest.MonkeyPatch, size: int, last_seq: int, waits: bool
) -> None:
    """`--from` goes on after the last line that was written to its end: none is left out, and only
    the torn one comes again."""
    disk = Disk(size)
    monkeypatch.setattr(read_module, "output", lambda: disk)
    printer = read_module.Printer("jobs", 10, only_data=True, waits=waits)

    try:
        for seq in (11, 12, 13, 14):
            printer.print(RawRecord(seq=seq, ts_ms=1, data=msgspec.Raw(b'"abc"')))
        printer.flush()
    except OSError:
        assert size < 24

    assert disk.text == (b'"abc"\n' * 4)[:size]
    assert (printer.last_seq, printer.records) == (last_seq, last_seq - 10)


@pytest.mark.parametrize("words", ["read jobs", "watch jobs", "topics", "topics --json", "routers"])
def test_a_closed_output(server: Server, words: str) -> None:
    """A command that is there to print says that it cannot."""
    assert shell(server, words, ">&-") == (2, "", "topics: standard output is closed\n")


def test_closed_descriptors_that_a_command_does_without(server: Server) -> None:
    """An append needs its input; what it would have told is not why it was called."""
    told = "topics: standard input is closed\n"
    assert shell(server, "append closed -", "<&-") == (2, "", told)

    assert shell(server, "append closed -", "<<< 1 >&-")[0] == 0
    assert shell(server, "append closed -", "<<< 2 2>&-") == (0, "", "")
    assert shell(server, "read missing", "2>&-") == (1, "", "")
    assert shell(server, "read missing", "2> /dev/full") == (1, "", "")
    lines = shell(server, "read closed", "2>&-")[1].splitlines()
    assert [json.loads(line)["data"] for line in lines] == [1, 2]


@pytest.mark.parametrize(
    "words",
    ["topics", "topics --json", "routers", "routers --graph", "read jobs", "--help", "read --help"],
)
def test_a_reader_that_leaves_early(server: Server, words: str) -> None:
    """`| head -0` has had enough before the first line, and that is no failure."""
    assert shell(server, words, "| head -0") == (0, "", "")


def test_an_inspect_whose_reader_leaves(run: Any, tmp_path: Path, server: Server) -> None:
    """The same for a command that draws its tables without a server."""
    home = Server(tmp_path / "home")
    home.home.mkdir()
    home.start()
    home.end()

    assert shell(server, f"inspect {home.home / 'data'}", "| head -0") == (0, "", "")
