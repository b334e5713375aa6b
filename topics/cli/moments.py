"""Times on the command line: how long ago, or when."""

import re
import time
from collections.abc import Callable
from typing import Final

import click

UNIT_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"(\d{1,9}(ms|s|m|h|d))+", re.ASCII)


def duration_ms(text: str) -> int:
    """A duration such as `90s`, `10m`, `1h30m` or `2d`, in milliseconds.

    Raises:
        ValueError: It is none.
    """
    if not _DURATION.fullmatch(text):
        raise ValueError(f"{text!r} is not a duration such as 90s, 10m, 1h30m or 2d")
    parts = re.findall(r"(\d+)(ms|s|m|h|d)", text)
    return sum(int(number) * UNIT_MS[unit] for number, unit in parts)


def duration_text(span_ms: int) -> str:
    """A duration as `duration_ms` reads it, exactly: `90d`, `1h30m`, `1s500ms`; `0` for none."""
    parts = []
    for unit, unit_ms in sorted(UNIT_MS.items(), key=lambda row: -row[1]):
        count, span_ms = divmod(span_ms, unit_ms)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0"


def moment_ms(text: str) -> int:
    """A moment, in milliseconds since the epoch: a duration before now, or an ISO 8601 date or
    date and time, of this machine's time zone where it names none.

    Raises:
        ValueError: It is neither.
    """
    if _DURATION.fullmatch(text):
        return max(int(time.time() * 1000) - duration_ms(text), 0)
    from datetime import UTC, datetime, timedelta

    try:
        # In whole numbers: a float of seconds is a millisecond off for one time in some thousands.
        since = datetime.fromisoformat(text).astimezone() - datetime(1970, 1, 1, tzinfo=UTC)
        return max(since // timedelta(milliseconds=1), 0)
    except (ValueError, OverflowError, OSError):
        raise ValueError(
            f"{text!r} is neither a duration such as 10m nor a time such as 2026-03-01T14:30"
        ) from None


def coming_moment_ms(text: str) -> int:
    """A moment, as `moment_ms` reads it, but that a duration is one from now on."""
    if _DURATION.fullmatch(text):
        return int(time.time() * 1000) + duration_ms(text)
    return moment_ms(text)


def moment_text(at_ms: int) -> str:
    """A moment as people of this machine's time zone read it; `moment_ms` reads it too."""
    from datetime import datetime

    try:
        return datetime.fromtimestamp(at_ms / 1000).astimezone().isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return f"{at_ms} ms"


def utc_text(at_ms: int) -> str | int:
    """A moment in UTC, as `moment_ms` reads it to the millisecond; the number, where it has no such
    text."""
    from datetime import UTC, datetime

    try:
        at = datetime.fromtimestamp(at_ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return at_ms
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03}+00:00" if at_ms % 1000 else at.isoformat()


def age_ms(_context: click.Context, _option: click.Parameter, text: str | None) -> int | None:
    """The value of an option that is a duration."""
    return None if text is None else _read(duration_ms, text)


def at_ms(_context: click.Context, _option: click.Parameter, text: str | None) -> int | None:
    """The value of an option that is a moment."""
    return None if text is None else _read(moment_ms, text)


def coming_ms(_context: click.Context, _option: click.Parameter, text: str | None) -> int | None:
    """The value of an option that is a moment to come."""
    return None if text is None else _read(coming_moment_ms, text)


def _read(parse: Callable[[str], int], text: str) -> int:
    try:
        return parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
