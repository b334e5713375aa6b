"""A thread that computes for long sleeps for a moment now and then."""

import pytest

from topics.server.service import giving_way
from topics.server.service.giving_way import SLEEP_S, STEP_S, GivingWay


def test_it_sleeps_once_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """However short the pieces are between which it is called; its sleep is no work."""
    now_s, slept = 100.0, []

    class Clock:
        @staticmethod
        def perf_counter() -> float:
            return now_s

        @staticmethod
        def sleep(time_s: float) -> None:
            nonlocal now_s
            now_s += 10 * STEP_S
            slept.append(time_s)

    monkeypatch.setattr(giving_way, "time", Clock)
    give_way = GivingWay()
    for _ in range(3):
        give_way()
    now_s += 1.5 * STEP_S
    for _ in range(3):
        give_way()

    assert slept == [SLEEP_S]
