"""Groups of consumers, partitions and compaction on three nodes whose leaders change: Kafka's own requests. (§5, §7)"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from server.kafka.test_members import joining, syncing
from topics.protocol.cluster.formats import BATCHES
from topics.protocol.cluster.rule.unit import FORMAT
from topics.protocol.faces.http.append_body import parse_append
from topics.protocol.faces.http.records import parse_diff
from topics.protocol.faces.http.topics import parse_put
from topics.protocol.faces.kafka import errors
from topics.protocol.faces.kafka.schema import types
from topics.protocol.model.errors import ErrorCode, Rejection

from . import nodes
from .nodes import LIMITS, WAIT_MS, Node, Nodes
from .test_kafka_face import HostDesk, lead

ABSENT = -1


class GroupDesk(HostDesk):
    """Kafka's requests of a group to one node."""

    async def heard(self, name: str, version: int, **fields: Any) -> Any:
        return await self.answered(self.begin(name, version, **fields), name, version)

    async def joined(self) -> Any:
        """The answer to a new member that is alone in its group."""
        told = await self.heard("JoinGroup", 9, **joining())
        assert told.error_code == errors.MEMBER_ID_REQUIRED
        found = await self.heard("JoinGroup", 9, **joining(told.member_id))
        assert found.error_code == 0
        synced = await self.heard("SyncGroup", 3, **syncing(found, {found.member_id: b"all"}))
        assert (synced.error_code, synced.assignment) == (0, b"all")
        return found

    async def beat(self, joined: Any) -> int:
        code: int = (await self.heard("Heartbeat", 4, **_of(joined))).error_code
        return code

    async def commit(self, offset: int, joined: Any = None, index: int = 0) -> int:
        T = types("OffsetCommitRequest")
        part = T.OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        member = {} if joined is None else _of(joined)
        if "generation_id" in member:
            member["generation_id_or_member_epoch"] = member.pop("generation_id")
        topics = [T.OffsetCommitRequestTopic(name="t", partitions=[part])]
        found = await self.heard("OffsetCommit", 9, **{"group_id": "g", **member, "topics": topics})
        code: int = found.topics[0].partitions[0].error_code
        return code

    async def committed(self, index: int = 0) -> tuple[int, int]:
        """The error and the offset."""
        T = types("OffsetFetchRequest")
        topic = T.OffsetFetchRequestTopic(name="t", partition_indexes=[index])
        found = await self.heard("OffsetFetch", 7, group_id="g", topics=[topic])
        (part,) = found.topics[0].partitions if found.topics else (None,)
        return found.error_code, ABSENT if part is None else part.committed_offset

    async def listed(self) -> list[str]:
        found = await self.heard("ListGroups", 4)
        assert found.error_code == 0
        return [each.group_id for each in found.groups]


def _of(joined: Any) -> dict[str, Any]:
    return {
        "group_id": "g",
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
    }


def play(path: Path, story: Callable[[Nodes], Awaitable[None]]) -> None:
    """Of three nodes of this version, whose first leads."""

    async def lives() -> None:
        async with nodes.cluster(path) as cluster:
            await lead(cluster.nodes[0])
            await story(cluster)

    asyncio.run(asyncio.wait_for(lives(), 60))


async def put(node: Node, name: str = "t", **config: object) -> None:
    await node.ask(parse_put(name, orjson.dumps(config)))


async def all_have(cluster: Nodes, leader: Node) -> None:
    index = leader.host.index
    for node in cluster.nodes:
        assert await node.host.wait_for(index, WAIT_MS)


async def page(node: Node, partition: int = 0) -> list[tuple[int, Any]]:
    """Seqs and datas of a partition, as a node shows them."""
    body = orjson.dumps({"from_seq": 0, "partition": partition})
    found = await node.ask(parse_diff("t", body, LIMITS))
    return [(record["$seq"], record["data"]) for record in found["records"]]


# ---------------------------------------------------------------------- groups


def test_a_generation_goes_on_at_the_next_leader(tmp_path: Path) -> None:
    """No rebalance follows, what was committed is there, and the member commits on. (§5)"""

    async def story(cluster: Nodes) -> None:
        first, second, third = cluster.nodes
        await first.append(0, 1, 2)
        before, after = GroupDesk(first), GroupDesk(second)
        member = await before.joined()
        assert await before.commit(1, member) == 0
        await lead(second)
        assert await after.beat(member) == 0
        assert await after.committed() == (0, 1)
        assert await after.commit(2, member) == 0
        await all_have(cluster, second)
        for other in (GroupDesk(first), GroupDesk(third)):
            assert await other.beat(member) == errors.NOT_COORDINATOR
            assert await other.committed() == (errors.NOT_COORDINATOR, ABSENT)
            assert await other.commit(3, member) == errors.NOT_COORDINATOR
            assert await other.listed() == []
        assert await after.listed() == ["g"]
        await lead(third)
        assert await GroupDesk(third).committed() == (0, 2)
        assert await GroupDesk(third).beat(member) == 0

    play(tmp_path, story)


def test_a_leader_that_was_deposed_commits_nothing_and_gives_no_generation(tmp_path: Path) -> None:
    """What it decides rests on a log that does not take it; it does not know that yet. (§2, §5)"""

    async def story(cluster: Nodes) -> None:
        first, second, _ = cluster.nodes
        await first.append(0, 1, 2)
        desk = GroupDesk(first)
        member = await desk.joined()
        assert await desk.commit(1, member) == 0
        await all_have(cluster, first)
        asked = asyncio.gather(desk.commit(2, member), desk.heard("JoinGroup", 3, **joining()))
        await lead(second)
        code, joined = await asked
        after = GroupDesk(second)
        # The unit with the commit may have come before the next term did.
        assert (code, await after.committed()) in [
            (0, (0, 2)),
            (errors.NOT_COORDINATOR, (0, 1)),
        ]
        assert joined.error_code == errors.NOT_COORDINATOR
        assert await after.beat(member) == 0

    play(tmp_path, story)


def test_a_leader_that_does_not_know_its_end_tells_no_old_offset(tmp_path: Path) -> None:
    """As one that was paused for longer than its lease: a member that asks it would go back to where it was. Its answer
    waits for the shared log, which takes nothing of it any more. (§5)"""

    async def story(cluster: Nodes) -> None:
        first, second, _ = cluster.nodes
        await first.append(0, 1, 2)
        before, after = GroupDesk(first), GroupDesk(second)
        member = await before.joined()
        assert await before.commit(1, member) == 0
        await all_have(cluster, first)
        while not first.runtime.acceptance.turns.is_settled:
            await asyncio.sleep(0.001)
        first.host._work.stop_reading()
        await lead(second)
        assert await after.commit(2, member) == 0
        assert first.host.leads
        assert await before.committed() == (errors.NOT_COORDINATOR, ABSENT)
        assert await before.beat(member) == errors.NOT_COORDINATOR
        assert await after.committed() == (0, 2)

    play(tmp_path, story)


def test_a_late_node_has_groups_out_of_a_snapshot(tmp_path: Path) -> None:
    """The log that had them is trimmed; configs and partitions come with them. (§2)"""

    async def story(cluster: Nodes) -> None:
        first, second, late = cluster.nodes
        await late.stop()
        await put(first, partitions=3)
        await first.append(0)
        desk = GroupDesk(first)
        member = await desk.joined()
        assert await desk.commit(1, member) == 0
        assert await desk.commit(0, member, index=2) == 0
        assert await second.host.wait_for(first.host.index, WAIT_MS)
        cluster.log.trim_to(cluster.log.next_offset - 1)
        await late.start()
        await first.append(1)
        await all_have(cluster, first)
        assert late.path.with_name("n2.aside").is_dir()
        await lead(late)
        after = GroupDesk(late)
        assert await after.committed() == (0, 1)
        assert await after.committed(2) == (0, 0)
        assert await after.beat(member) == 0
        assert late.runtime.engine.has_partitions("t")

    play(tmp_path, story)


def test_groups_and_partitions_wait_until_every_node_reads_them(tmp_path: Path) -> None:
    """Requests are tried again, and nothing is applied. (117)"""

    async def story(cluster: Nodes) -> None:
        first = cluster.nodes[0]
        await first.append(0)
        first.host.write_format(BATCHES)
        desk = GroupDesk(first)
        again = errors.COORDINATOR_LOAD_IN_PROGRESS
        assert (await desk.heard("JoinGroup", 9, **joining())).error_code == again
        assert await desk.commit(1) == again
        assert await desk.listed() == []
        for config in ({"partitions": 3}, {"compact": True}):
            with pytest.raises(Rejection) as refused:
                await put(first, **config)
            assert refused.value.code is ErrorCode.UPGRADE_PENDING
        assert not first.runtime.engine.has_partitions("t")
        first.host.write_format(FORMAT)
        assert await desk.commit(1) == 0
        await put(first, partitions=3)
        assert first.runtime.engine.has_partitions("t")

    play(tmp_path, story)


# ---------------------------------------------------------------------- partitions and compaction


def test_partitions_are_the_same_on_every_node(tmp_path: Path) -> None:
    """Made by one leader, and written to and added to by the next."""

    async def story(cluster: Nodes) -> None:
        first, second, _ = cluster.nodes
        await put(first, partitions=2)
        await first.append(*range(10))
        await lead(second)
        await put(second, partitions=3)
        await second.append(*range(10, 30))
        await all_have(cluster, second)
        for partition in range(3):
            shown = [await page(node, partition) for node in cluster.nodes]
            assert shown[0] == shown[1] == shown[2]
        whole = [data for at in range(3) for _, data in await page(first, at)]
        assert sorted(whole) == list(range(30))

    play(tmp_path, story)


async def tagged(node: Node, *records: tuple[str, int]) -> None:
    body = orjson.dumps({"records": [{"data": data, "tag": tag} for tag, data in records]})
    await node.ask(parse_append("t", body, LIMITS, return_seqs=True, header_key=None))


async def compacted(cluster: Nodes, leader: Node, datas: list[int]) -> None:
    """The leader shows these alone, and every node the same records."""
    maintenance = leader.runtime.driver.maintenance
    while [data for _, data in await page(leader)] != datas:
        while maintenance.alarm_ms() is None:  # a round is under way
            await asyncio.sleep(0.001)
        ended = asyncio.Event()
        maintenance.round(lambda error, done=ended: done.set())
        await ended.wait()
    await all_have(cluster, leader)
    shown = [await page(node) for node in cluster.nodes]
    assert shown[0] == shown[1] == shown[2]


def test_the_leader_alone_compacts_and_the_next_goes_on(tmp_path: Path) -> None:
    """Its deletes are in the log, so that all nodes agree record by record. (§8)"""

    async def story(cluster: Nodes) -> None:
        first, second, _ = cluster.nodes
        await put(first, compact=True, kafka_configs={"min.cleanable.dirty.ratio": "0"})
        await tagged(first, ("a", 1), ("b", 2), ("a", 3))
        await compacted(cluster, first, [2, 3])
        assert second.runtime.driver.maintenance.schedule.key_compaction.records_deleted == 0
        await lead(second)
        await tagged(second, ("b", 4), ("a", 5))
        await compacted(cluster, second, [4, 5])

    play(tmp_path, story)
