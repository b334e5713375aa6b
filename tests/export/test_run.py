"""Exports from beginning to end: what they hold, and what they do about loss."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from arrow.writer import opened, writer

from topics import NewRecord
from topics.arrow import DataLoss
from topics.export.loading import Unusable, load
from topics.export.manifest import Settings
from topics.export.verify import compare
from topics.testing import MemoryTopics

from .exporting import JSONL, PARQUET, export, live, remote, rows, seqs, visible
from .lakes import MemoryLake


@pytest.fixture
def memory() -> Iterator[MemoryTopics]:
    with MemoryTopics() as memory:
        yield memory


@pytest.mark.parametrize("settings", [PARQUET, JSONL], ids=lambda s: s.format)
@pytest.mark.parametrize("seed", range(4))
def test_what_is_exported_is_what_is_there(
    memory: MemoryTopics, seed: int, settings: Settings
) -> None:
    """After any history of appends, deletes and evictions, run after run: the records that the
    export has and the topic too are the topic's, none is there twice, and none is missing."""
    chance = random.Random(seed)
    client, lake = memory.client, MemoryLake()
    client.put_topic("t", cap_records=400 if seed % 2 else 0)
    alive: set[int] = set()
    with remote(memory) as source:
        for _ in range(8):
            tags = [f"t{chance.randrange(4)}" for _ in range(chance.randrange(1, 300))]
            client.append_many("t", [NewRecord({"n": n}, tag=t) for n, t in enumerate(tags)])
            if chance.random() < 0.6:
                client.delete("t", match=("tag", "Eq", f"t{chance.randrange(4)}"))
            if chance.random() < 0.7:
                result = export(
                    source, lake, settings=settings, commit_seqs=chance.choice([7, 64, 1000]),
                    loss="record", jobs=1,
                )  # fmt: skip
                new = set(live(source))
                assert result.rows + result.deleted + result.missed >= 0
                found = seqs(lake)
                assert len(found) == len(set(found))
                assert set(found) >= new
                alive |= new
        export(source, lake, settings=settings, loss="record")
        assert visible(lake) == seqs(lake)
        assert set(seqs(lake)) == alive | set(live(source))


@pytest.mark.parametrize("seed", range(3))
def test_a_directory_is_exported_as_a_server_is(tmp_path: Path, seed: int) -> None:
    """In place, while it is written, sealed and restarted."""
    chance = random.Random(seed)
    engine = writer(tmp_path / "data")
    engine.put(cap_records=300 if seed % 2 else 0)
    lake, alive = MemoryLake(), set()
    for _ in range(6):
        count = chance.randrange(1, 200)
        engine.append(*({"data": n, "tag": f"t{chance.randrange(4)}"} for n in range(count)))
        if chance.random() < 0.6:
            engine.delete(match=["tag", "Eq", f"t{chance.randrange(4)}"])
        if chance.random() < 0.4:
            engine.seal_all()
        if chance.random() < 0.3:
            engine = engine.kill()
        with opened(engine) as source:
            export(source, lake, loss="record", commit_seqs=chance.choice([7, 64, 1000]))
            alive |= set(live(source))
            compared = compare(lake, load(lake), source, "t")
        assert compared is not None
        assert compared.is_whole
    assert seqs(lake) == visible(lake) == sorted(alive)


def lossy(memory: MemoryTopics) -> None:
    memory.client.put_topic("t", cap_records=3)
    memory.client.append("t", *range(5))


def test_loss_fails_before_anything_is_committed(memory: MemoryTopics) -> None:
    """The default: a lost beginning is a loss like any other. (§3.3)"""
    lossy(memory)
    lake = MemoryLake()
    with remote(memory) as source:
        with pytest.raises(DataLoss, match=r"lost 2 seqs, 1\.\.2, reason cap"):
            export(source, lake)
        assert seqs(lake) == []

        export(source, lake, start="earliest-retained")
        assert seqs(lake) == [3, 4, 5]


@pytest.mark.parametrize("loss", ["warn", "record"])
def test_loss_is_a_gap_of_the_manifest(memory: MemoryTopics, loss: Any) -> None:
    """Going past it, the export keeps where it is and why."""
    lossy(memory)
    lake = MemoryLake()
    with remote(memory) as source:
        result = export(source, lake, loss=loss)
    assert seqs(lake) == [3, 4, 5]
    assert [(gap.first_seq, gap.last_seq, gap.reason) for gap in result.lost] == [(1, 2, "cap")]


def test_a_deleted_record_is_no_loss(memory: MemoryTopics) -> None:
    """It is counted, and a range of nothing else is a commit without files. (§5)"""
    memory.client.append("t", *range(6), tag="x")
    memory.client.append("t", 7)
    memory.client.delete("t", match=("tag", "Eq", "x"))
    lake = MemoryLake()
    with remote(memory) as source:
        result = export(source, lake, commit_seqs=3)
        assert (result.rows, result.deleted, result.missed, result.commits) == (1, 6, 0, 3)
        assert export(source, lake).commits == 0


def test_the_ends_of_an_export(memory: MemoryTopics) -> None:
    """From a seq on and before a seq; where an export has begun, it goes on from there."""
    memory.client.append("t", *range(10))
    lake = MemoryLake()
    with remote(memory) as source:
        export(source, lake, start=3, until=6)
        assert seqs(lake) == [3, 4, 5]
        export(source, lake, start=1, until=8)
        assert seqs(lake) == [3, 4, 5, 6, 7]


def test_tags_of_a_prefix(memory: MemoryTopics) -> None:
    """Other records are left out, and the export is of that prefix for good."""
    memory.client.append("t", 1, tag="a.1")
    memory.client.append("t", 2, tag="b.1")
    lake = MemoryLake()
    with remote(memory) as source:
        export(source, lake, settings=Settings("parquet", "none", tag_prefix="a."))
        assert seqs(lake) == [1]
        with pytest.raises(Unusable, match=r"another --tag-prefix: a\., not none; give the same"):
            export(source, lake)


@pytest.mark.parametrize("kind", ["server", "directory"])
def test_records_of_other_tags_are_not_deleted_ones(
    memory: MemoryTopics, tmp_path: Path, kind: str
) -> None:
    """Each has a count of its own, commit by commit, from whatever source. (§5)"""
    records = [NewRecord(n, tag="ab"[n % 2]) for n in range(10)]
    if kind == "server":
        memory.client.append_many("t", records)
        memory.client.delete("t", before_seq=4)
        source: Any = remote(memory)
    else:
        engine = writer(tmp_path / "data")
        engine.append(*({"data": r.data, "tag": r.tag} for r in records))
        engine.delete("t", before_seq=4)
        engine.store.idle()
        source = opened(engine)
    lake = MemoryLake()
    with source:
        settings = Settings("parquet", "none", tag_prefix="a")
        result = export(source, lake, settings=settings, commit_seqs=4)

    assert (result.rows, result.deleted, result.filtered, result.missed) == (3, 3, 4, 0)
    lineage = load(lake).current("t")
    assert lineage is not None
    assert (lineage.rows, lineage.deleted, lineage.filtered) == (3, 3, 4)


def test_a_topic_that_was_created_again(memory: MemoryTopics) -> None:
    """What the old one had is lost: a failure, or a new instance behind the old one's files."""
    client, lake = memory.client, MemoryLake()
    client.append("t", 1, 2, 3)
    with remote(memory) as source:
        export(source, lake)
        client.delete_topic("t")
        client.append("t", "new")

        with pytest.raises(
            DataLoss, match="was deleted and created again: what it had behind seq 3"
        ):
            export(source, lake)
        assert export(source, lake, loss="warn").recreated == ["t"]
        assert [row["data"] for row in rows(lake)] == ['"new"']
        assert visible(lake) == [1, 1, 2, 3]


def test_another_place_is_refused(memory: MemoryTopics) -> None:
    """A topic that ends before the export does is not the one that was exported."""
    lake = MemoryLake()
    memory.client.append("t", 1, 2, 3)
    with remote(memory) as source:
        export(source, lake)
        real = source.bounds

        def shorter(name: str) -> Any:
            found = real(name)
            return type(found)(found.epoch, 2, 1)

        source.bounds = shorter  # type: ignore[method-assign]
        with pytest.raises(Unusable, match='"t" ends with seq 2, but 3 is exported'):
            export(source, lake)


def test_it_stops_between_two_chunks(memory: MemoryTopics) -> None:
    """Asked to stop, it commits what it is at, and the next run goes on there."""
    memory.client.append("t", *range(10))
    lake = MemoryLake()
    asked = iter([False, True, True, True])
    with remote(memory) as source:
        result = export(source, lake, commit_seqs=4, stop=lambda: next(asked))
        assert (seqs(lake), result.is_stopped) == ([1, 2, 3, 4], True)
        export(source, lake)
    assert seqs(lake) == list(range(1, 11))
