"""Groups of consumers: their offsets, lists of them, their members and their end, over restarts."""

from struct import pack
from typing import Any

import pytest

from protocol.durable import Durable
from protocol.harness import Harness
from topics.protocol.decide import groups
from topics.protocol.model.access import Caller
from topics.protocol.model.codec import Frames
from topics.protocol.model.commands import (
    Command,
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    SyncGroup,
)
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.events import GroupChanged, GroupDeleted, TopicDeleted
from topics.protocol.model.groups import (
    COMMIT_METADATA_BYTES_MAX,
    GroupFault,
    GroupMember,
    GroupPhase,
    GroupRefusal,
    Membership,
    OffsetCommit,
)
from topics.protocol.model.outcomes import Gate, OffsetsKept, Parked
from topics.protocol.state.groups import RETENTION_MS, UNUSED_MS

ROOM = Caller("k", prefixes=("in.",))


def commit(engine: Harness, seq: int, topic: str = "t", group: str = "g", **fields: Any) -> Any:
    """Why the offset is not kept; None: it is."""
    found = engine.ask(CommitOffsets(group, [OffsetCommit(topic, seq, **fields)]))
    assert isinstance(found, OffsetsKept)
    return found.faults[0]


def committed(engine: Harness, group: str = "g", *topics: str) -> dict[str, int]:
    found: Any = engine.ask(FetchOffsets(group, topics or None))
    return {each.topic: each.seq for each in found.offsets}


def listed(engine: Harness, prefix: str = "", **fields: Any) -> Any:
    fields = {"page_size": 100, "after": "", **fields}
    found: Any = engine.ask(ListGroups(prefix, **fields))
    return [each.name for each in found.groups], found.after


def fault(engine: Harness, command: Command) -> GroupFault:
    with pytest.raises(GroupRefusal) as refusal:
        engine.ask(command)
    return refusal.value.fault


def test_offsets_are_kept_over_a_kill_and_a_stop() -> None:
    """The last one counts, with what the client says of it; nothing is answered before the sync. (§5)"""
    engine = Durable()
    engine.put()
    engine.put("u")
    engine.append("a", "b", "c")
    assert commit(engine, 1) is None
    assert commit(engine, 2, metadata="note", leader_epoch=4) is None
    assert commit(engine, 0, "u") is None
    told = engine.ask(CommitOffsets("g", [OffsetCommit("t", 2, 4, "note")]))
    assert isinstance(told, OffsetsKept)
    assert (told.gate, told.is_logged) == (Gate.SYNCED, True)

    for again in (engine.kill(), engine.stop()):
        assert committed(again) == {"t": 2, "u": 0}
        found: Any = again.ask(FetchOffsets("g", ["t", "absent"]))
        (offset,) = found.offsets
        assert (offset.metadata, offset.leader_epoch, offset.ts_ms) == ("note", 4, engine.now_ms)
        assert (offset.lag, offset.lost, found.gate) == (1, 0, Gate.SYNCED)
        engine = again


def test_a_checkpoint_holds_what_was_committed_before_it_and_no_more() -> None:
    """A group that changes while the checkpoint is made is in it as it was at the boundary. (FORMAT.md)"""
    engine = Durable()
    engine.put()
    commit(engine, 1)
    commit(engine, 1, group="other")
    commit(engine, 1, group="gone")
    plan = engine.checkpointing.begin(engine.now_ms)
    commit(engine, 2)
    engine.ask(DeleteGroup("gone"))
    commit(engine, 3, group="later")
    image = engine.finish_checkpoint(plan)
    assert {each.name: each.offsets[0].seq for each in image.groups} == {
        "g": 1,
        "other": 1,
        "gone": 1,
    }
    second = engine.finish_checkpoint(engine.begin_checkpoint())
    assert sorted(each.name for each in second.groups) == ["g", "later", "other"]
    again = engine.stop()
    assert [committed(again, name) for name in ("g", "other", "gone", "later")] == [
        {"t": 2},
        {"t": 1},
        {},
        {"t": 3},
    ]


def test_a_checkpoint_that_was_given_up_leaves_its_groups_to_the_next() -> None:
    engine = Harness()
    engine.put()
    commit(engine, 1)
    engine.checkpointing.begin(engine.now_ms)
    engine.engine.state.images.give_up()
    image = engine.finish_checkpoint(engine.begin_checkpoint())
    assert [each.name for each in image.groups] == ["g"]


def test_what_is_wrong_with_one_offset_keeps_no_other_from_being_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(groups, "OFFSETS_MAX", 2)
    engine = Harness()
    for name in ("t", "u", "v"):
        engine.put(name)
    asked = [
        OffsetCommit("absent", 1),
        OffsetCommit("t", 1, metadata="é" * (COMMIT_METADATA_BYTES_MAX // 2)),
        OffsetCommit("t", 2, metadata="é" * (COMMIT_METADATA_BYTES_MAX // 2) + "x"),
        OffsetCommit("t", -1),
        OffsetCommit("u", 1),
        OffsetCommit("v", 1),
    ]
    found: Any = engine.ask(CommitOffsets("g", asked))
    assert found.faults == [
        GroupFault.NO_TOPIC,
        None,
        GroupFault.METADATA_TOO_LARGE,
        GroupFault.INVALID_FIELD,
        None,
        GroupFault.TOO_MANY_OFFSETS,
    ]
    assert committed(engine) == {"t": 1, "u": 1}
    assert commit(engine, 9, "u") is None, "an offset that is there can always move"


def test_nothing_that_is_wrong_makes_a_group() -> None:
    engine = Harness()
    assert commit(engine, 1, "absent") is GroupFault.NO_TOPIC
    assert listed(engine) == ([], None)


def test_a_group_whose_offsets_are_deleted_keeps_the_others() -> None:
    """Also over a restart. (§5)"""
    engine = Durable()
    engine.put()
    engine.put("u")
    commit(engine, 1)
    commit(engine, 1, "u")
    found: Any = engine.ask(DeleteOffsets("g", ["t", "absent"]))
    assert found.faults == [None, GroupFault.NO_TOPIC]
    engine.ask(DeleteOffsets("g", ["t"]))
    assert committed(engine) == committed(engine.kill()) == {"u": 1}


def test_offsets_go_with_their_topic_and_not_to_another_of_its_name() -> None:
    engine = Durable()
    engine.put()
    engine.put("u")
    commit(engine, 5)
    commit(engine, 7, "u")
    commit(engine, 5, group="other")
    engine.drop()
    engine.put()
    for each in (engine, engine.kill()):
        assert committed(each) == {"u": 7}
        assert committed(each, "g", "t") == {}
        assert committed(each, "other") == {}


def test_a_group_of_which_nobody_knows_anything_has_no_offsets() -> None:
    """And no state: 404. (§5)"""
    engine = Harness()
    assert committed(engine) == {}
    for command in (DescribeGroup("g"), DeleteGroup("g"), DeleteOffsets("g", ["t"])):
        with pytest.raises(GroupRefusal) as refusal:
            engine.ask(command)
        assert refusal.value.fault is GroupFault.NO_GROUP
        assert refusal.value.code is ErrorCode.GROUP_NOT_FOUND
        assert refusal.value.detail == {"group": "g"}


@pytest.mark.parametrize("name", ["", "x" * 256, "é" * 128])
def test_a_group_has_a_name_of_1_to_255_bytes(name: str) -> None:
    engine = Harness()
    engine.put()
    command = CommitOffsets(name, [OffsetCommit("t", 1)])
    assert fault(engine, command) is GroupFault.INVALID_GROUP
    assert fault(engine, FetchOffsets(name)) is GroupFault.INVALID_GROUP
    assert commit(engine, 1, group="é" * 127) is None


def test_offsets_are_shown_page_by_page_as_far_as_the_caller_may_see_their_topics() -> None:
    engine = Harness()
    for name in ("in.a", "in.b", "out.c", "in.d"):
        engine.put(name)
        commit(engine, 1, name)
    pages, after_id = [], 0
    while True:
        found: Any = engine.ask(FetchOffsets("g", None, after_id, 2, caller=ROOM))
        pages.append([each.topic for each in found.offsets])
        if found.after_id is None:
            break
        after_id = found.after_id
    assert pages == [["in.a", "in.b"], ["in.d"]]


def test_groups_are_listed_by_name_as_far_as_the_caller_may_see_them() -> None:
    engine = Harness()
    engine.put()
    for name in ("in.b", "out.a", "in.a", "in.c", "inner"):
        commit(engine, 1, group=name)
    assert listed(engine) == (["in.a", "in.b", "in.c", "inner", "out.a"], None)
    assert listed(engine, page_size=2, caller=ROOM) == (["in.a", "in.b"], "in.b")
    assert listed(engine, page_size=2, after="in.b", caller=ROOM) == (["in.c"], None)
    assert listed(engine, "in.b") == (["in.b"], None)
    assert listed(engine, phases=["stable"]) == ([], None)
    assert listed(engine, phases=["empty", "stable"], page_size=1) == (["in.a"], "in.a")


def test_a_group_shows_how_far_it_is_behind_and_what_it_lost() -> None:
    """Lag in records; what a cap took before the group came to it is lost, in seqs. (§13.2)"""
    engine = Harness()
    engine.put(cap_records=3)
    engine.append(*range(10))
    commit(engine, 2)
    shown: Any = engine.ask(DescribeGroup("g"))
    assert (shown.summary.name, shown.summary.kind, shown.summary.members) == ("g", "classic", 0)
    assert shown.summary.phase.value == "empty"
    (offset,) = shown.offsets
    assert (offset.seq, offset.lag, offset.lost) == (2, 3, 5)
    engine.delete(before_seq=9)
    (offset,) = engine.ask(DescribeGroup("g")).offsets  # type: ignore[union-attr]
    assert (offset.lag, offset.lost) == (2, 5), "a delete is no loss"
    commit(engine, 50)
    (offset,) = engine.ask(DescribeGroup("g")).offsets  # type: ignore[union-attr]
    assert (offset.lag, offset.lost) == (0, 0)


def test_what_is_shown_of_a_group_waits_for_the_sync_while_there_is_one() -> None:
    """A power loss may take back nothing that was seen; a log that is read-only shows what there is. (§5)"""
    engine = Harness()
    engine.put()
    commit(engine, 1)
    shown: Any = engine.ask(DescribeGroup("g"))
    assert shown.gate is Gate.SYNCED
    engine.engine.on_failed()
    shown = engine.engine.submit(DescribeGroup("g"), token=1, moment=engine.moment)
    assert shown.gate is Gate.NOW
    with pytest.raises(Rejection) as refusal:
        engine.engine.submit(
            CommitOffsets("g", [OffsetCommit("t", 1)]), token=1, moment=engine.moment
        )
    assert refusal.value.code is ErrorCode.NOT_READY


def test_only_a_group_without_members_takes_offsets_of_nobody() -> None:
    """And a member of nothing commits nothing. (§5)"""
    engine = Harness()
    engine.put()
    command = CommitOffsets("g", [OffsetCommit("t", 1)], Membership(3, "m"))
    assert fault(engine, command) is GroupFault.NO_GROUP
    commit(engine, 1)
    assert fault(engine, command) is GroupFault.UNKNOWN_MEMBER


def test_offsets_expire_a_week_after_their_group_was_used() -> None:
    """By the clock alone: a restart finds the same, and a commit begins anew. (§5)"""
    engine = Durable()
    engine.put()
    engine.put("u")
    commit(engine, 1)
    engine.now_ms += RETENTION_MS - 1
    assert committed(engine) == {"t": 1}
    engine.now_ms += 1
    for each in (engine, engine.kill()):
        assert committed(each) == {}
        assert listed(each) == ([], None)
    again = engine.kill()
    commit(again, 2, "u")
    assert committed(again) == committed(again.kill()) == {"u": 2}


def test_a_group_without_offsets_is_gone_after_some_minutes() -> None:
    """As when its last topic is deleted: its place is free then, and its memory. (§5)"""
    engine = Harness()
    engine.put()
    commit(engine, 1)
    engine.drop()
    assert listed(engine)[0] == ["g"]
    engine.now_ms += UNUSED_MS
    assert listed(engine)[0] == []
    engine.work_off()
    assert engine.engine.state.groups.by_name == {}
    assert engine.engine.state.groups.size_bytes == 0


def test_there_are_only_so_many_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group that is expired counts no more; one that is there can always commit."""
    monkeypatch.setattr(groups, "GROUPS_MAX", 2)
    engine = Harness()
    engine.put()
    commit(engine, 1, group="a")
    engine.now_ms += 1
    commit(engine, 1, group="b")
    with pytest.raises(Rejection) as refusal:
        commit(engine, 1, group="c")
    assert refusal.value.detail == {"limit": "max_groups", "max": 2}
    engine.now_ms += 4
    assert commit(engine, 2, group="a") is None
    engine.now_ms += RETENTION_MS - 4
    commit(engine, 2, group="c")
    assert listed(engine)[0] == ["a", "c"]


def test_groups_have_only_so_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "GROUPS_BYTES_MAX", 1000)
    engine = Harness()
    engine.put()
    commit(engine, 1, metadata="x" * 1000)
    with pytest.raises(Rejection) as refusal:
        commit(engine, 1, group="h")
    assert refusal.value.detail == {"limit": "max_group_bytes", "max": 1000}
    engine.ask(DeleteGroup("g"))
    assert commit(engine, 1, group="h") is None


def test_a_group_that_was_deleted_begins_anew() -> None:
    engine = Durable()
    engine.put()
    commit(engine, 1)
    assert engine.ask(DeleteGroup("g")).gate is Gate.SYNCED  # type: ignore[union-attr]
    again = engine.kill()
    assert (committed(again), listed(again)[0]) == ({}, [])
    commit(again, 3)
    assert committed(again) == {"t": 3}


# ---------------------------------------------------------------------- members


def join(engine: Harness, member_id: str = "", **fields: Any) -> Any:
    """The outcome of a join, or None where it waits."""
    given: dict[str, Any] = {
        "group": "g",
        "member_id": member_id,
        "new_member_id": f"m{engine.last_token}",
        "instance_id": None,
        "client_id": "c",
        "client_host": "/h",
        "session_ms": 10_000,
        "rebalance_ms": 20_000,
        "protocol_type": "consumer",
        "protocols": (("range", b"sub"),),
    }
    found = engine.ask(JoinGroup(**{**given, **fields}))
    return None if isinstance(found, Parked) else found


def pass_time(engine: Harness, ms: int) -> None:
    """Time passes, and what is due is done when it is."""
    end_ms = engine.now_ms + ms
    while (due_ms := engine.engine.alarm_ms()) is not None and due_ms <= end_ms:
        engine.now_ms = max(due_ms, engine.now_ms)
        engine.work_off()
    engine.now_ms = end_ms


def answers(engine: Harness) -> list[Any]:
    return [wake.result for wake in engine.engine.take_wakes()]


def stable(engine: Harness) -> Any:
    """One member, which has all."""
    assert join(engine) is None
    pass_time(engine, 250)
    (joined,) = answers(engine)
    assert (joined.gate, joined.is_logged) == (Gate.SYNCED, True)
    member = Membership(joined.generation, joined.member_id)
    synced: Any = engine.ask(
        SyncGroup(group="g", member=member, assignments=[(joined.member_id, b"all")])
    )
    assert (synced.assignment, synced.gate, synced.is_logged) == (b"all", Gate.SYNCED, True)
    return member


def beat(engine: Harness, member: Membership) -> GroupFault | None:
    try:
        assert engine.ask(Heartbeat("g", member)).gate is Gate.NOW  # type: ignore[union-attr]
    except GroupRefusal as refusal:
        return refusal.fault
    return None


def test_members_go_on_in_their_generation_over_a_kill_and_a_stop() -> None:
    """No rebalance follows, whether the log or a checkpoint has the group. (§5)"""
    engine = Durable()
    engine.put()
    member = stable(engine)
    assert engine.ask(CommitOffsets("g", [OffsetCommit("t", 4)], member)).faults == [None]  # type: ignore[union-attr]
    for again in (engine.kill(), engine.stop()):
        assert beat(again, member) is None
        shown: Any = again.ask(DescribeGroup("g"))
        assert (shown.summary.phase.value, shown.summary.generation) == ("stable", 1)
        (found,) = shown.members
        assert (found.member_id, found.assignment, shown.protocol) == (
            member.member_id,
            b"all",
            "range",
        )
        pass_time(again, 9_999)
        assert beat(again, member) is None
        assert committed(again) == {"t": 4}


def test_a_generation_is_used_once_over_kills() -> None:
    """Its event is written before anybody is told of it. (§5)"""
    engine = Durable()
    told = []
    for _ in range(3):
        join(engine)
        pass_time(engine, 250)
        (joined,) = answers(engine)
        told.append(joined.generation)
        engine = engine.kill()
        engine.ask(LeaveGroup("g", [Membership(member_id=joined.member_id)]))
        engine = engine.kill()
    assert told == [1, 2, 3]


def test_a_join_that_is_answered_at_once_waits_for_the_sync_too() -> None:
    engine = Harness(kafka_rebalance_delay_ms=0)
    joined = join(engine)
    assert (joined.generation, joined.gate) == (1, Gate.SYNCED)
    left: Any = engine.ask(LeaveGroup("g", [Membership(member_id=joined.member_id)]))
    assert (left.faults, left.gate, left.is_logged) == ([None], Gate.SYNCED, True)


def test_sessions_end_by_the_clock_without_a_command() -> None:
    engine = Durable()
    member = stable(engine)
    pass_time(engine, 9_999)
    assert not engine.engine.has_work()
    pass_time(engine, 1)
    assert beat(engine, member) is GroupFault.UNKNOWN_MEMBER
    again = engine.kill()
    shown: Any = again.ask(DescribeGroup("g"))
    assert (shown.summary.phase.value, shown.members) == ("empty", [])


def test_a_request_that_waits_is_refused_when_its_member_goes() -> None:
    engine = Harness()
    member = stable(engine)
    assert join(engine) is None
    assert beat(engine, member) is GroupFault.REBALANCING
    pass_time(engine, 10_000)
    (second,) = answers(engine)
    assert second.generation == 2
    with pytest.raises(GroupRefusal):
        join(engine, member.member_id)


def test_a_client_that_is_gone_is_forgotten() -> None:
    engine = Harness()
    assert join(engine) is None
    assert listed(engine)[0] == ["g"]
    shown: Any = engine.ask(DescribeGroup("g"))
    assert (shown.summary.phase.value, len(shown.members)) == ("preparing_rebalance", 1)
    engine.engine.forget("", engine.last_token - 2)
    pass_time(engine, 1)
    assert (listed(engine)[0], answers(engine)) == ([], [])


@pytest.mark.parametrize("how", ["stops", "fails"])
def test_whoever_waits_is_answered_at_the_end(how: str) -> None:
    """That the server stops, or that nothing is written any more. (§0.5)"""
    engine = Harness()
    assert join(engine) is None
    if how == "stops":
        engine.engine.release_all()
    else:
        engine.engine.on_failed()
    (refused,) = answers(engine)
    assert refused.code is (ErrorCode.SHUTTING_DOWN if how == "stops" else ErrorCode.NOT_READY)
    if how == "fails":
        assert (engine.engine.alarm_ms(), engine.engine.has_work()) == (None, False)


def test_time_waits_for_room_in_the_log() -> None:
    """A session ends once that can be written; and a command waits as a write does. (§0.6)"""
    engine = Harness()
    member = stable(engine)
    engine.room_bytes = 0
    engine.now_ms += 10_000
    engine.engine.work_off(engine.moment)
    assert engine.engine.alarm_ms() == engine.now_ms + groups.RETRY_MS
    assert not engine.engine.has_work()
    assert beat(engine, member) is None
    with pytest.raises(Rejection) as refusal:
        join(engine)
    assert refusal.value.code is ErrorCode.THROTTLED
    engine.room_bytes = 1 << 30
    engine.now_ms += 10_000
    engine.work_off()
    assert beat(engine, member) is GroupFault.UNKNOWN_MEMBER


def test_a_group_with_members_is_theirs() -> None:
    """409 to whoever deletes it, or commits without being one. (§5)"""
    engine = Harness()
    engine.put()
    stable(engine)
    for command in (DeleteGroup("g"), CommitOffsets("g", [OffsetCommit("t", 1)])):
        with pytest.raises(GroupRefusal) as refusal:
            engine.ask(command)
        assert refusal.value.code is ErrorCode.GROUP_NOT_EMPTY
        assert refusal.value.detail == {"group": "g", "members": 1}


def test_a_member_of_which_nothing_is_kept_yet_has_its_group_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As many groups as there may be; of these, one more member is welcome. (§9)"""
    monkeypatch.setattr(groups, "GROUPS_MAX", 1)
    engine = Harness()
    assert join(engine) is None
    assert join(engine) is None
    with pytest.raises(GroupRefusal) as refusal:
        join(engine, group="h")
    assert (refusal.value.fault, refusal.value.code) == (GroupFault.FULL, ErrorCode.THROTTLED)
    pass_time(engine, 500)
    (first, _) = answers(engine)
    member = Membership(first.generation, first.member_id)
    pass_time(engine, 9_000)
    engine.ask(LeaveGroup("g", [member]))
    with pytest.raises(GroupRefusal):
        join(engine, group="h")
    pass_time(engine, 10_000 + UNUSED_MS)
    assert join(engine, group="h") is None


def test_idle_groups_are_not_looked_at() -> None:
    """Each has one time at which something of it is due. (§9)"""
    engine = Harness()
    engine.put()
    for nth in range(200):
        commit(engine, 1, group=f"g{nth:03}")
    looked: list[int] = []
    state = engine.engine.state
    expired = type(state.groups.by_name["g000"]).is_expired

    class Seen:
        def __get__(self, group: Any, _: Any) -> Any:
            return lambda now_ms: (looked.append(1), expired(group, now_ms))[1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(state.groups.by_name["g000"]), "is_expired", Seen())
        for _ in range(100):
            engine.now_ms += 1000
            engine.engine.work_off(engine.moment)
            assert not engine.engine.has_work()
    assert looked == []


def test_many_groups_that_are_gone_are_dropped_in_several_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """None takes long."""
    monkeypatch.setattr(groups, "STEP_GROUPS", 2)
    engine = Harness()
    engine.put()
    for nth in range(5):
        commit(engine, 1, group=f"g{nth}")
    engine.now_ms += RETENTION_MS
    engine.engine.work_off(engine.moment)
    assert engine.engine.has_work()
    engine.work_off()
    assert engine.engine.state.groups.by_name == {}


def test_a_commit_that_is_one_request_is_kept_as_a_whole_or_not_at_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A topic that is not there is 404, as everywhere, and nothing is kept. (§13.3)"""
    monkeypatch.setattr(groups, "OFFSETS_MAX", 2)
    engine = Harness()
    for name in ("t", "u", "v"):
        engine.put(name)
    found: Any = engine.ask(
        CommitOffsets("g", [OffsetCommit("t", 1), OffsetCommit("t", 2)], is_whole=True)
    )
    assert found.faults == [None, None]
    assert committed(engine) == {"t": 2}
    with pytest.raises(Rejection) as refusal:
        engine.ask(
            CommitOffsets("g", [OffsetCommit("t", 3), OffsetCommit("absent", 1)], is_whole=True)
        )
    assert refusal.value.code is ErrorCode.TOPIC_NOT_FOUND
    assert refusal.value.detail == {"topic": "absent"}
    many = CommitOffsets("g", [OffsetCommit("u", 1), OffsetCommit("v", 1)], is_whole=True)
    assert fault(engine, many) is GroupFault.TOO_MANY_OFFSETS
    assert committed(engine) == {"t": 2}


def assigned(*topics: tuple[str, list[int]]) -> bytes:
    """As Kafka's consumers have it: a version, topics with partitions, and no bytes of the user's."""
    rows = [
        pack(">h", len(name)) + name.encode() + pack(f">i{len(at)}i", len(at), *at)
        for name, at in topics
    ]
    return pack(">hi", 0, len(rows)) + b"".join(rows) + pack(">i", -1)


def given(engine: Harness, protocol_type: str, *assignments: bytes) -> None:
    """The group has members, which are m0, m1 and so on."""
    names = [f"m{i}" for i in range(len(assignments))]
    members = [GroupMember(name, None, "c", "h", 1, 1, (("range", b""),)) for name in names]
    change = (7, GroupPhase.STABLE, protocol_type, "range", "m0", members, (), ())
    engine.engine.unit.emit(GroupChanged(engine.now_ms, "g", *change))
    each = list(zip(names, assignments, strict=True))
    engine.engine.unit.emit(
        GroupChanged(
            engine.now_ms,
            "g",
            7,
            GroupPhase.STABLE,
            protocol_type,
            "range",
            "m0",
            assignments=each,
        )
    )
    engine.sync()


def shown_assignments(engine: Harness, **fields: Any) -> Any:
    found: Any = engine.ask(DescribeGroup("g", shows_assigned=True, **fields))
    return [
        None if each is None else {topic: list(at) for topic, at in each.items()}
        for each in found.assigned
    ]


def test_what_members_were_assigned_is_shown_as_far_as_the_caller_may_see_the_topics() -> None:
    """And of consumers alone, since others say it in their own way. (§13.2)"""
    engine = Harness()
    given(engine, "consumer", assigned(("in.a", [0, 2]), ("out.b", [1])), b"", b"\0")
    assert shown_assignments(engine) == [{"in.a": [0, 2], "out.b": [1]}, None, None]
    assert shown_assignments(engine, caller=ROOM) == [{"in.a": [0, 2]}, None, None]
    found: Any = engine.ask(DescribeGroup("g"))
    assert found.assigned == [], "nobody asked"
    given(engine, "connect", assigned(("in.a", [0])))
    assert shown_assignments(engine)[0] is None


def test_no_answer_shows_more_assignments_than_one_may(monkeypatch: pytest.MonkeyPatch) -> None:
    one = assigned(("t", [0]))
    monkeypatch.setattr(groups, "ASSIGNED_BYTES_MAX", 2 * len(one))
    engine = Harness()
    given(engine, "consumer", one, one, one)
    assert shown_assignments(engine) == [{"t": [0]}, {"t": [0]}, None]


def test_offsets_of_what_a_member_reads_are_not_deleted() -> None:
    """Its subscription says which topics these are; a member of another kind does not say. (KIP-496)"""
    engine = Harness()
    engine.put()
    engine.put("u")
    commit(engine, 1)
    commit(engine, 1, "u")
    subscription = b"\0\1\0\0\0\1\0\1t"
    assert join(engine, protocols=(("range", subscription),)) is None
    found: Any = engine.ask(DeleteOffsets("g", ["t", "u"]))
    assert found.faults == [GroupFault.SUBSCRIBED, None]
    assert committed(engine) == {"t": 1}
    shown: Any = engine.ask(DescribeGroup("g", page_size=0))
    assert (shown.offsets, shown.after_id) == ([], None)
    assert commit(engine, 1, "u", group="h") is None
    assert join(engine, group="h", protocol_type="connect") is None
    assert fault(engine, DeleteOffsets("h", ["u"])) is GroupFault.NOT_EMPTY


def test_a_group_that_is_deleted_after_its_topic_is_not_timed() -> None:
    """Also where another process decided so: it knows no times. (§5)"""
    engine = Harness()
    engine.put()
    commit(engine, 1)
    state = engine.engine.state
    state.apply(TopicDeleted(engine.now_ms, state.topics["t"].topic_id))
    assert list(state.groups.lighter) == ["g"]
    state.apply(GroupDeleted(engine.now_ms, "g"))
    assert state.groups.lighter == {}


def test_a_new_member_of_a_group_that_is_gone_begins_anew() -> None:
    """While it waits for others, the time of what was there before is over. (§5)"""
    engine = Harness(kafka_rebalance_delay_ms=60_000)
    engine.put()
    commit(engine, 1)
    engine.now_ms += RETENTION_MS - 1000
    assert join(engine, rebalance_ms=70_000) is None
    pass_time(engine, 60_000)
    (joined,) = answers(engine)
    assert (joined.generation, committed(engine)) == (1, {})


def test_a_follower_has_groups_and_times_them_once_it_leads() -> None:
    """Members go on with the next leader, in their generation; sessions begin anew with its term. (§7)"""
    leader, follower = Harness(), Harness()
    follower.engine.resume()
    member = stable(leader)
    events = [event for event in leader.events if isinstance(event, GroupChanged)]
    frames = Frames.of(events)
    follower.engine.follow(events, b"".join(frames.parts))
    follower.sync()
    shown: Any = follower.ask(DescribeGroup("g"))
    assert (shown.summary.phase.value, len(shown.members)) == ("stable", 1)
    assert listed(follower)[0] == ["g"]
    assert follower.engine.alarm_ms() is None
    follower.now_ms += 60_000
    follower.engine.begin_term(2, follower.now_ms)
    assert beat(follower, member) is None
    pass_time(follower, 10_000)
    assert beat(follower, member) is GroupFault.UNKNOWN_MEMBER
