"""What metrics tell of Kafka's clients: counts whose labels no client can make (§8.3)."""

from collections.abc import Mapping

import pytest

from topics.protocol.faces.kafka import errors
from topics.protocol.faces.kafka.schema import types
from topics.protocol.model.commands import DeleteRecords
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.server.kafka.exchange import Refused
from topics.server.kafka.measures import KafkaMeasures

from .desk import KafkaDesk, some


def told(measures: KafkaMeasures) -> Mapping[str, float]:
    """Every sample that is not 0, as a line of the metrics names it."""
    return {
        family.name.removeprefix("topics_kafka_")
        + sample.suffix
        + "".join(f"|{value}" for value in sample.labels.values()): sample.value
        for family in measures.families()
        for sample in family.samples
        if sample.value
    }


def test_requests_and_their_errors_are_counted_by_api() -> None:
    desk = KafkaDesk()
    desk.create()
    desk.produce(some(b"1", b"2"), some(b"3"))
    desk.fetch(9)
    desk.fetch(0, name="nobody-made-this")

    found = told(desk.exchange.measures)

    assert found["connections"] == 1
    assert (found["records_produced_total"], found["batches_produced_total"]) == (3, 2)
    assert {k: n for k, n in found.items() if k.startswith("requests_total")} == {
        "requests_total|CreateTopics": 1,
        "requests_total|Fetch": 2,
        "requests_total|Produce": 1,
    }
    assert {k: n for k, n in found.items() if k.startswith("errors_total")} == {
        "errors_total|Fetch|OFFSET_OUT_OF_RANGE": 1,
        "errors_total|Fetch|UNKNOWN_TOPIC_OR_PARTITION": 1,
    }
    assert found["request_duration_seconds_count|Produce"] == 1
    assert not any("nobody" in label for label in found)


def test_a_repeat_is_no_record_produced() -> None:
    """A producer that sends a batch again appends nothing. (§6)"""
    desk = KafkaDesk()
    desk.create()
    producer_id = desk.ask("InitProducerId", transactional_id=None).producer_id
    again = some(b"1", producer_id=producer_id, producer_epoch=0, sequence=0)
    for _ in range(2):
        assert desk.produce(again)[0].base_offset == 0
    assert told(desk.exchange.measures)["records_produced_total"] == 1


def test_a_fetch_that_waits_is_shown_and_not_timed() -> None:
    desk = KafkaDesk()
    desk.create()
    fields = desk.fetching(0, min_bytes=1, max_wait_ms=500)
    waiting, given_up = (desk.begin("Fetch", 12, **fields) for _ in range(2))
    assert told(desk.exchange.measures)["fetches_waiting"] == 2

    given_up.cancel()
    desk.produce(some(b"1"))

    assert waiting.is_over
    found = told(desk.exchange.measures)
    assert "fetches_waiting" not in found
    assert found["requests_total|Fetch"] == 1
    assert "request_duration_seconds_count|Fetch" not in found


def test_empty_batches_over_records_that_are_gone_are_counted() -> None:
    """A client goes on behind them without a word. (§3)"""
    desk = KafkaDesk()
    desk.create()
    desk.produce(some(b"1", b"2"))
    desk.shell.submit(DeleteRecords("t", 3, None), lambda _: None)
    for _ in range(2):
        assert desk.fetch(0).error_code == 0
    assert told(desk.exchange.measures)["holes_passed_total"] == 2


def test_what_is_answered_without_a_handler_counts() -> None:
    desk = KafkaDesk()
    for key, version in ((18, 99), (0, 2)):
        desk.begin_raw(bytes((0, key, 0, version)) + b"\0\0\0\1\xff\xff" + b"\0" * 10)
    found = told(desk.exchange.measures)
    assert found["errors_total|ApiVersions|UNSUPPORTED_VERSION"] == 1
    assert found["requests_total|Produce"] == 1


def test_an_error_without_a_name_has_that_of_the_unknown() -> None:
    measures = KafkaMeasures()
    measures.answered("Fetch", [12345], None)
    assert told(measures)["errors_total|Fetch|UNKNOWN_SERVER_ERROR"] == 1


def test_a_request_that_waits_for_room_is_throttled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it is tried. (124)"""
    desk = KafkaDesk()
    desk.create()

    def full(*_: object) -> None:
        raise Rejection(ErrorCode.THROTTLED, "no room")

    monkeypatch.setattr(desk.shell.driver, "submit", full)
    assert desk.produce(some(b"1"))[0].error_code == errors.REQUEST_TIMED_OUT
    found = told(desk.exchange.measures)
    assert found["throttled_total|Produce"] == 1
    assert "request_duration_seconds_count|Produce" not in found
    assert "records_produced_total" not in found


def test_connections_that_end_have_a_reason() -> None:
    desk = KafkaDesk()
    desk.create()
    T = types("ProduceRequest")
    part = T.PartitionProduceData(index=1, records=some(b"1"))
    asked = [T.TopicProduceData(name="t", partition_data=[part])]
    with pytest.raises(Refused) as ended:
        desk.ask("Produce", 12, acks=0, timeout_ms=9, topic_data=asked)
    assert ended.value.end.value == "unanswerable"
    desk.exchange.gone(desk.client)
    assert "connections" not in told(desk.exchange.measures)
