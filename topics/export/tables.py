"""Exports into tables, one for each topic: Delta or Iceberg.

A table's own transactions are the commits: each carries a stamp, which says how far the export is and
what it adds up to.  A run compares the stamp with the topic and goes on behind it, so nothing is
committed twice.  The manifest has the settings, and what was handed off.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from topics.arrow.columns import schema
from topics.arrow.loss import Gap, titled
from topics.arrow.source import TopicSource, Wanted, now_ms
from topics.distribution import install
from topics.export.lake import Lake
from topics.export.loading import Unusable, load
from topics.export.manifest import Catalogue, Commit, Damaged, Lineage, Lost, Settings
from topics.export.parquet import ParquetCodec, in_partition
from topics.export.planning import META, topic_directory
from topics.export.reconcile import Reconciled, known_of, reconcilable
from topics.export.schema_file import fields_of
from topics.export.table_types import FILES, TableFiles, stored, unfit_path
from topics.export.target import NOT_OURS, Chunk, Target, open_target, schema_of, wall_ms
from topics.export.verify import Compared, compare_parts
from topics.export.writing import Piece, ReadProgress, filtered_of, records
from topics.protocol.model.names import partition_of, public_name

STAMP: Final = "topics.export"
"""Key of the stamp in a table's transactions."""
WINDOW_SEQS: Final = 1 << 18
DELETE_SEQS: Final = 5000
"""Seqs of one transaction that deletes: they are a list in its condition."""


class Stamp(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a table holds after a transaction, as `manifest.Lineage`.

    Attributes:
        epoch: Empty where nothing of the first partition was exported yet.
        others: Of a topic with several partitions, the stamps of those behind the first.
    """

    topic: str
    epoch: str
    first: int
    last: int
    rows: int
    deleted: int
    erased: int
    corrupt: int
    lost: tuple[Lost, ...]
    rounded: int = 0
    filtered: int = 0
    others: tuple["Stamp", ...] = ()


class Table(Protocol):
    """One table, of a topic with all its partitions.  Every change is one transaction, which carries the stamp.

    `number` says which partition's rows are meant, where they have a column that tells; a row that was
    written before there was one is of the first.  None: the topic has one partition.
    """

    def stamp(self) -> str | None:
        """The last stamp; None where there is no table yet.

        Raises:
            Unusable: There is a table, and no stamp in it.
        """

    def append(self, rows: pa.Table, stamp: str, last: int, number: int | None) -> None:
        """Add rows; the first call makes the table, and the first with a column that it lacks adds that.

        Args:
            last: The seq that the table, or its partition, then goes through.
        """

    def delete(self, seqs: Sequence[int], stamp: str, number: int | None = None) -> None: ...

    def rows(
        self, first: int, last: int, columns: Sequence[str] | None = None, number: int | None = None
    ) -> pa.Table:
        """Rows with a seq of [first, last], in any order; of those columns, or of all but the partition."""

    def compact(self, target_bytes: int, stamp: str) -> dict[str, int]:
        """Merge small files; returns how many became how many.  Raises Unusable: It cannot."""


@dataclass(slots=True)
class TableChunk(Chunk):
    """A chunk in memory."""

    table: Any = None
    number: int | None = None


class Tables:
    """All tables of an export.  Implements `run.Exporting`.

    Args:
        target: Open, where this process writes; None: for reading only.
    """

    def __init__(
        self,
        lake: Lake,
        catalogue: Catalogue,
        target: Target | None = None,
        files: TableFiles = FILES,
    ) -> None:
        self._lake = lake
        self._catalogue = catalogue
        self._target = target
        settings = catalogue.settings
        fields = None if settings.fields is None else fields_of(settings.fields)
        self._codec = ParquetCodec("zstd", fields)
        self._stored = stored(self._codec.schema)
        self._open = opener(lake, settings, files)
        self._tables: dict[str, Table] = {}

    def __enter__(self) -> "Tables":
        return self

    def __exit__(self, *_: object) -> None:
        if self._target is not None:
            self._target.close()

    @property
    def settings(self) -> Settings:
        return self._catalogue.settings

    def table(self, name: str) -> Table:
        """The table of a topic, and of each of its partitions."""
        topic = public_name(name)
        if topic not in self._tables:
            self._tables[topic] = self._open(topic)
        return self._tables[topic]

    def lineages(self) -> dict[str, Lineage]:
        """How far each partition is exported, by its name."""
        found: dict[str, Lineage] = {}
        for topic in topics_of(self._lake, self.settings):
            found |= self._lineages(topic)
        return found

    def lineage(self, topic: str) -> Lineage | None:
        return self._lineages(topic).get(topic)

    def _lineages(self, name: str) -> dict[str, Lineage]:
        """Of all partitions of a topic, in order."""
        text = self.table(name).stamp()
        if text is None:
            return {}
        first = msgspec.json.decode(text, type=Stamp)
        return {each.topic: self._lineage(each) for each in (first, *first.others) if each.epoch}

    def _number(self, name: str) -> int | None:
        """As `Catalogue.topic_partition`."""
        number = partition_of(name)[1]
        return number if number or any(map(_is_other, self._lineages(name))) else None

    def _stamped(self, lineage: Lineage) -> str:
        """The stamp of a table, with what becomes of one partition."""
        found = self._lineages(lineage.topic) | {lineage.topic: lineage}
        topic = public_name(lineage.topic)
        first = found.pop(topic, None) or Lineage(topic, "", 1, 0)
        others = tuple(_stamp(found[name]) for name in sorted(found, key=partition_of))
        stamp = msgspec.structs.replace(_stamp(first), others=others)
        return msgspec.json.encode(stamp).decode()

    def _lineage(self, stamp: Stamp) -> Lineage:
        return Lineage(
            stamp.topic,
            stamp.epoch,
            stamp.first,
            stamp.last,
            stamp.rows,
            stamp.deleted,
            stamp.erased,
            stamp.corrupt,
            stamp.rounded,
            stamp.filtered,
            self._catalogue.handed.get((stamp.topic, stamp.epoch), 0),
            list(stamp.lost),
        )

    # ------------------------------------------------------------------ an export

    def chunk(self, source: TopicSource, piece: Piece, progress: ReadProgress) -> Chunk:
        lost: list[Lost] = []
        each, found = piece.seqs, records(source, piece, lost, progress)
        made = [self._codec.rendered(batch) for batch in found]
        rows = sum(len(part.rows) for part in made)
        return TableChunk(
            each.topic,
            each.epoch,
            each.first_seq,
            each.last_seq,
            rows=rows,
            corrupt=sum(part.corrupt for part in made),
            rounded=sum(part.rounded for part in made),
            filtered=filtered_of(source, piece, rows, lost),
            lost=lost,
            number=self._number_of(each.topic, source),
            table=pa.Table.from_batches([part.rows for part in made], self._codec.schema),
        )

    def _number_of(self, name: str, source: TopicSource) -> int | None:
        number = self._number(name)
        return 0 if number is None and len(source.partitions(name)) > 1 else number

    def commit(self, chunk: Chunk) -> Commit:
        assert isinstance(chunk, TableChunk)
        lineage = self.lineage(chunk.topic)
        if lineage is None:
            lineage = Lineage(chunk.topic, chunk.epoch, chunk.first, chunk.first - 1)
        if lineage.epoch != chunk.epoch:
            raise Unusable(
                f"{titled(chunk.topic)} was deleted and created again, and a table has one instance; "
                "export it to another directory"
            )
        # Compare and skip: a transaction whose answer was lost is there, and shows here.
        assert chunk.first == lineage.last + 1, "a chunk follows the table's last"
        commit = chunk.commit(at_ms=wall_ms())
        lineage.add(commit)
        rows = chunk.table.cast(self._stored)
        if chunk.number is not None:
            rows = in_partition(rows, chunk.number)
        stamp = self._stamped(lineage)
        self.table(chunk.topic).append(rows, stamp, chunk.last, chunk.number)
        return commit

    def discard(self, chunk: Chunk) -> None:
        """It is in memory."""

    def check(self, commit: Commit) -> None:
        seqs = self._seqs(commit.topic, commit.first, commit.last)
        if len(seqs) != commit.rows:
            what = f"seqs {commit.first} to {commit.last} have {len(seqs)} rows, not {commit.rows}"
            raise Damaged(topic_directory(commit.topic), what)

    def tidy(self, topic: str) -> None:
        """A table's own tools do it, or `topics export compact`."""

    def _seqs(self, topic: str, first: int, last: int) -> NDArray[np.int64]:
        found = self.table(topic).rows(first, last, ["seq"], self._number(topic))
        return np.sort(found.column("seq").to_numpy())

    # ------------------------------------------------------------------ afterwards

    def verify(self, topic: str) -> None:
        lineage = self.lineage(topic)
        if lineage is None:
            return
        seqs = self._seqs(topic, lineage.first, lineage.last)
        where, expected = topic_directory(topic), lineage.rows - lineage.erased
        if len(seqs) != expected:
            raise Damaged(where, f"the table has {len(seqs)} rows, and {expected} were exported")
        if len(np.unique(seqs)) != len(seqs):
            raise Damaged(where, "the table has a record twice")

    def strangers(self) -> list[str]:
        """Files in the directory that are of no table of the export."""
        topics = topics_of(self._lake, self.settings)
        # A table's directory is as it is called, or with a `+` in front (`iceberg`).
        ours = {META, *NOT_OURS, *map(topic_directory, topics)}
        tops = ((path, path.split("/")[0]) for path in self._lake.files())
        return [
            path
            for path, top in tops
            if top.removeprefix("+") not in ours and not path.startswith("catalog.db")
        ]

    def compare(self, source: TopicSource, topic: str) -> Compared | None:
        """As `verify.compare`."""
        lineage = self.lineage(topic)
        if lineage is None or source.bounds(topic).epoch != lineage.epoch:
            return None
        prefix = self.settings.tag_prefix
        wanted = Wanted(schema(self._codec.columns), tag_prefix=prefix, asof_ms=now_ms())
        found = source.read(topic, lineage.first, lineage.last, wanted)
        there = (self._codec.rendered(b).rows for b in found if not isinstance(b, Gap))
        return compare_parts(
            source, lineage, wanted, iter([(self._windows(topic, lineage), there)])
        )

    def _windows(self, topic: str, lineage: Lineage) -> Iterator[pa.RecordBatch]:
        table, number = self.table(topic), self._number(topic)
        for first in range(lineage.first, lineage.last + 1, WINDOW_SEQS):
            last = min(first + WINDOW_SEQS - 1, lineage.last)
            rows = table.rows(first, last, None, number).select(self._codec.schema.names)
            ordered = rows.sort_by("seq").cast(self._codec.schema).combine_chunks()
            yield from ordered.to_batches()

    def reconcile(self, source: TopicSource, topic: str) -> int:
        return self.reconciled(source, topic).erased

    def reconciled(self, source: TopicSource, topic: str) -> Reconciled:
        """As `reconcile.reconcile`."""
        done = Reconciled(topic)
        lineage = reconcilable(self.lineage(topic), source, done)
        if lineage is None:
            return done
        known = known_of(source, lineage, lineage.first, lineage.last)
        seqs = self._seqs(topic, lineage.first, lineage.last)
        dead, number = seqs[~known(seqs)].tolist(), self._number(topic)
        for at in range(0, len(dead), DELETE_SEQS):
            some = dead[at : at + DELETE_SEQS]
            lineage.erased += len(some)
            self.table(topic).delete(some, self._stamped(lineage), number)
            done.erased += len(some)
        return done

    def hand_off(self, topic: str, epoch: str, before_seq: int) -> None:
        assert self._target is not None
        self._target.hand_off(topic, epoch, before_seq)

    def compact(self, topic: str, target_bytes: int) -> dict[str, int]:
        """Merge the small files of a table; how many became how many."""
        table = self.table(topic)
        stamp = table.stamp()
        assert stamp is not None
        return table.compact(target_bytes, stamp)

    def topics(self) -> list[str]:
        """Names of the topics that have a table."""
        return topics_of(self._lake, self.settings)


def _is_other(name: str) -> bool:
    return partition_of(name)[1] > 0


def _stamp(lineage: Lineage) -> Stamp:
    return Stamp(
        lineage.topic,
        lineage.epoch,
        lineage.first,
        lineage.last,
        lineage.rows,
        lineage.deleted,
        lineage.erased,
        lineage.corrupt,
        tuple(lineage.lost),
        lineage.rounded,
        lineage.filtered,
    )


def opener(lake: Lake, settings: Settings, files: TableFiles = FILES) -> Callable[[str], Table]:
    """What opens the table of a topic.

    Raises:
        Unusable: Its library is not installed, or takes no such path.
    """
    if (character := unfit_path(os.path.abspath(lake.path))) is not None:
        raise Unusable(
            f"{lake.path}: the path of a {settings.format} table has no {character!r}; "
            "choose another directory"
        )
    columns = stored(schema_of(settings))
    try:
        if settings.format == "delta":
            from topics.export.delta import DeltaTopic

            return lambda topic: DeltaTopic(lake.path, topic, settings.by, columns, files)
        from topics.export.iceberg import IcebergTopics

        return IcebergTopics(lake.path, settings.by, columns, files).table
    except ImportError as error:
        raise Unusable(
            f"--format {settings.format} needs {install(settings.format)} ({error})"
        ) from None


def topics_of(lake: Lake, settings: Settings) -> list[str]:
    """Names of the topics that have a table."""
    if settings.format == "delta":
        from topics.export.delta import topics

        return topics(lake.files())
    with suppress(FileNotFoundError):
        from topics.export.iceberg import IcebergTopics

        return IcebergTopics(lake.path, settings.by, stored(schema_of(settings))).topics()
    return []


def open_tables(lake: Lake, settings: Settings | None = None, files: TableFiles = FILES) -> Tables:
    """Open tables to write them, as the only export that does.  Raises as `target.open_target`."""
    target = open_target(lake, settings)
    try:
        return Tables(lake, target.catalogue, target, files)
    except BaseException:
        target.close()
        raise


def tables_of(lake: Lake) -> Tables:
    """Open tables to read them.  Raises Unusable, Damaged."""
    return Tables(lake, load(lake))
