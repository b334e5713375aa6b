"""Messages of kombu's as records."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from topics.integrations.celery.message import decode_body, encode_body, message_of, record_of


@pytest.mark.parametrize("body", [b'[[1, 2], {}, {"chord": null}]', b'{"x": 1.0e5}', b'"text"'])
def test_json_stays_json(body: bytes) -> None:
    """The body of a task can be read in its record, and comes back byte for byte."""
    data, encoding = encode_body(body, "application/json")
    record = record_of({"body": data, "properties": {"body_encoding": encoding}}, priority=0)

    found = message_of(record.data)

    assert body in bytes(record.data)
    assert decode_body(found["body"], encoding) == body


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"\x80\x04K\x01.", "application/x-python-serialize"),
        (b"[NaN]", "application/json"),
        (b'["\\ud800"]', "application/json"),
        (b"1} , {", "application/json"),
        ("text", "text/plain"),
        (b"[1]", "application/data"),
    ],
)
def test_all_else_is_base64(body: bytes | str, content_type: str) -> None:
    """Bytes, and what the server does not take for JSON, come back as they were. (§0.3)"""
    data, encoding = encode_body(body, content_type)
    record = record_of({"body": data, "properties": {"body_encoding": encoding}}, priority=0)

    found = message_of(record.data)

    assert encoding == "base64"
    assert decode_body(found["body"], encoding) == (
        body.encode() if isinstance(body, str) else body
    )


def test_a_message_of_another_program_needs_a_body_and_headers() -> None:
    """What kombu wants beside them has defaults."""
    found = message_of(
        msgspec.Raw(b'{"headers": {"task": "add", "id": "1"}, "body": [[2, 2], {}, {}]}')
    )

    assert found == {
        "headers": {"task": "add", "id": "1"},
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "properties": {"delivery_info": {}},
        "body": b"[[2, 2], {}, {}]",
    }


@pytest.mark.parametrize("data", [b"7", b'{"job": 1}', b'{"body": 1, "headers": 2}'])
def test_a_record_that_is_no_message_is_one_body(data: bytes) -> None:
    """Kombu's consumer decides about it, and no worker stumbles over it again and again."""
    assert message_of(msgspec.Raw(data))["body"] == data


def test_an_eta_holds_the_record_back() -> None:
    """The server waits for it, not a worker. (`not_before`)"""
    eta = datetime.now(UTC) + timedelta(hours=1)

    record = record_of({"headers": {"eta": eta.isoformat()}, "body": 1}, priority=3)

    assert record.not_before == int(eta.timestamp() * 1000)
    assert record.priority == 3


@pytest.mark.parametrize(
    "eta",
    [
        None,
        "soon",
        "2020-01-01T00:00:00+00:00",
        "2999-01-01T00:00:00+00:00",
    ],
)
def test_an_eta_that_is_past_or_beyond_the_bound_holds_nothing_back(eta: str | None) -> None:
    """The server takes ten years at most; beyond, the worker waits, as without a delay."""
    assert record_of({"headers": {"eta": eta}, "body": 1}, priority=0).not_before is None


def test_an_eta_without_a_zone_is_utc() -> None:
    """Celery has it so."""
    eta = datetime.now(UTC) + timedelta(hours=1)

    record = record_of({"headers": {"eta": eta.replace(tzinfo=None).isoformat()}}, priority=0)

    assert record.not_before == int(eta.timestamp() * 1000)
