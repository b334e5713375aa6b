"""What a repair would do, and that finding it out changes nothing."""

import pytest

from topics.protocol.model.errors import Unusable
from topics.repair.plan import plan

from .ruins import flip, header_of, left, lived, segments


def test_only_the_damaged_records_are_named() -> None:
    """Of a run with damage in one block, those that lie in it; deleted ones are not lost."""
    world = lived()
    files = left(world)
    name = segments(files)[0]
    header = header_of(files, world, name)
    flip(files, name, header.payload_offset + 5)
    before = files.tree()

    found = plan(files)

    assert list(found.segments) == [int(name[:10])]
    assert {lost.topic for lost in found.lost} == {"a"}
    assert min(lost.first_seq for lost in found.lost) == 5
    assert found.cut is None
    assert files.tree() == before


def test_a_segment_that_nothing_refers_to_loses_nothing() -> None:
    """A crash between a seal and its event leaves one; damaged or not, no record is in it alone."""
    world = lived()
    files = left(world)
    files.put("0000000090.seg", b"not a segment")

    found = plan(files)

    assert found.orphans == ["0000000090.seg"]
    assert not found.loses


def test_without_a_checkpoint_there_is_no_repair() -> None:
    """The state is nowhere else: a backup is the way back."""
    world = lived()
    files = left(world)
    for name in [n for n in files.names() if n.endswith(".ckpt")]:
        flip(files, name, 150)

    with pytest.raises(Unusable, match="only a backup helps"):
        plan(files)
