"""Small files become large ones."""

from collections.abc import Iterator

import pytest

from topics.export.compact import compact
from topics.export.loading import load
from topics.export.manifest import Damaged, Settings
from topics.export.target import open_target
from topics.export.verify import compare, verify
from topics.testing import MemoryTopics

from .exporting import JSONL, PARQUET, export, remote, seqs, visible
from .lakes import MemoryLake


@pytest.fixture
def memory() -> Iterator[MemoryTopics]:
    with MemoryTopics() as memory:
        yield memory


def test_small_files_are_merged_on_the_way(memory: MemoryTopics) -> None:
    """A run that follows its topics does not leave a file for each look."""
    lake = MemoryLake()
    with remote(memory) as source:
        for n in range(25):
            memory.client.append("t", n)
            export(source, lake, tidies=True)
    assert seqs(lake) == list(range(1, 26))
    assert len([path for path in lake.files() if path.startswith("t/")]) < 10


@pytest.mark.parametrize("settings", [PARQUET, JSONL, Settings("parquet", "tag")], ids=str)
def test_rows_stay_as_they_are(memory: MemoryTopics, settings: Settings) -> None:
    """Byte for byte, in their partitions, and an export goes on behind them."""
    lake = MemoryLake()
    with remote(memory) as source:
        for n in range(6):
            memory.client.append("t", {"n": n}, tag="ab"[n % 2])
            export(source, lake, settings=settings, compression="gzip" if n < 3 else None)
        with open_target(lake) as target:
            done = compact(target, 1 << 20)
        expected = (6, 2) if settings.by == "tag" else (6, 1)
        assert (done.before, done.after) == expected
        assert seqs(lake) == visible(lake) == [1, 2, 3, 4, 5, 6]
        compared = compare(lake, load(lake), source, "t")
        assert compared is not None
        assert compared.same == 6
        assert verify(lake, load(lake)).problems == []
        with open_target(lake) as target:
            assert compact(target, 1 << 20).before == 0
        assert export(source, lake, settings=settings).commits == 0


def test_a_file_that_is_short_stays(memory: MemoryTopics) -> None:
    """What the manifest counts must be there, or nothing is replaced."""
    lake = MemoryLake()
    with remote(memory) as source:
        for n in range(2):
            memory.client.append("t", n, n)
            export(source, lake, settings=JSONL)
    path = next(path for path in lake.files() if path.startswith("t/"))
    data = lake.names[path].data
    del data[data.index(b"\n") + 1 :]
    before = lake.files()
    with open_target(lake) as target, pytest.raises(Damaged, match="it has 1 rows, not 2"):
        compact(target, 1 << 20)
    assert lake.files() == before
