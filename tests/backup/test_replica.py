"""A node's store of another one that goes on running: every kill, and both ways to the files."""

from contextlib import suppress

import pytest
from sim.files import Cut, SimFiles
from sim.script import append

from topics.backup.replica import replicate
from topics.protocol.model.errors import Corrupt
from topics.store import identity
from topics.store.inspect import inspect
from topics.store.layout import FAILED_NAME, segment_name

from .places import copies, damaged, instance_of, lived, seqs


def replica(
    source: SimFiles, place: SimFiles, target: SimFiles, *, history: bytes | None = None
) -> None:
    known = instance_of(source) if history is None else history
    replicate(
        source.other(), place, target, known, link=lambda *_: False, progress=lambda size: None
    )


def test_it_goes_on_with_the_history_and_nothing_is_lost() -> None:
    """The log that nodes share has what followed: no mark of a loss, and the same epochs. (§6)"""
    world = lived()
    target = SimFiles(200)
    replica(world.files, SimFiles(100), target)

    before, after = identity.read(world.files), identity.read(target)

    assert before is not None
    assert after is not None
    assert (before.history, before.instance) == (after.history, after.instance)
    assert FAILED_NAME not in target.names()
    assert inspect(target.kill()).ok
    assert seqs(world, target) == seqs(world, world.files)


def test_a_linked_copy_gets_its_flags_and_is_not_copied() -> None:
    """A snapshot takes the space of one store; what was deleted stays so."""
    world = lived()
    place, target = SimFiles(100), SimFiles(200)
    linked = []

    def link(copy: str, name: str) -> bool:
        target.inodes[name] = place.inodes[copy]
        target.durable_names[name] = place.inodes[copy]
        linked.append(name)
        return True

    known = instance_of(world.files)
    living = replicate(
        world.files.other(), place, target, known, link=link, progress=lambda size: None
    )

    assert linked
    assert linked[0] == segment_name(int(linked[0][:10]))
    assert seqs(world, target) == seqs(world, world.files)
    assert living.records == len(seqs(world, world.files))


def test_a_kill_at_any_call_leaves_no_half_store_and_the_next_attempt_goes_on() -> None:
    """A directory without its identity is no store; one with it has everything. (§6)"""
    world = lived()
    expected = seqs(world, world.files)
    whole = SimFiles(200)
    replica(world.files, SimFiles(100), whole)
    calls = whole.calls
    for cut_at in range(1, calls + 1):
        place, target = SimFiles(100), SimFiles(200)
        target.cut_at = cut_at
        with suppress(Cut):
            replica(world.files, place, target)
        found = target.kill()
        if "topics.id" in found.names():
            assert seqs(world, found) == expected

        again = SimFiles(300)
        replica(world.files, place.kill(), again)
        assert seqs(world, again) == expected


def test_an_interrupted_copy_is_used_again() -> None:
    """Only what is not there is read of the other node."""
    world = lived()
    place, target = SimFiles(100), SimFiles(200)
    target.cut_at = 1
    with pytest.raises(Cut):
        replica(world.files, place, target)
    there = place.kill()
    kept = copies(there)
    assert kept
    bytes_read: list[int] = []

    replicate(
        world.files.other(),
        there,
        SimFiles(300),
        instance_of(world.files),
        link=lambda *_: False,
        progress=bytes_read.append,
    )

    segments = sum(len(world.files.tree()[name[:10] + ".seg"]) for name in kept)
    assert sum(bytes_read) < segments


def test_a_backup_that_another_node_gave_does_not_stand_in_the_way() -> None:
    """The node that is asked next has another instance."""
    place = SimFiles(100)
    replica(lived().files, place, SimFiles(200))
    other = lived()
    append(other, 1)

    target = SimFiles(300)
    replica(other.files, place.kill(), target)

    assert seqs(other, target) == seqs(other, other.files)


def test_a_store_of_another_history_is_refused() -> None:
    target = SimFiles(200)
    with pytest.raises(OSError, match="its history is"):
        replica(lived().files, SimFiles(100), target, history=b"another!")
    assert "topics.id" not in target.names()


def test_damage_at_the_other_node_is_no_store_here() -> None:
    world = lived()
    name = next(name for name in world.files.names() if name.endswith(".seg"))
    source = damaged(world.files, name, world.files.tree()[name].index(b'"$seq"'))
    target = SimFiles(200)

    with pytest.raises(OSError, match="does not verify") as raised:
        replica(source, SimFiles(100), target)

    assert isinstance(raised.value.__cause__, Corrupt)
    assert "topics.id" not in target.names()
