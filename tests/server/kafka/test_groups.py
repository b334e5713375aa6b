"""Groups on the wire as operators see them. (§5)"""

from typing import Any

import pytest

from topics.protocol.faces.kafka import errors
from topics.server.kafka import groups

from .desk import KafkaDesk
from .test_commits import commit
from .test_login import guarded, login
from .test_members import join, joining, stable, versions


def listed(desk: KafkaDesk, version: int = 5, **fields: Any) -> Any:
    found = desk.ask("ListGroups", version, **fields)
    return found.error_code or {each.group_id: each for each in found.groups}


@pytest.mark.parametrize("version", versions("DescribeGroups"))
def test_a_group_is_described_with_its_members(version: int) -> None:
    desk = KafkaDesk()
    desk.create()
    commit(desk, 1, group_id="empty")
    joined = stable(desk, group_instance_id="i")
    join(desk, group="completing")
    waiting = desk.begin("JoinGroup", 3, **joining(group="new"))
    names = ["g", "empty", "completing", "new", "absent"]
    found = desk.ask("DescribeGroups", version, groups=names).groups
    assert [each.group_id for each in found] == names
    assert [each.group_state for each in found] == [
        "Stable",
        "Empty",
        "CompletingRebalance",
        "PreparingRebalance",
        "Dead",
    ]
    assert [each.error_code for each in found] == [0] * 4 + [
        errors.GROUP_ID_NOT_FOUND if version >= 6 else 0
    ]
    assert (found[0].protocol_type, found[0].protocol_data) == ("consumer", "range")
    (member,) = found[0].members
    assert (member.member_id, member.client_id, member.client_host) == (
        joined.member_id,
        "c",
        "/192.0.2.1",
    )
    assert member.group_instance_id == ("i" if version >= 4 else None)
    assert (member.member_metadata, member.member_assignment) == (b"sub", b"all")
    for each in found[2:4]:
        (member,) = each.members
        assert (member.member_metadata, member.member_assignment) == (b"", b"")
    (wrong,) = desk.ask("DescribeGroups", version, groups=[""]).groups
    assert wrong.error_code == errors.INVALID_GROUP_ID
    waiting.cancel()


def test_a_rebalance_does_not_hide_what_members_had() -> None:
    """Until the next generation they have it. (§5)"""
    desk = KafkaDesk()
    stable(desk)
    waiting = desk.begin("JoinGroup", 3, **joining())
    (found,) = desk.ask("DescribeGroups", groups=["g"]).groups
    assert found.group_state == "PreparingRebalance"
    assert sorted(each.member_assignment for each in found.members) == [b"", b"all"]
    assert {each.member_metadata for each in found.members} == {b""}
    waiting.cancel()


def test_a_member_that_was_told_its_id_changes_nothing_of_what_is_shown() -> None:
    """KIP-394: it is no member yet."""
    desk = KafkaDesk()
    joined = stable(desk)
    desk.ask("LeaveGroup", 2, group_id="g", member_id=joined.member_id)
    before = desk.ask("DescribeGroups", groups=["g"]).groups[0]
    assert (before.group_state, before.protocol_type) == ("Empty", "consumer")
    assert desk.ask("JoinGroup", **joining()).error_code == errors.MEMBER_ID_REQUIRED
    assert desk.ask("DescribeGroups", groups=["g"]).groups[0] == before


@pytest.mark.parametrize("version", range(3, versions("DescribeGroups").stop))
def test_what_a_client_may_do_with_a_group_is_told_where_it_asks(version: int) -> None:
    """Read, describe and delete, as its key has the scopes. (KIP-430)"""
    told = {}
    for key, scopes in (("all", "read+delete"), ("reads", "read"), ("writes", "write+read:other")):
        desk = guarded(f"{key}:{scopes}")
        login(desk, key)
        (found,) = desk.ask(
            "DescribeGroups", version, groups=["g"], include_authorized_operations=True
        ).groups
        told[key] = found.authorized_operations
    read, delete, describe = 1 << 3, 1 << 6, 1 << 8
    assert told == {"all": read | delete | describe, "reads": read | describe, "writes": 0}
    (found,) = KafkaDesk().ask("DescribeGroups", version, groups=["g"]).groups
    assert found.authorized_operations == -(2**31)


@pytest.mark.parametrize("version", versions("ListGroups"))
def test_groups_are_listed_also_those_that_come(version: int) -> None:
    desk = KafkaDesk()
    desk.create()
    commit(desk, 1, group_id="z")
    stable(desk)
    waiting = desk.begin("JoinGroup", 3, **joining(group="new"))
    found = listed(desk, version)
    assert {name: each.protocol_type for name, each in found.items()} == {
        "g": "consumer",
        "new": "consumer",
        "z": "",
    }
    if version >= 4:
        assert found["new"].group_state == "PreparingRebalance"
        assert set(listed(desk, version, states_filter=["stable", "EMPTY"])) == {"g", "z"}
        assert listed(desk, version, states_filter=["Nothing"]) == {}
    if version >= 5:
        assert found["g"].group_type == "classic"
        assert set(listed(desk, version, types_filter=["Classic"])) == {"g", "new", "z"}
        assert listed(desk, version, types_filter=["consumer"]) == {}
    waiting.cancel()


def test_many_groups_are_listed_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "PAGE", 2)
    desk = KafkaDesk()
    desk.create()
    names = [f"g{nth}" for nth in range(5)]
    for name in names:
        commit(desk, 1, group_id=name)
    running = desk.begin("ListGroups")
    while not running.is_over:
        desk.shell.advance(0)
    found = desk.answer(running, "ListGroups")
    assert [each.group_id for each in found.groups] == names


@pytest.mark.parametrize("version", versions("DeleteGroups"))
def test_a_group_without_members_is_deleted(version: int) -> None:
    desk = KafkaDesk()
    desk.create()
    commit(desk, 1, group_id="empty")
    stable(desk)
    found = desk.ask(
        "DeleteGroups", version, groups_names=["empty", "g", "absent", "", "g"]
    ).results
    assert [(each.group_id, each.error_code) for each in found] == [
        ("empty", 0),
        ("g", errors.NON_EMPTY_GROUP),
        ("absent", errors.GROUP_ID_NOT_FOUND),
        ("", errors.INVALID_GROUP_ID),
    ]
    assert set(listed(desk)) == {"g"}


def test_a_key_sees_and_deletes_its_groups_alone() -> None:
    """`read` to see one, `delete` to delete it; lists are cut. (§7)"""
    desk = guarded("all,room:read:in.,writer:write")
    login(desk, "all")
    desk.create()
    for name in ("in.g", "out.g"):
        commit(desk, 1, group_id=name)
    refused = errors.GROUP_AUTHORIZATION_FAILED
    desk.client = desk.connected()
    login(desk, "room")
    assert set(listed(desk)) == {"in.g"}
    found = desk.ask("DescribeGroups", groups=["in.g", "out.g"]).groups
    assert [each.error_code for each in found] == [0, refused]
    (result,) = desk.ask("DeleteGroups", groups_names=["in.g"]).results
    assert result.error_code == refused
    desk.client = desk.connected()
    login(desk, "writer")
    assert listed(desk) == refused
