"""Jobs that take turns by group, or wait for others of their group: lanes, first jobs, and the number of those that wait (131, 133)."""

import pytest

from topics.protocol.model.events import JobsLeased
from topics.protocol.state import claim_source, group_order

from ..harness import Harness
from .queued import backlog, queue


def blocked(engine: Harness) -> int:
    return int(engine.state("q")["queue"].get("blocked", 0))


@pytest.mark.parametrize("config", [{"order": "group"}, {"group_max_in_flight": 1}])
def test_jobs_that_wait_for_their_group_are_counted(config: dict[str, object]) -> None:
    """After an append, a claim, an ack, deletes of few, of many and of scattered jobs, a delay and its end. (133)"""
    jobs = [{"group": f"g{n % 3}", "tag": "ab"[n % 2]} for n in range(300)]
    engine = queue(*jobs, **config)
    seen = [blocked(engine)]
    assert engine.claimed(max=2) == [1, 2]
    seen.append(blocked(engine))
    engine.ack(1)
    seen.append(blocked(engine))
    engine.nack(2, delay_ms=1000)
    seen.append(blocked(engine))
    engine.delete("q", before_seq=11)
    seen.append(blocked(engine))
    engine.delete("q", before_seq=101)
    seen.append(blocked(engine))
    engine.delete("q", match="a")
    seen.append(blocked(engine))
    engine.append({"data": 0, "group": "g1", "delay_ms": 1000}, name="q")
    seen.append(blocked(engine))
    engine.now_ms += 1000
    seen.append(blocked(engine))
    engine.put("q", type="queue", cap_records=2, **config)
    seen.append(blocked(engine))
    rests = 296 if "order" in config else 295
    assert seen == [297, 297, 296, rests, 287, 197, 97, 97, 98, 0]


def test_jobs_that_wait_for_a_group_with_room_for_several_are_counted() -> None:
    """Jobs beyond the room that those in flight leave, whether there was any before. (133)"""
    engine = queue(*[{"group": "g"}] * 6, group_max_in_flight=3)
    seen = [blocked(engine)]
    assert engine.claimed(max=3) == [1, 2, 3]
    seen.append(blocked(engine))
    for seq in (1, 2, 3):
        engine.ack(seq)
        seen.append(blocked(engine))
    assert seen == [3, 3, 2, 1, 0]


def test_a_turn_is_not_lost_by_what_leaves_a_lane() -> None:
    """Groups in turn, of which one loses its first job again and again. (133)"""
    jobs = [{"group": "b", "tag": f"t{n}"} for n in range(150)]
    engine = queue({"group": "a"}, *jobs, {"group": "a"}, fair=True)
    for n in range(148):
        assert engine.claimed(max=1) == [1 + n % 2]
        engine.nack(1 + n % 2)
        engine.delete("q", match=f"t{n}") if n else None
    assert len(backlog(engine).order._lanes[0]) <= 72  # type: ignore[attr-defined]


def test_a_lane_does_not_grow_by_what_left_it() -> None:
    """The first of a group is deleted again and again, behind another that nobody claims."""
    jobs = [{"group": "b", "tag": f"t{n}"} for n in range(150)]
    engine = queue({"group": "a"}, *jobs, order="group")
    assert engine.claimed(max=1) == [1]
    engine.nack(1)
    for n in range(149):
        engine.delete("q", match=f"t{n}")
    assert len(backlog(engine).order._lanes[0]) <= 72
    assert engine.claimed(max=9) == [1, 151]


def test_a_delete_of_all_finds_the_heads_of_groups() -> None:
    """Many groups by few seqs, and few groups by many."""
    engine = queue(*[{"group": f"g{n}"} for n in range(50)], order="group")
    assert engine.claimed(max=1) == [1]
    engine.delete("q", before_seq=4)
    engine.delete("q", before_seq=40)
    engine.append({"data": 0, "group": "g3", "delay_ms": 5}, name="q")
    assert engine.claimed(max=50) == [*range(40, 51)]


def test_a_delete_of_many_jobs_finds_the_heads_of_few_groups() -> None:
    """Each group goes on with its next job. (133)"""
    jobs = [{"group": f"g{n % 3}"} for n in range(60)]
    engine = queue(*jobs, order="group")
    assert engine.claimed(max=1) == [1]
    engine.delete("q", before_seq=41)
    assert engine.claimed(max=9) == [41, 42, 43]


def test_a_lane_of_turns_does_not_grow_either() -> None:
    """The only job of a group is deleted, and another comes, again and again, behind another that nobody claims. (133)"""
    engine = queue({"group": "a"}, order="group", fair=True)
    for n in range(100):
        engine.append({"data": 0, "group": "b", "tag": f"t{n}"}, name="q")
        assert blocked(engine) == 0
        engine.delete("q", match=f"t{n}")
    assert len(backlog(engine).order._lanes[0]) <= 72  # type: ignore[attr-defined]


@pytest.mark.parametrize("config", [{"order": "group"}, {"group_max_in_flight": 1}])
def test_a_lease_that_another_process_gave_holds_the_group(config: dict[str, object]) -> None:
    """A process that only follows takes no job; it learns of leases. (133)"""
    engine = queue({"group": "a"}, {"group": "a"}, {"group": "b"}, **config)
    assert blocked(engine) == 1
    topic_id = engine.topic("q").topic_id
    held = engine.engine.state.queues[topic_id]
    held.lease(JobsLeased(engine.now_ms, topic_id, "w", 1 << 50, [1], [1], [1]))
    assert engine.claimed(max=9) == [3]


def test_a_long_group_is_trimmed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was taken of a source is let go, and the order is as before. (133)"""
    monkeypatch.setattr(group_order, "SKIPPED", 4)
    monkeypatch.setattr(claim_source, "SKIPPED", 4)
    engine = queue(*[{"group": "a"}] * 40, fair=True)
    assert [engine.claimed(max=1) for _ in range(40)] == [[n] for n in range(1, 41)]
