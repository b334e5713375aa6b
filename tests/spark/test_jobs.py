"""The jobs that come with topics, on a real server."""

from collections import defaultdict
from pathlib import Path

import pytest

from topics import Client, NewRecord
from topics.spark.jobs.compact import Compaction
from topics.spark.jobs.sessions import Sessions

from .conftest import Reads

pytestmark = pytest.mark.spark

GAP_MS = 100


def sessions_of(client: Client, name: str, until_ms: int) -> set[tuple[str, int]]:
    """Tag and size of every session that has ended by a time, straight from the records."""
    times: dict[str, list[int]] = defaultdict(list)
    for record in client.read(name, include_tags=True):
        times[record.tag].append(record.ts_ms)
    found = []
    for tag, stamps in times.items():
        size, last = 0, stamps[0]
        for ts in [*stamps, 1 << 60]:
            if ts - last > GAP_MS and size:
                if last + GAP_MS < until_ms:
                    found.append((tag, size))
                size = 0
            size, last = size + 1, ts
    return set(found)


def pause(client: Client, name: str) -> int:
    """Append until the server's clock has gone on by three gaps; its last time."""
    [first] = client.read(name, from_seq=client.append(name, 0, tag="tick").first_seq - 1)
    last_ms = first.ts_ms
    while last_ms < first.ts_ms + 3 * GAP_MS:
        seq = client.append(name, 0, tag="tick").first_seq
        [record] = client.read(name, from_seq=seq - 1)
        last_ms = record.ts_ms
    return last_ms


def test_sessions(reads: Reads, client: Client, home: Path, name: str) -> None:
    """Each session that has ended is counted once, in the folder and in the derived topic, over
    several runs of the job; what the records say themselves is the measure."""
    source = {**reads.options("url"), "startingOffsets": "earliest", "maxRecordsPerTrigger": "400"}
    sink = {"url": reads.server.url}
    job = Sessions(
        source, home / "out", f"{name}.sessions", sink,
        gap=f"{GAP_MS} milliseconds", watermark="0 seconds",
    )  # fmt: skip
    for round_number in range(3):
        size = 100 * (round_number + 1)
        client.append(name, *(NewRecord(n, tag=f"user-{n % 3}") for n in range(size)))
        until_ms = pause(client, name)
        job.start(reads.spark, is_once=True).awaitTermination()

    folder = reads.spark.read.parquet(str(home / "out")).where("tag != 'tick'")
    in_folder = sorted((row.tag, row.records) for row in folder.collect())
    in_topic = sorted(
        (record.tag, record.data["records"])
        for record in client.read(f"{name}.sessions", include_tags=True)
        if record.tag != "tick"
    )
    ended = sorted(pair for pair in sessions_of(client, name, until_ms) if pair[0] != "tick")
    assert in_folder == in_topic == ended
    assert len(ended) == 9


def test_compaction(reads: Reads, client: Client, name: str) -> None:
    """The newest record of each tag, and those without a tag: copied once, or left in place."""
    records = [NewRecord(n, tag=f"t{n % 7}" if n % 10 else None) for n in range(200)]
    client.append_many(name, records)
    newest = {record.tag: record.data for record in records if record.tag}
    expected = sorted([*newest.values(), *(r.data for r in records if r.tag is None)])
    sink = {"url": reads.server.url}
    job = Compaction(reads.options("url"), sink, name)

    for _ in range(2):
        assert job.copy(reads.spark, client, f"{name}.latest") == 200
    assert [r.data for r in client.read(f"{name}.latest")] == expected
    deleted = job.in_place(reads.spark, client)
    assert deleted == 200 - len(expected)
    assert [r.data for r in client.read(name)] == expected
    assert job.in_place(reads.spark, client) == 0


def test_compaction_of_a_topic_that_was_made_anew(reads: Reads, client: Client, name: str) -> None:
    """Its copy is another one, though its head may be where the first one's was; so is the copy of a
    topic whose name differs by a dot. (§1.4)"""
    sink = {"url": reads.server.url}
    to = f"{name}.latest"

    def copy(topic: str, *values: int) -> None:
        client.append(topic, *values)
        Compaction(reads.options("url", subscribe=topic), sink, topic).copy(reads.spark, client, to)

    copy(f"{name}.a", 1, 2)
    client.delete_topic(f"{name}.a")
    copy(f"{name}.a", 3, 4)
    copy(f"{name}_a", 5, 6)
    assert [record.data for record in client.read(to)] == [1, 2, 3, 4, 5, 6]
