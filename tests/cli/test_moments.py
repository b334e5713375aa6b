"""Times on the command line: durations, moments, dates."""

import time
from datetime import datetime

import pytest

from topics.cli.moments import coming_moment_ms, duration_ms, moment_ms, moment_text


@pytest.mark.parametrize(
    ("text", "ms"),
    [("90s", 90_000), ("1h30m", 5_400_000), ("2d", 172_800_000), ("5ms", 5), ("0s", 0)],
)
def test_a_duration(text: str, ms: int) -> None:
    """Numbers with units, one after the other."""
    assert duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "5", "5 m", "m5", "1.5h", "-5s", "٥s", "1w"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    """With examples of what is."""
    with pytest.raises(ValueError, match="such as 90s"):
        duration_ms(text)


def test_a_moment_is_so_long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    """By this machine's clock, and not before the epoch."""
    monkeypatch.setattr(time, "time", lambda: 1_000.0)

    assert moment_ms("10s") == 990_000
    assert moment_ms("1d") == 0


def test_a_moment_is_a_date_or_a_time() -> None:
    """In the zone that it names, or in this machine's."""
    assert moment_ms("2026-03-01T14:30:00Z") == 1_772_375_400_000
    assert moment_ms("2026-03-01T15:30:00+01:00") == 1_772_375_400_000
    here = datetime(2026, 3, 1, 14, 30).timestamp() * 1000
    assert moment_ms("2026-03-01T14:30") == moment_ms("2026-03-01 14:30") == here


@pytest.mark.parametrize("text", ["yesterday", "2026-13-01", "14:30", "", "99999-01-01"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    """With examples of both."""
    with pytest.raises(ValueError, match="neither a duration"):
        moment_ms(text)


def test_a_moment_to_come_is_so_long_from_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a date or a time, as for one that is over."""
    monkeypatch.setattr(time, "time", lambda: 1_000.0)

    assert coming_moment_ms("10s") == 1_010_000
    assert coming_moment_ms("2026-03-01T14:30:00Z") == 1_772_375_400_000


def test_a_moment_is_shown_as_it_is_read() -> None:
    """To the second; one that no calendar has is shown as a number."""
    assert moment_ms(moment_text(1_772_375_400_000)) == 1_772_375_400_000
    assert moment_text(2**62) == f"{2**62} ms"


def test_a_time_is_exact_to_the_millisecond() -> None:
    """Also where a float of seconds is not."""
    from topics.cli.moments import moment_ms

    assert moment_ms("2109-05-15T07:35:11.103+00:00") == 4_398_046_511_103
