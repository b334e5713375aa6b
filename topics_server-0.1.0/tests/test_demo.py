"""The demonstration: that its checks can fail, and that it passes on a real server."""

import subprocess
import sys

import pytest

from bench.flights import DEPARTURES, Report, checksum_of, departures


def test_the_source_is_the_real_one() -> None:
    """The first departures of 2013, as JSON with numbers and nulls, tagged by carrier and origin."""
    first, second = departures(2)

    assert (first.tag, first.carrier, first.origin) == ("UA.EWR", "UA", "EWR")
    assert first.data.startswith(b'{"year":2013,"month":1,"day":1,"dep_time":517,')
    assert second.tag == "UA.LGA"
    assert len(list(departures(839))) == 839
    assert b'"dep_time":null' in list(departures(839))[-1].data


def test_the_checksum_sees_order_and_tags() -> None:
    """Two flights swapped, or one left out, give another checksum."""
    flights = list(departures(3))

    sums = {checksum_of(flights), checksum_of(flights[::-1]), checksum_of(flights[:2])}

    assert len(sums) == 3


def test_a_failed_check_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """A check that fails says so and is not forgotten."""
    report = Report()

    report.check(True, "this holds")
    report.check(False, "this does not")

    assert report.failed == 1
    assert "FAILED  this does not" in capsys.readouterr().out


def test_a_tenth_of_it() -> None:
    """The whole story but Spark's part, kill and restart included, on the first departures.

    `make demo` tells all of it, and fails where a check does."""
    part = ["--records", str(DEPARTURES // 10), "--no-spark"]
    command = [sys.executable, "-m", "bench.demo", *part]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("Every check passed.\n")
    assert done.stdout.count("   ok   ") == 21
