"""Who is connected to this process: streams, WebSockets, requests that wait, connections of Kafka's clients.

Owns who they are and since when; where each stands its connection says when it is asked.  A page is bounded in
what it looks at, so that a long list holds up nobody.  Knows keys by their names alone.
"""

from bisect import bisect_right
from collections.abc import Callable
from itertools import count, islice
from typing import Final, Literal, TypeAlias

import msgspec

from topics.protocol.driver.client_states import ClientState, ClientTopics, client_topics
from topics.protocol.engine import Engine
from topics.protocol.model.access import ANYONE, Caller

Kind: TypeAlias = Literal["watch", "websocket", "work", "read", "claim", "job", "kafka"]
LOOKS_MAX: Final = 2000
"""Clients and partitions that one page looks at; it may be short, and the next goes on behind it."""
AGENT_CHARS_MAX: Final = 200


class Client(msgspec.Struct, eq=False, kw_only=True):
    """One client, as long as it is connected.

    Attributes:
        kind: What it does: `read`, `claim` and `job` wait for an answer.
        agent: What its program calls itself.
        node: What a worker calls itself.
        group: The group of consumers that it is a member of.
        state: Where it stands now.
    """

    clients: "Clients"
    number: int
    kind: Kind
    caller: Caller
    address: str
    since_ms: int
    state: Callable[[], ClientState]
    agent: str = ""
    node: str = ""
    group: str = ""

    def leave(self) -> None:
        """It is gone; may be called again."""
        self.clients.forget(self.number)


class ClientsAsked(msgspec.Struct, frozen=True, array_like=True):
    """Which clients of one process are asked for.

    Attributes:
        after: The number behind which the page begins.
        topic: Those that have to do with it; empty: all.
        prefixes: Beginnings of the names that may be told of; none: any name.
        key: The name of the key that asks: it sees its own clients, whatever they do.
    """

    after: int
    limit: int
    topic: str = ""
    prefixes: tuple[str, ...] = ()
    key: str = ""

    def covers(self, name: str) -> bool:
        """Whether the topic or group of this name may be told of."""
        return not self.prefixes or name.startswith(self.prefixes)

    def shows_topic(self, name: str) -> bool:
        return self.covers(name) and self.topic in ("", name)

    def shows(self, view: "ClientView") -> bool:
        """Whether a client is among those that are asked for, and may be seen."""
        if self.topic or view.topics.count:
            return view.topics.count > 0
        return not self.prefixes or view.group != "" or (self.key != "" and view.key == self.key)


class ClientView(msgspec.Struct, array_like=True):
    """What is told of a client.

    Attributes:
        key: The name of its key; empty: it has none.
        since_ms: When it came, milliseconds since the epoch.
        asked: See `ClientState`.
    """

    number: int
    kind: Kind
    key: str
    address: str
    since_ms: int
    agent: str
    node: str
    group: str
    topics: ClientTopics
    in_flight: int | None
    asked: int


class ClientPage(msgspec.Struct, array_like=True):
    """Clients of one process, in the order in which they came.

    Attributes:
        after: The number behind which the next page begins; None: this is the last.
    """

    clients: list[ClientView]
    after: int | None = None


class Clients:
    """The clients of one process.

    Args:
        engine: The engine that is there now.
        now_ms: The clock, milliseconds since the epoch.
        is_known: Whether that engine has all records of a partition.
        is_whole: This process tells all that there is to tell; else what it has asked another process for is
            told there.
    """

    def __init__(
        self,
        engine: Callable[[], Engine],
        now_ms: Callable[[], int],
        is_known: Callable[[str], bool] = lambda _: True,
        *,
        is_whole: bool = True,
    ) -> None:
        self._engine = engine
        self._now_ms = now_ms
        self._is_known = is_known
        self._is_whole = is_whole
        self._numbers = count(1)
        self._connected: dict[int, Client] = {}

    def __len__(self) -> int:
        return len(self._connected)

    def enter(
        self,
        kind: Kind,
        address: str,
        state: Callable[[], ClientState],
        *,
        caller: Caller = ANYONE,
        agent: str = "",
        node: str = "",
    ) -> Client:
        """A client is connected from now on, until it leaves."""
        client = Client(
            clients=self,
            number=next(self._numbers),
            kind=kind,
            caller=caller,
            address=address,
            since_ms=self._now_ms(),
            state=state,
            agent=agent[:AGENT_CHARS_MAX],
            node=node,
        )
        self._connected[client.number] = client
        return client

    def forget(self, number: int) -> None:
        self._connected.pop(number, None)

    def page(self, asked: ClientsAsked) -> ClientPage:
        """Clients of this process, at most `asked.limit` of them."""
        numbers = list(self._connected)
        left, found = LOOKS_MAX, list[ClientView]()
        for number in islice(numbers, bisect_right(numbers, asked.after), None):
            client = self._connected[number]
            state = client.state()
            view = self._view(client, state, asked)
            left -= 1 + len(state.seqs) + len(state.there)
            if asked.shows(view) or (state.asked and not self._is_whole):
                found.append(view)
            if (left <= 0 or len(found) >= asked.limit) and number != numbers[-1]:
                return ClientPage(found, number)
        return ClientPage(found)

    def _view(self, client: Client, state: ClientState, asked: ClientsAsked) -> ClientView:
        seqs = {**state.seqs, **state.there} if self._is_whole and state.there else state.seqs
        return ClientView(
            client.number,
            client.kind,
            client.caller.name,
            client.address,
            client.since_ms,
            client.agent,
            client.node,
            client.group if asked.covers(client.group) else "",
            client_topics(self._engine(), seqs, asked.shows_topic, self._is_known),
            state.in_flight,
            state.asked,
        )

    def topics(self, state: ClientState, asked: ClientsAsked) -> ClientTopics:
        """Where a client of another process stands in what this process serves of it."""
        return client_topics(self._engine(), state.seqs, asked.shows_topic, self._is_known)

    def completed(self, topics: ClientTopics) -> ClientTopics:
        """What another process tells, with the lags that it does not know."""
        lacking = any(each.lag is None and each.seq is not None for each in topics.shown)
        if not lacking:
            return topics
        seqs = {each.name: each.seq for each in topics.shown}
        found = client_topics(self._engine(), seqs, lambda _: True, self._is_known)
        return ClientTopics(found.shown, topics.count, found.lag)
