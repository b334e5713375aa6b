"""One page of who is connected, gathered from several processes. (§8.9)"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from topics.protocol.driver.client_states import ClientState
from topics.protocol.faces.http.clients import ClientList, ClientQuery
from topics.protocol.model.access import ANYONE, Caller
from topics.server.http import connected as module
from topics.server.http.connected import Connected
from topics.server.http.reports import encode
from topics.server.service.clients import ClientPage, Clients, ClientsAsked

from .desk import Desk, code, document


class Reader:
    """A reader process, whose answers come when a test says so."""

    def __init__(self, desk: Desk) -> None:
        shell = desk.shell
        self.clients = Clients(
            lambda: shell.engine, lambda: shell.now_ms, lambda _: False, is_whole=False
        )
        self.states: dict[int, ClientState] = {}

    def enter(
        self, seqs: Mapping[str, int | None] | None = None, *, asked: int = 0, **fields: Any
    ) -> None:
        state = ClientState(seqs or {}, asked=asked)
        self.clients.enter("watch", "192.0.2.2", lambda: state, **fields)


class Server:
    """A process with the engine, and its readers.  Implements `connected.Readers`."""

    def __init__(self, readers: int = 2) -> None:
        self.desk = Desk()
        for name in ("a", "b"):
            self.desk.ask(
                "POST", f"/v0/topics/{name}", {"records": [{"data": n} for n in range(3)]}
            )
        self.readers = [Reader(self.desk) for _ in range(readers)]
        self.connected: Connected = self.desk.exchange.connected
        self.connected.readers = self
        self.waiting: list[Callable[[], None]] = []

    @property
    def count(self) -> int:
        return len(self.readers)

    def ask(self, index: int, asked: ClientsAsked, told: Callable[[ClientPage], None]) -> None:
        self.waiting.append(lambda: told(self.readers[index].clients.page(asked)))

    def state_of(self, index: int, number: int) -> ClientState | None:
        return self.readers[index].states.get(number)

    def enter(self, seqs: Mapping[str, int | None] | None = None) -> None:
        state = ClientState(seqs or {})
        self.desk.exchange.clients.enter("watch", "192.0.2.1", lambda: state)

    def page(
        self, after: tuple[int, int] = (0, 0), limit: int = 100, topic: str = "", **key: Any
    ) -> ClientList:
        found: list[ClientList] = []
        caller = Caller("key-1", **key) if key else ANYONE
        self.connected.ask(ClientQuery(*after, limit, topic), caller, found.append)
        while self.waiting:
            self.waiting.pop(0)()
        [page] = found
        return page


def ids(page: ClientList) -> list[str]:
    return [each.client for each in page.clients]


def test_processes_follow_each_other() -> None:
    """First that with the engine, then each reader; an id says which. (§8.9)"""
    server = Server()
    server.enter()
    for reader in server.readers:
        reader.enter()
        reader.enter()
    assert ids(server.page()) == ["0-1", "1-1", "1-2", "2-1", "2-2"]
    assert server.page().next_after is None
    assert server.page((9, 0)) == ClientList(clients=[], next_after=None)


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
def test_pages_end_anywhere(limit: int) -> None:
    """Every client is on one page, and the last one says that it is. (§8.9)"""
    server = Server()
    for _ in range(2):
        server.enter()
        for reader in server.readers:
            reader.enter()
    found: list[str] = []
    page = server.page(limit=limit)
    while True:
        found += ids(page)
        if page.next_after is None:
            break
        process, number = map(int, page.next_after.split("-"))
        page = server.page((process, number), limit)
    assert found == ["0-1", "0-2", "1-1", "1-2", "2-1", "2-2"]


def test_what_only_the_engine_knows_is_added() -> None:
    """Lags of topics that a reader has not, and what it has asked the engine for. (§8.9)"""
    server = Server(1)
    [reader] = server.readers
    reader.enter({"a": 1})
    reader.enter({"a": 2}, asked=7)
    reader.enter(asked=8)
    reader.states[7] = ClientState({"b": 0}, in_flight=3)
    first, second, third = server.page().clients
    assert (first.lag, first.topic_count) == (2, 1)
    assert (second.lag, second.topic_count, second.in_flight) == (4, 2, 3)
    assert [(each.topic, each.seq, each.lag) for each in second.topics] == [
        *(("b", 0, 3), ("a", 2, 1))
    ]
    assert third.topic_count == 0  # its stream has ended meanwhile
    assert ids(server.page(topic="b")) == ["1-2"]


def test_a_key_sees_of_readers_what_it_may_see() -> None:
    """What the engine adds is within the prefixes, too. (§0.2)"""
    server = Server(1)
    [reader] = server.readers
    reader.enter({"a": 0})
    reader.enter(asked=7)
    reader.enter(asked=8)
    reader.states = {7: ClientState({"a": 0, "b": 0}), 8: ClientState({"a": 0})}
    page = server.page(prefixes=("b",))
    assert ids(page) == ["1-2"]
    assert [each.topic for each in page.clients[0].topics] == ["b"]


def test_the_engine_looks_at_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page ends there, and the next goes on. (§8.9)"""
    monkeypatch.setattr(module, "LOOKS_MAX", 2)
    server = Server(1)
    [reader] = server.readers
    for number in (1, 2, 3):
        reader.enter(asked=number)
        reader.states[number] = ClientState({"a": 0})
    page = server.page()
    assert (ids(page), page.next_after) == (["1-1", "1-2"], "1-2")
    page = server.page((1, 2))
    assert (ids(page), page.next_after) == (["1-3"], None)


def test_the_answer_comes_once_all_have_told() -> None:
    """A request to a server with readers waits for them; without, it is answered at once."""
    alone, server = Desk(), Server(1)
    assert document(alone.ask("GET", "/v0/clients"))["clients"] == []
    assert code(alone.ask("GET", "/v0/clients?after=nobody")) == (400, "invalid_request")

    server.enter({"a": 0})
    admitted: Any = server.desk.exchange.begin(server.desk.head("GET", b"/v0/clients", b"", ()))
    answers: list[Any] = []
    admitted.finish([]).then(answers.append)
    assert answers == []
    server.waiting.pop()()
    [told] = answers
    assert [each["client"] for each in document(told)["clients"]] == ["0-1"]
    [report] = reported(server)
    assert json.loads(report + b"}")["clients"] == document(told)["clients"]


def reported(server: Server) -> Any:
    """The same as a report to another process."""
    found: list[Any] = []
    query = encode(ClientQuery(0, 0, 100, ""))
    server.desk.exchange.reporters()["CLIENTS"](query, ANYONE, found.append)
    server.waiting.pop()()
    return found[0]
