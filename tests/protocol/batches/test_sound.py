"""Which batches of a producer are taken, and why the others are not (§6, §9)."""

import gzip
from typing import Any

import cramjam
import pytest

from topics.protocol.batches.codecs import UnknownCodec
from topics.protocol.batches.header import (
    CONTROL,
    LOG_APPEND_TIME,
    TIME_MAX,
    TRANSACTIONAL,
    BatchError,
)
from topics.protocol.batches.sound import (
    BadTime,
    OldForm,
    RecordTooLarge,
    require_sound,
    untimely,
)

from .builder import NOW_MS, Record, batch, records_of

TWO: list[Record] = [(b"k", b"1", (), 0), (None, None, [(b"h", b"v")], 7)]
RECORD_BYTES = 1000


def sent(records: list[Record] = TWO, **fields: Any) -> bytes:
    return batch(records_of(records), len(records), **{"max_ms": NOW_MS + 7, **fields})


def test_a_sound_batch_says_how_large_its_records_are_and_their_times() -> None:
    """The least and the greatest; and which of them have no key."""
    found = (len(records_of(TWO)), NOW_MS, NOW_MS + 7, (1,))
    assert require_sound(sent(), RECORD_BYTES) == found
    packed = batch(gzip.compress(records_of(TWO)), 2, attributes=1, max_ms=NOW_MS + 7)
    assert require_sound(packed, RECORD_BYTES) == found
    assert require_sound(sent(max_ms=NOW_MS), RECORD_BYTES) == found, "whatever its head says"
    assert require_sound(sent(producer_id=7, producer_epoch=0, sequence=0), RECORD_BYTES)


@pytest.mark.parametrize("count", [6, 300])
def test_records_outside_of_bounds_of_time_are_found(count: int) -> None:
    """A record without a time is within any."""
    times = [-1, NOW_MS + 9, NOW_MS, NOW_MS + 5, -1, NOW_MS + 4] * (count // 6)
    records: list[Record] = [(None, b"1", (), ms + 1) for ms in times]
    data = sent(records, first_ms=-1, max_ms=NOW_MS + 9)

    found = require_sound(data, RECORD_BYTES)

    assert (found.min_ms, found.max_ms) == (NOW_MS, NOW_MS + 9)
    assert untimely(data, NOW_MS, NOW_MS + 9) == []
    want = [nth for nth in range(count) if nth % 6 in (1, 2)]
    assert untimely(data, NOW_MS + 1, NOW_MS + 8) == want[:100]
    bare = require_sound(sent([TWO[0]], first_ms=-1), RECORD_BYTES)
    assert (bare.min_ms, bare.max_ms) == (-1, -1)


@pytest.mark.parametrize(
    ("data", "kind", "why"),
    [
        (b"", BatchError, "0 bytes are no record batch"),
        (sent()[:30], BatchError, "30 bytes"),
        (sent(magic=1), OldForm, "form 1"),
        (sent(magic=3), BatchError, "form 3"),
        (sent(crc=7), BatchError, "CRC"),
        (sent() + sent(), BatchError, "more than one"),
        (sent(attributes=TRANSACTIONAL), BatchError, "transaction"),
        (sent(attributes=CONTROL), BatchError, "transaction"),
        (sent([]), BatchError, "0 records"),
        (sent(last_delta=2), BatchError, "last offset of 2"),
        (sent(producer_id=7, producer_epoch=-1, sequence=0), BatchError, "without an epoch"),
        (sent(producer_id=7, producer_epoch=0, sequence=-1), BatchError, "without a sequence"),
        (sent(attributes=LOG_APPEND_TIME), BadTime, "for the server"),
        (sent(attributes=7), UnknownCodec, "number 7"),
        (sent(attributes=1), BatchError, "not gzip"),
        (
            batch(bytes(cramjam.lz4.compress(records_of(TWO))), 2, attributes=3),
            *(BatchError, "refer to each other"),
        ),
        (batch(records_of(TWO)[:-1], 2), BatchError, "records end|left"),
        (sent([(None, b"x" * 2000, (), 7)]), RecordTooLarge, "2007 bytes|2008 bytes|20"),
        (sent(first_ms=TIME_MAX - 6), BadTime, "64 bits"),
    ],
)
def test_what_is_not_sound_is_not_taken(data: bytes, kind: type[BatchError], why: str) -> None:
    with pytest.raises(kind, match=why) as refused:
        require_sound(data, RECORD_BYTES)
    assert type(refused.value) is kind
