"""Ticks of schedules over changes of the leader: each once, whoever decided it (§14)."""

import orjson
import pytest
from cluster.engines import LIMITS, EngineProcess

from topics.protocol.cluster.rule.unit import FORMAT
from topics.protocol.faces.http.records import parse_diff
from topics.protocol.faces.http.schedules import parse_put_schedule

from .rig import Rig

EVERY_MS = 1000


def scheduled(**fields: object) -> Rig:
    """A leader and a replica, and a schedule that both know."""
    rig = Rig()
    rig.leader.member.write_format(FORMAT)
    body = {"topic": "t", "record": {"data": 1}, "every_ms": EVERY_MS, **fields}
    rig.ask(parse_put_schedule("s", orjson.dumps(body), LIMITS))
    rig.land()
    return rig


def pass_time(rig: Rig, process: EngineProcess, ms: int) -> None:
    """Time goes by for all; one of them looks what is due."""
    rig.world.now_ms += ms
    for _ in range(20):
        process.host.ring_once()
        process.host.settle()


def ticks(process: EngineProcess) -> list[int]:
    """How many intervals behind the first tick each record is."""
    found: list[object] = []
    process.ask(parse_diff("t", orjson.dumps({"from_seq": 0}), LIMITS), found.append)
    assert isinstance(found[0], dict)
    at_ms = [record["meta"]["$schedule_at"] for record in found[0]["records"]]
    return [(each - at_ms[0]) // EVERY_MS for each in at_ms]


def next_ms(process: EngineProcess) -> int | None:
    return process.engine.state.schedules.by_name["s"].next_ms


def test_the_leader_alone_has_ticks_and_every_copy_has_them() -> None:
    """A replica gets each from the log; it decides none by its own clock."""
    rig = scheduled()
    pass_time(rig, rig.replica, EVERY_MS)
    assert rig.replica.engine.state.schedules.fired == 0

    pass_time(rig, rig.leader, 0)
    rig.land()
    pass_time(rig, rig.leader, EVERY_MS)
    rig.land()

    assert ticks(rig.leader) == ticks(rig.replica) == [0, 1]
    assert next_ms(rig.leader) == next_ms(rig.replica)


@pytest.mark.parametrize("is_accepted", [False, True])
def test_a_tick_within_which_the_leader_changes_happens_once(is_accepted: bool) -> None:
    """Whether its unit came into the shared log, or was lost with the leader that decided it."""
    rig = scheduled()
    pass_time(rig, rig.leader, EVERY_MS)
    rig.land()
    pass_time(rig, rig.leader, EVERY_MS)
    rig.turn()
    assert rig.leader.outbox
    if is_accepted:
        rig.land()
    rig.world.kill(rig.leader, power=False)
    rig.lead(rig.replica)

    pass_time(rig, rig.replica, 1)
    rig.land()
    assert ticks(rig.replica) == [0, 1]
    pass_time(rig, rig.replica, EVERY_MS)
    rig.land()
    assert ticks(rig.replica) == [0, 1, 2]
    assert rig.replica.engine.state.schedules.by_name["s"].missed_total == 0


def test_the_next_leader_counts_what_was_missed() -> None:
    """While there was no leader, ticks were over: one of them happens."""
    rig = scheduled()
    pass_time(rig, rig.leader, EVERY_MS)
    rig.land()
    rig.world.kill(rig.leader, power=True)
    rig.world.now_ms += 10 * EVERY_MS
    rig.lead(rig.replica)
    pass_time(rig, rig.replica, 1)
    rig.land()

    assert ticks(rig.replica) == [0, 10]
    assert rig.replica.engine.state.schedules.by_name["s"].missed_total == 9
