"""Rows of Spark as records: which columns there are, and that no text changes the request."""

import json
from typing import Any

import orjson
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from topics.spark.encoding import Row, _checked, columns_of, is_sourced
from topics.spark.errors import BadOption, SparkFailure
from topics.spark.options import write_options

TEXT, NUMBER = StringType(), LongType()


def rows(types: dict[str, Any], *values: dict[str, Any], **options: str) -> list[Row]:
    schema = StructType([StructField(name, kind) for name, kind in types.items()])
    given = write_options({"url": "http://h", "topic": "t", **options})
    batch = pa.RecordBatch.from_pylist(list(values), to_arrow_schema(schema, timezone="UTC"))
    return list(columns_of(schema, given).rows(batch))


def records(types: dict[str, Any], *values: dict[str, Any], **options: str) -> list[Any]:
    return [orjson.loads(row.encoded()) for row in rows(types, *values, **options)]


def test_json_goes_byte_for_byte() -> None:
    """Spaces, numbers and order stay; a NULL is `null`. (§0.4)"""
    [first, second] = rows({"data": TEXT}, {"data": '{"b": 1.0,  "a":1e5}'}, {"data": None})
    assert (first.encoded(), second.encoded()) == (
        b'{"data":{"b": 1.0,  "a":1e5}}',
        b'{"data":null}',
    )


@pytest.mark.parametrize("text", ['1},{"data":2', "", "{", "1 2", "NaN", "'a'", '{"a":1}}', "[1,]"])
def test_what_is_not_one_value_is_refused(text: str) -> None:
    """It would otherwise become other records, or break its whole chunk."""
    with pytest.raises(SparkFailure, match="data is not JSON"):
        rows({"data": TEXT}, {"data": text})
    with pytest.raises(SparkFailure, match=r"meta is (not JSON|no JSON object)"):
        rows({"data": TEXT, "meta": TEXT}, {"data": "1", "meta": text})


def test_strings_that_hold_anything() -> None:
    """Tags and nodes are escaped; absent ones are left out."""
    types = {"data": TEXT, "tag": TEXT, "node": TEXT, "meta": TEXT}
    odd = '"},\n\\ü'
    found = records(
        types,
        {"data": "1", "tag": odd, "node": odd, "meta": ' {"h": 1}'},
        {"data": "2", "tag": None, "node": None, "meta": None},
    )
    assert found == [{"data": 1, "tag": odd, "node": odd, "meta": {"h": 1}}, {"data": 2}]


def test_the_stamp_goes_beside_what_is_in_meta() -> None:
    """Whatever spaces there are."""
    for meta in (None, "{}", "{ }", ' {"h": 1}'):
        [row] = rows({"data": TEXT, "meta": TEXT}, {"data": "1", "meta": meta})
        found = orjson.loads(row.encoded(b'"_s":{"a":1}'))["meta"]
        assert found == {"_s": {"a": 1}, **json.loads(meta or "{}")}


def test_the_stamp_of_another_write_is_left_out() -> None:
    """A row of a topic that was written by Spark has its stamp: it would be one of this write."""
    meta = '{"h": 1.0, "_topics_spark":{"a":"x"}, "note": "_topics_spark"}'
    [row] = rows({"data": TEXT, "meta": TEXT}, {"data": "1", "meta": meta})
    assert row.meta == b'{"h":1.0,"note":"_topics_spark"}'
    assert row.encoded(b'"_topics_spark":{}').count(b'"_topics_spark":{') == 1
    meta = '{"note":  "_topics_spark"}'
    [row] = rows({"data": TEXT, "meta": TEXT}, {"data": "1", "meta": meta})
    assert row.meta == meta.encode()


def test_values_become_json() -> None:
    """Structs and maps are objects, arrays arrays, wherever they are nested."""
    inner = StructType([StructField("m", MapType(TEXT, ArrayType(MapType(TEXT, NUMBER))))])
    value = {"m": [("k", [[("x", 1)]])]}
    assert records({"data": inner}, {"data": value}) == [{"data": {"m": {"k": [{"x": 1}]}}}]
    assert records({"data": NUMBER}, {"data": 5}, {"data": None}) == [{"data": 5}, {"data": None}]


def test_names_of_kafka() -> None:
    """`key` and `value` stand for tag and data, as bytes, too; text if it is said to be."""
    types = {"key": BinaryType(), "value": BinaryType()}
    assert records(types, {"key": b"k", "value": b"[1]"}) == [{"data": [1], "tag": "k"}]
    found = records(types, {"key": None, "value": b"plain"}, dataformat="text")
    assert found == [{"data": "plain"}]


def test_where_a_row_goes() -> None:
    """The option wins over the column, which is then where the row comes from."""
    types = {"data": TEXT, "topic": TEXT, "seq": NUMBER}
    value = {"data": "1", "topic": "orders", "seq": 7}
    [row] = rows(types, value)
    assert (row.target, row.source, row.seq) == ("t", "orders", 7)
    schema = StructType([StructField(name, kind) for name, kind in types.items()])
    assert is_sourced(schema)
    columns = columns_of(schema, write_options({"url": "http://h"}))
    batch = pa.RecordBatch.from_pylist([value, {**value, "topic": None}], to_arrow_schema(schema))
    found = columns.rows(batch)
    assert next(found).target == "orders"
    with pytest.raises(SparkFailure, match="null in its column topic"):
        next(found)


def test_columns_without_a_place() -> None:
    """Columns with an underscore and `ts` are left out; others would be lost, and are refused."""
    assert records({"data": TEXT, "_x": NUMBER, "ts": TEXT}, {"data": "1", "_x": 1, "ts": "a"}) == [
        {"data": 1}
    ]
    with pytest.raises(BadOption, match="column id has no place"):
        rows({"data": TEXT, "id": NUMBER}, {"data": "1", "id": 1})


@pytest.mark.parametrize("levels", [1001, 100_000])
def test_json_that_is_nested_too_deeply(levels: int) -> None:
    """A thousand levels of a text are sent; one more is refused before anything is. (§0.3)"""
    assert _checked(b"[" * 1000 + b"]" * 1000, "data").count(b"[") == 1000
    with pytest.raises(SparkFailure, match="nested more than 1000 levels deep"):
        _checked(b"[" * levels + b"]" * levels, "data")
