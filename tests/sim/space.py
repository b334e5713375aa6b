"""Dead space: what the files of a world hold, against the live records.

Owns the look into the files, past the engine's own counting; refuses to know how space is given
back.
"""

from typing import TYPE_CHECKING

import numpy as np

from topics.protocol.driver.maintenance import ERASE_TRIES, RETRY_MS
from topics.protocol.model.records import LIVE
from topics.store.layout import SEGMENT_HEADER, segment_name

from .invariants import check, i34_counters_equal_a_recount

if TYPE_CHECKING:
    from .world import World

ROUNDS = 3
"""Rounds of maintenance after which a world without traffic has come to rest: what a seal merges leaves
dead space to the next."""


def come_to_rest(world: "World") -> bool:
    """Maintenance and nothing else; False if the disk did not let it."""
    process = world.process
    before = process.troubles
    for _ in range(ROUNDS):
        process.step_maintenance(checkpoint=False)
        process.finish_maintenance()
        if not process.failed:
            process.sync()
    return not process.failed and process.troubles == before


def check_rest(world: "World") -> None:
    """What is due has happened once nothing else is in progress: every command that waited for the
    log was answered, also if it failed; a checkpoint that was due was taken, and the log before it
    dropped; dead records have freed their space. (I33 and liveness)"""
    is_at_rest = come_to_rest(world)
    process = world.process
    for _ in range(ERASE_TRIES):
        if not process.unanswered:
            break
        process.wait(RETRY_MS << ERASE_TRIES)  # an erasure that a disk broke off is tried again
        is_at_rest = come_to_rest(world)
    waiting = list(process.unanswered.values())
    check(not waiting, "I33", f"nobody answers {waiting[:1]}")
    if is_at_rest:
        maintenance = process.driver.maintenance
        bound, log_bytes = process.limits.wal_file_bytes, process.store.log_bytes
        is_tried_later = maintenance.schedule.checkpoint_failures > 0
        check(log_bytes < bound or is_tried_later, "I33", f"{log_bytes} of {bound}")
        check(process.driver.commit.is_synced, "I33", "something is unsynced")
        check_space(world)
    i34_counters_equal_a_recount(world)


def check_space(world: "World") -> None:
    """No segment file has less than a quarter of live records, and each of them is needed. (§5)"""
    compaction = world.process.driver.maintenance.schedule.compaction
    live: dict[str, int] = {}
    for topic in world.process.engine.state.topics.values():
        for run in topic.runs:
            if run.ref is None:
                continue
            lo = min(max(topic.gone_through() + 1 - run.first_seq, 0), run.count)
            sizes = run.columns.size[lo:][run.flags[lo:] == LIVE].astype(np.int64)
            name = segment_name(run.ref.segment)
            live[name] = live.get(name, 0) + int((sizes + 1).sum())
    left = {segment_name(segment) for segment in compaction.damaged}
    for name, inode in world.files.inodes.items():
        if name.endswith(".seg") and name not in left and not _is_orphan(world, name):
            whole = SEGMENT_HEADER.unpack_from(inode.cache)[-4]
            told = f"{name}: {live.get(name)} of {whole} live"
            check(name in live and live[name] * 4 >= whole, "I33", told)


def check_erased(world: "World", texts: list[bytes]) -> None:
    """No file holds any of these texts. (§5)"""
    if not texts:
        return
    for name, inode in world.files.inodes.items():
        if not name.endswith(".torn") and not _is_orphan(world, name):
            found = next((text for text in texts if text in inode.cache), None)
            check(found is None, "I34", f"{name} has {(found or b'')[:100]!r}")


def _is_orphan(world: "World", name: str) -> bool:
    """A segment that was written when maintenance was given up, as at a stop: the next start
    removes it."""
    needed = {segment_name(segment) for segment in world.process.engine.state.segments}
    return world.process.gave_up and name.endswith(".seg") and name not in needed
