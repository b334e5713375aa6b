"""Batch reads in a real session: the row set, how it is cut, what is pushed, what is lost."""

import json
import re
import shutil
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from arrow.limits import ODD as LIMITS
from arrow.limits import US, fitted
from pyspark.sql import DataFrame

from bench.flights import Server
from topics import Client, NewRecord, RawRecord

from .conftest import Reads, settle

pytestmark = pytest.mark.spark

ODD: list[bytes] = [
    '{"a": "ü€𝄞", "b": [1.0, 1e5, 9223372036854775808, null]}'.encode(),
    b"null",
    b'""',
    b"[[[]]]",
    b'{"$seq":1,"meta":{"data":"},\\"meta\\":{"}}',
    b'"' + b"x" * ((1 << 20) - 100) + b'"',
    b'{"a": 1.0,  "b":1e5}',
]


def put_odd(client: Client, name: str) -> None:
    """Odd records, absent fields, deleted runs, many records."""
    metas = [None, {"k": {"deep": "}"}}, {}]
    for n, data in enumerate(ODD):
        record = NewRecord(
            msgspec.Raw(data),
            tag=f"t{n}" if n % 2 else None,
            node="n-1" if n % 3 else None,
            meta=metas[n % 3],
        )
        client.append(name, record)
    client.append_many(
        name, [NewRecord({"n": n}, tag=f"{'ab'[n % 2]}-{n % 7}") for n in range(5000)]
    )
    client.delete(name, match=("tag", "Eq", "a-0"))
    client.delete(name, before_seq=3)


def expected(client: Client, name: str) -> set[tuple[Any, ...]]:
    """What paging from 0 gives, text verbatim."""
    return {
        (r.seq, r.ts_ms, r.node, r.tag, bytes(r.data).decode(), bytes(r.meta).decode() or None)
        for r in client.read(name, include_tags=True, record_type=RawRecord)
        if isinstance(r, RawRecord)
    }


def rows_of(frame: Any) -> set[tuple[Any, ...]]:
    rows = frame.selectExpr("seq", "unix_millis(ts)", "node", "tag", "data", "meta").collect()
    assert len({tuple(row) for row in rows}) == len(rows)
    return {tuple(row) for row in rows}


def test_rows_are_what_paging_gives(
    reads: Reads, client: Client, server: Server, name: str
) -> None:
    """By path and by URL, in 1, 2 and 7 parts, in batches of 1, 1,000 and 65,536 rows: the same
    rows, `data` byte for byte, and no call that registers the format. (§3)"""
    put_odd(client, name)
    settle(server)
    wanted = expected(client, name)

    assert rows_of(reads("url")) == wanted
    for parts in (1, 2, 7):
        frame = reads("path", minPartitions=parts)
        assert frame.rdd.getNumPartitions() == parts
        assert rows_of(frame) == wanted
    assert rows_of(reads("path", batchRows=1000)) == wanted
    narrow = reads("path", schema="seq BIGINT", batchRows=1, endingOffsets=500)
    assert {row[0] for row in narrow.collect()} == {row[0] for row in wanted if row[0] < 500}


def test_a_topic_without_records(reads: Reads, client: Client, server: Server, name: str) -> None:
    """Never written to, or all deleted and sealed: an empty frame with the columns."""
    client.put_topic(name)
    client.append_many(name + "-gone", list(range(100)))
    client.delete(name + "-gone", before_seq=101)
    settle(server)

    for topic in (name, name + "-gone"):
        for how in ("path", "url"):
            frame = reads(how, subscribe=topic)
            assert frame.columns == ["topic", "seq", "ts", "node", "tag", "data", "meta"]
            assert frame.count() == 0


PREDICATES = [
    "seq > 100 and seq <= 200",
    "seq = 150",
    "seq < 40",
    "seq >= 3990",
    "seq in (5, 6, 7)",
    "tag = 'b-1'",
    "tag like 'b-%'",
    "tag like '%-1' and seq < 900",
    "tag is null",
    "not (tag = 'b-1')",
    "seq > 3000 and tag = 'a-2' and data like '%9%'",
    "ts >= timestamp'2020-01-01' and ts < timestamp'2100-01-01' and seq < 50",
    "ts > timestamp'2100-01-01'",
    "topic = 'other'",
    "seq > 4000 or tag = 'b-1'",
]


def test_filters_do_not_change_rows(
    reads: Reads, client: Client, server: Server, name: str
) -> None:
    """With pushdown on and off, by path and by URL: the same rows for every predicate."""
    client.append_many(
        name, [NewRecord({"n": n}, tag=f"{'ab'[n % 2]}-{n % 7}") for n in range(4000)]
    )
    client.append(name, 1, 2)
    client.delete(name, match=("tag", "Eq", "a-0"))
    settle(server)

    def rows(load: Callable[[], Any]) -> set[tuple[int, int]]:
        """Number of a predicate and seq of a record, of all predicates in one job."""
        frames = [
            load().where(predicate).selectExpr(f"{n} AS predicate", "seq")
            for n, predicate in enumerate(PREDICATES)
        ]
        found = [(row.predicate, row.seq) for row in reduce(DataFrame.unionAll, frames).collect()]
        assert len(found) == len(set(found))
        return set(found)

    spark = reads.spark
    found = {}
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    for how in ("path", "url"):
        whole = reads(how, pushFilters="true")
        # One plan is enough while nothing is pushed.
        found["off", how] = rows(lambda whole=whole: whole)  # type: ignore[misc]
    try:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
        for how in ("path", "url"):
            found["on", how] = rows(lambda how=how: reads(how, pushFilters="true"))  # type: ignore[misc]
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    expected = found["off", "path"]
    assert all(found[each] == expected for each in found), {
        each: {PREDICATES[n] for n, _ in rows ^ expected} for each, rows in found.items()
    }
    assert {n for n, _ in expected} == set(range(len(PREDICATES))) - {12, 13}


def test_a_pushed_filter_leaves_the_plan(reads: Reads, client: Client, name: str) -> None:
    """What the source evaluates, Spark does not; and there is less to read. A session of `session()` needs
    no setting for it."""
    client.append_many(name, [NewRecord(n, tag="ab"[n % 2]) for n in range(100)])

    some = reads(minPartitions=4, pushFilters="true").where("seq > 10 and seq <= 12 and tag = 'a'")
    other = reads(minPartitions=4, pushFilters="true").where("data like '%9%'")

    assert "Filter " not in plan_of(some)
    assert some.rdd.getNumPartitions() == 2
    assert "Filter " in plan_of(other)
    assert other.rdd.getNumPartitions() == 4


def test_frames_of_one_load_do_not_mix(reads: Reads, client: Client, name: str) -> None:
    """Spark keeps one plan for both; with its setting on, each frame still has its own rows."""
    client.append(name, *range(100))
    whole = reads()

    first, last = whole.where("seq <= 3"), whole.where("seq > 98")

    assert sorted(row.seq for row in first.union(last).collect()) == [1, 2, 3, 99, 100]
    assert [row.seq for row in first.collect()] == [1, 2, 3]
    assert whole.count() == 100


def test_what_a_read_shows(reads: Reads, client: Client, server: Server, name: str) -> None:
    """By path also what no sync covers yet, where it is asked for; by URL what is durable only of a
    class that shows nothing else. (§2.3)"""
    client.append(name, 0)
    settle(server)
    client.append(name, *range(99))
    assert reads("path", readConsistency="visible", schema="seq BIGINT").count() == 100

    with pytest.raises(Exception, match=r"of class disk: .*set option readConsistency to visible"):
        reads("url", readConsistency="durable").count()
    client.put_topic(name, durability="fsync")
    assert reads("url", readConsistency="durable", schema="seq BIGINT").count() == 100
    with pytest.raises(Exception, match=f'startingOffsets: topic "{name}x" is none of those read'):
        reads(startingOffsets=json.dumps({f"{name}x": 5})).count()


def test_a_frame_ends_where_it_ended_first(reads: Reads, client: Client, name: str) -> None:
    """Its plan is made once; what is appended later is in the next frame."""
    client.append(name, *range(10))
    frame = reads()
    assert frame.count() == 10
    client.append(name, *range(5))
    assert frame.count() == 10
    assert reads().count() == 15


def test_pushed_filters_of_one_load_do_mix(reads: Reads, client: Client, name: str) -> None:
    """Why no filter is pushed unless a read asks for it: what Spark planned for the frame that was
    filtered last is read for the others of that `load()`, too, filtered or not (up to 4.3;
    SPARK-58551 gives each scan a plan of its own).  Should this fail with another version of Spark,
    filters can be pushed by default."""
    client.append(name, *range(100))
    whole = reads(pushFilters="true")
    first, last = whole.where("seq <= 3"), whole.where("seq > 98")

    assert sorted(row.seq for row in first.union(last).collect()) != [1, 2, 3, 99, 100]
    assert whole.count() < 100
    assert reads(pushFilters="true").count() == 100


def plan_of(frame: Any) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def test_columns_are_a_choice(reads: Reads, client: Client, name: str) -> None:
    """By `.schema(...)`, by the option, as Kafka's source has them, and with the source's own."""
    client.append(name, {"n": 1}, tag="k", node="w", meta={"h": [1]})

    assert reads(schema="tag STRING, seq BIGINT").collect() == [("k", 1)]
    assert reads(columns="data,seq").collect() == [('{"n":1}', 1)]
    assert "meta" not in reads(includeMeta="false").columns
    [row] = reads(includeMetadata="true").select("_metadata.source", "_metadata.epoch").collect()
    assert row[0] == reads.server.url
    assert row[1] == client.diff(name).epoch
    [row] = reads(kafkaCompat="true", includeHeaders="true").collect()
    assert bytes(row.key) == b"k"
    assert bytes(row.value) == b'{"n":1}'
    assert (row.topic, row.partition, row.offset, row.timestampType) == (name, 0, 1, 1)
    assert [(h.key, bytes(h.value)) for h in row.headers] == [("h", b"[1]")]


def test_a_corrupt_file_fails_the_read(
    reads: Reads, client: Client, server: Server, name: str, home: Path
) -> None:
    """The error names file and offset; nothing is skipped."""
    client.append(name, "sound", "about to rot", "sound")
    settle(server)
    copy = shutil.copytree(server.data_dir, home / "data")
    # In a segment, and also in the log where its file is not dropped yet.
    for file in (f for f in copy.rglob("*") if f.is_file()):
        file.write_bytes(file.read_bytes().replace(b"about to rot", b"about to rob"))

    with pytest.raises(Exception, match=rf"{copy}\S+: corrupt at byte \d+.*nothing was skipped"):
        reads("path", path=copy).collect()


def test_data_as_a_struct(reads: Reads, client: Client, server: Server, name: str) -> None:
    """By a schema and by inference; a row that does not fit is null, dropped or an error."""
    client.append(name, {"n": 1, "x": 0.5}, {"n": 2, "x": 1, "s": "a"}, "no object", {"n": "two"})
    settle(server)
    fields = "seq BIGINT, data STRUCT<n: BIGINT, s: STRING>"

    for how in ("path", "url"):
        found = reads(how, schema=f"{fields}, _corrupt STRING").collect()
        assert [row.seq for row in found] == [1, 2, 3, 4]
        assert [row.data.n if row.data else None for row in found] == [1, 2, None, None]
        assert [row._corrupt for row in found] == [None, None, '"no object"', '{"n":"two"}']
        dropped = reads(how, schema=fields, mode="DROPMALFORMED").collect()
        assert [row.data.s for row in dropped] == [None, "a"]
        with pytest.raises(Exception, match=r"data does not fit the schema.*seq 3"):
            reads(how, schema=fields, mode="FAILFAST").collect()
    frame = reads(inferSchema="true", endingOffsets=3)
    assert frame.schema["data"].dataType.simpleString() == "struct<n:bigint,x:double,s:string>"
    assert [row.x for row in frame.select("data.x").collect()] == [0.5, 1.0]


def test_data_at_the_limits(reads: Reads, client: Client, server: Server, name: str) -> None:
    """Any name of a member, and values beyond the types: what the typed columns of an export have."""
    wanted = pa.struct(
        {
            "a.b": pa.struct([("ä", pa.float32())]),
            "l": pa.int64(),
            "s": pa.string(),
            "d": pa.date32(),
            "t": US,
            "f": pa.float64(),
            "n": pa.decimal128(10, 2),
        }
    )
    datas = [{n: odd} for n in "lsdtfn" for odd in LIMITS]
    datas += [{"a.b": {"ä": odd}} for odd in LIMITS]
    client.append_many(name, datas)
    settle(server)
    fields = (
        "seq BIGINT, data STRUCT<`a.b`: STRUCT<`ä`: FLOAT>, l: BIGINT, s: STRING, d: DATE, "
        "t: TIMESTAMP, f: DOUBLE, n: DECIMAL(10, 2)>, _corrupt STRING"
    )

    rows = reads("path", schema=fields).toArrow().sort_by("seq").to_pylist()

    texts = [msgspec.json.encode(data).decode() for data in datas]
    assert [row["data"] for row in rows] == [fitted(text, wanted)[0] for text in texts]
    assert [row["_corrupt"] is None for row in rows] == [
        fitted(text, wanted)[1] is not None for text in texts
    ]


def test_where_a_read_begins_and_ends(reads: Reads, client: Client, name: str) -> None:
    """Offsets and times with the names that Kafka's source has; ends are exclusive."""
    client.append(name, *range(10))
    [record, *_] = client.read(name)
    later = record.ts_ms + 3_600_000

    def seqs(**more: Any) -> list[int]:
        return [row.seq for row in reads("url", **more).collect()]

    assert seqs(startingOffsets="8") == [8, 9, 10]
    assert seqs(
        startingOffsets=json.dumps({name: 8}), endingOffsets=json.dumps({name: {"0": 10}})
    ) == [8, 9]
    assert seqs(startingOffsets=json.dumps({name: -1})) == []
    assert seqs(fromSeq=8) == [9, 10]
    assert seqs(startingTimestamp=record.ts_ms) == list(range(1, 11))
    assert seqs(endingTimestamp=record.ts_ms) == []
    assert seqs(startingTimestamp=later, startingOffsetsByTimestampStrategy="latest") == []
    with pytest.raises(Exception, match=f"has no record at or after {later}"):
        seqs(startingTimestamp=later)


def test_loss_is_never_silent(reads: Reads, client: Client, server: Server, name: str) -> None:
    """A lost beginning fails the read, or is one row, or is left out on demand; a delete is none of
    it. (§3.3, §5)"""
    client.put_topic(name, cap_records=5)
    client.append(name, *(NewRecord(n, tag="x" if n == 7 else "t") for n in range(1, 11)))
    client.delete(name, match=("tag", "Eq", "x"))
    settle(server)

    for how in ("path", "url"):
        with pytest.raises(
            Exception, match=r"lost 5 seqs, 1\.\.5, reason cap.*lossHandling"
        ) as caught:
            reads(how).collect()
        assert "earliest-retained" in str(caught.value)
        warned = reads(how, failOnDataLoss="false").collect()
        assert [row.seq for row in warned] == [6, 8, 9, 10]
        assert [r.seq for r in reads(how, startingOffsets="earliest-retained").collect()] == [
            6,
            8,
            9,
            10,
        ]
        found = reads(how, lossHandling="rows", minPartitions=4).where("seq < 9").collect()
        stones = [row for row in found if row._kind == "tombstone"]
        assert [tuple(row._gap) for row in stones] == [(1, 5, "cap", 5)]
        assert sorted(row.seq for row in found if row._kind == "record") == [6, 8]


def test_several_topics(reads: Reads, client: Client, name: str) -> None:
    """By names and by a pattern; many small topics are few tasks."""
    for n in range(20):
        client.append(f"{name}.{n}", n)

    frame = reads(subscribePattern=re.escape(name) + r"\.\d+", minPartitions=3)
    assert frame.rdd.getNumPartitions() == 3
    assert sorted(int(row.data) for row in frame.collect()) == list(range(20))
    assert reads(subscribe=f"{name}.1, {name}.2").count() == 2


def test_sql_needs_no_python(reads: Reads, client: Client, server: Server, name: str) -> None:
    """A view by `USING topics`; Spark makes a `file:` URI of its path."""
    client.append(name, 1, 2, 3)
    settle(server)

    reads.spark.sql(
        f"CREATE OR REPLACE TEMP VIEW v USING topics OPTIONS "
        f"(path '{server.data_dir}', subscribe '{name}')"
    )

    assert reads.spark.sql("SELECT sum(int(data)) FROM v").collect() == [(6,)]


def test_topics_are_views_and_no_tables(
    reads: Reads, client: Client, server: Server, name: str
) -> None:
    """Spark keeps the options of a table to itself, and says nothing of it: this does."""
    options = f"OPTIONS (url '{server.url}', subscribe '{name}')"
    line = "topics are views, not tables.*CREATE TEMPORARY VIEW"
    with pytest.raises(Exception, match=line):
        reads.spark.sql(f"CREATE TABLE {name.replace('-', '_')} USING topics {options}")
    table = f"{name.replace('-', '_')}_typed"
    reads.spark.sql(f"CREATE TABLE {table} (seq BIGINT, data STRING) USING topics {options}")
    try:
        for query in (f"SELECT * FROM {table}", f"INSERT INTO {table} SELECT 1, '2'"):
            with pytest.raises(Exception, match=line):
                reads.spark.sql(query).collect()
    finally:
        reads.spark.sql(f"DROP TABLE {table}")


def test_a_variant_is_made_by_spark(reads: Reads, client: Client, name: str) -> None:
    """The source makes none, on its own or within a struct, and says what does."""
    client.append(name, {"a": [1]})
    for schema in ("data VARIANT", "data STRUCT<a: VARIANT>", "data STRUCT<a: ARRAY<VARIANT>>"):
        with pytest.raises(Exception, match=r"VARIANT.*parse_json\(data\)"):
            reads(schema=schema).collect()
    [row] = reads(schema="data STRING").selectExpr("to_json(parse_json(data)) AS text").collect()
    assert row.text == '{"a":[1]}'


MISTAKES = [
    ({"subscribr": "x"}, "there is no option subscribr; did you mean subscribe\\?"),
    ({"kafka.bootstrap.servers": "x"}, "of Kafka's client and means nothing here"),
    ({"subscribe": "nowhere"}, 'topic "nowhere" does not exist'),
    ({"startingOffsets": "first"}, "option startingOffsets: 'first' is not a word"),
    ({"batchRows": "0"}, "option batchRows: 0 is below 1"),
    ({"subscribePattern": "a", "subscribe": "b"}, "exclude each other"),
    ({"columns": "seq,dat"}, 'no column "dat"; did you mean data\\?'),
    ({"url": "http://127.0.0.1:9", "retryFor": "0s"}, "is `topics serve` running there"),
]


@pytest.mark.parametrize(("options", "line"), MISTAKES, ids=lambda v: str(next(iter(v), ""))[:20])
def test_a_mistake_is_one_line(reads: Reads, options: dict[str, str], line: str) -> None:
    """The driver's message ends with what is wrong and what to do."""
    given = {"url": reads.server.url, "subscribe": "x", **options}

    with pytest.raises(Exception, match=line) as caught:
        reads.spark.read.format("topics").options(**given).load().collect()

    assert re.search(r"(SparkFailure|BadOption): [^\n]*" + line, str(caught.value))


def test_a_directory_that_is_none(reads: Reads, home: Path, client: Client, name: str) -> None:
    """A foreign folder, one that is not there, and a topic that is only in memory."""
    client.put_topic(name, durability="ephemeral")
    client.append(name, 1)

    for path, line in (
        (home, "not a data directory of topics; path is the data directory"),
        (home / "none", "path is the data directory of a topics server"),
        (reads.server.data_dir, "is ephemeral.*option url instead of path"),
    ):
        with pytest.raises(Exception, match=line):
            reads("path", path=path).collect()


def test_damage_fails_the_task(
    reads: Reads, client: Client, server: Server, home: Path, name: str
) -> None:
    """A flipped bit in sealed text ends the job with file and offset; nothing is skipped."""
    from protocol.durable import Durable

    from topics.store.files import OsFiles

    engine = Durable(OsFiles(home / "data"))  # type: ignore[arg-type]
    engine.append(*("x" * 1000 for _ in range(50)))
    engine.seal_all()
    engine.store.idle()
    [segment] = (home / "data").glob("*.seg")
    raw = bytearray(segment.read_bytes())
    raw[-5000] ^= 4
    segment.write_bytes(raw)

    with pytest.raises(Exception, match=r"\.seg.*nothing was skipped"):
        reads("path", path=home / "data", subscribe="t").collect()


def test_a_key_is_not_in_the_plan(reads: Reads, client: Client, name: str) -> None:
    """Neither `explain` nor an error shows it."""
    client.append(name, 1)
    frame = reads("url", apiKey="sesame-1")

    assert "sesame" not in frame._jdf.queryExecution().toString()
    with pytest.raises(Exception, match="does not exist") as caught:
        reads("url", apiKey="sesame-1", subscribe="nowhere").collect()
    assert "sesame" not in str(caught.value)


def test_a_path_and_a_url(
    reads: Reads, client: Client, server: Server, home: Path, name: str
) -> None:
    """Of two places the directory is read where it is the server's own, else the server."""
    client.append(name, 1, 2)
    settle(server)
    shutil.copytree(server.data_dir, home / "copy")
    where = "_metadata.source"
    both = {"url": server.url, "includeMetadata": "true"}

    assert {r[0] for r in reads("path", **both).select(where).collect()} == {str(server.data_dir)}
    away = reads("path", **{**both, "path": home / "none"})
    assert {r[0] for r in away.select(where).collect()} == {server.url}
