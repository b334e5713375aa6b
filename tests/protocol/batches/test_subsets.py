"""A batch without some of its records is one that a reader passes."""

import random
from itertools import pairwise

import numpy as np
import pytest

from topics.protocol.batches.codecs import packed, unpacked
from topics.protocol.batches.header import HEADER_BYTES, checked_header
from topics.protocol.batches.records import fields
from topics.protocol.batches.subsets import LAST_DELTA_MAX, empty, without

from .builder import NOW_MS, batch, records_of, some_records


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("count", [1, 7, 100])
def test_what_is_left_keeps_its_offsets_and_its_bytes(codec: int, count: int) -> None:
    dice = random.Random(count)
    records = records_of(some_records(dice, count))
    data = batch(
        packed(codec, records), count, attributes=codec, base_offset=40, producer_id=9,
        producer_epoch=1, sequence=3, max_ms=NOW_MS + 1,
    )  # fmt: skip
    kept = np.array([dice.random() < 0.5 for _ in range(count)])

    made = without(data, kept, bound_bytes=1 << 20)

    before, after = checked_header(data), checked_header(made)
    assert after._replace(length=0, crc=0, records=0) == before._replace(length=0, crc=0, records=0)
    left = bytes(unpacked(codec, made[HEADER_BYTES:], 1 << 20))
    found = list(fields(left, after.records, count))
    assert [each.offset for each in found] == np.flatnonzero(kept).tolist()
    ends = [0, *(each.end for each in fields(records, count, count))]
    whole = [records[lo:hi] for lo, hi in pairwise(ends)]
    assert left == b"".join(one for one, is_kept in zip(whole, kept, strict=True) if is_kept)
    again = without(made, kept, bound_bytes=1 << 20)
    assert again == made


def test_a_batch_without_records_ends_where_it_says() -> None:
    header = checked_header(empty(5, 90, leader_epoch=2))

    assert (header.base_offset, header.last_delta, header.records) == (5, 85, 0)
    assert header.leader_epoch == 2
    assert len(empty(5, 90, leader_epoch=2)) == HEADER_BYTES


def test_a_batch_reaches_over_so_many_offsets_at_most() -> None:
    header = checked_header(empty(5, 1 << 40, leader_epoch=0))

    assert header.last_delta == LAST_DELTA_MAX
