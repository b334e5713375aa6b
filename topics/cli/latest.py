"""`topics latest`: the newest record of a tag, or of each, on standard output."""

from typing import TYPE_CHECKING

import click

from topics.cli.completion import topic_argument
from topics.cli.exits import UNUSABLE, Stop, output
from topics.cli.printing import record_filter
from topics.cli.shapes import shape_of, shape_options
from topics.cli.target import with_client

if TYPE_CHECKING:
    from topics.client import Client


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

    from topics.client import RawRecord

    if tag is not None and prefix is not None:
        raise Stop("TAG and --prefix exclude each other", UNUSABLE)
    shape = shape_of(template, columns, no_header, others=only_data)
    out, shown = output(), record_filter()
    if shape is not None:
        out.write(shape.header)
    if tag is None:
        records = client.latest_all(
            topic, prefix or "", record_type=RawRecord, include_meta=not no_meta
        )
    else:
        records = iter([client.latest(topic, tag, record_type=RawRecord, include_meta=not no_meta)])
    for record in records:
        if shape is not None:
            out.write(shape.line(topic, record, 0) + b"\n")
            continue
        text = bytes(record.data) if only_data else msgspec.json.encode(record)
        out.write(shown(text) + b"\n")
