"""How a node stands: before it has joined, and by what the others say."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from topics.protocol.cluster.rule.trimming import Wait
from topics.protocol.faces.http.cluster import TrimBody
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.server.cluster.kafka.heartbeats import Beat
from topics.server.cluster.node.host import NodeName
from topics.server.cluster.node.node_standing import NodeStanding, monotonic_ms
from topics.server.cluster.node.status import TrimStatus
from topics.server.cluster.node.trimmer import Trimmer
from topics.server.http.store_files import StoreFiles

from ..nodes import WAIT_MS, Nodes, cluster


class Files(StoreFiles):
    """Which are copied as long as the test says."""

    gives = False

    @property
    def is_giving(self) -> bool:
        return self.gives


def new(node: str = "n0", files: StoreFiles | None = None, kafka: str = "") -> NodeStanding:
    name = NodeName(cluster="test", node=node, url=f"http://{node}", kafka=kafka)
    store = files or StoreFiles(Path("store"))
    return NodeStanding(name, 0, store, process="p", session_ms=10_000, retain_ms=60_000)


def told(standing: NodeStanding, beat: Beat, silent_ms: int = 0) -> None:
    at_ms = monotonic_ms()
    standing.roster.hear(beat, stamped_ms=at_ms - silent_ms, at_ms=at_ms)


def with_cluster(path: Path, story: Callable[[Nodes], Awaitable[None]]) -> None:
    async def lives() -> None:
        async with cluster(path) as nodes:
            await story(nodes)

    asyncio.run(asyncio.wait_for(lives(), 60))


def test_before_it_has_joined_it_leads_nothing_and_says_what_it_waits_for() -> None:
    """Requests are refused then; probes and metrics are not. (§5)"""
    standing = new()

    assert not standing.leads
    assert (standing.leader_url, standing.term, standing.index) == (None, 0, 0)
    assert not asyncio.run(standing.wait_for(1, 1))
    assert not asyncio.run(standing.wait_for_end(1))
    status = standing.status()
    assert status.waits_for == "Kafka's brokers"
    assert (status.cluster, status.node, status.leader, status.nodes) == ("test", "n0", None, ())
    standing.look()


def test_it_says_of_itself_what_its_host_does(tmp_path: Path) -> None:
    """In heartbeats, and first of all nodes in `/v0/cluster`, where it has not beaten yet. (§5)"""

    async def story(nodes: Nodes) -> None:
        leader = nodes.nodes[0]
        standing = new()
        standing.host = leader.host
        assert standing.beat().role == "follower"

        await leader.lead()
        await leader.append("a")
        standing.look()

        beat = standing.beat()
        assert (beat.node, beat.role, beat.url) == ("n0", "leader", "http://n0")
        assert (beat.term, beat.index, beat.lag_units) == (1, leader.host.index, 0)
        (own,) = standing.nodes()
        assert (own.node, own.role, own.index) == ("n0", "leader", leader.host.index)
        assert standing.leads
        assert standing.term == 1
        assert await standing.wait_for_end(WAIT_MS)

    with_cluster(tmp_path, story)


def test_where_kafkas_clients_reach_a_node_is_told_by_itself(tmp_path: Path) -> None:
    """In a heartbeat, which an earlier version sends without that; it is reached by none of them. (§7)"""

    async def story(nodes: Nodes) -> None:
        standing = new(kafka="n0:9092")
        standing.host = nodes.nodes[0].host
        assert standing.beat().kafka == "n0:9092"
        told(standing, Beat(node="n1", process="q", url="http://n1", kafka="n1:9092"))
        told(standing, Beat(node="n2", process="r", url="http://n2"))
        assert [each.kafka for each in standing.nodes()] == ["n0:9092", "n1:9092", ""]
        assert b"kafka" not in msgspec.json.encode(Beat(node="n2", process="r", url="http://n2"))

    with_cluster(tmp_path, story)


def test_it_lags_behind_what_the_others_say_they_have(tmp_path: Path) -> None:
    """Also where it reads nothing at all, and so knows of no unit by itself; a node whose history is
    lost does not count. (§5)"""

    async def story(nodes: Nodes) -> None:
        standing = new()
        standing.host = nodes.nodes[0].host
        told(standing, Beat(node="n2", process="q", url="http://n2", role="lost", index=99))
        standing.look()
        assert standing.status().lag_units == 0

        told(standing, Beat(node="n1", process="q", url="http://n1", index=7))
        standing.look()

        assert standing.status().lag_units == 7
        assert standing.beat().lag_units == 7

    with_cluster(tmp_path, story)


def test_who_leads_is_told_by_heartbeats_to_a_node_that_has_not_read_it(tmp_path: Path) -> None:
    """It was started after the term began, and its store is past that. (§5)"""

    async def story(nodes: Nodes) -> None:
        standing = new()
        standing.host = nodes.nodes[0].host
        told(standing, Beat(node="n1", process="q", url="http://n1", role="leader"))
        standing.host._nodes = standing.nodes

        assert standing.leader_url == "http://n1"
        assert standing.status().leader == "n1"

    with_cluster(tmp_path, story)


def test_a_node_that_is_silent_is_away_and_then_not_told_of(tmp_path: Path) -> None:
    """After the session, and after the retention. (§3, §6)"""

    async def story(nodes: Nodes) -> None:
        standing = new()
        standing.host = nodes.nodes[0].host
        beats = {"n1": 0, "n2": 20_000, "n3": 90_000}
        for node, silent_ms in beats.items():
            told(standing, Beat(node=node, process="q", url="u", role="leader"), silent_ms)

        roles = {node.node: node.role for node in standing.nodes()}

        assert roles == {"n0": "follower", "n1": "leader", "n2": "away"}

    with_cluster(tmp_path, story)


def test_who_is_asked_for_a_snapshot(tmp_path: Path) -> None:
    """Followers before the leader, the farthest first; nobody that has nothing, whose history is lost or
    that is silent. (§6)"""

    async def story(nodes: Nodes) -> None:
        standing = new()
        standing.host = nodes.nodes[0].host
        for node, role, index in (
            ("n1", "leader", 9),
            ("n2", "follower", 7),
            ("n3", "follower", 8),
            ("n4", "follower", 0),
            ("n5", "lost", 9),
            ("n0", "follower", 9),
        ):
            told(
                standing, Beat(node=node, process="q", url=f"http://{node}", role=role, index=index)
            )  # type: ignore[arg-type]
        told(standing, Beat(node="n6", process="q", url="http://n6", index=9), silent_ms=10_001)

        assert [each.node for each in standing.sources()] == ["n3", "n2", "n1"]
        assert standing.units_elsewhere() == 9

    with_cluster(tmp_path, story)


def test_the_log_stays_for_a_snapshot_that_is_given_or_taken(tmp_path: Path) -> None:
    """From where this node's disk was when the copying began, and from the mark of what was brought here
    and is not in its place yet. (§6)"""

    async def story(nodes: Nodes) -> None:
        leader = nodes.nodes[0]
        files = Files(tmp_path / "store")
        standing = new(files=files)
        standing.host = leader.host
        await leader.lead()
        await leader.append("a")
        await leader.runtime.synced()
        standing.look()
        assert standing.holds == -1

        files.gives = True
        standing.look()
        held = standing.holds
        assert held == leader.host.durable >= 0
        await leader.append("b")
        await leader.runtime.synced()
        standing.look()
        assert standing.holds == held
        leader.host.offered = held - 1
        standing.look()
        assert standing.holds == held - 1

        files.gives, leader.host.offered = False, -1
        standing.look()
        assert standing.holds == -1

    with_cluster(tmp_path, story)


def test_it_says_what_it_needs_of_the_log_and_what_is_known_of_the_trimming(
    tmp_path: Path,
) -> None:
    """Its mark with the epoch, a snapshot that is under way, and what the leader said. (§6)"""

    async def story(nodes: Nodes) -> None:
        leader = nodes.nodes[0]
        standing = new()
        standing.host, standing.holds = leader.host, 3
        await leader.lead()
        await leader.append("a")
        assert await leader.runtime.synced()
        trim = TrimStatus(looked_ms=9, before=1, waits_for=Wait.RETENTION)
        told(standing, Beat(node="n1", process="q", url="http://n1", durable=5, trim=trim))

        beat = standing.beat()

        assert (beat.durable, beat.durable_epoch) == (leader.host.durable, 0)
        assert (beat.needs_log, beat.holds, beat.trim) == (True, 3, trim)
        assert standing.status().trim == trim
        assert [node.durable for node in standing.nodes()] == [leader.host.durable, 5]

    with_cluster(tmp_path, story)


def test_it_trims_by_hand_once_it_has_joined(tmp_path: Path) -> None:
    """And says at once where the log begins; before that it knows no log. (§6)"""

    async def story(nodes: Nodes) -> None:
        leader = nodes.nodes[0]
        standing = new()
        with pytest.raises(Rejection) as refused:
            await standing.trim(TrimBody(now=True))
        assert refused.value.code is ErrorCode.NOT_LEADER

        standing.host, standing.log_start = leader.host, 0
        await leader.lead()
        await leader.append("a")
        assert await leader.runtime.synced()
        standing.trimmer = Trimmer(
            nodes.log,
            standing,
            Hearing(standing),
            retain_ms=standing.retain_ms,
            near_ms=10_000,
            monotonic_ms=monotonic_ms,
            now_ms=lambda: 77,
        )
        found = await standing.trim(TrimBody(now=True, alone=True))

        assert found.before == nodes.log.start == leader.host.durable > 0
        assert standing.status().log_start == found.before
        said = standing.status().trim
        assert said is not None
        assert (said.last_ms, said.node) == (77, "n0")
        assert standing.log_retained_until_ms(5) == 5 + standing.log_kept_ms

    with_cluster(tmp_path, story)


def test_it_has_the_log_say_the_time_where_it_leads(tmp_path: Path) -> None:
    """A unit of its own, which every node reads; one that follows says nothing. (§4, §6)"""

    async def story(nodes: Nodes) -> None:
        leader, other, _ = nodes.nodes
        standing = new()
        standing.mark_time()
        await leader.lead()
        await leader.append("a")
        index = leader.host.index
        standing.host = other.host
        standing.mark_time()
        assert leader.host.index == index
        standing.host = leader.host
        while leader.host.index == index:
            standing.mark_time()
            await asyncio.sleep(0.001)
        assert await other.host.wait_for(leader.host.index, WAIT_MS)

    with_cluster(tmp_path, story)


class Hearing:
    """Implements `trimmer.Hearing`: what the node says is heard at once."""

    def __init__(self, standing: NodeStanding) -> None:
        self.roster = standing.roster
        self._standing = standing

    async def catch_up(self, beat: Beat) -> bool:
        told(self._standing, beat)
        return True
