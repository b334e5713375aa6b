"""Names as the contract allows them."""

import re

import pytest

from topics.client.names import is_group, is_router, is_schedule, is_topic
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
