"""Jobs: what is sent for each call, and what it makes of the answer (§10.4-§10.9)."""

from typing import Any

import httpx
import pytest

from topics.client import Conflict, Job, JobNotFound, Unreachable

from .script import ONE_TRY, Script, error, ok

ITEM = {
    **{"seq": 7, "state": "dead", "group": None, "priority": 0, "deliveries": 3, "ready_at": None},
    **{"node": "w1", "deadline": None, "progress": {"at": 1}, "result": None, "ended_at": 9},
    "reasons": [{"time": 5, "node": "w1", "reason": "broken"}],
    "dead_letter": {"topic": "jobs-dead", "seq": 4},
}
HELD = Job(seq=7, ts_ms=1, data=1, lease_id="lease_1", deadline_ms=2, deliveries=1)


def test_what_a_worker_says(face: Any) -> None:
    """What is not said is not sent: an old server is asked as ever. (§10.4-§10.6)"""
    answer = {"topic": "jobs", "acked": 1, "nacked": 1, "extended": 1}
    script = Script(*[ok(answer)] * 7)
    it = face(script)
    it.do(lambda c: c.ack("jobs", 7, node="w"))
    it.do(lambda c: c.ack("jobs", 7, node="w", result={"a": 1}))
    it.do(lambda c: c.ack("jobs", [7, 8], node="w", results={7: "x", 8: None}))
    it.do(lambda c: c.nack("jobs", 7, node="w"))
    it.do(lambda c: c.nack("jobs", 7, node="w", reason="why", dead=True))
    it.do(lambda c: c.extend("jobs", 7, node="w", lease_ms=5))
    it.do(lambda c: c.extend("jobs", 7, node="w", lease_ms=5, progress=0.5))

    named = {"node": "w", "seqs": [7]}
    assert script.bodies == [
        named,
        {**named, "result": {"a": 1}},
        {"node": "w", "seqs": [7, 8], "results": {"7": "x", "8": None}},
        named,
        {**named, "reason": "why", "dead": True},
        {**named, "lease_ms": 5},
        {**named, "lease_ms": 5, "progress": 0.5},
    ]


def test_all_pages_of_the_list(face: Any) -> None:
    """The list goes on at `next_after` until there is none. (§10.9)"""
    script = Script(
        ok({"topic": "jobs", "jobs": [ITEM], "next_after": 4}),
        ok({"topic": "jobs", "jobs": [], "next_after": 9}),
        ok({"topic": "jobs", "jobs": [{"seq": 8, "state": "dead"}], "next_after": None}),
    )

    one, two = face(script).do(lambda c: c.jobs("jobs", state="dead", page_size=1))

    assert script.lines == [
        "GET /v0/topics/jobs/jobs?state=dead&limit=1",
        "GET /v0/topics/jobs/jobs?state=dead&limit=1&after=4",
        "GET /v0/topics/jobs/jobs?state=dead&limit=1&after=9",
    ]
    assert (one.dead_letter.topic, one.dead_letter.seq, one.ended_at_ms) == ("jobs-dead", 4, 9)
    assert [(r.time_ms, r.node, r.reason) for r in one.reasons] == [(5, "w1", "broken")]
    assert (one.progress, two.seq, two.deliveries, two.reasons) == ({"at": 1}, 8, 0, [])


def test_one_job(face: Any) -> None:
    """As it is, or once it has ended. (§10.9)"""
    gone = error(404, "job_not_found", detail={"topic": "jobs", "seq": 9})
    script = Script(ok({"topic": "jobs", **ITEM}), ok({"topic": "jobs", **ITEM}), gone)
    it = face(script, retry=ONE_TRY)
    assert it.do(lambda c: c.job("jobs", 7)).state == "dead"
    assert it.do(lambda c: c.job("jobs", 7, wait_ms=5)).seq == 7
    with pytest.raises(JobNotFound):
        it.do(lambda c: c.job("jobs", 9))
    assert script.lines == [
        "GET /v0/topics/jobs/jobs/7",
        "GET /v0/topics/jobs/jobs/7?wait_ms=5",
        "GET /v0/topics/jobs/jobs/9",
    ]


@pytest.mark.parametrize("action", ["promote", "retry", "cancel"])
def test_changes(face: Any, action: str) -> None:
    """One job, or those that match; not repeated where the answer is lost. (§10.9)"""
    answer = ok({"topic": "jobs", "matched": 3, "done": 2})
    held = error(409, "leased")
    script = Script(answer, answer, held, httpx.ReadError("broken"))
    it = face(script, retry=ONE_TRY)
    one = it.do(lambda c: getattr(c, action)("jobs", 7, dry_run=True))
    it.do(lambda c: getattr(c, action)("jobs", match="a:*"))
    with pytest.raises(Conflict):
        it.do(lambda c: getattr(c, action)("jobs", 7))
    with pytest.raises(Unreachable):
        it.do(lambda c: getattr(c, action)("jobs", 7))
    with pytest.raises(ValueError, match="one job"):
        it.do(lambda c: getattr(c, action)("jobs", 7, match="a"))

    assert (one.matched, one.done) == (3, 2)
    path = "POST /v0/topics/jobs/jobs"
    assert script.lines[:2] == [f"{path}/7/{action}", f"{path}/{action}"]
    assert script.bodies[:2] == [{"dry_run": True}, {"match": "a:*"}]


def test_a_redrive(face: Any) -> None:
    """How many were moved, and whether there are more. (§10.6)"""
    answer = ok({"topic": "d", "to": "jobs", "moved": 2, "more": True})
    script = Script(answer, answer)
    found = face(script).do(lambda c: c.redrive("d", "jobs", match="a", max=2))
    assert script.lines == ["POST /v0/topics/d/redrive"]
    face(script).do(lambda c: c.redrive("d", "jobs", seqs=[4, 7]))
    assert script.bodies == [
        {"to": "jobs", "match": "a", "max": 2},
        {"to": "jobs", "seqs": [4, 7]},
    ]
    assert (found.moved, found.more) == (2, True)
