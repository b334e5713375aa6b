"""What a run of the tests tells of itself."""

from functools import cache
from pathlib import Path

import pytest

from tests import measured


def test_the_longest_are_told_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of all runs that were noted."""
    monkeypatch.setattr(measured, "DURATIONS", tmp_path / "durations.txt")
    monkeypatch.setattr(measured, "SHOWN", 2)
    measured.DURATIONS.write_text("0.500 a::one\n2.250 b::two[x y]\n1.000 c::three\n")
    monkeypatch.setattr("sys.argv", ["measured"])

    measured.main()

    assert capsys.readouterr().out.splitlines() == [
        "3 tests, 4 s; the longest:",
        "     2.2 s  b::two[x y]",
        "     1.0 s  c::three",
    ]


@cache
def kept(number: int) -> int:
    return number


def test_what_was_kept_is_forgotten_before_it_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the body of a function that keeps its results would be reached in some orders of the tests only."""
    monkeypatch.setattr(measured, "PACKAGES", __name__)
    kept(1)
    measured._forget()
    assert kept.cache_info().currsize == 0


def test_what_is_measured_is_there() -> None:
    """Each place names tests."""
    assert all((measured.ROOT / each).exists() for each in measured.COVERED)
