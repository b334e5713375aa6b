"""A backup as the data directory that it would be restored to: the store's interface to files, read
only, over parts of a backup file and the copies of segments.

Owns the translation of names and offsets.  Knows nothing of what the bytes mean.  Invariant: bytes
that no part holds read as zero, and flags are given out only once their digest was compared.
"""

import errno
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from topics.backup.layout import FilePart, Manifest, SegmentPart
from topics.protocol.model.errors import Corrupt
from topics.protocol.model.records import COLUMN_DTYPES, Buffer
from topics.store.files import File, Files, read_at_most
from topics.store.layout import (
    IDENTITY_NAME,
    checkpoint_name,
    digest,
    log_name,
    segment_name,
)

ROW_BYTES: Final = COLUMN_DTYPES["tag_id"].itemsize
"""Of a record in the columns that runs of every form have, which stand before the flags of a segment: all else of many
records in a compressed batch may be a few bytes."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes [start, start + size) of a file, which stand at `at` of another."""

    start: int
    size: int
    file: File
    at: int


def _refuse(*_: object, **__: object) -> NoReturn:
    raise OSError(errno.EROFS, "a view of a backup is read-only")


class PiecedFile:
    """Implements `files.File` over pieces of others; what no piece covers is zero."""

    def __init__(self, name: str, size: int, pieces: Sequence[Piece]) -> None:
        self.name = name
        self._size = size
        self._pieces = pieces

    def size(self) -> int:
        return self._size

    def read_into(self, buffer: memoryview, offset: int) -> int:
        size = max(min(len(buffer), self._size - offset), 0)
        buffer[:size] = bytes(size)
        for piece in self._pieces:
            lo = max(offset, piece.start)
            hi = min(offset + size, piece.start + piece.size)
            if lo < hi:
                found = read_at_most(piece.file, hi - lo, piece.at + lo - piece.start)
                if len(found) < hi - lo:
                    raise OSError(errno.EIO, "the file is cut short", piece.file.name)
                buffer[lo - offset : hi - offset] = found
        return size

    def read_nowait(self, buffer: memoryview, offset: int) -> bool:
        return False

    write = write_vector = _refuse
    sync_data = sync = truncate = allocate = map_readonly = _refuse

    def forget_cache(self) -> None:
        return

    def close(self) -> None:
        for piece in self._pieces:
            piece.file.close()


class SharedView:
    """A file of many views: closed by its owner, not with a view."""

    def __init__(self, file: File) -> None:
        self.name = file.name
        self._file = file

    def size(self) -> int:
        return self._file.size()

    def read_into(self, buffer: memoryview, offset: int) -> int:
        return self._file.read_into(buffer, offset)

    def read_nowait(self, buffer: memoryview, offset: int) -> bool:
        return False

    write = write_vector = _refuse
    sync_data = sync = truncate = allocate = map_readonly = _refuse

    def forget_cache(self) -> None:
        return

    def close(self) -> None:
        return


class Held:
    """Bytes as a file."""

    def __init__(self, name: str, data: Buffer) -> None:
        self.name = name
        self._data = memoryview(data)

    def size(self) -> int:
        return len(self._data)

    def read_into(self, buffer: memoryview, offset: int) -> int:
        found = self._data[offset : offset + len(buffer)]
        buffer[: len(found)] = found
        return len(found)

    def read_nowait(self, buffer: memoryview, offset: int) -> bool:
        return self.read_into(buffer, offset) == len(buffer)

    write = write_vector = _refuse
    sync_data = sync = truncate = allocate = map_readonly = _refuse

    def forget_cache(self) -> None:
        return

    def close(self) -> None:
        return


class Overlay:
    """Files by name, each opened by a function of its own; implements `files.Files`, read only."""

    def __init__(self, below: Files, path: str, opened: dict[str, Callable[[], File]]) -> None:
        self.path = path
        self._below = below
        self._opened = opened

    def prepare(self, *, create: bool) -> None:
        return

    def names(self) -> list[str]:
        return sorted(self._opened)

    def open(self, name: str, *, write: bool = False) -> File:
        if name not in self._opened:
            raise FileNotFoundError(errno.ENOENT, "missing", name)
        return self._opened[name]()

    lock = create = rename = unlink = sync_dir = _refuse

    def free_bytes(self) -> int:
        return 0

    def modified_s(self, name: str) -> int:
        return self._below.modified_s(name)

    def now_s(self) -> int:
        return self._below.now_s()

    def boot_id(self) -> bytes:
        return self._below.boot_id()

    def entropy(self, size: int) -> bytes:
        return self._below.entropy(size)

    def monotonic_us(self) -> int:
        return self._below.monotonic_us()

    def give_way(self) -> None:
        self._below.give_way()

    def close(self) -> None:
        return


def view(files: Files, manifest: Manifest, backup: File, identity: bytes) -> Overlay:
    """The directory that a backup would be restored to.

    Args:
        files: The place of backups.
        backup: The backup file, open as long as the view is used.
        identity: Its `topics.id`.
    """
    path = f"{files.path}/{manifest.name}"
    shared = SharedView(backup)
    opened: dict[str, Callable[[], File]] = {
        IDENTITY_NAME: lambda: Held(IDENTITY_NAME, identity),
    }
    if manifest.checkpoint is not None:
        number, part = manifest.checkpoint
        name = checkpoint_name(number)
        opened[name] = _of_part(name, part.size_bytes, shared, part)
    for log in manifest.logs:
        name = log_name(log.number)
        opened[name] = _of_part(name, log.size_bytes, shared, log.part)
    for segment in manifest.segments:
        opened[segment_name(segment.number)] = _of_segment(files, path, shared, segment)
    return Overlay(files, path, opened)


def _of_part(name: str, size: int, backup: File, part: FilePart) -> Callable[[], File]:
    pieces = [Piece(0, part.size_bytes, backup, part.offset)]
    return lambda: PiecedFile(name, size, pieces)


def _of_segment(files: Files, path: str, backup: File, segment: SegmentPart) -> Callable[[], File]:
    def opened() -> File:
        copied = files.open(segment.copy)
        flags = Held("flags", flags_of(backup, path, segment, copied.size()))
        end = segment.flags_offset + segment.flags_bytes
        pieces = [
            Piece(0, segment.flags_offset, copied, 0),
            Piece(segment.flags_offset, segment.flags_bytes, flags, 0),
            Piece(end, segment.size_bytes - end, copied, end),
        ]
        # Its size is the copy's: a copy that was cut short is damage as in a data directory.
        return PiecedFile(segment_name(segment.number), copied.size(), pieces)

    return opened


def flags_of(backup: File, path: str, segment: SegmentPart, copy_bytes: int) -> bytes:
    """The delete flags of a segment, one byte a record.

    Deflate makes a thousand bytes of one, and whoever made the backup has computed its digests: so the
    flags are never more than the records that the copy has room for.

    Args:
        copy_bytes: Size of the segment's copy.

    Raises:
        Corrupt: They do not verify, or are more than the copy has records.
    """
    what = f"the delete flags of segment {segment.number} do not verify"
    end = segment.flags_offset + segment.flags_bytes
    if end > copy_bytes or segment.flags_bytes * ROW_BYTES > segment.flags_offset:
        raise Corrupt(path, segment.flags.offset, what)
    if segment.flags.offset + segment.flags.size_bytes > backup.size():
        raise Corrupt(path, backup.size(), "the file ends here")
    raw = read_at_most(backup, segment.flags.size_bytes, segment.flags.offset)
    if digest(raw) != segment.flags.digest:
        raise Corrupt(path, segment.flags.offset, what)
    try:
        flags = zlib.decompressobj().decompress(raw, segment.flags_bytes + 1)
    except zlib.error:
        raise Corrupt(path, segment.flags.offset, what) from None
    if len(flags) != segment.flags_bytes or digest(flags) != segment.flags_digest:
        raise Corrupt(path, segment.flags.offset, what)
    return flags
