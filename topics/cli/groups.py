"""`topics groups list | show | commit | delete`: groups of consumers, and how far they are."""

from typing import TYPE_CHECKING

import click

from topics.cli.asking import confirm, dry_run_option, yes_option
from topics.cli.completion import group_argument
from topics.cli.exits import UNUSABLE, Guarded, Stop, counted, output
from topics.cli.printing import print_table, say, say_json, styled
from topics.cli.target import with_client
from topics.cli.topic import json_option, print_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topics.cli.printing import Part
    from topics.client import Client, GroupMember, GroupOffset


class Listing(Guarded):
    """Its commands; without one, `list`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        begins = args[0] if args else ""
        if not args or (begins.startswith("-") and begins not in ctx.help_option_names):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group("groups", cls=Listing)
def group() -> None:
    """List groups of consumers, show one, and move it; without a command, the list.

    \b
    topics groups
    topics groups show billing
    topics groups commit billing orders=4096 'clicks#3=17'
    """


@group.command("list")
@click.option("--prefix", default="", metavar="TEXT", help="Only names that begin with it.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@with_client
def list_(client: "Client", prefix: str, as_json: bool) -> None:
    """List the groups: what each does, and how many members it has."""
    output()
    found = client.groups(prefix=prefix)
    if as_json:
        import msgspec

        for each in found:
            say_json(msgspec.json.encode(each))
        return
    print_table(
        *("<group", "<kind", "<state", ">generation", ">members"),
        rows=(
            [each.group, each.kind, each.state, f"{each.generation:,}", f"{each.members:,}"]
            for each in found
        ),
    )


@group.command("show")
@group_argument()
@json_option
@with_client
def show(client: "Client", name: str, as_json: bool) -> None:
    """Show the members of the group NAME, and for each partition the sequence number up to which it is done, how many
    records are before it, and how many it lost."""
    found = client.group(name)
    offsets = client.group_offsets(name)
    if as_json:
        import msgspec

        whole = msgspec.structs.replace(found, offsets=list(offsets), next_cursor=None)
        print_json(whole)
        return
    output()
    rows = [
        ("group", found.group),
        ("state", found.state),
        ("generation", f"{found.generation:,}"),
        ("members", f"{len(found.members):,}"),
    ]
    for field, text in rows:
        say(f"{field:<12}{text}")
    if found.members:
        say("")
        print_table("<member", "<client", "<host", "<reads", rows=map(_member, found.members))
    say("")
    print_table(">seq", ">lag", ">lost", "<topic", rows=map(_offset, offsets))


def _member(member: "GroupMember") -> "list[Part]":
    return [
        member.instance_id or member.member_id,
        member.client_id,
        member.client_host,
        ", ".join(_reads(member)),
    ]


def _reads(member: "GroupMember") -> "Iterator[str]":
    for each in member.assignment or ():
        numbers = ",".join(map(str, sorted(each.partitions)))
        yield f"{each.topic}#{numbers}"


def _offset(offset: "GroupOffset") -> "list[Part]":
    return [
        f"{offset.seq:,}",
        f"{offset.lag:,}",
        styled(f"{offset.lost:,}", fg="red") if offset.lost else "0",
        named(offset.topic, offset.partition),
    ]


def named(topic: str, partition: int) -> str:
    """A partition as it is typed; the first one is the topic itself."""
    return f"{topic}#{partition}" if partition else topic


@group.command("commit")
@group_argument()
@click.argument("offsets", nargs=-1, required=True, metavar="TOPIC[#PARTITION]=SEQ...")
@json_option
@with_client
def commit(client: "Client", name: str, offsets: tuple[str, ...], as_json: bool) -> None:
    """Say how far the group NAME is: records up to SEQ are done with.

    A group that has members is theirs, and is refused.

    \b
    topics groups commit billing orders=4096 'clicks#3=17'
    """
    done = client.commit_offsets(name, dict(map(_parsed, offsets)))
    if as_json:
        print_json(done)
    else:
        say(f"{counted(done.committed, 'offset')} of {name} stored", err=True)


def _parsed(given: str) -> tuple[tuple[str, int], int]:
    where, _, seq = given.rpartition("=")
    topic, mark, partition = where.partition("#")
    numbers = [seq, partition] if mark else [seq]
    if not topic or not all(each.isascii() and each.isdigit() for each in numbers):
        raise Stop(f"{given} is not TOPIC=SEQ or TOPIC#PARTITION=SEQ", UNUSABLE)
    return (topic, int(partition or 0)), int(seq)


@group.command("delete")
@group_argument()
@dry_run_option
@yes_option
@json_option
@with_client
def delete(client: "Client", name: str, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Forget the group NAME and how far it is in each topic; the records stay."""
    offsets = sum(1 for _ in client.group_offsets(name))
    what = f"{name}, which has {counted(offsets, 'offset')}"
    if dry_run:
        if as_json:
            print_json({"group": name, "offsets": offsets, "dry_run": True})
        else:
            say(f"{what} would be forgotten", err=True)
        return
    confirm(f"This forgets {what}", yes=yes)
    done = client.delete_group(name)
    if as_json:
        print_json(done)
    else:
        say(f"{name} was forgotten", err=True)
