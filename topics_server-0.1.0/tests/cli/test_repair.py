"""`topics inspect --repair` and `--quarantine`: shown first, done on `--yes`."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.flights import Server
from topics import Record, Tombstone

from .test_inspect import digests, flip


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a stopped server with 500 records of 100 bytes in one topic, to be copied."""
    server = Server(tmp_path_factory.mktemp("stopped"))
    server.start()
    try:
        with server.client() as client:
            client.append_many("jobs", ["x" * 100] * 500, batch_records=100)
        server.stop()
    finally:
        server.end()
    return server.data_dir


@pytest.fixture
def server(tmp_path: Path, stopped: Path) -> Iterator[Server]:
    """A stopped server over a copy of that."""
    server = Server(tmp_path)
    shutil.copytree(stopped, server.data_dir)
    yield server
    server.end()


def test_nothing_to_repair(server: Server, run: Any) -> None:
    """A directory that verifies is left alone."""
    before = digests(server.data_dir)

    for how in ("--repair", "--quarantine"):
        done = run("inspect", server.data_dir, how, "--yes")
        assert (done.exit_code, done.stdout) == (0, "nothing to repair\n")
    assert digests(server.data_dir) == before


def test_what_is_lost_is_shown_before_it_is_given_up(server: Server, run: Any) -> None:
    """Without `--yes` nothing changes; with it readers are told of the gap, and a copy is kept."""
    (segment,) = server.data_dir.glob("*.seg")
    flip(segment)
    damaged, before = segment.read_bytes(), digests(server.data_dir)

    mend = run("inspect", server.data_dir, "--repair")
    shown = run("inspect", server.data_dir, "--quarantine")
    unchanged = digests(server.data_dir)
    done = run("inspect", server.data_dir, "--quarantine", "--yes")

    assert mend.exit_code == shown.exit_code == 3
    assert "needs --quarantine" in mend.stdout
    assert "records 1 to " in shown.stdout
    assert shown.stdout.endswith("nothing was changed; --yes does it\n")
    assert unchanged == before
    assert done.exit_code == 0, done.output
    assert done.stdout.endswith(f"kept as {segment.name}.quarantine\ndone; everything verifies\n")
    assert (server.data_dir / f"{segment.name}.quarantine").read_bytes() == damaged
    server.start()
    with server.client() as client:
        found = list(client.read("jobs"))
    gaps = [each for each in found if isinstance(each, Tombstone)]
    records = [each for each in found if isinstance(each, Record)]
    assert [gap.reason for gap in gaps] == ["crash"]
    assert len(records) + gaps[0].gap_to - gaps[0].gap_from + 1 == 500
    assert 0 < len(records) < 500


def test_what_a_crash_left_is_removed(server: Server, run: Any) -> None:
    """Torn ends and unfinished files, which nothing reads."""
    for name in ("0000000001.wal.1.torn", "0000000044.seg.tmp"):
        (server.data_dir / name).write_bytes(b"left")

    shown = run("inspect", server.data_dir, "--repair")
    done = run("inspect", server.data_dir, "--repair", "--yes")

    assert shown.exit_code == done.exit_code == 0, done.output
    assert (
        "0000000001.wal.1.torn: the torn end of a log, which nothing reads: removed" in shown.stdout
    )
    assert not list(server.data_dir.glob("*.torn"))
    assert not list(server.data_dir.glob("*.tmp"))


def test_a_running_server_is_not_repaired(server: Server, run: Any) -> None:
    """Nor are options that do not go together."""
    server.start()
    busy = run("inspect", server.data_dir, "--quarantine", "--yes")
    server.stop()

    assert busy.exit_code == 2
    assert "in use by a running server" in busy.stderr
    for words in (["--yes"], ["--repair", "--json"]):
        assert run("inspect", server.data_dir, *words).exit_code == 2


def test_no_checkpoint_verifies(server: Server, run: Any) -> None:
    """Then only a backup helps, and that is said."""
    for file in server.data_dir.glob("*.ckpt"):
        raw = bytearray(file.read_bytes())
        raw[-1] ^= 1
        file.write_bytes(raw)

    done = run("inspect", server.data_dir, "--quarantine", "--yes")

    assert done.exit_code == 2
    assert "only a backup helps" in done.stderr
