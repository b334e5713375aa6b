"""Directories and places of backups for these tests: a small world with sealed and hot records."""

from sim.files import SimFiles
from sim.script import append, delete, maintain, plain
from sim.world import World

from topics.backup.restore import restore
from topics.backup.take import take
from topics.store import identity


def lived() -> World:
    """Sixteen records sealed, four of them deleted and that told to the file, and four in the log."""
    world = plain()
    world.start()
    for _ in range(4):
        append(world, 4)
    maintain(world)
    delete(world, 5)
    world.settle()
    maintain(world, checkpoint=True)
    append(world, 4)
    return world


def instance_of(files: SimFiles) -> bytes:
    known = identity.read(files)
    assert known is not None
    return known.instance


def seqs(world: World, files: SimFiles) -> list[int]:
    """Seqs of the live records that a start of a directory shows."""
    recovery = world.recovery
    found, _ = world.shown_by(files.kill())
    world.recovery = recovery
    return sorted(found["a"].texts)


def placed(world: World) -> SimFiles:
    """A place with one backup."""
    place = SimFiles(100)
    take(world.files.other(), place)
    return place


def restored(place: SimFiles, number: int | None = None) -> SimFiles:
    target = SimFiles(200)
    restore(place, number, target)
    return target


def damaged(files: SimFiles, name: str, at: int) -> SimFiles:
    """The same directory with one bit flipped."""
    found = files.kill()
    data = bytearray(found.tree()[name])
    data[at] ^= 4
    found.put(name, bytes(data))
    return found


def copies(place: SimFiles) -> list[str]:
    return [name for name in place.names() if name.endswith(".segment")]


def backups(place: SimFiles) -> list[str]:
    return [name for name in place.names() if name.endswith(".backup")]
