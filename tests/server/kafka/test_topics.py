"""Metadata, and topics that clients make and delete (§1, §4, §7, 123, 124)."""

from typing import Any

import pytest

from topics.protocol.faces.kafka import errors
from topics.protocol.faces.kafka.configs import CONFIGS
from topics.protocol.faces.kafka.names import id_of
from topics.protocol.faces.kafka.schema import types
from topics.protocol.model.commands import PutTopic
from topics.protocol.model.config import TopicConfig
from topics.server.kafka import topics as topics_of
from topics.server.kafka.call import Rules

from .desk import KafkaDesk, Meddler, some
from .test_login import guarded, login


def metadata(desk: KafkaDesk, *names: str, version: int = 13, **fields: Any) -> Any:
    T = types("MetadataRequest")
    asked = [T.MetadataRequestTopic(name=name) for name in names]
    return desk.ask("Metadata", version, topics=asked, **fields)


def test_metadata_names_this_server_and_one_partition() -> None:
    desk = KafkaDesk()
    made = desk.create()
    for version in range(14):
        found = metadata(desk, "t", version=version)
        (node,) = found.brokers
        assert (node.node_id, node.host, node.port) == (1, "127.0.0.1", 4000)
        (topic,) = found.topics
        assert (topic.name, topic.error_code) == ("t", 0)
        (part,) = topic.partitions
        assert (part.partition_index, part.leader_id, part.replica_nodes) == (0, 1, [1])
        assert topic.topic_id == (made.topic_id if version >= 10 else bytes(16))
    assert found.cluster_id == "0" * 16
    assert found.controller_id == 1


def test_an_address_may_be_advertised() -> None:
    """Behind NAT a client cannot come back by the address that it came by. (§7)"""
    desk = KafkaDesk(rules=Rules(advertised=("kafka.example", 9092)))
    (node,) = metadata(desk).brokers
    assert (node.host, node.port) == ("kafka.example", 9092)
    (node,) = desk.ask("DescribeCluster").brokers
    assert (node.host, node.port) == ("kafka.example", 9092)


@pytest.mark.parametrize("page", [1, 2, 500])
def test_all_topics_are_listed_a_page_at_a_time(page: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """None is all, from version 1 on; version 0 has an empty list for that."""
    monkeypatch.setattr(topics_of, "PAGE", page)
    desk = KafkaDesk()
    for name in ("c", "a", "b"):
        desk.create(name)
    for found in (desk.ask("Metadata", 12, topics=None), metadata(desk, version=0)):
        assert [each.name for each in found.topics] == ["a", "b", "c"]
    assert metadata(desk, version=1).topics == []


def test_a_topic_is_made_by_asking_for_it() -> None:
    """Where the client and the server allow it. (124)"""
    desk = KafkaDesk()
    found = metadata(desk, "t", "t", version=4, allow_auto_topic_creation=False)
    assert [each.error_code for each in found.topics] == [errors.UNKNOWN_TOPIC_OR_PARTITION]
    (made,) = metadata(desk, "t", version=4).topics
    assert (made.error_code, len(made.partitions)) == (0, 1)
    desk = KafkaDesk(rules=Rules(auto_create=False))
    (found,) = metadata(desk, "t").topics
    assert (found.error_code, found.name) == (errors.UNKNOWN_TOPIC_OR_PARTITION, "t")


@pytest.mark.parametrize("name", ["_schemas", ".x", "-x", "a b", "x" * 250, "a:b", ""])
def test_names_that_are_none_here(name: str) -> None:
    """Neither by asking nor by creating. (123)"""
    desk = KafkaDesk()
    (found,) = metadata(desk, name).topics
    assert found.error_code == errors.INVALID_TOPIC
    made = desk.create(name)
    assert made.error_code == errors.INVALID_TOPIC
    assert made.error_message


def test_no_more_topics_than_there_may_be() -> None:
    desk = KafkaDesk(max_topics=1)
    assert desk.create().error_code == 0
    (found,) = metadata(desk, "u").topics
    assert found.error_code == errors.POLICY_VIOLATION
    made = desk.create("u")
    assert (made.error_code, bool(made.error_message)) == (errors.POLICY_VIOLATION, True)


def test_topics_are_found_by_their_ids() -> None:
    desk = KafkaDesk()
    made = desk.create()
    T = types("MetadataRequest")
    asked = [
        T.MetadataRequestTopic(name=None, topic_id=each) for each in (made.topic_id, b"\x7f" * 16)
    ]
    found, missing = desk.ask("Metadata", 12, topics=asked).topics
    assert (found.name, found.topic_id) == ("t", made.topic_id)
    assert (missing.name, missing.error_code) == (None, errors.UNKNOWN_TOPIC_ID)


def test_what_is_not_shown_has_no_id_either() -> None:
    """A name with a colon is none of Kafka's, whoever guesses the id. (§4)"""
    desk = KafkaDesk()
    desk.shell.submit(PutTopic("a:b", TopicConfig(), type_given=False), lambda _: None)
    hidden = id_of(desk.shell.engine.state.topics["a:b"].epoch)
    T = types("MetadataRequest")
    asked = [T.MetadataRequestTopic(name=None, topic_id=hidden)]
    (found,) = desk.ask("Metadata", 12, topics=asked).topics
    assert (found.name, found.error_code) == (None, errors.UNKNOWN_TOPIC_ID)
    states = [types("DeleteTopicsRequest").DeleteTopicState(name=None, topic_id=hidden)]
    (found,) = desk.ask("DeleteTopics", 6, topics=states).responses
    assert (found.name, found.error_code) == (None, errors.UNKNOWN_TOPIC_ID)


def test_the_cluster_is_this_server() -> None:
    for version in range(3):
        found = KafkaDesk().ask("DescribeCluster", version)
        assert [each.broker_id for each in found.brokers] == [found.controller_id] == [1]
        assert found.cluster_id == "0" * 16


def test_no_controller_answers_clients() -> None:
    """So that a tool which was given the wrong address says so. (KIP-919)"""
    found = KafkaDesk().ask("DescribeCluster", endpoint_type=2)
    assert (found.error_code, found.brokers) == (errors.MISMATCHED_ENDPOINT_TYPE, [])


@pytest.mark.parametrize("version", [10, 11])
def test_a_version_that_tells_ids_is_not_asked_by_them(version: int) -> None:
    """It has no room for a topic without a name, and Kafka refuses it, too."""
    desk = KafkaDesk()
    made = desk.create()
    asked = [types("MetadataRequest").MetadataRequestTopic(name=None, topic_id=made.topic_id)]
    (found,) = desk.ask("Metadata", version, topics=asked).topics
    assert (found.error_code, found.name, found.partitions) == (errors.INVALID_REQUEST, "", [])


def partitions(
    desk: KafkaDesk, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> tuple[list[tuple[str, int, list[int]]], tuple[str, int] | None]:
    """Name, error and partitions of each topic, and where the next page begins."""
    T = types("DescribeTopicPartitionsRequest")
    found = desk.ask(
        "DescribeTopicPartitions",
        topics=[T.TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=cursor and T.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    topics = [
        (each.name, each.error_code, [part.partition_index for part in each.partitions])
        for each in found.topics
    ]
    behind = found.next_cursor
    return topics, behind and (behind.topic_name, behind.partition_index)


def partitioned() -> KafkaDesk:
    desk = KafkaDesk()
    for name, count in (("b", 3), ("a", 2), ("c", 1), ("x:y", 1)):
        desk.shell.submit(PutTopic(name, TopicConfig(partitions=count), True), lambda _: None)
    return desk


A, B, C = ("a", 0, [0, 1]), ("b", 0, [0, 1, 2]), ("c", 0, [0])


def test_partitions_are_described_in_order() -> None:
    """Of all topics, or of some; unknown ones stand before the others. (KIP-966)"""
    desk = partitioned()
    assert partitions(desk) == ([A, B, C], None)
    unknown = errors.UNKNOWN_TOPIC_OR_PARTITION
    assert partitions(desk, "c", "z", "a", "a", "x:y") == (
        [("x:y", unknown, []), ("z", unknown, []), A, C],
        None,
    )


@pytest.mark.parametrize(
    ("names", "limit", "cursor", "found", "behind"),
    [
        ((), 3, None, [A, ("b", 0, [0])], ("b", 1)),
        ((), 3, ("b", 1), [("b", 0, [1, 2]), C], None),
        ((), 2, None, [A], ("b", 0)),
        ((), 0, None, [("a", 0, [0])], ("a", 1)),
        ((), 9, ("aa", 0), [B, C], None),
        ((), 9, ("a", 7), [("a", 0, []), B, C], None),
        (("b", "a"), 3, ("b", 1), [("b", 0, [1, 2])], None),
        (("a",), 2, None, [A], None),
        (("a", "b"), 9, ("c", 0), [("a", 42, []), ("b", 42, [])], None),
        (("a",), 9, ("a", -1), [("a", 42, [])], None),
    ],
)
def test_partitions_are_described_a_page_at_a_time(
    names: Any, limit: int, cursor: Any, found: Any, behind: Any
) -> None:
    """As in Kafka, but that a topic which was deleted between two pages ends no list."""
    assert partitions(partitioned(), *names, limit=limit, cursor=cursor) == (found, behind)


def test_pages_have_each_partition_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics_of, "PAGE", 2)
    desk, cursor, seen = partitioned(), None, []
    while True:
        page, cursor = partitions(desk, limit=1, cursor=cursor)
        seen += [(name, index) for name, _, indexes in page for index in indexes]
        if cursor is None:
            break
    assert seen == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]


def test_what_a_client_may_do_is_told_where_it_asks() -> None:
    """A bit for each of Kafka's operations, by the scopes of its key; all of them without keys. (§7)"""
    desk = KafkaDesk()
    desk.create()
    (found,) = metadata(desk, "t", include_topic_authorized_operations=True).topics
    assert found.topic_authorized_operations == 3576  # as Kafka without an authorizer
    assert metadata(desk, "t").topics[0].topic_authorized_operations == -(2**31)
    found = desk.ask("DescribeCluster", include_cluster_authorized_operations=True)
    assert found.cluster_authorized_operations == 1 << 5 | 1 << 8 | 1 << 10 | 1 << 12
    found = desk.ask("Metadata", 9, topics=None, include_cluster_authorized_operations=True)
    assert found.cluster_authorized_operations == 1 << 5 | 1 << 8 | 1 << 10 | 1 << 12

    desk = guarded("a:admin,r:read,i:read:in.")
    login(desk, "a")
    desk.create()
    login(desk, "r")
    T = types("DescribeTopicPartitionsRequest")
    asked = [T.TopicRequest(name="t")]
    (found,) = desk.ask("DescribeTopicPartitions", topics=asked).topics
    assert found.topic_authorized_operations == 1 << 3 | 1 << 8 | 1 << 10
    login(desk, "i")
    assert partitions(desk, "t") == ([("t", errors.TOPIC_AUTHORIZATION_FAILED, [])], None)
    assert partitions(desk, cursor=("t", 0)) == ([], None)


# ---------------------------------------------------------------------- made


def create(desk: KafkaDesk, *topics: Any, **fields: Any) -> Any:
    return desk.ask("CreateTopics", topics=list(topics), timeout_ms=9, **fields).topics


def new(name: str = "t", **fields: Any) -> Any:
    given = {"num_partitions": -1, "replication_factor": -1, **fields}
    return types("CreateTopicsRequest").CreatableTopic(name=name, **given)


def test_a_topic_is_made_with_its_configs() -> None:
    desk = KafkaDesk()
    made = desk.create(retention_ms="1000", max_message_bytes="500", segment_bytes="7")
    assert (made.error_code, made.num_partitions, made.replication_factor) == (0, 1, 1)
    config = desk.shell.engine.state.topics["t"].config
    assert (config.ttl_ms, config.batch_bytes_max) == (1000, 500)
    assert metadata(desk, "t").topics[0].topic_id == made.topic_id


@pytest.mark.parametrize("is_tried", [False, True])
def test_whoever_makes_a_topic_is_told_its_configs(
    is_tried: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java's client fails without them, though the topic is made; of very many topics it can ask later. (§8)"""
    monkeypatch.setattr(topics_of, "ENTRIES_LONG", 1)
    monkeypatch.setattr(topics_of, "ENTRIES_MAX", len(CONFIGS))
    config = types("CreateTopicsRequest").CreatableTopicConfig(name="retention.ms", value="1000")
    asked = [new(name, configs=[config]) for name in ("a", "b", "c", "-")]

    *made, none = create(KafkaDesk(), *asked, validate_only=is_tried)

    for each in made[:2]:
        found = {each.name: (each.value, each.config_source) for each in each.configs}
        assert found.keys() == CONFIGS.keys()
        assert (found["retention.ms"], found["retention.bytes"]) == (("1000", 1), ("-1", 5))
        assert [each.name for each in each.configs if each.read_only] == ["min.insync.replicas"]
    assert [each.topic_config_error_code for each in made] == [0, 0, errors.INVALID_REQUEST]
    assert (made[2].configs, none.configs, none.num_partitions) == ([], [], -1)
    assert all(each.num_partitions == 1 for each in made)


def test_a_config_without_a_value_is_refused() -> None:
    """As in Kafka: whoever sends null does not mean the default."""
    config = types("CreateTopicsRequest").CreatableTopicConfig(name="retention.ms", value=None)
    (found,) = create(KafkaDesk(), new(configs=[config]))
    assert found.error_code == errors.INVALID_CONFIG
    assert found.error_message == '"retention.ms" has no value'


def test_a_topic_that_another_makes_meanwhile_keeps_its_config(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether it is made by a request, or by asking for it."""
    for ask in (KafkaDesk.create, metadata):
        desk = KafkaDesk()
        monkeypatch.setattr(desk.shell, "submit", Meddler(desk, times=1).submit)
        found = ask(desk, "t")
        assert desk.shell.engine.state.topics["t"].config == TopicConfig(cap_records=1)
        if ask is KafkaDesk.create:
            assert found.error_code == errors.TOPIC_ALREADY_EXISTS
        else:
            assert [each.error_code for each in found.topics] == [0]


def test_a_topic_is_not_made_twice() -> None:
    desk = KafkaDesk()
    desk.create()
    again = desk.create()
    assert again.error_code == errors.TOPIC_ALREADY_EXISTS
    assert again.error_message
    twice = create(desk, new("u"), new("v"), new("u"))
    assert [(each.name, each.error_code) for each in twice] == [
        ("u", errors.INVALID_REQUEST),
        ("v", 0),
    ]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"num_partitions": 1, "replication_factor": 1}, 0),
        ({"num_partitions": 2}, 0),
        ({"num_partitions": 1001}, errors.INVALID_PARTITIONS),
        ({"num_partitions": -2}, errors.INVALID_PARTITIONS),
        ({"num_partitions": 0}, errors.INVALID_PARTITIONS),
        ({"replication_factor": 3}, errors.INVALID_REPLICATION_FACTOR),
        ({"assignments": [[1]]}, 0),
        ({"assignments": [[1], [1]]}, 0),
        ({"assignments": [[1, 2]]}, errors.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": [[2]]}, errors.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": [[]]}, errors.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": [[1]] * 1001}, errors.INVALID_PARTITIONS),
        ({"assignments": [[1]], "num_partitions": 1}, errors.INVALID_REQUEST),
    ],
)
def test_partitions_have_one_replica(fields: dict[str, Any], code: int) -> None:
    T = types("CreateTopicsRequest")
    given = dict(fields)
    if "assignments" in given:
        given["assignments"] = [
            T.CreatableReplicaAssignment(partition_index=index, broker_ids=nodes)
            for index, nodes in enumerate(given["assignments"])
        ]
    (made,) = create(KafkaDesk(), new(**given))
    assert made.error_code == code
    assert bool(made.error_message) is bool(code)


def test_a_config_that_nobody_knows_is_refused_and_one_may_only_be_tried() -> None:
    desk = KafkaDesk()
    found = desk.create(no_such="1")
    assert found.error_code == errors.INVALID_CONFIG
    assert "no.such" in found.error_message
    (tried,) = create(desk, new(), validate_only=True)
    assert tried.error_code == 0
    assert not desk.shell.engine.state.topics


@pytest.mark.parametrize("name", [*CONFIGS, "n" * 32_767])
def test_what_is_given_is_told_in_short(name: str) -> None:
    """A sentence as long as a name or a value would be no string of older versions. (§9)"""
    T = types("CreateTopicsRequest")
    config = T.CreatableTopicConfig(name=name, value="v" * 32_767)
    (found,) = create(KafkaDesk(), new(configs=[config]), version=4)
    assert found.error_code == errors.INVALID_CONFIG


def test_a_topic_has_the_partitions_that_it_was_made_with() -> None:
    """All on this server; the topic's id is that of the topic. (§4)"""
    desk = KafkaDesk()
    (made,) = create(desk, new(num_partitions=3))
    assert (made.error_code, made.num_partitions) == (0, 3)
    for version in range(14):
        (topic,) = metadata(desk, "t", version=version).topics
        assert [each.partition_index for each in topic.partitions] == [0, 1, 2]
        assert {(each.leader_id, *each.isr_nodes) for each in topic.partitions} == {(1, 1)}
    every = desk.ask("Metadata", 12, topics=None).topics
    assert [(each.name, len(each.partitions)) for each in every] == [("t", 3)]
    assert topic.topic_id == made.topic_id


def test_no_client_knows_the_name_of_a_partition() -> None:
    """Neither to ask for it, nor to make, fill or delete it. (§4)"""
    desk = KafkaDesk()
    create(desk, new(num_partitions=3))
    (found,) = metadata(desk, "t#1", allow_auto_topic_creation=True).topics
    assert found.error_code == errors.INVALID_TOPIC
    (made,) = create(desk, new("t#1"))
    assert made.error_code == errors.INVALID_TOPIC
    (part,) = desk.produce(some(b"1"), name="t#1")
    assert part.error_code == errors.UNKNOWN_TOPIC_OR_PARTITION
    assert desk.fetch(0, name="t#1").error_code == errors.UNKNOWN_TOPIC_OR_PARTITION
    assert desk.list_offset(-1, name="t#1").error_code == errors.UNKNOWN_TOPIC_OR_PARTITION
    (grown,) = grow(desk, ("t#1", 9))
    assert grown.error_code == errors.UNKNOWN_TOPIC_OR_PARTITION
    T = types("DeleteTopicsRequest")
    asked = [T.DeleteTopicState(name="t#1")]
    (gone,) = desk.ask("DeleteTopics", topics=asked).responses
    assert gone.error_code == errors.UNKNOWN_TOPIC_OR_PARTITION
    assert set(desk.shell.engine.state.topics) == {"t", "t#1", "t#2"}


def test_assignments_are_for_the_partitions_that_are_made() -> None:
    desk, T = KafkaDesk(), types("CreateTopicsRequest")
    for indexes, code in (((1, 0), 0), ((0, 0), 39), ((1, 2), 39)):
        assigned = [
            T.CreatableReplicaAssignment(partition_index=index, broker_ids=[1]) for index in indexes
        ]
        (made,) = create(desk, new(assignments=assigned))
        assert made.error_code == code
        assert made.num_partitions == (-1 if code else 2)


def grow(desk: KafkaDesk, *asked: Any, version: int | None = None, **fields: Any) -> Any:
    T = types("CreatePartitionsRequest")
    topics = []
    for name, count, *assigned in asked:
        nodes = assigned[0] if assigned else None
        given = nodes and [T.CreatePartitionsAssignment(broker_ids=each) for each in nodes]
        topics.append(T.CreatePartitionsTopic(name=name, count=count, assignments=given))
    return desk.ask("CreatePartitions", version, topics=topics, timeout_ms=9, **fields).results


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added(version: int) -> None:
    """What is there stays where it is. (§4)"""
    desk = KafkaDesk()
    desk.create()
    desk.produce(some(b"1"))
    (tried,) = grow(desk, ("t", 3), version=version, validate_only=True)
    assert (tried.error_code, len(metadata(desk, "t").topics[0].partitions)) == (0, 1)
    (grown,) = grow(desk, ("t", 3), version=version)
    assert (grown.name, grown.error_code, grown.error_message) == ("t", 0, None)
    assert len(metadata(desk, "t").topics[0].partitions) == 3
    assert [desk.list_offset(-1, partition=index).offset for index in range(3)] == [1, 0, 0]


@pytest.mark.parametrize(
    ("count", "assigned", "code"),
    [
        (1, None, errors.INVALID_PARTITIONS),
        (2, None, errors.INVALID_PARTITIONS),
        (0, None, errors.INVALID_PARTITIONS),
        (-1, None, errors.INVALID_PARTITIONS),
        (1001, None, errors.INVALID_PARTITIONS),
        (2, [[1]], errors.INVALID_PARTITIONS),
        (4, [[1]], errors.INVALID_REPLICA_ASSIGNMENT),
        (4, [[1], [2]], errors.INVALID_REPLICA_ASSIGNMENT),
        (4, [[1], [1, 2]], errors.INVALID_REPLICA_ASSIGNMENT),
        (4, [[1], [1]], 0),
    ],
)
@pytest.mark.parametrize("is_tried", [False, True])
def test_a_number_of_partitions_only_grows(
    count: int, assigned: Any, code: int, is_tried: bool
) -> None:
    """And what replicas are asked for there is; whoever only tries is told the same. (§4)"""
    desk = KafkaDesk()
    create(desk, new(num_partitions=2))
    (grown,) = grow(desk, ("t", count, assigned), validate_only=is_tried)
    assert (grown.error_code, bool(grown.error_message)) == (code, bool(code))
    assert len(metadata(desk, "t").topics[0].partitions) == (2 if code or is_tried else 4)


def test_each_topic_grows_by_itself() -> None:
    """None that is named twice, none that there is not, and no queue. (§4)"""
    desk = KafkaDesk()
    create(desk, new(), new("u"))
    queue = PutTopic("q", TopicConfig(type="queue"), type_given=True)
    desk.shell.submit(queue, lambda _: None)
    found = grow(desk, ("t", 2), ("u", 2), ("u", 3), ("none", 2), ("q", 2), ("a:b", 2))
    assert [each.error_code for each in found] == [
        0,
        errors.INVALID_REQUEST,
        errors.UNKNOWN_TOPIC_OR_PARTITION,
        errors.INVALID_PARTITIONS,
        errors.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_a_quota_of_topics_holds_for_partitions() -> None:
    """A client that tries again has the same answer: it is told a policy. (122, 124)"""
    desk = KafkaDesk(max_topics=3)
    desk.create()
    assert grow(desk, ("t", 4))[0].error_code == errors.POLICY_VIOLATION
    assert grow(desk, ("t", 3))[0].error_code == 0


# ---------------------------------------------------------------------- deleted


def test_topics_are_deleted_by_name_or_by_id() -> None:
    desk = KafkaDesk()
    made = [desk.create(name) for name in ("a", "b", "c")]
    T = types("DeleteTopicsRequest")
    found = desk.ask("DeleteTopics", 5, topic_names=["a", "n" * 32_767]).responses
    assert [each.error_code for each in found] == [0, errors.UNKNOWN_TOPIC_OR_PARTITION]
    assert len(found[1].error_message) < 100
    states = [
        T.DeleteTopicState(name="b"),
        T.DeleteTopicState(name=None, topic_id=made[2].topic_id),
        T.DeleteTopicState(name=None, topic_id=made[0].topic_id),
    ]
    found = desk.ask("DeleteTopics", 6, topics=states).responses
    assert [(each.name, each.error_code) for each in found] == [
        *(("b", 0), ("c", 0), (None, errors.UNKNOWN_TOPIC_ID))
    ]
    assert found[0].topic_id == made[1].topic_id
    assert not desk.shell.engine.state.topics


def test_a_topic_is_deleted_where_it_is_named_once_and_in_one_way() -> None:
    """Twice, by both, or by neither is 42, and nothing is deleted, as in Kafka."""
    desk = KafkaDesk()
    made = desk.create()
    T = types("DeleteTopicsRequest")
    (found,) = desk.ask("DeleteTopics", 5, topic_names=["t", "t"]).responses
    assert (found.name, found.error_code) == ("t", errors.INVALID_REQUEST)
    by_id = T.DeleteTopicState(name=None, topic_id=made.topic_id)
    for states in (
        [by_id, by_id],
        [T.DeleteTopicState(name="t", topic_id=made.topic_id)],
        [T.DeleteTopicState(name=None)],
    ):
        (found,) = desk.ask("DeleteTopics", 6, topics=states).responses
        assert (found.error_code, bool(found.error_message)) == (errors.INVALID_REQUEST, True)
    assert desk.shell.engine.state.topics.keys() == {"t"}


def test_what_the_log_refuses_is_told() -> None:
    desk = KafkaDesk()
    desk.create()
    desk.produce(some(b"1"))
    desk.shell.engine.on_failed()
    (found,) = desk.ask("DeleteTopics", 5, topic_names=["t"]).responses
    assert (found.error_code, bool(found.error_message)) == (errors.KAFKA_STORAGE_ERROR, True)
    assert desk.create("u").error_code == errors.KAFKA_STORAGE_ERROR
