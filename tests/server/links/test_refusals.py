"""What the end of a link that decides refuses by itself. (§0.6)"""

from topics.protocol.model.errors import ErrorCode
from topics.server.links.refusals import no_room, unknown


def test_a_refusal_says_what_is_wrong() -> None:
    assert unknown("Frobnicate").code is ErrorCode.INTERNAL
    assert "Frobnicate" in unknown("Frobnicate").message
    assert no_room(7).code is ErrorCode.THROTTLED
    assert no_room(7).detail == {"limit": "max_answer_memory", "max": 7}
