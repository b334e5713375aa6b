"""Groups of consumers: what is sent for each call, and what it makes of the answer."""

from typing import Any

import pytest

from topics.client import Conflict, GroupNotFound, InvalidRequest, TopicNotFound

from .script import ONE_TRY, Script, error, ok

LISTED = {
    "group": "billing",
    "kind": "classic",
    "state": "stable",
    "generation": 3,
    "protocol_type": "consumer",
    "members": 1,
}
MEMBER = {
    "member_id": "m-1",
    "client_id": "rdkafka",
    "client_host": "/10.0.0.7",
    "instance_id": "i-1",
    "assignment": [{"topic": "orders", "partitions": [0, 2]}],
}
OFFSET = {
    "topic": "orders",
    "partition": 2,
    "seq": 41,
    "ts": 1_748_450_000_000,
    "lag": 7,
    "lost": 3,
}
SHOWN = {**LISTED, "protocol": "range", "members": [MEMBER], "offsets": [OFFSET]}


def test_all_pages_of_the_list(face: Any) -> None:
    """The list goes on at `next_cursor` until there is none. (§13.1, §0.7)"""
    other = {"group": "mails", "members": 0}
    script = Script(ok({"groups": [LISTED], "next_cursor": "e=="}), ok({"groups": [other]}))

    groups = face(script).do(lambda c: c.groups(prefix="b", page_size=1))

    assert script.lines == [
        "GET /v0/groups?prefix=b&page_size=1",
        "GET /v0/groups?prefix=b&cursor=e%3D%3D&page_size=1",
    ]
    assert [(g.group, g.state, g.members) for g in groups] == [
        ("billing", "stable", 1),
        ("mails", "", 0),
    ]


def test_a_group_and_its_members(face: Any) -> None:
    """Who reads what, and how far the group is. (§13.2)"""
    script = Script(ok(SHOWN))

    group = face(script).do(lambda c: c.group("billing/eu"))

    assert script.lines == ["GET /v0/groups/billing%2Feu?page_size=1000"]
    (member,) = group.members
    assert (member.client_host, member.instance_id) == ("/10.0.0.7", "i-1")
    assert [(each.topic, each.partitions) for each in member.assignment] == [("orders", [0, 2])]
    (offset,) = group.offsets
    assert (offset.partition, offset.seq, offset.lag, offset.lost) == (2, 41, 7, 3)
    assert (offset.ts_ms, group.protocol, group.generation) == (1_748_450_000_000, "range", 3)


def test_a_server_that_tells_less(face: Any) -> None:
    """Fields that a later contract adds may be missing. (§0.1)"""
    bare = {"group": "g", "members": [{"member_id": "m"}], "offsets": [{"topic": "t", "seq": 1}]}
    group = face(Script(ok(bare))).do(lambda c: c.group("g"))

    assert (group.members[0].assignment, group.members[0].instance_id) == (None, None)
    assert (group.offsets[0].partition, group.offsets[0].lag) == (0, 0)


def test_all_offsets_of_a_group(face: Any) -> None:
    """Page by page. (§13.2, §0.7)"""
    first, second = {**SHOWN, "next_cursor": "e=="}, {**SHOWN, "offsets": [{**OFFSET, "seq": 5}]}
    script = Script(ok(first), ok(second))

    offsets = face(script).do(lambda c: c.group_offsets("billing", page_size=1))

    assert script.lines == [
        "GET /v0/groups/billing?page_size=1",
        "GET /v0/groups/billing?page_size=1&cursor=e%3D%3D",
    ]
    assert [each.seq for each in offsets] == [41, 5]


def test_offsets_are_committed(face: Any) -> None:
    """By the topic's name, or a partition by its number. (§13.3)"""
    script = Script(ok({"group": "billing", "committed": 2}))

    answer = face(script).do(
        lambda c: c.commit_offsets("billing", {"orders": 41, ("clicks", 3): 7})
    )

    assert script.lines == ["POST /v0/groups/billing/commit"]
    assert script.bodies[0] == {
        "offsets": [
            {"topic": "orders", "partition": 0, "seq": 41},
            {"topic": "clicks", "partition": 3, "seq": 7},
        ]
    }
    assert (answer.group, answer.committed) == ("billing", 2)


def test_a_group_is_deleted(face: Any) -> None:
    script = Script(ok({"group": "billing", "deleted": True}))

    assert face(script).do(lambda c: c.delete_group("billing")).deleted
    assert script.lines == ["DELETE /v0/groups/billing"]


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_is_none(face: Any, name: str) -> None:
    """A name that would change the path is refused before anything is sent."""
    script = Script()

    with pytest.raises(InvalidRequest):
        face(script).do(lambda c: c.delete_group(name))
    assert script.requests == []


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (error(404, "group_not_found", {"group": "g"}), GroupNotFound),
        (error(404, "topic_not_found", {"topic": "t"}), TopicNotFound),
        (error(409, "group_not_empty", {"group": "g", "members": 2}), Conflict),
    ],
)
def test_refusals(face: Any, answer: Any, kind: type[Exception]) -> None:
    """A refusal is the class that a program would catch, with its detail. (§13)"""
    with pytest.raises(kind) as raised:
        face(Script(answer), retry=ONE_TRY).do(lambda c: c.commit_offsets("g", {"t": 1}))

    assert raised.value.detail == answer.json()["error"]["detail"]  # type: ignore[attr-defined]
