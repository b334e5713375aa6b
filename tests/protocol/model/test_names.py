"""Names of topics, from a path segment to a refusal (§1.1)."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.harness import refusal
from topics.protocol.faces.http.statuses import STATUSES
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.names import (
    decode_segment,
    is_topic_name,
    partition_name,
    partition_of,
    quote,
    require_router_name,
    require_schedule_name,
    require_topic_name,
)

FIRST = string.ascii_letters + string.digits
LATER = FIRST + "._:-"


@pytest.mark.parametrize("code", range(256))
def test_every_character_at_every_place(code: int) -> None:
    """`^[A-Za-z0-9][A-Za-z0-9._:-]{0,254}$`, byte for byte. (§1.1)"""
    char = chr(code)

    assert is_topic_name(char) == (char in FIRST)
    assert is_topic_name("a" + char) == (char in LATER)
    assert is_topic_name("a" + char + "a") == (char in LATER)


@given(st.text(alphabet=LATER, max_size=300))
def test_lengths(text: str) -> None:
    """1 to 255 characters. (§1.1)"""
    assert is_topic_name("a" + text) == (len(text) <= 254)


@given(st.text())
def test_a_name_is_ascii_and_one_line(text: str) -> None:
    """Whatever is a name can stand in a log, a metric label and an error. (§1.1)"""
    assert not is_topic_name(text) or set(text) <= set(LATER)


@pytest.mark.parametrize(
    ("raw", "decoded"),
    [
        (b"a", "a"), (b"%61", "a"), (b"%2F", "/"), (b"%2561", "%61"), (b"%", "%"), (b"%6", "%6"),
        (b"%zz", "%zz"), (b"%C3%A9", "é"), (b"\xc3\xa9", "é"), (b"%ff", "\ufffd"), (b"+", "+"),
        (b"%00", "\0"),
    ],
)  # fmt: skip
def test_escapes_are_decoded_once(raw: bytes, decoded: str) -> None:
    """What is not UTF-8 becomes a character that no name has. (§1.1)"""
    assert decode_segment(raw) == decoded


@given(st.binary(max_size=50))
def test_any_segment_decodes(raw: bytes) -> None:
    """Nothing a client sends raises anything here. (§0.6)"""
    assert isinstance(decode_segment(raw), str)


@given(st.text(max_size=200))
def test_a_quoted_text_is_bounded_and_visible(text: str) -> None:
    """An error message carries a client's string without its tricks. (§0.5)"""
    shown = quote(text)
    assert len(shown) <= 66
    assert shown.isprintable()


def test_a_bad_name_of_a_body_names_its_field() -> None:
    """400 with the path. (§0.6)"""
    assert require_topic_name("a") == "a"
    rejection = refusal(require_topic_name, "a b", path="$.dead_letter")
    assert STATUSES[rejection.code] == 400
    assert "$.dead_letter" in rejection.message


def test_a_router_may_have_an_arrow_in_its_name() -> None:
    """As a topic's, and `>` besides; anything else is 400. (§6.1)"""
    assert require_router_name("a->b") == "a->b"
    assert refusal(require_router_name, ">a").code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("index", [0, 1, 999])
def test_a_partition_has_a_name_that_no_topic_has(index: int) -> None:
    """The first is the topic itself; the name of any other says both."""
    name = partition_name("orders", index)
    assert partition_of(name) == ("orders", index)
    assert is_topic_name(name) == (index == 0)


def test_a_name_of_a_schedule_is_one_of_a_topic() -> None:
    """Else 400. (§14)"""
    assert require_schedule_name("a.b:c-1") == "a.b:c-1"
    with pytest.raises(Rejection, match="is not a schedule name"):
        require_schedule_name("a b")
