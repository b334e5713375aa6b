"""A WebSocket on a follower: what it is served, and what the leader answers. (§7.7)"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.client import connect

from topics.protocol.model.errors import ErrorCode
from topics.server.cluster.sockets import reply_of
from topics.server.exchange.refusals import refusal

from .pair import Node, a_follower_of, a_pair, request_of, run


class Ws:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def say(self, **message: object) -> Any:
        await self._connection.send(json.dumps(message))
        return await self.hear()

    async def hear(self) -> Any:
        return json.loads(await self._connection.recv())


@asynccontextmanager
async def a_socket(node: Node) -> AsyncIterator[Ws]:
    async with connect(node.url.replace("http", "ws") + "/v0/ws", proxy=None) as connection:
        yield Ws(connection)


def test_a_publish_is_the_leaders_and_its_records_come_back() -> None:
    """The ack is as a leader's own; the follower shows the records once it has applied them."""

    async def story() -> None:
        async with a_pair() as pair, a_socket(pair.follower) as ws:
            pair.follower.put("t", "old")
            assert (await ws.say(op="subscribe", topic="t", tail=True))["op"] == "subscribed"
            await ws.hear()  # caught up

            records = [{"data": "new", "tag": "x"}]
            ack = await ws.say(
                op="publish", topic="t", request_id="r1", records=records, idempotency_key="k"
            )

            assert (ack["op"], ack["request_id"], ack["seqs"]) == ("ack", "r1", [1])
            assert "server_total_ms" in ack["performance"]
            assert pair.leader.shell.engine.state.topics["t"].head_seq == 1
            pair.follower.put("t", "new")
            assert (await ws.hear())["records"][0]["data"] == "new"

    run(story())


@pytest.mark.parametrize("with_seqs", [True, False])
def test_what_a_publish_asks_for_goes_along(with_seqs: bool) -> None:
    async def story() -> None:
        async with a_pair() as pair, a_socket(pair.follower) as ws:
            ack = await ws.say(
                op="publish", topic="a.b", return_seqs=with_seqs, records=[{"data": 1}]
            )
            assert ("seqs" in ack) is with_seqs
            assert "request_id" not in ack

    run(story())


def test_a_refusal_of_the_leader_is_an_error_of_the_command() -> None:
    """With its code, its detail and the request's id; the socket stays."""

    async def story() -> None:
        async with a_pair() as pair, a_socket(pair.follower) as ws:
            pair.leader.put("full", 1, cap_records=1, discard="reject")
            refused = await ws.say(op="publish", topic="full", request_id=7, records=[{"data": 2}])
            assert (refused["op"], refused["request_id"]) == ("error", 7)
            assert refused["code"] == "topic_full"
            assert (await ws.say(op="ping"))["op"] == "pong"

    run(story())


def test_without_a_leader_a_publish_is_refused_and_the_socket_goes_on() -> None:
    async def story() -> None:
        async with a_pair() as pair, a_socket(pair.follower) as ws:
            pair.follower.standing.leader_url = None
            refused = await ws.say(op="publish", topic="t", request_id=1, records=[{"data": 2}])
            assert (refused["code"], refused["detail"]["outcome"]) == ("not_leader", "not_applied")
            assert refused["retry_after_ms"] == 1000
            assert (await ws.say(op="ping"))["op"] == "pong"

    run(story())


def test_a_leader_that_dies_leaves_a_publish_unknown() -> None:
    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)

    async def story() -> None:
        async with a_follower_of(play) as (follower, _), a_socket(follower) as ws:
            refused = await ws.say(op="publish", topic="t", request_id=1, records=[{"data": 2}])
            assert (refused["code"], refused["detail"]["outcome"]) == ("not_leader", "unknown")

    run(story())


@pytest.mark.parametrize("role", ["follower", "leader"])
def test_a_subscription_waits_for_the_end_of_the_log(role: str) -> None:
    """Where the topic, or the place in it, is not known here; a leader may have been deposed without
    knowing it, as one that was paused. (§5 of the cluster)"""

    async def story() -> None:
        async with a_pair() as pair, a_socket(getattr(pair, role)) as ws:
            node, standing = getattr(pair, role), getattr(pair, role).standing
            absent = await ws.say(op="subscribe", topic="t", request_id=1)
            assert (absent["code"], standing.waited) == ("topic_not_found", [5000])

            standing.ends = False
            behind = await ws.say(op="subscribe", topic="t", request_id=2)
            assert behind["code"] == "replica_behind"

            standing.ends, standing.on_end = True, lambda: node.put("t", 1, 2, 3)
            known = await ws.say(op="subscribe", topic="t", from_seq=2, request_id=3)
            assert (known["op"], known["topics"]["t"]["from_seq"]) == ("subscribed", 2)

    run(story())


def test_records_of_class_ephemeral_are_subscribed_to_at_the_leader() -> None:
    """This node has none of them; the refusal says where they are."""

    async def story() -> None:
        async with a_pair() as pair, a_socket(pair.follower) as ws:
            pair.follower.put("e", durability="ephemeral")
            refused = await ws.say(op="subscribe", topic="e")
            assert refused["code"] == "not_leader"
            assert refused["detail"]["leader"] == pair.leader.url

    run(story())


def test_a_leaders_socket_is_that_of_a_single_server() -> None:
    async def story() -> None:
        async with a_pair() as pair, a_socket(pair.leader) as ws:
            assert (await ws.say(op="publish", topic="t", records=[{"data": 1}]))["op"] == "ack"
            assert pair.leader.forwarder.counts.forwarded == 0

    run(story())


def test_an_answer_that_cannot_be_read_leaves_the_outcome_open() -> None:
    """A code of a later version, or a proxy's page."""
    known = json.loads(reply_of(b"1", refusal(ErrorCode.TOPIC_FULL, "full")))
    page = refusal(ErrorCode.INTERNAL, "x")
    broken = json.loads(reply_of(b"1", type(page)(502, (), [b"<html>"])))

    assert (known["code"], known["request_id"]) == ("topic_full", 1)
    assert (broken["code"], broken["detail"]["outcome"]) == ("not_leader", "unknown")
