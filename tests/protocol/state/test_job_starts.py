"""How many jobs may be started now (133)."""

from topics.protocol.model.config import Rate, TopicConfig
from topics.protocol.state.job_starts import JobStarts

RATE = Rate(max=3, per_ms=100)
CONFIG = TopicConfig(type="queue", rate=RATE)


def test_a_window_that_moves() -> None:
    """In any 100 ms no more than three."""
    starts = JobStarts()
    starts.begin(0)
    assert (starts.left(99, RATE), starts.next_ms(RATE)) == (0, 100)
    assert starts.left(100, RATE) == 3
    starts.note(100, 2, CONFIG)
    starts.note(150, 1, CONFIG)
    assert (starts.left(199, RATE), starts.next_ms(RATE)) == (0, 200)
    assert starts.left(200, RATE) == 2
    assert starts.left(250, RATE) == 3


def test_a_rate_that_was_lowered() -> None:
    starts = JobStarts()
    starts.note(1000, 3, CONFIG)
    assert starts.left(1050, Rate(max=1, per_ms=100)) == 0


def test_without_a_rate_nothing_is_kept() -> None:
    starts = JobStarts()
    starts.note(1000, 3, TopicConfig(type="queue"))
    assert starts.left(1000, RATE) == 3
