"""Restoring: the directory that comes of it, and everything that is refused."""

import pytest
from sim.files import SimFiles

from topics.backup.layout import HEADER
from topics.backup.restore import STARTS_LOST, restore, verify
from topics.protocol.model.errors import Corrupt, Unusable
from topics.store import identity
from topics.store.inspect import inspect
from topics.store.layout import FAILED_NAME

from .places import backups, copies, damaged, lived, placed, restored, seqs


def test_a_restored_directory_has_a_history_of_its_own() -> None:
    """Epochs, which are made of it, differ from those of the other history, and no lease of the two
    is the same. (§1.4, decisions 76 and 100)"""
    world = lived()
    target = restored(placed(world))

    before, after = identity.read(world.files), identity.read(target)

    assert before is not None
    assert after is not None
    assert before.history == before.instance == after.instance != after.history
    assert after.incarnation > STARTS_LOST
    found, _ = world.shown_by(target.kill())
    assert found["a"].epoch.startswith(after.history.hex())


def test_a_start_says_what_may_be_lost() -> None:
    """What was written behind the point is a gap with the reason `crash`, also on the machine on
    which the backup was taken: the numbers that the lost records had are not given again."""
    world = lived()
    target = restored(placed(world))
    assert FAILED_NAME in target.names()

    found, _ = world.shown_by(target.kill())

    reserved = world.process.engine.state.topics["a"].reserved_through
    assert found["a"].head_seq == reserved
    assert found["a"].holes == ((21, reserved),)


def test_a_stopped_directory_is_restored_without_a_loss() -> None:
    """Behind the mark of a clean stop nothing was written, so nothing can be missing."""
    world = lived()
    assert world.process.stop()
    place = placed(world)

    found, _ = world.shown_by(restored(place).kill())

    assert (found["a"].head_seq, found["a"].holes) == (20, ())


def test_a_restored_directory_verifies() -> None:
    """Every file of it, as a start and `topics inspect` read them."""
    target = restored(placed(lived()))

    assert inspect(target).problems == []


def test_a_directory_that_holds_something_is_refused() -> None:
    """Nothing is overwritten, and nothing is added."""
    place, target = placed(lived()), SimFiles(1)
    target.put("notes.txt", b"mine")

    with pytest.raises(Unusable, match=r'not empty: it holds "notes.txt"'):
        restore(place, None, target)

    assert target.names() == ["notes.txt"]


def test_the_backup_can_be_chosen() -> None:
    """By its number; there is no other than those listed."""
    world = lived()
    place = placed(world)

    assert seqs(world, restored(place, 1)) == [*range(5, 21)]
    with pytest.raises(Unusable, match="there is no backup 7"):
        restored(place, 7)
    with pytest.raises(Unusable, match="there is no backup here"):
        restored(SimFiles(9))


def test_no_flipped_bit_of_a_place_is_restored() -> None:
    """Of the backup file and of the copies alike: a restore ends with the damage, and its directory
    has no identity, or no record differs. The one byte region without a meaning is what pads the
    header."""
    world = lived()
    place = placed(world)
    [backup], good = backups(place), seqs(world, restored(place))
    for name in (backup, *copies(place)):
        size = len(place.tree()[name])
        for at in {*range(0, size, max(size // 60, 1)), HEADER.size - 1, size - 1}:
            bad, target = damaged(place, name, at), SimFiles(300)
            try:
                restore(bad, None, target)
            except Corrupt:
                assert "topics.id" not in target.names()
                assert verify(bad)[1]
            else:
                assert seqs(world, target) == good


def test_a_copy_that_is_missing_is_named() -> None:
    """Verifying tells every damage, and which file."""
    place = placed(lived())
    name = copies(place)[0]
    place.remove(name)

    manifests, damages = verify(place)

    assert len(manifests) == 1
    assert any(name in damage.path for damage in damages)
    with pytest.raises((Corrupt, OSError)):
        restored(place)
