"""Rendering: records into text, once, at append; and the views of that text that are no plain slice.

The text is JSON by construction: `data` and `meta` come through byte for byte from a body whose
grammar was checked, the rest is rendered here.  A stored record is always one line: a CR or LF can
stand only between tokens of valid JSON, and becomes a space.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, Final, TypeAlias

import numpy as np
import orjson

from topics.protocol.model.marks import Mark, forms_of
from topics.protocol.model.ports import Run, Span
from topics.protocol.model.records import (
    DATA_KEY_SIZE,
    HAS_HEADERS,
    HAS_KEY,
    META_KEY_SIZE,
    ONE_LINE,
    Batch,
    Buffer,
)

JsonText: TypeAlias = Any
"""Anything that `b"".join` takes: bytes, a memoryview, `msgspec.Raw` (a buffer without the ABC).

Text that may be long is joined and not formatted: `b"%b"` grows its result as it goes, which takes
0.5 ms for a megabyte, where a join takes 10 µs.  Up to 16 KB they cost the same."""

_Row: TypeAlias = tuple[int, int, int, int, int, int]
"""Where a record's text begins in its run, its sizes (whole, `data`, `meta`), its tag's id, its form."""

_DATA_AND_BRACE: Final = DATA_KEY_SIZE + 1
_COPIED_BYTES: Final = 64 << 10
"""Text that is copied whole to be cut: slices of it cost less than views."""
_CR, _LF = 13, 10
_KEY: Final = b',"$key":"'
_HEADERS: Final = b',"$headers":'


def render_batch(
    datas: Sequence[JsonText],
    *,
    first_seq: int,
    ts_ms: int,
    nodes: str | Sequence[str | None] | None = None,
    tags: Sequence[str | None] | None = None,
    metas: Sequence[JsonText | None] | None = None,
    marks: Sequence[Mark | None] | None = None,
) -> Batch:
    """Render records with consecutive seqs from `first_seq`; `datas` and `metas` are JSON text."""
    n = len(datas)
    if n == 1 and metas is None and marks is None and (nodes is None or isinstance(nodes, str)):
        return _render_one(datas[0], first_seq, ts_ms, nodes, tags)
    # What a client sent is copied once, into the text; the rest of a record is small.
    heads = heads_of(range(first_seq, first_seq + n), ts_ms, nodes, marks)
    data_size = np.fromiter(map(len, datas), np.uint32, n)
    size = np.fromiter(map(len, heads), np.uint32, n) + data_size
    pieces: list[JsonText] = [b"},"] * (3 * n)
    pieces[::3], pieces[1::3] = heads, datas
    if metas is None:
        size += np.uint32(1)
        meta_size = None
    else:
        ends = list(map(tail_of, metas))
        pieces[2::3] = ends
        size += np.fromiter(map(len, ends), np.uint32, n) - np.uint32(1)
        meta_size = np.array([0 if m is None else len(m) for m in metas], np.uint32)
    text = b"".join(pieces)
    if _LF in text or _CR in text:
        text = text.translate(ONE_LINE)
    return Batch(
        text=text,
        ts_ms=ts_ms,
        size=size,
        data_size=data_size,
        meta_size=meta_size,
        nodes=nodes,
        tags=tags,
        form=None if marks is None else forms_of(marks),
    )


def heads_of(
    seqs: Sequence[int],
    ts_ms: int,
    nodes: str | Sequence[str | None] | None,
    marks: Sequence[Mark | None] | None = None,
) -> list[bytes]:
    """What stands before the data of each record."""
    stamp = b',"$ts":%d' % ts_ms
    if marks is not None:
        own = [nodes] * len(seqs) if nodes is None or isinstance(nodes, str) else nodes
        return [
            b'{"$seq":%d%b%b%b,"data":'
            % (seq, stamp, node_part(node), b"" if mark is None else mark.head)
            for seq, node, mark in zip(seqs, own, marks, strict=True)
        ]
    if nodes is None or isinstance(nodes, str):
        middle = stamp + node_part(nodes) + b',"data":'
        middles: Sequence[bytes] | repeat[bytes] = repeat(middle, len(seqs))
    else:
        known = {node: stamp + node_part(node) + b',"data":' for node in set(nodes)}
        middles = [known[node] for node in nodes]
    return [b'{"$seq":%d%b' % part for part in zip(seqs, middles, strict=True)]


def tail_of(meta: JsonText | None) -> bytes:
    """What stands behind the data of a record."""
    return b"}," if meta is None else b"".join((b',"meta":', meta, b"},"))


def _render_one(
    data: JsonText, seq: int, ts_ms: int, node: str | None, tags: Sequence[str | None] | None
) -> Batch:
    """A single record, the common case, without the arrays that pay for many."""
    part = b"" if node is None else node_part(node)
    text = b"".join((b'{"$seq":%d,"$ts":%d%b,"data":' % (seq, ts_ms, part), data, b"},"))
    if _LF in text or _CR in text:
        text = text.translate(ONE_LINE)
    # An empty array that is filled takes a third of the time of one that is made of a number.
    size, data_size = np.empty(1, np.uint32), np.empty(1, np.uint32)
    size[0], data_size[0] = len(text) - 1, len(data)
    return Batch(text, ts_ms, size, data_size, None, node, tags)


def node_part(node: str | None) -> bytes:
    """What says the node in the head of a record."""
    return b"" if node is None else b',"$node":' + orjson.dumps(node)


def _shown_head(head: bytes, form: int, *, tags: bool, meta: bool) -> bytes:
    """The head of a record of Kafka's, without what its reader does not see."""
    if form & HAS_HEADERS and not meta:
        head = head[: head.index(_HEADERS)]  # the last of it
    if form & HAS_KEY and not tags:
        begin = head.index(_KEY)
        end = head.index(b'"', begin + len(_KEY)) + 1
        head = head[:begin] + head[end:]
    return head


def project(
    run: Run,
    spans: Sequence[Span],
    texts: Sequence[Buffer],
    *,
    tags: bool,
    meta: bool,
    data: bool,
    inserts: Iterator[bytes] | None = None,
) -> list[Buffer]:
    """Cut stored text anew: with `$tag`, without `meta`, without `data` (§3, §7.2), with inserts before
    `$tag` (§10.2).

    Args:
        spans: The rows that `texts` hold, one buffer a span.
        inserts: One a record, each with its leading comma.

    Returns:
        One buffer a span, records separated by commas as in the stored text; a row without text is no record.
    """
    return [
        b",".join(_projected(run, span, text, tags, meta, data, inserts or repeat(b"")))
        for span, text in zip(spans, texts, strict=True)
    ]


def _projected(
    run: Run,
    span: Span,
    text: Buffer,
    tags: bool,
    meta: bool,
    data: bool,
    inserts: Iterator[bytes],
) -> list[bytes]:
    lo, hi = span
    columns = run.columns
    tag_id = columns.tag_id[lo:hi].tolist() if tags else [0] * (hi - lo)
    rows = zip(
        columns.offset[lo:hi].tolist(),
        columns.size[lo:hi].tolist(),
        columns.data_size[lo:hi].tolist(),
        columns.meta_size[lo:hi].tolist(),
        tag_id,
        columns.form[lo:hi].tolist() if run.has_forms else repeat(0, hi - lo),
        strict=True,
    )
    shown: dict[int, bytes] = {0: b""}
    ids = list(set(tag_id) - {0})
    for i, tag in zip(ids, run.tags_of(ids), strict=True):
        shown[i] = b',"$tag":' + orjson.dumps(tag)
    first = int(columns.offset[lo])
    if data and meta and len(text) <= _COPIED_BYTES:
        raw = text if isinstance(text, bytes) else bytes(text)
        return _whole(rows, raw, first, shown, inserts, tags=tags)
    return _parts(rows, memoryview(text), first, shown, inserts, tags=tags, meta=meta, data=data)


def _whole(
    rows: Iterable[_Row],
    raw: bytes,
    first: int,
    shown: Mapping[int, bytes],
    inserts: Iterator[bytes],
    *,
    tags: bool,
) -> list[bytes]:
    """Records with `data` and `meta`: each in two cuts of small text."""
    out = []
    for at, size, data_size, meta_size, tag, form in rows:
        if not size:
            next(inserts)
            continue
        at -= first
        end = at + size
        # Behind the head: `data`, `meta` where there is one, the last brace.
        cut = end - data_size - _DATA_AND_BRACE - (meta_size + META_KEY_SIZE if meta_size else 0)
        head = raw[at:cut]
        if form:
            head = _shown_head(head, form, tags=tags, meta=True)
        out.append(head + next(inserts) + shown[tag] + raw[cut:end])
    return out


def _parts(
    rows: Iterable[_Row],
    view: JsonText,
    first: int,
    shown: Mapping[int, bytes],
    inserts: Iterator[bytes],
    *,
    tags: bool,
    meta: bool,
    data: bool,
) -> list[bytes]:
    """Records with the parts that are asked for, out of text that is not copied before."""
    out = []
    for at, size, data_size, meta_size, tag, form in rows:
        if not size:
            next(inserts)
            continue
        at -= first
        meta_full = meta_size + META_KEY_SIZE if meta_size else 0
        data_end = at + size - 1 - meta_full
        head_end = data_end - data_size - DATA_KEY_SIZE
        head = view[at:head_end]
        if form:
            head = _shown_head(bytes(head), form, tags=tags, meta=meta)
        parts = (
            head,
            next(inserts),
            shown[tag],
            view[head_end:data_end] if data else b"",
            view[data_end : data_end + meta_full] if meta else b"",
            b"}",
        )
        out.append(b"".join(parts))
    return out
