"""Jobs of one priority: what leaves its source lazily, and what comes back to it (131)."""

import pytest

from topics.protocol.state import claim_source

from .queued import backlog, queue


def test_jobs_that_are_gone_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """One by one, and many at once."""
    monkeypatch.setattr(claim_source, "SKIPPED", 4)
    engine = queue(*[{"tag": "a" if n % 20 else "b", "priority": 1} for n in range(60)], {})
    engine.delete("q", match="a")
    assert engine.claimed(max=2) == [1, 21]
    assert engine.claimed(max=9) == [41, 61]
    assert engine.claimed(max=9) == []


@pytest.mark.parametrize("kept", [1, 1024])
def test_what_does_not_fit_into_an_answer_is_given_next(
    kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each kind: fresh, delayed before, delivered before, of a group."""
    monkeypatch.setattr(claim_source, "SKIPPED", kept)
    large = "x" * 700_000
    many = [{"data": large, "priority": 1} for _ in range(14)]
    engine = queue()
    engine.append(*many[:7], name="q")
    engine.append(*[{**each, "delay_ms": 5} for each in many[:7]], name="q")
    engine.now_ms += 10
    first = engine.claimed(max=14)
    assert first == [*range(1, len(first) + 1)]
    assert len(first) < 14
    assert engine.claimed(max=14) == [*range(len(first) + 1, 15)]

    engine.nack(*range(1, 15))
    again = engine.claimed(max=14)
    assert again == first
    assert engine.claimed(max=14) == [*range(len(first) + 1, 15)]


def test_consumed_places_of_a_source_are_given_back() -> None:
    engine = queue(*[{"priority": 1} for _ in range(5000)])
    for _ in range(45):
        engine.ack(*engine.claimed(max=100))
    [source] = backlog(engine).order._sources.values()
    assert len(source.fresh) < 4000


def test_more_is_given_back_than_there_are_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was taken before is in front again, in its order."""
    monkeypatch.setattr(claim_source, "SKIPPED", 1)
    engine = queue()
    large = "x" * 900_000
    engine.append(*[{"data": large, "priority": 1} for _ in range(14)], name="q")
    first = engine.claimed(max=14)
    assert engine.claimed(max=14) == [*range(len(first) + 1, 15)]


def test_a_delay_that_ends_behind_many_others() -> None:
    """Delays that ended before are not sorted anew for it. (131)"""
    engine = queue(*[{"delay_ms": 5} for _ in range(20)], {"delay_ms": 9}, {"delay_ms": 7})
    engine.now_ms += 5
    assert engine.counters() == (20, 0, 2)
    engine.now_ms += 5
    assert engine.claimed(max=30) == [*range(1, 21), 22, 21]
