"""Bodies into commands: what survives the parse, and which 400 names what (§0.6, §2, §3)."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.harness import refusal, status_of
from topics.protocol.faces.http.records import parse_delete, parse_diff, parse_purge
from topics.protocol.faces.http.topics import parse_put
from topics.protocol.model.limits import Limits

from .texts import JSON, append

LIMITS = Limits()


@given(st.binary(max_size=60))
def test_no_body_raises_anything_but_a_refusal(body: bytes) -> None:
    """Nothing a client sends is our fault. (§0.6)"""
    for parse in (
        lambda: append(body),
        lambda: parse_put("t", body),
        lambda: parse_diff("t", body, LIMITS),
        lambda: parse_delete("t", body),
        lambda: parse_purge("t", body),
    ):
        assert status_of(parse) in (200, 400)


@given(JSON)
def test_no_json_raises_anything_but_a_refusal(value: Any) -> None:
    """In every field of every body. (§0.6)"""
    try:
        text = json.dumps(value).encode()
    except UnicodeEncodeError:
        return
    fields = ("records", "node", "config", "from_seq", "match", "before_seq", "filter", "ttl_ms")
    for field in fields:
        for parse in (
            lambda b: append(b),
            lambda b: parse_put("t", b),
            lambda b: parse_diff("t", b, LIMITS),
            lambda b: parse_delete("t", b),
            lambda b: parse_purge("t", b),
        ):
            assert status_of(parse, b'{"%b":%b}' % (field.encode(), text)) in (200, 400)


@pytest.mark.parametrize("value", [0, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1])
def test_numbers_are_exact_up_to_the_last(value: int) -> None:
    """A u64, and no float on the way. (§0.3)"""
    text = b'{"from_seq":%d}' % value
    assert parse_diff("t", text, LIMITS).from_seq == value
    delete = parse_delete("t", b'{"before_seq":%d}' % value)
    assert delete.before_seq == value
    assert parse_put("t", b'{"ttl_ms":%d}' % value).config.ttl_ms == value


@pytest.mark.parametrize("value", ["18446744073709551616", "1e3", "1.0", "-0.0", "-1", '"1"'])
def test_other_numbers_are_refused(value: str) -> None:
    """Past the end, fractional, negative, text. (§0.6)"""
    for field, parse in (
        ("from_seq", lambda b: parse_diff("t", b, LIMITS)),
        ("before_seq", lambda b: parse_delete("t", b)),
        ("keep", lambda b: parse_purge("t", b)),
        ("cap_records", lambda b: parse_put("t", b)),
    ):
        rejection = refusal(parse, f'{{"{field}":{value}}}'.encode())
        assert field in rejection.message


def test_a_message_is_bounded() -> None:
    """A long string or number of the client's does not come back at length. (§0.5)"""
    for body in (b'{"filter":"%b*"}' % (b"x" * 10_000), b'{"seq":%b}' % (b"9" * 10_000)):
        assert len(refusal(parse_purge, "t", body).message) < 500
