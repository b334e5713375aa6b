"""What Kafka's clients are told by the nodes of a cluster. (§7)"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from server.kafka.desk import KafkaDesk, some
from topics.protocol.cluster.rule.unit import FORMAT
from topics.protocol.faces.kafka import errors
from topics.protocol.faces.kafka.apis import SERVED
from topics.protocol.faces.kafka.error_codes import error_codes
from topics.protocol.faces.kafka.roles import APIS, OF_EVERY_NODE
from topics.protocol.faces.kafka.schema import types
from topics.protocol.model.commands import CommitOffsets
from topics.protocol.model.groups import Membership, OffsetCommit
from topics.server.access.guard import Guard
from topics.server.access.keys import source_of
from topics.server.cluster.exchange import ClusterExchange
from topics.server.cluster.kafka_face import FaceNodes, address_of, namesake_of, number_of
from topics.server.cluster.neighbours import Neighbours
from topics.server.cluster.peers import Peers
from topics.server.kafka import call as calls
from topics.server.kafka.exchange import Answered, Refused
from topics.server.kafka.steps import Running
from topics.testing import _Shell

from . import nodes
from .pair import SECRET, Node, Pair, a_pair, node_status, run, until

N1, N2, N3 = (number_of(node) for node in ("n1", "n2", "n3"))
"""The first leads, the second follows."""


class NodeDesk(KafkaDesk):
    """Kafka's exchange of one node."""

    def __init__(self, node: Node) -> None:
        super().__init__(node.exchange.parts[2], shell=node.shell, http=node.exchange)

    async def asked(self, name: str, version: int | None = None, **fields: Any) -> Any:
        """The answer to a request for which another node may be asked."""
        running = self.begin(name, version, **fields)
        await until(lambda: running.is_over)
        return self.answer(running, name, version)

    def metadata(self, *names: str, **fields: Any) -> Any:
        return self.ask("Metadata", **_of_topics(names), **fields)

    def partition(self, name: str = "t") -> Any:
        (topic,) = self.metadata(name).topics
        return topic.partitions[0]


def _of_topics(names: tuple[str, ...]) -> dict[str, Any]:
    T = types("MetadataRequest")
    return {"topics": [T.MetadataRequestTopic(name=name) for name in names]}


def play(story: Callable[[Pair], Awaitable[None]]) -> None:
    """Of a leader and a follower with topic `t`."""

    async def played() -> None:
        async with a_pair() as pair:
            for node in (pair.leader, pair.follower):
                node.put("t", 1, 2, 3)
            await story(pair)

    run(played())


# ---------------------------------------------------------------------- who is there


def test_a_node_has_one_number_on_every_node() -> None:
    """A positive int32: clients of Kafka know nodes by it alone. (128)"""
    assert (N1, N2) == (1803113708, 1919944022)
    assert 0 <= min(N1, N2) <= max(N1, N2) < 1 << 31


def test_two_names_of_one_number_are_found() -> None:
    """CRC-32 gives the names `plumless` and `buckeroo` one number."""
    assert number_of("plumless") == number_of("buckeroo")
    assert namesake_of("plumless", ["a", "plumless", "buckeroo"]) == "buckeroo"
    assert namesake_of("plumless", ["a", "plumless"]) is None


def test_what_a_node_says_is_an_address_or_none() -> None:
    """A node of an earlier version says nothing."""
    assert address_of("kafka.test:9092") == ("kafka.test", 9092)
    assert address_of("::1:9092") == ("::1", 9092)
    for said in ("", "kafka.test", ":9092", "kafka.test:", "kafka.test:x", "kafka.test:9999999"):
        assert address_of(said) is None


def test_every_node_names_all_and_the_leader() -> None:
    async def story(pair: Pair) -> None:
        ports = {N1: pair.leader.port, N2: pair.follower.port}
        histories = set()
        for node in (pair.leader, pair.follower):
            desk = NodeDesk(node)
            node.standing.term = 7
            found = desk.metadata("t")
            assert {each.node_id: each.port for each in found.brokers} == ports
            assert {each.host for each in found.brokers} == {"127.0.0.1"}
            assert found.controller_id == N1
            part = found.topics[0].partitions[0]
            assert (part.error_code, part.leader_id, part.leader_epoch) == (0, N1, 7)
            assert part.replica_nodes == part.isr_nodes == sorted((N1, N2))
            described = desk.ask("DescribeCluster")
            assert (described.controller_id, len(described.brokers)) == (N1, 2)
            (group,) = desk.ask("FindCoordinator", coordinator_keys=["g"]).coordinators
            assert (group.node_id, group.port) == (N1, pair.leader.port)
            histories.add(described.cluster_id)
        assert len(histories) == 1 or all(histories)

    play(story)


def test_a_node_that_is_away_or_says_no_address_is_not_there() -> None:
    """It would take a client's time, and a node of an earlier version its connection. (118)"""

    async def story(pair: Pair) -> None:
        follower = pair.follower.standing
        leader, own = follower.nodes
        follower.nodes = (leader, own, node_status("n3", "", "follower"))
        desk = NodeDesk(pair.follower)
        assert [each.node_id for each in desk.metadata().brokers] == sorted((N1, N2))
        follower.nodes = (leader, own, node_status("n3", "http://n3:4000", "away"))
        assert [each.node_id for each in desk.metadata().brokers] == sorted((N1, N2))
        follower.nodes = (leader, own, node_status("n3", "http://n3:4000", "follower"))
        assert {each.node_id for each in desk.metadata().brokers} == {N1, N2, N3}

    play(story)


@pytest.mark.parametrize("role", ["away", "follower"])
def test_without_a_leader_clients_try_again(role: str) -> None:
    """During an election, and where the leader is of an earlier version."""

    async def story(pair: Pair) -> None:
        standing = pair.follower.standing
        standing.nodes = (
            node_status("n1", pair.leader.url if role == "away" else "", role),
            standing.nodes[1],
        )
        desk = NodeDesk(pair.follower)
        found = desk.metadata("t", "new", allow_auto_topic_creation=True)
        assert found.controller_id == -1
        known, new = found.topics
        (part,) = known.partitions
        assert (part.error_code, part.leader_id) == (errors.LEADER_NOT_AVAILABLE, -1)
        assert new.error_code == errors.LEADER_NOT_AVAILABLE
        (group,) = desk.ask("FindCoordinator", coordinator_keys=["g"]).coordinators
        assert (group.error_code, group.node_id) == (errors.COORDINATOR_NOT_AVAILABLE, -1)
        given = desk.ask("InitProducerId", transactional_id=None)
        assert given.error_code == errors.COORDINATOR_LOAD_IN_PROGRESS

    play(story)


def test_a_node_that_has_led_names_no_leader_before_the_next() -> None:
    """Its own term is over, and it has not read of another."""

    async def story(pair: Pair) -> None:
        standing = pair.leader.standing
        desk = NodeDesk(pair.leader)
        assert desk.partition().leader_id == N1
        standing.leads = False
        assert desk.partition().leader_id == -1

    play(story)


# ---------------------------------------------------------------------- what a follower answers


@pytest.mark.parametrize(
    "key",
    [key for key in SERVED if APIS[key].role not in OF_EVERY_NODE],
    ids=lambda key: SERVED[key].name,
)
def test_a_follower_sends_the_client_to_the_leader(key: int) -> None:
    """Nothing is forwarded."""
    api = SERVED[key]

    async def story(pair: Pair) -> None:
        desk = NodeDesk(pair.follower)
        if api.name == "Produce":
            assert desk.produce(some(b"1"))[0].error_code == errors.NOT_LEADER_OR_FOLLOWER
            with pytest.raises(Refused):  # nobody reads an answer: its end has the client look
                desk.produce(some(b"1"), acks=0)
        elif api.name == "Fetch":
            assert desk.fetch(0).error_code == errors.NOT_LEADER_OR_FOLLOWER
        elif api.name == "ListOffsets":
            assert desk.list_offset(-1).error_code == errors.NOT_LEADER_OR_FOLLOWER
        else:
            answer = desk.ask(api.name)
            codes = error_codes(api.name + "Response", answer)
            assert set(codes) <= {APIS[key].role.elsewhere}
        assert pair.follower.peers.counts.forwarded == 0
        assert pair.leader.shell.engine.topic_count == 1

    play(story)


def test_of_many_partitions_a_follower_gives_way_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """One request is no reason for others to wait."""
    monkeypatch.setattr(calls, "TURN_S", 0.0)  # each look finds that it took too long

    async def story(pair: Pair) -> None:
        desk = NodeDesk(pair.follower)
        T = types("ListOffsetsRequest")
        parts = [T.ListOffsetsPartition(partition_index=at) for at in range(2 * calls.LOOK_PARTS)]
        topics = [T.ListOffsetsTopic(name="t", partitions=parts)]
        turns: list[Callable[[], object]] = []
        monkeypatch.setattr(pair.follower.shell, "later", lambda _, call: turns.append(call))
        running = desk.begin("ListOffsets", topics=topics)
        count = 0
        while turns:
            assert not running.is_over
            count += 1
            turns.pop()()
        assert count > 1
        (found,) = desk.answer(running, "ListOffsets").topics
        assert [each.error_code for each in found.partitions] == [6] * len(parts)

    play(story)


def test_configs_are_told_by_every_node() -> None:
    """Copies are the log's: read only, and the number with which a topic may be made."""

    async def story(pair: Pair) -> None:
        T = types("DescribeConfigsRequest")
        for node, number in ((pair.leader, N1), (pair.follower, N2)):
            desk = NodeDesk(node)
            resources = [
                T.DescribeConfigsResource(resource_type=2, resource_name="t"),
                T.DescribeConfigsResource(resource_type=4, resource_name=str(number)),
                T.DescribeConfigsResource(resource_type=4, resource_name="1"),
            ]
            topic, own, other = desk.ask("DescribeConfigs", resources=resources).results
            in_sync = {each.name: each for each in topic.configs}["min.insync.replicas"]
            assert (in_sync.value, in_sync.read_only) == ("2", True)
            values = {each.name: each.value for each in own.configs}
            assert values["default.replication.factor"] == "3"
            assert values["min.insync.replicas"] == "2"
            assert other.error_code == errors.INVALID_REQUEST

    play(story)


def test_configs_are_changed_at_every_node() -> None:
    """Java asks any node, and no controller after it.  A replica that lags knows an earlier config: the change is made of
    what the leader has."""

    async def story(pair: Pair) -> None:
        pair.leader.put("t", cap_records=7)
        desk = NodeDesk(pair.follower)
        T = types("IncrementalAlterConfigsRequest")

        async def changed(kind: int, resource: str, name: str) -> Any:
            change = T.AlterableConfig(name=name, value="5")
            asked = T.AlterConfigsResource(
                resource_type=kind, resource_name=resource, configs=[change]
            )
            answer = await desk.asked("IncrementalAlterConfigs", resources=[asked])
            return answer.responses[0].error_code

        assert await changed(2, "t", "retention.ms") == 0
        kept = (await pair.leader.ask("GET", "/v0/topics/t")).json["config"]
        assert (kept["ttl_ms"], kept["cap_records"]) == (5, 7)
        assert await changed(4, str(N2), "num.partitions") == errors.INVALID_REQUEST
        pair.follower.standing.leader_url = None
        assert await changed(2, "t", "retention.ms") == errors.LEADER_NOT_AVAILABLE

    play(story)


def test_a_topic_has_the_copies_that_the_log_has() -> None:
    async def story(pair: Pair) -> None:
        desk = NodeDesk(pair.leader)
        T = types("CreateTopicsRequest")

        def made(name: str, replicas: int, **configs: str) -> Any:
            given = [
                T.CreatableTopicConfig(name=each.replace("_", "."), value=value)
                for each, value in configs.items()
            ]
            topic = T.CreatableTopic(
                name=name, num_partitions=1, replication_factor=replicas, configs=given
            )
            (found,) = desk.ask("CreateTopics", topics=[topic]).topics
            return found

        assert made("a", 2).error_code == errors.INVALID_REPLICATION_FACTOR
        assert made("a", 3, min_insync_replicas="2").replication_factor == 3
        assert made("b", -1).replication_factor == 3
        assert made("c", -1, min_insync_replicas="3").error_code == errors.INVALID_CONFIG
        change = types("IncrementalAlterConfigsRequest").AlterableConfig
        topic = types("IncrementalAlterConfigsRequest").AlterConfigsResource(
            resource_type=2,
            resource_name="a",
            configs=[change(name="min.insync.replicas", value="2")],
        )
        (answer,) = desk.ask("IncrementalAlterConfigs", resources=[topic]).responses
        assert answer.error_code == 0

    play(story)


# ---------------------------------------------------------------------- epochs


def test_the_epoch_of_a_leader_is_its_term() -> None:
    """A client that knows another leader is told so, whoever is behind. (KIP-320)"""

    async def story(pair: Pair) -> None:
        pair.leader.standing.term = 5
        desk = NodeDesk(pair.leader)
        T = types("FetchRequest")

        def fetched(epoch: int) -> int:
            part = T.FetchPartition(partition_max_bytes=1 << 20, current_leader_epoch=epoch)
            topics = [T.FetchTopic(topic="t", partitions=[part])]
            answer = desk.ask("Fetch", 12, max_bytes=1 << 20, topics=topics)
            code: int = answer.responses[0].partitions[0].error_code
            return code

        assert [fetched(epoch) for epoch in (-1, 5)] == [0, 0]
        assert fetched(4) == errors.FENCED_LEADER_EPOCH
        assert fetched(6) == errors.UNKNOWN_LEADER_EPOCH

    play(story)


def test_no_log_diverges_from_an_earlier_leaders() -> None:
    """Seqs are never given twice: what a client has of any epoch reaches to the head."""

    async def story(pair: Pair) -> None:
        pair.leader.standing.term = 5
        desk = NodeDesk(pair.leader)
        T = types("OffsetForLeaderEpochRequest")

        def end(epoch: int, current: int = 5) -> tuple[int, int, int]:
            part = T.OffsetForLeaderPartition(leader_epoch=epoch, current_leader_epoch=current)
            topics = [T.OffsetForLeaderTopic(topic="t", partitions=[part])]
            (found,) = desk.ask("OffsetForLeaderEpoch", topics=topics).topics[0].partitions
            return found.error_code, found.leader_epoch, found.end_offset

        assert [end(epoch) for epoch in (0, 4, 5)] == [(0, 0, 3), (0, 4, 3), (0, 5, 3)]
        assert [end(epoch) for epoch in (-1, 6)] == [(0, -1, -1)] * 2
        assert end(4, current=4)[0] == errors.FENCED_LEADER_EPOCH

    play(story)


def test_a_leader_that_was_deposed_looks_again_before_an_offset_is_out_of_range() -> None:
    """A client that was at the next leader would begin at the log's begin, or skip what is new."""

    async def story(pair: Pair) -> None:
        standing = pair.leader.standing
        standing.ends = None
        desk = NodeDesk(pair.leader)
        fetching = desk.begin("Fetch", 12, **desk.fetching(4))
        await until(lambda: standing.waited)
        assert not fetching.is_over
        pair.leader.put("t", 4, 5)
        standing.ends = True
        await until(lambda: fetching.is_over)
        (part,) = desk.answer(fetching, "Fetch", 12).responses[0].partitions
        assert (part.error_code, part.high_watermark) == (0, 5)
        standing.ends = False
        answer = await desk.asked("Fetch", 12, **desk.fetching(9))
        assert answer.responses[0].partitions[0].error_code == errors.NOT_LEADER_OR_FOLLOWER

    play(story)


def test_a_leader_that_was_deposed_looks_again_before_an_offset_is_not_there() -> None:
    """The group may have committed it at the next leader: a client without an offset begins anew, or skips what is
    there. (§5)"""

    async def story(pair: Pair) -> None:
        standing = pair.leader.standing
        standing.ends = None
        desk = NodeDesk(pair.leader)
        T = types("OffsetFetchRequest")
        topic = T.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
        asked: dict[str, Any] = {"group_id": "g", "topics": [topic]}
        fetching = desk.begin("OffsetFetch", 7, **asked)
        await until(lambda: standing.waited)
        assert not fetching.is_over
        commit = CommitOffsets("g", [OffsetCommit("t", 2, -1, "")], Membership())
        pair.leader.shell.submit(commit, lambda _: None)
        standing.ends = True
        await until(lambda: fetching.is_over)
        found = desk.answer(fetching, "OffsetFetch", 7)
        assert found.error_code == 0
        assert found.topics[0].partitions[0].committed_offset == 2
        standing.ends = False
        again = await desk.asked("OffsetFetch", 7, **asked)
        assert again.topics[0].partitions[0].committed_offset == 2  # what is there needs no look
        unknown = await desk.asked("OffsetFetch", 7, **{**asked, "group_id": "h"})
        assert unknown.error_code == errors.NOT_COORDINATOR

    play(story)


# ---------------------------------------------------------------------- what the leader does for others


def test_a_topic_that_a_follower_is_asked_for_is_made_by_the_leader() -> None:
    """A client may know no other node: it would ask for ever.  It is told to come again."""

    async def story(pair: Pair) -> None:
        desk = NodeDesk(pair.follower)
        asked = {**_of_topics(("new",)), "allow_auto_topic_creation": True}
        (found,) = (await desk.asked("Metadata", **asked)).topics
        assert found.error_code == errors.LEADER_NOT_AVAILABLE
        assert NodeDesk(pair.leader).partition("new").leader_id == N1

    play(story)


def test_each_node_gives_ids_of_blocks_of_its_own() -> None:
    """No two producers have one id, whichever nodes they ask. (125)"""

    async def story(pair: Pair) -> None:
        leader, follower = NodeDesk(pair.leader), NodeDesk(pair.follower)
        ids = []
        for desk in (leader, follower, follower, leader):
            given = await desk.asked("InitProducerId", transactional_id=None)
            assert given.error_code == 0
            ids.append(given.producer_id)
        assert len(set(ids)) == 4
        assert ids[2] == ids[1] + 1
        assert pair.follower.peers.counts.forwarded == 1

    play(story)


def test_with_keys_the_leader_looks_again() -> None:
    """A key that may not write makes nothing, whichever node it asks."""

    def guard() -> Guard:
        source = source_of("secret-of-writers:w:new", None)
        assert source is not None
        return Guard(source)

    async def story() -> None:
        async with a_pair(guard) as pair:
            desk = NodeDesk(pair.follower)
            desk.ask("SaslHandshake", mechanism="PLAIN")
            desk.ask("SaslAuthenticate", auth_bytes=b"\0anyone\0secret-of-writers")
            asked = {**_of_topics(("new-1", "old")), "allow_auto_topic_creation": True}
            made, refused = (await desk.asked("Metadata", **asked)).topics
            assert made.error_code == errors.LEADER_NOT_AVAILABLE
            assert refused.error_code == errors.TOPIC_AUTHORIZATION_FAILED
            assert pair.leader.shell.engine.topic_count == 1

    run(story())


# ---------------------------------------------------------------------- leaders that change


class HostDesk(KafkaDesk):
    """Kafka's exchange of a node over a log in memory."""

    def __init__(self, node: nodes.Node) -> None:
        shell = cast(_Shell, node.runtime)
        neighbours = Neighbours(node.host, node.name)
        peers = Peers(SECRET, lambda: node.host.leader_url)
        face = FaceNodes(neighbours, node.name, replicas=1, min_in_sync=1)
        http = ClusterExchange(shell, neighbours, peers, kafka_nodes=face)
        super().__init__(shell=shell, http=http)

    async def answered(self, running: Running[Answered], name: str, version: int) -> Any:
        while not running.is_over:
            await asyncio.sleep(0.001)
        return self.answer(running, name, version)

    async def produced(self, *values: bytes, **producer: int) -> tuple[int, int]:
        """The error and the offset."""
        T = types("ProduceRequest")
        part = T.PartitionProduceData(records=some(*values, **producer))
        topics = [T.TopicProduceData(name="t", partition_data=[part])]
        running = self.begin("Produce", 9, acks=-1, timeout_ms=1000, topic_data=topics)
        (found,) = (await self.answered(running, "Produce", 9)).responses[0].partition_responses
        return found.error_code, found.base_offset

    async def given(self) -> int:
        """An id of a producer."""
        running = self.begin("InitProducerId", 4, transactional_id=None)
        found = await self.answered(running, "InitProducerId", 4)
        assert found.error_code == 0
        producer_id: int = found.producer_id
        return producer_id


def change(tmp_path: Path, story: Callable[[nodes.Node, nodes.Node], Awaitable[None]]) -> None:
    """Play a story of one node that leads, and another that is to; topic `t` is there."""

    async def lives() -> None:
        async with nodes.cluster(tmp_path) as cluster:
            first, second, _ = cluster.nodes
            await first.lead()
            await first.append(0)
            await story(first, second)

    asyncio.run(asyncio.wait_for(lives(), 60))


async def lead(node: nodes.Node) -> None:
    await node.lead()
    node.host.write_format(FORMAT)


def test_what_an_older_node_could_not_read_is_tried_again(tmp_path: Path) -> None:
    """Until every node is of this version. (117)"""

    async def story(first: nodes.Node, second: nodes.Node) -> None:
        desk = HostDesk(first)
        assert await desk.produced(b"1") == (errors.REQUEST_TIMED_OUT, -1)
        running = desk.begin("InitProducerId", 4, transactional_id=None)
        refused = await desk.answered(running, "InitProducerId", 4)
        assert refused.error_code == errors.COORDINATOR_LOAD_IN_PROGRESS
        first.host.write_format(FORMAT)
        assert await desk.produced(b"1") == (0, 1)

    change(tmp_path, story)


def test_a_repeat_at_the_next_leader_is_stored_once(tmp_path: Path) -> None:
    """A producer that had no answer sends its batch to whoever leads. (125)"""

    async def story(first: nodes.Node, second: nodes.Node) -> None:
        first.host.write_format(FORMAT)
        producer = {"producer_id": await HostDesk(first).given(), "producer_epoch": 0}
        assert await HostDesk(first).produced(b"1", b"2", sequence=0, **producer) == (0, 1)
        await lead(second)
        desk = HostDesk(second)
        assert await desk.produced(b"1", b"2", sequence=0, **producer) == (0, 1)
        assert await desk.produced(b"3", sequence=2, **producer) == (0, 3)
        old = await HostDesk(first).produced(b"4", sequence=3, **producer)
        assert old == (errors.NOT_LEADER_OR_FOLLOWER, -1)
        assert await second.datas() == [0, 1, 2, 3]

    change(tmp_path, story)


def test_no_id_is_given_by_two_leaders(tmp_path: Path) -> None:
    """The rest of a block that a leader had stays its own. (125)"""

    async def story(first: nodes.Node, second: nodes.Node) -> None:
        first.host.write_format(FORMAT)
        before, after = HostDesk(first), HostDesk(second)
        ids = [await before.given()]
        await lead(second)
        ids += [await after.given(), await after.given()]
        assert len(set(ids)) == 3
        assert abs(ids[1] - ids[0]) >= 1000

    change(tmp_path, story)


def test_a_fetch_that_waits_ends_with_the_lead(tmp_path: Path) -> None:
    """Its client asks who leads now, and misses nothing."""

    async def story(first: nodes.Node, second: nodes.Node) -> None:
        desk = HostDesk(first)
        fields = desk.fetching(1, min_bytes=1, max_wait_ms=30_000)
        waiting = desk.begin("Fetch", 12, **fields)
        assert not waiting.is_over
        assert desk.exchange.measures.waiting == 1
        await lead(second)
        found = (await desk.answered(waiting, "Fetch", 12)).responses[0].partitions[0]
        assert found.error_code == errors.NOT_LEADER_OR_FOLLOWER
        assert desk.exchange.measures.waiting == 0

    change(tmp_path, story)


def test_a_write_on_its_way_is_not_known_to_be_there(tmp_path: Path) -> None:
    """The leader that had it was deposed: a producer that numbers its batches sends it again, and it is there once."""

    async def story(first: nodes.Node, second: nodes.Node) -> None:
        first.host.write_format(FORMAT)
        producer = {"producer_id": await HostDesk(first).given(), "producer_epoch": 0}
        sent = asyncio.ensure_future(HostDesk(first).produced(b"1", sequence=0, **producer))
        await asyncio.sleep(0)
        await lead(second)
        code, offset = await sent
        assert (code, offset) in [(0, 1), (errors.NOT_LEADER_OR_FOLLOWER, -1)]
        assert await HostDesk(second).produced(b"1", sequence=0, **producer) == (0, 1)
        assert await second.datas() == [0, 1]

    change(tmp_path, story)


# ---------------------------------------------------------------------- behind


def test_a_replica_that_lags_ends_the_connection() -> None:
    """What it knows of topics is long past; its clients know other nodes. (§5)"""

    async def story(pair: Pair) -> None:
        desk = NodeDesk(pair.follower)
        pair.follower.standing.lag_ms = 60_000
        assert "lags" in desk.refused("Metadata", **_of_topics(("t",)))
        assert desk.ask("ApiVersions").error_code == 0
        assert desk.fetch(0).error_code == errors.NOT_LEADER_OR_FOLLOWER
        pair.leader.standing.lag_ms = 60_000
        assert NodeDesk(pair.leader).partition().leader_id == N1

    play(story)
