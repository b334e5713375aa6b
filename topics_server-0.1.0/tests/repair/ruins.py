"""Damaged directories of a small world."""

from dataclasses import replace

from sim.files import SimFiles
from sim.model import Found
from sim.process import Process
from sim.script import PLAIN, append, delete, maintain, plain
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


def shared() -> World:
    """Two topics, `a` and `b`, eight records each, sealed in one segment; killed."""
    world = World(7, replace(PLAIN, names=("a", "b")))
    world.start()
    for _ in range(2):
        for name in ("a", "b"):
            world.traffic.append_some(name, 4, None)
            world.end_turn()
        world.settle()
        maintain(world, checkpoint=True)
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


def shown(world: World, files: SimFiles, name: str = "a") -> Found:
    """A topic as a start of the directory shows it."""
    recovery = world.recovery
    world.clock_ms = max(world.clock_ms, NOW_MS)
    found, _ = world.shown_by(files.kill())
    world.recovery = recovery
    return found[name]


def section_of(files: SimFiles, world: World, name: str, number: int) -> tuple[int, int]:
    """Where the columns and the text of one of a segment's runs begin."""
    header = header_of(files, world, name)
    row = segment.read_table(files.open(name), name, header)[number]
    return int(row["section_offset"]), int(row["text_offset"])


def starts(files: SimFiles) -> Process:
    process = Process(
        DiskStore(files, wal_file_bytes=64 << 10, reserve_bytes=64 << 10),
        Limits(),
        writing=lambda: None,
        wrote=lambda lsn: None,
    )
    process.recover(NOW_MS)
    return process
