"""The order in which jobs are claimed, part by part: sources, lanes, groups and what leaves them (131, 133).

What a queue gives over all of it is held against a naive queue in `sim/test_ordering.py`.
"""

import pytest

from topics.protocol.decide import job_choice
from topics.protocol.state import claim_source

from ..durable import Durable
from ..harness import Harness
from .queued import backlog, queue, sealed


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
    monkeypatch.setattr(claim_source, "SKIPPED", 4)
    engine = queue(*[{"tag": "a" if n % 20 else "b", "priority": 1} for n in range(60)], {})
    engine.delete("q", match="a")
    assert engine.claimed(max=2) == [1, 21]
    assert engine.claimed(max=9) == [41, 61]
    assert engine.claimed(max=9) == []


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
    monkeypatch.setattr(claim_source, "SKIPPED", kept)
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
    assert len(backlog(engine).order._lanes[0]) <= 72
    assert engine.claimed(max=9) == [1, 151]


def test_consumed_places_of_a_source_are_given_back() -> None:
    engine = queue(*[{"priority": 1} for _ in range(5000)])
    for _ in range(45):
        engine.ack(*engine.claimed(max=100))
    [source] = backlog(engine).order._sources.values()
    assert len(source.fresh) < 4000


def test_a_delete_of_all_finds_the_heads_of_groups() -> None:
    """Many groups by few seqs, and few groups by many."""
    engine = queue(*[{"group": f"g{n}"} for n in range(50)], order="group")
    assert engine.claimed(max=1) == [1]
    engine.delete("q", before_seq=4)
    engine.delete("q", before_seq=40)
    engine.append({"data": 0, "group": "g3", "delay_ms": 5}, name="q")
    assert engine.claimed(max=50) == [*range(40, 51)]


def test_more_is_given_back_than_there_are_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was taken before is in front again, in its order."""
    monkeypatch.setattr(claim_source, "SKIPPED", 1)
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


def test_a_delay_that_ends_behind_many_others() -> None:
    """Delays that ended before are not sorted anew for it. (131)"""
    engine = queue(*[{"delay_ms": 5} for _ in range(20)], {"delay_ms": 9}, {"delay_ms": 7})
    engine.now_ms += 5
    assert engine.counters() == (20, 0, 2)
    engine.now_ms += 5
    assert engine.claimed(max=30) == [*range(1, 21), 22, 21]


def test_a_job_that_is_released_in_the_millisecond_of_another() -> None:
    """Both are ready at that time: the lower seq is first. (131)"""
    from topics.protocol.model.events import JobsReleased

    engine = queue({"delay_ms": 1000}, {}, {"priority": 1})
    assert engine.claimed(max=1) == [3]
    topic_id = engine.topic("q").topic_id
    engine.engine.unit.emit(JobsReleased(engine.now_ms, topic_id, 0, [1], [0]))
    assert engine.claimed(max=9) == [1, 2]


def test_a_delete_of_many_jobs_finds_the_heads_of_few_groups() -> None:
    """Each group goes on with its next job. (133)"""
    jobs = [{"group": f"g{n % 3}"} for n in range(60)]
    engine = queue(*jobs, order="group")
    assert engine.claimed(max=1) == [1]
    engine.delete("q", before_seq=41)
    assert engine.claimed(max=9) == [41, 42, 43]


def test_a_job_that_falls_due_after_many_is_claimed_after_them() -> None:
    """Whether its place is found alone or together with those of others. (131)"""
    engine = queue(*[{"delay_ms": 1000} for _ in range(40)], {"delay_ms": 2000}, {"delay_ms": 3000})
    engine.now_ms += 1000
    assert engine.claimed(max=3) == [1, 2, 3]
    engine.now_ms += 1000
    assert engine.state("q")["queue"]["ready"] == 38
    engine.now_ms += 1000
    assert engine.claimed(max=99) == [*range(4, 43)]


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


def test_a_turn_is_not_lost_by_what_leaves_a_lane() -> None:
    """Groups in turn, of which one loses its first job again and again. (133)"""
    jobs = [{"group": "b", "tag": f"t{n}"} for n in range(150)]
    engine = queue({"group": "a"}, *jobs, {"group": "a"}, fair=True)
    for n in range(148):
        assert engine.claimed(max=1) == [1 + n % 2]
        engine.nack(1 + n % 2)
        engine.delete("q", match=f"t{n}") if n else None
    assert len(backlog(engine).order._lanes[0]) <= 72  # type: ignore[attr-defined]


GROUPED = {"order": "group"}, {"group_max_in_flight": 1}


@pytest.mark.parametrize("config", GROUPED, ids=str)
def test_a_claim_that_ends_a_job_gives_the_next_of_its_group(config: dict[str, object]) -> None:
    """A first job that is dead, or late, lets the next go in the same claim, and in its place. (133)"""
    engine = queue(
        *({"group": "a", "priority": 2}, {"group": "a", "priority": 2}, {"group": "b"}),
        max_deliveries=1,
        dead_letter="dead",
        **config,
    )
    assert engine.claimed(max=1) == [1]
    engine.nack(1)
    assert engine.claimed(max=1) == [2]
    engine.ack(2)
    engine.append({"data": 0, "group": "c", "expires_ms": 5, "delay_ms": 5}, name="q")
    engine.append({"data": 0, "group": "c", "priority": 1}, name="q")
    engine.now_ms += 10
    assert engine.claimed(max=9) == [5, 3]
    assert len(engine.datas("dead")) == 2


def test_a_claim_looks_again_so_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond that its waiter is looked at again soon. (133)"""
    monkeypatch.setattr(job_choice, "ROUNDS_MAX", 2)
    engine = queue(*[{"group": "a"}] * 4, max_deliveries=1, dead_letter="dead")
    assert engine.claimed(max=3) == [1, 2, 3]
    engine.nack(1, 2, 3)
    engine.put("q", type="queue", max_deliveries=1, dead_letter="dead", order="group")
    assert engine.claim(wait_ms=1000) is None
    engine.work_off()
    assert [job["$seq"] for job in engine.woken()[0]["claimed"]] == [4]


@pytest.mark.parametrize("config", [{}, {"fair": True}, {"order": "group"}], ids=str)
@pytest.mark.parametrize("how", ["stop", "kill", "checkpoint"])
def test_a_promoted_job_keeps_its_place(how: str, config: dict[str, object]) -> None:
    """Behind those that were ready when it was promoted, before those that came since, also in another process. (131)"""
    engine: Durable = Durable()
    engine.put("q", type="queue", **config)
    engine.append({"data": 0, "delay_ms": 9000}, {"data": 0}, {"data": 0}, name="q")
    engine.now_ms += 10
    engine.change("promote", 1)
    engine.now_ms += 10
    engine.append({"data": 0}, name="q")
    if how == "checkpoint":
        engine.drive(engine.schedule.round(checkpoint=True))
    engine = engine.stop() if how == "stop" else engine.kill()
    engine.now_ms += 10
    assert engine.claimed(max=9) == [2, 3, 1, 4]


def test_a_group_whose_first_job_was_promoted_has_the_place_of_that() -> None:
    """Groups stand by when their first job may be claimed. (131, 133)"""
    engine = queue({"group": "a", "delay_ms": 9000}, {"group": "b"}, order="group")
    engine.now_ms += 10
    engine.change("promote", 1)
    engine.now_ms += 10
    engine.append({"data": 0, "group": "c"}, name="q")
    assert engine.claimed(max=9) == [2, 1, 3]


def test_a_promotion_outlives_the_lease_that_a_crash_takes() -> None:
    """The lease was in no log, the promotion was: the job is not delayed again. (§10.1, §10.9)"""
    engine: Durable = Durable()
    engine.put("q", type="queue")
    engine.append({"data": 0, "delay_ms": 9000}, {"data": 0, "delay_ms": 9000}, name="q")
    engine.change("promote", 1)
    assert engine.claimed(max=9) == [1]
    engine.drive(engine.schedule.round(checkpoint=True))
    engine = engine.kill()
    assert engine.counters() == (1, 0, 1)
    [job] = engine.claim(max=9)["claimed"]
    assert (job["$seq"], job["deliveries"]) == (1, 1)


def test_a_promoted_job_that_does_not_fit_is_given_next() -> None:
    """As one whose delay is over. (§10.2)"""
    large = "x" * 1_000_000
    engine = queue()
    engine.append(*[{"data": large, "delay_ms": 9000} for _ in range(9)], name="q")
    engine.change("promote")
    assert engine.claimed(max=9) == [*range(1, 9)]
    assert engine.claimed(max=9) == [9]


def test_a_retried_job_is_among_those_that_were_delivered_before() -> None:
    """By number, whatever it was promoted before. (§10.2)"""
    engine = queue({"delay_ms": 9000}, {"priority": 0}, {"priority": 0})
    engine.change("promote", 1)
    assert engine.claimed(max=3) == [1, 2, 3]
    engine.nack(1)
    engine.nack(2, delay_ms=9000)
    engine.change("retry", 2)
    engine.now_ms += 9000
    engine.nack(3)
    engine.change("retry", 1)
    assert engine.claimed(max=3) == [1, 2, 3]


def test_jobs_that_wait_for_their_group_are_counted_over_several_runs() -> None:
    """Those of sealed runs and of those behind; not those that are gone, delayed or with a worker. (§10.7)"""
    engine = sealed(queue(*[{"group": "ab"[n % 2]} for n in range(6)], order="group"))
    engine.append(*[{"data": 0, "group": "a"} for _ in range(3)], name="q")
    engine.append({"data": 0, "group": "b", "delay_ms": 50}, {"data": 0}, name="q")
    assert engine.state("q")["queue"]["blocked"] == 7
    assert engine.claimed(max=9) == [1, 2, 11]
    engine.delete("q", before_seq=4)
    assert engine.state("q")["queue"]["blocked"] == 4
    engine.delete("q", before_seq=9)
    assert engine.claimed(max=9) == [9]
    assert "blocked" not in engine.state("q")["queue"]
