"""Refusals that a driver makes itself have the envelope of all others (§0.5)."""

import json

import pytest

from topics.protocol.faces.http.statuses import STATUSES
from topics.protocol.model.errors import ErrorCode
from topics.server.http.refusals import refusal


@pytest.mark.parametrize("code", list(ErrorCode), ids=lambda code: code.code)
def test_every_code_has_its_status_and_the_envelope(code: ErrorCode) -> None:
    """`error.code` and `error.message`, and `detail` where there is some. (§0.5, §0.6)"""
    answer = refusal(code, "why", {"k": 1})
    body = b"".join(answer.body)
    headers = dict(answer.headers)

    assert answer.status == STATUSES[code]
    error = json.loads(body)["error"]
    assert (error["code"], error["message"]) == (code.code, "why")
    assert error["detail"]["k"] == 1
    assert headers[b"content-type"] == b"application/json"
    assert headers[b"content-length"] == b"%d" % len(body)


def test_what_has_no_detail_says_none() -> None:
    """`error.detail` may be absent. (§0.5)"""
    [body] = refusal(ErrorCode.NOT_FOUND, "no such route").body

    assert "detail" not in json.loads(body)["error"]


def test_http_may_have_a_closer_status() -> None:
    """431 and 501 are not in the table of errors; the code is."""
    answer = refusal(ErrorCode.INVALID_REQUEST, "too many headers", status=431)

    assert answer.status == 431
    assert json.loads(b"".join(answer.body))["error"]["code"] == "invalid_request"


@pytest.mark.parametrize("close", [False, True])
def test_a_connection_that_cannot_go_on_is_ended(close: bool) -> None:
    """The rest of an unread body would be parsed as the next request."""
    assert refusal(ErrorCode.PAYLOAD_TOO_LARGE, "too large", close=close).close is close


@pytest.mark.parametrize("code", [ErrorCode.THROTTLED, ErrorCode.NOT_READY])
def test_a_temporary_refusal_has_retry_after(code: ErrorCode) -> None:
    """`Retry-After` on 429 and 503. (§0.6)"""
    assert int(dict(refusal(code, "busy").headers)[b"retry-after"]) >= 1
