"""Expiry of what nobody looks at: it frees room, in time and within bounds. (§11)"""

import pytest

from protocol.harness import Harness, refusal
from topics.protocol.faces.http.statuses import STATUSES
from topics.protocol.state.state import State


def test_expired_records_free_room_unseen() -> None:
    """Of a topic that nobody has read since, before maintenance comes round."""
    engine = Harness(max_total_bytes=1000)
    engine.put("old", ttl_ms=200)
    for n in range(12):
        engine.append(n, name="old")
    assert refusal(engine.append, "x" * 700, name="new").detail["limit"] == "max_total_bytes"
    engine.now_ms += 600

    engine.append("x" * 700, name="new")
    assert engine.diff(name="old")["tombstone"]["reason"] == "ttl"
    assert engine.engine.state.total_bytes < 1000


def test_what_has_not_expired_takes_room() -> None:
    """Times are kept as topics are written, read, changed and emptied."""
    engine = Harness(max_total_bytes=1000)
    engine.put("a", ttl_ms=1000)
    engine.append("x" * 300, name="a")
    engine.now_ms += 600
    engine.append("x" * 300, name="a")
    engine.now_ms += 600
    engine.append("x" * 300, name="b")
    assert STATUSES[refusal(engine.append, "x" * 400, name="b").code] == 429
    engine.now_ms += 600
    engine.append("x" * 300, name="b")
    engine.put("b", ttl_ms=100)
    engine.now_ms += 600
    engine.append("x" * 800, name="a")
    assert (engine.state("a")["count"], engine.state("b")["count"]) == (1, 0)


def test_a_write_looks_at_so_many_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has waited longest expires first; who is refused has made room for the next."""
    monkeypatch.setattr("topics.protocol.commit.unit_of_work.DUE_MAX", 4)
    engine = Harness(max_total_bytes=1000)
    for n in range(8):
        engine.put(f"t{n}", ttl_ms=100 + n)
        engine.append("x" * 50, name=f"t{n}")
    engine.now_ms += 10_000

    assert STATUSES[refusal(engine.append, "x" * 800, name="new").code] == 429
    assert engine.engine.state.records_total == 4
    engine.append("x" * 800, name="new")


def test_times_outlive_a_restart() -> None:
    """Records of a checkpoint expire when they should, and so do those of the log behind it."""
    engine = Harness()
    engine.put("sealed", ttl_ms=1000)
    engine.append(1, name="sealed")
    engine.seal_all()
    image = engine.engine.state.image()
    engine.events.clear()
    engine.put("logged", ttl_ms=1000)
    engine.append(1, name="logged")
    state = State(engine.limits, engine.store)
    state.restore(image)
    for event in engine.events:
        state.apply(event)

    found = iter(lambda: state.take_due(engine.now_ms + 1001), None)
    assert {topic.name for topic in found} == {"sealed", "logged"}
