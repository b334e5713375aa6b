"""What may be seen of jobs: pages of them, and one of them, also after its end (§10.9)."""

from typing import Any

import msgspec
import pytest

from protocol.harness import START_MS, Harness, shown
from protocol.workers import cold, queue
from topics.protocol.decide import job_reads
from topics.protocol.faces.http.jobs import parse_get, parse_list
from topics.protocol.model.access import Caller
from topics.protocol.model.errors import Corrupt, DamagedRun, ErrorCode, Rejection
from topics.protocol.model.outcomes import Gate, JobShown
from topics.store.runs import SealedRun


def busy(**config: object) -> Harness:
    """Jobs 1 and 2 held by "w", 3 delayed, 4 given back, 5 and 6 fresh."""
    engine = queue(**config)
    engine.append(*range(6), name="q")
    engine.claim(max=4)
    engine.nack(3, delay_ms=5000, reason="later")
    engine.nack(4)
    return engine


def states(engine: Harness, **query: object) -> dict[int, str]:
    return {job["seq"]: job["state"] for job in engine.jobs(**query)["jobs"]}


def refusal(engine: Harness, *args: Any, **query: object) -> ErrorCode:
    with pytest.raises(Rejection) as refused:
        engine.job(*args, **query) if args else engine.jobs(**query)
    return refused.value.code


def test_an_item_says_where_a_job_is() -> None:
    """Every field is there; what a job has not is null. (§10.9)"""
    engine = busy()
    engine.extend(1, lease_ms=60_000, progress={"at": 1})
    plain = {
        **{"group": None, "priority": 0, "ready_at": None, "node": None, "deadline": None},
        **{"progress": None, "reasons": [], "result": None},
    }
    found = {job["seq"]: job for job in engine.jobs()["jobs"]}

    assert found[1] == {
        **plain,
        **{"seq": 1, "state": "leased", "deliveries": 1, "node": "w"},
        **{"deadline": START_MS + 60_000, "progress": {"at": 1}},
    }
    assert found[3] == {
        **plain,
        **{"seq": 3, "state": "delayed", "deliveries": 1, "ready_at": START_MS + 5000},
        "reasons": [{"time": START_MS, "node": "w", "reason": "later"}],
    }
    assert found[4] == {**plain, "seq": 4, "state": "ready", "deliveries": 1}
    assert found[5] == {**plain, "seq": 5, "state": "ready", "deliveries": 0}
    one = engine.job(3)
    assert one.pop("topic") == "q"
    assert one == found[3]


def test_pages_by_state() -> None:
    """Ascending, each job on one page; without a state all that are in the queue. (§10.9)"""
    engine = busy()
    assert states(engine, state="leased") == {1: "leased", 2: "leased"}
    assert states(engine, state="delayed") == {3: "delayed"}
    assert states(engine, state="ready") == dict.fromkeys((4, 5, 6), "ready")
    for state in (None, "ready", "leased", "delayed"):
        query = {} if state is None else {"state": state}
        whole, pages, after = list(states(engine, limit=1000, **query)), [], 0
        while True:
            page = engine.jobs(limit=1, after=after, **query)
            pages += [job["seq"] for job in page["jobs"]]
            after = page["next_after"]
            if after is None:
                break
        assert pages == whole
    engine.now_ms += 40_000
    assert set(states(engine).values()) == {"ready"}
    assert states(engine, group="a") == {}


def test_a_page_looks_at_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many jobs a page is short, or empty, and says where the next one goes on. (§10.9)"""
    monkeypatch.setattr(job_reads, "LOOKED_MAX", 4)
    engine = queue()
    engine.append(*range(10), name="q")
    engine.claim(max=6)
    engine.delete("q", before_seq=2)

    page = engine.jobs(state="ready")
    assert (page["jobs"], page["next_after"]) == ([], 5)
    page = engine.jobs(state="ready", after=5)
    assert ([job["seq"] for job in page["jobs"]], page["next_after"]) == ([7, 8, 9], 9)
    assert [job["seq"] for job in engine.jobs(state="leased", after=1)["jobs"]] == [2, 3, 4, 5]
    assert engine.jobs(after=9)["next_after"] is None


def test_ended_jobs_are_listed_as_they_ended() -> None:
    """In that order; pages go on behind a place in it; one state at a time. (§10.9)"""
    engine = busy(keep_done=100, dead_letter="d")
    engine.ack(2, result="two")
    engine.nack(1, dead=True)
    engine.claim(max=9)
    engine.ack(6, 4)

    done = engine.jobs(state="done")
    assert [job["seq"] for job in done["jobs"]] == [2, 4, 6]
    assert [job["ended_at"] for job in done["jobs"]] == [START_MS] * 3
    assert done["next_after"] is None
    assert states(engine, state="dead") == {1: "dead"}
    seen, after = [], 0
    while after is not None:
        page = engine.jobs(state="done", limit=1, after=after)
        seen += [job["seq"] for job in page["jobs"]]
        after = page["next_after"]
    assert seen == [2, 4, 6]
    assert states(engine, state="done", after=10**6) == {}


def test_a_page_of_results_is_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """By bytes, and by records; it goes on behind the last that was looked at. (§10.9)"""
    engine = queue(keep_done=100)
    engine.append(*range(20), name="q")
    engine.claim(max=20)
    for first in (1, 11):
        engine.ack(*range(first, first + 10), result="x" * 500_000)
    page = engine.jobs(state="done")
    assert (len(page["jobs"]), page["next_after"]) == (16, 16)
    assert len(engine.jobs(state="done", after=16)["jobs"]) == 4
    monkeypatch.setattr(job_reads, "ENDED_MAX", 2)
    page = engine.jobs(state="dead")
    assert (page["jobs"], page["next_after"]) == ([], 2)


def test_a_letter_outside_of_a_keys_prefixes_is_not_shown() -> None:
    """No answer has a name that its key may not touch. (§0.2)"""
    engine = busy(keep_done=100, dead_letter="d")
    engine.nack(1, dead=True)
    key = Caller("k", prefixes=("q",))
    for command in (parse_list("q", {"state": "dead"}), parse_get("q", "1", {})):
        answer: Any = shown(engine.ask(msgspec.structs.replace(command, caller=key)))
        [job] = answer.get("jobs", [answer])
        assert (job["state"], "dead_letter" in job) == ("dead", False)


def test_one_job_after_its_end() -> None:
    """Done or dead it is found by its number, among whatever ended besides; else 404. (§10.9)"""
    engine = busy(keep_done=100, dead_letter="d")
    engine.ack(2, result=[2])
    engine.seal_all()
    engine.nack(1, dead=True)

    assert (engine.job(2)["state"], engine.job(2)["result"]) == ("done", [2])
    assert engine.job(1)["dead_letter"] == {"topic": "d", "seq": 1}
    engine.delete("q", before_seq=4)
    for seq in (3, 99):
        assert refusal(engine, seq) is ErrorCode.JOB_NOT_FOUND
    for text in ("0", "x", "²", "9" * 21, ""):
        with pytest.raises(Rejection) as refused:
            parse_get("q", text, {})
        assert refused.value.code is ErrorCode.JOB_NOT_FOUND
    assert refusal(queue(), 1) is ErrorCode.JOB_NOT_FOUND


def test_refusals() -> None:
    """What is no queue, or not there; a state that is none. (§10.9)"""
    engine = busy()
    engine.put("log")
    assert refusal(engine, name="log") is ErrorCode.NOT_A_QUEUE
    assert refusal(engine, 1, name="missing") is ErrorCode.TOPIC_NOT_FOUND
    assert refusal(engine, state="lost") is ErrorCode.INVALID_REQUEST


def test_a_client_waits_for_the_end_of_a_job() -> None:
    """The answer comes with the ack that ends it, its result in it, and not before the write; others wait on.
    (§10.9)"""
    engine = busy()
    assert engine.job(1, wait_ms=5000) is None
    assert engine.job(2, wait_ms=5000) is None
    engine.ack(1, result="done")
    engine.append("x", name="q")
    engine.work_off()

    [answer] = engine.woken()
    assert (answer["seq"], answer["state"], answer["result"]) == (1, "done", "done")
    engine.work_off()
    assert engine.woken() == []
    engine.delete("q", before_seq=3)
    engine.work_off()
    [refused] = engine.woken()
    assert refused.code is ErrorCode.JOB_NOT_FOUND


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_the_end_of_a_job_is_told_when_it_is_durable(durability: str) -> None:
    """A result that is on its way to the log waits for it. (§0.10)"""
    engine = busy(durability=durability)
    engine.ack(2, result=0)
    engine.auto = False
    engine.job(1, wait_ms=5000)
    engine.ack(1, result=1)
    engine.engine.work_off(engine.moment)
    [wake] = engine.engine.take_wakes()
    assert isinstance(wake.result, JobShown)
    assert wake.result.gate is (Gate.SYNCED if durability == "fsync" else Gate.WRITTEN)


def test_when_the_time_is_over_the_job_is_shown_as_it_is() -> None:
    """As it is then; and for a client that is gone nobody answers. (§10.9)"""
    engine = busy()
    engine.job(1, wait_ms=5000)
    token = engine.last_token
    engine.job(3, wait_ms=5000)
    gone = engine.last_token
    engine.engine.forget("q", gone)
    engine.now_ms += 40_000
    engine.engine.advance(engine.now_ms)
    engine.engine.timeout("q", token)
    engine.engine.timeout("q", gone)
    [answer] = engine.woken()
    assert (answer["seq"], answer["state"]) == (1, "ready")


def test_a_job_that_goes_by_its_age_ends_the_wait() -> None:
    """Nothing else happens in the queue then, so the engine asks to be rung. (§10.9)"""
    engine = busy(ttl_ms=3000)
    for wait_ms in (1000, 30_000):
        assert engine.job(4, wait_ms=wait_ms) is None
    first = engine.last_token - 1
    engine.now_ms += 1000
    engine.engine.timeout("q", first)
    [shown] = engine.woken()
    assert shown["state"] == "ready"

    gone_ms = START_MS + 3001
    while engine.now_ms < gone_ms:
        alarm_ms = engine.engine.alarm_ms()
        assert alarm_ms is not None
        assert engine.now_ms < alarm_ms <= gone_ms
        engine.now_ms = alarm_ms
        engine.engine.work_off(engine.moment)
    [refused] = engine.woken()
    assert refused.code is ErrorCode.JOB_NOT_FOUND
    assert engine.engine.alarm_ms() is None


def test_a_shorter_ttl_ends_the_wait_sooner() -> None:
    """Also of a job that had no age to go by when the client began to wait; one that is gone by then is told of at
    once. (§10.9, §1.1)"""
    engine = busy()
    for seq in (4, 3):
        assert engine.job(seq, wait_ms=30_000) is None
    engine.delete("q", before_seq=4)
    engine.put("q", type="queue", ttl_ms=3000)
    engine.engine.work_off(engine.moment)
    [gone] = engine.woken()
    engine.now_ms = START_MS + 3000
    engine.engine.work_off(engine.moment)
    assert engine.engine.alarm_ms() == START_MS + 3001
    engine.now_ms += 1
    engine.engine.work_off(engine.moment)
    [expired] = engine.woken()
    assert gone.code is expired.code is ErrorCode.JOB_NOT_FOUND


def test_who_waits_is_answered_when_the_server_stops_or_the_queue_goes() -> None:
    """With the job as it is; or 404. (§10.9)"""
    engine = busy()
    engine.job(1, wait_ms=5000)
    engine.engine.job_reads.release_all()
    [answer] = engine.woken()
    assert answer["state"] == "leased"
    engine.job(1, wait_ms=5000)
    engine.drop("q")
    [refused] = engine.woken()
    assert refused.code is ErrorCode.TOPIC_NOT_FOUND


def test_text_that_a_disk_must_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers come when it has come, and damage is named. (§0.5)"""
    engine = busy()
    engine.ack(1, result="cold")
    engine.seal_all()
    with cold(monkeypatch):
        assert engine.job(1) is None
        engine.read_fetches()
        [answer] = engine.woken()
        assert answer["result"] == "cold"
        assert engine.jobs(state="done") is None
        engine.read_fetches()
        [page] = engine.woken()
        assert [job["result"] for job in page["jobs"]] == ["cold"]
    for error in (DamagedRun(Corrupt("f", 1, "bad"), 1, 1), OSError(5, "no")):

        def broken(*_: object, error: Exception = error) -> Any:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(SealedRun, "read", broken)
            assert refusal(engine, 1) is ErrorCode.INTERNAL
        with cold(monkeypatch), monkeypatch.context() as patch:
            patch.setattr(SealedRun, "read_blocking", broken)
            assert engine.job(1) is None
            engine.read_fetches()
        [refused] = engine.woken()
        assert refused.code is ErrorCode.INTERNAL


def test_the_search_for_an_ended_job_takes_several_turns() -> None:
    """Among many runs a turn looks at a bounded number. (§5)"""
    engine = Harness(segment_max_records=2)
    queue(engine, keep_done=10_000)
    engine.append(*range(600), name="q")
    engine.claim(max=600)
    for first in range(1, 601, 2):
        engine.ack(first, first + 1)
        if first % 40 == 1:
            engine.seal_all()
    engine.seal_all()

    found = engine.job(1)
    if found is None:
        engine.work_off()
        [found] = engine.woken()
    assert found["state"] == "done"


def test_options_of_jobs_are_shown() -> None:
    """Their group and priority; and a job that may not be claimed yet is delayed, though nobody had it.
    (§10.9)"""
    engine = queue()
    engine.append(
        {"data": 1, "priority": 5, "group": "g"},
        {"data": 2, "delay_ms": 5000, "group": "h"},
        {"data": 3, "group": "g"},
        name="q",
    )
    engine.claim()
    found = {job["seq"]: job for job in engine.jobs()["jobs"]}
    assert [(job["state"], job["group"], job["priority"]) for job in found.values()] == [
        ("leased", "g", 5),
        ("delayed", "h", 0),
        ("ready", "g", 0),
    ]
    assert found[2]["ready_at"] == START_MS + 5000
    assert states(engine, state="delayed") == {2: "delayed"}
    assert states(engine, group="g") == {1: "leased", 3: "ready"}
    engine.now_ms += 5000
    assert engine.job(2)["state"] == "ready"


def test_who_waits_may_find_what_is_damaged_or_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said when the job ends, and when the time is over. (§0.5)"""
    engine = busy()
    engine.ack(2, result=2)
    engine.seal_all()
    engine.job(1, wait_ms=5000)
    token = engine.last_token
    engine.ack(1, result=1)
    engine.seal_all()

    def broken(*_: object) -> Any:
        raise DamagedRun(Corrupt("f", 1, "bad"), 1, 1)

    with monkeypatch.context() as patch:
        patch.setattr(job_reads, "search_ended", broken)
        engine.engine.timeout("q", token)
    [refused] = engine.woken()
    assert refused.code is ErrorCode.INTERNAL
    with cold(monkeypatch):
        engine.engine.job_reads._answer(engine.topic("q"), parse_get("q", "1", {}), "t")
        assert engine.woken() == []
        engine.read_fetches()


@pytest.mark.parametrize("config", [{}, {"order": "group"}, {"fair": True}])
def test_a_job_without_a_group_is_in_that_of_its_tag(config: dict[str, Any]) -> None:
    """In its queue and after its end, whether claims go by groups or not. (§10.2, §10.9)"""
    engine = queue(keep_done=9, dead_letter="d", **config)
    engine.append(
        {"data": 1, "tag": "acme"},
        {"data": 2, "tag": "other", "group": "acme", "priority": 3},
        {"data": 3, "tag": "acme", "group": "other"},
        {"data": 4},
        {"data": 5, "tag": "acme"},
        name="q",
    )

    assert list(states(engine, group="acme")) == [1, 2, 5]
    assert list(states(engine, group="other")) == [3]
    assert [job["group"] for job in engine.jobs()["jobs"]] == [
        *("acme", "acme", "other"),
        None,
        "acme",
    ]
    assert engine.job(1)["group"] == "acme"
    while held := [job["$seq"] for job in engine.claim(max=9)["claimed"]]:
        engine.ack(*[seq for seq in held if seq != 5])
        engine.nack(*[seq for seq in held if seq == 5], dead=True)

    assert set(states(engine, group="acme", state="done")) == {1, 2}
    assert list(states(engine, group="other", state="done")) == [3]
    assert list(states(engine, group="acme", state="dead")) == [5]
    assert [engine.job(seq)["group"] for seq in (2, 3, 4)] == ["acme", "other", None]
    assert [engine.job(seq)["priority"] for seq in (2, 3)] == [3, 0]


def test_tags_on_a_disk_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of jobs in sealed records comes when their tags were read. (§10.9)"""
    engine = queue()
    engine.append({"data": 1, "tag": "acme"}, {"data": 2}, name="q")
    engine.seal_all()
    with cold(monkeypatch):
        warm = set[int]()
        monkeypatch.setattr(SealedRun, "is_warm", property(lambda run: run.first_seq in warm))
        monkeypatch.setattr(SealedRun, "warm", lambda run: warm.add(run.first_seq))
        assert engine.jobs(group="acme") is None
        engine.read_fetches()
        engine.work_off()
        [page] = engine.woken()

    assert [job["seq"] for job in page["jobs"]] == [1]


def test_a_queue_that_is_deleted_with_a_job_that_just_ended() -> None:
    """A client that waited is refused once, though its job had ended before. (§10.9)"""
    engine = queue()
    engine.append("a", name="q")
    engine.claim()
    assert engine.job(1, wait_ms=5000) is None
    engine.ack(1)
    engine.drop("q")
    engine.work_off()
    [refused] = engine.woken()
    assert isinstance(refused, Rejection)
    assert not engine.engine.has_work()
