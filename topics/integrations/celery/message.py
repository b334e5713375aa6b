"""`Envelope`: a message of kombu's as the data of a record, readable to people and to other programs.

A body that is JSON stays JSON: `topics watch celery` shows the arguments of a task, and a program
without Celery may append `{"headers": {"task": ..., "id": ...}, "body": [[2, 2], {}, {}]}`.
"""

import time
from base64 import b64decode, b64encode
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from topics.client import NewRecord
from topics.integrations.wire import is_json

JSON: Final = "application/json"
DELAY_MS_MAX: Final = 3650 * 86_400_000
"""Ten years; an `eta` beyond is waited for by the worker, as without a delay."""


class Envelope(msgspec.Struct, rename={"content_type": "content-type"}, kw_only=True):
    """A message; `content_encoding` and the encoding of the body are among the properties."""

    headers: dict[str, Any] = {}
    content_type: str | None = JSON
    content_encoding: str | None = msgspec.field(name="content-encoding", default="utf-8")
    properties: dict[str, Any] = {}
    body: msgspec.Raw


def record_of(message: dict[str, Any], *, priority: int) -> NewRecord:
    """A message as a job: urgent by its priority, and held back until its `eta`."""
    data = msgspec.Raw(msgspec.json.encode(message))
    eta_ms = _eta_ms(message.get("headers") or {})
    return NewRecord(data, priority=priority or None, not_before=eta_ms)


def message_of(data: msgspec.Raw) -> dict[str, Any]:
    """The message in a record; where the record is none, one whose body is all that it has."""
    try:
        found = msgspec.json.decode(data, type=Envelope)
    except msgspec.DecodeError:
        found = Envelope(body=data)
    properties = found.properties
    properties.setdefault("delivery_info", {})
    return {
        "headers": found.headers,
        "content-type": found.content_type,
        "content-encoding": found.content_encoding,
        "properties": properties,
        "body": bytes(found.body),
    }


def encode_body(body: str | bytes, content_type: str | None) -> tuple[Any, str]:
    """A body as JSON, and the name of its encoding for `decode_body`."""
    raw = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else bytes(body)
    if content_type == JSON and is_json(raw):
        return msgspec.Raw(raw), "json"
    return b64encode(raw).decode(), "base64"


def decode_body(body: bytes, encoding: str | None) -> bytes:
    """The body that was encoded."""
    if encoding != "base64":
        return body
    return b64decode(msgspec.json.decode(body, type=str))


def _eta_ms(headers: dict[str, Any]) -> int | None:
    """When a task may start, milliseconds since the epoch; None where that is now."""
    try:
        eta = datetime.fromisoformat(headers["eta"])
    except (KeyError, TypeError, ValueError):
        return None
    if eta.tzinfo is None:
        eta = eta.replace(tzinfo=UTC)
    eta_ms = int(eta.timestamp() * 1000)
    delay_ms = eta_ms - time.time() * 1000
    return eta_ms if 0 < delay_ms < DELAY_MS_MAX else None
