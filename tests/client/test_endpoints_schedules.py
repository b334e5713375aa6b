"""Schedules: what both faces send and read, over a script and over a real engine. (§14)"""

from collections.abc import Callable
from typing import Any

import pytest

from topics.client import InvalidRequest, NewRecord, ScheduleNotFound, TopicNotFound, endpoints
from topics.testing import START_MS, MemoryTopics

from .script import Script, collect, ok

PUT = {
    "schedule": "report",
    "created": True,
    "topic": "jobs",
    "record": {"data": {"make": "report"}, "tag": "eu"},
    "config": None,
    "cron": "0 6 * * 1-5",
    "every_ms": None,
    "at": None,
    "tz": "Europe/Berlin",
    "missed": "one",
    "until": None,
    "paused": False,
    "created_at": 1,
    "next_at": 2,
    "last_run": None,
    "fired_total": 0,
    "missed_total": 0,
    "blocked": None,
    "performance": {"server_total_ms": 0.2},
}


@pytest.fixture(params=["sync", "async"])
def do(request: pytest.FixtureRequest, memory_topics: MemoryTopics) -> Callable[..., Any]:
    """Run a call with either face; an iterator's items as a list."""
    if request.param == "async":
        return lambda use: collect(memory_topics.async_client(), use)

    def do(use: Callable[[Any], Any]) -> Any:
        given = use(memory_topics.client)
        return list(given) if hasattr(given, "__next__") else given

    return do


def test_a_schedule_is_put(face: Any) -> None:
    """What is left out is not sent; times have their units in the client, and the contract's names on the wire."""
    script = Script(ok(PUT, 201), ok(PUT), ok(PUT))

    answer = face(script).do(
        lambda c: c.put_schedule(
            "report",
            "jobs",
            {"make": "report"},
            tag="eu",
            cron="0 6 * * 1-5",
            tz="Europe/Berlin",
            until_ms=7,
        )
    )
    face(script).do(
        lambda c: c.put_schedule("report", "jobs", NewRecord(1, node="n"), at_ms=5, missed="none")
    )
    face(script).do(lambda c: c.put_schedule("report", "jobs", 1, at_ms=5, priority=7, unique="k"))

    assert script.lines == ["PUT /v0/schedules/report"] * 3
    assert script.bodies[0] == {
        "topic": "jobs",
        "record": {"data": {"make": "report"}, "tag": "eu"},
        "cron": "0 6 * * 1-5",
        "tz": "Europe/Berlin",
        "until": 7,
    }
    assert script.bodies[1]["record"] == {"data": 1, "node": "n"}
    assert script.bodies[2]["record"] == {"data": 1, "priority": 7, "unique": "k"}
    assert (script.bodies[1]["at"], script.bodies[1]["missed"]) == (5, "none")
    assert (answer.created, answer.next_at_ms, answer.record.tag) == (True, 2, "eu")


def test_a_run_is_sent_once() -> None:
    """A second attempt could append a second record; the same schedule, or the same pause, may be sent again."""
    assert not endpoints.run_schedule("a").is_repeatable
    assert not endpoints.delete_schedule("a").is_repeatable
    for call in (endpoints.put_schedule("a", "t", 1, {}), endpoints.pause_schedule("a")):
        assert call.is_repeatable


def test_a_schedule_lives(do: Any, memory_topics: MemoryTopics) -> None:
    """Made, run, paused, resumed, listed, deleted; each of its ticks happens when the clock is moved past it."""
    made = do(lambda c: c.put_schedule("s", "jobs", "x", every_ms=60_000, meta={"a": 1}))
    same = do(lambda c: c.put_schedule("s", "jobs", "x", every_ms=60_000, meta={"a": 1}))
    assert (made.created, same.created) == (True, False)
    assert made.next_at_ms == START_MS + 60_000

    memory_topics.advance(ms=180_000)
    ran = do(lambda c: c.run_schedule("s"))

    records = do(lambda c: c.read("jobs"))
    ticks = [START_MS + 60_000 * n for n in (1, 2, 3, 3)]
    assert [each.meta["$schedule_at"] for each in records] == ticks
    assert records[0].meta == {"a": 1, "$schedule": "s", "$schedule_at": ticks[0]}
    assert (ran.schedule, ran.topic, ran.seq) == ("s", "jobs", 4)
    paused = do(lambda c: c.pause_schedule("s"))
    assert (paused.paused, paused.changed, paused.next_at_ms) == (True, True, None)
    memory_topics.advance(ms=120_000)
    resumed = do(lambda c: c.resume_schedule("s"))
    assert (resumed.paused, resumed.next_at_ms) == (False, START_MS + 6 * 60_000)
    state = do(lambda c: c.schedule("s"))
    assert (state.fired_total, state.missed_total, state.blocked) == (4, 0, None)
    assert (state.last_run.seq, state.record.data, state.created_at_ms) == (4, "x", START_MS)
    assert do(lambda c: c.delete_schedule("s")).deleted is True
    with pytest.raises(ScheduleNotFound):
        do(lambda c: c.schedule("s"))


def test_lists(do: Any) -> None:
    """All pages, by prefix and topic."""
    for n in range(5):
        topic = "a" if n < 3 else "b"
        do(lambda c, n=n, topic=topic: c.put_schedule(f"s{n}", topic, n, every_ms=1000))

    def names(**options: Any) -> list[str]:
        return [each.schedule for each in do(lambda c: c.schedules(page_size=2, **options))]

    assert names() == ["s0", "s1", "s2", "s3", "s4"]
    assert names(prefix="s4") == ["s4"]
    assert names(topic="a") == ["s0", "s1", "s2"]
    assert names(topic="c") == []


def test_refusals(do: Any) -> None:
    """No times, no expression, no zone, a topic that is not to be made."""
    for options in (
        {},
        {"cron": "x"},
        {"cron": "0 0 * * *", "tz": "Nowhere"},
        {"every_ms": 999},
        {"at_ms": START_MS},
        {"every_ms": 1000, "at_ms": START_MS + 5},
    ):
        with pytest.raises(InvalidRequest):
            do(lambda c, options=options: c.put_schedule("s", "jobs", 1, **options))
    with pytest.raises(TopicNotFound):
        do(lambda c: c.put_schedule("s", "jobs", 1, every_ms=1000, config={"auto_create": False}))
    for name in ("", ".."):
        with pytest.raises(InvalidRequest):
            do(lambda c, name=name: c.schedule(name))
