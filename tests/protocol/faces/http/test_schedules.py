"""The body of a schedule (§14)."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from protocol.harness import refusal
from topics.protocol.faces.http.schedules import _known_name, parse_put_schedule
from topics.protocol.model.config import TopicConfig
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.limits import Limits
from topics.protocol.model.schedules import EVERY_MS_MAX, ScheduleConfig, ScheduledRecord

RECORD: dict[str, Any] = {"data": 1}


def text(**fields: object) -> bytes:
    return json.dumps({"topic": "a", "record": RECORD, **fields}).encode()


def test_what_is_left_out_has_its_default() -> None:
    """Absent and null alike."""
    plain = parse_put_schedule("s", text(cron="0 0 * * *"))
    nulls = parse_put_schedule(
        "s",
        text(cron="0 0 * * *", every_ms=None, at=None, tz=None, missed=None, until=None,
             paused=None, config=None),
    )  # fmt: skip

    assert plain == nulls
    assert plain.config == ScheduleConfig(
        topic="a", record=ScheduledRecord(b"1"), cron="0 0 * * *", tz="UTC", missed="one"
    )
    assert plain.paused is False


def test_a_record_is_read_as_an_append_reads_it() -> None:
    """Byte for byte, with every field that a record of an append has."""
    body = b"""{"topic": "a", "every_ms": 1000, "config": {"type": "queue"},
      "record": {"data": {"x" : 1.50}, "tag": "t", "node": "n", "meta": {"m" : 1}, "partition": 2}}"""
    found = parse_put_schedule("s", body)
    assert found.config.record == ScheduledRecord(b'{"x" : 1.50}', "n", "t", b'{"m" : 1}', None, 2)
    assert found.config.config == TopicConfig(type="queue")
    assert found.config.tz is None

    marked = text(every_ms=1000, record={"data": "aa", "form": "text", "time": 5})
    record = parse_put_schedule("s", marked).config.record
    assert record.mark is not None
    assert record.mark.head == b',"$form":"text","$time":5'


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "$"),
    ({"cron": "0 0 * * *", "at": 5}, "$"),
    ({"every_ms": 1000, "at": 5}, "$"),
    ({"every_ms": 1000, "tz": "UTC"}, "$.tz"),
    ({"every_ms": 999}, "$.every_ms"),
    ({"every_ms": EVERY_MS_MAX + 1}, "$.every_ms"),
    ({"every_ms": -1}, "$.every_ms"),
    ({"at": 2**63}, "$.at"),
    ({"every_ms": 1000, "until": 2**63}, "$.until"),
    ({"cron": "0" * 257}, "$.cron"),
    ({"cron": "0 0 * * *", "tz": "x" * 65}, "$.tz"),
    ({"every_ms": 1000, "missed": "some"}, "$.missed"),
    ({"every_ms": 1000, "topic": "a b"}, "$.topic"),
    ({"every_ms": 1000, "record": {"data": 1, "meta": 5}}, "$.record.meta"),
    ({"every_ms": 1000, "record": {"data": 1, "meta": {"$schedule": 1}}}, "$.record.meta"),
    ({"every_ms": 1000, "record": {"data": 1, "meta": {"$schedule_at": 1}}}, "$.record.meta"),
    ({"every_ms": 1000, "record": {"data": 1, "tag": "x" * 257}}, "$.record.tag"),
    ({"every_ms": 1000, "record": {"data": 1, "partition": 5000}}, "$.record.partition"),
    ({"every_ms": 1000, "record": {"tag": "x"}}, "$.record"),
    ({"every_ms": 1000, "config": {"dead_letter": "a"}}, "$.config.dead_letter"),
]


@pytest.mark.parametrize(("fields", "path"), WRONG, ids=lambda v: str(v)[:50])
def test_what_is_wrong_is_named(fields: dict[str, Any], path: str) -> None:
    """400 with the place of the field. (§0.6)"""
    refused = refusal(parse_put_schedule, "s", text(**fields))
    assert refused.code is ErrorCode.INVALID_REQUEST
    assert f"`{path}`" in refused.message


def test_a_record_is_no_larger_than_one_of_an_append() -> None:
    limits = Limits(max_record_bytes=10)
    refused = refusal(
        parse_put_schedule, "s", text(every_ms=1000, record={"data": "x" * 20}), limits
    )
    assert refused.code is ErrorCode.RECORD_TOO_LARGE
    assert "`$.record`" in refused.message


def test_a_name_that_no_schedule_can_have_is_not_found() -> None:
    """Where a schedule is only looked for; its length does not come back. (§14)"""
    asked = SimpleNamespace(name="a b" * 200)
    with pytest.raises(Rejection) as refused:
        _known_name(asked)  # type: ignore[arg-type]
    assert refused.value.code is ErrorCode.SCHEDULE_NOT_FOUND
    assert len((refused.value.detail or {})["schedule"]) == 256
