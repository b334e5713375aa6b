"""Files that are made again."""

from collections.abc import Iterator

import pytest

from topics.export.loading import load
from topics.export.manifest import Settings
from topics.export.repair import Repaired, repair
from topics.export.target import open_target
from topics.export.verify import verify
from topics.testing import MemoryTopics

from .exporting import JSONL, PARQUET, export, live, remote, seqs
from .lakes import MemoryLake


@pytest.fixture
def memory() -> Iterator[MemoryTopics]:
    with MemoryTopics() as memory:
        for n in range(12):
            memory.client.append("t", {"n": n}, tag="ab"[n % 2])
        yield memory


def damaged(memory: MemoryTopics, settings: Settings) -> MemoryLake:
    """An export whose first file has a flipped bit, and whose last is gone."""
    lake = MemoryLake()
    with remote(memory) as source:
        export(source, lake, settings=settings, commit_seqs=4)
    paths = [path for path in lake.files() if path.startswith("t/")]
    lake.names[paths[0]].data[9] ^= 1
    del lake.names[paths[-1]]
    return lake


def repaired(memory: MemoryTopics, lake: MemoryLake) -> Repaired:
    with remote(memory) as source, open_target(lake, now_ms=lambda: 1) as target:
        return repair(target, source)


@pytest.mark.parametrize("settings", [PARQUET, JSONL, Settings("parquet", "tag")], ids=str)
def test_what_is_damaged_is_fetched_again(memory: MemoryTopics, settings: Settings) -> None:
    """And only that."""
    lake = damaged(memory, settings)
    whole = {path: lake.read(path) for path in lake.files() if path.startswith("t/")}
    intact = dict(list(whole.items())[1:])

    done = repaired(memory, lake)

    assert (len(done.files), done.left, done.erased) == (2, [], 0)
    assert verify(lake, load(lake)).problems == []
    assert seqs(lake) == list(range(1, 13))
    assert {path: lake.names[path].data for path in intact} == intact
    assert repaired(memory, lake).files == []


def test_what_was_deleted_since_does_not_come_back(memory: MemoryTopics) -> None:
    """A file that is made again lacks it."""
    lake = damaged(memory, PARQUET)
    memory.client.delete("t", match=("tag", "Eq", "a"))
    done = repaired(memory, lake)
    assert done.erased == 4
    assert set(live_of(memory)) <= set(seqs(lake))
    assert verify(lake, load(lake)).problems == []


def live_of(memory: MemoryTopics) -> list[int]:
    with remote(memory) as source:
        return live(source)


def test_what_the_topic_has_no_more_is_named(memory: MemoryTopics) -> None:
    """Lost, handed off, or of an instance that is gone: the file stays as it is."""
    lake = damaged(memory, PARQUET)
    memory.client.put_topic("t", cap_records=4)
    memory.client.append("t", "more")
    done = repaired(memory, lake)
    # Seqs 1 to 9 are evicted; the last file begins with the first of them.
    assert [problem.what.partition("; ")[2] for problem in done.left] == [
        'topic "t" lost 4 seqs, 1..4, reason cap',
        'topic "t" lost 1 seqs, 9..9, reason cap',
    ]

    with remote(memory) as source, open_target(lake) as target:
        target.hand_off("t", source.bounds("t").epoch, 13)
    done = repaired(memory, lake)
    assert ["were handed off" in problem.what for problem in done.left] == [True, True]

    memory.client.delete_topic("t")
    memory.client.append("t", 1)
    done = repaired(memory, lake)
    assert ["created again" in problem.what for problem in done.left] == [True, True]
