"""A segment file: sealed runs of one or more topics, written once.

Owns the layout of a segment, and how one is built and opened; `runs` has the runs as readers see
them.  Invariant: digests form a tree, from the header over the run table and each run's section to
every block of text.  Only the delete flags lie outside of it, because only they change.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from topics.protocol.model.errors import CannotRead, Corrupt, ReadFailed
from topics.protocol.model.events import RunRef
from topics.protocol.model.ports import Run, SealEntry, SealPiece, Span
from topics.protocol.model.records import (
    COLUMN_DTYPES,
    DELETED,
    RUN_TEXT_BYTES_MAX,
    Buffer,
    Columns,
)
from topics.store.files import File, Files, discard, read_at_most, write_all, write_parts
from topics.store.layout import (
    BLOCK,
    FORMAT_VERSION,
    MORE_DTYPE,
    OLD_COLUMNS,
    OLD_RUN_DTYPE,
    PAGE,
    RUN_DTYPE,
    SECTOR,
    SEGMENT_HEADER,
    SEGMENT_HEADERS,
    SEGMENT_MAGIC,
    Digest,
    aligned,
    digest,
    header_holds,
    seal_header,
    segment_name,
    version_of,
)

CHUNK_BYTES: Final = 1 << 20
"""Text written at a time while a segment is built: 0.2 ms, as a rule."""
PIECE_BYTES: Final = 8 << 10
"""What a piece counts for beside its text before the thread gives way."""

TABLE_OFFSET: Final = SECTOR


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of the parts of a run's section; the sizes determine the offsets.

    Every part begins on a multiple of 8 bytes from the section's start:
    columns, tag offsets (tags + 1), posting offsets (tags + 1), postings, tag bytes,
    node offsets (nodes + 1), node bytes, block digests.
    """

    count: int
    text_bytes: int
    tag_count: int
    posting_count: int
    tag_bytes: int
    node_count: int
    node_bytes: int
    columns: int = len(COLUMN_DTYPES)

    @property
    def blocks(self) -> int:
        return -(-self.text_bytes // BLOCK)

    def parts(self) -> dict[str, tuple[int, np.dtype[Any], int]]:
        """Part -> (offset in the section, dtype, items), in file order."""
        u1, u4, u8 = np.dtype("|u1"), np.dtype("<u4"), np.dtype("<u8")
        had = list(COLUMN_DTYPES.items())[: self.columns]
        wanted = [(name, dtype, self.count) for name, dtype in had]
        wanted += [
            ("tag_offsets", u4, self.tag_count + 1),
            ("posting_offsets", u4, self.tag_count + 1),
            ("postings", u4, self.posting_count),
            ("tag_text", u1, self.tag_bytes),
            ("node_offsets", u4, self.node_count + 1),
            ("node_text", u1, self.node_bytes),
            ("blocks", u8, self.blocks),
        ]
        at, placed = 0, {}
        for name, dtype, items in wanted:
            placed[name] = (at, dtype, items)
            at = aligned(at + items * dtype.itemsize, 8)
        placed["end"] = (at, u1, 0)
        return placed

    @property
    def section_bytes(self) -> int:
        return self.parts()["end"][0]


# -- reading -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """The first sector of a segment file.

    `batch`: The log was durable up to this batch before the file got its name, and no row is newer;
    0 in version 1, which does not have it.
    """

    version: int
    runs: int
    table_digest: int
    flags_offset: int
    flags_bytes: int
    payload_offset: int
    payload_bytes: int
    file_bytes: int
    batch: int


def read_header(file: File, path: str, *, number: int, instance: bytes) -> SegmentHeader:
    """Raises Corrupt: The header is not that of this segment, or the file's size is wrong."""
    data = read_exact(file, path, 0, SEGMENT_HEADER.size)
    version = version_of(data, SEGMENT_MAGIC)
    if not version or not header_holds(SEGMENT_HEADERS[version], data):
        raise Corrupt(path, 0, "the header does not verify")
    layout = SEGMENT_HEADERS[version]
    _, _, _, runs, owner, own, *rest = layout.unpack(data[: layout.size])
    if (owner, own) != (instance, number):
        raise Corrupt(path, 0, f"the file is number {own} of data directory {owner.hex()}")
    known = rest[:-1] if version > 1 else [*rest[:-1], 0]
    header = SegmentHeader(version, runs, *known)
    if file.size() != header.file_bytes:
        what = f"the file has {file.size()} bytes and should have {header.file_bytes}"
        raise Corrupt(path, min(file.size(), header.file_bytes), what)
    return header


def require_log(header: SegmentHeader, path: str, last_batch: int) -> None:
    """Raises Corrupt: The log ends before the batch up to which it had been durable."""
    if header.batch > last_batch:
        through = f"the segment was made of the log through batch {header.batch}"
        what = f"{through}, which ends with batch {last_batch}: the log has lost its end"
        raise Corrupt(path, 0, what)


def read_table(file: File, path: str, header: SegmentHeader) -> NDArray[Any]:
    """The run table, shape (runs,) of `RUN_DTYPE`, whatever the version of the file.  Raises Corrupt."""
    is_old = header.version < FORMAT_VERSION
    dtype = OLD_RUN_DTYPE if is_old else RUN_DTYPE
    size = header.runs * dtype.itemsize
    data = read_exact(file, path, TABLE_OFFSET, size)
    found = np.frombuffer(data, dtype)
    if not is_old and (more := int(found["more"].sum(dtype=np.uint64))):
        data = read_exact(file, path, TABLE_OFFSET, size + more * MORE_DTYPE.itemsize)
    if digest(data) != header.table_digest:
        raise Corrupt(path, TABLE_OFFSET, "the run table does not verify")
    if not is_old:
        return found
    table = np.zeros(header.runs, RUN_DTYPE)
    for name in OLD_RUN_DTYPE.names or ():
        table[name] = found[name]
    table["columns"] = OLD_COLUMNS
    return table


def shape_of(row: Any) -> Shape:
    """The shape of a run, by its row of the run table."""
    return Shape(**{each.name: int(row[each.name]) for each in fields(Shape)})


def check_section(file: File, path: str, row: Any) -> None:
    """Read a run's section and compare its digest.

    It is read, not mapped: a read error of the disk is an OSError here, and a SIGBUS in a map.

    Raises:
        Corrupt: It does not verify, or cannot be read.
    """
    offset, size = int(row["section_offset"]), int(row["section_bytes"])
    if digest(read_exact(file, path, offset, size)) != int(row["section_digest"]):
        raise Corrupt(path, offset, "the columns of a run do not verify")


def read_exact(file: File, path: str, offset: int, size: int) -> memoryview:
    """Raises Corrupt: The file is too short, or the disk cannot read it."""
    try:
        # No more memory than the file has bytes, whatever a damaged header says.
        data = read_at_most(file, min(size, file.size()), offset)
    except OSError as error:
        raise CannotRead(path, offset, error) from error
    if len(data) != size:
        raise Corrupt(path, offset + len(data), "the file ends here")
    return data


# -- building ----------------------------------------------------------------------------------


@dataclass(slots=True)
class Draft:
    """A run to be written: its parts by name, until they are in the file, its flags, and the source of
    its text; `digest` covers what the file has of its section."""

    entry: SealEntry
    shape: Shape
    parts: dict[str, NDArray[Any]]
    flags: NDArray[np.uint8]
    digest: Digest = field(default_factory=Digest)

    @property
    def count(self) -> int:
        return self.shape.count


def build(
    files: Files, number: int, *, instance: bytes, batch: int, entries: Sequence[SealEntry]
) -> list[RunRef]:
    """*Blocking.* Write a segment file and make it durable.

    Args:
        batch: The newest log batch that a row comes from; the log is durable up to it.

    Raises:
        OSError: The disk failed; no file is left.
        Corrupt, ReadFailed: A sealed piece could not be read; no file is left.
    """
    assert entries
    name = segment_name(number)
    temp = name + ".tmp"
    discard(files, temp)
    try:
        file = files.create(temp)
        try:
            refs = _write(
                file,
                number,
                instance=instance,
                batch=batch,
                entries=entries,
                give_way=files.give_way,
            )
            file.sync()
        finally:
            file.close()
        files.rename(temp, name)
        files.sync_dir()
    except (OSError, Corrupt):
        discard(files, temp)
        discard(files, name)
        raise
    return refs


def _write(
    file: File,
    number: int,
    *,
    instance: bytes,
    batch: int,
    entries: Sequence[SealEntry],
    give_way: Callable[[], None],
) -> list[RunRef]:
    pace = _Pace(give_way)
    drafts = _write_sections(file, entries, pace)
    table = _layout(drafts)
    flags_offset = int(table["flags_offset"][0])
    payload_offset = int(table["text_offset"][0])
    file_bytes = payload_offset + sum(draft.shape.text_bytes for draft in drafts)
    file.allocate(file_bytes)
    for row, draft in zip(table, drafts, strict=True):
        blocks = _write_text(file, draft, int(row["text_offset"]), pace)
        draft.digest.update(blocks)
        row["section_digest"] = draft.digest.value
        write_all(file, blocks, int(row["section_offset"]) + draft.shape.parts()["blocks"][0])
    flags = np.concatenate([draft.flags for draft in drafts])
    write_all(file, flags.tobytes(), flags_offset)
    raw = table.tobytes()
    write_all(file, raw, TABLE_OFFSET)
    header = seal_header(
        SEGMENT_HEADER,
        SEGMENT_MAGIC,
        FORMAT_VERSION,
        0,
        len(drafts),
        instance,
        number,
        digest(raw),
        flags_offset,
        len(flags),
        payload_offset,
        file_bytes - payload_offset,
        file_bytes,
        batch,
    )
    write_all(file, header, 0)
    return [
        RunRef(number, index, draft.entry.first_seq, draft.count, draft.shape.text_bytes)
        for index, draft in enumerate(drafts)
    ]


def _write_sections(file: File, entries: Sequence[SealEntry], pace: "_Pace") -> list[Draft]:
    """Write each run's section up to the digests of its text, one run after another, so that the columns
    and strings of one run are in memory twice and not those of all."""
    at = _sections_offset(len(entries))
    drafts = []
    for entry in entries:
        draft = draft_run(entry)
        head = _section_head(draft)
        write_all(file, head, at)
        draft.digest.update(head)
        draft.parts = {}
        drafts.append(draft)
        at += draft.shape.section_bytes
        pace.did(len(head))
    return drafts


def _sections_offset(runs: int) -> int:
    return aligned(TABLE_OFFSET + runs * RUN_DTYPE.itemsize, 8)


def _layout(drafts: Sequence[Draft]) -> NDArray[Any]:
    """The run table without the section digests."""
    table = np.zeros(len(drafts), RUN_DTYPE)
    for row, draft in zip(table, drafts, strict=True):
        row["topic_id"], row["first_seq"] = draft.entry.topic_id, draft.entry.first_seq
        for each in fields(Shape):
            row[each.name] = getattr(draft.shape, each.name)
        row["section_bytes"] = draft.shape.section_bytes
    sections = _sections_offset(len(drafts))
    table["section_offset"] = sections + _starts(table["section_bytes"])
    flags = aligned(sections + int(table["section_bytes"].sum()), PAGE)
    table["flags_offset"] = flags + _starts(table["count"].astype(np.uint64))
    payload = aligned(flags + int(table["count"].sum(dtype=np.uint64)), PAGE)
    table["text_offset"] = payload + _starts(table["text_bytes"])
    return table


def _starts(sizes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Where each of adjacent parts begins: [0, s0, s0 + s1, ...]."""
    return np.cumsum(sizes, dtype=np.uint64) - sizes


def draft_run(entry: SealEntry) -> Draft:
    """Columns, string tables and flags of a run that joins the pieces of an entry."""
    pieces = [(piece, piece.run.columns, piece.flags == DELETED) for piece in entry.pieces]
    dead = np.concatenate([gone for _, _, gone in pieces])
    parts: dict[str, NDArray[Any]] = {
        name: np.concatenate(
            [getattr(columns, name)[piece.lo : piece.hi] for piece, columns, _ in pieces],
            dtype=dtype,
        )
        for name, dtype in COLUMN_DTYPES.items()
    }
    for name in ("size", "data_size", "meta_size", "node_id", "tag_id"):
        parts[name][dead] = 0
    ends = np.cumsum(parts["size"] + (parts["size"] > 0), dtype=np.uint64)
    text_bytes = int(ends[-1])
    assert text_bytes < RUN_TEXT_BYTES_MAX
    parts["offset"][0], parts["offset"][1:] = 0, ends[:-1]
    tags, parts["tag_id"] = _interned(pieces, "tag_id")
    nodes, parts["node_id"] = _interned(pieces, "node_id")
    parts["posting_offsets"], parts["postings"] = _postings(parts["tag_id"], len(tags))
    parts["tag_offsets"], parts["tag_text"] = _string_table(tags)
    parts["node_offsets"], parts["node_text"] = _string_table(nodes)
    flags = np.where(dead, DELETED, 0).astype(np.uint8)
    shape = Shape(
        count=len(flags),
        text_bytes=text_bytes,
        tag_count=len(tags),
        posting_count=len(parts["postings"]),
        tag_bytes=len(parts["tag_text"]),
        node_count=len(nodes),
        node_bytes=len(parts["node_text"]),
    )
    return Draft(entry, shape, parts, flags)


def _interned(
    pieces: Sequence[tuple[SealPiece, Columns, NDArray[np.bool_]]], name: str
) -> tuple[list[bytes], NDArray[np.uint32]]:
    """The strings that live rows use, in byte order, and the id of each row's string."""
    if not any(getattr(c, name)[piece.lo : piece.hi].any() for piece, c, _ in pieces):
        return [], np.zeros(sum(len(dead) for _, _, dead in pieces), np.uint32)
    used: list[tuple[NDArray[np.uint32], list[bytes]]] = []
    for piece, columns, dead in pieces:
        ids = np.unique(np.where(dead, 0, getattr(columns, name)[piece.lo : piece.hi]))
        ids = ids[ids > 0]
        look = piece.run.tag if name == "tag_id" else piece.run.node
        used.append((ids, [look(each).encode() for each in ids.tolist()]))
    strings = sorted({each for _, found in used for each in found})
    rank = {each: index + 1 for index, each in enumerate(strings)}
    rows = []
    for (piece, columns, dead), (ids, found) in zip(pieces, used, strict=True):
        column = np.where(dead, 0, getattr(columns, name)[piece.lo : piece.hi])
        ranks = np.array([0, *(rank[each] for each in found)], np.uint32)
        rows.append(ranks[np.searchsorted(np.concatenate([[0], ids]), column)])
    return strings, np.concatenate(rows, dtype=np.uint32)


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


def _section_head(draft: Draft) -> bytearray:
    """The section up to the digests of the blocks of text, which are its last part."""
    placed = draft.shape.parts()
    section = bytearray(placed["blocks"][0])
    for name, part in draft.parts.items():
        at, dtype, items = placed[name]
        assert (part.dtype, part.shape) == (dtype, (items,)), name
        section[at : at + part.nbytes] = part.tobytes()
    return section


def _write_text(file: File, draft: Draft, offset: int, pace: "_Pace") -> bytes:
    """Write the text of live rows, piece by piece; returns the digests of its blocks, 8 bytes each."""
    digests = BlockDigests()
    written = 0
    for piece in draft.entry.pieces:
        for parts in _chunks(piece):
            write_parts(file, parts, offset + written)
            for part in parts:
                digests.update(part)
                written += len(part)
            pace.did(sum(map(len, parts)) + PIECE_BYTES)
    assert written == draft.shape.text_bytes
    return np.array(digests.end(), "<u8").tobytes()


class _Pace:
    """Has the thread that seals give way after each chunk's worth of work."""

    def __init__(self, give_way: Callable[[], None]) -> None:
        self._give_way = give_way
        self._left_bytes = CHUNK_BYTES

    def did(self, size_bytes: int) -> None:
        self._left_bytes -= size_bytes
        if self._left_bytes <= 0:
            self._left_bytes = CHUNK_BYTES
            self._give_way()


class BlockDigests:
    """The digests of the blocks of a text that comes in parts, none of which is copied.

    The thread that seals shares the interpreter with the event loop: joined, a chunk of some
    megabytes would be one step of it.
    """

    def __init__(self) -> None:
        self._digests: list[int] = []
        self._open = Digest()
        self._open_bytes = 0

    def update(self, data: Buffer) -> None:
        """Take in what follows."""
        view, at = memoryview(data), 0
        if self._open_bytes:
            at = min(BLOCK - self._open_bytes, len(view))
            self._add(view[:at])
        whole = at + (len(view) - at) // BLOCK * BLOCK
        self._digests += [digest(view[lo : lo + BLOCK]) for lo in range(at, whole, BLOCK)]
        if whole < len(view):
            self._add(view[whole:])

    def _add(self, part: memoryview) -> None:
        self._open.update(part)
        self._open_bytes += len(part)
        if self._open_bytes == BLOCK:
            self._close()

    def _close(self) -> None:
        self._digests.append(self._open.value)
        self._open, self._open_bytes = Digest(), 0

    def end(self) -> list[int]:
        """All of them; the last block may be shorter."""
        if self._open_bytes:
            self._close()
        return self._digests


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
