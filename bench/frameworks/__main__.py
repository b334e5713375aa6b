"""The command: which contenders, how often, and the table."""

import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import click
import numpy as np

from bench.conftest import machine
from bench.frameworks.contenders import CONTENDERS, Contender
from bench.frameworks.starts import FILE, count, starts

POLL_S: Final = 0.01
PATIENCE_S: Final = 300.0
PAUSE_MS: Final = 10
"""Between two jobs that an idle worker waits for."""


class Found(NamedTuple):
    """Of one round.

    Attributes:
        enqueued: Jobs that one producer enqueues, a second, with the start of its process.
        started: Jobs that a worker starts, a second, between its first and its last.
        cpu_us: CPU time of the broker for a job of these.
        delays_ms: Shape (n,): from the enqueuing of a job to its start, where the worker is idle.
    """

    enqueued: float
    started: float
    cpu_us: float
    delays_ms: "np.ndarray[tuple[int], np.dtype[np.float64]]"

    def delay_ms(self, percent: float) -> float:
        return float(np.percentile(self.delays_ms, percent))


def measured(contender: Contender, home: Path, jobs: int) -> Found:
    """A round with a broker of its own: a backlog first, then jobs for an idle worker."""
    path = home / "starts"
    with contender.start_broker(home / "broker") as broker:
        environment = contender.environment(broker, path)
        begun_s, cpu_s = time.perf_counter(), broker.cpu_s()
        _produce(contender, environment, jobs, 0)
        enqueued = jobs / (time.perf_counter() - begun_s)
        with _working(contender, environment):
            _wait(path, jobs)
            cpu_s = broker.cpu_s() - cpu_s
            at_ns = starts(path)[:, 1]
            waiting = max(jobs // 10, 50)
            _produce(contender, environment, waiting, PAUSE_MS)
            _wait(path, jobs + waiting)
        pairs = starts(path)[jobs:].astype(np.int64)
    started = (jobs - 1) / ((int(at_ns[-1]) - int(at_ns[0])) / 1e9)
    return Found(enqueued, started, cpu_s / jobs * 1e6, (pairs[:, 1] - pairs[:, 0]) / 1e6)


def _produce(contender: Contender, environment: dict[str, str], jobs: int, pause_ms: int) -> None:
    command = [*contender.producer, str(jobs), str(pause_ms)]
    subprocess.run(command, env=environment, check=True, timeout=PATIENCE_S)


@contextmanager
def _working(contender: Contender, environment: dict[str, str]) -> Iterator[None]:
    with open(f"{environment[FILE]}.log", "wb") as log:
        worker = subprocess.Popen(contender.worker, env=environment, stdout=log, stderr=log)
        try:
            yield
        finally:
            worker.terminate()
            try:
                worker.wait(20)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()


def _wait(path: Path, jobs: int) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while count(path) < jobs:
        if time.monotonic() > deadline_s:
            raise click.ClickException(f"{count(path)} of {jobs} jobs have started")
        time.sleep(POLL_S)


def row(contender: Contender, rounds: Sequence[Found]) -> str:
    """A line of the table: medians."""

    def middle(values: Sequence[float]) -> float:
        return statistics.median(values)

    return " | ".join(
        [
            f"| {contender.name}",
            f"{middle([r.enqueued for r in rounds]):,.0f}/s",
            f"{middle([r.started for r in rounds]):,.0f}/s",
            f"{middle([r.delay_ms(50) for r in rounds]):.1f} ms",
            f"{middle([r.delay_ms(99) for r in rounds]):.1f} ms",
            f"{middle([r.cpu_us for r in rounds]):,.0f} µs |",
        ]
    )


@click.command()
@click.option("--rounds", default=3, show_default=True, help="Of each; medians count.")
@click.option("--jobs", default=3000, show_default=True, help="In the backlog of a round.")
@click.option("--only", multiple=True, help="Contenders whose name holds this; may be repeated.")
@click.option("--dir", "path", type=click.Path(path_type=Path), help="Where the data goes.")
def main(rounds: int, jobs: int, only: tuple[str, ...], path: Path | None) -> None:
    """Jobs through task frameworks, on this server and on Redis, in turns."""
    chosen = [c for c in CONTENDERS if not only or any(word in c.name for word in only)]
    missing = [each.name for each in chosen if not each.is_installed()]
    chosen = [each for each in chosen if each.name not in missing]
    click.echo(machine())
    if missing:
        click.echo(f"not installed: {', '.join(missing)}")
    found: dict[str, list[Found]] = {each.name: [] for each in chosen}
    with tempfile.TemporaryDirectory(prefix="topics-frameworks-", dir=path) as home:
        for n in range(rounds):
            for at, contender in enumerate(chosen):
                folder = Path(home) / f"{n}-{at}"
                folder.mkdir()
                found[contender.name].append(measured(contender, folder, jobs))
    click.echo(f"| median of {rounds} | enqueued | started | p50 to start | p99 | broker, a job |")
    click.echo("|---|---|---|---|---|---|")
    for contender in chosen:
        click.echo(row(contender, found[contender.name]))


if __name__ == "__main__":
    main()
