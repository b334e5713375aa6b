"""Records that are stored as text, as a batch for Kafka's clients (§3).

The tag is the key, `data` the value byte for byte, `$ts` the time, and each key of `meta` a header, as is the node.  A
record that came by Kafka, and was copied as text since, gets its own key, value, headers and time back: `$form`, `$key`,
`$time` and `$headers` in its head say what they were.
"""

import re
from base64 import b64decode
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw

from topics.protocol.batches.header import Header, batch_of
from topics.protocol.batches.varints import zigzag_of
from topics.protocol.model.ports import Run, Span
from topics.protocol.model.records import DATA_KEY_SIZE, FORMED, META_KEY_SIZE, Buffer

NODE_HEADER: Final = b"topics.node"
"""The header that names the node of a record."""
_META: Final = msgspec.json.Decoder(dict[str, Raw])
_PAIRS: Final = msgspec.json.Decoder(list[tuple[Raw, Raw]])
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
        texts: One buffer a span, as `Run.read` gives them.
    """
    columns, first_row = run.columns, spans[0][0]
    first_ms = int(columns.ts_ms[first_row])
    max_ms, count = first_ms, 0
    keys: dict[int, bytes] = {0: _NULL}
    nodes: dict[int, bytes] = {}
    out: list[Buffer] = []
    for (lo, hi), buffer in zip(spans, texts, strict=True):
        text, moved = bytes(buffer), int(columns.offset[lo])
        rows = zip(
            range(lo, hi),
            columns.offset[lo:hi].tolist(),
            columns.size[lo:hi].tolist(),
            columns.data_size[lo:hi].tolist(),
            columns.meta_size[lo:hi].tolist(),
            columns.ts_ms[lo:hi].tolist(),
            columns.tag_id[lo:hi].tolist(),
            columns.node_id[lo:hi].tolist(),
            columns.form[lo:hi].tolist(),
            strict=True,
        )
        for row, at, size, data_size, meta_size, time_ms, tag_id, node_id, form in rows:
            data_end = at - moved + size - 1 - (meta_size + META_KEY_SIZE if meta_size else 0)
            value = text[data_end - data_size : data_end]
            meta = text[data_end + META_KEY_SIZE : at - moved + size - 1] if meta_size else b""
            if tag_id not in keys:
                keys[tag_id] = _sized(run.tag(tag_id).encode())
            key, shown, headers = keys[tag_id], _sized(value), b"\0"
            if form & FORMED:
                head = text[at - moved : data_end - data_size - DATA_KEY_SIZE]
                key, shown, headers, time_ms = _as_it_came(head, value, meta, key, time_ms)
            elif meta or node_id:
                if node_id and node_id not in nodes:
                    nodes[node_id] = _sized(NODE_HEADER) + _sized(run.node(node_id).encode())
                headers = _headers(_of_meta(meta), nodes.get(node_id))
            delta, offset = zigzag_of(time_ms - first_ms), zigzag_of(row - first_row)
            length = 1 + len(delta) + len(offset) + len(key) + len(shown) + len(headers)
            out += (zigzag_of(length), b"\0", delta, offset, key, shown, headers)
            max_ms = max(max_ms, time_ms)
        count += hi - lo
    last_delta = spans[-1][1] - 1 - first_row
    base_offset = run.first_seq + first_row - 1
    header = Header(
        base_offset, 0, leader_epoch, 0, 0, 0, last_delta, first_ms, max_ms, -1, -1, -1, count
    )
    return batch_of(header, b"".join(out))


def _sized(value: bytes | None) -> bytes:
    return _NULL if value is None else zigzag_of(len(value)) + value


def _headers(pairs: Sequence[tuple[bytes, bytes | None]], node: bytes | None = None) -> bytes:
    """Headers as a record has them, behind their number; that of the node is the last."""
    parts = [part for name, value in pairs for part in (_sized(name), _sized(value))]
    if node is not None:
        parts.append(node)
    return zigzag_of(len(pairs) + (node is not None)) + b"".join(parts)


def _of_meta(meta: bytes) -> list[tuple[bytes, bytes | None]]:
    """The headers that an object is: a string is its text, anything else its JSON text."""
    if not meta:
        return []
    return [(name.encode(), _text(bytes(value))) for name, value in _META.decode(meta).items()]


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
    form, key, time, pairs = (each.search(head) for each in (_FORM, _KEY, _TIME, _HEADERS))
    return (
        tag if key is None else _sized(b64decode(key[1])),
        _sized(value_of(b"" if form is None else form[1], value)),
        _headers(_listed(_PAIRS.decode(pairs[1])) if pairs else _members(meta)),
        time_ms if time is None else int(time[1]),
    )


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


def _members(meta: bytes) -> list[tuple[bytes, bytes | None]]:
    members = _META.decode(meta) if meta else {}
    return [(name.encode(), _value(bytes(value))) for name, value in members.items()]


def _value(raw: bytes) -> bytes | None:
    """The header that a member is; what is no header of a client of Kafka's is its JSON text."""
    if raw.startswith(b"{"):
        found = msgspec.json.decode(raw)
        if found.keys() != {"$base64"} or not isinstance(found["$base64"], str):
            return raw
    elif raw != b"null" and not raw.startswith(b'"'):
        return raw
    return _header(msgspec.json.decode(raw))


def _listed(pairs: Iterable[tuple[Raw, Raw]]) -> list[tuple[bytes, bytes | None]]:
    found = []
    for each in pairs:
        name, value = (_header(msgspec.json.decode(part)) for part in each)
        found.append((name or b"", value))
    return found


def _header(value: Any) -> bytes | None:
    """A name or a value of a header: text, or `{"$base64": …}`, or none."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    return b64decode(value["$base64"])
