"""A segment file: sealed runs of one or more topics, written once.

Owns the layout of a segment, and how one is built and opened; `runs` has the runs as readers see
them.  Invariant: digests form a tree, from the header over the run table and each run's section to
every block of text.  Only the delete flags lie outside of it, because only they change.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from topics.protocol.model.errors import CannotRead, Corrupt
from topics.protocol.model.events import RunRef
from topics.protocol.model.ports import SealEntry
from topics.protocol.model.records import (
    Buffer,
)
from topics.store.drafts import CHUNK_BYTES, Draft, Shape, draft_run, section_head
from topics.store.files import File, Files, discard, read_at_most, write_all, write_parts
from topics.store.layout import (
    BLOCK,
    FORMAT_VERSION,
    JOBS,
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

PIECE_BYTES: Final = 8 << 10
"""What a piece counts for beside its text before the thread gives way."""

TABLE_OFFSET: Final = SECTOR


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


def read_more(file: File, path: str, header: SegmentHeader) -> NDArray[Any]:
    """The list of sections that runs have beside their first, shape (n,) of `MORE_DTYPE`, those of the first run first.
    The table was read before.  Raises Corrupt."""
    table = read_table(file, path, header)
    count = int(table["more"].sum(dtype=np.uint64))
    if not count:
        return np.empty(0, MORE_DTYPE)
    at = TABLE_OFFSET + header.runs * RUN_DTYPE.itemsize
    return np.frombuffer(read_exact(file, path, at, count * MORE_DTYPE.itemsize), MORE_DTYPE)


def read_section(file: File, path: str, more: Any) -> memoryview:
    """*Blocking.* A section, by its row of the list.  Raises Corrupt."""
    offset = int(more["offset"])
    data = read_exact(file, path, offset, int(more["bytes"]))
    if digest(data) != int(more["digest"]):
        raise Corrupt(path, offset, "a section of a run does not verify")
    return data


def more_damages(file: File, path: str, header: SegmentHeader) -> Iterator[Corrupt]:
    """Which of the sections that runs have beside their first do not verify."""
    for more in read_more(file, path, header):
        try:
            read_section(file, path, more)
        except Corrupt as damage:
            yield damage


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
    more = np.zeros(sum(bool(entry.jobs) for entry in entries), MORE_DTYPE)
    drafts, end = _write_sections(file, entries, len(more), pace)
    _write_more(file, entries, more, end)
    table = _layout(drafts, more)
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
    raw = table.tobytes() + more.tobytes()
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
        RunRef(
            number,
            index,
            draft.entry.first_seq,
            draft.count,
            draft.shape.text_bytes,
            draft.shape.form,
        )
        for index, draft in enumerate(drafts)
    ]


def _write_sections(
    file: File, entries: Sequence[SealEntry], more: int, pace: "_Pace"
) -> tuple[list[Draft], int]:
    """Write each run's section up to the digests of its text, one run after another, so that the columns
    and strings of one run are in memory twice and not those of all; returns where they end, too."""
    at = _sections_offset(len(entries), more)
    drafts = []
    for entry in entries:
        draft = draft_run(entry)
        head = section_head(draft)
        write_all(file, head, at)
        draft.digest.update(head)
        draft.parts = {}
        drafts.append(draft)
        at += draft.shape.section_bytes
        pace.did(len(head))
    return drafts, at


def _write_more(file: File, entries: Sequence[SealEntry], more: NDArray[Any], offset: int) -> None:
    """Write the sections that runs have beside their first, behind those, and list them."""
    at = aligned(offset, 8)
    written = 0
    for entry in entries:
        if entry.jobs:
            row = more[written]
            row["kind"], row["offset"], row["bytes"] = JOBS, at, len(entry.jobs)
            row["digest"] = digest(entry.jobs)
            write_all(file, entry.jobs, at)
            at, written = aligned(at + len(entry.jobs), 8), written + 1


def _sections_offset(runs: int, more: int) -> int:
    return aligned(TABLE_OFFSET + runs * RUN_DTYPE.itemsize + more * MORE_DTYPE.itemsize, 8)


def _layout(drafts: Sequence[Draft], more: NDArray[Any]) -> NDArray[Any]:
    """The run table without the section digests."""
    table = np.zeros(len(drafts), RUN_DTYPE)
    for row, draft in zip(table, drafts, strict=True):
        row["topic_id"], row["first_seq"] = draft.entry.topic_id, draft.entry.first_seq
        for each in fields(Shape):
            row[each.name] = getattr(draft.shape, each.name)
        row["section_bytes"] = draft.shape.section_bytes
        row["more"] = bool(draft.entry.jobs)
    sections = _sections_offset(len(drafts), len(more))
    table["section_offset"] = sections + _starts(table["section_bytes"])
    end = sections + int(table["section_bytes"].sum())
    if len(more):
        end = int(more["offset"][-1] + more["bytes"][-1])
    flags = aligned(end, PAGE)
    table["flags_offset"] = flags + _starts(table["count"].astype(np.uint64))
    payload = aligned(flags + int(table["count"].sum(dtype=np.uint64)), PAGE)
    table["text_offset"] = payload + _starts(table["text_bytes"])
    return table


def _starts(sizes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Where each of adjacent parts begins: [0, s0, s0 + s1, ...]."""
    return np.cumsum(sizes, dtype=np.uint64) - sizes


def _write_text(file: File, draft: Draft, offset: int, pace: "_Pace") -> bytes:
    """Write the text of live rows, piece by piece; returns the digests of its blocks, 8 bytes each."""
    digests = BlockDigests()
    written = 0
    for parts in draft.chunks():
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
