"""Hot memory: its counters are the sums of what runs hold, whatever happens to them (§11)."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from protocol.decide.test_batches import put, values
from protocol.harness import Harness
from topics.protocol.faces.http.records import parse_delete
from topics.protocol.state.hot_memory import BySize, HotMemory, freeze
from topics.protocol.state.hot_run import HotRun

NAMES = st.sampled_from(["t", "u"])
CLASSES = st.sampled_from(["disk", "ephemeral"])


class Counters(RuleBasedStateMachine):
    """Random lives of two topics that change their class; the counters are counted anew each time."""

    @initialize(segment=st.sampled_from([2, 1000]))
    def begin(self, segment: int) -> None:
        self.engine = Harness(segment_max_records=segment, max_hot_bytes=300_000)

    @rule(name=NAMES, records=st.integers(1, 4), size=st.sampled_from([10, 5000]))
    def append(self, name: str, records: int, size: int) -> None:
        self.engine.append(*["x" * size] * records, name=name)

    @rule(name=NAMES, durability=CLASSES, discard=st.sampled_from(["old", "reject"]))
    def configure(self, name: str, durability: str, discard: str) -> None:
        self.engine.put(name, durability=durability, discard=discard)

    @rule(name=NAMES, below=st.integers(0, 60))
    def delete(self, name: str, below: int) -> None:
        if name in self.engine.engine.state.topics:
            self.engine.delete(name, before_seq=below)

    @rule(name=NAMES)
    def drop(self, name: str) -> None:
        self.engine.drop(name)

    @rule()
    def seal(self) -> None:
        self.engine.seal()

    @rule()
    def seal_all(self) -> None:
        self.engine.seal_all()

    @invariant()
    def every_counter_is_what_the_runs_hold(self) -> None:
        if not hasattr(self, "engine"):
            return
        state = self.engine.engine.state
        memory = state.memory
        hot = [
            (topic, run)
            for topic in state.topics.values()
            for run in topic.runs
            if isinstance(run, HotRun)
        ]
        volatile = [(topic, run) for topic, run in hot if run.volatile]
        logged = [(topic, run) for topic, run in hot if not run.volatile]
        assert memory.logged_bytes == sum(run.memory_bytes for _, run in logged)
        assert memory.volatile_bytes == sum(run.memory_bytes for _, run in volatile)
        assert memory.firm_bytes == sum(
            run.memory_bytes for topic, run in volatile if topic.config.discard == "reject"
        )
        assert set(memory.unsealed) == {topic.topic_id for topic, _ in logged}
        assert set(memory.volatile) == {topic.topic_id for topic, _ in volatile}
        assert set(memory.largest.first(10)) == set(memory.unsealed)
        assert set(memory.full) <= set(state.by_id)


Counters.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
TestCounters: Any = Counters.TestCase


def test_the_largest_topics_are_found_to_a_factor_of_two() -> None:
    """Without a look at all of them."""
    sizes = BySize()
    for topic_id, size in enumerate((5, 9000, 1, 100, 70, 7000)):
        sizes.move(topic_id, 0, size)
    assert set(sizes.first(2)) == {1, 5}
    sizes.move(1, 9000, 0)
    sizes.move(2, 1, 40_000)
    assert sizes.first(1) == [2]
    assert set(sizes.first(4)) == {2, 5, 3, 4}


@pytest.mark.parametrize(
    ("volatile_bytes", "share"), [(0, 500), (200, 400), (500, 250), (900, 250)]
)
def test_logged_records_have_half_of_what_volatile_ones_leave(
    volatile_bytes: int, share: int
) -> None:
    """Which is at least half of all. (§11)"""
    memory = HotMemory(Harness(max_hot_bytes=1000).limits)
    memory.volatile_bytes = volatile_bytes
    assert memory.logged_share() == share


def test_a_frozen_run_takes_no_more() -> None:
    """The next append begins a run of its own."""
    engine = Harness()
    engine.append(1)
    freeze(engine.topic())
    engine.append(2)
    assert [run.count for run in engine.topic().runs] == [1, 1]
    assert list(engine.engine.state.memory.full) == [engine.topic().topic_id]


def filled(**config: object) -> Harness:
    """A topic in memory only that has used up all of it, in several runs."""
    engine = Harness(max_hot_bytes=4 << 20)
    engine.put(durability="ephemeral", discard="reject", **config)
    for _ in range(400):
        if engine.engine.state.memory.is_short:
            break
        engine.append(*[{"data": "x" * 1000, "tag": f"t{i % 10}"} for i in range(40)])
    memory = engine.engine.state.memory
    assert memory.is_short
    assert engine.engine.state.topics["t"].volatile_runs > 3
    return engine


def freed(engine: Harness) -> int:
    """Slices of maintenance until nothing is left to free."""
    state, slices = engine.engine.state, 0
    while state.memory.owes():
        state.compact_some()
        slices += 1
        assert slices < 10_000
    return slices


def test_where_memory_is_short_small_waste_is_freed() -> None:
    """Of every run less than half was deleted: it is given back once a write found no room. (§11)"""
    engine = filled()
    memory = engine.engine.state.memory
    full_bytes = memory.total_bytes
    for tag in range(4):
        engine.ask(parse_delete("t", b'{"match":"t%d"}' % tag))
        engine.work_off()
    freed(engine)
    memory.want_room()
    freed(engine)

    assert memory.total_bytes < 0.85 * full_bytes
    read = engine.diff(limit=1000, max_batch_bytes=8 << 20, include_tags=True)
    assert {record["$tag"] for record in read["records"]} == {f"t{n}" for n in range(4, 10)}


def test_a_deleted_topic_is_freed_in_parts() -> None:
    """It counts no more at once; its memory goes back slice by slice. (§11)"""
    engine = filled()
    memory = engine.engine.state.memory
    engine.drop("t")
    assert memory.total_bytes == 0
    assert memory.buried
    assert freed(engine) >= 1
    assert not memory.buried


def test_large_runs_that_are_sealed_are_freed_in_parts() -> None:
    """A segment takes 64 MiB of them; small ones are freed at once. (§11)"""
    engine = Harness()
    memory = engine.engine.state.memory
    for n in range(3):
        engine.put(f"large{n}")
        engine.append("x" * 400_000, name=f"large{n}")
        engine.put(f"small{n}")
        engine.append("x" * 1000, name=f"small{n}")

    engine.seal_all()

    assert memory.total_bytes == 0
    assert [run.memory_bytes >= 400_000 for run in memory.buried] == [True] * 3
    assert freed(engine) >= 1
    assert not memory.buried


def test_what_is_buried_is_bounded() -> None:
    """A replay of topics that came and went holds no more than the memory there is."""
    engine = Harness(max_hot_bytes=1 << 20)
    memory = engine.engine.state.memory
    for n in range(8):
        engine.put(f"e{n}", durability="ephemeral")
        for _ in range(10):
            engine.append(*["x" * 1000] * 20, name=f"e{n}")
        engine.drop(f"e{n}")
        assert sum(run.memory_bytes for run in memory.buried) <= 1 << 20


def test_a_run_that_went_before_it_was_packed_is_passed_over() -> None:
    """Rows of it were deleted, which was too much for one turn; then all of it went. (§11)"""
    engine = Harness()
    engine.put(durability="ephemeral")
    engine.append("x" * 100, "y")
    topic, memory = engine.topic(), engine.engine.state.memory
    memory.wasteful[topic.topic_id] = {99: None}

    memory.compact_some_deleted(topic)

    assert topic.topic_id not in memory.wasteful
    assert engine.seqs() == [1, 2]


def test_a_topic_that_went_is_not_looked_at_for_its_waste() -> None:
    """A write found no room: all topics in memory are looked at, some at a time, and once. (§11)"""
    engine = Harness()
    for name in ("e", "f"):
        engine.put(name, durability="ephemeral")
        engine.append("x", name=name)
    memory, state = engine.engine.state.memory, engine.engine.state
    memory.want_room()
    looks = list(memory._to_look)
    memory.want_room()
    assert list(memory._to_look) == looks
    assert len(looks) == 2
    left = {topic_id: state.by_id[topic_id] for topic_id in looks[1:]}

    assert list(memory.free_some(left, 0)) == []

    assert not memory._to_look
    assert engine.seqs(name="e") == [1]


def test_open_runs_are_bounded_and_stand_in_no_write_s_way() -> None:
    """Of many topics that Kafka's clients wrote and others read, some stay open. (§11)"""
    engine = Harness(max_hot_bytes=1 << 20)
    memory = engine.engine.state.memory
    for n in range(12):
        engine.put(f"t{n}")
        put(engine, *values(*[b"%d" % n] * 500), name=f"t{n}")
        assert engine.diff(name=f"t{n}", limit=500)["records"]
    assert memory.open_runs.held_bytes > memory.opened_bytes_max
    assert memory.owes()
    assert freed(engine) >= 1
    assert 0 < memory.open_runs.held_bytes <= memory.opened_bytes_max <= 1 << 18
    assert memory.total_bytes + memory.opened_bytes_max <= 1 << 20

    held_bytes = memory.open_runs.held_bytes
    engine.seal_all()

    assert held_bytes > memory.open_runs.held_bytes == 0
