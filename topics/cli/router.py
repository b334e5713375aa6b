"""`topics router create | info | delete`: one router."""

from typing import TYPE_CHECKING

import click

from topics.cli.asking import confirm, dry_run_option, yes_option
from topics.cli.completion import router_argument, topic_argument
from topics.cli.exits import Guarded, counted, output
from topics.cli.printing import say
from topics.cli.routers import filter_of
from topics.cli.target import with_client
from topics.cli.topic import json_option, print_json

if TYPE_CHECKING:
    from topics.client import Client


@click.group("router", cls=Guarded)
def group() -> None:
    """Create, look at or delete one router; `topics routers` lists them all."""


@group.command("create")
@click.argument("name")
@topic_argument("source")
@topic_argument("dest")
@click.option("--filter", metavar="GLOB", help="Only tags like it; a final * is any rest.")
@click.option("--no-node", is_flag=True, help="Copies do not keep the writer.")
@click.option("--no-tag", is_flag=True, help="Copies do not keep the tag.")
@click.option("--no-create", is_flag=True, help="Refuse where DEST does not exist.")
@click.option("--allow-cycle", is_flag=True, help="Allow a ring; a record goes round 8 times.")
@click.option("--exactly-once", is_flag=True, help="No copy twice, whatever crashes.")
@json_option
@with_client
def create(
    client: "Client",
    name: str,
    source: str,
    dest: str,
    filter: str | None,
    no_node: bool,
    no_tag: bool,
    no_create: bool,
    allow_cycle: bool,
    exactly_once: bool,
    as_json: bool,
) -> None:
    """Copy every record that is appended to SOURCE from now on to DEST.

    A router of that NAME that exists is replaced.

    \b
    topics router create orders-audit orders audit --filter 'eu.*'
    """
    pattern = ("tag", "Glob", filter) if filter is not None and filter.endswith("*") else filter
    made = client.put_router(
        name,
        source,
        dest,
        filter=pattern,
        preserve_node=not no_node,
        preserve_tag=not no_tag,
        create_dest=not no_create,
        allow_cycle=allow_cycle,
        guarantee="exactly_once" if exactly_once else "at_least_once",
    )
    if as_json:
        print_json(made)
    else:
        verb = "was created" if made.created else "is as asked"
        say(f"{name} {verb}: {source} -> {dest}", err=True)


@group.command("info")
@router_argument()
@json_option
@with_client
def info(client: "Client", name: str, as_json: bool) -> None:
    """Show what the router NAME forwards, how far it is, and what blocks it."""
    found = client.router(name)
    if as_json:
        print_json(found)
        return
    output()
    rows = [
        ("router", found.router),
        ("copies", f"{found.source} -> {found.dest}"),
        ("filter", filter_of(found) or "none"),
        ("guarantee", found.guarantee),
        ("forwarded", f"{found.forwarded_total:,}"),
        ("cursor", f"{found.cursor_seq:,}"),
        ("lag", f"{found.lag:,}"),
    ]
    if found.lost_total:
        rows.append(("lost", f"{found.lost_total:,} were lost before they were forwarded"))
    if found.blocked is not None:
        rows.append(("blocked", f"{found.blocked.code}: {found.blocked.message}"))
    for field, text in rows:
        say(f"{field:<12}{text}")


@group.command("delete")
@router_argument()
@dry_run_option
@yes_option
@json_option
@with_client
def delete(client: "Client", name: str, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Delete the router NAME; what it has copied stays, and what it has not copied yet is not copied."""
    found = client.router(name)
    behind = f", which has {counted(found.lag, 'record')} still to copy" if found.lag else ""
    what = f"{name} ({found.source} -> {found.dest}){behind}"
    if dry_run:
        if as_json:
            print_json({"router": name, "lag": found.lag, "dry_run": True})
        else:
            say(f"{what} would be deleted", err=True)
        return
    confirm(f"This deletes {what}", yes=yes)
    done = client.delete_router(name)
    if as_json:
        print_json(done)
    else:
        say(f"{name} was deleted", err=True)
