"""Times of seqs: the earliest first, however they came (132)."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from topics.protocol.state import seq_times
from topics.protocol.state.seq_times import SeqTimes


def added(table: SeqTimes, *entries: tuple[int, int]) -> SeqTimes:
    times = np.array([at for at, _ in entries], np.int64)
    table.add(times, np.array([seq for _, seq in entries], np.int64))
    return table


def taken(table: SeqTimes, now_ms: int, limit: int = 1 << 20) -> list[tuple[int, int]]:
    times, seqs = table.take(now_ms, limit)
    return list(zip(times.tolist(), seqs.tolist(), strict=True))


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 999)), max_size=8)), st.data()
)
def test_entries_are_due_in_the_order_of_their_times(
    parts: list[list[tuple[int, int]]], data: st.DataObject
) -> None:
    """Together or one by one, before and after some were taken."""
    sorted_from, seq_times.SORTED_FROM = seq_times.SORTED_FROM, 4  # type: ignore[misc]
    try:
        table, left = SeqTimes(), list[tuple[int, int]]()
        now_ms = 0
        for part in parts:
            added(table, *part)
            left += part
            now_ms += data.draw(st.integers(0, 20))
            due = sorted(entry for entry in left if entry[0] <= now_ms)
            assert sorted(taken(table, now_ms)) == due
            left = [entry for entry in left if entry[0] > now_ms]
            assert len(table) == len(left)
            assert table.next_ms == min((at for at, _ in left), default=None)
    finally:
        seq_times.SORTED_FROM = sorted_from  # type: ignore[misc]


def test_no_more_than_asked_for() -> None:
    """The rest is due still."""
    table = added(SeqTimes(), *[(5, seq) for seq in range(1, 1001)])
    added(table, (4, 2000))
    first = taken(table, 9, 600)
    assert len(first) == 600
    assert table.next_ms in (4, 5)
    rest = taken(table, 9, 600)
    assert sorted(seq for _, seq in first + rest) == [*range(1, 1001), 2000]
    assert table.next_ms is None
