"""A node's place as an event of its own log, and the frames that belong into the shared one."""

import numpy as np

from topics.protocol.cluster.place import event_of, place_of, shared
from topics.protocol.cluster.rule.replica import Mark, Place
from topics.protocol.cluster.rule.unit import Shard
from topics.protocol.model.codec import Frames, decode_all
from topics.protocol.model.events import (
    Event,
    Floors,
    RecordsAppended,
    RunRef,
    RunsSealed,
    TimePassed,
    TopicDeleted,
)
from topics.protocol.model.records import Batch

SHARD = Shard(b"c" * 16)


def test_a_place_comes_back_as_it_was() -> None:
    """Of place and mark: what a node needs to read on, and to look whether the log is its own."""
    place = Place(term=3, seen=5, index=9, chain=b"p" * 16, offset=40, read=40)
    mark = Mark(Place(term=2, seen=2, index=7, chain=b"m" * 16, offset=30, read=30), 4)

    assert place_of(event_of(place, mark, 1), SHARD) == (place, mark)


def test_an_empty_store_is_before_all() -> None:
    """A new shard's first replica begins at offset 0."""
    zero = Place.before_all(SHARD)
    assert place_of(None, SHARD) == (zero, Mark(zero))


def test_what_is_of_one_node_stays_out_of_the_shared_log() -> None:
    """Seals and places, between frames of one buffer and frames of several, in their order. (§1)"""
    text = b"x" * 8000
    sizes = np.array([len(text)], np.uint32)
    batch = Batch(text=text, ts_ms=1, size=sizes, data_size=sizes)
    place = Place.before_all(SHARD)
    events: list[Event] = [
        RunsSealed(1, 2, 1, 3, [RunRef(1, 0, 1, 3, 9)]),
        RecordsAppended(1, 2, 4, batch, Floors(), 1, 8000, 100),
        event_of(place, Mark(place), 1),
        TopicDeleted(1, 2),
        TimePassed(5),
    ]
    frames = Frames.of(events)
    assert len(frames.parts) > len(events)

    count, body = shared(frames)

    found = list(decode_all(memoryview(body), count))
    assert [type(event) for event in found] == [RecordsAppended, TopicDeleted, TimePassed]
