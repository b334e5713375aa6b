"""Queries for the latest records of tags (§3.5)."""

from typing import Any

import pytest

from protocol.harness import refusal
from topics.protocol.faces.http.query import list_cursor
from topics.protocol.faces.http.records import ROUTES
from topics.protocol.faces.http.route import Request
from topics.protocol.model.errors import ErrorCode
from topics.protocol.model.limits import Limits

LINE = "GET /v0/topics/:/latest"
[PARSE] = [route.target for route in ROUTES if route.line == LINE]


def asked(**query: str) -> Any:
    return PARSE(Request("t", query, lambda _: None, b"", Limits(), lambda: "x"))  # type: ignore[operator]


def test_a_page_goes_on_behind_the_last_tag_of_the_one_before() -> None:
    """Or at the begin of its prefix, where that is later. (§3.5)"""
    first = asked(prefix="a.")
    assert (first.match.lower, first.tag) == (b"a.", None)
    assert asked(prefix="a.", cursor=list_cursor("a.b")).match.lower == b"a.b\0"
    assert asked(prefix="a.", cursor=list_cursor("a")).match.lower == b"a."
    assert asked(cursor=list_cursor("")).match.lower == b"\0"


@pytest.mark.parametrize(
    "query",
    [
        {"tag": "a", "prefix": "a"},
        {"tag": "a", "cursor": "x"},
        {"tag": ""},
        {"cursor": "no cursor"},
    ],
)
def test_what_asks_for_two_things_or_for_nothing_is_refused(query: dict[str, str]) -> None:
    """400. (§3.5)"""
    assert refusal(asked, **query).code is ErrorCode.INVALID_REQUEST
