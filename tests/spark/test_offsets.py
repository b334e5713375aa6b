"""Offsets: JSON and back."""

import json

from topics.arrow.loss import Gap
from topics.spark.offsets import Offset, TopicOffset, parse_offset


def test_there_and_back() -> None:
    """What a checkpoint keeps is all of it, and the same text for the same place."""
    lost = (Gap("a", 1, 4, "cap"), Gap("b", 2, 2, "ttl"))
    made = Offset(5, 2, {"b": TopicOffset(7, "e-2"), "a": TopicOffset(4, "e-1")}, lost)
    again = Offset(5, 2, {"a": TopicOffset(4, "e-1"), "b": TopicOffset(7, "e-2")}, lost)

    assert json.dumps(made.to_json()) == json.dumps(again.to_json())
    assert parse_offset(json.loads(json.dumps(made.to_json()))) == made
    assert "lost" not in Offset(5, 2, {}).to_json()
