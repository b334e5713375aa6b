"""Records that are stored as text, as a batch for Kafka's clients (§3).

The tag is the key, `data` the value byte for byte, `$ts` the time, and each key of `meta` a header, as is the node.  A
record that came by Kafka, and was copied as text since, gets its own key, value, headers and time back: `$form`, `$key`,
`$time` and `$headers` in its head say what they were.
"""

import re
from base64 import b64decode
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import numpy as np
from msgspec import Raw
from numpy.typing import NDArray

from topics.nesting import deep
from topics.protocol.batches.header import Header, batch_of
from topics.protocol.batches.varints import sizes_of, zigzag_of
from topics.protocol.model.ports import Run, Span
from topics.protocol.model.records import DATA_KEY_SIZE, FORMED, META_KEY_SIZE, Buffer, Columns

NODE_HEADER: Final = b"topics.node"
"""The header that names the node of a record."""
_META: Final = deep(msgspec.json.Decoder(dict[str, Raw]).decode)
_PAIRS: Final = deep(msgspec.json.Decoder(list[tuple[Raw, Raw]]).decode)
_FORM: Final = re.compile(rb',"\$form":"(\w+)"')
_KEY: Final = re.compile(rb',"\$key":"([^"]*)"')
_TIME: Final = re.compile(rb',"\$time":(-?\d+)')
_HEADERS: Final = re.compile(rb',"\$headers":(.*)', re.DOTALL)


_NULL: Final = zigzag_of(-1)


def batch_of_text(
    run: Run, spans: Sequence[Span], texts: Sequence[Buffer], *, leader_epoch: int
) -> bytearray:
    """A batch of records of one run, uncompressed; offsets are seqs less one, and those that are left out are gaps.

    Args:
        spans: Rows of the run, ascending, at least one.
        texts: One buffer a span, as `Run.read` gives them; a row without text is no record.
    """
    columns, first_row = run.columns, spans[0][0]
    rows, starts, text = _placed(columns, spans, texts)
    meta_sizes = columns.meta_size[rows].astype(np.int64)
    ends = starts + columns.size[rows] - 1
    ends -= np.where(meta_sizes > 0, meta_sizes + META_KEY_SIZE, 0)
    begins = (ends - columns.data_size[rows]).tolist()
    data_ends = ends.tolist()
    values = [text[at:end] for at, end in zip(begins, data_ends, strict=True)]
    sizes = sizes_of(list(map(len, values)))
    times = columns.ts_ms[rows].tolist()
    keys = _keys(run, columns.tag_id[rows].tolist())
    node_ids = columns.node_id[rows].tolist()
    nodes = _nodes(run, node_ids)
    known = {node_id: _headers(pairs) for node_id, pairs in nodes.items()}
    headers = [known[node_id] for node_id in node_ids]
    is_formed = columns.form[rows] & FORMED > 0
    for at in np.flatnonzero((meta_sizes > 0) | is_formed).tolist():
        meta_at = data_ends[at] + META_KEY_SIZE
        meta = text[meta_at : meta_at + int(meta_sizes[at])]
        if is_formed[at]:
            head = text[int(starts[at]) : begins[at] - DATA_KEY_SIZE]
            came = _as_it_came(head, values[at], meta, keys[at], times[at])
            keys[at], values[at], headers[at], times[at] = came
            sizes[at] = b""  # it stands before the value already
        else:
            headers[at] = _headers([*_of_meta(meta), *nodes[node_ids[at]]])
    first_ms = int(columns.ts_ms[first_row])
    deltas = {time_ms: b"\0" + zigzag_of(_wrapped(time_ms - first_ms)) for time_ms in set(times)}
    fields = (
        [deltas[time_ms] for time_ms in times],
        sizes_of((rows - first_row).tolist()),
        keys,
        sizes,
        values,
        headers,
    )
    records = [b"".join(each) for each in zip(*fields, strict=True)]
    pieces = [b""] * (2 * len(records))
    pieces[::2], pieces[1::2] = sizes_of(list(map(len, records))), records
    header = Header(
        base_offset=run.first_seq + first_row - 1,
        length=0,
        leader_epoch=leader_epoch,
        magic=0,
        crc=0,
        attributes=0,
        last_delta=spans[-1][1] - 1 - first_row,
        first_ms=first_ms,
        max_ms=max(times, default=first_ms),
        producer_id=-1,
        producer_epoch=-1,
        sequence=-1,
        records=len(records),
    )
    return batch_of(header, b"".join(pieces))


def _wrapped(delta_ms: int) -> int:
    """A difference of two times as clients add it, in 64 bits."""
    return (delta_ms + (1 << 63)) % (1 << 64) - (1 << 63)


def _placed(
    columns: Columns, spans: Sequence[Span], texts: Sequence[Buffer]
) -> tuple[NDArray[np.int64], NDArray[np.int64], bytes]:
    """The rows of the spans that have text, and where that of each begins in the text of all."""
    rows = np.concatenate([np.arange(lo, hi) for lo, hi in spans])
    firsts = columns.offset[[lo for lo, _ in spans]].astype(np.int64)
    places = np.concatenate([[0], np.cumsum([len(text) for text in texts])])[:-1]
    moved = np.repeat(places - firsts, [hi - lo for lo, hi in spans])
    has_text = columns.size[rows] > 0
    rows, moved = rows[has_text], moved[has_text]
    return rows, columns.offset[rows].astype(np.int64) + moved, b"".join(texts)


def _keys(run: Run, tag_ids: Sequence[int]) -> list[bytes]:
    """The key of each record as it stands in a batch."""
    own = list(set(tag_ids) - {0})
    known = {0: _NULL}
    known |= {
        tag_id: _sized(tag.encode()) for tag_id, tag in zip(own, run.tags_of(own), strict=True)
    }
    return [known[tag_id] for tag_id in tag_ids]


def _nodes(run: Run, node_ids: Sequence[int]) -> dict[int, list[tuple[bytes, bytes | None]]]:
    """The header that names a node, by its id; none for 0."""
    own = list(set(node_ids) - {0})
    found: dict[int, list[tuple[bytes, bytes | None]]] = {0: []}
    for node_id, node in zip(own, run.nodes_of(own), strict=True):
        found[node_id] = [(NODE_HEADER, node.encode())]
    return found


def _sized(value: bytes | None) -> bytes:
    return _NULL if value is None else zigzag_of(len(value)) + value


def _headers(pairs: Sequence[tuple[bytes, bytes | None]]) -> bytes:
    """Headers as a record has them, behind their number."""
    parts = [part for name, value in pairs for part in (_sized(name), _sized(value))]
    return zigzag_of(len(pairs)) + b"".join(parts)


def _of_meta(meta: bytes) -> list[tuple[bytes, bytes | None]]:
    """The headers that an object is: a string is its text, anything else its JSON text."""
    return [(name.encode(), _text(bytes(value))) for name, value in _META(meta).items()]


def _text(value: bytes) -> bytes:
    if not value.startswith(b'"'):
        return value
    found: str = msgspec.json.decode(value)
    return found.encode()


# -- what came by Kafka, and was copied as text ----------------------------------------------------------


def _as_it_came(
    head: bytes, value: bytes, meta: bytes, tag: bytes, time_ms: int
) -> tuple[bytes, bytes, bytes, int]:
    """Key, value and headers of a record as it came, and its time."""
    form, time, pairs = (each.search(head) for each in (_FORM, _TIME, _HEADERS))
    key = key_of(head)
    return (
        tag if key is None else _sized(key),
        _sized(value_of(b"" if form is None else form[1], value)),
        _headers(_listed(_PAIRS(pairs[1])) if pairs else headers_of_meta(meta)),
        time_ms if time is None else int(time[1]),
    )


def head_of(text: bytes, data_size: int, meta_size: int) -> bytes:
    """What stands before `data` in the text of a record."""
    end = len(text) - (meta_size + META_KEY_SIZE if meta_size else 0) - 1
    return text[: end - data_size - DATA_KEY_SIZE]


def key_of(head: bytes) -> bytes | None:
    """The key that the head of a record has; None where the tag is the key, or there is none."""
    key = _KEY.search(head)
    return None if key is None else b64decode(key[1])


def is_null(head: bytes) -> bool:
    """Whether the head of a record says that there is no value."""
    form = _FORM.search(head)
    return form is not None and form[1] == b"null"


def value_of(form: bytes, data: bytes) -> bytes | None:
    """The value that a `data` of a form stands for; without a form it is its JSON text."""
    match form:
        case b"":
            return data
        case b"null":
            return None
        case b"text":
            return _text(data)
    return b64decode(msgspec.json.decode(data))


def headers_of_meta(meta: bytes) -> list[tuple[bytes, bytes | None]]:
    """The headers that the `meta` of a record is made of that a client of Kafka's gave."""
    members = _META(meta) if meta else {}
    return [(name.encode(), _value(bytes(value))) for name, value in members.items()]


def _value(raw: bytes) -> bytes | None:
    """The header that a member is; what is no header of a client of Kafka's is its JSON text."""
    if raw.startswith(b"{"):
        members = _META(raw)
        if members.keys() != {"$base64"}:
            return raw
        try:
            text = msgspec.json.decode(members["$base64"], type=str)
            return b64decode(text, validate=True)
        except ValueError:
            return raw
    return None if raw == b"null" else _text(raw)


def _listed(pairs: Iterable[tuple[Raw, Raw]]) -> list[tuple[bytes, bytes | None]]:
    found = []
    for each in pairs:
        name, value = (_value(bytes(part)) for part in each)
        found.append((name or b"", value))
    return found
