"""Whether a batch that a producer sends is taken.

What is acknowledged can be read: a batch that cannot would stop every consumer at its offset.
"""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from topics.protocol.batches.codecs import is_for_java, unpacked
from topics.protocol.batches.header import (
    CONTROL,
    HEADER_BYTES,
    MAGIC,
    MAGIC_AT,
    NO_TIME,
    TIME_MAX,
    TRANSACTIONAL,
    BatchError,
    Header,
    checked_header,
    header_of,
)
from topics.protocol.batches.records import NAMED_MAX, listed, verified
from topics.protocol.model.limits import UNPACKED_BYTES_MAX
from topics.protocol.model.records import Buffer


class OldForm(BatchError):
    """Records as clients sent them before Kafka 0.11."""


class BadTime(BatchError):
    """Times that no producer sets so."""


class RecordTooLarge(BatchError):
    """A record of more bytes than a server takes."""


class Found(NamedTuple):
    """What the records of a sound batch are: bytes, once they are unpacked, the least time of those that have one, the
    greatest time, and which have no key, the first ones of many."""

    unpacked_bytes: int
    min_ms: int
    max_ms: int
    unkeyed: tuple[int, ...]


def require_sound(
    data: Buffer, record_bytes_max: int, bound_bytes: int = UNPACKED_BYTES_MAX
) -> Found:
    """Verify one whole batch: its bytes, what it says of itself, and each record.

    The greatest time is found and not verified: some producers write that of the last record, or none (`header.dated`).

    Args:
        bound_bytes: Of its records, unpacked.

    Raises:
        BatchError: It is not taken; `TooMuch`, where nothing else is wrong up to there.
    """
    if len(data) > MAGIC_AT and data[MAGIC_AT] < MAGIC:
        raise OldForm(f"records of form {data[MAGIC_AT]}; form {MAGIC} is taken, Kafka 0.11's")
    header = checked_header(data)
    if header.attributes & (TRANSACTIONAL | CONTROL):
        raise BatchError("a record or a mark of a transaction, which topics has not")
    if header.records <= 0 or header.last_delta != header.records - 1:
        raise BatchError(f"{header.records} records with a last offset of {header.last_delta}")
    if header.producer_id >= 0 and (header.producer_epoch < 0 or header.sequence < 0):
        raise BatchError("a producer without an epoch or without a sequence")
    if header.has_append_time:
        raise BadTime("the time of the append is for the server to set")
    sent = memoryview(data)[HEADER_BYTES:]
    records = unpacked(header.codec, sent, bound_bytes)
    if not is_for_java(header.codec, sent):
        raise BatchError("lz4 of blocks that refer to each other, which Java's clients do not read")
    sound = verified(records, header.records)
    if sound.longest > record_bytes_max:
        raise RecordTooLarge(f"a record of {sound.longest} bytes, and {record_bytes_max} are taken")
    min_ms, max_ms = header.first_ms + sound.min_delta, header.first_ms + sound.max_delta
    if max_ms > TIME_MAX:
        raise BadTime("a record has a time that 64 bits do not hold")
    if min_ms <= NO_TIME < max_ms:
        min_ms = min(each for each in _times(header, records) if each != NO_TIME)
    return Found(len(records), min_ms, max_ms, sound.unkeyed)


def untimely(data: Buffer, earliest_ms: int, latest_ms: int) -> list[int]:
    """Which records of a sound batch have a time outside of these, the first ones of many."""
    header = header_of(data)
    records = unpacked(header.codec, memoryview(data)[HEADER_BYTES:], UNPACKED_BYTES_MAX)
    times = enumerate(_times(header, records))
    found = (n for n, ms in times if ms != NO_TIME and not earliest_ms <= ms <= latest_ms)
    return [*islice(found, NAMED_MAX)]


def _times(header: Header, records: Buffer) -> Iterator[int]:
    deltas = listed(records, header.records, header.records).time_delta
    return (header.first_ms + delta for delta in deltas)
