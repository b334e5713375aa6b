"""A batch without some of its records, and one without any.

What is left keeps its offsets, and the batch its last one, so that a reader goes on behind it; times, producer and codec
stay, and the CRC is made anew.  This is what Kafka's cleaner leaves of a batch, too.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from topics.protocol.batches.codecs import packed, unpacked
from topics.protocol.batches.header import HEADER_BYTES, Header, batch_of, header_of
from topics.protocol.batches.records import fields
from topics.protocol.model.records import Buffer

LAST_DELTA_MAX: Final = 2**31 - 1
"""Offsets that one batch may reach over."""


def without(data: Buffer, kept: NDArray[np.bool_], *, bound_bytes: int) -> bytearray:
    """The batch with those of its records whose offsets are kept.

    Args:
        kept: Of each offset from the batch's first to its last, shape (last_delta + 1,).
        bound_bytes: Of its records, unpacked.

    Raises:
        BatchError: It is not sound.
    """
    header = header_of(data)
    records = unpacked(header.codec, memoryview(data)[HEADER_BYTES:], bound_bytes)
    view, parts, count, at = memoryview(records), [], 0, 0
    for field in fields(records, header.records, header.last_delta + 1):
        if kept[field.offset]:
            parts.append(view[at : field.end])
            count += 1
        at = field.end
    return batch_of(header._replace(records=count), packed(header.codec, b"".join(parts)))


def empty(base_offset: int, last_offset: int, *, leader_epoch: int) -> bytearray:
    """A batch of no records, behind which a reader goes on: it passes over what is not there any more.

    Where `last_offset` is farther than one batch may reach, it ends earlier.
    """
    delta = min(last_offset - base_offset, LAST_DELTA_MAX)
    return batch_of(
        Header(base_offset, 0, leader_epoch, 0, 0, 0, delta, -1, -1, -1, -1, -1, 0), b""
    )
