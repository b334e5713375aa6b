"""One page of who is connected, gathered from the processes of this server one after the other (§8.9).

Owns the ids: the number of a process, and the client's number there.  The process with the engine is 0, and
what a reader has asked it for is looked up here: it alone knows where that stands.
"""

from collections.abc import Callable
from typing import Protocol

from msgspec import UNSET

from topics.protocol.driver.client_states import ClientState, ClientTopic, joined
from topics.protocol.faces.http.clients import (
    ClientList,
    ClientQuery,
    ConnectedClient,
    ConnectedTopic,
    client_id,
)
from topics.protocol.model.access import Caller
from topics.protocol.model.names import public_name
from topics.server.service.clients import LOOKS_MAX, ClientPage, Clients, ClientsAsked, ClientView


class Readers(Protocol):
    """The clients of other processes."""

    @property
    def count(self) -> int:
        """How many processes there are."""

    def ask(self, index: int, asked: ClientsAsked, told: Callable[[ClientPage], None]) -> None:
        """Ask one of them; a process that ends meanwhile has none."""

    def state_of(self, index: int, number: int) -> ClientState | None:
        """Where a stream stands that one of them has asked this process for."""


class Connected:
    """Who is connected to this server.

    Args:
        clients: Of this process.

    Attributes:
        readers: The other processes; None: there are none.
    """

    def __init__(self, clients: Clients) -> None:
        self.clients = clients
        self.readers: Readers | None = None

    def ask(self, query: ClientQuery, caller: Caller, told: Callable[[ClientList], None]) -> None:
        """Have a page gathered, now or later."""
        _Gathering(self, query, caller, told).go_on()

    @property
    def last_process(self) -> int:
        return 0 if self.readers is None else self.readers.count


class _Gathering:
    """One page on its way."""

    def __init__(
        self,
        connected: Connected,
        query: ClientQuery,
        caller: Caller,
        told: Callable[[ClientList], None],
    ) -> None:
        self._connected = connected
        self._query = query
        self._caller = caller
        self._told = told
        self._process, self._after = query.process, query.after
        self._found: list[ConnectedClient] = []
        self._looks_left = LOOKS_MAX

    def go_on(self) -> None:
        """Ask the next process, or tell what was found."""
        left = self._query.limit - len(self._found)
        if self._process > self._connected.last_process:
            self._tell(None)
            return
        if left <= 0:
            self._tell(client_id(self._process, self._after))
            return
        asked = ClientsAsked(
            self._after, left, self._query.topic, self._caller.prefixes, self._caller.name
        )
        readers = self._connected.readers
        if self._process == 0:
            self._take(asked, self._connected.clients.page(asked))
        elif readers is not None:
            readers.ask(self._process - 1, asked, lambda page: self._take(asked, page))

    def _take(self, asked: ClientsAsked, page: ClientPage) -> None:
        for view in page.clients:
            self._complete(view, asked)
            if asked.shows(view):
                self._found.append(_client(self._process, view))
            if self._looks_left <= 0:
                self._tell(client_id(self._process, view.number))
                return
        if page.after is not None:
            self._tell(client_id(self._process, page.after))
            return
        self._process, self._after = self._process + 1, 0
        self.go_on()

    def _complete(self, view: ClientView, asked: ClientsAsked) -> None:
        """Say of a reader's client what only this process knows."""
        readers, clients = self._connected.readers, self._connected.clients
        if self._process == 0 or readers is None:
            return
        view.topics = clients.completed(view.topics)
        state = readers.state_of(self._process - 1, view.asked) if view.asked else None
        if state is not None:
            self._looks_left -= len(state.seqs)
            view.topics = joined(view.topics, clients.topics(state, asked))
            view.in_flight = state.in_flight

    def _tell(self, next_after: str | None) -> None:
        self._told(ClientList(clients=self._found, next_after=next_after))


def _client(process: int, view: ClientView) -> ConnectedClient:
    topics = view.topics
    return ConnectedClient(
        client=client_id(process, view.number),
        kind=view.kind,
        key=view.key or UNSET,
        address=view.address,
        since_ms=view.since_ms,
        agent=view.agent or UNSET,
        node=view.node or UNSET,
        group=view.group or UNSET,
        in_flight=UNSET if view.in_flight is None else view.in_flight,
        lag=UNSET if topics.lag is None else topics.lag,
        topic_count=topics.count,
        topics=[_topic(each) for each in topics.shown],
    )


def _topic(place: ClientTopic) -> ConnectedTopic:
    return ConnectedTopic(
        topic=public_name(place.name),
        partition=UNSET if place.partition is None else place.partition,
        seq=UNSET if place.seq is None else place.seq,
        lag=UNSET if place.lag is None else place.lag,
    )
