"""How many functions a small request calls: `python -m bench.calls`, and which with `--most 40`.

The jobs of `bench.small_requests` against a server in this process, whose event loop is profiled.  The
counts are the same at any load, but for what goes by the clock: profiled, a request takes longer, so
that more of them wait for a turn, and fewer share a write.
"""

import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final

import click

from bench.serving import Running
from bench.small_requests import (
    CLIENTS,
    append_one,
    append_together,
    fill_jobs,
    health,
    read_page,
    request,
    work_jobs,
)

JOBS: Final[Sequence[tuple[str, Callable[[Running], object], Callable[[Running], int]]]] = (
    ("GET /v0/health", health, health),
    ("append one record", append_one, append_one),
    (f"append one record, {CLIENTS} clients", append_together, append_together),
    ("read a page of 10", read_page, read_page),
    ("claim 8, ack 8", fill_jobs, work_jobs),
)
"""What is counted, what is done before, and a function that returns how many times it was done."""
POLL_S: Final = 0.01


class Calls:
    """Counts of calls in one thread, by what is called; implements a function for `sys.setprofile`."""

    def __init__(self) -> None:
        self.is_on = False
        self.python: Counter[str] = Counter()
        self.builtin: Counter[str] = Counter()

    def note(self, frame: FrameType, what: str, called: Any) -> None:
        if not self.is_on:
            return
        if what == "call":
            self.python[frame.f_code.co_qualname] += 1
        elif what == "c_call":
            self.builtin[getattr(called, "__qualname__", repr(called))] += 1

    def of(self, job: Callable[[Running], int], serving: Running) -> int:
        """Count the calls of one run of a job; returns how many requests it was."""
        self.python.clear()
        self.builtin.clear()
        self.is_on = True
        try:
            return job(serving)
        finally:
            self.is_on = False


def ask_all(port_file: Path, calls: Calls, most: int) -> None:
    """Run the jobs, each after what it needs, and stop the server."""
    try:
        serving = Running("127.0.0.1", _ready_port(port_file), None)
        for what, prepare, job in JOBS:
            prepare(serving)
            count = calls.of(job, serving)
            python, builtin = calls.python.total() / count, calls.builtin.total() / count
            print(f"{what:36}{python:8.1f} of Python{builtin:8.1f} of C", flush=True)
            named = [(n, name) for name, n in calls.python.items()]
            named += [(n, f"{name} (C)") for name, n in calls.builtin.items()]
            for n, name in sorted(named, reverse=True)[:most]:
                print(f"{n / count:12.2f}  {name}")
    finally:
        os.kill(os.getpid(), signal.SIGTERM)


def _ready_port(port_file: Path) -> int:
    while not port_file.is_file():
        time.sleep(POLL_S)
    port = int(port_file.read_text().rpartition(":")[2])
    while True:
        with Running("127.0.0.1", port, None).connect() as connection:
            connection.sendall(request("GET", "/v0/ready"))
            if connection.recv(4096).startswith(b"HTTP/1.1 200 "):
                return port
        time.sleep(POLL_S)


@click.command()
@click.option("--most", default=0, help="Name so many of the functions that are called most.")
def main(most: int) -> None:
    """Print the calls of each request."""
    from topics.server.serving import serve
    from topics.settings import load

    with tempfile.TemporaryDirectory() as home:
        port_file = Path(home) / "port"
        environ = {
            "TOPICS_PORT": "0",
            "TOPICS_PORT_FILE": str(port_file),
            "TOPICS_DATA_DIR": str(Path(home) / "data"),
        }
        calls = Calls()
        client = threading.Thread(target=ask_all, args=(port_file, calls, most))
        client.start()
        sys.setprofile(calls.note)
        serve(load(environ, {}, is_terminal=False))
        sys.setprofile(None)
        client.join()


if __name__ == "__main__":
    main()
