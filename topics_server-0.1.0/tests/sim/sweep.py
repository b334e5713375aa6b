"""Short scripts of everything that the store does, swept: each file call of each as the last one, or as
one that fails.

Owns the scripts and the kinds of failure.  `SWEEPS` has every pair of them, and recovery with each kind.
"""

import errno
from collections.abc import Callable
from typing import Any

from .files import Cut, Fault
from .script import append, delete, maintain, plain, put, work_off
from .space import check_rest
from .world import World

FAR = 1000
"""Calls that fail where a disk fails for ever."""


def sealed(world: World) -> None:
    """Enough records that runs are full, then their seal, step by step."""
    for _ in range(4):
        append(world, 4)
    maintain(world)
    append(world, 2)
    maintain(world)


def checkpointed(world: World) -> None:
    """A checkpoint with a sealed run, then more log after it, twice."""
    sealed(world)
    maintain(world, checkpoint=True)
    append(world, 3)
    world.settle()
    maintain(world, checkpoint=True)
    append(world, 1)


def deleted(world: World) -> None:
    """Deletes of hot and of sealed records, flips, and the log trimmed after them."""
    sealed(world)
    delete(world, 5)
    world.settle()
    maintain(world)
    delete(world, 13)
    world.settle()
    maintain(world, checkpoint=True)
    maintain(world, checkpoint=True)
    append(world)


def purged(world: World) -> None:
    """Most of a sealed run is deleted, so that it is rewritten; then all of it, so that it is
    dropped."""
    sealed(world)
    delete(world, 8)
    world.settle()
    maintain(world)
    delete(world, 1000)
    world.settle()
    maintain(world)
    maintain(world, checkpoint=True)


def evicted(world: World) -> None:
    """A cap of two: each write evicts, whole runs die and are dropped."""
    put(world, "disk", cap_records=2)
    sealed(world)
    maintain(world, checkpoint=True)
    append(world, 3)


def expired(world: World) -> None:
    """Records expire between the events of the log."""
    put(world, "disk", ttl_ms=50)
    append(world, 4)
    world.pass_time(40)
    append(world, 4)
    world.pass_time(20)
    delete(world, 6)
    sealed(world)
    world.pass_time(60)
    maintain(world)
    append(world)


def switched(world: World) -> None:
    """Every class after every other, each with records and a seal of its own."""
    for durability in ("fsync", "ephemeral", "disk", "fsync", "disk", "ephemeral", "fsync"):
        put(world, durability)
        append(world, 3)
        maintain(world, checkpoint=durability == "disk")


def recreated(world: World) -> None:
    """The same name, another instance, in one turn and over a checkpoint."""
    sealed(world)
    world.traffic.delete_topic("a")
    world.traffic.append_some("a", 3, None)
    world.end_turn()
    world.settle()
    maintain(world, checkpoint=True)
    world.traffic.delete_topic("a")
    world.end_turn()
    world.settle()
    put(world, "fsync")
    append(world, 2)


def erased(world: World) -> None:
    """A segment of two topics: one loses records, and the live ones move before the response; then
    the other does, and the live ones move again."""
    for name in "ab":
        world.traffic.append_some(name, 3, None)
    append(world, 1)
    maintain(world, checkpoint=True)
    world.traffic.delete_some("a", 4, None, erase=True)
    world.end_turn()
    maintain(world)
    append(world, 1)
    world.settle()
    maintain(world, checkpoint=True)
    world.traffic.delete_topic("b")
    world.end_turn()
    maintain(world)
    check_rest(world)


def rotated(world: World) -> None:
    """More log than a file holds, with records larger than most of it."""
    for size in (4080, 40_000, 64 << 10, 15, 64 << 10, 100):
        world.traffic.append_sized("a", size)
        world.end_turn()
    world.settle()
    maintain(world, checkpoint=True)
    world.traffic.append_sized("a", 64 << 10)
    world.end_turn()


def stopped(world: World) -> None:
    """A clean stop: its seals, its checkpoint, its mark."""
    put(world, "ephemeral")
    append(world, 3)
    put(world, "disk")
    append(world, 9, "k1")
    assert world.process.stop() or world.files.faults


def forwarded(world: World) -> None:
    """Copies in a chain, of sealed and of hot records; a source that loses what was not copied."""
    world.traffic.connect("r1", "a", "b", guarantee="exactly_once")
    world.traffic.connect("r2", "b", "c", filter=("tag", "Glob", "x*"))
    world.end_turn()
    append(world, 4)
    work_off(world)
    put(world, "disk", cap_records=2)
    append(world, 5)
    maintain(world, checkpoint=True)
    work_off(world)
    world.traffic.connect("r1", "a", "b", preserve_node=False)
    append(world, 2)
    world.traffic.delete_topic("a")
    world.end_turn()


def forwarded_to_memory(world: World) -> None:
    """Copies that are in memory only, and their cursor, which is not."""
    world.traffic.put_class("b", "ephemeral")
    world.traffic.connect("r1", "a", "b")
    world.end_turn()
    for _ in range(3):
        append(world, 2)
        work_off(world)
    maintain(world, checkpoint=True)
    append(world, 1)
    work_off(world)


def ringed(world: World) -> None:
    """A ring of three and a pair: a record written to one topic is once in each, and then nothing
    more is copied. (§6.1)"""
    for name in "abc":
        world.traffic.put_class(name, "fsync")
    for source, dest in ("ab", "bc", "ca"):
        world.traffic.connect(source + dest, source, dest, allow_cycle=True)
    world.end_turn()
    for name in "abc":
        world.traffic.append_some(name, 2, None)
        _all_around(world)
    maintain(world, checkpoint=True)
    world.traffic.delete_topic("a")
    world.traffic.connect("cb", "c", "b", allow_cycle=True)
    for name in "bc":
        world.traffic.append_some(name, 2, None)
        _all_around(world)


def _all_around(world: World) -> None:
    """Copies in class fsync are forwarded once they are durable."""
    world.end_turn()
    for _ in range(4):
        world.settle()
        work_off(world)


def _queue(world: World, **fields: Any) -> None:
    """The topic of the story, recreated as a queue."""
    world.traffic.delete_topic("a")
    world.traffic.put_class("a", "disk", type="queue", lease_ms=100, **fields)
    append(world, 6)
    world.settle()


def worked(world: World) -> None:
    """Durable leases: claimed, returned, extended, expired and acked, over two checkpoints."""
    _queue(world, leases_durable=True)
    traffic = world.traffic
    for node in ("n1", "n2"):
        traffic.claim("a", node, 2, None)
        world.end_turn()
    traffic.nack("a", "n1", [1], None, 5000)
    traffic.nack("a", "n2", [3], None, 0)
    traffic.extend("a", "n2", [4], None, 60_000)
    world.end_turn()
    maintain(world, checkpoint=True)
    traffic.ack("a", "n2", [4], None)
    world.end_turn()
    world.settle()
    world.pass_time(101)
    traffic.claim("a", "n1", 3, None)
    world.end_turn()
    maintain(world, checkpoint=True)
    traffic.ack("a", "n1", [2, 3], None)
    world.end_turn()


def worked_in_memory(world: World) -> None:
    """Leases that are not durable, then are, then are not."""
    _queue(world)
    for leases_durable in (True, False):
        world.traffic.claim("a", "n1", 2, None)
        world.traffic.put_class(
            "a", "disk", type="queue", lease_ms=100, leases_durable=leases_durable
        )
        world.end_turn()
        world.traffic.claim("a", "n2", 1, None)
        world.traffic.extend("a", "n1", [1], None, 1000)
        world.end_turn()
        world.pass_time(101)
        maintain(world, checkpoint=True)


def buried(world: World) -> None:
    """Dead letters from memory and from a disk that has to be waited for, into a topic that they
    create, acked jobs among them."""
    _queue(world, max_deliveries=1, dead_letter="c", leases_durable=True)
    for _ in range(2):
        world.traffic.claim("a", "n1", 3, None)
        world.traffic.nack("a", "n1", [1, 2, 4, 5], None, 0)
        world.end_turn()
        world.traffic.claim("a", "n2", 1, None)
        world.traffic.ack("a", "n1", [3], None)
        world.end_turn()
        world.settle()
        maintain(world, checkpoint=True)
        world.files.cold = True
        world.pass_time(101)


def stopped_at_work(world: World) -> None:
    """A clean stop keeps leases that a crash would take."""
    _queue(world)
    world.traffic.claim("a", "n1", 2, None)
    world.traffic.claim("a", "n2", 2, 60_000)
    world.traffic.nack("a", "n1", [1], None, 5000)
    world.end_turn()
    assert world.process.stop() or world.files.faults


STORIES = (
    *(
        sealed,
        checkpointed,
        deleted,
        purged,
        evicted,
        expired,
        switched,
        recreated,
        erased,
        rotated,
    ),
    *(
        stopped,
        forwarded,
        forwarded_to_memory,
        ringed,
        worked,
        worked_in_memory,
        buried,
        stopped_at_work,
    ),
)


# -- the sweep -------------------------------------------------------------------------------

FAULTS: dict[str, tuple[Fault, int]] = {
    "eio": (Fault(errno.EIO), 1),
    "eio-ever": (Fault(errno.EIO), FAR),
    "enospc": (Fault(errno.ENOSPC), 1),
    "short": (Fault(0), 1),
}
"""What the call does, and how many in a row."""
STOPS = ("kill", "cut")
MODES = (*STOPS, *FAULTS)
BY_NAME = {story.__name__: story for story in STORIES}
SWEEPS = tuple(f"{name}/{mode}" for name in (*BY_NAME, "recovery") for mode in MODES)


def swept(name: str, *, first: int = 0, stride: int = 1) -> int:
    """Sweep one script with one kind of failure; returns at how many calls.

    Args:
        first, stride: Of its calls, those that are tried.

    Raises:
        AssertionError: One line with the call.
    """
    script, mode = name.split("/")
    played = _recovered if script == "recovery" else _played
    total = _calls_of_recovery() if script == "recovery" else calls_of(BY_NAME[script])
    points = range(first, total, stride)
    for at in points:
        try:
            played(script, at, mode)
        except Exception as why:
            line = f"{name} at call {at}: {type(why).__name__}: {why}"
            raise AssertionError(line[:1500]) from why
    return len(points)


def calls_of(script: Callable[[World], None]) -> int:
    """File calls of a script that nothing disturbs."""
    world = plain(7)
    world.start()
    put(world, "disk")
    before = world.files.calls
    script(world)
    return world.files.calls - before


def _played(name: str, at: int, mode: str) -> None:
    world = plain(7)
    world.start()
    put(world, "disk")
    _disturb(world, at, mode)
    try:
        BY_NAME[name](world)
    except Cut:
        world.files.cut_at = None
    world.crash(mode if mode in STOPS else STOPS[at % 2])
    append(world)
    world.settle()


def _disturb(world: World, at: int, mode: str) -> None:
    """Let the call after `at` more be the last one, or fail."""
    at += world.files.calls
    if mode in STOPS:
        world.files.cut_at = at
    else:
        fault, count = FAULTS[mode]
        world.files.faults |= dict.fromkeys(range(at + 1, at + 1 + count), fault)


def _before_recovery() -> World:
    world = plain(7)
    world.start()
    put(world, "disk")
    checkpointed(world)
    delete(world, 3)
    append(world, 2)
    return world


def _calls_of_recovery() -> int:
    world = _before_recovery()
    world.crash("cut", disturb=lambda: None)
    return world.recovery_calls


def _recovered(name: str, at: int, mode: str) -> None:
    world = _before_recovery()
    world.crash("cut", disturb=lambda: _disturb(world, at, mode))
    append(world)
    world.settle()
    world.crash("cut", disturb=lambda: None)
