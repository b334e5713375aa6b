"""One export on disk: its lock, its manifest, its commits, and what a crash left.

A commit is: files are written under `_topics_export/staged` and synced; they are renamed to their
places and the directories synced; then its entry is appended to the manifest and synced.  So of an
export that was cut at any moment, each file that the manifest names is whole and in its place, and
files that it does not name are removed when the export is next opened, before anything is written.

A swap (`compact`, `reconcile`, `repair`) puts files in place of others.  There the entry comes first:
then the old files are unlinked, then the new ones renamed.  So no record is ever visible twice to a
reader of the directory.  A swap that was cut is finished when the export is next opened.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

import msgspec
import pyarrow as pa

from topics.export.codec import Codec
from topics.export.jsonl import JsonlCodec
from topics.export.lake import Lake, directory, quietly, sync_directories_of
from topics.export.loading import Unusable
from topics.export.manifest import (
    Catalogue,
    Commit,
    Damaged,
    Entry,
    File,
    Handoff,
    Lineage,
    Lost,
    Settings,
    Swap,
    decode,
    encode,
    first_of,
    fold,
)
from topics.export.parquet import ParquetCodec
from topics.export.planning import (
    MANIFEST,
    META,
    STAGED,
    data_path,
    file_name,
    is_data_name,
    staged_path,
)
from topics.export.schema_file import fields_of

E = TypeVar("E", Commit, Swap, Handoff)

NOT_OURS: Final = ("lost+found",)
"""Names that an empty directory may have in it."""


@dataclass(frozen=True, slots=True)
class Staged:
    """A whole, durable file that is not in its place yet.

    Attributes:
        path: Where it lies.
        partition: Directory within that of the topic; empty for none.
    """

    path: str
    partition: str
    rows: int
    first: int
    last: int
    bytes: int
    sha256: str


@dataclass(slots=True)
class Chunk:
    """Seqs [first, last] of a topic as they were read, ready to be committed."""

    topic: str
    epoch: str
    first: int
    last: int
    rows: int = 0
    corrupt: int = 0
    rounded: int = 0
    filtered: int = 0
    lost: list[Lost] = field(default_factory=list)
    files: list[Staged] = field(default_factory=list)

    def commit(self, files: Sequence[File] = (), *, at_ms: int = 0) -> Commit:
        """What becomes of every seq of it: what is in no file, not lost and not filtered was
        deleted."""
        elsewhere = self.rows + self.filtered + sum(gap.missed for gap in self.lost)
        return Commit(
            topic=self.topic,
            epoch=self.epoch,
            first=self.first,
            last=self.last,
            rows=self.rows,
            deleted=self.last - self.first + 1 - elsewhere,
            filtered=self.filtered,
            lost=tuple(self.lost),
            files=tuple(files),
            corrupt=self.corrupt,
            rounded=self.rounded,
            at_ms=at_ms,
        )


WithVariants: TypeAlias = Callable[[Lake, Sequence[Staged], str], list[Staged]]
"""Gives staged files, of the compression that is named, their VARIANT; raises Unusable, Damaged, OSError."""


class Target:
    """An export that this process writes.

    Attributes:
        catalogue: What was committed.
        codec: Of its data files.
        notes: What was found and mended when it was opened, for people.
    """

    def __init__(
        self,
        lake: Lake,
        catalogue: Catalogue,
        codec: Codec,
        now_ms: Callable[[], int],
        compression: str = "zstd",
        with_variants: WithVariants | None = None,
    ) -> None:
        self.lake = lake
        self.catalogue = catalogue
        self.codec = codec
        self.notes: list[str] = []
        self._now_ms = now_ms
        self._compression = compression
        self._with_variants = with_variants
        self._is_broken = False
        self._made: set[str] = set()

    @property
    def settings(self) -> Settings:
        return self.catalogue.settings

    def lineage(self, topic: str) -> Lineage | None:
        return self.catalogue.current(topic)

    def close(self) -> None:
        self.lake.close()

    def __enter__(self) -> "Target":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------ what is written

    def commit(self, chunk: Chunk) -> Commit:
        """Make a chunk part of the export; durable when this returns.

        Raises:
            OSError: It is not committed, or whether it is shows when the export is next opened.
            Unusable: Its files want a VARIANT, and there is no Spark.
        """
        chunk.files = self._finished(chunk.files)
        files = self._named(chunk.topic, chunk.files)
        commit = chunk.commit(files)
        self._place([(s.path, f.path) for s, f in zip(chunk.files, files, strict=True)])
        return self._append(commit)

    def swap(self, swap: Swap, added: Sequence[Staged]) -> Swap:
        """Put files in place of others; durable when this returns.

        Args:
            swap: Without `added`.
        """
        added = self._finished(added)
        files = self._named(swap.topic, added)
        waiting = [(s.path, staged_path(f.path)) for s, f in zip(added, files, strict=True)]
        for source, target in waiting:
            self.lake.rename(source, target)
        self.lake.sync_directory(STAGED)
        made = self._append(msgspec.structs.replace(swap, added=tuple(files)))
        self._exchange(made)
        return made

    def hand_off(self, topic: str, epoch: str, before_seq: int) -> Handoff:
        """Write down that the topic's records below a seq are about to be deleted."""
        return self._append(Handoff(topic, epoch, before_seq))

    def _finished(self, staged: Sequence[Staged]) -> list[Staged]:
        """The files with what only Spark writes.  Raises Unusable: Spark was not given."""
        if not self.settings.has_variant or not staged:
            return list(staged)
        if self._with_variants is None:
            raise Unusable(
                f"{self.lake.path}: its files have a VARIANT, which only Spark writes: it was not given"
            )
        return self._with_variants(self.lake, staged, self._compression)

    def _named(self, topic: str, staged: Sequence[Staged]) -> list[File]:
        n = self.catalogue.n + 1
        return [
            File(
                path=data_path(
                    topic, s.partition, file_name(s.first, s.last, n, self.codec.suffix)
                ),
                rows=s.rows,
                first=s.first,
                last=s.last,
                bytes=s.bytes,
                sha256=s.sha256,
            )
            for s in staged
        ]

    def _place(self, renames: Sequence[tuple[str, str]]) -> None:
        """Rename files to where they may be seen, durably."""
        for source, target in renames:
            parent = directory(target)
            if parent not in self._made:
                self.lake.make_directory(parent)
                self._made.add(parent)
            self.lake.rename(source, target)
        sync_directories_of(self.lake, [target for _, target in renames])

    def _exchange(self, swap: Swap) -> None:
        for path in swap.removed:
            with suppress(FileNotFoundError):
                self.lake.unlink(path)
        # Durable before the new ones are seen: else a power cut could bring the old ones back
        # beside them.
        sync_directories_of(self.lake, list(swap.removed))
        self._place([(staged_path(file.path), file.path) for file in swap.added])

    def _append(self, entry: E) -> E:
        """The entry, with its number and time, at the end of the manifest."""
        if self._is_broken:
            raise OSError(f"{MANIFEST} could not be written before; start again")
        numbered = msgspec.structs.replace(entry, n=self.catalogue.n + 1, at_ms=self._now_ms())
        line = encode(numbered)
        # After an error the entry may be there, in part or as a whole: only a new start can tell.
        self._is_broken = True
        self.lake.append(MANIFEST, line)
        self._is_broken = False
        self.catalogue.add(numbered)
        return numbered

    def discard(self, chunk: Chunk) -> None:
        """Remove the files of a chunk that is not to be committed."""
        for file in chunk.files:
            quietly(lambda path=file.path: self.lake.unlink(path))  # type: ignore[misc]

    # ------------------------------------------------------------------ what a crash left

    def mend(self) -> None:
        """Finish a swap that was cut, and remove what no entry names."""
        live = self.catalogue.live()
        there = set(self.lake.files())
        waiting = {staged_path(path): path for path in live if path not in there}
        strangers = [path for path in sorted(there) if self._is_orphan(path, live, waiting)]
        for path in strangers:
            self.lake.unlink(path)
        sync_directories_of(self.lake, strangers)
        self._place([(path, waiting[path]) for path in sorted(waiting.keys() & there)])
        if strangers:
            noun = "file" if len(strangers) == 1 else "files"
            self.notes.append(f"{len(strangers)} {noun} of an interrupted run removed")

    def _is_orphan(self, path: str, live: dict[str, File], waiting: dict[str, str]) -> bool:
        if path.startswith(f"{STAGED}/"):
            return path not in waiting
        # Whatever the topic: its first commit may have been cut before any entry named it.
        is_ours = "/" in path and not path.startswith(f"{META}/")
        return is_ours and is_data_name(path.rpartition("/")[2]) and path not in live


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def codec_of(settings: Settings, compression: str | None = None) -> Codec:
    """The codec of an export's data files."""
    fields = None if settings.fields is None else fields_of(settings.fields)
    if settings.format == "jsonl":
        return JsonlCodec(compression or "none")
    return ParquetCodec(compression or "zstd", fields)


def schema_of(settings: Settings) -> pa.Schema:
    """The columns of an export in Parquet, and, without types, those of the lines of any other."""
    return ParquetCodec(
        "none", None if settings.fields is None else fields_of(settings.fields)
    ).schema


def open_target(
    lake: Lake,
    settings: Settings | None = None,
    *,
    compression: str | None = None,
    now_ms: Callable[[], int] = wall_ms,
    with_variants: WithVariants | None = None,
) -> Target:
    """Open an export to write it, as its only writer; a crash's leavings are removed.

    Args:
        settings: Of a new export; of one that is there they must be the same.  None: it must be
            there.
        compression: Of files that are written from now on; None: the format's own.
        with_variants: What adds a VARIANT to files, of an export that has one.

    Raises:
        Unusable: Another process writes it, it has other settings, or the directory is something
            else's.
        Damaged: The manifest does not verify.
        OSError: The disk, or its rights.
    """
    _require_ours(lake, may_be_new=settings is not None)
    lake.make_directory(STAGED)
    if not lake.lock():
        raise Unusable(f"{lake.path}: another export is writing it; wait for it, or stop it")
    try:
        catalogue, notes = _loaded(lake, settings)
        codec = codec_of(catalogue.settings, compression)
        target = Target(lake, catalogue, codec, now_ms, compression or "zstd", with_variants)
        target.notes += notes
        target.mend()
    except BaseException:
        lake.close()
        raise
    return target


def _require_ours(lake: Lake, *, may_be_new: bool) -> None:
    try:
        found = lake.files()
    except FileNotFoundError:
        found = []
    if any(path.startswith(f"{META}/") for path in found):
        return
    if not may_be_new:
        raise Unusable(f"{lake.path}: there is no export in it")
    if any(path.split("/")[0] not in NOT_OURS for path in found):
        raise Unusable(
            f"{lake.path}: it is not empty and no export is in it; choose another directory"
        )


def _loaded(lake: Lake, settings: Settings | None) -> tuple[Catalogue, list[str]]:
    notes = []
    try:
        data = lake.read(MANIFEST)
    except FileNotFoundError:
        data = b""
    entries, size = decode(data, MANIFEST)
    if size < len(data):
        lake.truncate(MANIFEST, size)
        notes.append(f"{len(data) - size} torn bytes cut from the manifest")
    if not entries:
        if settings is None:
            raise Unusable(f"{lake.path}: its manifest is empty; export to it again")
        first: Entry = first_of(settings)
        lake.append(MANIFEST, encode(first))
        lake.sync_directory(META)
        entries = [first]
    catalogue = fold(entries, MANIFEST)
    if settings is not None:
        _require_same(lake, catalogue.settings, settings)
    return catalogue, notes


def _require_same(lake: Lake, there: Settings, given: Settings) -> None:
    for name in ("format", "by", "tag_prefix", "fields", "has_variant"):
        old, new = getattr(there, name), getattr(given, name)
        if old != new:
            is_schema = name in ("fields", "has_variant")
            option = "data-schema" if is_schema else name.replace("_", "-")
            shown = "" if is_schema else f" {old or 'none'}, not {new or 'none'}"
            raise Unusable(
                f"{lake.path}: it was exported with another --{option}{':' + shown if shown else ''};"
                " give the same, or another directory"
            )


__all__ = ["Chunk", "Damaged", "Staged", "Target", "Unusable", "open_target"]
