"""Lets Spark find the data source: `spark.read.format("topics")`, without a call that registers it.

Spark imports every top-level module named `pyspark_*` when it first looks for a data source written
in Python.  An exception here would break the lookup of all of them, so one that needs no more than
`pip install` is swallowed: the format is then not found, and `topics spark doctor` says why.
"""

import contextlib

with contextlib.suppress(ImportError):
    from topics.spark.source import TopicsDataSource as DefaultSource

__all__ = ["DefaultSource"]
