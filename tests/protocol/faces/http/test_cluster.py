"""The body about a cluster's log (§8.8)."""

import pytest

from topics.protocol.faces.http.cluster import TrimBody, parse_trim
from topics.protocol.model.errors import ErrorCode, Rejection


def test_how_far_to_trim() -> None:
    """Nothing said is what the leader does by itself."""
    assert parse_trim(b"") == parse_trim(b"{}") == TrimBody()
    assert parse_trim(b'{"before":0,"now":false}') == TrimBody(before=0, now=False)
    assert parse_trim(b'{"now":true,"alone":true,"dry_run":true}') == TrimBody(
        now=True, alone=True, dry_run=True
    )


@pytest.mark.parametrize(
    "body",
    [
        b'{"befor":1}',
        b'{"before":-1}',
        b'{"before":1.5}',
        b'{"before":18446744073709551616}',
        b'{"before":1,"now":true}',
        b'{"now":1}',
        b"[]",
        b"{",
    ],
)
def test_what_is_refused(body: bytes) -> None:
    """A typo does not widen a destruction."""
    with pytest.raises(Rejection) as refused:
        parse_trim(body)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
