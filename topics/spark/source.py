"""`TopicsDataSource`: what Spark knows as `format("topics")`.

Owns nothing: it checks options and hands them to the reader or the writer.  Spark imports this
module in a process of its own for every lookup, so what needs pyarrow is imported when it is used.
"""

import os
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from topics.spark.options import ReadOptions


class TopicsDataSource(DataSource):
    """Records of topics as rows, and rows as records of topics (docs/spark.md)."""

    @classmethod
    def name(cls) -> str:
        return "topics"

    def schema(self) -> "StructType":
        """The columns of a read without `.schema(...)`."""
        from topics.spark.errors import explained

        with explained():
            from topics.spark.columns import default_schema
            from topics.spark.inference import inferred

            options = self._read_options()
            found = default_schema(options)
            return inferred(found, options) if options.infer_schema else found

    def reader(self, schema: "StructType") -> "DataSourceReader":
        from topics.spark.batch import TopicsReader
        from topics.spark.errors import explained

        with explained():
            return TopicsReader(self._read_options(), schema)

    def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":
        from topics.spark.errors import explained
        from topics.spark.stream import TopicsStreamReader

        with explained():
            return TopicsStreamReader(self._read_options(is_stream=True), schema)

    def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceWriter":
        from topics.spark.errors import explained
        from topics.spark.writer import TopicsWriter, refuse_overwrite

        with explained():
            refuse_overwrite(overwrite)
            return TopicsWriter(self._write_options(), schema)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "DataSourceStreamWriter":
        from topics.spark.errors import explained
        from topics.spark.writer import TopicsStreamWriter, refuse_overwrite

        with explained():
            refuse_overwrite(overwrite)
            return TopicsStreamWriter(self._write_options(), schema)

    def _read_options(self, *, is_stream: bool = False) -> "ReadOptions":
        from topics.spark.options import read_options

        return read_options(self.options, is_stream=is_stream, cores=len(os.sched_getaffinity(0)))

    def _write_options(self):  # type: ignore[no-untyped-def]
        from topics.spark.options import write_options

        return write_options(self.options)
