"""When the ticks of a schedule are.

Time is counted in milliseconds since the epoch, and every tick is at a whole second but those of `every_ms` and
`at`.  A cron expression is read by `cronsim`.  Where clocks change, ticks are those of Debian's cron: an expression
whose minute and hour are both fixed happens once for each time that the clock shows, at the change where the clock
passes over that time; one whose minute or hour begins with `*` goes on by real time.  cronsim walks the times that a
clock would show that nobody sets, and here each is a moment, two, or none: cronsim's own walk through a time zone
leaves out hours where the clock is set at midnight.

Knows no schedule's state and no clock.  The rules of time zones are those of this machine, else those of the
package `tzdata`: each is read once.
"""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import takewhile
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.names import quote
from topics.protocol.model.schedules import ScheduleConfig

TIME_MAX_MS: Final = 253_000_000_000_000
"""In the year 9987: nothing is later, as dates end with the year 9999."""
ZONES_MAX: Final = 1024
"""Time zones that are kept; there are some 600."""
NEXTS_MAX: Final = 1024
"""Ticks that are kept, since many schedules have the same."""
_SECOND: Final = timedelta(seconds=1)
_LOCAL_NAMES: Final = frozenset({"localtime", "posixrules"})
_LOCAL_FOLDERS: Final = frozenset({"posix", "right"})
"""Files of a machine's time zones that are no names of the database: what they mean is another thing on another machine,
or has leap seconds."""


class Passed(NamedTuple):
    """Ticks that are not later than a moment.

    Attributes:
        last_ms: The last one that was looked at.
        before: How many are before it.
        is_whole: Whether there is none behind it.
    """

    last_ms: int
    before: int
    is_whole: bool


@lru_cache(ZONES_MAX)
def zone_of(name: str) -> tzinfo:
    """A time zone.  Raises Rejection: 400 where there is none of that name."""
    if name == "UTC":
        return UTC
    if name not in _LOCAL_NAMES and name.split("/")[0] not in _LOCAL_FOLDERS:
        with suppress(ZoneInfoNotFoundError, ValueError, OSError):
            return ZoneInfo(name)
    raise Rejection(
        ErrorCode.INVALID_REQUEST,
        f"{quote(name)} is no time zone: give its name in the IANA database, as Europe/Berlin - at `$.tz`",
    )


def require_times(config: ScheduleConfig) -> None:
    """Raises Rejection: 400 for a cron expression or a time zone that is none."""
    if config.cron is None:
        return
    zone = zone_of("UTC" if config.tz is None else config.tz)
    try:
        CronSim(config.cron, datetime.fromtimestamp(0, zone))
    except CronSimError as error:
        raise Rejection(
            ErrorCode.INVALID_REQUEST,
            f"{quote(config.cron)} is no cron expression: {_lowered(str(error))} - at `$.cron`",
        ) from None


def tick_after(config: ScheduleConfig, made_ms: int, after_ms: int) -> int | None:
    """The first tick of a schedule that is later than a moment; None: there is none.

    Args:
        made_ms: When the schedule was made.
    """
    tick_ms: int | None
    if config.at is not None:
        tick_ms = config.at if config.at > after_ms else None
    elif config.every_ms is not None:
        ticks = max(after_ms - made_ms, 0) // config.every_ms + 1
        tick_ms = made_ms + ticks * config.every_ms
    else:
        assert config.cron is not None
        tick_ms = _next_of_cron(config.cron, config.tz or "UTC", after_ms // 1000)
    if tick_ms is None or tick_ms >= _end_of(config):
        return None
    return tick_ms


def ticks_passed(
    config: ScheduleConfig, made_ms: int, from_ms: int, now_ms: int, looks: int
) -> Passed:
    """From one tick on, those that are not later than `now_ms`, as far as `looks` more of them show."""
    end_ms = min(now_ms, _end_of(config) - 1)
    if config.at is not None:
        return Passed(from_ms, 0, True)
    if config.every_ms is not None:
        count = max(end_ms - from_ms, 0) // config.every_ms
        return Passed(from_ms + count * config.every_ms, count, True)
    assert config.cron is not None
    last_ms = from_ms
    ticks = _cron_ticks(config.cron, zone_of(config.tz or "UTC"), from_ms // 1000)
    for count in range(looks):
        tick_ms = next(ticks, None)
        if tick_ms is None or tick_ms > end_ms:
            return Passed(last_ms, count, True)
        last_ms = tick_ms
    return Passed(last_ms, looks, False)


def _end_of(config: ScheduleConfig) -> int:
    """No tick is then or later."""
    return TIME_MAX_MS if config.until is None else min(config.until, TIME_MAX_MS)


@lru_cache(NEXTS_MAX)
def _next_of_cron(cron: str, zone: str, after_s: int) -> int | None:
    return next(_cron_ticks(cron, zone_of(zone), after_s), None)


def _cron_ticks(cron: str, zone: tzinfo, after_s: int) -> Iterator[int]:
    """The ticks behind a second, in order, each once; they end where fifty years have none."""
    if after_s * 1000 >= TIME_MAX_MS:
        return
    local = datetime.fromtimestamp(after_s, zone)
    minute, hour = cron.split()[-5:-3]
    if zone is UTC:
        ticks: Iterator[datetime] = CronSim(cron, local)
    elif minute.startswith("*") or hour.startswith("*"):
        ticks = _by_real_time(cron, local, zone)
    else:
        ticks = _fixed(CronSim(cron, local.replace(tzinfo=None)), zone)
    for tick in ticks:
        second = int(tick.timestamp())
        # The clock shows an hour twice when it is set back: a fixed time is over once it was there.
        if second > after_s:
            yield second * 1000


def _fixed(naive: CronSim, zone: tzinfo) -> Iterator[datetime]:
    """Times that a clock shows, as moments, the first where it shows one twice; one that the clock passes over is at the
    change, as others are that it passes over there."""
    for shown in naive:
        moment = shown.replace(tzinfo=zone)
        if _set_forth_by(moment) > 0:
            moment = _change_of(moment)
            naive.dt = moment.replace(tzinfo=None)
        yield moment


def _by_real_time(cron: str, local: datetime, zone: tzinfo) -> Iterator[datetime]:
    """Moments behind one, by the time that a clock shows then: of an hour that it shows twice both, of one that it
    passes over none.

    Args:
        local: That moment; its `fold` says which showing it is in.
    """
    again = _change_of(local) if _set_forth_by(local) < 0 else None
    """When the clock is set back, while the ticks are within a time that it shows twice."""
    is_second = again is not None and bool(local.fold)
    for shown in CronSim(cron, local.replace(tzinfo=None)):
        moment = shown.replace(tzinfo=zone)
        by = _set_forth_by(moment)
        if again is not None and (by >= 0 or _change_of(moment) != again):
            if not is_second:
                yield from _second_showing(cron, again)
            again, is_second = None, False
        if by < 0 and again is None:
            again = _change_of(moment)
        if by <= 0:
            yield moment.replace(fold=int(is_second))


def _second_showing(cron: str, change: datetime) -> Iterator[datetime]:
    """The ticks of the time that a clock shows again when it is set back."""

    def is_again(shown: datetime) -> bool:
        moment = shown.replace(tzinfo=change.tzinfo)
        return _set_forth_by(moment) < 0 and _change_of(moment) == change

    for shown in takewhile(is_again, CronSim(cron, change.replace(tzinfo=None) - _SECOND)):
        yield shown.replace(tzinfo=change.tzinfo, fold=1)


def _set_forth_by(moment: datetime) -> float:
    """Seconds by which the clock passes over this time; negative where it shows the time twice, 0 where once."""
    before, after = moment.replace(fold=0).utcoffset(), moment.replace(fold=1).utcoffset()
    assert before is not None
    assert after is not None
    return (after - before).total_seconds()


def _change_of(moment: datetime) -> datetime:
    """When the clock is set that passes over a time, or shows it twice."""
    zone = moment.tzinfo
    low, high = sorted(int(moment.replace(fold=fold).timestamp()) for fold in (0, 1))
    low -= 1
    before = datetime.fromtimestamp(low, zone).utcoffset()
    while high - low > 1:
        middle = (low + high) // 2
        if datetime.fromtimestamp(middle, zone).utcoffset() == before:
            low = middle
        else:
            high = middle
    return datetime.fromtimestamp(high, zone)


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]
