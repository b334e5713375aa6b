"""What a head says of its body and of the answer it takes. (§0.3, §0.5)"""

import pytest

from protocol.harness import refusal, status_of
from topics.protocol.faces.http.negotiation import (
    accepts_event_stream,
    accepts_gzip,
    check_content_encoding,
    check_content_type,
    prefers_json,
)
from topics.protocol.faces.http.route import BodyRule
from topics.protocol.model.errors import ErrorCode


@pytest.mark.parametrize(
    ("value", "good"),
    [
        (b"application/json", True), (b"APPLICATION/json", True),
        (b"application/json;charset=utf-8", True), (b'application/json; Charset="UTF-8"', True),
        (b"application/json;q=1", True), (b"application/json; charset=utf8", True),
        (b"application/json; charset=latin-1", False), (b"application/json; charset=", False),
        (b"application/jsonl", False), (b"text/plain", False), (b"", False), (b";", False),
    ],
)  # fmt: skip
def test_content_types(value: bytes, good: bool) -> None:
    """JSON, in UTF-8. (§0.3)"""
    for rule in (BodyRule.JSON, BodyRule.JSON_OR_EMPTY):
        status = status_of(lambda rule=rule: check_content_type(value, empty=False, rule=rule))
        assert status == (200 if good else 415)
    check_content_type(value, empty=False, rule=BodyRule.NONE)


def test_no_content_type() -> None:
    """Only where there is no body; where a body is optional, one of no bytes has any type. (§0.3)"""
    check_content_type(None, empty=True, rule=BodyRule.JSON)
    check_content_type(b"text/plain", empty=True, rule=BodyRule.JSON_OR_EMPTY)
    assert (
        status_of(lambda: check_content_type(b"text/plain", empty=True, rule=BodyRule.JSON)) == 415
    )
    rejection = refusal(check_content_type, None, empty=False, rule=BodyRule.JSON)
    assert rejection.code is ErrorCode.UNSUPPORTED_MEDIA_TYPE


@pytest.mark.parametrize(
    ("value", "accepts"),
    [
        (None, False), (b"", False), (b"gzip", True), (b"GZip", True), (b"br,gzip", True),
        (b"gzip;q=0", False), (b"gzip;q=0.0", False), (b"gzip; q=0.000", False),
        (b"gzip;q=0.001", True), (b"gzip;q=1", True), (b"gzip ; q = 0", False), (b"xgzip", False),
        (b"identity;q=1, gzip;q=0", False), (b"br;q=0, gzip", True),
        (b"*", True), (b"*;q=0", False), (b"*;q=0, gzip", True), (b"gzip;q=0, *", False),
        (b"gzip;q=0, x-gzip", False), (b"br, *;q=0.1", True), (b"gzip;q=", True),
    ],
)  # fmt: skip
def test_accepted_encodings(value: bytes | None, accepts: bool) -> None:
    """gzip with a weight above 0. (§0.3)"""
    assert accepts_gzip(value) is accepts


@pytest.mark.parametrize(
    ("value", "accepts"),
    [
        (None, True), (b"", True), (b" ", True), (b"text/event-stream", True), (b"*/*", True),
        (b"Text/Event-Stream; charset=utf-8", True), (b"text/*;q=0.1", True), (b"text/html", False),
        (b"*/*;q=0, text/event-stream", True), (b"text/event-stream;q=0, */*", False),
        (b"text/*;q=0, */*", False), (b"text/*;q=0, text/event-stream;q=0.001", True),
        (b"*/*;q=0", False), (b"text/html, , application/json;q=0.9,", False), (b",", False),
        (b"text/event-stream;x=1;q=0, text/event-stream", True), (b"text/event-stream;q=1.0", True),
        (b"text/event-stream;q=0.0", False), (b"text/event-stream;q=nonsense", True),
    ],
)  # fmt: skip
def test_accepted_streams(value: bytes | None, accepts: bool) -> None:
    """The most specific item has the word, wherever it stands (RFC 9110 §12.5.1). (§7.3)"""
    assert accepts_event_stream(value) is accepts


@pytest.mark.parametrize(
    ("value", "is_json"),
    [
        (None, False), (b"*/*", False), (b"application/json", True), (b"application/*", True),
        (b"text/plain, application/json;q=0", False), (b"text/plain, application/json", True),
        (b"text/plain;q=0.5, application/json;q=0.9", True), (b"application/json, */*;q=0.1", True),
        (b"text/plain;q=0.9, application/json;q=0.5", False), (b"application/json;q=0", False),
        (b"text/plain;version=0.0.4;q=0.5,*/*;q=0.1", False), (b"text/html", False),
    ],
)  # fmt: skip
def test_metrics_are_text_unless_json_is_wanted_more(value: bytes | None, is_json: bool) -> None:
    """Or as much, and by name. (§8.3)"""
    assert prefers_json(value) is is_json


@pytest.mark.parametrize(
    ("coding", "is_gzipped"),
    [(None, False), (b"", False), (b" Identity", False), (b"gzip", True), (b"X-GZIP ", True)],
)
def test_a_body_may_be_gzipped(coding: bytes | None, is_gzipped: bool) -> None:
    """In any case of letters. (§0.5)"""
    assert check_content_encoding(coding) is is_gzipped


@pytest.mark.parametrize("coding", [b"br", b"deflate", b"gzip, gzip"])
def test_no_other_coding_is_taken(coding: bytes) -> None:
    """415. (§0.5)"""
    refused = refusal(check_content_encoding, coding)
    assert refused.code is ErrorCode.UNSUPPORTED_MEDIA_TYPE
