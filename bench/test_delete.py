"""Deleting many records by tag: what the index finds, and what one frame of the log takes."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.conftest import Scale
from bench.desk import Desk
from bench.loads import delete, purge

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
