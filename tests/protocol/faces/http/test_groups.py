"""Bodies and queries about groups (§13)."""

import json
from typing import Any

import pytest

from protocol.harness import refusal
from topics.protocol.faces.http.groups import COMMIT_OFFSETS_MAX, ROUTES, parse_commit
from topics.protocol.faces.http.query import list_cursor
from topics.protocol.faces.http.route import Request
from topics.protocol.faces.http.routes import find_route
from topics.protocol.model.commands import CommitOffsets, DescribeGroup
from topics.protocol.model.errors import ErrorCode
from topics.protocol.model.groups import OffsetCommit
from topics.protocol.model.limits import Limits

PARSERS: dict[str, Any] = {route.line: route.target for route in ROUTES}


def commit(*offsets: object) -> CommitOffsets:
    return parse_commit("g", json.dumps({"offsets": offsets}).encode())


def asked(line: str, name: str = "", body: bytes = b"", **query: str) -> Any:
    return PARSERS[line](Request(name, query, lambda _: None, body, Limits(), lambda: "x"))


def test_an_offset_names_a_partition_by_its_number() -> None:
    """The first one where it says none; all offsets of a commit are kept, or none. (§13.3)"""
    command = commit(
        {"topic": "t", "seq": 5},
        {"topic": "t", "partition": 0, "seq": 6},
        {"topic": "t", "partition": 3, "seq": 0},
        {"topic": "u", "partition": None, "seq": 2**63 - 1},
    )
    assert command.is_whole
    assert command.offsets == [
        OffsetCommit("t", 5),
        OffsetCommit("t", 6),
        OffsetCommit("t#3", 0),
        OffsetCommit("u", 2**63 - 1),
    ]


@pytest.mark.parametrize(
    ("offsets", "path"),
    [
        ([], "$.offsets"),
        ([{"topic": "t", "seq": 1}] * (COMMIT_OFFSETS_MAX + 1), "$.offsets"),
        ([{"topic": "t#1", "seq": 1}], "$.offsets[0].topic"),
        ([{"topic": "", "seq": 1}], "$.offsets[0].topic"),
        ([{"topic": "t", "seq": 1}, {"topic": "t", "seq": -1}], "$.offsets[1].seq"),
        ([{"topic": "t", "seq": 1.5}], "$.offsets[0].seq"),
        ([{"topic": "t", "seq": 2**63}], "$.offsets[0].seq"),
        ([{"topic": "t"}], "$.offsets[0]"),
        ([{"seq": 1}], "$.offsets[0]"),
        ([{"topic": "t", "seq": 1, "partition": -1}], "$.offsets[0].partition"),
        ([{"topic": "t", "seq": 1, "partition": 1000}], "$.offsets[0].partition"),
        ([7], "$.offsets[0]"),
    ],
)
def test_what_is_no_commit(offsets: list[object], path: str) -> None:
    """400 that names the place; nothing is kept. (§13.3)"""
    refused = refusal(commit, *offsets)
    assert refused.code is ErrorCode.INVALID_REQUEST
    assert path in refused.message.replace("[...]", "[0]" if "[0]" in path else "[1]")


def test_pages_of_offsets() -> None:
    """A thousand at most; a cursor leads behind the topic that it was made of. (§0.7, §13.2)"""
    line = "GET /v0/groups/:"
    assert asked(line, "g") == DescribeGroup("g", 0, 1000, shows_assigned=True)
    assert asked(line, "g", page_size="0").page_size == 1000
    assert asked(line, "g", page_size="9999").page_size == 1000
    assert asked(line, "g", page_size="2", cursor=list_cursor("17")).after_id == 17
    for cursor in ("x", list_cursor("name"), list_cursor("-1"), list_cursor("9" * 21)):
        assert refusal(asked, line, "g", cursor=cursor).code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("name", ["x" * 256, "\u00e9" * 128])
def test_a_name_that_no_group_has(name: str) -> None:
    """404 in a read, 400 in a change, as of topics. (§13)"""
    refused = refusal(asked, "GET /v0/groups/:", name)
    assert refused.code is ErrorCode.GROUP_NOT_FOUND
    body = b'{"offsets":[{"topic":"t","seq":1}]}'
    for line in ("POST /v0/groups/:/commit", "DELETE /v0/groups/:"):
        assert refusal(asked, line, name, body).code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("segment", "name"),
    [
        (b"a%2Fb%20c", "a/b c"),
        (b"caf%C3%A9", "caf\u00e9"),
        ("caf\u00e9".encode(), "caf\u00e9"),
        (b"%EF%BF%BD", "\ufffd"),
        (b"%00", "\0"),
    ],
)
def test_any_text_is_a_name(segment: bytes, name: str) -> None:
    """Also what stands for what is no text elsewhere. (§13)"""
    assert find_route("GET", b"/v0/groups/" + segment)[1] == name


@pytest.mark.parametrize("segment", [b"%FF", b"a\xff", b"%ED%A0%80"])
def test_bytes_that_are_no_text_are_no_name(segment: bytes) -> None:
    """Two groups could look alike otherwise. (§13)"""
    refused = refusal(find_route, "GET", b"/v0/groups/" + segment)
    assert refused.code is ErrorCode.INVALID_REQUEST
