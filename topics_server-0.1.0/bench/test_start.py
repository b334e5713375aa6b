"""Starting: the log replayed, many records, many topics, and a whole process."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.conftest import Scale, built
from bench.desk import NOTHING_SEALED, Desk
from bench.loads import append, append_body, put
from bench.serving import Serving, serve_topics


def replayed(path: Path) -> int:
    """Start and be killed at once, so that the next round finds the same log."""
    desk = Desk.on_disk(path, NOTHING_SEALED)
    records = desk.engine.state.records_total
    desk.kill()
    return records


def logged(path: Path, appends: int, body: bytes) -> Path:
    """A data directory with nothing sealed, left as a SIGKILL leaves it."""
    desk = Desk.on_disk(path, NOTHING_SEALED)
    desk.run(put("t"))
    command = append("t", body)
    for _ in range(appends):
        desk.run(command)
    desk.sync()
    desk.kill()
    return path


@pytest.mark.timeout(600)
def test_replay_batches(benchmark: Any, goal: Any, tmp_path: Path, scale: Scale) -> None:
    """Memory for unsealed records is bounded, so no log is longer than a few hundred thousand."""
    records = min(scale.replayed, 1_000_000)
    goal("replay, per record, logged in batches of 1000", "<= 1 us", per=records)
    path = logged(tmp_path / "data", records // 1000, append_body(1000, 64))

    assert benchmark.pedantic(replayed, (path,), rounds=min(scale.rounds, 5)) == records


@pytest.mark.timeout(600)
def test_replay_singles(benchmark: Any, goal: Any, tmp_path: Path, scale: Scale) -> None:
    goal("replay, per record, logged one by one", "", per=scale.singles)
    path = logged(tmp_path / "data", scale.singles, append_body(1, 64))

    assert benchmark.pedantic(replayed, (path,), rounds=min(scale.rounds, 5)) == scale.singles


@pytest.mark.timeout(1200)
def test_start_sealed(
    benchmark: Any, goal: Any, tmp_path: Path, sealed_dir: Path, scale: Scale
) -> None:
    """Full: ten million records; otherwise what the reading benchmarks built."""
    goal(f"start with {scale.started:,} sealed records, clean", "<= 1 s")
    path = sealed_dir
    if scale.started != scale.sealed:
        path = built(tmp_path / "data", scale.started)

    def started() -> int:
        desk = Desk.on_disk(path)
        records = desk.engine.state.records_total
        desk.stop()
        return records

    assert benchmark.pedantic(started, rounds=min(scale.rounds, 5)) == scale.started


@pytest.fixture
def many(tmp_path: Path, scale: Scale) -> Path:
    """Many topics with ten records each, stopped cleanly."""
    desk = Desk.on_disk(tmp_path / "data")
    body = append_body(10, 64)
    for n in range(scale.topics):
        for command in (put(f"topic-{n}"), append(f"topic-{n}", body)):
            desk.engine.submit(command, token=None, moment=desk.moment)
        if n % 100 == 99:
            desk.turn()
    desk.turn()
    desk.stop()
    return tmp_path / "data"


def test_start_topics(benchmark: Any, goal: Any, many: Path, scale: Scale) -> None:
    goal(f"start with {scale.topics:,} topics, clean", "<= 2 s")

    def started() -> int:
        desk = Desk.on_disk(many)
        topics = len(desk.engine.state.topics)
        desk.stop()
        return topics

    assert benchmark.pedantic(started, rounds=min(scale.rounds, 5)) == scale.topics


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("end", ["all in the log", "after a checkpoint"])
def test_start_killed(benchmark: Any, goal: Any, tmp_path: Path, scale: Scale, end: str) -> None:
    """A server process on many topics with a record each, from its start to ready."""
    topics = scale.most_topics
    goal(f"start of a process with {topics:,} topics, killed, {end}", "<= 3 s")
    desk = Desk.on_disk(tmp_path / "data")
    body = append_body(1, 64)
    for n in range(topics):
        command = append(f"topic-{n}", body)
        desk.engine.submit(command, token=None, moment=desk.moment)
        desk.turn()
    desk.sync()
    if end == "after a checkpoint":
        desk.checkpoint()
    desk.kill()
    servers: list[Serving] = []

    benchmark.pedantic(lambda: servers.append(serve_topics(tmp_path)), rounds=1)

    servers[0].kill()
    desk = Desk.on_disk(tmp_path / "data")
    assert len(desk.engine.state.topics) == topics
    desk.kill()


def test_ready(benchmark: Any, goal: Any, tmp_path: Path, scale: Scale) -> None:
    goal("a fresh server process, from its start to ready", "<= 0.5 s")
    homes = (tmp_path / str(n) for n in range(1000))
    servers: list[Serving] = []

    def next_home() -> tuple[tuple[Path], dict[str, Any]]:
        for server in servers:
            server.kill()
        return (next(homes),), {}

    def started(path: Path) -> None:
        servers.append(serve_topics(path))

    try:
        benchmark.pedantic(started, setup=next_home, rounds=scale.rounds)
    finally:
        for server in servers:
            server.kill()

    assert len(servers) >= scale.rounds


# ---------------------------------------------------------------------- what it takes


@pytest.mark.timeout(600)
def test_memory(benchmark: Any, report: Any, tmp_path: Path, scale: Scale) -> None:
    """Heap per sealed record, in processes of their own: with the records, and without any."""
    full = built(tmp_path / "full", scale.sealed)
    empty = built(tmp_path / "empty", 0)

    def measured() -> tuple[dict[str, int], dict[str, int]]:
        return footprint(full), footprint(empty)

    held, idle = benchmark.pedantic(measured, rounds=1)

    for name, what in (("traced", "Python and numpy allocations"), ("anonymous", "RssAnon")):
        each = (held[name] - idle[name]) / scale.sealed
        report(f"memory per sealed record after a start, {what}", f"{each:.2f} B", "<= 2 B")
    assert held["records"] == scale.sealed


@pytest.mark.timeout(600)
def test_memory_live(benchmark: Any, report: Any, tmp_path: Path, scale: Scale) -> None:
    """The same in the process that wrote and sealed the records, allocator's leftovers included."""
    found = benchmark.pedantic(
        footprint, (tmp_path / "data", "--fill", str(scale.sealed)), rounds=1
    )

    each = (found["anonymous"] - found["anonymous_before"]) / scale.sealed
    report("memory per record written and sealed, RssAnon", f"{each:.2f} B", "<= 2 B")
    assert found["records"] == scale.sealed


def footprint(path: Path, *more: str) -> dict[str, int]:
    """What a process of its own holds that started on `path` and read all of it once."""
    told = subprocess.run(
        [sys.executable, "-m", "bench.footprint", str(path), *more],
        check=True,
        capture_output=True,
    )
    found: dict[str, int] = json.loads(told.stdout)
    return found


def test_disk(benchmark: Any, report: Any, tmp_path: Path, scale: Scale) -> None:
    """Bytes of everything in the data directory after a clean stop, beyond the served text."""
    for size_bytes in (64, 1024):
        path = tmp_path / str(size_bytes)
        desk = Desk.on_disk(path)
        desk.run(put("t"))
        command = append("t", append_body(1000, size_bytes))
        records = min(scale.sealed // 5, 200_000)
        for _ in range(records // 1000):
            desk.run(command)
            desk.seal_full()
        served = desk.engine.state.total_bytes
        # The log is kept from the checkpoint before the last on.
        desk.checkpoint()
        desk.checkpoint()
        logs, rest = disk_bytes(path)
        desk.stop()
        goal_bytes = (1.15 * served + 64 * records) / records
        name = f"disk per record of {size_bytes} B ({served / records:.0f} B as served)"
        report(
            f"{name}, segments and checkpoint", f"{rest / records:.0f} B", f"<= {goal_bytes:.0f} B"
        )
        report(
            f"log files and reserve after checkpoints, records of {size_bytes} B",
            f"{logs / 1e6:.1f} MB",
            "",
        )
        assert rest > served
    benchmark.pedantic(disk_bytes, (path,), rounds=1)


def disk_bytes(path: Path) -> tuple[int, int]:
    """Allocated bytes of log files and reserve, and of all the rest."""
    sizes = {each.name: each.stat().st_blocks * 512 for each in path.iterdir()}
    logs = sum(size for name, size in sizes.items() if name.endswith(".wal") or "reserve" in name)
    return logs, sum(sizes.values()) - logs
