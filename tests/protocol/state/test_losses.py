"""What a topic lost in the last day: counted by the hour and by reason, kept over a restart (§3.3)."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protocol.durable import Durable
from protocol.harness import START_MS, Harness
from topics.protocol.model.events import Floors, LossImage, TailLost, TopicImage, encode_image
from topics.protocol.state.losses import HOURS, Losses, reason_of
from topics.protocol.state.state import State

HOUR_MS = 3_600_000
REASONS = ("cap", "ttl", "mixed", "crash", "source_trim")
LOSSES = st.lists(
    st.tuples(st.integers(0, 40 * HOUR_MS), st.sampled_from(REASONS), st.integers(1, 2**40)),
    max_size=40,
)
"""(how long after the one before, why, how many)."""


def lost(engine: Harness, name: str = "t") -> dict[str, int]:
    return {each["reason"]: each["records"] for each in engine.state(name)["lost_24h"]}


def replayed(events: Sequence[Any], engine: Harness) -> State:
    state = State(engine.limits, engine.store)
    for event in events:
        state.apply(event)
    return state


def counted(state: State, now_ms: int, name: str = "t") -> dict[str, int]:
    losses = state.topics[name].losses
    return {} if losses is None else {e.reason: e.records for e in losses.of_the_last_day(now_ms)}


# ---------------------------------------------------------------------- hours


@given(LOSSES, st.integers(0, 30 * HOUR_MS))
@example([(0, "cap", 3), (0, "ttl", 2)], 26 * HOUR_MS)
def test_the_hour_of_now_and_the_23_before_count(
    found: list[tuple[int, str, int]], later: int
) -> None:
    """Whatever happened when; a loss is forgotten with its hour, and the last time is the last."""
    losses, now_ms, known = Losses(), START_MS, list[tuple[int, str, int]]()
    for passed, reason, records in found:
        now_ms += passed
        losses.add(reason, records, now_ms)
        known.append((now_ms, reason, records))
    now_ms += later

    sums: dict[str, int] = {}
    for at_ms, reason, records in known:
        if at_ms // HOUR_MS > now_ms // HOUR_MS - HOURS:
            sums[reason] = sums.get(reason, 0) + records
    assert {e.reason: e.records for e in losses.of_the_last_day(now_ms)} == sums
    for each in losses.of_the_last_day(now_ms):
        assert each.last_ts_ms == max(at for at, reason, _ in known if reason == each.reason)


@given(LOSSES)
def test_an_image_is_all_there_is_to_know(found: list[tuple[int, str, int]]) -> None:
    """What is restored of an image counts on as the original does."""
    losses, now_ms = Losses(), START_MS
    for passed, reason, records in found:
        now_ms += passed
        losses.add(reason, records, now_ms)

    image = msgspec.msgpack.decode(encode_image(losses.images()), type=dict[str, LossImage])
    again = Losses(image)
    for each in (losses, again):
        each.add("cap", 7, now_ms + 5 * HOUR_MS)

    assert again.images() == losses.images()


def test_a_clock_that_goes_back_counts_in_the_newest_hour() -> None:
    """Nothing that was counted is forgotten for it."""
    losses = Losses()
    losses.add("cap", 1, START_MS)
    losses.add("cap", 2, START_MS - 3 * HOUR_MS)

    assert [(e.records, e.last_ts_ms) for e in losses.of_the_last_day(START_MS)] == [(3, START_MS)]


def test_counts_have_an_end() -> None:
    """A sum fits in 64 bits with a sign, however long an hour's losses are."""
    losses = Losses()
    for _ in range(3):
        losses.add("crash", 2**63 - 1, START_MS)
        losses.add("crash", 2**63 - 1, START_MS + HOUR_MS)

    assert [each.records for each in losses.of_the_last_day(START_MS + HOUR_MS)] == [2**63 - 1]


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        (Floors(1, 1, 1), None),
        (Floors(2, 1, 1), "cap"),
        (Floors(1, 2, 1), "ttl"),
        (Floors(2, 2, 1), "mixed"),
        (Floors(1, 1, 2), None),
    ],
)
def test_the_reason_is_the_floor_that_rose(after: Floors, reason: str | None) -> None:
    """As a tombstone names it (§3.3); a crash is counted by the event that tells of it."""
    assert reason_of(Floors(1, 1, 1), after) == reason


# ---------------------------------------------------------------------- what counts


def test_a_topic_without_loss_has_nothing() -> None:
    """No object, whatever was appended and deleted: deletes are no loss. (§3.3)"""
    engine = Harness()
    engine.put(cap_records=10)
    engine.append("a", "b", "c")
    engine.delete(before_seq=3)

    assert lost(engine) == {}
    assert engine.topic().losses is None


def test_evictions_are_counted_in_records() -> None:
    """By an append, by a tighter cap; a deleted record is not lost again. (§0.10)"""
    engine = Harness()
    engine.put(cap_records=3)
    engine.append("a", "b", "c")
    engine.delete(before_seq=2)
    engine.append("d", "e")
    assert lost(engine) == {"cap": 1}

    engine.put(cap_records=1)
    assert lost(engine) == {"cap": 3}


def test_expired_records_are_counted() -> None:
    """When time takes them, which an event before them may have said. (§0.10)"""
    engine = Harness()
    engine.put(ttl_ms=1000)
    engine.append("a", "b")
    engine.now_ms += 1001
    assert lost(engine) == {"ttl": 2}

    engine.append("c")
    assert lost(engine) == {"ttl": 2}
    engine.now_ms += 24 * HOUR_MS
    assert lost(engine) == {"ttl": 1}


def test_memory_eviction_is_a_cap() -> None:
    """Records in memory only that go for others'. (§11)"""
    engine = Harness(max_hot_bytes=1 << 16)
    engine.put(durability="ephemeral")
    for _ in range(40):
        engine.append("x" * 4000)

    state = engine.state()
    assert state["count"] < 40
    assert lost(engine) == {"cap": 40 - state["count"]}


def test_what_a_router_could_not_copy_is_counted_where_it_is_missing() -> None:
    """As many sequence numbers as the source lost. (§6)"""
    engine = Harness(auto=False)
    engine.put("s", cap_records=1)
    engine.put("d")
    engine.sync()
    engine.route("r", "s", "d")
    engine.sync()
    engine.append(1, 2, 3, 4, name="s")
    engine.sync()
    engine.work_off()

    assert lost(engine, "s") == {"cap": 3}
    assert lost(engine, "d") == {"source_trim": 3}


# ---------------------------------------------------------------------- restarts


def test_a_replay_counts_what_was_counted() -> None:
    """The events hold it: evictions, and expiry where a later event tells of it. (§0.10)"""
    engine = Harness()
    engine.put(cap_records=3)
    engine.append("a", "b", "c", "d")
    engine.put(cap_records=2, ttl_ms=1000)
    engine.now_ms += 1001
    engine.append("e")
    assert lost(engine) == {"cap": 2, "ttl": 2}

    assert counted(replayed(engine.events, engine), engine.now_ms) == {"cap": 2, "ttl": 2}


def test_one_event_with_both_floors_is_mixed() -> None:
    """Which of them took how many is in no counter: an eviction after an expiry that nothing
    logged."""
    engine = Harness()
    engine.put(cap_records=3, ttl_ms=1000)
    engine.append("a")
    engine.now_ms += 600
    engine.append("b", "c")
    engine.now_ms += 600
    engine.append("d", "e")
    assert lost(engine) == {"cap": 1, "ttl": 1}

    assert counted(replayed(engine.events, engine), engine.now_ms) == {"mixed": 2}


@pytest.mark.parametrize("end", [Durable.stop, Durable.kill])
def test_the_counts_outlive_the_process(end: Callable[[Durable], Durable]) -> None:
    """By a checkpoint, and by the log behind it. (§0.10)"""
    engine = Durable()
    engine.put(cap_records=1)
    engine.append("a", "b", "c")
    engine.put("calm")
    engine.append("a", name="calm")
    before = engine.stop()
    before.append("d")

    after = end(before)

    assert lost(after) == {"cap": 3}
    assert after.topic("calm").losses is None


def test_an_image_of_an_earlier_program_has_none() -> None:
    """Its images end with the queue, later ones with losses, then producers; a checkpoint of it is read as before."""
    engine = Harness(store=None)
    engine.put()
    (image,) = engine.engine.state.image().topics
    fields = msgspec.msgpack.decode(encode_image(image))
    for empty in ([], [], {}):
        assert msgspec.msgpack.decode(encode_image(fields), type=TopicImage) == image
        assert fields.pop() == empty

    assert msgspec.msgpack.decode(encode_image(fields), type=TopicImage) == image


def test_a_restart_counts_what_it_lost() -> None:
    """Of a topic in memory only: all numbers that it held, which are at most as many records, at the
    time at which a start finds out; a second start does not count them again. (§0.10)"""
    engine = Durable()
    engine.put(durability="ephemeral")
    engine.append("a", "b")
    engine.now_ms += 100 * HOUR_MS
    stopped = engine.stop()
    assert stopped.state()["lost_24h"] == [
        {"reason": "crash", "records": 2, "last_ts": engine.now_ms}
    ]

    assert lost(stopped.stop()) == {"crash": 2}


def test_what_the_log_did_not_see_is_counted_once_it_is_known() -> None:
    """An event says how far the topic had come: the numbers below are lost, and count when the
    recovery says so. (§0.10)"""
    engine = Harness()
    engine.put(durability="ephemeral")
    engine.append("a", "b")
    engine.put(durability="ephemeral", priority=1)
    state = replayed(engine.events, engine)
    topic = state.topics["t"]
    assert state.lossy == {topic.topic_id: 2}
    assert counted(state, engine.now_ms) == {}

    state.apply(TailLost(engine.now_ms, topic.topic_id, 3, 5, "crash", 0, 0))

    assert state.lossy == {}
    assert counted(state, engine.now_ms) == {"crash": 5}
