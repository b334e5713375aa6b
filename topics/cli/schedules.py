"""`topics schedules list | put | get | rm | run | pause | resume`: records that the server appends by the clock."""

from typing import TYPE_CHECKING, Any

import click

from topics.cli.asking import confirm, dry_run_option, yes_option
from topics.cli.completion import schedule_argument, topic_argument, topic_option
from topics.cli.exits import UNUSABLE, Stop, counted, output
from topics.cli.groups import Listing, named
from topics.cli.job_options import FIELDS, chosen, job_options, with_options
from topics.cli.moments import age_ms, coming_ms, duration_text, moment_text
from topics.cli.printing import encoded, print_table, say, say_json, styled
from topics.cli.records import value_of
from topics.cli.target import with_client
from topics.cli.topic import json_option, print_json

if TYPE_CHECKING:
    from topics.cli.printing import Part
    from topics.client import Client, ScheduledRecord, SchedulePaused, ScheduleSummary


@click.group("schedules", cls=Listing)
def group() -> None:
    """List schedules, make one, run or pause it; without a command, the list.

    \b
    topics schedules
    topics schedules put report jobs '{"make": "report"}' --cron '0 6 * * 1-5' --tz Europe/Berlin
    topics schedules run report
    """


@group.command("list")
@click.option("--prefix", default="", metavar="TEXT", help="Only names that begin with it.")
@topic_option("--topic", metavar="TOPIC", help="Only schedules that append to it.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@with_client
def list_(client: "Client", prefix: str, topic: str | None, as_json: bool) -> None:
    """List the schedules: when each is next, what it did last, and what blocks it."""
    output()
    found = client.schedules(prefix=prefix, topic=topic)
    if as_json:
        for each in found:
            say_json(encoded(each))
        return
    print_table(
        *("<schedule", "<topic", "<when", "<next", "<last", ">fired", ">missed", "<blocked"),
        rows=map(_row, found),
    )


def _row(schedule: "ScheduleSummary") -> "list[Part]":
    return [
        schedule.schedule,
        schedule.topic,
        _when(schedule),
        _next(schedule),
        _last(schedule),
        f"{schedule.fired_total:,}",
        styled(f"{schedule.missed_total:,}", fg="yellow") if schedule.missed_total else "0",
        styled(schedule.blocked.code if schedule.blocked is not None else "", fg="red"),
    ]


def _when(schedule: "ScheduleSummary") -> str:
    if schedule.cron is not None:
        return f"{schedule.cron} {schedule.tz}"
    if schedule.every_ms is not None:
        return f"every {duration_text(schedule.every_ms)}"
    return f"at {moment_text(schedule.at_ms or 0)}"


def _next(schedule: "ScheduleSummary") -> str:
    if schedule.paused:
        return "paused"
    return "never" if schedule.next_at_ms is None else moment_text(schedule.next_at_ms)


def _last(schedule: "ScheduleSummary") -> str:
    run = schedule.last_run
    return "never" if run is None else moment_text(run.ts_ms)


@group.command("put")
@schedule_argument()
@topic_argument()
@click.argument("data", metavar="DATA|-")
@click.option("--cron", metavar="EXPRESSION", help="Five fields, or six that begin with seconds.")
@click.option(
    "--every", callback=age_ms, metavar="DURATION", help="Between two ticks, such as 90s or 1h."
)
@click.option(
    "--at", callback=coming_ms, metavar="TIME", help="Once: an ISO 8601 time, or 10m from now."
)
@click.option("--tz", metavar="ZONE", help="The time zone of --cron; UTC by default.")
@click.option(
    "--missed",
    type=click.Choice(("none", "one", "all")),
    help="Which of the ticks that could not happen in time happen later; the last one by default.",
)
@click.option("--until", callback=coming_ms, metavar="TIME", help="No tick is then or later.")
@click.option("--paused", is_flag=True, help="It has no ticks for now.")
@click.option("--tag", help="The record's tag.")
@click.option("--node", help="Its writer.")
@click.option("--meta", help="Its meta, a JSON object.")
@click.option("--partition", type=click.IntRange(min=0), metavar="N", help="Of TOPIC.")
@job_options
@click.option("--queue", is_flag=True, help="A tick that makes TOPIC makes a queue.")
@click.option("--no-create", is_flag=True, help="No tick makes TOPIC.")
@click.option("--text", is_flag=True, help="DATA is text, and no JSON.")
@json_option
@with_client
def put(
    client: "Client",
    name: str,
    topic: str,
    data: str,
    cron: str | None,
    every: int | None,
    at: int | None,
    tz: str | None,
    missed: Any,
    until: int | None,
    paused: bool,
    tag: str | None,
    node: str | None,
    meta: str | None,
    partition: int | None,
    queue: bool,
    no_create: bool,
    text: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Append DATA to TOPIC at each tick: of --cron, --every so often, or once --at a time.

    A schedule of that NAME that exists is replaced.

    \b
    topics schedules put report jobs '{"make": "report"}' --cron '0 6 * * 1-5' --tz Europe/Berlin
    topics schedules put probe checks '"probe"' --every 30s --missed none
    topics schedules put tidy jobs '"tidy"' --every 5m --unique tidy --queue
    topics schedules put launch jobs '{"launch": 7}' --at 2027-03-01T09:00
    """
    from topics.client import NewRecord

    if [cron, every, at].count(None) != 2:
        raise Stop("give one of --cron, --every and --at", UNUSABLE)
    marks = None if meta is None else value_of(meta, "--meta", is_text=False)
    record = NewRecord(
        value_of(data, "DATA", is_text=text), tag=tag, node=node, meta=marks, partition=partition
    )
    record = with_options(record, chosen(**options))
    config: Any = {"type": "queue"} if queue else {}
    if no_create:
        config["auto_create"] = False
    made = client.put_schedule(
        name,
        topic,
        record,
        cron=cron,
        every_ms=every,
        at_ms=at,
        tz=tz,
        missed=missed,
        until_ms=until,
        paused=paused,
        config=config or None,
    )
    if as_json:
        print_json(made)
    else:
        verb = "was created" if made.created else "is as asked"
        say(f"{name} {verb}; next: {_next(made)}", err=True)


@group.command("get")
@schedule_argument()
@json_option
@with_client
def get(client: "Client", name: str, as_json: bool) -> None:
    """Show what the schedule NAME appends, when it is next, what it did last, and what blocks it."""
    found = client.schedule(name)
    if as_json:
        print_json(found)
        return
    output()
    rows = [
        ("schedule", found.schedule),
        ("topic", found.topic),
        ("when", _when(found)),
        ("missed", found.missed),
        ("next", _next(found)),
        ("last", _last(found)),
        ("fired", f"{found.fired_total:,}"),
        ("left out", f"{found.missed_total:,} ticks"),
        ("data", encoded(found.record.data).decode()),
        *_said_beside(found.record),
    ]
    if found.last_run is not None:
        where = named(found.last_run.topic, found.last_run.partition)
        rows.insert(6, ("made", f"{where} {found.last_run.seq}"))
    if found.until_ms is not None:
        rows.append(("until", moment_text(found.until_ms)))
    if found.blocked is not None:
        rows.append(("blocked", f"{found.blocked.code}: {found.blocked.message}"))
    for field, text in rows:
        say(f"{field:<12}{text}")


def _said_beside(record: "ScheduledRecord") -> list[tuple[str, str]]:
    """What a record says beside its data."""
    given = [(name, getattr(record, name)) for name in ("tag", "node", "meta", *FIELDS)]
    return [
        (name, value if isinstance(value, str) else encoded(value).decode())
        for name, value in given
        if value is not None
    ]


@group.command("rm")
@schedule_argument()
@dry_run_option
@yes_option
@json_option
@with_client
def rm(client: "Client", name: str, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Delete the schedule NAME, which has no tick any more; the records that it appended stay."""
    found = client.schedule(name)
    what = f"{name} ({_when(found)}), which appended {counted(found.fired_total, 'record')}"
    if dry_run:
        if as_json:
            print_json({"schedule": name, "fired": found.fired_total, "dry_run": True})
        else:
            say(f"{what} would be deleted", err=True)
        return
    confirm(f"This deletes {what}", yes=yes)
    done = client.delete_schedule(name)
    if as_json:
        print_json(done)
    else:
        say(f"{name} was deleted", err=True)


@group.command("run")
@schedule_argument()
@json_option
@with_client
def run(client: "Client", name: str, as_json: bool) -> None:
    """Append the record of the schedule NAME now; its next tick stays where it is."""
    done = client.run_schedule(name)
    if as_json:
        print_json(done)
    else:
        say(f"{named(done.topic, done.partition)} {done.seq}")


@group.command("pause")
@schedule_argument()
@json_option
@with_client
def pause(client: "Client", name: str, as_json: bool) -> None:
    """Let the schedule NAME have no ticks until it is resumed; those that pass are not counted as missed."""
    _say_paused(client.pause_schedule(name), as_json=as_json)


@group.command("resume")
@schedule_argument()
@json_option
@with_client
def resume(client: "Client", name: str, as_json: bool) -> None:
    """Let the paused schedule NAME have ticks again, from the first one after now."""
    _say_paused(client.resume_schedule(name), as_json=as_json)


def _say_paused(done: "SchedulePaused", *, as_json: bool) -> None:
    if as_json:
        print_json(done)
        return
    verb = ("is" if done.changed else "was") + (" paused" if done.paused else " not paused")
    next_at = "" if done.next_at_ms is None else f"; next: {moment_text(done.next_at_ms)}"
    say(f"{done.schedule} {verb}{next_at}", err=True)
