"""What is in a record batch: whether it is sound, and where the fields of each record are.

A record is its length, an attribute byte, the time and the offset as differences to the batch's, key, value and headers,
each behind its length; numbers are varints, negative ones by zigzag.  Where one begins follows from the length of the
one before, so the lengths are a loop; all other fields of many records are read side by side, by numpy.

A batch is sound if its records are as many as it says, their offsets ascend within its own (as producers send them, they
count up from 0; from a stored one some may be gone), no field reaches beyond its record, no header is without a name,
and nothing is left over.  A batch that is acknowledged and cannot be read would
stop every consumer at its offset, so this is verified before.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from topics.protocol.batches.header import BatchError
from topics.protocol.model.records import Buffer

FEW: Final = 48
"""Records up to which a plain loop costs less than arrays."""
NAMED_MAX: Final = 100
"""Records of a batch that a refusal names."""
_ROUNDS: Final = 8
"""Headers of a record that are looked at side by side with those of others; more are looked at one by one."""
_PAD_BYTES: Final = 16
"""Zeros behind the records: a varint that begins at their end is read, and then seen to lie outside."""
_ZIGZAG: Final = (np.arange(128) >> 1) ^ -(np.arange(128) & 1)
"""Numbers of one byte."""
_INT_BYTES: Final = 5
_LONG_BYTES: Final = 10
Int64s: TypeAlias = NDArray[np.int64]


class Field(NamedTuple):
    """One record: where it and its fields are in the unpacked records.

    Attributes:
        end: Behind its last byte.
        offset: To the batch's first, so that it is the row of the record among those that came with it.
        time_delta: To the batch's first timestamp, milliseconds.
        key_size, value_size: −1 where there is none.
        headers_at: Where its headers begin, behind their number.
    """

    end: int
    offset: int
    time_delta: int
    key_at: int
    key_size: int
    value_at: int
    value_size: int
    headers_at: int
    headers: int


class Fields(NamedTuple):
    """`Field`s as lists, one of each attribute."""

    end: list[int]
    offset: list[int]
    time_delta: list[int]
    key_at: list[int]
    key_size: list[int]
    value_at: list[int]
    value_size: list[int]
    headers_at: list[int]
    headers: list[int]


class Sound(NamedTuple):
    """What was seen of sound records: the least and the greatest time, from the batch's first, the size of the largest,
    and which have no key, the first `NAMED_MAX`."""

    min_delta: int
    max_delta: int
    longest: int
    unkeyed: tuple[int, ...]


class _Columns(NamedTuple):
    """`Field`s as arrays, shape (n,)."""

    end: Int64s
    offset: Int64s
    time_delta: Int64s
    key_at: Int64s
    key_size: Int64s
    value_at: Int64s
    value_size: Int64s
    headers_at: Int64s
    headers: Int64s


def verified(data: Buffer, count: int) -> Sound:
    """Verify unpacked records, none of which is gone.  Raises BatchError."""
    if count <= FEW:
        longest = at = 0
        deltas: list[int] = []
        unkeyed: list[int] = []
        for nth, field in enumerate(_few(data, count, count)):
            longest = max(longest, field.end - at)
            deltas.append(field.time_delta)
            at = field.end
            if field.key_size < 0:
                unkeyed.append(nth)
        return Sound(min(deltas), max(deltas), longest, tuple(unkeyed))
    fields = _many(data, count, count)
    longest = int(np.diff(fields.end, prepend=0).max())
    bare = np.flatnonzero(fields.key_size < 0)[:NAMED_MAX].tolist()
    times = fields.time_delta
    return Sound(int(times.min()), int(times.max()), longest, tuple(bare))


def fields(data: Buffer, count: int, span: int) -> Iterator[Field]:
    """The records, in order.

    Args:
        span: Records that there were when they were sent.

    Raises:
        BatchError: They are not sound.
    """
    if count <= FEW:
        return _few(data, count, span)
    return map(Field, *listed(data, count, span))


def listed(data: Buffer, count: int, span: int) -> Fields:
    """The same as lists."""
    if count > FEW:
        return Fields(*(column.tolist() for column in _many(data, count, span)))
    found = list(_few(data, count, span))
    return (
        Fields(*map(list, zip(*found, strict=True))) if found else Fields(*([] for _ in range(9)))
    )


def keys(data: Buffer, count: int, span: int) -> tuple[Int64s, Int64s, Int64s]:
    """Of each of some sound records its offset, and where its key begins and how large it is, −1 where there is
    none; shape (count,) each.  Raises BatchError."""
    if count <= FEW:
        found = [(each.offset, each.key_at, each.key_size) for each in _few(data, count, span)]
        columns = np.array(found, np.int64).reshape(-1, 3)
        return columns[:, 0], columns[:, 1], columns[:, 2]
    # Sound already: what stands behind the keys is not looked at.
    padded, starts, _ = _lengths(data, count)
    _, at = _varints(padded, starts + 1, _LONG_BYTES)
    offsets, at = _varints(padded, at, _INT_BYTES)
    sizes, begins = _varints(padded, at, _INT_BYTES)
    return offsets, begins, sizes


def headers_of(data: Buffer, at: int, count: int) -> list[tuple[bytes, bytes | None]]:
    """Names and values of a sound record's headers, in order.

    Args:
        at: `headers_at` of the record.
        count: How many there are.
    """
    found: list[tuple[bytes, bytes | None]] = []
    for _ in range(count):
        size, at = _varint(data, at, _INT_BYTES)
        name, at = bytes(data[at : at + size]), at + size
        size, at = _varint(data, at, _INT_BYTES)
        found.append((name, None if size < 0 else bytes(data[at : at + size])))
        at += max(size, 0)
    return found


# -- one by one ------------------------------------------------------------------------------------------


def _varint(data: Buffer, at: int, bytes_max: int) -> tuple[int, int]:
    """A signed varint, and where it ends.  Raises BatchError."""
    number = shift = 0
    stop = at + bytes_max
    try:
        while True:
            byte = data[at]
            at += 1
            number |= (byte & 127) << shift
            if byte < 128:
                return (number >> 1) ^ -(number & 1), at
            shift += 7
            if at == stop:
                raise BatchError("a number of too many bytes")
    except IndexError:
        raise BatchError("records end within a number") from None


def _few(data: Buffer, count: int, span: int) -> Iterator[Field]:
    at, size_bytes, least = 0, len(data), 0
    for nth in range(count):
        size, at = _varint(data, at, _INT_BYTES)
        end = at + size
        if size <= 0 or end > size_bytes:
            raise BatchError(f"record {nth} has {size} bytes, and {size_bytes - at} are left")
        delta, at = _varint(data, at + 1, _LONG_BYTES)
        offset, at = _varint(data, at, _INT_BYTES)
        if not least <= offset <= span - count + nth:
            raise BatchError(f"record {nth} has offset {offset}")
        least = offset + 1
        key_size, key_at = _varint(data, at, _INT_BYTES)
        value_size, value_at = _varint(data, _behind(key_at, key_size, end, "key"), _INT_BYTES)
        headers, at = _varint(data, _behind(value_at, value_size, end, "value"), _INT_BYTES)
        field = Field(end, offset, delta, key_at, key_size, value_at, value_size, at, headers)
        if _end_of_headers(data, at, headers, end) != end:
            raise BatchError(f"record {nth} has bytes behind its last field")
        yield field
        at = end
    if at != size_bytes:
        raise BatchError(f"{size_bytes - at} bytes behind the last record")


def _behind(at: int, size: int, end: int, what: str) -> int:
    """Where a field ends."""
    if size < -1 or at + size > end:
        raise BatchError(f"a {what} of {size} bytes in a record with {end - at} left")
    return at + max(size, 0)


def _end_of_headers(data: Buffer, at: int, count: int, end: int) -> int:
    if count < 0 or count > end - at:
        raise BatchError(f"{count} headers in {end - at} bytes")
    for _ in range(count):
        size, at = _varint(data, at, _INT_BYTES)
        if size < 0:
            raise BatchError("a header without a name")
        size, at = _varint(data, _behind(at, size, end, "header's name"), _INT_BYTES)
        at = _behind(at, size, end, "header")
    return at


# -- side by side ----------------------------------------------------------------------------------------


def _lengths(data: Buffer, count: int) -> tuple[NDArray[np.uint8], Int64s, Int64s]:
    """The data with zeros behind them; where each record begins, behind its length, and where it ends."""
    places: list[int] = []
    at, note = 0, places.append
    try:
        for _ in range(count):
            note(at)
            size = data[at]
            if size < 128:
                at += 1 + (size >> 1)
                continue
            high = data[at + 1]
            if high < 128:  # most records have 64 to 8,191 bytes
                at += 2 + ((size & 127 | high << 7) >> 1)
            else:
                signed, behind = _varint(data, at, _INT_BYTES)
                at = behind + max(signed, 0)
    except IndexError:
        raise BatchError("records end before the last one") from None
    if at != len(data):
        raise BatchError(f"{len(data) - at} bytes behind the last record")
    padded = np.zeros(at + _PAD_BYTES, np.uint8)
    padded[:at] = np.frombuffer(data, np.uint8)
    lengths = np.array(places, np.int64)
    if (padded[lengths] & 1).any():
        raise BatchError("a record of a negative length")
    ends = np.append(lengths[1:], at)
    _, starts = _varints(padded, lengths, _INT_BYTES)
    return padded, starts, ends


def _varints(data: NDArray[np.uint8], at: Int64s, bytes_max: int) -> tuple[Int64s, Int64s]:
    """Signed varints that begin at some places of padded data, and where they end."""
    byte = data[at]
    if byte.max() < 128:
        return _ZIGZAG[byte], at + 1
    found = byte.astype(np.uint64) & 127
    ends = at + 1
    more = np.flatnonzero(byte > 127)
    shift = 7
    while len(more):
        if shift == 7 * bytes_max:
            raise BatchError("a number of too many bytes")
        if len(more) == len(at):  # all of them: their sizes are much alike
            byte = data[ends]
            found |= (byte & 127).astype(np.uint64) << np.uint64(shift)
            ends += 1
            more = np.flatnonzero(byte > 127)
        else:
            byte = data[ends[more]]
            found[more] |= (byte & 127).astype(np.uint64) << np.uint64(shift)
            ends[more] += 1
            more = more[byte > 127]
        shift += 7
    return (found >> np.uint64(1)).view(np.int64) ^ -(found & np.uint64(1)).view(np.int64), ends


def _many(data: Buffer, count: int, span: int) -> _Columns:
    padded, starts, ends = _lengths(data, count)
    if (starts == ends).any():
        raise BatchError("a record of no bytes")
    deltas, at = _varints(padded, starts + 1, _LONG_BYTES)
    offsets, at = _varints(padded, np.minimum(at, ends), _INT_BYTES)
    # Each may be as many beyond its number as are gone; and they ascend.
    gone = offsets - np.arange(count)
    if gone[0] < 0 or gone[-1] > span - count or (np.diff(gone) < 0).any():
        raise BatchError("offsets of records do not ascend within the batch")
    key_sizes, key_at = _varints(padded, np.minimum(at, ends), _INT_BYTES)
    at = _all_behind(key_at, key_sizes, ends, "key")
    value_sizes, value_at = _varints(padded, at, _INT_BYTES)
    at = _all_behind(value_at, value_sizes, ends, "value")
    headers, headers_at = _varints(padded, at, _INT_BYTES)
    if (headers < 0).any() or (headers > ends - headers_at).any():
        raise BatchError("more headers than bytes for them")
    at = headers_at
    if headers.any():
        at = _behind_headers(data, padded, headers_at, headers, ends)
    if not np.array_equal(at, ends):
        raise BatchError("records have bytes behind their last field")
    return _Columns(
        ends, offsets, deltas, key_at, key_sizes, value_at, value_sizes, headers_at, headers
    )


def _all_behind(at: Int64s, sizes: Int64s, ends: Int64s, what: str) -> Int64s:
    """Where fields end, each within its record."""
    if (sizes < -1).any() or (at + sizes > ends).any():
        raise BatchError(f"a {what} that reaches beyond its record")
    # One byte may be missing where there is none: the record's end is seen with its last field.
    return np.minimum(at + np.maximum(sizes, 0), ends)


def _behind_headers(
    data: Buffer, padded: NDArray[np.uint8], at: Int64s, left: Int64s, ends: Int64s
) -> Int64s:
    """Where the headers of each record end."""
    at, rows = at.copy(), np.flatnonzero(left)
    for nth in range(_ROUNDS):
        sizes, names_at = _varints(padded, at[rows], _INT_BYTES)
        if (sizes < 0).any():
            raise BatchError("a header without a name")
        stops = ends[rows]
        sizes, values_at = _varints(
            padded, _all_behind(names_at, sizes, stops, "header's name"), _INT_BYTES
        )
        at[rows] = _all_behind(values_at, sizes, stops, "header")
        rows = rows[left[rows] > nth + 1]
        if not len(rows):
            return at
    for row in rows.tolist():
        more = int(left[row]) - _ROUNDS
        at[row] = _end_of_headers(data, int(at[row]), more, int(ends[row]))
    return at
