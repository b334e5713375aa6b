"""When ticks are: changes of clocks as Debian's cron has them, and bounds of what is looked at. (§14)"""

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.harness import refusal
from topics.protocol.model.errors import Rejection
from topics.protocol.model.schedules import ScheduleConfig, ScheduledRecord
from topics.protocol.model.timetable import (
    TIME_MAX_MS,
    require_times,
    tick_after,
    ticks_passed,
    zone_of,
)

RECORD = ScheduledRecord(b"1")


def config(**fields: Any) -> ScheduleConfig:
    if "cron" in fields:
        fields.setdefault("tz", "UTC")
    return ScheduleConfig(topic="t", record=RECORD, **fields)


def ms(text: str, zone: str = "UTC") -> int:
    """A time that a clock shows there."""
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()) * 1000


def ticks(cron: str, zone: str, first: str, count: int) -> list[str]:
    """The ticks behind a time, as the clock shows them, with how far it is from UTC."""
    asked, at_ms, found = config(cron=cron, tz=zone), ms(first, zone), []
    for _ in range(count):
        next_ms = tick_after(asked, 0, at_ms)
        assert next_ms is not None
        at_ms = next_ms
        found.append(
            datetime.fromtimestamp(at_ms / 1000, ZoneInfo(zone)).strftime("%m-%d %H:%M:%S%z")
        )
    return found


FIXED = {
    # The clock passes over the time: at the change.  It shows the time twice: once.
    ("Europe/Berlin", "2027-03-27T12:00"): ["03-28 03:00:00+0200", "03-29 02:30:00+0200"],
    ("Europe/Berlin", "2027-10-30T12:00"): ["10-31 02:30:00+0200", "11-01 02:30:00+0100"],
    ("America/New_York", "2027-03-13T12:00"): ["03-14 03:00:00-0400", "03-15 02:30:00-0400"],
    ("America/New_York", "2027-11-06T12:00"): ["11-07 02:30:00-0500", "11-08 02:30:00-0500"],
    # By half an hour, and at midnight.
    ("Australia/Lord_Howe", "2027-10-02T12:00"): ["10-03 02:30:00+1100", "10-04 02:30:00+1100"],
    ("Africa/Cairo", "2027-04-29T12:00"): ["04-30 02:30:00+0300", "05-01 02:30:00+0300"],
}


@pytest.mark.parametrize(("where", "expected"), FIXED.items(), ids=str)
@pytest.mark.parametrize("cron", ["30 2 * * *", "0 30 2 * * *"])
def test_a_fixed_time_happens_once_a_day(
    cron: str, where: tuple[str, str], expected: list[str]
) -> None:
    """With five fields and with six."""
    assert ticks(cron, *where, 2) == expected


def test_a_time_that_new_york_shows_twice_happens_once() -> None:
    """There the clock is set back from two to one."""
    found = ticks("30 1 * * *", "America/New_York", "2027-11-06T12:00", 2)
    assert found == ["11-07 01:30:00-0400", "11-08 01:30:00-0500"]


def test_times_that_the_clock_passes_over_are_one_tick_at_the_change() -> None:
    found = ticks("0,15,30,45 2 * * *", "Europe/Berlin", "2027-03-27T12:00", 2)
    assert found == ["03-28 03:00:00+0200", "03-29 02:00:00+0200"]


def test_a_time_with_seconds_that_the_clock_passes_over_is_at_the_change() -> None:
    """Neither its minute nor its second is there that night. (§14)"""
    found = ticks("15,45 30 2 * * *", "Europe/Berlin", "2027-03-27T12:00", 2)
    assert found == ["03-28 03:00:00+0200", "03-29 02:30:15+0200"]
    found = ticks("30 0 * * *", "Africa/Cairo", "2027-04-29T12:00", 2)
    assert found == ["04-30 01:00:00+0300", "05-01 00:30:00+0300"]


def test_in_the_hour_that_comes_again_a_fixed_time_is_over() -> None:
    """Asked within the second 02:xx of that night, also where it was made then."""
    asked = config(cron="30 2 * * *", tz="Europe/Berlin")
    second = int(datetime(2027, 10, 31, 1, 10, tzinfo=UTC).timestamp()) * 1000  # 02:10 again
    assert tick_after(asked, 0, second) == ms("2027-11-01T02:30", "Europe/Berlin")


WILD = {
    ("*/30 2 * * *", "2027-03-27T12:00"): ["03-29 02:00:00+0200", "03-29 02:30:00+0200"],
    ("*/30 2 * * *", "2027-10-30T12:00"): [
        *("10-31 02:00:00+0200", "10-31 02:30:00+0200"),
        *("10-31 02:00:00+0100", "10-31 02:30:00+0100", "11-01 02:00:00+0100"),
    ],
    ("30 * * * *", "2027-03-28T00:45"): ["03-28 01:30:00+0100", "03-28 03:30:00+0200"],
    ("30 * * * *", "2027-10-31T01:45"): [
        *("10-31 02:30:00+0200", "10-31 02:30:00+0100", "10-31 03:30:00+0100")
    ],
    ("*/20 * * * * *", "2027-10-31T02:59:30"): ["10-31 02:59:40+0200", "10-31 02:00:00+0100"],
}


@pytest.mark.parametrize(("asked", "expected"), WILD.items(), ids=str)
def test_what_begins_with_a_star_goes_on_by_real_time(
    asked: tuple[str, str], expected: list[str]
) -> None:
    """Of Berlin's two changes: no tick is made up, and none is left out."""
    cron, first = asked
    assert ticks(cron, "Europe/Berlin", first, len(expected)) == expected


def test_an_expression_may_have_names_lists_ranges_and_last_days() -> None:
    """As cronsim reads it; Sunday is 0 and 7."""
    first = "2027-01-01T00:00"
    assert ticks("*/5 9-17 * * 1-5", "UTC", "2027-01-01T17:52", 2) == [
        *("01-01 17:55:00+0000", "01-04 09:00:00+0000")
    ]
    assert ticks("0 0 * * SUN", "UTC", first, 1) == ticks("0 0 * * 7", "UTC", first, 1)
    assert ticks("0 0 L * *", "UTC", first, 2) == ["01-31 00:00:00+0000", "02-28 00:00:00+0000"]
    assert ticks("0 0 * FEB MON#1", "UTC", first, 1) == ["02-01 00:00:00+0000"]
    assert ticks("0 0 29 2 *", "UTC", first, 1) == ["02-29 00:00:00+0000"]


MIDNIGHTS = {
    # The clock is set from 0:00 to 1:00, and back; a tick of the hour before or behind is not lost by that.
    ("Africa/Cairo", "*/30 0,1,23 * * *", "2027-04-29T23:00"): [
        *("04-29 23:30:00+0200", "04-30 01:00:00+0300", "04-30 01:30:00+0300"),
    ],
    ("Asia/Gaza", "*/40 1 * * 0", "2022-03-26T12:00"): [
        *("03-27 01:00:00+0300", "03-27 01:40:00+0300", "04-03 01:00:00+0300"),
    ],
    ("America/Santiago", "*/30 1 * * 0", "2011-08-20T12:00"): [
        *("08-21 01:00:00-0300", "08-21 01:30:00-0300", "08-28 01:00:00-0300"),
    ],
    ("America/Scoresbysund", "*/30 0,23 * * 0", "2019-03-30T12:00"): [
        *("03-31 23:00:00+0000", "03-31 23:30:00+0000"),
    ],
    ("Africa/Cairo", "*/30 23 28 10 *", "2027-01-01T00:00"): [
        *("10-28 23:00:00+0300", "10-28 23:30:00+0300"),
        *("10-28 23:00:00+0200", "10-28 23:30:00+0200", "10-28 23:00:00+0200"),
    ],
}


@pytest.mark.parametrize(("asked", "expected"), MIDNIGHTS.items(), ids=str)
def test_no_hour_is_left_out_where_the_clock_is_set_at_midnight(
    asked: tuple[str, str, str], expected: list[str]
) -> None:
    """Real time goes on, and each tick is at a time that the expression has. (§14)"""
    zone, cron, first = asked
    assert ticks(cron, zone, first, len(expected)) == expected


CHANGES = {
    "Europe/Berlin": ("2027-03-28T00:00", "2027-10-31T00:00"),
    "America/Santiago": ("2027-04-03T00:00", "2027-09-04T00:00"),
    "Australia/Lord_Howe": ("2027-04-04T00:00", "2027-10-03T00:00"),
    "Asia/Beirut": ("2027-03-27T12:00", "2027-10-30T12:00"),
    "Pacific/Apia": ("2011-12-29T12:00", "2012-03-31T12:00"),
}


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([(zone, first) for zone, found in CHANGES.items() for first in found]),
    st.sampled_from(["*/7", "*", "*/30"]),
    st.sampled_from(["*", "*/2", "0", "1", "2,3", "0-2", "23", "0,23"]),
    st.integers(0, 30 * 3600),
)
def test_ticks_by_real_time_are_the_minutes_that_a_clock_shows(
    where: tuple[str, str], minute: str, hour: str, more_s: int
) -> None:
    """As one who looks at the clock each minute sees it, through a change of clocks. (§14)"""
    zone = ZoneInfo(where[0])
    first_s = ms(where[1], where[0]) // 1000 + more_s
    hours = {hour} if hour.isdecimal() else set()
    hours |= set(hour.split(",")) if "," in hour else set()
    hours |= {"0", "1", "2"} if "-" in hour else set()
    step = int(minute[2:] or 1)

    expected = []
    for second in range(first_s // 60 * 60 + 60, first_s + 40 * 3600, 60):
        shown = datetime.fromtimestamp(second, zone)
        is_hour = str(shown.hour) in hours if hours else not ("/" in hour and shown.hour % 2)
        if is_hour and shown.minute % step == 0:
            expected.append(second * 1000)

    asked, at_ms, found = config(cron=f"{minute} {hour} * * *", tz=where[0]), first_s * 1000, []
    for _ in expected:
        at_ms = tick_after(asked, 0, at_ms) or 0
        found.append(at_ms)
    assert found == expected


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(available_timezones() - {"localtime"})),
    st.sampled_from([
        *("30 2 * * *", "*/30 2 * * *", "30 * * * *", "0 30 2 * * *", "0,15,30,45 0-3 * * *"),
        *("*/7 */2 * * *", "0 0 * * *", "*/20 * * * * *", "59 59 23 * * *", "5 */3 * * *"),
    ]),
    st.integers(0, 2**31),
)  # fmt: skip
def test_ticks_only_go_forward_in_every_time_zone(zone: str, cron: str, first_s: int) -> None:
    """Each is later than the moment that it was asked for, whatever its clocks do."""
    asked, at_ms = config(cron=cron, tz=zone), first_s * 1000 + 7
    for _ in range(40):
        next_ms = tick_after(asked, 0, at_ms)
        assert next_ms is not None
        assert next_ms > at_ms
        at_ms = next_ms


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC"]),
    st.sampled_from(["30 2 * * *", "*/10 * * * *", "7 3 * * 1-5", "15 1,2 * * *"]),
    st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1)),
    st.integers(0, 400_000),
    st.integers(1, 50),
)
def test_a_walk_in_parts_counts_what_one_tick_after_the_other_would(
    zone: str, cron: str, first: datetime, seconds: int, looks: int
) -> None:
    asked = config(cron=cron, tz=zone)
    first_ms = int(first.replace(tzinfo=UTC).timestamp()) * 1000
    from_ms = tick_after(asked, 0, first_ms)
    assert from_ms is not None
    now_ms = from_ms + seconds * 1000
    known, at_ms = [from_ms], from_ms
    while (next_ms := tick_after(asked, 0, at_ms)) is not None and next_ms <= now_ms:
        known.append(at_ms := next_ms)

    at_ms, before, is_whole = from_ms, 0, False
    while not is_whole:
        passed = ticks_passed(asked, 0, at_ms, now_ms, looks)
        assert passed.before <= looks
        at_ms, before, is_whole = passed.last_ms, before + passed.before, passed.is_whole

    assert (at_ms, before) == (known[-1], len(known) - 1)


def test_an_interval_is_counted_by_arithmetic() -> None:
    """From when the schedule was made, whatever `until` and now are."""
    every = config(every_ms=1000, until=100_000)
    assert tick_after(every, 500, 0) == 1500
    assert tick_after(every, 500, 1500) == 2500
    assert tick_after(every, 500, 98_500) == 99_500
    assert tick_after(every, 500, 99_500) is None
    assert ticks_passed(every, 500, 1500, 4600, 1) == (4500, 3, True)
    assert ticks_passed(every, 500, 1500, 10**9, 1) == (99_500, 98, True)


def test_one_time_is_there_once() -> None:
    once = config(at=5000)
    assert tick_after(once, 0, 4999) == 5000
    assert tick_after(once, 0, 5000) is None
    assert tick_after(config(at=5000, until=5000), 0, 0) is None
    assert ticks_passed(once, 0, 5000, 10**9, 1) == (5000, 0, True)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
@pytest.mark.parametrize("cron", ["0 0 */31 * MON#5", "*/5 0 */31 * MON#5"])
def test_what_no_date_has_is_none(cron: str, zone: str) -> None:
    """No fifth Monday is the first of a month; fifty years are looked at. (§14)"""
    assert tick_after(config(cron=cron, tz=zone), 0, ms("2027-01-01T00:00")) is None


def test_nothing_is_later_than_dates_are() -> None:
    """Years end with 9999."""
    assert tick_after(config(cron="0 0 * * *"), 0, TIME_MAX_MS) is None
    assert tick_after(config(every_ms=1000), 0, TIME_MAX_MS) is None
    assert tick_after(config(at=2**62), 0, 0) is None


@given(st.text("0123456789*,-/#LW SUNMO\t", max_size=30))
def test_an_expression_is_taken_or_refused_and_nothing_else(cron: str) -> None:
    """Whatever it is: 400, or a tick, or none within fifty years."""
    asked = config(cron=cron)
    refused = None
    try:
        require_times(asked)
    except Rejection as error:
        refused = error
    if refused is None:
        tick = tick_after(asked, 0, 0)
        assert tick is None or tick > 0
    else:
        assert "`$.cron`" in refused.message


def test_a_time_zone_is_one_by_its_name_alone() -> None:
    """No path leads elsewhere."""
    assert zone_of("UTC") is UTC
    assert zone_of("Europe/Berlin") is zone_of("Europe/Berlin")
    for name in ("", "Europe", "/etc/passwd", "../zoneinfo/UTC", "a\0b", "Nowhere/Land"):
        assert "`$.tz`" in refusal(zone_of, name).message


@pytest.mark.parametrize(
    "name", ["localtime", "posixrules", "posix/Europe/Berlin", "right/Europe/Berlin"]
)
def test_a_name_of_this_machine_alone_is_no_time_zone(name: str) -> None:
    """Another node would have other ticks, or ticks with leap seconds. (§14)"""
    assert "`$.tz`" in refusal(zone_of, name).message


def test_an_empty_time_zone_is_none() -> None:
    """It is not the default. (§14.1)"""
    assert "`$.tz`" in refusal(require_times, config(cron="* * * * *", tz="")).message


def test_an_end_at_the_epoch_is_over() -> None:
    """`until` 0 is a time as any other. (§14.1)"""
    assert tick_after(config(cron="* * * * *", until=0), 0, 1000) is None
    assert tick_after(config(every_ms=1000, until=0), 0, 1000) is None


def test_a_year_of_ticks_is_a_year() -> None:
    """Every hour of a year with both changes of clocks."""
    asked = config(cron="0 * * * *", tz="Europe/Berlin")
    first = ms("2027-01-01T00:00", "Europe/Berlin")
    passed = ticks_passed(asked, 0, first, ms("2027-12-31T23:00", "Europe/Berlin"), 10_000)
    assert passed.before == 365 * 24 - 1
    days = config(cron="30 2 * * *", tz="Europe/Berlin")
    passed = ticks_passed(days, 0, ms("2027-01-01T02:30", "Europe/Berlin"), passed.last_ms, 10_000)
    assert passed.before == 364
