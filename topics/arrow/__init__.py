"""Topics as Arrow record batches: for Spark, for exports, and for DuckDB, Polars and pandas.

    import topics.arrow

    table = topics.arrow.reader("/var/lib/topics", "orders").read_all()

Needs `pyarrow` (the extra `export`).
"""

from topics.distribution import needs

with needs("export", of="topics.arrow"):
    from topics.arrow.loss import DataLoss, Gap
    from topics.arrow.scan import DataLossWarning, reader, scan
    from topics.arrow.source import NoSuchTopic, NotDurable, NotReadable

__all__ = [
    "DataLoss",
    "DataLossWarning",
    "Gap",
    "NoSuchTopic",
    "NotDurable",
    "NotReadable",
    "reader",
    "scan",
]
