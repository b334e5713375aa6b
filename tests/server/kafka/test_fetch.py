"""Fetch: what clients read, how long they wait, and what is refused (§1, §3)."""

from typing import Any

import pytest
from protocol.batches.builder import zigzag
from protocol.consumer import Consumed, records

from topics.protocol.faces.kafka import errors
from topics.protocol.faces.kafka.schema import types
from topics.protocol.model.errors import Corrupt
from topics.server.kafka import call, fetch
from topics.server.kafka.exchange import Refused
from topics.server.kafka.measures import End
from topics.server.service import batches

from .desk import KafkaDesk, some
from .test_login import guarded, login


@pytest.fixture
def desk() -> KafkaDesk:
    made = KafkaDesk()
    made.create()
    return made


def values(part: Any) -> list[bytes | None]:
    return [each.value for each in read(part)]


def read(part: Any) -> list[Consumed]:
    data, found = bytes(part.records), list[Consumed]()
    while data:
        size = 12 + int.from_bytes(data[8:12], "big")
        found += records(data[:size])
        data = data[size:]
    return found


@pytest.mark.parametrize("version", range(4, 13))
def test_records_come_back_with_the_marks_of_the_log(desk: KafkaDesk, version: int) -> None:
    desk.produce(some(b"1", b"2"), some(b"3"))
    found = desk.fetch(0, version=version)
    assert values(found) == [b"1", b"2", b"3"]
    assert (found.high_watermark, found.last_stable_offset, found.error_code) == (3, 3, 0)
    assert found.log_start_offset == (0 if version >= 5 else -1)
    assert found.aborted_transactions is None
    end = desk.fetch(3, version=version)
    assert (bytes(end.records), end.error_code) == (b"", 0)


def test_a_topic_is_named_by_its_id_from_version_13_on(desk: KafkaDesk) -> None:
    topic_id = desk.create("u").topic_id
    desk.produce(some(b"1"), name="u")
    T = types("FetchRequest")

    def ask(topic_id: bytes) -> Any:
        part = T.FetchPartition(fetch_offset=0, partition_max_bytes=99)
        topic = T.FetchTopic(topic_id=topic_id, partitions=[part])
        found = desk.ask("Fetch", 18, max_bytes=99, topics=[topic]).responses[0]
        assert found.topic_id == topic_id
        return found.partitions[0]

    assert values(ask(topic_id)) == [b"1"]
    assert ask(b"\x7f" * 16).error_code == errors.UNKNOWN_TOPIC_ID


def test_a_fetch_waits_for_a_record_or_for_its_time(desk: KafkaDesk) -> None:
    fields = desk.fetching(0, min_bytes=1, max_wait_ms=500)
    first, second = (desk.begin("Fetch", 12, **fields) for _ in range(2))
    assert not first.is_over
    assert not first.holds, "requests behind a waiting fetch are begun"
    desk.produce(some(b"1"))
    for running in (first, second):
        (topic,) = desk.answer(running, "Fetch", 12).responses
        assert values(topic.partitions[0]) == [b"1"]

    waiting = desk.begin("Fetch", 12, **desk.fetching(1, min_bytes=1, max_wait_ms=500))
    desk.shell.advance(499)
    assert not waiting.is_over
    desk.shell.advance(1)
    (topic,) = desk.answer(waiting, "Fetch", 12).responses
    assert (values(topic.partitions[0]), topic.partitions[0].high_watermark) == ([], 1)


def test_a_fetch_wants_no_more_than_it_may_have(desk: KafkaDesk) -> None:
    """As in Kafka: a client may want more bytes at least than it, or the server, allows at most."""
    desk.produce(some(b"1" * 100), some(b"2" * 100))
    fields = desk.fetching(0, min_bytes=1 << 30, max_wait_ms=500)
    assert not desk.begin("Fetch", 12, **fields).is_over
    assert desk.begin("Fetch", 12, **{**fields, "max_bytes": 200}).is_over


def test_places_outside_the_log_are_out_of_range(desk: KafkaDesk) -> None:
    """At once, whatever the fetch would wait. (§3)"""
    desk.produce(some(b"1"))
    for offset in (2, -5, 1 << 62):
        found = desk.fetch(offset, min_bytes=1, max_wait_ms=500)
        assert (found.error_code, found.high_watermark) == (errors.OFFSET_OUT_OF_RANGE, 1)


def partition(desk: KafkaDesk, **fields: Any) -> Any:
    T = types("FetchRequest")
    part = T.FetchPartition(**{"fetch_offset": 0, "partition_max_bytes": 99, **fields})
    topic = T.FetchTopic(topic="t", partitions=[part])
    asked = {"max_bytes": 99, "min_bytes": 1, "max_wait_ms": 500}
    return desk.ask("Fetch", 12, topics=[topic], **asked).responses[0].partitions[0]


def test_epochs_and_partitions_that_are_not_ours(desk: KafkaDesk) -> None:
    desk.produce(some(b"1"))
    assert partition(desk, current_leader_epoch=0).error_code == 0
    assert partition(desk, current_leader_epoch=1).error_code == errors.UNKNOWN_LEADER_EPOCH
    assert partition(desk, current_leader_epoch=-2).error_code == errors.FENCED_LEADER_EPOCH
    found = partition(desk, partition=3)
    assert (found.error_code, found.partition_index) == (errors.UNKNOWN_TOPIC_OR_PARTITION, 3)


def test_a_topic_that_is_not_there_or_has_no_name_of_kafka_is_unknown(desk: KafkaDesk) -> None:
    assert desk.fetch(0, name="u").error_code == errors.UNKNOWN_TOPIC_OR_PARTITION
    assert desk.fetch(0, name="a:b").error_code == errors.UNKNOWN_TOPIC_OR_PARTITION


def test_a_partition_is_fetched_by_its_number(desk: KafkaDesk) -> None:
    """By name, and by the topic's id; one that the topic has not is unknown. (§4)"""
    topic_id = desk.create("p", partitions=3).topic_id
    for index in (0, 2):
        desk.produce(some(b"%d" % index), name="p", partition=index)
    T = types("FetchRequest")
    unknown = errors.UNKNOWN_TOPIC_OR_PARTITION
    for version in (12, 18):
        parts = [
            T.FetchPartition(partition=index, partition_max_bytes=1 << 20)
            for index in (2, 1, 3, 0, -1)
        ]
        topic = T.FetchTopic(topic="p", topic_id=topic_id, partitions=parts)
        (found,) = desk.ask("Fetch", version, max_bytes=1 << 20, topics=[topic]).responses
        assert [
            (each.partition_index, each.error_code, values(each)) for each in found.partitions
        ] == [(2, 0, [b"2"]), (1, 0, []), (3, unknown, []), (0, 0, [b"0"]), (-1, unknown, [])]


def test_a_fetch_waits_for_any_of_its_partitions(desk: KafkaDesk) -> None:
    desk.create("p", partitions=3)
    T = types("FetchRequest")
    parts = [T.FetchPartition(partition=index, partition_max_bytes=99) for index in range(3)]
    topic = T.FetchTopic(topic="p", partitions=parts)
    running = desk.begin("Fetch", 12, max_bytes=99, min_bytes=1, max_wait_ms=9000, topics=[topic])
    assert not running.is_over
    desk.produce(some(b"1"), name="p", partition=2)
    (found,) = desk.answer(running, "Fetch", 12).responses
    assert [values(each) for each in found.partitions] == [[], [], [b"1"]]


def test_several_partitions_keep_the_order_of_the_request(desk: KafkaDesk) -> None:
    """What is refused stands among what is not."""
    desk.create("u")
    desk.produce(some(b"1"))
    desk.produce(some(b"2"), name="u")
    T = types("FetchRequest")
    topics = [
        T.FetchTopic(
            topic=name,
            partitions=[
                T.FetchPartition(partition=index, partition_max_bytes=1 << 20) for index in (1, 0)
            ],
        )
        for name in ("u", "t")
    ]
    found = desk.ask("Fetch", 12, max_bytes=1 << 20, topics=topics).responses
    assert [each.topic for each in found] == ["u", "t"]
    assert [[part.partition_index for part in each.partitions] for each in found] == [[1, 0]] * 2
    assert [values(each.partitions[1]) for each in found] == [[b"2"], [b"1"]]


def test_a_session_is_not_kept(desk: KafkaDesk) -> None:
    """A full request gets session 0, and a client that has another begins anew (KIP-227). (§1)"""
    for session in (0, 7):
        found = desk.ask("Fetch", 12, session_id=session, session_epoch=1, max_bytes=1)
        assert (found.error_code, found.responses) == (errors.FETCH_SESSION_ID_NOT_FOUND, [])
        for epoch in (-1, 0):
            fields = {"session_id": session, "session_epoch": epoch, **desk.fetching(0)}
            found = desk.ask("Fetch", 12, **fields)
            assert (found.error_code, found.session_id, len(found.responses)) == (0, 0, 1)


def test_a_fetch_of_nothing_does_not_wait(desk: KafkaDesk) -> None:
    """As in Kafka."""
    fields = {"max_bytes": 1, "min_bytes": 1, "max_wait_ms": 500}
    assert desk.ask("Fetch", 12, **fields).responses == []


@pytest.mark.parametrize("limit", ["max_long_polls_per_ip", "max_sse_connections"])
def test_who_may_not_wait_any_more_is_answered_and_made_to_pause(limit: str) -> None:
    """A waiting fetch counts as a long poll, and its connection as an event stream. (129)"""
    desk = KafkaDesk(**{limit: 1})
    desk.create()
    fields = desk.fetching(0, min_bytes=1, max_wait_ms=500)
    waiting = desk.begin("Fetch", 12, **fields)
    assert not waiting.is_over

    first, desk.client = desk.client, desk.connected()
    found = desk.ask("Fetch", 12, **fields)

    assert found.throttle_time_ms == 1000
    assert (found.error_code, values(found.responses[0].partitions[0])) == (0, [])
    assert (desk.client.mute_s, first.mute_s) == (1.0, 0.0)
    waiting.cancel()
    assert not desk.begin("Fetch", 12, **fields).is_over


def test_a_key_has_its_own_bound_of_connections_that_wait() -> None:
    """Others wait beside it. (129)"""
    desk = guarded("one,two", max_sse_connections_per_key=1)
    login(desk, "one")
    desk.create()
    fields = desk.fetching(0, min_bytes=1, max_wait_ms=500)
    assert not desk.begin("Fetch", 12, **fields).is_over
    assert not desk.begin("Fetch", 12, **fields).is_over, "a connection counts once"

    desk.client = desk.connected()
    login(desk, "one")
    assert desk.ask("Fetch", 12, **fields).throttle_time_ms == 1000
    login(desk, "two")
    assert not desk.begin("Fetch", 12, **fields).is_over


def test_much_text_is_made_a_batch_on_a_thread(
    desk: KafkaDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "TURN_RECORDS", 0)
    text = desk.shell.host
    assert text is not None
    desk.produce(some(b"1"))
    desk.shell.submit(append_of(b"2"), lambda _: None)
    assert values(desk.fetch(0)) == [b"1", b"2"]


def append_of(data: bytes) -> Any:
    from topics.protocol.faces.http.append_body import parse_append
    from topics.protocol.model.limits import Limits

    body = b'{"records": [{"data": ' + data + b"}]}"
    return parse_append("t", body, Limits(), return_seqs=True, header_key=None)


def test_what_cannot_be_read_is_an_error_of_its_partition(
    desk: KafkaDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.produce(some(b"1"))

    def broken(*_: object, **__: object) -> None:
        raise Corrupt("a", 0, "digest")

    monkeypatch.setattr(batches, "bytes_of", broken)
    found = desk.fetch(0)
    assert (found.error_code, bytes(found.records)) == (errors.KAFKA_STORAGE_ERROR, b"")


def test_an_answer_has_a_bound_whatever_its_client_allows(
    desk: KafkaDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "FETCH_BYTES_MAX", 100)
    desk.produce(some(b"1" * 50), some(b"2" * 50))
    assert values(desk.fetch(0, max_bytes=1 << 30)) == [b"1" * 50]
    assert zigzag(50) in bytes(desk.fetch(0).records)


MANY = 60


@pytest.fixture
def many(desk: KafkaDesk, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Topics of which a request asks for all, and gives way after each few."""
    monkeypatch.setattr(call, "TURN_S", 0.0)
    monkeypatch.setattr(call, "MANY_PARTS", 20)
    names = [f"t{n}" for n in range(MANY)]
    for name in names:
        desk.create(name)
    return names


def fetching(names: list[str], **fields: Any) -> dict[str, Any]:
    T = types("FetchRequest")
    topics = [
        T.FetchTopic(topic=name, partitions=[T.FetchPartition(partition_max_bytes=1 << 20)])
        for name in names
    ]
    return {"max_bytes": 1 << 20, "topics": topics, **fields}


def test_a_fetch_of_many_topics_gives_way_to_others(desk: KafkaDesk, many: list[str]) -> None:
    """It is looked at in parts, and has one budget. (§9)"""
    pauses = 0
    later = desk.shell.later

    def counted(delay_s: float, then: Any) -> None:
        nonlocal pauses
        pauses += 1
        later(delay_s, then)

    desk.shell.later = counted  # type: ignore[method-assign]
    for name in many:
        desk.produce(some(b"1" * 300), name=name)
    found = desk.ask("Fetch", 12, **fetching(many, min_bytes=1, max_wait_ms=500)).responses
    assert [each.topic for each in found] == many
    assert [values(each.partitions[0]) for each in found] == [[b"1" * 300]] * MANY
    assert pauses >= MANY // 16

    found = desk.ask("Fetch", 12, **fetching(many, max_bytes=1)).responses
    assert [len(values(each.partitions[0])) for each in found] == [1] + [0] * (MANY - 1)


def test_a_fetch_of_many_topics_waits_where_none_has_anything(
    desk: KafkaDesk, many: list[str]
) -> None:
    waiting = desk.begin("Fetch", 12, **fetching(many, min_bytes=1, max_wait_ms=500))
    assert not waiting.is_over
    desk.produce(some(b"1"), name=many[-1])
    found = desk.answer(waiting, "Fetch", 12).responses
    assert values(found[-1].partitions[0]) == [b"1"]


def test_requests_of_many_topics_give_way_to_others(desk: KafkaDesk, many: list[str]) -> None:
    """Their answers are the same. (§9)"""
    T = types("ProduceRequest")
    data = [T.PartitionProduceData(index=0, records=some(b"1"))]
    topics = [T.TopicProduceData(name=name, partition_data=data) for name in many]
    found = desk.ask("Produce", 12, acks=-1, timeout_ms=9, topic_data=topics).responses
    assert [each.partition_responses[0].base_offset for each in found] == [0] * MANY
    L = types("ListOffsetsRequest")
    asked = [
        L.ListOffsetsTopic(name=name, partitions=[L.ListOffsetsPartition(timestamp=-1)])
        for name in many
    ]
    found = desk.ask("ListOffsets", topics=asked).topics
    assert [each.partitions[0].offset for each in found] == [1] * MANY
    M = types("MetadataRequest")
    named = [M.MetadataRequestTopic(name=name) for name in many]
    assert [each.name for each in desk.ask("Metadata", 12, topics=named).topics] == many
    assert {each.name for each in desk.ask("Metadata", 12, topics=None).topics} == {"t", *many}


def test_a_large_request_is_decoded_on_a_thread(desk: KafkaDesk) -> None:
    """What is no request ends its connection there, too. (§9)"""
    M = types("MetadataRequest")
    named = [M.MetadataRequestTopic(name=f"{n:0200}") for n in range(400)]
    frame, version = desk.frame("Metadata", 12, topics=named)
    assert len(frame) > 64 << 10
    found = desk.answer(desk.begin_raw(frame), "Metadata", version)
    assert len(found.topics) == 400
    broken = desk.begin_raw(frame[:12] + b"\xff" * 6 + frame[18:])
    assert isinstance(broken.failure, Refused)
    assert broken.failure.end is End.MALFORMED
