"""`topics append`: a file, or what comes through a pipe, as records of a topic.

Each batch carries an idempotency key made of what is imported, where in it the batch begins, and
the batch's own bytes.  So a run that was interrupted can be started again: what had arrived is
recognised by the server, as long as the topic's `idempotency_window_ms` has not passed; after that,
`--offset` goes on where the last line of the interrupted run said.
"""

import hashlib
import os
import re
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from stat import S_ISREG
from time import monotonic
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from topics.cli.exits import INTERRUPTED, UNUSABLE, Stop, counted, refusals, were
from topics.cli.target import with_client

if TYPE_CHECKING:
    from topics.cli.sources import Lines, Shape
    from topics.client import Appended, Client, NewRecord

BATCH_BYTES: Final = 8 << 20
"""Bytes of input after which a batch ends, whatever its count; a server takes 64 MiB by default."""

_RECORD: Final = re.compile(r" - at `\$\.records\[(?P<index>\d+)\](?P<rest>[^`]*)`")
"""Where in a batch a refusal says that it lies."""


@click.command("append")
@click.argument("topic")
@click.argument("file", default="-", metavar="[FILE|-]")
@click.option(
    "--format",
    "format",
    type=click.Choice(["ndjson", "csv", "records"]),
    help="ndjson: a line is data; csv: a row is data; records: lines with data, tag, node and "
    "meta, as `topics read` prints them. By default csv for *.csv, else ndjson.",
)
@click.option(
    "--tag-field",
    multiple=True,
    metavar="NAME",
    help="Field of data that is the tag; several are joined by dots.",
)
@click.option("--node", help="Writer of these records; who reads with it is not sent them back.")
@click.option(
    "--batch",
    "batch_records",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    metavar="N",
    help="Records of one atomic write.",
)
@click.option(
    "--numbers",
    is_flag=True,
    help="csv: send numbers as numbers, not as text. NaN and inf are none: they stay text, or --null.",
)
@click.option("--null", metavar="TEXT", help="csv: send fields of exactly TEXT as null.")
@click.option(
    "--offset",
    type=click.IntRange(min=0),
    default=0,
    metavar="BYTES",
    help="Skip what an interrupted run has appended.",
)
@click.option(
    "--run",
    metavar="NAME",
    help="Name of this import, the same for every attempt; by default the file, as long as it is "
    "not changed. From a pipe, only a named import can be repeated.",
)
@with_client
def command(
    client: "Client",
    topic: str,
    file: str,
    format: str | None,
    tag_field: tuple[str, ...],
    node: str | None,
    batch_records: int,
    numbers: bool,
    null: str | None,
    offset: int,
    run: str | None,
) -> None:
    """Append the records of FILE (or of standard input) to TOPIC.

    Sends batches, each of them whole or not at all. Start it again after an interruption: what had
    arrived is not appended twice, as long as the file is unchanged and the topic's
    idempotency_window_ms (two minutes by default) has not passed. Later than that, give --offset.

    \b
    topics append flights flights.csv --numbers --null NA --tag-field carrier --tag-field origin
    journalctl -o json -f | topics append journal - --batch 1
    """
    from topics.cli.sources import Shape

    chosen: Any = format or ("csv" if file.endswith(".csv") else "ndjson")
    shape = Shape(chosen, tag_fields=tag_field, numbers=numbers, null=null)
    if chosen != "csv" and (numbers or null is not None):
        raise click.UsageError("--numbers and --null are for csv")
    with _opened(file) as stream, _progress(stream) as progress:
        job = Import(client, topic, node=node, run=_run(run, stream, shape), progress=progress)
        job.all(stream, shape, offset, batch_records)
    click.echo(job.summary, err=True)


class Import:
    """One run: appends batch after batch, and knows how far it came."""

    def __init__(
        self,
        client: "Client",
        topic: str,
        *,
        node: str | None,
        run: str,
        progress: Callable[[int], None],
    ) -> None:
        self.records = 0
        self.deduped = 0
        self.offset = 0
        self._client = client
        self._topic = topic
        self._node = node
        self._run = run
        self._progress = progress
        self._seqs: tuple[int, int] | None = None
        self._started_s = monotonic()

    def all(self, stream: BinaryIO, shape: "Shape", offset: int, batch_records: int) -> None:
        """Append everything from `offset` on; a fault ends with what had been done."""
        from topics.cli.sources import BadSource, Lines

        self.offset = offset
        try:
            header = _header(stream) if shape.format == "csv" and offset else b""
            lines = Lines(stream, offset)
            for key, batch, taken in _batches(lines, shape, header, batch_records):
                with refusals(lambda: self.done, partial(_by_line, lines, taken)):
                    answer = self._client.append(
                        self._topic,
                        *batch,
                        node=self._node,
                        idempotency_key=f"{self._run}:{key}",
                    )
                self._took(answer, lines.offset)
        except BadSource as error:
            raise Stop(self._told(str(error)), UNUSABLE) from None
        except OSError as error:
            raise Stop(self._told(error.strerror or str(error)), UNUSABLE) from None
        except KeyboardInterrupt:
            raise Stop(self._told("interrupted"), INTERRUPTED) from None

    @property
    def done(self) -> str:
        """How far it came, and how to go on; empty where nothing was appended."""
        if not self.records:
            return ""
        return f"{were(self.records, 'record')} appended, go on with --offset {self.offset}"

    @property
    def summary(self) -> str:
        took_s = max(monotonic() - self._started_s, 1e-9)
        if self._seqs is None:
            return f"nothing to append to {self._topic}"
        first_seq, last_seq = self._seqs
        before = f", {self.deduped:,} of them by an earlier run" if self.deduped else ""
        return (
            f"{counted(self.records, 'record')} appended to {self._topic}{before} "
            f"(seqs {first_seq} to {last_seq}, {took_s:.1f} s, {self.records / took_s:,.0f}/s)"
        )

    def _told(self, what: str) -> str:
        return f"{what}; {self.done or 'nothing was appended'}"

    def _took(self, answer: "Appended", offset: int) -> None:
        self.records += answer.count
        self.deduped += answer.count if answer.deduped else 0
        self.offset = offset
        first_seq = self._seqs[0] if self._seqs else answer.first_seq
        self._seqs = (first_seq, answer.last_seq)
        self._progress(offset)


def _batches(
    lines: "Lines", shape: "Shape", header: bytes, batch_records: int
) -> Iterator[tuple[str, list["NewRecord"], list[int]]]:
    """Batches, each after the part of its key that says where it stands and what is in it, and
    before how many lines had been taken with each record."""
    from topics.cli.sources import records

    batch: list[NewRecord] = []
    taken: list[int] = []
    begin = lines.offset
    for record in records(lines, shape, header):
        batch.append(record)
        taken.append(lines.taken)
        if len(batch) == batch_records or lines.offset - begin >= BATCH_BYTES:
            yield f"{begin}:{lines.take_digest()}", batch, taken
            batch, taken, begin = [], [], lines.offset
    if batch:
        yield f"{begin}:{lines.take_digest()}", batch, taken


def _by_line(lines: "Lines", taken: list[int], refusal: str) -> str:
    """A refusal that names a record of a batch, by the line that the record was made of.

    "no good - at `$.records[3].tag`" becomes "line 17: no good - at `$.tag`".
    """
    found = _RECORD.search(refusal)
    if found is None or int(found["index"]) >= len(taken):
        return refusal
    rest = f" - at `${found['rest']}`" if found["rest"] else ""
    what = refusal[: found.start()] + rest + refusal[found.end() :]
    return f"line {lines.number(taken[int(found['index'])])}: {what}"


def _header(stream: BinaryIO) -> bytes:
    """The first line of a CSV file that is read from its middle."""
    if not stream.seekable():
        raise Stop("--offset of csv needs a file: its first line names the columns", UNUSABLE)
    return stream.readline().removeprefix(b"\xef\xbb\xbf")


def _run(name: str | None, stream: BinaryIO, shape: "Shape") -> str:
    """Who this import is, as 32 hex digits.

    A file is itself while its device, inode, size and time of change are the same; a pipe is never
    the same twice.  What the lines become is part of it: the same file imported with other tags is
    another import.
    """
    identity: list[Any]
    if name is not None:
        identity = ["named", name]
    elif (file := _regular_file(stream)) is not None:
        identity = [file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns]
    else:
        identity = ["pipe", secrets.token_hex(16)]
    return hashlib.sha256(repr([*identity, shape]).encode()).hexdigest()[:32]


def _regular_file(stream: BinaryIO) -> os.stat_result | None:
    try:
        found = os.fstat(stream.fileno())
    except OSError:
        return None
    return found if S_ISREG(found.st_mode) else None


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    if file == "-":
        if sys.stdin is None:
            raise Stop("standard input is closed", UNUSABLE)
        yield sys.stdin.buffer
        return
    try:
        stream = Path(file).open("rb")  # noqa: SIM115  (closed below)
    except OSError as error:
        raise Stop(f"{file}: {error.strerror}", UNUSABLE) from None
    with stream:
        yield stream


@contextmanager
def _progress(stream: BinaryIO) -> Iterator[Callable[[int], None]]:
    """A bar over the bytes of the input, where a person can see one."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda _offset: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    file = _regular_file(stream)
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("append", total=file.st_size if file else None)
        yield lambda offset: bar.update(task, completed=offset)
