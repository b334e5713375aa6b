"""What events say of themselves; how they are written is in `test_codec` (§3.3, §5)."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.protocol.model.events import Floors, Marks, RecordsDeleted, RunRef, array_header

SEQS = st.integers(0, 1000)


@given(SEQS, SEQS, SEQS)
def test_the_floor_is_behind_all_that_was_lost(cap: int, ttl: int, crash: int) -> None:
    """Whatever the cause: the first seq that may still be there. (§3.3)"""
    floors = Floors(cap_through=cap, ttl_through=ttl, crash_through=crash)

    assert floors.evict_floor == max(cap, ttl, crash) + 1


@given(st.lists(st.booleans(), min_size=1, max_size=70), st.data())
def test_marks_are_told_in_any_part(bits: list[bool], draw: st.DataObject) -> None:
    """From the `lo`-th seq to the one before the `hi`-th, wherever bytes begin. (§5)"""
    lo = draw.draw(st.integers(0, len(bits) - 1))
    hi = draw.draw(st.integers(lo + 1, len(bits)))
    marks = Marks(5, len(bits), np.packbits(bits).tobytes())

    assert marks.flags(lo, hi).tolist() == bits[lo:hi]


@given(st.lists(st.tuples(SEQS, SEQS), max_size=5))
def test_spans_are_read_as_they_were_written(spans: list[tuple[int, int]]) -> None:
    """Little-endian on every machine, as FORMAT.md has them. (§5)"""
    text = np.array(spans, "<u8").reshape(-1, 2).tobytes()

    assert RecordsDeleted(0, 1, text, 0, 0).span_array.tolist() == [list(span) for span in spans]


def test_a_run_ends_with_its_last_row() -> None:
    """Its last seq is in it."""
    fields = dict.fromkeys(RunRef.__struct_fields__, 0) | {"first_seq": 11, "count": 10}

    assert RunRef(**fields).last_seq == 20


@pytest.mark.parametrize("items", [0, 15, 16, 65_535, 65_536, 70_000])
def test_the_head_of_an_array_is_as_msgpack_has_it(items: int) -> None:
    """A checkpoint of many topics is written one by one behind such a head. (FORMAT.md)"""
    assert msgspec.msgpack.decode(array_header(items) + b"\1" * items) == [1] * items
