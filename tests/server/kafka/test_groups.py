"""Groups have no members and no offsets: what is asked of them is answered so that clients end, and none hangs."""

import pytest

from topics.protocol.faces.kafka.apis import SERVED
from topics.protocol.faces.kafka.errors import GROUP_AUTHORIZATION_FAILED
from topics.protocol.faces.kafka.schema import types

from .desk import KafkaDesk


def versions(key: int) -> range:
    return range(SERVED[key].first, SERVED[key].last + 1)


@pytest.mark.parametrize("version", versions(8))
def test_no_offset_is_kept(version: int) -> None:
    T = types("OffsetCommitRequest")
    topic = T.OffsetCommitRequestTopic(
        name="t", partitions=[T.OffsetCommitRequestPartition(committed_offset=3)]
    )
    (found,) = KafkaDesk().ask("OffsetCommit", version, group_id="g", topics=[topic]).topics
    assert found.partitions[0].error_code == GROUP_AUTHORIZATION_FAILED


@pytest.mark.parametrize("version", versions(9))
def test_no_offset_is_found(version: int) -> None:
    """A consumer that assigns its partitions begins where it is told to."""
    T = types("OffsetFetchRequest")
    if version < 8:
        topic = T.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
        found = KafkaDesk().ask("OffsetFetch", version, group_id="g", topics=[topic])
    else:
        topics = [T.OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        group = T.OffsetFetchRequestGroup(group_id="g", topics=topics)
        (found,) = KafkaDesk().ask("OffsetFetch", version, groups=[group]).groups
    assert found.error_code == 0
    (part,) = found.topics[0].partitions
    assert (part.committed_offset, part.error_code) == (-1, 0)


@pytest.mark.parametrize("name", ["Heartbeat", "JoinGroup", "LeaveGroup", "SyncGroup"])
def test_nobody_is_a_member(name: str) -> None:
    """An authorization error ends a consumer at once; others have it try again for ever. (§6)"""
    key = next(key for key, api in SERVED.items() if api.name == name)
    for version in versions(key):
        found = KafkaDesk().ask(name, version, group_id="g")
        assert found.error_code == GROUP_AUTHORIZATION_FAILED
