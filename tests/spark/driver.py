"""A driver that is killed: streams of one topic into every kind of sink, to the end of the topic.

python tests/spark/driver.py URL TOPIC HOME
"""

import sys
from pathlib import Path
from typing import Any

from topics.spark.jobs.sessions import Sessions
from topics.spark.session import session

SINKS = ("topic", "staged", "folder", "files")
RECORDS_PER_BATCH = 500


def main(url: str, topic: str, home: Path) -> None:
    spark = session("driver", master="local[2]")
    spark.sparkContext.setLogLevel("OFF")
    frame = (
        spark.readStream.format("topics")
        .option("url", url)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxRecordsPerTrigger", str(RECORDS_PER_BATCH))
        .schema("seq BIGINT, tag STRING, data STRING")
        .load()
    )
    job = Sessions({}, home / "folder")

    def into_folder(rows: Any, batch: int) -> None:
        job._write_folder(rows, batch)

    writers = {
        "topic": frame.writeStream.format("topics")
        .option("url", url)
        .option("topic", f"{topic}.copy"),
        "staged": frame.drop("seq")
        .writeStream.format("topics")
        .option("url", url)
        .option("topic", f"{topic}.staged")
        .option("writeMode", "staged")
        .option("stagingDir", str(home / "staging")),
        "folder": frame.writeStream.foreachBatch(into_folder),
        "files": frame.writeStream.format("parquet").option("path", str(home / "files")),
    }
    assert set(writers) == set(SINKS)
    queries = [
        writer.option("checkpointLocation", str(home / "checkpoints" / name))
        .trigger(availableNow=True)
        .start()
        for name, writer in writers.items()
    ]
    for query in queries:
        query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
