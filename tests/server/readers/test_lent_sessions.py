"""Which reader has which watch session, and what comes back of it. (§7.3)"""

from types import SimpleNamespace
from typing import Any

import pytest
from protocol.harness import Harness
from protocol.viewers import Pulling, Viewer

from topics.protocol.state.lent_sessions import LentSession, image_of
from topics.protocol.state.watches import Session
from topics.server.readers.lent_sessions import LentSessions
from topics.server.readers.messages import End, Forgotten, Recall, Returned
from topics.server.readers.process import ReaderProcess


class Told:
    """The channel of a reader, which keeps what it was sent."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    def send(self, message: Any) -> None:
        self.messages.append(message)


class Lender:
    """An engine with one watched topic, and two readers."""

    def __init__(self) -> None:
        self.harness = Harness()
        self.harness.put("t")
        self.harness.append(1, 2)
        self.theirs = True
        self.keys: Any = None
        runtime: Any = SimpleNamespace(engine=self.harness.engine, now_ms=self.harness.now_ms)
        self.lent_sessions = LentSessions(runtime, lambda: self.keys, lambda _: self.theirs)
        self.channels: Any = [Told(), Told()]
        self.readers = [ReaderProcess(index) for index in range(2)]
        for reader, channel in zip(self.readers, self.channels, strict=True):
            reader.channel = channel

    def session(self) -> Session:
        """A session whose stream is closed."""
        viewer = Viewer(self.harness).open()
        viewer.told()
        viewer.close()
        return self.harness.engine.watches.sessions[viewer.wid]

    def lend(self, session: Session, reader: int = 0) -> tuple[LentSession, int]:
        lent = self.lent_sessions.lend(session.wid, self.readers[reader])
        assert lent is not None
        assert lent.image is not None
        assert lent.entry is None
        return lent.image, lent.number


@pytest.fixture
def lender() -> Lender:
    return Lender()


def test_a_session_is_with_the_reader_that_it_was_lent_to(lender: Lender) -> None:
    """Until it comes back, with the positions that it has reached there."""
    session = lender.session()
    image, number = lender.lend(session)
    assert lender.lent_sessions.holder_of(session.wid) is lender.readers[0]
    assert session.stream is not None

    reached = [each.__class__(**{**fields(each), "cursor": 2}) for each in image.topics]
    image = LentSession(image.wid, image.heartbeat_ms, image.holder, tuple(reached))
    lender.lent_sessions.returned(lender.readers[0], Returned(image, number))

    assert lender.lent_sessions.holder_of(session.wid) is None
    assert session.stream is None
    assert [each.cursor for each in session.watched.values()] == [2]


def fields(struct: Any) -> dict[str, Any]:
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


def test_what_comes_back_of_a_loan_that_is_over_is_not_taken(lender: Lender) -> None:
    """Another reader has the session by then; so a number tells lent_sessions apart."""
    session = lender.session()
    image, first = lender.lend(session)
    lender.lent_sessions.reader_gone(lender.readers[0])
    _, second = lender.lend(session, reader=1)

    for reader, number in ((0, first), (1, first), (0, second)):
        lender.lent_sessions.returned(lender.readers[reader], Returned(image, number))
        lender.lent_sessions.forgotten(lender.readers[reader], Forgotten(session.wid, number))
        assert lender.lent_sessions.holder_of(session.wid) is lender.readers[1]

    lender.lent_sessions.forgotten(lender.readers[1], Forgotten(session.wid, second))
    assert lender.lent_sessions.holder_of(session.wid) is None


class Again(Viewer):
    """Another stream of a session that is there already."""

    def __init__(self, engine: Harness, wid: str) -> None:
        Pulling.__init__(self, engine)
        self.wid = wid


@pytest.mark.parametrize("why", ["TAKEN_OVER", "KEY_REMOVED"])
def test_a_stream_in_a_reader_ends_when_the_engine_says_so(lender: Lender, why: str) -> None:
    """Another one takes over here, or its key is removed: the session is here at once, and the reader is
    told why its stream ends."""
    session = lender.session()
    _, number = lender.lend(session)

    if why == "TAKEN_OVER":
        Again(lender.harness, session.wid).open()
    else:
        lender.harness.engine.watches.revoke(session.owner)

    assert lender.lent_sessions.holder_of(session.wid) is None
    assert lender.channels[0].messages == [End(session.wid, number, why)]


def test_sessions_of_a_reader_that_ended_are_here_again(lender: Lender) -> None:
    """Sessions of the others stay where they are."""
    mine, other = lender.session(), lender.session()
    lender.lend(mine)
    lender.lend(other, reader=1)

    lender.lent_sessions.reader_gone(lender.readers[0])

    assert lender.lent_sessions.holder_of(mine.wid) is None
    assert mine.stream is None
    assert lender.lent_sessions.holder_of(other.wid) is lender.readers[1]


def test_a_session_that_did_not_leave_stays_as_it_was(lender: Lender) -> None:
    """The client closed its connection on the way."""
    session = lender.session()
    before = image_of(session)
    lender.lend(session)

    lender.lent_sessions.undo(session.wid)

    assert lender.lent_sessions.holder_of(session.wid) is None
    assert session.stream is None
    assert image_of(session) == before


def test_a_session_that_a_reader_cannot_serve_whole_is_not_lent(lender: Lender) -> None:
    """A topic is not a reader's, or is gone; or its key is not in force any more."""
    session = lender.session()
    lender.theirs = False
    assert lender.lent_sessions.lend(session.wid, lender.readers[0]) is None
    lender.theirs = True
    lender.keys = SimpleNamespace(entry_of=lambda owner: None)
    assert lender.lent_sessions.lend(session.wid, lender.readers[0]) is None
    lender.keys = None
    lender.harness.drop()
    assert lender.lent_sessions.lend(session.wid, lender.readers[0]) is None

    assert lender.lent_sessions.holder_of(session.wid) is None
    assert session.stream is None


def test_a_session_is_recalled_from_the_reader_that_has_it(lender: Lender) -> None:
    """Once it has come back, whatever brought it; at once where it is here."""
    came: list[str] = []
    session = lender.session()
    wid = session.wid
    lender.lent_sessions.recall(wid, lambda: came.append("here"))
    assert came == ["here"]

    image, number = lender.lend(session)
    lender.lent_sessions.recall(wid, lambda: came.append("returned"))
    lender.lent_sessions.recall(wid, lambda: came.append("to both"))
    assert lender.channels[0].messages == [Recall(wid, number)] * 2
    assert came == ["here"]
    lender.lent_sessions.returned(lender.readers[0], Returned(image, number))
    assert came == ["here", "returned", "to both"]

    lender.lend(session)
    lender.lent_sessions.recall(wid, lambda: came.append("reader gone"))
    lender.lent_sessions.reader_gone(lender.readers[0])
    lender.lend(session)
    lender.lent_sessions.recall(wid, lambda: came.append("taken over"))
    Again(lender.harness, wid).open()
    assert came[3:] == ["reader gone", "taken over"]
