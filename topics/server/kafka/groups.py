"""Requests of consumer groups, which are refused: a group has no members and no offsets here.

A consumer that assigns its partitions itself needs no group, but asks for its coordinator and its offsets all the
same; so these are answered, and only what would make a client believe that it is a member, or that an offset is kept, is
refused: `GROUP_AUTHORIZATION_FAILED` ends a consumer at once, where other codes have it try again for ever.
"""

from typing import Any, Final

from topics.protocol.faces.kafka.errors import GROUP_AUTHORIZATION_FAILED
from topics.server.kafka.call import Call
from topics.server.kafka.steps import Steps

NO_OFFSET: Final = -1


def commit(call: Call) -> Steps[Any]:
    """No offset is kept."""
    T = call.T
    topics = [
        T.OffsetCommitResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                T.OffsetCommitResponsePartition(
                    partition_index=part.partition_index, error_code=GROUP_AUTHORIZATION_FAILED
                )
                for part in topic.partitions
            ],
        )
        for topic in call.request.topics
    ]
    return T.OffsetCommitResponse(topics=topics)
    yield


def offsets(call: Call) -> Steps[Any]:
    """None was kept."""
    T, request = call.T, call.request
    if call.version < 8:
        topics = [
            T.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    T.OffsetFetchResponsePartition(
                        partition_index=index, committed_offset=NO_OFFSET, metadata=""
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
        return T.OffsetFetchResponse(topics=topics)
    groups = [
        T.OffsetFetchResponseGroup(
            group_id=group.group_id,
            topics=[
                T.OffsetFetchResponseTopics(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        T.OffsetFetchResponsePartitions(
                            partition_index=index, committed_offset=NO_OFFSET, metadata=""
                        )
                        for index in topic.partition_indexes
                    ],
                )
                for topic in group.topics or ()
            ],
        )
        for group in request.groups
    ]
    return T.OffsetFetchResponse(groups=groups)
    yield


def join(call: Call) -> Steps[Any]:
    """Nobody becomes a member."""
    return call.T.JoinGroupResponse(error_code=GROUP_AUTHORIZATION_FAILED, protocol_name="")
    yield


def sync(call: Call) -> Steps[Any]:
    """Nobody is one."""
    return call.T.SyncGroupResponse(error_code=GROUP_AUTHORIZATION_FAILED)
    yield


def heartbeat(call: Call) -> Steps[Any]:
    """Nobody is one."""
    return call.T.HeartbeatResponse(error_code=GROUP_AUTHORIZATION_FAILED)
    yield


def leave(call: Call) -> Steps[Any]:
    """Nobody is one."""
    return call.T.LeaveGroupResponse(error_code=GROUP_AUTHORIZATION_FAILED)
    yield
