"""Watching beside sessions: sockets, frames that many streams share, what cannot be read (§7)."""

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.harness import Harness, tagged
from protocol.viewers import Socket, Viewer, records_of, short
from topics.protocol.model.commands import Begin
from topics.protocol.model.events import FloorsRaised
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


WATCHERS = ({}, {}, {"include_tags": True}, {"match": "a"}, {"consistency": "strong"}, {"limit": 1})
"""Some with the same view, some with others."""

CHANGES = st.sampled_from(
    ["one", "two", "a few", "later", "delete a", "delete 1", "cap", "ttl", "drop", "time", "sync"]
)
PULLS = st.integers(0, len(WATCHERS) - 1)
STEPS = st.lists(st.tuples(CHANGES, st.lists(PULLS, max_size=4)), max_size=12)


class Watchers:
    """An engine and its watchers, who are live; what each was told."""

    def __init__(self, *, is_shared: bool) -> None:
        self.engine = Harness()
        self.engine.put(durability="fsync")
        if not is_shared:
            self.engine.engine.watches.newest_frame = lambda *_: None  # type: ignore[method-assign]
        self.viewers = [Viewer(self.engine, **view).open() for view in WATCHERS]
        self.told = [[short(frame) for frame in viewer.frames()] for viewer in self.viewers]
        self.engine.auto = False

    def change(self, what: str) -> None:
        engine = self.engine
        match what:
            case "one" | "two" | "a few":
                engine.append(*map(tagged, {"one": "a", "two": "ab", "a few": "abab"}[what]))
                self.change("sync")
            case "later":
                engine.append(tagged("b"))
            case "delete a":
                engine.delete(match="a")
            case "delete 1":
                engine.delete(before_seq=engine.topic().earliest_seq + 1)
            case "cap":
                engine.put(cap_records=2, durability="fsync")
            case "ttl":
                engine.put(ttl_ms=50, durability="fsync")
            case "drop":
                engine.drop()
                engine.put(durability="fsync")
            case "time":
                engine.now_ms += 30
            case "sync":
                engine.write()
                engine.sync()

    def pull(self, at: int) -> None:
        frame = self.viewers[at].pull()
        if frame is not None:
            self.told[at].append(short(frame))

    def end(self) -> list[list[str]]:
        self.change("sync")
        for told, viewer in zip(self.told, self.viewers, strict=True):
            told += [short(frame) for frame in viewer.frames()]
        return self.told


@given(STEPS)
def test_the_newest_frame_is_what_a_look_would_find(steps: list[tuple[str, list[int]]]) -> None:
    """Whatever happens between two looks of streams at one position: who gets the frame of another
    gets what it would have got alone. (§7.6)"""
    shared, alone = Watchers(is_shared=True), Watchers(is_shared=False)

    for change, pulls in steps:
        for each in (shared, alone):
            each.change(change)
            for at in pulls:
                each.pull(at)

    assert shared.end() == alone.end()


def test_live_streams_get_one_frame_without_a_look(
    engine: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second and all others. (§7.6)"""
    viewers = [Viewer(engine).open() for _ in range(3)]
    assert [viewer.told() for viewer in viewers] == [["t caught up at 0"]] * 3
    engine.append(1)
    first = viewers[0].pull()
    monkeypatch.setattr(engine.engine.watches, "_look", None)

    assert [viewer.pull() for viewer in viewers[1:]] == [first, first]
    assert {viewer.cursors["t"] for viewer in viewers} == {1}


def test_what_was_evicted_since_is_in_no_newest_frame(engine: Harness) -> None:
    """For want of memory, say: the second stream is told of the loss. (§3.3)"""
    viewers = [Viewer(engine).open() for _ in range(2)]
    assert [viewer.told() for viewer in viewers] == [["t caught up at 0"]] * 2
    engine.append(1, 2)
    assert viewers[0].told() == ["t 1-2"]
    topic = engine.topic()
    floors = msgspec.structs.replace(topic.floors, cap_through=1)
    engine.engine.unit.emit(
        FloorsRaised(engine.now_ms, topic.topic_id, floors, 1, topic.size_bytes // 2)
    )

    assert viewers[1].told() == ["t lost 1-1 cap", "t 2"]
