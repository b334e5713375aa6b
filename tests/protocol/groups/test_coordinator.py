"""The classic protocol, member by member. (§5)"""

from typing import Any

import pytest

from topics.protocol.groups import coordinator
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.groups import GroupFault, GroupPhase, GroupRefusal, Membership
from topics.protocol.model.outcomes import GroupJoined

from .room import DELAY_MS, RANGE, REBALANCE_MS, SESSION_MS, Room


def phase(room: Room) -> GroupPhase:
    """Of the group, as this process and the state have it."""
    live = room.coordinator.live.get("g")
    kept = room.groups.by_name["g"].phase
    assert live is None or kept in (live.phase, GroupPhase.STABLE, GroupPhase.EMPTY)
    return kept if live is None else live.phase


def test_the_first_member_leads_and_sees_all() -> None:
    room = Room()
    first = room.joined(room.join())
    assert (first.generation, first.leader, first.protocol) == (1, "m1", "range")
    assert first.members == [("m1", None, b"sub")]
    token = room.sync(first, {"m1": b"all", "stranger": b"nothing"})
    assert room.synced(token) == b"all"
    assert phase(room) is GroupPhase.STABLE
    assert room.beat(first) is None


def test_the_first_rebalance_waits_for_members_that_come_together() -> None:
    """Each that comes puts it off, up to the time that a rebalance may take. (§5)"""
    room = Room(delay_ms=DELAY_MS)
    tokens = [room.join()]
    room.advance(DELAY_MS - 1)
    tokens.append(room.join())
    room.advance(1)
    assert room.answers == {}
    room.advance(DELAY_MS)
    assert {room.joined(token).generation for token in tokens} == {1}
    assert len(room.joined(tokens[0]).members) == 2


def test_the_first_rebalance_is_put_off_only_so_often() -> None:
    room = Room(delay_ms=DELAY_MS)
    token = room.join(rebalance_ms=600)
    for _ in range(3):
        room.advance(200)
        room.join(rebalance_ms=600)
    room.advance(0)
    assert len(room.joined(token).members) == 3


def test_a_new_member_is_told_its_id_and_joins_with_it() -> None:
    """KIP-394; whoever does not come in time is awaited no more."""
    room = Room()
    with pytest.raises(GroupRefusal) as told:
        room.join(joins_twice=True)
    assert (told.value.fault, told.value.member_id) == (GroupFault.MEMBER_ID_REQUIRED, "m1")
    assert room.fault(lambda: room.join("m1", instance_id="i")) is GroupFault.UNKNOWN_MEMBER
    assert room.joined(room.join("m1", joins_twice=True)).member_id == "m1"
    assert room.fault(lambda: room.join(joins_twice=True)) is GroupFault.MEMBER_ID_REQUIRED
    room.advance(SESSION_MS)
    assert room.fault(lambda: room.join("m3", joins_twice=True)) is GroupFault.UNKNOWN_MEMBER


def test_a_group_to_which_nobody_comes_leaves_nothing() -> None:
    room = Room()
    assert room.fault(lambda: room.join(joins_twice=True)) is GroupFault.MEMBER_ID_REQUIRED
    assert room.coordinator.weight.size_bytes > 0
    room.advance(SESSION_MS)
    assert (room.coordinator.live, room.coordinator.due.next_ms()) == ({}, None)
    assert room.coordinator.weight.size_bytes == 0


@pytest.mark.parametrize("delay_ms", [0, DELAY_MS])
def test_the_first_rebalance_waits_for_nobody_who_was_told_an_id(delay_ms: int) -> None:
    """A client that asked for an id and is gone would else hold up the others for their whole time. (§5)"""
    room = Room(delay_ms=delay_ms)
    assert room.fault(lambda: room.join(joins_twice=True)) is GroupFault.MEMBER_ID_REQUIRED
    other = room.join()
    room.advance(delay_ms)
    assert room.joined(other).generation == 1


def test_a_rebalance_waits_for_a_member_that_was_told_its_id() -> None:
    room = Room()
    (first,) = room.stable("")
    assert room.fault(lambda: room.join(joins_twice=True)) is GroupFault.MEMBER_ID_REQUIRED
    again = room.join(first.member_id)
    assert again not in room.answers
    second = room.join("m2", joins_twice=True)
    assert room.joined(again).generation == room.joined(second).generation == 2


def test_others_wait_until_the_leader_has_assigned() -> None:
    room = Room(delay_ms=DELAY_MS)
    tokens = [room.join(), room.join()]
    room.advance(2 * DELAY_MS)
    leader, follower = map(room.joined, tokens)
    assert follower.members == ()
    waiting = room.sync(follower)
    assert waiting not in room.answers
    done = room.sync(leader, {leader.member_id: b"a", follower.member_id: b"b"})
    assert (room.synced(done), room.synced(waiting)) == (b"a", b"b")


def test_a_member_that_comes_has_all_join_anew() -> None:
    """A heartbeat says so; a commit of the generation that ends is taken. (§5)"""
    room = Room()
    (first,) = room.stable("")
    waiting = room.join()
    assert room.beat(first) is GroupFault.REBALANCING
    assert room.fault(lambda: room.sync(first)) is GroupFault.REBALANCING
    room.coordinator.require_commit("g", room.member(first), room.now_ms)
    again = room.join(first.member_id)
    assert room.joined(again).generation == room.joined(waiting).generation == 2
    assert room.beat(room.joined(again)) is None
    member = room.member(room.joined(again))
    assert (
        room.fault(lambda: room.coordinator.require_commit("g", member, room.now_ms))
        is GroupFault.REBALANCING
    )


def test_a_leader_that_joins_anew_has_all_join_anew_and_a_follower_does_not() -> None:
    """A leader asks for another assignment so; a follower hears of the present one, unless it knows other protocols. (§5)"""
    room = Room(delay_ms=DELAY_MS)
    tokens = [room.join(protocols=(*RANGE, ("sticky", b""))) for _ in range(2)]
    room.advance(2 * DELAY_MS)
    leader, follower = map(room.joined, tokens)
    known = (*RANGE, ("sticky", b""))
    again = room.join(follower.member_id, protocols=known)
    assert room.joined(again).generation == 1, "it completes"
    room.sync(leader)
    again = room.join(follower.member_id, protocols=known)
    assert room.joined(again).generation == 1, "it is stable"
    other = room.join(follower.member_id, protocols=(*RANGE, ("sticky", b"more")))
    assert room.beat(leader) is GroupFault.REBALANCING
    led = room.join(leader.member_id, protocols=known)
    assert room.joined(other).generation == room.joined(led).generation == 2
    room.sync(room.joined(led))
    room.join(leader.member_id, protocols=known)
    assert phase(room) is GroupPhase.PREPARING


def test_a_protocol_is_chosen_that_all_know_and_most_like_best() -> None:
    room = Room(delay_ms=DELAY_MS)
    likes: Any = [
        (("a", b"1"), ("b", b"2"), ("c", b"")),
        (("b", b"3"), ("a", b"4")),
        (("b", b"5"), ("a", b"6")),
    ]
    tokens = [room.join(protocols=each) for each in likes]
    with pytest.raises(GroupRefusal) as refusal:
        room.join(protocols=(("c", b""),))
    assert refusal.value.fault is GroupFault.INCONSISTENT_PROTOCOL
    room.advance(2 * DELAY_MS)
    first = room.joined(tokens[0])
    assert first.protocol == "b"
    assert [metadata for _, _, metadata in first.members] == [b"2", b"3", b"5"]


@pytest.mark.parametrize(
    "fields",
    [
        {"protocol_type": "connect"},
        {"protocol_type": ""},
        {"protocols": ()},
        {"protocols": (("other", b""),)},
    ],
)
def test_a_member_has_something_in_common_with_the_others(fields: Any) -> None:
    room = Room()
    room.stable("")
    assert room.fault(lambda: room.join(**fields)) is GroupFault.INCONSISTENT_PROTOCOL


def test_who_syncs_by_another_protocol_is_told() -> None:
    """KIP-559."""
    room = Room()
    first = room.joined(room.join())
    for fields in ({"protocol": "sticky"}, {"protocol_type": "connect"}):
        assert (
            room.fault(lambda fields=fields: room.sync(first, **fields))  # type: ignore[misc]
            is GroupFault.INCONSISTENT_PROTOCOL
        )
    assert room.synced(room.sync(first, protocol="range", protocol_type="consumer")) == b""


@pytest.mark.parametrize("what", ["heartbeat", "sync", "commit"])
def test_who_is_no_member_of_the_generation_is_fenced(what: str) -> None:
    room = Room()
    asks = {
        "heartbeat": lambda member: room.coordinator.heartbeat("g", member, room.now_ms),
        "commit": lambda member: room.coordinator.require_commit("g", member, room.now_ms),
        "sync": lambda member: room.sync(
            GroupJoined(member.member_id, member.generation, "", "", ""),
            instance_id=member.instance_id,
        ),
    }

    def fault(generation: int, member_id: str, instance_id: str | None = None) -> Any:
        member = Membership(generation, member_id, instance_id)
        return room.fault(lambda: asks[what](member))

    assert fault(1, "m1") is GroupFault.UNKNOWN_MEMBER
    (first,) = room.stable("", instance_id="i")
    assert fault(2, "m1", "i") is fault(0, "m1") is GroupFault.ILLEGAL_GENERATION
    assert fault(1, "m9") is GroupFault.UNKNOWN_MEMBER
    assert fault(1, "m1", "j") is GroupFault.UNKNOWN_MEMBER
    assert fault(1, "m9", "i") is GroupFault.FENCED_INSTANCE
    assert fault(1, first.member_id, "i") is None


def test_nobody_is_in_a_generation_before_the_first() -> None:
    room = Room(delay_ms=DELAY_MS)
    room.join()
    assert room.fault(
        lambda: room.coordinator.heartbeat("g", Membership(0, "m1"), room.now_ms)
    ) is (GroupFault.ILLEGAL_GENERATION)


# ---------------------------------------------------------------------- who leaves


def test_a_member_that_leaves_has_the_others_join_anew_at_once() -> None:
    room = Room(delay_ms=DELAY_MS)
    tokens = [room.join(), room.join()]
    room.advance(2 * DELAY_MS)
    first, second = map(room.joined, tokens)
    room.sync(first)
    assert room.leave(room.member(second)) == [None]
    assert room.beat(first) is GroupFault.REBALANCING
    assert room.leave(room.member(second)) == [GroupFault.UNKNOWN_MEMBER]
    again = room.joined(room.join(first.member_id))
    assert (again.generation, len(again.members)) == (2, 1)


def test_the_last_member_that_leaves_leaves_an_empty_group() -> None:
    """Whose next generation is not one that there was. (§5)"""
    room = Room()
    (first,) = room.stable("")
    assert room.leave(room.member(first)) == [None]
    assert room.groups.by_name["g"].phase is GroupPhase.EMPTY
    assert room.coordinator.live == {}
    assert room.joined(room.join()).generation == 2
    assert room.leave(Membership(member_id="x")) == [GroupFault.UNKNOWN_MEMBER]


def test_nobody_leaves_a_group_that_has_no_members() -> None:
    room = Room()
    assert room.leave(Membership(member_id="x"), Membership(instance_id="i")) == [
        GroupFault.UNKNOWN_MEMBER,
        GroupFault.UNKNOWN_MEMBER,
    ]
    assert (room.coordinator.live, room.groups.by_name) == ({}, {})


def test_members_are_named_by_their_ids_or_instances_each_with_its_own_error() -> None:
    """Also one that has not come yet. (KIP-345)"""
    room = Room(delay_ms=DELAY_MS)
    one, two = room.join(instance_id="i"), room.join(instance_id="j")
    assert room.fault(lambda: room.join(joins_twice=True)) is GroupFault.MEMBER_ID_REQUIRED
    room.advance(2 * DELAY_MS)
    first, second = room.joined(one), room.joined(two)
    named = [
        Membership(instance_id="i"),
        Membership(instance_id="k"),
        Membership(member_id=first.member_id, instance_id="j"),
        Membership(member_id="m3"),
        Membership(member_id="m3"),
    ]
    assert room.leave(*named) == [
        None,
        GroupFault.UNKNOWN_MEMBER,
        GroupFault.FENCED_INSTANCE,
        None,
        GroupFault.UNKNOWN_MEMBER,
    ]
    assert list(room.coordinator.live["g"].members) == [second.member_id]


def test_a_join_that_waits_for_who_leaves_goes_on() -> None:
    room = Room(delay_ms=DELAY_MS)
    tokens = [room.join(), room.join()]
    room.advance(2 * DELAY_MS)
    first, second = map(room.joined, tokens)
    room.sync(first)
    waiting = room.join(first.member_id)
    room.leave(room.member(second))
    assert room.joined(waiting).generation == 2


def test_what_a_member_that_is_removed_waits_for_is_refused() -> None:
    room = Room(delay_ms=DELAY_MS)
    tokens = [room.join(), room.join(instance_id="i")]
    room.advance(2 * DELAY_MS)
    _, second = map(room.joined, tokens)
    waiting = room.sync(second, instance_id="i")
    room.leave(Membership(instance_id="i"))
    assert room.refused(waiting) is GroupFault.UNKNOWN_MEMBER


def test_syncs_that_wait_hear_of_the_next_rebalance() -> None:
    room = Room(delay_ms=DELAY_MS)
    tokens = [room.join(), room.join()]
    room.advance(2 * DELAY_MS)
    leader, follower = map(room.joined, tokens)
    waiting = room.sync(follower)
    room.leave(room.member(leader))
    assert room.refused(waiting) is GroupFault.REBALANCING
    assert room.joined(room.join(follower.member_id)).leader == follower.member_id


# ---------------------------------------------------------------------- time


def test_a_silent_member_is_removed_after_its_session() -> None:
    """A heartbeat begins it anew, and whoever waits here is heard of. (§5)"""
    room = Room()
    (first,) = room.stable("")
    room.advance(SESSION_MS - 1)
    assert room.beat(first) is None
    waiting = room.join()
    room.advance(SESSION_MS - 1)
    assert waiting not in room.answers
    room.advance(1)
    second = room.joined(waiting)
    assert [each[0] for each in second.members] == ["m2"]
    assert room.beat(first) is GroupFault.UNKNOWN_MEMBER
    room.sync(second)
    room.advance(SESSION_MS)
    assert room.groups.by_name["g"].phase is GroupPhase.EMPTY


def test_a_member_that_lives_and_does_not_join_is_left_behind() -> None:
    """Once the time of the slowest is over. (§5)"""
    room = Room()
    (first,) = room.stable("")
    waiting = room.join()
    for _ in range(3):
        room.advance(REBALANCE_MS // 3 - 1)
        assert room.beat(first) is GroupFault.REBALANCING
    room.advance(5)
    assert [each[0] for each in room.joined(waiting).members] == ["m2"]
    assert room.beat(first) is GroupFault.UNKNOWN_MEMBER


def test_a_group_that_all_leave_behind_is_empty() -> None:
    room = Room(delay_ms=DELAY_MS)
    tokens = [room.join(), room.join()]
    room.advance(2 * DELAY_MS)
    first, second = map(room.joined, tokens)
    room.sync(first)
    room.leave(room.member(second))
    for _ in range(4):
        room.advance(REBALANCE_MS // 4)
        room.beat(first)
    assert (room.coordinator.live, phase(room)) == ({}, GroupPhase.EMPTY)


def test_a_member_that_joins_and_does_not_sync_is_removed() -> None:
    """Whether the leader assigns or not; a follower that syncs late is not. (§5)"""
    room = Room(delay_ms=DELAY_MS)
    tokens = [room.join(rebalance_ms=8000) for _ in range(3)]
    room.advance(2 * DELAY_MS)
    leader, prompt, late = map(room.joined, tokens)
    room.sync(leader, {late.member_id: b"part"})
    assert room.synced(room.sync(late)) == b"part"
    for _ in range(2):
        room.advance(4000)
        for each in (leader, prompt, late):
            room.beat(each)
    assert room.beat(prompt) is GroupFault.UNKNOWN_MEMBER
    assert room.beat(late) is GroupFault.REBALANCING


def test_a_leader_that_does_not_assign_is_removed() -> None:
    room = Room()
    leader = room.joined(room.join(rebalance_ms=8000))
    for _ in range(2):
        room.advance(4000)
        room.beat(leader)
    assert room.beat(leader) is GroupFault.UNKNOWN_MEMBER


def test_all_that_sync_in_time_are_left_alone() -> None:
    room = Room()
    (leader,) = room.stable("", rebalance_ms=8000)
    for _ in range(3):
        room.advance(4000)
        assert room.beat(leader) is None


def test_a_group_that_is_gone_is_not_looked_at() -> None:
    room = Room()
    room.coordinator.look("g", 0)
    (first,) = room.stable("")
    room.leave(room.member(first))
    room.coordinator.look("g", room.now_ms)
    assert room.coordinator.due.next_ms() is not None


# ---------------------------------------------------------------------- static members


def test_a_static_member_comes_back_without_a_rebalance() -> None:
    """With what it was assigned; its former self is fenced off. (KIP-345)"""
    room = Room(delay_ms=DELAY_MS)
    tokens = [room.join(), room.join(instance_id="i")]
    room.advance(2 * DELAY_MS)
    leader, static = map(room.joined, tokens)
    room.sync(leader, {static.member_id: b"part"})
    again = room.joined(room.join(instance_id="i"))
    assert (again.generation, again.members, again.skips_assignment) == (1, (), False)
    assert again.member_id not in (static.member_id, leader.member_id)
    assert room.synced(room.sync(again, instance_id="i")) == b"part"
    assert room.beat(leader) is None
    assert room.beat(static, instance_id="i") is GroupFault.FENCED_INSTANCE
    assert room.beat(static) is GroupFault.UNKNOWN_MEMBER
    restarted = room.restarted()
    assert restarted.synced(restarted.sync(again, instance_id="i")) == b"part"


@pytest.mark.parametrize("can_skip", [True, False])
def test_a_static_leader_that_comes_back_has_nothing_to_assign(can_skip: bool) -> None:
    """An older client, which cannot be told so, is told that its former self leads. (KIP-814)"""
    room = Room()
    (first,) = room.stable("", instance_id="i")
    again = room.joined(room.join(instance_id="i", skips_assignment=can_skip))
    assert (again.generation, again.skips_assignment) == (1, can_skip)
    if can_skip:
        assert (again.leader, len(again.members)) == (again.member_id, 1)
    else:
        assert (again.leader, again.members) == (first.member_id, ())
    assert room.synced(room.sync(again, instance_id="i")) == b"m1"


def test_a_static_member_with_another_protocol_has_all_join_anew() -> None:
    room = Room(delay_ms=DELAY_MS)
    both = (("a", b""), ("b", b""))
    tokens = [room.join(protocols=both), room.join(protocols=both, instance_id="i")]
    room.advance(2 * DELAY_MS)
    leader, _ = map(room.joined, tokens)
    room.sync(leader)
    waiting = room.join(protocols=(("b", b""),), instance_id="i")
    assert room.beat(leader) is GroupFault.REBALANCING
    led = room.join(leader.member_id, protocols=both)
    assert room.joined(waiting).protocol == room.joined(led).protocol == "b"


def test_a_static_member_that_comes_back_while_it_waits_fences_what_waits() -> None:
    room = Room(delay_ms=DELAY_MS)
    before = room.join(instance_id="i")
    after = room.join(instance_id="i")
    assert room.refused(before) is GroupFault.FENCED_INSTANCE
    room.advance(2 * DELAY_MS)
    first = room.joined(after)
    assert (first.generation, first.leader, len(first.members)) == (1, first.member_id, 1)
    again = room.join(instance_id="i")
    assert room.joined(again).generation == 2, "it had not assigned"


def test_a_static_member_that_does_not_join_keeps_its_place_until_its_session_ends() -> None:
    room = Room(delay_ms=DELAY_MS)
    tokens = [
        room.join(instance_id="i", session_ms=100_000, rebalance_ms=8000),
        room.join(rebalance_ms=8000),
    ]
    room.advance(2 * DELAY_MS)
    static, other = map(room.joined, tokens)
    room.sync(static, {static.member_id: b"part"})
    assert static.leader == static.member_id
    waiting = room.join(other.member_id, protocols=(("range", b"new"),), rebalance_ms=8000)
    room.advance(8000)
    found = room.joined(waiting)
    assert (found.generation, found.leader) == (2, other.member_id)
    assert [each[0] for each in found.members] == [static.member_id, other.member_id]
    assert room.beat(static) is GroupFault.ILLEGAL_GENERATION


def test_a_group_of_which_only_absent_static_members_are_left_waits_for_them() -> None:
    room = Room(delay_ms=DELAY_MS)
    tokens = [
        room.join(instance_id="i", session_ms=100_000, rebalance_ms=8000),
        room.join(rebalance_ms=8000),
    ]
    room.advance(2 * DELAY_MS)
    static, other = map(room.joined, tokens)
    room.sync(static)
    room.join(other.member_id, protocols=(("range", b"new"),), rebalance_ms=8000)
    room.leave(Membership(member_id=other.member_id))
    room.advance(30_000)
    assert phase(room) is GroupPhase.PREPARING
    again = room.joined(room.join(static.member_id, instance_id="i"))
    assert (again.generation, len(again.members)) == (2, 1)


# ---------------------------------------------------------------------- clients that are gone


def test_a_new_member_goes_with_its_join() -> None:
    room = Room()
    (first,) = room.stable("")
    gone = room.join()
    again = room.join(first.member_id, protocols=(("range", b"new"),))
    assert room.joined(again).generation == 2
    room.sync(room.joined(again))
    room.coordinator.forget(gone, room.now_ms)
    other = room.join()
    room.coordinator.forget(other, room.now_ms)
    room.advance(0)
    assert list(room.coordinator.live["g"].members) == [first.member_id, "m2"]
    assert room.coordinator._waiting == {}


def test_the_first_member_that_is_gone_leaves_nothing() -> None:
    room = Room(delay_ms=DELAY_MS)
    room.coordinator.forget(room.join(), room.now_ms)
    room.coordinator.forget("nobody", room.now_ms)
    room.advance(DELAY_MS)
    assert (room.coordinator.live, room.groups.by_name) == ({}, {})


def test_a_member_whose_client_is_gone_has_its_session_to_come_back() -> None:
    """Whether it joined or synced. (§5)"""
    room = Room(delay_ms=DELAY_MS)
    tokens = [room.join(), room.join()]
    room.advance(2 * DELAY_MS)
    leader, follower = map(room.joined, tokens)
    room.coordinator.forget(room.sync(follower), room.now_ms)
    room.advance(SESSION_MS - 1)
    room.beat(leader)
    assert room.beat(follower) is None
    room.sync(leader)
    waiting = room.join(follower.member_id, protocols=(("range", b"new"),))
    room.advance(SESSION_MS - 1)
    room.beat(leader)
    room.coordinator.forget(waiting, room.now_ms)
    room.advance(SESSION_MS - 1)
    assert room.beat(follower) is GroupFault.REBALANCING


def test_a_request_that_comes_again_takes_the_place_of_the_first() -> None:
    room = Room(delay_ms=DELAY_MS)
    tokens = [room.join(), room.join()]
    room.advance(2 * DELAY_MS)
    leader, follower = map(room.joined, tokens)
    before = room.sync(follower)
    after = room.sync(follower)
    assert room.refused(before) is GroupFault.REBALANCING
    room.sync(leader, {follower.member_id: b"part"})
    assert room.synced(after) == b"part"
    before = room.join(leader.member_id)
    after = room.join(leader.member_id)
    assert room.refused(before) is GroupFault.REBALANCING
    room.join(follower.member_id)
    assert room.joined(after).generation == 2


def test_all_that_wait_are_answered_when_the_server_stops() -> None:
    room = Room(delay_ms=DELAY_MS)
    tokens = [room.join(), room.join()]
    room.advance(2 * DELAY_MS)
    _, follower = map(room.joined, tokens)
    waiting = [room.sync(follower)]
    why = Rejection(ErrorCode.SHUTTING_DOWN, "it stops")
    room.coordinator.release_all(why)
    waiting.append(room.join(follower.member_id, protocols=(("range", b"new"),)))
    room.coordinator.release_all(why)
    assert [room.answers[token] for token in waiting] == [why, why]
    assert room.coordinator._waiting == {}


# ---------------------------------------------------------------------- restarts


def test_members_go_on_in_their_generation_after_a_restart() -> None:
    """No rebalance follows; their sessions begin anew. (§5)"""
    room = Room(delay_ms=DELAY_MS)
    tokens = [room.join(), room.join()]
    room.advance(2 * DELAY_MS)
    first, second = map(room.joined, tokens)
    room.sync(first, {second.member_id: b"part"})
    room.advance(SESSION_MS - 1)
    again = room.restarted()
    again.advance(SESSION_MS - 1)
    assert again.beat(first) is again.beat(second) is None
    assert again.synced(again.sync(second)) == b"part"
    again.advance(SESSION_MS - 1)
    again.beat(first)
    again.advance(1)
    assert again.beat(first) is GroupFault.REBALANCING
    assert again.beat(second) is GroupFault.UNKNOWN_MEMBER


def test_a_generation_that_was_told_goes_on_after_a_restart() -> None:
    """Its leader had not assigned: it does now. (§5)"""
    room = Room()
    first = room.joined(room.join())
    again = room.restarted()
    assert again.joined(again.join(first.member_id)).generation == 1
    assert again.synced(again.sync(first, {first.member_id: b"all"})) == b"all"


def test_a_generation_that_nobody_syncs_after_a_restart_ends() -> None:
    room = Room()
    first = room.joined(room.join(session_ms=100_000))
    again = room.restarted()
    again.advance(REBALANCE_MS)
    assert again.beat(first) is GroupFault.UNKNOWN_MEMBER


def test_who_left_has_left_after_a_restart_and_the_others_join_anew() -> None:
    room = Room(delay_ms=DELAY_MS)
    tokens = [room.join(), room.join()]
    room.advance(2 * DELAY_MS)
    first, second = map(room.joined, tokens)
    room.sync(first)
    room.leave(room.member(first))
    again = room.restarted()
    assert again.beat(first) is GroupFault.UNKNOWN_MEMBER
    assert again.beat(second) is GroupFault.REBALANCING
    assert again.joined(again.join(second.member_id)).generation == 2


# ---------------------------------------------------------------------- bounds


@pytest.mark.parametrize("session_ms", [5999, 1_800_001, -1])
def test_a_session_has_6_s_to_30_min(session_ms: int) -> None:
    assert Room.fault(lambda: Room().join(session_ms=session_ms)) is GroupFault.INVALID_SESSION


@pytest.mark.parametrize(
    "fields",
    [
        {"instance_id": "x" * 256},
        {"protocol_type": "x" * 256},
        {"protocols": (("x" * 256, b""),)},
        {"protocols": (("x", bytes(coordinator.MEMBER_BYTES_MAX + 1)),)},
        {"protocols": tuple((str(nth), b"") for nth in range(coordinator.PROTOCOLS_MAX + 1))},
    ],
    ids=["instance", "type", "protocol", "metadata", "protocols"],
)
def test_what_a_member_says_of_itself_is_bounded(fields: Any) -> None:
    assert Room.fault(lambda: Room().join(**fields)) is GroupFault.INVALID_FIELD


def test_what_a_leader_assigns_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "MEMBER_BYTES_MAX", 10)
    monkeypatch.setattr(coordinator, "GROUP_BYTES_MAX", 1000)
    room = Room()
    first = room.joined(room.join())
    for parts in ({"m1": bytes(11)}, {str(nth): bytes(10) for nth in range(101)}):
        assert (
            room.fault(lambda parts=parts: room.sync(first, parts))  # type: ignore[misc]
            is GroupFault.INVALID_FIELD
        )
    assert room.synced(room.sync(first, {"m1": bytes(10)})) == bytes(10)


def test_a_group_has_only_so_many_members(monkeypatch: pytest.MonkeyPatch) -> None:
    """An id that was given counts. (§9)"""
    monkeypatch.setattr(coordinator, "MEMBERS_MAX", 2)
    room = Room(delay_ms=DELAY_MS)
    room.join(instance_id="i")
    assert room.fault(lambda: room.join(joins_twice=True)) is GroupFault.MEMBER_ID_REQUIRED
    assert room.fault(room.join) is GroupFault.FULL
    assert room.fault(lambda: room.join(instance_id="i")) is None, "it takes its own place"


def test_the_members_of_a_group_have_only_so_much_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "GROUP_BYTES_MAX", 2000)
    room = Room()
    large = (("range", bytes(1500)),)
    assert room.fault(lambda: room.join(protocols=(("range", bytes(2000)),))) is GroupFault.FULL
    assert room.coordinator.live == {}
    (first,) = room.stable("", protocols=large)
    assert room.fault(lambda: room.join(protocols=large)) is GroupFault.FULL
    assert (
        room.fault(lambda: room.join(first.member_id, protocols=(("range", bytes(1501)),))) is None
    )
    assert (
        room.fault(lambda: room.join(first.member_id, protocols=(("range", bytes(2000)),)))
        is GroupFault.FULL
    )


def test_ids_that_were_given_go_with_their_group() -> None:
    room = Room()
    assert room.fault(lambda: room.join(joins_twice=True)) is GroupFault.MEMBER_ID_REQUIRED
    room.coordinator.deleted("g")
    room.coordinator.deleted("h")
    assert (room.coordinator.live, room.coordinator.weight.size_bytes) == ({}, 0)


def test_a_member_that_joins_in_vain_is_told_while_others_are_there() -> None:
    room = Room()
    assert room.fault(lambda: room.join("m9")) is GroupFault.UNKNOWN_MEMBER
    room.stable("")
    assert room.fault(lambda: room.join("m9")) is GroupFault.UNKNOWN_MEMBER
