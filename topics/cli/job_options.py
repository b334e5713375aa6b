"""Options of jobs on the command line: when they may start, how urgent they are, which key they have (§10).

Owns the flags, which `publish` and `append` share, and what they mean beside a record's own options: those win.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from topics.cli.moments import age_ms, coming_ms

if TYPE_CHECKING:
    from topics.client import NewRecord

F = TypeVar("F", bound=Callable[..., Any])

FIELDS: Final = ("delay_ms", "not_before", "priority", "expires_ms", "group", "unique")
"""Fields of a record, as the flags that give them are named here."""
_TIMES: Final = ("delay_ms", "not_before")
"""They exclude each other."""
_FLAGS: Final = (
    click.option(
        "--delay",
        "delay_ms",
        callback=age_ms,
        metavar="DURATION",
        help="Queue: the job may be claimed after it: 90s, 10m, 2d.",
    ),
    click.option(
        "--not-before",
        callback=coming_ms,
        metavar="TIME",
        help="Queue: the job may be claimed from then on: 2h, or a date or time of this machine's time zone.",
    ),
    click.option(
        "--priority",
        type=click.IntRange(-128, 127),
        metavar="N",
        help="Queue: jobs of a higher priority are claimed first; -128 to 127.",
    ),
    click.option(
        "--expires",
        "expires_ms",
        callback=age_ms,
        metavar="DURATION",
        help="Queue: the job ends unless it is claimed so soon after it may be.",
    ),
    click.option(
        "--group", metavar="NAME", help="Queue: with which jobs it takes turns; else by its tag."
    ),
    click.option(
        "--unique",
        metavar="KEY",
        help="Queue: while a job has this key, another append of it makes no second one.",
    ),
    click.option(
        "--replace",
        is_flag=True,
        help="With a unique key: where a job that waits has it, that one makes way.",
    ),
    click.option(
        "--unique-for",
        callback=age_ms,
        metavar="DURATION",
        help="With a unique key: hold it for so long, also where the job is done before.",
    ),
)


def job_options(command: F) -> F:
    """Give a command the flags; it gets one argument for each, and passes all of them to `chosen`."""
    for flag in reversed(_FLAGS):
        command = flag(command)
    return command


def chosen(
    *, replace: bool, unique_for: int | None, has_keys: bool = False, **fields: Any
) -> dict[str, Any]:
    """Fields of a record that were given, and under `unique` a `Unique`, whose key may be empty: the record has it.

    Args:
        has_keys: Keys come from elsewhere.

    Raises:
        UsageError: Flags that do not go together.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    assert given.keys() <= set(FIELDS)
    if given.keys() >= set(_TIMES):
        raise click.UsageError("--delay and --not-before exclude each other")
    if "unique" not in given and not has_keys:
        if replace or unique_for is not None:
            raise click.UsageError("--replace and --unique-for need a unique key")
        return given
    if "unique" in given or replace or unique_for is not None:
        from topics.client import Unique

        conflict: Any = "replace" if replace else "keep"
        given["unique"] = Unique(given.get("unique", ""), conflict, unique_for or 0)
    return given


def with_options(record: "NewRecord", options: dict[str, Any]) -> "NewRecord":
    """The record with what was `chosen`, where it has none of its own."""
    if not options:
        return record
    from msgspec.structs import replace

    own = {name for name in FIELDS if getattr(record, name) is not None}
    if not own.isdisjoint(_TIMES):
        own.update(_TIMES)
    changes = {name: value for name, value in options.items() if name not in own}
    unique = options.get("unique")
    if unique is not None:
        if isinstance(record.unique, str):
            changes["unique"] = replace(unique, key=record.unique)
        elif not unique.key:
            changes.pop("unique", None)
    return replace(record, **changes)
