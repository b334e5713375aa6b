"""Votes, waits and weights of one live group."""

from topics.protocol.groups.live import PENDING_BYTES, LiveGroup, LiveMember, Weight
from topics.protocol.model.groups import GroupMember


def member(member_id: str, *protocols: str) -> LiveMember:
    known = tuple((name, b"") for name in protocols)
    return LiveMember(GroupMember(member_id, None, "c", "h", 1, 7, known), 5)


def test_what_a_group_weighs_goes_with_its_members() -> None:
    weight = Weight()
    group = LiveGroup("g", weight)
    group.add(member("a", "x", "y"))
    group.add(member("b", "y"))
    group.await_join("c", 9)
    assert weight.size_bytes == group.size_bytes + PENDING_BYTES
    assert group.was_awaited("c")
    assert not group.was_awaited("c")
    for member_id in ("a", "b"):
        group.remove(member_id)
    assert (weight.size_bytes, group.size_bytes, group.is_over) == (0, 0, True)
    assert group.takes("consumer", (("z", b""),)), "nobody is there who would not know it"


def test_a_protocol_named_twice_counts_once() -> None:
    group = LiveGroup("g", Weight())
    group.protocol_type = "t"
    group.add(member("a", "x", "x"))
    group.add(member("b", "y", "x"))
    assert group.takes("t", (("x", b""),))
    assert not group.takes("t", (("y", b""),))


def test_a_group_is_due_when_its_first_member_is() -> None:
    group = LiveGroup("g", Weight())
    assert group.due_ms() is None
    group.add(member("a", "x"))
    group.await_join("c", 3)
    assert group.due_ms() == 3
    group.was_awaited("c")
    assert (group.due_ms(), group.rebalance_ms) == (5, 7)
    group.join(group.members["a"], 0)
    assert (group.due_ms(), group.have_all_joined) == (None, True)
    assert group.joined(group.members["a"]) == 0
    assert group.joined_count == 0
