"""The head of a batch: what is taken as one, and what a log sets in it."""

import struct

import pytest
from crc32c import crc32c

from topics.protocol.batches.header import (
    HEADER_BYTES,
    BatchError,
    Header,
    batch_of,
    checked_header,
    crc_of,
    dated,
    header_of,
    placed,
    renew_crc,
    timed,
)

from .builder import NOW_MS, batch, record


def test_a_batch_says_what_is_in_it() -> None:
    data = batch(record(0), 1, attributes=0x0C, producer_id=7, producer_epoch=1, sequence=40)

    header = checked_header(data)

    assert (header.codec, header.has_append_time) == (4, True)
    assert (header.producer_id, header.producer_epoch, header.sequence) == (7, 1, 40)
    assert (header.records, header.last_delta, header.first_ms) == (1, 0, NOW_MS)
    assert header.size_bytes == len(data)


def test_a_batch_behind_others_is_read_at_its_place() -> None:
    data = batch(record(0), 1)

    assert header_of(data * 2, len(data)) == header_of(data)


@pytest.mark.parametrize(
    ("data", "is_corrupt", "why"),
    [
        (b"", True, "0 bytes are no record batch"),
        (batch(b"", 0)[:-1], True, "60 bytes are no record batch"),
        (batch(record(0), 1, magic=1), False, "of form 1"),
        (batch(record(0), 1, length=40), True, "of 52 bytes"),
        (batch(record(0), 1, length=4000), True, "of 4012 bytes"),
        (batch(record(0), 1, length=-5), True, "of 7 bytes"),
        (batch(record(0), 1) * 2, False, "more than one"),
        (batch(record(0), 1, crc=1), True, "CRC"),
    ],
)
def test_what_is_not_one_whole_batch_is_not_taken(data: bytes, is_corrupt: bool, why: str) -> None:
    with pytest.raises(BatchError, match=why) as refused:
        checked_header(data)

    assert refused.value.is_corrupt is is_corrupt


def test_a_log_sets_what_the_crc_does_not_cover() -> None:
    sent = batch(record(0), 1)

    data = placed(sent, 41, 7)

    assert data[16:] == sent[16:]
    header = checked_header(data)
    assert (header.base_offset, header.leader_epoch) == (41, 7)


def test_a_log_may_set_the_time_of_all_records() -> None:
    """`LogAppendTime`: the greatest time is that of each, and the CRC covers it."""
    data = timed(batch(record(0), 1, attributes=4), 41, 7, NOW_MS + 9)

    header = checked_header(data)
    assert (header.base_offset, header.leader_epoch) == (41, 7)
    assert (header.max_ms, header.has_append_time, header.codec) == (NOW_MS + 9, True, 4)


def test_the_greatest_time_is_put_right_where_a_producer_did_not() -> None:
    sent = batch(record(0, delta=5), 1, max_ms=NOW_MS)

    data = dated(sent, NOW_MS + 5)

    assert checked_header(data) == checked_header(sent)._replace(
        max_ms=NOW_MS + 5, crc=checked_header(data).crc
    )
    assert dated(data, NOW_MS + 5) == data


def test_a_changed_batch_gets_another_crc() -> None:
    data = bytearray(batch(record(0), 1))
    struct.pack_into(">q", data, 35, NOW_MS + 5)
    with pytest.raises(BatchError):
        checked_header(data)

    renew_crc(data)

    assert checked_header(data).max_ms == NOW_MS + 5
    assert crc_of(data) == crc32c(data[21:])


def test_a_batch_is_made_of_a_head_and_records() -> None:
    header = Header(9, 0, 3, 0, 0, 0, 1, NOW_MS, NOW_MS, -1, -1, -1, 2)

    made = batch_of(header, record(0) + record(1))

    found = checked_header(made)
    assert found._replace(length=0, magic=0, crc=0) == header
    assert bytes(made[HEADER_BYTES:]) == record(0) + record(1)
