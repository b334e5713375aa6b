"""Names of groups, and what a group refuses."""

import pytest

from topics.protocol.model.errors import ErrorCode
from topics.protocol.model.groups import (
    GroupFault,
    GroupMember,
    GroupRefusal,
    require_group_name,
)


@pytest.mark.parametrize("name", ["g", "with space/and #", "é" * 127, "x" * 255])
def test_a_name_is_any_text_of_1_to_255_bytes(name: str) -> None:
    assert require_group_name(name) == name


@pytest.mark.parametrize("name", ["", "x" * 256, "é" * 128])
def test_no_other_text_is_one(name: str) -> None:
    with pytest.raises(GroupRefusal) as refusal:
        require_group_name(name)
    assert refusal.value.fault is GroupFault.INVALID_GROUP


def test_a_refusal_has_the_code_of_its_fault() -> None:
    """And that of a bad request where none is its own. (§0.6)"""
    assert GroupRefusal(GroupFault.NO_GROUP, "").code is ErrorCode.GROUP_NOT_FOUND
    assert GroupRefusal(GroupFault.NOT_EMPTY, "").code is ErrorCode.GROUP_NOT_EMPTY
    assert GroupRefusal(GroupFault.REBALANCING, "").code is ErrorCode.INVALID_REQUEST


def test_a_member_has_metadata_for_the_protocols_that_it_knows() -> None:
    member = GroupMember("m", None, "c", "h", 1, 1, (("range", b"r"), ("sticky", b"s")))
    assert member.metadata_of("sticky") == b"s"
    assert member.metadata_of("other") == b""
    assert member.size_bytes > 2 + len("rangesticky")
