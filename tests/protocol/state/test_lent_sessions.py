"""A watch session that another process carries for a while: two engines with the same topics."""

import pickle

import pytest

from protocol.harness import Harness
from protocol.viewers import Pulling, Socket, Viewer
from topics.protocol.driver.streams import SocketStream
from topics.protocol.model.access import ANYONE, Caller
from topics.protocol.model.commands import Begin, View
from topics.protocol.model.holder import NOBODY
from topics.protocol.state.frames import RecordFrame
from topics.protocol.state.lent_sessions import (
    LentSession,
    SessionTopic,
    borrow,
    give_back,
    go_on,
    image_of,
    lend,
    standing_of,
    take_back,
)
from topics.protocol.state.watched import Stream
from topics.protocol.state.watches import SESSION_TTL_MS, Session, Watches


class Borrowed(Viewer):
    """A viewer of a session that is there already."""

    def __init__(self, engine: Harness, wid: str) -> None:
        Pulling.__init__(self, engine)
        self.wid = wid


class Pair:
    """An engine that lends, and one that borrows; both are given every command."""

    def __init__(self) -> None:
        self.lender, self.borrower = Harness(), Harness()
        self.ended: list[str] = []
        self.put()

    def put(self, name: str = "t", **config: object) -> None:
        for one in (self.lender, self.borrower):
            one.put(name, **config)

    def append(self, *datas: object) -> None:
        for one in (self.lender, self.borrower):
            one.append(*datas)

    def drop(self) -> None:
        for one in (self.lender, self.borrower):
            one.drop()

    @property
    def watches(self) -> Watches:
        return self.lender.engine.watches

    def lend(self, viewer: Viewer) -> tuple[Session, Stream, Viewer]:
        """The session, its stand-in, and the stream that the borrower has opened on it."""
        session = self.watches.sessions[viewer.wid]
        stand_in = lend(self.watches, session, lambda: self.ended.append(session.wid))
        image: LentSession = pickle.loads(pickle.dumps(image_of(session)))
        borrow(self.borrower.engine.watches, image, self.borrower.now_ms)
        there = Borrowed(self.borrower, viewer.wid).open()
        return session, stand_in, there

    def take_back(self, session: Session, stand_in: Stream) -> None:
        watches = self.borrower.engine.watches
        image = give_back(watches, watches.sessions[session.wid])
        take_back(self.watches, session, stand_in, self.lender.now_ms, image)


@pytest.fixture
def pair() -> Pair:
    return Pair()


def test_a_session_goes_on_where_it_stood_and_comes_back_with_its_positions(pair: Pair) -> None:
    """The stream in the other process gets what was not sent yet; the next one here what is new.
    (§7.3)"""
    pair.append(1, 2)
    viewer = Viewer(pair.lender).open()
    assert viewer.told() == ["t 1-2", "t caught up at 2"]
    viewer.close()
    pair.append(3)
    session, stand_in, there = pair.lend(viewer)
    assert there.told() == ["t 3", "t caught up at 3"]

    pair.take_back(session, stand_in)

    pair.append(4)
    assert viewer.open().told() == ["t 4", "t caught up at 4"]
    assert not pair.borrower.engine.watches.sessions
    assert pair.borrower.engine.watches.session_shares.used == 0
    assert pair.borrower.engine.watches.connection_shares.used == 0


def test_a_lent_session_counts_and_is_not_forgotten(pair: Pair) -> None:
    """Its stream is one of its holder's, and no time ends it. (§7.1, §11)"""
    viewer = Viewer(pair.lender)
    session, stand_in, _ = pair.lend(viewer)
    assert pair.watches.connection_shares.used == 1

    pair.watches.forget_idle(pair.lender.now_ms + 2 * SESSION_TTL_MS)

    assert viewer.wid in pair.watches.sessions
    pair.take_back(session, stand_in)
    assert pair.watches.connection_shares.used == 0
    assert session.stream is None


def test_a_client_that_is_further_than_a_lost_session_goes_on_from_its_id(pair: Pair) -> None:
    """The other process ended with the positions: what the client remembers counts, forwards, too,
    once. (§7.4)"""
    pair.append(1, 2, 3)
    viewer = Viewer(pair.lender)
    session, stand_in, there = pair.lend(viewer)
    there.told()
    last = there.id

    take_back(pair.watches, session, stand_in, pair.lender.now_ms, None)

    pair.append(4)
    assert viewer.open(last).told() == ["t 4", "t caught up at 4"]
    ahead = viewer.id
    viewer.close()
    pair.append(5)
    viewer.open(last).told()
    assert not session.is_behind
    assert ahead != last


def test_a_session_that_was_lost_with_one_process_goes_on_in_another(pair: Pair) -> None:
    """What the client remembers counts there, and in the process after that; once. (§7.4)"""
    pair.append(1, 2, 3)
    viewer = Viewer(pair.lender)
    session, stand_in, there = pair.lend(viewer)
    there.told()
    last = there.id
    take_back(pair.watches, session, stand_in, pair.lender.now_ms, None)
    forgotten = pair.borrower.engine.watches
    give_back(forgotten, forgotten.sessions[session.wid])
    image = image_of(session)
    stand_in = lend(pair.watches, session, lambda: None)
    borrow(forgotten, image, pair.borrower.now_ms)
    pair.take_back(session, stand_in)  # no stream was opened
    assert session.is_behind

    stand_in = lend(pair.watches, session, lambda: None)
    borrow(forgotten, image_of(session), pair.borrower.now_ms)

    assert Borrowed(pair.borrower, viewer.wid).open(last).told() == ["t caught up at 3"]
    pair.take_back(session, stand_in)
    assert not session.is_behind


def test_a_topic_that_is_deleted_while_its_session_comes_back_keeps_its_last_head(
    pair: Pair,
) -> None:
    """The other process did not know of it yet. (§7.5)"""
    pair.append(1, 2, 3)
    session, stand_in, _ = pair.lend(Viewer(pair.lender))
    pair.lender.drop()
    assert session.watched["t"].last_head_seq == 3

    pair.take_back(session, stand_in)

    assert session.watched["t"].last_head_seq == 3


def test_another_instance_that_the_stream_met_comes_back(pair: Pair) -> None:
    """`recreated` was sent there, and is not sent again. (§7.5)"""
    pair.append(1, 2)
    viewer = Viewer(pair.lender).open()
    viewer.told()
    viewer.close()
    pair.drop()
    pair.put()
    pair.append(7)
    session, stand_in, there = pair.lend(viewer)
    assert there.told()[0].startswith("t lost")

    pair.take_back(session, stand_in)

    pair.append(8)
    assert viewer.open().told() == ["t 2", "t caught up at 2"]


def test_an_instance_that_only_the_other_process_met_keeps_its_last_head(pair: Pair) -> None:
    """It was deleted here before the session came back with it. (§7.5)"""
    pair.append(1, 2)
    viewer = Viewer(pair.lender).open()
    viewer.told()
    viewer.close()
    pair.drop()
    pair.put()
    pair.append(7, 8, 9)
    session, stand_in, there = pair.lend(viewer)
    assert there.told()[0].startswith("t lost")
    pair.lender.drop()

    pair.take_back(session, stand_in)

    assert viewer.open().told() == ["t deleted at 3"]


def moved(pair: Pair) -> tuple[Socket, Socket]:
    """A socket of the other process that has read a topic, and its half here."""
    there, here = Socket(pair.borrower), Socket(pair.lender)
    there.subscribe("t", nodes=("me",))
    assert there.told() == ["t 1-2", "t caught up at 2"]
    return there, here


def move(pair: Pair, there: Socket, here: Socket) -> None:
    standing: SessionTopic = pickle.loads(pickle.dumps(standing_of(there.stream.watched["t"])))
    go_on(pair.watches, here.stream, standing)
    there.close()


def test_a_socket_goes_on_where_its_other_half_stood(pair: Pair) -> None:
    """With its filters, and counted as what is subscribed here. (§7.7, §11)"""
    pair.append(1, 2)
    there, here = moved(pair)
    view = there.stream.watched["t"].view
    pair.append(3)
    move(pair, there, here)

    assert here.told() == ["t 3", "t caught up at 3"]
    assert here.stream.watched["t"].view == view
    assert pair.watches.byte_shares.used == here.stream.watched["t"].memory_bytes
    here.close()
    assert pair.watches.byte_shares.used == 0


@pytest.mark.parametrize("is_made_anew", [True, False])
def test_a_socket_is_told_of_a_topic_that_is_gone_where_it_goes_on(
    pair: Pair, is_made_anew: bool
) -> None:
    """Whether or not another has its name: nobody subscribed to that one. (§7.5, §7.7)"""
    pair.append(1, 2)
    there, here = moved(pair)
    pair.lender.append(3)
    pair.lender.drop()
    if is_made_anew:
        pair.lender.put()
        pair.lender.append(*range(9))
    move(pair, there, here)

    assert here.told() == ["t deleted at 3"]


def test_so_many_last_heads_are_kept(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond that the other process's knowledge counts."""
    monkeypatch.setattr("topics.protocol.state.watches.LAST_HEADS", 2)
    pair.append(1, 2)
    there, here = moved(pair)
    pair.lender.drop()
    for name in ("u", "v"):
        pair.lender.put(name)
        pair.lender.drop(name)
    move(pair, there, here)

    assert here.told() == ["t deleted at 0"]


def test_a_session_that_was_forgotten_with_its_key_is_not_taken_back(pair: Pair) -> None:
    """What comes back of it changes nothing. (§7.1)"""
    viewer = Viewer(pair.lender)
    session, stand_in, _ = pair.lend(viewer)
    session.owner = stand_in.owner = Caller("key")
    stand_in.owner.streams = 1
    pair.watches.revoke(session.owner)
    assert pair.ended == [viewer.wid]

    pair.take_back(session, stand_in)

    assert viewer.wid not in pair.watches.sessions
    assert pair.watches.connection_shares.used == 0
    assert pair.watches.session_shares.used == 0


def test_a_stream_that_takes_over_here_ends_the_one_there(pair: Pair) -> None:
    """What comes back of the loan then is nobody's; the client's id counts. (§7.3)"""
    pair.append(1, 2)
    viewer = Viewer(pair.lender)
    session, stand_in, _ = pair.lend(viewer)

    viewer.open()

    assert pair.ended == [viewer.wid]
    pair.take_back(session, stand_in)
    assert session.stream is viewer.stream
    assert viewer.told() == ["t 1-2", "t caught up at 2"]
    assert pair.watches.connection_shares.used == 1


def test_news_do_not_end_a_stand_in() -> None:
    """It is woken as a stream is, also when its topic goes: only its own end is passed on. (§7.3)"""
    pair = Pair()
    _, stand_in, _ = pair.lend(Viewer(pair.lender))

    pair.append(1)
    pair.drop()
    assert pair.ended == []

    stand_in.wake()
    assert pair.ended == []


def test_a_session_whose_stream_has_gone_is_given_back_as_it_is() -> None:
    """The borrower's client left before it: there is no stream to close. (§7.3)"""
    pair = Pair()
    session, stand_in, there = pair.lend(Viewer(pair.lender))
    borrowed = pair.borrower.engine.watches.sessions[there.wid]
    there.close()
    assert borrowed.stream is None

    image = give_back(pair.borrower.engine.watches, borrowed)
    take_back(pair.watches, session, stand_in, pair.lender.now_ms, image)

    assert session.stream is None
    assert there.wid not in pair.borrower.engine.watches.sessions


# ---------------------------------------------------------------------- partitions


def write(pair: Pair, partition: int, *datas: object) -> None:
    pair.append(*({"data": data, "partition": partition} for data in datas))


def test_partitions_that_join_there_come_back(pair: Pair) -> None:
    """With their positions, in the order in which they joined there, and counted. (§7.4, §11)"""
    pair.put("u")
    viewer = Viewer(pair.lender, "t", "u")
    session, stand_in, there = pair.lend(viewer)
    there.told()
    pair.put("u", partitions=2)
    pair.put("t", partitions=3)
    write(pair, 2, "a")
    assert sorted(there.told()) == [
        "t#1 caught up at 0",
        "t#2 1",
        "t#2 caught up at 1",
        "u#1 caught up at 0",
    ]
    kept = there.id

    pair.take_back(session, stand_in)

    assert list(viewer.cursors) == ["t", "u", "u#1", "t#1", "t#2"]
    assert viewer.open(kept).id == kept
    assert not [each for each in viewer.told() if "caught" not in each]
    write(pair, 2, "b")
    assert viewer.told() == ["t#2 2"]
    assert pair.watches.byte_shares.used == session.memory_bytes
    viewer.close()
    pair.watches.forget(session)
    assert pair.watches.byte_shares.used == 0


def test_partitions_that_joined_there_are_found_again_here(pair: Pair) -> None:
    """The other process ended with the session: an id from there names what this one had not looked for yet. (§7.4)"""
    viewer = Viewer(pair.lender)
    session, stand_in, there = pair.lend(viewer)
    pair.put("t", partitions=3)
    write(pair, 1, "a", "b")
    there.told()
    kept = there.id

    take_back(pair.watches, session, stand_in, pair.lender.now_ms, None)

    write(pair, 1, "c")
    told = [each for each in viewer.open(kept).told() if "caught" not in each]
    assert told == ["t#1 3"]


def test_a_topic_that_was_made_again_there_comes_back_with_its_partitions(pair: Pair) -> None:
    """It had one, and has two by now. (§7.5)"""
    viewer = Viewer(pair.lender)
    pair.drop()
    pair.put("t", partitions=2)
    session, stand_in, there = pair.lend(viewer)
    assert there.told()[0] == "t#0 lost 1-0 recreated"

    pair.take_back(session, stand_in)

    assert [each.partition for each in session.watched.values()] == [0, 1]
    pair.drop()
    write_again = viewer.open().told()
    assert sorted(write_again) == ["t#0 deleted at 0", "t#1 deleted at 0"]


def test_the_last_head_of_a_partition_that_joined_there(pair: Pair) -> None:
    """Its topic was deleted here before the other process knew. (§7.5)"""
    viewer = Viewer(pair.lender)
    session, stand_in, there = pair.lend(viewer)
    pair.put("t", partitions=2)
    there.told()
    pair.lender.append({"data": 1, "partition": 1})
    pair.lender.drop()

    pair.take_back(session, stand_in)

    assert sorted(viewer.open().told()) == ["t#0 deleted at 0", "t#1 deleted at 1"]


def test_a_socket_goes_on_in_all_partitions(pair: Pair) -> None:
    """Partitions that joined in one process alone come, and none comes twice; one that could not be read stays so. (§7.7)"""
    pair.put("t", partitions=3)
    write(pair, 1, "a")
    write(pair, 2, "b")
    there, here = (
        SocketStream(pair.borrower.engine, lambda: None, ANYONE, NOBODY),
        Socket(pair.lender),
    )
    there.add({"t": Begin()}, View(256, 1 << 20), pair.borrower.now_ms)
    while (frame := there.next_frame(pair.borrower.now_ms)) is not None:
        if isinstance(frame, RecordFrame) and frame.partition == 2:
            there.unreadable(frame)
    pair.lender.put("t", partitions=4)
    pair.lender.append({"data": "c", "partition": 1}, {"data": "d", "partition": 3})

    for _, standing in there.standings():
        go_on(pair.watches, here.stream, pickle.loads(pickle.dumps(standing)))
        here.stream.wake()
    there.close()

    told = [each for each in here.told() if "caught" not in each]
    assert sorted(told) == ["t#1 2", "t#3 1"]
