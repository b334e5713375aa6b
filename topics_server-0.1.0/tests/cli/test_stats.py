"""`topics stats`: rates between two looks, the busiest topics first."""

import json
from typing import Any

from topics.cli import stats
from topics.cli.stats import Sample, headline, rows, size, summary
from topics.client import QueueCounts, TopicSummary
from topics.testing import MemoryTopics


def topic(name: str, head: int, count: int = 1, queue: QueueCounts | None = None) -> TopicSummary:
    return TopicSummary(
        topic=name, head_seq=head, earliest_seq=1, count=count, bytes=10 * count, queue=queue
    )


def test_rates_are_the_difference_of_two_looks() -> None:
    """A topic that is new since has none yet; one that was made again has none below zero."""
    before = Sample(10.0, {}, [topic("a", 100), topic("b", 50)])
    now = Sample(12.0, {}, [topic("a", 100), topic("b", 350), topic("c", 9), topic("d", 0)])
    heirs = Sample(12.0, {}, [topic("b", 3)])

    assert [(row.topic, row.rate) for row in rows(now, before, 10)][:2] == [
        ("b", 150.0),
        ("a", 0.0),
    ]
    assert [row.rate for row in rows(heirs, before, 10)] == [0.0]
    assert [row.topic for row in rows(now, before, 1)] == ["b"]


def test_without_a_look_before_there_are_no_rates() -> None:
    """The largest come first."""
    now = Sample(1.0, {}, [topic("a", 5, 5), topic("b", 900, 9)])

    assert [(row.topic, row.rate) for row in rows(now, None, 10)] == [("b", 0.0), ("a", 0.0)]
    assert "requests_per_s" not in headline(now, None)


def test_the_server_as_a_whole() -> None:
    """Counters become rates; what a server does not tell is 0."""
    jobs = QueueCounts(ready=3, in_flight=2, delayed=1)
    counts = [
        {"route": "a", "status": "200", "value": 10},
        {"route": "b", "status": "200", "value": 5},
    ]
    before = Sample(0.0, {"topics_http_requests_total": 5}, [])
    now = Sample(2.0, {"topics_http_requests_total": counts, "topics_uptime_ms": 90_061_000},
                 [topic("q", 1, queue=jobs)])  # fmt: skip

    told = headline(now, before)

    assert told["requests_per_s"] == 5.0
    assert (told["ready"], told["in_flight"]) == (3, 2)
    assert told["memory_bytes"] == 0
    assert summary(told).startswith("up 1 d 1:01:01  cpu 0%")
    assert "READ-ONLY" not in summary(told)
    assert "READ-ONLY" in summary({**told, "read_only": 1})


def test_sizes_have_a_unit() -> None:
    """Of 1024."""
    assert [size(n) for n in (0, 1023, 1024, 1 << 20, 5 << 40)] == [
        *("0 B", "1023 B", "1.0 KiB", "1.0 MiB", "5.0 TiB"),
    ]


def test_a_look_at_a_server(memory: MemoryTopics, run: Any, monkeypatch: Any) -> None:
    """One object with the figures and the busiest topics; time passes without waiting."""
    clock = iter(range(0, 100, 2))
    monkeypatch.setattr(stats.time, "monotonic", lambda: float(next(clock)))

    def sleep(_: float) -> None:
        memory.client.append("jobs", *range(6))

    monkeypatch.setattr(stats.time, "sleep", sleep)
    memory.client.append("jobs", 1)

    found = json.loads(run("stats", "--once", "--json").stdout)
    table = run("stats", "--once").stdout

    assert found["busiest"][0] == {
        "topic": "jobs", "records": 7, "bytes": found["busiest"][0]["bytes"], "rate": 3.0,
        "ready": None, "in_flight": None, "delayed": None,
    }  # fmt: skip
    assert found["topics"] == 1
    assert found["requests_per_s"] > 0
    assert "appended/s" in table
