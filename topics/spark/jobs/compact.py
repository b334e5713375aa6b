"""The newest record of each tag: in a topic of its own, or in place.

    topics job compact --url http://127.0.0.1:4000 --topic settings --to settings.latest
    topics job compact --url http://127.0.0.1:4000 --topic settings --in-place

A copy is one transaction whose version is the head that was read, so the same copy twice is one; of a
topic that was deleted and created again, it is another copy.  In place, every older record of a tag is
deleted, one request a tag that has any; a record that comes meanwhile is newer and stays.  Records
without a tag have no key, and stay or are copied all.
"""

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from topics.client import Client


@dataclass(frozen=True, slots=True)
class Compaction:
    """What the job does.

    Attributes:
        source: Options of the read, of one topic.
        sink: Options of the write: `url`, `apiKey`.
    """

    source: dict[str, str]
    sink: dict[str, str]
    topic: str

    def newest(self, spark: "SparkSession", until_seq: int) -> "DataFrame":
        """The records that stay, of those through a seq."""
        from pyspark.sql import Window
        from pyspark.sql import functions as f

        every = self._read(
            spark, "seq BIGINT, tag STRING, node STRING, data STRING, meta STRING", until_seq
        )
        rank = f.row_number().over(Window.partitionBy("tag").orderBy(f.desc("seq")))
        tagged = every.where("tag IS NOT NULL").withColumn("_rank", rank).where("_rank = 1")
        return tagged.drop("_rank").unionByName(every.where("tag IS NULL"))

    def _read(self, spark: "SparkSession", schema: str, until_seq: int) -> "DataFrame":
        reader = spark.read.format("topics").options(**self.source).schema(schema)
        # What was evicted before can't be compacted, and is no loss to this job.
        return (
            reader.option("startingOffsets", "earliest-retained")
            .option("endingOffsets", str(until_seq + 1))
            .load()
        )

    def copy(self, spark: "SparkSession", client: "Client", to: str) -> int:
        """Append the newest records to another topic, in order of their seqs; the head that was
        read."""
        state = client.topic(self.topic, touch=False)
        head = state.head_seq
        if self._was_copied(client, to, head):
            return head
        (
            self.newest(spark, head)
            .repartition(1)
            .sortWithinPartitions("seq")
            .write.format("topics")
            .mode("append")
            .options(**self.sink)
            .options(
                topic=to,
                txnAppId=f"compact-{_digest(self.topic, state.epoch or '')}",
                txnVersion=str(head),
            )
            .save()
        )
        return head

    def _was_copied(self, client: "Client", to: str, head: int) -> bool:
        """Whether an earlier version of this program has made this copy, under another name."""
        from topics.spark.transactions import find

        app = f"compact-{_token(self.topic)}-{_token(to)}"[:128]
        done = find(client, "spark.txn", app).whole
        return done.done == head and to in done.topics

    def in_place(self, spark: "SparkSession", client: "Client") -> int:
        """Delete what is older than the newest record of its tag; how many records that were."""
        from pyspark.sql import functions as f

        head = client.topic(self.topic, touch=False).head_seq
        tags = self._read(spark, "seq BIGINT, tag STRING", head).where("tag IS NOT NULL")
        found = tags.groupBy("tag").agg(f.max("seq").alias("newest"), f.count("*").alias("records"))
        deleted = 0
        for row in found.where("records > 1").toLocalIterator():
            answer = client.delete(self.topic, before_seq=row.newest, match=("tag", "Eq", row.tag))
            deleted += answer.deleted
        return deleted


def _digest(*names: str) -> str:
    return blake2b(repr(names).encode(), digest_size=16).hexdigest()


def _token(name: str) -> str:
    return "".join(c if c.isalnum() or c in "_-" else "_" for c in name)
