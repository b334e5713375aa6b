"""Produce: batches taken and refused, each by itself; acks; producers; waiting for room (§6, §7, 124)."""

import gzip
from typing import Any

import pytest
from protocol.batches.builder import NOW_MS, batch, record

from topics.protocol.batches.header import header_of
from topics.protocol.faces.kafka import errors
from topics.protocol.faces.kafka.names import id_of
from topics.protocol.faces.kafka.schema import types
from topics.protocol.model.commands import PutTopic
from topics.protocol.model.config import TopicConfig
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.server.kafka import produce
from topics.server.kafka.exchange import Refused

from .desk import KafkaDesk, some


@pytest.fixture
def desk() -> KafkaDesk:
    made = KafkaDesk()
    made.create()
    return made


@pytest.mark.parametrize("version", range(3, 13))
def test_batches_are_appended_in_their_order(desk: KafkaDesk, version: int) -> None:
    first, second = desk.produce(some(b"1", b"2"), some(b"3"), version=version)
    assert (first.error_code, first.base_offset, second.base_offset) == (0, 0, 2)
    assert first.log_start_offset == (0 if version >= 5 else -1)
    assert first.log_append_time_ms == -1
    assert desk.list_offset(-1).offset == 3


def test_a_topic_is_named_by_its_id_from_version_13_on(desk: KafkaDesk) -> None:
    T = types("ProduceRequest")

    def ask(topic_id: bytes) -> Any:
        parts = [T.PartitionProduceData(index=0, records=some(b"1"))]
        topic = T.TopicProduceData(topic_id=topic_id, partition_data=parts)
        found = desk.ask("Produce", 13, acks=-1, timeout_ms=9, topic_data=[topic]).responses[0]
        assert found.topic_id == topic_id
        return found.partition_responses[0]

    topic_id = desk.create("u").topic_id
    assert (ask(topic_id).error_code, ask(topic_id).base_offset) == (0, 1)
    assert ask(b"\x7f" * 16).error_code == errors.UNKNOWN_TOPIC_ID


def code(desk: KafkaDesk, data: bytes, **fields: Any) -> int:
    (found,) = desk.produce(data, **fields)
    assert found.base_offset == (-1 if found.error_code else 0)
    assert found.error_message or not found.error_code
    assert isinstance(found.error_code, int)
    return found.error_code


@pytest.mark.parametrize(
    ("data", "want"),
    [
        (b"", errors.CORRUPT_MESSAGE),
        (some(b"1", crc=1), errors.CORRUPT_MESSAGE),
        (some(b"1", magic=1), errors.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (some(b"1", attributes=6), errors.UNSUPPORTED_COMPRESSION_TYPE),
        (some(b"1", attributes=8), errors.INVALID_TIMESTAMP),
        (some(b"1", last_delta=4), errors.INVALID_RECORD),
        (some(b"1") + some(b"2"), errors.INVALID_RECORD),
        (some(b"x" * 600), errors.MESSAGE_TOO_LARGE),
        (some(*[b"x" * 500] * 5), errors.MESSAGE_TOO_LARGE),
    ],
)
def test_what_is_not_sound_leaves_nothing(data: bytes, want: int) -> None:
    """And concerns no other batch of the request. (§9)"""
    desk = KafkaDesk(max_record_bytes=550)
    desk.create(max_message_bytes="2000")
    good, bad, after = desk.produce(some(b"1"), data, some(b"2"))
    assert (bad.error_code, bad.base_offset) == (want, -1)
    assert bad.error_message
    assert (good.base_offset, after.base_offset) == (0, 1)


def test_a_batch_that_unpacks_to_too_much_is_refused() -> None:
    """Eight times what the topic takes; and whatever it takes, 64 MiB. (§9)"""
    desk = KafkaDesk(max_record_bytes=1 << 28)
    desk.create(max_message_bytes="1000")
    large = record(0, value=b"\0" * 20_000)
    assert code(desk, batch(gzip.compress(large), 1, attributes=1)) == errors.MESSAGE_TOO_LARGE
    larger = record(0, value=b"\0" * (65 << 20))
    assert code(desk, batch(gzip.compress(larger, 1), 1, attributes=1)) == errors.INVALID_RECORD


def test_a_topic_that_is_not_there_is_not_made(desk: KafkaDesk) -> None:
    """Metadata makes topics, and no write. (124)"""
    assert code(desk, some(b"1"), name="u") == errors.UNKNOWN_TOPIC_OR_PARTITION
    T = types("ProduceRequest")
    topic = T.TopicProduceData(
        name="t", partition_data=[T.PartitionProduceData(index=1, records=some(b"1"))]
    )
    found = desk.ask("Produce", 9, acks=-1, timeout_ms=9, topic_data=[topic])
    (part,) = found.responses[0].partition_responses
    assert (part.index, part.error_code) == (1, errors.UNKNOWN_TOPIC_OR_PARTITION)


def test_each_partition_has_its_own_offsets(desk: KafkaDesk) -> None:
    """A partition that is not there is refused, and the batches beside it are taken. (§4)"""
    desk.create("p", partitions=3)
    T = types("ProduceRequest")
    parts = [
        T.PartitionProduceData(index=index, records=some(b"%d" % index))
        for index in (2, 3, 0, -1, 2)
    ]
    topic = T.TopicProduceData(name="p", partition_data=parts)
    found = desk.ask("Produce", 9, acks=-1, timeout_ms=9, topic_data=[topic])
    answers = found.responses[0].partition_responses
    unknown = errors.UNKNOWN_TOPIC_OR_PARTITION
    assert [(each.index, each.error_code, each.base_offset) for each in answers] == [
        *((2, 0, 0), (3, unknown, -1), (0, 0, 0), (-1, unknown, -1), (2, 0, 1))
    ]
    assert answers[1].error_message == 'topic "p" has no partition 3'


def test_a_producer_numbers_its_batches_in_each_partition(desk: KafkaDesk) -> None:
    """As KIP-98 has it; a repeat gets its first answer there. (§6)"""
    desk.create("p", partitions=2)
    first = some(b"1", producer_id=7, producer_epoch=0, sequence=0)
    second = some(b"2", producer_id=7, producer_epoch=0, sequence=1)
    for partition in (0, 1):
        for data, offset in ((first, 0), (second, 1), (first, 0)):
            (found,) = desk.produce(data, name="p", partition=partition)
            assert (found.error_code, found.base_offset) == (0, offset)


@pytest.mark.parametrize("name", ["a:b", "n" * 32_767])
def test_a_name_that_is_none_of_kafka_has_no_topic(desk: KafkaDesk, name: str) -> None:
    """Neither by the name nor by the id; told in short, since the sentence is a string of this version. (§4, §9)"""
    T = types("ProduceRequest")
    desk.shell.submit(PutTopic("a:b", TopicConfig(), type_given=False), lambda _: None)
    hidden = desk.shell.engine.state.topics["a:b"]
    (found,) = desk.produce(some(b"1"), name=name, version=8)
    assert found.error_code == errors.UNKNOWN_TOPIC_OR_PARTITION
    parts = [T.PartitionProduceData(index=0, records=some(b"1"))]
    topic = T.TopicProduceData(topic_id=id_of(hidden.epoch), partition_data=parts)
    answer = desk.ask("Produce", 13, acks=-1, topic_data=[topic]).responses[0]
    assert answer.partition_responses[0].error_code == errors.UNKNOWN_TOPIC_ID
    assert hidden.head_seq == 0


def test_acks(desk: KafkaDesk) -> None:
    """-1 and 1 are answered, 0 is not; an error of that ends its connection, as in Kafka."""
    assert code(desk, some(b"1"), acks=2) == errors.INVALID_REQUIRED_ACKS
    assert code(desk, some(b"1"), acks=1) == 0
    assert desk.produce(some(b"2"), acks=0) is None
    assert desk.list_offset(-1).offset == 2
    with pytest.raises(Refused, match="does not exist"):
        desk.produce(some(b"3"), acks=0, name="u")


def test_transactions_are_refused_in_words(desk: KafkaDesk) -> None:
    (found,) = desk.produce(some(b"1"), transactional_id="x")
    assert found.error_code == errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert "no transactions" in found.error_message


def test_a_producer_with_numbers_writes_each_batch_once(desk: KafkaDesk) -> None:
    def put(sequence: int, *values: bytes, epoch: int = 0) -> Any:
        data = some(*values, producer_id=9, producer_epoch=epoch, sequence=sequence)
        (found,) = desk.produce(data)
        return found.error_code, found.base_offset

    assert put(0, b"1", b"2") == (0, 0)
    assert put(0, b"1", b"2") == (0, 0)
    assert put(3, b"4") == (errors.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    for nth in range(2, 9):
        assert put(nth, b"v") == (0, nth)
    assert put(0, b"1", b"2") == (errors.DUPLICATE_SEQUENCE_NUMBER, -1)
    assert put(0, b"n", epoch=1) == (0, 9)
    assert put(9, b"o") == (errors.INVALID_PRODUCER_EPOCH, -1)


def test_the_time_of_the_append_may_be_that_of_the_records() -> None:
    """`LogAppendTime`: what a client is told, and what it reads."""
    desk = KafkaDesk()
    desk.create(message_timestamp_type="LogAppendTime")
    (found,) = desk.produce(some(b"1"))
    assert found.log_append_time_ms == desk.shell.now_ms
    assert desk.list_offset(-3).timestamp == desk.shell.now_ms


@pytest.mark.parametrize("said_ms", [-1, 0, NOW_MS + 2, 1 << 62])
def test_a_batch_that_says_another_greatest_time_is_put_right(
    desk: KafkaDesk, said_ms: int
) -> None:
    """Kafka's way: kafka-go writes the time of the last record there, and others write nothing. (§8)"""
    sent = batch(record(0, delta=7) + record(1, delta=2), 2, max_ms=said_ms)
    (found,) = desk.produce(sent)
    assert (found.error_code, found.base_offset) == (0, 0)
    assert header_of(bytes(desk.fetch(0).records)).max_ms == NOW_MS + 7
    latest = desk.list_offset(-3)
    assert (latest.offset, latest.timestamp) == (0, NOW_MS + 7)
    assert desk.list_offset(NOW_MS + 3).offset == 0


def test_a_full_topic_is_a_policy(desk: KafkaDesk) -> None:
    """No retry makes room there. (124)"""
    desk.create("u", topics_cap_records="1", topics_discard="reject")
    assert code(desk, some(b"1"), name="u") == 0
    assert code(desk, some(b"2"), name="u") == errors.POLICY_VIOLATION


def test_a_write_waits_for_room_as_long_as_its_client_does(
    desk: KafkaDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then it is timed out, which clients try again. (124)"""
    refusals: list[Rejection] = []
    submit = desk.shell.driver.submit

    def full(command: Any, deliver: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return submit(command, deliver)

    monkeypatch.setattr(desk.shell.driver, "submit", full)
    refusals += [Rejection(ErrorCode.THROTTLED, "no room")] * 3
    assert code(desk, some(b"1"), timeout_ms=1000) == 0
    refusals += [Rejection(ErrorCode.THROTTLED, "no room")] * 3
    assert code(desk, some(b"1"), timeout_ms=250) == errors.REQUEST_TIMED_OUT


def test_much_is_verified_on_a_thread_and_holds_what_follows(
    desk: KafkaDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that comes behind is not decided before it."""
    monkeypatch.setattr(produce, "APART_BYTES", 10)
    threads: list[Any] = []

    class Call:
        def __init__(self, call: Any) -> None:
            self.call = call
            threads.append(self)

        def add_done_callback(self, then: Any) -> None:
            self.then = then

        def run(self) -> None:
            self.found = self.call()
            self.then(self)

        def result(self) -> Any:
            return self.found

        def cancel(self) -> bool:
            threads.remove(self)
            return True

    monkeypatch.setattr(desk.shell, "decode_in_thread", Call)
    T = types("ProduceRequest")

    def begin() -> Any:
        parts = [T.PartitionProduceData(index=0, records=some(b"1"))]
        topic = T.TopicProduceData(name="t", partition_data=parts)
        return desk.begin("Produce", 9, acks=-1, timeout_ms=9, topic_data=[topic])

    running = begin()
    assert running.holds
    threads[0].run()
    assert desk.answer(running, "Produce", 9).responses[0].partition_responses[0].error_code == 0
    given_up = begin()
    given_up.cancel()
    assert len(threads) == 1


def test_a_compacted_topic_refuses_records_without_a_key_by_name() -> None:
    """87, with the place of each in its batch; another batch of the request is taken. (docs/kafka.md)"""
    desk = KafkaDesk()
    config = TopicConfig(compact=True)
    desk.shell.submit(PutTopic("t", config, type_given=False), lambda _: None)
    keyed = batch(record(0, b"k", b"1"), 1)
    for count in (3, 60):
        records = b"".join(record(nth, None if nth % 2 else b"k") for nth in range(count))
        bad, good = desk.produce(batch(records, count), keyed)
        assert (bad.error_code, bad.base_offset) == (errors.INVALID_RECORD, -1)
        assert [each.batch_index for each in bad.record_errors] == [*range(1, count, 2)]
        assert "needs a tag or a key" in bad.record_errors[0].batch_index_error_message
        assert (good.error_code, good.record_errors) == (0, [])


@pytest.mark.parametrize("codec", [0, 1])
def test_records_of_times_that_a_topic_does_not_take_are_named(codec: int) -> None:
    """32, with the place of each in its batch, as Kafka has it; another batch of the request is taken. (§8)"""
    desk = KafkaDesk()
    now_ms = desk.shell.now_ms
    configs = {"message_timestamp_before_max_ms": "1000", "message_timestamp_after_max_ms": "500"}
    assert desk.create(**configs).error_code == 0
    deltas = [0, -1000, -1001, 500, 501, -now_ms - 1]
    records = b"".join(record(nth, b"k", delta=delta) for nth, delta in enumerate(deltas))
    packed = gzip.compress(records) if codec else records
    untimely = batch(packed, len(deltas), attributes=codec, first_ms=now_ms, max_ms=now_ms)
    good = some(b"1", first_ms=now_ms)
    bad, taken = desk.produce(untimely, good)
    assert (bad.error_code, bad.base_offset) == (errors.INVALID_TIMESTAMP, -1)
    assert [each.batch_index for each in bad.record_errors] == [2, 4]
    assert f"from {now_ms - 1000} to {now_ms + 500}" in bad.error_message
    assert (taken.error_code, taken.record_errors) == (0, [])
    with pytest.raises(Refused, match="takes records with times"):
        desk.produce(untimely, acks=0)
