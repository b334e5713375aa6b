"""`topics cluster`: how the nodes of a cluster stand, as one of them says it."""

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from topics.cli.asking import confirm, dry_run_option, yes_option
from topics.cli.exits import REFUSED, UNUSABLE, Stop, counted, output, print_rich
from topics.cli.target import with_client
from topics.cli.topic import json_option, print_json

if TYPE_CHECKING:
    from topics.client import Client


@click.group("cluster")
def group() -> None:
    """The cluster that a server is in: its nodes, its leader, and how far each replica is.

    \b
    topics cluster status
    topics cluster trim --now --dry-run
    topics cluster status --json | jq '.nodes[] | select(.lag_ms > 1000)'
    """


NUMBERS: Final = ("index", "durable", "lag_units", "lag_ms", "seen_ms_ago")
WAITS: Final = {
    "retention": "the rest is too young",
    "copies": "fewer than two nodes have it on their disks",
}
"""What a trim waits for, where it is not a node."""


def _digits(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _waits_for(found: dict[str, Any]) -> str:
    wait = found["waits_for"]
    return f"node {found['node']} needs the rest" if wait == "node" else WAITS[wait]


def _trimming(found: dict[str, Any]) -> str:
    """How far the trimming of the log is: the end of a line."""
    trim = found.get("trim")
    if trim is None:
        return ""
    last = "never"
    if trim["last_ms"] is not None:
        at = datetime.fromtimestamp(trim["last_ms"] / 1000, UTC)
        last = f"{at:%Y-%m-%d %H:%M:%S}Z"
    return f"; trimmed last: {last}; {_waits_for(trim)}"


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


@group.command("trim")
@click.option(
    "--before", type=click.IntRange(min=0), metavar="OFFSET", help="However young they are."
)
@click.option("--now", is_flag=True, help="All that no live node needs, however young.")
@click.option("--alone", is_flag=True, help="Also where one node alone has the data.")
@dry_run_option
@yes_option
@json_option
@with_client
def trim(
    client: "Client",
    before: int | None,
    now: bool,
    alone: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Let the oldest records of the cluster's log go, which Kafka keeps.

    The leader does so by itself, up to what all live nodes have on their disks and for what is older
    than TOPICS_CLUSTER_RETAIN_MS. Without an option this does the same now. What a live node needs is
    refused. No topic loses a record: each node has its own.

    \b
    topics cluster trim --now --dry-run
    topics cluster trim --before 480000 --yes
    """
    if before is not None and now:
        raise Stop("--before and --now exclude each other", UNUSABLE)
    plan = client.trim_cluster(before=before, now=now, alone=alone, dry_run=True)
    if not as_json:
        _explain(plan)
    if dry_run or not plan["records"]:
        if as_json:
            print_json(plan)
        elif not plan["records"]:
            click.echo(f"nothing goes: {_waits_for(plan)}", err=True)
        return
    what = f"This removes {counted(plan['records'], 'record')} of Kafka's log, for good"
    if alone:
        what += "; where one node alone has the data, they end with its disk"
    confirm(what, yes=yes)
    done = client.trim_cluster(before=plan["before"], alone=alone)
    if as_json:
        print_json(done)
    else:
        click.echo(f"the log begins at {done['before']:,} now; {_waits_for(plan)}", err=True)


def _explain(plan: dict[str, Any]) -> None:
    click.echo(
        f"the log has offsets {plan['log_start']:,} to {plan['log_end']:,}; those before "
        f"{plan['before']:,} may go, which are {plan['records']:,}",
        err=True,
    )
    for each in plan["positions"]:
        needs = "all of it" if each["offset"] is None else f"it from {each['offset']:,} on"
        copy = "" if each["is_copy"] else ", and is no copy of what is before"
        click.echo(f"  {each['node']} needs {needs}{copy}", err=True)


def _print(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    click.echo(
        f"cluster {found['cluster']}, shard {found['shard']}, term {found['term']}; "
        f"as {found['node']} knows it"
    )
    if found.get("log_start") is not None and found.get("log_end") is not None:
        click.echo(f"log {found['log_start']:,} to {found['log_end']:,}{_trimming(found)}")
    table = Table(box=None, pad_edge=False)
    for name in ("node", "role", "url"):
        table.add_column(name, overflow="fold")
    for name in ("index", "durable", "lag units", "lag ms", "seen ms ago"):
        table.add_column(name, justify="right", no_wrap=True)
    for node in found["nodes"]:
        numbers = [node.get(name) for name in NUMBERS]
        table.add_row(node["node"], node["role"], node["url"], *map(_digits, numbers))
    print_rich(Console(file=sys.stdout, width=None if sys.stdout.isatty() else 400), table)
    loss = found.get("loss")
    if loss is not None:
        click.echo(
            f"topics: the log has lost what {found['node']} rests on (unit {loss['index']}): "
            f"{loss['what']}",
            err=True,
        )
