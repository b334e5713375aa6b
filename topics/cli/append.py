"""`topics append`: a file, or the input of a pipe, as records of a topic.

Each batch carries an idempotency key made of what is imported, the offset at which the batch
begins, and its bytes.  So an interrupted run can be started again: the server recognises the
batches that it has, as long as the topic's `idempotency_window_ms` has not passed.  After that,
`--offset` goes on at the byte that the last line of the interrupted run named.
"""

import hashlib
import json
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

from topics.cli.completion import topic_argument
from topics.cli.exits import INTERRUPTED, UNUSABLE, Stop, counted, refusals, were
from topics.cli.job_options import chosen, job_options, with_options
from topics.cli.moments import age_ms
from topics.cli.printing import say, say_json
from topics.cli.target import with_client

if TYPE_CHECKING:
    from topics.cli.sources import ByteSource, Lines, Shape
    from topics.client import Appended, Client, NewRecord

BATCH_BYTES: Final = 8 << 20
"""Bytes of input after which a batch ends, whatever its count; a server takes 64 MiB by default."""
LINE_SLACK_BYTES: Final = 1 << 20
"""White space, and the fields of a record beside data and meta."""
LINGER_MS: Final = 200
"""How long a record from a pipe waits for its batch to fill."""

_RECORD: Final = re.compile(r" - at `\$\.records\[(?P<index>\d+)\](?P<rest>[^`]*)`")
"""The place in a batch that the message of a refusal names."""


@click.command("append")
@topic_argument()
@click.argument("file", default="-", metavar="[FILE|-]")
@click.option(
    "--format",
    "format",
    type=click.Choice(["ndjson", "csv", "records", "raw"]),
    help="ndjson: a line is data; csv: a row is data; records: lines with data, tag, node and "
    "meta, as `topics read` prints them; raw: a line is text. By default csv for *.csv, else "
    "ndjson; *.gz and *.zst are unpacked.",
)
@click.option("--raw", is_flag=True, help="Like --format raw: each line is sent as a string.")
@click.option("--no-create", is_flag=True, help="Refuse where the topic does not exist.")
@click.option(
    "--tag-field",
    multiple=True,
    metavar="NAME",
    help="Field of data that is the tag; several are joined by dots.",
)
@click.option("--node", help="Writer of these records; a read with the same node leaves them out.")
@click.option(
    "--partition",
    type=click.IntRange(min=0),
    metavar="N",
    help="Of TOPIC; by default a record's tag decides.",
)
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
    "--linger",
    callback=age_ms,
    metavar="DURATION",
    help="From a pipe: how long a record waits for its batch to fill (200ms). Not with --run, whose "
    "batches must be the same each time.",
)
@click.option(
    "--numbers",
    is_flag=True,
    help="csv: send numbers as numbers, not as text. NaN and inf stay text, or are --null.",
)
@click.option("--null", metavar="TEXT", help="csv: send fields of exactly TEXT as null.")
@click.option(
    "--offset",
    type=click.IntRange(min=0),
    default=0,
    metavar="BYTES",
    help="Skip the bytes that an interrupted run has appended.",
)
@click.option(
    "--run",
    metavar="NAME",
    help="Name of this import, the same for every attempt; by default the file, as long as it is "
    "not changed. From a pipe, only a named import can be repeated.",
)
@click.option(
    "--unique-field",
    multiple=True,
    metavar="NAME",
    help="Queue: field of data that is the job's unique key; several are joined by dots.",
)
@job_options
@click.option("--json", "as_json", is_flag=True, help="Print what was appended as a JSON object.")
@with_client
def command(
    client: "Client",
    topic: str,
    file: str,
    format: str | None,
    raw: bool,
    no_create: bool,
    tag_field: tuple[str, ...],
    node: str | None,
    partition: int | None,
    batch_records: int,
    linger: int | None,
    numbers: bool,
    null: str | None,
    offset: int,
    run: str | None,
    unique_field: tuple[str, ...],
    as_json: bool,
    **flags: Any,
) -> None:
    """Append the records of FILE (or of standard input) to TOPIC.

    Sends batches, each of which is appended as a whole or not at all. After an interruption, start
    it again: no record is appended twice, as long as the file is unchanged and the topic's
    idempotency_window_ms (two minutes by default) has not passed. Later than that, give --offset.

    \b
    topics append flights flights.csv --numbers --null NA --tag-field carrier --tag-field origin
    journalctl -o json -f | topics append journal -
    """
    from topics.cli.sources import Shape

    if raw and format not in (None, "raw"):
        raise click.UsageError("--raw and --format exclude each other")
    bare = file.removesuffix(".gz").removesuffix(".zst")
    kind: Any = "raw" if raw else format or ("csv" if bare.endswith(".csv") else "ndjson")
    if kind == "raw" and (tag_field or unique_field):
        option = "--tag-field" if tag_field else "--unique-field"
        raise click.UsageError(f"{option} needs fields, which a raw line has not")
    if unique_field and flags["unique"] is not None:
        raise click.UsageError("--unique and --unique-field exclude each other")
    options = chosen(has_keys=bool(unique_field) or kind == "records", **flags)
    shape = Shape(kind, tag_field, numbers, null, unique_field)
    if kind != "csv" and (numbers or null is not None):
        raise click.UsageError("--numbers and --null are for csv")
    if linger is not None and run is not None:
        raise click.UsageError("--linger and --run exclude each other: what lingers cuts batches")
    with _opened(file) as stream, _progress(stream) as progress:
        name = _run(run, stream, shape, partition, options)
        job = Import(
            client,
            topic,
            node=node,
            run=name,
            batch=batch_records,
            progress=progress,
            create=not no_create,
            partition=partition,
            options=options,
        )
        if run is None and _is_pipe(stream):
            job.all_of_pipe(stream.fileno(), shape, offset, LINGER_MS if linger is None else linger)
        else:
            job.all(stream, shape, offset)
    if as_json:
        say_json(json.dumps(job.counts))
    else:
        say(job.summary, err=True)


class Import:
    """One run: appends one batch after the other, and knows how far it came."""

    def __init__(
        self,
        client: "Client",
        topic: str,
        *,
        node: str | None,
        run: str,
        batch: int,
        progress: Callable[[int], None],
        create: bool = True,
        partition: int | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        self.records = 0
        self.deduped = 0
        self.unique = 0
        self.replaced = 0
        self.offset = 0
        self._client = client
        self._topic = topic
        self._node = node
        self._run = run
        self._batch_records = batch
        self._progress = progress
        self._creates = create
        self._partition = partition
        self._options = options or {}
        self._seqs: dict[int, tuple[int, int]] = {}
        """The first and the last seq in each partition."""
        self._has_partitions = False
        self._started_s = monotonic()
        self._linger_s: float | None = None
        self._began_s = 0.0
        self._batch: list[NewRecord] = []
        self._taken: list[int] = []
        """For each record of the batch, how many lines had been taken with it."""

    def all_of_pipe(self, fileno: int, shape: "Shape", offset: int, linger_ms: int) -> None:
        """Append the input of a pipe; no record waits for longer than `linger_ms`."""
        from topics.cli.sources import Piped

        self._linger_s = linger_ms / 1000
        self.all(Piped(fileno, self), shape, offset)

    def all(self, stream: "ByteSource", shape: "Shape", offset: int) -> None:
        """Append everything from `offset` on.

        Raises:
            Stop: The input is not what it should be, or was interrupted; says how far it came.
        """
        from topics.cli.sources import BadSource, Lines, records

        self.offset = offset
        try:
            header = _header(stream) if shape.format == "csv" and offset else None
            self._lines = lines = Lines(stream, offset, self._line_bytes_max)
            for record in records(lines, shape, header):
                if not self._batch:
                    self._began_s = monotonic()
                self._batch.append(self._placed(record))
                self._taken.append(lines.taken)
                if self._is_full:
                    self._send()
            self._send()
        except BadSource as error:
            raise Stop(self._ended(str(error)), UNUSABLE) from None
        except OSError as error:
            raise Stop(self._ended(error.strerror or str(error)), UNUSABLE) from None
        except KeyboardInterrupt:
            raise Stop(self._ended("interrupted"), INTERRUPTED) from None

    def _placed(self, record: "NewRecord") -> "NewRecord":
        record = with_options(record, self._options)
        if self._partition is None:
            return record
        from msgspec.structs import replace

        return replace(record, partition=self._partition)

    def _line_bytes_max(self) -> int:
        """Of the longest record that the server takes, with what a line has beside it."""
        with refusals(lambda: self.done):
            limits = self._client.limits()
        return int(limits["max_record_bytes"] + 2 * limits["max_meta_bytes"] + LINE_SLACK_BYTES)

    @property
    def _is_full(self) -> bool:
        if len(self._batch) >= self._batch_records:
            return True
        return self._lines.settled - self.offset >= BATCH_BYTES or self.due_s() == 0.0

    def due_s(self) -> float | None:
        """Seconds until the batch is to be sent as it is; None where it is empty, or may wait."""
        if self._linger_s is None or not self._batch:
            return None
        return max(self._began_s + self._linger_s - monotonic(), 0.0)

    def is_due(self) -> None:
        """The first record of the batch has waited long enough."""
        self._send()

    def _send(self) -> None:
        if not self._batch:
            return
        batch, taken = self._batch, self._taken
        self._batch, self._taken = [], []
        # The offset, and a digest of the lines since.
        key = f"{self.offset}:{self._lines.take_digest()}"
        with refusals(lambda: self.done, partial(_by_line, self._lines, taken)):
            answer = self._client.append(
                self._topic,
                *batch,
                node=self._node,
                idempotency_key=f"{self._run}:{key}",
                create=None if self._creates else False,
            )
        self._count(answer, self._lines.settled)

    @property
    def done(self) -> str:
        """How far it came, and how to go on; empty where nothing was appended."""
        if not self.records:
            return ""
        return f"{were(self.records, 'record')} appended, go on with --offset {self.offset}"

    @property
    def counts(self) -> dict[str, Any]:
        """The summary for a program; without seqs where there was nothing to append."""
        counts = {"topic": self._topic, "records": self.records, "deduped": self.deduped}
        if self.unique:
            counts["unique"] = self.unique
        if self.replaced:
            counts["replaced"] = self.replaced
        if self._has_partitions:
            spans = [
                {"partition": number, "first_seq": first, "last_seq": last}
                for number, (first, last) in sorted(self._seqs.items())
            ]
            return {**counts, "partitions": spans}
        if not self._seqs:
            return counts
        return {**counts, "first_seq": self._seqs[0][0], "last_seq": self._seqs[0][1]}

    @property
    def summary(self) -> str:
        took_s = max(monotonic() - self._started_s, 1e-9)
        if not self.records:
            return f"nothing to append to {self._topic}"
        if self._has_partitions:
            where = counted(len(self._seqs), "partition")
        elif not self._seqs:
            where = "no seqs"
        else:
            where = f"seqs {self._seqs[0][0]} to {self._seqs[0][1]}"
        before = f", {self.deduped:,} of them by an earlier run" if self.deduped else ""
        if self.unique:
            before += f", {self.unique:,} of them were jobs already"
        if self.replaced:
            before += f", in place of {self.replaced:,}"
        return (
            f"{counted(self.records, 'record')} appended to {self._topic}{before} "
            f"({where}, {took_s:.1f} s, {self.records / took_s:,.0f}/s)"
        )

    def _ended(self, what: str) -> str:
        return f"{what}; {self.done or 'nothing was appended'}"

    def _count(self, answer: "Appended", offset: int) -> None:
        if answer.created:
            say(f"topics: {self._topic} did not exist; it was created", err=True)
        self.records += answer.count
        self.deduped += answer.count if answer.deduped else 0
        self.offset = offset
        self._has_partitions |= bool(answer.partitions)
        self.unique += len(answer.unique)
        self.replaced += len(answer.replaced)
        spans = [(each.partition, each.first_seq, each.last_seq) for each in answer.partitions]
        if not spans and len(answer.unique) < answer.count:
            spans = [(0, answer.first_seq, answer.last_seq)]
        for number, first, last in spans:
            self._seqs[number] = (self._seqs.get(number, (first, 0))[0], last)
        self._progress(offset)


def _by_line(lines: "Lines", taken: list[int], refusal: str) -> str:
    """The message of a refusal, with the line of input in place of the record of the batch.

    "no good - at `$.records[3].tag`" becomes "line 17: no good - at `$.tag`".
    """
    found = _RECORD.search(refusal)
    if found is None or int(found["index"]) >= len(taken):
        return refusal
    rest = f" - at `${found['rest']}`" if found["rest"] else ""
    what = refusal[: found.start()] + rest + refusal[found.end() :]
    return f"line {lines.number(taken[int(found['index'])])}: {what}"


def _header(stream: "ByteSource") -> list[str]:
    """The columns of a CSV file that is read from its middle."""
    from topics.cli.sources import Lines, rows

    if not stream.seekable():
        raise Stop("--offset of csv needs a file: its first line names the columns", UNUSABLE)
    return next(rows(Lines(stream)), [])


def _run(
    name: str | None,
    stream: BinaryIO,
    shape: "Shape",
    partition: int | None,
    options: dict[str, Any],
) -> str:
    """The identity of this import, as 32 hex digits.

    A file is the same while its device, inode, size and time of change are; a pipe is never the
    same twice.  The `shape`, a `partition` and `options` of jobs are part of the identity: the same file with
    other tags is another import.
    """
    identity: list[Any]
    if name is not None:
        identity = ["named", name]
    elif (file := _regular_file(stream)) is not None:
        identity = [file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns]
    else:
        identity = ["pipe", secrets.token_hex(16)]
    where: list[Any] = [] if partition is None else [partition]
    where += sorted(options.items())
    return hashlib.sha256(repr([*identity, shape, *where]).encode()).hexdigest()[:32]


def _regular_file(stream: BinaryIO) -> os.stat_result | None:
    found = _stat(stream)
    return found if found is not None and S_ISREG(found.st_mode) else None


def _is_pipe(stream: BinaryIO) -> bool:
    """Whether the next line may be long in coming: a pipe, a FIFO or a terminal."""
    found = _stat(stream)
    return found is not None and not S_ISREG(found.st_mode)


def _stat(stream: BinaryIO) -> os.stat_result | None:
    try:
        return os.fstat(stream.fileno())
    except OSError:
        return None


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
        from topics.cli.sources import BadSource, unpacked

        try:
            content = unpacked(file, stream)
        except BadSource as error:
            raise Stop(f"{file}: {error}", UNUSABLE) from None
        yield content


@contextmanager
def _progress(stream: BinaryIO) -> Iterator[Callable[[int], None]]:
    """A progress bar over the bytes of the input, if standard error is a terminal."""
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
        is_plain = file is not None and stream.seekable()
        task = bar.add_task("append", total=file.st_size if file and is_plain else None)
        yield lambda offset: bar.update(task, completed=offset)
