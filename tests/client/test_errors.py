"""Each code of a refusal is raised as its class."""

from typing import Any

import pytest

from topics.client import (
    BatchTooLarge,
    Conflict,
    Forbidden,
    InvalidRequest,
    NotFound,
    NotReady,
    PayloadTooLarge,
    RecordTooLarge,
    RouterNotFound,
    ScheduleNotFound,
    ServerFault,
    Throttled,
    TopicFull,
    TopicNotFound,
    TopicsError,
    Unauthorized,
)

from .script import ONE_TRY, Script, error

ERRORS: list[tuple[int, str, type[TopicsError]]] = [
    (400, "invalid_request", InvalidRequest),
    (400, "batch_too_large", BatchTooLarge),
    (400, "record_too_large", RecordTooLarge),
    (401, "unauthorized", Unauthorized),
    (403, "forbidden", Forbidden),
    (404, "not_found", NotFound),
    (404, "topic_not_found", TopicNotFound),
    (404, "router_not_found", RouterNotFound),
    (404, "schedule_not_found", ScheduleNotFound),
    (405, "method_not_allowed", InvalidRequest),
    (406, "not_acceptable", InvalidRequest),
    (409, "router_cycle", Conflict),
    (409, "topic_exists_incompatible", Conflict),
    (409, "topic_not_empty", Conflict),
    (409, "not_a_queue", Conflict),
    (413, "payload_too_large", PayloadTooLarge),
    (415, "unsupported_media_type", InvalidRequest),
    (422, "topic_full", TopicFull),
    (429, "throttled", Throttled),
    (500, "internal", ServerFault),
    (503, "not_ready", NotReady),
    (503, "shutting_down", NotReady),
    (418, "of_a_newer_server", InvalidRequest),
]


@pytest.mark.parametrize(("status", "code", "kind"), ERRORS)
def test_every_error_code_has_its_class(
    face: Any, status: int, code: str, kind: type[TopicsError]
) -> None:
    """Each row of §0.6 is raised as its class, with all that the envelope says. (§0.5)"""
    script = Script(error(status, code, {"topic": "jobs"}, retry_after="7"))

    with pytest.raises(TopicsError) as raised:
        face(script, retry=ONE_TRY).do(lambda c: c.topic("jobs"))

    fault = raised.value
    assert type(fault) is kind
    assert (fault.code, fault.status, fault.detail) == (code, status, {"topic": "jobs"})
    assert (fault.message, fault.retry_after_s) == (f"no: {code}", 7.0)
    assert str(fault) == f"no: {code} ({status} {code})"


def test_the_text_of_an_error_steers_no_terminal() -> None:
    """It ends in a stack trace or a log; what the server said is there as it is, besides."""
    error = TopicsError("bad\x9b", 409, "a\x1b[2J\u202eb")

    assert str(error) == "a\\u001b[2J\\u202eb (409 bad\\u009b)"
    assert error.message == "a\x1b[2J\u202eb"
