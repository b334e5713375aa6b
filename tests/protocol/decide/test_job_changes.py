"""What an operator does with jobs: promote, retry, cancel (§10.9)."""

from typing import Any

import msgspec
import pytest

from protocol.durable import Durable
from protocol.harness import Harness
from protocol.workers import cold, held_by, queue
from topics.protocol.decide import job_changes
from topics.protocol.faces.http.jobs import parse_change
from topics.protocol.model.access import Caller
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.events import JobsReleased


def busy(engine: Harness | None = None, **config: object) -> Harness:
    """Job 1 held by "w", 2 and 3 delayed, 4 given back, 5 fresh; tags "a" and "b" in turn."""
    engine = queue(engine, **config)
    engine.append(*[{"data": n, "tag": "ab"[n % 2]} for n in range(5)], name="q")
    engine.claim(max=4)
    engine.nack(2, 3, delay_ms=5000, reason="later")
    engine.nack(4)
    return engine


def refusal(engine: Harness, *args: Any, **fields: object) -> ErrorCode:
    with pytest.raises(Rejection) as refused:
        engine.change(*args, **fields)
    return refused.value.code


def test_a_promoted_job_is_ready_and_not_first() -> None:
    """In its place among those that were delivered before; its deliveries count on. (§10.9)"""
    engine = busy()
    assert engine.change("promote", 3) == (1, 1)
    assert engine.counters() == (3, 1, 1)
    assert engine.claimed(max=9) == [3, 4, 5]
    assert held_by(engine).jobs[3].deliveries == 2


def test_a_job_that_is_ready_is_left_as_it_is() -> None:
    engine = busy()
    for action in ("promote", "retry"):
        assert engine.change(action, 5) == (1, 0)
    assert engine.change("promote", 4) == (1, 0)
    assert [job["deliveries"] for job in engine.jobs(state="ready")["jobs"]] == [1, 0]


def test_a_retried_job_has_not_failed() -> None:
    """It may be claimed now, and its deliveries count from none; why it failed is remembered. (§10.9)"""
    engine = busy()
    assert engine.change("retry", 2) == (1, 1)
    assert engine.change("retry", 4) == (1, 1)
    engine.claim(max=2)
    assert [held_by(engine).jobs[seq].deliveries for seq in (2, 4)] == [1, 1]
    [reason] = engine.job(2)["reasons"]
    assert reason["reason"] == "later"


def test_a_cancelled_job_is_gone() -> None:
    """Ready or delayed; nothing is kept of it. (§10.9)"""
    engine = busy(keep_done=10)
    assert engine.change("cancel", 2) == (1, 1)
    assert engine.change("cancel", 5) == (1, 1)
    assert refusal(engine, "cancel", 2) is ErrorCode.JOB_NOT_FOUND
    assert engine.counters() == (1, 1, 1)
    assert engine.jobs(state="done")["jobs"] == []


@pytest.mark.parametrize("action", ["promote", "retry", "cancel"])
def test_a_job_that_a_worker_holds_is_left_alone(action: str) -> None:
    """409 `leased`; of many it is passed over. (§10.9)"""
    engine = busy()
    assert refusal(engine, action, 1) is ErrorCode.LEASED
    engine.change(action, match="*")
    assert engine.counters()[1] == 1
    assert engine.ack(1)["acked"] == 1


@pytest.mark.parametrize("action", ["promote", "retry", "cancel"])
def test_a_rehearsal_changes_nothing(action: str) -> None:
    engine = busy()
    before = engine.jobs()
    assert engine.change(action, 2, dry_run=True) == (1, 1)
    assert engine.change(action, match="*", dry_run=True)[0] > 0
    assert engine.jobs() == before


def test_many_by_tag_and_state() -> None:
    """What matches and is of a state that the action is for. (§10.9)"""
    engine = busy()
    assert engine.change("promote", match="a") == (1, 1)
    assert engine.change("promote") == (1, 1)
    assert engine.counters() == (4, 1, 0)
    engine.claim(node="v")
    engine.nack(2, node="v", delay_ms=500)
    assert engine.change("retry", state="delayed") == (1, 1)
    assert engine.change("cancel", match="b", state="ready") == (2, 2)
    assert engine.change("cancel", state="delayed") == (0, 0)
    assert [job["seq"] for job in engine.jobs()["jobs"]] == [1, 3, 5]


def test_one_call_changes_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """`matched` says that there are more. (§10.9)"""
    monkeypatch.setattr(job_changes, "CHANGED_MAX", 3)
    engine = queue()
    engine.append(*range(10), name="q")
    engine.claim(max=8)
    engine.nack(*range(1, 9), delay_ms=1000)
    assert engine.change("promote") == (8, 3)
    assert engine.change("promote") == (5, 3)
    assert engine.change("cancel", match="*") == (0, 0)
    assert engine.change("cancel", state="ready") == (8, 3)


def test_jobs_are_changed_some_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a worker took between two turns is left alone; the answer tells of all. (§10.9)"""
    monkeypatch.setattr(job_changes, "TURN_MAX", 2)
    engine = queue()
    engine.append(*range(5), name="q")
    assert engine.change("cancel", state="ready") is None
    assert engine.claimed(max=1) == [3]
    engine.work_off()
    [answer] = engine.woken()
    assert (answer["matched"], answer["done"]) == (5, 4)
    assert [job["seq"] for job in engine.jobs()["jobs"]] == [3]


@pytest.mark.parametrize("known", [2, 250])
def test_a_search_takes_several_turns(known: int) -> None:
    """Among many runs; what was claimed meanwhile is left alone, at the end and not before. (§10.9)"""
    engine = Harness(segment_max_records=2)
    queue(engine)
    for _ in range(150):
        engine.append(1, 2, name="q")
        engine.seal_all()
    engine.claim(max=known)
    engine.nack(*range(1, known + 1), delay_ms=10**7)
    assert engine.change("cancel", state="ready") is None
    assert engine.claimed(max=1) == [known + 1]
    engine.work_off()
    [answer] = engine.woken()
    assert answer["matched"] in (300 - known, 299 - known)
    assert answer["done"] == 299 - known
    assert engine.counters() == (0, 1, known)


@pytest.mark.parametrize("lasting", [False, True])
def test_changes_outlive_a_crash(lasting: bool) -> None:
    """They are logged as acks are. (§10.1)"""
    engine: Any = busy(Durable(), leases_durable=lasting)
    engine.change("retry", 2)
    engine.change("promote", 3)
    engine.change("cancel", 4)
    engine = engine.kill()
    assert [job["seq"] for job in engine.jobs(state="delayed")["jobs"]] == []
    assert held_by(engine).jobs[2].deliveries == 0
    assert held_by(engine).jobs[3].deliveries == 1
    assert 4 not in [job["seq"] for job in engine.jobs()["jobs"]]
    assert any(isinstance(e, JobsReleased) for e in busy().events)


def dead(engine: Harness | None = None, **config: object) -> Harness:
    """Job 1 lies in "d" as letter 2, and job 2 is the queue's."""
    engine = queue(engine, dead_letter="d", keep_done=10, **config)
    engine.append("older", name="d")
    engine.append({"data": "x", "tag": "t"}, "y", name="q")
    engine.claim()
    engine.nack(1, dead=True, reason="bad")
    return engine


def test_a_dead_job_comes_back_as_a_new_one() -> None:
    """At the queue's end, as it was; what was kept of its end goes with it. (§10.9)"""
    engine = dead()
    assert engine.change("retry", 1, dry_run=True) == (1, 1)
    assert engine.change("retry", 1) == (1, 1)
    assert [r["data"] for r in engine.diff(name="d")["records"]] == ["older"]
    [back] = [r for r in engine.diff(name="q", include_tags=True)["records"] if r["$seq"] == 3]
    assert (back["data"], back["$tag"], "meta" in back) == ("x", "t", False)
    assert engine.jobs(state="dead")["jobs"] == []
    assert refusal(engine, "retry", 1) is ErrorCode.JOB_NOT_FOUND


def test_only_dead_jobs_come_back() -> None:
    """A job that was done does not, nor a job whose letter is gone, nor a job that never was. (§10.9)"""
    engine = dead()
    engine.claim()
    engine.ack(2)
    assert refusal(engine, "retry", 2) is ErrorCode.JOB_NOT_FOUND
    assert refusal(engine, "retry", 9) is ErrorCode.JOB_NOT_FOUND
    for action in ("promote", "cancel"):
        assert refusal(engine, action, 1) is ErrorCode.JOB_NOT_FOUND
    engine.delete("d", before_seq=3)
    assert engine.change("retry", 1) == (1, 0)
    engine.drop("d")
    assert refusal(engine, "retry", 1) is ErrorCode.TOPIC_NOT_FOUND


@pytest.mark.parametrize("meta", [None, {"$dead_letter_from": "q", "$dead_letter_src_seq": 2}])
def test_what_stands_in_place_of_a_letter_stays(meta: dict[str, object] | None) -> None:
    """The dead-letter topic was made anew, and has another record under the letter's number: no job comes back, and what is
    kept of the job stays. (§10.9, 134)"""
    engine = dead()
    engine.drop("d")
    engine.append("a", {"data": "b", "meta": meta}, name="d")
    for is_dry in (True, False):
        assert engine.change("retry", 1, dry_run=is_dry) == (1, 0)
    assert [record["data"] for record in engine.diff(name="d")["records"]] == ["a", "b"]
    assert [job["seq"] for job in engine.jobs(state="dead")["jobs"]] == [1]


def test_a_letter_outside_of_a_keys_prefixes_stays() -> None:
    """403, as for any name that the key may not touch; and no answer has that name. (§0.2)"""
    engine = dead()
    command = parse_change("q", "retry", "1", b"{}")
    with pytest.raises(Rejection) as refused:
        engine.ask(msgspec.structs.replace(command, caller=Caller("k", prefixes=("q",))))
    assert refused.value.code is ErrorCode.FORBIDDEN
    assert '"d"' not in refused.value.message


def test_a_letter_whose_text_is_cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both texts come from a disk: what is kept of the job, then the letter. (§10.9)"""
    engine = dead()
    engine.seal_all()
    with cold(monkeypatch):
        assert engine.change("retry", 1) is None
        engine.read_fetches()
        engine.read_fetches()
        engine.sync()
    [answer] = engine.woken()
    assert (answer["matched"], answer["done"]) == (1, 1)
    assert engine.counters() == (2, 0, 0)


def test_a_dead_job_that_is_refused_there_lives_again() -> None:
    """Retried before its letter could be written, it is an ordinary job. (§10.9)"""
    engine = Harness()
    engine.put("d", cap_records=1, discard="reject")
    engine.append("x", name="d")
    queue(engine, dead_letter="d")
    engine.append("y", name="q")
    engine.claim()
    engine.nack(1, dead=True)
    assert engine.counters() == (0, 0, 1)
    assert engine.change("retry", 1) == (1, 1)
    assert engine.claimed() == [1]


def test_a_damaged_job_may_be_tried_again_sooner() -> None:
    """Promoted, it is read anew at once. (§10.9)"""
    engine = busy()
    jobs = held_by(engine)
    jobs.spoil(jobs.jobs[4], engine.now_ms + 600_000)
    assert engine.counters() == (1, 1, 3)
    assert engine.change("promote", 4) == (1, 1)
    assert engine.counters() == (2, 1, 2)


def test_bodies() -> None:
    """A typo must not widen a destruction: unknown fields are 400, and `cancel` says which jobs. (§10.9)"""
    engine = busy()
    assert refusal(engine, "cancel") is ErrorCode.INVALID_REQUEST
    assert refusal(engine, "cancel", matsch="a") is ErrorCode.INVALID_REQUEST
    assert refusal(engine, "cancel", state="leased") is ErrorCode.INVALID_REQUEST
    assert refusal(engine, "promote", state="ready") is ErrorCode.INVALID_REQUEST
    assert refusal(engine, "cancel", 2, match="a") is ErrorCode.INVALID_REQUEST
    engine.room_bytes = 10
    assert refusal(engine, "promote", 2) is ErrorCode.THROTTLED
    assert refusal(engine, "cancel", 2) is ErrorCode.THROTTLED


def delayed(engine: Harness | None = None) -> Harness:
    """Jobs 1 and 2 may not be claimed yet, 3 may, 4 failed and rests."""
    engine = queue(engine)
    engine.append({"data": 4, "priority": 9}, name="q")
    engine.nack(*engine.claimed(), delay_ms=5000)
    for data in (1, 2):
        engine.append({"data": data, "delay_ms": 5000, "tag": "late"}, name="q")
    engine.append({"data": 3}, name="q")
    return engine


def test_a_job_that_nobody_had_may_be_promoted() -> None:
    """It is claimed in its place: by its priority, and behind those that were ready before. (§10.9)"""
    engine = delayed()
    assert engine.change("retry", 2) == (1, 0)
    engine.now_ms += 10
    assert engine.change("promote", 2) == (1, 1)
    assert engine.counters() == (2, 0, 2)
    assert engine.claimed(max=9) == [4, 2]
    assert held_by(engine).jobs[2].deliveries == 1


def test_jobs_that_nobody_had_are_among_many() -> None:
    """Promoted and cancelled as others that are delayed; not retried, as they did not fail. (§10.9)"""
    engine = delayed()
    assert engine.change("retry") == (1, 1)
    assert engine.change("promote", match="late", dry_run=True) == (2, 2)
    assert engine.change("cancel", state="ready") == (2, 2)
    assert engine.change("promote", match="late") == (2, 2)
    assert sorted(engine.claimed(max=9)) == [2, 3]
    assert engine.change("cancel", match="*") == (0, 0)


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_promotion_outlives_the_process(end: str) -> None:
    engine: Any = delayed(Durable())
    engine.change("promote", 2)
    engine.change("cancel", 3)
    engine = getattr(engine, end)()
    assert engine.counters() == (2, 0, 1)
    assert sorted(engine.claimed(max=9)) == [2, 4]
