"""`topics cluster`: how the nodes of a cluster stand, as one of them says it."""

import sys
from typing import TYPE_CHECKING, Any

import click

from topics.cli.exits import REFUSED, Stop, output, print_rich
from topics.cli.target import with_client

if TYPE_CHECKING:
    from topics.client import Client


@click.group("cluster")
def group() -> None:
    """The cluster that a server is in: its nodes, its leader, and how far each replica is.

    \b
    topics cluster status
    topics cluster status --json | jq '.nodes[] | select(.lag_ms > 1000)'
    """


@group.command("status")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@with_client
def status(client: "Client", as_json: bool) -> None:
    """Show the nodes of the cluster, which of them leads, and how far behind each replica is.

    Figures of other nodes are as old as the last column says. Ends with 1 where the server is in no
    cluster, or no node leads now.
    """
    output()
    found = client.cluster()
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode(found))
    if not found.get("enabled"):
        raise Stop("the server is in no cluster", REFUSED)
    if not as_json:
        _print(found)
    if found.get("leader") is None:
        raise Stop("no node leads now: writes are refused until one does", REFUSED)


def _print(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    click.echo(
        f"cluster {found['cluster']}, shard {found['shard']}, term {found['term']}; "
        f"as {found['node']} knows it"
    )
    table = Table(box=None, pad_edge=False)
    for name in ("node", "role", "url"):
        table.add_column(name, overflow="fold")
    for name in ("index", "lag units", "lag ms", "seen ms ago"):
        table.add_column(name, justify="right", no_wrap=True)
    for node in found["nodes"]:
        numbers = [node[name] for name in ("index", "lag_units", "lag_ms", "seen_ms_ago")]
        row = (node["node"], node["role"], node["url"], *(f"{number:,}" for number in numbers))
        table.add_row(*row)
    print_rich(Console(file=sys.stdout, width=None if sys.stdout.isatty() else 400), table)
    loss = found.get("loss")
    if loss is not None:
        click.echo(
            f"topics: the log has lost what {found['node']} rests on (unit {loss['index']}): "
            f"{loss['what']}",
            err=True,
        )
