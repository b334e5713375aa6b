"""Histories that broke an earlier form of the rule, step by step, on a cluster in which nothing else
happens."""

from topics.protocol.cluster.rule.leading import NodeState

from .ending import settle
from .process import Process, Token
from .world import World


def cluster() -> World:
    """Five nodes that follow."""
    world = World(0)
    settle(world)
    return world


def accepted(world: World, process: Process, mark: int) -> bool:
    """Whether a write at this process is acknowledged, everyone having read it."""
    world.add(process, mark, 0)
    process.end_turn()
    settle(world)
    return mark in world.acknowledged


def test_two_processes_with_one_name() -> None:
    """Both take the same term: the log has one of them first, and only that one leads."""
    world = cluster()
    world.stores["n0'"] = world.empty_store()
    world.start("n0'")
    settle(world)
    one, other = world.processes["n0"], world.processes["n0'"]
    for process in (one, other):
        world.lead(process)
    settle(world)

    assert sorted(process.decides for process in (one, other)) == [False, True]
    leader = one if one.decides else other
    assert accepted(world, leader, 1)
    assert {process.node.place.term for process in world.processes.values()} == {1}


def test_a_deposed_leader_does_not_say_no() -> None:
    """It was paused while another one took a write; it finds nothing, and does not answer that."""
    world = cluster()
    old, new = world.processes["n0"], world.processes["n1"]
    world.lead(old)
    settle(world)
    old.is_slow = True
    reader, old.reader = old.reader, None
    world.lead(new)
    settle(world)
    assert accepted(world, new, 1)
    assert (old.decides, new.decides) == (True, True)

    said: list[object] = []
    world.answered = lambda process, token, reply: said.append((token.kind, reply.value))  # type: ignore[method-assign]
    old.submit(Token("check", 1, known_before=True), 0)
    old.end_turn()
    settle(world)
    assert said == []

    old.reader = reader
    settle(world)
    assert said == [("absent", "not applied")]


def test_where_all_nodes_have_read_what_the_log_lost_none_leads() -> None:
    """Each of them says so, and each store stays as it is: what becomes of it is for people to say."""
    world = cluster()
    world.lead(world.processes["n0"])
    settle(world)
    assert accepted(world, world.processes["n0"], 1)
    world.log.cut(1)
    world.oracle.cut(1)
    world.untold = dict.fromkeys(world.processes, 1)
    settle(world)

    assert world.untold == {}
    for process in world.processes.values():
        assert process.node.state is NodeState.ASIDE
        world.lead(process)
        assert not process.decides
        assert process.store.open()[2].topics == {0: [1]}


def test_a_node_that_lags_leads_on_and_the_others_tell_what_was_lost() -> None:
    """They take its snapshot, and all agree again."""
    world = cluster()
    lagging = world.processes["n4"]
    reader, lagging.reader = lagging.reader, None
    world.lead(world.processes["n0"])
    settle(world)
    assert accepted(world, world.processes["n0"], 1)
    world.log.cut(1)
    world.oracle.cut(1)
    world.acknowledged.clear()
    ahead = [name for name in world.processes if name != "n4"]
    world.untold = dict.fromkeys(ahead, 1)
    lagging.reader = reader
    settle(world)
    world.lead(lagging)
    settle(world)

    assert world.untold == {}
    assert accepted(world, lagging, 2)
    assert {process.engine.topics[0][0] for process in world.processes.values()} == {2}
