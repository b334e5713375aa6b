"""Offsets by names of places and by times, and trims (§1, §8)."""

from typing import Any

import pytest
from protocol.batches.builder import NOW_MS

from topics.protocol.faces.kafka import errors
from topics.protocol.faces.kafka.schema import types
from topics.protocol.model.errors import Corrupt
from topics.server.kafka import offsets

from .desk import KafkaDesk, some


@pytest.fixture
def desk() -> KafkaDesk:
    made = KafkaDesk()
    made.create()
    return made


def found(part: Any) -> tuple[int, int, int, int]:
    return part.error_code, part.offset, part.timestamp, part.leader_epoch


def test_places_have_names(desk: KafkaDesk) -> None:
    """Latest, earliest, the greatest time, and the earliest that lies here; nothing lies elsewhere."""
    assert found(desk.list_offset(-1)) == (0, 0, -1, 0)
    assert found(desk.list_offset(-3)) == (0, -1, -1, -1)
    desk.produce(some(b"1", b"2"), some(b"3", first_ms=NOW_MS + 5, max_ms=NOW_MS + 5))
    assert found(desk.list_offset(-1)) == (0, 3, -1, 0)
    assert found(desk.list_offset(-2)) == (0, 0, -1, 0)
    assert found(desk.list_offset(-3)) == (0, 2, NOW_MS + 5, 0)
    assert found(desk.list_offset(-4)) == (0, 0, -1, 0)
    assert found(desk.list_offset(-5)) == (0, -1, -1, -1)
    assert found(desk.list_offset(-6)) == (0, -1, -1, -1)
    assert found(desk.list_offset(-7)) == (errors.UNSUPPORTED_VERSION, -1, -1, -1)


@pytest.mark.parametrize(("name", "since"), [(-1, 1), (-2, 1), (-3, 7), (-4, 8), (-5, 9), (-6, 11)])
def test_a_place_has_its_name_from_a_version_on(desk: KafkaDesk, name: int, since: int) -> None:
    """Kafka's error for a client that is too old for it. (§1)"""
    assert desk.list_offset(name, version=since).error_code == 0
    if since > 1:
        code = desk.list_offset(name, version=since - 1).error_code
        assert code == errors.UNSUPPORTED_VERSION


def test_a_time_has_the_first_record_at_or_after_it(desk: KafkaDesk) -> None:
    desk.produce(some(b"1"), some(b"2", first_ms=NOW_MS + 5, max_ms=NOW_MS + 5))
    assert found(desk.list_offset(0)) == (0, 0, NOW_MS, 0)
    assert found(desk.list_offset(NOW_MS + 1)) == (0, 1, NOW_MS + 5, 0)
    assert found(desk.list_offset(NOW_MS + 6)) == (0, -1, -1, -1)


def test_what_is_not_ours_is_unknown(desk: KafkaDesk) -> None:
    T = types("ListOffsetsRequest")
    parts = [
        T.ListOffsetsPartition(partition_index=1, timestamp=-1),
        T.ListOffsetsPartition(timestamp=-1, current_leader_epoch=4),
    ]
    topic = T.ListOffsetsTopic(name="t", partitions=parts)
    (answer,) = desk.ask("ListOffsets", topics=[topic]).topics
    assert [each.error_code for each in answer.partitions] == [
        *(errors.UNKNOWN_TOPIC_OR_PARTITION, errors.UNKNOWN_LEADER_EPOCH)
    ]
    assert desk.list_offset(-1, name="u").error_code == errors.UNKNOWN_TOPIC_OR_PARTITION
    assert desk.list_offset(-1, name="a:b").error_code == errors.UNKNOWN_TOPIC_OR_PARTITION


def test_what_cannot_be_read_is_told(desk: KafkaDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.produce(some(b"1"))

    def broken(*_: object) -> None:
        raise Corrupt("a", 0, "digest")

    monkeypatch.setattr(offsets, "first_since", broken)
    assert desk.list_offset(0).error_code == errors.KAFKA_STORAGE_ERROR


def test_no_log_of_ours_diverges(desk: KafkaDesk) -> None:
    """An epoch that a client knows ends at the head. (§1)"""
    desk.produce(some(b"1", b"2"))
    T = types("OffsetForLeaderEpochRequest")

    def ask(name: str = "t", **fields: int) -> tuple[int, int, int]:
        topic = T.OffsetForLeaderTopic(
            topic=name, partitions=[T.OffsetForLeaderPartition(**fields)]
        )
        (found,) = desk.ask("OffsetForLeaderEpoch", topics=[topic]).topics
        (part,) = found.partitions
        return part.error_code, part.leader_epoch, part.end_offset

    assert ask(leader_epoch=0) == (0, 0, 2)
    assert ask(leader_epoch=5) == (0, -1, -1)
    assert ask(partition=1)[0] == errors.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(name="u")[0] == errors.UNKNOWN_TOPIC_OR_PARTITION


def test_each_partition_begins_and_ends_by_itself(desk: KafkaDesk) -> None:
    """(§4)"""
    desk.create("p", partitions=3)
    desk.produce(some(b"1", b"2", b"3"), name="p", partition=1)
    assert trim(desk, 2, name="p", index=1) == (0, 2)
    assert [desk.list_offset(-1, name="p", partition=index).offset for index in range(3)] == [
        *(0, 3, 0)
    ]
    assert [desk.list_offset(-2, name="p", partition=index).offset for index in range(3)] == [
        *(0, 2, 0)
    ]
    assert trim(desk, 0, name="p", index=3) == (errors.UNKNOWN_TOPIC_OR_PARTITION, -1)
    T = types("OffsetForLeaderEpochRequest")
    asked = [T.OffsetForLeaderPartition(partition=index, leader_epoch=0) for index in range(4)]
    topic = T.OffsetForLeaderTopic(topic="p", partitions=asked)
    (told,) = desk.ask("OffsetForLeaderEpoch", topics=[topic]).topics
    assert [(each.error_code, each.end_offset) for each in told.partitions] == [
        *((0, 0), (0, 3), (0, 0), (errors.UNKNOWN_TOPIC_OR_PARTITION, -1))
    ]


def trim(desk: KafkaDesk, offset: int, *, name: str = "t", index: int = 0) -> tuple[int, int]:
    T = types("DeleteRecordsRequest")
    topic = T.DeleteRecordsTopic(
        name=name, partitions=[T.DeleteRecordsPartition(partition_index=index, offset=offset)]
    )
    (found,) = desk.ask("DeleteRecords", topics=[topic], timeout_ms=9).topics
    (part,) = found.partitions
    return part.error_code, part.low_watermark


def test_a_trim_moves_the_begin_of_the_log(desk: KafkaDesk) -> None:
    desk.produce(some(b"1", b"2", b"3"), some(b"4"))
    assert trim(desk, 1) == (0, 1)
    assert trim(desk, 0) == (0, 1)
    assert desk.list_offset(-2).offset == 1
    assert desk.fetch(0).error_code == errors.OFFSET_OUT_OF_RANGE
    assert trim(desk, 5) == (errors.OFFSET_OUT_OF_RANGE, -1)
    assert trim(desk, -1) == (0, 4)
    assert desk.list_offset(-2).offset == desk.list_offset(-1).offset == 4


def test_a_trim_of_what_is_not_there(desk: KafkaDesk) -> None:
    assert trim(desk, 0, name="u") == (errors.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert trim(desk, 0, index=1) == (errors.UNKNOWN_TOPIC_OR_PARTITION, -1)
    desk.produce(some(b"1"))
    desk.shell.engine.on_failed()
    assert trim(desk, 1) == (errors.KAFKA_STORAGE_ERROR, -1)
