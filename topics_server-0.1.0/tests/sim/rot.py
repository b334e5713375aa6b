"""Damage between two processes, in copies of a world's directory: none of it may be accepted.

Owns which bytes change and what a start may make of them; refuses to know what they mean.  The world
continues with the directory as it was.
"""

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from topics.protocol.model.errors import Corrupt
from topics.store import identity
from topics.store.checkpoint import Checkpoints
from topics.store.layout import (
    BATCH_HEADER,
    CHECKPOINT_HEADER,
    checkpoint_name,
    log_name,
    numbers,
    seal_header,
)
from topics.store.replay import LogBatch, LogWalk

from .files import SimFiles
from .invariants import check
from .model import Found

if TYPE_CHECKING:
    from .world import World


@dataclass(frozen=True)
class Placed:
    """A batch that a later one in the log says to be durable, and its place."""

    name: str
    offset: int
    batch: LogBatch


def check_rot(world: "World") -> None:
    """One of the damages that are always detected. (F12, F14, F18)"""
    rng = random.Random(f"{world.seed} {world.crashes}")
    files = world.files.kill()
    files.settle()
    rng.choice((_check_checkpoint, _check_batch, _check_branch))(world, files, rng)


def _check_checkpoint(world: "World", files: SimFiles, rng: random.Random) -> None:
    """Without its newest checkpoint a directory shows the same: the one before it is still there,
    with the log that it needs."""
    found = numbers(files.names(), "ckpt")
    if not found or found[-1] < 2:
        return
    name = checkpoint_name(found[-1])
    damaged = _damaged(files, name, rng.randrange(CHECKPOINT_HEADER.size), rng)
    try:
        shown, routers = world.shown_by(damaged)
    except Corrupt as why:
        check(False, "F14", f"without its newest checkpoint: {why}")
    expected, expected_routers = world.shown_by(files.kill())
    check(routers == expected_routers, "F14", f"{name} is missed: {routers} {expected_routers}")
    check(_lasting(shown) == _lasting(expected), "F14", f"{name} is missed")


def _lasting(found: dict[str, Found]) -> dict[str, Any]:
    """The state that the log gives from any checkpoint: leases, and the fate of records that were
    in memory only, may be in the newer one alone."""
    return {
        name: (topic.epoch, topic.config, topic.head_seq, topic.texts)
        for name, topic in found.items()
        if topic.config.durability != "ephemeral"
    }


def _check_batch(world: "World", files: SimFiles, rng: random.Random) -> None:
    """A batch that had been durable is not taken for a torn end."""
    placed = _vouched_for(files)
    if placed:
        chosen = rng.choice(placed)
        at = chosen.offset + rng.randrange(BATCH_HEADER.size + chosen.batch.body_bytes)
        _check_refused(world, _damaged(files, chosen.name, at, rng), chosen)


def _check_branch(world: "World", files: SimFiles, rng: random.Random) -> None:
    """A batch of the right number from another history, as after mixing a backup with later files,
    is not replayed."""
    placed = _vouched_for(files)
    if placed:
        chosen = rng.choice(placed)
        data = bytearray(files.tree()[chosen.name])
        header = data[chosen.offset : chosen.offset + BATCH_HEADER.size]
        fields = list(BATCH_HEADER.unpack(header)[:-1])
        fields[10] ^= 1 << rng.randrange(64)
        assert fields[10] != chosen.batch.previous
        data[chosen.offset : chosen.offset + BATCH_HEADER.size] = seal_header(BATCH_HEADER, *fields)
        damaged = files.kill()
        damaged.put(chosen.name, bytes(data))
        _check_refused(world, damaged, chosen)


def _check_refused(world: "World", damaged: SimFiles, chosen: Placed) -> None:
    try:
        world.shown_by(damaged)
    except Corrupt as why:
        check(chosen.name in why.path, "F12", f"{chosen.name} is damaged, not {why.path}")
    else:
        what = f"batch {chosen.batch.number} at {chosen.offset} of {chosen.name}"
        check(False, "F12", f"{what} is damaged, and nobody says so")


def _vouched_for(files: SimFiles) -> list[Placed]:
    known = identity.read(files)
    if known is None:
        return []
    instance = known.instance
    loaded = Checkpoints(files, instance).load()
    walk = LogWalk(files, instance, loaded[1].position if loaded is not None else None)
    walk.open(lambda file: None)
    placed = [
        Placed(log_name(position.file_number), position.offset, batch)
        for position, batch in walk.batches()
    ]
    walk.close()
    vouched = max([0, *(each.batch.synced_through for each in placed)])
    return [each for each in placed if each.batch.number <= vouched]


def _damaged(files: SimFiles, name: str, at: int, rng: random.Random) -> SimFiles:
    damaged = files.kill()
    data = bytearray(damaged.tree()[name])
    data[at] ^= 1 << rng.randrange(8)
    damaged.put(name, bytes(data))
    return damaged
