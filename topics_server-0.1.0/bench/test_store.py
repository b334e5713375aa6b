"""The disk: one write, one sync, one segment, one checkpoint."""

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.conftest import Scale, fill
from bench.desk import NOTHING_SEALED, NOW_MS, Desk
from bench.loads import append, append_body, put
from topics.protocol.model.codec import Frames
from topics.protocol.model.ports import SealEntry
from topics.protocol.state.hot_memory import freeze

SEGMENT_RECORDS = 65_536
BATCH_RECORDS = 8192


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk.on_disk(tmp_path / "data", NOTHING_SEALED)
    desk.run(put("t"))
    yield desk
    desk.kill()


def events_of(desk: Desk, body: bytes) -> Frames:
    """The events of one append, decided, encoded and applied but not written."""
    desk.engine.submit(append("t", body), token=None, moment=desk.moment)
    return desk.engine.take_frames()


def test_write_small(benchmark: Any, goal: Any, desk: Desk) -> None:
    goal("log, write of one record of 64 B", "")
    events = events_of(desk, append_body(1, 64))

    benchmark.pedantic(desk.store.write, (events,), rounds=100, iterations=20)

    assert desk.store.written_lsn > 1


def test_write_64k(benchmark: Any, goal: Any, desk: Desk) -> None:
    goal("log, write of a batch of 64 KiB", "")
    events = events_of(desk, append_body(600, 64))

    benchmark.pedantic(desk.store.write, (events,), rounds=50, iterations=5)

    assert desk.store.stats.bytes_written_total > 64_000


def test_sync(benchmark: Any, goal: Any, desk: Desk, scale: Scale) -> None:
    goal("log, write of one record and its sync", "")
    events = events_of(desk, append_body(1, 64))

    def written_and_synced() -> int:
        desk.store.write(events)
        return desk.store.sync()

    lsn = benchmark.pedantic(written_and_synced, rounds=20 * scale.rounds, warmup_rounds=2)

    assert lsn == desk.store.written_lsn == desk.store.synced_lsn


def test_seal(benchmark: Any, goal: Any, desk: Desk, scale: Scale) -> None:
    records = min(SEGMENT_RECORDS, scale.sealed // BATCH_RECORDS * BATCH_RECORDS)
    goal(f"seal of {records:,} records of 64 B", "")
    fill(desk, "t", records, batch=BATCH_RECORDS)
    freeze(desk.engine.state.topics["t"])
    desk.engine.state.memory.full = dict(desk.engine.state.memory.unsealed)
    job = desk.schedule.sealing.plan(NOW_MS)
    assert job is not None

    def sealed(entries: tuple[SealEntry, ...]) -> int:
        return sum(ref.count for ref in desk.store.seal(entries))

    assert benchmark.pedantic(sealed, (job.entries,), rounds=scale.rounds) == records


@pytest.fixture
def busy(desk: Desk, scale: Scale) -> Desk:
    """Many topics, each with a record that only the log holds."""
    for n in range(scale.topics):
        desk.engine.submit(put(f"topic-{n}"), token=None, moment=desk.moment)
    desk.turn()
    desk.sync()
    write_everywhere(desk, scale.topics)
    return desk


def write_everywhere(desk: Desk, topics: int) -> None:
    body = append_body(1, 64)
    for n in range(topics):
        command = append(f"topic-{n}", body)
        desk.engine.submit(command, token=None, moment=desk.moment)
        if n % 100 == 99:
            desk.turn()
    desk.turn()


@pytest.mark.timeout(600)
def test_checkpoint(benchmark: Any, goal: Any, busy: Desk, scale: Scale) -> None:
    goal(f"checkpoint, {scale.topics:,} topics with a hot record each, whole", "")

    def setup() -> None:
        write_everywhere(busy, scale.topics)

    rounds = max(scale.rounds // 3, 1)
    benchmark.pedantic(busy.checkpoint, setup=setup, rounds=rounds)

    assert not busy.engine.state.memory.unsealed
    assert busy.engine.state.records_total == (rounds + 1) * scale.topics


@pytest.mark.timeout(1200)
def test_checkpoint_on_loop(benchmark: Any, report: Any, tmp_path: Path, scale: Scale) -> None:
    """The longest that maintenance holds up the event loop: CPU time, as others use the machine too, and
    without the garbage collector, which a server keeps away from topics."""
    desk, topics = Desk.on_disk(tmp_path / "data"), scale.most_topics
    write_everywhere(desk, topics)
    desk.sync()
    longest = {}

    def measured() -> None:
        for what in ("a hot record each", "nothing new"):
            slices = desk.slices(desk.schedule.round(checkpoint=True))
            longest[what] = max(slices), sum(slices)

    gc.collect()
    gc.disable()
    try:
        benchmark.pedantic(measured, rounds=1)
    finally:
        gc.enable()

    for what, (most_s, whole_s) in longest.items():
        report(
            f"checkpoint, {topics:,} topics, {what}, longest on the event loop",
            f"{most_s * 1000:.1f} ms of {whole_s * 1000:.0f} ms",
            "<= 5 ms",
        )
    assert not desk.engine.state.memory.unsealed
    desk.kill()


@pytest.mark.timeout(600)
def test_checkpoint_of_keys(benchmark: Any, report: Any, tmp_path: Path, scale: Scale) -> None:
    desk, keys = Desk.on_disk(tmp_path / "data"), scale.sealed
    desk.run(put("t"))
    topic = desk.engine.state.topics["t"]
    for number in range(keys):
        digest = number.to_bytes(16, "big")
        desk.engine.state.keys.remember(topic.topic_id, digest, 1, 1, NOW_MS)

    def measured() -> float:
        return max(desk.slices(desk.schedule.round(checkpoint=True)))

    most_s = benchmark.pedantic(measured, rounds=1)

    report(
        f"checkpoint, {keys:,} idempotency keys, longest on the event loop",
        f"{most_s * 1000:.1f} ms",
        "<= 5 ms",
    )
    desk.kill()
    assert Desk.on_disk(tmp_path / "data").engine.state.keys.count == keys
