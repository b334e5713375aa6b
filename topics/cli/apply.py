"""`topics apply` and `topics export-config`: topics, routers and schedules as files."""

import json
import sys
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from topics.cli.asking import confirm, dry_run_option, yes_option
from topics.cli.exits import (
    OK,
    PENDING,
    REFUSED,
    UNUSABLE,
    Stop,
    abandon,
    counted,
    output,
    refusals,
)
from topics.cli.printing import Part, is_terminal, say, say_json, styled, warn
from topics.cli.target import with_client

if TYPE_CHECKING:
    from collections.abc import Callable

    from topics.cli.apply_fields import Declared
    from topics.cli.apply_plan import Change, Plan
    from topics.client import Client

SIGNS: Final[dict[str, tuple[str, str]]] = {
    "create": ("+", "green"),
    "change": ("~", "yellow"),
    "delete": ("-", "red"),
    "refused": ("!", "red"),
}
"""Of each action: its sign before a name, and its colour."""
VALUE_CHARS: Final = 200
"""Of a value that is printed in a plan."""


@click.command("apply")
@click.option(
    "--file",
    "-f",
    "files",
    multiple=True,
    required=True,
    metavar="FILE|DIR|-",
    help="YAML or JSON, a directory of such files, or - for standard input; may be repeated.",
)
@click.option(
    "--prune", is_flag=True, help="Delete what the files do not name, of the kinds they have."
)
@click.option("--exit-code", is_flag=True, help="With --dry-run: end with 6 if there are changes.")
@dry_run_option
@yes_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object: every change.")
@with_client
def command(
    client: "Client",
    files: tuple[str, ...],
    prune: bool,
    exit_code: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Create and change topics, routers and schedules, so that they are as files declare them.

    Prints what differs first, and asks where a change would take records away.  A field that a file
    does not name has its default: --dry-run says which ones would go back to it.  Applied again,
    nothing changes.

    \b
    topics apply -f topics.yaml --dry-run
    topics apply -f topics.yaml -f more/ --prune
    topics export-config | topics --profile other apply -f -
    """
    from topics.cli.apply_fields import read_declarations
    from topics.cli.apply_files import read_documents
    from topics.cli.apply_plan import make_plan

    if exit_code and not dry_run:
        raise Stop("--exit-code is for --dry-run", UNUSABLE)
    output()
    declarations = read_declarations(read_documents(files))
    plan = make_plan(client, declarations, prune=prune)
    ends = PENDING if exit_code and plan.pending else OK
    if not as_json and not _print_whole(plan):
        if not dry_run:
            raise Stop("the plan was not read to its end; nothing was changed", UNUSABLE)
        return ends
    if plan.of("refused"):
        if as_json:
            _print_json(plan, made=0)
        count = counted(len(plan.of("refused")), "topic")
        raise Stop(f"{count} cannot be changed so; nothing was changed", REFUSED)
    if not dry_run:
        _confirm(plan, yes=yes)
        _make(client, plan)
    if as_json:
        _print_json(plan, made=0 if dry_run else len(plan.pending))
    return ends


def _confirm(plan: "Plan", *, yes: bool) -> None:
    removed = [change.removes for change in plan.pending if change.removes]
    if removed:
        confirm(f"This deletes {'; '.join(removed)}", yes=yes)


# ---------------------------------------------------------------------- changes are made


def _make(client: "Client", plan: "Plan") -> None:
    """Make the changes in their order.

    Raises:
        Stop: The server refused one; says which, and how many were made before.
    """
    pending = plan.pending
    for count, change in enumerate(pending):
        done = f"{count:,} of {counted(len(pending), 'change')} made before"
        with refusals(partial(str, done), partial(_refused, change)):
            _make_one(client, change)
    if pending:
        say(f"{counted(len(pending), 'change')} made", err=True)


def _refused(change: "Change", message: str) -> str:
    where = f"{change.declared.place}: " if change.declared is not None else ""
    return f"{where}{change.title}: {message}"


def _make_one(client: "Client", change: "Change") -> None:
    from topics.client.call import Call
    from topics.client.encoding import encode
    from topics.client.endpoints import router_path, schedule_path, topic_path

    if change.declared is None:
        _delete(client, change)
        return
    path: dict[str, Callable[[str], str]] = {
        "topics": topic_path,
        "routers": router_path,
        "schedules": schedule_path,
    }
    # A field without a value is left out: its default is asked for, also by those that take no null.
    body = {name: value for name, value in change.declared.body.items() if value is not None}
    call = Call("PUT", path[change.kind](change.name), json.loads, body=encode(body))
    _check_kept(change.declared, client.session.do(call))


def _delete(client: "Client", change: "Change") -> None:
    """What was deleted meanwhile is as it is to be.  A topic that was empty is deleted only if it still is,
    because the question before counted its records."""
    from topics.client import RouterNotFound, ScheduleNotFound, TopicNotFound

    with suppress(RouterNotFound, ScheduleNotFound, TopicNotFound):
        if change.kind == "topics":
            client.delete_topic(change.name, if_empty=change.is_empty)
        elif change.kind == "routers":
            client.delete_router(change.name)
        else:
            client.delete_schedule(change.name)


def _check_kept(declared: "Declared", answer: dict[str, Any]) -> None:
    """Warn where the server keeps a field otherwise than the file has it: the next plan would have
    that as a change again."""
    from topics.cli.apply_fields import field_text, is_same, normal

    kept = normal(declared.kind, answer["config"] if declared.kind == "topics" else answer)
    for name, value in declared.normal.items():
        if name in declared.body and not is_same(value, kept[name]):
            text = _short(field_text(name, kept[name]))
            warn(f"{declared.place}: {declared.title}: the server keeps {name} as {text}")


# ---------------------------------------------------------------------- what is printed


def _print_whole(plan: "Plan") -> bool:
    """Print the plan; False where the reader of a pipe closed it before its end."""
    try:
        _print_plan(plan)
    except BrokenPipeError:
        abandon(sys.stdout)
        return False
    return True


def _print_plan(plan: "Plan") -> None:
    for change in plan.changes:
        if change.action != "unchanged":
            _print_change(change)
    count = {
        "to create": len(plan.of("create")),
        "to change": len(plan.of("change")),
        "to delete": len(plan.of("delete")),
        "impossible": len(plan.of("refused")),
    }
    parts = [f"{number:,} {what}" for what, number in count.items() if number]
    parts.append(f"{len(plan.of('unchanged')):,} unchanged")
    say(", ".join(parts))


def _print_change(change: "Change") -> None:
    from topics.cli.apply_fields import field_text

    sign, colour = SIGNS[change.action]
    place = f"  ({change.declared.place})" if change.declared is not None else ""
    parts: list[Part] = [styled(f"{sign} {change.title}", fg=colour), styled(place, dim=True)]
    if change.note:
        parts.append(styled(f"  {change.note}", fg="red" if change.removes else "yellow"))
    say(*parts)
    for name, (old, new) in change.fields.items():
        text = _short(field_text(name, new))
        if change.action == "create":
            say(f"    {name}: {text}")
            continue
        named = change.declared is not None and name in change.declared.body
        default = "" if named else ", the default"
        say(f"    {name}: {_short(field_text(name, old))} -> {text}{default}")


def _short(text: str) -> str:
    return text if len(text) <= VALUE_CHARS else text[: VALUE_CHARS - 3] + "..."


def _print_json(plan: "Plan", *, made: int) -> None:
    rows = []
    for change in plan.changes:
        row: dict[str, Any] = {"kind": change.kind, "name": change.name, "action": change.action}
        if change.fields:
            row["fields"] = {
                name: {"from": old, "to": new} for name, (old, new) in change.fields.items()
            }
        if change.note:
            row["note"] = change.note
        if change.declared is not None:
            row["place"] = change.declared.place
        rows.append(row)
    answer = {"changes": rows, "pending": len(plan.pending), "made": made}
    say_json(json.dumps(answer, ensure_ascii=False))


# ---------------------------------------------------------------------- export-config


@click.command("export-config")
@click.option("--prefix", default="", metavar="TEXT", help="Only names that begin with it.")
@click.option("--json", "as_json", is_flag=True, help="JSON; YAML by default.")
@with_client
def export(client: "Client", prefix: str, as_json: bool) -> None:
    """Print the topics, routers and schedules of the server as a file that `topics apply` takes.

    A field that has its default is left out.  Records, groups and keys are no part of it.

    \b
    topics export-config > topics.yaml
    topics export-config --prefix tenant42: --json
    """
    from topics.cli.apply_export import exported
    from topics.cli.apply_files import written

    out = output()
    document = exported(client, prefix, has_units=not as_json)
    text = written(document, as_json=as_json, is_ascii=is_terminal())
    out.write(text.encode("utf-8", "backslashreplace"))
    sys.stdout.flush()
