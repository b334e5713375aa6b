"""The record, as it is stored: the text that is served, and the columns that decide about it.

A record is rendered once, at append, in the form in which it is read (§3, §0.4):

    {"$seq":479101,"$ts":1748450001000,"$node":"w-2","data":{...},"meta":{...}}

and stands in its run followed by one comma, so that a run of live records is one slice of bytes
(the last comma is left out).  `$tag` is not part of the text; readers that ask for it get it
spliced in before `"data"`.  Everything that decides which records a reader sees is a fixed-layout
little-endian column, one row a record; row = seq - first_seq of the run.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final, Self, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

Buffer: TypeAlias = bytes | bytearray | memoryview

LIVE: Final = 0x00
"""Delete flag of a live record."""
DELETED: Final = 0xD5
"""Delete flag of a deleted record.  It differs from LIVE in five bits, so that a byte with one flipped
bit is nearer to one of them, and is repaired."""

TEXT: Final = 0
PACKED: Final = 1
"""How the records of a run are stored: as the text that HTTP's clients read, or as Kafka's record batches."""

FORMED: Final = 0x01
"""Of `form`: the record is one of Kafka's, so that a string in `meta` is the text of a header, and its head may have
`$form`, `$time` and what follows."""
HAS_KEY: Final = 0x02
"""Its head has `$key`, which readers see who ask for tags."""
HAS_HEADERS: Final = 0x04
"""Its head has `$headers`, which readers see who see `meta`."""

COLUMN_DTYPES: Final[dict[str, np.dtype[Any]]] = {
    "ts_ms": np.dtype("<i8"),
    "src_seq": np.dtype("<u8"),
    "offset": np.dtype("<u4"),
    "size": np.dtype("<u4"),
    "data_size": np.dtype("<u4"),
    "meta_size": np.dtype("<u4"),
    "node_id": np.dtype("<u4"),
    "tag_id": np.dtype("<u4"),
    "hops": np.dtype("|u1"),
    "form": np.dtype("|u1"),
}
"""Column name -> dtype, widest first, in file order; 42 bytes a record, plus one flag byte.  A column that comes
later is the last: what was stored before has those in front of it."""

assert sum(d.itemsize for d in COLUMN_DTYPES.values()) == 42

RUN_TEXT_BYTES_MAX: Final = 2**31
"""A run's text stays below this, so that `offset` (u32) addresses it with room to spare."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns of a run, each of shape (n,).

    `offset` counts bytes from the start of the run's text; `size` is the text of one record
    without its comma, so `offset[i + 1] == offset[i] + size[i] + 1`.  A row whose payload was
    dropped (deleted before it was sealed) has `size == 0` and no comma either:
    `offset[i + 1] == offset[i]`.  `meta_size` is 0 where there is no `meta`.  `node_id` and
    `tag_id` index the run's string tables from 1; 0 means none.  `src_seq` is the sequence number
    of the record this one is a copy of (routers, dead letters), else 0; `hops` counts the copies that a
    record became within a ring of routers.  `form` has bits as `FORMED`.
    """

    ts_ms: NDArray[np.int64]
    src_seq: NDArray[np.uint64]
    offset: NDArray[np.uint32]
    size: NDArray[np.uint32]
    data_size: NDArray[np.uint32]
    meta_size: NDArray[np.uint32]
    node_id: NDArray[np.uint32]
    tag_id: NDArray[np.uint32]
    hops: NDArray[np.uint8]
    form: NDArray[np.uint8]


assert tuple(f.name for f in fields(Columns)) == tuple(COLUMN_DTYPES)


class SharedText(msgspec.Struct, frozen=True, eq=False):
    """Text in pieces, some of which other topics hold as well: it is not copied to be one.

    Attributes:
        pieces: In order, none of them empty.  Of those that are views, nothing changes the memory.
        size_bytes: Of all of them.
    """

    pieces: tuple[Buffer, ...]
    size_bytes: int

    @classmethod
    def of(cls, pieces: Sequence[Buffer]) -> Self:
        return cls(tuple(pieces), sum(map(len, pieces)))

    def __len__(self) -> int:
        return self.size_bytes

    def __bytes__(self) -> bytes:
        return b"".join(self.pieces)


class StoredText(msgspec.Struct, frozen=True, eq=False):
    """Text that stays in the file it was read from.

    Attributes:
        size_bytes: Of all of it.
        read: Bytes [start, end) of it; None where a disk would have to be waited for.
        read_blocking: As `read`, but *blocking* and never None.  Raises OSError.
    """

    size_bytes: int
    read: Callable[[int, int], Buffer | None]
    read_blocking: Callable[[int, int], Buffer]

    def __len__(self) -> int:
        return self.size_bytes


Text: TypeAlias = bytes | SharedText | StoredText


class Batch(msgspec.Struct, frozen=True):
    """The n records of one append, rendered, as its event, its log frame and its run hold them.

    Attributes:
        text: The records' served text, each followed by a comma; stored only where a log is followed.
        ts_ms: Commit time of all of them.
        size: Text of each record without its comma, shape (n,), uint32.
        data_size: Bytes of each `data` value, shape (n,), uint32.
        meta_size: Bytes of each `meta` value, shape (n,), uint32; None where no record has one.
        nodes: One node for all, one (or None) per record, or None.
        tags: One tag (or None) per record, or None where no record has one.
        src_seq: Shape (n,), uint64; None unless the records are copies.
        hops: Shape (n,), uint8; None unless the records are copies.
        form: Shape (n,), uint8, bits as `FORMED`; None where all are 0.
    """

    text: Text
    ts_ms: int
    size: NDArray[np.uint32]
    data_size: NDArray[np.uint32]
    meta_size: NDArray[np.uint32] | None = None
    nodes: str | Sequence[str | None] | None = None
    tags: Sequence[str | None] | None = None
    src_seq: NDArray[np.uint64] | None = None
    hops: NDArray[np.uint8] | None = None
    form: NDArray[np.uint8] | None = None

    def __len__(self) -> int:
        return len(self.size)

    @property
    def weight(self) -> int:
        """What the records add to the topic's bytes: their text without commas."""
        return len(self.text) - len(self.size)

    def weights(self, rows: int) -> NDArray[np.uint32]:
        """The same of each of the first rows."""
        return self.size[:rows]


class PackedBatch(msgspec.Struct, frozen=True):
    """The n records of one append in the form of Kafka, as a client of it sent them.

    Attributes:
        text: The record batch, its base offset set; stored only where a log is followed.
        ts_ms: Commit time of all of them.
        records: n.
        max_ms: The greatest time of a record, as its producer or the server says.
    """

    text: Text
    ts_ms: int
    records: int
    max_ms: int
    nodes: ClassVar[None] = None
    tags: ClassVar[None] = None

    def __len__(self) -> int:
        return self.records

    @property
    def weight(self) -> int:
        return len(self.text)

    def weights(self, rows: int) -> NDArray[np.int64]:
        """What each of the first rows adds to the topic's bytes, if they go in their order: all that are
        left of a batch count for their share of it, rounded down."""
        left = np.arange(self.records, self.records - rows - 1, -1, dtype=np.int64)
        return -np.diff(len(self.text) * left // self.records)


META_KEY_SIZE: Final = len(b',"meta":')
DATA_KEY_SIZE: Final = len(b',"data":')
ONE_LINE: Final = bytes.maketrans(b"\r\n", b"  ")
"""What makes one line of a JSON text: outside of its strings a line may end anywhere, inside nowhere."""
