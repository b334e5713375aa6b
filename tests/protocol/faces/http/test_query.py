"""Query strings and the cursor of lists. (§0.6, §0.7)"""

from base64 import urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.harness import refusal, status_of
from topics.protocol.faces.http.query import parse_cursor, parse_query, query_bool, query_natural
from topics.protocol.faces.http.statuses import STATUSES


@pytest.mark.parametrize(
    ("raw", "parsed"),
    [
        (b"", {}),
        (b"a=1&b=2", {"a": "1", "b": "2"}),
        (b"a=1&a=2", {"a": "1"}),
        (b"a", {"a": ""}),
        (b"a=", {"a": ""}),
        (b"=1", {"": "1"}),
        (b"&&a=1&", {"a": "1"}),
        (b"a=%C3%A9+x", {"a": "é x"}),
        (b"a=%ff", {"a": "\ufffd"}),
        (b"a=b=c", {"a": "b=c"}),
        (b"a;b=1", {"a;b": "1"}),
    ],
)
def test_queries(raw: bytes, parsed: dict[str, str]) -> None:
    """The first of a repeated name counts. (§0.7)"""
    assert parse_query(raw) == parsed


@given(st.binary(max_size=60))
def test_any_query_parses(raw: bytes) -> None:
    """To text, or to a 400. (§0.6)"""
    assert status_of(parse_query, raw) in (200, 400)


def test_a_query_has_a_bound() -> None:
    """A thousand parameters are nobody's question. (§0.6)"""
    assert STATUSES[refusal(parse_query, b"a=1&" * 1001).code] == 400


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True), ("false", False), ("1", True), ("0", False), ("", None), ("yes", None),
        ("True", None), (" true", None), ("2", None),
    ],
)  # fmt: skip
def test_booleans(text: str, value: bool | None) -> None:
    """True and false, and their digits. (§1.2)"""
    if value is None:
        rejection = refusal(query_bool, {"touch": text}, "touch", True)
        assert "touch" in rejection.message
    else:
        assert query_bool({"touch": text}, "touch", not value) is value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0), ("7", 7), ("007", 7), ("18446744073709551616", 2**64), ("-1", None), ("", None),
        ("1.0", None), ("+1", None), ("1_0", None), ("²", None), ("٣", None), ("9" * 21, 10**20 - 1),
        ("9" * 5000, 10**20 - 1), ("0" * 5000 + "7", 7), ("000", 0),
    ],
)  # fmt: skip
def test_naturals(text: str, value: int | None) -> None:
    """ASCII digits, any number of them: what is above every bound is clamped by each. (§0.7)"""
    if value is None:
        assert STATUSES[refusal(query_natural, {"n": text}, "n", 5).code] == 400
    else:
        assert query_natural({"n": text}, "n", 5) == value
    assert query_natural({}, "n", 5) == 5


@given(st.binary(max_size=40))
def test_any_cursor_is_judged(raw: bytes) -> None:
    """A name, or 400. (§1.3)"""
    assert status_of(parse_cursor, raw.decode("latin-1")) in (200, 400)
    assert status_of(parse_cursor, urlsafe_b64encode(raw).decode()) in (200, 400)
