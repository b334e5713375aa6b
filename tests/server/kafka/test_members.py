"""Members of groups on the wire: they join, sync, live and leave. (§5)"""

from typing import Any

import pytest

from topics.protocol.faces.kafka import errors
from topics.protocol.faces.kafka.apis import SERVED
from topics.protocol.faces.kafka.schema import types
from topics.server.kafka import members

from .desk import KEYS, KafkaDesk
from .test_login import guarded, login

DELAY_MS = 250


def versions(name: str) -> range:
    api = SERVED[KEYS[name]]
    return range(api.first, api.last + 1)


def joining(member_id: str = "", group: str = "g", **fields: Any) -> dict[str, Any]:
    """The fields of a JoinGroup."""
    T = types("JoinGroupRequest")
    given = {
        "group_id": group,
        "member_id": member_id,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 20_000,
        "protocol_type": "consumer",
        "protocols": [T.JoinGroupRequestProtocol(name="range", metadata=b"sub")],
    }
    return {**given, **fields}


def join(desk: KafkaDesk, version: int = 9, **fields: Any) -> Any:
    """The answer to the first join of a group; a new member is told its id before, in later versions."""
    if version >= 4 and not fields.get("member_id") and not fields.get("group_instance_id"):
        told = desk.ask("JoinGroup", version, **joining(**fields))
        assert told.error_code == errors.MEMBER_ID_REQUIRED
        fields["member_id"] = told.member_id
    running = desk.begin("JoinGroup", version, **joining(**fields))
    desk.shell.advance(DELAY_MS)
    return desk.answer(running, "JoinGroup", version)


def syncing(joined: Any, assignments: dict[str, bytes] | None = None, **fields: Any) -> Any:
    """The fields of a SyncGroup; versions that do not ask for the protocol leave it out."""
    T = types("SyncGroupRequest")
    parts = [
        T.SyncGroupRequestAssignment(member_id=member_id, assignment=part)
        for member_id, part in (assignments or {}).items()
    ]
    given = {
        "group_id": "g",
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": parts,
    }
    return {**given, **fields}


def stable(desk: KafkaDesk, version: int = 9, **fields: Any) -> Any:
    joined = join(desk, version, **fields)
    assert joined.error_code == 0
    synced = desk.ask("SyncGroup", 3, **syncing(joined, {joined.member_id: b"all"}))
    assert (synced.error_code, synced.assignment) == (0, b"all")
    return joined


def beat(desk: KafkaDesk, joined: Any, version: int = 4, **fields: Any) -> int:
    given = {
        "group_id": "g",
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
    }
    code: int = desk.ask("Heartbeat", version, **{**given, **fields}).error_code
    return code


@pytest.mark.parametrize("version", versions("JoinGroup"))
def test_the_first_member_leads(version: int) -> None:
    """In every version, each with what it has room for."""
    joined = join(KafkaDesk(), version)
    assert (joined.error_code, joined.generation_id) == (0, 1)
    assert joined.leader == joined.member_id
    assert joined.member_id.startswith("c-")
    assert [(each.member_id, each.metadata) for each in joined.members] == [
        (joined.member_id, b"sub")
    ]
    assert joined.protocol_name == "range"
    assert joined.protocol_type == ("consumer" if version >= 7 else None)


@pytest.mark.parametrize("version", versions("SyncGroup"))
def test_a_member_hears_what_the_leader_assigned(version: int) -> None:
    desk = KafkaDesk()
    joined = join(desk)
    synced = desk.ask("SyncGroup", version, **syncing(joined, {joined.member_id: b"x"}))
    assert (synced.error_code, synced.assignment) == (0, b"x")
    assert synced.protocol_name == ("range" if version >= 5 else None)
    other = desk.ask("SyncGroup", version, **syncing(joined, member_id="nobody"))
    assert other.error_code == errors.UNKNOWN_MEMBER_ID


def test_a_member_says_by_which_protocol_it_is_assigned() -> None:
    """From version 5 of SyncGroup on: no other, and not none. (KIP-559)"""
    desk = KafkaDesk()
    joined = join(desk)
    for missing in ("protocol_type", "protocol_name"):
        for value in (None, "other"):
            found = desk.ask("SyncGroup", 5, **syncing(joined, **{missing: value}))
            assert found.error_code == errors.INCONSISTENT_GROUP_PROTOCOL
    assert desk.ask("SyncGroup", 5, **syncing(joined)).error_code == 0


@pytest.mark.parametrize("version", versions("JoinGroup"))
def test_a_join_that_is_refused_has_no_protocol(version: int) -> None:
    """Null from version 7 on, as Kafka has it; empty where there is no null. (KIP-559)"""
    found = KafkaDesk().ask("JoinGroup", version, **joining("nobody"))
    assert found.error_code == errors.UNKNOWN_MEMBER_ID
    assert found.protocol_name == (None if version >= 7 else "")


@pytest.mark.parametrize("version", versions("Heartbeat"))
def test_a_member_lives_by_its_heartbeats(version: int) -> None:
    desk = KafkaDesk()
    joined = stable(desk)
    assert beat(desk, joined, version) == 0
    assert beat(desk, joined, version, generation_id=7) == errors.ILLEGAL_GENERATION
    assert beat(desk, joined, version, group_id="") == errors.INVALID_GROUP_ID
    desk.shell.advance(10_000)
    assert beat(desk, joined, version) == errors.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", versions("LeaveGroup"))
def test_a_member_leaves(version: int) -> None:
    desk = KafkaDesk()
    joined = stable(desk)
    T = types("LeaveGroupRequest")

    def leave(member_id: str) -> list[int]:
        if version < 3:
            found = desk.ask("LeaveGroup", version, group_id="g", member_id=member_id)
            return [found.error_code]
        named = [T.MemberIdentity(member_id=each) for each in (member_id, "nobody")]
        found = desk.ask("LeaveGroup", version, group_id="g", members=named)
        assert found.error_code == 0
        assert found.members[0].member_id == member_id
        return [each.error_code for each in found.members]

    unknown = errors.UNKNOWN_MEMBER_ID
    assert leave(joined.member_id) == ([0] if version < 3 else [0, unknown])
    assert leave(joined.member_id) == ([unknown] if version < 3 else [unknown, unknown])
    found = desk.ask("LeaveGroup", 2, group_id="", member_id="m")
    assert found.error_code == errors.INVALID_GROUP_ID


def test_a_join_that_waits_holds_up_no_request_behind_it() -> None:
    """Which is carried out, and answered behind it. (§9)"""
    desk = KafkaDesk()
    first = stable(desk)
    second = desk.begin("JoinGroup", 3, **joining())
    assert not second.is_over
    assert not second.holds
    assert beat(desk, first) == errors.REBALANCE_IN_PROGRESS
    again = desk.ask("JoinGroup", 9, **joining(first.member_id))
    assert again.generation_id == desk.answer(second, "JoinGroup", 3).generation_id == 2


def test_a_client_that_is_gone_leaves_nothing_that_waits() -> None:
    desk = KafkaDesk(max_long_polls=1)
    first = stable(desk)
    second = desk.begin("JoinGroup", 3, **joining())
    second.cancel()
    assert desk.shell.driver.parked == 0
    desk.shell.advance(1)
    found = desk.ask("DescribeGroups", groups=["g"]).groups[0]
    assert [each.member_id for each in found.members] == [first.member_id]
    again = desk.ask("JoinGroup", 9, **joining(first.member_id))
    assert again.error_code == 0


@pytest.mark.parametrize("name", ["JoinGroup", "SyncGroup"])
def test_a_request_that_may_wait_counts_as_a_long_poll(name: str) -> None:
    """Beyond the bound its client has to pause, and comes again. (§9)"""
    desk = KafkaDesk(max_long_polls=1)
    joined = join(desk)
    waiting = desk.begin("JoinGroup", 3, **joining(group="other"))
    fields = joining(group="third") if name == "JoinGroup" else syncing(joined)
    found = desk.ask(name, 3, **fields)
    assert found.error_code == errors.COORDINATOR_LOAD_IN_PROGRESS
    assert found.throttle_time_ms == members.BUSY_MS
    assert desk.client.mute_s == members.BUSY_MS / 1000
    assert desk.exchange.measures.waiting == 0
    waiting.cancel()


def test_a_join_that_waits_is_answered_when_the_server_stops() -> None:
    """With an error by which clients look for their coordinator anew."""
    desk = KafkaDesk()
    waiting = desk.begin("JoinGroup", 3, **joining())
    desk.shell.driver.drain()
    assert desk.answer(waiting, "JoinGroup", 3).error_code == errors.NOT_COORDINATOR


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"session_timeout_ms": 5999}, errors.INVALID_SESSION_TIMEOUT),
        ({"group_id": ""}, errors.INVALID_GROUP_ID),
        ({"member_id": "nobody"}, errors.UNKNOWN_MEMBER_ID),
        ({"protocols": []}, errors.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "x" * 256}, errors.INVALID_REQUEST),
    ],
)
def test_what_is_wrong_with_a_join_is_told(fields: dict[str, Any], code: int) -> None:
    found = KafkaDesk().ask("JoinGroup", **{**joining(), **fields})
    assert (found.error_code, found.generation_id) == (code, -1)
    assert found.member_id == fields.get("member_id", "")


def test_a_static_member_comes_back_with_what_it_had() -> None:
    """KIP-345, KIP-814: the leader has nothing to assign; its former self is fenced off."""
    desk = KafkaDesk()
    first = stable(desk, group_instance_id="i")
    again = desk.ask("JoinGroup", **joining(group_instance_id="i"))
    assert (again.error_code, again.skip_assignment) == (0, True)
    assert again.generation_id == first.generation_id
    assert [each.group_instance_id for each in again.members] == ["i"]
    fenced = beat(desk, first, group_instance_id="i")
    assert fenced == errors.FENCED_INSTANCE_ID
    synced = desk.ask("SyncGroup", **syncing(again, group_instance_id="i"))
    assert synced.assignment == b"all"


def test_a_key_without_its_scope_or_with_other_prefixes_is_in_no_group() -> None:
    """30, at once. (§7)"""
    desk = guarded("writer:write,room:read:in.")
    login(desk, "writer")
    refused = errors.GROUP_AUTHORIZATION_FAILED
    assert desk.ask("JoinGroup", **joining()).error_code == refused
    desk.client = desk.connected()
    login(desk, "room")
    assert desk.ask("JoinGroup", **joining()).error_code == refused
    assert desk.ask("SyncGroup", 4, group_id="g").error_code == refused
    assert desk.ask("Heartbeat", group_id="g").error_code == refused
    assert desk.ask("LeaveGroup", group_id="g").error_code == refused
    assert join(desk, group="in.g").error_code == 0
