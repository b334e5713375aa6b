"""`topics jobs list | show | promote | retry | cancel`: the jobs of a queue, and what becomes of them."""

from typing import TYPE_CHECKING

import click

from topics.cli.asking import confirm, dry_run_option, yes_option
from topics.cli.completion import topic_argument
from topics.cli.exits import UNUSABLE, Guarded, Stop, counted, output
from topics.cli.moments import moment_text
from topics.cli.printing import encoded, print_table, say, say_json
from topics.cli.target import with_client
from topics.cli.topic import json_option, print_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from topics.cli.printing import Part
    from topics.client import Client, JobInfo, JobsChanged

STATES = ("ready", "delayed", "leased", "done", "dead")


@click.group("jobs", cls=Guarded)
def group() -> None:
    """List the jobs of a queue, show one, and promote, retry or cancel them.

    \b
    topics jobs list jobs --state delayed
    topics jobs show jobs 480101
    topics jobs retry jobs 480101
    topics jobs cancel jobs --match 'tenant42:*'
    """


@group.command("list")
@topic_argument("queue", metavar="QUEUE")
@click.option("--state", type=click.Choice(STATES), help="Only those; else all in the queue.")
@click.option("--group", "of_group", metavar="TEXT", help="Only those of this group.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="At most so many.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@with_client
def list_(
    client: "Client",
    queue: str,
    state: str | None,
    of_group: str | None,
    limit: int | None,
    as_json: bool,
) -> None:
    """List jobs of QUEUE by number; those that are done or dead as they ended, for as long as the queue keeps
    what became of them (result_ttl_ms, keep_done)."""
    from itertools import islice

    output()
    size = 1000 if limit is None else min(limit, 1000)
    jobs = islice(client.jobs(queue, state=state, group=of_group, page_size=size), limit)
    if as_json:
        for job in jobs:
            say_json(encoded(job))
        return
    print_table(
        *(">seq", "<state", ">deliveries", "<node", "<when", "<last reason or result"),
        rows=map(_row, jobs),
    )


def _row(job: "JobInfo") -> "list[Part]":
    return [
        str(job.seq),
        job.state,
        f"{job.deliveries:,}",
        job.node or "",
        _when(job),
        _outcome(job),
    ]


def _when(job: "JobInfo") -> str:
    at_ms = job.ready_at_ms or job.deadline_ms or job.ended_at_ms
    return "" if at_ms is None else moment_text(at_ms)


def _outcome(job: "JobInfo") -> str:
    if job.dead_letter is not None:
        return f"{job.dead_letter.topic} {job.dead_letter.seq}"
    if job.result is not None:
        return encoded(job.result).decode()
    return job.reasons[-1].reason if job.reasons else ""


@group.command("show")
@topic_argument("queue", metavar="QUEUE")
@click.argument("seq", type=click.IntRange(1), metavar="SEQ")
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(0, 30),
    metavar="SECONDS",
    help="Wait for its end, at most 30.",
)
@json_option
@with_client
def show(client: "Client", queue: str, seq: int, wait_s: float | None, as_json: bool) -> None:
    """Show the job SEQ of QUEUE: where it is, why it was given back, what came of it."""
    job = client.job(queue, seq, wait_ms=int((wait_s or 0) * 1000))
    if as_json:
        print_json(job)
        return
    output()
    rows = [
        ("job", str(job.seq)),
        ("state", job.state),
        ("deliveries", f"{job.deliveries:,}"),
        ("node", job.node),
        ("when", _when(job)),
        ("progress", None if job.progress is None else encoded(job.progress).decode()),
        ("result", None if job.result is None else encoded(job.result).decode()),
        ("dead letter", None if job.dead_letter is None else _outcome(job)),
    ]
    for field, text in rows:
        if text:
            say(f"{field:<14}{text}")
    for reason in job.reasons:
        say(f"{'reason':<14}{moment_text(reason.time_ms)}  {reason.node}  {reason.reason}")


def _which(seq: int | None, match: str | None, state: str | None = None) -> None:
    if seq is not None and (match is not None or state is not None):
        raise Stop("either SEQ or --match and --state say which jobs", UNUSABLE)


_SEQ = click.argument("seq", type=click.IntRange(1), required=False, metavar="[SEQ]")
_MATCH = click.option("--match", metavar="GLOB", help="Those of this tag; a final * is any rest.")


@group.command("promote")
@topic_argument("queue", metavar="QUEUE")
@_SEQ
@_MATCH
@dry_run_option
@json_option
@with_client
def promote(
    client: "Client", queue: str, seq: int | None, match: str | None, dry_run: bool, as_json: bool
) -> None:
    """Let the job SEQ of QUEUE be claimed now, though it is delayed; without SEQ, all that are."""
    _which(seq, match)
    _change(
        lambda: client.promote(queue, seq, match=match, dry_run=dry_run),
        "promoted",
        dry_run=dry_run,
        as_json=as_json,
    )


@group.command("retry")
@topic_argument("queue", metavar="QUEUE")
@_SEQ
@_MATCH
@dry_run_option
@json_option
@with_client
def retry(
    client: "Client", queue: str, seq: int | None, match: str | None, dry_run: bool, as_json: bool
) -> None:
    """Try the job SEQ of QUEUE again, as if it had not failed; without SEQ, all that are delayed.

    A job that is dead comes back from the dead letters, as a new one; `topics redrive` brings many.
    """
    _which(seq, match)
    _change(
        lambda: client.retry(queue, seq, match=match, dry_run=dry_run),
        "tried again",
        dry_run=dry_run,
        as_json=as_json,
    )


@group.command("cancel")
@topic_argument("queue", metavar="QUEUE")
@_SEQ
@_MATCH
@click.option("--state", type=click.Choice(["ready", "delayed"]), help="Those of this state.")
@dry_run_option
@yes_option
@json_option
@with_client
def cancel(
    client: "Client",
    queue: str,
    seq: int | None,
    match: str | None,
    state: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Take the job SEQ of QUEUE away; without SEQ, those that --match and --state say. Jobs that a worker holds
    stay."""
    _which(seq, match, state)
    if seq is None and match is None and state is None:
        raise Stop("SEQ, --match or --state say which jobs", UNUSABLE)

    def call(*, is_dry: bool) -> "JobsChanged":
        return client.cancel(queue, seq, match=match, state=state, dry_run=is_dry)

    if not dry_run and not yes:
        meant = call(is_dry=True).matched
        confirm(f"This deletes {counted(meant, 'job')} of {queue}", yes=yes)
    _change(lambda: call(is_dry=dry_run), "cancelled", dry_run=dry_run, as_json=as_json)


def _change(call: "Callable[[], JobsChanged]", what: str, *, dry_run: bool, as_json: bool) -> None:
    """Call until all that matched are changed; one call changes a bounded number."""
    import msgspec

    found = call()
    done = found.done
    while not dry_run and found.done and found.done < found.matched:
        found = call()
        done += found.done
    if as_json:
        print_json(msgspec.structs.replace(found, matched=max(done, found.matched), done=done))
    else:
        would = " would be" if dry_run else (" was" if done == 1 else " were")
        say(f"{counted(found.matched if dry_run else done, 'job')}{would} {what}", err=True)
