"""A delete with `erase` takes what is kept of jobs that ended (§5, §10.9)."""

from typing import Any

import orjson
import pytest

from protocol.harness import Harness
from protocol.workers import queue
from topics.protocol.decide import ended_erasure
from topics.protocol.faces.http.records import parse_delete
from topics.protocol.model.errors import Corrupt, DamagedRun, ErrorCode, Rejection
from topics.protocol.model.outcomes import Deleted, Gate, Parked
from topics.store.runs import SealedRun


def ended(**config: object) -> Harness:
    """Jobs 1 to 4, of "acme", "acme", "other" and nobody, were done, 5 is dead; 6, of "acme", waits."""
    engine = queue(keep_done=100, dead_letter="d", **config)
    tags = ("acme", "acme", "other", None, "acme", "acme")
    engine.append(
        *({"data": n} if tag is None else {"data": n, "tag": tag} for n, tag in enumerate(tags)),
        name="q",
    )
    engine.claim(max=5)
    engine.ack(1, 2, 3, 4, result="what came of it")
    engine.nack(5, reason="why", dead=True)
    return engine


def kept(engine: Harness) -> list[int]:
    return [job["seq"] for state in ("done", "dead") for job in engine.jobs(state=state)["jobs"]]


def begin(engine: Harness, **fields: object) -> None:
    """A delete, which waits for texts."""
    command = parse_delete("q", orjson.dumps({"erase": True, **fields}))
    assert isinstance(engine.ask(command), Parked)


def erased(engine: Harness, **fields: object) -> Any:
    """Its answer."""
    begin(engine, **fields)
    while not (answers := engine.woken()):
        engine.read_fetches()
    [answer] = answers
    return answer


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize(
    ("fields", "deleted", "left"),
    [
        ({"match": "acme"}, 1, [3, 4]),
        ({"match": "ac*"}, 1, [3, 4]),
        ({"match": "*"}, 1, [4]),
        ({"match": "nobody"}, 0, [1, 2, 3, 4, 5]),
        ({"before_seq": 3}, 0, [3, 4, 5]),
        ({"before_seq": 99}, 1, []),
        ({"before_seq": 2, "match": "acme"}, 0, [2, 3, 4, 5]),
    ],
)
def test_it_takes_the_ends_of_the_jobs_that_it_means(
    fields: dict[str, object], deleted: int, left: list[int], sealed: bool
) -> None:
    """A record goes with the delete that would have taken its job; the answer counts the jobs that were there. (§5)"""
    engine = ended()
    if sealed:
        engine.seal_all()

    assert erased(engine, **fields)["deleted"] == deleted

    assert kept(engine) == left


def test_a_delete_that_does_not_erase_leaves_them() -> None:
    """So does a purge: what became of a job is no record of the queue. (§10.9)"""
    engine = ended()
    engine.delete("q", before_seq=99)
    engine.purge("q")
    assert kept(engine) == [1, 2, 3, 4, 5]


def test_it_waits_for_nothing_where_nothing_is_kept() -> None:
    for engine in (Harness(), queue(name="t"), queue(name="t", keep_done=0)):
        engine.append(1)
        assert engine.delete(before_seq=9, erase=True)["deleted"] == 1


def test_bytes_of_both_are_erased_behind_a_sync() -> None:
    """Of the queue, and of what is beside it. (§5)"""
    engine = ended()
    begin(engine, before_seq=9)
    engine.read_fetches()
    [wake] = engine.engine.take_wakes()
    assert isinstance(wake.result, Deleted)
    assert wake.result.erases == (engine.topic("q").topic_id, engine.topic("q#done").topic_id)
    assert wake.result.gate is Gate.SYNCED


def test_it_goes_page_by_page_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also over what ends meanwhile; what went meanwhile is not there twice. (§5)"""
    monkeypatch.setattr(ended_erasure, "ENDED_MAX", 2)
    engine = ended()
    engine.append({"data": 7, "tag": "new"}, name="q")
    engine.claim()
    engine.auto = False
    begin(engine, match="*")
    before = len(engine.events)
    engine.append({"data": 8, "tag": "later"}, name="q")
    engine.claim()
    engine.ack(8, result="later")
    done = engine.topic("q#done")
    engine.engine.unit.remove(done, [1], engine.moment)
    engine.auto = True
    assert before < len(engine.events)
    while not (answers := engine.woken()):
        engine.read_fetches()

    assert answers[0]["deleted"] == 2
    assert kept(engine) == [4]


def test_a_queue_that_goes_meanwhile_leaves_nothing_to_take() -> None:
    engine = ended()
    begin(engine, match="acme")
    engine.drop("q")
    engine.read_fetches()
    [answer] = engine.woken()
    assert answer["deleted"] == 1


@pytest.mark.parametrize(
    "error", [DamagedRun(Corrupt("f", 1, "bad"), 1, 1), OSError(5, "no"), Corrupt("f", 1, "bad")]
)
def test_what_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """The jobs are deleted; the same delete can be sent again. (§5)"""
    engine = ended()
    engine.seal_all()

    def broken(*_: object) -> Any:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(SealedRun, "read_blocking", broken)
        refused = erased(engine, match="acme")
    assert (refused.code, kept(engine)) == (ErrorCode.INTERNAL, [1, 2, 3, 4, 5])
    assert refused.message.startswith("deleted, but not erased: ")
    assert erased(engine, match="acme")["deleted"] == 0
    assert kept(engine) == [3, 4]


def test_damage_that_is_met_later_is_named_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a page behind the first; and a log that takes nothing any more. (§5)"""
    monkeypatch.setattr(ended_erasure, "ENDED_MAX", 1)
    for raised in (
        DamagedRun(Corrupt("f", 1, "bad"), 1, 1),
        Rejection(ErrorCode.THROTTLED, "no room", {"limit": "disk"}, retry_after_s=5),
    ):
        engine = ended()
        begin(engine, match="acme")

        def broken(*_: object, raised: Exception = raised) -> Any:
            raise raised

        with monkeypatch.context() as patch:
            patch.setattr(ended_erasure, "_kept_behind", broken)
            engine.read_fetches()
        [refused] = engine.woken()
        assert refused.message.startswith("deleted, but not erased: ")
