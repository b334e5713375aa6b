"""Where a time stands in a topic, by the times of producers, which do not ascend (§8)."""

from typing import Any

import pytest

from protocol.decide.test_batches import put, sealed
from protocol.decide.test_fetches import place
from protocol.durable import Durable
from protocol.harness import START_MS
from topics.protocol.batches.times import Timed, first_since, greatest

from .builder import NOW_MS, Record


def record(delta: int, key: bytes = b"k") -> Record:
    return key, b"1", (), delta


def since(engine: Durable, time_ms: int) -> Timed | None:
    return first_since(place(engine, has_time=True), time_ms, lambda: None)


def last(engine: Durable) -> Timed | None:
    return greatest(place(engine, has_time=True), lambda: None)


def timed(engine: Durable, *deltas: int, **fields: Any) -> None:
    put(engine, *map(record, deltas), max_ms=NOW_MS + max(deltas), **fields)


@pytest.mark.parametrize("is_sealed", [False, True])
def test_the_first_record_of_at_least_a_time(is_sealed: bool) -> None:
    engine = Durable()
    engine.put()
    timed(engine, 0, 50, -10)
    timed(engine, 20, codec=1)
    timed(engine, 40, 60, 60)
    if is_sealed:
        sealed(engine)

    found = [since(engine, NOW_MS + ms) for ms in (-99, 1, 50, 51, 61)]

    assert found == [
        *((1, NOW_MS), (2, NOW_MS + 50), (2, NOW_MS + 50), (6, NOW_MS + 60)),
        None,
    ]
    assert last(engine) == (6, NOW_MS + 60)


def test_dead_records_are_passed_over() -> None:
    """Also those of which a batch has nothing left, in memory or in a file."""
    engine = Durable()
    engine.put()
    put(engine, record(0, b"a"), record(9, b"b"), max_ms=NOW_MS + 9)
    timed(engine, 5)
    engine.delete(match="b")
    assert since(engine, NOW_MS + 1) == (3, NOW_MS + 5)
    assert last(engine) == (3, NOW_MS + 5)
    engine.delete(match="a")
    sealed(engine)
    assert since(engine, NOW_MS) == (3, NOW_MS + 5)
    engine.delete(before_seq=4)
    assert (since(engine, 0), last(engine)) == (None, None)


def test_records_of_http_have_the_time_of_their_append() -> None:
    engine = Durable()
    engine.put()
    engine.append({"data": 1, "tag": "a"})
    engine.now_ms += 10
    engine.append(2, 3)
    timed(engine, 5)

    assert since(engine, START_MS + 1) == (2, START_MS + 10)
    assert last(engine) == (2, START_MS + 10)
    assert since(engine, START_MS + 11) is None
    engine.delete(before_seq=4)
    assert (since(engine, 0), last(engine)) == ((4, NOW_MS + 5), (4, NOW_MS + 5))
    engine.append(6)
    engine.delete(before_seq=6)
    assert (since(engine, 0), last(engine)) == (None, None)


def test_records_that_got_the_time_of_their_append_have_that() -> None:
    """`message.timestamp.type` is `LogAppendTime`."""
    engine = Durable()
    engine.put(message_timestamp_type="LogAppendTime")
    engine.now_ms += 7
    timed(engine, 0, 3)
    assert since(engine, START_MS + 1) == (1, START_MS + 7)
    assert last(engine) == (1, START_MS + 7)


def test_the_greatest_time_may_be_that_of_a_producer_or_of_an_append() -> None:
    """Whichever is later: clocks differ."""
    engine = Durable()
    engine.put()
    timed(engine, 0, 1000)
    engine.append(1)
    assert last(engine) == (2, NOW_MS + 1000)
    engine.now_ms = NOW_MS + 2000
    engine.append(2)
    assert last(engine) == (4, NOW_MS + 2000)
