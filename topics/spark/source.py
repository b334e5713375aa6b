"""`TopicsDataSource`: what Spark knows as `format("topics")`.

Owns nothing: it checks options and hands them to the reader or the writer.  Spark imports this
module in a process of its own for every lookup, so what needs pyarrow is imported when it is used.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from topics.distribution import install

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from topics.spark.options import ReadOptions, WriteOptions


@contextmanager
def _explained() -> Iterator[None]:
    """Turns what a user can mend into one line; a module that is missing here, too."""
    try:
        from topics.spark.errors import explained
    except ImportError as error:
        raise RuntimeError(_missing(error)) from None
    try:
        with explained():
            yield
    except ImportError as error:
        raise RuntimeError(_missing(error)) from None


def _missing(error: ImportError) -> str:
    return (
        f"the Python of Spark's workers, {sys.executable}: {error}; set PYSPARK_PYTHON to one with "
        f"the extra `spark` of topics ({install('spark')}) before the session starts, or use topics.spark.session(); "
        "`topics spark doctor` checks it"
    )


def _require_spark(schema: object) -> None:
    """Raises SparkFailure: The engine is another one, whose tasks do not say which they are."""
    from topics.spark.errors import SparkFailure

    if not hasattr(schema, "fields"):
        raise SparkFailure("only Spark writes topics; Sail reads them")


class TopicsDataSource(DataSource):
    """Records of topics as rows, and rows as records of topics (docs/spark.md)."""

    @classmethod
    def name(cls) -> str:
        return "topics"

    def schema(self) -> "StructType":
        """The columns of a read without `.schema(...)`."""
        with _explained():
            from topics.spark.columns import default_schema
            from topics.spark.inference import has_partitions, inferred

            options = self._read_options()
            found = default_schema(options, has_partitions=has_partitions(options))
            return inferred(found, options) if options.infer_schema else found

    def reader(self, schema: "StructType") -> "DataSourceReader":
        with _explained():
            from topics.spark.batch import TopicsReader

            return TopicsReader(self._read_options(), schema)

    def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":
        with _explained():
            from topics.spark.stream import TopicsStreamReader

            return TopicsStreamReader(self._read_options(is_stream=True), schema)

    def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceWriter":
        with _explained():
            from topics.spark.writer import TopicsWriter, refuse_overwrite

            _require_spark(schema)
            refuse_overwrite(overwrite)
            return TopicsWriter(self._write_options(), schema)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "DataSourceStreamWriter":
        with _explained():
            from topics.spark.writer import TopicsStreamWriter, refuse_overwrite

            refuse_overwrite(overwrite)
            return TopicsStreamWriter(self._write_options(), schema)

    def _read_options(self, *, is_stream: bool = False) -> "ReadOptions":
        from topics.spark.options import read_options

        return read_options(self.options, is_stream=is_stream, cores=len(os.sched_getaffinity(0)))

    def _write_options(self) -> "WriteOptions":
        from topics.spark.options import write_options

        return write_options(self.options)
