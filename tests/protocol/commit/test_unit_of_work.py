"""The unit of work: time passes before a decision, and what is decided is one write."""

import pytest

from protocol.harness import START_MS, Harness, refusal
from topics.protocol.commit.unit_of_work import StateUnknown
from topics.protocol.model.codec import encode
from topics.protocol.model.events import RecordsAppended, RecordsDeleted, TopicCreated
from topics.protocol.model.moment import Moment


def test_a_full_limit_lets_time_pass_before_it_refuses() -> None:
    """A key past its window makes room for a new one; a quota is freed by what expired. (§0.8, §11)"""
    engine = Harness(max_idempotency_keys=1, max_total_bytes=400)
    engine.put(idempotency_window_ms=100)
    engine.put("u", ttl_ms=100)
    engine.append("x" * 200, name="u")
    engine.append(1, idempotency_key="first")
    engine.now_ms += 101

    assert engine.append(2, idempotency_key="second")["seqs"] == [2]
    assert engine.append("y" * 200)["seqs"] == [3]
    assert engine.state("u")["count"] == 0


def test_a_limit_that_time_does_not_free_refuses() -> None:
    """A key within its window holds its place. (§0.8)"""
    engine = Harness(max_idempotency_keys=1)
    engine.append(1, idempotency_key="first")
    engine.now_ms += 1000
    assert refusal(engine.append, 2, idempotency_key="second").detail["limit"] == (
        "max_idempotency_keys"
    )
    assert engine.seqs() == [1]


def test_events_of_one_unit_are_one_write() -> None:
    """A topic and its first batch, in the order in which they became true. (§2)"""
    engine = Harness(auto=False)
    engine.append("x")
    unit = engine.engine.unit
    assert unit.has_events
    assert unit.planned_bytes() >= unit._unit.frames.size_bytes
    lsn = engine.write()
    assert [type(event) for event in engine.events] == [TopicCreated, RecordsAppended]
    assert engine.store.written_lsn == lsn == 1
    assert not unit.has_events
    assert unit.planned_bytes() == 0


def test_a_delete_is_logged_where_a_restart_would_undo_it() -> None:
    """What lives in memory only is gone then anyway; records from before the class was changed are
    not. (§0.10, §5)"""
    engine = Harness()
    engine.put(durability="ephemeral")
    engine.append("a", "b")
    before = engine.store.stats.frames_total
    engine.delete(before_seq=2)
    assert engine.store.stats.frames_total == before

    engine.put(durability="disk")
    engine.append("c")
    engine.put(durability="ephemeral")
    before = engine.store.stats.frames_total
    engine.delete(before_seq=4)
    assert engine.store.stats.frames_total > before


def test_a_unit_is_on_its_way_until_the_log_has_it() -> None:
    """Other processes follow the log up to the one before it. (§3)"""
    engine = Harness(auto=False)
    unit = engine.engine.unit
    engine.append(1)
    assert not unit.is_on_its_way

    frames = engine.engine.take_frames()
    assert unit.is_on_its_way
    engine.engine.on_written(engine.store.write(frames))

    assert not unit.is_on_its_way


def test_a_unit_asks_for_room_until_it_has_some() -> None:
    """What the log has for certain it still has for the unit's next events; a refusal is of what it
    has now.  The reserve, and another measure of room, are asked for by themselves. (§11)"""
    unit = Harness(auto=False).engine.unit
    asked: list[bool] = []
    has_bytes = 1000

    def room(reserve: bool) -> int:
        asked.append(reserve)
        return has_bytes

    moment = Moment(START_MS, room)
    unit.require_writable(moment, 400)
    unit.require_writable(moment, 1000)
    assert asked == [False]
    assert refusal(unit.require_writable, moment, 1001).detail == {"limit": "disk", "max": 1000}
    assert asked == [False, False]

    has_bytes = 2000
    unit.require_writable(moment, 1001)
    unit.require_writable(moment, 100, reserve=True)
    assert asked == [False, False, False, True]

    has_bytes = 0
    assert refusal(unit.require_writable, Moment(START_MS, lambda _: 0), 1).need_bytes == 1
    unit.take_frames()
    assert refusal(unit.require_writable, moment, 1).need_bytes == 1


def test_what_another_engine_decided_is_applied_or_the_process_ends() -> None:
    """No log leads to a state in which an event is true in part. (§0.5)"""
    engine = Harness()
    unit = engine.engine.unit
    stranger = RecordsDeleted(START_MS, 77, b"", 0, 0)
    with pytest.raises(StateUnknown, match="RecordsDeleted could not be applied"):
        unit.adopt([stranger], b"".join(map(bytes, encode(stranger))))
