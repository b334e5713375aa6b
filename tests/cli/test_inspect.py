"""`topics inspect`: what a data directory holds, and whether it verifies."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.flights import Server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A running server with 500 records of 100 bytes in one topic."""
    server = Server(tmp_path)
    server.start()
    with server.client() as client:
        client.append_many("jobs", ["x" * 100] * 500, batch_records=100)
    yield server
    server.end()


def digests(data_dir: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in data_dir.iterdir()}


def flip(path: Path) -> None:
    """Damage one payload byte of a segment."""
    raw = bytearray(path.read_bytes())
    at = raw.index(b"x" * 100)
    raw[at] ^= 1
    path.write_bytes(raw)


def test_a_clean_stop(server: Server, run: Any) -> None:
    """A directory that was stopped cleanly verifies, and inspecting it changes nothing."""
    server.stop()
    before = digests(server.data_dir)

    done = run("inspect", server.data_dir)

    assert done.exit_code == 0, done.output
    assert "format 2, instance " in done.stdout
    assert "stopped cleanly" in done.stdout
    assert "0000000001.seg" in done.stdout
    assert done.stdout.endswith("\nEverything verifies.\n")
    assert digests(server.data_dir) == before


def test_after_a_kill(server: Server, run: Any) -> None:
    """What a crash leaves is told and is no damage."""
    server.kill()

    done = run("inspect", server.data_dir)

    assert done.exit_code == 0, done.output
    assert "not stopped cleanly" in done.stdout


def test_floors_and_holes_are_shown(server: Server, run: Any) -> None:
    """What was lost, by cause, can be read without a server."""
    with server.client() as client:
        client.put_topic("capped", cap_records=10)
        client.append_many("capped", range(30))
    server.stop()

    done = run("inspect", server.data_dir)
    seen = json.loads(run("inspect", "--json", server.data_dir).stdout)

    assert "evict floor" in done.stdout
    capped = next(topic for topic in seen["topics"] if topic["topic"] == "capped")
    assert (capped["head_seq"], capped["evict_floor"], capped["count"]) == (30, 21, 10)
    assert (capped["cap_through"], capped["ttl_through"], capped["crash_through"]) == (20, 0, 0)


def test_damage_is_named(server: Server, run: Any) -> None:
    """A flipped byte ends with 3 and says in which file and where."""
    server.stop()
    (segment,) = server.data_dir.glob("*.seg")
    flip(segment)

    done = run("inspect", server.data_dir)

    assert done.exit_code == 3, done.output
    assert done.stdout.endswith("\n1 problem\n")
    assert done.stderr.startswith(f"topics: {segment}: byte ")
    assert done.stderr.count("\n") == 1


def stopped_twice(server: Server) -> list[Path]:
    """The logs of a directory with two checkpoints, oldest first."""
    server.stop()
    server.start()
    with server.client() as client:
        client.append("jobs", "y" * 100)
    server.stop()
    assert len(list(server.data_dir.glob("*.ckpt"))) == 2
    return sorted(server.data_dir.glob("0*.wal"))


@pytest.mark.parametrize("at", [0, 8, 16, 40, 87])
def test_the_header_of_the_oldest_log_is_checked(server: Server, run: Any, at: int) -> None:
    """A start needs it only where the newest checkpoint is damaged, and then it is too late."""
    oldest, *_ = stopped_twice(server)
    raw = bytearray(oldest.read_bytes())
    raw[at] ^= 1
    oldest.write_bytes(raw)

    done = run("inspect", server.data_dir)

    assert done.exit_code == 3, done.output
    assert done.stderr == f"topics: {oldest}: byte 0: the header of the log does not verify\n"
    assert done.stdout.endswith("\n1 problem\n")
    assert "stopped cleanly" in done.stdout


def test_a_batch_that_only_the_older_checkpoint_needs_is_checked(server: Server, run: Any) -> None:
    """Damage in the log before the newest checkpoint is told, and what lies behind it is checked."""
    oldest, *_ = stopped_twice(server)
    raw = bytearray(oldest.read_bytes())
    raw[4096 + 100] ^= 1
    oldest.write_bytes(raw)

    done = run("inspect", server.data_dir)

    assert done.exit_code == 3, done.output
    assert done.stderr.startswith(f"topics: {oldest}: byte 4096: batch 1 had been durable")
    assert done.stderr.count("\n") == 1
    assert "not stopped cleanly" not in done.stdout


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"")])
def test_the_last_log_of_a_clean_stop_is_missing(
    server: Server, run: Any, damage: Any, times: int
) -> None:
    """It ends with 3 and the report, as all damage does: `serve` ends with 3 there."""
    if times == 2:
        stopped_twice(server)
    else:
        server.stop()
    last = max(server.data_dir.glob("0*.wal"))
    damage(last)

    done = run("inspect", server.data_dir)

    assert done.exit_code == 3, done.output
    assert done.stderr.startswith(f"topics: {last}: byte 0: the ")
    assert done.stderr.count("\n") == 1
    assert "0000000001.seg" in done.stdout
    assert done.stdout.endswith("\n1 problem\n")


def test_as_json(server: Server, run: Any) -> None:
    """The whole report for programs, problems included."""
    server.stop()
    good = json.loads(run("inspect", "--json", server.data_dir).stdout)
    (segment,) = server.data_dir.glob("*.seg")
    flip(segment)
    bad = json.loads(run("inspect", "--json", server.data_dir).stdout)

    assert (good["ok"], good["clean"], good["problems"]) == (True, True, [])
    assert [file["rows"] for file in good["segments"]] == [500]
    assert bad["ok"] is False
    assert bad["problems"][0]["path"] == str(segment)


def test_a_running_server(server: Server, run: Any) -> None:
    """What a server is writing would be told as damage, so a directory in use is refused."""
    done = run("inspect", server.data_dir)

    assert done.exit_code == 2
    assert done.stderr == f"topics: {server.data_dir}: in use by a running server; stop it first\n"


def test_no_data_directory(run: Any, tmp_path: Path) -> None:
    """A directory of something else, a file, and nothing at all are code 2, in one line."""
    file = tmp_path / "file"
    file.write_text("x")

    for path in (tmp_path, file, tmp_path / "absent"):
        done = run("inspect", path)
        assert done.exit_code == 2, done.output
        assert done.stderr.startswith(f"topics: {path}")
        assert done.stderr.count("\n") == 1
