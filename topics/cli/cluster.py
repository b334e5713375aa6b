"""`topics cluster`: how the nodes of a cluster stand, as one of them says it."""

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from topics.cli.exits import REFUSED, UNUSABLE, Stop, output, print_rich
from topics.cli.target import with_client

if TYPE_CHECKING:
    from topics.client import Client


@click.group("cluster")
def group() -> None:
    """The cluster that a server is in: its nodes, its leader, and how far each replica is.

    \b
    topics cluster status
    topics cluster status --json | jq '.nodes[] | select(.lag_ms > 1000)'
    topics cluster adopt /var/lib/topics
    """


@group.command("adopt")
@click.argument("data_dir", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--name", envvar="TOPICS_CLUSTER_NAME", default="topics", show_default=True,
    help="Of the new cluster.  [TOPICS_CLUSTER_NAME]",
)  # fmt: skip
@click.option("--undo", is_flag=True, help="Make it a single server's directory again.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def adopt(data_dir: Path, name: str, undo: bool, as_json: bool) -> None:
    """Make a stopped server's data directory the first node of a new cluster.

    Nothing is copied: the files move into DIR/store. Topics keep their records, sequence numbers and
    epochs, so readers go on at their cursors. Then start this node, before any other, with the same
    TOPICS_CLUSTER_NAME; the others begin with empty directories, and take a snapshot of it.

    --undo takes it back, until the cluster has written its first unit, which it does as soon as the
    node leads. If the command is interrupted, run it again. Ends with 2 where DIR is in use, a node's,
    or no data directory; and where TOPICS_CLUSTER_KAFKA is set and the cluster exists already.
    """
    from topics.cli.offline import refusals as refusals_of_disk
    from topics.server.cluster.adoption import adopt as adopted
    from topics.server.cluster.adoption import take_back

    with refusals_of_disk(data_dir):
        if undo:
            take_back(data_dir)
        else:
            _require_new_cluster(name)
            made = adopted(data_dir, name, now_ms=lambda: time.time_ns() // 1_000_000)
    if as_json:
        # Not the cluster's id: it is what nodes know one another by.
        of_node = {} if undo else {"cluster": made.name, "node": made.node}
        click.echo(json.dumps({"data_dir": str(data_dir), "adopted": not undo, **of_node}))
        return
    if undo:
        click.echo(f"{data_dir}: a single server's directory again")
        return
    click.echo(f'{data_dir}: the first node of cluster "{name}"')
    click.echo("start it before any other node; --undo takes it back until then")


def _require_new_cluster(name: str) -> None:
    """Where the settings say where Kafka is, the cluster must not be there; else the first start asks."""
    import asyncio

    from topics.cli.serve import settings_of

    settings = settings_of({"cluster_name": name})
    if settings.cluster_kafka is None:
        return
    from topics.server.cluster.assembly import kafka_of
    from topics.server.cluster.kafka.asking import Brokers
    from topics.server.cluster.kafka.checks import require_absent
    from topics.server.cluster.kafka.failures import CannotStart

    async def asked() -> None:
        kafka = kafka_of(settings, "adopt")
        await require_absent(kafka, Brokers(kafka))

    try:
        asyncio.run(asked())
    except CannotStart as refusal:
        raise Stop(str(refusal), UNUSABLE) from None


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
        aside = loss.get("set_aside")
        mended = (
            "" if aside is None else f"; another node's snapshot took its place, it is in {aside}"
        )
        click.echo(
            f"topics: the log has lost what {found['node']} rests on (unit {loss['index']}): "
            f"{loss['what']}{mended}",
            err=True,
        )
    snapshot = found.get("snapshot") or {}
    if snapshot.get("taking"):
        source = snapshot["source"]
        whom = "of another node, and none gives one" if source is None else f"of {source}"
        trouble = "" if snapshot["trouble"] is None else f" ({snapshot['trouble']})"
        click.echo(
            f"{found['node']} takes a snapshot {whom}: {snapshot['copied_bytes'] / 1e6:,.0f} of "
            f"{snapshot['total_bytes'] / 1e6:,.0f} MB{trouble}"
        )
