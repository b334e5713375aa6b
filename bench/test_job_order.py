"""Queues at depth whose jobs have options, or take turns: what their order costs (131-133).

Beside each figure stands that of a plain queue of the same depth, from the same run.
"""

import random
import time
from collections.abc import Callable
from typing import Any, Final

import orjson
import pytest

from bench.conftest import Scale
from bench.desk import NOW_MS, Desk, fetch
from bench.loads import LIMITS, append, data_of
from topics.protocol.faces.http.queues import parse_ack, parse_claim
from topics.protocol.faces.http.topics import parse_put
from topics.protocol.model.outcomes import Granted
from topics.protocol.state.backlog import Backlog

GROUPS: Final = 1000
ORDERS: Final[dict[str, bytes]] = {
    "plain": b"",
    "ten priorities, mixed": b"",
    "groups in order": b',"order":"group"',
    "groups in turn": b',"fair":true',
}
"""What is added to a queue's config."""
ROUNDS: Final = 40
DATA: Final = orjson.Fragment(data_of(64))


def jobs_of(order: str, chance: random.Random, count: int) -> bytes:
    """The body of an append."""
    records: list[dict[str, Any]] = [{"data": DATA} for _ in range(count)]
    for record in records:
        if order.startswith("ten"):
            record["priority"] = chance.randrange(10)
        elif order.startswith("groups"):
            record["tag"] = f"group-{chance.randrange(GROUPS)}"
    return orjson.dumps({"records": records})


def filled(order: str, jobs: int) -> Desk:
    """A queue of sealed jobs that nobody has claimed yet."""
    desk = Desk.in_memory()
    chance = random.Random(1)
    desk.run(parse_put("q", b'{"type":"queue","lease_ms":86400000%b}' % ORDERS[order]))
    size = min(jobs, 10_000)
    bodies = [append("q", jobs_of(order, chance, size)) for _ in range(min(8, jobs // size))]
    for part in range(jobs // size):
        desk.run(bodies[part % len(bodies)])
        desk.seal_full()
    return desk


def work(desk: Desk) -> None:
    """Claim eight jobs, read their text, and ack them."""
    outcome = desk.run(parse_claim("q", b'{"node":"w","max":8}', LIMITS))
    assert isinstance(outcome, Granted)
    assert outcome.jobs is not None
    fetch(outcome)
    ack = orjson.dumps({"node": "w", "seqs": list(outcome.jobs.grant.seqs)})
    desk.run(parse_ack("q", ack, LIMITS))


def least_us(call: Callable[[], None], times: int) -> float:
    """CPU time of one call, the least of five runs."""
    found = []
    for _ in range(5):
        begun = time.thread_time()
        for _ in range(times):
            call()
        found.append((time.thread_time() - begun) / times * 1e6)
    return min(found)


def depths(scale: Scale) -> tuple[int, ...]:
    """Jobs that wait: few, many, and as many as the run's scale allows."""
    return (2000, 100_000, 5 * scale.sealed) if scale.rounds > 1 else (2000,)


@pytest.mark.timeout(1800)
def test_orders(benchmark: Any, report: Any, scale: Scale) -> None:
    """Claims and acks of eight jobs, in each order and at each depth."""
    for jobs in depths(scale):
        desks = {order: filled(order, jobs) for order in ORDERS}
        times = ROUNDS if scale.rounds > 1 else 2
        cost = {o: least_us(lambda desk=desk: work(desk), times) for o, desk in desks.items()}
        for order, cost_us in cost.items():
            ratio = cost_us / cost["plain"]
            name = f"claim 8 and ack 8, {jobs:,} jobs, {order}"
            report(name, f"{cost_us:.0f} us, {ratio:.2f} of plain", "")
        assert all(desk.engine.state.topics["q"].count < jobs for desk in desks.values())
    benchmark.pedantic(lambda: work(desks["plain"]), rounds=1)


@pytest.mark.timeout(600)
def test_delays_that_end_together(benchmark: Any, report: Any, scale: Scale) -> None:
    """Jobs that may be claimed at one moment: in which pieces, each no longer than one turn."""
    jobs = 100_000 if scale.rounds > 1 else 10_000
    desk = Desk.in_memory()
    desk.run(parse_put("q", b'{"type":"queue"}'))
    for part in range(jobs // 10_000):
        records = [{"data": DATA, "delay_ms": 5000 + n % 1000} for n in range(10_000)]
        desk.run(append("q", orjson.dumps({"records": records})))
        assert part * 10_000 < desk.engine.state.topics["q"].count
    queue = desk.engine.state.queues[1]
    backlog = queue.backlog
    assert backlog is not None
    while backlog.is_behind:
        backlog.catch_up(NOW_MS)
    assert backlog.delayed == jobs
    pieces: list[float] = []

    def ended() -> None:
        while backlog.delayed:
            begun = time.thread_time()
            backlog.settle(NOW_MS + 6000)
            pieces.append(time.thread_time() - begun)

    benchmark.pedantic(ended, rounds=1)

    report(f"{jobs:,} delays that end together, per job", f"{sum(pieces) / jobs * 1e6:.2f} us", "")
    report("the longest piece of them", f"{max(pieces) * 1e3:.1f} ms", "")
    assert len(backlog.order.take(100)) == 100


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("order", list(ORDERS)[1:])
def test_backlog_begins(benchmark: Any, report: Any, scale: Scale, order: str) -> None:
    """After a start, or another config: records are absorbed, so many a turn."""
    jobs = 5 * scale.sealed if scale.rounds > 1 else scale.sealed
    desk = filled(order, jobs)
    backlog = desk.engine.state.queues[1].backlog
    assert backlog is not None
    pieces: list[float] = []

    def absorbed(backlog: Backlog) -> None:
        backlog.restart()
        while backlog.is_behind:
            begun = time.thread_time()
            backlog.catch_up(NOW_MS)
            pieces.append(time.thread_time() - begun)

    benchmark.pedantic(absorbed, (backlog,), rounds=1)

    name = f"{jobs:,} jobs absorbed, {order}"
    longest = f"the longest turn {max(pieces) * 1e3:.1f} ms"
    report(name, f"{sum(pieces) * 1e3:.0f} ms, {longest}", "")
    work(desk)
