"""Who is connected to a server with readers: each client once, wherever it is served. (§8.9)"""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from contract.server import until
from contract.streams import Sse2, Ws
from contract.streams import until as until_news
from contract.wire import Http2, Wire, ask

from topics.protocol.driver.client_states import ClientState
from topics.server.readers.clients import ReaderClients
from topics.server.readers.messages import AskClients, ToldClients
from topics.server.readers.process import ReaderPhase
from topics.server.service.clients import ClientPage, ClientsAsked

from .served import WithReaders, append, kill, put

ALL = ClientsAsked(0, 100)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[WithReaders]:
    found = WithReaders(tmp_path / "server").start_all()
    try:
        yield found
    finally:
        found.__exit__(None, None, None)


def clients(wire: Wire, query: str = "") -> list[Any]:
    found: list[Any] = ask(wire, "GET", f"/v0/clients{query}").json["clients"]
    return found


def kinds(server: WithReaders) -> list[str]:
    wire = server.http()
    found = sorted(each["kind"] for each in clients(wire))
    wire.reset()
    return found


def test_each_client_is_told_once(server: WithReaders) -> None:
    """By whichever process it is served, and with what only the engine knows: the place in a topic that readers do not
    have, and the jobs of a worker. (§8.9)"""
    wire = server.http()
    put(wire, "volatile", durability="ephemeral")
    put(wire, "q", type="queue")
    append(wire, "volatile", 1, 2)
    append(wire, "log", 1, 2, 3)
    append(wire, "q", 1)
    wids = [
        ask(wire, "POST", "/v0/watch", b'{"topics":{"%b":{"from_seq":0}}}' % name).json["wid"]
        for name in (b"volatile", b"log")
    ]
    watches = [Sse2(server.port, wid) for wid in wids]
    for each in watches:
        until_news(each, "caught-up")
    work = Sse2(server.port, "/v0/topics/q/work?node=n")
    until_news(work, "job")
    socket = Ws(server.port)
    for name in ("volatile", "log"):
        socket.say(op="subscribe", topic=name, from_seq=0)
        until_news(socket, "caught-up", topic=name)
    polls = [Http2(server.port) for _ in range(2)]
    head = {"content-type": "application/json"}
    polls[0].send("POST", "/v0/topics/volatile/diff", b'{"from_seq":2,"wait_ms":30000}', head)
    polls[1].send("POST", "/v0/topics/log/diff", b'{"from_seq":3,"wait_ms":30000}', head)
    until("all are there", lambda: len(kinds(server)) == 6)

    over2 = server.connect(Http2)
    for asks in (wire, over2):
        found = clients(asks)
        assert len({each["client"] for each in found}) == 6
        assert {each["client"].split("-")[0] for each in found} >= {"1", "2"}
        assert [each["in_flight"] for each in found if each["kind"] == "work"] == [1]
        [talk] = [each for each in found if each["kind"] == "websocket"]
        assert [(each["topic"], each["lag"]) for each in talk["topics"]] == [
            ("log", 0),
            ("volatile", 0),
        ]
        assert {each["lag"] for each in found if each["kind"] != "work"} == {0}
        of_one = clients(asks, "?topic=volatile")
        assert sorted(each["kind"] for each in of_one) == ["read", "watch", "websocket"]
        walked, after = [], "0-0"
        while after is not None:
            page = ask(asks, "GET", f"/v0/clients?limit=1&after={after}").json
            walked += page["clients"]
            after = page["next_after"]
        assert {each["client"] for each in walked} == {each["client"] for each in found}

    for each in (*watches, work, socket):
        each.socket.close()
    for poll in (*polls, over2):
        poll.reset()
    until("all are gone", lambda: kinds(server) == [])
    wire.reset()


def test_clients_of_a_reader_that_is_killed_are_gone(server: WithReaders) -> None:
    """The others are told of. (§8.9)"""
    wire = server.http()
    append(wire, "log", 1)
    body = b'{"topics":{"log":{}}}'
    watches = [
        Sse2(server.port, ask(wire, "POST", "/v0/watch", body).json["wid"]) for _ in range(2)
    ]
    for each in watches:
        until_news(each, "caught-up")
    processes = {each["client"].split("-")[0] for each in clients(wire)}
    assert processes == {"1", "2"}
    kill(server.reader_pids()[0])
    until("its clients are gone", lambda: kinds(server) == ["watch"])
    for each in watches:
        each.socket.close()
    wire.reset()


class Process:
    """A reader, as the pool sees it."""

    def __init__(self) -> None:
        self.standing = ReaderPhase.READY
        self.sent: list[AskClients] = []

    def send(self, message: AskClients) -> None:
        self.sent.append(message)


def test_a_question_is_answered_once() -> None:
    """By the reader, or by its end; one that does not serve has no clients. (§8.9)"""
    processes: Any = [Process(), Process()]
    readers = ReaderClients(processes, {})
    told: list[tuple[int, ClientPage]] = []

    def ask_reader(index: int) -> None:
        readers.ask(index, ALL, lambda page: told.append((index, page)))

    assert readers.count == 2
    ask_reader(0)
    ask_reader(1)
    [first], [second] = processes[0].sent, processes[1].sent
    assert (first.asked, second.asked) == (ALL, ALL)
    page = ClientPage([], 7)
    readers.told(0, ToldClients(first.number, page))
    readers.told(0, ToldClients(first.number, page))
    assert told == [(0, page)]
    readers.gone(1)
    readers.gone(1)
    readers.told(1, ToldClients(second.number, page))
    assert told == [(0, page), (1, ClientPage([]))]
    processes[0].standing = ReaderPhase.STARTING
    ask_reader(0)
    assert told[2:] == [(0, ClientPage([]))]


def test_a_stream_is_looked_for_at_the_desk_of_its_reader() -> None:
    """Which is there as long as the reader is."""
    state = ClientState({"a": 1})
    desk: Any = SimpleNamespace(state_of=lambda number: state if number == 5 else None)
    readers = ReaderClients([], {1: desk})
    assert readers.state_of(1, 5) == state
    assert readers.state_of(1, 6) is None
    assert readers.state_of(0, 5) is None
