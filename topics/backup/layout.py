"""The layout of a backup file and the names in a place of backups; `FORMAT.md` of the store draws them.

Owns the fixed layout and the manifest.  Invariants: a name in a place never changes its meaning, and
a segment's copy is named after the digest of its header, under which every digest of the segment
lies: what has the same name has the same bytes.
"""

import re
import struct
from typing import Final

import msgspec

from topics.protocol.model.errors import Corrupt
from topics.store.files import File, read_at_most
from topics.store.layout import Digest, digest, header_holds, seal_header

MAGIC: Final = b"\xfftopicBK"
VERSION: Final = 1

HEADER: Final = struct.Struct("<8sHHI8sQQQQQ")
"""magic, version, -, -, instance, number, manifest offset, manifest bytes, manifest digest, digest."""

PARTS_OFFSET: Final = 4096
CHUNK_BYTES: Final = 1 << 20
"""Bytes copied at a time."""

BACKUP_NAME: Final = re.compile(r"(\d{10})\.backup")
COPY_NAME: Final = re.compile(r"(\d{10})-([0-9a-f]{16})\.segment")
TEMP_NAME: Final = re.compile(r"(\d{10}\.backup|\d{10}-[0-9a-f]{16}\.segment)\.tmp")


class FilePart(msgspec.Struct, frozen=True, array_like=True):
    """Bytes of the backup file."""

    offset: int
    size_bytes: int
    digest: int


class LogPart(msgspec.Struct, frozen=True, array_like=True):
    """A log file: its bytes up to the point, and the size that it has where it is restored."""

    number: int
    size_bytes: int
    part: FilePart


class SegmentPart(msgspec.Struct, frozen=True, array_like=True):
    """A segment: where its copy is, and its delete flags at the point, compressed by zlib.

    `flags` is the part of the backup file; `flags_digest` that of the flags themselves.
    """

    number: int
    header_digest: int
    size_bytes: int
    flags_offset: int
    flags_bytes: int
    flags_digest: int
    flags: FilePart

    @property
    def copy(self) -> str:
        return copy_name(self.number, self.header_digest)


class Manifest(msgspec.Struct, array_like=True):
    """What a backup consists of.

    Attributes:
        taken_s: Wall clock at the point, seconds since the epoch.
        source: Path of the data directory.
        instance, history: Its ids, hex.
        incarnation: The greatest one in its log.
        clean: Nothing was written behind the point: the server had been stopped.
        batch: The last batch of the log before the point; 0: none.
        checkpoint: Number and part of the checkpoint; None where the directory had none.
        topics, records: What lives at the point.
        copied_bytes: Bytes of segments that this backup was the first to need.
    """

    number: int
    taken_s: int
    source: str
    instance: str
    history: str
    incarnation: int
    clean: bool
    batch: int
    checkpoint: tuple[int, FilePart] | None
    logs: list[LogPart]
    segments: list[SegmentPart]
    topics: int = 0
    records: int = 0
    copied_bytes: int = 0

    @property
    def name(self) -> str:
        return backup_name(self.number)

    @property
    def parts(self) -> list[FilePart]:
        """All that the backup file holds."""
        checkpoint = [] if self.checkpoint is None else [self.checkpoint[1]]
        return [
            *checkpoint,
            *(log.part for log in self.logs),
            *(segment.flags for segment in self.segments),
        ]


_decode = msgspec.msgpack.Decoder(Manifest).decode


def backup_name(number: int) -> str:
    return f"{number:010d}.backup"


def copy_name(number: int, header_digest: int) -> str:
    return f"{number:010d}-{header_digest:016x}.segment"


def encoded(manifest: Manifest, offset: int) -> tuple[bytes, bytes]:
    """(header, manifest) of a backup file whose manifest stands at `offset`."""
    body = msgspec.msgpack.encode(manifest)
    instance = bytes.fromhex(manifest.instance)
    header = seal_header(
        HEADER, MAGIC, VERSION, 0, 0, instance, manifest.number, offset, len(body), digest(body)
    )
    return header, body


def read_manifest(file: File, path: str, number: int) -> Manifest:
    """The manifest of a backup file.

    Raises:
        Corrupt: It does not verify, cannot be read, or is of a newer version.
    """
    try:
        data = read_at_most(file, HEADER.size, 0)
        if not header_holds(HEADER, data):
            raise Corrupt(path, 0, "the header of the backup does not verify")
        magic, version, _, _, _, own, offset, size, expected, _ = HEADER.unpack(data)
        if magic != MAGIC or own != number:
            raise Corrupt(path, 0, "the file is not this backup")
        if version != VERSION:
            raise Corrupt(path, 0, f"version {version} of backups is not read by this version")
        body = read_at_most(file, min(size, file.size()), offset)
    except OSError as error:
        raise Corrupt(path, 0, f"cannot be read: {error.strerror}") from error
    if len(body) != size or digest(body) != expected:
        raise Corrupt(path, offset, "the manifest of the backup does not verify")
    return _decode(body)


def require_parts(file: File, path: str, manifest: Manifest) -> None:
    """*Blocking.* Compare every part of a backup file with its digest.

    The end of a log that does not verify looks torn, as a crash leaves it: only this tells it from
    damage of the backup.

    Raises:
        Corrupt: One does not verify.
    """
    for part in manifest.parts:
        seen = Digest()
        for at in range(0, part.size_bytes, CHUNK_BYTES):
            size = min(CHUNK_BYTES, part.size_bytes - at)
            seen.update(read_at_most(file, size, part.offset + at))
        if seen.value != part.digest:
            raise Corrupt(path, part.offset, "a part of the backup does not verify")
