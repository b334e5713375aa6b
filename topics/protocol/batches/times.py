"""Where a time stands in a topic, by the times that producers gave their records (Kafka's ListOffsets).

Those do not ascend, so that batches are looked at one after the other; of each, its greatest time is known without its
bytes.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from topics.protocol.batches.codecs import unpacked
from topics.protocol.batches.header import HEADER_BYTES, header_of
from topics.protocol.batches.records import fields
from topics.protocol.model.fetched import Place
from topics.protocol.model.limits import UNPACKED_BYTES_MAX
from topics.protocol.model.ports import BatchPlace, PackedSource, Run
from topics.protocol.model.records import LIVE, PACKED


class Timed(NamedTuple):
    """A record: its seq, and the time that its producer, or the server, gave it."""

    seq: int
    time_ms: int


def first_since(place: Place, time_ms: int, pause: Callable[[], None]) -> Timed | None:
    """*Blocking.* The first live record of at least that time; `pause` lets others have their turn.

    Raises:
        Corrupt, OSError, BatchError: It cannot be read.
    """
    for run, lo, hi in place.rows:
        pause()
        found = _first_of(run, lo, hi, time_ms)
        if found is not None:
            return found
    return None


def greatest(place: Place, pause: Callable[[], None]) -> Timed | None:
    """*Blocking.* The first of the live records that have the greatest time; otherwise as `first_since`."""
    best: Timed | None = None
    for run, lo, hi in place.rows:
        pause()
        for found in _greatest_of(run, lo, hi, best):
            best = found
    return best


def _first_of(run: Run, lo: int, hi: int, time_ms: int) -> Timed | None:
    if run.form != PACKED:
        row = max(int(run.times[:hi].searchsorted(time_ms, "left")), lo)
        live = np.flatnonzero(run.flags[row:hi] == LIVE)
        return _of_row(run, row + int(live[0])) if len(live) else None
    packed: Any = run
    for batch in packed.batches(lo, hi):
        if batch.max_ms >= time_ms:
            for each in _times(packed, batch, lo):
                if each.time_ms >= time_ms:
                    return each
    return None


def _greatest_of(run: Run, lo: int, hi: int, best: Timed | None) -> Iterator[Timed]:
    """Records of greater times than the best, each of a greater one than the record before."""
    if run.form != PACKED:
        live = np.flatnonzero(run.flags[lo:hi] == LIVE)
        if len(live):
            found = _first_of(run, lo, hi, int(run.times[lo + int(live[-1])]))
            assert found is not None
            if best is None or found.time_ms > best.time_ms:
                yield found
        return
    packed: Any = run
    for batch in packed.batches(lo, hi):
        if best is None or batch.max_ms > best.time_ms:
            for each in _times(packed, batch, lo):
                if best is None or each.time_ms > best.time_ms:
                    best = each
                    yield each


def _of_row(run: Run, row: int) -> Timed:
    return Timed(run.first_seq + row, int(run.times[row]))


def _times(run: PackedSource, batch: BatchPlace, lo: int) -> Iterator[Timed]:
    """The live records of a batch from row `lo` on."""
    if not batch.stored_bytes:
        return
    data = memoryview(run.batch(batch))
    header, flags = header_of(data), run.flags
    records = unpacked(header.codec, data[HEADER_BYTES:], UNPACKED_BYTES_MAX)
    for each in fields(records, header.records, header.last_delta + 1):
        row = batch.row + each.offset
        if row >= lo and flags[row] == LIVE:
            own_ms = header.first_ms + each.time_delta
            time_ms = header.max_ms if header.has_append_time else own_ms
            yield Timed(run.first_seq + row, time_ms)
