"""What a place holds, and what of it goes."""

import pytest
from sim.files import SimFiles
from sim.script import append, delete, maintain

from topics.backup.catalog import Catalog
from topics.backup.restore import verify
from topics.backup.take import take
from topics.protocol.model.errors import Corrupt, Unusable

from .places import backups, copies, damaged, lived, placed, restored, seqs


def test_the_newest_are_kept() -> None:
    """With the copies that they need, and no other."""
    world = lived()
    place = placed(world)
    for _ in range(3):
        append(world, 8)
        delete(world, world.process.engine.state.topics["a"].head_seq)
        world.settle()
        maintain(world, checkpoint=True)
        maintain(world, checkpoint=True)
        _, removed = take(world.files.other(), place, keep=2)

    assert removed == [2]
    assert backups(place) == ["0000000003.backup", "0000000004.backup"]
    manifests, damages = verify(place)
    needed = {part.copy for manifest in manifests for part in manifest.segments}
    assert (damages, set(copies(place))) == ([], needed)


def test_nothing_is_removed_beside_a_backup_that_does_not_verify() -> None:
    """Which copies it needs is unknown, and its number is not given again."""
    world = lived()
    place = damaged(placed(world), "0000000001.backup", 20)
    held = copies(place)
    delete(world, 100)
    world.settle()
    maintain(world, checkpoint=True)
    maintain(world, checkpoint=True)

    manifest, _ = take(world.files.other(), place, keep=1)

    assert manifest.number == 2
    assert set(held) <= set(copies(place))
    assert backups(place) == ["0000000001.backup", "0000000002.backup"]


def test_a_newest_backup_that_does_not_verify_is_not_passed_over() -> None:
    """Without a number the newest is meant, and an older one would be taken for it."""
    world = lived()
    place = placed(world)
    append(world)
    take(world.files.other(), place)
    place = damaged(place, "0000000002.backup", 20)

    with pytest.raises(Corrupt, match=r"0000000002\.backup"):
        restored(place)
    assert seqs(world, restored(place, 1)) == [*range(5, 21)]
    with pytest.raises(Corrupt, match=r"0000000002\.backup"):
        restored(place, 2)


def test_another_data_directory_has_another_place() -> None:
    """The copies of two directories would be told apart, but their backups not."""
    place, other = placed(lived()), lived()
    catalog = Catalog(place.kill())
    catalog.enter(create=False)

    with pytest.raises(Unusable, match="another data directory"):
        catalog.require("00" * 8, other.files.path)


def test_an_empty_place_has_no_backup() -> None:
    """It may be written to, and there is nothing to read."""
    Catalog(SimFiles(1)).enter(create=True)
    with pytest.raises(Unusable, match="there is no backup here"):
        Catalog(SimFiles(1)).enter(create=False)
