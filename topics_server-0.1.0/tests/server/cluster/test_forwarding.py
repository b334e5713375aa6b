"""Leaders that die, are slow, or send garbage; clients that leave; memory that stays bounded."""

import asyncio
import json
from collections import deque

import pytest

from topics.protocol.model.errors import Rejection
from topics.server.cluster.forwarding import SMALL_BYTES, Forwarder, Request, token_of
from topics.server.cluster.link import WRITE_BYTES
from topics.server.cluster.pool import SHORT_MAX

from .pair import SECRET, Play, a_follower_of, a_pair, request, request_of, run, until

WRITE = {"records": [{"data": 1}]}


def saying(answer: bytes, *, then_waits: bool = False) -> Play:
    """A leader that reads a request and says this."""

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(answer)
        await writer.drain()
        if then_waits:
            await reader.read()

    return play


BAD = {
    "nothing": b"",
    "a part of a head": b"HTTP/1.1 200 OK\r\ncontent-le",
    "a head without its body": b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n",
    "a part of a body": b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n12345",
    "garbage": b"\x16\x03\x01 not HTTP at all\r\n\r\n",
    "a status that is none": b"HTTP/1.1 2x0 OK\r\ncontent-length: 0\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
    "no length": b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{}",
    "an endless head": b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000,
    "a body beyond all": b"HTTP/1.1 200 OK\r\ncontent-length: 999999999999\r\n\r\n",
}


@pytest.mark.parametrize("said", BAD.values(), ids=BAD.keys())
def test_a_write_whose_answer_is_none_may_have_been_done(said: bytes) -> None:
    """503 `not_leader`, `outcome` `unknown`: under its idempotency key it may be repeated; nothing of
    the bad answer is passed on, and the write is sent once."""

    async def story() -> None:
        async with a_follower_of(saying(said)) as (follower, leader):
            answer = await follower.ask("POST", "/v0/topics/t", WRITE)

            assert answer.code == (503, "not_leader")
            assert answer.json["error"]["detail"] == {"leader": leader.url, "outcome": "unknown"}
            assert answer.headers["retry-after"] == "1"
            assert (leader.taken, follower.forwarder.counts.unknown) == (1, 1)
            assert follower.forwarder.connections == (0, 0, 0)
            assert follower.forwarder.room.held_bytes == 0

    run(story())


def test_a_read_whose_answer_is_none_is_asked_once_more() -> None:
    """It does nothing twice; on a second failure nothing was applied, and the answer says so."""

    async def story() -> None:
        async with a_follower_of(saying(b"")) as (follower, leader):
            follower.put("e", durability="ephemeral")
            answer = await follower.ask("POST", "/v0/topics/e/diff", {})

            assert answer.code == (503, "not_leader")
            assert answer.json["error"]["detail"]["outcome"] == "not_applied"
            assert leader.taken == 2

    run(story())


def test_a_leader_that_cannot_be_reached_was_sent_nothing() -> None:
    async def story() -> None:
        async with a_follower_of(saying(b"")) as (follower, leader):
            await leader.stop()
            answer = await follower.ask("POST", "/v0/topics/t", WRITE)
            assert answer.code == (503, "not_leader")
            assert answer.json["error"]["detail"]["outcome"] == "not_applied"

    run(story())


def test_a_connection_is_kept_and_one_that_closes_is_not_used_again() -> None:
    """A leader that ends each connection after its answer gets a new one for each request."""
    good = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"

    async def story() -> None:
        async with a_pair() as pair:
            for _ in range(5):
                assert (await pair.follower.append("t", 1)).status in (200, 201)
            assert len(pair.leader.shared.connections) == 1
            assert pair.follower.forwarder.connections == (0, 0, 1)

        async with a_follower_of(saying(good)) as (follower, leader):
            for _ in range(3):
                assert (await follower.ask("POST", "/v0/topics/t", WRITE)).status == 200
                await until(lambda: leader.ended == leader.taken)
            assert leader.taken == 3

    run(story())


def test_bytes_behind_an_answer_belong_to_no_request() -> None:
    """A connection on which something came unasked is closed; the next request gets its own
    answer."""
    two = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}" * 2

    async def story() -> None:
        async with a_follower_of(saying(two, then_waits=True)) as (follower, leader):
            for _ in range(2):
                assert (await follower.ask("POST", "/v0/topics/t", WRITE)).body == b"{}"
            assert leader.taken == 2
            assert follower.forwarder.connections == (0, 0, 0)

    run(story())


def test_an_interim_answer_is_skipped() -> None:
    said = (
        b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
    )

    async def story() -> None:
        async with a_follower_of(saying(said)) as (follower, _):
            answer = await follower.ask("POST", "/v0/topics/t", WRITE)
            assert (answer.status, answer.body, "link" in answer.headers) == (200, b"{}", False)

    run(story())


def test_a_leader_that_is_slow_is_waited_for() -> None:
    """Byte by byte, and whole to the client; other requests go on meanwhile."""
    go_on = asyncio.Event()
    said = b'HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n{"a": 1}'

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        for at in range(len(said)):
            if at == len(said) // 2:
                await go_on.wait()
            writer.write(said[at : at + 1])
            await writer.drain()
            await asyncio.sleep(0)

    async def story() -> None:
        async with a_follower_of(play) as (follower, leader):
            asking = asyncio.ensure_future(follower.ask("POST", "/v0/topics/t", WRITE))
            await until(lambda: leader.taken)
            assert (await follower.ask("GET", "/v0/topics")).status == 200
            go_on.set()
            assert (await asking).json == {"a": 1}

    run(story())


def test_a_request_that_waits_for_a_leader_of_old_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node that was stopped answers nothing, and another leads by now: the client hears of it
    without the long wait."""
    monkeypatch.setattr("topics.server.cluster.forwarding.LOOK_S", 0.001)
    silent = saying(b"", then_waits=True)

    async def story() -> None:
        async with a_follower_of(silent) as (follower, leader):
            asking = asyncio.ensure_future(follower.ask("POST", "/v0/topics/t", WRITE))
            await until(lambda: leader.taken)
            follower.standing.leader_url = "http://127.0.0.1:1"

            answer = await asking

            assert answer.code == (503, "not_leader")
            assert answer.json["error"]["detail"] == {"leader": leader.url, "outcome": "unknown"}

    run(story())


def test_a_silent_leader_is_given_up_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topics.server.cluster.forwarding.ANSWER_S", 0.01)

    async def story() -> None:
        async with a_follower_of(saying(b"", then_waits=True)) as (follower, leader):
            answer = await follower.ask("POST", "/v0/topics/t", WRITE)
            assert answer.json["error"]["detail"]["outcome"] == "unknown"
            await until(lambda: leader.ended == leader.taken)

    run(story())


def test_a_client_that_leaves_ends_its_request_at_the_leader() -> None:
    """The connection is closed, so that the leader leases no job to it. (§10.2)"""

    async def story() -> None:
        async with a_pair() as pair:
            for node in (pair.leader, pair.follower):
                node.put("q", type="queue")
            wire = await pair.follower.connect()
            claim = {"node": "w", "wait_ms": 30_000}
            wire.send(request("POST", "/v0/topics/q/claim", claim))
            await until(lambda: pair.leader.shared.busy)
            assert pair.follower.forwarder.connections == (0, 1, 0)

            wire.close()
            await until(lambda: not pair.leader.shared.connections)
            pair.leader.put("q", "a job")
            assert pair.follower.forwarder.connections == (0, 0, 0)
            state = (await pair.leader.ask("GET", "/v0/topics/q")).json
            assert state["queue"]["ready"] == 1

    run(story())


def test_claims_that_wait_do_not_hold_up_writes() -> None:
    """They have connections of their own, more than there are for what is answered soon."""

    async def story() -> None:
        async with a_pair() as pair:
            for node in (pair.leader, pair.follower):
                node.put("q", type="queue")
            wires = [await pair.follower.connect() for _ in range(SHORT_MAX + 1)]
            for wire in wires:
                wire.send(request("POST", "/v0/topics/q/claim", {"node": "w", "wait_ms": 30_000}))
            await until(lambda: pair.leader.shared.busy == len(wires))

            assert (await pair.follower.append("t", 1)).status == 201

    run(story())


def test_a_leader_that_does_not_read_holds_its_client_up() -> None:
    """Of a large body no more is handed to the kernel than it and the transport's buffer take, and
    the rest goes as the leader reads."""
    read_on = asyncio.Event()
    size = 16 << 20

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await read_on.wait()
        left = size
        while left > 0:
            left -= len(await reader.read(1 << 20))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        await writer.drain()
        await reader.read()

    async def story() -> None:
        async with a_follower_of(play) as (follower, leader):
            raw = b'{"records":[{"data":"%b"}]}' % (b"x" * (size - 25))
            asking = asyncio.ensure_future(follower.ask("POST", "/v0/topics/t", raw=raw))
            await until(lambda: leader.taken)
            links = follower.forwarder.pool(leader.url)
            await until(lambda: links.short == 1)
            (link,) = links.used
            await until(lambda: not link._can_write)
            assert link._transport.get_write_buffer_size() <= WRITE_BYTES + (1 << 20)
            read_on.set()
            assert (await asking).status == 200

    run(story())


def test_a_body_that_is_refused_early_is_not_sent_to_its_end() -> None:
    """The leader's own bound may be smaller: its answer comes back, and the connection ends."""
    said = b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}"

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        await writer.drain()
        await asyncio.sleep(3600)

    async def story() -> None:
        async with a_follower_of(play) as (follower, _):
            raw = b'{"records":[{"data":"%b"}]}' % (b"x" * (16 << 20))
            answer = await follower.ask("POST", "/v0/topics/t", raw=raw)
            assert (answer.status, answer.body) == (413, b"{}")

    run(story())


def test_a_thousand_requests_at_once_keep_memory_bounded() -> None:
    """Each with an answer of 256 KiB: together four times what is held of them; no connection beyond
    the bound is made, and all are answered."""
    body = b'{"a":"%b"}' % (b"x" * (256 << 10))
    said = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    most = 0

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await request_of(reader)
            writer.write(said)
            await writer.drain()

    async def story() -> None:
        nonlocal most
        async with a_follower_of(play) as (follower, leader):
            follower.forwarder.room.max_bytes = 1 << 20

            async def one() -> int:
                nonlocal most
                answer = await follower.ask("POST", "/v0/topics/t", WRITE)
                most = max(most, follower.forwarder.room.held_bytes)
                return len(answer.body)

            sizes = await asyncio.gather(*(one() for _ in range(1000)))

            assert sizes == [len(body)] * 1000
            assert leader.taken <= SHORT_MAX
            assert most <= 1 << 20
            assert follower.forwarder.room.held_bytes == 0
            assert follower.forwarder.connections[:2] == (0, 0)

    run(story())


def test_an_answer_owes_its_room_back_however_it_ends() -> None:
    """A client that leaves while a large answer is read, too."""
    size = SMALL_BYTES * 4
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size

    async def story() -> None:
        async with a_follower_of(saying(head + b"x", then_waits=True)) as (follower, leader):
            wire = await follower.connect()
            wire.send(request("POST", "/v0/topics/t", WRITE))
            await until(lambda: follower.forwarder.room.held_bytes == size)
            wire.close()
            await until(lambda: not follower.forwarder.room.held_bytes)
            await until(lambda: leader.ended == leader.taken)

    run(story())


def test_a_stream_that_breaks_off_ends_for_its_client() -> None:
    """It comes back with its last event's id, to this node or another."""
    said = (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        b"5\r\nhello\r\n"
    )

    async def story() -> None:
        async with a_follower_of(saying(said)) as (follower, _):
            wire = await follower.connect()
            wire.send(request("GET", "/v0/topics/q/work?node=w"))
            assert (await wire.head())[0] == 200
            assert [await wire.chunk(), await wire.chunk()] == [b"hello", b""]

    run(story())


def test_what_the_leader_refuses_is_passed_on() -> None:
    """Its status, its body, `Retry-After`: one that was deposed says so by itself."""
    error = {"error": {"code": "not_leader", "message": "m", "detail": {"outcome": "unknown"}}}
    body = json.dumps(error).encode()
    said = b"HTTP/1.1 503 X\r\nretry-after: 7\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)

    async def story() -> None:
        async with a_follower_of(saying(said)) as (follower, leader):
            answer = await follower.ask("POST", "/v0/topics/t", WRITE)
            assert (answer.status, answer.body) == (503, body)
            assert answer.headers["retry-after"] == "7"
            assert leader.taken == 1

    run(story())


def test_the_token_is_of_the_secret() -> None:
    """Nodes of one cluster make the same, those of another one not; and it tells nothing of it."""
    assert token_of(SECRET) == Forwarder(SECRET).token != token_of(bytes(16))
    assert SECRET.hex().encode() not in token_of(SECRET)


@pytest.mark.parametrize(
    ("target", "value"),
    [
        (b"/v0/topics/t?a=1\r\nx: y", b"v"),
        (b"/v0/topics/t HTTP/1.1", b"v"),
        (b"/v0/topics/t", b"v\r\n\r\nGET / HTTP/1.1"),
        (b"/v0/topics/t", b"v\nx: y"),
        (b"/v0/topics/t", b"v\0"),
    ],
)
def test_no_byte_of_a_request_can_end_a_line_at_the_leader(target: bytes, value: bytes) -> None:
    """Smuggling: HTTP/2 has no lines, so what would be two in HTTP/1.1 is refused here, whoever let
    it in."""
    carried = Request(
        method="POST",
        target=target,
        headers=[(b"x-a", value)],
        body=deque([b"{}"]),
        client="",
        is_read=False,
        is_long=False,
    )

    async def story() -> None:
        async with a_follower_of(saying(b"")) as (follower, leader):
            with pytest.raises(Rejection, match="cannot carry"):
                await follower.forwarder.carry(carried, leader.url, lambda: True)
            assert leader.taken == 0
            assert follower.forwarder.connections == (0, 0, 0)

    run(story())


def test_a_stop_is_not_held_up_by_what_waits_elsewhere() -> None:
    """A claim in its window is refused, a stream ends, a write is waited for. (§8.2)"""

    async def story() -> None:
        async with a_pair() as pair:
            for node in (pair.leader, pair.follower):
                node.put("q", type="queue")
            claiming, working = await pair.follower.connect(), await pair.follower.connect()
            claiming.send(request("POST", "/v0/topics/q/claim", {"node": "w", "wait_ms": 30_000}))
            working.send(request("GET", "/v0/topics/q/work?node=v"))
            assert (await working.head())[0] == 200
            await until(lambda: pair.leader.shared.busy == 2)

            pair.follower.exchange.drain()

            assert (await claiming.answer()).code == (503, "not_leader")
            while await working.chunk():
                pass
            assert pair.follower.shared.busy == 0

    run(story())
