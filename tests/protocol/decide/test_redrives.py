"""Redrive: dead letters go back to a queue, each once (§10.6)."""

from typing import Any

import pytest

from protocol.durable import Durable
from protocol.harness import Harness
from protocol.workers import cold, queue
from topics.protocol.model.errors import Corrupt, DamagedRun, ErrorCode, Rejection
from topics.protocol.model.events import RecordsAppended, RecordsDeleted, Redriven
from topics.store.memory import MemoryStore
from topics.store.runs import SealedRun


def buried(*datas: object, engine: Harness | None = None, **letters: object) -> Harness:
    """Jobs that are dead letters now, in topic "d"."""
    engine = engine or Harness()
    engine.put("d", **letters)
    queue(engine, max_deliveries=1, dead_letter="d")
    engine.append(*datas, name="q")
    seqs = engine.claimed(max=1000)
    engine.nack(*seqs)
    assert engine.claimed(max=1000) == []
    return engine


def datas(engine: Harness, name: str) -> list[Any]:
    return [record["data"] for record in engine.diff(name=name)["records"]]


def refusal(engine: Harness, **fields: object) -> ErrorCode:
    with pytest.raises(Rejection) as refused:
        engine.redrive(**fields)  # type: ignore[arg-type]
    return refused.value.code


def test_a_letter_goes_back_as_it_was() -> None:
    """Node, tag, data and the client's `meta` are kept; what the server added stays behind, and a `meta`
    of nothing else goes.  One entry of the log has both ends. (§10.6)"""
    engine = Harness()
    engine.put("d")
    queue(engine, max_deliveries=1, dead_letter="d")
    record = b'{"data":{"x":1.0e5},"tag":"a","node":"n","meta":{"k":2.50}}'
    engine.append_raw(b'{"records":[%b,{"data":2}]}' % record, name="q")
    engine.nack(*engine.claimed(max=2))
    engine.claim(max=2)
    before = len(engine.events)

    answer = engine.redrive()

    assert answer == {"topic": "d", "to": "q", "moved": 2, "more": False}
    [event] = engine.events[before:]
    assert isinstance(event, RecordsAppended)
    assert isinstance(event.cause, Redriven)
    found = engine.diff(name="q", include_tags=True)["records"]
    for each in found:
        del each["$ts"]
    assert found == [
        {"$seq": 3, "$tag": "a", "$node": "n", "data": {"x": 1e5}, "meta": {"k": 2.5}},
        {"$seq": 4, "data": 2},
    ]
    text = b"".join(bytes(t) for run in engine.topic("q").runs for t in run.read([(0, 4)]) or ())
    assert b'{"x":1.0e5},"meta":{"k":2.50}}' in text
    assert engine.state("d")["count"] == 0
    assert engine.claimed(max=9) == [3, 4]
    assert engine.claim()["claimed"] == []


def test_keys_that_are_spelt_with_escapes_are_the_servers_too() -> None:
    """A key is what it says, however it is written; keys of the client's stay in their order. (§10.6)"""
    engine = Harness()
    queue(engine)
    engine.append_raw(
        b'{"records":[{"data":1,"meta":{"a":1,"\\u0024dead_letter_x":2,"b":3}},'
        b'{"data":2,"meta":{"\\u0061":1}},{"data":3,"meta":{"a":"$dead_letter_"}}]}',
        name="d",
    )

    assert engine.redrive()["moved"] == 3

    found = engine.diff(name="q")["records"]
    assert [each["meta"] for each in found] == [{"a": 1, "b": 3}, {"a": 1}, {"a": "$dead_letter_"}]


def test_some_of_them_the_oldest_first() -> None:
    """`match` and `max` choose; `more` says that others match; `dry_run` moves nothing. (§10.6)"""
    engine = buried(*[{"data": n, "tag": "ab"[n % 2]} for n in range(10)])

    assert engine.redrive(match="a", dry_run=True)["moved"] == 5
    assert engine.redrive(match="a", max=2, dry_run=True) == {
        **{"topic": "d", "to": "q", "moved": 2, "more": True},
    }
    assert datas(engine, "q") == []
    assert engine.redrive(match="a", max=2)["more"]
    assert datas(engine, "q") == [0, 2]
    assert engine.redrive(match="a", max=3) == {"topic": "d", "to": "q", "moved": 3, "more": False}
    assert datas(engine, "q") == [0, 2, 4, 6, 8]
    assert engine.redrive(match="c") == {"topic": "d", "to": "q", "moved": 0, "more": False}
    assert datas(engine, "d") == [1, 3, 5, 7, 9]


def test_what_others_hold_stays() -> None:
    """Where the letters are jobs of a queue, those that are leased or delayed are somebody's. (§10.6)"""
    engine = buried(*range(4), type="queue")
    assert engine.claimed("d", max=2) == [1, 2]
    engine.nack(2, name="d", delay_ms=5000)

    assert engine.redrive()["moved"] == 2
    assert datas(engine, "q") == [2, 3]
    engine.now_ms += 5000
    assert engine.redrive()["moved"] == 1
    assert engine.ack(1, name="d")["acked"] == 1
    assert engine.state("d")["count"] == 0


def test_a_waiting_worker_gets_what_came_back() -> None:
    """A claim that waits is answered by a redrive, as by an append. (§10.2)"""
    engine = buried("x")
    assert engine.claim(wait_ms=30_000) is None

    engine.redrive()
    engine.work_off()

    [answer] = engine.woken()
    assert [job["data"] for job in answer["claimed"]] == ["x"]


def test_text_that_a_disk_must_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer comes when the text has come; what has gone meanwhile does not move. (§10.6)"""
    engine = buried("a", "b")
    engine.seal_all()
    with cold(monkeypatch):
        assert engine.redrive() is None
        engine.delete("d", before_seq=2)
        engine.read_fetches()
        [again] = engine.engine.take_fetches()
        again.done(again.read())
        engine.sync()

    assert [each["moved"] for each in engine.woken()] == [1]
    assert datas(engine, "q") == ["b"]


@pytest.mark.parametrize("what", ["d", "q"])
def test_a_topic_that_goes_meanwhile(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Either end may be deleted while the text is read: 404, and nothing moved. (§10.6)"""
    engine = buried("a")
    engine.seal_all()
    with cold(monkeypatch):
        engine.redrive()
        engine.drop(what)
        engine.read_fetches()

    [refused] = engine.woken()
    assert refused.code is ErrorCode.TOPIC_NOT_FOUND


def test_text_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage is named and moves nothing, whether it is met at once or by a thread. (§0.5)"""
    engine = buried("a")
    engine.seal_all()
    for error in (DamagedRun(Corrupt("f", 1, "bad"), 1, 1), OSError(5, "no")):

        def broken(*_: object, error: Exception = error) -> Any:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(SealedRun, "read", broken)
            assert refusal(engine) is ErrorCode.INTERNAL
        with cold(monkeypatch), monkeypatch.context() as patch:
            patch.setattr(SealedRun, "read_blocking", broken)
            assert engine.redrive() is None
            engine.read_fetches()
        [refused] = engine.woken()
        assert refused.code is ErrorCode.INTERNAL
    assert datas(engine, "d") == ["a"]


def test_as_many_as_the_queue_takes() -> None:
    """A queue that is full takes what fits, and the rest stays; where none fits it is refused. (§10.6)"""
    engine = buried(*range(5))
    engine.put("q", type="queue", cap_records=2, discard="reject")

    assert engine.redrive() == {"topic": "d", "to": "q", "moved": 2, "more": True}
    assert refusal(engine) is ErrorCode.TOPIC_FULL
    assert datas(engine, "q") == [0, 1]
    assert datas(engine, "d") == [2, 3, 4]


def test_large_letters_move_a_part_at_a_time() -> None:
    """One call moves at most 8 MiB of text, or one letter. (§10.6)"""
    engine = Harness()
    queue(engine)
    for _ in range(10):
        engine.append("x" * 1_000_000, name="d")

    answer = engine.redrive()

    assert (answer["moved"], answer["more"]) == (8, True)
    assert engine.redrive()["moved"] == 2


def test_a_search_takes_several_turns() -> None:
    """Among many runs a turn looks at a bounded number; the answer comes at its end. (§5)"""
    engine = Harness(segment_max_records=2)
    queue(engine)
    for n in range(300):
        engine.append(n, n, name="d")
        engine.seal_all()
    engine.append({"data": "last", "tag": "z"}, name="d")
    engine.auto = False

    assert engine.redrive(match="z") is None
    engine.auto = True
    engine.work_off()

    assert [each["moved"] for each in engine.woken()] == [1]
    assert datas(engine, "q") == ["last"]


@pytest.mark.parametrize("source", ["ephemeral", "memory"])
@pytest.mark.parametrize("dest", ["ephemeral", "memory"])
def test_every_class_of_both_ends(source: str, dest: str) -> None:
    """Whatever the log holds of either end, a letter is in one of them. (§0.10)"""
    store = MemoryStore()
    engine = Harness(store=store)
    engine.put("d", durability=source)
    queue(engine, durability=dest)
    engine.append("a", "b", name="d")

    assert engine.redrive(max=1)["moved"] == 1

    assert (datas(engine, "d"), datas(engine, "q")) == (["b"], ["a"])
    deletes = [each for each in engine.events if isinstance(each, RecordsDeleted)]
    assert len(deletes) == (source == "memory" and dest == "ephemeral")


def test_letters_that_are_named() -> None:
    """These alone, each once, whatever the order in which they are named; those that are not there are left
    out. (§10.6)"""
    engine = buried("a", "b", "c", "d")

    assert engine.redrive(seqs=[9, 3, 1, 3, 2**64 - 1], dry_run=True)["moved"] == 2
    assert engine.redrive(seqs=[9, 3, 1, 3]) == {"topic": "d", "to": "q", "moved": 2, "more": False}

    assert (datas(engine, "d"), datas(engine, "q")) == (["b", "d"], ["a", "c"])
    assert engine.redrive(seqs=[1, 3])["moved"] == 0
    assert engine.redrive(seqs=[])["moved"] == 0
    assert refusal(engine, seqs=[2], max=1) is ErrorCode.INVALID_REQUEST
    assert refusal(engine, seqs=[2], match="a") is ErrorCode.INVALID_REQUEST
    assert refusal(engine, seqs=[*range(1001)]) is ErrorCode.INVALID_REQUEST


def test_letters_that_are_named_among_runs_on_the_disk() -> None:
    """What is needed of their runs is read from the disk first, some runs at a time. (§5)"""
    engine = Harness(segment_max_records=1)
    queue(engine)
    for n in range(40):
        engine.append(n, name="d")
        engine.seal_all()
    assert not any(run.is_warm for run in engine.topic("d").runs)
    engine.auto = False

    assert engine.redrive(seqs=[*range(1, 40, 2)]) is None
    engine.auto = True
    engine.work_off()

    assert [each["moved"] for each in engine.woken()] == [20]
    assert datas(engine, "q") == [*range(0, 40, 2)]


def test_refusals() -> None:
    """What is not there, is no queue, or has several partitions; a body that says more than is known.
    (§10.6)"""
    engine = buried("a")
    engine.put("several", partitions=2)
    assert refusal(engine, name="missing") is ErrorCode.TOPIC_NOT_FOUND
    assert refusal(engine, to="missing") is ErrorCode.TOPIC_NOT_FOUND
    assert refusal(engine, name="q", to="d") is ErrorCode.NOT_A_QUEUE
    assert refusal(engine, name="several") is ErrorCode.PARTITION_REQUIRED
    for fields in ({"to": "d"}, {"to": "#"}, {"more": 1}, {"match": [1]}):
        assert refusal(engine, **fields) is ErrorCode.INVALID_REQUEST
    engine.room_bytes = 10
    assert refusal(engine) is ErrorCode.THROTTLED
    assert datas(engine, "d") == ["a"]


@pytest.mark.parametrize("end", ["", "kill", "stop"])
def test_a_letter_has_its_group_again(end: str) -> None:
    """`meta.$group` is no part of the record that goes back: it is the job's group, also after a restart.
    (§10.6)"""
    engine: Any = Durable()
    engine.put("d")
    queue(engine, max_deliveries=1, dead_letter="d", order="group")
    engine.append(
        *({"data": n, "group": "g", "meta": {"k": n}} for n in range(2)),
        {"data": 2},
        name="q",
    )
    for _ in range(3):
        engine.nack(*engine.claimed(max=9))
    assert engine.claimed(max=9) == []
    assert [each["meta"].get("$group") for each in engine.diff(name="d")["records"]] == [
        "g",
        None,
        "g",
    ]
    engine.append_raw(
        b'{"records":[{"data":3,"meta":{"$group":7}},{"data":4,"meta":{"x":"$group"}}]}', "d"
    )

    assert engine.redrive()["moved"] == 5
    if end:
        engine = getattr(engine, end)()

    found = {job["seq"]: job["group"] for job in engine.jobs()["jobs"]}
    assert list(found.values()) == ["g", None, "g", None, None]
    metas = [each.get("meta") for each in engine.diff(name="q")["records"]]
    assert metas == [{"k": 0}, None, {"k": 1}, {"$group": 7}, {"x": "$group"}]
    first, second = (seq for seq, group in found.items() if group == "g")
    claimed = engine.claimed(max=9)
    assert first in claimed
    assert second not in claimed
