"""Where a job is, what moves it, and what is kept in order beside it (§10.1, §10.3)."""

import numpy as np

from topics.protocol.events import JobsLeased
from topics.protocol.queues import Queue
from topics.protocol.state import State

from .harness import Harness
from .workers import held_by, queue


def counted(queue: Queue) -> tuple[int, int]:
    return queue.in_flight, queue.delayed


def test_a_job_that_was_refused_elsewhere_is_not_leased_after_a_restart() -> None:
    """Its last holder may still ack it, but its time is a delay and no deadline. (§10.1, §10.6)"""
    engine = queue(max_deliveries=1, dead_letter="d", auto_create=False, lease_ms=1000)
    engine.append("x", name="q")
    engine.claim()
    engine.now_ms += 1001
    assert engine.claimed() == []
    assert engine.counters() == (0, 0, 1)

    again = Queue()
    again.restore(held_by(engine).image(lasting=True))

    assert counted(again) == counted(held_by(engine)) == (0, 1)


def test_a_lease_that_nobody_asks_about_leaves_no_trace() -> None:
    """Beside the jobs that are delivered and not done a queue keeps nothing, however long the log
    is that it is rebuilt from. (§10.1)"""
    jobs = Queue()
    for seq in range(1, 2001):
        jobs.lease(JobsLeased(0, 1, "w", 1000, [seq], [seq], [1]))
        jobs.remove(np.array([[seq, seq]], np.uint64))

    assert not jobs.jobs
    assert not jobs.freed
    assert sum(map(len, (jobs._again, jobs._times, jobs._held, jobs._known))) < 500


def replayed(engine: Harness) -> State:
    """What a process finds that begins with this one's log, after a crash."""
    state = State(engine.limits, engine.store)
    for event in engine.events:
        state.apply(event)
    state.recover_jobs(clean=False)
    return state


def test_a_lease_from_before_leases_were_not_lasting_does_not_come_back() -> None:
    """While leases are in no log, others may take the jobs: what the log says of them is no longer
    the truth when leases last again, unless it was said since. (§0.10, §10.4)"""
    engine = queue(leases_durable=True)
    engine.append("a", "b", name="q")
    engine.claim(node="first", max=2)
    engine.put("q", type="queue", leases_durable=False)
    engine.nack(1, 2, node="first")
    engine.claim(node="second", max=2)
    engine.put("q", type="queue", leases_durable=True)
    engine.extend(2, node="second")

    jobs = replayed(engine).queues[engine.topic("q").topic_id]

    assert counted(jobs) == (1, 0)
    assert jobs.holds(1, "first", None) is None
    assert jobs.holds(2, "second", None) is not None
    assert jobs.holds(1, "second", None) is None
