"""What is checked of a field beyond its type (§0.5, §0.6, §4)."""

import pytest
from msgspec import Raw

from protocol.harness import refusal
from topics.protocol.faces.http.checks import (
    MATCH_BYTES_MAX,
    U64_MAX,
    check_lengths,
    clamped_lease,
    short_value,
    tag_match,
    u64,
)
from topics.protocol.model.limits import Limits


def test_a_number_is_at_most_a_u64() -> None:
    """The last one is taken, the next one refused at its path; none is the default. (§0.3)"""
    assert u64(U64_MAX, "$.seq") == U64_MAX
    assert u64(None, "$.seq", 7) == 7
    assert "$.seq" in refusal(u64, U64_MAX + 1, "$.seq").message


@pytest.mark.parametrize(
    ("asked_ms", "given_ms"),
    [(0, 100), (99, 100), (100, 100), (86_400_000, 86_400_000), (86_400_001, 86_400_000)],
)
def test_a_lease_is_clamped(asked_ms: int, given_ms: int) -> None:
    """To a tenth of a second and a day. (§10.3)"""
    assert clamped_lease(asked_ms) == given_ms


@pytest.mark.parametrize("character", ["x", "é", "語", "🦜"])
def test_a_length_is_counted_in_bytes(character: str) -> None:
    """As UTF-8, whatever a character takes; the message names the record. (§2)"""
    size = len(character.encode())

    check_lengths([None, character * 8], 8 * size, "tag")
    message = refusal(check_lengths, ["", character * 8], 8 * size - 1, "tag").message

    assert f"{8 * size} bytes" in message
    assert "$.records[1].tag" in message


def test_a_pattern_is_bounded_before_it_is_decoded() -> None:
    """A value of many bytes never becomes objects; the longest tag fits however it is escaped. (§4)"""
    limits = Limits(max_tag_bytes=3000)
    escaped = Raw(b'"%b"' % (rb"\u0061" * 3000))
    long = Raw(b"[%b]" % (b"1," * 10_000 + b"1"))

    assert short_value(escaped, limits, "$.match") == "a" * 3000
    assert "exceed 18064" in refusal(short_value, long, limits, "$.match").message
    assert f"exceed {MATCH_BYTES_MAX}" in refusal(short_value, long, Limits(), "$.match").message


def test_null_is_no_pattern() -> None:
    """Absent and null mean the same. (§0.3)"""
    assert tag_match(Raw(b"null"), Limits()) is None
    assert tag_match(Raw(b'"a*"'), Limits()) is not None
