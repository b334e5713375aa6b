"""A disk that refuses one kind of call for ever: every other step of maintenance goes on, and everybody is
answered (I33)."""

import dataclasses
import errno
import re
from collections.abc import Iterator
from typing import Any

import pytest

from topics.protocol.driver.maintenance import ERASE_TRIES, RETRY_MS
from topics.protocol.maintenance.schedule import Schedule
from topics.protocol.maintenance.steps import Task

from .files import Fault
from .invariants import Violation, check
from .script import PLAIN, maintain
from .space import check_rest
from .world import World

STYLE = dataclasses.replace(PLAIN, names=("a", "b", "c"), checkpoint_bytes=8 << 10)
ROUNDS = 40
SPOILED = "read .seg"
STUCK = {
    f"{call} {name}": re.compile(rf"{call} \S*{re.escape(name)}\S*( \S*)?")
    for call, names in {
        "create": (".seg.tmp", ".ckpt.tmp"),
        "allocate": (".seg.tmp",),
        "write": (".seg.tmp", ".ckpt.tmp"),
        "sync": (".seg.tmp", ".ckpt.tmp"),
        "rename": (".seg.tmp", ".ckpt.tmp"),
        "unlink": (".seg", ".wal", ".ckpt"),
    }.items()
    for name in names
}
"""Calls by what they do to which files.  What the log itself is refused makes it read-only."""
NO_CHECKPOINT = ".tmp"
"""Without a segment of what the log holds, or a file of its own, there can be no checkpoint."""


def stuck_world() -> World:
    """Three topics in one segment, of which a delete, an expiry and an erasure leave dead records."""
    world = World(7, STYLE)
    world.start()
    for name in STYLE.names:
        world.traffic.put_class(name, "disk")
        world.traffic.append_some(name, 3, None)
    world.end_turn()
    world.settle()
    maintain(world, checkpoint=True)
    return world


def live(world: World) -> Iterator[int]:
    """Writes, deletes, erasures, topics that come and go, and a round of maintenance after each."""
    for n in range(ROUNDS):
        for name in STYLE.names:
            world.traffic.append_some(name, 2, None)
        world.pass_time(RETRY_MS)
        if n % 3 == 0:
            world.traffic.delete_some("a", world.model.topics["a"].head_seq - 1, None)
        if n % 5 == 0:
            world.traffic.delete_some("b", 2 + n // 2, None, erase=True)
        if n % 8 == 7:
            world.traffic.delete_topic("c")
        world.end_turn()
        world.settle()
        maintain(world)
        world.settle()
        yield n


def check_goes_on(world: World, checkpoints: int) -> None:
    """Checkpoints are taken, the log before them is forgotten, and no erasure waits for longer than its
    tries take. (I33)"""
    process = world.process
    taken = sum(call.startswith("rename") and ".ckpt" in call for call in world.files.log)
    check(taken >= checkpoints, "I33", f"{taken} checkpoints in {ROUNDS} rounds")
    bound = process.limits.wal_file_bytes
    if checkpoints:
        check(process.store.log_bytes < 3 * bound, "I33", f"{process.store.log_bytes} of {bound}")
    for _ in range(ERASE_TRIES):
        process.wait(RETRY_MS << ERASE_TRIES)
        maintain(world)
        world.settle()
    waiting = list(process.unanswered.values())
    check(not waiting, "I33", f"nobody answers {waiting[:1]}")


def spoil_seals(world: World) -> None:
    """No text of a segment can be read for another one."""
    seal = world.process.store.seal

    def spoiled(entries: Any) -> Any:
        world.files.spoil = "error"
        try:
            return seal(entries)
        finally:
            world.files.spoil = None

    world.process.store.seal = spoiled  # type: ignore[method-assign]


def lived(kind: str, error: int) -> World:
    """A world on a disk that refuses one kind of call, and then no more."""
    world = stuck_world()
    if kind == SPOILED:
        spoil_seals(world)
    else:
        world.files.stuck, world.files.stuck_fault = STUCK[kind], Fault(error)
    before = len(world.files.log)
    for _ in live(world):
        assert not world.process.failed
    named = [call for call in world.files.log[before:] if call.startswith("rename")]
    is_possible = NO_CHECKPOINT not in kind
    check_goes_on(world, 3 if is_possible else 0)
    if ".ckpt" in kind:
        check(any(".seg" in call for call in named), "I33", "nothing is sealed")
    world.files.stuck = None
    vars(world.process.store).pop("seal", None)
    world.process.wait(60 * RETRY_MS)
    check_rest(world)
    return world


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("kind", STUCK)
def test_what_a_disk_refuses_for_ever_stops_nothing_else(kind: str, error: int) -> None:
    """Checkpoints, seals and erasures; and all is there after a power loss. (§5, §8.2)"""
    lived(kind, error).crash("cut")


def test_segments_that_cannot_be_read_stop_nothing_else() -> None:
    """Nobody is answered that bytes are gone that were not rewritten. (§0.5)"""
    lived(SPOILED, 0)


def a_step_that_fails_ends_its_round(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Schedule, "_try", lambda self, step: step)


def erasures_are_tried_for_ever(patch: pytest.MonkeyPatch) -> None:
    def stubborn(self: Schedule, topic_ids: object) -> Task:
        yield from self.rewrite_for(topic_ids)  # type: ignore[arg-type]
        self._host.erase_later()
        raise OSError(errno.EBUSY, "in use")

    patch.setattr(Schedule, "_erase", stubborn)


@pytest.mark.parametrize(
    "sow", [a_step_that_fails_ends_its_round, erasures_are_tried_for_ever], ids=lambda s: s.__name__
)
def test_a_sown_bug_is_found(sow: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the invariant. (I33)"""
    sow(monkeypatch)  # type: ignore[operator]
    with pytest.raises(Violation) as found:
        lived("unlink .seg", errno.EIO)
    assert found.value.invariant == "I33"
