"""Figures of an engine at one moment; `tests/server/observing/test_history.py` keeps them for an hour."""

from protocol.harness import Harness
from topics.protocol.driver.figures import QUEUES_MAX, Totals, job_counts, totals


def test_totals_are_of_all_topics() -> None:
    """Records ever appended, and those that live. (§8.6)"""
    engine = Harness()
    engine.put("a")
    engine.append(1, 2, 3, name="a")
    engine.delete(before_seq=2, name="a")
    found = totals(engine.engine)
    assert isinstance(found, Totals)
    assert (found.appended, found.records) == (3, 2)
    assert found.total_bytes > 0
    assert found.hot_bytes > 0
    assert (found.router_lag, found.blocked_routers) == (0, 0)


def test_the_lag_is_that_of_the_router_farthest_behind() -> None:
    """In records of its source. (§6, §8.6)"""
    engine = Harness()
    engine.put("a")
    engine.put("b")
    engine.route("a", "b")
    engine.append(1, 2, name="a")
    assert totals(engine.engine).router_lag in (0, 2)  # copies may have come in the same turn
    for router in engine.engine.state.routers.by_name.values():
        router.source_id = 99  # its source is gone
    assert totals(engine.engine).router_lag == 0


def test_jobs_are_counted_of_a_bounded_number_of_queues() -> None:
    """Queues that are known come before any others. (§10.7)"""
    engine = Harness()
    for n in range(QUEUES_MAX + 3):
        engine.put(f"q{n}", type="queue")
    engine.append(1, 2, name="q0")
    engine.claim("q0")
    found = {each.name: each for each in job_counts(engine.engine, ())}
    assert len(found) == QUEUES_MAX
    assert (found["q0"].ready, found["q0"].in_flight) == (1, 1)
    last = engine.topic(f"q{QUEUES_MAX + 2}").topic_id
    assert last in {each.topic_id for each in job_counts(engine.engine, (last,))}
