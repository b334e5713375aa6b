"""A topic as a Delta table, by delta-rs (`deltalake`): no JVM.

The stamp is in the custom metadata of every transaction, and the last seq is the table's version of
the application `topics:TOPIC`, as Spark's `txnAppId` has it; of partition 3 of the topic, `topics:TOPIC/3`.
"""

import os
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import (
    CommitProperties,
    DeltaTable,
    Transaction,
    WriterProperties,
    write_deltalake,
)

from topics.arrow.columns import PARTITION
from topics.export.loading import Unusable
from topics.export.manifest import By
from topics.export.planning import partition_value, topic_directory, topic_of_directory
from topics.export.table_types import FILES, TableFiles

STAMP = "topics.export"
CODECS: Final[dict[str, Any]] = {
    "zstd": "ZSTD",
    "snappy": "SNAPPY",
    "lz4": "LZ4_RAW",
    "gzip": "GZIP",
    "none": "UNCOMPRESSED",
}
PARTITIONS: dict[By, list[str]] = {
    "none": [],
    "date": ["date"],
    "hour": ["date", "hour"],
    "tag": ["by_tag"],
}
"""Columns of a partition.  A value in Delta is part of a path, and an empty one is null, so that a tag
cannot be one itself."""


class DeltaTopic:
    """Implements `tables.Table`."""

    def __init__(
        self, root: str, topic: str, by: By, schema: pa.Schema, files: TableFiles = FILES
    ) -> None:
        self._path = os.path.join(os.path.abspath(root), topic_directory(topic))
        self._topic = topic
        self._by = by
        self._schema = schema
        self._target_bytes = files.target_bytes
        self._properties_of_files = WriterProperties(compression=CODECS[files.compression])

    def _table(self) -> DeltaTable | None:
        if not os.path.isdir(os.path.join(self._path, "_delta_log")):
            return None
        return DeltaTable(self._path) if DeltaTable.is_deltatable(self._path) else None

    def _there(self) -> DeltaTable:
        table = self._table()
        assert table is not None
        return table

    def stamp(self) -> str | None:
        table = self._table()
        if table is None:
            return None
        for limit in (1, 100, None):
            for commit in table.history(limit):
                if STAMP in commit:
                    found: str = commit[STAMP]
                    return found
        raise Unusable(f"{self._path}: it is a Delta table that no export made, or its log is cut")

    def append(self, rows: pa.Table, stamp: str, last: int, number: int | None) -> None:
        table = self._table()
        columns = PARTITIONS[self._by] if table is None else table.metadata().partition_columns
        write_deltalake(
            self._path,
            _with_partitions(rows, columns),
            mode="append",
            schema_mode=None if number is None else "merge",
            partition_by=columns or None,
            name=self._topic,
            # The stamps are in the log: what is older than its retention must stay.
            configuration={"delta.enableExpiredLogCleanup": "false"},
            target_file_size=self._target_bytes,
            writer_properties=self._properties_of_files,
            commit_properties=self._properties(stamp, last, number),
        )

    def _properties(
        self, stamp: str, last: int | None = None, number: int | None = None
    ) -> CommitProperties:
        app = f"topics:{self._topic}" + (f"/{number}" if number else "")
        done = None if last is None else [Transaction(app, last)]
        return CommitProperties(custom_metadata={STAMP: stamp}, app_transactions=done)

    def delete(self, seqs: Sequence[int], stamp: str, number: int | None = None) -> None:
        table = self._there()
        condition = f"seq IN ({', '.join(map(str, seqs))})"
        if number is not None and _has_partitions(table):
            other = f" OR {PARTITION} IS NULL" if number == 0 else ""
            condition += f" AND ({PARTITION} = {number}{other})"
        table.delete(condition, commit_properties=self._properties(stamp))

    def rows(
        self, first: int, last: int, columns: Sequence[str] | None = None, number: int | None = None
    ) -> pa.Table:
        table = self._table()
        if table is None:
            return self._schema.empty_table()
        names = list(columns or self._schema.names)
        seq = pc.field("seq")
        kept = (seq >= first) & (seq <= last)
        dataset = table.to_pyarrow_dataset()
        if number is None or not _has_partitions(table):
            return dataset.to_table(columns=names, filter=kept)
        # A look at the rows: pyarrow takes a file without the column for one without a null.
        found = dataset.to_table(columns=list(dict.fromkeys([*names, PARTITION])), filter=kept)
        numbers = found.column(PARTITION).fill_null(0)
        return found.filter(pc.equal(numbers, number)).select(names)

    def compact(self, target_bytes: int, stamp: str) -> dict[str, int]:
        done = self._there().optimize.compact(
            target_size=target_bytes,
            writer_properties=self._properties_of_files,
            commit_properties=self._properties(stamp),
        )
        return {"before": done["numFilesRemoved"], "after": done["numFilesAdded"]}


def _has_partitions(table: DeltaTable) -> bool:
    """Whether the rows of a table say which partition of their topic they are of."""
    return any(field.name == PARTITION for field in table.schema().fields)


def _with_partitions(rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    """The rows with the columns that they are partitioned by."""
    if "date" in columns:
        naive = rows.column("ts").cast(pa.timestamp("us"))
        rows = rows.append_column("date", naive.cast(pa.date32(), safe=False))
        if "hour" in columns:
            rows = rows.append_column("hour", pc.hour(naive).cast(pa.int32()))
    if "by_tag" in columns:
        tags = rows.column("tag").combine_chunks().dictionary_encode()
        values = [partition_value(tag) for tag in tags.dictionary.to_pylist()]
        rows = rows.append_column("by_tag", pa.array(values, pa.string()).take(tags.indices))
    return rows


def topics(files: list[str]) -> list[str]:
    """Names of the topics that have a table, of the files of an export."""
    parts = (path.split("/") for path in files)
    return sorted({topic_of_directory(p[0]) for p in parts if len(p) == 3 and p[1] == "_delta_log"})
