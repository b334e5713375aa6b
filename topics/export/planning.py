"""Which seqs go into a commit, and how data files are called.  Pure.

    orders/date=2026-11-22/part-00000000000000000001-00000000000000065536-7.parquet

A name has the least and the greatest seq of the file and the number of the entry that brought it,
so no two files of an export ever have the same one.  Partitions are directories `date=`, `hour=` and
`by_tag=`, none of which is a column of the files, so that readers which make columns of directories
find no second one of a name.
"""

import hashlib
import re
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar
from urllib.parse import quote

from topics.export.manifest import By
from topics.protocol.model.names import public_name

META: Final = "_topics_export"
"""The directory of what is not data; readers of directories pass over names that begin with `_`."""
MANIFEST: Final = f"{META}/manifest.jsonl"
STAGED: Final = f"{META}/staged"
LOCK: Final = f"{META}/lock"

COMMIT_SEQS_FIRST: Final = 1 << 18
COMMIT_SEQS_MIN: Final = 1 << 16
COMMIT_SEQS_MAX: Final = 1 << 22
"""Seqs of a commit at most: what a kill makes the next run do again."""
GROWTH: Final = 4
TAG_CHARS_MAX: Final = 240
"""Of a tag in the name of a directory, escaped; a name has 255 bytes at most."""
NO_TAG: Final = "__HIVE_DEFAULT_PARTITION__"
"""What Hive and its successors call the partition of null."""

_DATA: Final = re.compile(r"part-[0-9]{20}-[0-9]{20}-[0-9]+\.(?:parquet|jsonl(?:\.gz|\.zst)?)")


def file_name(first: int, last: int, n: int, suffix: str) -> str:
    return f"part-{first:020}-{last:020}-{n}.{suffix}"


def is_data_name(name: str) -> bool:
    """Whether a file's name, without its directory, is one that `file_name` gives."""
    return _DATA.fullmatch(name) is not None


def topic_directory(topic: str) -> str:
    """The directory of a topic, and so of all its partitions: its name, with `+`, which is in no name, for `:`.

    Some file systems refuse `:`, and readers that take a path for a URL would decode `%3A`.
    """
    return public_name(topic).replace(":", "+")


def topic_of_directory(name: str) -> str:
    return name.replace("+", ":")


def data_path(topic: str, partition: str, name: str) -> str:
    return "/".join(part for part in (topic_directory(topic), partition, name) if part)


def partition_of(path: str) -> str:
    """The partition of a data file, as it was given to `data_path`."""
    return "/".join(path.split("/")[1:-1])


def staged_path(path: str) -> str:
    """Where the file for `path` lies until it may be seen there."""
    return f"{STAGED}/{hashlib.sha256(path.encode()).hexdigest()[:32]}"


def tag_partition(tag: str | None) -> str:
    return "by_tag=" + (NO_TAG if tag is None else quote(partition_value(tag), safe=""))


def partition_value(tag: str) -> str:
    """What stands for a tag in the name of a directory: itself, but for a tag whose name would be
    longer than file systems take, or mean null.  Of such a tag it is the beginning and a digest."""
    if len(quote(tag, safe="")) <= TAG_CHARS_MAX and tag != NO_TAG:
        return tag
    begin = tag
    while len(quote(begin, safe="")) > TAG_CHARS_MAX - 64:
        begin = begin[: len(begin) * 3 // 4]
    return f"{begin},{hashlib.sha256(tag.encode()).hexdigest()[:32]}"


@dataclass(slots=True)
class Sizer:
    """How many seqs the next commit takes, so that its files come near the wanted size.

    Attributes:
        seqs: Of the next commit.
    """

    target_bytes: int
    seqs: int = COMMIT_SEQS_FIRST

    def learn(self, seqs: int, size_bytes: int) -> None:
        """A commit of so many seqs had so many bytes; a small one says little, and so does one
        without files."""
        if seqs < COMMIT_SEQS_MIN // 4 or not size_bytes:
            return
        wanted = self.target_bytes * seqs // size_bytes
        bounded = min(wanted, self.seqs * GROWTH, COMMIT_SEQS_MAX)
        self.seqs = max(bounded, COMMIT_SEQS_MIN)


def cut(first: int, last: int, seqs: int, borders: list[int]) -> int:
    """The last seq of a commit that begins with `first`.

    Args:
        last: Of what there is to export, at least `first`.
        seqs: About how many the commit takes.
        borders: Seqs at which a range is best cut, ascending; a commit ends before one where it is
            within half of its size.
    """
    wanted = first + seqs - 1
    if wanted >= last:
        return last
    near = [b - 1 for b in borders if abs(b - 1 - wanted) <= seqs // 2 and b > first]
    return min(min(near, key=lambda b: abs(b - wanted)) if near else wanted, last)


class Sized(Protocol):
    """What is merged: a file, or a stretch of a table."""

    @property
    def first(self) -> int: ...

    @property
    def bytes(self) -> int: ...


S = TypeVar("S", bound=Sized)


def mergeable(files: list[S], target_bytes: int, *, fewest: int = 2) -> list[list[S]]:
    """Groups of files of one partition that are better one file.

    A group is of neighbours in order of their seqs, none of them half as large as the target, and
    together about as large as the target at most.
    """
    groups: list[list[S]] = []
    group: list[S] = []
    for file in sorted(files, key=lambda f: f.first):
        fits = sum(f.bytes for f in group) + file.bytes <= target_bytes
        if file.bytes * 2 > target_bytes or (group and not fits):
            groups.append(group)
            group = []
        if file.bytes * 2 <= target_bytes:
            group.append(file)
    return [each for each in [*groups, group] if len(each) >= fewest]


BY_DIRECTORY: Final[dict[By, str | None]] = {
    "none": None,
    "date": "date=%Y-%m-%d",
    "hour": "date=%Y-%m-%d/hour=%H",
    "tag": None,
}
"""The directory of a time, as `strftime` makes it."""
