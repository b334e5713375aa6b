"""Writes in a real session: each input once, whatever is repeated."""

import json
from pathlib import Path
from typing import Any

import pytest

from topics import Client, NewRecord

from .conftest import Reads

pytestmark = pytest.mark.spark


def write(frame: Any, reads: Reads, topic: str | None, **more: Any) -> None:
    options = {"url": reads.server.url, **({"topic": topic} if topic else {}), **more}
    given = {name: str(value) for name, value in options.items()}
    frame.write.format("topics").mode("append").options(**given).save()


def datas(client: Client, topic: str) -> list[Any]:
    return [record.data for record in client.read(topic)]


def test_columns_become_records(reads: Reads, client: Client, name: str) -> None:
    """JSON text goes byte for byte; a struct becomes an object; tag, node and meta go with it."""
    frame = reads.spark.sql(
        """SELECT '{"a":  1.0}' AS data, 't' AS tag, 'w' AS node, '{"h":1}' AS meta, 'x' AS _seen"""
    )
    write(frame, reads, name)
    nested = "named_struct('a', 1, 'b', array(1, 2), 'm', map('k', 2), 't', date'2026-01-02')"
    write(reads.spark.sql(f"SELECT {nested} AS data"), reads, name)
    write(reads.spark.sql("SELECT parse_json('{\"v\": [1]}') AS data"), reads, name)
    write(
        reads.spark.sql("SELECT cast('k' AS binary) AS key, 'plain' AS value"),
        reads,
        name,
        dataFormat="text",
    )

    [first, *rest] = client.read(name, include_tags=True)
    assert reads().first().data == '{"a":  1.0}'
    assert (first.tag, first.node, first.meta["h"]) == ("t", "w", 1)
    assert set(first.meta) == {"h", "_topics_spark"}
    assert [r.data for r in rest] == [
        {"a": 1, "b": [1, 2], "m": {"k": 2}, "t": "2026-01-02"},
        {"v": [1]},
        "plain",
    ]
    assert rest[-1].tag == "k"


def test_a_version_is_written_once(reads: Reads, client: Client, name: str) -> None:
    """The same txnVersion again, and a lower one, append nothing; the next one does."""
    frame = reads.spark.range(0, 1000, numPartitions=3).selectExpr("cast(id AS string) AS data")
    for version in (4, 4, 3, 5):
        write(frame, reads, name, txnAppId=name, txnVersion=version, chunkRecords=100)

    assert sorted(datas(client, name)) == sorted([*range(1000), *range(1000)])
    [marker] = client.read("spark.txn", match=name)
    assert (marker.data["done"], marker.data["rows"]) == (5, 1000)
    assert client.topic(name).config.idempotency_window_ms == 86_400_000


def test_a_version_is_of_one_topic(reads: Reads, client: Client, name: str) -> None:
    """Delta's idiom: one version of one application into several targets; each has it once. By the
    option and by the column, and again where a topic was deleted and created anew. (§1.4)"""
    frame = reads.spark.range(0, 100, numPartitions=2).selectExpr("cast(id AS string) AS data")
    both = frame.selectExpr("data", f"concat('{name}.', elt(1 + data % 3, 'a', 'b', 'c')) AS topic")
    given = {"txnAppId": name, "txnVersion": 1}
    topics = [f"{name}.{letter}" for letter in "abc"]
    for topic in [*topics[:2], *topics[:2]]:
        write(frame, reads, topic, **given)
    assert [sorted(datas(client, topic)) for topic in topics[:2]] == [list(range(100))] * 2

    for _ in range(2):
        write(both, reads, None, **given)
    assert [client.topic(topic).count for topic in topics] == [100, 100, 33]
    for _ in range(2):
        write(both, reads, None, **{**given, "txnVersion": 2})
    assert [client.topic(topic).count for topic in topics] == [134, 133, 66]
    markers = [m.data for m in client.read("spark.txn", match=name)]
    assert {m["topic"]: (m["done"], m["rows"]) for m in markers} == {
        topics[0]: (2, 34), topics[1]: (2, 33), topics[2]: (2, 33)
    }  # fmt: skip

    client.delete_topic(topics[0])
    write(frame, reads, topics[0], **{**given, "txnVersion": 2})
    assert sorted(datas(client, topics[0])) == list(range(100))


def test_markers_of_an_earlier_version_of_topics(reads: Reads, client: Client, name: str) -> None:
    """They were one an application, so that a second target was skipped: the topics that they name
    have the version, and the others get what they lack of it, once."""
    frame = reads.spark.range(0, 100, numPartitions=2).selectExpr("cast(id AS string) AS data")
    given = {"txnAppId": name, "txnVersion": 7}
    write(frame, reads, f"{name}.a", **given)
    write(frame, reads, f"{name}.b", **{**given, "chunkRecords": 10})
    client.delete("spark.txn", before_seq=1 << 40, match=("tag", "Eq", name))
    old = {"app": name, "done": 7, "begun": 7, "topics": {f"{name}.a": 100}, "rows": 100}
    client.append("spark.txn", old, tag=name)

    for topic in ("a", "b", "c", "a", "b", "c"):
        write(frame, reads, f"{name}.{topic}", **{**given, "chunkRecords": 10})
    for topic in "abc":
        assert sorted(datas(client, f"{name}.{topic}")) == list(range(100)), topic
    write(frame, reads, f"{name}.a", **{**given, "txnVersion": 8})
    assert client.topic(f"{name}.a").count == 200


@pytest.mark.parametrize("window", ["24h", "1ms"])
def test_a_task_that_fails_in_the_middle(
    reads: Reads, client: Client, name: str, window: str
) -> None:
    """It has appended some chunks, and tried again it appends the others and none twice: it knows
    them by their keys, or once those are forgotten by their stamps. (§0.8)"""
    given = {"txnAppId": name, "txnVersion": 1, "chunkRecords": 50, "minIdempotencyWindow": window}
    client.put_topic(name, idempotency_window_ms=1)
    texts = [str(n) for n in range(400)]

    def frame(rows: list[str]) -> Any:
        spark = reads.spark
        return spark.createDataFrame(
            spark.sparkContext.parallelize([(r,) for r in rows], 1), "data STRING"
        )

    with pytest.raises(Exception, match="data is not JSON"):
        write(frame([*texts[:370], "no json", *texts[371:]]), reads, name, **given)
    assert sorted(datas(client, name)) == list(range(350))
    [marker] = client.read("spark.txn", match=name)
    assert (marker.data["done"], marker.data["begun"]) == (-1, 1)

    write(frame(texts), reads, name, **given)

    assert sorted(datas(client, name)) == list(range(400))
    assert client.topic(name).config.idempotency_window_ms == (1 if window == "1ms" else 86_400_000)


def test_a_plan_that_does_not_repeat_itself(
    reads: Reads, client: Client, home: Path, name: str
) -> None:
    """Staged: what the first attempt decided is appended, whatever the second makes."""
    random = "SELECT cast(rand() AS string) AS data FROM range(500)"
    given = {
        "txnAppId": name,
        "txnVersion": 1,
        "writeMode": "staged",
        "stagingDir": home / "staged",
    }
    write(reads.spark.sql(random), reads, name, **given)
    write(reads.spark.sql(random), reads, name, **given)

    assert len(datas(client, name)) == 500
    assert list((home / "staged").rglob("*.chunks")) == []


def test_what_is_staged_is_of_one_topic(
    reads: Reads, client: Client, home: Path, name: str
) -> None:
    """What was decided for one target, and not appended before a failure, is not another's."""
    spark = reads.spark
    first, second = (
        spark.range(lo, lo + 10, numPartitions=1).selectExpr("cast(id AS string) AS data")
        for lo in (0, 100)
    )
    given = {
        "txnAppId": name, "txnVersion": 1, "writeMode": "staged", "stagingDir": home / "staged",
    }  # fmt: skip
    client.put_topic(f"{name}.a", cap_records=5, discard="reject")
    with pytest.raises(Exception, match="full"):
        write(first, reads, f"{name}.a", **given)
    write(second, reads, f"{name}.b", **given)
    client.put_topic(f"{name}.a", cap_records=50, discard="reject")
    write(second, reads, f"{name}.a", **given)

    assert datas(client, f"{name}.a") == list(range(10)), "the first attempt's"
    assert datas(client, f"{name}.b") == list(range(100, 110))
    assert list((home / "staged").rglob("*.chunks")) == []


@pytest.mark.parametrize("mode", ["direct", "staged"])
def test_a_stream_to_topics_of_a_column(
    reads: Reads, client: Client, home: Path, name: str, mode: str
) -> None:
    """A batch that is done is done for all its topics; another sink of the same checkpoint gets it."""
    client.append(name, *range(20))
    options = {"writeMode": mode, **({"stagingDir": str(home / "s")} if mode == "staged" else {})}

    def run(column: str | None) -> None:
        frame = reads.stream("url", startingOffsets="earliest").select("data")
        if column is not None:
            frame = frame.selectExpr("data", f"concat('{name}.', {column}) AS topic")
        writer = frame.writeStream.format("topics").option("url", reads.server.url)
        if column is None:
            writer = writer.option("topic", f"{name}.z")
        writer = writer.options(**options).option("checkpointLocation", str(home / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()
        for path in (home / "checkpoint" / "commits").glob("*0*"):
            path.unlink()

    run("elt(1 + int(data) % 2, 'a', 'b')")
    run("elt(1 + int(data) % 2, 'a', 'c')")
    assert client.topic(f"{name}.a").count == client.topic(f"{name}.b").count == 10
    assert f"{name}.c" not in {each.topic for each in client.topics(prefix=name)}
    run(None)
    run(None)
    assert sorted(datas(client, f"{name}.z")) == list(range(20))


def test_a_stream_from_topic_to_topic(reads: Reads, client: Client, home: Path, name: str) -> None:
    """Batches replayed with their commit entries removed: each input once, also when records of the
    source were deleted in between; the derived topic's seqs are its own."""
    target = f"{name}.copy"
    client.append_many(name, [NewRecord({"n": n}, tag=f"t{n % 3}") for n in range(900)])

    def run() -> None:
        query = (
            reads.stream("url", startingOffsets="earliest", maxRecordsPerTrigger=300)
            .select("seq", "data", "tag")
            .writeStream.format("topics")
            .option("url", reads.server.url)
            .option("topic", target)
            .option("checkpointLocation", str(home / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    run()
    assert [r["n"] for r in datas(client, target)] == list(range(900))
    [query_id] = [
        json.loads(line)["id"] for line in (home / "checkpoint/metadata").read_text().splitlines()
    ]
    for path in (home / "checkpoint" / "commits").glob("*2*"):
        path.unlink()
    # Once with the marker, and once as if the driver had died before it was written.
    run()
    [marker] = client.read("spark.txn", match=query_id)
    assert marker.data["done"] == 2
    client.append("spark.txn", {**marker.data, "done": 1, "begun": 1}, tag=query_id)
    for path in (home / "checkpoint" / "commits").glob("*2*"):
        path.unlink()
    client.delete(name, match=("tag", "Eq", "t1"))
    run()
    assert [r["n"] for r in datas(client, target)] == list(range(900))


REFUSED = [
    ({}, "SELECT 1 AS id", "column id has no place in a record"),
    ({}, "SELECT 't' AS tag", "a write needs the column data"),
    ({}, "SELECT '1' AS data, 1 AS tag", "column tag is int, not string"),
    ({}, "SELECT 'no json' AS data", "data is not JSON.*dataFormat text"),
    ({}, "SELECT '1},{\"data\":2' AS data", "data is not JSON"),
    ({}, "SELECT '1' AS data, '[1]' AS meta", "meta is no JSON object"),
    ({"topc": "x"}, "SELECT '1' AS data", "there is no option topc; did you mean topic\\?"),
    ({"txnAppId": "a"}, "SELECT '1' AS data", "txnAppId and txnVersion belong together"),
    ({"txnAppId": "a.b", "txnVersion": 1}, "SELECT '1' AS data", "'a.b' has more than 128"),
    ({"writeMode": "staged"}, "SELECT '1' AS data", "stagingDir"),
    ({"url": "http://127.0.0.1:9", "retryFor": "0s"}, "SELECT '1' AS data", "topics serve"),
]


@pytest.mark.parametrize(("options", "sql", "line"), REFUSED, ids=lambda v: str(v)[:24])
def test_a_mistake_is_one_line(
    reads: Reads, client: Client, name: str, options: dict[str, str], sql: str, line: str
) -> None:
    """What cannot be written says why, and nothing is appended."""
    with pytest.raises(Exception, match=f"(SparkFailure|BadOption): [^\n]*{line}"):
        write(reads.spark.sql(sql), reads, name, **options)


def test_only_appending(reads: Reads, name: str) -> None:
    """Overwriting is refused in words; so is a write into files."""
    frame = reads.spark.sql("SELECT '1' AS data")
    writer = frame.write.format("topics").option("url", reads.server.url).option("topic", name)

    with pytest.raises(Exception, match=r'use \.mode\("append"\)'):
        writer.mode("overwrite").save()
    with pytest.raises(Exception, match="through a server, never into its files"):
        frame.write.format("topics").mode("append").option("topic", name).save("/tmp")
