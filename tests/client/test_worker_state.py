"""What a worker claims next, and how long a job rests that failed."""

from typing import Any

import pytest

from topics.client import Job, Retry
from topics.client.retry import Clock
from topics.client.worker_state import WorkerState


def worker(**options: Any) -> WorkerState[Any]:
    return WorkerState("jobs", Job, retry=Retry(), clock=Clock(lambda: 0.0, lambda: 0.0), **options)


def test_delays_grow_and_end() -> None:
    """The delay doubles with the deliveries, to a bound, however many there were. (§10.5)"""
    by_default, own = worker(), worker(first_delay_ms=5, longest_delay_ms=33)

    assert [by_default.delay_ms(n) for n in (1, 2, 3, 9, 10, 10**9)] == [
        1000,
        2000,
        4000,
        256_000,
        300_000,
        300_000,
    ]
    assert [own.delay_ms(n) for n in (1, 2, 3, 4)] == [5, 10, 20, 33]


def test_a_worker_that_wants_nothing() -> None:
    """A claim of no job is a mistake."""
    with pytest.raises(ValueError, match="at least one"):
        worker(max=0)
