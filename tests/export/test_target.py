"""What a crash leaves of an export, at any call, and what the next run makes of it."""

import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest

from topics.arrow.source import TopicSource
from topics.export.compact import compact
from topics.export.lake import Lake, OsLake
from topics.export.loading import Unusable, load
from topics.export.manifest import Damaged, Settings
from topics.export.planning import MANIFEST
from topics.export.target import Staged, open_target
from topics.testing import MemoryTopics

from .exporting import JSONL, PARQUET, export, remote, run, seqs, visible
from .lakes import Cut, Full, MemoryLake


@pytest.fixture(scope="module")
def source() -> Iterator[TopicSource]:
    """Nine records of two tags, in order."""
    with MemoryTopics() as memory:
        for n in range(9):
            memory.client.append("t", {"n": n}, tag="ab"[n % 2])
        with remote(memory) as source:
            yield source


BY_TAG = Settings("jsonl", "tag")
ALL = list(range(1, 10))


def exported(source: TopicSource, lake: MemoryLake, **more: Any) -> None:
    export(source, lake, settings=BY_TAG, commit_seqs=4, **more)


def steps(act: Any) -> int:
    """How many calls an act on a new lake takes."""
    lake = MemoryLake()
    act(lake)
    return lake.calls


AFTER = {
    "kill": lambda lake: lake.killed(),
    "power": lambda lake: lake.power_cut(),
    "torn": lambda lake: lake.power_cut(tear=True),
    "reordered": lambda lake: lake.power_cut(tear=True, chance=random.Random(lake.calls)),
}
"""What is left after a cut."""


@pytest.mark.parametrize("after", AFTER)
def test_an_export_is_cut_at_every_call(source: TopicSource, after: str) -> None:
    """Whatever is left, readers of it find whole files and no record twice; the next run removes
    what was not committed, and ends with each record once."""
    calls = steps(lambda lake: exported(source, lake))
    assert calls > 30
    for at in range(1, calls + 1):
        left = MemoryLake()
        # The run that mends what the first one left is cut as well.
        for cut_at in (at, random.Random(at).randrange(1, calls)):
            left.cut_at = cut_at
            with suppress(Cut):
                exported(source, left)
            left = AFTER[after](left)
            if MANIFEST in left.names and left.read(MANIFEST).endswith(b"}\n"):
                found = visible(left)
                assert len(found) == len(set(found))
                assert set(seqs(left)) <= set(found)

        exported(source, left)
        assert seqs(left) == visible(left) == ALL
        assert seqs(again := AFTER[after](left)) == visible(again) == ALL
        assert [path for path in left.files() if "/staged/" in path] == []


def test_what_was_removed_does_not_come_back_beside_its_copy(source: TopicSource) -> None:
    """Files that a cut run left are gone for good before their records are written again."""

    def of_one_commit(lake: MemoryLake, seqs: int) -> None:
        export(source, lake, settings=JSONL, commit_seqs=seqs)

    for at in range(1, 100):
        lake = MemoryLake()
        lake.cut_at = at
        with pytest.raises(Cut):
            of_one_commit(lake, 9)
        with suppress(Unusable):
            if visible(lake):
                break
    assert (visible(lake), seqs(lake)) == (ALL, [])
    for seed in range(8):
        for at in range(1, 15):
            left = lake.killed()
            left.cut_at = at
            with suppress(Cut):
                of_one_commit(left, 8)  # other files than before
            found = visible(left.power_cut(chance=random.Random(seed)))
            assert len(found) == len(set(found))


@pytest.mark.parametrize("after", AFTER)
def test_a_compaction_is_cut_at_every_call(source: TopicSource, after: str) -> None:
    """At no moment is a record visible twice, and at the next start each is there once, in the old
    files or in the new."""
    original = MemoryLake()
    exported(source, original)

    def compacted(lake: MemoryLake) -> None:
        with open_target(lake, now_ms=lambda: 1) as target:
            compact(target, 1 << 20)

    done = original.killed()
    compacted(done)
    assert len([p for p in done.files() if p.startswith("t/")]) == 2
    assert seqs(done) == visible(done) == ALL
    for at in range(1, done.calls + 1):
        lake = original.killed()
        lake.cut_at = at
        with pytest.raises(Cut):
            compacted(lake)
        left = AFTER[after](lake)
        found = visible(left)
        assert len(found) == len(set(found))

        open_target(left, now_ms=lambda: 1).close()
        assert seqs(left) == visible(left) == ALL


def test_a_manifest_is_torn_at_every_byte(source: TopicSource) -> None:
    """The torn line is cut; its files are removed, and written again by the next run."""
    original = MemoryLake()
    export(source, original, settings=JSONL)
    whole = original.read(MANIFEST)

    for size in range(len(whole)):
        lake = original.killed()
        lake.truncate(MANIFEST, size)
        export(source, lake, settings=JSONL)
        assert seqs(lake) == visible(lake) == ALL


def test_an_export_that_was_cut_before_it_began(source: TopicSource) -> None:
    """Without a whole line in its manifest there is none yet, and the next run begins it."""
    lake = MemoryLake()
    export(source, lake, settings=JSONL)
    first = lake.read(MANIFEST).index(b"\n")
    for size in (0, 1, first):
        lake.truncate(MANIFEST, size)
        with pytest.raises(Unusable, match="there is no export in it"):
            load(lake)
        export(source, lake, settings=JSONL)
        assert seqs(lake) == visible(lake) == ALL


def test_a_damaged_line_is_not_passed_over(source: TopicSource) -> None:
    """Where a line before the last does not verify, nothing is written: a crash does not do that."""
    original = MemoryLake()
    exported(source, original)
    for at in (5, 100, len(original.read(MANIFEST)) // 2):
        lake = original.killed()
        lake.names[MANIFEST].data[at] ^= 1
        with pytest.raises(Damaged, match=r"manifest.jsonl: line \d+"):
            exported(source, lake)
        assert lake.files() == original.files()


def test_a_full_disk(source: TopicSource) -> None:
    """The run ends with the disk's error; with room again the next one goes on."""
    calls = steps(lambda lake: exported(source, lake))
    for at in range(1, calls + 1):
        lake = MemoryLake()
        lake.cut_at, lake.error = at, Full
        with pytest.raises(OSError, match="No space left"):
            exported(source, lake)
        left = lake.killed()
        exported(source, left)
        assert seqs(left) == visible(left) == ALL


def test_nothing_is_written_behind_a_failed_append(source: TopicSource) -> None:
    """What of the line is there is not known: another one behind it would hide it."""
    lake = MemoryLake()
    with open_target(lake, JSONL) as target:
        lake.cut_at, lake.error = lake.calls + 2, Full
        with pytest.raises(OSError, match="No space left"):
            target.hand_off("t", "e", 1)
        lake.cut_at = None
        with pytest.raises(OSError, match="could not be written before"):
            target.hand_off("t", "e", 1)


def test_files_with_a_variant_pass_by_spark(source: TopicSource) -> None:
    """Every file that gets a name, of a commit and of a compaction; without Spark, none does."""
    lake, settings = MemoryLake(), Settings("parquet", "none", has_variant=True)
    with pytest.raises(Unusable, match="which only Spark writes"):
        export(source, lake, settings=settings, commit_seqs=4)
    assert visible(lake) == []

    seen: list[tuple[str, list[int]]] = []

    def with_variants(_lake: Lake, staged: Sequence[Staged], compression: str) -> list[Staged]:
        seen.append((compression, [file.rows for file in staged]))
        return list(staged)

    with open_target(lake, settings, now_ms=lambda: 1, with_variants=with_variants) as target:
        run(source, target, commit_seqs=4)
    with open_target(lake, compression="snappy", with_variants=with_variants) as target:
        compact(target, 1 << 20)

    assert seqs(lake) == visible(lake) == ALL
    assert seen == [("zstd", [4]), ("zstd", [4]), ("zstd", [1]), ("snappy", [9])]


def test_one_writer_at_a_time(tmp_path: Any) -> None:
    """A second one is refused with what to do; a lock of a process that ended is none."""
    path = tmp_path / "lake"
    first = open_target(OsLake(path), PARQUET)
    with pytest.raises(Unusable, match="another export is writing it; wait for it, or stop it"):
        open_target(OsLake(path), PARQUET)
    first.close()
    open_target(OsLake(path), PARQUET).close()


def test_a_directory_of_something_else(tmp_path: Any) -> None:
    """Is left alone; an empty one, and one with the droppings of a file system, is not."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "mine.parquet").write_text("x")
    with pytest.raises(Unusable, match="not empty and no export is in it; choose another"):
        open_target(OsLake(tmp_path / "a"), PARQUET)
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["mine.parquet"]

    (tmp_path / "b" / "lost+found").mkdir(parents=True)
    (tmp_path / "b" / "lost+found" / "x").write_text("x")
    open_target(OsLake(tmp_path / "b"), PARQUET).close()
    with pytest.raises(Unusable, match="there is no export in it"):
        open_target(OsLake(tmp_path / "c"))
    assert not (tmp_path / "c").exists()


def test_files_of_others_stay(source: TopicSource) -> None:
    """What is removed at a start has a name that only an export gives."""
    lake = MemoryLake()
    exported(source, lake)
    lake.append("README", b"about this lake")
    lake.make_directory("t/by_tag=a")
    lake.append("t/by_tag=a/notes.txt", b"mine")
    lake.append("t/by_tag=a/part-00000000000000000001-00000000000000000002-99.jsonl", b"orphan")
    with open_target(lake, now_ms=lambda: 1) as target:
        assert target.notes == ["1 file of an interrupted run removed"]
    assert {"README", "t/by_tag=a/notes.txt"} <= set(lake.files())
    assert seqs(lake) == ALL
