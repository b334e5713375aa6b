"""Watch sessions of the engine that readers have, and what stands in their place here.

Owns which reader has which session.  A session is lent with the connection of its stream, or by a
message where that is one stream of many.  It comes back with the positions that it has reached, or
without them where the reader has ended.

Invariant: a session is in one process.  What comes back of a loan that is over is not taken.
"""

from collections.abc import Callable
from typing import NamedTuple

from topics.protocol.driver.streams import LentSession, Loan, Streams
from topics.server.access.key_ring import KeyRing
from topics.server.readers.messages import End, Forgotten, Lent, Recall, Returned
from topics.server.readers.process import ReaderProcess
from topics.server.runtime.runtime import Runtime


class _Lent(NamedTuple):
    """A session that a reader has, and which of all lent_sessions it is."""

    reader: ReaderProcess
    loan: Loan
    number: int


class LentSessions:
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
        self._streams = Streams(runtime.engine)
        self._keys = keys
        self._is_theirs = is_theirs
        self._lent: dict[str, _Lent] = {}
        self._made = 0
        self._recalls: dict[str, list[Callable[[], None]]] = {}

    def holder_of(self, wid: str) -> ReaderProcess | None:
        """The reader that has a session."""
        lent = self._lent.get(wid)
        return None if lent is None else lent.reader

    def lend(self, wid: str, reader: ReaderProcess, asked: int = 0) -> Lent | None:
        """Lend a session; what is to go to the reader, or None where it stays here."""
        loan = self._streams.loan(wid, self._is_theirs)
        if loan is None:
            return None
        entry, keys = None, self._keys()
        if keys is not None:
            entry = keys.entry_of(loan.owner)
            if entry is None:
                return None
        self._made = number = self._made + 1
        lent = Lent(asked, loan.image, entry, number)
        loan.begin(lambda: self._on_ended(wid, number))
        self._lent[wid] = _Lent(reader, loan, number)
        return lent

    def undo(self, wid: str) -> None:
        """The session that was lent last did not leave."""
        self._take_back(wid, self._lent[wid].loan.image)

    def recall(self, wid: str, then: Callable[[], None]) -> None:
        """Have a session here: its stream in a reader ends, as another takes over; `then` is called
        once it has come back, now where it is here."""
        lent = self._lent.get(wid)
        if lent is None:
            then()
            return
        self._recalls.setdefault(wid, []).append(then)
        lent.reader.send(Recall(wid, lent.number))

    def returned(self, reader: ReaderProcess, returned: Returned) -> None:
        """A reader gives a session back."""
        image = returned.image
        if self._is_loan(reader, image.wid, returned.number):
            self._take_back(image.wid, image)

    def forgotten(self, reader: ReaderProcess, forgotten: Forgotten) -> None:
        """A reader has forgotten a session, as the engine does in time."""
        if self._is_loan(reader, forgotten.wid, forgotten.number):
            self._take_back(forgotten.wid, None)

    def reader_gone(self, reader: ReaderProcess) -> None:
        """What it had is here again; its streams go on from what their clients remember."""
        for wid in [wid for wid, lent in self._lent.items() if lent.reader is reader]:
            self._take_back(wid, None)

    # ------------------------------------------------------------------

    def _is_loan(self, reader: ReaderProcess, wid: str, number: int) -> bool:
        lent = self._lent.get(wid)
        return lent is not None and (lent.reader, lent.number) == (reader, number)

    def _on_ended(self, wid: str, number: int) -> None:
        """The stream in the reader is to end; the session is this process's at once."""
        lent = self._lent.get(wid)
        if lent is None or lent.number != number:
            return
        del self._lent[wid]
        lent.loan.forget_place()
        why = lent.loan.ended_by
        if why is not None:
            lent.reader.send(End(wid, number, why.name))
        self._is_here(wid)

    def _take_back(self, wid: str, image: LentSession | None) -> None:
        lent = self._lent.pop(wid, None)
        if lent is not None:
            lent.loan.take_back(self._runtime.now_ms, image)
            self._is_here(wid)

    def _is_here(self, wid: str) -> None:
        for then in self._recalls.pop(wid, ()):
            then()
