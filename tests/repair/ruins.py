"""Damaged directories of a small world."""

from sim.files import SimFiles
from sim.model import Found
from sim.process import Process
from sim.script import append, delete, maintain, plain
from sim.world import START_MS, World

from topics.protocol.model.limits import Limits
from topics.store import segment
from topics.store.store import DiskStore

NOW_MS = START_MS + 1_000_000


def lived(*, size: int = 100) -> World:
    """Sixteen records sealed in two segments, the first four deleted, and four in the log; killed."""
    world = plain()
    world.start()
    for _ in range(4):
        append(world, 4)
    maintain(world)
    delete(world, 5)
    world.settle()
    maintain(world, checkpoint=True)
    append(world, 4)
    world.settle()
    return world


def left(world: World) -> SimFiles:
    """Its directory after the process was killed, and everything on the disk."""
    files = world.files.kill()
    files.settle()
    return files


def segments(files: SimFiles) -> list[str]:
    return [name for name in files.names() if name.endswith(".seg")]


def flip(files: SimFiles, name: str, at: int) -> None:
    data = bytearray(files.tree()[name])
    data[at] ^= 4
    files.put(name, bytes(data))


def header_of(files: SimFiles, world: World, name: str) -> segment.SegmentHeader:
    return segment.read_header(
        files.open(name),
        name,
        number=int(name[:10]),
        instance=bytes.fromhex(world.process.store.instance_id),
    )


def shown(world: World, files: SimFiles) -> Found:
    """The topic as a start of the directory shows it."""
    recovery = world.recovery
    world.clock_ms = max(world.clock_ms, NOW_MS)
    found, _ = world.shown_by(files.kill())
    world.recovery = recovery
    return found["a"]


def starts(files: SimFiles) -> Process:
    process = Process(
        DiskStore(files, wal_file_bytes=64 << 10, reserve_bytes=64 << 10),
        Limits(),
        writing=lambda: None,
        wrote=lambda lsn: None,
    )
    process.recover(NOW_MS)
    return process
