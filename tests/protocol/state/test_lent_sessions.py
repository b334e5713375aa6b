"""A watch session that another process carries for a while: two engines with the same topics."""

import pickle

import pytest

from protocol.harness import Harness
from protocol.viewers import Pulling, Viewer
from topics.protocol.model.access import Caller
from topics.protocol.state.lent_sessions import (
    LentSession,
    borrow,
    give_back,
    image_of,
    lend,
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

    def put(self, name: str = "t") -> None:
        for one in (self.lender, self.borrower):
            one.put(name)

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
