"""What is asked of the process itself. (§8)"""

from protocol.harness import refusal
from topics.protocol.faces.http.server import HISTORY_STEPS_MS, parse_history
from topics.protocol.model.errors import ErrorCode


def test_the_history_is_asked_for_in_steps_that_it_has() -> None:
    """400 with the steps for any other; without a step, the longest. (§8.6)"""
    assert parse_history({}) == (HISTORY_STEPS_MS[-1], 0)
    step = HISTORY_STEPS_MS[0]
    assert parse_history({"step_ms": str(step), "after_ms": "7"}) == (step, 7)

    refused = refusal(parse_history, {"step_ms": "1"})

    assert refused.code is ErrorCode.INVALID_REQUEST
    assert all(str(known) in refused.message for known in HISTORY_STEPS_MS)
