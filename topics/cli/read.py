"""`topics read`: records on standard output, one a line, and losses on standard error."""

from bisect import bisect_right
from errno import EAGAIN
from typing import TYPE_CHECKING, Final

import click

from topics.cli.completion import topic_argument
from topics.cli.exits import INTERRUPTED, LOST, OK, UNUSABLE, Stop, output, refusals, were
from topics.cli.moments import at_ms
from topics.cli.printing import in_partition, is_terminal, record_filter, say
from topics.cli.shapes import shape_of, shape_options
from topics.cli.target import with_client
from topics.cli.topic import numbers_of, partition_option, shown_state

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from topics.cli.shapes import Shape
    from topics.client import Client, RawRecord, Tombstone
    from topics.client.options import ReadOptions

PIECE_BYTES: Final = 1 << 16
"""How much is gathered before it is written, where no reader waits for each line."""


@click.command("read")
@topic_argument()
@click.option(
    "--from",
    "from_seq",
    type=click.IntRange(min=0),
    metavar="SEQ",
    help="Read after this sequence number; by default from the earliest record.",
)
@click.option(
    "--since", callback=at_ms, metavar="AGE|TIME", help="Begin so long ago (10m, 2d), or then."
)
@click.option("--tail", is_flag=True, help="Begin at the head: with --follow, only what comes.")
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Begin with the last N.")
@click.option(
    "--until", callback=at_ms, metavar="AGE|TIME", help="End before the first record after it."
)
@click.option("--match", metavar="GLOB", help="Only records of this tag; a final * is any rest.")
@partition_option
@click.option("--follow", "-f", is_flag=True, help="Wait for more at the head, until interrupted.")
@click.option("--limit", "-n", type=click.IntRange(min=0), help="End after so many records.")
@click.option("--tags", is_flag=True, help="Show each record's $tag.")
@click.option("--no-meta", is_flag=True, help="Leave meta out.")
@click.option("--node", multiple=True, help="Leave out what this writer wrote; may be repeated.")
@click.option("--data", "only_data", is_flag=True, help="Print only data, byte for byte.")
@shape_options
@click.option("--strict", is_flag=True, help="End with 4 if records were lost.")
@with_client
def command(
    client: "Client",
    topic: str,
    from_seq: int | None,
    since: int | None,
    tail: bool,
    last: int | None,
    until: int | None,
    match: str | None,
    partition: int | None,
    follow: bool,
    limit: int | None,
    tags: bool,
    no_meta: bool,
    node: tuple[str, ...],
    only_data: bool,
    template: str | None,
    columns: str | None,
    no_header: bool,
    strict: bool,
) -> int:
    """Print the records of TOPIC, one JSON object a line, exactly as the server keeps them.

    Records that were lost before they could be read (evicted, expired) are named on standard error.
    Of a topic with several partitions all are read, one after the other; a place or --follow is of
    the one that --partition names.

    \b
    topics read jobs --from 480000 --limit 10
    topics read jobs --last 20 --match 'tenant42:*'
    topics read jobs --since 2h --until 1h
    topics read jobs --follow --tags | jq .data
    topics read jobs --format '{time} {tag} {data.url}'
    topics read jobs --csv seq,data.url,meta.size > jobs.csv
    topics read jobs --tags | topics append copy - --format records
    """
    if (from_seq is not None) + (since is not None) + tail + (last is not None) > 1:
        raise Stop("--from, --since, --tail and --last exclude each other", UNUSABLE)
    shape = shape_of(template, columns, no_header, others=only_data)
    options: ReadOptions = {
        "partition": partition,
        "match": match,
        "follow": follow,
        "limit": limit,
        "include_tags": tags or (shape is not None and "tag" in shape.fields),
        "include_meta": not no_meta and (shape is None or "meta" in shape.fields),
        "node": list(node) or None,
    }
    if since is not None:
        options["from_ts"] = since
    else:
        options["from_seq"] = begin_seq(client, topic, from_seq, tail, last, match, partition)
    waits = follow or is_terminal()
    begin = options.get("from_seq", 0)
    printer = Printer(topic, begin, only_data=only_data, waits=waits, shape=shape)
    printer.partition = partition
    print_all(_items(client, topic, options, printer, until), printer)
    return LOST if strict and printer.losses else OK


def _items(
    client: "Client",
    topic: str,
    options: "ReadOptions",
    printer: "Printer",
    until_ms: int | None,
) -> "Iterator[RawRecord | Tombstone]":
    """The records of one partition, or of all, up to a moment; `printer` is told which one."""
    from topics.client import RawRecord
    from topics.client.paging import RecordPages

    pages = RecordPages(topic, RawRecord, **options)
    for item in client.session.items(pages):
        printer.partition = pages.partition
        if until_ms is not None and isinstance(item, RawRecord) and item.ts_ms > until_ms:
            if not pages.has_more_partitions:
                return
            continue
        yield item


def print_all(items: "Iterable[RawRecord | Tombstone]", printer: "Printer") -> None:
    """Print a read to its end.

    Raises:
        Stop: It was interrupted, refused, or its output cannot be written; says how far it came.
    """
    from topics.client import Tombstone

    try:
        with refusals(lambda: printer.done):
            try:
                for item in items:
                    if isinstance(item, Tombstone):
                        printer.lost(item)
                    else:
                        printer.print(item)
            finally:
                printer.flush()
    except KeyboardInterrupt:
        raise Stop(f"interrupted; {printer.done or 'nothing was printed'}", INTERRUPTED) from None
    except BrokenPipeError:
        raise
    except OSError as error:
        what = error.strerror or str(error)
        raise Stop(f"{what}; {printer.done or 'nothing was printed'}", UNUSABLE) from None


def begin_seq(
    client: "Client",
    topic: str,
    from_seq: int | None,
    tail: bool,
    last: int | None,
    match: str | None,
    partition: int | None = None,
) -> int:
    """The seq behind which a read begins: as given, the head, or before the last few.

    Raises:
        Stop: The topic has several partitions, and none is named.
    """
    if not tail and last is None:
        return from_seq or 0
    state = shown_state(client, topic, partition)
    if numbers := numbers_of(state):
        what = f"{topic} has {len(numbers)} partitions, and --tail and --last are of one"
        raise Stop(f"{what}: give --partition", UNUSABLE)
    return before_last(client, topic, last, match, partition) if last else state.head_seq


def before_last(
    client: "Client", topic: str, count: int, match: str | None, partition: int | None = None
) -> int:
    """The seq behind which the last `count` records lie, of those that match.

    It looks at a span before the head, and at four times as much where that holds too few.
    """
    from topics.client import RecordHead

    state = shown_state(client, topic, partition)
    span = count
    while True:
        from_seq = max(state.head_seq - span, 0)
        items = client.read(
            topic, from_seq=from_seq, match=match, partition=partition, record_type=RecordHead
        )
        seqs = [i.seq for i in items if isinstance(i, RecordHead) and i.seq <= state.head_seq]
        if len(seqs) >= count:
            return seqs[-count] - 1
        if from_seq < state.earliest_seq:
            return from_seq if not seqs else seqs[0] - 1
        span *= 4


class Printer:
    """Writes records and losses, and knows how far it came.

    It gathers lines itself and writes past Python's buffer: where the disk is full, Python does not
    say how much of its buffer was written.

    Attributes:
        last_seq: The last record whose line was written to its end.
        records: How many records were written.
        partition: Of the record that is printed next; None: the topic has one.
    """

    def __init__(
        self,
        topic: str,
        from_seq: int,
        *,
        only_data: bool,
        waits: bool,
        shape: "Shape | None" = None,
    ) -> None:
        import msgspec

        self.last_seq = from_seq
        self.records = 0
        self.losses = 0
        self.partition: int | None = None
        self._topic = topic
        self._only_data = only_data
        self._piece_bytes = 0 if waits else PIECE_BYTES
        out = output()
        self._write = getattr(out, "raw", out).write
        self._shape = shape
        self._lines = bytearray(shape.header if shape is not None else b"")
        self._ends: list[int] = []
        self._seqs: list[int] = []
        self._encode = msgspec.json.Encoder().encode
        self._shown = record_filter()

    def print(self, record: "RawRecord") -> None:
        self._lines += self._line(record)
        self._lines += b"\n"
        self._ends.append(len(self._lines))
        self._seqs.append(record.seq)
        if len(self._lines) >= self._piece_bytes:
            self.flush()

    def _line(self, record: "RawRecord") -> bytes:
        if self._shape is not None:
            return self._shape.line(self._topic, record, self.partition or 0)
        if self._only_data:
            return self._shown(bytes(record.data))
        return self._shown(in_partition(self._encode(record), self.partition))

    def flush(self) -> None:
        """Write what was gathered; where that fails, what was not written is dropped."""
        lines, ends, seqs = self._lines, self._ends, self._seqs
        self._lines, self._ends, self._seqs = bytearray(), [], []
        written = 0
        try:
            while written < len(lines):
                count = self._write(lines[written:] if written else lines)
                if count is None:
                    raise BlockingIOError(EAGAIN, "standard output takes no more at present")
                written += count
        finally:
            whole = bisect_right(ends, written)
            if whole:
                self.last_seq = seqs[whole - 1]
                self.records += whole

    def lost(self, tombstone: "Tombstone") -> None:
        self.losses += 1
        span = f"{tombstone.gap_from} to {tombstone.gap_to}"
        where = f", partition {self.partition}," if self.partition else ""
        say(
            f"topics: records {span} of {self._topic}{where} are lost ({tombstone.reason})",
            err=True,
        )

    @property
    def done(self) -> str:
        """How far it came, and how to go on; empty where nothing was printed."""
        if not self.records:
            return ""
        where = "" if self.partition is None else f" --partition {self.partition}"
        return f"{were(self.records, 'record')} printed, go on with --from {self.last_seq}{where}"
