"""The compressions of record batches, each within a bound: gzip, snappy, lz4, zstd.

One library has them all (`cramjam`).  It writes into a buffer of the bound's size, so that what would become more is
refused before it is there.  Java writes snappy in blocks behind a head of its own, librdkafka as one block: both come.
Java reads an lz4 frame whose blocks are independent, and no other: such are written.
"""

from struct import Struct
from typing import Any, Final

import numpy as np

from topics.protocol.batches.header import BatchError
from topics.protocol.model.records import Buffer

NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")
"""By their numbers in a batch's attributes."""
GZIP, SNAPPY, LZ4, ZSTD = range(1, 5)
_XERIAL: Final = b"\x82SNAPPY\0"
_XERIAL_BYTES: Final = 16
"""Its magic, and two versions."""
_BLOCK: Final = Struct(">i")
_LZ4_FLAGS_AT: Final = 4
"""Behind the magic of a frame."""
_LZ4_INDEPENDENT: Final = 0x20


class TooMuch(BatchError):
    """More than the bound, once it is unpacked."""


class UnknownCodec(BatchError):
    """A compression of a number that Kafka has not."""


def unpacked(codec: int, data: Buffer, bound_bytes: int) -> Buffer:
    """The records of a compressed batch.

    Raises:
        BatchError: Not what the codec writes, more than `bound_bytes`, or a codec of another number.
    """
    if codec == 0:
        if len(data) > bound_bytes:
            raise TooMuch(_too_large(bound_bytes))
        return data
    if codec >= len(NAMES):
        raise UnknownCodec(f"a compression of number {codec}")
    if codec == SNAPPY and bytes(data[: len(_XERIAL)]) == _XERIAL:
        return _of_blocks(memoryview(data)[_XERIAL_BYTES:], bound_bytes)
    return _unpacked(_library(codec), data, bound_bytes, codec)


def packed(codec: int, data: Buffer) -> bytes:
    """The same records, compressed; as they are where the codec is none."""
    if codec == 0:
        return bytes(data)
    library = _library(codec)
    if codec == LZ4:
        whole = library.Compressor(block_linked=False)
        whole.compress(data)
        return bytes(whole.finish())
    make = library.compress_raw if codec == SNAPPY else library.compress
    return bytes(make(data))


def is_for_java(codec: int, data: Buffer) -> bool:
    """Whether Java's clients read these compressed records, which are sound: of lz4, they read blocks that do not
    refer to each other."""
    return codec != LZ4 or bool(data[_LZ4_FLAGS_AT] & _LZ4_INDEPENDENT)


def _library(codec: int) -> Any:
    import cramjam

    return getattr(cramjam, NAMES[codec])


def _unpacked(library: Any, data: Buffer, bound_bytes: int, codec: int) -> memoryview:
    # Memory that is not written costs nothing: the system gives its pages as they are used.
    room = np.empty(bound_bytes + 1, np.uint8)
    into = library.decompress_raw_into if codec == SNAPPY else library.decompress_into
    try:
        size = int(into(data, room))
    except Exception as error:  # of the library's own class, which says no more than its text
        if "buffer" in str(error).lower():
            raise TooMuch(_too_large(bound_bytes)) from error
        raise BatchError(f"not {NAMES[codec]}: {error}", is_corrupt=True) from error
    if size > bound_bytes:
        raise TooMuch(_too_large(bound_bytes))
    # No copy, which would keep the interpreter for as long as it takes.
    return room.data[:size]


def _of_blocks(blocks: memoryview, bound_bytes: int) -> bytes:
    """Java's snappy: blocks, each behind its length."""
    library, parts, at = _library(SNAPPY), [], 0
    while at < len(blocks):
        if len(blocks) - at < _BLOCK.size:
            raise BatchError("not snappy: half a block", is_corrupt=True)
        (size,) = _BLOCK.unpack_from(blocks, at)
        at += _BLOCK.size
        if not 0 <= size <= len(blocks) - at:
            raise BatchError("not snappy: a block longer than what is left", is_corrupt=True)
        part = _unpacked(library, blocks[at : at + size], bound_bytes, SNAPPY)
        bound_bytes -= len(part)
        parts.append(part)
        at += size
    return b"".join(parts)


def _too_large(bound_bytes: int) -> str:
    return f"a batch of more than {bound_bytes} bytes once it is unpacked"
