"""Names as the contract allows them."""

import re

import pytest

from topics.client.names import is_group, is_router, is_schedule, is_topic, tag_for, tag_of
from topics.protocol.model import groups, names


@pytest.mark.parametrize(
    "name",
    [
        "jobs",
        "a:b.c-d_e",
        "0",
        "a" * 255,
        "a>b",
        "",
        "a" * 256,
        "-a",
        ".a",
        "a/b",
        "a b",
        "a\n",
        "ä",
        "a\x9b",
        "é" * 127,
        "é" * 128,
    ],
)
def test_the_client_allows_what_the_server_does(name: str) -> None:
    """Of topics, of routers, which may have `>`, and of groups, which may have anything. (§1, §6, §13)"""
    assert is_topic(name) is (re.fullmatch(names.TOPIC_PATTERN, name) is not None)
    assert is_router(name) is (re.fullmatch(names.ROUTER_PATTERN, name) is not None)
    assert is_schedule(name) is names.is_schedule_name(name)
    assert is_group(name) is groups.is_group_name(name)


def test_a_tag_that_is_too_long_is_left_out() -> None:
    """A tag has at most 256 bytes (§2)."""
    assert tag_of("ä" * 128) == "ä" * 128
    assert tag_of("ä" * 129) is None
    assert tag_of("") is None


def test_each_key_has_a_tag() -> None:
    """Its digest, where it is too long for one or empty. (§2)"""
    assert tag_for("a") == "a"
    assert len(tag_for("")) == 64
    assert len({tag_for("ä" * 129), tag_for("ä" * 130), tag_for("")}) == 3
