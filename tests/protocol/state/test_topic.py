"""One topic: what a read shows, what is lost and what was removed (§3, §5), against a naive model."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from protocol.harness import START_MS, Harness, by, stone, tagged
from protocol.naive_model import Model
from topics.protocol.model.errors import Corrupt
from topics.protocol.model.events import Hole
from topics.protocol.state import topic as topic_module
from topics.store.runs import SealedRun

TAGS = st.sampled_from([None, "a", "b", "ab"])


class Story(RuleBasedStateMachine):
    """Random lives of a topic; after each step every cursor reads what the model says."""

    @initialize(
        segment=st.sampled_from([1, 3, 1000]), durability=st.sampled_from(["disk", "ephemeral"])
    )
    def begin(self, segment: int, durability: str) -> None:
        self.durability = durability
        self.engine = Harness(segment_max_records=segment)
        self.model = Model(START_MS)
        self.engine.put(durability=durability)
        self.floor = self.earliest = 0

    @rule(tags=st.lists(TAGS, min_size=1, max_size=8), node=st.sampled_from([None, "me"]))
    def append(self, tags: list[str | None], node: str | None) -> None:
        self.engine.append(*[tagged(tag, 0) for tag in tags], node=node)
        self.model.append(tags, node)

    @rule(cap=st.integers(0, 6), ttl_ms=st.sampled_from([0, 0, 50, 200]))
    def configure(self, cap: int, ttl_ms: int) -> None:
        # A cap that keeps nothing back is tested by hand: the model has no newest record.
        self.engine.put(cap_records=cap, ttl_ms=ttl_ms, durability=self.durability)
        self.model.configure(cap, ttl_ms)

    @rule(ms=st.sampled_from([1, 50, 51, 150]))
    def wait(self, ms: int) -> None:
        self.engine.now_ms += ms
        self.model.now_ms += ms

    @rule(seq=st.integers(0, 30))
    def delete_below(self, seq: int) -> None:
        assert self.engine.delete(before_seq=seq)["deleted"] == self.model.delete(seq, None)

    @rule(tag=st.sampled_from(["a", "b", "ab"]), seq=st.none() | st.integers(0, 30))
    def delete_tagged(self, tag: str, seq: int | None) -> None:
        told = self.engine.delete(match=tag, before_seq=seq)["deleted"]
        assert told == self.model.delete(seq, tag)

    @rule(tag=st.sampled_from(["", "a"]))
    def delete_prefix(self, tag: str) -> None:
        told = self.engine.delete(match=tag + "*")["deleted"]
        assert told == self.model.delete(None, tag, prefix=True)

    @rule(keep=st.integers(0, 5))
    def purge(self, keep: int) -> None:
        assert self.engine.purge(keep=keep)["purged"] == self.model.purge(keep)

    @rule()
    def maintain(self) -> None:
        self.engine.seal()

    @rule()
    def seal(self) -> None:
        self.engine.seal_all()

    @invariant()
    def every_cursor_reads_what_the_model_says(self) -> None:
        if not hasattr(self, "engine"):
            return
        for cursor in range(self.model.head_seq + 1):
            for node in (None, "me"):
                page = self.engine.diff(cursor, limit=1000, node=node)
                expected = self.model.read(cursor, node=node)
                assert {
                    "tombstone": stone(page),
                    "seqs": [r["$seq"] for r in page["records"]],
                    "earliest_seq": page["earliest_seq"],
                } == expected
                assert (page["next_from_seq"], page["caught_up"]) == (self.model.head_seq, True)

    @invariant()
    def pages_meet(self) -> None:
        if not hasattr(self, "engine"):
            return
        for fields in (
            {"limit": 1},
            {"limit": 3, "max_batch_bytes": 100},
            {"limit": 2, "match": "a*"},
        ):
            cursor, found = 0, []
            while True:
                page = self.engine.diff(cursor, **fields)
                found += [r["$seq"] for r in page["records"]]
                assert page["next_from_seq"] > cursor or page["caught_up"]
                cursor = page["next_from_seq"]
                if page["caught_up"]:
                    break
            tag = "a" if "match" in fields else ""
            rows = self.model.live()
            wanted = [r.seq for r in rows if not tag or (r.tag or "").startswith(tag)]
            assert found == wanted

    @invariant()
    def counters_and_floors_are_right(self) -> None:
        if not hasattr(self, "engine"):
            return
        state, live = self.engine.state(), self.model.live()
        assert (state["count"], state["head_seq"]) == (len(live), self.model.head_seq)
        topic, totals = self.engine.topic(), self.engine.engine.state
        assert topic.live_between(1, topic.head_seq) == (state["count"], state["bytes"])
        assert (totals.records_total, totals.total_bytes) == (state["count"], state["bytes"])
        assert self.floor <= topic.evict_floor <= state["earliest_seq"]
        assert self.earliest <= state["earliest_seq"]
        self.floor, self.earliest = topic.evict_floor, state["earliest_seq"]
        topic.check()


Story.TestCase.settings = settings(max_examples=60, stateful_step_count=15, deadline=None)
TestStory = Story.TestCase


# By hand: the edges.


def test_a_cap_keeps_the_newest_even_when_it_is_too_big() -> None:
    """The record of a write is never evicted by that write, nor by a PUT. (§0.10)"""
    engine = Harness()
    engine.put(cap_bytes=1)
    engine.append("a", "b")
    assert engine.seqs() == [2]
    engine.put(cap_bytes=2)
    assert engine.seqs() == [2]
    engine.append("c")
    assert engine.seqs() == [3]


@pytest.mark.parametrize("spare", [-1, 0, 1])
def test_a_byte_cap_evicts_no_more_than_it_must(spare: int) -> None:
    """One byte decides. (§0.10)"""
    engine = Harness()
    engine.append("x", "x", "x")
    one = engine.state()["bytes"] // 3
    engine.put(cap_bytes=3 * one + spare)
    engine.append("x")

    kept = engine.state()
    assert kept["bytes"] <= 3 * one + spare
    assert kept["count"] == (2 if spare < 0 else 3)


@pytest.mark.parametrize(("ago", "is_there"), [(99, True), (100, True), (101, False)])
def test_expiry_is_strict(ago: int, is_there: bool) -> None:
    """`now - $ts > ttl_ms`. (tombstones)"""
    engine = Harness()
    engine.put(ttl_ms=100)
    engine.append("x")
    engine.now_ms += ago

    assert engine.seqs() == ([1] if is_there else [])


def test_a_window_of_ttl_moves_through_a_run() -> None:
    """Half of a sealed run may expire. (§0.10)"""
    engine = Harness()
    engine.put(ttl_ms=100)
    for _ in range(10):
        engine.append("x")
        engine.now_ms += 20
    engine.seal_all()

    assert engine.seqs() == [6, 7, 8, 9, 10]
    assert stone(engine.diff()) == (1, 5, "ttl")


def with_hole(first: int, last: int) -> Harness:
    """Records below [first, last], and three behind."""
    engine = Harness()
    engine.append(*range(first - 1))
    topic = engine.topic()
    topic.holes.append(Hole(first, last, "crash"))
    topic.head_seq = topic.published_seq = last
    topic.reserved_through = topic.reserved_durably = last + 1000
    engine.append("x", "y", "z")
    return engine


def test_a_hole_is_told_once_where_it_stands() -> None:
    """The page before it ends there; a cursor inside it is told the rest of it. (§3.3)"""
    engine = with_hole(4, 9)
    pages = {cursor: engine.diff(cursor) for cursor in range(13)}

    told = {c: (stone(p), [r["$seq"] for r in p["records"]]) for c, p in pages.items()}
    behind = [10, 11, 12]
    expected: dict[int, Any] = {
        0: (None, [1, 2, 3]), 1: (None, [2, 3]), 2: (None, [3]), 9: (None, behind),
        10: (None, [11, 12]), 11: (None, [12]), 12: (None, []),
    } | {c: ((c + 1, 9, "crash"), behind) for c in range(3, 9)}  # fmt: skip
    assert told == expected
    assert [(pages[c]["next_from_seq"], pages[c]["caught_up"]) for c in (0, 3)] == [
        (3, False), (12, True),
    ]  # fmt: skip


def test_a_floor_swallows_the_holes_below_it() -> None:
    """One contiguous gap, one tombstone. (§3.3)"""
    engine = with_hole(4, 9)
    engine.put(cap_records=2)

    page = engine.diff()
    found = page["tombstone"]
    assert (found["gap_from"], found["gap_to"]) == (1, 10)
    assert [r["$seq"] for r in page["records"]] == [11, 12]
    assert engine.topic().holes == []


def test_a_hole_behind_a_floor() -> None:
    """The floor first, the hole with the next read. (§3.3)"""
    engine = with_hole(6, 9)
    topic = engine.topic()
    engine.put(cap_records=5)
    assert stone(engine.diff()) == (1, 3, "cap")
    assert engine.seqs() == [4, 5]
    assert stone(engine.diff(5)) == (6, 9, "crash")
    assert topic.evict_floor == 4


def test_no_cursor_stands_still() -> None:
    """Every read that is not caught up moves. (§3.2)"""
    engine = with_hole(4, 9)
    engine.append(*[by("me")] * 5)
    for limit in (1, 2, 100):
        cursor, seen = 0, 0
        while not (page := engine.diff(cursor, limit=limit, node="me"))["caught_up"]:
            assert page["next_from_seq"] > cursor
            cursor = page["next_from_seq"]
            seen += 1
            assert seen < 50


# ---------------------------------------------------------------------- runs that cannot be read


def two_runs() -> Harness:
    """Seqs 1 to 60 in one sealed run, 61 and 62 in another, which is too small to be merged."""
    engine = Harness()
    engine.put(ttl_ms=1000)
    engine.append(*range(60))
    engine.seal_all()
    engine.now_ms += 100
    engine.append(60, 61)
    engine.seal_all()
    assert [run.count for run in engine.topic().runs] == [60, 2]
    return engine


@contextmanager
def damaged(*first_seqs: int) -> Iterator[None]:
    """The columns of the runs that begin there cannot be read."""
    columns = SealedRun.columns.fget  # type: ignore[attr-defined]

    def found(run: SealedRun) -> Any:
        if run.first_seq in first_seqs:
            raise Corrupt("a.seg", 0, "does not verify")
        return columns(run)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SealedRun, "columns", property(found))
        yield


def test_a_damaged_run_is_counted_by_its_flags() -> None:
    """Its records are counted one by one, the bytes of their text by what of the run lives. (§0.5)"""
    engine = two_runs()
    engine.delete(before_seq=31)
    topic = engine.topic()
    assert topic.recount() == (topic.count, topic.size_bytes)

    with damaged(1):
        count, size_bytes = topic.recount()

    assert count == 32
    assert size_bytes == topic.runs[0].text_bytes // 2 + topic.live_between(61, 62)[1]


@pytest.mark.parametrize(
    ("broken", "at_ms"), [((1,), 1101), ((1, 61), 1101)], ids=["the older run", "both"]
)
def test_records_that_cannot_be_read_expire_no_sooner_than_those_behind_them(
    broken: tuple[int, ...], at_ms: int
) -> None:
    """Their time is that of the next one that can be read; where none can, that of the last write.
    (§2.4)"""
    engine = two_runs()
    assert engine.topic().expires_ms() == START_MS + 1001

    with damaged(*broken):
        assert engine.topic().expires_ms() == START_MS + at_ms
        engine.now_ms = START_MS + at_ms
        assert engine.state()["count"] == 0


def test_the_first_live_records_are_found_behind_deleted_ones() -> None:
    """A whole window of rows may hold none: jobs that were acked lie between those that were not. (§10.2)"""
    engine = Harness()
    engine.append(*range(400))
    topic = engine.topic()
    engine.engine.unit.remove(topic, range(3, 390), engine.moment)
    engine.sync()

    assert topic.first_live(1, 5) == [1, 2, 390, 391, 392]


def test_a_damaged_run_without_a_record_takes_no_share() -> None:
    """What the topic counts is shared among the rows that are there. (§0.5)"""
    engine = two_runs()
    engine.delete(before_seq=61)
    topic = engine.topic()
    assert topic.runs[0].dead == 60

    with damaged(1, 61):
        rows = np.arange(topic.runs[1].count)
        assert topic.weight(topic.runs[1], rows) == topic.size_bytes


def test_a_loss_that_is_told_anew_takes_the_holes_behind_its_beginning() -> None:
    """A hole that begins before it ends there; holes before it stay."""
    engine = Harness()
    engine.put()
    topic = engine.topic()
    topic.holes = [Hole(2, 3, "crash"), Hole(5, 9, "crash"), Hole(11, 12, "source_trim")]

    topic.forget_holes(7)
    assert topic.holes == [Hole(2, 3, "crash"), Hole(5, 6, "crash")]
    topic.forget_holes(5)
    assert topic.holes == [Hole(2, 3, "crash")]


def test_the_first_live_record_is_looked_for_after_a_removal() -> None:
    """A page says where the topic begins; it does not look for that each time. (§3)"""
    engine = Harness()
    engine.append("a", "b", "c")
    topic = engine.topic()
    looks = 0
    windows = topic.runs.windows

    def counted(seq: int) -> Iterator[Any]:
        nonlocal looks
        looks += 1
        return windows(seq)

    topic.runs.windows = counted  # type: ignore[method-assign]
    for _ in range(3):
        assert topic.earliest_seq == 1
        engine.append("d")
    assert looks == 1

    engine.delete(before_seq=3)
    assert topic.earliest_seq == 3
    assert topic.earliest_seq == 3
    engine.delete(before_seq=7)
    assert topic.earliest_seq == 7
    engine.append("e")
    assert topic.earliest_seq == 7
    assert looks == 2  # of an empty topic there is nothing to look at


def test_how_many_records_a_reader_has_before_it() -> None:
    """Live ones that are shown; a reader that is at the head, or beyond it, has none. (§13.2)"""
    engine = Harness(segment_max_records=4)
    engine.append(*range(10))
    engine.seal_all()
    engine.append(*range(2))
    topic = engine.topic()
    assert [topic.live_behind(seq) for seq in (0, 3, 9, 12, 99)] == [12, 9, 3, 0, 0]
    engine.engine.unit.remove(topic, [2, 5, 6, 12], engine.moment)
    engine.sync()
    assert [topic.live_behind(seq) for seq in (0, 1, 2, 4, 5, 10, 11)] == [8, 7, 7, 5, 5, 1, 0]
    engine.put(cap_records=3)
    assert [topic.live_behind(seq) for seq in (0, 8, 9, 10)] == [3, 3, 2, 1]


def test_records_that_are_not_shown_are_before_no_reader() -> None:
    engine = Harness()
    engine.append("a", "b")
    engine.auto = False
    engine.append("c")
    assert [engine.topic().live_behind(seq) for seq in (0, 1, 2)] == [2, 1, 0]


def test_a_reader_far_behind_is_told_how_many_seqs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which bounds what one look costs: no more runs, and no more than the topic has. (§13.2)"""
    monkeypatch.setattr(topic_module, "LAG_RUNS_MAX", 2)
    engine = Harness(segment_max_records=2)
    for n in range(4):
        engine.append(n, n)
        engine.seal_all()
    topic = engine.topic()
    engine.engine.unit.remove(topic, [3, 4, 7], engine.moment)
    engine.sync()
    assert [topic.live_behind(seq) for seq in (1, 3, 4)] == [5, 5, 3]


def test_the_last_seqs_before_some_times() -> None:
    """Each as a walk finds it, over runs and their ends, in any order; before all records is the first place. (131)"""
    engine = Harness()
    start = engine.now_ms
    for step in range(30):
        engine.now_ms = start + 10 * step
        engine.append({"data": step}, {"data": step})
        if step in (9, 19):
            engine.seal()
    topic = engine.topic("t")
    times = [*range(start - 15, start + 320, 5), start]
    expected = [sum(start + 10 * step < each for step in range(30)) * 2 for each in times]

    assert topic.last_before(np.array(times)).tolist() == expected

    engine.delete("t", before_seq=61)
    engine.put("none")
    assert engine.topic("none").last_before(np.array([start, start + 900])).tolist() == [0, 0]
