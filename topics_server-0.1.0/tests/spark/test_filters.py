"""Filters: what is taken is exact, and what is not taken goes back."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringStartsWith,
)

from topics.spark.filters import Pushed, push

NAMES = {name: name for name in ("topic", "seq", "ts", "tag", "data")}
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_US = int(NOON.timestamp()) * 1_000_000

TAKEN: list[tuple[list[Filter], Pushed]] = [
    ([EqualTo(("seq",), 5)], Pushed(first_seq=5, last_seq=5)),
    ([GreaterThan(("seq",), 5), LessThan(("seq",), 9)], Pushed(first_seq=6, last_seq=8)),
    ([GreaterThanOrEqual(("seq",), 5), GreaterThan(("seq",), 1)], Pushed(first_seq=5)),
    ([LessThanOrEqual(("seq",), 5), IsNotNull(("seq",))], Pushed(last_seq=5)),
    ([GreaterThanOrEqual(("ts",), NOON)], Pushed(from_us=NOON_US)),
    ([GreaterThan(("ts",), NOON)], Pushed(from_us=NOON_US + 1)),
    ([LessThan(("ts",), NOON)], Pushed(until_us=NOON_US)),
    ([EqualTo(("ts",), NOON)], Pushed(from_us=NOON_US, until_us=NOON_US + 1)),
    ([EqualTo(("tag",), "a"), IsNotNull(("tag",))], Pushed(tag="a")),
    ([IsNotNull(("tag",)), StringStartsWith(("tag",), "a")], Pushed(tag_prefix="a")),
    ([In(("topic",), ("a", "b")), EqualTo(("topic",), "b")], Pushed(topics=frozenset({"b"}))),
]


@pytest.mark.parametrize(("filters", "pushed"), TAKEN)
def test_what_is_taken(filters: list[Filter], pushed: Pushed) -> None:
    """Comparisons of seq and ts, a tag or its beginning, names of topics."""
    assert push(filters, NAMES) == (pushed, [])


LEFT: list[Filter] = [
    In(("seq",), (1, 5)),
    Not(EqualTo(("seq",), 5)),
    EqualNullSafe(("seq",), 5),
    IsNull(("tag",)),
    IsNotNull(("tag",)),
    StringContains(("data",), "x"),
    EqualTo(("node",), "x"),
    EqualTo(("data", "n"), 1),
    EqualTo(("seq",), None),
    LessThan(("ts",), datetime(2026, 1, 1)),
]


@pytest.mark.parametrize("each", LEFT, ids=repr)
def test_what_goes_back(each: Filter) -> None:
    """Spark evaluates it; nothing is narrowed."""
    assert push([each], NAMES) == (Pushed(), [each])


def test_there_is_room_for_one_tag() -> None:
    """A second one goes back, and so does the first where the options have one."""
    first: Filter = EqualTo(("tag",), "a")
    second: Filter = StringStartsWith(("tag",), "a")
    assert push([first, second], NAMES) == (Pushed(tag="a"), [second])
    assert push([first], NAMES, has_tag=True) == (Pushed(), [first])


@pytest.mark.parametrize("us", [-1500, -1000, -1, 0, 1, 999, 1000, 1001])
def test_microseconds_are_exact(us: int) -> None:
    """Records have whole milliseconds; a literal between two of them falls on the right side."""
    at: Any = NOON + timedelta(microseconds=us)
    elsewhere = at.astimezone(timezone(timedelta(hours=5)))
    for offset_ms in range(-3, 4):
        ts_us = NOON_US + 1000 * offset_ms
        record_ms = ts_us // 1000
        for kind, is_in in (
            (GreaterThan, ts_us > NOON_US + us),
            (GreaterThanOrEqual, ts_us >= NOON_US + us),
            (LessThan, ts_us < NOON_US + us),
            (LessThanOrEqual, ts_us <= NOON_US + us),
            (EqualTo, ts_us == NOON_US + us),
        ):
            pushed, _ = push([kind(("ts",), elsewhere)], NAMES)
            begins = pushed.from_ms is None or record_ms >= pushed.from_ms
            ends = pushed.until_ms is None or record_ms < pushed.until_ms
            assert (begins and ends) is is_in, (kind, offset_ms)
