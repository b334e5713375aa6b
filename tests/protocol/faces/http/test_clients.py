"""Who is connected: what a query means, and which ids there are. (§8.9)"""

import pytest

from topics.protocol.faces.http.clients import ClientQuery, client_id, parse_clients
from topics.protocol.model.errors import ErrorCode, Rejection


def test_a_page_begins_behind_a_client() -> None:
    """Its id says the process and the number; without one the page is the first."""
    assert parse_clients({}) == ClientQuery(0, 0, 100, "")
    after = client_id(2, 17)
    assert parse_clients({"after": after, "topic": "t"}) == ClientQuery(2, 17, 100, "t")


@pytest.mark.parametrize(("limit", "found"), [("0", 100), ("7", 7), ("5000", 1000)])
def test_a_page_is_bounded(limit: str, found: int) -> None:
    """0 is the default, and at most 1000 are given."""
    assert parse_clients({"limit": limit}).limit == found


@pytest.mark.parametrize(
    "after", ["", "x", "1", "1-", "-1", "01-1", "1-01", "1-x", "10000-1", "0-" + "9" * 19, "0-1\n"]
)
def test_what_is_no_id_is_refused(after: str) -> None:
    with pytest.raises(Rejection) as refused:
        parse_clients({"after": after})
    assert refused.value.code is ErrorCode.INVALID_REQUEST
