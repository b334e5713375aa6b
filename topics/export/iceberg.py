"""Topics as Iceberg tables, by pyiceberg: no JVM.

The catalogue is a SQLite file in the export, `catalog.db`, and the namespace `topics`.  The stamp is
in the summary of every snapshot; a snapshot that another program made does not hide it.
"""

import os
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import And, GreaterThanOrEqual, In, LessThanOrEqual
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform

from topics.export.manifest import By
from topics.export.planning import topic_directory
from topics.export.target import Unusable

STAMP: Final = "topics.export"
NAMESPACE: Final = "topics"


PARTITIONS: Final[dict[By, Any]] = {
    "none": None,
    "date": ("ts", DayTransform(), "date"),
    "hour": ("ts", HourTransform(), "hour"),
    "tag": ("tag", IdentityTransform(), "by_tag"),
}
"""Column, transform and name of a partition."""


class IcebergTopics:
    """The catalogue of an export."""

    def __init__(self, root: str, by: By, schema: pa.Schema) -> None:
        self.root = os.path.abspath(root)
        self.by = by
        self.schema = schema
        self.catalog = SqlCatalog(
            NAMESPACE, uri=f"sqlite:///{self.root}/catalog.db", warehouse=f"file://{self.root}"
        )
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

    def append(self, rows: pa.Table, stamp: str, last: int) -> None:
        table = self._table() or self._made()
        table.append(rows, snapshot_properties={STAMP: stamp})

    def _made(self) -> Any:
        table = self._export.catalog.create_table(
            (NAMESPACE, self._topic),
            schema=self._export.schema,
            location=f"file://{self._export.root}/{topic_directory(self._topic)}",
        )
        if (partition := PARTITIONS[self._export.by]) is not None:
            with table.update_spec() as spec:
                spec.add_field(*partition)
        return table

    def delete(self, seqs: Sequence[int], stamp: str) -> None:
        self._table().delete(In("seq", list(seqs)), snapshot_properties={STAMP: stamp})

    def rows(self, first: int, last: int, columns: Sequence[str] | None = None) -> pa.Table:
        table = self._table()
        if table is None:
            return self._export.schema.empty_table()
        within = And(GreaterThanOrEqual("seq", first), LessThanOrEqual("seq", last))
        names = tuple(columns or self._export.schema.names)
        return table.scan(row_filter=within, selected_fields=names).to_arrow()

    def compact(self, target_bytes: int, stamp: str) -> dict[str, int]:
        raise Unusable("pyiceberg does not compact; Spark's rewrite_data_files does")
