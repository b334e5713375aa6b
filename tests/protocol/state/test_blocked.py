"""A pause that doubles, and when it began. (§6.1)"""

from itertools import pairwise

from topics.protocol.model.backoff import BACKOFF_FIRST_MS, BACKOFF_MAX_MS
from topics.protocol.state.blocked import Blocked


def test_each_refusal_doubles_the_pause_up_to_a_bound() -> None:
    """Since when it refuses stays; what it says is what it said last."""
    blocked: Blocked | None = None
    pauses = []
    for n in range(10):
        now_ms = 1000 + n
        blocked = Blocked.after(blocked, "topic_full", f"no {n}", now_ms)
        pauses.append(blocked.retry_at_ms - now_ms)

    assert blocked is not None
    assert (blocked.since_ms, blocked.message) == (1000, "no 9")
    assert pauses[0] == BACKOFF_FIRST_MS
    assert pauses[-1] == BACKOFF_MAX_MS
    assert all(later == min(2 * first, BACKOFF_MAX_MS) for first, later in pairwise(pauses))
