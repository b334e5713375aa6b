"""Fanouts: one walk gives all live streams of a topic what was published (§7.4)."""

import gc
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from protocol.harness import Harness, by
from protocol.viewers import Viewer, short
from topics.protocol.state.fanout import Fanout
from topics.protocol.state.frames import RecordFrame

LATER: float = 1e9


class Driver:
    """What walks: `asked` counts the fanouts that wait for it."""

    def __init__(self, engine: Harness) -> None:
        self.fanouts: list[Fanout] = []
        self.asked = 0
        engine.engine.watches.fanouts.gather_by(
            self.gather, lambda: engine.engine.advance(engine.now_ms)
        )

    def gather(self, fanout: Fanout) -> Callable[[], None]:
        self.fanouts.append(fanout)
        return self.ask

    def ask(self) -> None:
        self.asked += 1

    def walk(self, until_s: float = LATER, clock: Callable[[], float] = lambda: 0.0) -> bool:
        """A slice of the only fanout's walk."""
        (fanout,) = self.fanouts
        return fanout.walk(clock, until_s)

    def step(self) -> bool:
        """The shortest slice that there is: one watcher."""
        return self.walk(0.0)


class Live(Viewer):
    """A stream that has said that it is caught up, and takes frames at once while it `reads`."""

    def __init__(self, engine: Harness, **options: Any) -> None:
        super().__init__(engine, topics={"t": {"tail": True}}, **options)
        self.open()
        assert self.told() == [f"t caught up at {self.cursors['t']}"]
        self.reads = True
        self.taken: list[RecordFrame] = []
        self.ids: list[str] = []
        self.stream.push = self._push
        self.woken = 0

    def _push(self, frame: RecordFrame) -> bool:
        if self.reads:
            self.taken.append(frame)
            self.ids.append(self.id)
        return self.reads

    @property
    def got(self) -> list[str]:
        return [short(frame) for frame in self.taken]


@pytest.fixture
def engine() -> Harness:
    made = Harness()
    made.put()
    return made


def seconds() -> Iterator[float]:
    return map(float, count())


def test_all_live_streams_take_one_frame(engine: Harness) -> None:
    """The same object, under the position behind it, and none of them has a turn. (§7.4, §7.5)"""
    driver, viewers = Driver(engine), [Live(engine) for _ in range(3)]
    engine.append(1, 2)
    assert driver.asked == 1
    assert not driver.walk()

    first, *others = viewers
    assert [viewer.got for viewer in viewers] == [["t 1-2"]] * 3
    assert all(viewer.taken[0] is first.taken[0] for viewer in others)
    assert [viewer.ids for viewer in viewers] == [[first.id]] * 3
    assert [viewer.woken for viewer in viewers] == [0, 0, 0]
    assert [viewer.told() for viewer in viewers] == [[], [], []]

    engine.append(3)
    driver.walk()
    assert [viewer.got for viewer in viewers] == [["t 1-2", "t 3"]] * 3


def test_a_walk_leaves_no_frame_behind(engine: Harness) -> None:
    """It would keep the file with its text open after an erasure, for as long as the topic has no
    more news. (§5)"""
    driver, viewers = Driver(engine), [Live(engine) for _ in range(3)]
    engine.append(1)
    assert driver.step()
    assert not driver.walk()
    frames = [viewer.taken.pop() for viewer in viewers]
    engine.engine.watches.forget_frames()
    assert not [each for each in gc.get_referrers(frames[0]) if each is not frames]


def test_a_stream_that_takes_nothing_now_is_woken(engine: Harness) -> None:
    """Its client does not read: what it has not got waits as the distance of its cursor. (§7.3)"""
    driver, slow, other = Driver(engine), Live(engine), Live(engine)
    slow.reads = False
    engine.append(1)
    driver.walk()
    assert (slow.woken, other.woken) == (1, 0)
    assert slow.cursors == {"t": 0}

    engine.append(2)
    driver.walk()

    assert slow.told() == ["t 1-2"]
    assert (slow.got, other.got) == ([], ["t 1", "t 2"])


def test_a_stream_that_connects_is_woken(engine: Harness) -> None:
    """It has to say that it is caught up, which comes behind the records. (§7.5)"""
    driver, viewer = Driver(engine), Viewer(engine).open()
    engine.append(1)
    driver.walk()
    assert viewer.told() == ["t 1", "t caught up at 1"]


def test_a_stream_without_push_is_woken(engine: Harness) -> None:
    """A WebSocket, or a stream with several topics, pulls each frame."""
    driver, viewer = Driver(engine), Live(engine)
    viewer.stream.push = None
    engine.append(1)
    driver.walk()
    assert (viewer.woken, viewer.told()) == (1, ["t 1"])


def test_a_stream_with_frames_of_before_is_woken(engine: Harness) -> None:
    """What waits before the news is sent before it. (§7.5)"""
    driver, viewer = Driver(engine), Live(engine, limit=1)
    viewer.reads = False
    engine.append(1, 2)
    driver.walk()
    assert viewer.told(most=2) == ["t 1", "t 2"]
    viewer.reads = True
    engine.append(3)
    driver.walk()
    assert viewer.told() == ["t caught up at 2", "t 3"]
    assert viewer.got == []


def test_more_than_a_frame_is_pulled(engine: Harness) -> None:
    """A stream that falls behind says when it has caught up again. (§7.5)"""
    driver, viewer = Driver(engine), Live(engine, limit=2)
    engine.append(1, 2, 3)
    driver.walk()
    assert viewer.told() == ["t 1-2", "t 3", "t caught up at 3"]


def test_what_comes_during_a_walk_is_given_once(engine: Harness) -> None:
    """Streams that the walk has passed get it in the next, the others with what came before."""
    driver, viewers = Driver(engine), [Live(engine) for _ in range(3)]
    engine.append(1)
    assert driver.step()
    engine.append(2)
    assert driver.asked == 1
    while driver.step():
        pass
    assert [viewer.got for viewer in viewers] == [["t 1", "t 2"], ["t 1-2"], ["t 1-2"]]

    engine.append(3)
    assert driver.asked == 2


def test_a_slice_ends_by_the_clock(engine: Harness) -> None:
    """A walk over many holds up nobody: it ends behind the stream during which the time came."""
    driver, viewers = Driver(engine), [Live(engine) for _ in range(5)]
    engine.append(1)
    clock = seconds()
    assert driver.walk(2.0, clock.__next__)
    assert [len(viewer.got) for viewer in viewers] == [1, 1, 1, 0, 0]
    assert not driver.walk(1e9, clock.__next__)
    assert [len(viewer.got) for viewer in viewers] == [1] * 5


def test_views_have_frames_of_their_own(engine: Harness) -> None:
    """And where nothing passes a filter, only the position moves. (§4, §7.2)"""
    driver = Driver(engine)
    mine, all_of_them, mine_again = Live(engine, node="me"), Live(engine), Live(engine, node="me")
    engine.append(by("me"))
    engine.append(by("you"))
    driver.walk()
    engine.append(by("me"))
    driver.walk()
    assert all_of_them.got == ["t 1-2", "t 3"]
    assert mine.got == mine_again.got == ["t 2"]
    assert mine.cursors == mine_again.cursors == {"t": 3}
    assert (mine.woken, mine.told()) == (0, [])


def test_an_error_of_one_stream_is_its_own(engine: Harness) -> None:
    """It is woken, and stands where it stood; the others get theirs."""
    driver, broken, other = Driver(engine), Live(engine), Live(engine)

    def fail(_: RecordFrame) -> bool:
        raise RuntimeError("no")

    broken.stream.push = fail
    engine.append(1)
    driver.walk()
    assert (broken.woken, broken.cursors, other.got) == (1, {"t": 0}, ["t 1"])
    assert broken.told() == ["t 1"]


def test_streams_come_and_go_during_a_walk(engine: Harness) -> None:
    """A stream that is closed gets nothing; a session that is opened again finds what it has missed."""
    driver, *viewers = Driver(engine), Live(engine), Live(engine)
    engine.append(1)
    driver.step()
    viewers[1].close()
    while driver.step():
        pass
    assert [viewer.got for viewer in viewers] == [["t 1"], []]
    assert viewers[1].open().told() == ["t 1", "t caught up at 1"]


def test_records_that_were_deleted_meanwhile_are_not_given(engine: Harness) -> None:
    """A frame that was made before a delete is given to nobody after it. (§5)"""
    driver, *viewers = Driver(engine), Live(engine), Live(engine)
    engine.append(1, 2)
    driver.step()
    engine.delete(before_seq=2)
    driver.step()
    assert [viewer.got for viewer in viewers] == [["t 1-2"], ["t 2"]]


def test_a_record_past_its_time_is_not_given(engine: Harness) -> None:
    """Time that passes between a publication and the walk counts. (§6)"""
    engine.put(ttl_ms=1000)
    driver, *viewers = Driver(engine), Live(engine), Live(engine)
    engine.append(1)
    driver.step()
    engine.now_ms += 2000
    driver.step()
    assert [viewer.got for viewer in viewers] == [["t 1"], []]
    assert viewers[1].told() == ["t lost 1-1 ttl"]


def test_a_strong_stream_is_given_what_is_durable(engine: Harness) -> None:
    """It is given nothing with the write, and the record with the sync. (§7.2)"""
    engine.put(durability="disk")
    driver, strong, eventual = Driver(engine), Live(engine, consistency="strong"), Live(engine)
    engine.auto = False
    engine.append(1)
    lsn = engine.write()
    driver.walk()
    assert (strong.got, strong.woken, eventual.got) == ([], 0, ["t 1"])
    engine.engine.on_synced(lsn)
    driver.walk()
    assert (strong.got, eventual.got) == (["t 1"], ["t 1"])


def test_a_loss_is_told_before_what_follows(engine: Harness) -> None:
    """A stream below the floor pulls its tombstone. (§7.5)"""
    engine.put(cap_records=1)
    driver, viewer = Driver(engine), Live(engine)
    engine.append(1, 2)
    driver.walk()
    assert viewer.told() == ["t lost 1-1 cap", "t 2"]
    assert viewer.got == []


def test_the_last_watcher_takes_the_crowd_with_it(engine: Harness) -> None:
    """A topic that is not watched costs nothing when it shows more."""
    driver, viewer = Driver(engine), Live(engine)
    engine.append(1)
    driver.walk()
    watches = engine.engine.watches
    viewer.close()
    watches.forget(viewer.session)
    engine.append(2)
    assert driver.asked == 1
    Live(engine)
    engine.append(3)
    assert (driver.asked, len(driver.fanouts)) == (2, 2)
