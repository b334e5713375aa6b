"""The typed members of `data`, as a person writes them down.

    {"id": "int64", "price": "double", "at": "timestamp", "tags": ["string"], "to": {"city": "string"}}

A type is a name, a list of one type, or an object of members.  Pure.
"""

import re
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as kinds

from topics.arrow.columns import TIMESTAMP
from topics.arrow.payload import check

NAMES: Final[dict[str, pa.DataType]] = {
    "bool": pa.bool_(),
    **{str(t): t for t in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    **{str(t): t for t in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())},
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "timestamp": TIMESTAMP,
    "date": pa.date32(),
}
_DECIMAL: Final = re.compile(r"decimal\((\d{1,2}), ?(\d{1,2})\)")


def fields_of(written: Any) -> pa.Schema:
    """The members that a schema file names.

    Raises:
        ValueError: It is no such description; says where.
    """
    if not isinstance(written, dict) or not written:
        raise ValueError("a schema is an object with a member for each of data's")
    made = pa.schema([pa.field(name, _type(each, name)) for name, each in written.items()])
    check(pa.struct(list(made)))
    return made


def _type(written: Any, where: str) -> pa.DataType:
    match written:
        case str() if written in NAMES:
            return NAMES[written]
        case str() if found := _DECIMAL.fullmatch(written):
            try:
                return pa.decimal128(int(found[1]), int(found[2]))
            except (ValueError, pa.ArrowException) as error:
                raise ValueError(f"{where}: {error}") from None
        case [item]:
            return pa.list_(_type(item, f"{where}[]"))
        case dict() if written:
            fields = [pa.field(k, _type(v, f"{where}.{k}")) for k, v in written.items()]
            return pa.struct(fields)
    raise ValueError(
        f"{where}: {written!r} is no type; there are {', '.join(NAMES)}, decimal(p,s), "
        "a list of one type and an object of members"
    )


def written(fields: pa.Schema) -> dict[str, object]:
    """The description of members, of which `fields_of` makes them again."""
    return {field.name: _written(field.type) for field in fields}


def _written(type: pa.DataType) -> object:
    if kinds.is_struct(type):
        return {f.name: _written(f.type) for f in type}
    if kinds.is_list(type):
        return [_written(type.value_type)]
    if kinds.is_decimal(type):
        return f"decimal({type.precision},{type.scale})"
    return next(name for name, each in NAMES.items() if each == type)
