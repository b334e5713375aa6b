"""Offsets: where a topic begins and ends, where a time stands in it, and its trim (ListOffsets, OffsetForLeaderEpoch,
DeleteRecords)."""

from typing import Any, Final

from topics.protocol.batches.header import LEADER_EPOCH, BatchError
from topics.protocol.batches.times import first_since, greatest
from topics.protocol.faces.kafka import errors
from topics.protocol.faces.kafka.names import is_shown
from topics.protocol.model.commands import DeleteRecords, FindPlaces
from topics.protocol.model.errors import Corrupt, Rejection
from topics.protocol.model.fetched import Place
from topics.protocol.model.names import partition_name, partition_of
from topics.server.kafka.call import Call
from topics.server.kafka.fetch import error_of_epoch
from topics.server.kafka.steps import Steps
from topics.server.service.giving_way import GivingWay
from topics.server.service.texts import log_damage

LATEST: Final = -1
EARLIEST: Final = -2
GREATEST: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
NOTHING: Final = -1
_SINCE: Final = {
    LATEST: 1,
    EARLIEST: 1,
    GREATEST: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""The version of ListOffsets from which on a place has its name."""


def _code(call: Call, scope: Any, name: str, epoch: int = -1) -> int:
    """What is wrong with a partition before its topic is looked at; 0: nothing."""
    if call.lacks(scope, name) is not None:
        return errors.TOPIC_AUTHORIZATION_FAILED
    if not is_shown(name):
        return errors.UNKNOWN_TOPIC_OR_PARTITION
    return error_of_epoch(epoch, call.nodes.term)


def list_offsets(call: Call) -> Steps[Any]:
    """Offsets by time, or by the names of certain places."""
    T, topics = call.T, []
    for topic in call.request.topics:
        parts = []
        for asked in topic.partitions:
            code = _code(call, "read", topic.name, asked.current_leader_epoch)
            part = T.ListOffsetsPartitionResponse(
                partition_index=asked.partition_index, error_code=code
            )
            if not code:
                name = partition_name(topic.name, asked.partition_index)
                yield from _look(call, name, asked.timestamp, part)
            parts.append(part)
            yield from call.part_done()
        topics.append(T.ListOffsetsTopicResponse(name=topic.name, partitions=parts))
    return T.ListOffsetsResponse(topics=topics)


def _look(call: Call, name: str, time_ms: int, part: Any) -> Steps[None]:
    if time_ms < 0 and call.version < _SINCE.get(time_ms, call.version + 1):
        part.error_code = errors.UNSUPPORTED_VERSION
        return
    has_time = time_ms >= 0 or time_ms == GREATEST
    found = yield from call.ask(FindPlaces([(name, has_time)]))
    place: Place = found.places[0]
    if place.missing is not None:
        part.error_code = errors.UNKNOWN_TOPIC_OR_PARTITION
        return
    part.leader_epoch = LEADER_EPOCH
    if time_ms == LATEST:
        part.offset = place.head_seq
    elif time_ms in (EARLIEST, EARLIEST_LOCAL):
        part.offset = place.start_seq - 1
    elif time_ms in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        part.leader_epoch = NOTHING
    else:
        shell = call.service.shell
        try:
            seen = yield from call.thread(
                shell.read_in_thread,
                lambda: (
                    greatest(place, GivingWay())
                    if time_ms == GREATEST
                    else first_since(place, time_ms, GivingWay())
                ),
                holds=True,
            )
        except (Corrupt, OSError, BatchError) as damage:
            log_damage(damage)
            part.error_code = errors.KAFKA_STORAGE_ERROR
            return
        if seen is None:
            part.leader_epoch = NOTHING
        else:
            part.offset, part.timestamp = seen.seq - 1, seen.time_ms


def offset_for_leader_epoch(call: Call) -> Steps[Any]:
    """Seqs are never given twice, so that no log of ours diverges: what a client has is a part of what is here."""
    T, topics = call.T, []
    for topic in call.request.topics:
        parts = []
        for asked in topic.partitions:
            code = _code(call, "read", topic.topic, asked.current_leader_epoch)
            part = T.EpochEndOffset(partition=asked.partition, error_code=code)
            if not code:
                name = partition_name(topic.topic, asked.partition)
                found = yield from call.ask(FindPlaces([(name, False)]))
                place: Place = found.places[0]
                if place.missing is not None:
                    part.error_code = errors.UNKNOWN_TOPIC_OR_PARTITION
                elif 0 <= asked.leader_epoch <= call.nodes.term:
                    part.leader_epoch, part.end_offset = asked.leader_epoch, place.head_seq
            parts.append(part)
            yield from call.part_done()
        topics.append(T.OffsetForLeaderTopicResult(topic=topic.topic, partitions=parts))
    return T.OffsetForLeaderEpochResponse(topics=topics)


def delete_records(call: Call) -> Steps[Any]:
    """Trim: what lies below an offset is deleted, which leaves no tombstone."""
    T, topics = call.T, []
    for topic in call.request.topics:
        parts = []
        for asked in topic.partitions:
            code = _code(call, "delete", topic.name)
            part = T.DeleteRecordsPartitionResult(
                partition_index=asked.partition_index, low_watermark=NOTHING, error_code=code
            )
            if not code:
                name = partition_name(topic.name, asked.partition_index)
                yield from _trim(call, name, asked.offset, part)
            parts.append(part)
            yield from call.part_done()
        topics.append(T.DeleteRecordsTopicResult(name=topic.name, partitions=parts))
    return T.DeleteRecordsResponse(topics=topics)


def _trim(call: Call, name: str, offset: int, part: Any) -> Steps[None]:
    places = yield from call.ask(FindPlaces([(name, False)]))
    place: Place = places.places[0]
    if place.missing is not None:
        part.error_code = errors.UNKNOWN_TOPIC_OR_PARTITION
        return
    if offset == LATEST:
        offset = place.head_seq
    if not 0 <= offset <= place.head_seq:
        part.error_code = errors.OFFSET_OUT_OF_RANGE
        return
    try:
        yield from call.ask(
            DeleteRecords(name, offset + 1, None, trims=True, partition=partition_of(name)[1])
        )
        places = yield from call.ask(FindPlaces([(name, False)]))
        part.low_watermark = places.places[0].start_seq - 1
    except Rejection as refusal:
        part.error_code = errors.code_of(refusal)
