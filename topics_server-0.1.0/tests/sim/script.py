"""Worlds that follow a script: one topic, `a`, one class, one size, small limits."""

from .traffic import Style
from .world import World

PLAIN = Style(
    names=("a",),
    classes=("disk",),
    sizes=(100,),
    caps=(0,),
    ttls_ms=(0,),
    segment_max_records=8,
    checkpoint_bytes=1 << 20,
    harsh=False,
    discards=("old",),
)


def plain(seed: int = 7) -> World:
    """A world in which only the steps of a script happen."""
    return World(seed, PLAIN)


def append(world: World, count: int = 1, key: str | None = None) -> None:
    world.traffic.append_some("a", count, key)
    world.end_turn()


def delete(world: World, before_seq: int) -> None:
    world.traffic.delete_some("a", before_seq, None)
    world.end_turn()


def maintain(world: World, *, checkpoint: bool = False) -> None:
    world.process.step_maintenance(checkpoint=checkpoint)
    world.process.finish_maintenance()


def work_off(world: World) -> None:
    """Let routers copy until nothing is left to copy."""
    world.process.work_off()
    while world.process.owes:
        world.process.work_off()
        while world.process.reading:
            world.process.hand_over(0)


def put(world: World, durability: str, **fields: int) -> None:
    world.traffic.put_class("a", durability, **fields)
    world.end_turn()
    world.settle()
