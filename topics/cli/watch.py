"""`topics watch`: records of topics as they come, and on standard error the state of the stream."""

import sys
import time
from functools import partial
from typing import TYPE_CHECKING, BinaryIO

import click

from topics.cli.completion import topic_argument
from topics.cli.exits import INTERRUPTED, OK, UNUSABLE, Stop, output, refusals
from topics.cli.moments import at_ms
from topics.cli.printing import Part, in_partition, record_filter, say, styled, warn
from topics.cli.shapes import shape_of, shape_options
from topics.cli.target import with_client

if TYPE_CHECKING:
    from topics.cli.shapes import Shape
    from topics.client import Begin, Client, RawRecord, Tombstone, TopicsError


@click.command("watch")
@topic_argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@click.option(
    "--from",
    "from_seq",
    type=click.IntRange(min=0),
    metavar="SEQ",
    help="Begin after this sequence number; by default with the earliest record.",
)
@click.option(
    "--since", callback=at_ms, metavar="AGE|TIME", help="Begin so long ago (10m, 2d), or then."
)
@click.option("--tail", is_flag=True, help="Begin at the head: only what comes from now on.")
@click.option("--match", metavar="GLOB", help="Only records of this tag; a final * is any rest.")
@click.option("--tags", is_flag=True, help="Show each record's $tag.")
@click.option(
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="N",
    help="Of each TOPIC, only this partition; more than once for more.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, as into a pipe.")
@shape_options
@partial(with_client, tells_waits=False)
def command(
    client: "Client",
    topics: tuple[str, ...],
    from_seq: int | None,
    since: int | None,
    tail: bool,
    match: str | None,
    tags: bool,
    partitions: tuple[int, ...],
    as_json: bool,
    template: str | None,
    columns: str | None,
    no_header: bool,
) -> int:
    """Print the records of one or more TOPICs as they come, until interrupted.

    On a terminal a record is a coloured line; with --json, or into a pipe, a JSON object with its
    topic, and with its $partition unless that is 0. Of a topic with several partitions all are printed; --from is of
    the one that --partition names. Standard error names records that were lost, topics that were deleted, and a connection
    that is lost or made again. Ends when the last topic is deleted, or when the server does not
    answer for longer than --retry-for.

    \b
    topics watch jobs audit --tail
    topics watch jobs --since 10m --match 'tenant42:*' --tags
    topics watch jobs --from 480000 | jq .data
    topics watch jobs audit --format '{topic} {seq} {data}'
    """
    from topics.client import RawRecord, Tombstone, TopicGone

    out = output()
    shape = shape_of(template, columns, no_header, others=as_json)
    tags = tags or (shape is not None and "tag" in shape.fields)
    printer: Plain | Shaped | Coloured
    if shape is not None:
        printer = Shaped(out, shape)
    else:
        printer = Plain(out) if as_json or not sys.stdout.isatty() else Coloured()
    try:
        with refusals():
            watch = client.watch(
                *topics,
                record_type=RawRecord,
                include_tags=tags,
                connection=report_connection,
                **_begin(from_seq, since, tail, match, partitions),
            )
            with watch:
                for each in watch:
                    topic, item = each
                    match item:
                        case Tombstone():
                            warn(_loss(topic, item, each.partition))
                        case TopicGone():
                            warn(f"{topic} was deleted")
                        case _:
                            printer.print(topic, item, each.partition)
    except KeyboardInterrupt:
        return INTERRUPTED
    return OK


def _begin(
    from_seq: int | None,
    from_ts: int | None,
    tail: bool,
    match: str | None,
    partitions: tuple[int, ...],
) -> "Begin":
    if (from_seq is not None) + (from_ts is not None) + tail > 1:
        raise Stop("--from, --since and --tail exclude each other", UNUSABLE)
    begin: Begin = {"tail": tail, "match": match}
    if partitions:
        begin["partitions"] = list(partitions)
    if from_seq is not None:
        begin["from_seq"] = from_seq
    if from_ts is not None:
        begin["from_ts"] = from_ts
    return begin


def _loss(topic: str, tombstone: "Tombstone", partition: int) -> str:
    span = f"{tombstone.gap_from} to {tombstone.gap_to}"
    if partition:
        topic = f"{topic}, partition {partition},"
    if tombstone.reason == "recreated":
        return f"{topic} was deleted and made again; it is read from its beginning"
    return f"records {span} of {topic} are lost ({tombstone.reason})"


def report_connection(why: "TopicsError | None") -> None:
    if why is None:
        say(styled("topics: connected again", fg="green"), err=True)
    else:
        warn(f"{why}; trying again")


class Plain:
    """A record as the server keeps it, with its topic: one JSON object a line."""

    def __init__(self, out: BinaryIO) -> None:
        import msgspec

        self._out = out
        self._encode = msgspec.json.Encoder().encode
        self._shown = record_filter()

    def print(self, topic: str, record: "RawRecord", partition: int = 0) -> None:
        head = b'{"topic":%b,' % self._encode(topic)
        line = in_partition(self._encode(record), partition)
        self._out.write(self._shown(head + line[1:]) + b"\n")
        # A reader may be waiting for each record.
        self._out.flush()


class Shaped:
    """A record as a line of a template, or as a row of CSV."""

    def __init__(self, out: BinaryIO, shape: "Shape") -> None:
        self._out = out
        self._shape = shape
        out.write(shape.header)
        out.flush()

    def print(self, topic: str, record: "RawRecord", partition: int = 0) -> None:
        self._out.write(self._shape.line(topic, record, partition) + b"\n")
        self._out.flush()


class Coloured:
    """A record for a person: time, topic, seq, tag, writer, data; of a partition behind the first, its number
    before the seq."""

    def print(self, topic: str, record: "RawRecord", partition: int = 0) -> None:
        at = time.strftime("%H:%M:%S", time.localtime(record.ts_ms // 1000))
        parts: list[Part] = [
            styled(f"{at}.{record.ts_ms % 1000:03}", dim=True),
            styled(topic, fg="cyan"),
            styled(f"{partition or ''}#{record.seq}", fg="green"),
        ]
        if record.tag is not None:
            parts.append(styled(record.tag, fg="magenta"))
        if record.node is not None:
            parts.append(styled(f"@{record.node}", fg="blue"))
        parts.append(bytes(record.data).decode("utf-8", "replace"))
        if bytes(record.meta):
            parts.append(styled(bytes(record.meta).decode("utf-8", "replace"), dim=True))
        first, *rest = parts
        say(first, *(each for part in rest for each in (" ", part)))
