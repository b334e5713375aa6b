"""The demonstration's part about Spark: what it compares with, and what it draws."""

from pathlib import Path

import pytest

from bench.demo_spark import by_mean, delays_of, fields_of, plot, table
from bench.flights import Flight, departures

pytest.importorskip("matplotlib")


def flight(carrier: str, hour: int, delay: str) -> Flight:
    data = f'{{"year":2013,"month":1,"day":2,"hour":{hour},"dep_delay":{delay}}}'
    return Flight(f"{carrier}.JFK", data.encode())


FLIGHTS = [
    flight("AA", 5, "4"),
    flight("AA", 5, "null"),
    flight("AA", 6, "-2"),
    flight("ZZ", 6, "30.5"),
]


def test_a_report_from_the_source() -> None:
    """Flights that never departed count, and have no delay."""
    assert delays_of(FLIGHTS) == {
        ("AA", 5): (2, 1, 4.0),
        ("AA", 6): (1, 1, -2.0),
        ("ZZ", 6): (1, 1, 30.5),
    }
    assert by_mean(delays_of(FLIGHTS)) == ["ZZ", "AA"]
    [_, worst, _] = table(delays_of(FLIGHTS))
    assert worst.split() == ["ZZ", "1", "30.5", "min", "06:00,", "30", "min"]


def test_the_fields_are_those_of_the_source() -> None:
    """Year, month, day, scheduled hour, and minutes of delay."""
    [first, *_] = departures(1)
    assert fields_of(first) == (2013, 1, 1, 5, 2)


@pytest.mark.filterwarnings("default")  # of the library's own
def test_a_plot_is_a_picture(tmp_path: Path) -> None:
    """A PNG, also with hours in which a carrier has no flight."""
    path = plot(delays_of(FLIGHTS), tmp_path / "delays.png")
    assert path.read_bytes().startswith(b"\x89PNG")
