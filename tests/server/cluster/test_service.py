"""What a follower asks of its leader, and leaders that die, are slow, or send garbage. (§5 of the cluster)"""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection

from topics.protocol.model.errors import ErrorCode, Rejection
from topics.server.links.codec import encode_rejection
from topics.server.links.messages import (
    SMALL_BYTES,
    WINDOW_BYTES,
    Answered,
    Ended,
    Part,
    Refused,
    Submit,
    Window,
    encode,
)

from .pair import Play, a_follower_of, a_pair, asked_of, request, run, until

WRITE = {"records": [{"data": 1}]}


def saying(*answers: bytes, then_waits: bool = False) -> Play:
    """A leader that reads a command and says this."""

    async def play(link: ServerConnection) -> None:
        await asked_of(link)
        for answer in answers:
            await link.send(answer)
        if then_waits:
            await link.wait_closed()

    return play


def reply(*, size: int = 0, text: bytes = b"", number: int = 1, kind: str = "Deleted") -> bytes:
    return encode(Answered(number, kind, b"", 0, 0, 0, size, text, False))


BAD: dict[str, Sequence[bytes]] = {
    "nothing": [],
    "an answer to nothing": [reply(number=77)],
    "an answer without its text": [reply(size=10)],
    "a part of its text": [reply(size=10), encode(Part(1, b"12345", False))],
    "garbage": [b"\xc1 no message at all"],
    "no bytes": [b""],
    "an outcome that is none": [reply(kind="Nonsense")],
    "an outcome with another's head": [reply(kind="Appended")],
    "a window": [encode(Window(1, 10))],
}


@pytest.mark.parametrize("said", BAD.values(), ids=BAD.keys())
def test_a_write_whose_answer_is_none_may_have_been_done(said: Sequence[bytes]) -> None:
    """503 `not_leader`, `outcome` `unknown`: under its idempotency key it may be repeated; nothing of
    the bad answer is passed on, and the write is sent once."""

    async def story() -> None:
        async with a_follower_of(saying(*said)) as (follower, leader):
            answer = await follower.ask("POST", "/v0/topics/t", WRITE)

            assert answer.code == (503, "not_leader")
            assert answer.json["error"]["detail"] == {"leader": leader.url, "outcome": "unknown"}
            assert answer.headers["retry-after"] == "1"
            counts = follower.peers.counts
            assert (leader.taken, counts.forwarded, counts.failed, counts.unknown) == (1, 1, 1, 1)
            assert follower.peers.open_count == 0
            assert follower.peers.answers.held_bytes == 0

    run(story())


def test_a_read_whose_answer_is_none_is_asked_once_more() -> None:
    """It does nothing twice; on a second failure nothing was applied, and the answer says so."""

    async def story() -> None:
        async with a_follower_of(saying()) as (follower, leader):
            follower.put("e", durability="ephemeral")
            answer = await follower.ask("POST", "/v0/topics/e/diff", {})

            assert answer.code == (503, "not_leader")
            assert answer.json["error"]["detail"]["outcome"] == "not_applied"
            assert leader.taken == 2
            assert follower.peers.counts.unknown == 0

    run(story())


def test_a_leader_that_cannot_be_reached_was_sent_nothing() -> None:
    async def story() -> None:
        async with a_follower_of(saying()) as (follower, leader):
            await leader.stop()
            answer = await follower.ask("POST", "/v0/topics/t", WRITE)
            assert answer.code == (503, "not_leader")
            assert answer.json["error"]["detail"]["outcome"] == "not_applied"
            assert answer.headers["retry-after"] == "1"

    run(story())


@pytest.mark.parametrize("status", [404, 400, 502], ids=["no link", "another version", "a proxy"])
def test_a_node_without_the_link_was_sent_nothing(status: int) -> None:
    """A leader of an older version, while nodes are replaced one by one: reads go on, and a write is to
    come again."""

    async def story() -> None:
        async with a_follower_of(saying()) as (follower, leader):
            leader.status = status
            follower.put("t", 1)
            refused = await follower.ask("POST", "/v0/topics/t", WRITE)
            assert refused.code == (503, "not_leader")
            assert refused.json["error"]["detail"] == {
                "leader": leader.url, "outcome": "not_applied",
            }  # fmt: skip
            assert refused.headers["retry-after"] == "1"
            assert (await follower.ask("POST", "/v0/topics/t/diff", {})).status == 200

    run(story())


def test_one_link_carries_all() -> None:
    """Requests that are under way together, too; each gets its own answer."""

    async def story() -> None:
        async with a_pair() as pair:
            asked = [pair.follower.append("t", at) for at in range(20)]
            answers = await asyncio.gather(*asked)

            assert sorted(each.json["first_seq"] for each in answers) == list(range(1, 21))
            assert len(pair.leader.shared.connections) == 1
            assert pair.follower.peers.open_count == 1

    run(story())


def test_a_leader_that_is_slow_is_waited_for() -> None:
    """Part by part, and whole to the client; other requests go on meanwhile."""
    go_on = asyncio.Event()
    size = 40_000

    async def play(link: ServerConnection) -> None:
        asked = await asked_of(link)
        refusal = encode_rejection(Rejection(ErrorCode.TOPIC_FULL, "x" * size))
        await go_on.wait()
        await link.send([encode(Refused(asked.number, refusal))[at : at + 1000]
                         for at in range(0, size + 1000, 1000)])  # fmt: skip
        await link.wait_closed()

    async def story() -> None:
        async with a_follower_of(play) as (follower, leader):
            asking = asyncio.ensure_future(follower.ask("POST", "/v0/topics/t", WRITE))
            await until(lambda: leader.taken)
            assert (await follower.ask("GET", "/v0/topics")).status == 200
            go_on.set()
            answer = await asking
            assert answer.code == (422, "topic_full")
            assert len(answer.json["error"]["message"]) == size

    run(story())


def test_what_waits_for_a_leader_of_old_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that was stopped answers nothing, and another leads by now: the client hears of it
    without the long wait."""
    monkeypatch.setattr("topics.server.cluster.peers.LOOK_S", 0.001)

    async def story() -> None:
        async with a_follower_of(saying(then_waits=True)) as (follower, leader):
            asking = asyncio.ensure_future(follower.ask("POST", "/v0/topics/t", WRITE))
            await until(lambda: leader.taken)
            follower.standing.leader_url = "http://127.0.0.1:1"

            answer = await asking

            assert answer.code == (503, "not_leader")
            assert answer.json["error"]["detail"] == {"leader": leader.url, "outcome": "unknown"}

    run(story())


def test_a_silent_leader_is_given_up_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """And is told so, where the link was there and the command went out at once."""
    over: list[Any] = []
    refused = encode_rejection(Rejection(ErrorCode.TOPIC_FULL, "first"))

    async def play(link: ServerConnection) -> None:
        first = await asked_of(link)
        await link.send(encode(Refused(first.number, refused)))
        over.extend([await asked_of(link) for _ in range(3)])
        await link.wait_closed()

    async def story() -> None:
        async with a_follower_of(play) as (follower, _):
            assert (await follower.ask("POST", "/v0/topics/t", WRITE)).status == 422
            monkeypatch.setattr("topics.server.cluster.service.ANSWER_S", 0.01)
            answer = await follower.ask("POST", "/v0/topics/t", WRITE)
            assert answer.json["error"]["detail"]["outcome"] == "unknown"
            await until(lambda: over)
            assert [over[0], over[1].number, over[2]] == [Ended(1), 2, Ended(2)]

    run(story())


def test_a_client_that_leaves_ends_its_request_at_the_leader() -> None:
    """So the leader leases no job to it, and the link stays. (§10.2)"""

    async def story() -> None:
        async with a_pair() as pair:
            for node in (pair.leader, pair.follower):
                node.put("q", type="queue")
            wire = await pair.follower.connect()
            claim = {"node": "w", "wait_ms": 30_000}
            wire.send(request("POST", "/v0/topics/q/claim", claim))
            parked = pair.leader.shell.driver._parked
            await until(lambda: parked)
            wire.close()
            await until(lambda: not parked)
            pair.leader.put("q", "a job")
            state = (await pair.leader.ask("GET", "/v0/topics/q")).json
            assert state["queue"]["ready"] == 1
            assert pair.follower.peers.open_count == 1

    run(story())


def test_claims_that_wait_do_not_hold_up_writes() -> None:
    async def story() -> None:
        async with a_pair() as pair:
            for node in (pair.leader, pair.follower):
                node.put("q", type="queue")
            wires = [await pair.follower.connect() for _ in range(100)]
            for wire in wires:
                wire.send(request("POST", "/v0/topics/q/claim", {"node": "w", "wait_ms": 30_000}))
            parked = pair.leader.shell.driver._parked
            await until(lambda: len(parked) == len(wires))

            assert (await pair.follower.append("t", 1)).status == 201

    run(story())


def test_a_leader_that_does_not_take_holds_up_one_command() -> None:
    """Of a large command no more is sent than the leader has room for; others go on."""
    read_on = asyncio.Event()
    size = 4 << 20
    seen: list[int] = []

    async def play(link: ServerConnection) -> None:
        large = await asked_of(link)
        assert isinstance(large, Submit)
        assert large.size >= size
        left = large.size
        small = None
        while left > large.size - WINDOW_BYTES or small is None:
            message = await asked_of(link)
            if isinstance(message, Submit):
                small = message
                await link.send(encode(Refused(small.number, FULL)))
            elif isinstance(message, Part):
                left -= len(message.data)
        seen.append(large.size - left)
        await read_on.wait()
        while left > 0:
            await link.send(encode(Window(large.number, WINDOW_BYTES)))
            until_left = max(0, left - WINDOW_BYTES)
            while left > until_left:
                message = await asked_of(link)
                if isinstance(message, Part):
                    left -= len(message.data)
        await link.send(encode(Refused(large.number, FULL)))
        await link.wait_closed()

    async def story() -> None:
        async with a_follower_of(play) as (follower, leader):
            raw = records_of(size)
            asking = asyncio.ensure_future(follower.ask("POST", "/v0/topics/t", raw=raw))
            await until(lambda: leader.taken)
            other = await follower.ask("POST", "/v0/topics/t", WRITE)
            assert other.code == (422, "topic_full")
            await until(lambda: seen)
            assert seen == [WINDOW_BYTES]
            read_on.set()
            assert (await asking).code == (422, "topic_full")

    run(story())


def records_of(size: int) -> bytes:
    """A body with so many bytes of records."""
    one = b'{"data":"%b"}' % (b"x" * (512 << 10))
    return b'{"records":[%b]}' % b",".join([one] * (size >> 19))


FULL = encode_rejection(Rejection(ErrorCode.TOPIC_FULL, "full", {"max_records": 1}))


def test_a_command_that_is_refused_early_is_not_sent_to_its_end() -> None:
    """The leader's own bound may be smaller: its refusal comes back, and the link stays."""
    parts: list[Any] = []

    async def play(link: ServerConnection) -> None:
        asked = await asked_of(link)
        assert asked.size > SMALL_BYTES
        await link.send(encode(Refused(asked.number, FULL)))
        while not isinstance(message := await asked_of(link), Ended):
            parts.append(message)
        await link.wait_closed()

    async def story() -> None:
        async with a_follower_of(play) as (follower, _):
            raw = records_of(4 << 20)
            answer = await follower.ask("POST", "/v0/topics/t", raw=raw)
            assert answer.code == (422, "topic_full")
            assert answer.json["error"]["detail"]["max_records"] == 1
            assert sum(len(part.data) for part in parts) <= WINDOW_BYTES
            assert follower.peers.open_count == 1

    run(story())


def test_the_text_of_replies_is_bounded() -> None:
    """A reply for which there is no room is refused, and takes no room; later ones are answered."""
    limit = 1 << 20

    async def story() -> None:
        async with a_pair() as pair:
            for node in (pair.leader, pair.follower):
                node.put("e", durability="ephemeral")
            pair.leader.put("e", *("x" * 40_000 for _ in range(20)))
            answers = pair.follower.peers.answers
            whole = answers.max_bytes
            answers.max_bytes = limit
            read = await pair.follower.ask("POST", "/v0/topics/e/diff", {"from_seq": 0})
            assert read.status == 200
            assert len(read.json["records"]) == 20
            answers.max_bytes = 1 << 10
            refused = await pair.follower.ask("POST", "/v0/topics/e/diff", {"from_seq": 0})
            assert refused.code == (429, "throttled")
            answers.max_bytes = whole
            again = await pair.follower.ask("POST", "/v0/topics/e/diff", {"from_seq": 0})
            assert again.status == 200

    run(story())


def test_a_stream_that_breaks_off_ends_for_its_client() -> None:
    """It comes back with its last event's id, to this node or another."""

    async def story() -> None:
        async with a_pair() as pair:
            for node in (pair.leader, pair.follower):
                node.put("q", type="queue")
            pair.leader.put("q", "a job")
            wire = await pair.follower.connect()
            wire.send(request("GET", "/v0/topics/q/work?node=w"))
            assert (await wire.head())[0] == 200
            await wire.chunks_until(b"a job")
            for connection in list(pair.leader.shared.connections):
                connection.abort()
            while await wire.chunk():
                pass

    run(story())


def test_a_stop_is_not_held_up_by_what_waits_elsewhere() -> None:
    """A claim in its window is refused, a stream ends, a write is waited for. (§8.2)"""

    async def story() -> None:
        async with a_pair() as pair:
            for node in (pair.leader, pair.follower):
                node.put("q", type="queue")
            claiming, working = await pair.follower.connect(), await pair.follower.connect()
            working.send(request("GET", "/v0/topics/q/work?node=v"))
            assert (await working.head())[0] == 200
            claiming.send(request("POST", "/v0/topics/q/claim", {"node": "w", "wait_ms": 30_000}))
            await until(lambda: pair.leader.shell.driver._parked)

            pair.follower.exchange.drain()

            assert (await claiming.answer()).code == (503, "shutting_down")
            while await working.chunk():
                pass
            assert pair.follower.shared.busy == 0

    run(story())


def test_a_trim_whose_answer_is_none_may_have_been_done() -> None:
    """It is asked as a report, and is no read. (§8.8)"""

    async def story() -> None:
        async with a_follower_of(saying()) as (follower, leader):
            answer = await follower.ask("POST", "/v0/cluster/trim", {"before": 7})
            assert answer.code == (503, "not_leader")
            assert answer.json["error"]["detail"] == {"leader": leader.url, "outcome": "unknown"}

    run(story())


def test_an_older_leader_is_not_asked_for_what_it_does_not_know() -> None:
    """It would do an ack and drop its result: 409 `upgrade_pending`, and nothing is sent; what it knows is asked. While
    it is not known how old the nodes are, the client tries again. (§0.6)"""

    async def story() -> None:
        async with a_pair() as pair:
            follower, leader = pair.follower, pair.leader
            await follower.append("q", 1, type="queue")
            claim = await follower.ask("POST", "/v0/topics/q/claim", {"node": "w"})
            assert claim.json["count"] == 1
            ack = {"node": "w", "seqs": [1]}
            asked: list[tuple[str, dict[str, object]]] = [
                ("q/ack", {**ack, "result": 1}),
                ("q/nack", {**ack, "reason": "why"}),
                ("q/extend", {**ack, "lease_ms": 9000, "progress": 1}),
                ("q", {"records": [{"data": 2, "delay_ms": 5000}]}),
                ("q/jobs/1/cancel", {}),
            ]
            for known, code in ((1, (409, "upgrade_pending")), (None, (503, "not_leader"))):
                follower.standing.format = known
                for path, body in asked:
                    assert (await follower.ask("POST", f"/v0/topics/{path}", body)).code == code
            assert leader.shell.engine.state.topics["q"].count == 1
            assert (await follower.ask("POST", "/v0/topics/q/ack", ack)).json["acked"] == 1

    run(story())
