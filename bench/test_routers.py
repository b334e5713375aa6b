"""Routers: what a pass costs, what a reader behind one waits, and what a write to many of them pays."""

from typing import Any

import orjson
import pytest

from bench.conftest import Scale
from bench.desk import NOTHING_SEALED, Desk, fetch
from bench.loads import append, append_body, diff, put
from topics.protocol.faces.http.routers import parse_put_router
from topics.protocol.faces.http.topics import parse_put
from topics.protocol.model.commands import Command

THOUSAND = append("s", append_body(1000, 64, tags=("x.1", "x.2"), nodes=("w-1",)))
ONE = append("s", append_body(1, 64))
NEWEST = b'{"from_seq":%d}'


def route(name: str, source: str, dest: str, **fields: object) -> Command:
    body = orjson.dumps({"source": source, "dest": dest, **fields})
    return parse_put_router(name, body)


def settle(desk: Desk) -> None:
    while desk.engine.has_work():
        desk.engine.work_off(desk.moment)
        desk.turn()


@pytest.mark.parametrize(
    ("fields", "what", "goal_text"),
    [
        ({}, "router pass, 1000 x 64 B", "<= 1 ms"),
        ({"filter": "x.1"}, "router pass, 1000 x 64 B, a filter keeps half", ""),
        ({"guarantee": "exactly_once"}, "router pass, 1000 x 64 B, exactly_once", ""),
    ],
    ids=["plain", "filter", "exactly_once"],
)
def test_a_pass(
    benchmark: Any, goal: Any, fields: dict[str, object], what: str, goal_text: str
) -> None:
    """From columns of the source to columns of the destination; the log's write is not in it."""
    goal(what, goal_text)
    desk = Desk.in_memory(NOTHING_SEALED)
    desk.run(route("r", "s", "d", **fields))
    settle(desk)

    def write() -> None:
        desk.turn()
        desk.run(THOUSAND)

    benchmark.pedantic(
        lambda: desk.engine.work_off(desk.moment), setup=write, rounds=100, iterations=1
    )
    desk.turn()

    state = desk.engine.state
    kept = state.topics["s"].head_seq // (2 if "filter" in fields else 1)
    assert state.topics["d"].head_seq == kept


@pytest.mark.parametrize("routed", [False, True], ids=["direct", "router"])
def test_write_to_visible(benchmark: Any, goal: Any, tmp_path: Any, routed: bool) -> None:
    """A write, and a read that shows it: of the same topic, or of one behind a router."""
    how = "behind a router" if routed else "of the same topic"
    goal(f"write and read {how}, 1 x 64 B, disk", "<= +100 us" if routed else "")
    desk = Desk.on_disk(tmp_path / "data", NOTHING_SEALED)
    name = "d" if routed else "s"
    desk.run(route("r", "s", "d") if routed else put("s"))

    def write_and_read() -> None:
        desk.run(ONE)
        seq = desk.engine.state.topics["s"].head_seq
        command = diff(name, NEWEST % (seq - 1))
        barrier = desk.engine.barrier_for(command)
        while barrier is not None and not barrier.is_passed:
            barrier.advance(desk.moment)
            desk.turn()
            if desk.engine.state.topics[name].published_seq < seq:
                desk.sync()
        fetch(desk.run(command))

    benchmark.pedantic(write_and_read, rounds=20, iterations=100)

    topics = desk.engine.state.topics
    assert topics[name].published_seq == topics["s"].head_seq
    desk.kill()


@pytest.mark.parametrize("many", [False, True], ids=["none", "many"])
def test_a_write_to_a_source_of_many_routers(
    benchmark: Any, goal: Any, scale: Scale, many: bool
) -> None:
    """The write itself marks its topic, however many routers lead out of it."""
    routers = scale.topics if many else 0
    goal(f"append, 1 x 64 B, to a source of {routers:,} routers", "as without" if many else "")
    desk = Desk.in_memory(NOTHING_SEALED)
    desk.run(parse_put("s", b"{}"))
    for i in range(routers):
        desk.run(route(f"r{i}", "s", f"d{i}"))
    settle(desk)

    benchmark.pedantic(lambda: desk.run(ONE), rounds=20, iterations=100)

    assert desk.engine.has_work() is many


def test_a_write_through_many_routers(benchmark: Any, goal: Any, scale: Scale) -> None:
    """All the copies of one record, in slices."""
    routers = scale.topics
    goal(f"one record through {routers:,} routers, per copy", "", per=routers)
    desk = Desk.in_memory(NOTHING_SEALED)
    for i in range(routers):
        desk.run(route(f"r{i}", "s", f"d{i}"))
    settle(desk)

    benchmark.pedantic(
        lambda: settle(desk), setup=lambda: desk.run(ONE) and None, rounds=5, iterations=1
    )

    heads = [topic.head_seq for topic in desk.engine.state.by_id.values()]
    assert min(heads) == max(heads)
