"""Before something is destroyed: what would be hit, and whether that is meant."""

import json
import sys

import click

from topics.cli.exits import REFUSED, UNUSABLE, Stop
from topics.cli.printing import confirmed, say, say_json

yes_option = click.option("--yes", "-y", is_flag=True, help="Do it without asking.")
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Say what would be changed, and change nothing."
)


def confirm(what: str, *, yes: bool) -> None:
    """Ask on a terminal whether `what` is meant; a script says so with `--yes`.

    Raises:
        Stop: It is not.
    """
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise Stop(f"{what}: give --yes to do it, or --dry-run to see", UNUSABLE)
    if not confirmed(f"{what}. Go on?"):
        raise Stop("nothing was changed", REFUSED)


def rehearsed(what: str, *, as_json: bool, topic: str, records: int) -> None:
    """The end of a dry run: a sentence on standard error, or one JSON object as the answer."""
    if as_json:
        say_json(json.dumps({"topic": topic, "records": records, "dry_run": True}))
    else:
        say(what, err=True)
