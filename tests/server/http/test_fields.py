"""Header fields that come on several lines: lists, and those that may not."""

import pytest

from topics.protocol.model.errors import ErrorCode, Rejection
from topics.server.http.fields import SECRETS, reader, require_single

from .desk import JSON, Desk, code

SINGLE = [
    b"content-type",
    b"host",
    b"idempotency-key",
    b"last-event-id",
    b"origin",
    b"sec-fetch-dest",
    b"sec-fetch-site",
]
LISTS = [
    b"accept",
    b"accept-encoding",
    b"content-encoding",
    b"if-none-match",
    b"prefer",
    b"traceparent",
    b"x-forwarded-for",
]


@pytest.mark.parametrize("name", LISTS)
def test_a_list_may_come_on_several_lines(name: bytes) -> None:
    """They are joined in their order. (RFC 9110 §5.3)"""
    headers = [(name, b"a"), (b"x", b"1"), (name, b"b"), (name, b"a")]

    require_single(headers)

    assert reader(headers)(name) == b"a, b, a"


def test_of_another_field_the_first_counts() -> None:
    headers = [(b"x", b"1"), (b"x", b"2")]

    require_single(headers)

    assert reader(headers)(b"x") == b"1"
    assert reader(headers)(b"y") is None


def test_a_key_is_not_among_what_may_be_kept() -> None:
    """Who judges it reads it from the head of the request. (§0.2)"""
    header = reader([*((name, b"secret") for name in SECRETS), (b"host", b"a")])

    assert {header(name) for name in SECRETS} == {None}
    assert header(b"host") == b"a"


@pytest.mark.parametrize("name", SINGLE)
@pytest.mark.parametrize("other", [b"a", b"b"], ids=["equal", "different"])
def test_a_field_that_is_no_list_comes_once(name: bytes, other: bytes) -> None:
    """Also where both are equal: a proxy that sends two has joined two requests, or was misled."""
    require_single([(name, b"a"), (b"x", b"1")])
    with pytest.raises(Rejection) as refused:
        require_single([(name, b"a"), (b"x", b"1"), (name, other)])

    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert refused.value.message.encode().lower() == b"the request has more than one " + name


def test_two_content_types_change_nothing() -> None:
    """Two servers may read such a body differently: 400 before the path is looked at. (§0.3, §0.6)"""
    desk = Desk()
    text = (b"content-type", b"text/plain")

    for pair in ((JSON, text), (text, JSON), (JSON, JSON)):
        for target in ("/v0/topics/a", "/v0/nope"):
            answer = desk.ask("PUT", target, None, *pair, raw=b"{}")
            assert code(answer) == (400, "invalid_request")
    assert desk.shell.engine.state.topics == {}


def test_two_codings_of_a_body_are_none_that_is_known() -> None:
    """`gzip` on two lines is a body that was compressed twice: 415. (§0.3)"""
    gzip = (b"content-encoding", b"gzip")

    answer = Desk().ask("PUT", "/v0/topics/a", None, JSON, gzip, gzip, raw=b"{}")

    assert code(answer) == (415, "unsupported_media_type")
