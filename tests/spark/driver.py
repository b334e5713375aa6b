"""A driver that is killed: streams of one topic into every kind of sink, to the end of the topic.

python tests/spark/driver.py URL TOPIC HOME
"""

import sys
import time
from pathlib import Path
from typing import Any

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from topics.spark.jobs.sessions import Sessions
from topics.spark.sessions import session

TOO_BUSY = "Python worker failed to connect back"
"""Spark gives a worker 10 s to start, and ends the query where it takes longer."""
COLLIDED = "Task not serializable"
"""Spark, too: seen where a query runs its first batches while others of the session still start.  As
with any driver that fails, the next one goes on."""
RECORDS_PER_BATCH = {"topic": 1000, "staged": 1000, "folder": 500, "files": 500, "delta": 500}
"""Sink -> the size of its batches: a batch of files is done sooner than one of a server."""


def main(url: str, topic: str, home: Path) -> None:
    spark = session("driver", master="local[2]")
    spark.sparkContext.setLogLevel("OFF")
    job = Sessions({}, home / "folder")

    def frame(sink: str) -> Any:
        return (
            spark.readStream.format("topics")
            .option("url", url)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("maxRecordsPerTrigger", str(RECORDS_PER_BATCH[sink]))
            .schema("seq BIGINT, tag STRING, data STRING")
            .load()
        )

    def into_folder(rows: Any, batch: int) -> None:
        job._write_folder(rows, batch)

    def into_delta(rows: Any, batch: int) -> None:
        """The batch is the table's version of an application, as docs/spark.md shows."""
        table = home / "delta"
        if DeltaTable.is_deltatable(str(table)):
            done = DeltaTable(str(table)).transaction_version("driver")
            if done is not None and done >= batch:
                return
        properties = CommitProperties(app_transactions=[Transaction("driver", batch)])
        write_deltalake(str(table), rows.toArrow(), mode="append", commit_properties=properties)

    def into_topic(rows: Any, name: str) -> Any:
        return rows.writeStream.format("topics").option("url", url).option("topic", name)

    writers = {
        "topic": into_topic(frame("topic"), f"{topic}.copy"),
        "staged": into_topic(frame("staged").drop("seq"), f"{topic}.staged")
        .option("writeMode", "staged")
        .option("stagingDir", str(home / "staging")),
        "folder": frame("folder").writeStream.foreachBatch(into_folder),
        "delta": frame("delta").writeStream.foreachBatch(into_delta),
        "files": frame("files").writeStream.format("parquet").option("path", str(home / "files")),
    }
    for name, writer in writers.items():
        checkpoint = str(home / "checkpoints" / name)
        writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    for query in started(list(writers.values())):
        query.awaitTermination()


def started(writers: list[Any]) -> list[Any]:
    """The queries, all at once; those whose workers came too late again, one after the other.

    On a busy machine five new workers would else end the driver again and again.
    """
    queries = [writer.start() for writer in writers]
    for n, writer in enumerate(writers):
        while is_late(queries[n]):
            queries[n] = writer.start()
    return queries


def is_late(query: Any) -> bool:
    """Whether a query that has just begun ended because its worker was not there in time."""
    while query.isActive and query.status["message"].startswith("Initializing"):
        time.sleep(0.02)
    return TOO_BUSY in str(query.exception())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
