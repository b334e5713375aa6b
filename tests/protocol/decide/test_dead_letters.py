"""Dead letters: jobs that were delivered too often, and where they go (§10.6)."""

from typing import Any

import msgspec
import pytest

from protocol.harness import START_MS, Harness, tagged
from protocol.workers import alarm, cold, parked, queue
from topics.protocol.commit.admission import FRAME_BYTES, Admission
from topics.protocol.decide.dead_letters import DAMAGED_REST_MS, MOVED_MAX
from topics.protocol.faces.http.topics import parse_put
from topics.protocol.model.access import ANYONE, Caller
from topics.protocol.model.codec import Frames
from topics.protocol.model.errors import Corrupt, DamagedRun, ErrorCode, Rejection
from topics.protocol.model.events import RecordsAppended
from topics.protocol.model.moment import Moment
from topics.protocol.state.state import State
from topics.store.memory import MemoryStore
from topics.store.runs import SealedRun


def exhausted(engine: Harness) -> None:
    """One job, sealed, delivered as often as it may be, its last lease just run out."""
    queue(engine, max_deliveries=1, dead_letter="d", lease_ms=1000)
    engine.append("x", name="q")
    engine.seal_all()
    engine.claim(node="w")
    engine.now_ms += 1001


def test_text_that_a_disk_must_be_asked_for_is_owed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job whose text is cold is dead-lettered as soon as it was read, without another command.
    (§10.6)"""
    engine = Harness()
    exhausted(engine)
    with cold(monkeypatch):
        assert engine.claimed(node="other") == []
        assert engine.counters() == (0, 0, 1)
        assert engine.engine.has_work()

        engine.work_off()

    assert engine.counters() == (0, 0, 0)
    assert engine.seqs(name="d") == [1]
    assert not engine.engine.has_work()


@pytest.mark.parametrize("call", ["ack", "nack", "delay", "extend"])
def test_the_holder_of_a_dying_job_may_still_speak(
    monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Until it has left the queue nobody else has claimed it: what its last holder says counts,
    and it leaves only if it is still on its way when its text has come. (§10.4-§10.6)"""
    engine = Harness()
    exhausted(engine)
    with cold(monkeypatch):
        assert engine.claimed(node="other") == []
        match call:
            case "ack":
                assert engine.ack(1)["acked"] == 1
            case "nack":
                assert engine.nack(1)["nacked"] == 1
            case "delay":
                assert engine.nack(1, delay_ms=500)["nacked"] == 1
            case "extend":
                assert engine.extend(1)["extended"] == 1
        expected = engine.counters()
        engine.work_off()

    known = {"ack": (0, 0, 0), "nack": (1, 0, 0), "delay": (0, 0, 1), "extend": (0, 1, 0)}
    assert engine.counters() == expected == known[call]
    assert "d" not in engine.engine.state.topics


def test_stamps_replace_what_was_there() -> None:
    """A job that was dead-lettered before, or whose `meta` says so in any spelling, has one stamp
    of each name: the last; all else of it is kept as it stands. (§10.6)"""
    engine = queue(max_deliveries=1, dead_letter="d")
    metas = (
        b'{"$dead_letter_from":"me","a":{"$dead_letter_from":1}}',
        b'{ "k" : [1, 2] , "$dead_letter_src_seq":{"x":"}"} }',
        b'{"\\u0024dead_letter_deliveries":7,"\\"":1.50}',
        b"{}",
        b"{ }",
    )
    records = b",".join(b'{"data":1,"meta":%b}' % meta for meta in metas)
    engine.append_raw(b'{"records":[%b,{"data":2}]}' % records, name="q")
    engine.claim(max=6)
    engine.nack(*range(1, 7))
    assert engine.claimed(max=6) == []

    found = engine.diff(name="d")["records"]
    kept = [{"a": {"$dead_letter_from": 1}}, {"k": [1, 2]}, {'"': 1.5}, {}, {}, {}]
    assert [record["meta"] for record in found] == [
        meta
        | {
            "$dead_letter_from": "q",
            "$dead_letter_deliveries": 1,
            "$dead_letter_src_seq": seq,
        }
        for seq, meta in enumerate(kept, 1)
    ]
    texts = b"".join(
        bytes(text) for run in engine.topic("d").runs for text in run.read([(0, 6)]) or ()
    )
    assert texts.count(b'dead_letter_from"') == 7
    assert texts.count(b'dead_letter_deliveries"') == 6
    assert b"1.50" in texts
    assert b'{"$dead_letter_from":1}' in texts


def test_who_waits_behind_many_dead_letters_is_served() -> None:
    """One look moves a bounded number of jobs; the next one follows without another event.
    (§10.2, §10.6)"""
    engine = queue()
    engine.append(*range(MOVED_MAX + 500), name="q")
    for _ in range(2):
        engine.claim(max=1000)
    engine.nack(*range(1, 1001))
    engine.nack(*range(1001, MOVED_MAX + 501))
    engine.append("good", name="q")
    engine.put("q", type="queue", max_deliveries=1, dead_letter="d")

    assert engine.claim(wait_ms=30_000) is None
    engine.work_off()

    (answer,) = engine.woken()
    assert [job["data"] for job in answer["claimed"]] == ["good"]
    assert engine.counters() == (0, 1, 0)
    assert engine.state("d")["count"] == MOVED_MAX + 500


def tried(engine: Harness, *seqs: int, name: str = "q") -> None:
    """Claimed and released once more."""
    engine.claim(name, max=1000)
    engine.nack(*seqs, name=name)


def test_a_job_that_failed_too_often_moves() -> None:
    """After `max_deliveries` claims the next one finds it elsewhere: node, tag and data kept,
    stamped with where it came from; gone from the queue, and counted. (§10.6)"""
    engine = queue(max_deliveries=2, dead_letter="d")
    engine.append({"data": {"a": 1.50}, "tag": "t", "node": "n", "meta": {"k": "v"}}, name="q")
    tried(engine, 1)
    tried(engine, 1)
    assert engine.counters() == (1, 0, 0)
    assert "d" not in engine.engine.state.topics

    assert engine.claimed() == []

    (dead,) = engine.diff(name="d", include_tags=True)["records"]
    assert dead == {
        "$seq": 1, "$ts": START_MS, "$node": "n", "$tag": "t", "data": {"a": 1.5},
        "meta": {
            "k": "v", "$dead_letter_from": "q", "$dead_letter_deliveries": 2,
            "$dead_letter_src_seq": 1,
        },
    }  # fmt: skip
    assert engine.diff(name="q")["records"] == []
    assert engine.diff(name="q")["tombstone"] is None
    state = engine.state("q")
    assert (state["count"], state["queue"]["dead_lettered"]) == (0, 1)


def test_without_an_end_jobs_come_back_for_ever() -> None:
    """No dead-letter topic, or no limit. (§10.6)"""
    for config in ({"max_deliveries": 1}, {"dead_letter": "d"}, {}):
        engine = queue(**config)
        engine.append("x", name="q")
        for _ in range(5):
            tried(engine, 1)
        assert engine.claim()["claimed"][0]["deliveries"] == 6


def refused_once(engine: Harness) -> None:
    """A job is exhausted, and its dead-letter topic has not taken it."""
    engine.append("x", "y", name="q")
    tried(engine, 1, 2)
    assert engine.claimed(max=2) == []
    assert engine.counters() == (0, 0, 2)


def test_a_dead_letter_that_is_refused_is_tried_again() -> None:
    """It stays in the queue, each time for longer, and moves as soon as it is taken; who could be
    taken is. (§10.6)"""
    engine = queue(max_deliveries=1, dead_letter="d")
    engine.put("d", discard="reject", cap_records=1)
    engine.append("full", name="d")
    refused_once(engine)
    waits = []
    for _ in range(9):
        parked(engine)
        before = engine.now_ms
        engine.now_ms = alarm(engine)
        engine.work_off()
        engine.engine.forget("q", engine.last_token)
        waits.append(engine.now_ms - before)
    assert waits == [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000]

    engine.put("d", discard="reject", cap_records=2)
    engine.now_ms += 5000
    assert engine.claimed() == []
    assert engine.counters() == (0, 0, 1)
    assert [r["data"] for r in engine.diff(name="d")["records"]] == ["full", "x"]
    assert engine.state("q")["queue"]["dead_lettered"] == 1


def test_a_job_without_a_key_holds_no_other_up() -> None:
    """Where dead letters go to a compacted topic, it stays in the queue and is tried again. (§2, §10.6)"""
    engine = queue(max_deliveries=1, dead_letter="d")
    engine.put("d", compact=True)
    engine.append(1, tagged("a", 2), {"data": 3, "key": "/w=="}, "four", name="q")
    tried(engine, 1, 2, 3, 4)

    assert engine.claimed(max=4) == []

    assert engine.datas(name="d") == [2, 3]
    engine.now_ms += 5000
    assert engine.claimed(max=4) == []
    assert engine.counters() == (0, 0, 2)
    engine.put("d")
    engine.now_ms += 5000
    assert engine.claimed(max=4) == []
    assert engine.datas(name="d") == [2, 3, 1, "four"]
    assert engine.counters() == (0, 0, 0)


@pytest.mark.parametrize("free", [0, 1, 3])
def test_a_full_dead_letter_topic_is_not_asked_for_every_job(
    monkeypatch: pytest.MonkeyPatch, free: int
) -> None:
    """What it refuses the smallest it refuses all: a queue of many such jobs holds up nobody. As
    many as it takes are moved, the first ones first. (§10.6)"""
    engine = queue(max_deliveries=1, dead_letter="d")
    engine.put("d", discard="reject", cap_records=1 + free)
    engine.append("full", name="d")
    engine.append(*range(500), name="q")
    engine.claim(max=500)
    engine.nack(*range(1, 501))
    asked, copied = list[int](), Admission.copied

    def noted(self: Admission, topic: Any, copies: Any, *args: Any, **named: Any) -> Any:
        asked.append(len(copies))
        return copied(self, topic, copies, *args, **named)

    monkeypatch.setattr(Admission, "copied", noted)

    assert engine.claimed(max=500) == []

    assert len(asked) < 50
    assert engine.datas(name="d")[1:] == list(range(free))
    assert engine.counters() == (0, 0, 500 - free)


@pytest.mark.parametrize("dest", ["disk", "ephemeral"])
def test_scattered_dead_letters_ask_the_log_for_all_of_their_room(dest: str) -> None:
    """Where each is between two that stay, what leaves the queue is a list as long as they are
    many; a log that has not the room refuses them, and is not written beyond it. (§10.6)"""
    engine = queue(max_deliveries=1, dead_letter="d")
    engine.put("d", durability=dest)
    engine.append(*[0] * 1000, name="q")
    engine.append(*[0] * 1000, name="q")
    engine.claim(max=1000)
    engine.claim(max=1000)
    engine.nack(*range(2, 1001, 2))
    engine.nack(*range(1002, 2001, 2))
    asked, require = list[int](), engine.engine.unit.require_writable

    def noted(moment: Moment, need: int = FRAME_BYTES, *, reserve: bool = False) -> None:
        asked.append(need)
        require(moment, need, reserve=reserve)

    engine.engine.unit.require_writable = noted  # type: ignore[method-assign]
    before = len(engine.events)

    engine.claim(max=1000)

    assert engine.state("q")["queue"]["dead_lettered"] == 1000
    assert Frames.of(engine.events[before:]).size_bytes <= max(asked)


def test_a_dead_letter_topic_that_may_not_be_made() -> None:
    """`auto_create: false` of the queue, and nothing there: the jobs wait until there is. (§10.6)"""
    engine = queue(max_deliveries=1, dead_letter="d", auto_create=False)
    refused_once(engine)
    assert "d" not in engine.engine.state.topics

    engine.put("d")
    engine.now_ms += 5000
    engine.claim()

    assert engine.seqs(name="d") == [1, 2]


def test_a_job_is_delivered_once_more_where_the_end_was_taken_away() -> None:
    """`dead_letter: null` lets those back that wait for it. (§10.6)"""
    engine = queue(max_deliveries=1, dead_letter="d", auto_create=False)
    refused_once(engine)
    engine.put("q", type="queue", max_deliveries=1)
    engine.now_ms += 5000

    found = engine.claim(max=2)["claimed"]

    assert [(job["$seq"], job["deliveries"]) for job in found] == [(1, 2), (2, 2)]


@pytest.mark.parametrize("dest", ["disk", "fsync", "memory", "ephemeral"])
@pytest.mark.parametrize("source", ["disk", "fsync", "memory", "ephemeral"])
def test_dead_letters_between_all_classes(source: str, dest: str) -> None:
    """The copy has the destination's class; the job is in exactly one of the two. (§0.10, §10.6)"""
    engine = queue(max_deliveries=1, dead_letter="d", durability=source)
    engine.put("d", durability=dest)
    engine.append("a", "b", "c", name="q")
    engine.claim(max=2)
    engine.nack(1, 2)
    assert engine.claimed(max=3) == [3]

    assert engine.seqs(name="d") == [1, 2]
    assert engine.seqs(name="q") == [3]
    assert engine.state("q")["queue"]["dead_lettered"] == 2
    moved = [e for e in engine.events if isinstance(e, RecordsAppended) and e.cause is not None]
    assert len(moved) == (dest != "ephemeral")
    assert engine.counters() == (0, 1, 0)


def test_a_dead_letter_topic_may_be_a_queue_of_its_own() -> None:
    """Whoever waits there is given the job. (§10.6)"""
    engine = queue(max_deliveries=1, dead_letter="d")
    queue(engine, "d")
    parked(engine, name="d", node="undertaker")
    engine.append("x", name="q")
    tried(engine, 1)
    assert engine.claimed() == []
    engine.work_off()

    (answer,) = engine.woken()
    assert answer["claimed"][0]["meta"]["$dead_letter_src_seq"] == 1
    assert engine.counters("d") == (0, 1, 0)


def test_cold_text_of_jobs_that_went_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """One was acked and one deleted while the disk was asked: the rest moves. (§10.6)"""
    engine = queue(max_deliveries=1, dead_letter="d", lease_ms=1000)
    engine.append(*[tagged(f"t{i}", i) for i in range(1, 5)], name="q")
    engine.seal_all()
    engine.claim(max=4)
    engine.now_ms += 1001
    with cold(monkeypatch):
        assert engine.claimed(node="other", max=9) == []
        engine.ack(2)
        engine.delete("q", match="t3")
        engine.work_off()

    assert [r["data"] for r in engine.diff(name="d")["records"]] == [1, 4]
    assert engine.counters() == (0, 0, 0)
    assert engine.state("q")["queue"]["dead_lettered"] == 2


def test_cold_text_of_a_queue_that_went(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left to move. (§1.4)"""
    engine = Harness()
    exhausted(engine)
    with cold(monkeypatch):
        engine.claim(node="other")
        engine.drop("q")
        engine.work_off()

    assert "d" not in engine.engine.state.topics


def test_cold_text_of_a_job_that_expired_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time took it while the disk was asked: it is told as lost, and is no dead letter besides.
    (§1.2, §3.3, §10.6)"""
    engine = queue(max_deliveries=1, dead_letter="d", lease_ms=1000, ttl_ms=1601)
    engine.append("old", name="q")
    engine.now_ms += 600
    engine.append("young", name="q")
    engine.seal_all()
    engine.claim(max=2)
    engine.now_ms += 1001
    with cold(monkeypatch):
        assert engine.claimed(node="other", max=9) == []
        engine.now_ms += 1
        engine.work_off()

    assert [r["data"] for r in engine.diff(name="d")["records"]] == ["young"]
    assert engine.diff(name="q")["tombstone"]["reason"] == "ttl"
    assert engine.state("q")["queue"]["dead_lettered"] == 1


def test_text_that_cannot_be_read_stays_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage keeps the job from moving; it is tried again, and later works. (§10.6)"""
    engine = Harness()
    exhausted(engine)

    def broken(run: SealedRun, spans: object) -> None:
        raise OSError(5, "Input/output error")

    with cold(monkeypatch), monkeypatch.context() as patch:
        patch.setattr(SealedRun, "read_blocking", broken)
        engine.claim(node="other")
        engine.work_off()
        assert engine.counters() == (0, 0, 1)
    assert engine.state("q")["queue"]["damaged"] == 1
    engine.now_ms += DAMAGED_REST_MS
    engine.claim(node="other")

    assert engine.seqs(name="d") == [1]


@pytest.mark.parametrize("is_cold", [True, False])
def test_a_dying_job_that_cannot_be_read_keeps_no_other(
    monkeypatch: pytest.MonkeyPatch, is_cold: bool
) -> None:
    """Damage to one of many that were delivered too often: the others move at once, it stays in the
    queue, and claims go on. (§10.6)"""
    engine = Harness()
    queue(engine, max_deliveries=1, dead_letter="d", lease_ms=1000)
    engine.append(*"abcde", name="q")
    engine.seal_all()
    engine.claim(node="w", max=5)
    engine.now_ms += 1001
    engine.append("f", name="q")
    whole = SealedRun.read_blocking

    def damaged(run: SealedRun, spans: list[tuple[int, int]]) -> list[Any]:
        if any(lo <= 2 < hi for lo, hi in spans):
            raise Corrupt("0000000001.seg", 4096, "a block of text does not verify")
        return whole(run, spans)

    with monkeypatch.context() as patch:
        patch.setattr(SealedRun, "read", (lambda *_: None) if is_cold else damaged)
        patch.setattr(SealedRun, "read_blocking", damaged)
        given = engine.claimed(node="other", max=9)
        engine.work_off()

        assert given == [6]
        assert engine.counters() == (0, 1, 1)
        assert [r["data"] for r in engine.diff(name="d")["records"]] == ["a", "b", "d", "e"]

    engine.now_ms += DAMAGED_REST_MS
    engine.claim(node="other")
    engine.work_off()
    assert [r["data"] for r in engine.diff(name="d")["records"]] == ["a", "b", "d", "e", "c", "f"]


def test_the_log_knows_what_had_expired_before_a_dead_letter() -> None:
    """The counters of the move leave expired records out.  A replay that found the expiry by the
    clock only behind it would count them out twice. (§0.10, §10.6)"""
    engine = queue(ttl_ms=1000, max_deliveries=1, dead_letter="d")
    engine.append("old", name="q")
    engine.now_ms += 900
    engine.append("new", "another", name="q")
    engine.claimed(max=2)
    engine.nack(1, 2)
    engine.now_ms += 200

    assert engine.claimed(max=1) == [3]
    assert engine.datas() == ["new"]
    replayed = State(engine.limits, MemoryStore())
    for event in engine.events:
        replayed.apply(event)
    topic = replayed.topics["q"]
    if (expired := topic.expired(engine.now_ms)) is not None:
        replayed.apply_expiry(topic, expired)

    assert (topic.count, topic.size_bytes) == topic.recount()
    assert topic.floors.ttl_through == 1


def test_a_damaged_run_keeps_its_own_jobs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says which seqs it concerns: they are passed over, and told once; the others move
    without a search. (§10.6)"""
    engine = Harness()
    queue(engine, max_deliveries=1, dead_letter="d", lease_ms=1000)
    engine.append(*["x" * 100] * 30, name="q")
    engine.seal_all()
    engine.append("small", name="q")
    engine.seal_all()
    assert [run.first_seq for run in engine.topic("q").runs] == [1, 31]
    engine.claim(max=31)
    engine.now_ms += 1001
    whole = SealedRun.read
    tries: list[int] = []
    told: list[str] = []
    engine.engine.queue_commands._dead_letters._report = told.append

    def damaged(run: SealedRun, spans: list[tuple[int, int]]) -> Any:
        tries.append(run.first_seq)
        if run.first_seq == 1:
            raise DamagedRun(Corrupt("0000000001.seg", 4096, "does not verify"), 1, 30)
        return whole(run, spans)

    with monkeypatch.context() as patch:
        patch.setattr(SealedRun, "read", damaged)
        assert engine.claimed(node="other", max=31) == []
        assert tries == [1, 31]
        assert engine.counters() == (0, 0, 30)
        assert len(engine.datas("d")) == 1
        engine.now_ms += DAMAGED_REST_MS
        assert engine.claimed(node="other", max=31) == []

    assert len(told) == 1
    assert told[0].startswith("jobs 1, 2, 3")
    engine.now_ms += DAMAGED_REST_MS
    engine.claimed(node="other", max=31)
    assert len(engine.datas("d")) == 31


def test_one_dead_letter_makes_the_topic_where_all_have_no_room() -> None:
    """The log has room for some of them: they are tried half by half, and the first that fits makes
    the dead-letter topic. (§10.6)"""
    engine = queue(max_deliveries=1, dead_letter="d")
    engine.append(*["x" * 3000] * 8, name="q")
    engine.claim(max=8)
    engine.nack(*range(1, 9))
    engine.auto = False
    engine.room_bytes = 20_000

    engine.claim(node="other")
    engine.sync()

    assert "d" in engine.engine.state.topics
    assert 0 < engine.state("d")["count"] < 8


def test_a_queue_that_lost_its_dead_letter_topic_keeps_the_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The setting was taken away while the text was read: the job may be claimed again. (§10.6)"""
    engine = Harness()
    exhausted(engine)
    with cold(monkeypatch):
        assert engine.claimed(node="other") == []
        engine.put("q", type="queue", lease_ms=1000)
        engine.work_off()

    assert "d" not in engine.engine.state.topics
    engine.now_ms += 60_000
    assert engine.claimed(node="other") == [1]


def ring(engine: Harness, *names: str) -> None:
    """Queues whose dead letters go round, as an older version let them in."""
    for name in names:
        queue(engine, name, max_deliveries=1)
    for name, letters in zip(names, [*names[1:], names[0]], strict=True):
        topic = engine.topic(name)
        config = msgspec.structs.replace(topic.config, dead_letter=letters)
        topic.configure(config)
        engine.engine.state.queues.configure(topic)


def cycle_of(engine: Harness, name: str, letters: str, caller: Caller = ANYONE) -> list[str]:
    config = msgspec.json.encode({"type": "queue", "dead_letter": letters})
    with pytest.raises(Rejection) as refused:
        engine.ask(msgspec.structs.replace(parse_put(name, config), caller=caller))
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert refused.value.detail is not None
    return list(refused.value.detail["cycle"])


def test_a_ring_of_dead_letters_is_refused() -> None:
    """The `PUT` that would close it is 400, whichever comes last, and `detail.cycle` has the names that its
    caller may see; what ends in a log, or elsewhere, is no ring. (§10.6)"""
    engine = queue(name="a", dead_letter="b")
    assert cycle_of(engine, "b", "a") == ["b", "a", "b"]
    queue(engine, "b", dead_letter="c")
    queue(engine, "d", dead_letter="a")
    queue(engine, "c")
    assert cycle_of(engine, "c", "a") == ["c", "a", "b", "c"]
    key = Caller("k", prefixes=("c", "a"))
    assert cycle_of(engine, "c", "a", key) == ["c", "a", "c"]
    engine.put("log", dead_letter="a")
    engine.put("c", type="queue", dead_letter="log")
    assert engine.state("c")["config"]["dead_letter"] == "log"


def test_an_append_makes_no_queue_that_closes_a_ring() -> None:
    """A config that comes with an append is judged as a `PUT`'s. (§2)"""
    engine = queue(name="a", dead_letter="b")
    config = {"type": "queue", "dead_letter": "a"}
    with pytest.raises(Rejection) as refused:
        engine.append(1, name="b", config=config)
    assert refused.value.detail == {"cycle": ["b", "a", "b"]}
    assert "b" not in engine.engine.state.topics


def test_a_ring_that_is_there_can_be_changed_otherwise_and_ends() -> None:
    """An older version let rings in: a job goes round for eight copies, and stays then. (§10.6)"""
    engine = Harness()
    ring(engine, "a", "b")
    engine.append("x", name="a")
    for turn in range(10):
        name = "ab"[turn % 2]
        claimed = engine.claimed(name)
        if not claimed:
            break
        engine.nack(*claimed, name=name)
        assert engine.claimed(name) == []

    assert turn == 9
    assert (engine.state("a")["count"], engine.state("b")["count"]) == (1, 0)
    assert engine.counters("a") == (0, 0, 1)
    changed = engine.put("a", type="queue", max_deliveries=1, dead_letter="b", ttl_ms=10**9)
    assert changed["config"]["ttl_ms"] == 10**9


def test_others_leave_a_ring_beside_the_job_that_may_not() -> None:
    """Of the jobs of one look, those that came less far move. (§10.6)"""
    engine = Harness()
    ring(engine, "a", "b")
    engine.append("old", name="a")
    for turn in range(8):
        name = "ab"[turn % 2]
        engine.nack(*engine.claimed(name), name=name)
        assert engine.claimed(name) == []
    engine.append("new", name="a")
    engine.nack(*engine.claimed("a", max=2), name="a")

    assert engine.claimed("a", max=2) == []

    assert [each["data"] for each in engine.diff(name="b")["records"]] == ["new"]
    assert [each["data"] for each in engine.diff(name="a")["records"]] == ["old"]


def test_a_queue_before_a_ring_is_not_in_it() -> None:
    """Its letters go round and never come back to it: it may be made. (§10.6)"""
    engine = Harness()
    ring(engine, "a", "b")
    assert engine.put("c", type="queue", max_deliveries=1, dead_letter="a")["created"]
    engine.append("x", name="c")
    engine.nack(*engine.claimed("c"), name="c")
    assert engine.claimed("c") == []
    assert engine.state("a")["count"] == 1


@pytest.mark.parametrize(
    "config", [{}, {"order": "group"}, {"fair": True}, {"group_max_in_flight": 2}]
)
def test_a_job_that_is_dead_is_given_to_no_worker(config: dict[str, Any]) -> None:
    """Whatever the order of claims: a dead-letter topic without room holds it up, and it is tried again. (§10.5)"""
    engine = queue(dead_letter="d", **config)
    engine.put("d", cap_records=1, discard="reject")
    engine.append("full", name="d")
    engine.append("bad", name="q")
    engine.claim()
    engine.nack(1, dead=True)

    for _ in range(8):
        engine.now_ms += 10_000
        assert engine.claim()["claimed"] == []
    engine.purge("d")
    engine.now_ms += 10_000
    assert engine.claim()["claimed"] == []
    assert engine.state("q")["queue"]["dead_lettered"] == 1
