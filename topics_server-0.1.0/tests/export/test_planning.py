"""Spans of commits, names of files, and what is worth merging."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.export.manifest import File
from topics.export.planning import (
    COMMIT_SEQS_MAX,
    COMMIT_SEQS_MIN,
    Sizer,
    cut,
    data_path,
    file_name,
    is_data_name,
    mergeable,
    partition_of,
    tag_partition,
)


@given(
    st.integers(1, 1000),
    st.integers(0, 1000),
    st.integers(1, 300),
    st.lists(st.integers(1, 2000), max_size=20, unique=True).map(sorted),
)
def test_cuts_cover_a_range(first: int, more: int, seqs: int, borders: list[int]) -> None:
    """Each seq is in one piece, whatever the borders; a piece is at most half as large again."""
    last = first + more
    at = first
    while at <= last:
        end = cut(at, last, seqs, borders)
        assert at <= end <= last
        assert end - at + 1 <= seqs + seqs // 2 + 1
        at = end + 1


def test_a_cut_is_at_a_border_that_is_near() -> None:
    """So that a piece opens no file of another piece."""
    assert cut(1, 1000, 100, [95, 500]) == 94
    assert cut(1, 1000, 100, [130]) == 129
    assert cut(1, 1000, 100, [20, 500]) == 100


def test_a_commit_grows_towards_the_wanted_size() -> None:
    """By the size of those before, not at a bound, and not by tiny ones."""
    sizer = Sizer(100 << 20)
    first = sizer.seqs
    sizer.learn(10, 10)
    assert sizer.seqs == first
    sizer.learn(first, first * 100)
    assert sizer.seqs == (100 << 20) // 100
    sizer.learn(sizer.seqs, 1)
    assert sizer.seqs == COMMIT_SEQS_MAX
    sizer.learn(sizer.seqs, sizer.seqs * 1_000_000)
    assert sizer.seqs == COMMIT_SEQS_MIN


@pytest.mark.parametrize("ending", ["parquet", "jsonl", "jsonl.gz", "jsonl.zst"])
def test_names_tell_what_is_in_a_file(ending: str) -> None:
    """Of a topic, its partition, its seqs and the entry that brought it."""
    name = file_name(7, 1234, 5, ending)
    assert is_data_name(name)
    path = data_path("eu:orders", "date=2026-11-22/hour=07", name)
    assert path.startswith("eu+orders/date=2026-11-22/hour=07/part-")
    assert partition_of(path) == "date=2026-11-22/hour=07"
    assert partition_of(data_path("t", "", name)) == ""
    assert not is_data_name("part-1-2.parquet")


def test_tags_are_directories() -> None:
    """Any tag is a name, and none is Hive's for null."""
    assert tag_partition("a/b c") == "by_tag=a%2Fb%20c"
    assert tag_partition(None) == "by_tag=__HIVE_DEFAULT_PARTITION__"


def files(*sizes: int) -> list[File]:
    return [File(str(n), 1, n + 1, n + 1, size, "") for n, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        ([10, 10, 10], [[0, 1, 2]]),
        ([10, 90, 10], []),
        ([40, 40, 40, 40], [[0, 1], [2, 3]]),
        ([10], []),
        ([10, 10, 90, 10, 10], [[0, 1], [3, 4]]),
        ([], []),
    ],
)
def test_small_neighbours_are_merged(sizes: list[int], groups: list[list[int]]) -> None:
    """Up to the wanted size, here 100, in order; what is large stays."""
    found = mergeable(files(*sizes), 100)
    assert [[int(file.path) for file in group] for group in found] == groups
