"""Offsets of groups on the wire. (§5)"""

from typing import Any

import pytest

from topics.protocol.faces.kafka import errors
from topics.protocol.faces.kafka.schema import types
from topics.protocol.model.commands import CommitOffsets, PutTopic
from topics.protocol.model.config import TopicConfig
from topics.protocol.model.groups import OffsetCommit
from topics.server.kafka import commits

from .desk import KafkaDesk
from .test_login import guarded, login
from .test_members import join, joining, stable, syncing, versions


@pytest.fixture
def desk() -> KafkaDesk:
    made = KafkaDesk()
    made.create()
    return made


def topic_of(desk: KafkaDesk, name: str, version: int) -> dict[str, Any]:
    if version < 10:
        return {"name": name}
    T = types("MetadataRequest")
    found = desk.ask("Metadata", topics=[T.MetadataRequestTopic(name=name)])
    return {"topic_id": found.topics[0].topic_id}


def commit(
    desk: KafkaDesk, offset: int, name: str = "t", version: int = 9, index: int = 0, **fields: Any
) -> int:
    T = types("OffsetCommitRequest")
    part = T.OffsetCommitRequestPartition(
        partition_index=index, committed_offset=offset, committed_metadata=fields.pop("note", None)
    )
    topic = T.OffsetCommitRequestTopic(partitions=[part], **topic_of(desk, name, version))
    found = desk.ask("OffsetCommit", version, **{"group_id": "g", "topics": [topic], **fields})
    code: int = found.topics[0].partitions[0].error_code
    return code


def committed(
    desk: KafkaDesk, *names: str, version: int = 9, group: str = "g", indexes: Any = (0,)
) -> Any:
    """The answer of a group; of all topics where none is named."""
    if version < 8:
        T = types("OffsetFetchRequest")
        topics = [
            T.OffsetFetchRequestTopic(name=name, partition_indexes=list(indexes)) for name in names
        ]
        return desk.ask("OffsetFetch", version, group_id=group, topics=topics or None)
    T = types("OffsetFetchRequest")
    topics = [
        T.OffsetFetchRequestTopics(partition_indexes=list(indexes), **topic_of(desk, name, version))
        for name in names
    ]
    asked = T.OffsetFetchRequestGroup(group_id=group, topics=topics or None)
    (found,) = desk.ask("OffsetFetch", version, groups=[asked]).groups
    return found


@pytest.mark.parametrize("version", versions("OffsetCommit"))
def test_an_offset_is_kept_in_every_version(desk: KafkaDesk, version: int) -> None:
    assert commit(desk, 5, version=version, note="why") == 0
    (topic,) = committed(desk, "t").topics
    (part,) = topic.partitions
    assert (part.committed_offset, part.metadata, part.error_code) == (5, "why", 0)


@pytest.mark.parametrize("version", versions("OffsetFetch"))
def test_offsets_are_found_in_every_version(desk: KafkaDesk, version: int) -> None:
    """A partition without one has -1; all topics are those with an offset."""
    desk.create("u")
    assert commit(desk, 5) == 0
    found = committed(desk, "t", "u", version=version, indexes=(0, 3, -1))
    assert found.error_code == 0
    offsets = [[each.committed_offset for each in topic.partitions] for topic in found.topics]
    assert offsets == [[5, -1, -1], [-1, -1, -1]]
    assert [part.error_code for topic in found.topics for part in topic.partitions] == [0] * 6
    if version >= 2:
        (topic,) = committed(desk, version=version).topics
        assert [each.committed_offset for each in topic.partitions] == [5]
        assert topic.name == ("t" if version < 10 else "")
    assert committed(desk, "t", version=version, group="other").topics[0].partitions[
        0
    ].committed_offset == (-1)


def test_several_groups_are_asked_for_at_once(desk: KafkaDesk) -> None:
    commit(desk, 5)
    T = types("OffsetFetchRequest")
    asked = [T.OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("g", "", "h")]
    found = desk.ask("OffsetFetch", groups=asked).groups
    assert [each.error_code for each in found] == [0, errors.INVALID_GROUP_ID, 0]
    assert [len(each.topics) for each in found] == [1, 0, 0]


def test_a_group_that_has_no_name_is_told_in_each_partition_of_old(desk: KafkaDesk) -> None:
    for version in (1, 5):
        found = committed(desk, "t", version=version, group="")
        parts = [part.error_code for topic in found.topics for part in topic.partitions]
        assert parts == ([errors.INVALID_GROUP_ID] if version == 1 else [])
    assert found.error_code == errors.INVALID_GROUP_ID


def test_what_is_no_topic_keeps_no_offset(desk: KafkaDesk) -> None:
    unknown = errors.UNKNOWN_TOPIC_OR_PARTITION
    for name, index in (("x", 0), ("t", 1), ("t", -1), ("a:b", 0)):
        assert commit(desk, 1, name, index=index) == unknown
    T = types("OffsetCommitRequest")
    topic = T.OffsetCommitRequestTopic(
        topic_id=bytes(16), partitions=[T.OffsetCommitRequestPartition()]
    )
    found = desk.ask("OffsetCommit", group_id="g", topics=[topic])
    assert found.topics[0].partitions[0].error_code == errors.UNKNOWN_TOPIC_ID
    asked = types("OffsetFetchRequest").OffsetFetchRequestTopics(
        topic_id=bytes(16), partition_indexes=[0]
    )
    group = types("OffsetFetchRequest").OffsetFetchRequestGroup(group_id="g", topics=[asked])
    (answer,) = desk.ask("OffsetFetch", groups=[group]).groups
    assert answer.topics[0].partitions[0].error_code == errors.UNKNOWN_TOPIC_ID
    assert commit(desk, 1, note="x" * 4097) == errors.OFFSET_METADATA_TOO_LARGE
    assert commit(desk, 1, group_id="") == errors.INVALID_GROUP_ID


def test_who_is_no_member_commits_nothing_while_there_are_members(desk: KafkaDesk) -> None:
    """A member does, in its generation, and not while the leader assigns. (§5)"""
    joined = join(desk)
    fields = {
        "generation_id_or_member_epoch": joined.generation_id,
        "member_id": joined.member_id,
    }
    assert commit(desk, 1, **fields) == errors.REBALANCE_IN_PROGRESS
    desk.ask("SyncGroup", **syncing(joined))
    assert commit(desk, 1, **fields) == 0
    assert commit(desk, 2) == errors.UNKNOWN_MEMBER_ID
    assert commit(desk, 2, **{**fields, "member_id": "m"}) == errors.UNKNOWN_MEMBER_ID
    wrong = {**fields, "generation_id_or_member_epoch": 9}
    assert commit(desk, 2, **wrong) == errors.ILLEGAL_GENERATION
    waiting = desk.begin("JoinGroup", 3, **joining())
    assert commit(desk, 3, **fields) == 0, (
        "the generation ends, and its members commit what they did"
    )
    waiting.cancel()
    assert committed(desk, "t").topics[0].partitions[0].committed_offset == 3


@pytest.mark.parametrize("version", versions("OffsetCommit"))
def test_only_who_names_a_generation_is_a_member(desk: KafkaDesk, version: int) -> None:
    """Whatever its id: a group without members takes the offsets of anybody else, as in Kafka. (§5)"""
    member = {"generation_id_or_member_epoch": 3, "member_id": "m"}
    absent = errors.GROUP_ID_NOT_FOUND if version >= 9 else errors.ILLEGAL_GENERATION
    assert commit(desk, 1, version=version, **member) == absent
    assert commit(desk, 1, version=version, member_id="m") == 0
    assert commit(desk, 2, version=version, **member) == errors.UNKNOWN_MEMBER_ID
    assert commit(desk, 2, version=version, member_id="m") == 0


def test_that_there_is_no_topic_is_told_before_anything_of_the_group(desk: KafkaDesk) -> None:
    """Of each offset by itself, as in Kafka. (§5)"""
    T = types("OffsetCommitRequest")
    parts = [T.OffsetCommitRequestPartition(partition_index=index) for index in (0, 1)]
    topics = [T.OffsetCommitRequestTopic(name=name, partitions=parts) for name in ("t", "gone")]
    fields = {"generation_id_or_member_epoch": 3, "member_id": "m", "group_id": "g"}
    found = desk.ask("OffsetCommit", 8, topics=topics, **fields)
    codes = [[part.error_code for part in topic.partitions] for topic in found.topics]
    unknown = errors.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [[errors.ILLEGAL_GENERATION, unknown], [unknown, unknown]]


def test_many_offsets_are_kept_and_found_in_parts(
    desk: KafkaDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "PART", 2)
    T = types("OffsetCommitRequest")
    topics = []
    for nth in range(5):
        desk.create(f"n{nth}")
        part = T.OffsetCommitRequestPartition(committed_offset=nth)
        topics.append(T.OffsetCommitRequestTopic(name=f"n{nth}", partitions=[part]))
    found = desk.ask("OffsetCommit", 9, group_id="g", topics=topics)
    assert [each.partitions[0].error_code for each in found.topics] == [0] * 5
    names = [f"n{nth}" for nth in range(5)]
    for version in (9, 10):
        for asked in (names, []):
            answer = committed(desk, *asked, version=version)
            offsets = [each.partitions[0].committed_offset for each in answer.topics]
            assert sorted(offsets) == [0, 1, 2, 3, 4]


def test_a_topic_without_a_name_of_kafka_is_not_among_all(desk: KafkaDesk) -> None:

    desk.shell.submit(PutTopic("a:b", TopicConfig(), True), lambda _: None)
    desk.shell.submit(CommitOffsets("g", [OffsetCommit("a:b", 1)]), lambda _: None)
    commit(desk, 1)
    assert [each.name for each in committed(desk).topics] == ["t"]


def test_a_log_that_is_read_only_is_a_coordinator_that_is_not_there(desk: KafkaDesk) -> None:
    """Clients try again. (§7)"""
    commit(desk, 1)
    desk.shell.engine.on_failed()
    assert commit(desk, 2) == errors.COORDINATOR_NOT_AVAILABLE


def delete(desk: KafkaDesk, *names: str, group: str = "g", indexes: Any = (0,)) -> Any:
    T = types("OffsetDeleteRequest")
    parts = [T.OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
    topics = [T.OffsetDeleteRequestTopic(name=name, partitions=parts) for name in names]
    found = desk.ask("OffsetDelete", group_id=group, topics=topics)
    if found.error_code:
        return found.error_code
    return [[part.error_code for part in topic.partitions] for topic in found.topics]


def test_offsets_are_deleted_but_of_topics_that_a_member_reads(desk: KafkaDesk) -> None:
    """A subscription says which these are; of another kind of members nobody knows. (KIP-496)"""
    desk.create("u")
    commit(desk, 1)
    commit(desk, 1, "u")
    unknown = errors.UNKNOWN_TOPIC_OR_PARTITION
    assert delete(desk, "t", "x", indexes=(0, -1, 4)) == [
        [0, unknown, unknown],
        [unknown, unknown, unknown],
    ]
    assert committed(desk, "t").topics[0].partitions[0].committed_offset == -1
    T = types("JoinGroupRequest")
    reads_u = b"\0\1\0\0\0\1\0\1u\xff\xff\xff\xff"
    member = [T.JoinGroupRequestProtocol(name="range", metadata=reads_u)]
    joined = stable(desk, protocols=member)
    assert delete(desk, "u", "t") == [[errors.GROUP_SUBSCRIBED_TO_TOPIC], [0]]
    assert committed(desk, "u").topics[0].partitions[0].committed_offset == 1
    desk.ask("LeaveGroup", 2, group_id="g", member_id=joined.member_id)
    assert delete(desk, "u") == [[0]]
    assert delete(desk, "u", group="other") == errors.GROUP_ID_NOT_FOUND
    assert delete(desk, group="other") == errors.GROUP_ID_NOT_FOUND
    assert delete(desk) == []
    stable(desk, group="g", protocol_type="connect")
    assert delete(desk, "u") == errors.NON_EMPTY_GROUP


def test_keys_touch_offsets_of_their_groups_and_topics_alone() -> None:
    """30 for a group, 29 for a topic; all topics are those that a key may see. (§7)"""
    desk = guarded("all,room:read:in.,out:read+delete:out|in.g")
    login(desk, "all")
    for name in ("in.a", "out.a"):
        desk.create(name)
        assert commit(desk, 1, name, group_id="in.g") == 0
    desk.client = desk.connected()
    login(desk, "room")
    assert commit(desk, 2, "in.a", group_id="in.g") == 0
    assert commit(desk, 2, "out.a", group_id="in.g") == errors.TOPIC_AUTHORIZATION_FAILED
    assert commit(desk, 2, "in.a") == errors.GROUP_AUTHORIZATION_FAILED
    found = committed(desk, "in.a", "out.a", group="in.g")
    parts = [each.partitions[0] for each in found.topics]
    assert [(each.committed_offset, each.error_code) for each in parts] == [
        (2, 0),
        (-1, errors.TOPIC_AUTHORIZATION_FAILED),
    ]
    assert [each.name for each in committed(desk, group="in.g").topics] == ["in.a"]
    for version in (1, 5, 9):
        found = committed(desk, "in.a", version=version)
        if version == 1:
            found = found.topics[0].partitions[0]
        assert found.error_code == errors.GROUP_AUTHORIZATION_FAILED
    assert delete(desk, "in.a", group="in.g") == errors.GROUP_AUTHORIZATION_FAILED
    desk.client = desk.connected()
    login(desk, "out")
    assert delete(desk, "in.a", "out.a", group="in.g") == [
        [errors.TOPIC_AUTHORIZATION_FAILED],
        [0],
    ]
