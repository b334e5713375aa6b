"""A request as it is carried out: how it shares the loop with others."""

from collections.abc import Callable

import pytest

from topics.protocol.faces.kafka.schema import types
from topics.server.kafka import call as calls
from topics.server.kafka.call import LOOK_PARTS

from .desk import KafkaDesk


def test_a_request_of_many_commands_gives_way_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the requests behind it wait, since what it does is not decided."""
    monkeypatch.setattr(calls, "TURN_S", 0.0)  # each look finds that it took too long
    desk = KafkaDesk()
    desk.create()
    later: list[Callable[[], object]] = []
    monkeypatch.setattr(desk.shell, "later", lambda _, call: later.append(call))
    T = types("ListOffsetsRequest")
    parts = [T.ListOffsetsPartition(timestamp=-1)] * (2 * LOOK_PARTS + 1)

    running = desk.begin("ListOffsets", topics=[T.ListOffsetsTopic(name="t", partitions=parts)])

    turns = 0
    while later:
        assert (running.is_over, running.holds) == (False, True)
        turns += 1
        later.pop()()
    assert turns >= 2
    (topic,) = desk.answer(running, "ListOffsets").topics
    assert [each.error_code for each in topic.partitions] == [0] * len(parts)
