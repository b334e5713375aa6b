"""Values of Spark as the texts that `to_json` writes of them.

Owns the text of each type.  A text is a string of one JSON value; a null has none, so that whatever
holds the value decides what becomes of it.  Where `to_json` names a value by Spark's own memory (a key
of a map that is binary, an array or a struct), the key is the text of the value.

Numbers, dates and times go as integers from Arrow to here: Python's own types hold fewer of them.
"""

import base64
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from json.encoder import encode_basestring as escaped
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    NullType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    UserDefinedType,
    VariantType,
    YearMonthIntervalType,
)

from topics.spark.java_texts import clock, day, number, offset_s, zone_of
from topics.spark.variant_texts import variant_text

Texts: TypeAlias = Sequence[str | None]

_CONTROL: Final = re.compile(r"\\u00[01][a-f]")


@dataclass(frozen=True, slots=True)
class Rules:
    """What a session says of JSON.

    Attributes:
        ignores_nulls: A field of a struct that is null is left out.
        zone: Of the times in a VARIANT; other times have the zone of their column.
    """

    ignores_nulls: bool = True
    zone: str = "UTC"


def texts_of(kind: DataType, values: pa.Array, rules: Rules) -> Texts:
    """The text of each value; None for a null.

    Raises:
        TypeError: There is no text of the type.
    """
    match kind:
        case UserDefinedType():
            return texts_of(kind.sqlType(), values, rules)
        case StructType():
            found = _structs(kind, values, rules)
        case ArrayType():
            found = _arrays(kind, values, rules)
        case MapType():
            found = _maps(kind, values, rules)
        case VariantType():
            found = _variants(values, rules)
        case _:
            return _leaves(kind, values)
    return _with_nulls(values, found)


def _with_nulls(values: pa.Array, found: Iterator[str]) -> Texts:
    if not values.null_count:
        return list(found)
    there = values.is_valid().to_pylist()
    return [text if is_there else None for text, is_there in zip(found, there, strict=True)]


def _structs(kind: StructType, values: pa.Array, rules: Rules) -> Iterator[str]:
    names = [f"{_quoted(each.name)}:" for each in kind.fields]
    columns = [texts_of(f.dataType, values.field(n), rules) for n, f in enumerate(kind.fields)]
    rows = zip(*columns, strict=True) if columns else iter([()] * len(values))
    for row in rows:
        pairs = zip(names, row, strict=True)
        if rules.ignores_nulls:
            yield "{" + ",".join([name + text for name, text in pairs if text is not None]) + "}"
        else:
            yield "{" + ",".join([name + (text or "null") for name, text in pairs]) + "}"


def _arrays(kind: ArrayType, values: pa.Array, rules: Rules) -> Iterator[str]:
    items = [text or "null" for text in texts_of(kind.elementType, values.values, rules)]
    for lo, hi in _spans(values):
        yield "[" + ",".join(items[lo:hi]) + "]"


def _maps(kind: MapType, values: pa.Array, rules: Rules) -> Iterator[str]:
    keys = _keys(kind.keyType, values.keys, rules)
    items = texts_of(kind.valueType, values.items, rules)
    pairs = [f"{key}:{text or 'null'}" for key, text in zip(keys, items, strict=True)]
    for lo, hi in _spans(values):
        yield "{" + ",".join(pairs[lo:hi]) + "}"


def _spans(values: pa.Array) -> Iterator[tuple[int, int]]:
    """Where the items of each list are among those of all; a null has none."""
    ends = values.offsets.to_pylist()
    return pairwise(ends)


def _variants(values: pa.Array, rules: Rules) -> Iterator[str]:
    zone = zone_of(rules.zone)
    for value, metadata in zip(
        values.field("value").to_pylist(), values.field("metadata").to_pylist(), strict=True
    ):
        yield "null" if value is None else variant_text(value, metadata, zone)


# ------------------------------------------------------------------ leaves


def _leaves(kind: DataType, values: pa.Array) -> Texts:
    if isinstance(kind, NullType):
        return [None] * len(values)
    make = _MAKERS.get(kind.typeName())
    if make is None:
        raise TypeError(f"to_json has no text for a {kind.simpleString()}")
    return make(kind, values)


def _each(values: Sequence[Any], text: Callable[[Any], str]) -> Texts:
    return [None if value is None else text(value) for value in values]


def _whole(values: pa.Array) -> list[Any]:
    """Values that Arrow stores as integers, as these."""
    wide = values.type.bit_width == 64
    found: list[Any] = values.view(pa.int64() if wide else pa.int32()).to_pylist()
    return found


def _quoted(text: str) -> str:
    made = escaped(text)
    # Java writes the digits of an escape in upper case.
    return _CONTROL.sub(lambda m: m[0][:-1] + m[0][-1].upper(), made) if "\\u" in made else made


def _strings(_: DataType, values: pa.Array) -> Texts:
    try:
        found = values.to_pylist()
    except UnicodeDecodeError:
        # Spark does not look whether a string is UTF-8.
        bytes_of = values.cast(pa.binary()).to_pylist()
        found = [None if each is None else each.decode(errors="replace") for each in bytes_of]
    return _each(found, _quoted)


def _binaries(_: DataType, values: pa.Array) -> Texts:
    return _each(values.to_pylist(), lambda value: f'"{base64.b64encode(value).decode()}"')


def _plain(_: DataType, values: pa.Array) -> Texts:
    found: Texts = values.cast(pa.string()).to_pylist()
    return found


def _decimals(_: DataType, values: pa.Array) -> Texts:
    return _each(values.to_pylist(), str)


def _floats(kind: DataType, values: pa.Array) -> Texts:
    # Arrow writes the least digits that mean the number, of a float as of a double.
    made = partial(number, is_single=isinstance(kind, FloatType))
    return _each(values.cast(pa.string()).to_pylist(), made)


def _dates(_: DataType, values: pa.Array) -> Texts:
    return _each(_whole(values), lambda days: f'"{day(days)}"')


def _times(_: DataType, values: pa.Array) -> Texts:
    """Of a day, nanoseconds since its beginning."""

    def text(ns: int) -> str:
        fraction = f"{ns % 10**9:09d}".rstrip("0")
        return f'"{clock(ns // 10**9)}{"." + fraction if fraction else ""}"'

    return _each(_whole(values), text)


def _timestamps_ntz(_: DataType, values: pa.Array) -> Texts:
    return _each(_whole(values), lambda us: f'"{_moment(us)}"')


def _timestamps(_: DataType, values: pa.Array) -> Texts:
    zone = zone_of(values.type.tz or "UTC")

    def text(us: int) -> str:
        ahead_s = offset_s(zone, us // 1_000_000)
        return f'"{_moment(us + ahead_s * 1_000_000)}{_offset(ahead_s)}"'

    return _each(_whole(values), text)


def _months(kind: DataType, values: pa.Array) -> Texts:
    assert isinstance(kind, YearMonthIntervalType)

    def text(months: int) -> str:
        sign = "-" if months < 0 else ""
        years, rest = divmod(abs(months), 12)
        if kind.startField != kind.endField:
            return f"\"INTERVAL '{sign}{years}-{rest}' YEAR TO MONTH\""
        if kind.startField == YearMonthIntervalType.YEAR:
            return f"\"INTERVAL '{sign}{years}' YEAR\""
        return f"\"INTERVAL '{months}' MONTH\""

    return _each(_whole(values), text)


_UNITS_US: Final = (86_400_000_000, 3_600_000_000, 60_000_000)
"""Microseconds of the fields of an interval but its seconds."""
_FIELDS: Final = ("DAY", "HOUR", "MINUTE", "SECOND")


def _durations(kind: DataType, values: pa.Array) -> Texts:
    assert isinstance(kind, DayTimeIntervalType)
    start, end = kind.startField, kind.endField
    name = _FIELDS[start] if start == end else f"{_FIELDS[start]} TO {_FIELDS[end]}"

    def text(us: int) -> str:
        sign, rest = ("-", -us) if us < 0 else ("", us)
        made = ""
        for field in range(start, min(end, 2) + 1):
            count, rest = divmod(rest, _UNITS_US[field])
            made += str(count) if field == 0 else f"{count:02d}"
            made += "" if field == end else " :"[field > 0]
        if end == DayTimeIntervalType.SECOND:
            seconds, fraction = divmod(rest, 1_000_000)
            made += f"{seconds:02d}" + f".{fraction:06d}".rstrip("0").rstrip(".")
        return f"\"INTERVAL '{sign}{made}' {name}\""

    return _each(_whole(values), text)


_MAKERS: Final[dict[str, Callable[[DataType, pa.Array], Texts]]] = {
    StringType.typeName(): _strings,
    "char": _strings,
    "varchar": _strings,
    BinaryType.typeName(): _binaries,
    BooleanType.typeName(): _plain,
    **dict.fromkeys(("byte", "tinyint", "short", "smallint", "integer", "int"), _plain),
    **dict.fromkeys(("long", "bigint"), _plain),
    FloatType.typeName(): _floats,
    DoubleType.typeName(): _floats,
    DecimalType.typeName(): _decimals,
    DateType.typeName(): _dates,
    TimestampType.typeName(): _timestamps,
    TimestampNTZType.typeName(): _timestamps_ntz,
    "time": _times,
    YearMonthIntervalType.typeName(): _months,
    DayTimeIntervalType.typeName(): _durations,
}


def _moment(us: int) -> str:
    """A local time, microseconds, cut to milliseconds as `to_json` cuts it."""
    ms = us // 1000
    days, rest = divmod(ms, 86_400_000)
    return f"{day(days)}T{clock(rest // 1000)}.{rest % 1000:03d}"


def _offset(ahead_s: int) -> str:
    """Seconds are told where there are some: before there were time zones."""
    if ahead_s == 0:
        return "Z"
    made = clock(abs(ahead_s)).removesuffix(":00")
    return f"{'-' if ahead_s < 0 else '+'}{made}"


# ------------------------------------------------------------------ keys of maps


def _keys(kind: DataType, values: pa.Array, rules: Rules) -> Texts:
    """The key of each entry: what Spark's own form of the value reads like, in quotes."""
    match kind:
        case NullType():
            # Of the empty map.
            return []
        case StringType():
            return _strings(kind, values)
        case BooleanType() | IntegralType() | DecimalType():
            return [f'"{text}"' for text in _leaves(kind, values)]
        case FloatType() | DoubleType():
            return [
                str(text) if str(text)[0] == '"' else f'"{text}"' for text in _floats(kind, values)
            ]
        case BinaryType():
            return _binaries(kind, values)
        case UserDefinedType():
            return _keys(kind.sqlType(), values, rules)
        case StructType() | ArrayType() | MapType() | VariantType():
            return [_quoted(text or "null") for text in texts_of(kind, values, rules)]
    # Days, months, micro- or nanoseconds.
    return [f'"{value}"' for value in _whole(values)]


# ------------------------------------------------------------------ what pyarrow does not hold


def held(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch in which intervals of months, of which pyarrow makes no array, are integers."""
    plain = [_held_field(each) for each in batch.schema]
    if all(ours is theirs for ours, theirs in zip(plain, batch.schema, strict=True)):
        return batch
    _, values = batch.__arrow_c_array__()
    return pa.RecordBatch._import_from_c_capsule(pa.schema(plain).__arrow_c_schema__(), values)


_MONTHS: Final = "month_interval"


def _held_field(field: pa.Field) -> pa.Field:
    kind = field.type
    if str(kind) == _MONTHS:
        return field.with_type(pa.int32())
    if not kind.num_fields:
        return field
    if pa.types.is_map(kind):
        key, item = _held_field(kind.key_field), _held_field(kind.item_field)
        same = key is kind.key_field and item is kind.item_field
        return field if same else field.with_type(pa.map_(key, item))
    inner = [kind.field(n) for n in range(kind.num_fields)]
    made = [_held_field(each) for each in inner]
    if all(ours is theirs for ours, theirs in zip(made, inner, strict=True)):
        return field
    return field.with_type(pa.struct(made) if pa.types.is_struct(kind) else pa.list_(made[0]))
