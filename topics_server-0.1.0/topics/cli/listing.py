"""`topics topics`: the list of topics."""

import sys
from typing import TYPE_CHECKING

import click

from topics.cli.exits import output, print_rich
from topics.cli.target import with_client

if TYPE_CHECKING:
    from topics.client import Client, TopicSummary


@click.command("topics")
@click.option("--prefix", default="", metavar="TEXT", help="Only names that begin with it.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@with_client
def command(client: "Client", prefix: str, as_json: bool) -> None:
    """List the topics: how many records, how large, which sequence numbers; for queues, how many
    jobs are ready, in flight and delayed."""
    output()
    found = client.topics(prefix=prefix)
    if as_json:
        import msgspec

        for topic in found:
            click.echo(msgspec.json.encode(topic))
    else:
        _print_table(list(found))


def _print_table(found: "list[TopicSummary]") -> None:
    from rich.console import Console
    from rich.table import Table

    has_queues = any(topic.queue is not None for topic in found)
    table = Table(box=None, pad_edge=False)
    table.add_column("topic", overflow="fold")
    for name in ("records", "bytes", "first seq", "head seq"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("ready", "in flight", "delayed") if has_queues else ():
        table.add_column(name, justify="right", no_wrap=True)
    for topic in found:
        numbers = [topic.count, topic.bytes, topic.earliest_seq, topic.head_seq]
        if topic.queue is not None:
            numbers += [topic.queue.ready, topic.queue.in_flight, topic.queue.delayed]
        table.add_row(topic.topic, *(f"{number:,}" for number in numbers))
    # Into a pipe a name is never folded: the program that reads it needs the whole name.
    print_rich(Console(file=sys.stdout, width=None if sys.stdout.isatty() else 400), table)
