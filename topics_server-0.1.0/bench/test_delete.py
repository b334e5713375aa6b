"""Deleting many records by tag: what the index finds, and what one frame of the log takes."""

import gc
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.conftest import Report, Scale, spoken
from bench.desk import Desk
from bench.loads import append, append_body, delete, purge, put
from topics.protocol.model.limits import Limits

KINDS = 10


@pytest.fixture
def copy(sealed_dir: Path, tmp_path: Path) -> Iterator[Desk]:
    """The shared data, to be destroyed."""
    shutil.copytree(sealed_dir, tmp_path / "data")
    desk = Desk.on_disk(tmp_path / "data")
    yield desk
    desk.stop()


def test_delete_by_tag(benchmark: Any, goal: Any, copy: Desk, scale: Scale) -> None:
    goal(f"delete by tag, {scale.sealed // KINDS:,} of {scale.sealed:,} sealed", "<= 50 ms")
    kinds = iter(range(KINDS))

    def next_kind() -> tuple[tuple[Desk, Any], dict[str, Any]]:
        body = b'{"match":["tag","Glob","kind%d.*"]}' % next(kinds)
        return (copy, delete("sealed", body)), {}

    rounds = min(scale.rounds, KINDS)
    benchmark.pedantic(Desk.run, setup=next_kind, rounds=rounds)

    (topic,) = copy.engine.state.topics.values()
    assert topic.count == scale.sealed - rounds * (scale.sealed // KINDS)


def test_purge_by_subject(benchmark: Any, goal: Any, copy: Desk, scale: Scale) -> None:
    goal(f"purge by subject, {scale.sealed // KINDS:,} of {scale.sealed:,} sealed", "<= 50 ms")
    kinds = iter(range(KINDS))

    def next_kind() -> tuple[tuple[Desk, Any], dict[str, Any]]:
        return (copy, purge("sealed", b'{"filter":"kind%d.*"}' % next(kinds))), {}

    rounds = min(scale.rounds, KINDS)
    benchmark.pedantic(Desk.run, setup=next_kind, rounds=rounds)

    (topic,) = copy.engine.state.topics.values()
    assert topic.count == scale.sealed - rounds * (scale.sealed // KINDS)


def test_flip(benchmark: Any, goal: Any, copy: Desk, scale: Scale) -> None:
    goal(f"delete flags of {scale.sealed // KINDS:,} records into their segments", "")
    kinds = iter(range(KINDS))

    def deleted() -> tuple[tuple[()], dict[str, Any]]:
        copy.run(delete("sealed", b'{"match":["tag","Glob","kind%d.*"]}' % next(kinds)))
        copy.sync()
        return (), {}

    flipped = benchmark.pedantic(copy.store.flip, setup=deleted, rounds=min(scale.rounds, KINDS))

    assert flipped == scale.sealed // KINDS


@pytest.mark.parametrize("kind", ["sealed", "unsealed", "queue", "ephemeral"])
def test_scattered_delete(report: Report, tmp_path: Path, scale: Scale, kind: str) -> None:
    """Every third of millions of records, then half of the others, then all that are left: the longest
    turn on the event loop, and what the log is given."""
    # What is in memory only has to fit into it.
    records = scale.scattered * 3 // 8 if kind == "ephemeral" else scale.scattered
    desk = Desk.on_disk(tmp_path / "data", Limits(max_hot_bytes=1 << 40))
    config = {"ephemeral": b'{"durability":"ephemeral"}', "queue": b'{"type":"queue"}'}
    desk.run(put("t", config.get(kind, b"{}")))
    batch = append("t", append_body(999, 64, tags=("a", "b", "c")))
    count = records // 999 * 999
    for _ in range(count // 999):
        desk.run(batch)
        if kind in ("sealed", "queue"):
            desk.seal_full()
    gc.collect()
    gc.disable()
    try:
        for name, body, left in (
            ("every third", b'{"match":"a"}', 2 * count // 3),
            ("half of the others", b'{"match":"b"}', count // 3),
            ("all that are left", b'{"before_seq":%d}' % (count + 1), 0),
        ):
            logged = desk.store.stats.bytes_written_total
            _, turns = desk.turns(delete("t", body))
            logged = desk.store.stats.bytes_written_total - logged
            (topic,) = desk.engine.state.topics.values()
            assert topic.count == left
            what = f"delete of {name} of {count:,} {kind} at once, longest on the event loop"
            report(what, f"{spoken(max(turns))}; {logged / 1e6:.1f} MB of log", "<= 5 ms")
            desk.round()
    finally:
        gc.enable()
    desk.stop()
