"""Which commands wait at a read barrier, and when it is passed (§6: a client reads its own writes)."""

from typing import Any

import orjson
import pytest

from protocol.harness import Harness
from topics.protocol.decide.read_your_writes import ReadBarrier
from topics.protocol.faces.http.queues import parse_claim
from topics.protocol.faces.http.records import parse_delete, parse_diff, parse_purge
from topics.protocol.faces.http.routers import parse_put_router
from topics.protocol.faces.http.watch import parse_watch
from topics.protocol.model.commands import (
    Command,
    DeleteRouter,
    DeleteTopic,
    GetRouter,
    GetTopic,
    ListRouters,
    ListTopics,
)


@pytest.fixture
def engine() -> Harness:
    """s -> d -> e, and something written to s that is copied nowhere."""
    harness = Harness()
    harness.route()
    harness.route("r2", "d", "e")
    harness.work_off()
    harness.append(1, name="s")
    harness.auto = False
    return harness


def diff(name: str) -> Command:
    return parse_diff(name, b"{}", Harness().limits)


def watch(*names: str) -> Command:
    body = orjson.dumps({"topics": {name: {} for name in names}})
    return parse_watch(body, Harness().limits, wid="w", lenient=True)


def put(name: str, **fields: object) -> Command:
    body = orjson.dumps({"source": "s", "dest": "d", **fields})
    return parse_put_router(name, body)


OWED: list[tuple[Command, bool]] = [
    (diff("d"), True),
    (diff("e"), True),
    (diff("s"), False),
    (diff("absent"), False),
    (GetTopic("d"), True),
    (parse_delete("d", b'{"before_seq":1}'), True),
    (parse_purge("e", b"{}"), True),
    (parse_claim("d", b'{"node":"n"}', Harness().limits), True),
    (watch("s", "e"), True),
    (watch("s", "absent"), False),
    (GetRouter("r"), True),
    (GetRouter("r2"), True),
    (GetRouter("absent"), False),
    (DeleteRouter("r2"), True),
    (put("r", preserve_tag=False), True),
    (put("r"), False),
    (put("new"), False),
    (DeleteTopic("s"), True),
    (DeleteTopic("d"), True),
    (DeleteTopic("e"), False),
    (ListTopics("", 10, ""), False),
    (ListRouters("", 10, "", None, None), False),
]


@pytest.mark.parametrize(("command", "owed"), OWED, ids=lambda v: type(v).__name__)
def test_who_waits_for_copies(engine: Harness, command: Command, owed: bool) -> None:
    """Readers of what is derived, and who changes or removes what has still to copy. (§6)"""
    barrier = engine.engine.barrier_for(command)

    assert (barrier is not None) is owed
    if barrier is not None:
        work_off(engine, barrier)
        assert engine.engine.barrier_for(command) is None


def work_off(engine: Harness, barrier: ReadBarrier) -> int:
    """Turns until a barrier is passed."""
    turns = 0
    while not barrier.is_passed:
        turns += 1
        barrier.advance(engine.moment)
        engine.sync()
        assert turns < 100
    return turns


def barrier_for(engine: Harness, command: Command) -> ReadBarrier:
    barrier = engine.engine.barrier_for(command)
    assert barrier is not None
    return barrier


def test_what_is_farther_comes_first(engine: Harness) -> None:
    """A link a write, for what is copied is owed on once it is shown."""
    assert work_off(engine, barrier_for(engine, diff("e"))) == 2
    assert engine.datas("e") == [1]


def test_the_passes_of_one_turn_share_the_room_of_the_log(engine: Harness) -> None:
    """What they write together fits where there is space for some of them only: a log that is asked
    for more than it has takes nothing any more. (§6.1, §11)"""
    engine.append(*["x" * 300_000] * 3, name="s")
    engine.sync()
    barrier = barrier_for(engine, diff("d"))
    engine.room_bytes = 700_000

    while not barrier.is_passed:
        barrier.advance(engine.moment)
        written = engine.engine.unit._unit.frames.size_bytes
        engine.room_bytes -= written
        assert engine.room_bytes >= 0
        engine.sync()

    blocked = engine.engine.state.routers.by_name["r"].blocked
    assert blocked is not None
    assert blocked.code == "throttled"
    assert engine.datas("d") == [1, "x" * 300_000, "x" * 300_000]


def test_what_is_written_later_is_owed_to_others(engine: Harness) -> None:
    """The source's head at the arrival counts, or a busy source would let nobody read."""
    barrier = barrier_for(engine, diff("d"))
    barrier.advance(engine.moment)
    engine.append(2, name="s")
    engine.sync()

    assert barrier.is_passed
    assert engine.engine.barrier_for(diff("d")) is not None


def test_a_large_debt_takes_slices(engine: Harness) -> None:
    """None of them holds the others up."""
    for _ in range(10):
        engine.append(*range(1000), name="s")
    engine.sync()

    assert work_off(engine, barrier_for(engine, diff("d"))) == 6


def test_copies_must_be_shown(engine: Harness) -> None:
    """In class `fsync` that is with the sync. (§0.10)"""
    engine.put("d", durability="fsync")
    engine.sync()
    barrier = barrier_for(engine, diff("d"))
    barrier.advance(engine.moment)
    lsn = engine.write()

    assert not barrier.is_passed
    engine.engine.on_synced(lsn)
    assert barrier.is_passed


def test_nobody_waits_for_a_router_that_is_blocked(engine: Harness) -> None:
    """What may never come is not waited for. (§6.1)"""
    engine.put("d", cap_records=1, discard="reject")
    engine.append(2, 3, name="s")
    engine.sync()
    barrier = barrier_for(engine, diff("d"))

    assert work_off(engine, barrier) <= 3
    assert engine.datas() == [1]
    assert engine.engine.barrier_for(diff("d")) is None
    assert work_off(engine, barrier_for(engine, diff("e"))) == 1


GOING: dict[str, Any] = {
    "the router": lambda engine: engine.unroute(),
    "the source": lambda engine: engine.drop("s"),
    "the destination": lambda engine: engine.drop("d"),
    "the log": lambda engine: engine.engine.on_failed(),
}


@pytest.mark.parametrize("going", GOING)
def test_what_goes_owes_nothing(engine: Harness, going: str) -> None:
    """And what cannot be written neither: reads go on. (§0.6)"""
    barrier = barrier_for(engine, diff("d"))

    GOING[going](engine)

    assert barrier.is_passed


def test_a_ring_is_worked_off_once_round(engine: Harness) -> None:
    """Each of its routers once, the reader's own last. (§6.1)"""
    ring = Harness()
    for source, dest in ("ab", "bc", "ca"):
        ring.route(source + dest, source, dest, allow_cycle=True)
    ring.append("x", name="b")
    ring.auto = False

    assert work_off(ring, barrier_for(ring, diff("a"))) == 2
    assert ring.datas("a") == ["x"]


def test_a_topic_that_is_not_derived_asks_next_to_nothing() -> None:
    """Without routers there is nothing to look up."""
    engine = Harness()
    engine.append(1, name="x")

    assert engine.engine.barrier_for(diff("x")) is None
