"""`topics read`: records to standard output, one a line, and losses to standard error."""

import sys
from typing import TYPE_CHECKING

import click

from topics.cli.exits import INTERRUPTED, LOST, OK, Stop, refusals
from topics.cli.target import with_client

if TYPE_CHECKING:
    from topics.client import Client, RawRecord, Tombstone


@click.command("read")
@click.argument("topic")
@click.option(
    "--from",
    "from_seq",
    type=click.IntRange(min=0),
    default=0,
    metavar="SEQ",
    help="Read after this sequence number; 0, the default, from the earliest record.",
)
@click.option("--follow", "-f", is_flag=True, help="Wait for more at the head, until interrupted.")
@click.option("--limit", "-n", type=click.IntRange(min=0), help="End after so many records.")
@click.option("--tags", is_flag=True, help="Show each record's $tag.")
@click.option("--no-meta", is_flag=True, help="Leave meta out.")
@click.option("--node", multiple=True, help="Leave out what this writer wrote; may be repeated.")
@click.option("--data", "only_data", is_flag=True, help="Print only data, byte for byte.")
@click.option("--strict", is_flag=True, help="End with 4 if records were lost.")
@with_client
def command(
    client: "Client",
    topic: str,
    from_seq: int,
    follow: bool,
    limit: int | None,
    tags: bool,
    no_meta: bool,
    node: tuple[str, ...],
    only_data: bool,
    strict: bool,
) -> int:
    """Print the records of TOPIC, one JSON object a line, exactly as the server keeps them.

    Records that were lost before they could be read (evicted, expired) are told on standard error.

    \b
    topics read jobs --from 480000 --limit 10
    topics read jobs --follow --tags | jq .data
    topics read jobs --tags | topics append copy - --format records
    """
    from topics.client import RawRecord, Tombstone

    printer = Printer(topic, only_data=only_data, flush=follow or sys.stdout.isatty())
    items = client.read(
        topic,
        from_seq=from_seq,
        follow=follow,
        limit=limit,
        include_tags=tags,
        include_meta=not no_meta,
        node=list(node) or None,
        record_type=RawRecord,
    )
    printer.last_seq = from_seq
    try:
        with refusals(lambda: printer.done):
            for item in items:
                printer.lost(item) if isinstance(item, Tombstone) else printer.print(item)
    except KeyboardInterrupt:
        raise Stop(f"interrupted; {printer.done or 'nothing was printed'}", INTERRUPTED) from None
    return LOST if strict and printer.losses else OK


class Printer:
    """Writes records and tells losses, and knows how far it came."""

    def __init__(self, topic: str, *, only_data: bool, flush: bool) -> None:
        import msgspec

        self.last_seq = 0
        self.records = 0
        self.losses = 0
        self._topic = topic
        self._only_data = only_data
        self._flush = flush
        self._out = sys.stdout.buffer
        self._encode = msgspec.json.Encoder().encode

    def print(self, record: "RawRecord") -> None:
        self._out.write(bytes(record.data) if self._only_data else self._encode(record))
        self._out.write(b"\n")
        if self._flush:
            self._out.flush()
        self.last_seq = record.seq
        self.records += 1

    def lost(self, tombstone: "Tombstone") -> None:
        self.losses += 1
        span = f"{tombstone.gap_from} to {tombstone.gap_to}"
        click.echo(
            f"topics: records {span} of {self._topic} are lost ({tombstone.reason})", err=True
        )

    @property
    def done(self) -> str:
        """How far it came, and how to go on; empty where nothing was printed."""
        if not self.records:
            return ""
        return f"{self.records:,} records were printed, go on with --from {self.last_seq}"
