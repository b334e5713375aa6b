"""A node's host on an event loop: three of them over one log, with real stores."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from cluster.memory_log import MemoryLog, Trouble

from topics.protocol.cluster.acceptance import UnitAcceptance
from topics.protocol.cluster.member import Member
from topics.protocol.cluster.rule.leading import NodeState
from topics.protocol.cluster.rule.unit import FORMAT, TermBegan, encode
from topics.protocol.model.errors import ErrorCode, Rejection, StoreError

from ..nodes import SHARD, WAIT_MS, Nodes, cluster


def on_a_loop(
    test: Callable[[Path], Coroutine[Any, Any, None]],
) -> Callable[[Path], None]:
    @wraps(test)
    def run(tmp_path: Path) -> None:
        asyncio.run(asyncio.wait_for(test(tmp_path), 60))

    return run


async def all_have(nodes: Nodes, index: int) -> None:
    for node in nodes.nodes:
        assert await node.host.wait_for(index, WAIT_MS)


@on_a_loop
async def test_what_one_node_acknowledges_all_show(tmp_path: Path) -> None:
    """The leader answers once the log has it; the others apply it. (§2)"""
    async with cluster(tmp_path) as nodes:
        leader, *others = nodes.nodes
        await leader.lead()

        answer = await leader.append("a", "b")

        assert answer["seqs"] == [1, 2]
        await all_have(nodes, leader.host.index)
        for node in nodes.nodes:
            assert await node.datas() == ["a", "b"]
        for node in others:
            assert not node.host.leads
            assert node.host.leader_url == "http://n0"
            assert node.host.status().leader == "n0"


@on_a_loop
async def test_a_node_that_follows_refuses_a_write(tmp_path: Path) -> None:
    """503 `not_leader`, and nothing was done. (§5)"""
    async with cluster(tmp_path) as nodes:
        await nodes.nodes[0].lead()

        with pytest.raises(Rejection) as refused:
            await nodes.nodes[1].append("a")

        assert refused.value.code is ErrorCode.NOT_LEADER
        assert refused.value.detail == {"outcome": "not_applied"}


@on_a_loop
async def test_another_node_leads_and_the_first_follows(tmp_path: Path) -> None:
    """The deposed leader drops its engine, opens its store anew, and has what the new one decides."""
    async with cluster(tmp_path) as nodes:
        first, second, _ = nodes.nodes
        await first.lead()
        await first.append("a")
        engine = first.runtime.engine

        await first.host.lost()
        await second.lead()
        await second.append("b")

        await all_have(nodes, second.host.index)
        assert first.runtime.engine is not engine
        assert await first.datas() == ["a", "b"]
        assert first.host.term == second.host.term == 2
        assert first.host.leader_url == "http://n1"


@on_a_loop
async def test_a_leader_that_does_not_know_is_deposed(tmp_path: Path) -> None:
    """Both believe to lead.  What the old one sends has no effect, and its client is told that it never
    will have. (§2)"""
    log = MemoryLog()
    async with cluster(tmp_path, log) as nodes:
        old, new, _ = nodes.nodes
        await old.lead()
        await old.append("a")
        await new.lead()
        assert await old.host._wait_until(lambda: not old.host.leads, WAIT_MS)

        with pytest.raises(Rejection) as refused:
            await old.append("lost")

        assert refused.value.code is ErrorCode.NOT_LEADER
        await new.append("b")
        await all_have(nodes, new.host.index)
        assert await old.datas() == ["a", "b"]


@on_a_loop
async def test_an_unknown_outcome_is_read_back(tmp_path: Path) -> None:
    """The log has it and did not say so."""
    # Appends 0 and 1 are the term, and the leader's first unit.
    async with cluster(tmp_path, MemoryLog({2: Trouble.UNANSWERED, 3: Trouble.TWICE})) as nodes:
        leader = nodes.nodes[0]
        await leader.lead()
        await leader.append("a")
        await leader.append("b")

        await all_have(nodes, leader.host.index)
        assert await nodes.nodes[1].datas() == ["a", "b"]


@on_a_loop
async def test_a_record_that_the_log_refuses_ends_the_term(tmp_path: Path) -> None:
    """The client is told that the outcome is unknown; the node leads again, from what is accepted."""
    async with cluster(tmp_path, MemoryLog({3: Trouble.REFUSED})) as nodes:
        leader = nodes.nodes[0]
        await leader.lead()
        await leader.append("a")

        with pytest.raises(Rejection) as refused:
            await leader.append("b")

        assert refused.value.code is ErrorCode.NOT_LEADER
        assert refused.value.detail == {"outcome": "unknown"}
        assert await leader.host._wait_until(lambda: leader.host.term == 2, WAIT_MS)
        assert await leader.host._wait_until(lambda: leader.host.leads, WAIT_MS)
        await leader.append("c")
        assert await leader.datas() == ["a", "c"]


@on_a_loop
async def test_commands_that_come_while_a_unit_is_on_its_way_are_the_next(tmp_path: Path) -> None:
    """Each is answered once, in order; a read waits for what it may rest on."""
    async with cluster(tmp_path, MemoryLog({2: Trouble.HELD})) as nodes:
        leader = nodes.nodes[0]
        await leader.lead()
        await asyncio.sleep(0)
        first = leader.append("a")
        assert await leader.host._wait_until(lambda: bool(nodes.log._late), WAIT_MS)
        rest = [leader.append(at) for at in range(3)]
        read = asyncio.ensure_future(leader.datas())
        await asyncio.sleep(0)
        assert not any(answer.done() for answer in (first, read, *rest))

        nodes.log.land()

        assert (await first)["seqs"] == [1]
        assert [(await answer)["seqs"] for answer in rest] == [[2], [3], [4]]
        await read
        assert await leader.datas() == ["a", 0, 1, 2]


@on_a_loop
async def test_a_node_that_was_away_reads_on(tmp_path: Path) -> None:
    """From the place that is in its own log."""
    async with cluster(tmp_path) as nodes:
        leader, away, _ = nodes.nodes
        await leader.lead()
        await leader.append("a")
        await all_have(nodes, leader.host.index)
        await away.stop()
        await leader.append("b")

        await away.start()

        assert away.host.index > 0
        assert await away.host.wait_for(leader.host.index, WAIT_MS)
        assert await away.datas() == ["a", "b"]


@on_a_loop
async def test_a_node_whose_place_was_trimmed_takes_anothers_data(tmp_path: Path) -> None:
    """Its own directory is set aside, whole. (§6)"""
    async with cluster(tmp_path) as nodes:
        leader, away, _ = nodes.nodes
        await leader.lead()
        await leader.append("a")
        await all_have(nodes, leader.host.index)
        await away.stop()
        await leader.append("b")
        await leader.append("c")
        nodes.log.trim_to(nodes.log.next_offset - 1)

        await away.start()

        assert await away.host.wait_for(leader.host.index, WAIT_MS)
        assert await away.datas() == ["a", "b", "c"]
        assert (tmp_path / "n1.aside").is_dir()
        assert away.host.status().loss is None


@on_a_loop
async def test_a_log_that_lost_is_told_and_nothing_is_shown(tmp_path: Path) -> None:
    """What was acknowledged is not in the log any more: no node shows it, and the loss is told."""
    async with cluster(tmp_path) as nodes:
        leader = nodes.nodes[0]
        await leader.lead()
        await leader.append("a")
        await leader.append("b")
        await all_have(nodes, leader.host.index)

        nodes.log.cut(1)

        node = nodes.nodes[1]
        assert await node.host._wait_until(
            lambda: node.host.member.state is NodeState.ASIDE, WAIT_MS
        )
        with pytest.raises(Rejection) as refused:
            await node.datas()
        assert refused.value.code is ErrorCode.REPLICA_BEHIND
        loss = node.host.status().loss
        assert loss is not None
        assert loss.index == 3


@on_a_loop
async def test_what_a_log_has_lost_is_set_aside_for_what_it_has(tmp_path: Path) -> None:
    """A node that had not read what is gone gives its data to those that had; the loss stays told, with
    where theirs are. (§2)"""
    async with cluster(tmp_path) as nodes:
        leader, other, behind = nodes.nodes
        await leader.lead()
        await leader.append("a")
        await all_have(nodes, leader.host.index)
        kept = nodes.log.next_offset
        await behind.stop()
        await leader.append("b")
        assert await other.host.wait_for(leader.host.index, WAIT_MS)

        nodes.log.cut(kept)
        for node in (leader, other):
            await node.host._wait_until(lambda at=node: at.host.status().losses == 1, WAIT_MS)  # type: ignore[misc]
        await behind.start()
        await behind.lead()
        await behind.append("c")

        for node in (leader, other):
            assert await node.host._wait_until(
                lambda at=node: (  # type: ignore[misc]
                    not at.host.status().history_lost and at.host.index == behind.host.index
                ),
                WAIT_MS,
            )
            assert await node.datas() == ["a", "c"]
            status = node.host.status()
            assert status.loss is not None
            assert status.loss.set_aside == str(tmp_path / f"{node.name}.aside")
            assert not status.history_lost
            assert status.losses == 1


@on_a_loop
async def test_a_wait_for_the_end_is_bounded(tmp_path: Path) -> None:
    """True once all that was in the log is applied; False where that takes too long."""
    async with cluster(tmp_path) as nodes:
        leader, other, _ = nodes.nodes
        await leader.lead()
        await leader.append("a")

        assert await other.host.wait_for_end(WAIT_MS)
        assert await other.datas() == ["a"]
        assert await leader.host.wait_for_end(WAIT_MS)

        assert not await other.host.wait_for(other.host.index + 1, 1)
        other.host._work.stop_reading()
        await leader.append("b")
        assert not await other.host.wait_for_end(1)


@on_a_loop
async def test_what_is_on_the_disk_stays_known_while_the_store_is_opened_anew(
    tmp_path: Path,
) -> None:
    """The log is trimmed by it: a node that stops leading is not taken for one without data. (§6)"""
    async with cluster(tmp_path) as nodes:
        leader = nodes.nodes[0]
        await leader.lead()
        await leader.append("a")
        assert await leader.runtime.synced()
        known = leader.host.durable_mark
        assert known.offset >= 0
        assert leader.host.needs_log

        acceptance, leader.host.member.acceptance = leader.host.member.acceptance, None
        assert leader.host.durable_mark == known
        leader.host.member.acceptance = acceptance


@on_a_loop
async def test_a_node_without_data_needs_the_log_where_it_has_no_other_way(tmp_path: Path) -> None:
    """Else it takes a snapshot, and nothing waits for it. (§6)"""
    async with cluster(tmp_path) as nodes:
        host = nodes.nodes[0].host
        assert not host.needs_log
        host._snapshots = None
        assert host.needs_log


@on_a_loop
async def test_a_record_of_a_newer_version_ends_this_process(tmp_path: Path) -> None:
    """With a sentence, and nothing behind it is applied: to skip it would be to go on from another
    state than the others. (§1)"""
    async with cluster(tmp_path) as nodes:
        leader, other, _ = nodes.nodes
        await leader.lead()
        await leader.append("a")
        await all_have(nodes, leader.host.index)
        index = other.host.index

        newer = encode(TermBegan(2, bytes(16), "newer"), SHARD, format_=FORMAT + 1)
        nodes.log.put(newer)

        why = await asyncio.wait_for(asyncio.shield(other.host.halted), 60)
        assert f"format {FORMAT + 1}" in why
        assert "upgrade this node" in why
        assert other.host.index == index


@on_a_loop
async def test_leading_moves_while_clients_write(tmp_path: Path) -> None:
    """Engines are dropped and opened anew under load: what was acknowledged is on every node, once."""
    async with cluster(tmp_path) as nodes:
        acknowledged: set[str] = set()

        async def write(client: int) -> None:
            for number in range(12):
                data = f"{client}-{number}"
                while data not in acknowledged:
                    leader = next((node for node in nodes.nodes if node.host.leads), None)
                    with suppress(Rejection):  # the key makes the repetition safe
                        if leader is not None:
                            await leader.append(data, key=data)
                            acknowledged.add(data)
                    await asyncio.sleep(0)

        clients = [asyncio.create_task(write(client)) for client in range(4)]
        for turn in range(6):
            node = nodes.nodes[turn % 3]
            for other in nodes.nodes:
                await other.host.lost()
            await node.lead()
        await asyncio.gather(*clients)

        for node in nodes.nodes:
            assert await node.host.wait_for_end(WAIT_MS)
            datas = await node.datas()
            assert sorted(datas) == sorted(acknowledged)


@on_a_loop
async def test_a_store_that_is_replayed_and_cannot_be_used_ends_the_start(tmp_path: Path) -> None:
    """The start says why, in one line, as where the replay itself fails; it does not wait for ever."""

    def breaks(member: Member, driver: UnitAcceptance) -> None:
        raise MemoryError("no memory")

    async with cluster(tmp_path) as nodes:
        node = nodes.nodes[0]
        await node.stop()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Member, "opened", breaks)
            with pytest.raises(StoreError, match="this node's data cannot be used: MemoryError"):
                await node.start()
            await node.runtime.stop()

        await node.start()

        assert node.host.member.node is not None
