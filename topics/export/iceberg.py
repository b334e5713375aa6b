"""Topics as Iceberg tables, by pyiceberg: no JVM.

The catalogue is a SQLite file in the export, `catalog.db`, and the namespace `topics`.  The stamp is
in the summary of every snapshot; a snapshot that another program made does not hide it.
"""

import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import (
    And,
    EqualTo,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThanOrEqual,
    Or,
)
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform

from topics.arrow.columns import PARTITION
from topics.export.loading import Unusable
from topics.export.manifest import By
from topics.export.planning import mergeable, topic_directory
from topics.export.table_types import FILES, TableFiles

STAMP: Final = "topics.export"
NAMESPACE: Final = "topics"
CATALOG: Final = "catalog.db"
COMPRESSION: Final = "write.parquet.compression-codec"
CODECS: Final = {"none": "uncompressed"}
FILE_SIZE: Final = "write.target-file-size-bytes"
"""The property of a table after which pyiceberg cuts files."""


PARTITIONS: Final[dict[By, Any]] = {
    "none": None,
    "date": ("ts", DayTransform(), "date"),
    "hour": ("ts", HourTransform(), "hour"),
    "tag": ("tag", IdentityTransform(), "by_tag"),
}
"""Column, transform and name of a partition."""


PROPERTIES: Final = {
    "write.object-storage.enabled": "true",
    "write.object-storage.partitioned-paths": "false",
}
"""Of a table with a partition for each tag: paths have no tag in them, which may be longer than a file
system takes."""


class IcebergTopics:
    """The catalogue of an export."""

    def __init__(self, root: str, by: By, schema: pa.Schema, files: TableFiles = FILES) -> None:
        codec = CODECS.get(files.compression, files.compression)
        self.properties = {FILE_SIZE: str(files.target_bytes), COMPRESSION: codec}
        self.root = os.path.abspath(root)
        self.by = by
        self.schema = schema
        self.catalog = SqlCatalog(
            NAMESPACE, uri=f"sqlite:///{self.root}/{CATALOG}", warehouse=f"file://{self.root}"
        )
        # It keeps connections to its file; from Python 3.13 on, one that nothing closes is warned of.
        weakref.finalize(self, self.catalog.close)
        self.catalog.create_namespace_if_not_exists(NAMESPACE)

    def table(self, topic: str) -> "IcebergTopic":
        return IcebergTopic(self, topic)

    def topics(self) -> list[str]:
        return sorted(name[-1] for name in self.catalog.list_tables(NAMESPACE))


class IcebergTopic:
    """Implements `tables.Table`."""

    def __init__(self, export: IcebergTopics, topic: str) -> None:
        self._export = export
        self._topic = topic

    def _table(self) -> Any:
        try:
            return self._export.catalog.load_table((NAMESPACE, self._topic))
        except NoSuchTableError:
            return None

    def stamp(self) -> str | None:
        table = self._table()
        snapshot = None if table is None else table.current_snapshot()
        while snapshot is not None:
            said = snapshot.summary.additional_properties
            if STAMP in said:
                found: str = said[STAMP]
                return found
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else table.snapshot_by_id(parent)
            if snapshot is None:
                raise Unusable(f'table "{self._topic}" has no snapshot of an export any more')
        return None

    def append(self, rows: pa.Table, stamp: str, last: int, number: int | None) -> None:
        table = self._table() or self._made()
        wanted = self._export.properties
        with table.transaction() as transaction:
            if {name: table.properties.get(name) for name in wanted} != wanted:
                transaction.set_properties(wanted)
            if number is not None and not _has_partitions(table):
                with transaction.update_schema() as update:
                    update.union_by_name(pa.schema([rows.schema.field(PARTITION)]))
            transaction.append(rows, snapshot_properties={STAMP: stamp})

    def _made(self) -> Any:
        table = self._export.catalog.create_table(
            (NAMESPACE, self._topic),
            schema=self._export.schema,
            location=f"file://{self._export.root}/{_directory(self._topic)}",
            properties=PROPERTIES if self._export.by == "tag" else {},
        )
        if (partition := PARTITIONS[self._export.by]) is not None:
            with table.update_spec() as spec:
                spec.add_field(*partition)
        return table

    def delete(self, seqs: Sequence[int], stamp: str, number: int | None = None) -> None:
        table = self._table()
        condition = _of(table, number, In("seq", list(seqs)))
        table.delete(condition, snapshot_properties={STAMP: stamp})

    def rows(
        self, first: int, last: int, columns: Sequence[str] | None = None, number: int | None = None
    ) -> pa.Table:
        table = self._table()
        if table is None:
            return self._export.schema.empty_table()
        names = tuple(columns or self._export.schema.names)
        kept = _of(table, number, _within(first, last))
        return table.scan(row_filter=kept, selected_fields=names).to_arrow()

    def compact(self, target_bytes: int, stamp: str) -> dict[str, int]:
        """Put one file for each partition in place of neighbours that are small together.

        pyiceberg has no verb for it; overwriting the seqs of whole files with their own rows is one
        transaction, and drops the files without a look into them.  The rows of one group are in
        memory meanwhile.
        """
        done = {"before": 0, "after": 0}
        table = self._table()
        for group in mergeable(_stretches(table), target_bytes):
            within = _within(group[0].first, group[-1].last)
            before = len(table.inspect.data_files())
            rows = table.scan(row_filter=within).to_arrow().sort_by("seq")
            with table.transaction() as transaction:
                # It counts bytes in memory, of which a file is a fraction.
                wanted = transaction.table_metadata.properties.get(FILE_SIZE)
                transaction.set_properties({FILE_SIZE: str(1 << 60)})
                transaction.overwrite(rows, within, snapshot_properties={STAMP: stamp})
                if wanted is None:
                    transaction.remove_properties(FILE_SIZE)
                else:
                    transaction.set_properties({FILE_SIZE: wanted})
            removed = sum(stretch.files for stretch in group)
            done["before"] += removed
            done["after"] += len(table.inspect.data_files()) - (before - removed)
        return done


def _directory(topic: str) -> str:
    """The directory of a topic's table; no topic has a `+` in front, and one may be called as the
    catalogue is."""
    name = topic_directory(topic)
    return f"+{name}" if name.startswith(CATALOG) else name


@dataclass(slots=True)
class _Stretch:
    """Seqs [first, last] whose rows are in these files and in no other, and their bytes."""

    first: int
    last: int
    bytes: int
    files: int = 1


def _stretches(table: Any) -> list[_Stretch]:
    """The files of a table; those of one commit, a file for each partition, are one stretch."""
    found = []
    for file in table.inspect.data_files().to_pylist():
        seqs = file["readable_metrics"]["seq"]
        found.append(_Stretch(seqs["lower_bound"], seqs["upper_bound"], file["file_size_in_bytes"]))
    joined: list[_Stretch] = []
    for each in sorted(found, key=lambda stretch: stretch.first):
        if joined and each.first <= joined[-1].last:
            joined[-1].last = max(joined[-1].last, each.last)
            joined[-1].bytes += each.bytes
            joined[-1].files += 1
        else:
            joined.append(each)
    return joined


def _has_partitions(table: Any) -> bool:
    """Whether the rows of a table say which partition of their topic they are of."""
    return PARTITION in table.schema().column_names


def _of(table: Any, number: int | None, condition: Any) -> Any:
    """A condition, of one partition; a row that does not say is of the first."""
    if number is None or not _has_partitions(table):
        return condition
    is_of: Any = EqualTo(PARTITION, number)
    return And(condition, Or(is_of, IsNull(PARTITION)) if number == 0 else is_of)


def _within(first: int, last: int) -> Any:
    return And(GreaterThanOrEqual("seq", first), LessThanOrEqual("seq", last))
