"""The simulation at length, on all cores: `python -m tests.sim.run`.

Without arguments: 500 worlds that are always the same, 500 that the commit draws, the sweep of every file
call, and every sown bug; CI runs fewer worlds.  With `--seconds` it lives new worlds for that long and adds
a line to LEDGER.md.  With TOPICS_SEED set it lives that one world again.
"""

import argparse
import gc
import os
import random
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import count
from multiprocessing import Pool
from pathlib import Path
from threading import Semaphore

from .mutants import BUGS, find
from .stories import KINDS, commit, story
from .sweep import SWEEPS, swept

LEDGER = Path(__file__).with_name("LEDGER.md")
FIXED = 500
NEW = 500
CRASHES = 6


@dataclass(frozen=True)
class Told:
    """What one job came to; `failure` is a line, or a traceback."""

    operations: int = 0
    crash_points: int = 0
    seeds: int = 0
    failure: str = ""
    cpu_s: float = 0.0


def live(spelling: str) -> Told:
    """One world."""
    begun = time.process_time()
    try:
        world = story(spelling, crashes=CRASHES)
    except AssertionError as why:
        return Told(seeds=1, failure=str(why), cpu_s=time.process_time() - begun)
    cpu_s = time.process_time() - begun
    return Told(world.operations, world.crashes, 1, cpu_s=cpu_s)


def sweep(name: str) -> Told:
    """One story, with every file call of it as the last one or a failing one."""
    begun = time.process_time()
    try:
        points = swept(name)
    except AssertionError as why:
        return Told(failure=f"sweep {name}: {why}", cpu_s=time.process_time() - begun)
    return Told(crash_points=points, cpu_s=time.process_time() - begun)


def sow(name: str) -> Told:
    """One sown bug, which has to be found by an invariant of its own."""
    begun = time.process_time()
    try:
        points = find(BUGS[name])
    except AssertionError as why:
        return Told(failure=f"bug {name}: {why}", cpu_s=time.process_time() - begun)
    return Told(crash_points=points, cpu_s=time.process_time() - begun)


def spellings(first: int, seeds: int) -> Iterator[str]:
    for seed in range(first, first + seeds):
        yield f"{KINDS[seed % len(KINDS)]}:{seed}"


def perform(job: tuple[str, str]) -> Told:
    kind, what = job
    try:
        return {"live": live, "sweep": sweep, "sow": sow}[kind](what)
    except Exception:
        # Not an invariant, and a failure all the same: it is told, and the others go on.
        return Told(failure=f"{kind} {what}: {traceback.format_exc()}")


def jobs_of(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """What there is to do; without an end where seconds are given."""
    drawn = options.first
    if drawn is None:
        word = commit() if options.seconds is None else f"{commit()} {time.time_ns()}"
        drawn = random.Random(word).randrange(10**6, 10**9)
    if options.seconds is not None:
        for seed in count(drawn):
            yield from (("live", each) for each in spellings(seed, 1))
    for name in SWEEPS if options.sweep else ():
        yield "sweep", name
    for name in BUGS if options.bugs else ():
        yield "sow", name
    for each in (*spellings(0, options.fixed), *spellings(drawn, options.new)):
        yield "live", each


def told(results: Iterable[Told]) -> Told:
    """The sum of all; each failure is printed as it comes."""
    totals, failures = [0, 0, 0, 0.0], 0
    for one in results:
        for at, value in enumerate((one.operations, one.crash_points, one.seeds, one.cpu_s)):
            totals[at] += value
        if one.failure:
            failures += 1
            print(one.failure, flush=True)
    operations, crash_points, seeds, cpu_s = totals
    return Told(int(operations), int(crash_points), int(seeds), str(failures or ""), cpu_s)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.sim.run")
    parser.add_argument("--fixed", type=int, default=FIXED, help="worlds that are always the same")
    parser.add_argument("--new", type=int, default=NEW, help="worlds that the commit draws")
    parser.add_argument("--first", type=int, help="seed of the first new world")
    parser.add_argument("--seconds", type=float, help="new worlds for so long; a line in LEDGER.md")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--no-sweep", dest="sweep", action="store_false")
    parser.add_argument("--no-bugs", dest="bugs", action="store_false")
    options = parser.parse_args()
    if (spelling := os.environ.get("TOPICS_SEED")) is not None:
        return replay(spelling)
    begun = time.monotonic()
    with Pool(options.processes, initializer=partial(gc.set_threshold, 100_000, 20, 50)) as pool:
        room = Semaphore(2 * options.processes)
        end = None if options.seconds is None else begun + options.seconds
        results = pool.imap_unordered(perform, paced(jobs_of(options), room, end))
        total = told(released(results, room))
    failures = int(total.failure or 0)
    print(
        f"git={commit()} operations={total.operations} crash_points={total.crash_points} "
        f"seeds={total.seeds} failures={failures} cpu_s={total.cpu_s:.0f} "
        f"wall_s={time.monotonic() - begun:.0f}"
    )
    if options.seconds is not None:
        note(total, failures)
    return int(failures > 0)


def paced(
    jobs: Iterator[tuple[str, str]], room: Semaphore, end: float | None
) -> Iterator[tuple[str, str]]:
    """The jobs, no faster than they are done: there may be no end of them."""
    for job in jobs:
        room.acquire()
        if end is not None and time.monotonic() >= end:
            return
        yield job


def released(results: Iterable[Told], room: Semaphore) -> Iterator[Told]:
    for one in results:
        room.release()
        yield one


def note(total: Told, failures: int) -> None:
    """One line more in the ledger."""
    date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
    row = (date, commit(), f"{total.cpu_s:.0f}", total.operations, total.crash_points)
    cells = " | ".join(str(cell) for cell in (*row, total.seeds, failures))
    with LEDGER.open("a") as ledger:
        ledger.write(f"| {cells} |\n")


def replay(spelling: str) -> int:
    found = live(spelling)
    print(found.failure or f"{spelling}: {found.operations} operations, no failure")
    return int(bool(found.failure))


if __name__ == "__main__":
    sys.exit(main())
