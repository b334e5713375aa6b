"""Copies of records: what a router or a dead letter appends elsewhere, rendered from stored text.

A copy has a `$seq` and a `$ts` of its own; the rest is the source's text as it stands, so `data` and
`meta` are never parsed.  Only a stamp in `meta` makes a new `meta`, by splicing.  One pass over
columns finds where to cut, one join makes the text (§6.1, §10.6).

The text of a large record is not copied at all: every topic that has the record refers to the same
bytes.  Each counts all of them in its memory, so what is counted is never less than what is held.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from topics.nesting import deep
from topics.protocol.batches.from_text import headers_of_meta
from topics.protocol.batches.to_text import shown_header
from topics.protocol.model.ports import Extent, Run, Span
from topics.protocol.model.records import (
    DATA_KEY_SIZE,
    HAS_HEADERS,
    META_KEY_SIZE,
    Batch,
    Buffer,
    SharedText,
)
from topics.protocol.model.render import JsonText, node_part
from topics.protocol.state.run_list import rows_of

Stamp = Callable[[int], dict[str, bytes]]
"""From a source seq to keys of `meta` and their values as JSON text."""
Rewrite = Callable[[int, bytes], bytes]
"""From a source seq and the record's `meta`, empty where it has none, to the `meta` of its copy."""

SHARED_BYTES: Final = 64 << 10
"""Text of a record from which on its copies share it.  To copy so much takes 20 µs, a tenth of what a
copy takes beside that; a megabyte takes 0.1 to 2.5 ms, as fast as the kernel finds fresh memory."""
_SPARE_SHARE: Final = 8
"""A record is shared where what surrounds it in memory is at most such a part of it: whoever refers to
a part of some bytes holds all of them."""

_HEADERS: Final = b',"$headers":'
_TIME: Final = b',"$time":'
_SEQ_KEY_SIZE: Final = len(b'{"$seq":')
_TS_KEY_SIZE: Final = len(b',"$ts":')
_POWERS: Final = 10 ** np.arange(1, 19, dtype=np.int64)
_META: Final = deep(msgspec.json.Decoder(dict[str, msgspec.Raw]).decode)


@dataclass(slots=True)
class Copies:
    """n records to be appended to another topic, ascending by source seq.

    Attributes:
        tails: Text of each behind its `$ts`, last brace included; with `ends`, up to its `meta`.
        seqs: Source seqs, shape (n,).
        hops: Of the copies, shape (n,), uint8.
        data_size, meta_size: As in `Batch`.
        nodes, tags: One (or None) each, or None where none has one.
        ends: What follows the tail of each: a rewritten `meta` and the last brace; None where there is
            none.
        form: As in `Batch`.
    """

    tails: list[JsonText]
    seqs: NDArray[np.uint64]
    hops: NDArray[np.uint8]
    data_size: NDArray[np.uint32]
    meta_size: NDArray[np.uint32]
    nodes: list[str | None] | None = None
    tags: list[str | None] | None = None
    ends: list[bytes] | None = None
    form: NDArray[np.uint8] | None = None

    def __len__(self) -> int:
        return len(self.tails)

    def tail_bytes(self, i: int) -> int:
        """The size of what one of them shows behind its `$ts`."""
        return len(self.tails[i]) + (0 if self.ends is None else len(self.ends[i]))

    def first(self, n: int) -> "Copies":
        """The first n of them."""
        return self._cut(slice(n))

    def only(self, i: int) -> "Copies":
        """One of them."""
        return self._cut(slice(i, i + 1))

    def _cut(self, part: slice) -> "Copies":
        return Copies(
            self.tails[part],
            self.seqs[part],
            self.hops[part],
            self.data_size[part],
            self.meta_size[part],
            None if self.nodes is None else self.nodes[part],
            None if self.tags is None else self.tags[part],
            None if self.ends is None else self.ends[part],
            None if self.form is None else self.form[part],
        )

    def render(self, first_seq: int, ts_ms: int) -> Batch:
        """The batch of the copies, with consecutive seqs from `first_seq`."""
        stamp = b',"$ts":%d' % ts_ms
        seqs = range(first_seq, first_seq + len(self.tails))
        heads = [b'{"$seq":%d%b' % (seq, stamp) for seq in seqs]
        ends = repeat(b",") if self.ends is None else [end + b"," for end in self.ends]
        text: bytes | SharedText
        if max(map(len, self.tails)) < SHARED_BYTES:
            parts = list(map(b"".join, zip(heads, self.tails, ends, strict=False)))
            text, sizes = b"".join(parts), list(map(len, parts))
        else:
            text, sizes = _shared(heads, self.tails, ends)
        return Batch(
            text=text,
            ts_ms=ts_ms,
            size=np.array(sizes, np.uint32) - np.uint32(1),
            data_size=self.data_size,
            meta_size=self.meta_size if self.meta_size.any() else None,
            nodes=_one_for_all(self.nodes),
            tags=self.tags,
            src_seq=self.seqs,
            hops=self.hops,
            form=self.form,
        )


def _shared(
    heads: Sequence[bytes], tails: Sequence[JsonText], ends: Iterable[bytes]
) -> tuple[SharedText, list[int]]:
    """Text in which large tails stand as they are, and what lies between them is joined; and the size
    of each record with its comma."""
    pieces: list[Buffer] = []
    sizes: list[int] = []
    between: list[JsonText] = []
    for head, tail, end in zip(heads, tails, ends, strict=False):
        sizes.append(len(head) + len(tail) + len(end))
        between.append(head)
        if len(tail) < SHARED_BYTES:
            between += (tail, end)
        else:
            pieces += (b"".join(between), tail)
            between = [end]
    pieces.append(b"".join(between))
    return SharedText.of(pieces), sizes


def _kept(tail: JsonText) -> JsonText:
    """A tail whose bytes may be held for as long as a topic has the copy: what is large as bytes that
    hold little else, and never as a part of a file or of memory that is being written."""
    size = len(tail)
    if size < SHARED_BYTES:
        return tail
    owner = tail.obj if isinstance(tail, memoryview) else tail
    if type(owner) is bytes and len(owner) - size <= size // _SPARE_SHARE:
        return tail
    return bytes(tail)


def _one_for_all(nodes: list[str | None] | None) -> str | Sequence[str | None] | None:
    if nodes is not None and nodes[0] is not None and nodes.count(nodes[0]) == len(nodes):
        return nodes[0]
    return nodes


def gather(
    extents: Sequence[Extent],
    texts: Sequence[Sequence[Buffer]],
    *,
    node: bool = True,
    tag: bool = True,
    stamp: Stamp | None = None,
    rewrite: Rewrite | None = None,
    hop: bool = False,
) -> Copies:
    """Cut records of a topic for copying.

    Args:
        extents: The records, ascending.
        texts: For each extent one buffer a span, as `Run.read` gives them.
        node: Keep `$node`.
        tag: Keep the tag.
        stamp: What to put into each `meta`; in place of keys of that name that are there already.
        rewrite: What to make of each `meta` instead.
        hop: Count one hop more than the source has; else the copy has none.
    """
    if stamp is not None:
        rewrite = _stamping(stamp)
    pieces = [
        _cut(run, spans, buffers, node=node, tag=tag, rewrite=rewrite, hop=hop)
        for (run, spans), buffers in zip(extents, texts, strict=True)
    ]
    if len(pieces) == 1:
        return pieces[0]
    return Copies(
        [tail for piece in pieces for tail in piece.tails],
        np.concatenate([piece.seqs for piece in pieces]),
        np.concatenate([piece.hops for piece in pieces]),
        np.concatenate([piece.data_size for piece in pieces]),
        np.concatenate([piece.meta_size for piece in pieces]),
        _joined([(piece.nodes, len(piece)) for piece in pieces]),
        _joined([(piece.tags, len(piece)) for piece in pieces]),
        None if rewrite is None else [end for piece in pieces for end in piece.ends or ()],
        None
        if all(piece.form is None for piece in pieces)
        else np.concatenate(
            [np.zeros(len(p), np.uint8) if p.form is None else p.form for p in pieces]
        ),
    )


def _joined(parts: Sequence[tuple[list[str | None] | None, int]]) -> list[str | None] | None:
    if all(texts is None for texts, _ in parts):
        return None
    return [text for texts, n in parts for text in (texts if texts is not None else [None] * n)]


def _cut(
    run: Run,
    spans: Sequence[Span],
    texts: Sequence[Buffer],
    *,
    node: bool,
    tag: bool,
    rewrite: Rewrite | None,
    hop: bool,
) -> Copies:
    if len(spans) == 1 and spans[0][1] - spans[0][0] == 1:
        return _cut_one(run, spans[0][0], texts[0], node=node, tag=tag, rewrite=rewrite, hop=hop)
    columns = run.columns
    if len(spans) == 1:
        rows: slice | NDArray[np.int64] = slice(*spans[0])
        seqs = np.arange(*spans[0], dtype=np.int64) + run.first_seq
        moved: int | NDArray[np.int64] = -int(columns.offset[spans[0][0]])
        text = texts[0]
    else:
        ends_of = np.array(spans, np.int64)
        rows = rows_of(ends_of[:, 0], ends_of[:, 1])
        seqs = rows + run.first_seq
        sizes_of = np.fromiter(map(len, texts), np.int64, len(texts))
        moved = np.cumsum(sizes_of) - sizes_of - columns.offset[ends_of[:, 0]]
        moved = np.repeat(moved, ends_of[:, 1] - ends_of[:, 0])
        text = b"".join(texts)
    starts = columns.offset[rows].astype(np.int64) + moved
    size = columns.size[rows].astype(np.int64)
    data_size, meta_size = columns.data_size[rows], columns.meta_size[rows]
    with_meta = np.where(meta_size, meta_size.astype(np.int64) + META_KEY_SIZE, 0)
    data_ends = starts + size - 1 - with_meta
    if node:
        ts_digits = _digits(columns.ts_ms[rows])
        cuts = starts + _SEQ_KEY_SIZE + _digits(seqs) + _TS_KEY_SIZE + ts_digits
    else:
        cuts = data_ends - data_size - DATA_KEY_SIZE
    view: JsonText = memoryview(text)
    tail_ends = starts + size if rewrite is None else data_ends
    tails = [_kept(view[a:b]) for a, b in zip(cuts.tolist(), tail_ends.tolist(), strict=True)]
    ends = None
    if rewrite is not None:
        columns_of_metas = seqs.tolist(), data_ends.tolist(), with_meta.tolist()
        metas = [
            rewrite(seq, bytes(view[end : end + more][META_KEY_SIZE:]))
            for seq, end, more in zip(*columns_of_metas, strict=True)
        ]
        ends = [_end(meta) for meta in metas]
        meta_size = np.fromiter(map(len, metas), np.uint32, len(metas))
    form = columns.form[rows].copy() if run.has_forms else None
    if form is not None:
        starts_of, ends_at, rows_at = starts.tolist(), (starts + size).tolist(), seqs.tolist()
        for i in np.flatnonzero(form).tolist():
            record = bytes(view[starts_of[i] : ends_at[i]])
            row = rows_at[i] - run.first_seq
            tails[i], form[i] = _formed(run, row, record, node=node, is_stamped=rewrite is not None)
    hops = columns.hops[rows]
    return Copies(
        tails,
        seqs.astype(np.uint64),
        np.minimum(hops, 254) + np.uint8(1) if hop else np.zeros(len(tails), np.uint8),
        data_size,
        meta_size,
        _texts_of(columns.node_id[rows], run.nodes_of) if node else None,
        _texts_of(columns.tag_id[rows], run.tags_of) if tag else None,
        ends,
        form,
    )


def _cut_one(
    run: Run,
    row: int,
    text: Buffer,
    *,
    node: bool,
    tag: bool,
    rewrite: Rewrite | None,
    hop: bool,
) -> Copies:
    """As `_cut`, for a single record: most copies are, and numpy costs more than a row does."""
    columns = run.columns
    seq, size = run.first_seq + row, int(columns.size[row])
    data_size, meta_size = int(columns.data_size[row]), int(columns.meta_size[row])
    data_end = size - 1 - (meta_size + META_KEY_SIZE if meta_size else 0)
    if node:
        digits = len(str(seq)) + len(str(int(columns.ts_ms[row])))
        cut = _SEQ_KEY_SIZE + _TS_KEY_SIZE + digits
    else:
        cut = data_end - data_size - DATA_KEY_SIZE
    view: JsonText = memoryview(text)
    tail = _kept(view[cut : size if rewrite is None else data_end])
    ends = None
    if rewrite is not None:
        meta = rewrite(seq, bytes(view[data_end + META_KEY_SIZE : size - 1]))
        ends, meta_size = [_end(meta)], len(meta)
    form = None
    if run.has_forms and columns.form[row]:
        tail, kind = _formed(run, row, bytes(view), node=node, is_stamped=rewrite is not None)
        form = np.array([kind], np.uint8)
    hops = min(int(columns.hops[row]), 254) + 1 if hop else 0
    node_id, tag_id = int(columns.node_id[row]), int(columns.tag_id[row])
    return Copies(
        [tail],
        np.array([seq], np.uint64),
        np.array([hops], np.uint8),
        np.array([data_size], np.uint32),
        np.array([meta_size], np.uint32),
        [*run.nodes_of([node_id])] if node and node_id else None,
        [*run.tags_of([tag_id])] if tag and tag_id else None,
        ends,
        form,
    )


def _formed(
    run: Run, row: int, record: bytes, *, node: bool, is_stamped: bool
) -> tuple[JsonText, int]:
    """The tail of a record of Kafka's, and its form as a copy: its head says all that a client of Kafka's gave, also
    what the source's own head and place say."""
    columns = run.columns
    meta_size, form = int(columns.meta_size[row]), int(columns.form[row])
    data_end = len(record) - 1 - (meta_size + META_KEY_SIZE if meta_size else 0)
    head_end = data_end - int(columns.data_size[row]) - DATA_KEY_SIZE
    seq, ts_ms = run.first_seq + row, int(columns.ts_ms[row])
    head = record[_SEQ_KEY_SIZE + _TS_KEY_SIZE + len(str(seq)) + len(str(ts_ms)) : head_end]
    if not node and (node_id := int(columns.node_id[row])):
        head = head[len(node_part(*run.nodes_of([node_id]))) :]
    before, mark, headers = head.partition(_HEADERS)
    if _TIME not in before:
        before += b"%b%d" % (_TIME, ts_ms)
    if is_stamped and not mark:
        # The stamp is in `meta`, and no header.
        mark, headers = _HEADERS, _pairs(record[data_end + META_KEY_SIZE : -1])
        form |= HAS_HEADERS
    rest = record[head_end : data_end if is_stamped else len(record)]
    return _kept(b"".join((before, mark, headers, rest))), form


def _pairs(meta: bytes) -> bytes:
    """The headers that a `meta` is made of, as a list of pairs."""
    return msgspec.json.encode(
        [[shown_header(name), shown_header(value)] for name, value in headers_of_meta(meta)]
    )


def _end(meta: bytes) -> bytes:
    """The end of a record with a `meta`, or with none."""
    return b"".join((b',"meta":', meta, b"}")) if meta else b"}"


def _digits(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many decimal digits each has."""
    return _POWERS.searchsorted(values, "right") + 1


def _texts_of(
    ids: NDArray[np.uint32], look: Callable[[Sequence[int]], list[str]]
) -> list[str | None] | None:
    if not ids.any():
        return None
    found = ids.tolist()
    own = list(set(found) - {0})
    known: dict[int, str | None] = {0: None, **dict(zip(own, look(own), strict=True))}
    return [known[i] for i in found]


def _stamping(stamp: Stamp) -> Rewrite:
    def rewrite(seq: int, meta: bytes) -> bytes:
        return stamped(meta, stamp(seq))

    return rewrite


def without(meta: bytes, beginning: str) -> bytes:
    """A `meta` without the keys that begin so; empty where none is left."""
    if b"\\u" not in meta and b'"%b' % beginning.encode() not in meta:
        return meta
    own = _META(meta)
    kept = [(name, bytes(value)) for name, value in own.items() if not name.startswith(beginning)]
    if len(kept) == len(own):
        return meta
    return b"{%b}" % b",".join([b"%b:%b" % (_quoted(k), v) for k, v in kept]) if kept else b""


def stamped(meta: bytes, stamp: dict[str, bytes]) -> bytes:
    """A `meta` with the keys of the stamp behind its own, or alone where it is empty."""
    added = b",".join([b"%b:%b" % (_quoted(k), v) for k, v in stamp.items()])
    if not meta:
        return b"{%b}" % added
    # A key may be written with escapes: only then, or where a key occurs, the object is parsed.
    if b"\\u" in meta or any(b'"%b"' % key.encode() in meta for key in stamp):
        own = _META(meta)
        if not stamp.keys().isdisjoint(own):
            kept = [(k, bytes(v)) for k, v in own.items() if k not in stamp]
            meta = b"{%b}" % b",".join([b"%b:%b" % (_quoted(k), v) for k, v in kept])
    head = meta[:-1].rstrip()
    return b"%b,%b}" % (head, added) if len(head) > 1 else b"{%b}" % added


@lru_cache
def _quoted(key: str) -> bytes:
    return msgspec.json.encode(key)
