"""`topics bench`: a load of its own, and its figures."""

import json
from array import array
from typing import Any

import pytest

from topics.cli import bench
from topics.cli.bench import TESTS, Bound, Figures, measure
from topics.client import Unreachable
from topics.testing import MemoryTopics


class Ticks:
    """A clock that moves by a second each time it is read."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 1.0
        return self.now_s


def test_every_test_prints_its_rates(memory: MemoryTopics, run: Any) -> None:
    """And leaves neither a topic nor a record behind."""
    memory.client.append("mine", 1)

    done = run("bench", "--limit", "20", "--clients", "2", "--batch", "5")

    assert (done.exit_code, done.stderr) == (0, "")
    title, *rows = [line.split() for line in done.stdout.splitlines()]
    assert title[0] == "test"
    assert [row[0] for row in rows] == list(TESTS)
    assert [each.topic for each in memory.client.topics()] == ["mine"]
    assert memory.client.topic("mine").count == 1


def test_figures_as_json(memory: MemoryTopics, run: Any) -> None:
    """Operations are bounded; records are those of each of them."""
    done = run("bench", *TESTS, "--limit", "7", "--clients", "1", "--batch", "5", "--json")

    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["test"], row["operations"], row["records"]) for row in found] == [
        ("append", 7, 7),
        ("batch", 7, 35),
        ("read", 7, 7000),
        ("work", 7, 7),
    ]
    for row in found:
        assert 0 < row["p50_ms"] <= row["p99_ms"] <= row["max_ms"]
        assert row["bytes_per_s"] == pytest.approx(row["records_per_s"] * 100, rel=0.1)


def test_its_topics_have_the_config_that_was_asked_for(
    memory: MemoryTopics, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A class of durability, a bound, and names that a key with a prefix may have. (§0.2, §0.10)"""
    made = []
    put = type(memory.client).put_topic
    monkeypatch.setattr(
        type(memory.client),
        "put_topic",
        lambda client, name, **config: (made.append((name, config)), put(client, name, **config)),
    )

    options = ("--prefix", "app:", "--durability", "fsync", "--limit", "1")
    assert run("bench", "append", "work", *options).exit_code == 0

    (first, log), (second, queue) = made
    assert first != second
    assert first.startswith("app:bench-")
    assert log == {"cap_bytes": 1 << 30, "durability": "fsync"}
    assert queue == {**log, "type": "queue"}


def test_a_topic_that_exists_is_left_alone(
    memory: MemoryTopics, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the chance."""
    monkeypatch.setattr(bench, "unguessed", lambda: "0")
    memory.client.append("bench-0", 1)

    done = run("bench", "append")

    assert done.exit_code == 1
    assert "bench-0 exists" in done.stderr
    assert memory.client.topic("bench-0").count == 1


@pytest.mark.parametrize("error", [Unreachable("unreachable", 0, "gone"), KeyboardInterrupt()])
def test_whatever_ends_it_its_topic_is_deleted(
    memory: MemoryTopics, run: Any, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """A refusal, a server that goes, an interrupt."""

    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(type(memory.client), "append", fail)

    done = run("bench", "append")

    assert done.exit_code == (130 if isinstance(error, KeyboardInterrupt) else 2)
    assert list(memory.client.topics()) == []


def test_a_topic_that_cannot_be_deleted_is_named(
    memory: MemoryTopics, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a person can."""

    def fail(*_: Any, **__: Any) -> None:
        raise Unreachable("unreachable", 0, "gone")

    monkeypatch.setattr(type(memory.client), "delete_topic", fail)

    done = run("bench", "append", "--limit", "1")

    (left,) = memory.client.topics()
    assert f"{left.topic} was made by this load and is still there" in done.stderr


@pytest.mark.parametrize("duration", ["0ms", "11m"])
def test_a_load_is_bounded(memory: MemoryTopics, run: Any, duration: str) -> None:
    """By ten minutes a test."""
    assert run("bench", "--duration", duration).exit_code == 2


def test_a_test_ends_with_its_time() -> None:
    """An operation that has begun is finished, and counts."""
    figures = measure([lambda: 3], Bound(clients=1, duration_s=9, operations=100), Ticks())

    # The clock is read before each operation, at its begin and at its end.
    assert list(figures.times_s) == [1.0, 1.0, 1.0]
    assert figures.records == 9


def test_a_test_ends_where_nothing_is_left() -> None:
    """A queue without jobs is no job."""
    left = [1, 1]

    figures = measure(
        [lambda: left.pop() if left else 0], Bound(clients=1, duration_s=99, operations=9)
    )

    assert (figures.records, len(figures.times_s)) == (2, 2)


def test_an_error_of_one_client_ends_all() -> None:
    """And is that of the load."""

    def fail() -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        measure([lambda: 1, fail], Bound(clients=2, duration_s=600, operations=10**9))


def test_quantiles() -> None:
    """In milliseconds; of nothing there is none."""
    figures = Figures(100, array("d", [n / 1000 for n in range(1, 101)]), 2.0)

    row = figures.row(10)

    assert (row["p50_ms"], row["p99_ms"], row["max_ms"]) == (51.0, 100.0, 100.0)
    assert (row["operations_per_s"], row["records_per_s"], row["bytes_per_s"]) == (50, 50, 500)
    assert Figures(0, array("d"), 0.0).row(10)["p99_ms"] == 0.0
    assert bench.JOBS_MAX <= bench.OPERATIONS_MAX
