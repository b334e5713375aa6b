"""Typed `data`: what fits which type, what becomes of the rest, and what a sample says."""

import datetime
import json
from decimal import Decimal
from typing import Any, get_args

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topics.arrow.columns import FIELDS, schema
from topics.arrow.typed import BadRow, Mode, infer, typed, typed_rows, typed_schema

from .limits import TYPES, US, fitted, values

AB = pa.schema([("a", pa.int64()), ("b", pa.string())])


def batch(*texts: str | None) -> pa.RecordBatch:
    seqs = range(1, len(texts) + 1)
    return pa.record_batch(
        [pa.array(seqs, pa.int64()), pa.array(texts, pa.string())], ["seq", "data"]
    )


def datas(made: pa.RecordBatch) -> list[Any]:
    return made.column("data").to_pylist()


def one(text: str, wanted: pa.DataType) -> Any:
    """What becomes of a member with this JSON; "bad" where it does not fit."""
    made = typed(batch('{"v":' + text + "}"), pa.schema([("v", wanted)]))
    return "bad" if made.column("_corrupt")[0].as_py() is not None else datas(made)[0]["v"]


MIDNIGHT = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("wanted", "text", "value"),
    [
        (pa.int64(), "1", 1),
        (pa.int64(), "-9223372036854775808", -(1 << 63)),
        (pa.int64(), "9223372036854775808", "bad"),
        (pa.int64(), "1.0", "bad"),
        (pa.int64(), '"1"', "bad"),
        (pa.int64(), "null", None),
        (pa.int8(), "128", "bad"),
        (pa.uint64(), "18446744073709551615", (1 << 64) - 1),
        (pa.uint8(), "-1", "bad"),
        (pa.float64(), "1", 1.0),
        (pa.float64(), "1e5", 100000.0),
        (pa.float64(), "1e999", "bad"),
        (pa.float64(), "1" + "0" * 400, "bad"),
        (pa.float64(), "9007199254740993", 9007199254740992.0),
        (pa.float32(), "16777217", 16777216.0),
        (pa.float32(), "1e39", "bad"),
        (pa.float32(), "-1e39", "bad"),
        (pa.float32(), '"1"', "bad"),
        # The nearest float, and not that of the nearest double.
        (pa.float32(), "1.00000005960464480", 1.0000001192092896),
        (pa.float64(), "-0", 0.0),
        (pa.string(), "-0", "-0"),
        (pa.float64(), '"1"', "bad"),
        (pa.bool_(), "true", True),
        (pa.bool_(), "0", "bad"),
        (pa.string(), '"\\u00fc"', "ü"),
        (pa.string(), "1.0", "1.0"),
        (pa.string(), '{"x": [1, 2.50]}', '{"x": [1, 2.50]}'),
        (pa.string(), "true", "true"),
        (US, '"2026-01-01T00:00:00Z"', MIDNIGHT),
        (US, '"2026-01-01T01:00:00+01:00"', MIDNIGHT),
        (US, '"2026-01-01"', MIDNIGHT),
        (pa.timestamp("us"), '"2026-01-01T00:00:00Z"', MIDNIGHT.replace(tzinfo=None)),
        (US, '"soon"', "bad"),
        (US, "5", "bad"),
        (US, '"0001-01-01T00:00:00Z"', datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)),
        (US, '"0000-12-31T23:59:59Z"', "bad"),
        (US, '"0001-01-01T00:00:00+14:00"', "bad"),
        (US, '"9999-12-31T23:59:59-14:00"', "bad"),
        (US, '"2026-02-30T00:00:00Z"', "bad"),
        (US, '"2026-01-01T00:00:00.1234567Z"', "bad"),
        (pa.timestamp("ns"), '"3000-01-01T00:00:00Z"', "bad"),
        (pa.date32(), '"2026-01-01"', datetime.date(2026, 1, 1)),
        (pa.date32(), "5", "bad"),
        (pa.date32(), '"0000-01-01"', "bad"),
        (pa.date32(), '"9999-12-31"', datetime.date(9999, 12, 31)),
        (pa.date32(), '"2026-02-29"', "bad"),
        (pa.decimal128(10, 2), "1.25", Decimal("1.25")),
        (pa.decimal128(10, 2), '"1.25"', Decimal("1.25")),
        (pa.decimal128(10, 2), "1.255", "bad"),
        (pa.decimal128(10, 2), '"null"', "bad"),
        (pa.decimal128(10, 2), "null", None),
        (pa.decimal128(10, 2), '" 1"', Decimal("1.00")),
        (pa.decimal128(10, 2), "99999999.990", Decimal("99999999.99")),
        (pa.decimal128(10, 2), "100000000", "bad"),
        (pa.decimal128(10, 2), "123456789.1", "bad"),
        (pa.decimal128(10, 2), '"NaN"', "bad"),
        (pa.decimal128(10, 2), "true", "bad"),
        (pa.decimal128(10, 2), "1E+2", Decimal("100.00")),
        (pa.decimal128(10, 2), "-0e400", Decimal("0.00")),
        (pa.decimal128(10, 2), "1e-40", "bad"),
        pytest.param(pa.decimal128(10, 2), "1." + "0" * 900_000, Decimal("1.00"), id="many zeros"),
        # Of these Arrow makes other numbers, the remainders of 2^128.
        (pa.decimal128(38, 0), "3.5e38", "bad"),
        (pa.decimal128(38, 0), "9.5e37", Decimal("95" + "0" * 36)),
        (pa.decimal128(38, 17), "60567091398508020614247218", "bad"),
        (pa.decimal128(38, 17), "60567091398508020.5", Decimal("60567091398508020.5")),
        (pa.list_(pa.int64()), "[1,null]", [1, None]),
        (pa.list_(pa.int64()), '[1,"x"]', "bad"),
        (pa.list_(pa.int64()), "{}", "bad"),
        (pa.struct([("c", pa.int64())]), '{"c":1,"d":2}', {"c": 1}),
        (pa.struct([("c", pa.int64())]), "{}", {"c": None}),
        (pa.map_(pa.string(), pa.int64()), '{"x":1}', [("x", 1)]),
    ],
)
def test_what_fits_which_type(wanted: pa.DataType, text: str, value: Any) -> None:
    """A string field takes all, each other type its own kind; beside a row that does not fit, the
    outcome is the same."""
    assert one(text, wanted) == value

    beside = typed(batch('{"v":' + text + "}", "[]"), pa.schema([("v", wanted)]))
    assert beside.column("_corrupt")[1].as_py() == "[]"
    assert (beside.column("_corrupt")[0].as_py() is not None) == (value == "bad")
    if value != "bad":
        assert datas(beside)[0]["v"] == value


def test_what_does_not_fit_is_kept_dropped_or_an_error() -> None:
    """Null and its text, nothing, or an error with the seq; JSON `null` fits, and so does a row of a
    gap, which has no `data`."""
    rows = batch('{"a":1,"b":"x"}', '{"a":"one"}', "[1]", "null", None, ' {"a":2}')

    kept = typed(rows, AB)
    assert datas(kept) == [{"a": 1, "b": "x"}, None, None, None, None, {"a": 2, "b": None}]
    corrupt = [None, '{"a":"one"}', "[1]", None, None, None]
    assert kept.column("_corrupt").to_pylist() == corrupt

    dropped = typed(rows, AB, "DROPMALFORMED")
    assert dropped.column("seq").to_pylist() == [1, 4, 5, 6]
    assert "_corrupt" not in dropped.schema.names
    with pytest.raises(BadRow, match='seq 2: "one" is no integer'):
        typed(rows, AB, "FAILFAST")


def test_a_name_that_is_there_twice() -> None:
    """The last value counts, and each has to fit."""
    rows = batch('{"a":1,"a":2}', '{"a":"x","a":2}')
    assert datas(typed(rows, AB)) == [{"a": 2, "b": None}, None]
    with pytest.raises(BadRow, match="seq 2: a name is there twice"):
        typed(rows, AB, "FAILFAST")


def test_a_bare_null_does_not_reach_the_parser() -> None:
    """`pyarrow.json` would end the process there."""
    assert datas(typed(batch("null"), AB)) == [None]
    assert datas(typed(batch('{"a":1}', "null"), AB)) == [{"a": 1, "b": None}, None]


def test_objects_of_several_lines() -> None:
    """The text of a record may be laid out as its writer liked."""
    rows = batch('{"a":1\n}', '{\n"a":2,"b":"}{"}', '{"a":3}\n\n')
    assert [row["a"] for row in datas(typed(rows, AB))] == [1, 2, 3]


def test_very_deep_values() -> None:
    """A member that is not wanted may be nested as deep as it likes."""
    deep = '{"b":"1","x":' + "[" * 50_000 + "]" * 50_000 + "}"
    assert (
        datas(typed(batch(deep), AB))[0] == {"a": None, "b": "1"}
        or typed(batch(deep), AB).column("_corrupt")[0].as_py() == deep
    )


types = st.recursive(
    st.sampled_from([*TYPES, pa.timestamp("ns")]),
    lambda inner: (
        inner.map(pa.list_)
        | inner.map(lambda kind: pa.map_(pa.string(), kind))
        | st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=2).map(
            lambda fields: pa.struct(list(fields.items()))
        )
    ),
    max_leaves=4,
)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.dictionaries(st.sampled_from("abc"), values) | values, min_size=1, max_size=6),
    st.dictionaries(st.sampled_from("abc"), types, min_size=1, max_size=3),
)
def test_batches_do_not_change_rows(rows: list[Any], members: dict[str, pa.DataType]) -> None:
    """Each row becomes the same alone, with others, and without the parser of whole batches."""
    fields = pa.schema(list(members.items()))
    texts = [json.dumps(row) for row in rows]

    together = typed_rows(batch(*texts), fields)
    wanted = together.batch.schema.field("data").type

    fitting = [fitted(text, wanted) for text in texts]
    assert [row for row, _ in fitting] == datas(together.batch)
    corrupt = together.batch.column("_corrupt").to_pylist()
    assert [text is not None for text in corrupt] == [count is None for _, count in fitting]
    assert together.rounded == sum(count or 0 for _, count in fitting)
    for row, text in enumerate(texts):
        assert datas(typed(batch(text), fields)) == [datas(together.batch)[row]]


def test_integers_that_are_rounded_are_counted() -> None:
    """A double holds those of 53 bits, and some others; of a row that does not fit none counts."""
    fields = pa.schema([("d", pa.float64()), ("l", pa.list_(pa.float32())), ("b", pa.bool_())])
    rows = batch(
        '{"d":9007199254740993,"l":[16777217,1,16777218]}',
        '{"d":9007199254740992,"l":[9007199254740993.5]}',
        '{"d":9007199254740993,"b":1}',
    )
    assert (typed_rows(rows, fields).rounded, typed_rows(rows, fields).bad) == (2, 1)
    assert typed_rows(rows.slice(0, 1), fields).rounded == 2


@pytest.mark.parametrize(
    "name", ["a.b", "", '"', "\\", "\n", "\0", "ä", "data", "a\ud83d\ude00", "[]", "f0"], ids=repr
)
def test_any_name_of_a_member(name: str) -> None:
    """Also of one that no parser of tables takes; one row does not fit, and the others do."""
    name = name.encode("utf-16", "surrogatepass").decode("utf-16")
    fields = pa.schema([(name, pa.struct([(name, pa.int64())])), ("f0x", pa.string())])
    texts = [json.dumps({name: {name: 1}}), json.dumps({name: 1}), json.dumps({"f0x": [name]})]

    made = typed(batch(*texts), fields)

    assert datas(made)[0] == {name: {name: 1}, "f0x": None}
    assert made.column("_corrupt").to_pylist() == [None, texts[1], None]
    assert json.loads(datas(made)[2]["f0x"]) == [name]


def test_one_bad_row_of_many() -> None:
    """The others of its batch are what they would be without it."""
    texts = [json.dumps({"a": n}) for n in range(10_000)]
    texts[7777] = '{"a":[]}'
    made = typed(batch(*texts), AB)
    assert [row and row["a"] for row in datas(made)] == [*range(7777), None, *range(7778, 10_000)]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.dictionaries(st.sampled_from("abc"), values, min_size=1), min_size=1, max_size=8)
)
def test_the_sample_fits_what_was_inferred(rows: list[dict[str, Any]]) -> None:
    """No row that the schema was made of is corrupt under it."""
    sample = batch(*(json.dumps(row) for row in rows))
    made = typed(sample, infer([sample]))
    assert made.column("_corrupt").null_count == len(rows)


def test_how_kinds_widen() -> None:
    """Integers and numbers to double, other mixtures and what says nothing to text."""
    rows = [
        '{"i":1,"n":1,"exact":9007199254740993,"m":1,"s":"x","o":{"x":1},"l":[1],"none":null,"e":{},"big":9223372036854775808}',
        '{"i":2,"n":1.5,"exact":1.5,"m":"y","o":{"y":true},"l":[2.5],"el":[]}',
        "[1]",
    ]
    assert infer([batch(*rows)]) == pa.schema(
        [
            ("i", pa.int64()),
            ("n", pa.float64()),
            ("exact", pa.string()),
            ("m", pa.string()),
            ("s", pa.string()),
            ("o", pa.struct([("x", pa.int64()), ("y", pa.bool_())])),
            ("l", pa.list_(pa.float64())),
            ("none", pa.string()),
            ("e", pa.string()),
            ("big", pa.string()),
            ("el", pa.string()),
        ]
    )
    with pytest.raises(ValueError, match="none of 2 records is an object"):
        infer([batch("[1]", "2")])


def test_an_object_with_names_that_are_data_is_text() -> None:
    """A thousand columns are none that a person wants."""
    rows = batch(json.dumps({"by_id": {f"k{n}": 1 for n in range(1500)}}), '{"by_id":{"z":1}}')
    assert infer([rows]) == pa.schema([("by_id", pa.string())])


def test_a_sample_has_a_size() -> None:
    """What comes behind it is not read."""

    def batches() -> Any:
        yield batch('{"a":1}', '{"a":2}')
        yield batch('{"a":3}', '{"b":4}')
        raise AssertionError("read too far")

    assert infer(batches(), sample_rows=3).names == ["a"]


@pytest.mark.parametrize("mode", get_args(Mode))
def test_the_schema_is_known_before(mode: Mode) -> None:
    """`typed_schema` says what `typed` gives, also of an empty batch."""
    scanned = schema(list(FIELDS))
    expected = typed_schema(scanned, AB, mode)
    assert typed(_empty(scanned), AB, mode).schema == expected
    assert (expected.names[-1] == "_corrupt") == (mode == "PERMISSIVE")


def _empty(scanned: pa.Schema) -> pa.RecordBatch:
    return pa.record_batch([pa.array([], field.type) for field in scanned], schema=scanned)


def test_a_schema_that_no_json_fills() -> None:
    """Refused before a row is read."""
    for wrong in (
        pa.binary(),
        pa.dictionary(pa.int32(), pa.string()),
        pa.map_(pa.int64(), pa.int64()),
    ):
        with pytest.raises(ValueError, match=r"JSON"):
            typed_schema(schema(["data"]), pa.schema([("x", pa.list_(wrong))]))
    with pytest.raises(ValueError, match='no column "data"'):
        typed_schema(schema(["seq"]), AB)
    with pytest.raises(ValueError, match="none of PERMISSIVE"):
        typed_schema(schema(["data"]), AB, "permissive")  # type: ignore[arg-type]
