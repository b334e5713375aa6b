"""`topics clients`: who is connected to the server."""

from itertools import islice
from typing import TYPE_CHECKING, Final

import click

from topics.cli.completion import topic_argument
from topics.cli.exits import output
from topics.cli.groups import named
from topics.cli.moments import moment_text
from topics.cli.printing import print_table, say_json, styled
from topics.cli.target import with_client

if TYPE_CHECKING:
    from topics.cli.printing import Part
    from topics.client import Client, ConnectedClient

TOPICS_NAMED: Final = 3
"""Of each client in the table; `--json` has more."""


@click.command("clients")
@topic_argument(required=False)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="At most so many.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@with_client
def command(client: "Client", topic: str | None, limit: int | None, as_json: bool) -> None:
    """List who is connected: streams, WebSockets, workers, requests that wait and Kafka connections, with
    their key, address, lag and jobs in flight; with TOPIC, those that have to do with it.

    Of a cluster, the clients of the node that answers. Needs a key with the scope `admin`.
    """
    output()
    size = 1000 if limit is None else min(limit, 1000)
    found = islice(client.clients(topic=topic, page_size=size), limit)
    if as_json:
        import msgspec

        for each in found:
            say_json(msgspec.json.encode(each))
        return
    print_table(
        *(
            "<client",
            "<kind",
            "<key",
            "<address",
            "<since",
            "<name",
            ">lag",
            ">in flight",
            "<topics",
        ),
        rows=map(_row, found),
    )


def _row(client: "ConnectedClient") -> "list[Part]":
    lag = "" if client.lag is None else f"{client.lag:,}"
    return [
        client.client,
        client.kind,
        client.key or "",
        client.address,
        moment_text(client.since_ms),
        client.node or client.group or client.agent or "",
        styled(lag, fg="yellow") if client.lag else lag,
        "" if client.in_flight is None else f"{client.in_flight:,}",
        _topics(client),
    ]


def _topics(client: "ConnectedClient") -> str:
    shown = client.topics[:TOPICS_NAMED]
    more = client.topic_count - len(shown)
    names = [named(each.topic, each.partition or 0) for each in shown]
    return ", ".join([*names, f"{more:,} more"] if more else names)
