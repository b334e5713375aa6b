"""Where a stream stands in one topic: every cell of the table (§7.5)."""

from itertools import product

import pytest

from protocol.harness import Harness
from protocol.viewers import Viewer
from topics.protocol.model.commands import View
from topics.protocol.state.watched import (
    WATCH_TRANSITIONS,
    Stream,
    StreamEnd,
    Watched,
    WatchPlace,
    WatchStep,
)

IMPOSSIBLE = {(WatchPlace.GONE, step) for step in WatchStep if step is not WatchStep.OPENED}
"""What is gone is not looked at again before the next stream."""

EXPECTED = {
    WatchStep.OPENED: dict.fromkeys(WatchPlace, WatchPlace.CONNECTING),
    WatchStep.DELETED: dict.fromkeys(WatchPlace, WatchPlace.GONE),
    WatchStep.UNREADABLE: dict.fromkeys(WatchPlace, WatchPlace.GONE),
    WatchStep.DRAINED: dict.fromkeys(WatchPlace, WatchPlace.LIVE),
    WatchStep.CUT_SHORT: {
        WatchPlace.CONNECTING: WatchPlace.CONNECTING,
        WatchPlace.BEHIND: WatchPlace.BEHIND,
        WatchPlace.LIVE: WatchPlace.BEHIND,
    },
}


@pytest.mark.parametrize(
    ("place", "step"), list(product(WatchPlace, WatchStep)), ids=lambda c: c.value
)
def test_every_cell_of_the_table(place: WatchPlace, step: WatchStep) -> None:
    """Each place moves by each step as said, and by no other. (§7.5)"""
    watched = Watched("t", 1, 0, View(limit=1, budget_bytes=1), place)
    if (place, step) in IMPOSSIBLE:
        assert (place, step) not in WATCH_TRANSITIONS
        with pytest.raises(KeyError):
            watched.step(step)
    else:
        watched.step(step)
        assert watched.place is EXPECTED[step][place]


def watched(place: WatchPlace = WatchPlace.CONNECTING) -> Watched:
    return Watched("t", 1, 0, View(limit=1, budget_bytes=1), place)


def test_a_topic_waits_for_its_turn_once() -> None:
    """However often it changes before the stream is pulled: a stream's cost is one look. (§7.6)"""
    stream = Stream(wake=lambda: None)
    topic, other = watched(), watched()

    for each in (topic, other, topic):
        stream.queue(each)

    assert stream.waiting == [topic, other]


def test_what_is_gone_waits_for_nothing() -> None:
    """No more frames of it come on this stream. (§7.5)"""
    stream = Stream(wake=lambda: None)

    stream.queue(watched(WatchPlace.GONE))

    assert stream.waiting == []


def test_a_stream_that_is_ended_is_woken_to_say_why() -> None:
    """The client learns the reason before the connection closes. (§7.3)"""
    woken: list[StreamEnd | None] = []
    stream = Stream(wake=lambda: woken.append(stream.ended_by))

    stream.end(StreamEnd.TAKEN_OVER)

    assert woken == [StreamEnd.TAKEN_OVER]


def test_a_stream_is_drained_where_nothing_is_to_be_pulled() -> None:
    """Neither a topic to look at, nor one that is passed over, nor a frame that was made. (§7.2)"""
    engine = Harness()
    engine.put()
    viewer = Viewer(engine).open()
    assert not viewer.stream.is_drained
    viewer.told()
    assert viewer.stream.is_drained

    engine.append(1)

    assert not viewer.stream.is_drained
