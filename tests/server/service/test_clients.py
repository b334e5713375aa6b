"""Who is connected to a process: found in the order of coming, a bounded part at a time. (§8.9)"""

from collections.abc import Mapping
from typing import Any

import pytest

from topics.protocol.driver.client_states import ClientState
from topics.protocol.model.access import ANYONE, Caller
from topics.protocol.model.limits import Limits
from topics.server.service import clients as module
from topics.server.service.clients import AGENT_CHARS_MAX, Client, Clients, ClientsAsked
from topics.testing import START_MS, _Shell

from ..http.desk import Desk

ALL = ClientsAsked(0, 100)


class Place:
    """The clients of an engine with topics `a` and `b`, of three records each."""

    def __init__(self, *, is_whole: bool = True, known: str = "ab") -> None:
        self.shell = _Shell(Limits(), START_MS)
        desk = Desk(shell=self.shell)
        for name in "ab":
            records = [{"data": n} for n in range(3)]
            desk.ask("POST", f"/v0/topics/{name}", {"records": records})
        self.clients = Clients(
            lambda: self.shell.engine,
            lambda: self.shell.now_ms,
            lambda name: name in known,
            is_whole=is_whole,
        )

    def enter(
        self,
        seqs: Mapping[str, int | None] | None = None,
        *,
        there: Mapping[str, int | None] | None = None,
        asked: int = 0,
        **fields: Any,
    ) -> Client:
        state = ClientState(seqs or {}, there or {}, asked=asked)
        return self.clients.enter("watch", "192.0.2.1", lambda: state, **fields)

    def numbers(self, asked: ClientsAsked = ALL) -> list[int]:
        return [each.number for each in self.clients.page(asked).clients]


@pytest.fixture
def place() -> Place:
    return Place()


def test_a_client_is_there_until_it_leaves(place: Place) -> None:
    """It may leave more than once."""
    first, second = place.enter(), place.enter()
    assert place.numbers() == [first.number, second.number]
    assert len(place.clients) == 2
    for _ in range(2):
        first.leave()
    assert place.numbers() == [second.number]


def test_what_is_told_of_a_client(place: Place) -> None:
    """Who it is, since when, and how far behind: never its key. (§0.2)"""
    place.shell.advance(5)
    caller = Caller("key-1")
    client = place.enter({"a": 1}, caller=caller, agent="x" * 1000, node="w")
    client.group = "g"
    [view] = place.clients.page(ALL).clients
    assert (view.kind, view.key, view.address) == ("watch", "key-1", "192.0.2.1")
    assert (view.since_ms, view.agent) == (place.shell.now_ms, "x" * AGENT_CHARS_MAX)
    assert (view.node, view.group, view.asked) == ("w", "g", 0)
    assert (view.topics.count, view.topics.lag) == (1, 2)


def test_pages_follow_each_other(place: Place) -> None:
    """The last says so; clients that come and go meanwhile shift none of the others. (§8.9)"""
    entered = [place.enter() for _ in range(5)]
    first = place.clients.page(ClientsAsked(0, 2))
    assert ([each.number for each in first.clients], first.after) == ([1, 2], 2)
    entered[0].leave()
    entered[2].leave()
    second = place.clients.page(ClientsAsked(2, 2))
    assert ([each.number for each in second.clients], second.after) == ([4, 5], None)
    assert place.clients.page(ClientsAsked(99, 2)).clients == []


def test_a_page_looks_at_a_bounded_number(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends early, and the next goes on behind it. (§8.9)"""
    monkeypatch.setattr(module, "LOOKS_MAX", 4)
    for _ in range(4):
        place.enter({"b": 0})
    last = place.enter({"a": 0})
    asked, pages = ClientsAsked(0, 100, "a"), 0
    while (page := place.clients.page(asked)).after is not None:
        assert page.clients == []
        pages += 1
        asked = ClientsAsked(page.after, 100, "a")
    assert pages == 2
    assert [each.number for each in page.clients] == [last.number]


def test_clients_of_one_topic(place: Place) -> None:
    """And of each that topic alone. (§8.9)"""
    place.enter({"b": 0})
    both = place.enter({"a": 1, "b": 0})
    place.enter()
    [view] = place.clients.page(ClientsAsked(0, 100, "a")).clients
    assert view.number == both.number
    assert [each.name for each in view.topics.shown] == ["a"]
    assert view.topics.lag == 2


def test_a_key_sees_what_its_prefixes_cover(place: Place) -> None:
    """Topics and groups within them, clients that have to do with these, and its own. (§0.2, §8.9)"""
    own = Caller("key-own", prefixes=("a",))
    both = place.enter({"a": 0, "b": 0})
    place.enter({"b": 0})
    place.enter()
    mine = place.enter(caller=own)
    of_group, of_other = place.enter({"b": 0}), place.enter({"a": 0})
    of_group.group, of_other.group = "a-group", "b-group"
    found = place.clients.page(ClientsAsked(0, 100, "", own.prefixes, own.name)).clients
    assert [each.number for each in found] == [
        *(both.number, mine.number, of_group.number, of_other.number)
    ]
    assert [topic.name for each in found for topic in each.topics.shown] == ["a", "a"]
    assert [each.group for each in found] == ["", "", "a-group", ""]
    assert [each.number for each in place.clients.page(ALL).clients] == [1, 2, 3, 4, 5, 6]
    assert ANYONE.name == ""


def test_what_another_process_serves_is_told_where_it_is_known() -> None:
    """A process that knows all tells of it too; another one passes on that there is more to tell."""
    whole, part = Place(), Place(is_whole=False)
    for place in (whole, part):
        place.enter({"a": 0}, there={"b": None}, asked=7)
    asked = ClientsAsked(0, 100, "b")
    [view] = whole.clients.page(asked).clients
    assert [each.name for each in view.topics.shown] == ["b"]
    [view] = part.clients.page(asked).clients
    assert (view.topics.shown, view.asked) == ([], 7)
    assert asked.shows(view) is False
    found = whole.clients.topics(ClientState({"b": 1}), asked)
    assert (found.count, found.lag) == (1, 2)


def test_lags_that_another_process_does_not_know() -> None:
    """The process with the engine adds them; where nothing lacks, nothing is done. (§8.9)"""
    whole, part = Place(), Place(known="b")
    part.enter({"a": 1})
    [view] = part.clients.page(ALL).clients
    assert view.topics.lag is None
    found = whole.clients.completed(view.topics)
    assert (found.count, found.lag, found.shown[0].lag) == (1, 2, 2)
    assert whole.clients.completed(found) is found
