"""Work: claims, acks, leases in time, dead letters and pushed jobs, told as stories (§10)."""

from .workers import queue

# ---------------------------------------------------------------------- claim (§10.2)


def test_a_job_is_given_once_though_it_came_back_twice() -> None:
    """An extended lease that ran out again leaves the job claimable once: there is at most one
    valid lease a job, also where another job of the same claim goes to the dead-letter topic.
    (§10.2, §10.3)"""
    engine = queue(lease_ms=1000)
    engine.append("often tried", "once", name="q")
    engine.claim(max=1)
    engine.nack(1)
    engine.claim(max=2)
    engine.now_ms += 1001
    engine.counters()
    engine.extend(2, lease_ms=1000)
    engine.now_ms += 1001
    engine.counters()
    engine.put("q", type="queue", lease_ms=1000, max_deliveries=2, dead_letter="d")

    assert engine.claimed(max=2) == [2]
    assert engine.seqs(name="d") == [1]
    assert engine.counters() == (0, 1, 0)
