"""A deadline on what this process does itself, on a loop whose clock the test moves."""

from typing import Any

from server.transport.http2_rig import Loop
from topics.server.runtime.patience import Patience


def _patience(seconds: float) -> tuple[Loop, Patience, list[float]]:
    loop: Any = Loop()
    over: list[float] = []
    return loop, Patience(loop, seconds, lambda: over.append(loop.now_s)), over


def test_a_loop_that_runs_waits_as_long_as_it_was_told() -> None:
    loop, _, over = _patience(5.0)

    loop.advance(4.9)
    assert over == []
    loop.advance(0.2)
    assert len(over) == 1


def test_time_in_which_the_process_was_stopped_is_no_patience() -> None:
    """What it waits for was stopped with it, or has answered and was not heard."""
    loop, _, over = _patience(5.0)

    for _ in range(3):
        loop.now_s += 3600
        loop.advance(0.1)
    assert over == []
    loop.advance(5)
    assert len(over) == 1


def test_it_may_be_cancelled() -> None:
    loop, patience, over = _patience(5.0)
    loop.advance(1)

    patience.cancel()
    loop.advance(10)

    assert over == []
