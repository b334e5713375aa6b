"""Every type of Spark as a write makes JSON of it, beside what Spark's own `to_json` makes."""

import json
import random
import struct

import pytest

from topics import Client

from .conftest import Reads
from .test_writing import write

pytestmark = pytest.mark.spark

VALUES = {
    "integers": "tinyint(-128), smallint(7), int(-1), 9223372036854775807L, true, cast(null AS int)",
    "doubles": "0.1D, 1e7D, 9999999D, 1e-3D, 9.99e-4D, 1e300D, 5e-324D, -0D, 123456789.125D, 100D",
    "no numbers": "double('NaN'), double('Infinity'), double('-Infinity'), float('NaN'), "
    "float('Infinity'), float('-Infinity')",
    "floats": "float(0.1), float(16777216), float(3.4028235e38), float(1e-45), float(1e10), float(-0.0)",
    "decimals": "cast(1.5 AS decimal(10,3)), cast(0 AS decimal(38,18)), cast(1e-7 AS decimal(20,10)), "
    "cast(-99999999999999999999.99 AS decimal(38,2)), 10BD",
    "texts": "'', 'a\"b\\\\c/d', 'tab\\t nl\\n bell\\u0007 del\\u007f esc\\u001b', 'ü€😀', '\\u2028', "
    "cast('x' AS char(3)), 'é' COLLATE UTF8_LCASE",
    "binary": "X'', X'00FF', X'0102030405'",
    "dates": "date'2026-01-02', date'0001-01-01', date'9999-12-31', date'+12345-06-07', "
    "date'-0044-03-15', date'0000-01-01'",
    "times": "timestamp'2026-01-02 03:04:05.678901', timestamp'1969-12-31 23:59:59.9999', "
    "timestamp'1800-01-01 00:00:00', timestamp'+20000-07-01 12:00:00', timestamp'-0010-01-01 00:00:00', "
    "timestamp'2026-07-02 03:04:05', timestamp'1890-01-01 00:00:00'",
    "local times": "timestamp_ntz'2026-01-02 03:04:05.678901', timestamp_ntz'0001-01-01 00:00:00', "
    "timestamp_ntz'+12345-01-01 00:00:00'",
    "times of day": "time'01:02:03.456', time'00:00:00', time'23:59:59.999999'",
    "months": "interval '1-2' year to month, interval '-1-2' year to month, interval '-3' month, "
    "interval '4' year, interval '0' month",
    "days": "interval '1 2:3:4.5' day to second, interval '-1 2:3:4.000001' day to second, "
    "interval '5' day, interval '49' hour, interval '-7' minute, interval '3.25' second, "
    "interval '1 2' day to hour, interval '1 2:3' day to minute, interval '30:01' hour to minute, "
    "interval '30:01:09' hour to second, interval '90:01.5' minute to second, interval '100' second, "
    "make_dt_interval(-106751991, -4, 0, -54.775808)",
    "variants": 'parse_json(\'{"b":1.5,"a":[1,null,"ü",true,1e100]}\'), parse_json(\'"x"\'), '
    "to_variant_object(named_struct('f', float(0.1), 'd', double('NaN'), 'b', X'00FF', "
    "'t', timestamp'2026-07-02 03:04:05.6789', 'n', timestamp_ntz'2026-01-02 03:04:05', "
    "'y', date'+12345-06-07', 'c', 1.50BD, 'l', 9223372036854775807L, 'z', cast(1e-9 AS decimal(20,10)))), "
    "cast(null AS variant), parse_json('null'), parse_json(concat('\"', repeat('y', 300), '\"'))",
    "nested": "array(X'00', null), map('k', X'00FF', 'n', null), named_struct('b', X'01', 'n', null), "
    "array(named_struct('m', map('x', array(float(0.1), null)))), array(), map(), "
    "array(interval '1' month), named_struct('\"odd\\n name', 1), cast(null AS struct<a: int>), "
    "array(cast(null AS struct<a: int>)), cast(null AS void), array(parse_json('[1]'))",
    "keys": "map(1, 'a', 2, null), map(true, 1), map(1.5D, 1, double('NaN'), 2), map(float(0.1), 1), "
    "map(1.50BD, 1), map(date'2026-01-02', 1), map(timestamp'2026-01-02 03:04:05', 1), "
    "map(interval '1-2' year to month, 1), map(interval '1' day, 1), map('q\"', 1), map(tinyint(1), 1), "
    "map(timestamp_ntz'2026-01-02 03:04:05', 1), map(time'00:00:01', 1)",
}


def struct_of(values: str) -> str:
    return f"struct({values})"


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "+05:30"])
@pytest.mark.parametrize("ignored", [True, False], ids=["without nulls", "with nulls"])
def test_it_is_what_to_json_makes(
    reads: Reads, client: Client, name: str, zone: str, ignored: bool
) -> None:
    """The same text, byte for byte, of every type, at any depth, in every zone; with the session's
    setting for nulls, and with the option."""
    spark = reads.spark
    try:
        spark.conf.set("spark.sql.session.timeZone", zone)
        spark.conf.set("spark.sql.jsonGenerator.ignoreNullFields", str(ignored).lower())
        # A literal is folded; a value of a row is not.
        rows = [
            spark.range(1).selectExpr(f"{struct_of(values)} AS data", "cast(id AS string) AS tag")
            for values in VALUES.values()
        ]
        expected = [frame.selectExpr("to_json(data) AS text").collect()[0].text for frame in rows]
        for frame in rows:
            write(frame, reads, name)
        write(rows[0], reads, name, ignoreNullFields=str(not ignored).lower())
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        spark.conf.set("spark.sql.jsonGenerator.ignoreNullFields", "true")

    *found, other = [row.data for row in reads("url").orderBy("seq").collect()]
    assert dict(zip(VALUES, found, strict=True)) == dict(zip(VALUES, expected, strict=True))
    assert ("null" in other) is ignored


def test_numbers_of_all_sizes(reads: Reads, client: Client, name: str) -> None:
    """The least digits that mean the number: the ones that `to_json` writes, but where an older Java
    does not find the least, or the nearest of them."""
    chance = random.Random(3)
    bits = [chance.getrandbits(64) for _ in range(3000)]
    doubles = [d for b in bits if (d := struct.unpack("<d", struct.pack("<Q", b))[0]) == d]
    floats = [
        f for b in bits if (f := struct.unpack("<f", struct.pack("<I", b & 0xFFFFFFFF))[0]) == f
    ]
    rows = [*zip(doubles, floats, strict=False)]
    frame = reads.spark.createDataFrame(rows, "d DOUBLE, f FLOAT").coalesce(1)
    frame = frame.selectExpr("struct(d, f) AS data")
    write(frame, reads, name)

    written = [row.data for row in reads("url").orderBy("seq").collect()]
    expected = [row.text for row in frame.selectExpr("to_json(data) AS text").collect()]
    assert [json.loads(text)["d"] for text in written] == [row[0] for row in rows]
    longer = [
        (ours, theirs) for ours, theirs in zip(written, expected, strict=True) if ours != theirs
    ]
    assert len(longer) < len(rows) // 5
    assert all(len(ours) <= len(theirs) for ours, theirs in longer)
    for ours, theirs in longer:
        mine, spark = json.loads(ours), json.loads(theirs)
        assert mine["d"] == spark["d"]
        assert struct.pack("<f", mine["f"]) == struct.pack("<f", spark["f"])


def test_types_at_the_top(reads: Reads, client: Client, name: str) -> None:
    """`data` itself may be of any type but text and bytes, which are JSON already."""
    values = ["float(0.1)", "array(X'00FF')", "map(1, X'00')", "interval '1' day", "date'2026-01-02'",
              "double('NaN')", "cast(null AS struct<a: int>)", "parse_json('{}')"]  # fmt: skip
    for value in values:
        write(reads.spark.sql(f"SELECT {value} AS data"), reads, name)
    assert [row.data for row in reads("url").orderBy("seq").collect()] == [
        "0.1", '["AP8="]', '{"1":"AA=="}', "\"INTERVAL '1' DAY\"", '"2026-01-02"', '"NaN"', "null", "{}"
    ]  # fmt: skip


def test_months_at_the_top(reads: Reads, name: str) -> None:
    """PySpark hands no column of them over, but within a struct."""
    with pytest.raises(
        Exception, match="column data is interval month, which PySpark hands over within"
    ):
        write(reads.spark.sql("SELECT interval '1' month AS data"), reads, name)


def test_a_type_of_the_users(reads: Reads, client: Client, name: str) -> None:
    """Is written as what it is made of."""
    from pyspark.sql.types import StructField, StructType
    from pyspark.testing.objects import ExamplePoint, ExamplePointUDT

    kind = StructType([StructField("p", ExamplePointUDT())])
    rows = [(ExamplePoint(1.5, 2.0),), (None,)]  # type: ignore[no-untyped-call]
    frame = reads.spark.createDataFrame(rows, kind).coalesce(1)
    frame = frame.selectExpr("struct(p, array(p) AS a) AS data")
    write(frame, reads, name)
    expected = [row.text for row in frame.selectExpr("to_json(data) AS text").collect()]
    assert [row.data for row in reads("url").orderBy("seq").collect()] == expected


ODD_KEYS = "struct(map(X'00FF', 1) AS b, map(array(1), 1) AS a, map(named_struct('x', 1), 1) AS s)"


def test_keys_that_spark_names_by_its_memory(reads: Reads, client: Client, name: str) -> None:
    """`to_json` writes an address there, or bits; here it is the text of the key."""
    write(reads.spark.sql(f"SELECT {ODD_KEYS} AS data"), reads, name)
    [row] = reads("url").collect()
    assert json.loads(row.data) == {"b": {"AP8=": 1}, "a": {"[1]": 1}, "s": {'{"x":1}': 1}}


def test_text_that_is_no_utf8(reads: Reads, client: Client, name: str) -> None:
    """Spark takes any bytes for a string, and writes a character in the place of a wrong one."""
    frame = reads.spark.sql("SELECT named_struct('t', cast(X'61FF62' AS string)) AS data")
    write(frame, reads, name)
    [row] = reads("url").collect()
    assert json.loads(row.data) == {"t": "a\ufffdb"}


def test_intervals_of_all_units(reads: Reads, client: Client, name: str) -> None:
    """Spark itself writes those to no source, and says so."""
    frame = reads.spark.sql("SELECT named_struct('i', make_interval(1, 2, 3)) AS data")
    with pytest.raises(Exception, match='Cannot use "INTERVAL" type in the table schema'):
        write(frame, reads, name)
