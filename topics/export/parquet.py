"""Data files in Parquet.

Dictionaries for the columns that repeat, deltas for those that grow, and statistics for all but the
text; row groups of `GROUP_ROWS`, microseconds in UTC.  The metadata of a file says which seqs of
which instance of which topic it is of.  Files of a topic with several partitions have a column `partition`
behind the topic.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as kinds

from topics.arrow.columns import ASKED_FIELDS, FIELDS, PARTITION, schema
from topics.arrow.typed import CORRUPT, typed_rows, typed_schema
from topics.export.codec import Measured, Rendered
from topics.export.lake import Lake
from topics.export.manifest import Damaged

GROUP_ROWS: Final = 1 << 18
GROUP_BYTES: Final = 64 << 20
"""Rows and bytes in memory after which a row group is written; where files are to be smaller, the
bytes of a file."""
REPEATED: Final = ("topic", "node", "tag")
GROWING: Final = ("seq", "ts")

VARIANT: Final = "data_variant"
"""Column behind the others that Spark adds (`topics.spark.variant`).  pyarrow (26) takes it for a
struct of two binaries and does not keep the mark by which Parquet knows a VARIANT, so it is never
read here, and is made again of `data` when a file is written anew."""

MADE_AGAIN: Final = (VARIANT, PARTITION)
"""Columns that are no part of a row, because something else says what they hold: they are not read, and
made again where a file is written anew."""

COMPRESSIONS: Final = ("zstd", "snappy", "lz4", "gzip", "none")


class ParquetCodec:
    """Implements `files.Codec`.

    Args:
        fields: The members of `data`; None: it stays text.
    """

    suffix = "parquet"
    columns = tuple(FIELDS)

    def __init__(self, compression: str = "zstd", fields: pa.Schema | None = None) -> None:
        scanned = schema(self.columns)
        self._fields = fields
        self._compression = compression
        self.schema = scanned if fields is None else typed_schema(scanned, fields)

    def rendered(self, batch: pa.RecordBatch) -> Rendered:
        if self._fields is None:
            return Rendered(batch)
        made = typed_rows(batch, self._fields)
        return Rendered(made.batch, made.bad, made.rounded)

    def writer(
        self,
        sink: Measured,
        about: dict[str, str],
        target_bytes: int,
        topic_partition: int | None = None,
    ) -> "ParquetWriter":
        group_bytes = min(GROUP_BYTES, target_bytes)
        return ParquetWriter(
            sink, self.schema, self._compression, about, group_bytes, topic_partition
        )

    def batches(self, lake: Lake, path: str) -> Iterator[pa.RecordBatch]:
        with lake.open(path) as file:
            try:
                found = pq.ParquetFile(file)
                names = [name for name in found.schema_arrow.names if name not in MADE_AGAIN]
                yield from found.iter_batches(batch_size=1 << 16, columns=names)
            except pa.ArrowException as error:
                raise Damaged(path, str(error)) from None

    def count(self, lake: Lake, path: str) -> int:
        with lake.open(path) as file:
            try:
                return int(pq.read_metadata(file).num_rows)
            except pa.ArrowException as error:
                raise Damaged(path, str(error)) from None


class ParquetWriter:
    """Implements `files.Writer`: gathers rows and writes them as row groups."""

    def __init__(
        self,
        sink: Measured,
        columns: pa.Schema,
        compression: str,
        about: dict[str, str],
        group_bytes: int = GROUP_BYTES,
        topic_partition: int | None = None,
    ) -> None:
        self._rows_schema = columns
        self._topic_partition = topic_partition
        if topic_partition is not None:
            columns = with_partition(columns)
        texts = {"data", "meta", CORRUPT}
        leaves = [(path, kind) for path, kind in _leaves(columns) if path not in texts]
        words = [
            path for path, kind in leaves if path.startswith("data.") and kinds.is_string(kind)
        ]
        self._about = about
        self._group_bytes = group_bytes
        self._writer = pq.ParquetWriter(
            pa.PythonFile(sink, mode="w"),
            columns,
            compression=compression,
            use_dictionary=[*REPEATED, PARTITION, *words],
            column_encoding=dict.fromkeys(GROWING, "DELTA_BINARY_PACKED"),
            write_statistics=[path for path, _ in leaves],
        )
        self._held: list[pa.RecordBatch] = []
        self._held_rows = 0
        self._held_bytes = 0

    def write(self, rows: pa.RecordBatch) -> None:
        self._held.append(rows)
        self._held_rows += len(rows)
        self._held_bytes += rows.nbytes
        if self._held_rows >= GROUP_ROWS or self._held_bytes >= self._group_bytes:
            self._write_group()

    def _write_group(self) -> None:
        table = pa.Table.from_batches(self._held, self._rows_schema)
        if self._topic_partition is not None:
            table = in_partition(table, self._topic_partition)
        self._held, self._held_rows, self._held_bytes = [], 0, 0
        self._writer.write_table(table, row_group_size=2 * GROUP_ROWS)

    def close(self) -> None:
        if self._held:
            self._write_group()
        self._writer.add_key_value_metadata(self._about)
        self._writer.close()


def with_partition(columns: pa.Schema) -> pa.Schema:
    """The columns of rows of a topic with several partitions."""
    return columns.insert(1, pa.field(PARTITION, ASKED_FIELDS[PARTITION]))


def in_partition(rows: pa.Table, number: int) -> pa.Table:
    """The rows with the column that says which partition of their topic they are of."""
    kind = ASKED_FIELDS[PARTITION]
    return rows.add_column(1, PARTITION, pa.repeat(pa.scalar(number, kind), len(rows)))


def _leaves(fields: Iterable[pa.Field], inside: str = "") -> Iterator[tuple[str, pa.DataType]]:
    """Paths and types of the columns that Parquet stores, lists left out.

    A path is of names with dots between them, as the writer's options have it, and a name may have
    dots itself.  Where two columns are called the same by that, an option is for both.
    """
    for field in fields:
        path = inside + field.name
        if kinds.is_struct(field.type):
            yield from _leaves(list(field.type), f"{path}.")
        elif not kinds.is_nested(field.type):
            yield path, field.type
