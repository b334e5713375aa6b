"""Subscriptions that the leader serves: a socket's command as a session, its events as messages. (§7.7)"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from topics.protocol.model.errors import ErrorCode, Rejection
from topics.server.cluster.carried import Carried, Events, refusal_of, session_body
from topics.server.http.interface import Answer
from topics.server.http.refusals import refusal

from .pair import Node, Play, a_follower_of, request_of, run, until


def test_a_command_becomes_the_body_of_a_session() -> None:
    """Where to begin and what to show go along; what is of the command alone does not."""
    one = b'{"op":"subscribe","topic":"e","from_seq":3,"limit":5,"request_id":1,"position":"0.1"}'
    some = b'{"op":"subscribe","topics":{"e":{"tail":true},"t":null},"node":"n"}'

    assert json.loads(session_body(one, ["e"])) == {
        "topics": {"e": {"from_seq": 3}},
        "limit": 5,
        "heartbeat_ms": 5000,
    }
    assert json.loads(session_body(some, ["e"])) == {
        "topics": {"e": {"tail": True}},
        "node": "n",
        "heartbeat_ms": 5000,
    }


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_events_are_whole_however_their_bytes_come(size: int) -> None:
    """Comments and blocks without an event are none."""
    raw = (
        b'retry: 2000\nid: c\n\n: hb 12\n\nid: d\nevent: record\ndata: {"topic":"e"}\n\n'
        b'id: f\nevent: caught-up\ndata: {"topic":"e","head_seq":1}\n\n'
    )
    events = Events()

    found = [each for at in range(0, len(raw), size) for each in events.take(raw[at : at + size])]

    assert found == [
        (b"record", b'{"topic":"e"}'),
        (b"caught-up", b'{"topic":"e","head_seq":1}'),
    ]


def test_a_refusal_keeps_its_code() -> None:
    """What cannot be read leaves it open."""
    known = refusal_of(refusal(ErrorCode.TOPIC_NOT_FOUND, "no"))
    page = refusal_of(Answer(502, (), [b"<html>"]))

    assert known.code is ErrorCode.TOPIC_NOT_FOUND
    assert page.code is ErrorCode.NOT_LEADER


SESSION = b'{"wid":"wid_x","topics":{"e":{"from_seq":0,"head_seq":0,"earliest_seq":1,"epoch":"x"}}}'


def leader(*blocks: bytes, then: asyncio.Event | None = None) -> Play:
    """Makes a session, streams these blocks, and then ends the stream, or waits."""

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head, _ = await request_of(reader)
            if head.startswith(b"POST"):
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(SESSION))
                writer.write(SESSION)
                continue
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
                b"transfer-encoding: chunked\r\n\r\n"
            )
            for block in blocks:
                writer.write(b"%x\r\n%b\r\n" % (len(block), block))
            if then is not None:
                await then.wait()
            writer.write(b"0\r\n\r\n")
            return

    return play


class Told:
    """What a socket was told."""

    def __init__(self) -> None:
        self.messages: list[dict[str, object]] = []
        self.is_ended = False

    def start(self, carried: Carried) -> None:
        carried.start(self.hear, self.room, self.end)

    def hear(self, message: bytes) -> None:
        self.messages.append(json.loads(message))

    async def room(self) -> None:
        return

    def end(self) -> None:
        self.is_ended = True


@asynccontextmanager
async def a_session(play: Play) -> AsyncIterator[tuple[Carried, Told, Node]]:
    async with a_follower_of(play) as (follower, _):
        carried = Carried(follower.neighbours, ["e"], headers=[], client="")
        positions = await carried.open(b'{"op":"subscribe","topic":"e"}')
        assert positions["e"].earliest_seq == 1
        told = Told()
        told.start(carried)
        try:
            yield carried, told, follower
        finally:
            carried.close()


def test_a_stream_that_ends_ends_the_socket() -> None:
    """What came before is told first."""

    async def story() -> None:
        block = b'event: caught-up\ndata: {"topic":"e","head_seq":0}\n\n'
        async with a_session(leader(block)) as (_, told, _):
            await until(lambda: told.is_ended)
            assert told.messages == [{"op": "caught_up", "topic": "e", "head_seq": 0}]

    run(story())


def test_an_error_of_the_stream_ends_the_socket() -> None:
    """A leader that stops, or leads no more, says so."""

    async def story() -> None:
        held = asyncio.Event()
        block = b'event: error\ndata: {"code":503,"error":"moved"}\n\n'
        async with a_session(leader(block, then=held)) as (_, told, _):
            await until(lambda: told.is_ended)
            assert told.messages == []
            held.set()

    run(story())


def test_a_topic_that_cannot_be_read_is_an_error_of_the_topic() -> None:
    """It is unsubscribed from, and the socket stays."""

    async def story() -> None:
        held = asyncio.Event()
        block = b'event: error\ndata: {"code":500,"error":"damaged","topics":["e"],"detail":{}}\n\n'
        async with a_session(leader(block, then=held)) as (carried, told, follower):
            await until(lambda: told.messages)
            assert told.messages[0]["op"] == "error"
            assert told.messages[0]["detail"] == {"topic": "e"}
            assert not carried.names
            held.set()
            await until(lambda: follower.forwarder.connections[1] == 0)
            assert carried._task is not None
            await carried._task
            assert not told.is_ended

    run(story())


def test_a_silent_leader_ends_the_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would have sent a heartbeat."""
    monkeypatch.setattr("topics.server.cluster.carried.SILENCE_S", 0.05)
    monkeypatch.setattr("topics.server.cluster.carried.LOOK_S", 0.01)

    async def story() -> None:
        held = asyncio.Event()
        async with a_session(leader(then=held)) as (_, told, _):
            await until(lambda: told.is_ended)
            held.set()

    run(story())


def test_a_session_that_is_closed_while_it_opens_lets_go_of_its_stream() -> None:
    """The client of the socket left meanwhile."""

    async def story() -> None:
        held = asyncio.Event()
        async with a_follower_of(leader(then=held)) as (follower, _):
            carried = Carried(follower.neighbours, ["e"], headers=[], client="")
            opening = asyncio.create_task(carried.open(b'{"op":"subscribe","topic":"e"}'))
            await asyncio.sleep(0)
            carried.close()
            await opening
            Told().start(carried)
            assert not carried.is_started
            await until(lambda: follower.forwarder.connections[1] == 0)
            held.set()

    run(story())


@pytest.mark.parametrize("status", [b"404 Not Found", b"200 OK"])
def test_a_stream_that_is_refused_is_the_commands_refusal(status: bytes) -> None:
    """A session that is gone already, or an answer that is no stream."""

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(SESSION) + SESSION)
        await request_of(reader)
        writer.write(b"HTTP/1.1 %b\r\ncontent-length: 0\r\n\r\n" % status)

    async def story() -> None:
        async with a_follower_of(play) as (follower, _):
            carried = Carried(follower.neighbours, ["e"], headers=[], client="")
            with pytest.raises(Rejection) as refused:
                await carried.open(b'{"op":"subscribe","topic":"e"}')
            assert refused.value.code is ErrorCode.NOT_LEADER
            carried.close()

    run(story())
