"""Jobs that nobody starts in time: dead letters, whatever hinders that, or gone and counted (132)."""

import pytest

from ..durable import Durable
from ..harness import Harness


def queue(**config: object) -> Harness:
    engine = Harness()
    engine.put("q", type="queue", **config)
    return engine


def late(data: int = 0, **options: object) -> dict[str, object]:
    return {"data": data, "expires_ms": 100, **options}


def test_a_dead_letter_topic_that_takes_none_is_asked_again() -> None:
    """Meanwhile no worker gets the job: its time is over. (§10.6)"""
    engine = queue(dead_letter="dead", max_deliveries=5)
    engine.put("dead", cap_records=1, discard="reject")
    engine.append("full", name="dead")
    engine.append(late(1), {"data": 2}, name="q")
    engine.now_ms += 100
    assert engine.claimed(max=9) == [2]
    assert engine.counters() == (0, 1, 1)

    engine.purge("dead")
    engine.now_ms += 60_000
    assert engine.claimed(max=9) == [2]  # its lease ran out
    assert engine.datas("dead") == [1]
    assert engine.counters() == (0, 1, 0)


def test_it_is_asked_again_though_nobody_claims() -> None:
    engine = queue(dead_letter="dead")
    engine.put("dead", cap_records=1, discard="reject")
    engine.append("full", name="dead")
    engine.append(late(1), name="q")
    engine.now_ms += 100
    engine.work_off()
    assert engine.counters() == (0, 0, 1)
    engine.purge("dead")
    engine.now_ms += 60_000
    engine.work_off()
    assert engine.datas("dead") == [1]


def test_many_end_a_part_at_a_time() -> None:
    """A turn ends some; the rest follows without anybody's doing."""
    engine = queue()
    engine.append(*[late(n) for n in range(2500)], name="q")
    engine.now_ms += 100
    assert engine.claimed() == []
    engine.work_off()
    assert engine.state("q")["queue"]["expired"] == 2500


def test_a_start_tells_what_ended_meanwhile() -> None:
    """A worker that waits gets what is left."""
    engine = queue()
    engine.append(late(1), late(2, expires_ms=5000), name="q")
    assert engine.claimed(max=1) == [1]
    engine.nack(1, delay_ms=50)
    engine.now_ms += 200
    assert engine.claimed(max=9) == [1, 2]


def test_a_read_only_log_ends_none() -> None:
    """They are ended once it is opened anew. (§0.5)"""
    engine = queue()
    engine.append(late(1), name="q")
    engine.engine.unit.read_only = True
    engine.now_ms += 100
    engine.engine.work_off(engine.moment)
    engine.engine.unit.read_only = False
    engine.work_off()
    assert engine.state("q")["queue"]["expired"] == 1


def test_the_time_of_a_promoted_job_begins_with_its_promotion() -> None:
    """It counts from when the job may be claimed first, and ends it though nobody claims. (132)"""
    engine = queue()
    engine.append(late(1, delay_ms=5000, unique="k"), name="q")
    assert engine.change("promote", 1) == (1, 1)
    engine.now_ms += 99
    engine.work_off()
    assert engine.counters() == (1, 0, 0)
    engine.now_ms += 1
    engine.work_off()
    assert engine.state("q")["queue"]["expired"] == 1
    assert "unique" not in engine.append(late(2, unique="k"), name="q")


def test_a_promoted_job_that_was_started_does_not_end() -> None:
    """Its first lease ends the wait; one that was retried sooner than was asked waits again. (132)"""
    engine = queue()
    engine.append(late(1, delay_ms=5000), name="q")
    engine.change("promote", 1)
    assert engine.claimed(max=9) == [1]
    engine.nack(1)
    engine.now_ms += 200
    engine.work_off()
    assert engine.claimed(max=9) == [1]


@pytest.mark.parametrize("how", ["stop", "kill", "checkpoint"])
def test_a_promoted_job_ends_in_another_process(how: str) -> None:
    """Its promotion is in the log, or in the checkpoint that stands for it; and the dead letter says why. (§10.9)"""
    engine: Durable = Durable()
    engine.put("q", type="queue", dead_letter="dead")
    engine.append(late(1, delay_ms=5000), late(2, delay_ms=5000), name="q")
    engine.change("promote", 1)
    if how == "checkpoint":
        engine.drive(engine.schedule.round(checkpoint=True))
    engine = engine.stop() if how == "stop" else engine.kill()
    engine.now_ms += 99
    engine.work_off()
    assert engine.counters() == (1, 0, 1)
    engine.now_ms += 1
    engine.work_off()
    engine.sync()
    assert engine.datas("dead") == [1]
    assert engine.counters() == (0, 0, 1)


def test_a_retried_job_was_started() -> None:
    """Its deliveries count from none, and no worker has to hurry. (§10.9, 132)"""
    engine = queue()
    engine.append(late(1), name="q")
    assert engine.claimed() == [1]
    engine.nack(1, delay_ms=1000)
    engine.now_ms += 500
    assert engine.change("retry", 1) == (1, 1)
    engine.work_off()
    assert engine.claimed() == [1]
    assert "expired" not in engine.state("q")["queue"]


def test_a_job_that_its_dead_letters_refuse_is_over_after_a_restart() -> None:
    """Nothing of it outlives the process, which finds out again that its time is over. (132)"""
    engine: Durable = Durable()
    engine.put("q", type="queue", dead_letter="dead")
    engine.put("dead", cap_records=1, discard="reject")
    engine.append("full", name="dead")
    engine.append(late(1), name="q")
    engine.now_ms += 100
    engine.work_off()
    assert engine.counters() == (0, 0, 1)
    engine = engine.stop()
    assert engine.claimed() == []
    engine.purge("dead")
    engine.now_ms += 60_000
    engine.work_off()
    engine.sync()
    assert engine.datas("dead") == [1]
