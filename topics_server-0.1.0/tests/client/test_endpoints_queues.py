"""Claiming, acking, giving back, extending: what is sent for each, and what it makes of the answer."""

from dataclasses import dataclass
from typing import Any

import httpx
import msgspec
import pytest

from topics.client import BadAnswer, Conflict, Job, Throttled, TopicNotFound, Unreachable

from .script import ONE_TRY, Script, error, ok

BROKEN = httpx.ReadError("broken")
ONE = {
    "$seq": 480_101,
    "$ts": 1_748_450_001_000,
    "$node": "web-1",
    "$tag": "tenant42:job-8800",
    "lease_id": "lease_7f3a9c",
    "deadline": 1_748_450_039_000,
    "deliveries": 1,
    "data": {"url": "s3://b/x.png"},
    "meta": {"trace": "z9"},
}
TWO = {
    "$seq": 480_104,
    "$ts": 1_748_450_001_050,
    "lease_id": "lease_7f3a9d",
    "deadline": 1_748_450_039_000,
    "deliveries": 2,
    "data": {"url": "s3://b/y.png"},
}


def claimed(*jobs: dict[str, Any], ready: int = 0) -> httpx.Response:
    return ok({"topic": "jobs", "claimed": list(jobs), "count": len(jobs), "ready": ready})


def test_a_claim(face: Any) -> None:
    """Jobs come with their record, their lease, and how often they were handed out. (§10.2)"""
    script = Script(claimed(ONE, TWO, ready=840))

    answer = face(script).do(
        lambda c: c.claim("jobs", node="w1", max=16, lease_ms=30_000, wait_ms=5)
    )

    assert script.lines == ["POST /v0/topics/jobs/claim"]
    assert script.bodies == [{"node": "w1", "max": 16, "lease_ms": 30_000, "wait_ms": 5}]
    one, two = answer.jobs
    assert (one.seq, one.ts_ms, one.node) == (480_101, 1_748_450_001_000, "web-1")
    assert (one.tag, one.data, one.meta) == (
        "tenant42:job-8800",
        {"url": "s3://b/x.png"},
        {"trace": "z9"},
    )
    assert (one.lease_id, one.deadline_ms, one.deliveries) == (
        "lease_7f3a9c",
        1_748_450_039_000,
        1,
    )
    assert (two.node, two.tag, two.meta, two.deliveries) == (None, None, None, 2)
    assert (answer.count, answer.ready) == (2, 840)


def test_what_is_not_said_is_the_queues(face: Any) -> None:
    """Without a lease or a wait of the caller's none is sent: the queue has its own. (§10.2)"""
    script = Script(claimed())

    answer = face(script).do(lambda c: c.claim("jobs", node="w1"))

    assert script.bodies == [{"node": "w1", "max": 1}]
    assert (answer.jobs, answer.count) == ([], 0)


def test_a_long_poll_has_time(face: Any) -> None:
    """The wait that was asked for comes on top of the timeout. (§10.2)"""
    seen: list[Any] = []

    def keep(request: httpx.Request) -> httpx.Response:
        seen.append(request.extensions["timeout"]["read"])
        return claimed()

    face(Script(keep), timeout_s=4).do(lambda c: c.claim("jobs", node="w", wait_ms=99_000))

    assert seen == [34.0]


@dataclass
class Resize:
    url: str


def test_job_types(face: Any) -> None:
    """Data come as the type that was asked for, or as the bytes that they are. (§0.3)"""
    typed = face(Script(claimed(ONE))).do(lambda c: c.claim("jobs", node="w", job_type=Job[Resize]))
    raw = face(Script(claimed(ONE))).do(
        lambda c: c.claim("jobs", node="w", job_type=Job[msgspec.Raw])
    )

    assert typed.jobs[0].data == Resize("s3://b/x.png")
    assert bytes(raw.jobs[0].data) == b'{"url":"s3://b/x.png"}'


def test_data_that_do_not_fit(face: Any) -> None:
    """A job of another type than was asked for is named; it comes again when its lease ends."""
    script = Script(claimed(ONE, {**TWO, "$seq": 4, "data": 1}))

    with pytest.raises(BadAnswer, match=r"record 4: .*\$\.claimed\[1\]") as raised:
        face(script).do(lambda c: c.claim("jobs", node="w", job_type=Job[Resize]))
    assert raised.value.detail == {"seq": 4}


def test_what_was_claimed_carries_its_leases(face: Any) -> None:
    """An ack, a nack and an extension of claimed jobs are fenced by their lease ids. (§10.4-§10.6)"""
    script = Script(
        claimed(ONE, TWO),
        ok({"topic": "jobs", "acked": 1, "skipped": [480_104], "ready": 8, "in_flight": 2}),
        ok({"topic": "jobs", "nacked": 1, "skipped": [], "ready": 9, "in_flight": 1}),
        ok({"topic": "jobs", "extended": 1, "skipped": [], "deadlines": {"480101": 99}}),
    )
    one, two = face(script).do(lambda c: c.claim("jobs", node="w", max=2)).jobs

    acked = face(script).do(lambda c: c.ack("jobs", [one, two], node="w"))
    nacked = face(script).do(lambda c: c.nack("jobs", two, node="w", delay_ms=7))
    extended = face(script).do(lambda c: c.extend("jobs", [one], node="w", lease_ms=60_000))

    assert script.lines[1:] == [f"POST /v0/topics/jobs/{do}" for do in ("ack", "nack", "extend")]
    ids = ["lease_7f3a9c", "lease_7f3a9d"]
    assert script.bodies[1:] == [
        {"node": "w", "seqs": [480_101, 480_104], "lease_ids": ids},
        {"node": "w", "delay_ms": 7, "seqs": [480_104], "lease_ids": ids[1:]},
        {"node": "w", "lease_ms": 60_000, "seqs": [480_101], "lease_ids": ids[:1]},
    ]
    assert (acked.acked, acked.skipped, acked.ready, acked.in_flight) == (1, [480_104], 8, 2)
    assert (nacked.nacked, nacked.skipped, nacked.ready, nacked.in_flight) == (1, [], 9, 1)
    assert (extended.extended, extended.deadlines_ms) == (1, {480_101: 99})


def test_bare_seqs(face: Any) -> None:
    """Seqs alone are matched by node; their lease ids may be given beside them. (§10.4)"""
    done = {"topic": "jobs", "acked": 1, "skipped": []}
    script = Script(ok(done), ok(done))

    face(script).do(lambda c: c.ack("jobs", 7, node="w"))
    face(script).do(lambda c: c.ack("jobs", [7, 8], node="w", lease_ids=["a", "b"]))

    assert script.bodies == [
        {"node": "w", "seqs": [7]},
        {"node": "w", "seqs": [7, 8], "lease_ids": ["a", "b"]},
    ]


def test_leases_of_another_number(face: Any) -> None:
    """A lease id for each job or for none: anything else is a mistake, and nothing is sent. (§10.4)"""
    script = Script(claimed(ONE))
    (one,) = face(script).do(lambda c: c.claim("jobs", node="w")).jobs

    for jobs, lease_ids in ([one, 7], None), ([7, 8], ["a"]):
        with pytest.raises(ValueError, match="1 lease ids for 2 jobs"):
            face(script).do(
                lambda c, jobs=jobs, ids=lease_ids: c.ack("jobs", jobs, node="w", lease_ids=ids)
            )
    assert len(script.requests) == 1


@pytest.mark.parametrize(
    ("use", "is_repeated"),
    [
        (lambda c: c.claim("jobs", node="w"), True),
        (lambda c: c.ack("jobs", 7, node="w"), True),
        (lambda c: c.extend("jobs", 7, node="w", lease_ms=1), True),
        (lambda c: c.nack("jobs", 7, node="w", lease_ids=["a"]), True),
        (lambda c: c.nack("jobs", 7, node="w"), False),
    ],
    ids=["claim", "ack", "extend", "fenced nack", "bare nack"],
)
def test_broken_connections(face: Any, use: Any, is_repeated: bool) -> None:
    """A call is sent again where that cannot take from the same node what it has claimed since."""
    done = {"topic": "jobs", "acked": 1, "nacked": 1, "extended": 1, "claimed": []}
    script = Script(BROKEN, ok(done))

    if is_repeated:
        face(script).do(use)
    else:
        with pytest.raises(Unreachable):
            face(script).do(use)

    assert len(script.requests) == 1 + is_repeated


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (error(404, "topic_not_found"), TopicNotFound),
        (error(409, "not_a_queue"), Conflict),
        (error(429, "throttled"), Throttled),
    ],
)
def test_refusals(face: Any, answer: Any, kind: type[Exception]) -> None:
    """A topic that is missing or no queue is told, never an empty claim. (§10)"""
    with pytest.raises(kind):
        face(Script(answer), retry=ONE_TRY).do(lambda c: c.claim("jobs", node="w"))


def test_where_a_queue_stands(face: Any) -> None:
    """A queue's state and its entry in the list tell where its jobs are; a log has neither. (§10.7)"""
    state = {"topic": "jobs", "head_seq": 9, "earliest_seq": 3, "count": 7, "bytes": 700}
    queue = {"ready": 3, "in_flight": 2, "delayed": 2, "dead_lettered": 1}
    full = {**state, "type": "queue", "next_seq": 10, "config": {"type": "queue"}, "queue": queue}
    script = Script(
        ok(full), ok({"topics": [{**state, "queue": queue}, {**state, "topic": "log"}]})
    )

    one = face(script).do(lambda c: c.topic("jobs"))
    jobs, log = face(script).do(lambda c: c.topics())

    assert (one.queue.ready, one.queue.in_flight, one.queue.delayed) == (3, 2, 2)
    assert (jobs.queue.dead_lettered, log.queue) == (1, None)
