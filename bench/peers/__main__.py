"""The command: which servers, how often, and the table."""

import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click

from bench.conftest import machine
from bench.peers.beanstalkd import Beanstalkd
from bench.peers.jobs import JOBS, SUSTAINED, Job, Round, Watching, offers
from bench.peers.nats import Nats
from bench.peers.redis import Redis
from bench.peers.topics import Topics
from bench.peers.wording import Peer
from bench.serving import Running, Serving, busy

OTHERS: Final = (Redis, Nats, Beanstalkd)


def run_job(
    job: Job, peers: Sequence[Peer], home: Path, *, rounds: int, scale: float
) -> dict[str, list[Round]]:
    """Rounds of a job by server, the servers in turn; each is fresh for the job."""
    done: dict[str, list[Round]] = {}
    with ExitStack() as stack:
        started: list[tuple[Peer, Serving]] = []
        for peer in peers:
            if offers(peer, job):
                serving = peer.start(home / peer.name, fsync=job.fsync)
                started.append((peer, stack.enter_context(serving)))
        for n in range(rounds):
            for peer, serving in started:
                found = job.run(peer, serving, f"round-{n}", scale)
                done.setdefault(peer.name, []).append(found)
    return done


def cells(job: Job, peers: Sequence[Peer], done: dict[str, list[Round]]) -> Iterator[str]:
    """A row: the job, each server's median and CPU time, and the first server's ratio to each other."""
    yield job.name
    rates = {name: statistics.median(r.rate for r in rounds) for name, rounds in done.items()}
    for peer in peers:
        rounds = done.get(peer.name)
        if rounds is None:
            yield "–"
            continue
        cpu_us = min(each.cpu_us for each in rounds)
        told = f"{rates[peer.name]:,.0f}/s"
        if isinstance(job, Watching) and job.every_s:
            p50, p99 = (statistics.median(r.delay_ms(p) for r in rounds) for p in (0.5, 0.99))
            told = f"p50 {p50:.2f} ms, p99 {p99:.1f} ms"
        yield f"{told} · {cpu_us:.3g} µs" if cpu_us else told
    first, *others = peers
    for peer in others:
        if peer.name not in done or first.name not in done:
            yield "–"
        elif isinstance(job, Watching) and job.every_s:
            delays = [
                statistics.median(r.delay_ms(0.5) for r in done[p.name]) for p in (first, peer)
            ]
            yield f"{delays[1] / delays[0]:.2f}"
        else:
            yield f"{rates[first.name] / rates[peer.name]:.2f}"


def _running(url: str) -> Topics:
    """`[NAME=]URL[@PID]`: a server of this contract that runs already."""
    name, _, address = url.rpartition("=")
    address, _, pid = address.partition("@")
    parts = urlsplit(address)
    if parts.scheme != "http" or parts.hostname is None:
        raise click.BadParameter(f"{url!r} is not [NAME=]http://HOST:PORT[@PID]")
    serving = Running(parts.hostname, parts.port or 80, int(pid) if pid else None)
    return Topics(name or parts.netloc, running=serving)


@click.command()
@click.option(
    "--rounds", default=5, show_default=True, help="Rounds of each job; their median counts."
)
@click.option("--scale", default=1.0, show_default=True, help="Length of a round.")
@click.option("--only", multiple=True, help="Jobs whose name holds this; may be repeated.")
@click.option("--url", "urls", multiple=True, metavar="[NAME=]URL[@PID]",
              help="A server of this contract that runs; with its process, its CPU time is told.")  # fmt: skip
@click.option("--checkout", "checkouts", multiple=True, metavar="NAME=PATH",
              help="Another version of this project, started for each job.")  # fmt: skip
@click.option("--command", "commands", multiple=True, metavar="NAME=COMMAND",
              help="Another server of this contract, started for each job; {port} and {dir} are filled in.")  # fmt: skip
@click.option("--busy", "computing", default=0, show_default=True,
              help="Processes that compute meanwhile.")  # fmt: skip
@click.option("--without", multiple=True, help="Leave out redis, nats or beanstalkd.")
@click.option("--sustained", is_flag=True, help="Five million records without a pause, too.")
@click.option("--dir", "path", type=click.Path(path_type=Path), help="Where the data goes.")
def main(
    rounds: int,
    scale: float,
    only: tuple[str, ...],
    urls: tuple[str, ...],
    checkouts: tuple[str, ...],
    commands: tuple[str, ...],
    computing: int,
    without: tuple[str, ...],
    sustained: bool,
    path: Path | None,
) -> None:
    """The same jobs against this server and others, in turns."""
    peers: list[Peer] = [Topics(), *map(_running, urls)]
    for each in checkouts:
        name, _, place = each.partition("=")
        peers.append(Topics(name, checkout=Path(place)))
    for each in commands:
        name, _, command = each.partition("=")
        peers.append(Topics(name, command=command))
    missing = [kind.name for kind in OTHERS if not kind.is_installed()]
    peers += [kind() for kind in OTHERS if kind.name not in (*missing, *without)]
    click.echo(machine() + (f", {computing} processes that compute beside" if computing else ""))
    if missing:
        click.echo(f"not installed: {', '.join(missing)}")
    others = [f"× {peer.name}" for peer in peers[1:]]
    head = [f"job, median of {rounds}", *(peer.name for peer in peers), *others]
    click.echo(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for job in (*JOBS, SUSTAINED) if sustained else JOBS:
        if only and not any(word in job.name for word in only):
            continue
        with tempfile.TemporaryDirectory(prefix="topics-peers-", dir=path) as home:
            times = rounds if job is not SUSTAINED else 1
            try:
                with busy(computing):
                    done = run_job(job, peers, Path(home), rounds=times, scale=scale)
            except ValueError as refusal:
                told = str(refusal).partition("\r\n\r\n")[2] or str(refusal)
                click.echo(f"| {job.name} | refused: `{told}` |")
                continue
        click.echo(f"| {' | '.join(cells(job, peers, done))} |")


if __name__ == "__main__":
    main()
