"""A queue, from the bytes of a claim to the bytes of an ack: jobs that wait cost nothing."""

from typing import Any

import orjson
import pytest

from bench.desk import NOTHING_SEALED, Desk, fetch
from bench.loads import LIMITS, append, append_body
from topics.protocol.faces.http.queues import parse_ack, parse_claim
from topics.protocol.faces.http.topics import parse_put

JOBS = append_body(10_000, 64)
CLAIM = b'{"node":"w-1","max":8}'


class Bench:
    """A worker at a queue: what it claims it acks."""

    def __init__(self, desk: Desk, jobs: int, *, sealed: bool = False) -> None:
        self.desk = desk
        self.next_seq = 1
        desk.run(parse_put("q", b'{"type":"queue","lease_ms":86400000}'))
        for _ in range(jobs // 10_000):
            desk.run(append("q", JOBS))
            if sealed:
                desk.seal_full()

    def claim(self, body: bytes = CLAIM) -> None:
        self.desk.run(parse_claim("q", body, LIMITS))

    def round(self) -> None:
        outcome = self.desk.run(parse_claim("q", CLAIM, LIMITS))
        fetch(outcome)
        seqs = list(range(self.next_seq, self.next_seq + 8))
        self.next_seq += 8
        ack = orjson.dumps({"node": "w-1", "seqs": seqs})
        self.desk.run(parse_ack("q", ack, LIMITS))


@pytest.mark.parametrize(
    ("jobs", "leases", "sealed", "what", "goal_text"),
    [
        (20_000, 0, False, "claim 8 and ack 8, 20,000 jobs in memory", "<= 60 us"),
        (20_000, 0, True, "claim 8 and ack 8, 20,000 jobs sealed", ""),
        (1_000_000, 0, True, "claim 8 and ack 8, 1,000,000 jobs sealed", ""),
        (200_000, 100_000, True, "claim 8 and ack 8, beside 100,000 leases", ""),
    ],
    ids=["small", "sealed", "million", "leased"],
)
def test_claim_and_ack(
    benchmark: Any, goal: Any, jobs: int, leases: int, sealed: bool, what: str, goal_text: str
) -> None:
    goal(what, goal_text)
    desk = Desk.in_memory(None if sealed else NOTHING_SEALED)
    bench = Bench(desk, jobs, sealed=sealed)
    for _ in range(leases // 1000):
        bench.claim(b'{"node":"w-2","max":1000}')
    bench.next_seq = leases + 1

    benchmark.pedantic(bench.round, rounds=40, iterations=40)

    queue = desk.engine.state.queues[1]
    assert queue.in_flight == leases
    assert desk.engine.state.topics["q"].count == jobs - (bench.next_seq - 1 - leases)
