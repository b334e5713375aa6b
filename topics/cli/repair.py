"""`topics inspect --repair` and `--quarantine`: what would be done, and with `--yes`, doing it."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from topics.cli.exits import CORRUPT, OK, counted
from topics.cli.offline import unused
from topics.cli.printing import say
from topics.protocol.model.names import DONE, partition_of

if TYPE_CHECKING:
    from topics.repair.plan import Plan


def repaired(data_dir: Path, *, may_lose: bool, is_agreed: bool) -> int:
    """Print the plan, and follow it where that is agreed to; returns the exit code: 0 where nothing
    is damaged, or no longer."""
    from topics.repair.perform import perform
    from topics.repair.plan import plan
    from topics.store.files import OsFiles

    # The files' own lock is taken when a repair starts the store; this one keeps servers away
    # while the plan is made.
    with unused(data_dir):
        files = OsFiles(data_dir)
        found = plan(files)
    for line in _lines(found, may_lose=may_lose):
        say(line)
    if not found.mends and not found.loses:
        return OK if found.report.ok else CORRUPT
    is_damaged = found.loses or not found.report.ok
    if not is_agreed:
        if found.mends or (may_lose and found.loses):
            say("nothing was changed; --yes does it")
        return CORRUPT if is_damaged else OK
    try:
        kept = perform(files, found, now_ms=int(time.time() * 1000), may_lose=may_lose)
    finally:
        files.close()
    for name in kept:
        say(f"kept as {name}")
    with unused(data_dir):
        left = plan(OsFiles(data_dir))
    if left.report.ok:
        say("done; everything verifies")
        return OK
    for problem in left.report.problems:
        say(f"topics: {problem.path}: byte {problem.offset}: {problem.what}", err=True)
    return CORRUPT


def _lines(found: "Plan", *, may_lose: bool) -> Iterator[str]:
    for name in found.torn:
        yield f"{name}: the torn end of a log, which nothing reads: removed"
    for name in found.unfinished:
        yield f"{name}: not finished: removed"
    for name in found.checkpoints:
        yield f"{name}: does not verify, and another one does: taken out"
    for name in found.orphans:
        yield f"{name}: nothing refers to it: taken out"
    for name in found.flags:
        yield f"{name}: bytes that are no delete flag: the nearer value is written"
    for number in found.stale:
        yield f"{number:010d}.seg: damaged in what is not used any more: the rest of it is moved"
    if found.report.torn_bytes:
        yield f"{found.report.torn_bytes:,} bytes of torn log: set aside, as a start does"
    yield from found.remarks
    for number, runs in found.segments.items():
        bad = sum(run.lost_rows for run in runs)
        yield f"{number:010d}.seg: {counted(bad, 'row')} cannot be read: GIVEN UP"
    if found.cut is not None:
        cut = found.cut
        yield (
            f"{cut.file_number:010d}.wal: the log ends with batch {cut.batch}, at byte "
            f"{cut.offset}; everything behind it: GIVEN UP, in a history of its own"
        )
    for lost in found.lost:
        topic, partition = partition_of(lost.topic)
        where = f", partition {partition}" if partition else ""
        if partition == DONE:
            where = ", jobs that ended"
        yield f'  records {lost.first_seq:,} to {lost.last_seq:,} of topic "{topic}"{where}'
    if found.loses and not may_lose:
        yield "what is given up needs --quarantine; try a backup first"
    if not found.mends and not found.loses:
        yield "nothing to repair"
