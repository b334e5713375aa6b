"""What a carrier of streams opens, pulls and closes."""

import msgspec
import pytest

from protocol.harness import Harness
from protocol.viewers import Viewer, short
from topics.protocol.driver.streams import (
    JobStream,
    LentSession,
    Loan,
    RecordFrame,
    SessionStream,
    StreamEnd,
    Streams,
)
from topics.protocol.model.access import ANYONE, Caller
from topics.protocol.model.commands import Begin, Claim, View
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.outcomes import Gate
from topics.protocol.state.fanout import Fanout
from topics.protocol.state.frames import Frame

VIEW = View(256, 1 << 20)


class Carrier:
    """One engine with topics `a` and `b`, and the streams that a test opens."""

    def __init__(self) -> None:
        self.harness = Harness()
        self.harness.put("a")
        self.harness.put("b")
        self.streams = Streams(self.harness.engine)
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1

    def session(self, *names: str) -> SessionStream:
        return self.open(Viewer(self.harness, *names).wid)

    def open(self, wid: str) -> SessionStream:
        return self.streams.session(wid, None, self.wake, self.harness.now_ms)

    def told(self, stream: SessionStream) -> list[str]:
        found: list[str] = []
        while (frame := stream.next_frame(self.harness.now_ms)) is not None:
            assert isinstance(frame, Frame)
            found.append(short(frame))
        return found


@pytest.fixture
def carrier() -> Carrier:
    return Carrier()


def test_a_session_is_pulled_and_says_where_it_stands(carrier: Carrier) -> None:
    """And its position stays when its stream is closed. (§7.3)"""
    stream = carrier.session("a")
    begin = stream.id
    assert (stream.heartbeat_ms, stream.ended_by) == (15_000, None)
    assert carrier.told(stream) == ["a caught up at 0"]
    assert stream.is_drained
    carrier.harness.append(1, 2, name="a")
    assert carrier.woken
    assert not stream.is_drained
    assert carrier.told(stream) == ["a 1-2"]
    assert stream.id != begin
    stream.close(carrier.harness.now_ms)
    assert not carrier.harness.engine.watches.streams


def test_another_wake_is_called_from_then_on(carrier: Carrier) -> None:
    """A driver that comes later is woken in place of the first."""
    stream, heard = carrier.session("a"), list[str]()
    carrier.told(stream)
    stream.wake_by(lambda: heard.append("news"))
    carrier.streams.wake_all()
    assert (heard, carrier.woken) == (["news"], 0)


def test_streams_of_one_topic_share_what_one_of_them_made(carrier: Carrier) -> None:
    """Not where a session watches several topics, nor where it has ended. (§7.5)"""
    one, two, both = carrier.session("a"), carrier.session("a"), carrier.session("a", "b")
    assert [one.is_shared, both.is_shared] == [True, False]
    for stream in (one, two, both):
        carrier.told(stream)
    carrier.harness.append(1, name="a")
    frame = one.next_frame(carrier.harness.now_ms)
    assert isinstance(frame, RecordFrame)
    assert two.newest_frame("event") is None
    frame.texts["event"] = b"made"
    assert both.newest_frame("event") is None
    newest = two.newest_frame("event")
    assert newest is not None
    assert newest.texts["event"] == b"made"


def test_frames_of_one_topic_are_pushed(carrier: Carrier) -> None:
    """By a walk over its streams; a session of several topics pulls its frames."""
    one, both = carrier.session("a"), carrier.session("a", "b")
    fanouts, pushed = list[Fanout](), list[RecordFrame]()

    def gather(fanout: Fanout) -> "object":
        return lambda: fanouts.append(fanout)

    for stream, is_alone in ((one, True), (both, False)):
        carrier.told(stream)
        assert stream.gather_by(gather, lambda: carrier.harness.now_ms) is is_alone  # type: ignore[arg-type]

    def push(frame: RecordFrame) -> bool:
        pushed.append(frame)
        return True

    one.push_by(push)
    carrier.harness.append(1, name="a")
    fanouts[0].walk(lambda: 0.0, 1.0)
    assert [short(frame) for frame in pushed] == ["a 1"]
    one.push_by(None)


def test_a_topic_that_cannot_be_read_ends_alone(carrier: Carrier) -> None:
    """The session goes on with its other topics. (§7.5)"""
    stream = carrier.session("a", "b")
    carrier.harness.append(1, name="a")
    frame = stream.next_frame(carrier.harness.now_ms)
    while not isinstance(frame, RecordFrame):
        frame = stream.next_frame(carrier.harness.now_ms)
    stream.unreadable(frame)
    carrier.harness.append(2, name="a")
    carrier.harness.append(3, name="b")
    assert [word for word in carrier.told(stream) if word.startswith(("a 2", "b 1"))] == ["b 1"]


def test_a_session_is_asked_about_by_its_name(carrier: Carrier) -> None:
    """What it watches, whose it is, whether it has a stream; it is let go of by name. (§7.2)"""
    streams, now_ms = carrier.streams, carrier.harness.now_ms
    wid = Viewer(carrier.harness, "a", "b").wid
    streams.require_session(wid, now_ms)
    assert set(streams.topics_of(wid) or ()) == {"a", "b"}
    assert (streams.owner_of(wid), streams.is_open(wid)) == (ANYONE, False)
    carrier.open(wid)
    assert streams.is_open(wid)
    streams.forget(wid, now_ms)
    with pytest.raises(Rejection):
        streams.require_session(wid, now_ms)
    assert (streams.topics_of(wid), streams.owner_of(wid)) == (None, None)
    assert not streams.is_open(wid)
    closed = Viewer(carrier.harness, "a").wid
    streams.forget(closed, now_ms)
    assert streams.topics_of(closed) is None


def test_streams_of_a_topic_end_by_its_name(carrier: Carrier) -> None:
    """Streams of other topics go on."""
    one, other = carrier.session("a"), carrier.session("b")
    carrier.streams.end_of_topic("a", StreamEnd.MOVED)
    carrier.streams.forget_frames()
    carrier.streams.on_rest()
    assert (one.ended_by, other.ended_by) == (StreamEnd.MOVED, None)


def test_what_a_stream_waits_for_before_it_has_caught_up(carrier: Carrier) -> None:
    """Copies that another process knows of. (§6)"""

    class Copies:
        topic_id = 1
        name = "a"
        is_passed = False

    copies = Copies()
    carrier.streams.wait_for(lambda topic: copies if topic.name == "a" else None)
    stream = carrier.session("a")
    assert carrier.told(stream) == []
    copies.is_passed = True
    carrier.streams.on_rest()
    assert carrier.told(stream) == ["a caught up at 0"]


def test_a_socket_subscribes_and_goes_on_elsewhere(carrier: Carrier) -> None:
    """From where it stands in each topic that is still there. (§7.7)"""
    harness = carrier.harness
    harness.append(1, 2, name="a")
    socket = carrier.streams.socket(carrier.wake)
    added = socket.add({"a": Begin(), "b": Begin()}, VIEW, harness.now_ms)
    assert {name: each.from_seq for name, each in added.items()} == {"a": 0, "b": 0}
    assert set(socket.names) == {"a", "b"}
    while socket.next_frame(harness.now_ms) is not None:
        pass
    harness.drop("b")
    while socket.next_frame(harness.now_ms) is not None:
        pass
    [(name, standing)] = socket.standings()
    assert (name, standing.cursor) == ("a", 2)
    assert socket.remove("a")
    assert not socket.remove("a")
    socket.adopt(standing)
    harness.append(3, name="a")
    frame = socket.next_frame(harness.now_ms)
    assert isinstance(frame, RecordFrame)
    assert short(frame) == "a 3"
    assert socket.ended_by is None
    socket.end(StreamEnd.MOVED)
    assert socket.ended_by is StreamEnd.MOVED
    assert carrier.streams.has_open
    socket.close()
    assert not carrier.streams.has_open


def pushed(carrier: Carrier) -> JobStream:
    asked = Claim("jobs", "w", 2, 1000, 0)
    return carrier.streams.jobs(asked, carrier.wake, carrier.harness.now_ms)


def test_a_worker_is_given_jobs_and_gives_them_back(carrier: Carrier) -> None:
    """What cannot be handed out, and what its connection held at its end. (§10.8)"""
    harness = carrier.harness
    harness.put("jobs", type="queue")
    harness.append(1, 2, 3, name="jobs")
    carrier.streams.require_queue("jobs", harness.now_ms)
    with pytest.raises(Rejection):
        carrier.streams.require_queue("a", harness.now_ms)
    stream = pushed(carrier)
    assert (stream.name, stream.ended_by) == ("jobs", None)
    assert isinstance(stream.gate, Gate)
    [jobs] = stream.take(harness.moment)
    assert list(jobs.grant.seqs) == [1, 2]
    left = carrier.streams.set_aside(jobs.grant, {}, [1], harness.moment)
    assert left is not None
    stream.close(harness.moment)
    [queue] = harness.engine.state.queues.values()
    assert queue.in_flight == 0


class Lent:
    """A session of one engine that another one carries."""

    def __init__(self) -> None:
        self.here, self.there = Carrier(), Carrier()
        self.ended = 0
        self.wid = Viewer(self.here.harness, "a").wid

    def loan(self, may_go: bool = True) -> Loan | None:
        return self.here.streams.loan(self.wid, lambda name: may_go)

    def end(self) -> None:
        self.ended += 1

    def begin(self) -> Loan:
        loan = self.loan()
        assert loan is not None
        assert (loan.wid, loan.owner, loan.ended_by) == (self.wid, ANYONE, None)
        image: LentSession = loan.image
        loan.begin(self.end)
        self.there.streams.borrow(image, self.there.harness.now_ms, ANYONE)
        return loan


def test_a_session_goes_to_another_process_and_comes_back() -> None:
    """With the positions that it has reached there. (§7.3)"""
    lent = Lent()
    for each in (lent.here, lent.there):
        each.harness.append(1, 2, name="a")
    loan = lent.begin()
    assert lent.here.streams.is_open(lent.wid)
    stream = lent.there.open(lent.wid)
    assert lent.there.told(stream) == ["a 1-2", "a caught up at 2"]
    image = lent.there.streams.give_back(lent.wid)
    assert lent.there.streams.give_back(lent.wid) is None
    loan.take_back(lent.here.harness.now_ms, image)
    assert not lent.here.streams.is_open(lent.wid)
    lent.here.harness.append(3, name="a")
    assert lent.here.told(lent.here.open(lent.wid)) == ["a 3", "a caught up at 3"]


def test_a_stream_that_takes_over_here_ends_the_one_there() -> None:
    """The process that lends hears of it; what the client remembers counts then. (§7.3)"""
    lent = Lent()
    loan = lent.begin()
    stream = lent.there.open(lent.wid)
    lent.here.open(lent.wid)
    assert (lent.ended, loan.ended_by) == (1, StreamEnd.TAKEN_OVER)
    loan.forget_place()
    assert lent.there.streams.give_back(lent.wid, StreamEnd.TAKEN_OVER) is not None
    assert stream.ended_by is StreamEnd.TAKEN_OVER


def test_a_loan_that_is_over_makes_room_for_the_next() -> None:
    """Whoever borrows a session again forgets what it had of it."""
    lent = Lent()
    loan = lent.begin()
    loan.take_back(lent.here.harness.now_ms, None)
    lent.begin()
    assert set(lent.there.streams.topics_of(lent.wid) or ()) == {"a"}
    assert lent.there.streams.give_back(lent.wid, StreamEnd.MOVED) is not None  # it has no stream


def test_a_session_that_cannot_be_served_whole_elsewhere_stays() -> None:
    """A topic is not that process's, is another one by now, or waits for syncs; or there is no room for
    its stream."""
    lent = Lent()
    assert lent.loan(may_go=False) is None
    assert lent.here.streams.loan("none", lambda name: True) is None
    shares = lent.here.harness.engine.watches.connection_shares
    before, shares.limit, shares.used = shares.limit, 1, 1
    assert lent.loan() is None
    shares.limit, shares.used = before, 0
    lent.here.harness.drop("a")
    assert lent.loan() is None
    lent.here.harness.put("a")
    assert lent.loan() is None
    lent.wid = Viewer(lent.here.harness, "b", consistency="strong").wid
    assert lent.loan() is None


def test_a_key_has_streams_of_its_own() -> None:
    """Another key's session is none. (§7.1)"""
    carrier, key = Carrier(), Caller("k")
    wid = Viewer(carrier.harness, "a").wid
    with pytest.raises(Rejection) as refusal:
        carrier.streams.session(wid, None, carrier.wake, carrier.harness.now_ms, key)
    assert refusal.value.code is ErrorCode.UNAUTHORIZED


# ---------------------------------------------------------------------- partitions


def test_a_session_that_gets_partitions_shares_no_more(carrier: Carrier) -> None:
    """Its ids are its own from then on, and what it gets it pulls. (§7.4)"""
    stream = carrier.session("a")
    carrier.told(stream)
    pushed = list[RecordFrame]()

    def push(frame: RecordFrame) -> bool:
        pushed.append(frame)
        return True

    fanouts = list[Fanout]()
    stream.gather_by(lambda fanout: lambda: fanouts.append(fanout), lambda: carrier.harness.now_ms)
    stream.push_by(push)
    carrier.harness.append(1, name="a")
    fanouts.pop().walk(lambda: 0.0, 1.0)
    assert [short(frame) for frame in pushed] == ["a 1"]
    assert stream.is_drained

    carrier.harness.put("a", partitions=2)

    assert not stream.is_drained
    assert stream.newest_frame("event") is None
    assert carrier.told(stream) == ["a#1 caught up at 0"]
    assert not stream.is_shared
    stream.push_by(push)
    carrier.harness.append({"data": 2, "partition": 0}, name="a")
    while fanouts:
        fanouts.pop().walk(lambda: 0.0, 1.0)
    assert len(pushed) == 1
    assert carrier.told(stream) == ["a#0 2"]


def test_a_topic_that_cannot_be_read_leaves_its_socket(carrier: Carrier) -> None:
    """It is subscribed no more, and may be again. (§7.7)"""
    carrier.harness.append(1, name="a")
    stream = carrier.streams.socket(carrier.wake)
    stream.add({"a": Begin()}, VIEW, carrier.harness.now_ms)
    frame = stream.next_frame(carrier.harness.now_ms)
    assert isinstance(frame, RecordFrame)

    stream.unreadable(frame)

    assert (stream.names, stream.remove("a")) == (set(), False)


def test_a_socket_counts_its_partitions(carrier: Carrier) -> None:
    """And says where it stands in each; one that cannot be read ends alone. (§7.7)"""
    carrier.harness.put("a", partitions=3)
    carrier.harness.append({"data": 1, "partition": 1}, {"data": 2, "partition": 2}, name="a")
    stream = carrier.streams.socket(carrier.wake)
    at = stream.add({"a": Begin(), "b": Begin()}, VIEW, carrier.harness.now_ms)
    assert list(at) == ["a", "b", "a#1", "a#2"]
    assert [each.partition for each in at.values()] == [0, msgspec.UNSET, 1, 2]
    assert (sorted(stream.names), stream.count) == (["a", "b"], 4)

    found = []
    while (frame := stream.next_frame(carrier.harness.now_ms)) is not None:
        if isinstance(frame, RecordFrame) and frame.partition == 1:
            stream.unreadable(frame)
        else:
            assert isinstance(frame, Frame)
            found.append(short(frame))
    assert "a#2 1" in found
    assert not [each for each in found if each.startswith("a#1")]
    carrier.harness.append({"data": 3, "partition": 1}, name="a")
    carrier.harness.put("a", partitions=4)
    assert stream.next_frame(carrier.harness.now_ms).partition == 3  # type: ignore[union-attr]
    assert stream.next_frame(carrier.harness.now_ms) is None
    # The first stands behind the others: what goes on with them does not begin them anew.
    assert [name for name, _ in stream.standings()] == ["a#3", "a#2", "a#1", "b", "a"]
    assert stream.remove("a")
    assert stream.count == 1
