"""A WebSocket on a follower: what it is served, and what the leader answers. (§7.7)"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from topics.protocol.faces.http.append_body import parse_append

from .pair import Node, Pair, a_follower_of, a_pair, asked_of, run, until


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
            assert "wal_append_ms" in ack["performance"]
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
    async def play(link: Any) -> None:
        await asked_of(link)

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


@asynccontextmanager
async def with_ephemeral() -> AsyncIterator[tuple[Pair, Ws]]:
    """A socket at the follower of a pair; topic `e` is of class `ephemeral`, and has a record."""
    async with a_pair() as pair, a_socket(pair.follower) as ws:
        pair.follower.put("e", durability="ephemeral")
        pair.leader.put("e", "one", durability="ephemeral")
        yield pair, ws


def watched(pair: Pair) -> list[str]:
    """What sockets are subscribed to at the leader."""
    return [name for each in pair.leader.shell.engine.watches.streams for name in each.watched]


def test_records_of_class_ephemeral_come_from_the_leader() -> None:
    """Their frames are those of a subscription, and come behind its reply, with the frames of the
    topics that were named beside them. (§4, §5 of the cluster)"""

    async def story() -> None:
        async with with_ephemeral() as (pair, ws):
            for node in (pair.leader, pair.follower):
                node.put("t", "here")
            topics: dict[str, object] = {"e": {}, "t": {"tail": True}}
            begun = await ws.say(op="subscribe", topics=topics, request_id="s")

            assert (begun["op"], begun["request_id"]) == ("subscribed", "s")
            assert {name: at["from_seq"] for name, at in begun["topics"].items()} == {
                "e": 0,
                "t": 1,
            }
            assert begun["topics"]["e"]["head_seq"] == 1
            frames = [await ws.hear() for _ in range(3)]
            [records] = [frame for frame in frames if frame["op"] == "record"]
            assert (records["topic"], records["records"][0]["data"]) == ("e", "one")
            ends = [frame for frame in frames if frame["op"] == "caught_up"]
            assert sorted(end["topic"] for end in ends) == ["e", "t"]

            await pair.leader.append("e", "two")
            assert (await ws.hear())["records"][0]["data"] == "two"
            await pair.leader.append("t", "also")
            assert (await ws.hear())["records"][0]["data"] == "also"

    run(story())


def test_a_topic_at_the_leader_is_unsubscribed_from() -> None:
    """Its frames end, those of its sister of the same command go on."""

    async def story() -> None:
        async with with_ephemeral() as (pair, ws):
            for node in (pair.leader, pair.follower):
                node.put("f", durability="ephemeral")
            both: dict[str, object] = {"e": {"tail": True}, "f": {}}
            await ws.say(op="subscribe", topics=both)
            assert [(await ws.hear())["op"] for _ in range(2)] == ["caught_up"] * 2

            gone = await ws.say(op="unsubscribe", topic="e", request_id=1)
            assert gone == {"op": "unsubscribed", "request_id": 1, "topic": "e", "subscribed": True}
            await pair.leader.append("e", "unheard")
            await pair.leader.append("f", "heard")
            assert (await ws.hear())["records"][0]["data"] == "heard"

            await ws.say(op="unsubscribe", topic="f")
            assert watched(pair) == []
            again = await ws.say(op="unsubscribe", topic="f")
            assert not again["subscribed"]

    run(story())


def test_a_second_subscription_of_a_name_replaces_the_first() -> None:
    """As on one node: no record comes twice."""

    async def story() -> None:
        async with with_ephemeral() as (pair, ws):
            for _ in range(20):  # more than a socket may have at a time
                assert (await ws.say(op="subscribe", topic="e", tail=True))["op"] == "subscribed"
                assert (await ws.hear())["op"] == "caught_up"
            assert watched(pair) == ["e"]
            await pair.leader.append("e", "two")
            assert (await ws.hear())["records"][0]["data"] == "two"
            assert (await ws.say(op="ping"))["op"] == "pong"

    run(story())


def test_the_leader_refuses_a_subscription() -> None:
    """With its code; the socket stays, and so does what it had."""

    async def story() -> None:
        async with a_pair() as pair, a_socket(pair.follower) as ws:
            pair.follower.put("e", durability="ephemeral")
            refused = await ws.say(op="subscribe", topic="e", request_id=3)
            assert (refused["code"], refused["request_id"]) == ("topic_not_found", 3)

            pair.follower.standing.leader_url = None
            refused = await ws.say(op="subscribe", topic="e")
            assert refused["code"] == "not_leader"
            assert (await ws.say(op="ping"))["op"] == "pong"

    run(story())


def test_a_mixed_subscription_is_all_or_none() -> None:
    """What is not found here leaves nothing at the leader."""

    async def story() -> None:
        async with with_ephemeral() as (pair, ws):
            topics: dict[str, object] = {"e": {}, "absent": {}}
            refused = await ws.say(op="subscribe", topics=topics)
            assert refused["code"] == "topic_not_found"
            assert watched(pair) == []
            assert (await ws.say(op="ping"))["op"] == "pong"

    run(story())


def test_a_new_leader_ends_a_socket_that_has_a_subscription_at_the_old_one() -> None:
    """What came before is given first; the client connects again, and goes on from there."""

    async def story() -> None:
        async with with_ephemeral() as (pair, ws):
            await ws.say(op="subscribe", topic="e")
            frames = [await ws.hear(), await ws.hear()]
            assert [frame["op"] for frame in frames] == ["record", "caught_up"]

            pair.follower.standing.leader_url = pair.follower.url

            last = await ws.hear()
            assert (last["op"], last["code"]) == ("error", "not_leader")
            with pytest.raises(ConnectionClosed):
                await ws.hear()
            await until(lambda: watched(pair) == [])

    run(story())


def test_a_socket_that_closes_ends_its_streams_at_the_leader() -> None:
    async def story() -> None:
        async with a_pair() as pair:
            for node in (pair.leader, pair.follower):
                node.put("e", durability="ephemeral")
            async with a_socket(pair.follower) as ws:
                await ws.say(op="subscribe", topic="e")
            await until(lambda: not pair.leader.shell.engine.watches.streams)

    run(story())


@pytest.mark.parametrize("is_leader", [False, True])
def test_an_ack_has_the_position_and_a_subscription_waits_for_it(is_leader: bool) -> None:
    """As an HTTP answer has `x-topics-position`, and a read sends it. (§5 of the cluster)"""

    async def story() -> None:
        async with a_pair() as pair:
            pair.leader.standing.index = 7
            async with a_socket(pair.leader if is_leader else pair.follower) as ws:
                ack = await ws.say(op="publish", topic="t", records=[{"data": 1}])
                assert (ack["op"], ack["position"]) == ("ack", "0.7")

            async with a_socket(pair.follower) as ws:
                pair.follower.put("t", 1)
                standing = pair.follower.standing
                behind = await ws.say(op="subscribe", topic="t", position="0.7")
                assert (behind["code"], standing.waited) == ("replica_behind", [5000])
                standing.index = 7
                known = await ws.say(op="subscribe", topic="t", position="0.7")
                assert known["op"] == "subscribed"
                await ws.hear()
                await ws.hear()
                for wrong in ("7", "1.7", 7):
                    refused = await ws.say(op="subscribe", topic="t", position=wrong)
                    assert refused["code"] == "invalid_request"

    run(story())


def test_a_leaders_socket_is_that_of_a_single_server() -> None:
    async def story() -> None:
        async with a_pair() as pair, a_socket(pair.leader) as ws:
            assert (await ws.say(op="publish", topic="t", records=[{"data": 1}]))["op"] == "ack"
            assert pair.leader.peers.counts.forwarded == 0

    run(story())


# ---------------------------------------------------------------------- partitions


def write(node: Node, topic: str, partition: int, data: object) -> None:
    raw = json.dumps({"records": [{"data": data, "partition": partition}]}).encode()
    limits = node.shell.limits
    node._apply(parse_append(topic, raw, limits, return_seqs=True, header_key=None))


def place(frame: Any) -> tuple[str, Any]:
    return frame["op"], frame.get("partition")


def test_partitions_are_watched_at_a_follower() -> None:
    """The partitions that it has, and each that it hears of. (§2.1, §7.7)"""

    async def story() -> None:
        async with a_pair() as pair, a_socket(pair.follower) as ws:
            pair.follower.put("t", partitions=2)
            write(pair.follower, "t", 1, "a")
            begun = await ws.say(op="subscribe", topic="t", cursor={"t#0": 0})
            assert [each["from_seq"] for each in begun["topics"]["t"]["partitions"]] == [0, 0]
            frames = [await ws.hear() for _ in range(3)]
            assert sorted(map(place, frames)) == [
                ("caught_up", 0),
                ("caught_up", 1),
                ("record", 1),
            ]

            pair.follower.put("t", partitions=3)
            assert place(await ws.hear()) == ("caught_up", 2)
            write(pair.follower, "t", 2, "b")
            assert place(await ws.hear()) == ("record", 2)

    run(story())


def test_partitions_of_class_ephemeral_are_watched_at_the_leader() -> None:
    """Frames say which one they are of on their way, too. (§2.1, §7.7)"""

    async def story() -> None:
        async with a_pair() as pair, a_socket(pair.follower) as ws:
            for node in (pair.leader, pair.follower):
                node.put("e", durability="ephemeral", partitions=2)
            write(pair.leader, "e", 1, "a")
            write(pair.leader, "e", 1, "b")
            begun = await ws.say(op="subscribe", topic="e", cursor={"e": 0, "e#1": 1})
            assert [each["from_seq"] for each in begun["topics"]["e"]["partitions"]] == [0, 1]
            frames = [await ws.hear() for _ in range(3)]
            [record] = [frame for frame in frames if frame["op"] == "record"]
            assert (record["partition"], record["records"][0]["data"]) == (1, "b")

            pair.leader.put("e", durability="ephemeral", partitions=3)
            assert place(await ws.hear()) == ("caught_up", 2)
            gone = await ws.say(op="unsubscribe", topic="e")
            assert gone["subscribed"]
            assert watched(pair) == []

    run(story())


def test_a_place_in_a_partition_that_is_not_known_here_waits() -> None:
    """It is from another node, and this one may only be behind. (§5 of the cluster)"""

    async def story() -> None:
        async with a_pair() as pair, a_socket(pair.follower) as ws:
            node, standing = pair.follower, pair.follower.standing
            node.put("t", partitions=2)
            standing.ends = False
            for unknown in ({"t#1": 1}, {"t#2": 0}):
                behind = await ws.say(op="subscribe", topic="t", cursor=unknown)
                assert behind["code"] == "replica_behind"

            standing.ends, standing.on_end = True, lambda: write(node, "t", 1, "came")
            known = await ws.say(op="subscribe", topic="t", cursor={"t#1": 1})
            assert known["topics"]["t"]["partitions"][1]["from_seq"] == 1

    run(story())
