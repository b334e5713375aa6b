"""What became of jobs: results, and where dead letters lie (§10.9)."""

from typing import Any

import pytest

from protocol.durable import Durable
from protocol.harness import Harness
from protocol.workers import queue
from topics.protocol.commit.admission import Admission
from topics.protocol.faces.http.queues import parse_ack
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.events import RecordsAppended, RecordsDeleted, TopicCreated
from topics.protocol.model.limits import throttled
from topics.protocol.model.names import is_topic_name, partition_name
from topics.protocol.model.outcomes import Gate

DONE = "q#done"


def one(engine: Harness | None = None, jobs: int = 1, **config: object) -> Harness:
    """A queue whose jobs "w" holds."""
    engine = queue(engine, **config)
    engine.append(*range(jobs), name="q")
    engine.claim(max=jobs)
    return engine


def results(engine: Harness, **query: object) -> dict[int, Any]:
    return {job["seq"]: job["result"] for job in engine.jobs(state="done", **query)["jobs"]}


def test_a_result_is_kept_where_one_is_given() -> None:
    """For all of a call, or for each; without a config nothing else is kept. (§10.4, §10.9)"""
    engine = one(jobs=5)

    assert engine.ack(1, result={"x": 1.5})["acked"] == 1
    engine.ack(2, 3, results={"2": "two", "3": None})
    engine.ack(4, 5, results={"4": 4})

    assert results(engine) == {1: {"x": 1.5}, 2: "two", 3: None, 4: 4}
    assert engine.job(1)["node"] == "w"
    assert engine.counters() == (0, 0, 0)


def test_results_that_are_told_stand_before_that_of_all() -> None:
    engine = one(jobs=2)
    engine.ack(1, 2, result="all", results={"2": "own"})
    assert results(engine) == {1: "all", 2: "own"}


@pytest.mark.parametrize("config", [{"keep_done": 2}, {"result_ttl_ms": 10_000}])
def test_every_job_leaves_a_trace_where_the_config_says_so(config: dict[str, Any]) -> None:
    """As many as are kept, for as long as they are. (§10.9)"""
    engine = one(jobs=3, **config)
    engine.ack(1, 2, 3)

    kept = [2, 3] if "keep_done" in config else [1, 2, 3]
    assert results(engine) == dict.fromkeys(kept)
    engine.now_ms += 10_001
    assert list(results(engine)) == (kept if "keep_done" in config else [])
    engine.now_ms += 3_600_000
    assert results(engine) == {}


def test_nothing_is_kept_where_none_is_to_be() -> None:
    engine = one(keep_done=0)
    engine.ack(1, result=1)
    assert engine.jobs(state="done")["jobs"] == []
    assert DONE not in engine.engine.state.topics


def test_a_result_is_in_the_entry_of_the_ack() -> None:
    """One turn has both: neither is ever there without the other. (§10.4)"""
    engine = one()
    before = len(engine.events)
    engine.auto = False
    engine.ack(1, result=1)
    kinds = [type(event) for event in engine.events[before:]]
    assert kinds == [RecordsDeleted, TopicCreated, RecordsAppended]
    assert len(engine.engine.take_frames().parts) >= 3


@pytest.mark.parametrize("durability", ["memory", "disk", "fsync"])
@pytest.mark.parametrize("end", ["kill", "stop"])
@pytest.mark.parametrize("sealed", [False, True])
def test_results_outlive_the_process(durability: str, end: str, sealed: bool) -> None:
    """As the queue's own records do; later ones go on behind them. (§10.1)"""
    engine: Any = one(Durable(), jobs=3, durability=durability, keep_done=10)
    engine.nack(1, reason="first")
    engine.claim()
    engine.ack(1, result="x")
    if sealed:
        engine.seal_all()
    engine = getattr(engine, end)()

    assert results(engine) == {1: "x"}
    [reason] = engine.job(1)["reasons"]
    assert reason["reason"] == "first"
    engine.claim(max=9)
    engine.ack(2, 3)
    assert results(engine) == {1: "x", 2: None, 3: None}
    assert engine.topic(DONE).config == engine.stop().topic(DONE).config


def test_an_ephemeral_queue_keeps_results_as_it_keeps_jobs() -> None:
    """In memory only. (§0.10)"""
    engine: Any = one(Durable(), durability="ephemeral")
    engine.ack(1, result=1)
    assert results(engine) == {1: 1}
    assert results(engine.kill()) == {}


def test_no_client_can_name_what_is_kept_and_no_list_shows_it() -> None:
    """It is no topic to anybody but the queue's own routes. (§10.9)"""
    engine = one()
    engine.ack(1, result=1)

    assert DONE in engine.engine.state.topics
    assert [each["topic"] for each in engine.listing()["topics"]] == ["q"]
    assert engine.engine.topic_count == 1
    assert engine.state("q")["count"] == 0
    assert "partitions" not in engine.state("q")
    assert not is_topic_name(DONE)
    for number in (-1, 0, 999):
        assert partition_name("q", number) != DONE


def test_it_counts_as_no_topic_and_goes_with_its_queue() -> None:
    """A limit of topics counts those that clients made. (§11)"""
    engine = one(Harness(max_topics=2))
    engine.ack(1, result=1)
    engine.put("other")
    with pytest.raises(Rejection):
        engine.put("third")

    engine.drop("q")

    assert list(engine.engine.state.topics) == ["other"]
    assert engine.engine.state.done == {}
    one(engine)
    assert engine.jobs(state="done")["jobs"] == []


def test_a_config_holds_for_what_is_there() -> None:
    """Fewer are kept at once, and for as long as the new one says; another class is another promise. (§10.9)"""
    engine = one(jobs=5, keep_done=5, durability="fsync")
    engine.ack(*range(1, 6))
    engine.put("q", type="queue", keep_done=2, durability="fsync")
    assert list(results(engine)) == [4, 5]
    engine.put("q", type="queue", keep_done=2, result_ttl_ms=1000, durability="ephemeral")
    assert engine.topic(DONE).config.durability == "ephemeral"
    engine.put("q", type="queue", keep_done=2, result_ttl_ms=1000, durability="disk", lease_ms=5000)
    engine.now_ms += 1001
    assert results(engine) == {}
    engine.put("q", type="queue", keep_done=2, result_ttl_ms=1000, durability="disk")
    assert "result_ttl_ms" not in engine.put("log")["config"]


@pytest.mark.parametrize("before", [3, 1])
@pytest.mark.parametrize("how", ["live", "kill"])
def test_a_queue_that_is_to_keep_nothing_keeps_nothing(how: str, before: int) -> None:
    """Neither the last of what it kept, nor after a start. (§0.10, §10.9)"""
    engine: Any = one(Durable(), jobs=3, keep_done=before)
    engine.ack(1, 2, result="secret")
    engine.sync()
    assert len(results(engine)) == min(before, 2)
    engine.put("q", type="queue", keep_done=0)
    engine.put("q", type="queue", keep_done=0, lease_ms=5000)
    engine.sync()
    if how == "kill":
        engine = engine.kill()
    assert results(engine) == {}
    engine.put("q", type="queue", keep_done=before)
    engine.claim(max=1)
    engine.ack(3, result=1)
    engine.sync()
    assert list(results(engine)) == [3]


@pytest.mark.parametrize("given", [{"result": 1}, {}])
def test_an_ack_ends_a_job_whatever_its_trace_costs(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]
) -> None:
    """Where there is no room a result is refused, and nothing has changed; a trace of nothing is left out. (§11)"""
    engine = one(keep_done=10)

    def full(*_: object, **__: object) -> Any:
        raise throttled("max_hot_bytes", 1)

    monkeypatch.setattr(Admission, "batched", full)
    if given:
        with pytest.raises(Rejection):
            engine.ack(1, **given)
        assert engine.counters() == (0, 1, 0)
    else:
        assert engine.ack(1)["acked"] == 1
    assert engine.jobs(state="done")["jobs"] == []


def test_who_acks_with_a_result_finds_it() -> None:
    """The first one needs numbers of its own topic, so its answer waits for their sync. (§10.4)"""
    engine = one()
    gates = []
    ask = engine.ask

    def noted(command: Any) -> Any:
        found = ask(command)
        gates.append(getattr(found, "gate", None))
        return found

    engine.ask = noted  # type: ignore[method-assign]
    engine.ack(1, result=1)
    assert gates == [Gate.SYNCED]


@pytest.mark.parametrize(
    "fields",
    [
        {"results": {"2": 1}},
        {"results": {"x": 1}},
        {"results": {"1": "x" * (1 << 20)}},
        {"results": [1]},
    ],
)
def test_results_that_are_none(fields: dict[str, Any]) -> None:
    """Of jobs that the call does not name, or beyond a record's bounds: 400. (§10.4)"""
    engine = one()
    with pytest.raises(Rejection) as refused:
        engine.ack(1, **fields)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert engine.counters() == (0, 1, 0)


def test_one_result_for_many_jobs_is_bounded() -> None:
    """Each of them keeps it: a small body must not fill the log. (§10.4)"""
    engine = one(jobs=30)
    with pytest.raises(Rejection) as refused:
        engine.ack(*range(1, 31), result="x" * 300_000)
    assert refused.value.code is ErrorCode.BATCH_TOO_LARGE
    assert engine.ack(*range(1, 21), result="x" * 300_000)["acked"] == 20


def test_a_result_is_on_one_line() -> None:
    """Newlines between tokens are spaces, as in `data`. (§0.3)"""
    body = b'{"node":"w","seqs":[2],"result":{"a":\n\r[1]}}'
    found = parse_ack("q", body, Harness().limits)
    assert found.result == b'{"a":  [1]}'


def test_where_a_dead_letter_lies_is_kept_where_ends_are() -> None:
    """`state=dead` has its topic and number, and why; a queue that keeps nothing has none. (§10.9)"""
    engine = one(jobs=2, dead_letter="d", keep_done=5)
    engine.append("older", name="d")
    engine.nack(1, dead=True, reason="bad")
    [dead] = engine.jobs(state="dead")["jobs"]
    assert (dead["seq"], dead["state"]) == (1, "dead")
    assert dead["dead_letter"] == {"topic": "d", "seq": 2}
    assert [each["reason"] for each in dead["reasons"]] == ["bad"]
    assert dead["node"] == "w"
    engine.nack(2, dead=True)
    assert engine.job(2)["node"] is None
    assert engine.jobs(state="done")["jobs"] == []

    plain = one(dead_letter="d")
    plain.nack(1, dead=True)
    assert plain.jobs(state="dead")["jobs"] == []


def test_a_letter_goes_whether_its_trace_has_room_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job must end. (§10.6)"""
    engine = one(dead_letter="d", keep_done=5)

    def full(*_: object, **__: object) -> Any:
        raise throttled("max_hot_bytes", 1)

    monkeypatch.setattr(Admission, "batched", full)
    engine.nack(1, dead=True)
    assert engine.state("d")["count"] == 1
    assert engine.jobs(state="dead")["jobs"] == []
