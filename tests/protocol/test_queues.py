"""Where a job is, what moves it, and what is kept in order beside it (§10.1, §10.3)."""

from topics.protocol.queues import Queue

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
