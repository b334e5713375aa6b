"""One point of a log, read while it grows."""

import pytest
from sim.script import append, maintain

from topics.backup.point import LogFollower, Moved, read_point
from topics.store.layout import log_name

from .places import instance_of, lived


def test_the_log_is_followed() -> None:
    """What is written between two calls is part of the second, across log files."""
    world = lived()
    follower = LogFollower(world.files, instance_of(world.files))
    follower.follow()
    first = follower.point().position
    for _ in range(60):
        append(world, 9)
        world.settle()
    follower.follow()

    second = follower.point()

    assert second.position.batch > first.batch
    assert second.position.file_number > first.file_number
    assert [log.number for log in second.logs] == [
        *range(second.logs[0].number, second.position.file_number + 1)
    ]
    assert not second.clean


def test_a_segment_that_is_gone_is_missed_only_where_it_is_needed() -> None:
    """It may have been dropped behind the checkpoint, which the log says."""
    world = lived()
    read: set[int] = set()

    def gone(number: int) -> None:
        raise FileNotFoundError(number)

    with pytest.raises(Moved):
        read_point(world.files, instance_of(world.files), gone, seen=read)
    assert read == set()


def test_the_end_of_a_stopped_log_is_its_mark() -> None:
    """The point is clean, and its last file ends where it does."""
    world = lived()
    maintain(world)
    assert world.process.stop()
    files = world.files

    point = read_point(files, instance_of(files), lambda number: None, seen=set())

    assert point.clean
    last = point.logs[-1]
    assert last.used == last.size_bytes == len(files.tree()[log_name(last.number)])
