"""Sessions per tag: bursts of records, counted, from a stream into Parquet and into a topic.

    topics job sessions --url http://127.0.0.1:4000 --topic clicks --to sessions/ --derived clicks.sessions

A session of a tag ends when no record of it came for `gap`.  It is written when the watermark has
passed that end: once, into the folder `batch=N` of the batch that closed it and into the derived
topic.  A kill at any moment repeats a batch at most, and a batch that is repeated changes nothing:
its folder is there as a whole or not, and the topic knows its version.
"""

import json
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True, slots=True)
class Sessions:
    """What the job does.

    Attributes:
        source: Options of the stream (docs/spark.md).
        folder: Of Parquet files; its subfolder `_checkpoint` is the stream's.
        derived: Topic for the sessions; None: Parquet only.
        sink: Options of the write to `derived`: `url`, `apiKey`.
        gap, watermark: Times, as Spark writes them ("1 minute").
    """

    source: dict[str, str]
    folder: Path
    derived: str | None = None
    sink: dict[str, str] = field(default_factory=dict)
    gap: str = "1 minute"
    watermark: str = "1 minute"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "_checkpoint"

    def frame(self, spark: "SparkSession") -> "DataFrame":
        """The sessions: `tag`, `minute` and ends, and the number of `records`."""
        from pyspark.sql import functions as f

        records = spark.readStream.format("topics").options(**self.source)
        window = f.session_window("ts", self.gap)
        return (
            records.schema("ts TIMESTAMP, tag STRING")
            .load()
            .withWatermark("ts", self.watermark)
            .groupBy("tag", window.alias("session"))
            .agg(f.count("*").alias("records"))
            .select(
                "tag",
                f.date_trunc("minute", "session.start").alias("minute"),
                f.col("session.start").alias("started"),
                f.col("session.end").alias("ended"),
                "records",
            )
        )

    def start(self, spark: "SparkSession", *, is_once: bool) -> "StreamingQuery":
        """Start the stream; with `is_once` it ends with what is there now."""
        writer = (
            self.frame(spark)
            .writeStream.queryName(f"sessions of {self.source.get('subscribe', 'topics')}")
            .foreachBatch(self.write)
            .option("checkpointLocation", str(self.checkpoint))
        )
        return writer.trigger(availableNow=True).start() if is_once else writer.start()

    def write(self, frame: "DataFrame", batch: int) -> None:
        """One batch into the folder and the topic.

        One partition in the order of its columns is the same again on a replay, which the write to
        the topic relies on; the sessions that a batch closes are few.
        """
        ordered = frame.coalesce(1).sortWithinPartitions("started", "tag").persist()
        try:
            if not ordered.isEmpty():
                self._write_folder(ordered, batch)
                self._write_topic(ordered, batch)
        finally:
            ordered.unpersist()

    def _write_folder(self, frame: "DataFrame", batch: int) -> None:
        final = self.folder / f"batch={batch}"
        if final.exists():
            return
        # A name with an underscore is no data to any reader of the folder.
        draft = self.folder / f"_batch={batch}"
        shutil.rmtree(draft, ignore_errors=True)
        frame.write.parquet(str(draft))
        os.rename(draft, final)

    def _write_topic(self, frame: "DataFrame", batch: int) -> None:
        if self.derived is None:
            return
        data = "to_json(struct(minute, started, ended, records)) AS data"
        (
            frame.selectExpr("tag", data)
            .write.format("topics")
            .mode("append")
            .options(**self.sink)
            .options(topic=self.derived, txnAppId=self.app(), txnVersion=str(batch))
            .save()
        )

    def app(self) -> str:
        """The query's id, which its checkpoint has."""
        found = json.loads((self.checkpoint / "metadata").read_text().splitlines()[-1])
        return str(found["id"])
