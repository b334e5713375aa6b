"""How often the threads of the server hand on the CPU: `python -m bench.switches [--busy N] [--other CHECKOUT]`.

For each job, by thread and request: voluntary switches, in which the thread waits (for a client, the disk, a lock, the
interpreter), and involuntary ones, in which the kernel takes the CPU from it.  What the kernel counts in
`/proc/PID/task/*/status` is read before a job and after it.  A thread with less than one switch in fifty requests
is left out.
"""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

import click

from bench.serving import Serving, busy, children, serve_topics
from bench.small_requests import (
    append_one,
    append_synced,
    append_together,
    fill_jobs,
    health,
    make_synced,
    read_page,
    work_jobs,
)

JOBS: Final[Sequence[tuple[str, Callable[[Serving], object], Callable[[Serving], int]]]] = (
    ("GET /v0/health", health, health),
    ("append one record, disk", append_one, append_one),
    ("append one record, fsync", make_synced, append_synced),
    ("append one record, disk, 32 clients", append_one, append_together),
    ("read a page of 10", read_page, read_page),
    ("claim 8, ack 8", fill_jobs, work_jobs),
)
LEAST: Final = 0.02


class Switches(NamedTuple):
    """Of threads of one name, for a request."""

    voluntary: float
    involuntary: float


def counted(serving: Serving, job: Callable[[Serving], int]) -> dict[str, Switches]:
    """Switches by the name of the thread, and of each process that the server has started."""
    before = Counter(dict(_switches(serving)))
    requests = job(serving)
    after = Counter(dict(_switches(serving)))
    made: dict[str, list[int]] = {}
    for (_, name, kind), count in after.items():
        made.setdefault(name, [0, 0])[kind] += count
    for (_, name, kind), count in before.items():
        if name in made:
            made[name][kind] -= count
    found = {name: Switches(v / requests, n / requests) for name, (v, n) in made.items()}
    return {name: each for name, each in found.items() if sum(each) >= LEAST}


def _switches(serving: Serving) -> Iterator[tuple[tuple[int, str, int], int]]:
    pid = serving.process.pid
    for process in (pid, *children(pid)):
        for task in Path(f"/proc/{process}/task").iterdir():
            lines = (task / "status").read_text().splitlines()
            fields = dict(line.split(":", 1) for line in lines if ":" in line)
            name = fields["Name"].strip() if process == pid else "process for syncs"
            for kind, field in enumerate(("voluntary_ctxt_switches", "nonvoluntary_ctxt_switches")):
                yield (int(task.name), name, kind), int(fields[field])


@click.command()
@click.option(
    "--busy", "computing", default=0, show_default=True, help="Processes that compute meanwhile."
)
@click.option("--other", type=click.Path(path_type=Path), help="A checkout to compare with.")
def main(computing: int, other: Path | None) -> None:
    """Print a row for each job and thread."""
    checkouts = {"": None} if other is None else {"": None, " (other)": other.absolute()}
    click.echo(f"{'job':38}{'thread':22}{'voluntary':>12}{'involuntary':>12}")
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servings = {
            name: stack.enter_context(serve_topics(home / f"{at}", checkout))
            for at, (name, checkout) in enumerate(checkouts.items())
        }
        stack.enter_context(busy(computing))
        for what, prepare, job in JOBS:
            for name, serving in servings.items():
                prepare(serving)
                for thread, made in sorted(counted(serving, job).items()):
                    row = f"{what + name:38}{thread:22}"
                    click.echo(f"{row}{made.voluntary:12.2f}{made.involuntary:12.2f}")


if __name__ == "__main__":
    main()
