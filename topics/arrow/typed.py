"""The column `data` of a scan as a struct: a batch parsed by a schema, and a schema from a sample.

    fields = infer(scan(path, "orders", columns=["data"]))
    for batch in scan(path, "orders"):
        typed(batch, fields)

Owns what is done with rows that do not fit (`Mode`).  What fits is `topics.arrow.payload`'s to say;
`pyarrow.json` parses batches of which every row fits, and `topics.arrow.decoding` the others.

Invariant: how rows are cut into batches does not change what becomes of a row.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
import pyarrow.types as kinds

from topics.arrow.decoding import Decoded, decoded
from topics.arrow.payload import (
    DAYS,
    PER_DAY,
    Unfit,
    check,
    fit,
    is_parsed_alike,
    object_of,
)
from topics.arrow.sampling import Shape

Mode = Literal["PERMISSIVE", "FAILFAST", "DROPMALFORMED"]
"""Of a row whose `data` does not fit, PERMISSIVE makes null and keeps the text in `_corrupt`,
FAILFAST an error, and DROPMALFORMED nothing.  JSON `null` fits, as null."""

CORRUPT: Final = "_corrupt"
"""Column behind the others that PERMISSIVE adds: the text of a `data` that does not fit, or null."""

SAMPLE_ROWS: Final = 10_000
EXACT_BELOW: Final = {pa.float64(): 1 << 53, pa.float32(): 1 << 24}
"""Every integer below is one of the type."""


class BadRow(ValueError):
    """A row's `data` does not fit, and the mode is FAILFAST."""


def typed_schema(scanned: pa.Schema, fields: pa.Schema, mode: Mode = "PERMISSIVE") -> pa.Schema:
    """The schema of `typed` batches.

    Args:
        scanned: The schema of a scan with the column `data`.
        fields: The members of `data`; all may be null.

    Raises:
        ValueError: There is no `data`, or a type that no JSON becomes.
    """
    if mode not in get_args(Mode):
        raise ValueError(f"mode {mode!r} is none of {', '.join(get_args(Mode))}")
    at = scanned.get_field_index("data")
    if at < 0:
        raise ValueError('there is no column "data" to be typed')
    wanted = pa.struct([pa.field(field.name, field.type) for field in fields])
    check(wanted)
    made = scanned.set(at, pa.field("data", wanted))
    return made.append(pa.field(CORRUPT, pa.string())) if mode == "PERMISSIVE" else made


def typed(batch: pa.RecordBatch, fields: pa.Schema, mode: Mode = "PERMISSIVE") -> pa.RecordBatch:
    """A batch with its `data` as a struct of `fields`.

    Members of `data` that `fields` does not name are left out; those that a row lacks are null.

    Raises:
        BadRow: A row does not fit and `mode` is FAILFAST.
        ValueError: As `typed_schema`.
    """
    return typed_rows(batch, fields, mode).batch


@dataclass(frozen=True, slots=True)
class Typed:
    """A typed batch.

    Attributes:
        bad: How many rows did not fit.
        rounded: How many integers, of those that fit, a double or a float does not hold exactly.
    """

    batch: pa.RecordBatch
    bad: int
    rounded: int


def typed_rows(batch: pa.RecordBatch, fields: pa.Schema, mode: Mode = "PERMISSIVE") -> Typed:
    """As `typed`, with what became of the rows."""
    schema = typed_schema(batch.schema, fields, mode)
    at = schema.get_field_index("data")
    text = batch.column(at)
    found = _parsed(text, schema.field(at).type)
    bad, count = found.bad, int(found.bad.sum())
    columns = batch.columns
    columns[at] = found.structs
    if mode == "PERMISSIVE":
        columns.append(text.take(pa.array(np.arange(len(bad)), mask=~bad)))
        return Typed(pa.record_batch(columns, schema=schema), count, found.rounded)
    made = pa.record_batch(columns, schema=schema)
    if count and mode == "FAILFAST":
        raise BadRow(_described(batch, int(np.flatnonzero(bad)[0]), schema.field(at).type))
    return Typed(made.filter(pa.array(~bad)) if count else made, count, found.rounded)


def _described(batch: pa.RecordBatch, row: int, wanted: pa.DataType) -> str:
    text = batch.column("data")[row].as_py()
    seq = batch.column("seq")[row].as_py() if "seq" in batch.schema.names else None
    where = f"row {row} of a batch" if seq is None else f"seq {seq}"
    try:
        fit(text, wanted)
    except Unfit as error:
        return f"{where}: {error}"
    return f"{where}: a name is there twice, and not each of its values fits"


def _parsed(text: pa.Array, wanted: pa.DataType) -> Decoded:
    if (whole := _parsed_together(text, wanted)) is not None:
        return Decoded(whole, np.zeros(len(text), np.bool_))
    return decoded(text, wanted)


def _parsed_together(text: pa.Array, wanted: pa.DataType) -> pa.Array | None:
    """The structs, by `pyarrow.json`; None where not every row is an object that fits."""
    if not len(text):
        return pa.array([], wanted)
    if text.null_count or not wanted.num_fields or not is_parsed_alike(wanted):
        return None
    # A row that is no object must not get there: the parser ends the process at a bare `null`.
    if not pc.all(pc.starts_with(text, "{")).as_py():
        return None
    ends = np.frombuffer(text.buffers()[1], np.int32)[text.offset : text.offset + len(text) + 1]
    size = int(ends[-1] - ends[0])
    # One block, so rows need no line breaks between them.
    read = pyarrow.json.ReadOptions(use_threads=False, block_size=size + 1)
    parse = pyarrow.json.ParseOptions(
        explicit_schema=pa.schema(list(wanted)), unexpected_field_behavior="ignore"
    )
    source = pa.BufferReader(text.buffers()[2].slice(int(ends[0]), size))
    try:
        table = pyarrow.json.read_json(source, read_options=read, parse_options=parse)
    except pa.ArrowException:
        return None
    if len(table) != len(text):
        return None
    made = table.combine_chunks().to_struct_array().combine_chunks().cast(wanted)
    return made if _is_exact(made) else None


def _is_exact(found: pa.Array) -> bool:
    """Whether every number is what its text says or the nearest there is, and every time of the
    calendar: what the parser rounds, makes infinite, or takes of any year does not show in it."""
    kind = found.type
    if kinds.is_struct(kind):
        return all(_is_exact(found.field(n)) for n in range(kind.num_fields))
    if kinds.is_list(kind):
        return _is_exact(found.values)
    if kind in EXACT_BELOW and (greatest := pc.max(pc.abs(found)).as_py()) is not None:
        return bool(greatest < EXACT_BELOW[kind])
    if kinds.is_timestamp(kind) and found.null_count < len(found):
        ends = pc.min_max(found.cast(pa.int64())).as_py()
        return all(each // PER_DAY[kind.unit] in DAYS for each in ends.values())
    return True


def infer(batches: Iterable[pa.RecordBatch], *, sample_rows: int = SAMPLE_ROWS) -> pa.Schema:
    """The fields of `data` in the first rows of the batches.

    An integer and a number make a double, or a string where an integer is beyond 2^53, which a double
    does not hold exactly.  Any other two kinds make a string, and so do integers of more than 64 bits,
    members that are always null or empty, and objects with very many different
    names.  The order is that in which they were met.

    Raises:
        ValueError: No row of the sample is an object.
    """
    shape = Shape()
    seen = 0
    for batch in batches:
        for text in batch.column("data").slice(0, sample_rows - seen).to_pylist():
            seen += 1
            if text is not None and text.lstrip().startswith("{"):
                shape.add_object(object_of(text))
        if seen >= sample_rows:
            break
    if not shape.members:
        raise ValueError(f"none of {seen} records is an object: there are no fields to infer")
    return shape.schema()
