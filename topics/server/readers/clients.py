"""The clients of readers, for the engine's process that is asked who is connected (§8.9).

Owns the questions that are on their way: each is answered, by its reader or by the reader's end.
"""

from collections.abc import Callable, Mapping, Sequence

from topics.protocol.driver.client_states import ClientState
from topics.server.links.desk import Desk
from topics.server.readers.messages import AskClients, ToldClients
from topics.server.readers.process import ReaderPhase, ReaderProcess
from topics.server.service.clients import ClientPage, ClientsAsked


class ReaderClients:
    """Implements `connected.Readers`.

    Args:
        processes: The readers, by their places.
        desks: What each asks for, by its place.
    """

    def __init__(self, processes: Sequence[ReaderProcess], desks: Mapping[int, Desk]) -> None:
        self._processes = processes
        self._desks = desks
        self._asked: dict[int, dict[int, Callable[[ClientPage], None]]] = {}
        """Who waits for each question to a reader, by the reader's place."""
        self._number = 0

    @property
    def count(self) -> int:
        return len(self._processes)

    def ask(self, index: int, asked: ClientsAsked, told: Callable[[ClientPage], None]) -> None:
        process = self._processes[index]
        if process.standing is not ReaderPhase.READY:
            told(ClientPage([]))
            return
        self._number += 1
        self._asked.setdefault(index, {})[self._number] = told
        process.send(AskClients(self._number, asked))

    def told(self, index: int, answer: ToldClients) -> None:
        """A reader has answered."""
        waiting = self._asked.get(index, {}).pop(answer.number, None)
        if waiting is not None:
            waiting(answer.page)

    def gone(self, index: int) -> None:
        """A reader has ended, and its connections with it."""
        for told in self._asked.pop(index, {}).values():
            told(ClientPage([]))

    def state_of(self, index: int, number: int) -> ClientState | None:
        desk = self._desks.get(index)
        return None if desk is None else desk.state_of(number)
