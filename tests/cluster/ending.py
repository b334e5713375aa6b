"""The end of a simulated cluster's life: nothing goes wrong any more, and everything has to agree."""

from typing import TYPE_CHECKING

from topics.protocol.cluster.rule.leading import NodeState
from topics.protocol.cluster.rule.steps import GiveUp, Sent

from .invariants import (
    Violation,
    acknowledged_stays,
    can_go_on,
    loss_is_told,
    refused_is_not_there,
    replicas_agree,
    state_is_of_its_index,
)
from .process import Process

if TYPE_CHECKING:
    from .world import World


def finish(world: "World") -> None:
    """Nothing goes wrong any more: everything lands, all come back, and all agree."""
    for process in world.processes.values():
        process.is_paused = process.is_cut_off = process.is_slow = False
        process.hear(GiveUp())
    for name in world.stores:
        if name not in world.processes:
            world.start(name)
    settle(world)
    for raw in world.ether:
        world.put(raw)
    world.ether = []
    settle(world)
    is_acknowledged = any(writes(world, process) for process in list(world.processes.values()))
    settle(world)
    world.check(is_acknowledged)


def writes(world: "World", process: Process) -> bool:
    """Whether this process can be made leader, and take a write."""
    world.lead(process)
    settle(world)
    if not process.decides:
        return False
    world.mark += 1
    world.add(process, world.mark, 0)
    process.end_turn()
    settle(world)
    return world.mark in world.acknowledged


def settle(world: "World") -> None:
    """Until nothing is on its way."""
    for _ in range(20_000):
        processes = list(world.processes.values())
        if not sum(settle_one(world, process) for process in processes):
            return
    raise Violation("can go on", "the cluster does not come to rest")


def settle_one(world: "World", process: Process) -> bool:
    if process.asked:
        world.look(process)
    elif process.outbox:
        send = process.outbox.popleft()
        process.sent[send.ticket, send.part] = send.raw
        process.reports.append(Sent(send.ticket, send.part, world.put(send.raw)))
    elif process.reports:
        world.report(process)
    elif process.turn and process.node.has_room:
        process.end_turn()
    elif process.reader is not None and world.read(process):
        pass
    elif process.wants_snapshot:
        donors = [p for p in world.processes.values() if p is not process and p.is_whole]
        donors = [
            p for p in donors if not p.is_ghost and p.node.mark.place.offset >= world.log.start
        ]
        if not donors:
            return False
        world.offer(process, max(donors, key=lambda p: p.node.mark.place.index))
    else:
        return False
    return True


def check(world: "World", is_acknowledged: bool) -> None:
    oracle = world.oracle
    acknowledged_stays(world.acknowledged, oracle)
    refused_is_not_there(world.refused, oracle)
    loss_is_told(world.untold)
    index = oracle.moments[-1].index
    for process in world.processes.values():
        if process.node.state is NodeState.ASIDE:
            continue
        who = repr(process)
        place, _, kept = process.store.open()
        replicas_agree(place.index, place.chain, oracle, who=who)
        state_is_of_its_index(index, process.engine, oracle, who=who)
        state_is_of_its_index(place.index, kept, oracle, who=who)
    if not world.log.cuts:
        can_go_on(is_acknowledged)
