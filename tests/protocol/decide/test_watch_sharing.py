"""Watching beside sessions: sockets, frames that many streams share, what cannot be read (§7)."""

from collections.abc import Callable

import pytest

from protocol.harness import Harness, tagged
from protocol.viewers import Socket, Viewer, records_of
from topics.protocol.model.commands import Begin
from topics.protocol.state import frames
from topics.protocol.state.frames import RecordFrame


@pytest.fixture
def engine() -> Harness:
    made = Harness()
    made.put()
    return made


# ---------------------------------------------------------------------- sockets


def test_a_socket_watches_what_it_subscribed(engine: Harness) -> None:
    """A second subscription of a name replaces the first. (§7.7)"""
    engine.put("u")
    for name in "tu":
        engine.append(1, 2, name=name)
    socket = Socket(engine)
    assert socket.told() == []
    socket.subscribe("t", begin=Begin(tail=True))
    socket.subscribe("u")
    assert socket.told() == ["t caught up at 2", "u 1-2", "u caught up at 2"]
    socket.subscribe("t", begin=Begin(from_seq=1))
    assert socket.told() == ["t 2", "t caught up at 2"]
    assert (socket.unsubscribe("t"), socket.unsubscribe("t")) == (True, False)
    engine.append(3)
    assert socket.told() == []


def test_what_was_owed_goes_with_the_subscription(engine: Harness) -> None:
    """No frame of a topic after it was unsubscribed, and none of before in the next one. (§7.7)"""
    engine.append(1)
    socket = Socket(engine)
    socket.subscribe("t")
    assert socket.told(1) == ["t 1"]
    socket.unsubscribe("t")
    assert socket.told() == []
    socket.subscribe("t")
    assert socket.told(1) == ["t 1"]
    socket.subscribe("t", begin=Begin(from_seq=0))
    assert socket.told() == ["t 1", "t caught up at 1"]


# ---------------------------------------------------------------------- what cannot be read


def test_an_unreadable_topic_ends_alone_and_stands_before_the_damage(engine: Harness) -> None:
    """A resume without an id must not pass over what was never sent. (§7.5)"""
    engine.append(1, name="u")
    engine.append(1, 2, 3)
    viewer = Viewer(engine, "t", "u").open()
    (frame,) = viewer.frames(1)
    assert isinstance(frame, RecordFrame)
    engine.engine.watches.on_unreadable(viewer.stream, frame)
    engine.append(4)
    assert viewer.told() == ["u 1", "u caught up at 1"]
    viewer.close()
    assert viewer.open().told(1) == ["t 1-4"]


def test_an_unreadable_frame_of_a_stream_that_was_taken_over_changes_nothing(
    engine: Harness,
) -> None:
    """The newer stream stands where it stands. (§7.3)"""
    engine.append(1, 2)
    viewer = Viewer(engine).open()
    old = viewer.stream
    (frame,) = viewer.frames(1)
    assert isinstance(frame, RecordFrame)
    viewer.open()
    engine.engine.watches.on_unreadable(old, frame)
    assert viewer.told() == ["t caught up at 2"]


# ---------------------------------------------------------------------- shared frames


def test_streams_at_one_position_get_one_frame(engine: Harness) -> None:
    """Read once and written out once, for sessions and sockets alike. (§7.6)"""
    streams = [Viewer(engine).open() for _ in range(3)]
    for viewer in streams:
        viewer.told()
    engine.append(1, 2)
    frames = [viewer.pull() for viewer in streams]
    assert frames[0] is frames[1] is frames[2]
    other = Viewer(engine, include_tags=True).open().pull()
    assert other is not frames[0]


@pytest.mark.parametrize("consistency", ["eventual", "strong"])
def test_a_shared_frame_is_of_the_present(consistency: str) -> None:
    """A delete and an append between two looks: as many records as before, but others. (§5)"""
    engine = Harness()
    engine.put(durability="disk" if consistency == "strong" else "fsync")
    engine.append(*map(tagged, "abc"))
    engine.auto = False
    assert Viewer(engine, consistency=consistency).open().told(1) == ["t 1-3"]
    engine.delete(match="b")
    engine.append(tagged("d"))
    if consistency == "strong":
        engine.write()
    # Neither is the sync that would show the new one here yet.
    assert Viewer(engine, consistency=consistency).open().told(1) == ["t 1,3"]


def test_a_shared_frame_survives_no_change_of_its_topic(engine: Harness) -> None:
    """What was deleted is not kept in memory for readers to come. (§5)"""
    engine.append(*map(tagged, "abc"))
    shared = engine.engine.watches._shared
    changes: list[Callable[[], object]] = [
        lambda: engine.delete(match="b"),
        lambda: engine.append(4),
        engine.drop,
    ]
    for change in changes:
        Viewer(engine).open().told()
        assert shared.size_bytes > 0
        change()
        assert (shared.size_bytes, shared._count) == (0, 0)


def test_shared_frames_are_bounded(engine: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """In number and in bytes; one that is larger than all may be is not kept. (§7.6)"""
    monkeypatch.setattr(frames, "FRAMES_SHARED_MAX", 10)
    monkeypatch.setattr(frames, "FRAMES_SHARED_BYTES_MAX", 5000)
    engine.append(*["x" * 900] * 30)
    shared = engine.engine.watches._shared
    sizes = []
    for seq in range(30):
        viewer = Viewer(engine, topics={"t": {"from_seq": seq}}, limit=1).open()
        (frame,) = viewer.frames(1)
        assert isinstance(frame, RecordFrame)
        assert [r["$seq"] for r in records_of(frame)] == [seq + 1]
        sizes.append(shared.size_bytes)
    assert 0 < max(sizes) <= 5000
    Viewer(engine, limit=10).open().told(1)
    assert shared.size_bytes <= 5000
