"""Schedules: what 10,000 of them cost while nothing is due, and what a tick costs."""

from typing import Any

import orjson
import pytest

from bench.desk import NOTHING_SEALED, Desk
from topics.protocol.faces.http.schedules import parse_put_schedule
from topics.protocol.model.moment import Moment

MANY = 10_000


def scheduled(count: int, **fields: object) -> Desk:
    """An engine with schedules, each with its first tick still to come."""
    desk = Desk.in_memory(NOTHING_SEALED)
    for n in range(count):
        body = {"topic": "t", "record": {"data": n}, **fields}
        desk.run(parse_put_schedule(f"s{n}", orjson.dumps(body)))
        if n % 1000 == 0:
            desk.turn()
    desk.turn()
    return desk


@pytest.mark.parametrize("count", [0, MANY])
def test_a_look_while_nothing_is_due(benchmark: Any, goal: Any, count: int) -> None:
    """What a turn of the loop asks of the engine: whether there is work, and when to ask again."""
    goal(f"a look for work, {count} schedules", "as without")
    desk = scheduled(count, cron="0 3 * * *", tz="Europe/Berlin")

    def look() -> None:
        assert not desk.engine.has_work()
        desk.engine.alarm_ms()

    benchmark.pedantic(look, rounds=200, iterations=100)
    assert (desk.engine.alarm_ms() is not None) == bool(count)


@pytest.mark.parametrize(
    "fields", [{"every_ms": 1000}, {"cron": "* * * * * *"}], ids=["every_ms", "cron"]
)
def test_ticks(benchmark: Any, goal: Any, fields: dict[str, object]) -> None:
    """A turn of them, each a record and an entry of the log."""
    goal(f"a turn of ticks, {next(iter(fields))}", "")
    desk = scheduled(16, **fields)

    now_ms = [desk.moment.now_ms]

    def later() -> None:
        now_ms[0] = desk.engine.advance(now_ms[0] + 1000)

    def turn() -> None:
        desk.engine.work_off(Moment(now_ms[0], desk.moment.room))
        desk.turn()

    benchmark.pedantic(turn, setup=later, rounds=200, iterations=1)
    assert desk.engine.state.topics["t"].head_seq >= 16  # one turn, where nothing is measured
