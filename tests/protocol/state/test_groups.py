"""Groups as events leave them, their images, and how much memory they are counted for."""

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from topics.protocol.model.events import GroupChanged, GroupImage, OffsetsCommitted
from topics.protocol.model.groups import CommittedOffset, GroupMember, GroupPhase
from topics.protocol.state.groups import Groups

IDS = st.sampled_from(["a", "b", "c"])
NAMES = st.sampled_from(["g", "h"])
MEMBERS = st.builds(
    GroupMember,
    member_id=IDS,
    instance_id=st.none(),
    client_id=st.just("c"),
    client_host=st.just("h"),
    session_ms=st.just(1),
    rebalance_ms=st.just(1),
    protocols=st.just((("range", b"sub"),)),
)
OFFSETS = st.builds(
    CommittedOffset, st.integers(1, 3), st.integers(0, 9), st.just(0), st.text(max_size=3), st.just(1)
)  # fmt: skip


def changed(name: str, phase: GroupPhase, **fields: Any) -> GroupChanged:
    return GroupChanged(1, name, 1, phase, "consumer", "range", "a", **fields)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_images_and_sizes_are_those_of_what_is_there(data: Any) -> None:
    """Whatever came and went: what a checkpoint has of a group makes the same group."""
    groups = Groups()
    for _ in range(data.draw(st.integers(0, 12))):
        name = data.draw(NAMES)
        match data.draw(st.integers(0, 4)):
            case 0:
                members = data.draw(st.lists(MEMBERS, max_size=2))
                left = data.draw(st.lists(IDS, max_size=1))
                groups.change(changed(name, GroupPhase.COMPLETING, members=members, left=left))
            case 1 if name in groups.by_name:
                known = list(groups.by_name[name].members)
                groups.change(
                    changed(
                        name, GroupPhase.STABLE, assignments=[(each, b"part") for each in known]
                    )
                )
            case 2:
                offsets = data.draw(st.lists(OFFSETS, max_size=2))
                removed = data.draw(st.lists(st.integers(1, 3), max_size=1))
                groups.commit(OffsetsCommitted(1, name, offsets, removed))
            case 3 if name in groups.by_name:
                groups.delete(name)
            case _:
                groups.forget_topic(data.draw(st.integers(1, 3)))
    assert groups.names == sorted(groups.by_name)
    again = Groups()
    for group in groups.by_name.values():
        image = msgspec.msgpack.decode(group.encoded(), type=GroupImage)
        assert image == group.image()
        again.restore(image)
    assert again.size_bytes == groups.size_bytes
    assert again.images() == groups.images()
    for topic_id in (1, 2, 3):
        assert set(again.of_topic(topic_id)) == set(groups.of_topic(topic_id))


def test_nobody_has_anything_in_a_new_generation() -> None:
    """Also a member that did not join it, and has come back since. (§5)"""
    groups = Groups()
    member = GroupMember("a", "i", "c", "h", 1, 1, ())
    groups.change(changed("g", GroupPhase.COMPLETING, members=[member]))
    groups.change(changed("g", GroupPhase.STABLE, assignments=[("a", b"part")]))
    assert groups.by_name["g"].members["a"].assignment == b"part"
    groups.change(changed("g", GroupPhase.COMPLETING))
    assert groups.by_name["g"].members["a"].assignment == b""
