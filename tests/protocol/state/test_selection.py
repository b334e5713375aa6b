"""Selection: what one read returns, and where a reader by time begins (§3)."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.durable import Durable
from protocol.harness import START_MS, Harness, by, stone, tagged
from topics.protocol.model.tags import equals
from topics.protocol.state import selection
from topics.protocol.state.selection import ReadQuery, select


def test_seeking_is_exact_over_runs() -> None:
    """The first record with `$ts >= from_ts`, in sealed and hot runs. (§3)"""
    engine = Harness(segment_max_records=3)
    stamps = []
    for i in range(10):
        engine.append(i)
        stamps.append(engine.now_ms)
        engine.now_ms += 10 if i % 2 else 0
        if i == 6:
            engine.seal_all()
    for ts in range(START_MS - 1, engine.now_ms + 2):
        expected = [i + 1 for i, stamp in enumerate(stamps) if stamp >= ts]
        assert engine.seqs(None, from_ts=ts) == expected


def test_who_waits_for_a_time_is_not_woken_before_it() -> None:
    """What comes meanwhile is older than what was asked for, and is passed; so it is at the end of
    the wait, and where a part of it is lost. (§3)"""
    engine = Harness()
    engine.put(cap_records=3)
    later = START_MS + 1000
    waits = [engine.wait(None, from_ts=later) for _ in range(2)]
    assert waits == [None, None]
    engine.append(*range(5))
    engine.now_ms += 999
    engine.append("still too early")
    assert engine.woken() == []
    engine.engine.timeout("t", engine.last_token - 2)
    (ended,) = engine.woken()
    assert (ended["records"], ended["next_from_seq"], ended["tombstone"]) == ([], 6, None)

    engine.now_ms = later
    engine.append("in time")
    (page,) = engine.woken()
    assert [r["$seq"] for r in page["records"]] == [7]


def test_a_time_before_everything_tells_the_loss_since() -> None:
    """It is the very beginning. (§3.3)"""
    engine = Harness()
    engine.put(cap_records=2)
    engine.append(1, 2, 3)
    assert stone(engine.diff(None, from_ts=0)) == (1, 1, "cap")


@pytest.mark.parametrize("how", ["clean stop", "kill", "sealed", "nothing"])
def test_a_time_means_the_same_after_a_restart(how: str) -> None:
    """Nobody knows the times of what was lost, whether or not its rows are still in memory: a time
    up to that of the first record left tells the loss, a later one does not. (§3.3)"""
    engine = Durable()
    engine.put(cap_records=3)
    for i in range(5):
        engine.append(i)
        engine.now_ms += 10

    match how:
        case "clean stop":
            engine = engine.stop()
        case "kill":
            engine = engine.kill()
        case "sealed":
            engine.seal_all()

    def read(after_ms: int) -> tuple[object, ...]:
        page = engine.diff(None, from_ts=START_MS + after_ms)
        return stone(page), [record["$seq"] for record in page["records"]]

    lost = (1, 2, "cap")
    assert [read(at) for at in (0, 10, 15, 20)] == [(lost, [3, 4, 5])] * 4
    assert [read(at) for at in (21, 30)] == [(None, [4, 5])] * 2
    assert read(41) == (None, [])


def test_a_time_means_the_same_once_dead_runs_were_let_go() -> None:
    """Records deleted by a client raise no tombstone, and their times say nothing about the others:
    also while they are still in a file. (§3.3, §5)"""
    engine = Harness(segment_max_records=2)
    engine.put(cap_records=4)
    for i in range(6):
        engine.append(i)
        engine.now_ms += 10
    engine.delete(before_seq=5)
    engine.put()

    found = [engine.diff(None, from_ts=START_MS + at) for at in (35, 40, 50)]
    engine.seal()
    assert [run.first_seq for run in engine.topic().runs] == [5]
    again = [engine.diff(None, from_ts=START_MS + at) for at in (35, 40, 50)]

    assert again == found
    assert [stone(page) for page in found] == [(1, 4, "cap"), (1, 4, "cap"), None]


def test_a_time_behind_all_records_passes_a_loss_that_is_older() -> None:
    """Of a crash it is known that it came before what was appended since, until that is gone too;
    what time took has had a time. (§3.3)"""
    engine = Durable()
    engine.put(durability="ephemeral")
    engine.append(1, 2)
    engine = engine.kill()
    engine.put(durability="ephemeral", ttl_ms=100)
    engine.append("later")
    later = engine.now_ms + 1000

    assert stone(engine.diff(None, from_ts=later)) is None
    engine.now_ms += 200
    assert engine.state()["count"] == 0
    assert stone(engine.diff(None, from_ts=later)) is None
    assert stone(engine.diff(None, from_ts=START_MS)) is not None


def test_the_first_record_always_fits() -> None:
    """A budget of one byte makes progress, in a whole run and in a picked one. (§11)"""
    engine = Harness()
    engine.append("x" * 100, "y" * 100, by("me"), "z" * 100)
    topic = engine.topic()
    for skip in ((), ("me",)):
        page = select(topic, ReadQuery(0, 10, 1, skip))
        assert (page.count, page.next_seq) == (1, 1)


def test_a_last_row_that_does_not_fit_is_left_for_the_next_page() -> None:
    """Alone in its run or not, the budget holds behind the first record. (§11)"""
    engine = Harness()
    engine.append(tagged("a", "x" * 10))
    engine.seal_all()
    engine.append(tagged("a", "y" * 100))

    def asked(from_seq: int, budget: int) -> Any:
        return select(engine.topic(), ReadQuery(from_seq, 10, budget, match=equals("a")))

    assert (asked(0, 120).count, asked(0, 120).next_seq) == (1, 1)
    assert (asked(1, 120).count, asked(1, 120).next_seq) == (1, 2)
    assert (asked(0, 500).count, asked(0, 500).next_seq) == (2, 2)


def test_scanned_counts_rows_looked_at() -> None:
    """Kept or not. (§0.9)"""
    engine = Harness()
    engine.append(*[by("me")] * 6, by("you"))
    page = select(engine.topic(), ReadQuery(0, 10, 1 << 20, ("me",)))
    assert (page.count, page.scanned, page.next_seq) == (1, 7, 7)


@pytest.mark.parametrize("is_sealed", [False, True])
def test_the_first_and_the_last_record_are_found_behind_deleted_ones(is_sealed: bool) -> None:
    """Whole windows and whole runs may hold no live record. (§3.1)"""
    engine = Harness(segment_max_records=100)
    engine.append(0)
    engine.now_ms += 10
    engine.append(*range(1, 300))
    if is_sealed:
        engine.seal_all()
    topic = engine.topic()
    seqs = [*range(2, 290), *range(291, 301)]
    engine.engine.unit.remove(topic, seqs, engine.moment)
    engine.sync()

    assert selection._first_since(topic, START_MS) == 1
    assert selection._first_since(topic, START_MS + 1) == 290
    assert selection._last_live(topic, 290) == 1
    engine.delete(before_seq=2)
    assert selection._first_since(topic, START_MS) == 290
    assert selection._last_live(topic, 301) == 290
    assert selection._last_live(topic, 290) == 0


ROWS = st.lists(
    st.tuples(st.integers(0, 40), st.sampled_from([None, "a", "b"]), st.sampled_from([None, "n"])),
    min_size=1,
    max_size=8,
)


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(ROWS, st.sets(st.integers(1, 8)), st.integers(1, 80), st.integers(1, 3), st.booleans())
def test_a_reader_at_the_head_gets_what_one_behind_gets(
    rows: list[tuple[int, str | None, str | None]],
    deleted: set[int],
    budget: int,
    limit: int,
    sealed: bool,
) -> None:
    """One row after the other, or all at once: the same records, and the first is never too large."""
    engine = Harness()
    for size, tag, node in rows:
        engine.append(tagged(tag, "x" * size) | by(node, "x" * size))
    if sealed:
        engine.seal_all()
    run = engine.topic().runs[0]
    run.delete(np.array(sorted(seq - 1 for seq in deleted if seq <= len(rows)), np.int64))
    kept = [
        seq
        for seq, (_, tag, node) in enumerate(rows, 1)
        if seq not in deleted and tag == "a" and node is None
    ]

    def asked(from_seq: int, through: int, budget: int = 1 << 20) -> Any:
        query = ReadQuery(
            from_seq, limit, budget, skip_nodes=("n",), match=equals("a"), through=through
        )
        return select(engine.topic(), query)

    found = [seq for seq in range(1, len(rows) + 1) if (page := asked(seq - 1, seq, budget)).count]
    assert found == kept
    for seq in range(1, len(rows) + 1):
        page = asked(seq - 1, seq, budget)
        assert (page.count, page.next_seq, page.tombstone) == (int(seq in kept), seq, None)
        spans = [span for _, spans in page.extents for span in spans]
        assert spans == ([(seq - 1, seq)] if seq in kept else [])
    whole, at = [], 0
    while at < len(rows):
        page = asked(at, len(rows), budget)
        whole += [row + 1 for _, spans in page.extents for lo, hi in spans for row in range(lo, hi)]
        assert page.next_seq > at
        at = page.next_seq
    assert whole == kept
