"""`session()`: a Spark session in which topics can be read as they should be.

Owns the settings that this needs before the JVM starts.  A session made otherwise works, too:
docs/spark.md says which of these it then misses.
"""

import atexit
import os
import shutil
import sys
import tempfile
from functools import cache
from typing import TYPE_CHECKING, Final

from topics.distribution import install
from topics.spark.errors import SparkFailure
from topics.spark.java import find_java
from topics.spark.workers import trouble, worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Final = {
    # Else Parquet files have times in a form that only Spark reads well.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.session.timeZone": "UTC",
    # Else the option `pushFilters` does nothing.
    "spark.sql.python.filterPushdown.enabled": "true",
}
CONNECT: Final = "sc://"
"""Spark Connect: the JVM is at the other end of a wire."""
LOCAL_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Spark's default renames the files of a checkpoint through Hadoop's FileContext, which runs the
    # program `readlink` several times for each: two thirds of the time of a small batch of a stream.
    # Either looks whether the file is there and then renames.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing"
        ".FileSystemBasedCheckpointFileManager"
    ),
}
SOCKET_HOME_MAX: Final = 60
"""Bytes of the directory of sockets: their names have 42, and the least that a system takes is 104."""


def session(
    app_name: str = "topics", *, master: str | None = None, settings: dict[str, str] | None = None
) -> "SparkSession":
    """The session of this process; the first call starts it.

    Workers run the Python of this process unless PYSPARK_PYTHON names another.

    Args:
        master: By default what the environment says (`MASTER`, `SPARK_REMOTE`), else `local[*]`.
        settings: Of Spark; they win over those that this makes.

    Raises:
        SparkFailure: There is no Java that fits, or the workers' Python cannot read topics, or
            SPARK_REMOTE is set and a package of Spark Connect is missing.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise SparkFailure(f"{error}: {install('spark')}") from None

    prepare()
    wanted = dict(SETTINGS)
    remote = os.environ.get("SPARK_REMOTE") if master is None else None
    where = remote or master or os.environ.get("MASTER") or "local[*]"
    builder = SparkSession.builder.appName(app_name)
    builder = builder.remote(where) if remote else builder.master(where)
    if where.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        wanted |= LOCAL_SETTINGS | socket_settings()
    if not where.startswith(CONNECT):
        java = find_java()
        if java.home is not None:
            os.environ["JAVA_HOME"] = str(java.home)
    for name, value in {**wanted, **(settings or {})}.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except ImportError as error:
        line = str(error).splitlines()[0]
        raise SparkFailure(f'{line} SPARK_REMOTE needs pip install "pyspark[connect]"') from None


@cache
def socket_settings() -> dict[str, str]:
    """Unix sockets between Spark and its workers: batches take a tenth less CPU than by TCP.

    They lie in a directory that only this user enters, because Spark asks for no secret there, and
    that is removed when this process ends.  Empty where its name would be too long for a socket's.
    """
    home = tempfile.mkdtemp(prefix="topics-spark-")
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    if len(os.fsencode(home)) > SOCKET_HOME_MAX:
        return {}
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": home,
    }


def prepare() -> None:
    """Name the workers' Python before the JVM starts.  Raises SparkFailure: It cannot read topics."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    python = worker_python()
    if python != sys.executable and (wrong := trouble(python)) is not None:
        raise SparkFailure(f"workers' Python: {wrong}")
