"""Watch sessions of the engine that readers have, and what stands in their place here.

Owns which reader has which session.  A session is lent with the connection of its stream, or by a
message where that is one stream of many.  It comes back with the positions that it has reached, or
without them where the reader has ended.

Invariant: a session is in one process.  What comes back of a loan that is over is not taken.
"""

import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

from topics.protocol.model.errors import Rejection
from topics.protocol.state.lent_sessions import LentSession, image_of, lend, take_back
from topics.protocol.state.watched import Stream
from topics.protocol.state.watches import Session
from topics.server.access.key_ring import KeyRing
from topics.server.readers.process import ReaderProcess
from topics.server.runtime.runtime import Runtime


class _Loan(NamedTuple):
    """A session that a reader has, what stands in its place here, and which of all loans it is."""

    reader: ReaderProcess
    session: Session
    stand_in: Stream
    number: int


class Loans:
    """The sessions that readers have.

    Args:
        keys: Returns the keys in force; None where the server has none.
        is_theirs: Whether a reader may serve a topic.
    """

    def __init__(
        self,
        runtime: Runtime,
        keys: Callable[[], KeyRing | None],
        is_theirs: Callable[[str], bool],
    ) -> None:
        self._runtime = runtime
        self._keys = keys
        self._is_theirs = is_theirs
        self._loans: dict[str, _Loan] = {}
        self._made = 0
        self._recalls: dict[str, list[Callable[[], None]]] = {}

    def holder_of(self, wid: str) -> ReaderProcess | None:
        """The reader that has a session."""
        loan = self._loans.get(wid)
        return None if loan is None else loan.reader

    def lend(self, session: Session, reader: ReaderProcess) -> bytes | None:
        """Lend a session; its image, which is to go to the reader, or None where it stays here."""
        number = self._made + 1
        image = self._image(session, number)
        if image is None:
            return None
        self._made = number
        wid = session.wid
        watches = self._runtime.engine.watches
        stand_in = lend(watches, session, lambda: self._on_stand_in_ended(wid, number))
        self._loans[wid] = _Loan(reader, session, stand_in, number)
        return image

    def undo(self, session: Session) -> None:
        """The session that was lent last did not leave."""
        self._take_back(session.wid, image_of(session))

    def recall(self, wid: str, then: Callable[[], None]) -> None:
        """Have a session here: its stream in a reader ends, as another takes over; `then` is called
        once it has come back, now where it is here."""
        loan = self._loans.get(wid)
        if loan is None:
            then()
            return
        self._recalls.setdefault(wid, []).append(then)
        loan.reader.send({"recall": wid, "number": loan.number})

    def returned(self, reader: ReaderProcess, message: dict[str, Any]) -> None:
        """A reader gives a session back."""
        image: LentSession = pickle.loads(message["returned"])
        if self._is_loan(reader, image.wid, message["number"]):
            self._take_back(image.wid, image)

    def forgotten(self, reader: ReaderProcess, message: dict[str, Any]) -> None:
        """A reader has forgotten a session, as the engine does in time."""
        if self._is_loan(reader, message["forgotten"], message["number"]):
            self._take_back(message["forgotten"], None)

    def reader_gone(self, reader: ReaderProcess) -> None:
        """What it had is here again; its streams go on from what their clients remember."""
        for wid in [wid for wid, loan in self._loans.items() if loan.reader is reader]:
            self._take_back(wid, None)

    # ------------------------------------------------------------------

    def _is_loan(self, reader: ReaderProcess, wid: str, number: int) -> bool:
        loan = self._loans.get(wid)
        return loan is not None and (loan.reader, loan.number) == (reader, number)

    def _on_stand_in_ended(self, wid: str, number: int) -> None:
        """The stream in the reader is to end; the session is this process's at once."""
        loan = self._loans.get(wid)
        if loan is None or loan.number != number:
            return
        del self._loans[wid]
        # Of what the reader has sent by now only its client knows: what that remembers counts.
        loan.session.is_behind = True
        why = loan.stand_in.ended_by
        if why is not None:
            loan.reader.send({"end": wid, "number": number, "why": why.name})
        self._is_here(wid)

    def _image(self, session: Session, number: int) -> bytes | None:
        """A session to be lent; None where a reader cannot serve all of it, or where this process
        has to refuse it."""
        watches, state = self._runtime.engine.watches, self._runtime.engine.state
        try:
            watches.connection_shares.require(session.holder)
        except Rejection:
            return None
        for watched in session.watched.values():
            topic = state.topics.get(watched.name)
            if topic is None or topic.topic_id != watched.topic_id or watched.view.strong:
                return None
            if not self._is_theirs(watched.name):
                return None
        entry, keys = None, self._keys()
        if keys is not None:
            entry = keys.entry_of(session.owner)
            if entry is None:
                return None
        return pickle.dumps((image_of(session), entry, number))

    def _take_back(self, wid: str, image: LentSession | None) -> None:
        loan = self._loans.pop(wid, None)
        if loan is not None:
            watches, now_ms = self._runtime.engine.watches, self._runtime.now_ms
            take_back(watches, loan.session, loan.stand_in, now_ms, image)
            self._is_here(wid)

    def _is_here(self, wid: str) -> None:
        for then in self._recalls.pop(wid, ()):
            then()
