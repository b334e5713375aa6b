"""Numbers, days and times in the texts that Java makes of them, of any size and year."""

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

_DIGITS: Final = re.compile(r"(-?)(\d+)(?:\.(\d+))?(?:e([+-]?\d+))?", re.IGNORECASE)
_TINY: Final = (-320, -41)
"""Exponents of ten below which a number of 64 bits, and of 32, may have less than two digits."""
_NO_NUMBERS: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def number(text: str, *, is_single: bool = False) -> str:
    """A floating-point number in its least digits as Java writes it; in quotes where JSON has none such.

    Args:
        is_single: It has 32 bits, and not 64.
    """
    found = _DIGITS.fullmatch(text)
    if found is None:
        return f'"{_NO_NUMBERS[text]}"'
    sign, whole, fraction, power = found.groups()
    fraction = fraction or ""
    digits = (whole + fraction).lstrip("0")
    # The number is 0.digits x 10^point.
    point = len(whole) + int(power or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    if not digits:
        return f"{sign}0.0"
    if len(digits) == 1 and point < _TINY[is_single]:
        # Of the least numbers one digit is enough, and Java writes the nearest two.
        exact = float(np.float32(text)) if is_single else float(text)
        digits, point = f"{abs(exact):.1e}"[:3:2].rstrip("0"), int(f"{exact:.1e}".split("e")[1]) + 1
    if -3 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    if 0 < point <= 7:
        return f"{sign}{digits[:point].ljust(point, '0')}.{digits[point:] or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{point - 1}"


_DAYS_400: Final = 146_097
"""The calendar repeats itself after 400 years, which are whole weeks."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def day(days: int) -> str:
    """A day since 1970, of any year."""
    cycles, rest = divmod(days, _DAYS_400)
    at = _EPOCH + timedelta(days=rest)
    year = at.year + 400 * cycles
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{at.month:02d}-{at.day:02d}"


def clock(seconds: int) -> str:
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def offset_s(zone: tzinfo, seconds: int) -> int:
    """What a zone is ahead of UTC at a time, seconds, also where Python has no such year."""
    days, rest = divmod(seconds, 86_400)
    if days > 2_900_000:
        days -= (days - 2_700_000) // _DAYS_400 * _DAYS_400
    elif days < -719_000:
        days = -719_000
    at = _EPOCH + timedelta(days=days, seconds=rest)
    offset = at.astimezone(zone).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


_FIXED: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?")


@cache
def zone_of(name: str) -> tzinfo:
    """The zone that Spark calls so."""
    if (found := _FIXED.fullmatch(name)) is not None:
        sign, hours, minutes, seconds = found.groups()
        ahead = timedelta(hours=int(hours), minutes=int(minutes or 0), seconds=int(seconds or 0))
        return timezone(-ahead if sign == "-" else ahead)
    if name in ("Z", "UT", "GMT", "UTC"):
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        raise TypeError(f"this machine has no time zone {name}") from None
