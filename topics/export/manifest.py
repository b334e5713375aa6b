"""The manifest of an export: its entries, their encoding, and what they add up to.

    {"kind":"commit","n":7,"topic":"orders",...,"crc32":"9ae0daaf"}

One entry is one line of JSON; its last member is the CRC-32 of the line as it would be without it.
Entries are numbered from 1 without a gap.  Pure: the bytes come from and go to `target`.

A partition of a topic is named by `partition_name`, and is to an export what a topic with one is.

Invariant: of each instance of a topic, the spans of its commits lie one behind the other, so that
its last seq is all there is to know to go on.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

import msgspec

from topics.protocol.model.names import PARTITION_MARK, partition_of, public_name

VERSION: Final = 1
"""Which this program writes and reads."""
VERSION_UNSAID: Final = 1
"""Of a manifest that says none, for ever."""

Format = Literal["parquet", "jsonl", "delta", "iceberg"]
TABLES: Final = ("delta", "iceberg")
By = Literal["none", "date", "hour", "tag"]
Change = Literal["compact", "reconcile", "repair"]


class Damaged(Exception):
    """The manifest, or an entry's claim about a file, is not what was written.

    Attributes:
        path: Of the file, relative to the export.
    """

    def __init__(self, path: str, what: str) -> None:
        super().__init__(f"{path}: {what}")
        self.path = path
        self.what = what


class File(msgspec.Struct, frozen=True):
    """A data file: where it is and what is in it.

    Attributes:
        path: Relative to the export, with `/`.
        first, last: The least and the greatest seq of its rows.
        bytes: Its size.
    """

    path: str
    rows: int
    first: int
    last: int
    bytes: int
    sha256: str


class Lost(msgspec.Struct, frozen=True):
    """Seqs [first, last] that the topic had lost when they were exported, and why."""

    first: int
    last: int
    reason: str

    @property
    def missed(self) -> int:
        return self.last - self.first + 1


class Settings(msgspec.Struct, frozen=True, tag="export", tag_field="kind", omit_defaults=True):
    """What every commit of the export has in common; the first entry.

    Attributes:
        fields: The typed members of `data` in the form of a schema file; None: `data` is text.
        has_variant: `data` is text, and `data_variant` the same as a VARIANT.
    """

    format: Format
    by: By
    n: int = 0
    version: int = VERSION_UNSAID
    tag_prefix: str | None = None
    fields: dict[str, object] | None = None
    has_variant: bool = False


class Commit(msgspec.Struct, frozen=True, tag="commit", tag_field="kind", omit_defaults=True):
    """Seqs [first, last] of one instance of a topic, exported.

    Attributes:
        epoch: The instance.
        rows: Records in the files.
        deleted: Seqs of records that were deleted before.
        filtered: Records of other tags than the export's.
        lost: Ascending.
        corrupt: Rows whose data does not fit the export's schema; their text is kept.
        rounded: Integers of the other rows that their columns do not hold exactly.
        at_ms: When it was committed.
    """

    topic: str
    epoch: str
    first: int
    last: int
    rows: int
    deleted: int
    n: int = 0
    lost: tuple[Lost, ...] = ()
    files: tuple[File, ...] = ()
    corrupt: int = 0
    rounded: int = 0
    filtered: int = 0
    at_ms: int = 0

    @property
    def missed(self) -> int:
        return sum(gap.missed for gap in self.lost)

    def __post_init__(self) -> None:
        span = self.last - self.first + 1
        assert span >= 1, "a commit spans at least a seq"
        in_files = sum(file.rows for file in self.files)
        assert not self.files or self.rows == in_files, "rows are those of the files"
        found = self.rows + self.deleted + self.filtered + self.missed
        assert found == span, "every seq is accounted for"


class Swap(msgspec.Struct, frozen=True, tag="swap", tag_field="kind", omit_defaults=True):
    """Files in place of others of the same instance.

    Attributes:
        erased: Rows of the files that were removed and that those which were added lack.
    """

    change: Change
    topic: str
    epoch: str
    removed: tuple[str, ...]
    added: tuple[File, ...]
    erased: int
    n: int = 0
    at_ms: int = 0


class Handoff(msgspec.Struct, frozen=True, tag="handoff", tag_field="kind", omit_defaults=True):
    """From here on the export is the only place of the seqs below `before_seq`: their delete in the
    topic follows, or has followed."""

    topic: str
    epoch: str
    before_seq: int
    n: int = 0
    at_ms: int = 0


Entry: TypeAlias = Settings | Commit | Swap | Handoff

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Entry).decode

_CRC: Final = len(b',"crc32":"00000000"}')


def encode(entry: Entry) -> bytes:
    """The line of an entry, with its end."""
    body = _encode(entry)
    return body[:-1] + b',"crc32":"%08x"}\n' % zlib.crc32(body)


def _decoded(line: bytes) -> Entry | None:
    """The entry of a line without its end; None where the line does not verify."""
    body = line[:-_CRC] + b"}"
    if len(line) <= _CRC or line[-_CRC:] != b',"crc32":"%08x"}' % zlib.crc32(body):
        return None
    entry: Entry = _decode(body)
    return entry


def decode(data: bytes, path: str) -> tuple[list[Entry], int]:
    """The entries of a manifest, and how many bytes they take.

    An append that a crash tore is behind them: a last line that has no end, or zeros in it where
    the disk did not get to.  It was never acted upon, as the appender had not been told that it is
    on the disk.

    Raises:
        Damaged: A line does not verify and is no torn end.
    """
    entries: list[Entry] = []
    at = 0
    while at < len(data):
        end = data.find(b"\n", at)
        line = data[at:] if end < 0 else data[at:end]
        try:
            entry = None if end < 0 else _decoded(line)
        except msgspec.DecodeError as error:
            what = f"line {len(entries) + 1} is of another version: {error}"
            raise Damaged(path, what) from None
        if entry is None:
            is_last = end < 0 or end + 1 == len(data)
            if is_last and (end < 0 or b"\0" in line):
                return entries, at
            raise Damaged(path, f"line {len(entries) + 1}, byte {at}, does not verify")
        if entry.n != len(entries) + 1:
            raise Damaged(path, f"line {len(entries) + 1} is entry {entry.n}: a line is missing")
        entries.append(entry)
        at = end + 1
    return entries, at


@dataclass(slots=True)
class Lineage:
    """One instance of a topic in an export.

    Attributes:
        first, last: The seqs exported, [first, last]; `last` is `first - 1` where none is yet.
        rows, deleted, filtered, corrupt, rounded, lost: Of its commits, added up.
        erased: Rows that were removed later, on request.
        handed: Through this seq the topic's records were given to the export alone; 0: none.
        files: Live data files by path.
    """

    topic: str
    epoch: str
    first: int
    last: int
    rows: int = 0
    deleted: int = 0
    erased: int = 0
    corrupt: int = 0
    rounded: int = 0
    filtered: int = 0
    handed: int = 0
    lost: list[Lost] = field(default_factory=list)
    files: dict[str, File] = field(default_factory=dict)

    @property
    def missed(self) -> int:
        return sum(gap.missed for gap in self.lost)

    def add(self, commit: Commit) -> None:
        self.last = commit.last
        self.rows += commit.rows
        self.deleted += commit.deleted
        self.corrupt += commit.corrupt
        self.rounded += commit.rounded
        self.filtered += commit.filtered
        self.lost += commit.lost
        self.files.update((file.path, file) for file in commit.files)


@dataclass(slots=True)
class Catalogue:
    """What a manifest's entries add up to.

    Attributes:
        n: Number of the last entry.
        lineages: By topic, oldest first: a topic that was deleted and created again has several.
            Empty where the export is of tables, which know their commits themselves.
        handed: Of tables, by topic and instance: `Lineage.handed`.
    """

    settings: Settings
    n: int = 1
    lineages: dict[str, list[Lineage]] = field(default_factory=dict)
    handed: dict[tuple[str, str], int] = field(default_factory=dict)

    def topic_partition(self, name: str) -> int | None:
        """The number of a partition (`partition_name`) of a topic that is known to have several; None: the
        topic is exported as one that has one."""
        topic, number = partition_of(name)
        if number or any(each.startswith(topic + PARTITION_MARK) for each in self.lineages):
            return number
        return None

    def names(self) -> list[str]:
        """The names of all partitions that were exported, by topic and number."""
        return sorted(self.lineages, key=partition_of)

    def names_of(self, topic: str) -> list[str]:
        """The names of the partitions of a topic that were exported, in order."""
        return [name for name in self.names() if public_name(name) == topic]

    def current(self, topic: str) -> Lineage | None:
        """The newest instance of a topic, if any of it was exported."""
        found = self.lineages.get(topic)
        return found[-1] if found else None

    def live(self) -> dict[str, File]:
        """All data files that count, by path."""
        return {
            path: f
            for found in self.lineages.values()
            for ln in found
            for path, f in ln.files.items()
        }

    def add(self, entry: Entry) -> None:
        """Take the next entry into account.

        Raises:
            ValueError: It does not follow from those before.
        """
        if entry.n != self.n + 1:
            raise ValueError(f"entry {entry.n} does not follow {self.n}")
        match entry:
            case Settings():
                raise ValueError("the settings stand at the beginning only")
            case Commit():
                self._commit(entry)
            case Swap():
                self._swap(entry)
            case Handoff() if self.settings.format in TABLES:
                key = (entry.topic, entry.epoch)
                self.handed[key] = max(self.handed.get(key, 0), entry.before_seq - 1)
            case Handoff():
                lineage = self._of(entry.topic, entry.epoch)
                lineage.handed = max(lineage.handed, entry.before_seq - 1)
        self.n = entry.n

    def _of(self, topic: str, epoch: str) -> Lineage:
        lineage = self.current(topic)
        if lineage is None or lineage.epoch != epoch:
            raise ValueError(f"instance {epoch} of {topic} is not the newest")
        return lineage

    def _commit(self, commit: Commit) -> None:
        lineage = self.current(commit.topic)
        if lineage is None or lineage.epoch != commit.epoch:
            lineage = Lineage(commit.topic, commit.epoch, commit.first, commit.first - 1)
            self.lineages.setdefault(commit.topic, []).append(lineage)
        if commit.first != lineage.last + 1:
            raise ValueError(f"seq {commit.first} of {commit.topic} does not follow {lineage.last}")
        lineage.add(commit)

    def _swap(self, swap: Swap) -> None:
        found = self.lineages.get(swap.topic, [])
        lineage = next((each for each in found if each.epoch == swap.epoch), None)
        if lineage is None or not lineage.files.keys() >= set(swap.removed):
            raise ValueError(f"files are removed from {swap.topic} that it does not have")
        for path in swap.removed:
            del lineage.files[path]
        lineage.files.update((file.path, file) for file in swap.added)
        lineage.erased += swap.erased


def first_of(settings: Settings) -> Settings:
    """The first entry of a manifest that begins."""
    return msgspec.structs.replace(settings, n=1, version=VERSION)


def fold(entries: Sequence[Entry], path: str) -> Catalogue:
    """What the entries add up to.

    Raises:
        Damaged: They do not fit together.
    """
    first = entries[0] if entries else None
    if not isinstance(first, Settings):
        raise Damaged(path, "the settings of the export are missing at its beginning")
    if first.version != VERSION:
        raise Damaged(path, f"version {first.version} is not {VERSION}, which this program writes")
    catalogue = Catalogue(first)
    for entry in entries[1:]:
        try:
            catalogue.add(entry)
        except ValueError as error:
            raise Damaged(path, f"line {entry.n}: {error}") from None
    return catalogue
