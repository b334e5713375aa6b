"""`topics inspect`: what a data directory holds, and whether it verifies."""

import hashlib
import json
import shutil
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


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Directories of stopped servers, to be copied: `once`, with those 500 records, and `twice`,
    stopped once more, so that it has two checkpoints."""
    server = Server(tmp_path_factory.mktemp("stopped"))
    server.start()
    try:
        with server.client() as client:
            client.append_many("jobs", ["x" * 100] * 500, batch_records=100)
        server.stop()
        once = shutil.copytree(server.data_dir, server.home / "once")
        server.start()
        with server.client() as client:
            client.append("jobs", "y" * 100)
        server.stop()
    finally:
        server.end()
    assert len(list(server.data_dir.glob("*.ckpt"))) == 2
    return {"once": once, "twice": server.data_dir}


@pytest.fixture
def stopped(kept: dict[str, Path], tmp_path: Path) -> Path:
    """The directory of a server that was stopped once."""
    return shutil.copytree(kept["once"], tmp_path / "data")


@pytest.fixture
def stopped_twice(kept: dict[str, Path], tmp_path: Path) -> Path:
    return shutil.copytree(kept["twice"], tmp_path / "data")


def logs(data_dir: Path) -> list[Path]:
    """Oldest first."""
    return sorted(data_dir.glob("0*.wal"))


def digests(data_dir: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in data_dir.iterdir()}


def flip(path: Path) -> None:
    """Damage one payload byte of a segment."""
    raw = bytearray(path.read_bytes())
    at = raw.index(b"x" * 100)
    raw[at] ^= 1
    path.write_bytes(raw)


def test_a_clean_stop(stopped: Path, run: Any) -> None:
    """A directory that was stopped cleanly verifies, and inspecting it changes nothing."""
    before = digests(stopped)

    done = run("inspect", stopped)

    assert done.exit_code == 0, done.output
    assert "format 4, instance " in done.stdout
    assert "stopped cleanly" in done.stdout
    assert "0000000001.seg" in done.stdout
    assert done.stdout.endswith("\nEverything verifies.\n")
    assert digests(stopped) == before


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


def test_damage_is_named(stopped: Path, run: Any) -> None:
    """A flipped byte ends with 3 and says in which file and where."""
    (segment,) = stopped.glob("*.seg")
    flip(segment)

    done = run("inspect", stopped)

    assert done.exit_code == 3, done.output
    assert done.stdout.endswith("\n1 problem\n")
    assert done.stderr.startswith(f"topics: {segment}: byte ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("at", [0, 8, 16, 40, 87])
def test_the_header_of_the_oldest_log_is_checked(stopped_twice: Path, run: Any, at: int) -> None:
    """A start needs it only where the newest checkpoint is damaged, and then it is too late."""
    oldest, *_ = logs(stopped_twice)
    raw = bytearray(oldest.read_bytes())
    raw[at] ^= 1
    oldest.write_bytes(raw)

    done = run("inspect", stopped_twice)

    assert done.exit_code == 3, done.output
    assert done.stderr == f"topics: {oldest}: byte 0: the header of the log does not verify\n"
    assert done.stdout.endswith("\n1 problem\n")
    assert "stopped cleanly" in done.stdout


def test_a_batch_that_only_the_older_checkpoint_needs_is_checked(
    stopped_twice: Path, run: Any
) -> None:
    """Damage in the log before the newest checkpoint is told, and what lies behind it is checked."""
    oldest, *_ = logs(stopped_twice)
    raw = bytearray(oldest.read_bytes())
    raw[4096 + 100] ^= 1
    oldest.write_bytes(raw)

    done = run("inspect", stopped_twice)

    assert done.exit_code == 3, done.output
    assert done.stderr.startswith(f"topics: {oldest}: byte 4096: batch 1 had been durable")
    assert done.stderr.count("\n") == 1
    assert "not stopped cleanly" not in done.stdout


@pytest.mark.parametrize("which", ["once", "twice"])
@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"")])
def test_the_last_log_of_a_clean_stop_is_missing(
    kept: dict[str, Path], tmp_path: Path, run: Any, damage: Any, which: str
) -> None:
    """It ends with 3 and the report, as all damage does: `serve` ends with 3 there."""
    directory = shutil.copytree(kept[which], tmp_path / "data")
    last = logs(directory)[-1]
    damage(last)

    done = run("inspect", directory)

    assert done.exit_code == 3, done.output
    assert done.stderr.startswith(f"topics: {last}: byte 0: the ")
    assert done.stderr.count("\n") == 1
    assert "0000000001.seg" in done.stdout
    assert done.stdout.endswith("\n1 problem\n")


def test_as_json(stopped: Path, run: Any) -> None:
    """The whole report for programs, problems included."""
    good = json.loads(run("inspect", "--json", stopped).stdout)
    (segment,) = stopped.glob("*.seg")
    flip(segment)
    bad = json.loads(run("inspect", "--json", stopped).stdout)

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


def test_partitions_are_told_by_their_numbers(server: Server, run: Any) -> None:
    """The engine's own names of them stand nowhere, for a person or a program. (§2.1)"""
    with server.client() as client:
        client.put_topic("wide", partitions=3)
        client.append("wide", "a", partition=2)
    server.stop()

    told = run("inspect", server.data_dir).stdout
    rows = [line.split()[:5] for line in told.splitlines() if line.startswith("wide")]
    assert [row[:3] for row in rows] == [
        ["wide", *rows[0][1:3]],
        ["wide,", "partition", "1"],
        ["wide,", "partition", "2"],
    ]
    found = json.loads(run("inspect", server.data_dir, "--json").stdout)["topics"]
    assert {(each["topic"], each.get("partition"), each["count"]) for each in found} == {
        ("jobs", None, 500),
        ("wide", None, 0),
        ("wide", 1, 0),
        ("wide", 2, 1),
    }
    assert "#" not in told
