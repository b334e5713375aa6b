"""A request as it is carried out: how it shares the loop with others, and what is told of its client."""

from collections.abc import Callable
from typing import Any

import pytest

from topics.protocol.faces.kafka.schema import types
from topics.protocol.model.access import Caller
from topics.server.kafka import call as calls
from topics.server.kafka.call import FETCHED_MAX, LOOK_PARTS, Client
from topics.server.service.clients import ClientsAsked

from .desk import KafkaDesk, some
from .test_login import guarded, login
from .test_members import join


def test_a_request_of_many_commands_gives_way_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the requests behind it wait, since what it does is not decided."""
    monkeypatch.setattr(calls, "TURN_S", 0.0)  # each look finds that it took too long
    desk = KafkaDesk()
    desk.create()
    later: list[Callable[[], object]] = []
    monkeypatch.setattr(desk.shell, "later", lambda _, call: later.append(call))
    T = types("ListOffsetsRequest")
    parts = [T.ListOffsetsPartition(timestamp=-1)] * (2 * LOOK_PARTS + 1)

    running = desk.begin("ListOffsets", topics=[T.ListOffsetsTopic(name="t", partitions=parts)])

    turns = 0
    while later:
        assert (running.is_over, running.holds) == (False, True)
        turns += 1
        later.pop()()
    assert turns >= 2
    (topic,) = desk.answer(running, "ListOffsets").topics
    assert [each.error_code for each in topic.partitions] == [0] * len(parts)


# ---------------------------------------------------------------------- who is connected


def told(desk: KafkaDesk) -> list[Any]:
    """The clients that are told of, but for their ids and times. (§8.9 of the contract)"""
    page = desk.http.clients.page(ClientsAsked(0, 100))
    return [
        (each.kind, each.key, each.address, each.agent, each.group, each.topics.shown)
        for each in page.clients
    ]


def test_a_connection_is_told_of_until_it_is_gone() -> None:
    """By the name that its client gives itself, of which a part is kept."""
    desk = KafkaDesk()
    assert told(desk) == [("kafka", "", "192.0.2.1", "", "", [])]
    desk.ask("Metadata", 12, topics=None)
    assert told(desk) == [("kafka", "", "192.0.2.1", "c", "", [])]
    desk.client.named("n" * 1000)
    desk.client.named("n" * 1000)
    assert told(desk)[0][3] == "n" * 200
    desk.exchange.gone(desk.client)
    desk.exchange.gone(desk.client)
    assert told(desk) == []


def test_a_connection_says_where_it_reads() -> None:
    """By its last fetch, of which a bounded part is kept; a place that is none is not told."""
    desk = KafkaDesk()
    desk.create(partitions=2)
    desk.produce(some(b"1", b"2", b"3"))
    desk.fetch(1)
    [(*_, [place])] = told(desk)
    assert (place.name, place.seq, place.lag, place.partition) == ("t", 1, 2, 0)
    desk.fetch(0, partition=1)
    [(*_, [place])] = told(desk)
    assert (place.name, place.seq, place.lag, place.partition) == ("t#1", 0, 0, 1)
    desk.fetch(-1)
    assert told(desk)[0][-1] == []
    T = types("FetchRequest")
    parts = [T.FetchPartition(partition=number, fetch_offset=0) for number in range(200)]
    desk.ask("Fetch", 12, max_bytes=1, topics=[T.FetchTopic(topic="t", partitions=parts)])
    assert len(desk.client.fetched) == FETCHED_MAX


def test_a_connection_says_its_key_and_its_group() -> None:
    """Once it has logged in, and as long as it is a member."""
    desk = guarded("secret")
    assert told(desk)[0][1] == ""
    login(desk, "secret")
    assert told(desk)[0][1] == desk.client.caller.name != ""
    joined = join(desk)
    assert told(desk)[0][4] == "g"
    T = types("LeaveGroupRequest")
    member = T.MemberIdentity(member_id=joined.member_id)
    desk.ask("LeaveGroup", group_id="g", members=[member])
    assert told(desk)[0][4] == ""


def test_a_face_that_tells_of_nobody() -> None:
    """Where slots are shared by no server."""
    client = Client(1, "192.0.2.1", ("127.0.0.1", 1), may_ask=True)
    client.named("n")
    client.joined("g")
    client.logged_in(Caller("key-1"))
    assert client.shown is None
    assert client.caller.name == "key-1"
