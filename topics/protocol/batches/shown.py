"""The bytes of what a fetch shows (`model.fetched`).

A batch of which every record is live is given as it is stored; what is dead in another one is left out; text becomes a
batch.
"""

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from topics.protocol.batches.from_text import batch_of_text
from topics.protocol.batches.header import LEADER_EPOCH, header_of
from topics.protocol.batches.subsets import empty, without
from topics.protocol.model.fetched import (
    CutBatch,
    FetchedPart,
    NoRecords,
    Piece,
    StoredBatches,
    TextBatch,
)
from topics.protocol.model.limits import UNPACKED_BYTES_MAX
from topics.protocol.model.records import Buffer


def bytes_of(piece: Piece, *, blocking: bool) -> Sequence[Buffer] | None:
    """The bytes of a piece; None where a disk would have to be waited for.

    Raises:
        Corrupt, OSError: They cannot be read.
        BatchError: They are no batch.
    """
    if isinstance(piece, StoredBatches):
        read = piece.run.stored if blocking else piece.run.stored_now
        return read(piece.first, piece.end)
    if isinstance(piece, CutBatch):
        data = piece.run.batch(piece.place)
        if header_of(data).records == int(np.count_nonzero(piece.kept)):
            return (data,)  # what is dead was dropped when the batch was written anew
        return (without(data, piece.kept, bound_bytes=UNPACKED_BYTES_MAX),)
    if isinstance(piece, TextBatch):
        run, spans = piece.run, piece.spans
        texts = run.read_blocking(spans) if blocking else run.read(spans)
        if texts is None:
            return None
        return (batch_of_text(run, spans, texts, leader_epoch=LEADER_EPOCH),)
    return (empty(piece.after_seq, piece.last_seq - 1, leader_epoch=LEADER_EPOCH),)


def singly(piece: Piece) -> Iterator[Piece]:
    """The same in pieces as small as they can be read."""
    if isinstance(piece, StoredBatches):
        for at in range(piece.first, piece.end):
            yield StoredBatches(piece.run, at, at + 1)
    elif isinstance(piece, TextBatch):
        for lo, hi in piece.spans:
            for row in range(lo, hi):
                yield TextBatch(piece.run, [(row, row + 1)])
    else:
        yield piece


def cost_of(parts: Sequence[FetchedPart]) -> tuple[int, int]:
    """What the bytes cost: records to be taken one by one, and bytes to be read from a file."""
    records = size = 0
    for part in parts:
        for piece in part.pieces:
            if isinstance(piece, CutBatch):
                records += piece.place.records
                size += piece.place.stored_bytes  # it may have to be unpacked
            elif isinstance(piece, TextBatch):
                records += sum(hi - lo for lo, hi in piece.spans)
            elif not isinstance(piece, NoRecords) and piece.run.ref is not None:
                size += part.size_bytes
    return records, size


def still(part: FetchedPart) -> FetchedPart:
    """The same, for a thread: a run of text may grow meanwhile."""
    pieces = [
        TextBatch(piece.run.still(), piece.spans) if isinstance(piece, TextBatch) else piece
        for piece in part.pieces
    ]
    return msgspec.structs.replace(part, pieces=pieces)
