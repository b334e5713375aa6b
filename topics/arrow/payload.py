"""The text of one JSON value as a value of an Arrow type.

Owns what a typed column means: `fit` says which JSON fits which type, and as what.  It goes value by
value; `topics.arrow.typed` and `topics.arrow.decoding` go by batches and columns, to the same end.

A string field takes a string as it is and any other value as its JSON text, so a field of several
kinds keeps them all.  Every other type takes its own kind alone, and no text becomes a number.  A
number becomes the nearest double or float, as every reader of JSON has it; integers that change by
that are counted, and what would be infinite does not fit.  Times and dates are those of the years 1
to 9999, which every reader of the columns has.
"""

import re
from collections.abc import Callable
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.types as kinds

from topics.nesting import deep

DEPTH_MAX: Final = 100
"""Levels of a type at most: a value is walked by recursion."""

INFINITE: Final = frozenset((float("inf"), float("-inf")))
DAYS: Final = range(date(1, 1, 1).toordinal() - date(1970, 1, 1).toordinal(), 2_932_897)
"""Of the years 1 to 9999, since the epoch."""
PER_DAY: Final = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}

_INTEGER: Final = re.compile(r"-?[0-9]+")
_NUMBER_BEGINS: Final = frozenset("-0123456789")
_object: Final = deep(msgspec.json.Decoder(dict[str, msgspec.Raw]).decode)
_array: Final = deep(msgspec.json.Decoder(list[msgspec.Raw]).decode)
_string: Final = msgspec.json.Decoder(str).decode


class Unfit(ValueError):
    """The value is not of the type."""


def object_of(text: str | bytes) -> dict[str, str]:
    """The members of an object, each as its JSON text; of a name that is there twice, the last.

    Raises:
        Unfit: It is no object.
    """
    try:
        return {name: bytes(raw).decode() for name, raw in _object(text).items()}
    except (ValueError, RecursionError) as error:
        raise Unfit(str(error)) from None


def array_of(text: str) -> list[str]:
    """The values of an array, each as its JSON text.  Raises Unfit: It is none."""
    try:
        return [bytes(raw).decode() for raw in _array(text)]
    except (ValueError, RecursionError) as error:
        raise Unfit(str(error)) from None


def fit(text: str, wanted: pa.DataType, rounded: list[str] | None = None) -> Any:
    """The value that `pa.array([value], wanted)` takes; None for `null`.

    Args:
        rounded: Gets the integers that the type does not hold exactly.

    Raises:
        Unfit: The JSON is of another kind, or out of the type's range.
        ValueError: `check` refuses the type.
    """
    text = text.strip(" \t\r\n")
    return None if text == "null" else _maker(wanted)(text, wanted, rounded)


def check(wanted: pa.DataType, *, depth: int = 0) -> None:
    """Raises ValueError: Values of this type are not made from JSON."""
    if depth > DEPTH_MAX:
        raise ValueError(f"the type is nested more than {DEPTH_MAX} levels deep")
    _maker(wanted)
    if kinds.is_map(wanted) and not kinds.is_string(wanted.key_type):
        raise ValueError(f"a map's keys are strings in JSON, not {wanted.key_type}")
    for index in range(wanted.num_fields):
        check(wanted.field(index).type, depth=depth + 1)


Rounded = list[str] | None


def _of_struct(text: str, wanted: pa.DataType, rounded: Rounded) -> dict[str, Any]:
    members = object_of(text)
    fields = [wanted.field(index) for index in range(wanted.num_fields)]
    return {f.name: fit(members[f.name], f.type, rounded) for f in fields if f.name in members}


def _of_map(text: str, wanted: pa.DataType, rounded: Rounded) -> list[tuple[str, Any]]:
    members = object_of(text).items()
    return [(name, fit(value, wanted.item_type, rounded)) for name, value in members]


def _of_list(text: str, wanted: pa.DataType, rounded: Rounded) -> list[Any]:
    return [fit(value, wanted.value_type, rounded) for value in array_of(text)]


def _of_string(text: str, _wanted: pa.DataType, _rounded: Rounded) -> str:
    return _read_string(text) if text.startswith('"') else text


def _of_bool(text: str, _wanted: pa.DataType, _rounded: Rounded) -> bool:
    if text not in ("true", "false"):
        raise Unfit(f"{text[:40]} is no boolean")
    return text == "true"


def _of_integer(text: str, wanted: pa.DataType, _rounded: Rounded) -> int:
    bits = wanted.bit_width
    if _INTEGER.fullmatch(text) is None or len(text) > 21:
        raise Unfit(f"{text[:40]} is no integer of {bits} bits")
    value = int(text)
    low, high = bounds_of(wanted)
    if not low <= value <= high:
        raise Unfit(f"{text} does not fit {wanted}")
    return value


def bounds_of(wanted: pa.DataType) -> tuple[int, int]:
    """The least and the greatest value of an integer type."""
    bits = wanted.bit_width
    signed = kinds.is_signed_integer(wanted)
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)


def _of_float(text: str, wanted: pa.DataType, rounded: Rounded) -> float:
    if text[:1] not in _NUMBER_BEGINS:
        raise Unfit(f"{text[:40]} is no number")
    # Not by way of a double, which would be rounded twice.
    value: float = float(text) if kinds.is_float64(wanted) else pa.scalar(text).cast(wanted).as_py()
    if value in INFINITE:
        raise Unfit(f"{text[:40]} is out of range")
    if rounded is not None and is_rounded(text, value):
        rounded.append(text)
    return value


def is_rounded(text: str, value: float) -> bool:
    """Whether a number's text is that of an integer, and of another one than the value."""
    return _INTEGER.fullmatch(text) is not None and int(text) != value


def _of_decimal(text: str, wanted: pa.DataType, _rounded: Rounded) -> Decimal:
    """With the scale of the type: Arrow makes another number of some that it has no room for."""
    try:
        said = Decimal(_read_string(text) if text.startswith('"') else text)
    except InvalidOperation as error:
        raise Unfit(f"{text[:40]}: {error}") from None
    sign, digits, exponent = said.as_tuple()
    if not isinstance(exponent, int):
        raise Unfit(f"{text[:40]} is no number")
    if not said:
        return Decimal((sign, (0,), -wanted.scale))
    end = len(digits)
    while digits[end - 1] == 0:
        end -= 1
    digits, exponent = digits[:end], exponent + len(digits) - end
    zeros = exponent + wanted.scale
    if zeros < 0 or len(digits) + zeros > wanted.precision:
        raise Unfit(f"{text[:40]} does not fit {wanted}")
    return Decimal((sign, digits + (0,) * zeros, -wanted.scale))


def _of_timestamp(text: str, wanted: pa.DataType, _rounded: Rounded) -> int:
    """ISO 8601; without a zone it is UTC.  In units of the type since the epoch."""
    said = pa.scalar(_read_string(text))
    for zone in ("UTC", None):
        try:
            value = int(said.cast(pa.timestamp(wanted.unit, tz=zone)).value)
        except pa.ArrowException:
            continue
        if value // PER_DAY[wanted.unit] not in DAYS:
            break
        return value
    raise Unfit(f"{text[:40]} is no time in {wanted.unit}")


def _of_date(text: str, _wanted: pa.DataType, _rounded: Rounded) -> int:
    """In days since the epoch."""
    try:
        value = int(pa.scalar(_read_string(text)).cast(pa.date32()).value)
    except pa.ArrowException as error:
        raise Unfit(f"{text[:40]} is no date: {error}") from None
    if value not in DAYS:
        raise Unfit(f"{text[:40]} is outside of the calendar")
    return value


def _read_string(text: str) -> str:
    try:
        return _string(text)
    except ValueError as error:
        raise Unfit(f"{text[:40]} is no string: {error}") from None


Maker = Callable[[str, pa.DataType, Rounded], Any]

_MAKERS: Final[list[tuple[Callable[[pa.DataType], bool], Maker]]] = [
    (kinds.is_struct, _of_struct),
    (kinds.is_map, _of_map),
    (kinds.is_list, _of_list),
    (kinds.is_string, _of_string),
    (kinds.is_boolean, _of_bool),
    (kinds.is_integer, _of_integer),
    (lambda t: kinds.is_float32(t) or kinds.is_float64(t), _of_float),
    (kinds.is_decimal128, _of_decimal),
    (kinds.is_timestamp, _of_timestamp),
    (kinds.is_date32, _of_date),
]


def _maker(wanted: pa.DataType) -> Maker:
    for is_kind, make in _MAKERS:
        if is_kind(wanted):
            return make
    raise ValueError(f"no value of type {wanted} is made from JSON")


def is_parsed_alike(wanted: pa.DataType) -> bool:
    """Whether `pyarrow.json` takes nothing for this type that `fit` refuses or reads otherwise."""
    if kinds.is_date32(wanted) or kinds.is_map(wanted) or kinds.is_decimal(wanted):
        # It takes a day's number for a date, knows no maps, and makes other numbers of decimals
        # that have too many digits.
        return False
    fields = (wanted.field(index) for index in range(wanted.num_fields))
    return all(is_parsed_alike(field.type) for field in fields)
