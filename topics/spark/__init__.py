"""Spark reads, follows and writes topics: `spark.read.format("topics")`.

    from topics.spark import session

    spark = session()
    orders = spark.read.format("topics").option("path", "/var/lib/topics").option("subscribe", "orders").load()

Needs the extra `spark` and Java; `topics spark doctor` says what is missing.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from topics.spark.sessions import session

__all__ = ["session"]


def __getattr__(name: str) -> Any:
    """`session`, imported when it is named: a worker that looks for the data source needs none.

    No module of this package has that name: importing it would put it here in place of the function.
    """
    if name == "session":
        from topics.spark.sessions import session

        return session
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
