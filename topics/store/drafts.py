"""Runs that are to be written into a segment: columns, string tables and flags, joined of pieces.

A draft of text has the columns of its records; one of record batches has a table of the batches, and a tag a record.
What is deleted is left out of both: of a batch that lost some of its records a new one is made without them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from topics.protocol.batches.header import header_of
from topics.protocol.batches.subsets import without
from topics.protocol.model.errors import ReadFailed
from topics.protocol.model.limits import UNPACKED_BYTES_MAX
from topics.protocol.model.ports import BatchPlace, PackedSource, Run, SealEntry, SealPiece, Span
from topics.protocol.model.records import (
    COLUMN_DTYPES,
    DELETED,
    PACKED,
    RUN_TEXT_BYTES_MAX,
    TEXT,
    Buffer,
    Columns,
)
from topics.store.layout import BLOCK, Digest, aligned

CHUNK_BYTES: Final = 1 << 20
"""Text written at a time while a segment is built: 0.2 ms, as a rule."""
_U1, _U4 = np.dtype("|u1"), np.dtype("<u4")
_I8, _U8 = np.dtype("<i8"), np.dtype("<u8")


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of the parts of a run's section; the sizes determine the offsets.

    Every part begins on a multiple of 8 bytes from the section's start: columns, or the table of
    batches and the tag of each record; tag offsets (tags + 1), posting offsets (tags + 1), postings,
    tag bytes, node offsets (nodes + 1), node bytes, block digests.
    """

    count: int
    text_bytes: int
    tag_count: int
    posting_count: int
    tag_bytes: int
    node_count: int
    node_bytes: int
    form: int = TEXT
    columns: int = len(COLUMN_DTYPES)
    batches: int = 0

    @property
    def blocks(self) -> int:
        return -(-self.text_bytes // BLOCK)

    def parts(self) -> dict[str, tuple[int, np.dtype[Any], int]]:
        """Part -> (offset in the section, dtype, items), in file order."""
        wanted: list[tuple[str, np.dtype[Any], int]]
        if self.form == PACKED:
            wanted = [
                ("batch_ts_ms", _I8, self.batches),
                ("batch_max_ms", _I8, self.batches),
                ("batch_row", _U4, self.batches),
                ("batch_bytes", _U4, self.batches),
                ("batch_offset", _U4, self.batches + 1),
                ("tag_id", _U4, self.count),
            ]
        else:
            had = list(COLUMN_DTYPES.items())[: self.columns]
            wanted = [(name, dtype, self.count) for name, dtype in had]
        wanted += [
            ("tag_offsets", _U4, self.tag_count + 1),
            ("posting_offsets", _U4, self.tag_count + 1),
            ("postings", _U4, self.posting_count),
            ("tag_text", _U1, self.tag_bytes),
            ("node_offsets", _U4, self.node_count + 1),
            ("node_text", _U1, self.node_bytes),
            ("blocks", _U8, self.blocks),
        ]
        at, placed = 0, {}
        for name, dtype, items in wanted:
            placed[name] = (at, dtype, items)
            at = aligned(at + items * dtype.itemsize, 8)
        placed["end"] = (at, _U1, 0)
        return placed

    @property
    def section_bytes(self) -> int:
        return self.parts()["end"][0]


@dataclass(slots=True)
class Draft:
    """A run to be written.

    Attributes:
        parts: Of its section, by name, until they are in the file.
        flags: Of its rows.
        chunks: Gives its text, a chunk in one or more buffers at a time.
        digest: Covers what the file has of its section.
    """

    entry: SealEntry
    shape: Shape
    parts: dict[str, NDArray[Any]]
    flags: NDArray[np.uint8]
    chunks: Callable[[], Iterator[list[Buffer]]]
    digest: Digest = field(default_factory=Digest)

    @property
    def count(self) -> int:
        return self.shape.count


def draft_run(entry: SealEntry) -> Draft:
    """*Blocking.* A run that joins the pieces of an entry, all of one form.

    Raises:
        Corrupt, ReadFailed: A sealed piece could not be read.
    """
    return _packed(entry) if entry.pieces[0].run.form == PACKED else _of_text(entry)


def _of_text(entry: SealEntry) -> Draft:
    columns = [piece.run.columns for piece in entry.pieces]
    dead = np.concatenate([piece.flags == DELETED for piece in entry.pieces])
    parts: dict[str, NDArray[Any]] = {
        name: np.concatenate(
            [
                getattr(each, name)[piece.lo : piece.hi]
                for piece, each in zip(entry.pieces, columns, strict=True)
            ],
            dtype=dtype,
        )
        for name, dtype in COLUMN_DTYPES.items()
    }
    for name in ("size", "data_size", "meta_size", "node_id", "tag_id", "form"):
        parts[name][dead] = 0
    ends = np.cumsum(parts["size"] + (parts["size"] > 0), dtype=np.uint64)
    text_bytes = int(ends[-1])
    assert text_bytes < RUN_TEXT_BYTES_MAX
    parts["offset"][0], parts["offset"][1:] = 0, ends[:-1]
    runs = [piece.run for piece in entry.pieces]
    parts["tag_id"], tags = _interned(_ids(entry, columns, "tag_id"), [run.tags_of for run in runs])
    looks = [run.nodes_of for run in runs]
    parts["node_id"], nodes = _interned(_ids(entry, columns, "node_id"), looks)
    parts |= _tables(parts["tag_id"], tags, nodes)

    def chunks() -> Iterator[list[Buffer]]:
        for piece in entry.pieces:
            yield from _chunks(piece)

    shape = _shape(parts, len(dead), text_bytes, TEXT)
    return Draft(entry, shape, parts, _flags(dead), chunks)


def _ids(entry: SealEntry, columns: Sequence[Columns], name: str) -> list[NDArray[np.uint32]]:
    """Of each piece, the ids of its rows; 0 of those that are dead."""
    return [
        np.where(piece.flags == DELETED, 0, getattr(each, name)[piece.lo : piece.hi])
        for piece, each in zip(entry.pieces, columns, strict=True)
    ]


def _flags(dead: NDArray[np.bool_]) -> NDArray[np.uint8]:
    return np.where(dead, DELETED, 0).astype(np.uint8)


def _tables(
    tag_ids: NDArray[np.uint32], tags: Sequence[bytes], nodes: Sequence[bytes]
) -> dict[str, NDArray[Any]]:
    parts: dict[str, NDArray[Any]] = {}
    parts["posting_offsets"], parts["postings"] = _postings(tag_ids, len(tags))
    parts["tag_offsets"], parts["tag_text"] = _string_table(tags)
    parts["node_offsets"], parts["node_text"] = _string_table(nodes)
    return parts


def _shape(parts: dict[str, NDArray[Any]], count: int, text_bytes: int, form: int) -> Shape:
    return Shape(
        count=count,
        text_bytes=text_bytes,
        tag_count=len(parts["tag_offsets"]) - 1,
        posting_count=len(parts["postings"]),
        tag_bytes=len(parts["tag_text"]),
        node_count=len(parts["node_offsets"]) - 1,
        node_bytes=len(parts["node_text"]),
        form=form,
        columns=len(COLUMN_DTYPES) if form == TEXT else 0,
        batches=len(parts["batch_row"]) if form == PACKED else 0,
    )


def _interned(
    ids: Sequence[NDArray[np.uint32]], looks: Sequence[Callable[[Sequence[int]], list[str]]]
) -> tuple[NDArray[np.uint32], list[bytes]]:
    """The id of each row's string in one table, and the strings of that, in byte order.

    Args:
        ids: Of each piece, in a table of its own; 0 is none.
        looks: What gives the strings of ids of each piece.
    """
    if not any(each.any() for each in ids):
        return np.zeros(sum(map(len, ids)), np.uint32), []
    used: list[tuple[NDArray[np.uint32], list[bytes]]] = []
    for each, look in zip(ids, looks, strict=True):
        own = np.unique(each)
        own = own[own > 0]
        used.append((own, [each.encode() for each in look(own.tolist())]))
    strings = sorted({one for _, found in used for one in found})
    rank = {one: index + 1 for index, one in enumerate(strings)}
    rows = []
    for each, (own, found) in zip(ids, used, strict=True):
        ranks = np.array([0, *(rank[one] for one in found)], np.uint32)
        rows.append(ranks[np.searchsorted(np.concatenate([[0], own]), each)])
    return np.concatenate(rows, dtype=np.uint32), strings


def _postings(
    tag_ids: NDArray[np.uint32], tags: int
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Rows by tag: those of id t are postings[offsets[t - 1]:offsets[t]], ascending."""
    if not tags:
        return np.zeros(1, np.uint32), np.empty(0, np.uint32)
    order = np.argsort(tag_ids, kind="stable")
    counts = np.bincount(tag_ids, minlength=tags + 1)
    offsets = np.concatenate([[0], np.cumsum(counts[1:])]).astype(np.uint32)
    return offsets, order[counts[0] :].astype(np.uint32)


def _string_table(strings: Sequence[bytes]) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    """Offsets, shape (n + 1,), and bytes: string i is text[offsets[i]:offsets[i + 1]]."""
    offsets = np.zeros(len(strings) + 1, np.uint32)
    np.cumsum([len(each) for each in strings], out=offsets[1:], dtype=np.uint32)
    return offsets, np.frombuffer(b"".join(strings), np.uint8)


# -- record batches ----------------------------------------------------------------------------


class _Left(NamedTuple):
    """What is left of a batch: its bytes where they were made anew, and else where they are."""

    place: BatchPlace
    row: int
    size_bytes: int
    source: PackedSource
    made: bytearray | None


def _packed(entry: SealEntry) -> Draft:
    left: list[_Left] = []
    ids, looks, row = [], [], 0
    for piece in entry.pieces:
        source = cast(PackedSource, piece.run)
        for place in source.batches(piece.lo, piece.hi):
            first = place.row - piece.lo
            assert 0 <= first <= first + place.records <= piece.hi - piece.lo
            dead = piece.flags[first : first + place.records] == DELETED
            left.append(_left(source, place, row + first, dead))
        # Another thread may be opening the run for a reader.
        still = cast(PackedSource, piece.run.still())
        own, look = still.tags()
        ids.append(np.where(piece.flags == DELETED, 0, own[piece.lo : piece.hi]))
        looks.append(look)
        row += piece.hi - piece.lo
    sizes = np.array([each.size_bytes for each in left], np.uint64)
    parts: dict[str, NDArray[Any]] = {
        "batch_ts_ms": np.array([each.place.ts_ms for each in left], _I8),
        "batch_max_ms": np.array([each.place.max_ms for each in left], _I8),
        "batch_row": np.array([each.row for each in left], _U4),
        "batch_bytes": np.array([each.place.size_bytes for each in left], _U4),
        "batch_offset": np.concatenate([[0], np.cumsum(sizes)]).astype(_U4),
    }
    parts["tag_id"], tags = _interned(ids, looks)
    parts |= _tables(parts["tag_id"], tags, [])
    dead = np.concatenate([piece.flags == DELETED for piece in entry.pieces])

    def chunks() -> Iterator[list[Buffer]]:
        for each in left:
            if each.size_bytes:
                yield [each.source.batch(each.place) if each.made is None else each.made]

    shape = _shape(parts, len(dead), int(sizes.sum()), PACKED)
    assert shape.text_bytes < RUN_TEXT_BYTES_MAX
    return Draft(entry, shape, parts, _flags(dead), chunks)


def _left(source: PackedSource, place: BatchPlace, row: int, dead: NDArray[np.bool_]) -> _Left:
    alive = place.records - int(np.count_nonzero(dead))
    if not alive or not place.stored_bytes:
        return _Left(place, row, 0, source, None)
    if alive < place.records:
        data = source.batch(place)
        if header_of(data).records > alive:
            made = without(data, ~dead, bound_bytes=UNPACKED_BYTES_MAX)
            return _Left(place, row, len(made), source, made)
    return _Left(place, row, place.stored_bytes, source, None)


# -- into the file -----------------------------------------------------------------------------


def section_head(draft: Draft) -> bytearray:
    """The section up to the digests of the blocks of text, which are its last part."""
    placed = draft.shape.parts()
    section = bytearray(placed["blocks"][0])
    for name, part in draft.parts.items():
        at, dtype, items = placed[name]
        assert (part.dtype, part.shape) == (dtype, (items,)), name
        section[at : at + part.nbytes] = part.tobytes()
    return section


def _chunks(piece: SealPiece) -> Iterator[list[Buffer]]:
    """The text of a piece's live rows, commas included, a chunk at a time; text in memory as it lies
    there."""
    run, columns = piece.run, piece.run.columns
    for lo, hi in _live_spans(piece):
        while lo < hi:
            limit = int(columns.offset[lo]) + CHUNK_BYTES
            cut = lo + int(np.searchsorted(columns.offset[lo:hi], limit))
            cut = min(max(cut, lo + 1), hi)
            views = run.views([(lo, cut)])
            yield [*(_read_again(run, (lo, cut)) if views is None else views[0]), b","]
            lo = cut


def _read_again(run: Run, span: Span) -> list[Buffer]:
    """The text of rows of a sealed run.  Raises Corrupt, ReadFailed."""
    try:
        return run.read_blocking([span])
    except OSError as error:
        raise ReadFailed.of(error) from error


def _live_spans(piece: SealPiece) -> list[Span]:
    """Spans [lo, hi) of live rows that have text."""
    kept = (piece.flags != DELETED) & (piece.run.columns.size[piece.lo : piece.hi] > 0)
    edges = np.flatnonzero(np.diff(kept, prepend=False, append=False)) + piece.lo
    return [(int(lo), int(hi)) for lo, hi in edges.reshape(-1, 2)]
