"""Rows of JSON as an Arrow struct, whatever each of them holds.

Owns the way of rows that `pyarrow.json` does not take as a whole.  msgspec decodes each row in one
step to the members that are wanted, and Arrow makes one array of each member; a row that does not fit
costs no more than one that does.  What fits which type is `topics.arrow.payload`'s to say, and this
module does the same; the few values that no step here is sure of are given to `fit`.

Of a name that is there twice the last value counts, as in `fit`; but where an earlier one does not fit,
the row does not.

A member of type string takes any value, and most are strings, so a row is decoded to strings and
integers first (`_Decoders.strict`), and to the texts of such members where that fails (`loose`).
"""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import Annotated, Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds
from numpy.typing import NDArray

from topics.arrow.payload import (
    DAYS,
    PER_DAY,
    Unfit,
    bounds_of,
    fit,
    is_rounded,
)
from topics.nesting import deep

Mask = NDArray[np.bool_]

PART_ROWS: Final = 4096
"""Rows that are objects of Python at the same time; with 65,536 the caches of the CPU are too small
for them, and a row takes twice as long."""

_ABSENT: Final = msgspec.Raw()
_INT64_MAX: Final = (1 << 63) - 1
_ODD_NAME: Final = re.compile(r'["\\\x00-\x1f]')
"""msgspec takes no such name of a member."""
_MINUS_ZERO: Final = re.compile(rb"-0(?![0-9.])")
"""msgspec reads it as the integer 0."""
_BEFORE_VALUES: Final = b":[, \t\r\n"
_DATE: Final = "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_NAIVE: Final = "^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9:.]+)?$"
_ZONED: Final = "^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.]+(Z|[+-][0-9:]+)$"
DECIMAL_DIGITS: Final = 38
"""Of a decimal of 128 bits."""
_STRINGS: Final = frozenset({str, type(None)})
_NULLS: Final = (b"", b"null")
"""Of a member that is absent, and of one that is null."""
_string: Final = msgspec.json.Decoder(str).decode


@dataclass(slots=True)
class Decoded:
    """Structs, and which of the rows do not fit.

    Attributes:
        bad: Shape (n,).
        rounded: How many integers, of rows that fit, their columns do not hold exactly.
    """

    structs: pa.Array
    bad: Mask
    rounded: int = 0


def decoded(text: pa.Array, wanted: pa.DataType) -> Decoded:
    """The structs of a column of JSON, at least one row."""
    parts = [_part(text.slice(at, PART_ROWS), wanted) for at in range(0, len(text), PART_ROWS)]
    return Decoded(
        pa.concat_arrays([part.structs for part in parts]),
        np.concatenate([part.bad for part in parts]),
        sum(part.rounded for part in parts),
    )


def _part(text: pa.Array, wanted: pa.DataType) -> Decoded:
    rows: list[bytes | None] = text.cast(pa.binary()).to_pylist()
    decoders = _decoders(wanted)
    whole = b",".join(row for row in rows if row)
    if decoders is None or _has_odd(whole):
        is_odd = np.array(
            [row is not None and (decoders is None or _has_odd(row)) for row in rows], np.bool_
        )
        return _with_odd(rows, is_odd, decoders, wanted)
    return _decoded(rows, decoders, wanted)


def _has_odd(text: bytes) -> bool:
    # A look-behind in the pattern would take its search for two bytes from it.
    return any(text[each.start() - 1] in _BEFORE_VALUES for each in _MINUS_ZERO.finditer(text))


def _with_odd(
    rows: list[bytes | None], is_odd: Mask, decoders: "_Decoders | None", wanted: pa.DataType
) -> Decoded:
    """Rows of which some are given to `fit`."""
    odd = _singly([row for row, odd in zip(rows, is_odd, strict=True) if odd and row], wanted)
    if decoders is None:
        others = Decoded(pa.nulls(len(rows), wanted), np.zeros(len(rows), np.bool_))
    else:
        rest = [None if odd else row for row, odd in zip(rows, is_odd, strict=True)]
        others = _decoded(rest, decoders, wanted)
    places = np.arange(len(rows))
    places[is_odd] = len(rows) + np.arange(len(odd.array))
    others.structs = pa.concat_arrays([others.structs, odd.array]).take(pa.array(places))
    others.bad[is_odd] = odd.bad
    others.rounded += int(odd.rounded.sum())
    return others


def _decoded(rows: list[bytes | None], decoders: "_Decoders", wanted: pa.DataType) -> Decoded:
    bad = np.zeros(len(rows), np.bool_)
    values: list[Any] = []
    strict, loose = decoders.strict, decoders.loose
    at = 0
    while at < len(rows):
        try:
            # In C as far as it goes: until a row is none, or one that does not fit at once.
            values += map(strict, rows[at:] if at else rows)  # type: ignore[arg-type]
            break
        except (ValueError, TypeError, RecursionError):
            at = len(values)
        row = rows[at]
        try:
            values.append(None if row is None else loose(row))
        except ValueError:
            values.append(None)
            bad[at] = True
        at += 1
    made = _array(values, wanted)
    bad |= made.bad
    if made.bad.any():
        # A part of the row does not fit, and so none of it is shown.
        missing = pa.array(bad | made.array.is_null().to_numpy(zero_copy_only=False))
        made.array = pa.StructArray.from_arrays(
            [made.array.field(n) for n in range(wanted.num_fields)],
            fields=list(wanted),
            mask=missing,
        )
    return Decoded(made.array, bad, int(made.rounded[~bad].sum()))


# ------------------------------------------------------------------ a row


@dataclass(frozen=True, slots=True)
class _Decoders:
    strict: Callable[[bytes], Any]
    loose: Callable[[bytes], Any]


@lru_cache(maxsize=16)
def _decoders(wanted: pa.DataType) -> _Decoders | None:
    """None where msgspec knows no such type."""
    if not _is_decodable(wanted):
        return None
    return _Decoders(
        msgspec.json.Decoder(_kind(wanted, is_strict=True)).decode,
        deep(msgspec.json.Decoder(_kind(wanted, is_strict=False)).decode),
    )


def _is_decodable(wanted: pa.DataType) -> bool:
    if kinds.is_struct(wanted):
        names = [wanted.field(n).name for n in range(wanted.num_fields)]
        if len(set(names)) < len(names) or any(map(_ODD_NAME.search, names)):
            return False
    return all(_is_decodable(wanted.field(n).type) for n in range(wanted.num_fields))


def _kind(wanted: pa.DataType, *, is_strict: bool) -> Any:
    """The type of msgspec that takes what fits, or more."""
    if kinds.is_struct(wanted):
        made: list[tuple[str, Any, Any]] = []
        names = {}
        for n in range(wanted.num_fields):
            member = wanted.field(n)
            kind = _kind(member.type, is_strict=is_strict)
            made.append((f"f{n}", kind, _ABSENT if kind is msgspec.Raw else None))
            names[f"f{n}"] = member.name
        return msgspec.defstruct("Members", made, rename=names, gc=False) | None
    if kinds.is_list(wanted):
        return list[_kind(wanted.value_type, is_strict=is_strict)] | None  # type: ignore[misc]
    if kinds.is_map(wanted):
        return dict[str, _kind(wanted.item_type, is_strict=is_strict)] | None  # type: ignore[misc]
    if kinds.is_string(wanted):
        return str | int | bool | None if is_strict else msgspec.Raw
    if kinds.is_boolean(wanted):
        return bool | None
    if kinds.is_integer(wanted):
        low, high = bounds_of(wanted)
        return Annotated[int, msgspec.Meta(ge=low, le=high if high <= _INT64_MAX else None)] | None
    if kinds.is_float64(wanted):
        return int | float | None
    if kinds.is_timestamp(wanted) or kinds.is_date32(wanted):
        return str | None
    return msgspec.Raw


# ------------------------------------------------------------------ a column


@dataclass(slots=True)
class _Made:
    """Values of one type.

    Attributes:
        bad: Which do not fit, themselves or in a part, shape (n,).
        rounded: How many integers of each are not held exactly, shape (n,).
    """

    array: pa.Array
    bad: Mask
    rounded: NDArray[np.int64]


def _plain(array: pa.Array, bad: Mask | None = None) -> _Made:
    none = np.zeros(len(array), np.bool_) if bad is None else bad
    return _Made(array, none, np.zeros(len(array), np.int64))


def _array(values: list[Any], wanted: pa.DataType) -> _Made:
    return next(make for is_kind, make in _MAKERS if is_kind(wanted))(values, wanted)


def _singly(rows: list[bytes], wanted: pa.DataType) -> _Made:
    """Texts value by value."""
    values: list[Any] = []
    bad = np.zeros(len(rows), np.bool_)
    rounded = np.zeros(len(rows), np.int64)
    for n, row in enumerate(rows):
        integers: list[str] = []
        try:
            values.append(fit(row.decode(), wanted, integers))
            rounded[n] = len(integers)
        except Unfit:
            values.append(None)
            bad[n] = True
    return _Made(pa.array(values, wanted), bad, rounded)


def _of_structs(values: list[Any], wanted: pa.DataType) -> _Made:
    missing = [value is None for value in values]
    mask = None
    if True in missing:
        # Of an empty object, so that each member has as many values as there are rows.
        empty = _empty(wanted)
        values = [empty if value is None else value for value in values]
        mask = pa.array(missing)
    members = [
        _array(list(map(attrgetter(f"f{n}"), values)), wanted.field(n).type)
        for n in range(wanted.num_fields)
    ]
    arrays = [each.array for each in members]
    made = _plain(pa.StructArray.from_arrays(arrays, fields=list(wanted), mask=mask))
    for each in members:
        made.bad |= each.bad
        made.rounded += each.rounded
    return made


@lru_cache(maxsize=64)
def _empty(wanted: pa.DataType) -> Any:
    return msgspec.json.decode(b"{}", type=_kind(wanted, is_strict=True))


def _of_lists(values: list[Any], wanted: pa.DataType) -> _Made:
    items = _array(list(chain.from_iterable(filter(None, values))), wanted.value_type)
    return _gathered(
        values,
        items,
        lambda offsets, mask: pa.ListArray.from_arrays(
            offsets, items.array, type=wanted, mask=mask
        ),
    )


def _of_maps(values: list[Any], wanted: pa.DataType) -> _Made:
    there = [value for value in values if value is not None]
    names = pa.array(list(chain.from_iterable(there)), wanted.key_type)
    items = _array(list(chain.from_iterable(v.values() for v in there)), wanted.item_type)
    return _gathered(
        values,
        items,
        lambda offsets, mask: pa.MapArray.from_arrays(
            offsets, names, items.array, type=wanted, mask=mask
        ),
    )


def _gathered(
    values: list[Any], items: _Made, make: Callable[[pa.Array, pa.Array | None], pa.Array]
) -> _Made:
    """Containers of all items, one behind the other."""
    sizes = np.array([0 if value is None else len(value) for value in values], np.int32)
    missing = [value is None for value in values]
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    array = make(pa.array(offsets), pa.array(missing) if True in missing else None)
    made = _plain(array)
    if items.bad.any() or items.rounded.any():
        of = np.repeat(np.arange(len(values)), sizes)
        made.bad[of[items.bad]] = True
        np.add.at(made.rounded, of, items.rounded)
    return made


def _of_strings(values: list[Any], wanted: pa.DataType) -> _Made:
    if not _STRINGS.issuperset(map(type, values)):
        values = [v if type(v) is str else str(v) if type(v) is int else _said(v) for v in values]
    return _plain(pa.array(values, wanted))


def _said(value: Any) -> str | None:
    """A value of a member of type string: a string as it is, any other as its JSON."""
    if isinstance(value, msgspec.Raw):
        text = bytes(value)
        return (
            _string(text)
            if text.startswith(b'"')
            else text.decode()
            if text not in _NULLS
            else None
        )
    return {True: "true", False: "false"}.get(value)


def _of_integers(values: list[Any], wanted: pa.DataType) -> _Made:
    try:
        return _plain(pa.array(values, wanted))
    except (OverflowError, pa.ArrowException):
        high = bounds_of(wanted)[1]
        bad = np.fromiter((v is not None and v > high for v in values), np.bool_, len(values))
        kept = [None if v is None or v > high else v for v in values]
        return _plain(pa.array(kept, wanted), bad)


def _of_doubles(values: list[Any], wanted: pa.DataType) -> _Made:
    try:
        return _plain(pa.array(values, wanted))
    except pa.ArrowException:
        pass  # It refuses integers that a double may not hold exactly.
    made = _plain(pa.nulls(len(values), wanted))
    numbers: list[float | None] = []
    for n, value in enumerate(values):
        if not isinstance(value, int):
            numbers.append(value)
            continue
        try:
            numbers.append(float(value))
            made.rounded[n] = int(numbers[-1] != value)
        except OverflowError:
            numbers.append(None)
            made.bad[n] = True
    made.array = pa.array(numbers, wanted)
    return made


def _of_floats(values: list[Any], wanted: pa.DataType) -> _Made:
    """From the text at once: by way of a double a number would be rounded twice."""
    texts = list(map(bytes, values))
    is_there = [t not in _NULLS for t in texts]
    is_number = [t[:1] in b"-0123456789" for t in texts]
    said = [
        t.decode() if is_it and there else None
        for t, is_it, there in zip(texts, is_number, is_there, strict=True)
    ]
    array = pa.array(said, pa.string()).cast(wanted)
    made = _plain(array)
    numbers = array.fill_null(0).to_numpy(zero_copy_only=False)
    made.bad = np.isinf(numbers) | (np.array(is_there, np.bool_) & ~np.array(is_number, np.bool_))
    for n in np.flatnonzero(np.abs(numbers) >= 1 << 24).tolist():
        made.rounded[n] = int(is_rounded(texts[n].decode(), float(numbers[n])))
    return made


def _of_decimals(values: list[Any], wanted: pa.DataType) -> _Made:
    texts = pa.array(list(map(_said, values)), pa.string())
    # Arrow shifts the digits by the scale, and does not see where 128 bits have no room for them.
    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    if (
        longest + wanted.scale <= DECIMAL_DIGITS
        and not pc.any(pc.match_substring(texts, "e", ignore_case=True)).as_py()
    ):
        with suppress(pa.ArrowException):
            return _plain(texts.cast(wanted))
    return _singly([bytes(text) or b"null" for text in values], wanted)


def _of_times(values: list[Any], wanted: pa.DataType) -> _Made:
    texts = pa.array(values, pa.string())
    is_zoned = pc.match_substring_regex(texts, _ZONED).fill_null(False)
    is_naive = pc.match_substring_regex(texts, _NAIVE).fill_null(False)
    zoned, bad = _cast(pc.if_else(is_zoned, texts, None), pa.timestamp(wanted.unit, tz="UTC"))
    naive, wrong = _cast(pc.if_else(is_naive, texts, None), pa.timestamp(wanted.unit))
    times = pc.coalesce(zoned.cast(pa.int64()), naive.cast(pa.int64()))
    return _in_calendar(values, times, bad | wrong, wanted, PER_DAY[wanted.unit])


def _of_dates(values: list[Any], wanted: pa.DataType) -> _Made:
    texts = pa.array(values, pa.string())
    is_date = pc.match_substring_regex(texts, _DATE).fill_null(False)
    days, bad = _cast(pc.if_else(is_date, texts, None), pa.date32())
    return _in_calendar(values, days.cast(pa.int32()), bad, wanted, 1)


def _cast(texts: pa.Array, wanted: pa.DataType) -> tuple[pa.Array, Mask]:
    """The values, and which of the texts have none."""
    try:
        return texts.cast(wanted), np.zeros(len(texts), np.bool_)
    except pa.ArrowException:
        if len(texts) == 1:
            return pa.nulls(1, wanted), np.ones(1, np.bool_)
    half = len(texts) // 2
    parts = [_cast(texts.slice(0, half), wanted), _cast(texts.slice(half), wanted)]
    return pa.concat_arrays([a for a, _ in parts]), np.concatenate([bad for _, bad in parts])


def _in_calendar(
    values: list[Any], found: pa.Array, bad: Mask, wanted: pa.DataType, per_day: int
) -> _Made:
    """Times or dates; what had no form that Arrow was asked for is looked at by itself."""
    numbers = found.fill_null(0).to_numpy(zero_copy_only=False)
    days = numbers // per_day
    bad = bad | (days < DAYS.start) | (days >= DAYS.stop)
    missing = np.fromiter((value is None for value in values), np.bool_, len(values))
    is_null = found.is_null().to_numpy(zero_copy_only=False) | bad
    made = _plain(pa.array(numbers, mask=is_null).cast(wanted), bad)
    strange = np.flatnonzero(found.is_null().to_numpy(zero_copy_only=False) & ~missing & ~bad)
    if len(strange):
        singly = _singly([msgspec.json.encode(values[n]) for n in strange.tolist()], wanted)
        made.bad[strange] = singly.bad
        places = np.arange(len(values))
        places[strange] = len(values) + np.arange(len(strange))
        made.array = pa.concat_arrays([made.array, singly.array]).take(pa.array(places))
    return made


_MAKERS: Final[list[tuple[Callable[[pa.DataType], bool], Callable[..., _Made]]]] = [
    (kinds.is_struct, _of_structs),
    (kinds.is_list, _of_lists),
    (kinds.is_map, _of_maps),
    (kinds.is_string, _of_strings),
    (kinds.is_boolean, lambda values, wanted: _plain(pa.array(values, wanted))),
    (kinds.is_integer, _of_integers),
    (kinds.is_float64, _of_doubles),
    (kinds.is_float32, _of_floats),
    (kinds.is_decimal128, _of_decimals),
    (kinds.is_timestamp, _of_times),
    (kinds.is_date32, _of_dates),
]
