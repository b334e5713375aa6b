"""Offsets that groups commit (OffsetCommit, OffsetFetch, OffsetDelete).

Each stands for a partition, by the engine's name of it.  A request of many is carried out in parts.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from topics.protocol.faces.kafka import errors
from topics.protocol.faces.kafka.names import epoch_of, id_of, is_shown
from topics.protocol.model.access import Scope
from topics.protocol.model.commands import (
    CommitOffsets,
    DeleteOffsets,
    DescribeTopics,
    FetchOffsets,
    FindPlaces,
)
from topics.protocol.model.errors import Rejection
from topics.protocol.model.fetched import PlacesFound, TopicsDescribed
from topics.protocol.model.groups import GroupFault, GroupRefusal, Membership, OffsetCommit
from topics.protocol.model.names import partition_name, partition_of
from topics.protocol.model.outcomes import KeptOffset, OffsetsFound, OffsetsKept
from topics.server.kafka.call import Call
from topics.server.kafka.steps import Steps

PART: Final = 500
"""Offsets of one command."""
_IDS_FROM: Final = 10
"""The version of OffsetCommit and OffsetFetch from which on topics are named by their ids."""
_NO_GROUP_FROM: Final = 9
"""The version of OffsetCommit from which on a group that is not there has an error of its own (KIP-848)."""
_GROUPS_FROM: Final = 8
"""The version of OffsetFetch from which on it asks for several groups."""
NO_OFFSET: Final = -1


class _Topic(NamedTuple):
    """A topic that a request names.

    Attributes:
        name: Empty where nothing has its id.
        code: The error that all its partitions have; 0: none.
    """

    asked: Any
    name: str
    code: int


def _topics(call: Call, scope: Scope, topics: Iterable[Any]) -> Steps[list[_Topic]]:
    """The topics of a request, and which of them the client may not touch."""
    topics = list(topics)
    by_epoch: dict[str, str] = {}
    has_ids = call.version >= _IDS_FROM
    if has_ids:
        epochs = [epoch_of(each.topic_id) for each in topics]
        for at in range(0, len(epochs), PART):
            command = DescribeTopics(epochs=epochs[at : at + PART])
            described: TopicsDescribed = yield from call.ask(command)
            by_epoch.update((each.epoch, each.name) for each in described.topics)
    found = []
    for each in topics:
        name = by_epoch.get(epoch_of(each.topic_id), "") if has_ids else each.name
        code = 0
        if has_ids and not (name and is_shown(name)):
            code = errors.UNKNOWN_TOPIC_ID
        elif call.lacks(scope, name) is not None:
            code = errors.TOPIC_AUTHORIZATION_FAILED
        elif not is_shown(name):
            code = errors.UNKNOWN_TOPIC_OR_PARTITION
        found.append(_Topic(each, name, code))
        yield from call.part_done()
    return found


def _is_partition(index: int) -> bool:
    return index >= 0


# ---------------------------------------------------------------------- commits


def commit(call: Call) -> Steps[Any]:
    """Keep offsets: of a member, or of a group that has none."""
    request, T = call.request, call.T
    member = Membership(
        request.generation_id_or_member_epoch, request.member_id, request.group_instance_id
    )
    lacks = call.lacks("read", request.group_id)
    code = 0 if lacks is None else errors.GROUP_AUTHORIZATION_FAILED
    topics: list[_Topic] = yield from _topics(call, "read", request.topics)
    answers, answered, offsets = [], list[Any](), list[OffsetCommit]()
    for topic in topics:
        parts = []
        for part in topic.asked.partitions:
            own = code or topic.code
            if not own and not _is_partition(part.partition_index):
                own = errors.UNKNOWN_TOPIC_OR_PARTITION
            answer = T.OffsetCommitResponsePartition(
                partition_index=part.partition_index, error_code=own
            )
            if not own:
                answered.append(answer)
                offsets.append(
                    OffsetCommit(
                        partition_name(topic.name, part.partition_index),
                        part.committed_offset,
                        part.committed_leader_epoch,
                        part.committed_metadata or "",
                    )
                )
            parts.append(answer)
            yield from call.part_done()
        answers.append(
            T.OffsetCommitResponseTopic(
                name=topic.asked.name, topic_id=topic.asked.topic_id, partitions=parts
            )
        )
    for at in range(0, len(offsets), PART):
        some = offsets[at : at + PART]
        codes: Sequence[int]
        try:
            kept: OffsetsKept = yield from call.ask(CommitOffsets(request.group_id, some, member))
            codes = [_code(fault) for fault in kept.faults]
        except GroupRefusal as refusal:
            codes = yield from _refused_commit(call, some, refusal)
        except Rejection as refusal:
            codes = [errors.code_of_group(refusal)] * len(some)
        for answer, own in zip(answered[at : at + PART], codes, strict=True):
            answer.error_code = own
    return T.OffsetCommitResponse(topics=answers)


def _code(fault: GroupFault | None) -> int:
    return 0 if fault is None else errors.FAULTS[fault]


def _refused_commit(
    call: Call, offsets: Sequence[OffsetCommit], refusal: GroupRefusal
) -> Steps[Sequence[int]]:
    """The errors of offsets that a client may not commit; that there is no such topic goes before, as in Kafka."""
    fault = refusal.fault
    if fault is GroupFault.NO_GROUP and call.version < _NO_GROUP_FROM:
        fault = GroupFault.ILLEGAL_GENERATION
    found: PlacesFound = yield from call.ask(FindPlaces([(each.topic, False) for each in offsets]))
    return [
        _code(fault) if each.missing is None else errors.UNKNOWN_TOPIC_OR_PARTITION
        for each in found.places
    ]


# ---------------------------------------------------------------------- what was committed


class _Names(NamedTuple):
    """The classes of a response: a version has its own."""

    topic: Any
    part: Any


def offsets(call: Call) -> Steps[Any]:
    """What groups have committed."""
    T, request = call.T, call.request
    if call.version < _GROUPS_FROM:
        names = _Names(T.OffsetFetchResponseTopic, T.OffsetFetchResponsePartition)
        code, topics = yield from _of_group(call, request.group_id, request.topics, names)
        return T.OffsetFetchResponse(error_code=code, topics=topics)
    names = _Names(T.OffsetFetchResponseTopics, T.OffsetFetchResponsePartitions)
    groups = []
    for group in request.groups:
        code, topics = yield from _of_group(call, group.group_id, group.topics, names)
        groups.append(
            T.OffsetFetchResponseGroup(group_id=group.group_id, error_code=code, topics=topics)
        )
        yield from call.part_done()
    return T.OffsetFetchResponse(groups=groups)


def _of_group(call: Call, group: str, topics: Any, names: _Names) -> Steps[tuple[int, list[Any]]]:
    """The error of a group, 0 where there is none, and the offsets of its topics; None: of all."""
    lacks = call.lacks("read", group)
    if lacks is not None:
        code = errors.GROUP_AUTHORIZATION_FAILED
        return code, _refused(call, topics, names, code)
    try:
        if topics is None:
            return 0, (yield from _of_all(call, group, names))
        return 0, (yield from _of_some(call, group, topics, names))
    except Rejection as refusal:
        code = errors.code_of_group(refusal)
        return code, _refused(call, topics, names, code)


def _refused(call: Call, topics: Any, names: _Names, code: int) -> list[Any]:
    """Versions that have no place for the error of a group have it in each partition."""
    if call.version > 1:
        return []
    return [
        _answer(
            names,
            topic,
            [_part(names, index, None, code) for index in topic.partition_indexes],
        )
        for topic in topics or ()
    ]


def _answer(names: _Names, topic: Any, parts: list[Any]) -> Any:
    if hasattr(topic, "topic_id"):
        return names.topic(name=topic.name, topic_id=topic.topic_id, partitions=parts)
    return names.topic(name=topic.name, partitions=parts)


def _part(names: _Names, index: int, offset: KeptOffset | None, code: int = 0) -> Any:
    if offset is None:
        return names.part(
            partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=code
        )
    return names.part(
        partition_index=index,
        committed_offset=offset.seq,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
    )


def _of_some(call: Call, group: str, topics: Any, names: _Names) -> Steps[list[Any]]:
    named: list[_Topic] = yield from _topics(call, "read", topics)
    wanted = [
        partition_name(each.name, index)
        for each in named
        if not each.code
        for index in each.asked.partition_indexes
        if _is_partition(index)
    ]
    found: dict[str, KeptOffset] = {}
    for at in range(0, len(wanted), PART):
        answer: OffsetsFound = yield from call.ask(FetchOffsets(group, wanted[at : at + PART]))
        found.update((each.topic, each) for each in answer.offsets)
    if not wanted:
        yield from call.ask(FetchOffsets(group, ()))  # a name that is none is refused all the same
    answers = []
    for each in named:
        parts = []
        for index in each.asked.partition_indexes:
            kept = found.get(partition_name(each.name, index)) if _is_partition(index) else None
            parts.append(_part(names, index, None if each.code else kept, each.code))
            yield from call.part_done()
        answers.append(_answer(names, each.asked, parts))
    return answers


def _of_all(call: Call, group: str, names: _Names) -> Steps[list[Any]]:
    by_topic: dict[str, list[Any]] = {}
    after_id: int | None = 0
    while after_id is not None:
        page: OffsetsFound = yield from call.ask(FetchOffsets(group, None, after_id, PART))
        for each in page.offsets:
            name, index = partition_of(each.topic)
            if is_shown(name):
                by_topic.setdefault(name, []).append(_part(names, index, each))
        after_id = page.after_id
    if call.version < _IDS_FROM:
        return [names.topic(name=name, partitions=parts) for name, parts in by_topic.items()]
    every, answers = list(by_topic), []
    for at in range(0, len(every), PART):
        described: TopicsDescribed = yield from call.ask(DescribeTopics(every[at : at + PART]))
        for topic in described.topics:
            parts = by_topic[topic.name]
            answers.append(
                names.topic(name=topic.name, topic_id=id_of(topic.epoch), partitions=parts)
            )
    return answers


# ---------------------------------------------------------------------- their end


def delete(call: Call) -> Steps[Any]:
    """Forget offsets of topics that no member reads."""
    request, T = call.request, call.T
    if call.lacks("delete", request.group_id) is not None:
        return T.OffsetDeleteResponse(error_code=errors.GROUP_AUTHORIZATION_FAILED)
    try:
        yield from call.ask(DeleteOffsets(request.group_id, ()))  # whether there is such a group
    except Rejection as refusal:
        return T.OffsetDeleteResponse(error_code=errors.code_of_group(refusal))
    topics: list[_Topic] = yield from _topics(call, "delete", request.topics)
    answers = []
    for topic in topics:
        indexes = [each.partition_index for each in topic.asked.partitions]
        codes = dict.fromkeys(indexes, topic.code)
        known = [] if topic.code else [index for index in codes if _is_partition(index)]
        for at in range(0, len(known), PART):
            some = known[at : at + PART]
            command = DeleteOffsets(
                request.group_id, [partition_name(topic.name, index) for index in some]
            )
            try:
                found: OffsetsKept = yield from call.ask(command)
            except Rejection as refusal:
                return T.OffsetDeleteResponse(error_code=errors.code_of_group(refusal))
            codes.update(zip(some, map(_code, found.faults), strict=True))
        parts = []
        for index in indexes:
            code = codes[index] if _is_partition(index) else errors.UNKNOWN_TOPIC_OR_PARTITION
            parts.append(T.OffsetDeleteResponsePartition(partition_index=index, error_code=code))
            yield from call.part_done()
        answers.append(T.OffsetDeleteResponseTopic(name=topic.name, partitions=parts))
    return T.OffsetDeleteResponse(topics=answers)
