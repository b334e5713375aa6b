"""The body of a router (§9.1)."""

import json

import pytest

from protocol.harness import refusal
from topics.protocol.faces.http.routers import parse_put_router
from topics.protocol.model.limits import Limits


def text(**fields: object) -> bytes:
    return json.dumps({"source": "a", "dest": "b", **fields}).encode()


def test_what_is_left_out_has_its_default() -> None:
    """Absent and null alike. (§9.1)"""
    plain = parse_put_router("r", text())
    nulls = parse_put_router(
        "r", text(preserve_node=None, preserve_tag=None, create_dest=None, allow_cycle=None,
                  filter=None, guarantee=None)
    )  # fmt: skip

    assert plain == nulls
    assert (plain.config.preserve_node, plain.config.preserve_tag) == (True, True)
    assert (plain.create_dest, plain.config.allow_cycle) == (True, False)
    assert (plain.config.filter, plain.config.guarantee) == (None, "at_least_once")


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("eu.*", ("tag", "Glob", "eu.*")),
        ("eu", ("tag", "Eq", "eu")),
        ("*", ("tag", "Glob", "*")),
        (["tag", "Eq", "eu.*"], ("tag", "Eq", "eu.*")),
        (["tag", "Glob", "eu*"], ("tag", "Glob", "eu*")),
    ],
)
def test_a_filter_is_kept_as_a_triple(given: object, kept: tuple[str, str, str]) -> None:
    """Whichever of its forms it came in, so that two forms of one filter are one config. (§9.1)"""
    assert parse_put_router("r", text(filter=given)).config.filter == kept


def test_a_filter_is_no_longer_than_what_it_can_match() -> None:
    """A tag's bytes, and one for the star: it is kept, logged and listed. (§9.1)"""
    limits = Limits(max_tag_bytes=4)

    assert parse_put_router("r", text(filter="four*"), limits).config.filter is not None
    for long in ("five5", "five5*", ["tag", "Eq", "five5"], ["tag", "Glob", "five5*"]):
        refused = refusal(parse_put_router, "r", text(filter=long), limits)
        assert "$.filter" in refused.message


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"source": "a b"}, "$.source"),
        ({"source": ""}, "$.source"),
        ({"dest": "a b"}, "$.dest"),
        ({"dest": "a"}, "$.dest"),
        ({"filter": 1}, "$.filter"),
        ({"filter": ["node", "Eq", "x"]}, "$.filter"),
    ],
)
def test_a_refusal_names_its_field(fields: dict[str, object], path: str) -> None:
    """A name that is none, a way from a topic to itself, a filter of no form. (§9.1)"""
    assert path in refusal(parse_put_router, "r", text(**fields)).message
