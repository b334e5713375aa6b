"""Deletes that reach the export: the right to be forgotten."""

from collections.abc import Iterator
from typing import Any

import pytest

from topics.arrow.source import Bounds
from topics.export.lake import Lake
from topics.export.loading import Unusable, load
from topics.export.manifest import Settings
from topics.export.reconcile import Reconciled, reconcile
from topics.export.target import open_target
from topics.export.verify import compare, verify
from topics.testing import MemoryTopics

from .exporting import JSONL, PARQUET, export, live, remote, seqs, visible
from .lakes import Cut, MemoryLake


@pytest.fixture
def memory() -> Iterator[MemoryTopics]:
    with MemoryTopics() as memory:
        for n in range(12):
            memory.client.append("t", {"n": n}, tag=f"user-{n % 3}")
        yield memory


def reconciled(memory: MemoryTopics, lake: Lake, topic: str = "t") -> Reconciled:
    with remote(memory) as source, open_target(lake, now_ms=lambda: 1) as target:
        return reconcile(target, source, topic)


@pytest.mark.parametrize("settings", [PARQUET, JSONL, Settings("parquet", "tag")], ids=str)
def test_what_was_deleted_is_forgotten(memory: MemoryTopics, settings: Settings) -> None:
    """Every record of a tag, in files that hold others, too; afterwards the rows are the topic's."""
    lake = MemoryLake()
    with remote(memory) as source:
        export(source, lake, settings=settings, commit_seqs=5)
        memory.client.delete("t", match=("tag", "Eq", "user-1"))

        done = reconciled(memory, lake)

        assert (done.erased, done.is_another) == (4, False)
        assert seqs(lake) == visible(lake) == live(source)
        text = b"".join(lake.read(path) for path in lake.files() if path.startswith("t/"))
        assert b"user-1" not in text
        compared = compare(lake, load(lake), source, "t")
        assert compared is not None
        assert (compared.deleted_since, compared.same) == (0, 8)
    assert verify(lake, load(lake)).problems == []
    assert reconciled(memory, lake).erased == 0


def test_what_was_lost_stays(memory: MemoryTopics) -> None:
    """An eviction is nobody's wish."""
    lake = MemoryLake()
    with remote(memory) as source:
        export(source, lake)
    memory.client.put_topic("t", cap_records=4)
    memory.client.append("t", "more")
    memory.client.delete("t", match=("tag", "Eq", "user-0"))
    done = reconciled(memory, lake)
    assert done.erased == 1
    assert seqs(lake) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12]


def test_what_has_expired_stays(memory: MemoryTopics) -> None:
    """Nor is the end of a record's time."""
    lake = MemoryLake()
    with remote(memory) as source:
        export(source, lake)
    memory.client.put_topic("t", ttl_ms=1000)
    memory.advance(ms=5000)
    memory.client.append("t", "more")
    assert reconciled(memory, lake).erased == 0


def test_what_was_handed_off_stays(memory: MemoryTopics) -> None:
    """It was deleted in the topic because it is here."""
    lake = MemoryLake()
    with remote(memory) as source:
        export(source, lake)
        with open_target(lake, now_ms=lambda: 1) as target:
            target.hand_off("t", source.bounds("t").epoch, 7)
    memory.client.delete("t", before_seq=7)
    memory.client.delete("t", match=("tag", "Eq", "user-2"))
    assert reconciled(memory, lake).erased == 2
    assert seqs(lake) == [1, 2, 3, 4, 5, 6, 7, 8, 10, 11]


def test_another_topic_is_not_believed(memory: MemoryTopics) -> None:
    """Of an instance that is gone nothing is removed; of one that is too short, nothing either."""
    lake = MemoryLake()
    with remote(memory) as source:
        export(source, lake)
        bounds = source.bounds("t")
        source.bounds = lambda name: Bounds(bounds.epoch, 3, 1)  # type: ignore[method-assign]
        with open_target(lake) as target, pytest.raises(Unusable, match="another data directory"):
            reconcile(target, source, "t")
    memory.client.delete_topic("t")
    memory.client.append("t", 1)
    assert reconciled(memory, lake).is_another
    assert reconciled(memory, lake, "unknown").erased == 0
    assert seqs(lake) == list(range(1, 13))


@pytest.mark.parametrize("after", ["killed", "power_cut"])
def test_it_is_cut_at_every_call(memory: MemoryTopics, after: Any) -> None:
    """Done again, it ends where it would have; what is not erased yet is visible once."""
    original = MemoryLake()
    with remote(memory) as source:
        export(source, original, settings=JSONL, commit_seqs=6)
    memory.client.delete("t", match=("tag", "Eq", "user-1"))
    whole = original.killed()
    reconciled(memory, whole)
    for at in range(1, whole.calls + 1):
        lake = original.killed()
        lake.cut_at = at
        with pytest.raises(Cut):
            reconciled(memory, lake)
        left = getattr(lake, after)()
        assert len(visible(left)) == len(set(visible(left)))
        reconciled(memory, left)
        assert seqs(left) == visible(left) == seqs(whole)
        assert load(left).lineages["t"][0].erased == 4
