"""Options of jobs as flags: what they mean beside those that a record has itself (§10)."""

from typing import Any

import click
import pytest
from click.testing import CliRunner

from topics.cli.job_options import FIELDS, chosen, job_options, with_options
from topics.client import NewRecord, Unique

NONE: dict[str, Any] = {**dict.fromkeys(FIELDS), "replace": False, "unique_for": None}


def read(*flags: str) -> dict[str, Any]:
    """What the flags come to."""
    found: dict[str, Any] = {}

    @click.command()
    @job_options
    def command(**job: Any) -> None:
        found.update(chosen(**job))

    done = CliRunner().invoke(command, flags, standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return found


def test_each_flag_is_a_field() -> None:
    """Durations as people write them; none given is none chosen."""
    assert read() == {}
    assert read("--delay", "1m30s", "--priority", "-5", "--expires", "2h", "--group", "g") == {
        "delay_ms": 90_000,
        "priority": -5,
        "expires_ms": 7_200_000,
        "group": "g",
    }
    assert read("--not-before", "2026-03-01T14:30:00+00:00") == {"not_before": 1_772_375_400_000}
    assert read("--unique", "k") == {"unique": Unique("k", "keep", 0)}
    assert read("--unique", "k", "--replace", "--unique-for", "5s") == {
        "unique": Unique("k", "replace", 5000)
    }


@pytest.mark.parametrize(
    "flags",
    [
        ("--delay", "1s", "--not-before", "2026-03-01"),
        ("--replace",),
        ("--unique-for", "1s"),
        ("--priority", "128"),
        ("--delay", "soon"),
    ],
)
def test_flags_that_do_not_go_together(flags: tuple[str, ...]) -> None:
    with pytest.raises(click.UsageError):
        read(*flags)


def test_what_a_record_says_itself_stands_before_a_flag() -> None:
    """Of a delay and a time, either; of a unique key what a flag says of conflicts is for the record's own."""
    flags = chosen(**{**NONE, "delay_ms": 5, "priority": 3, "unique": "k", "replace": True})
    assert with_options(NewRecord(1), flags) == NewRecord(
        1, delay_ms=5, priority=3, unique=Unique("k", "replace", 0)
    )
    own = with_options(NewRecord(1, not_before=9, priority=0, unique="own"), flags)
    assert own == NewRecord(1, not_before=9, priority=0, unique=Unique("own", "replace", 0))
    whole = Unique("own", "keep", 7)
    assert with_options(NewRecord(1, unique=whole), flags).unique == whole
    assert with_options(NewRecord(1), {}) == NewRecord(1)


def test_keys_that_records_have() -> None:
    """A record without one stays without, whatever flags say of keys."""
    flags = chosen(**{**NONE, "replace": True}, has_keys=True)
    assert with_options(NewRecord(1), flags) == NewRecord(1)
    assert with_options(NewRecord(1, unique="k"), flags).unique == Unique("k", "replace", 0)
    assert chosen(**NONE, has_keys=True) == {}
