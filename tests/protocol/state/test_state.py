"""How events change the state: every event has a handler, totals are sums, a topic leaves no trace."""

from typing import get_args

import msgspec
import pytest

from protocol.harness import Harness, tagged
from topics.protocol.model.events import Event, SeqsReserved
from topics.protocol.model.limits import Limits
from topics.protocol.state.hot_memory import freeze
from topics.protocol.state.state import State
from topics.store.memory import MemoryStore


def test_every_event_has_a_handler() -> None:
    """An event without one would end each start that replays it."""
    state = State(Limits(), MemoryStore())

    assert state._handlers.keys() == set(get_args(Event))


def test_engine_time_never_runs_backwards() -> None:
    """By the wall clock, and by the times of events. (§0.10)"""
    engine = Harness()
    engine.put()
    state, topic_id = engine.engine.state, engine.topic().topic_id
    now_ms = state.now_ms

    assert state.advance(now_ms - 5) == now_ms
    state.apply(SeqsReserved(now_ms - 5, topic_id, 10_000))
    assert state.now_ms == now_ms
    state.apply(SeqsReserved(now_ms + 5, topic_id, 20_000))
    assert state.now_ms == now_ms + 5


def test_totals_are_the_sums_of_all_topics() -> None:
    """After appends, caps, deletes, expiry and a topic that went. (§11)"""
    engine = Harness()
    engine.put("capped", cap_records=2)
    engine.put("short", ttl_ms=1000)
    for name in ("capped", "short", "plain", "gone"):
        engine.append("a", tagged("x", "bb"), "ccc", name=name)
    assert_sums(engine.engine.state, 11)

    engine.delete("plain", match="x")
    assert_sums(engine.engine.state, 10)
    engine.drop("gone")
    assert_sums(engine.engine.state, 7)
    engine.now_ms += 2000
    engine.seqs(name="short")
    assert_sums(engine.engine.state, 4)


def assert_sums(state: State, records: int) -> None:
    found = [(topic.count, topic.size_bytes) for topic in state.by_id.values()]

    assert state.records_total == sum(count for count, _ in found) == records
    assert state.total_bytes == sum(size_bytes for _, size_bytes in found)


@pytest.mark.parametrize(
    ("by", "left"),
    [("delete", [4]), ("cap", [4]), ("none", [1, 4]), ("all", [])],
)
def test_hot_runs_without_live_records_are_dropped_where_no_maintenance_does(
    by: str, left: list[int]
) -> None:
    """Whether a delete or a floor took the last of them; their memory is free, and reads stay as they are.
    (§4)"""
    engine = Harness()
    engine.append("a", "b", "c")
    state, topic = engine.engine.state, engine.topic()
    freeze(topic)
    engine.append("d", "e")
    assert [run.first_seq for run in topic.runs] == [1, 4]
    if by == "cap":
        engine.put(cap_records=2)
    elif by != "none":
        engine.delete(before_seq=6 if by == "all" else 4)
    before = engine.seqs()

    state.drop_dead(topic)

    runs = list(topic.runs)
    assert [run.first_seq for run in runs] == left
    assert engine.seqs() == before
    assert state.memory.total_bytes == sum(run.memory_bytes for run in runs)
    assert (topic.topic_id in state.memory.unsealed) is bool(left)
    engine.append("f")
    assert engine.seqs()[-1] == 6


def test_a_run_that_is_in_memory_alone_is_not_dropped_so() -> None:
    """What is counted of an `ephemeral` topic's runs is the business of its memory."""
    engine = Harness()
    engine.put(durability="ephemeral")
    engine.append("a", "b")
    topic = engine.topic()
    before = list(topic.runs)
    engine.engine.state.drop_dead(topic)
    assert list(topic.runs) == before


def test_a_topic_that_was_deleted_is_nowhere() -> None:
    """Not in a table, an alarm or a list of things to do; its routers went with it. (§1.4)"""
    engine = Harness()
    engine.put("t", type="queue", ttl_ms=1000, max_deliveries=1, dead_letter="dead")
    engine.append("a", "b", idempotency_key="k")
    engine.route("r", "t", "copies")
    engine.claim("t", node="w")
    engine.delete("t", before_seq=1)
    state, topic_id = engine.engine.state, engine.topic().topic_id

    engine.drop("t")

    assert topic_id not in state.by_id
    assert "t" not in state.topics
    assert "t" not in state.names
    assert topic_id not in state.queues
    assert topic_id not in state.expiry
    assert topic_id not in state.attention
    assert topic_id not in state.lossy
    assert list(state.queues.take_ending()) == []
    assert state.keys.by_topic.get(topic_id) is None
    assert len(state.routers) == 0
    assert state.take_due(state.now_ms + 10_000) is None


def test_a_name_that_is_made_again_is_another_topic() -> None:
    """With an id and an epoch of its own, and nothing of the first. (§1.4)"""
    engine = Harness()
    engine.append("a", "b")
    first = engine.topic()
    engine.drop()
    engine.append("c")
    second = engine.topic()

    assert second.topic_id > first.topic_id
    assert second.epoch != first.epoch
    assert (second.head_seq, second.count) == (1, 1)


@pytest.mark.parametrize(
    ("durability", "count", "is_lossy"), [("disk", 3, False), ("ephemeral", 0, True)]
)
def test_what_the_log_did_not_see_is_lost_at_a_replay(
    durability: str, count: int, is_lossy: bool
) -> None:
    """An event was made at a head: what lies below it and was in no log lived in memory only, and
    its topic is counted anew. (§0.10)"""
    engine = Harness()
    engine.put(durability=durability)
    engine.append("a", "b")
    engine.append("c")
    engine.put(durability=durability, priority=1)
    state = State(Limits(), MemoryStore())

    for event in engine.events:
        state.apply(event)

    topic = state.topics["t"]
    assert topic.head_seq == 3
    assert sum(run.count for run in topic.runs) == count
    assert topic.floors.crash_through == (3 if is_lossy else 0)
    assert (topic.topic_id in state.lossy) is is_lossy


def test_an_append_behind_what_no_log_has_tells_the_loss() -> None:
    """At a replay: records in between lived in memory only. (§0.10, §3.3)"""
    engine = Harness()
    engine.append("a")
    state, topic = engine.engine.state, engine.topic()
    event = engine.engine.unit.admission.appended(topic, engine.appending("b"), engine.now_ms)[0]

    state.apply(msgspec.structs.replace(event, first_seq=5))

    assert topic.head_seq == 5
    assert state.lossy == {topic.topic_id: 3}
