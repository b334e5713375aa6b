"""What workers say of jobs: reasons, progress, that a job is dead (§10.5, §10.6)."""

import json
from typing import Any

import pytest

from protocol.durable import Durable
from protocol.harness import START_MS, Harness
from protocol.workers import cold, held_by, queue
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.events import JobNotes, JobsNoted, JobsReleased, RecordsAppended

CLASSES = ["ephemeral", "memory", "disk", "fsync"]


def notes(engine: Harness, seq: int = 1) -> JobNotes:
    found = held_by(engine).jobs[seq].notes
    assert found is not None
    return found


def reasons(engine: Harness, seq: int = 1) -> list[str]:
    return [each.reason for each in notes(engine, seq).reasons]


def letters(engine: Harness) -> list[Any]:
    return [record.get("meta") for record in engine.diff(name="d")["records"]]


def refusal(engine: Harness, **fields: object) -> Rejection:
    with pytest.raises(Rejection) as refused:
        engine.nack(1, **fields)
    return refused.value


def one(engine: Harness | None = None, **config: object) -> Harness:
    """A queue with one job, which "w" holds."""
    engine = queue(engine, **config)
    engine.append("a", name="q")
    engine.claim()
    return engine


def test_the_last_five_reasons_stay_with_a_job() -> None:
    """Each with its time and who gave the job back; a nack without one adds none. (§10.5)"""
    engine = one()
    for n in range(7):
        engine.now_ms += 10
        assert engine.nack(1, node="w", reason=f"reason {n}")["nacked"] == 1
        engine.claim()
    engine.nack(1)

    assert reasons(engine) == [f"reason {n}" for n in range(2, 7)]
    last = notes(engine).reasons[-1]
    assert (last.now_ms, last.node) == (START_MS + 70, "w")


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("x" * 1024, "x" * 1024),
        ("x" * 1025, "x" * 1024),
        ("é" * 600, "é" * 512),
        ("x" + "é" * 600, "x" + "é" * 511),
        ("🙂" * 300, "🙂" * 256),
    ],
)
def test_a_reason_is_cut_at_a_character(given: str, kept: str) -> None:
    """At most 1 KiB of UTF-8. (§10.5)"""
    engine = one()
    engine.nack(1, reason=given)
    assert reasons(engine) == [kept]


def test_a_nack_without_them_is_what_it_was() -> None:
    """No reason, no note: the same events as ever. (§10.5)"""
    engine = one(leases_durable=True)
    before = len(engine.events)
    engine.nack(1, reason=None, dead=False)
    assert [type(event) for event in engine.events[before:]] == [JobsReleased]
    assert held_by(engine).jobs[1].notes is None


def test_progress_is_the_last_that_was_said() -> None:
    """Any JSON, on one line; an extension without one keeps it. (§10.6)"""
    engine = one()
    engine.extend(1, progress={"done": 1})
    assert notes(engine).progress == b'{"done":1}'
    engine.extend(1)
    engine.extend(1, progress=None)
    assert notes(engine).progress == b'{"done":1}'
    engine.extend(1, progress=50)
    assert notes(engine).progress == b"50"
    with pytest.raises(Rejection):
        engine.extend(1, progress="x" * 1023)
    engine.extend(1, progress="x" * 1022)
    assert len(notes(engine).progress) == 1024


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("end", ["kill", "stop"])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_what_was_said_outlives_the_process(lasting: bool, end: str, checkpoint: bool) -> None:
    """Reasons, progress, a delay and the count of deliveries are logged as acks are, and are in
    checkpoints; whether leases last is another matter. (§10.1)"""
    engine: Any = one(Durable(), leases_durable=lasting)
    engine.append("b", "c", name="q")
    engine.extend(1, progress=[1])
    engine.nack(1, reason="first", delay_ms=5000)
    assert engine.claimed() == [2]
    if checkpoint:
        engine.drive(engine.schedule.round(checkpoint=True))

    engine = getattr(engine, end)()

    assert reasons(engine) == ["first"]
    assert notes(engine).progress == b"[1]"
    assert held_by(engine).jobs[1].deliveries == 1
    held = lasting or end == "stop"
    assert engine.counters() == ((1, 1, 1) if held else (2, 0, 1))
    engine.now_ms += 5000
    assert engine.claimed(max=9) == ([1, 3] if held else [1, 2, 3])
    assert held_by(engine).jobs[1].deliveries == 2


def test_progress_of_a_job_whose_lease_is_in_no_log() -> None:
    """After a crash nobody holds the job, and what was said of it is there. (§10.1)"""
    engine: Any = one(Durable())
    engine.extend(1, progress=[1])

    engine = engine.kill()

    assert notes(engine).progress == b"[1]"
    assert engine.counters() == (1, 0, 0)
    assert engine.claimed() == [1]
    assert engine.ack(1)["acked"] == 1


def test_reasons_go_with_the_letter() -> None:
    """`$dead_letter_reason` is the last one, `$dead_letter_errors` has all; without a reason neither is
    there. (§10.6)"""
    engine = queue(max_deliveries=2, dead_letter="d")
    engine.append("a", "b", name="q")
    for n in range(2):
        engine.claim(max=2)
        engine.nack(1, reason=f"é {n}")
        engine.nack(2)
        engine.now_ms += 1
    assert engine.claimed(max=2) == []

    with_reasons, plain = letters(engine)
    assert with_reasons["$dead_letter_reason"] == "é 1"
    assert with_reasons["$dead_letter_errors"] == [
        {"time": START_MS, "node": "w", "reason": "é 0"},
        {"time": START_MS + 1, "node": "w", "reason": "é 1"},
    ]
    assert sorted(plain) == [f"$dead_letter_{key}" for key in ("deliveries", "from", "src_seq")]


def test_a_letter_can_be_appended_again_whatever_it_says() -> None:
    """All that is added to a record's own meta is as long as can be: the names, a group, and reasons of which each
    character takes six bytes of JSON. (§2, 140)"""
    meta = {"own": "x"}
    size = len(json.dumps(meta, separators=(",", ":")))
    name, node = "n" * 255, "\x01" * 128
    engine = queue(Harness(max_meta_bytes=size, max_record_bytes=size + 1), name, dead_letter="d")
    engine.put("s")
    engine.route(name, "s", name, guarantee="exactly_once")
    record = {"data": 1, "meta": meta}
    engine.at_times(name, "s", every_ms=86_400_000, record=record)
    engine.pass_time(START_MS + 86_400_000)
    for _ in range(5):
        [seq] = engine.claimed(name, node)
        engine.nack(seq, name=name, node=node, reason="\x01" * 1024)
    [seq] = engine.claimed(name, node)
    engine.nack(seq, name=name, node=node, dead=True)

    [letter] = engine.diff(name="d")["records"]
    letter["meta"]["$group"] = "\x01" * 256  # as that of a job which came by no router
    assert len(letter["meta"]) == 10
    assert engine.append({"data": letter["data"], "meta": letter["meta"]}, name="e")["count"] == 1


def test_reasons_of_a_letter_are_bounded() -> None:
    """Text that JSON has to escape may take six times as much: older reasons are left out then. (§10.6)"""
    engine = one(max_deliveries=9, dead_letter="d")
    for n in range(5):
        engine.nack(1, reason=f"{n}" + "\1" * 1023, dead=n == 4)
        engine.claim()

    [meta] = letters(engine)
    assert [each["reason"][0] for each in meta["$dead_letter_errors"]] == ["4"]
    assert len(json.dumps(meta)) < 14_000


def test_a_job_that_a_worker_calls_dead_goes_at_once() -> None:
    """However often it was delivered, and without another claim; its reason goes with it. (§10.5)"""
    engine = one(dead_letter="d", max_deliveries=9)
    before = len(engine.events)

    answer = engine.nack(1, dead=True, reason="broken", delay_ms=5000)

    assert (answer["nacked"], answer["ready"], answer["in_flight"]) == (1, 0, 0)
    [meta] = letters(engine)
    assert meta["$dead_letter_reason"] == "broken"
    assert meta["$dead_letter_deliveries"] == 1
    assert engine.counters() == (0, 0, 0)
    assert engine.state("q")["queue"]["dead_lettered"] == 1
    kinds = [type(event) for event in engine.events[before:]]
    assert kinds[:2] == [JobsNoted, JobsReleased]
    assert kinds[-1] is RecordsAppended


def test_there_must_be_a_topic_for_dead_letters() -> None:
    """409 `no_dead_letter`, and the worker holds the job still. (§10.5)"""
    engine = one()
    assert refusal(engine, dead=True).code is ErrorCode.NO_DEAD_LETTER
    assert engine.counters() == (0, 1, 0)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_dead_job_is_dead_after_a_crash(
    monkeypatch: pytest.MonkeyPatch, checkpoint: bool
) -> None:
    """Its text was still to be read when the process was killed: it goes, and no worker gets it. (§10.5)"""
    engine: Any = one(Durable(dead_letter_after_ms=0), dead_letter="d")
    engine.seal_all()
    with cold(monkeypatch):
        engine.nack(1, dead=True, reason="broken")
        assert engine.counters() == (0, 0, 1)
        if checkpoint:
            engine.drive(engine.schedule.round(checkpoint=True))
        engine = engine.kill()

    engine.work_off()

    assert [meta["$dead_letter_reason"] for meta in letters(engine)] == ["broken"]
    assert engine.counters() == (0, 0, 0)


def test_a_letter_that_is_refused_is_tried_again() -> None:
    """The job waits as any dying one does, and goes when there is room. (§10.6)"""
    engine = Harness()
    engine.put("d", cap_records=1, discard="reject")
    engine.append("x", name="d")
    one(engine, dead_letter="d")

    assert engine.nack(1, dead=True)["nacked"] == 1
    assert engine.counters() == (0, 0, 1)
    engine.delete("d", before_seq=2)
    engine.now_ms += 10_000
    engine.work_off()

    assert engine.counters() == (0, 0, 0)
    assert engine.state("d")["count"] == 1


@pytest.mark.parametrize("priority", [0, 3])
def test_a_dead_job_whose_letter_is_refused_is_given_to_no_worker(priority: int) -> None:
    """Whether jobs of its queue have options or not. (§10.6)"""
    engine = Harness()
    engine.put("d", cap_records=1, discard="reject")
    engine.append("x", name="d")
    engine.put("q", type="queue", dead_letter="d", max_deliveries=9)
    engine.append({"data": 1, "priority": priority}, name="q")
    assert engine.claimed() == [1]
    engine.nack(1, dead=True)

    for _ in range(3):
        engine.now_ms += 10_000
        assert engine.claimed() == []
    assert engine.counters() == (0, 0, 1)


def test_a_dead_job_lives_on_where_letters_go_nowhere_any_more() -> None:
    """A queue whose `dead_letter` was taken away delivers it again, and it is an ordinary job then. (§10.6)"""
    engine = Harness()
    engine.put("d", cap_records=1, discard="reject")
    engine.append("x", name="d")
    one(engine, dead_letter="d")
    engine.nack(1, dead=True, reason="broken")
    engine.put("q", type="queue")
    engine.now_ms += 10_000

    assert engine.claimed() == [1]
    engine.put("q", type="queue", dead_letter="d")
    engine.nack(1)
    assert engine.claimed() == [1]
    assert reasons(engine) == ["broken"]


def test_notes_count_in_memory_and_are_given_back() -> None:
    """They are part of what the engine may hold; when the job ends, however it ends, they are not. (§11)"""
    engine = queue(dead_letter="d", max_deliveries=9)
    engine.append(*range(5), name="q")
    noted = engine.engine.state.queues.noted
    engine.claim(max=5)
    engine.nack(*range(1, 6), reason="x" * 1000)
    assert 5000 < noted.size_bytes < 8000
    assert noted.jobs == 5
    engine.claim(max=5)
    engine.ack(1)
    engine.nack(2, dead=True)
    engine.delete("q", before_seq=4)
    assert noted.size_bytes < 3500
    assert noted.jobs == 2
    engine.put("q", type="queue", cap_records=1)
    engine.now_ms += 40_000
    engine.append("new", name="q")
    engine.drop("q")
    assert noted.size_bytes == noted.jobs == 0


def test_notes_have_a_bound() -> None:
    """Beyond a quarter of it a reason is 429, and the job can be given back without one. (§11)"""
    engine = one(Harness(max_hot_bytes=4096))
    refused = refusal(engine, reason="x" * 1000)
    assert refused.code is ErrorCode.THROTTLED
    assert refused.detail == {"limit": "max_hot_bytes", "max": 4096}
    assert engine.nack(1)["nacked"] == 1


@pytest.mark.parametrize("durability", CLASSES)
def test_a_full_log_refuses_what_would_be_lost(durability: str) -> None:
    """Nothing has changed then. (§0.5)"""
    engine = one(durability=durability)
    engine.room_bytes = 100
    if durability == "ephemeral":
        assert engine.nack(1, reason="x")["nacked"] == 1
        return
    assert refusal(engine, reason="x").code is ErrorCode.THROTTLED
    with pytest.raises(Rejection):
        engine.extend(1, progress=1)
    assert held_by(engine).jobs[1].notes is None
    assert engine.counters() == (0, 1, 0)
