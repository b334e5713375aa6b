"""How long a connection was left alone."""

import time

import pytest

from topics.client.steady import steady_s


def test_time_goes_on_and_never_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that counts a suspended machine's time, where the system has one."""
    assert steady_s() <= steady_s()

    monkeypatch.setattr(time, "CLOCK_BOOTTIME", 99, raising=False)
    monkeypatch.setattr(time, "clock_gettime", lambda clock: float(clock))
    assert steady_s() == 99

    monkeypatch.delattr(time, "CLOCK_BOOTTIME")
    assert steady_s() <= time.monotonic()
