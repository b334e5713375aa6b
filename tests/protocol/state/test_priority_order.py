"""Jobs by priority, and by time within one (131)."""

from .queued import queue, sealed


def test_many_at_once_and_one_of_them_is_gone() -> None:
    engine = queue(*[{"priority": 1} for _ in range(200)])
    engine.delete("q", before_seq=101)
    assert engine.claimed(max=90) == [*range(101, 191)]
    assert engine.claimed(max=90) == [*range(191, 201)]


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


def test_a_job_that_falls_due_after_many_is_claimed_after_them() -> None:
    """Whether its place is found alone or together with those of others. (131)"""
    engine = queue(*[{"delay_ms": 1000} for _ in range(40)], {"delay_ms": 2000}, {"delay_ms": 3000})
    engine.now_ms += 1000
    assert engine.claimed(max=3) == [1, 2, 3]
    engine.now_ms += 1000
    assert engine.state("q")["queue"]["ready"] == 38
    engine.now_ms += 1000
    assert engine.claimed(max=99) == [*range(4, 43)]
