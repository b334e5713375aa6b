"""Rows of a run as an Arrow record batch.

Owns the schema of a scan and the way from a run's columns and text to Arrow arrays: the text of the
rows is read once, and `data` and `meta` are cut out of it by Arrow's own kernels, so no record
becomes a Python object.  Knows nothing of topics, loss, or where the run lies.

Invariant: `data` and `meta` are the bytes that were appended, verbatim (§0.4).
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from topics.protocol.model.names import partition_of
from topics.protocol.model.ports import Run, Span
from topics.protocol.model.records import DATA_KEY_SIZE, FORMED, META_KEY_SIZE, Columns

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
"""Spark accepts no other unit than microseconds, and no timestamp without a zone."""

FIELDS: Final[dict[str, pa.DataType]] = {
    "topic": pa.string(),
    "seq": pa.int64(),
    "ts": TIMESTAMP,
    "node": pa.string(),
    "tag": pa.string(),
    "data": pa.string(),
    "meta": pa.string(),
}
"""Column -> type, in the order of a scan.  `string` and not `large_string`: Spark accepts only the
former, whose offsets are 32 bits, so a batch stays below 2 GiB (`BATCH_TEXT_BYTES`)."""

MARKS: Final = "marks"
PARTITION: Final = "partition"
ASKED_FIELDS: Final[dict[str, pa.DataType]] = {PARTITION: pa.int32(), MARKS: pa.string()}
"""Columns that a scan has where they are asked for.  `marks` is what a record of Kafka's has beside: an object of the
members `$form`, `$key`, `$time` and `$headers` that pages of HTTP show, null where there are none.  `partition` is also
there where a scan that names no columns is of a topic with several (`columns_of`)."""
_MARK: Final = re.compile(rb',"\$(?:form|key|time|headers)":')
"""Within a JSON string its quotes would be escaped."""

GAP: Final = pa.struct(
    [
        pa.field("from", pa.int64()),
        pa.field("to", pa.int64()),
        pa.field("reason", pa.string()),
        pa.field("missed", pa.int64()),
    ]
)
LOSS_FIELDS: Final[dict[str, pa.DataType]] = {"_kind": pa.string(), "_gap": GAP}
"""Columns that `loss="rows"` adds: `_kind` is `record` or `tombstone`; `_gap` is null of a record."""

BATCH_ROWS: Final = 65_536
"""10,000 rows cost Spark 10 % more time, 262,144 half as much CPU again."""
SPARSE: Final = 4
"""Ids per row above which a table of all ids costs more than sorting those that are there."""
BATCH_TEXT_BYTES: Final = 64 << 20
"""Text read for one batch at most, but for a single record that is larger."""


def columns_of(*, has_partitions: bool) -> tuple[str, ...]:
    """The columns of a scan that names none; `partition` stands behind the topic."""
    first, *rest = FIELDS
    return (first, PARTITION, *rest) if has_partitions else tuple(FIELDS)


def schema(columns: Sequence[str], *, loss_rows: bool = False) -> pa.Schema:
    """The schema of a scan of `columns`; every field may be null.

    Raises:
        ValueError: There is no such column.
    """
    known = FIELDS | ASKED_FIELDS
    unknown = [name for name in columns if name not in known]
    if unknown:
        raise ValueError(f'no column "{unknown[0]}"; there are {", ".join(known)}')
    types = {name: known[name] for name in columns}
    return pa.schema({**types, **(LOSS_FIELDS if loss_rows else {})})


def batch(topic: str, run: Run, rows: NDArray[np.int64], wanted: pa.Schema) -> pa.RecordBatch:
    """*Blocking.* Rows of a run as one record batch.

    Args:
        topic: The name of the partition (`partition_name`).
        rows: Rows of the run, live, ascending, at least one, shape (n,).
        wanted: The schema to fill, of `schema`.

    Raises:
        Corrupt: A digest does not match; it names file and offset.
        OSError: The disk cannot read it.
    """
    columns, names = run.columns, set(wanted.names)
    made: dict[str, pa.Array] = {}
    name, partition = partition_of(topic)
    if "topic" in names:
        made["topic"] = _constant(name, len(rows))
    if PARTITION in names:
        made[PARTITION] = pa.repeat(pa.scalar(partition, pa.int32()), len(rows))
    if "seq" in names:
        made["seq"] = pa.array(rows + run.first_seq)
    if "ts" in names:
        made["ts"] = pa.array(columns.ts_ms[rows] * 1000).view(TIMESTAMP)
    if "node" in names:
        made["node"] = strings(run.nodes_of, columns.node_id[rows])
    if "tag" in names:
        made["tag"] = strings(run.tags_of, columns.tag_id[rows])
    if MARKS in names and not run.has_forms:
        made[MARKS] = pa.nulls(len(rows), pa.string())
    if names & {"data", "meta", MARKS} - made.keys():
        text, starts = _text(run, columns, rows)
        _cut(text, starts, columns, rows, names, made)
    if "_kind" in names:
        made["_kind"] = _constant("record", len(rows))
        made["_gap"] = pa.nulls(len(rows), GAP)
    return pa.record_batch([made[name] for name in wanted.names], schema=wanted)


@lru_cache(maxsize=2)  # most batches of a scan have the same size
def _constant(text: str, n: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), n)


def strings(look: Any, ids: NDArray[np.uint32]) -> pa.Array:
    """Strings of a run's table by id; id 0 is null.  `look` gives those of some ids, as `Run.tags_of` does.

    Each distinct string is decoded once, however many rows have it.
    """
    distinct, inverse = _distinct(ids)
    none = [None] if len(distinct) and not distinct[0] else []
    table = pa.array([*none, *look(distinct[len(none) :].tolist())], pa.string())
    return table.take(pa.array(inverse))


def _distinct(ids: NDArray[np.uint32]) -> tuple[NDArray[Any], NDArray[Any]]:
    """As `np.unique` with `return_inverse`, without its sort where the ids are small numbers."""
    size = int(ids.max()) + 1
    if size > SPARSE * len(ids):
        return np.unique(ids, return_inverse=True)
    is_there = np.zeros(size, np.bool_)
    is_there[ids] = True
    places = np.cumsum(is_there, dtype=np.int32) - 1
    return np.flatnonzero(is_there), places[ids]


def _text(
    run: Run, columns: Columns, rows: NDArray[np.int64]
) -> tuple[pa.Buffer, NDArray[np.int64]]:
    """The text of the rows, and where each row's begins in it, shape (n,)."""
    lo, hi = int(rows[0]), int(rows[-1]) + 1
    offset = columns.offset[rows].astype(np.int64)
    if 2 * len(rows) >= hi - lo:
        # Mostly wanted rows: one read, and Arrow leaves out the others.
        [whole] = run.read_blocking([(lo, hi)])
        return pa.py_buffer(whole), offset - offset[0]
    spans = _spans(rows)
    parts = run.read_blocking(spans)
    joined = parts[0] if len(parts) == 1 else b",".join(parts)
    sizes = columns.size[rows].astype(np.int64) + 1
    return pa.py_buffer(joined), np.cumsum(sizes) - sizes


def _spans(rows: NDArray[np.int64]) -> list[Span]:
    edges = np.flatnonzero(np.diff(rows) > 1) + 1
    los = rows[np.concatenate([[0], edges])].tolist()
    his = rows[np.concatenate([edges - 1, [-1]])].tolist()
    return [(lo, hi + 1) for lo, hi in zip(los, his, strict=True)]


def _cut(
    text: pa.Buffer,
    starts: NDArray[np.int64],
    columns: Columns,
    rows: NDArray[np.int64],
    names: set[str],
    made: dict[str, pa.Array],
) -> None:
    """Cut `data` and `meta` out of the records' text.

    A record's text ends `"data":DATA}` or `"data":DATA,"meta":META}` (`records`).
    """
    meta_size = columns.meta_size[rows].astype(np.int64)
    ends = starts + columns.size[rows] - 1
    has_meta = meta_size > 0
    data_ends = ends - np.where(has_meta, meta_size + META_KEY_SIZE, 0)
    begins = data_ends - columns.data_size[rows]
    if "data" in names:
        made["data"] = _slices(text, begins, data_ends)
    if MARKS in names - made.keys():
        formed = np.flatnonzero(columns.form[rows] & FORMED)
        view = memoryview(text)
        found: list[str | None] = [None] * len(rows)
        spans = zip(starts[formed].tolist(), begins[formed].tolist(), strict=True)
        for at, (start, end) in zip(formed.tolist(), spans, strict=True):
            found[at] = _marks(bytes(view[start : end - DATA_KEY_SIZE]))
        made[MARKS] = pa.array(found, pa.string())
    if "meta" in names:
        made["meta"] = _slices(text, ends - meta_size, ends, valid=has_meta)


def _marks(head: bytes) -> str | None:
    found = _MARK.search(head)
    return None if found is None else f"{{{head[found.start() + 1 :].decode()}}}"


def _slices(
    text: pa.Buffer,
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    *,
    valid: NDArray[np.bool_] | None = None,
) -> pa.Array:
    """The strings [starts, ends) of a text, ascending and disjoint, as an array of its own.

    The text is seen as one array of alternating pieces, wanted and between, by offsets alone;
    `take` then copies the wanted ones.
    """
    n = len(starts)
    if valid is not None and not valid.any():
        return pa.nulls(n, pa.string())
    offsets = np.empty(2 * n + 1, np.int32)
    offsets[0 : 2 * n : 2], offsets[1 : 2 * n : 2] = starts, ends
    offsets[2 * n] = ends[-1]
    pieces = pa.StringArray.from_buffers(2 * n, pa.py_buffer(offsets), text)
    wanted = np.arange(0, 2 * n, 2, dtype=np.int32)
    mask = None if valid is None else ~valid
    return pieces.take(pa.array(wanted, mask=mask))
