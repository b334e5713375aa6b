"""The order in which jobs are claimed, part by part: sources, lanes, groups and what leaves them (131, 133).

What a queue gives over all of it is held against a naive queue in `sim/test_ordering.py`.
"""

import pytest

from topics.protocol.decide import job_choice

from ..durable import Durable
from .queued import queue, sealed


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


def test_a_job_of_a_group_that_was_delivered_before_does_not_fit() -> None:
    """It is first of its group the next time."""
    engine = queue(order="group")
    large = "x" * 900_000
    engine.append(*[{"data": large, "tag": f"g{n}"} for n in range(12)], name="q")
    taken = [*engine.claimed(max=12), *engine.claimed(max=12)]
    engine.nack(*taken)
    first = engine.claimed(max=12)
    assert engine.claimed(max=12) == [*range(len(first) + 1, 13)]


def test_a_job_that_is_released_in_the_millisecond_of_another() -> None:
    """Both are ready at that time: the lower seq is first. (131)"""
    from topics.protocol.model.events import JobsReleased

    engine = queue({"delay_ms": 1000}, {}, {"priority": 1})
    assert engine.claimed(max=1) == [3]
    topic_id = engine.topic("q").topic_id
    engine.engine.unit.emit(JobsReleased(engine.now_ms, topic_id, 0, [1], [0]))
    assert engine.claimed(max=9) == [1, 2]


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
    """Jobs of sealed runs and of the runs behind count; jobs that are gone, delayed or with a worker do not. (§10.7)"""
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
