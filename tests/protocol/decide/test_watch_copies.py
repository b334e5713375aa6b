"""Watching behind routers: who is told `caught-up` has what was written upstream (§7.5, §6)."""

from collections.abc import Callable

import pytest

from protocol.harness import Harness
from protocol.viewers import Viewer


@pytest.fixture
def engine() -> Harness:
    """s -> d -> e, and a record on its way."""
    harness = Harness()
    harness.route()
    harness.route("r2", "d", "e", filter="t")
    harness.work_off()
    return harness


def test_a_session_begins_behind_what_was_written(engine: Harness) -> None:
    """The POST drains: `tail` is behind the copies of what was written before it. (§7.2)"""
    engine.append(1, 2, name="s")

    viewer = Viewer(engine, topics={"d": {"tail": True}}).open()

    assert viewer.told() == ["d caught up at 2"]


def test_caught_up_waits_for_what_is_on_its_way(engine: Harness) -> None:
    """What was written before the stream opened comes before `caught-up`. (§7.5)"""
    viewer = Viewer(engine, "d")
    engine.append(1, 2, name="s")
    viewer.open()
    assert viewer.told() == []

    engine.work_off()

    assert viewer.woken
    assert viewer.told() == ["d 1-2", "d caught up at 2"]


def copies_nothing(engine: Harness) -> None:
    engine.work_off()


def is_deleted(engine: Harness) -> None:
    engine.auto = False
    engine.unroute("r")
    engine.sync()


def is_blocked(engine: Harness) -> None:
    engine.room_bytes = 0
    engine.engine.work_off(engine.moment)


def is_left_without_a_log(engine: Harness) -> None:
    engine.engine.on_failed()


@pytest.mark.parametrize("ending", [copies_nothing, is_deleted, is_blocked, is_left_without_a_log])
def test_caught_up_is_told_where_nothing_comes(
    engine: Harness, ending: Callable[[Harness], None]
) -> None:
    """A filter that lets nothing through, or a router that stops, keeps nobody waiting. (§7.5)"""
    viewer = Viewer(engine, "e")
    engine.append(1, name="s")
    viewer.open()
    assert viewer.told() == []

    ending(engine)

    assert viewer.told() == ["e caught up at 0"]


def test_who_is_live_is_told_nothing_more(engine: Harness) -> None:
    """A frame that reaches the head is no backlog. (§7.5)"""
    viewer = Viewer(engine, "d").open()
    assert viewer.told() == ["d caught up at 0"]
    engine.append(1, name="s")
    engine.work_off()

    assert viewer.told() == ["d 1"]


def test_a_copy_that_waits_for_its_write_is_on_its_way(engine: Harness) -> None:
    """In a topic between it is shown when the log has it, and goes on from there. (§7.5)"""
    viewer = Viewer(engine, "e")
    engine.append({"data": 1, "tag": "t"}, name="s")
    engine.engine.work_off(engine.moment)
    assert (engine.topic("d").head_seq, engine.topic("d").published_seq) == (1, 0)
    viewer.open()
    assert viewer.told() == []

    engine.sync()
    assert viewer.told() == []
    engine.work_off()

    assert viewer.told() == ["e 1", "e caught up at 1"]


def test_caught_up_comes_while_others_write_on(engine: Harness) -> None:
    """What was acknowledged before the stream came to the end is waited for, and no more. (§7.5)"""
    viewer = Viewer(engine, "d")
    engine.append(1, name="s")
    viewer.open()
    assert viewer.told() == []
    told: list[str] = []
    for turn in range(2, 5):
        engine.engine.work_off(engine.moment)
        engine.append(turn, name="s")
        told += viewer.told()

    assert told == ["d 1", "d caught up at 1", "d 2", "d 3"]


def test_a_new_stream_waits_anew(engine: Harness) -> None:
    """What the one before it waited for is not enough. (§7.5)"""
    viewer = Viewer(engine, "d")
    engine.append(1, name="s")
    viewer.open()
    assert viewer.told() == []
    engine.work_off()
    viewer.close()
    engine.append(2, name="s")
    viewer.open()

    assert viewer.told() == ["d 1"]
    engine.work_off()
    assert viewer.told() == ["d 2", "d caught up at 2"]
