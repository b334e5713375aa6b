"""What a table of Delta or Iceberg can have: types, names of members, and the path of its directory.

A contract of records allows more than these formats: any text is a name, and integers may have no
sign.  Owns what is stored in place of a type, and which names a format has no place for.  Pure.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.types as kinds

from topics.export.manifest import Format


@dataclass(frozen=True, slots=True)
class TableFiles:
    """How the files of a table are written from now on.

    Attributes:
        compression: As `parquet.COMPRESSIONS`.
        target_bytes: About the size of a file at most; Iceberg's library counts bytes in memory.
    """

    compression: str = "zstd"
    target_bytes: int = 256 << 20


FILES: Final = TableFiles()


_WIDER: Final = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}
"""The libraries store integers without a sign as those with one and the same bits, which are too few."""
_NO_PATH: Final = re.compile(r"[?#%\\\[\]\x00-\x1f]")
"""Characters that mean something else in the URL that the libraries make of a path."""


def stored(schema: pa.Schema) -> pa.Schema:
    """The columns of a table for rows of a schema; each value has one, and the same."""
    return pa.schema([pa.field(field.name, _stored(field.type)) for field in schema])


def _stored(kind: pa.DataType) -> pa.DataType:
    if kinds.is_struct(kind):
        return pa.struct([pa.field(field.name, _stored(field.type)) for field in kind])
    if kinds.is_list(kind):
        return pa.list_(_stored(kind.value_type))
    return _WIDER.get(kind, kind)


def without_unfit(fields: pa.Schema, format: Format) -> tuple[pa.Schema, list[str]]:
    """The members of `data` that a format has a place for, and the paths of the others.

    Delta tells no names apart that differ in case alone, and ends them at a zero; Iceberg has no empty
    name, and calls a member by its path with dots, of which each must be there once.
    """
    if format not in ("delta", "iceberg"):
        return fields, []
    unfit: list[str] = []
    taken: set[str] = set()
    kept = list(_kept(list(fields), "data", format, taken, unfit))
    return pa.schema(kept), unfit


def _kept(
    fields: list[pa.Field], inside: str, format: Format, taken: set[str], unfit: list[str]
) -> Iterator[pa.Field]:
    names: set[str] = set()
    for field in fields:
        path = f"{inside}.{field.name}"
        name = field.name.casefold() if format == "delta" else path
        is_wrong = "\0" in field.name if format == "delta" else not field.name
        if is_wrong or name in (names if format == "delta" else taken):
            unfit.append(path)
            continue
        names.add(name)
        taken.add(path)
        kind = _without(field.type, path, format, taken, unfit)
        if kind is None:
            unfit.append(path)
        else:
            yield pa.field(field.name, kind)


def _without(
    kind: pa.DataType, path: str, format: Format, taken: set[str], unfit: list[str]
) -> pa.DataType | None:
    """The type without what is unfit; None where nothing is left of it."""
    if kinds.is_struct(kind):
        kept = list(_kept(list(kind), path, format, taken, unfit))
        return pa.struct(kept) if kept else None
    if kinds.is_list(kind):
        inner = f"{path}.element"
        taken.add(inner)
        item = _without(kind.value_type, inner, format, taken, unfit)
        return None if item is None else pa.list_(item)
    return kind


def unfit_path(path: str) -> str | None:
    """The character of a directory's path that tables cannot have in it; None: it has none."""
    found = _NO_PATH.search(path)
    return None if found is None else found[0]
