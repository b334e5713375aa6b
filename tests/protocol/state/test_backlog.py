"""The order in which jobs are claimed, part by part: sources, lanes, groups and what leaves them (130-133).

What a queue gives over all of it is held against a naive queue in `sim/test_ordering.py`.
"""

from typing import Any

import numpy as np
import pytest

from topics.protocol.model.errors import Corrupt
from topics.protocol.state import backlog as backlogs
from topics.protocol.state.backlog import Backlog
from topics.store.runs import SealedRun

from ..harness import Harness


def queue(*jobs: dict[str, Any], **config: object) -> Harness:
    engine = Harness()
    engine.put("q", type="queue", **config)
    if jobs:
        engine.append(*[{"data": 0, **job} for job in jobs], name="q")
    return engine


def backlog(engine: Harness) -> Backlog:
    found = engine.engine.state.queues[engine.topic("q").topic_id].backlog
    assert found is not None
    return found


def sealed(engine: Harness) -> Harness:
    engine.sealing.press()
    engine.seal()
    return engine


def test_a_queue_has_none_before_it_needs_one() -> None:
    engine = queue({}, {"tag": "t"})
    queues = engine.engine.state.queues
    assert queues[engine.topic("q").topic_id].backlog is None
    engine.append({"data": 0, "priority": 1}, name="q")
    assert engine.claimed(max=9) == [3, 1, 2]


def test_a_config_may_ask_for_one_later_and_do_without_its_order_again() -> None:
    """Jobs that are there take their places anew."""
    engine = queue({"tag": "a"}, {"tag": "a"}, {"group": "b"}, {"priority": 1})
    assert engine.claimed(max=1) == [4]
    engine.put("q", type="queue", order="group")
    assert engine.claimed(max=9) == [1, 3]
    assert engine.state("q")["queue"]["blocked"] == 1
    engine.put("q", type="queue")
    assert engine.claimed(max=9) == [2]


def test_a_group_that_got_an_order_late_waits_for_what_is_in_flight() -> None:
    """Its second job is with a worker, so its first is not given."""
    engine = queue({"group": "a"}, {"group": "a", "priority": 1})
    assert engine.claimed(max=1) == [2]
    engine.put("q", type="queue", order="group")
    assert engine.claimed(max=9) == []
    engine.nack(2)
    assert engine.claimed(max=9) == [1]


def test_jobs_that_are_gone_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """One by one, and many at once."""
    monkeypatch.setattr(backlogs, "_SKIPPED", 4)
    engine = queue(*[{"tag": "a" if n % 20 else "b", "priority": 1} for n in range(60)], {})
    engine.delete("q", match="a")
    assert engine.claimed(max=2) == [1, 21]
    assert engine.claimed(max=9) == [41, 61]
    assert engine.claimed(max=9) == []


def test_records_are_looked_at_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over several runs, some of which are gone as a whole, with jobs that were delivered before."""
    monkeypatch.setattr(backlogs, "ABSORBED_ROWS", 4)
    engine = queue(*[{"tag": "ab"[n % 2]} for n in range(9)])
    sealed(engine)
    engine.append(*[{"data": 0} for _ in range(9)], name="q")
    assert engine.claimed(max=6) == [1, 2, 3, 4, 5, 6]
    engine.put("q", type="queue", fair=True)
    assert engine.counters() == (12, 6, 0)
    assert sorted(engine.claimed(max=20)) == [*range(7, 19)]

    engine.append({"data": 0}, name="q")
    engine.delete("q", before_seq=20)
    assert engine.claimed(max=5) == []
    engine.put("q", type="queue", fair=True, cap_records=1)
    engine.append({"data": 0}, {"data": 1}, {"data": 2}, name="q")
    assert engine.claimed(max=5) == [22]
    engine.ack(22)
    assert engine.counters() == (0, 0, 0)


def test_many_at_once_and_one_of_them_is_gone() -> None:
    engine = queue(*[{"priority": 1} for _ in range(200)])
    engine.delete("q", before_seq=101)
    assert engine.claimed(max=90) == [*range(101, 191)]
    assert engine.claimed(max=90) == [*range(191, 201)]


@pytest.mark.parametrize("kept", [1, 1024])
def test_what_does_not_fit_into_an_answer_is_given_next(
    kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each kind: fresh, delayed before, delivered before, of a group."""
    monkeypatch.setattr(backlogs, "_SKIPPED", kept)
    large = "x" * 700_000
    many = [{"data": large, "priority": 1} for _ in range(14)]
    engine = queue()
    engine.append(*many[:7], name="q")
    engine.append(*[{**each, "delay_ms": 5} for each in many[:7]], name="q")
    engine.now_ms += 10
    first = engine.claimed(max=14)
    assert first == [*range(1, len(first) + 1)]
    assert len(first) < 14
    assert engine.claimed(max=14) == [*range(len(first) + 1, 15)]

    engine.nack(*range(1, 15))
    again = engine.claimed(max=14)
    assert again == first
    assert engine.claimed(max=14) == [*range(len(first) + 1, 15)]


def test_a_group_in_order_whose_job_does_not_fit() -> None:
    large = "x" * 1_000_000
    engine = queue(order="group")
    engine.append(*[{"data": large, "tag": f"g{n}"} for n in range(12)], name="q")
    first = engine.claimed(max=12)
    assert len(first) < 12
    assert engine.claimed(max=12) == [*range(len(first) + 1, 13)]


def test_options_outlive_a_seal_and_a_merge() -> None:
    """Options of jobs that are gone are left out, and so is a group that is only a tag."""
    engine = sealed(
        queue({"priority": 3}, {"group": "g"}, {"tag": "t", "priority": 1}, order="group")
    )
    assert engine.claimed(max=9) == [1, 3, 2]
    engine.ack(1)
    engine.append({"data": 0}, {"data": 0, "unique": "k"}, name="q")
    sealed(engine)
    found = [run.job_options() for run in engine.topic("q").runs]
    [options] = [each for each in found if each is not None]
    assert options.rows["seq"].tolist() == [2, 3, 5]
    assert options.rows["priority"].tolist() == [0, 1, 0]
    assert [g and options.groups[g - 1] for g in options.rows["group"].tolist()] == ["g", 0, 0]
    assert options.digests is not None
    assert options.digests.any(axis=1).tolist() == [False, False, True]


def test_a_seal_of_jobs_without_options_says_none() -> None:
    engine = queue({}, {"tag": "t"}, order="group")
    sealed(engine)
    assert [run.job_options() for run in engine.topic("q").runs] == [None]


def test_options_that_cannot_be_read_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The jobs go on without any. (§0.5)"""
    engine = sealed(queue({"priority": 3}))
    options = backlog(engine)
    options.is_loaded = False

    def damaged(run: SealedRun) -> None:
        raise Corrupt("file", 7, "a section of a run does not verify")

    monkeypatch.setattr(SealedRun, "job_options", damaged)
    report: list[str] = []
    assert options.load(report) == []
    [told] = report
    assert "lost their options" in told


def test_a_job_that_is_promoted_is_not_first() -> None:
    """It was released and never delivered: it comes where its time is. (133)"""
    from topics.protocol.model.events import JobsReleased

    engine = queue({"delay_ms": 1000}, {})
    engine.now_ms += 10
    assert engine.counters() == (1, 0, 1)
    topic_id = engine.topic("q").topic_id
    engine.engine.unit.emit(JobsReleased(engine.now_ms, topic_id, 0, [1], [0]))
    assert engine.counters() == (2, 0, 0)
    assert engine.claimed(max=9) == [2, 1]


def test_many_delays_end_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlogs, "SETTLED_MAX", 10)
    engine = queue(*[{"delay_ms": 100} for _ in range(35)])
    assert engine.counters()[2] == 35
    engine.now_ms += 100
    seen = [engine.counters()[2] for _ in range(5)]
    assert seen == [25, 15, 5, 0, 0]


def test_a_delay_that_ended_before_other_jobs_came() -> None:
    """Nobody asked meanwhile; it stands where its time was all the same. (131)"""
    engine = queue()
    engine.append({"data": 0}, {"data": 0, "delay_ms": 100}, name="q")
    engine.now_ms += 50
    engine.append({"data": 0}, name="q")
    sealed(engine)
    engine.now_ms += 100
    engine.append({"data": 0}, name="q")
    assert engine.claimed(max=9) == [1, 3, 2, 4]


def test_the_same_where_all_that_came_before_is_gone() -> None:
    engine = queue({"delay_ms": 100})
    engine.now_ms += 200
    engine.append({"data": 0}, name="q")
    engine.delete("q", before_seq=2)
    engine.append({"data": 0, "delay_ms": 1}, name="q")
    engine.now_ms += 5
    assert engine.claimed(max=9) == [2, 3]


def test_a_lane_does_not_grow_by_what_left_it() -> None:
    """The first of a group is deleted again and again, behind another that nobody claims."""
    jobs = [{"group": "b", "tag": f"t{n}"} for n in range(150)]
    engine = queue({"group": "a"}, *jobs, order="group")
    assert engine.claimed(max=1) == [1]
    engine.nack(1)
    for n in range(149):
        engine.delete("q", match=f"t{n}")
    assert len(backlog(engine)._lanes[0]) <= 72
    assert engine.claimed(max=9) == [1, 151]


def test_consumed_places_of_a_source_are_given_back() -> None:
    engine = queue(*[{"priority": 1} for _ in range(5000)])
    for _ in range(45):
        engine.ack(*engine.claimed(max=100))
    [source] = backlog(engine)._sources.values()
    assert len(source.fresh) < 4000


def test_a_delete_of_all_finds_the_heads_of_groups() -> None:
    """Many groups by few seqs, and few groups by many."""
    engine = queue(*[{"group": f"g{n}"} for n in range(50)], order="group")
    assert engine.claimed(max=1) == [1]
    engine.delete("q", before_seq=4)
    engine.delete("q", before_seq=40)
    engine.append({"data": 0, "group": "g3", "delay_ms": 5}, name="q")
    assert engine.claimed(max=50) == [*range(40, 51)]


def test_scattered_deletes_free_options() -> None:
    """Such as stand as bits in the log."""
    engine = queue(*[{"tag": "ab"[n % 2], "delay_ms": 1000} for n in range(4000)])
    assert engine.counters()[2] == 4000
    engine.delete("q", match="a")
    assert engine.counters()[2] == 2000
    assert backlog(engine).table.live == 2000


def test_an_eviction_frees_options() -> None:
    engine = queue(cap_records=3)
    for n in range(5):
        engine.append({"data": n, "unique": f"k{n}", "delay_ms": 10}, name="q")
    assert engine.counters() == (0, 0, 3)
    assert "unique" not in engine.append({"data": 0, "unique": "k0"}, name="q")


def test_what_was_not_asked_for_is_nothing() -> None:
    engine = queue({"priority": 2}, {"group": "g"}, {}, order="group")
    found = backlog(engine)
    assert [found.priority_of(seq) for seq in (1, 2, 3)] == [2, 0, 0]
    assert [found.group_of(seq) for seq in (1, 2, 3)] == [None, "g", None]
    assert found.not_before(1) == 0
    assert not found.is_late(1, 1 << 60)
    assert np.array([found.blocked()]).tolist() == [0]


def test_records_that_are_gone_before_anybody_asked() -> None:
    """All of them expired: nothing is looked at."""
    engine = queue({"priority": 1}, {"priority": 2}, ttl_ms=1000)
    engine.now_ms += 2000
    assert engine.claimed(max=9) == []
    assert engine.counters() == (0, 0, 0)


def test_more_is_given_back_than_there_are_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was taken before is in front again, in its order."""
    monkeypatch.setattr(backlogs, "_SKIPPED", 1)
    engine = queue()
    large = "x" * 900_000
    engine.append(*[{"data": large, "priority": 1} for _ in range(14)], name="q")
    first = engine.claimed(max=14)
    assert engine.claimed(max=14) == [*range(len(first) + 1, 15)]


def test_a_job_of_a_group_that_was_delivered_before_does_not_fit() -> None:
    """It is first of its group the next time."""
    engine = queue(order="group")
    large = "x" * 900_000
    engine.append(*[{"data": large, "tag": f"g{n}"} for n in range(12)], name="q")
    taken = [*engine.claimed(max=12), *engine.claimed(max=12)]
    engine.nack(*taken)
    first = engine.claimed(max=12)
    assert engine.claimed(max=12) == [*range(len(first) + 1, 13)]


def test_a_seq_that_never_was_is_not_live() -> None:
    engine = queue({})
    assert [engine.topic("q").is_live(seq) for seq in (0, 1, 2)] == [False, True, False]
