"""The columns of a read: those of Kafka's source to the letter, and what `.schema(...)` may ask for."""

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import DataType, LongType, StructField, StructType

from topics.arrow.columns import ASKED_FIELDS, FIELDS
from topics.spark.columns import OWN, Layout, available, default_schema, layout
from topics.spark.errors import BadOption, SparkFailure
from topics.spark.options import ReadOptions, read_options

KAFKA = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
    "timestampType:int>"
)
"""`spark.read.format("kafka")...load().schema.simpleString()` of spark-sql-kafka-0-10 4.2.0."""
HEADERS = ",headers:array<struct<key:string,value:binary>>>"

TYPES = FIELDS | ASKED_FIELDS


def options(**given: str) -> ReadOptions:
    here = {"url": "http://127.0.0.1:4000", "subscribe": "orders", **given}
    return read_options({name.lower(): value for name, value in here.items()})


def schema(**given: str) -> StructType:
    return default_schema(options(**given))


def test_a_job_of_kafkas_source_finds_its_columns() -> None:
    """Names, types, order, and all may be null, so that a schema compares equal."""
    made = schema(kafkaCompat="true")
    assert made.simpleString() == KAFKA
    with_headers = schema(kafkaCompat="true", includeHeaders="true")
    assert with_headers.simpleString() == KAFKA[:-1] + HEADERS
    assert all(field.nullable for field in with_headers.fields)


def test_the_columns_that_options_add_and_leave_out() -> None:
    """In a fixed order, behind the records' own."""
    one = list(FIELDS)
    assert schema().names == one
    assert schema(includeMeta="false").names == [name for name in one if name != "meta"]
    assert schema(lossHandling="rows").names == [*one, "_kind", "_gap"]
    assert schema(includeMetadata="true").names == [*one, "_metadata"]
    assert schema(includePartition="true").names == list(OWN)
    assert default_schema(options(), has_partitions=True).names == list(OWN)
    never = options(includePartition="false")
    assert default_schema(never, has_partitions=True).names == one
    assert schema(columns="data, seq").names == ["data", "seq"]
    with pytest.raises(BadOption, match=r'no column "dat"; did you mean data\?'):
        schema(columns="dat")


NUMBERS = StructType([StructField("n", LongType())])


def made_of(
    names: str, rows: dict[str, Any], types: dict[str, DataType] | None = None, **given: str
) -> list[dict[str, Any]]:
    """Rows of a scan as a read with these columns has them."""
    known = available(options(**given)) | (types or {})
    wanted = StructType([StructField(name, known[name]) for name in names.split()])
    made: Layout = layout(options(**given), wanted, "here")
    arrays = [pa.array(rows[name], TYPES[name]) for name in made.scanned]
    batch = pa.record_batch(arrays, names=list(made.scanned))
    found: list[dict[str, Any]] = made.build(batch, "epoch-1").to_pylist()
    return found


def test_rows_in_the_form_of_kafkas_source() -> None:
    """The time is the server's, and `meta` becomes the headers."""
    rows: dict[str, Any] = {
        "tag": ["k", None],
        "data": ["1", "{}"],
        "seq": [7, 8],
        "meta": ['{"a": [1]}', None],
    }
    rows["partition"] = [3, 3]

    found = made_of(
        "offset key value partition timestampType headers",
        rows,
        kafkaCompat="true",
        includeHeaders="true",
    )

    assert found == [
        {
            "offset": 7, "key": b"k", "value": b"1", "partition": 3, "timestampType": 1,
            "headers": [{"key": "a", "value": b"[1]"}],
        },
        {
            "offset": 8, "key": None, "value": b"{}", "partition": 3, "timestampType": 1,
            "headers": None,
        },
    ]  # fmt: skip


def test_columns_by_types_of_arrow() -> None:
    """Sail's own way to name them: batches have these types to the letter, times without a zone."""
    wanted = pa.schema(
        [("ts", pa.timestamp("us")), ("data", pa.struct([("n", pa.int64())])), ("tag", pa.string())]
    )

    made = layout(options(), wanted, "here")
    rows = {"ts": [1_700_000_000_000_000], "tag": ["a"], "data": ['{"n": 7}']}
    arrays = [pa.array(rows[name], TYPES[name]) for name in made.scanned]
    batch = made.build(pa.record_batch(arrays, names=list(made.scanned)), "epoch-1")

    assert batch.schema.equals(wanted)
    assert batch.column("data").to_pylist() == [{"n": 7}]
    assert batch.column("ts").cast(pa.int64()).to_pylist() == [1_700_000_000_000_000]


def test_data_that_does_not_fit_is_handled_by_the_mode() -> None:
    """Null and its text, nothing, or an error that names the record."""
    rows = {"seq": [1, 2], "data": ['{"n": 1}', '{"n": "x"}']}
    typed = {"data": NUMBERS}

    kept = made_of("seq data _corrupt", rows, typed)
    assert [(row["data"], row["_corrupt"]) for row in kept] == [
        ({"n": 1}, None),
        (None, '{"n": "x"}'),
    ]
    assert [row["seq"] for row in made_of("seq data", rows, typed, mode="DROPMALFORMED")] == [1]
    with pytest.raises(SparkFailure, match=r"mode is FAILFAST: seq 2"):
        made_of("seq data", rows, typed, mode="FAILFAST")


def test_where_a_row_comes_from() -> None:
    """The place and the topic's epoch, the same for all rows of a batch."""
    [row] = made_of("seq _metadata", {"seq": [1]}, includeMetadata="true")
    assert row["_metadata"] == {"source": "here", "epoch": "epoch-1"}
    assert "_corrupt" in available(options())
