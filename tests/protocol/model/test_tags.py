"""The tag grammar: `Eq`, `Glob`, bare strings, subjects; each as a range and a test (§5)."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.harness import refusal, status_of
from topics.protocol.faces.http.statuses import STATUSES
from topics.protocol.model.tags import SUBJECT_PATTERN, Match, parse_match, parse_subject

TEXT = st.text(alphabet=st.sampled_from("ab.*>é\U0010ffff\x00:"), max_size=6)


def holds(match: Match, tag: str) -> bool:
    """As an index asks: the range first, then the test where the range is not exact."""
    raw = tag.encode()
    in_range = match.lower <= raw and (match.upper is None or raw < match.upper)
    assert not match.exact or match.accepts(raw) == in_range
    return in_range and match.accepts(raw)


@given(TEXT, TEXT)
def test_eq_is_equality(pattern: str, tag: str) -> None:
    """Byte for byte, stars included. (§5)"""
    assert holds(parse_match(["tag", "Eq", pattern]), tag) == (pattern == tag)


@given(TEXT, TEXT)
def test_glob_is_a_literal_prefix(prefix: str, tag: str) -> None:
    """Only the last star is special. (§5)"""
    assert holds(parse_match(["tag", "Glob", prefix + "*"]), tag) == tag.startswith(prefix)


@given(TEXT, TEXT)
def test_a_bare_string_is_glob_iff_it_ends_in_a_star(text: str, tag: str) -> None:
    """Else Eq. (§5)"""
    asked = parse_match(text)
    expected = tag.startswith(text[:-1]) if text.endswith("*") else tag == text
    assert holds(asked, tag) == expected


@given(TEXT)
def test_a_star_is_every_tag(tag: str) -> None:
    """The empty prefix. (§5)"""
    assert holds(parse_match("*"), tag)


BAD: list[Any] = [
    None, 1, 1.5, True, [], {}, ["tag"], ["tag", "Eq"], ["tag", "Eq", 1], ["tag", "Eq", "a", "b"],
    ["node", "Eq", "a"], ["tag", "EQ", "a"], ["tag", "Glob", "a"], ["tag", "Glob", ""],
    ["tag", "Glob", "*a"], ["tag", "Glob", 1], ("tag",), ["tag", "Regex", ".*"],
]  # fmt: skip


@pytest.mark.parametrize("value", BAD, ids=repr)
def test_anything_else_is_refused(value: Any) -> None:
    """400 that names the path. (§5)"""
    rejection = refusal(parse_match, value, "$.match")
    assert STATUSES[rejection.code] == 400
    assert "$.match" in rejection.message


SUBJECTS = [
    ("a", ["a"], ["b", "a.a", "", "aa"]),
    ("a.b", ["a.b"], ["a", "a.b.c", "a.bc", "a.b."]),
    ("*", ["a", "", "é"], ["a.b", "."]),
    ("a.*", ["a.b", "a.", "a.*"], ["a", "a.b.c", "b.a", "ab.c"]),
    ("*.b", ["a.b", ".b"], ["b", "a.b.b", "a.c"]),
    ("a.*.c", ["a.b.c", "a..c"], ["a.c", "a.b.b.c", "a.b.d"]),
    (">", ["a", "a.b", "", "a.b.c"], []),
    ("a.>", ["a.b", "a.b.c", "a."], ["a", "b.a", "aa.b"]),
    ("*.>", ["a.b", "a.b.c"], ["a", ""]),
    ("a.*.>", ["a.b.c", "a.b.c.d"], ["a.b", "a"]),
    ("é.\U0010ffff", ["é.\U0010ffff"], ["é", "é.x"]),
]


@pytest.mark.parametrize(("pattern", "yes", "no"), SUBJECTS, ids=[s[0] for s in SUBJECTS])
def test_subjects(pattern: str, yes: list[str], no: list[str]) -> None:
    """`*` is one token, a final `>` one or more, the rest is literal. (ADR-10)"""
    subject = parse_subject(pattern)

    assert [tag for tag in yes if not holds(subject, tag)] == []
    assert [tag for tag in no if holds(subject, tag)] == []


TOKENS = st.lists(st.sampled_from(["a", "b", "ab", "*"]), min_size=1, max_size=4)


@given(TOKENS, st.booleans(), st.lists(st.sampled_from(["a", "b", "ab", ""]), max_size=5))
def test_a_subject_is_what_a_regular_expression_says(
    tokens: list[str], more: bool, tag: list[str]
) -> None:
    """Against an independent reading of the same words. (ADR-10)"""
    words = [r"[^.]*" if t == "*" else t for t in tokens]
    expected = re.fullmatch(r"\.".join(words) + (r"(\.[^.]*)+" if more else ""), ".".join(tag))
    pattern = ".".join([*tokens, *([">"] if more else [])])

    assert holds(parse_subject(pattern), ".".join(tag)) == (expected is not None)


@given(st.text(st.sampled_from("a.*>\n"), max_size=7))
def test_the_schema_takes_the_subjects_that_are_ones(pattern: str) -> None:
    """`/v0/openapi.json` says of each text what the server does. (§8.5)"""
    is_one = status_of(parse_subject, pattern) == 200

    assert (re.fullmatch(SUBJECT_PATTERN[1:-1], pattern) is not None) is is_one


@pytest.mark.parametrize(
    "pattern", ["", ".", "a.", ".a", "a..b", "a*", "*a", "a.b*", ">.a", "a.>.b", "a>", "**", ">>"]
)
def test_bad_subjects(pattern: str) -> None:
    """An empty token, a partial wildcard, a `>` before the end. (ADR-10)"""
    assert STATUSES[refusal(parse_subject, pattern).code] == 400
