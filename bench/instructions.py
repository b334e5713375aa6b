"""How many instructions a small request takes: `python -m bench.instructions [--other CHECKOUT]`.

The jobs of `bench.small_requests` against a server under valgrind's callgrind, which counts what the
process executes outside the kernel, of all its threads.  The counts are the same to 2 % at any load and
on any machine with the same Python.  The server is some 50 times slower than by itself, so each
request has a turn and a write of its own.
"""

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import click

from bench import small_requests_h2 as h2
from bench.serving import Serving, serve_command
from bench.small_requests import (
    append_one,
    append_synced,
    fill_jobs,
    health,
    make_synced,
    read_page,
    work_jobs,
)


def append_h2(serving: Serving) -> int:
    h2.run(serving, "append one record", 1)
    return h2.COUNTS[1]


JOBS: Final[Sequence[tuple[str, Callable[[Serving], object], Callable[[Serving], int]]]] = (
    ("GET /v0/health", health, health),
    ("append one record", append_one, append_one),
    ("append one record, fsync", make_synced, append_synced),
    ("read a page of 10", read_page, read_page),
    ("claim 8, ack 8", fill_jobs, work_jobs),
    ("append one record, HTTP/2", append_h2, append_h2),
)
"""What is counted, what is done before, and a function that returns how many times it was done."""
OUT: Final = "callgrind.out"
POLL_S: Final = 0.05


def counted(home: Path, checkout: Path | None) -> dict[str, float]:
    """Instructions by job."""
    found = {}
    command = ["valgrind", "--tool=callgrind", "--instr-atstart=no"]
    command += [f"--callgrind-out-file={home / OUT}", sys.executable, "-m", "topics", "serve"]
    with serve_command(home, command, checkout) as serving:
        for what, prepare, job in JOBS:
            prepare(serving)
            _control(serving, "--instr=on")
            _control(serving, "--zero")
            count = job(serving)
            _control(serving, "--dump")
            found[what] = _dumped(home) / count
            _control(serving, "--instr=off")
    return found


def _control(serving: Serving, what: str) -> None:
    command = ["callgrind_control", what, f"{serving.process.pid}"]
    subprocess.run(command, check=True, capture_output=True)


def _dumped(home: Path) -> int:
    """The total of the dump that was asked for; its last line is written last."""
    while True:
        for dump in home.glob(f"{OUT}.*"):
            lines = dump.read_text(errors="replace").splitlines()
            totals = [line for line in lines[-3:] if line.startswith("totals:")]
            if totals:
                dump.unlink()
                return int(totals[0].split()[1])
        time.sleep(POLL_S)


@click.command()
@click.option("--other", type=click.Path(path_type=Path), help="A checkout to compare with.")
def main(other: Path | None) -> None:
    """Print a table of instructions."""
    if shutil.which("valgrind") is None:
        raise click.ClickException("valgrind is not installed; Debian's package has its name")
    checkouts = [None] if other is None else [None, other.absolute()]
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        found = [counted(home / str(i), checkout) for i, checkout in enumerate(checkouts)]
    for what in found[0]:
        print(f"{what:36}" + "".join(f"{counts[what]:12,.0f}" for counts in found), flush=True)


if __name__ == "__main__":
    main()
