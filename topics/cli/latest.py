"""`topics latest`: the newest record of a tag, or of each, on standard output."""

from collections.abc import Iterator
from itertools import zip_longest
from typing import TYPE_CHECKING

import click

from topics.cli.completion import topic_argument
from topics.cli.exits import UNUSABLE, Stop, output
from topics.cli.printing import in_partition, record_filter
from topics.cli.shapes import shape_of, shape_options
from topics.cli.target import with_client

if TYPE_CHECKING:
    from topics.client import Client, RawRecord


@click.command("latest")
@topic_argument()
@click.argument("tag", required=False)
@click.option("--prefix", metavar="TEXT", help="Only tags that begin so.")
@click.option("--no-meta", is_flag=True, help="Leave meta out.")
@click.option("--data", "only_data", is_flag=True, help="Print only data, byte for byte.")
@shape_options
@with_client
def command(
    client: "Client",
    topic: str,
    tag: str | None,
    prefix: str | None,
    no_meta: bool,
    only_data: bool,
    template: str | None,
    columns: str | None,
    no_header: bool,
) -> None:
    """Print the newest record of TAG in TOPIC, or that of each tag, one JSON object a line.

    \b
    topics latest prices EUR --data
    topics latest devices --prefix hall-3.
    topics latest devices --csv tag,time,data.celsius
    """
    import msgspec

    if tag is not None and prefix is not None:
        raise Stop("TAG and --prefix exclude each other", UNUSABLE)
    shape = shape_of(template, columns, no_header, others=only_data)
    out, shown = output(), record_filter()
    if shape is not None:
        out.write(shape.header)
    for record, partition in _found(client, topic, tag, prefix or "", include_meta=not no_meta):
        if shape is not None:
            line = shape.line(topic, record, partition or 0)
        elif only_data:
            line = shown(bytes(record.data))
        else:
            line = shown(in_partition(msgspec.json.encode(record), partition))
        out.write(line + b"\n")


def _found(
    client: "Client", topic: str, tag: str | None, prefix: str, *, include_meta: bool
) -> "Iterator[tuple[RawRecord, int | None]]":
    """Each record, and the partition that it is of where the topic has several."""
    from topics.client import RawRecord, endpoints

    cursor = None
    while True:
        page = client.session.do(
            endpoints.latest(
                topic, RawRecord, tag=tag, prefix=prefix, include_meta=include_meta, cursor=cursor
            )
        )
        yield from zip_longest(page.records, page.partitions)
        cursor = page.next_cursor
        if cursor is None:
            return
