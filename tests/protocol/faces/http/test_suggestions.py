"""What a client may have meant."""

from typing import Literal

import msgspec
import pytest

from topics.protocol.faces.http.append_body import AppendBody
from topics.protocol.faces.http.routes import ROUTES
from topics.protocol.faces.http.suggestions import (
    WORD_MAX,
    allowed_values,
    listed,
    nearest,
    nearest_path,
)
from topics.protocol.faces.http.topics import ConfigBody
from topics.protocol.faces.http.watch import WatchBody

PATTERNS = sorted({route.path for route in ROUTES})


def test_a_word_is_near_one_that_is_known() -> None:
    """Or near none; a long one costs no more than its beginning."""
    assert nearest("limt", ["limit", "node"]) == "limit"
    assert nearest("colour", ["limit", "node"]) is None
    assert nearest("limit" + "x" * 10**6, ["limit"]) is None
    assert nearest("a" * 10**6, ["a" * WORD_MAX]) == "a" * WORD_MAX


def test_words_are_listed_as_a_sentence_has_them() -> None:
    """One, two, or more."""
    assert [listed(words) for words in (["a"], ["a", "b"], ["a", "b", "c"])] == [
        "a",
        "a or b",
        "a, b or c",
    ]


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        (b"/v0/topic", "/v0/topics"),
        (b"/v0/topic/jobs/dif", "/v0/topics/jobs/diff"),
        (b"/v0/topics/a%2Fb/clam", "/v0/topics/a%2Fb/claim"),
        (b"/v0/topics/" + b"a" * 250 + b"/difff", f"/v0/topics/{'a' * 250}/diff"),
        (b"/V0/topics", "/v0/topics"),
        (b"/v0/topics/", "/v0/topics"),
        (b"/v0/routers/", "/v0/routers"),
        (b"/v0/routrs/r1", "/v0/routers/r1"),
        (b"/metrics", "/v0/metrics"),
        (b"/v0", "/v0/docs"),
        (b"/docs", "/v0/docs"),
        (b"/", None),
        (b"", None),
        (b"/favicon.ico", None),
        (b"/v0/topics/jobs/x/y/z", None),
        (b"/v0/topics/jobs/" + b"diff" * 10**5, None),
        (b"/\xff\xfe/\x00", None),
    ],
    ids=str,
)
def test_a_path_is_near_a_route(path: bytes, meant: str | None) -> None:
    """The names in it are kept; what people type at other servers leads to where it is here."""
    assert nearest_path(path, [pattern for pattern in PATTERNS if pattern != (b"",)]) == meant


def test_the_values_of_an_enum_are_found_by_its_path() -> None:
    """Wherever it is in a body; elsewhere there are none."""
    assert allowed_values(ConfigBody, "$.type") == ["log", "queue"]
    assert allowed_values(AppendBody, "$.config.discard") == ["old", "reject"]
    assert allowed_values(WatchBody, "$.consistency") == ["eventual", "strong"]
    assert allowed_values(AppendBody, "$.records[...].tag") == []
    assert allowed_values(AppendBody, "$.nowhere.at.all") == []
    assert allowed_values(AppendBody, "key in `$`") == []


def test_what_a_list_holds_is_found_behind_any_choice() -> None:
    """A field may be null or a list, or hold others by name; where it is neither, a path that goes into
    it leads nowhere."""

    class Part(msgspec.Struct):
        kind: Literal["c"]

    class Body(msgspec.Struct):
        kinds: list[Literal["a", "b"]] | None = None
        parts: int | dict[str, Part] = 0
        text: str = ""

    assert allowed_values(Body, "$.kinds[...]") == ["a", "b"]
    assert allowed_values(Body, "$.parts[...].kind") == ["c"]
    assert allowed_values(Body, "$.text[...]") == []
