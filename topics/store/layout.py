"""The layout of every file of the data directory: magics, headers, alignments and names.

Owns the fixed layouts only; `FORMAT.md` draws them.  Everything is little-endian.  Invariant: a
layout never changes under one format version.  Every header begins with its magic and version and
ends with the XXH3-64 digest of the bytes before it, so that it verifies as a whole or not at all.
A file of an earlier version is read by the layout of that version.
"""

import re
import struct
from collections.abc import Sequence
from typing import Final

import numpy as np
import xxhash

from topics.protocol.model.records import Buffer

FORMAT_VERSION: Final = 4
"""The version that is written; those in `VERSIONS` are read."""
VERSIONS: Final = (1, 2, 4)
HISTORY_VERSION: Final = 3
"""The first version of an identity that may name a history; one of this version names one, and the other
files of its directory are of version 2."""

SECTOR: Final = 512
"""Batches start on multiples of it, so that a scan can find their headers."""
PAGE: Final = 4096
"""The unit that a disk may write, and so may lose: a page that a sync covers is not written again."""
BLOCK: Final = 16384
"""Text bytes under one digest in a segment."""

IDENTITY_MAGIC: Final = b"\xfftopicID"
LOG_MAGIC: Final = b"\xfftopicLG"
BATCH_MAGIC: Final = b"\xfftopicBA"
CHECKPOINT_MAGIC: Final = b"\xfftopicCP"
SEGMENT_MAGIC: Final = b"\xfftopicSG"
WITNESS_MAGIC: Final = b"\xfftopicWI"
# 0xFF never occurs in UTF-8, so no text that a client sends can look like a header.

IDENTITY: Final = struct.Struct("<8sHHI8sQ")
"""magic, version, -, -, instance, digest."""

HISTORY: Final = struct.Struct("<8sIIQ")
"""Behind an identity that names a history: that, least incarnation, -, digest."""

LOG_HEADER: Final = struct.Struct("<8sHHI8sQQQQ16sQQ")
"""magic, version, -, incarnation, instance, number, last batch of the log before this file, its
digest, synced_through, boot id, file bytes, digest."""

LOG_HEADERS: Final = {1: struct.Struct("<8sHHI8sQQQQ16sQ"), 2: LOG_HEADER, 4: LOG_HEADER}
"""By version; version 1 lacks the file's size."""

FIRST_BATCH: Final = {1: SECTOR, 2: PAGE, 4: PAGE}
"""Where the first batch of a log file stands, by version."""

BATCH_HEADER: Final = struct.Struct("<8sHHI8sQQIIQQQQQ")
"""magic, version, kind, incarnation, instance, file number, batch number, events, -, body bytes,
digest of the batch before, synced_through, body digest, digest."""

WITNESS: Final = struct.Struct("<8sHHI8sQQ")
"""magic, version, -, -, history, batch number, digest."""

CHECKPOINT_HEADER: Final = struct.Struct("<8sHHI8sQQQQQQQQQ")
"""magic, version, clean, incarnation, instance, number, file number, offset, batch number, its
digest, next segment, body bytes, body digest, digest."""

SEGMENT_HEADER: Final = struct.Struct("<8sHHI8sQQQQQQQQQ")
"""magic, version, -, runs, instance, number, run table digest, flags offset, flags bytes, payload
offset, payload bytes, file bytes, batch, digest."""

SEGMENT_HEADERS: Final = {
    1: struct.Struct("<8sHHI8sQQQQQQQQ"),
    2: SEGMENT_HEADER,
    4: SEGMENT_HEADER,
}
"""By version; version 1 lacks the log's batch."""

_PLACE: Final = [
    ("topic_id", "<u8"),
    ("first_seq", "<u8"),
    ("section_offset", "<u8"),
    ("section_bytes", "<u8"),
    ("section_digest", "<u8"),
    ("flags_offset", "<u8"),
    ("text_offset", "<u8"),
    ("text_bytes", "<u8"),
    ("count", "<u4"),
    ("tag_count", "<u4"),
    ("posting_count", "<u4"),
    ("tag_bytes", "<u4"),
    ("node_count", "<u4"),
    ("node_bytes", "<u4"),
]
OLD_RUN_DTYPE: Final = np.dtype(_PLACE)
"""A row of the run table of a segment of version 1 or 2; offsets count from the start of the file."""

RUN_DTYPE: Final = np.dtype(
    [*_PLACE, ("form", "<u4"), ("columns", "<u4"), ("batches", "<u4"), ("more", "<u4")]
)
"""The same from version 4 on: how the records are stored, how many columns they have, how many batches they
are, and how many sections the run has beside the one that this row describes."""
OLD_COLUMNS: Final = 9
"""Columns of a run of version 1 or 2."""

MORE_DTYPE: Final = np.dtype(
    [("kind", "<u4"), ("-", "<u4"), ("offset", "<u8"), ("bytes", "<u8"), ("digest", "<u8")]
)
"""A section that a run has beside its first, in a list behind the run table, in the order of runs.  A
reader passes over a kind that it does not know."""

JOBS: Final = 1
"""Kind of a section: msgpack of `job_options.JobOptions`, the options of a run's jobs."""

assert IDENTITY.size == 32
assert HISTORY.size == 24
assert LOG_HEADER.size == 88
assert LOG_HEADERS[1].size == 80
assert BATCH_HEADER.size == 88
assert WITNESS.size == 40
assert CHECKPOINT_HEADER.size == 96
assert SEGMENT_HEADER.size == 96
assert SEGMENT_HEADERS[1].size == 88
assert OLD_RUN_DTYPE.itemsize == 88
assert RUN_DTYPE.itemsize == 104
assert MORE_DTYPE.itemsize == 32
assert all(s.size % 8 == 0 for s in (LOG_HEADER, BATCH_HEADER, SEGMENT_HEADER))
assert max(BATCH_HEADER.size, LOG_HEADER.size, SEGMENT_HEADER.size) <= SECTOR
assert BLOCK % PAGE == PAGE % SECTOR == 0

IDENTITY_NAME: Final = "topics.id"
IDENTITY_TEMP: Final = "topics.id.tmp"
LOCK_NAME: Final = ".lock"
RESERVE_NAME: Final = "reserve.wal"
FAILED_NAME: Final = "log.failed"
"""The mark of a failed write or sync: the page cache may show bytes of the log that the disk lacks,
so the next start must not conclude from an unchanged boot id that nothing was lost.  Only its name
counts: it is an empty file, or the renamed reserve if no file could be made."""
NAME: Final = re.compile(r"(\d{10})\.(wal|seg|ckpt)")
TORN: Final = re.compile(r"\d{10}\.wal\.\d+\.torn")
TEMP: Final = re.compile(r"\d{10}\.(wal|seg|ckpt)\.tmp|reserve\.wal\.tmp|topics\.id\.tmp")

EVENTS: Final = 0
"""Kind of a batch with events; batches of the other kinds are marks, without events."""
IDLE: Final = 1
ROTATE: Final = 2
CLEAN: Final = 3
KINDS: Final = {EVENTS: "events", IDLE: "idle", ROTATE: "rotate", CLEAN: "clean"}


def log_name(number: int) -> str:
    return f"{number:010d}.wal"


def segment_name(number: int) -> str:
    return f"{number:010d}.seg"


def checkpoint_name(number: int) -> str:
    return f"{number:010d}.ckpt"


def numbers(names: list[str], suffix: str) -> list[int]:
    """Numbers of the numbered files with this suffix among `names`, ascending."""
    found = (NAME.fullmatch(name) for name in names)
    return sorted(int(match[1]) for match in found if match and match[2] == suffix)


def aligned(size: int, unit: int) -> int:
    """The least multiple of `unit` (a power of two) that is not below `size`."""
    return (size + unit - 1) & -unit


def digest(data: Buffer) -> int:
    return int(xxhash.xxh3_64_intdigest(data))


def digest_all(parts: Sequence[Buffer]) -> int:
    """The digest of the concatenation of all parts, without joining them."""
    if len(parts) == 1:
        return int(xxhash.xxh3_64_intdigest(parts[0]))
    state = xxhash.xxh3_64()
    for part in parts:
        state.update(part)
    return int(state.intdigest())


class Digest:
    """The digest of bytes that come in parts."""

    def __init__(self) -> None:
        self._state = xxhash.xxh3_64()

    def update(self, data: Buffer) -> None:
        self._state.update(data)

    @property
    def value(self) -> int:
        return int(self._state.intdigest())


def seal_header(layout: struct.Struct, *values: object) -> bytes:
    """Pack all fields but the last, and the digest of their bytes as the last."""
    body = layout.pack(*values, 0)[:-8]
    return body + digest(body).to_bytes(8, "little")


def header_holds(layout: struct.Struct, data: Buffer) -> bool:
    """Whether the digest at the end of a header matches what stands before it."""
    view = memoryview(data)[: layout.size]
    return len(view) == layout.size and digest(view[:-8]) == int.from_bytes(view[-8:], "little")


def version_of(data: Buffer, magic: bytes) -> int:
    """The version in a header with this magic; 0: another magic, or a version that is not read."""
    view = memoryview(data)
    if bytes(view[:8]) != magic:
        return 0
    version = int.from_bytes(view[8:10], "little")
    return version if version in VERSIONS else 0
