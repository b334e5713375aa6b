"""Lines about requests: few, whatever the clients do, and without anything secret."""

import logging

import pytest

from topics.protocol.model.errors import ErrorCode, Rejection
from topics.server.observing.request_log import PATH_MAX, WINDOW_S, RequestLog

THROTTLED = Rejection(ErrorCode.THROTTLED, "too many", {"limit": "max_sse_connections"})
FORBIDDEN = Rejection(ErrorCode.FORBIDDEN, "no")


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "topics.requests")
    return caplog


def test_one_line_a_class_in_ten_seconds(lines: pytest.LogCaptureFixture) -> None:
    """A flood of one class is a line, then a line with its number; another class has its own."""
    requests = RequestLog(None)
    for i in range(100):
        requests.refused(THROTTLED, b"/v0/watch", "10.0.0.3", i / 100)
    requests.refused(FORBIDDEN, b"/v0/topics/a", "10.0.0.4", 1.0)
    requests.refused(THROTTLED, b"/v0/watch", "10.0.0.3", WINDOW_S)

    assert lines.messages == [
        "refused (throttled, limit max_sse_connections): /v0/watch from 10.0.0.3",
        "refused (forbidden): /v0/topics/a from 10.0.0.4",
        "refused (throttled, limit max_sse_connections): /v0/watch from 10.0.0.3"
        " (and 99 more since the last such line)",
    ]


@pytest.mark.parametrize(
    "code", [ErrorCode.INVALID_REQUEST, ErrorCode.NOT_FOUND, ErrorCode.TOPIC_NOT_FOUND]
)
def test_a_mistake_of_a_client_is_told_to_the_client_alone(
    lines: pytest.LogCaptureFixture, code: ErrorCode
) -> None:
    """Metrics count it."""
    RequestLog(None).refused(Rejection(code, "no"), b"/v0/nowhere", "10.0.0.3", 0.0)

    assert lines.messages == []


def test_a_slow_request_has_a_line(lines: pytest.LogCaptureFixture) -> None:
    """With its route, status and time."""
    requests = RequestLog(1.0)
    requests.answered(b"/v0/topics/a", "POST", 200, 1.0, "10.0.0.3", 5.0)
    requests.answered(b"/v0/topics/a", "POST", 200, 1.5301, "10.0.0.3", 6.0)

    assert lines.messages == [
        "slow: POST /v0/topics/a from 10.0.0.3 was answered 200 after 1530 ms"
    ]


def test_no_line_for_slow_requests_where_none_is_wanted(lines: pytest.LogCaptureFixture) -> None:
    """`TOPICS_SLOW_REQUEST_MS=0`."""
    RequestLog(None).answered(b"/v0/topics/a", "POST", 200, 60.0, "", 0.0)

    assert lines.messages == []


def test_a_long_path_is_cut(lines: pytest.LogCaptureFixture) -> None:
    """A client cannot fill the log with one request."""
    RequestLog(None).refused(FORBIDDEN, b"/" + b"a" * 60_000, "", 0.0)

    assert len(lines.messages[0]) < PATH_MAX + 60
    assert lines.messages[0].endswith("… from ?")
