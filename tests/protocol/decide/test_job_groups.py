"""Tags and groups of jobs, from many runs at once (§10.2)."""

import pytest

from protocol.harness import Harness
from protocol.workers import cold, held_by, queue
from topics.protocol.decide.job_groups import cold_runs, groups_of, known_of, tags_of
from topics.protocol.model.ended_jobs import Known
from topics.store.runs import SealedRun


def mixed() -> Harness:
    """Jobs 1 and 2 in a segment, 3 to 5 in memory; 4 was deleted."""
    engine = queue()
    engine.append({"data": 1, "tag": "a"}, {"data": 2}, name="q")
    engine.seal_all()
    engine.append(
        {"data": 3, "tag": "b", "group": "g", "priority": -3},
        {"data": 4, "tag": "c"},
        {"data": 5, "group": "h"},
        name="q",
    )
    engine.delete("q", match="c")
    return engine


def test_tags_and_groups_by_seq() -> None:
    """A group that was given stands before the tag; a job without either has none. (§10.2)"""
    engine = mixed()
    topic, held = engine.topic("q"), held_by(engine)

    assert tags_of(topic, [1, 2, 3, 5]) == {1: "a", 3: "b"}
    assert groups_of(topic, held, [1, 2, 3, 5]) == {1: "a", 3: "g", 5: "h"}
    assert known_of(topic, held, [1, 3]) == {1: Known("a"), 3: Known("b", "g", -3)}
    assert tags_of(topic, []) == groups_of(topic, held, []) == known_of(topic, held, []) == {}
    assert known_of(topic, held_by(queue()), [1]) == {1: Known("a")}


def test_runs_that_a_disk_has_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """No run is named that holds none of the jobs."""
    engine = mixed()
    topic = engine.topic("q")
    assert cold_runs(topic, []) == []
    with cold(monkeypatch):
        monkeypatch.setattr(SealedRun, "is_warm", False)
        assert [run.first_seq for run in cold_runs(topic, [1, 2, 5])] == [1]
        assert cold_runs(topic, [3, 5]) == []
