"""Streams in a real session: how far a batch goes, what a restart repeats, what is lost."""

import json
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from bench.flights import Server
from topics import Client, NewRecord, Record

from .conftest import Reads, settle

pytestmark = pytest.mark.spark


class Query:
    """A stream with `availableNow`, started again and again from one checkpoint."""

    def __init__(self, home: Path, make: Callable[[], Any]) -> None:
        self.home, self.make = home, make
        self.seen: list[tuple[Any, ...]] = []
        self.batches: list[int] = []
        self.progress: list[Any] = []

    def run(self, *columns: str) -> list[tuple[Any, ...]]:
        """Run to the end of what is there; the rows that this run saw."""
        fresh: list[tuple[Any, ...]] = []

        def take(frame: Any, batch: int) -> None:
            rows = [tuple(row) for row in frame.select(*columns or ("topic", "seq")).collect()]
            self.batches.append(len(rows))
            fresh.extend(rows)

        query = (
            self.make()
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(self.home / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        self.progress = list(query.recentProgress)
        self.seen += fresh
        return fresh


def seqs(rows: list[tuple[Any, ...]]) -> list[int]:
    return sorted(row[1] for row in rows)


def test_a_stream_goes_on_where_it_was(
    reads: Reads, client: Client, server: Server, home: Path, name: str
) -> None:
    """In batches of the size that was asked for, by path and by URL; a restart goes on; a topic that
    joins a pattern later is read from its beginning; what is deleted is not read."""
    client.append_many(f"{name}.a", [NewRecord(n, tag="xy"[n % 2]) for n in range(2500)])
    settle(server)
    more = {"subscribePattern": f"{name}\\.[ab]", "startingOffsets": "earliest"}
    query = Query(
        home,
        lambda: reads.stream(
            "path", maxRecordsPerTrigger=1000, readerName="r1", url=server.url, **more
        ),
    )

    query.run()
    assert query.batches == [1000, 1000, 500]
    assert seqs(query.seen) == list(range(1, 2501))
    told = [json.loads(each["sources"][0]["latestOffset"]) for each in query.progress]
    assert [each["metrics"]["maxOffsetsBehindLatest"] for each in told[:3]] == ["1500", "500", "0"]
    assert told[0]["topics"][f"{name}.a"]["seq"] == 2500

    client.append_many(f"{name}.a", [NewRecord(n, tag="xy"[n % 2]) for n in range(100)])
    client.delete(f"{name}.a", match=("tag", "Eq", "x"))
    client.append(f"{name}.b", 1, 2)
    settle(server)
    fresh = query.run()
    assert sorted(fresh) == [
        *((f"{name}.a", seq) for seq in range(2502, 2601, 2)),
        (f"{name}.b", 1),
        (f"{name}.b", 2),
    ]
    assert query.run() == []
    [record] = [r.data for r in client.read("topics.readers")]
    assert record["topics"][f"{name}.a"]["seq"] in range(1000, 2601)


def test_bytes_of_a_batch_are_limited(
    reads: Reads, client: Client, server: Server, home: Path, name: str
) -> None:
    """Large records first, small ones behind them: no batch has more bytes than it may, by path and
    by URL, whatever records have on average."""
    client.append_many(name, ["x" * 60_000] * 12)
    client.append_many(name, [NewRecord(n) for n in range(12_000)])
    settle(server)
    for how in ("path", "url"):
        query = Query(
            home / how,
            lambda how=how: reads.stream(  # type: ignore[misc]
                how, startingOffsets="earliest", maxBytesPerTrigger="200000b"
            ),
        )
        sizes = query.run("topic", "data")
        ends = [sum(query.batches[:n]) for n in range(len(query.batches) + 1)]
        found = [sum(len(row[1]) for row in sizes[lo:hi]) for lo, hi in pairwise(ends)]
        assert len(sizes) == 12_012
        assert max(found) <= 200_000, found
        assert len(found) <= 6


def test_a_replay_repeats_no_row_and_misses_none(
    reads: Reads, client: Client, home: Path, name: str
) -> None:
    """The commit log's last entry is removed, and records of that batch are deleted: it is run again
    with the same bounds, without an error, and with what is left."""
    client.append_many(name, list(range(30)))
    query = Query(
        home, lambda: reads.stream("url", startingOffsets="earliest", maxOffsetsPerTrigger=10)
    )
    query.run()
    assert query.batches == [10, 10, 10]

    for path in (home / "checkpoint" / "commits").glob("*2*"):
        path.unlink()
    client.delete(name, before_seq=24)
    assert seqs(query.run()) == list(range(24, 31))


def test_loss_under_a_stopped_stream(reads: Reads, client: Client, home: Path, name: str) -> None:
    """A stop outlasts the records: an error that names gap and reason and the ways out; `warn` goes
    on; `rows` gives the gap as one row. A deleted gap is none. (§3.3, §5)"""
    client.put_topic(name, cap_records=10)
    client.append(name, *range(5))
    handling = "fail"
    query = Query(
        home,
        lambda: reads.stream(
            "url", startingOffsets="earliest", lossHandling=handling, minPartitions=3
        ),
    )
    assert seqs(query.run()) == [1, 2, 3, 4, 5]
    client.append(name, *range(25))
    client.delete(name, before_seq=23)

    with pytest.raises(
        Exception, match=r"lost 17 seqs, 6\.\.22, reason cap.*lossHandling to warn"
    ) as caught:
        query.run()
    # A checkpoint says where a stream is: to begin elsewhere helps with a new one only.
    assert "earliest-retained" not in str(caught.value)
    with pytest.raises(Exception, match=r"lost 22 seqs, 1\.\.22.*earliest-retained"):
        Query(home / "new", query.make).run()
    kept = home / "kept"
    shutil.copytree(home / "checkpoint", kept)
    handling = "warn"
    assert seqs(query.run()) == list(range(23, 31))
    shutil.rmtree(home / "checkpoint")
    shutil.copytree(kept, home / "checkpoint")
    handling = "rows"
    rows = query.run("topic", "seq", "_kind", "_gap.from", "_gap.to", "_gap.reason")
    assert [row[2:] for row in rows if row[2] == "tombstone"] == [("tombstone", 6, 22, "cap")]
    assert seqs([row for row in rows if row[2] == "record"]) == list(range(23, 31))


@pytest.mark.parametrize("how", ["path", "url"])
def test_a_gap_is_one_row(
    reads: Reads, client: Client, server: Server, home: Path, name: str, how: str
) -> None:
    """However small a batch is, and into however many parts a read is cut: no gap is several rows, and
    no batch is one of nothing but a piece of it. (§3.3)"""
    client.append(name, *range(40))
    settle(server)
    query = Query(
        home,
        lambda: reads.stream(
            how, startingOffsets="earliest", lossHandling="rows", maxRecordsPerTrigger=10
        ),
    )
    query.run()
    client.put_topic(name, cap_records=60)
    client.append(name, *range(210))
    settle(server)

    rows = query.run("topic", "seq", "_kind", "_gap.from", "_gap.to")
    assert [row[2:] for row in rows if row[2] == "tombstone"] == [("tombstone", 41, 190)]
    assert query.batches[4:] == [11, 10, 10, 10, 10, 10]

    # What it lost before it was copied is a hole in the destination of a router.
    client.put_topic(f"{name}.s", cap_records=7)
    client.put_router(f"{name}.r", source=f"{name}.s", dest=f"{name}.d")
    client.append(f"{name}.d", *range(50))
    client.append(f"{name}.s", *range(100))
    client.append(f"{name}.d", *range(50))
    settle(server)
    frame = reads(how, subscribe=f"{name}.d", lossHandling="rows", minPartitions=8)
    found = (
        frame.where("_kind = 'tombstone'").select("_gap.from", "_gap.to", "_gap.missed").collect()
    )
    assert [tuple(row) for row in found] == [(51, 143, 93)]
    assert frame.where("_kind = 'record'").count() == 107
    with pytest.raises(Exception, match=r"lost 93 seqs, 51\.\.143, reason source_trim"):
        reads(how, subscribe=f"{name}.d").count()


def test_a_topic_that_was_made_anew(reads: Reads, client: Client, home: Path, name: str) -> None:
    """Its epoch tells: an error, or from its beginning on. (§1.4)"""
    client.append(name, *range(5))
    handling = "fail"
    query = Query(
        home, lambda: reads.stream("url", startingOffsets="earliest", lossHandling=handling)
    )
    query.run()
    client.delete_topic(name)
    client.append(name, *range(7))

    with pytest.raises(Exception, match="reason recreated"):
        query.run()
    handling = "warn"
    assert seqs(query.run()) == list(range(1, 8))
    client.delete_topic(name)
    handling = "fail"
    with pytest.raises(Exception, match="was deleted; lossHandling warn goes on"):
        query.run()


def test_an_older_copy_of_the_directory(
    reads: Reads, client: Client, server: Server, home: Path, name: str
) -> None:
    """The directory was put back to an older state: its head is behind the stream, which says so."""
    client.append(name, *range(5))
    settle(server)
    shutil.copytree(server.data_dir, home / "old")
    client.append(name, *range(5))
    settle(server)
    shutil.copytree(server.data_dir, home / "now")
    handling = "fail"
    query = Query(
        home,
        lambda: reads.stream(
            "path", path=home / "now", startingOffsets="earliest", lossHandling=handling
        ),
    )
    assert len(query.run()) == 10
    shutil.rmtree(home / "now")
    shutil.copytree(home / "old", home / "now")

    with pytest.raises(Exception, match=r"lost 5 seqs, 6\.\.10, reason rewound"):
        query.run()
    handling = "warn"
    assert query.run() == []


def test_records_that_come_while_it_runs(
    reads: Reads, client: Client, home: Path, name: str
) -> None:
    """A continuous query begins at the head and gets what is appended, exactly once."""
    client.append(name, "before")
    seen: list[str] = []

    def take(frame: Any, batch: int) -> None:
        seen.extend(row.data for row in frame.collect())
        if len(seen) < 30:
            client.append(name, *(f"{batch}-{n}" for n in range(10)))

    query = (
        reads.stream("url")
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(home / "checkpoint"))
        .start()
    )
    try:
        while query.isActive and not query.recentProgress:
            query.processAllAvailable()
        client.append(name, "first")
        while query.isActive and len(seen) < 30:
            query.processAllAvailable()
    finally:
        query.stop()
    written = [json.dumps(r.data) for r in client.read(name)][1:]
    assert seen == written[: len(seen)]
    assert len(seen) >= 30


def test_a_stream_goes_on_when_a_topic_gets_partitions(
    reads: Reads, client: Client, server: Server, home: Path, name: str
) -> None:
    """Partitions that join are read from their beginnings; what is written of the rows goes where tags say, each
    row once, also where a batch is written again. (§2.1)"""
    client.append_many(name, [NewRecord(n, tag=f"k{n}") for n in range(10)])
    settle(server)
    more = {"subscribe": name, "startingOffsets": "earliest", "includePartition": "true"}
    query = Query(home, lambda: reads.stream("path", **more))
    assert {row[0] for row in query.run("partition", "seq")} == {0}

    client.put_topic(name, partitions=3)
    client.append_many(name, [NewRecord(n, tag=f"k{n}") for n in range(10, 40)])
    settle(server)
    assert {row[0] for row in query.run("partition", "seq")} == {0, 1, 2}
    assert len(set(query.seen)) == len(query.seen) == 40

    copy = f"{name}.copy"
    client.put_topic(copy, partitions=2)
    rows = reads("path").select("topic", "partition", "seq", "tag", "data")
    for _ in range(2):
        where = {"url": server.url, "topic": copy, "txnAppId": "copies", "txnVersion": "1"}
        rows.write.format("topics").mode("append").options(**where).save()
    found = {
        (record.tag, each.partition)
        for each in client.topic(copy).partitions
        for record in client.read(copy, partition=each.partition, include_tags=True)
        if isinstance(record, Record)
    }
    assert len(found) == client.topic(copy).count == 40
    assert {partition for _, partition in found} == {0, 1}
