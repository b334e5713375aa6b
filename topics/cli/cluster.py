"""`topics cluster`: how the nodes of a cluster stand, as one of them says it."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from topics.cli.asking import confirm, dry_run_option, yes_option
from topics.cli.exits import REFUSED, UNUSABLE, Guarded, Stop, counted, output
from topics.cli.printing import print_table, say, say_json
from topics.cli.target import with_client
from topics.cli.topic import json_option, print_json
from topics.visible import without_password

if TYPE_CHECKING:
    from topics.client import Client


@click.group("cluster", cls=Guarded)
def group() -> None:
    """The cluster that a server is in: its nodes, its leader, and how far each replica is.

    \b
    topics cluster status
    topics cluster trim --now --dry-run
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
    from topics.server.cluster.node.adoption import adopt as adopted
    from topics.server.cluster.node.adoption import take_back

    with refusals_of_disk(data_dir):
        if undo:
            take_back(data_dir)
        else:
            _require_new_cluster(name)
            made = adopted(data_dir, name, now_ms=lambda: time.time_ns() // 1_000_000)
    if as_json:
        # Not the cluster's id: it is what nodes know one another by.
        of_node = {} if undo else {"cluster": made.name, "node": made.node}
        say_json(json.dumps({"data_dir": str(data_dir), "adopted": not undo, **of_node}))
        return
    if undo:
        say(f"{data_dir}: a single server's directory again")
        return
    say(f'{data_dir}: the first node of cluster "{name}"')
    say("start it before any other node; --undo takes it back until then")


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

        say_json(msgspec.json.encode(found))
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
            say(f"nothing goes: {_waits_for(plan)}", err=True)
        return
    what = f"This removes {counted(plan['records'], 'record')} of Kafka's log, for good"
    if alone:
        what += "; where one node alone has the data, they end with its disk"
    confirm(what, yes=yes)
    done = client.trim_cluster(before=plan["before"], alone=alone)
    if as_json:
        print_json(done)
    else:
        say(f"the log begins at {done['before']:,} now; {_waits_for(plan)}", err=True)


def _explain(plan: dict[str, Any]) -> None:
    say(
        f"the log has offsets {plan['log_start']:,} to {plan['log_end']:,}; those before "
        f"{plan['before']:,} may go, which are {plan['records']:,}",
        err=True,
    )
    for each in plan["positions"]:
        needs = "all of it" if each["offset"] is None else f"it from {each['offset']:,} on"
        copy = "" if each["is_copy"] else ", and is no copy of what is before"
        say(f"  {each['node']} needs {needs}{copy}", err=True)


def _print(found: dict[str, Any]) -> None:
    say(
        f"cluster {found['cluster']}, shard {found['shard']}, term {found['term']}; "
        f"as {found['node']} knows it"
    )
    if found.get("log_start") is not None and found.get("log_end") is not None:
        say(f"log {found['log_start']:,} to {found['log_end']:,}{_trimming(found)}")
    rows = [
        [
            node["node"],
            node["role"],
            without_password(node["url"] or ""),
            *(_digits(node.get(name)) for name in NUMBERS),
        ]
        for node in found["nodes"]
    ]
    titles = (">index", ">durable", ">lag units", ">lag ms", ">seen ms ago")
    print_table("<node", "<role", "<url", *titles, rows=rows)
    loss = found.get("loss")
    if loss is not None:
        aside = loss.get("set_aside")
        mended = (
            "" if aside is None else f"; another node's snapshot took its place, it is in {aside}"
        )
        say(
            f"topics: the log has lost what {found['node']} rests on (unit {loss['index']}): "
            f"{loss['what']}{mended}",
            err=True,
        )
    snapshot = found.get("snapshot") or {}
    if snapshot.get("taking"):
        source = snapshot["source"]
        whom = "of another node, and none gives one" if source is None else f"of {source}"
        trouble = "" if snapshot["trouble"] is None else f" ({snapshot['trouble']})"
        say(
            f"{found['node']} takes a snapshot {whom}: {snapshot['copied_bytes'] / 1e6:,.0f} of "
            f"{snapshot['total_bytes'] / 1e6:,.0f} MB{trouble}"
        )
