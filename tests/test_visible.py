"""Text of others, as it is shown to a person."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.visible import visible, visible_json, without_password

STEERING = [
    *("\x00", "\a", "\b", "\n", "\r", "\t", "\x1b[2J", "\x1b]0;title\a", "\x7f", "\x85", "\x9b1m"),
    *("\u061c", "\u200b", "\u200e", "\u200f", "\u2028", "\u2029", "\u202a", "\u202e", "\u2066"),
    *("\u2069", "\ufeff", "\ufff9", "\ud800", "\udcff", "\U000e0041"),
]


@pytest.mark.parametrize("text", STEERING, ids=ascii)
def test_what_steers_a_reader_is_spelled_out(text: str) -> None:
    """Controls of every kind, marks that turn the order of letters, and what is never seen."""
    shown = visible(f"a{text}b")

    assert shown.isprintable()
    assert shown.startswith("a\\")
    assert shown.endswith("b")


def test_text_of_any_script_is_as_it_is() -> None:
    """With the joiners that some scripts need, and blanks of every width."""
    for text in (
        "",
        "jobs",
        "größer",
        "日本語",
        "שלום",
        "क्\u200dष",
        "a\u00a0b",
        "\U0001f468\u200d\U0001f469",
    ):
        assert visible(text) == text


@given(st.text(st.characters()))
def test_nothing_of_a_text_steers(text: str) -> None:
    """Whatever it is made of; and what was shown once is shown as it is."""
    shown = visible(text)

    assert not set(shown) & set("".join(STEERING) + "\u202b\u202c\u202d\u2067\u2068") - set(
        "[2J]0;title1m"
    )
    assert visible(shown) == shown


@given(st.lists(st.none() | st.integers() | st.text(), max_size=5))
def test_json_keeps_its_value(value: list[object]) -> None:
    """Where it is spelled out, too; its blanks between tokens may be others."""
    text = json.dumps(value, ensure_ascii=False, indent=1).replace("\n", "\r\n")

    shown = visible_json(text)

    assert json.loads(shown) == value
    assert not set(shown) & set("\r\x7f\x85\x9b\u202e\u2066\ufeff")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://127.0.0.1:4000/", "http://127.0.0.1:4000/"),
        ("http://[::1]:4000/x@y", "http://[::1]:4000/x@y"),
        ("https://ada:pass@a.test:1/x?y#z", "https://a.test:1/x?y#z"),
        ("https://token@a.test", "https://a.test"),
        ("https://ada:p@ss@a.test/x@y", "https://a.test/x@y"),
        ("https://ada:p/ss@a.test", "https://a.test"),
        ("https://ada:p?ss@a.test", "https://a.test"),
        ("https://ada:p#ss@a.test", "https://a.test"),
        ("ada:pass@a.test", "a.test"),
        ("//ada:pass@a.test", "//a.test"),
        ("http:///ada:pass@a.test", "http://a.test"),
        ("", ""),
        ("https://a:p@a.test, http://b:q@b.test:1/x", "https://a.test, http://b.test:1/x"),
        ("http://a.test,http://b.test", "http://a.test,http://b.test"),
        ("http://ada:pa,http://ss@a.test", "http://a.test"),
    ],
)
def test_no_url_is_shown_with_its_password(url: str, shown: str) -> None:
    """Nor what was meant to be a URL, and is none because of its password."""
    assert without_password(url) == shown
